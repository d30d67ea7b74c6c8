//! What happened in a seed, kept only when somebody is going to read it.

/// Lines of a replay; writing is free when nobody replays.
#[derive(Clone, Debug, Default)]
pub struct Log {
    lines: Option<Vec<String>>,
}

impl Log {
    #[must_use]
    pub fn kept() -> Self {
        Self { lines: Some(Vec::new()) }
    }

    pub fn say(&mut self, now: u64, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:>9.3} {}", seconds(now), line()));
        }
    }

    #[must_use]
    pub fn into_lines(self) -> Vec<String> {
        self.lines.unwrap_or_default()
    }
}

/// Seconds since the world began, for people.
#[must_use]
pub fn seconds(now: u64) -> f64 {
    let since = now.saturating_sub(super::world::EPOCH_MS);
    f64::from(u32::try_from(since).unwrap_or(u32::MAX)) / 1_000.0
}
