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

/// A duration ago (`10m`) or a date.
pub fn since(text: &str, now: Timestamp) -> Result<Timestamp, String> {
    if let Ok(ms) = duration_ms(text) {
        return Ok(Timestamp(now.0.saturating_sub(ms)));
    }
    let at = humantime::parse_rfc3339_weak(text).map_err(|_| {
        format!("--since: {text:?} is neither a duration (10m) nor a date (2026-01-31T12:00:00Z)")
    })?;
    let elapsed = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(Timestamp(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn since_takes_durations_and_dates() {
        assert_eq!(since("10m", Timestamp(700_000)), Ok(Timestamp(100_000)));
        assert_eq!(since("1970-01-01T00:00:01Z", Timestamp(0)), Ok(Timestamp(1000)));
        assert!(since("yesterday", Timestamp(0)).is_err());
        assert_eq!(date(Timestamp(1500)), "1970-01-01T00:00:01.500Z");
        assert!(date(Timestamp(u64::MAX)).starts_with("9999-12-31"));
    }
}
