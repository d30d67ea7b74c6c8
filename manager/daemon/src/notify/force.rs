//! The hooks that are in force, and the look at the settings that may change them: by identity and times of the files, so
//! that it costs two `stat` before each notice. Which of them is written anew is not known: both are read then.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use protocol::ids::Name;

use manager_plan::config::layer::Files;
use manager_plan::config::{Settings, Wrong};
use manager_plan::notify::hook::Hook;

/// A file that was changed so shortly before it was read may change again without another time.
const YOUNG: Duration = Duration::from_secs(2);

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Force {
    pub hooks: Vec<Hook>,
    /// What is wrong with the settings as they are now, while those of before are in force; else empty.
    pub wrong: String,
    /// The settings were right once since this manager began. Until then nobody knows which hooks there are.
    pub is_read: bool,
}

impl Force {
    pub(super) fn find(&self, id: &str) -> Option<&Hook> {
        self.hooks.iter().find(|hook| hook.id() == id)
    }

    pub(super) fn names(&self) -> BTreeSet<Name> {
        self.hooks.iter().filter_map(|hook| hook.name.clone()).collect()
    }
}

/// A file as it was; why it could not be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(path: &Path) -> Result<Self, io::ErrorKind> {
        let found = std::fs::metadata(path).map_err(|error| error.kind())?;
        Ok(Self {
            device: found.dev(),
            inode: found.ino(),
            bytes: found.len(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }

    fn is_young(&self, now: Duration) -> bool {
        let changed = Duration::from_secs(u64::try_from(self.changed.0).unwrap_or(0));
        changed.saturating_add(YOUNG) >= now
    }

    /// Emptied, and not written yet: as an editor does it that writes over the file. What is read now would take out
    /// every hook, and with it how far each has come.
    fn is_being_written(&self, now: Duration) -> bool {
        self.bytes == 0 && self.is_young(now)
    }
}

/// Reads the settings of daemons when they may have changed.
pub(super) struct Reader {
    files: Files,
    seen: Option<Vec<Result<Stamp, io::ErrorKind>>>,
}

impl Default for Reader {
    fn default() -> Self {
        Self { files: Files::of_daemons(), seen: None }
    }
}

impl Reader {
    /// `None`: they are as they were at the last look, or a file is just being written.
    pub(super) fn look(&mut self) -> Option<Result<Vec<Hook>, Wrong>> {
        // Before the files are read: a change in the middle is seen by the next look.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let stamps: Vec<_> = self.files.all().map(|(_, path)| Stamp::of(path)).collect();
        if self.seen.as_ref() == Some(&stamps) {
            return None;
        }
        if stamps.iter().flatten().any(|stamp| stamp.is_being_written(now)) {
            self.seen = None;
            return None;
        }
        let is_young = stamps.iter().flatten().any(|stamp| stamp.is_young(now));
        self.seen = Some(stamps).filter(|_| !is_young);
        let read = Settings::read(&self.files, &std::collections::BTreeMap::new());
        Some(read.map(|settings| settings.hooks().to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_when_a_file_may_have_changed_and_only_then() {
        let folder = tempfile::tempdir().unwrap();
        let user = folder.path().join("config.toml");
        let files = Files { system: folder.path().join("none"), user: Some(user.clone()), project: None };
        let mut reader = Reader { files, seen: None };
        let count = |found: Option<Result<Vec<Hook>, Wrong>>| found.map(|found| found.unwrap().len());
        assert_eq!(count(reader.look()), Some(0));
        assert_eq!(count(reader.look()), None, "there is still none");
        let hook = |word: &str| format!("[[notify]]\non = 'failed'\ncommand = '{word}'\n");
        std::fs::write(&user, hook("a")).unwrap();
        assert_eq!(count(reader.look()), Some(1));
        // Of the same size, within one tick of the file system's clock: it is young, so it is read again.
        std::fs::write(&user, hook("b")).unwrap();
        assert!(matches!(&reader.look(), Some(Ok(hooks)) if hooks[0].to_string() == "command sh"));
        let stamp = Stamp::of(&user).unwrap();
        let written = Duration::from_secs(u64::try_from(stamp.changed.0).unwrap());
        assert!(stamp.is_young(written) && !stamp.is_young(written + YOUNG + YOUNG));
        // Emptied to be written over: nobody took the hooks out.
        std::fs::write(&user, "").unwrap();
        assert_eq!(count(reader.look()), None);
        let empty = Stamp::of(&user).unwrap();
        assert!(empty.is_being_written(written) && !empty.is_being_written(written + YOUNG * 3));
        std::fs::write(&user, hook("c")).unwrap();
        assert_eq!(count(reader.look()), Some(1));
        let stamp = Stamp::of(&user).unwrap();
        // Once it is old, its stamp is enough.
        reader.seen = Some(vec![Err(io::ErrorKind::NotFound), Ok(stamp)]);
        assert_eq!(count(reader.look()), None);
        let next = folder.path().join("next");
        std::fs::write(&next, "[[notify]]\n").unwrap();
        std::fs::rename(&next, &user).unwrap();
        assert!(matches!(reader.look(), Some(Err(_))));
        std::fs::remove_file(&user).unwrap();
        assert_eq!(count(reader.look()), Some(0));
    }
}
