//! The agents' folders: `agents/<id>/` while there is anything of an agent, `archive/<id>/` after.
//!
//! Records are loaded one by one; one that cannot be read is named and left where it is. Nothing is removed because
//! a record is missing.

use std::path::{Path, PathBuf};

use hostd_core::{AgentRecord, RECORD_VERSION};
use protocol::ids::AgentId;

use super::file::{StateError, replace};

const RECORD: &str = "agent.json";

#[derive(Clone, Debug)]
pub struct AgentFolders {
    agents: PathBuf,
    archive: PathBuf,
}

/// All that could be read at the start.
#[derive(Debug, Default)]
pub struct Loaded {
    pub present: Vec<AgentRecord>,
    pub archived: Vec<AgentRecord>,
    pub quarantined: Vec<Quarantined>,
}

/// A folder whose record cannot be read: kept, shown, never acted on.
#[derive(Debug)]
pub struct Quarantined {
    pub folder: PathBuf,
    pub error: StateError,
}

impl AgentFolders {
    /// # Errors
    /// When the folders cannot be made.
    pub fn open(state: &Path) -> Result<Self, StateError> {
        let folders = Self { agents: state.join("agents"), archive: state.join("archive") };
        for folder in [&folders.agents, &folders.archive] {
            std::fs::create_dir_all(folder).map_err(StateError::io("make", folder))?;
        }
        Ok(folders)
    }

    #[must_use]
    pub fn agent(&self, agent: AgentId) -> PathBuf {
        self.agents.join(agent.to_string())
    }

    #[must_use]
    pub fn archived(&self, agent: AgentId) -> PathBuf {
        self.archive.join(agent.to_string())
    }

    /// Where the agent's transcript is: beside it, or in the archive.
    #[must_use]
    pub fn transcript(&self, agent: AgentId) -> PathBuf {
        let live = self.agent(agent).join(protocol::shim::file::OUTPUT);
        if live.exists() { live } else { self.archived(agent).join(protocol::shim::file::OUTPUT) }
    }

    /// The transcript, wherever it is; `None` where there is none. A removal may move it between two looks, so the place
    /// it moves to is looked at after the one it comes from.
    ///
    /// # Errors
    /// What the file system says.
    pub fn open_transcript(&self, agent: AgentId) -> std::io::Result<Option<std::fs::File>> {
        for folder in [self.agent(agent), self.archived(agent)] {
            match std::fs::File::open(folder.join(protocol::shim::file::OUTPUT)) {
                Ok(file) => return Ok(Some(file)),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// The record as it was saved last.
    ///
    /// # Errors
    /// As for any record that cannot be read.
    pub fn record(&self, agent: AgentId) -> Result<AgentRecord, StateError> {
        load_record(&self.agent(agent))
    }

    /// # Errors
    /// What the file system says; the record before is whole then.
    pub fn save(&self, record: &AgentRecord) -> Result<(), StateError> {
        let folder = if record.removed { self.archived(record.agent) } else { self.agent(record.agent) };
        std::fs::create_dir_all(&folder).map_err(StateError::io("make", &folder))?;
        let bytes = serde_json::to_vec(record).map_err(StateError::Encode)?;
        replace(&folder.join(RECORD), &bytes)
    }

    /// Moves what is kept of a removed agent to the archive. Repeatable: a crash in between is finished later.
    ///
    /// # Errors
    /// What the file system says.
    pub fn archive(&self, agent: AgentId) -> Result<(), StateError> {
        let (from, to) = (self.agent(agent), self.archived(agent));
        std::fs::create_dir_all(&to).map_err(StateError::io("make", &to))?;
        let names = [
            protocol::shim::file::OUTPUT,
            protocol::shim::file::EXIT,
            "workspace.json",
            "outputs",
            "shipped",
        ];
        let mut kept: Vec<String> = names.map(str::to_owned).into();
        kept.extend(earlier_exits(&from)?);
        // The record goes last: as long as it is in the old place the removal is not over.
        kept.push(RECORD.to_owned());
        for name in &kept {
            let source = from.join(name);
            if source.symlink_metadata().is_ok() {
                std::fs::rename(&source, to.join(name)).map_err(StateError::io("move", &source))?;
            }
        }
        match std::fs::remove_dir_all(&from) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(StateError::io("remove", &from)(error))
            }
            _ => Ok(()),
        }
    }

    /// Every record that can be read.
    ///
    /// # Errors
    /// When a folder cannot be listed: then nothing is known, and nothing may follow from it.
    pub fn load(&self) -> Result<Loaded, StateError> {
        let mut loaded = Loaded::default();
        for (folder, is_archive) in [(&self.agents, false), (&self.archive, true)] {
            for entry in std::fs::read_dir(folder).map_err(StateError::io("list", folder))? {
                let path = entry.map_err(StateError::io("list", folder))?.path();
                if !is_archive && self.is_rest_of_removal(&path) {
                    continue;
                }
                match load_record(&path) {
                    Ok(record) if is_archive => loaded.archived.push(record),
                    Ok(record) => loaded.present.push(record),
                    Err(error) => loaded.quarantined.push(Quarantined { folder: path, error }),
                }
            }
        }
        Ok(loaded)
    }

    /// The records of the archive that can be read.
    ///
    /// # Errors
    /// When the folder cannot be listed.
    pub fn load_archived(&self) -> Result<Vec<AgentRecord>, StateError> {
        let entries = std::fs::read_dir(&self.archive).map_err(StateError::io("list", &self.archive))?;
        Ok(entries.flatten().filter_map(|entry| load_record(&entry.path()).ok()).collect())
    }

    /// Takes away what a crash left of a folder that holds nothing any more: its record is in the archive already, or
    /// was never written, in which case nothing was started.
    fn is_rest_of_removal(&self, folder: &Path) -> bool {
        if folder.join(RECORD).exists() {
            return false;
        }
        let archived = folder.file_name().is_some_and(|name| self.archive.join(name).join(RECORD).exists());
        let taken = if archived {
            std::fs::remove_dir_all(folder)
        } else {
            let _ = std::fs::remove_file(folder.join(RECORD).with_extension("tmp"));
            // Fails, and keeps everything, when there is anything else in it.
            std::fs::remove_dir(folder)
        };
        taken.is_ok()
    }
}

/// `exit.<n>.json`, one for each earlier start; none where there is no folder any more.
fn earlier_exits(folder: &Path) -> Result<Vec<String>, StateError> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(StateError::io("list", folder)(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(StateError::io("list", folder))?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("exit.")?.strip_suffix(".json"));
        if number.is_some_and(|number| number.parse::<u32>().is_ok()) {
            names.push(name.to_string_lossy().into_owned());
        }
    }
    Ok(names)
}

fn load_record(folder: &Path) -> Result<AgentRecord, StateError> {
    let path = folder.join(RECORD);
    let bytes = std::fs::read(&path).map_err(StateError::io("read", &path))?;
    let record: AgentRecord =
        serde_json::from_slice(&bytes).map_err(|source| StateError::Decode { path: path.clone(), source })?;
    if record.version > RECORD_VERSION {
        return Err(StateError::Newer { path, found: record.version });
    }
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_without_a_record_go_when_nothing_is_in_them_and_stay_when_something_is() {
        let state = tempfile::tempdir().unwrap();
        let folders = AgentFolders::open(state.path()).unwrap();
        let [empty, torn, full, archived] = [1, 2, 3, 4].map(|n| AgentId::from_parts(n, 0));
        for agent in [empty, torn, full, archived] {
            std::fs::create_dir(folders.agent(agent)).unwrap();
        }
        std::fs::write(folders.agent(torn).join("agent.tmp"), "{").unwrap();
        std::fs::write(folders.agent(full).join("out.raw"), "work").unwrap();
        std::fs::create_dir(folders.archived(archived)).unwrap();
        std::fs::write(folders.archived(archived).join(RECORD), "{}").unwrap();
        let loaded = folders.load().unwrap();
        assert!(!folders.agent(empty).exists() && !folders.agent(torn).exists());
        assert!(!folders.agent(archived).exists());
        assert!(folders.agent(full).join("out.raw").exists());
        // The full one and the unreadable record of the archive are named, not acted on.
        assert_eq!(loaded.quarantined.len(), 2);
    }

    #[test]
    fn one_bad_record_does_not_hide_the_others() {
        let state = tempfile::tempdir().unwrap();
        let folders = AgentFolders::open(state.path()).unwrap();
        for (n, garbage) in [(1, ""), (2, "{}"), (3, "[]"), (4, "{}{}"), (5, "{\"version\":99}"), (6, "\0")] {
            let folder = folders.agent(AgentId::from_parts(n, 0));
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(folder.join(RECORD), garbage).unwrap();
        }
        let loaded = folders.load().unwrap();
        assert_eq!((loaded.present.len(), loaded.quarantined.len()), (0, 6));
    }
}
