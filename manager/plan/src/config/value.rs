//! What values may be. Pure; which key was wrong is the caller's to say.

use std::collections::BTreeMap;
use std::str::FromStr;

use manager_core::RunBounds;

use crate::config::format::OutputFormat;
use crate::runfile::units::{cpu_millis, duration_ms, share_percent, size_bytes};

/// How a value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `10s`, also 0.
    Duration,
    /// Longer than 0, or `none`.
    TimeLimit,
    /// Longer than 0, or `never`.
    Retention,
    /// `500`, `30d`, both, or `never`.
    Bounds,
    /// At least 1M, or `none`.
    Memory,
    /// Cores, or `none`.
    Cores,
    /// At least 1, or `none`.
    Count,
    /// Above 0 up to 100 %.
    Share,
    /// `LABEL: N, LABEL: N`, or `none`.
    Caps,
    Output,
}

/// Reads `gpu: 1, team=infra: 3`.
///
/// # Errors
/// What is wrong with it.
pub fn caps(text: &str) -> Result<BTreeMap<String, u32>, String> {
    let mut caps = BTreeMap::new();
    for part in text.split(',').map(str::trim) {
        let (label, most) = part
            .rsplit_once([':', '='])
            .ok_or_else(|| format!("{part:?} is not LABEL: N, such as gpu: 1"))?;
        let (label, most) = (label.trim(), most.trim());
        let most = most.parse().map_err(|_| format!("{label}: {most:?} is not a whole number that fits"))?;
        manager_core::check_cap(label, most)?;
        if caps.insert(label.to_owned(), most).is_some() {
            return Err(format!("{label} is given twice"));
        }
    }
    Ok(caps)
}

/// Reads `500`, `30d` or `500, 30d`: how many are kept, and for how long.
///
/// # Errors
/// What is wrong with it.
pub fn bounds(text: &str) -> Result<RunBounds, String> {
    let mut bounds = RunBounds::default();
    for part in text.split(',').map(str::trim) {
        let is_number = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        let place = if is_number { &mut bounds.most } else { &mut bounds.older_ms };
        let value = if is_number {
            part.parse().map_err(|_| format!("{part:?} is not a whole number that fits"))?
        } else {
            match duration_ms(part) {
                Ok(0) => return Err("a time must be longer than 0".to_owned()),
                Ok(ms) => ms,
                Err(error) => return Err(error.to_string()),
            }
        };
        if place.replace(value).is_some() {
            let what = if is_number { "a number" } else { "a time" };
            return Err(format!("{what} is given twice"));
        }
    }
    Ok(bounds)
}

impl Kind {
    /// For `--help` and messages.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Duration => "a duration such as 10s",
            Self::TimeLimit => "a duration such as 10m, or none",
            Self::Retention => "a duration such as 30d, or never",
            Self::Bounds => "a number such as 500, a duration such as 30d, both ('500, 30d'), or never",
            Self::Memory => "a size such as 512M, or none",
            Self::Cores => "cores such as 1.5, or none",
            Self::Count => "a whole number, or none",
            Self::Share => "a share such as 85%",
            Self::Caps => "labels with their caps, such as 'gpu: 1, team=infra: 3', or none",
            Self::Output => "table, wide, json, jsonl, name or template='...'",
        }
    }

    /// Whether `text` is such a value, and why not.
    ///
    /// # Errors
    /// What is wrong, without the key.
    pub fn check(self, text: &str) -> Result<(), String> {
        let none = match self {
            Self::TimeLimit | Self::Memory | Self::Cores | Self::Count | Self::Caps => Some("none"),
            Self::Retention | Self::Bounds => Some("never"),
            Self::Duration | Self::Share | Self::Output => None,
        };
        if none == Some(text) {
            return Ok(());
        }
        let or_none = |message: String| match none {
            Some(word) => format!("{message}, or {word:?}"),
            None => message,
        };
        match self {
            Self::Duration => duration_ms(text).map(|_| ()).map_err(|error| error.to_string()),
            Self::TimeLimit | Self::Retention => match duration_ms(text) {
                Ok(0) => Err(or_none("it must be longer than 0".to_owned())),
                Ok(_) => Ok(()),
                Err(error) => Err(or_none(error.to_string())),
            },
            Self::Bounds => bounds(text).map(|_| ()).map_err(or_none),
            Self::Memory => match size_bytes(text) {
                Ok(bytes) if bytes < 1 << 20 => Err(or_none("it must be at least 1M".to_owned())),
                Ok(_) => Ok(()),
                Err(error) => Err(or_none(error.to_string())),
            },
            Self::Cores => cpu_millis(text).map(|_| ()).map_err(|error| or_none(error.to_string())),
            Self::Count => match text.parse::<u32>() {
                Ok(1..) => Ok(()),
                Ok(0) => Err(or_none("it must be at least 1".to_owned())),
                Err(_) => Err(or_none(format!("{text:?} is not a whole number that fits"))),
            },
            Self::Share => match share_percent(text) {
                Ok(0) => Err("it must be above 0 %".to_owned()),
                Ok(_) => Ok(()),
                Err(error) => Err(error.to_string()),
            },
            Self::Caps => caps(text).map(|_| ()).map_err(or_none),
            Self::Output => OutputFormat::from_str(text).map(|_| ()),
        }
    }
}

/// Whether a value says that there is none.
#[must_use]
pub fn means_none(text: &str) -> bool {
    matches!(text, "none" | "never")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_takes_its_own_values_and_no_others() {
        let table: &[(Kind, &[&str], &[&str])] = &[
            (Kind::Duration, &["10s", "0", "1h30m"], &["10", "none", "-1s", ""]),
            (Kind::TimeLimit, &["10s", "none"], &["0", "never", "10"]),
            (Kind::Retention, &["30d", "never"], &["0", "none", "30"]),
            (Kind::Memory, &["512M", "none"], &["1K", "0", "much"]),
            (Kind::Cores, &["1.5", "none"], &["0", "-1", "all"]),
            (
                Kind::Bounds,
                &["500", "30d", "500, 30d", "1h,0", "never"],
                &["", "0s", "1,2", "30d,7d", "many", "none"],
            ),
            (Kind::Count, &["1", "none"], &["0", "-1", "1.5", "99999999999"]),
            (Kind::Share, &["85%", "0.85", "100%"], &["0", "101%", "none"]),
            (
                Kind::Caps,
                &["gpu: 1", "team=infra:3, gpu:1", "gpu=1,team=infra=3", "none"],
                &["gpu", "gpu: 0", "=a: 1", "a:1,a:2", ""],
            ),
            (Kind::Output, &["json", "template={{ name }}"], &["xml", ""]),
        ];
        for (kind, right, wrong) in table {
            for text in *right {
                assert_eq!(kind.check(text), Ok(()), "{kind:?} {text}");
            }
            for text in *wrong {
                assert!(kind.check(text).is_err(), "{kind:?} {text}");
            }
        }
    }
}
