//! `up --enable`: this installation starts by itself with the machine. A systemd unit where systemd runs the machine,
//! of the system for root and of the user otherwise; else a line of cron. What is there is looked for, not remembered.
//!
//! Leaves to others: the start itself, which is that of `phalanx up` whoever calls it.

mod cron;
mod program;
mod systemd;
mod unit;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::layout::{HOME_VARIABLE, Layout, LayoutError};
use super::lock::LockError;

pub use systemd::start_in_unit;

/// How it is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    SystemUnit,
    UserUnit,
    Cron,
}

impl Way {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SystemUnit => "system unit",
            Self::UserUnit => "user unit",
            Self::Cron => "cron",
        }
    }
}

/// One thing that starts it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Entry {
    pub way: Way,
    /// The unit's file, or whose crontab.
    pub place: String,
    /// What keeps it from doing so at boot, with the remedy; empty when nothing is known to.
    pub lacks: String,
}

impl std::fmt::Display for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.way.as_str(), self.place)
    }
}

/// Whether it starts with the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum AtBoot {
    Enabled { entries: Vec<Entry> },
    NotEnabled,
    Unknown { why: String },
}

#[derive(Debug, thiserror::Error)]
pub enum BootError {
    #[error(
        "nothing here starts programs at boot: systemd does not run this machine, and there is no crontab"
    )]
    Neither,
    #[error("systemd has no manager for this user here, and there is no crontab: {said}")]
    NoUserManager { said: String },
    #[error("{reader} cannot hold the {what} {value:?}: it is not one line of UTF-8 text")]
    Text { what: String, reader: &'static str, value: OsString },
    #[error(
        "the line of the crontab would have {length} bytes, and cron takes {most}: PATH or the home is too long"
    )]
    TooLong { length: usize, most: usize },
    #[error("cannot {action} {path}")]
    File {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot run {program}")]
    Run {
        program: &'static str,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Layout(#[from] LayoutError),
    #[error("another start is not done")]
    Busy(#[from] LockError),
    #[error("{words}: {said}")]
    Refused { words: String, said: String },
}

/// What is started, and in which environment: that of a boot is almost empty.
#[derive(Debug, Clone)]
pub struct Start<'a> {
    pub program: PathBuf,
    pub layout: &'a Layout,
    environment: Vec<(String, OsString)>,
}

/// What decides which programs and settings are found, and in which language and time zone they speak. No proxy, which
/// may hold a password: units and crontabs are read by others.
const KEPT: [&str; 7] = ["PATH", "HOME", "XDG_CONFIG_HOME", "LANG", "LANGUAGE", "TZ", "PHALANX_LOG"];

impl<'a> Start<'a> {
    /// The start of `program` with what counts of this environment.
    #[must_use]
    pub fn new(
        program: PathBuf,
        layout: &'a Layout,
        environment: impl Iterator<Item = (OsString, OsString)>,
    ) -> Self {
        let kept = environment.filter_map(|(name, value)| {
            let name = name.into_string().ok()?;
            // A name goes unquoted into a line of shell; others may set what begins so, also over SSH.
            let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            let counts = is_plain && (KEPT.contains(&name.as_str()) || name.starts_with("LC_"));
            (counts && !value.is_empty()).then_some((name, value))
        });
        let mut environment: Vec<(String, OsString)> = kept.collect();
        environment.push((HOME_VARIABLE.to_owned(), layout.home().into()));
        environment.sort();
        Self { program, layout, environment }
    }

    /// As text for a file: what it cannot hold is refused.
    fn texts(&self, reader: &'static str) -> Result<Texts<'_>, BootError> {
        let refused = |what: &str, value: &std::ffi::OsStr| BootError::Text {
            what: what.to_owned(),
            reader,
            value: value.to_owned(),
        };
        let program = self.program.as_os_str();
        let pairs = self.environment.iter().map(|(name, value)| {
            let text = plain(value).ok_or_else(|| refused(&format!("value of {name}"), value))?;
            Ok((name.as_str(), text))
        });
        Ok(Texts {
            environment: pairs.collect::<Result<_, BootError>>()?,
            program: plain(program).ok_or_else(|| refused("path", program))?,
            home: plain(self.layout.home().as_os_str())
                .ok_or_else(|| refused("path", self.layout.home().as_os_str()))?,
        })
    }
}

struct Texts<'a> {
    program: &'a str,
    home: &'a str,
    environment: Vec<(&'a str, &'a str)>,
}

/// Text of one line.
fn plain(value: &std::ffi::OsStr) -> Option<&str> {
    value.to_str().filter(|text| !text.chars().any(char::is_control))
}

/// Tells the installations of a machine apart, whichever links lead to one, and also when its folder is gone.
fn name_of(layout: &Layout) -> String {
    let home = layout.home();
    let resolved = home.ancestors().find_map(|there| {
        let real = there.canonicalize().ok()?;
        Some(home.strip_prefix(there).map_or_else(|_| real.clone(), |rest| real.join(rest)))
    });
    // `join` of an empty rest leaves a slash at the end.
    let resolved: PathBuf = resolved.as_deref().unwrap_or(home).components().collect();
    let digest = data_encoding::HEXLOWER.encode(&Sha256::digest(resolved.as_os_str().as_encoded_bytes()));
    format!("phalanx-{}", digest.get(..12).unwrap_or(&digest))
}

/// Makes sure that it starts at boot, by the best way that this machine has, and by that alone. Repeatable.
pub fn enable(start: &Start<'_>) -> Result<Entry, BootError> {
    let mut entry = match (systemd::scope(), cron::is_here()) {
        (Ok(Some(scope)), _) => systemd::enable(scope, start)?,
        (_, true) => cron::enable(start)?,
        (Ok(None), false) => return Err(BootError::Neither),
        (Err(said), false) => return Err(BootError::NoUserManager { said }),
    };
    match entry.way {
        Way::Cron => {
            systemd::disable(start.layout)?;
        }
        Way::SystemUnit | Way::UserUnit => {
            // Who may not use cron has no line in it; and one that is left starts what runs already, which does nothing.
            if let Err(error) = cron::disable(start.layout)
                && entry.lacks.is_empty()
            {
                entry.lacks = format!("a line of cron may start it too: {}", protocol::chain(&error));
            }
        }
    }
    Ok(entry)
}

/// Takes away all that starts it at boot; what there was.
pub fn disable(layout: &Layout) -> Result<Vec<Entry>, BootError> {
    let mut gone = systemd::disable(layout)?;
    match cron::disable(layout) {
        Ok(entry) => gone.extend(entry),
        Err(error) if gone.is_empty() => return Err(error),
        Err(_) => {}
    }
    Ok(gone)
}

/// What starts it at boot now. `program` is the one that is meant to be started.
#[must_use]
pub fn at_boot(layout: &Layout, program: Option<&Path>) -> AtBoot {
    match found(layout, program) {
        Ok(entries) if entries.is_empty() => AtBoot::NotEnabled,
        Ok(entries) => AtBoot::Enabled { entries },
        Err(error) => AtBoot::Unknown { why: protocol::chain(&error) },
    }
}

fn found(layout: &Layout, program: Option<&Path>) -> Result<Vec<Entry>, BootError> {
    let mut entries = systemd::found(layout, program)?;
    match cron::found(layout, program) {
        Ok(entry) => entries.extend(entry),
        Err(error) if entries.is_empty() => return Err(error),
        Err(_) => {}
    }
    Ok(entries)
}

/// What is amiss where an entry does not start this program.
fn lacks_program(text: &str, program: Option<&str>) -> String {
    match program {
        Some(program) if !text.contains(program) => {
            "it starts another phalanx than this one; to start this one: phalanx up --enable".to_owned()
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installation_has_one_name_whatever_leads_to_it_and_others_have_others() {
        let temp = tempfile::tempdir().unwrap();
        let (real, link) = (temp.path().join("real"), temp.path().join("link"));
        std::fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let name = |path: &Path| name_of(&Layout::at(path).unwrap());
        assert_eq!(name(&link.join("home")), name(&real.join("home")), "not made yet");
        let before = name(&real.join("home"));
        std::fs::create_dir(real.join("home")).unwrap();
        assert_eq!(name(&link.join("home")), before, "made");
        assert_eq!(name(&real.join("home/")), before);
        assert_ne!(name(&real.join("other")), before);
    }

    #[test]
    fn the_start_keeps_what_counts_and_no_secret() {
        let layout = Layout::at("/h").unwrap();
        let all = [
            ("PATH", "/bin"),
            ("LC_ALL", "C.UTF-8"),
            ("LC_A;touch x", "1"),
            ("LC_A\nExecStartPre", "1"),
            ("TZ", ""),
            ("https_proxy", "http://me:secret@proxy"),
            ("AWS_SECRET_ACCESS_KEY", "x"),
            ("PHALANX_HOME", "/not this one"),
        ];
        let start = Start::new("/p".into(), &layout, all.iter().map(|(k, v)| (k.into(), v.into())));
        let texts = start.texts("a unit").unwrap();
        assert_eq!(texts.environment, [("LC_ALL", "C.UTF-8"), ("PATH", "/bin"), ("PHALANX_HOME", "/h")]);
        let broken = Start { program: "/a\nb".into(), ..start };
        assert!(matches!(broken.texts("a unit"), Err(BootError::Text { .. })));
    }
}
