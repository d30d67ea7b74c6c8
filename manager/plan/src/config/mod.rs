//! Settings: where they are written, which of them win, and what they may be. Layers, the later ones winning:
//!
//! ```text
//! built-in < system < user < project < environment (PHALANX_*) < option of the command line
//! ```
//!
//! A project's file comes with whatever repository one stands in, so it may only set what cannot hurt: see
//! [`key::Key::layers`]. Options are the commands' own; what a setting does is the business of whoever asks for it.

pub mod edit;
pub mod format;
pub mod key;
pub mod layer;
pub mod read;
pub mod toml;
pub mod value;

use std::collections::BTreeMap;
use std::path::Path;

use manager_core::RunBounds;

use crate::notify::hook::Hook;
use crate::runfile::problem::Collector;
use crate::runfile::profile::{self, Profile};
use key::{KEYS, Key};
use layer::{Files, Layer};
pub use read::Wrong;

/// Within which a blob that was uploaded is named, where the settings give no less.
pub const BLOB_GRACE_MS: u64 = 60 * 60 * 1000;

/// The value of a key and where it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// As it was written; `none` and `never` for what is not limited.
    pub text: String,
    pub origin: Origin,
}

/// Where something was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    pub layer: Layer,
    /// `FILE:LINE` or the variable; empty for what is built in.
    pub place: String,
}

/// A profile and where it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedProfile {
    pub profile: Profile,
    pub origin: Origin,
}

/// Every key with its value, and every profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    entries: BTreeMap<&'static str, Entry>,
    profiles: BTreeMap<String, NamedProfile>,
    /// Of all layers together.
    hooks: Vec<Hook>,
}

impl Default for Settings {
    fn default() -> Self {
        let built_in = || Origin { layer: Layer::BuiltIn, place: String::new() };
        let entries =
            KEYS.iter().map(|key| (key.name, Entry { text: key.default.into(), origin: built_in() }));
        let profiles = profile::built_in().into_iter();
        Self {
            entries: entries.collect(),
            profiles: profiles
                .map(|(name, profile)| (name, NamedProfile { profile, origin: built_in() }))
                .collect(),
            hooks: Vec::new(),
        }
    }
}

impl Settings {
    /// What all layers together say, or everything that is wrong with any of them.
    ///
    /// # Errors
    /// Files that cannot be read, keys that are not known or not allowed there, values that cannot be.
    pub fn read(files: &Files, environment: &BTreeMap<String, String>) -> Result<Self, Wrong> {
        let mut settings = Self::default();
        let mut wrong = Wrong::default();
        for (layer, path) in files.all() {
            match read::file(path, layer) {
                Ok(Some(found)) => settings.take(found, path, &mut wrong),
                Ok(None) => {}
                Err(problems) => wrong.add(problems),
            }
        }
        match read::environment(environment) {
            Ok(found) => settings.take(found, Path::new("the environment"), &mut wrong),
            Err(problems) => wrong.add(problems),
        }
        if wrong.is_empty() { Ok(settings) } else { Err(wrong) }
    }

    /// What daemons take: system and user alone, so that it does not matter where or by whom they were started.
    ///
    /// # Errors
    /// As [`Settings::read`].
    pub fn of_daemons() -> Result<Self, Wrong> {
        Self::read(&Files::of_daemons(), &BTreeMap::new())
    }

    /// What one file alone says, over what is built in.
    ///
    /// # Errors
    /// As [`Settings::read`]; a file that is not there, too.
    pub fn of_file(path: &Path, layer: Layer) -> Result<Self, Wrong> {
        let (mut settings, mut wrong) = (Self::default(), Wrong::default());
        match read::file(path, layer) {
            Ok(Some(found)) => settings.take(found, path, &mut wrong),
            Ok(None) => return Err(Wrong::missing(path)),
            Err(problems) => return Err(Wrong::of(problems)),
        }
        if wrong.is_empty() { Ok(settings) } else { Err(wrong) }
    }

    fn take(&mut self, found: read::Found, path: &Path, wrong: &mut Wrong) {
        self.entries.extend(found.entries);
        self.profiles.extend(found.profiles);
        let mut problems = Collector::default();
        for (at, hook) in found.hooks {
            if let Err(message) = self.take_hook(hook) {
                problems.add(at, format!("notify: {message}"));
            }
        }
        if let Err(problems) = problems.finish(&path.display().to_string(), ()) {
            wrong.add(problems);
        }
    }

    /// Twice to the same place is once, for the one or the other; one name is one hook, in whichever layers.
    fn take_hook(&mut self, hook: Hook) -> Result<(), String> {
        let named = self.hooks.iter().find(|known| known.name.is_some() && known.name == hook.name);
        if let (Some(name), Some(known)) = (&hook.name, named.filter(|known| known.to != hook.to)) {
            return Err(format!("the name {name:?} is another hook's, in {}", known.origin.place));
        }
        match self.hooks.iter_mut().find(|known| known.to == hook.to) {
            Some(known) => known.merge(hook),
            None => {
                self.hooks.push(hook);
                Ok(())
            }
        }
    }

    pub fn entry(&self, key: &Key) -> Option<&Entry> {
        self.entries.get(key.name)
    }

    /// The value as it was written; `None` where there is none, which for limits means no limit.
    pub fn text(&self, key: &Key) -> Option<&str> {
        let text = self.entries.get(key.name)?.text.as_str();
        (!value::means_none(text)).then_some(text)
    }

    /// Of a duration.
    pub fn duration_ms(&self, key: &Key) -> Option<u64> {
        self.text(key).and_then(|text| crate::runfile::units::duration_ms(text).ok())
    }

    /// Of a whole number.
    pub fn whole(&self, key: &Key) -> Option<u64> {
        self.text(key).and_then(|text| text.parse().ok())
    }

    /// Of a share.
    pub fn percent(&self, key: &Key) -> Option<u8> {
        self.text(key).and_then(|text| crate::runfile::units::share_percent(text).ok())
    }

    /// How many runs that are over are kept, and for how long.
    pub fn run_bounds(&self) -> RunBounds {
        self.text(&key::RETAIN_RUNS).and_then(|text| value::bounds(text).ok()).unwrap_or_default()
    }

    /// How long a blob that nothing names stays in any case.
    pub fn blob_grace_ms(&self) -> u64 {
        self.duration_ms(&key::RETAIN_BLOBS).map_or(BLOB_GRACE_MS, |kept_ms| kept_ms.min(BLOB_GRACE_MS))
    }

    /// Caps by label; none where there are none.
    pub fn label_caps(&self) -> BTreeMap<String, u32> {
        self.text(&key::LABEL_CAPS).and_then(|text| value::caps(text).ok()).unwrap_or_default()
    }

    /// Whom to notify of what.
    pub fn hooks(&self) -> &[Hook] {
        &self.hooks
    }

    /// Every profile by its name.
    pub fn profiles(&self) -> BTreeMap<String, Profile> {
        self.profiles.iter().map(|(name, named)| (name.clone(), named.profile.clone())).collect()
    }

    /// Every profile with its origin.
    pub fn named_profiles(&self) -> &BTreeMap<String, NamedProfile> {
        &self.profiles
    }
}

#[cfg(test)]
mod tests;
