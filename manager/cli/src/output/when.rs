//! Wall-clock time at the command line: now, ages, dates.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use protocol::time::Timestamp;

use manager_plan::runfile::units::{duration_ms, human_duration};

pub fn now() -> Timestamp {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX))
}

/// `3m12s`, from then to now.
pub fn age(now: Timestamp, then: Timestamp) -> String {
    human_duration(now.ms_since(then))
}

/// RFC 3339 in UTC, to the millisecond.
pub fn date(at: Timestamp) -> String {
    // Beyond the year 9999 there is no such date.
    let ms = at.0.min(253_402_300_799_999);
    humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(ms)).to_string()
}

/// A duration ago (`10m`) or a date (RFC 3339): with an offset, else in UTC; without a time, its midnight.
pub fn since(text: &str, now: Timestamp) -> Result<Timestamp, String> {
    if let Ok(ms) = duration_ms(text) {
        return Ok(Timestamp(now.0.saturating_sub(ms)));
    }
    let wrong = || {
        format!(
            "--since: {text:?} is neither a duration (10m) nor a date (2026-01-31, 2026-01-31T12:00:00, in UTC unless \
             it ends with an offset such as +01:00)"
        )
    };
    let (local, offset_ms) = without_offset(text);
    let local = if local.contains(['T', 't', ' ']) { local.to_owned() } else { format!("{local}T00:00:00") };
    let at = humantime::parse_rfc3339_weak(&local).map_err(|_| wrong())?;
    let elapsed = at.duration_since(UNIX_EPOCH).map_err(|_| wrong())?;
    let ms = u64::try_from(elapsed.as_millis()).map_err(|_| wrong())?;
    Ok(Timestamp(ms.saturating_add_signed(-offset_ms)))
}

/// A date and the milliseconds that its place is ahead of UTC; only a date with a time has an offset.
fn without_offset(text: &str) -> (&str, i64) {
    let parsed = || {
        let time_at = text.find(['T', 't', ' '])?;
        let at = text.rfind(['+', '-']).filter(|at| *at > time_at)?;
        let (date, offset) = text.split_at_checked(at)?;
        let (hours, minutes) = offset.get(1..)?.split_once(':')?;
        let number = |part: &str, most: i64| {
            let is_number = part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
            part.parse::<i64>().ok().filter(|number| is_number && *number <= most)
        };
        let ms = (number(hours, 23)? * 60 + number(minutes, 59)?) * 60_000;
        Some((date, if offset.starts_with('-') { -ms } else { ms }))
    };
    parsed().unwrap_or((text, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn since_takes_durations_and_dates() {
        assert_eq!(since("10m", Timestamp(700_000)), Ok(Timestamp(100_000)));
        assert_eq!(since("1970-01-01T00:00:01Z", Timestamp(0)), Ok(Timestamp(1000)));
        for (text, ms) in [
            ("1970-01-02", 86_400_000),
            ("1970-01-02T00:00:00", 86_400_000),
            ("1970-01-02T01:00:00+01:00", 86_400_000),
            ("1970-01-01 22:30:00-01:30", 86_400_000),
            ("1970-01-02T00:00:00.500Z", 86_400_500),
        ] {
            assert_eq!(since(text, Timestamp(0)), Ok(Timestamp(ms)), "{text}");
        }
        for text in ["yesterday", "1970-01-02+01:00", "1970-01-02T00:00:00+1", "1970-13-02", ""] {
            assert!(since(text, Timestamp(0)).unwrap_err().contains("UTC"), "{text}");
        }
        assert_eq!(date(Timestamp(1500)), "1970-01-01T00:00:01.500Z");
        assert!(date(Timestamp(u64::MAX)).starts_with("9999-12-31"));
    }
}
