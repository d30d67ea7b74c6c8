//! Durations (`90s`, `1h30m`), sizes (`512M`), cores (`1.5`) and shares (`20%`) as people write them.
//! Pure; which field was wrong is the caller's to say.

use std::time::Duration;

/// Why a text is not a quantity. The text is quoted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    #[error("{0:?} is not a duration: write 500ms, 90s, 10m or 1h30m")]
    Duration(String),
    #[error("{0:?} has no unit: write {0}s for seconds or {0}m for minutes")]
    DurationUnit(String),
    #[error("{0:?} is not a size: write bytes or 64K, 512M, 2G, 1T (powers of 1024)")]
    Size(String),
    #[error("{0:?} is not a number of cores: write 0.5, 1 or 2.5")]
    Cores(String),
    #[error("{0:?} is not a share: write 20% or 0.2")]
    Share(String),
}

/// Milliseconds of `90s`, `10m`, `1h30m`. 0 alone needs no unit.
pub fn duration_ms(text: &str) -> Result<u64, UnitError> {
    let text = text.trim();
    if text == "0" {
        return Ok(0);
    }
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(UnitError::DurationUnit(text.to_owned()));
    }
    let wrong = || UnitError::Duration(text.to_owned());
    let duration: Duration = humantime::parse_duration(text).map_err(|_| wrong())?;
    u64::try_from(duration.as_millis()).map_err(|_| wrong())
}

/// Bytes of `512M`, `2G`, `1.5G`, `512MiB`, `1024`. Units are powers of 1024, as for memory everywhere.
pub fn size_bytes(text: &str) -> Result<u64, UnitError> {
    let text = text.trim();
    let wrong = || UnitError::Size(text.to_owned());
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(digits).ok_or_else(wrong)?;
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(wrong()),
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(1 << shift).ok_or_else(wrong);
    }
    let parts: f64 = number.parse().map_err(|_| wrong())?;
    rounded(parts * f64::from(1_u32 << shift.min(30)) * f64::from(1_u32 << (shift - shift.min(30))))
        .ok_or_else(wrong)
}

/// Thousandths of a core of `1.5`; above zero.
pub fn cpu_millis(text: &str) -> Result<u64, UnitError> {
    let wrong = || UnitError::Cores(text.to_owned());
    let cores: f64 = text.trim().parse().map_err(|_| wrong())?;
    rounded(cores * 1000.0).filter(|millis| (1..=10_000_000).contains(millis)).ok_or_else(wrong)
}

/// Percent of `20%` or `0.2`.
pub fn share_percent(text: &str) -> Result<u8, UnitError> {
    let wrong = || UnitError::Share(text.to_owned());
    let text = text.trim();
    let percent = match text.strip_suffix('%') {
        Some(number) => number.trim().parse::<f64>().map_err(|_| wrong())?,
        None => text.parse::<f64>().map_err(|_| wrong())? * 100.0,
    };
    let percent = rounded(percent).filter(|percent| *percent <= 100).ok_or_else(wrong)?;
    u8::try_from(percent).map_err(|_| wrong())
}

/// The nearest whole number, where there is one that a f64 holds exactly.
fn rounded(value: f64) -> Option<u64> {
    let value = value.round();
    if !(0.0..9.0e15).contains(&value) {
        return None;
    }
    format!("{value:.0}").parse().ok()
}

/// `90061000` ms as `1d 1h`: the two largest units, for tables and sentences.
pub fn human_duration(ms: u64) -> String {
    let seconds = ms / 1000;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) if ms < 1000 => format!("{ms}ms"),
        (0, 0, 0) if seconds < 10 => format!("{}.{}s", seconds, ms % 1000 / 100),
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => pair(minutes, "m", seconds % 60, "s"),
        (0, ..) => pair(hours, "h", minutes, "m"),
        _ => pair(days, "d", hours, "h"),
    }
}

fn pair(large: u64, large_unit: &str, small: u64, small_unit: &str) -> String {
    if small == 0 {
        format!("{large}{large_unit}")
    } else {
        format!("{large}{large_unit}{small}{small_unit}")
    }
}

/// `1536` as `1.5K`.
pub fn human_size(bytes: u64) -> String {
    let units = ["K", "M", "G", "T"];
    let mut unit = "";
    let mut tenths = bytes.saturating_mul(10);
    for next in units {
        if tenths < 10_240 {
            break;
        }
        tenths /= 1024;
        unit = next;
    }
    match (unit, tenths) {
        ("", _) => bytes.to_string(),
        (unit, tenths) if tenths < 100 => format!("{}.{}{unit}", tenths / 10, tenths % 10),
        (unit, tenths) => format!("{}{unit}", tenths / 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_people_write() {
        for (text, ms) in [("90s", 90_000), ("10m", 600_000), ("1h30m", 5_400_000), ("500ms", 500), ("0", 0)]
        {
            assert_eq!(duration_ms(text), Ok(ms), "{text}");
        }
        assert_eq!(duration_ms("90"), Err(UnitError::DurationUnit("90".into())));
        for wrong in ["", "x", "-5s", "5 parsecs", "99999999999999999999d"] {
            assert!(duration_ms(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_people_write() {
        for (text, bytes) in [
            ("512M", 512 << 20),
            ("2G", 2 << 30),
            ("1.5G", 3 << 29),
            ("1024", 1024),
            ("64KiB", 65_536),
            ("1T", 1 << 40),
        ] {
            assert_eq!(size_bytes(text), Ok(bytes), "{text}");
        }
        for wrong in ["", "M", "5X", "-1", "1.2.3M", "99999999999T", "1e3"] {
            assert!(size_bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn cores_and_shares_people_write() {
        assert_eq!(cpu_millis("1.5"), Ok(1500));
        assert!(cpu_millis("0").is_err() && cpu_millis("-1").is_err() && cpu_millis("NaN").is_err());
        assert_eq!(share_percent("20%"), Ok(20));
        assert_eq!(share_percent("0.2"), Ok(20));
        assert!(share_percent("200%").is_err());
    }

    #[test]
    fn quantities_are_shown_short() {
        assert_eq!(human_duration(90_061_000), "1d1h");
        assert_eq!(human_duration(61_000), "1m1s");
        assert_eq!(human_duration(1_500), "1.5s");
        assert_eq!(human_duration(12), "12ms");
        assert_eq!(human_size(1536), "1.5K");
        assert_eq!(human_size(0), "0");
        assert_eq!(human_size(5 << 30), "5.0G");
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parsers_panic(text: String, ms: u64) {
            let _ = (duration_ms(&text), size_bytes(&text), cpu_millis(&text), share_percent(&text));
            let _ = (human_duration(ms), human_size(ms));
        }
    }
}
