//! The report of a run: one JSON document, one page that needs nothing but itself, and whole transcripts beside it.
//! What the tasks mean is `document.rs`'s, how they look `page.rs`'s; where run and transcripts come from is the
//! caller's.

pub mod document;
mod files;
mod page;
mod tail;

use std::io;
use std::path::{Path, PathBuf};

use protocol::ids::AgentId;
use protocol::task::{RunView, TaskView};
use protocol::time::Timestamp;

use self::document::{Document, TranscriptFile};
use self::files::write_atomic;
use manager_plan::runfile::slug::slug;

/// A transcript as far as it can be had.
pub enum Fetched {
    Bytes {
        bytes: Vec<u8>,
        /// Bytes before or between these that are no longer kept.
        missing: u64,
        /// Why sealed values may be in it: then no page shows any of it.
        unredacted: Option<String>,
    },
    /// Why there is none.
    Missing(String),
}

#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error("cannot make the folder {path}")]
    Folder {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot write {path}")]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot encode the report")]
    Encode(#[source] serde_json::Error),
    #[error("cannot render the page")]
    Render(#[source] minijinja::Error),
}

/// What was written.
#[derive(Debug)]
pub struct Written {
    pub json: PathBuf,
    pub html: PathBuf,
    /// Transcripts that could not be had, each with the reason.
    pub missing: Vec<String>,
}

/// Writes reports into one folder. Every file is replaced as a whole, the page last: a reader never sees half of it.
pub struct Writer {
    folder: PathBuf,
}

impl Writer {
    pub fn open(folder: &Path) -> Result<Self, ReportError> {
        let transcripts = folder.join(TRANSCRIPTS);
        std::fs::create_dir_all(&transcripts)
            .map_err(|source| ReportError::Folder { path: transcripts.clone(), source })?;
        Ok(Self { folder: folder.to_path_buf() })
    }

    pub fn write(
        &self,
        run: &RunView,
        tasks: &[TaskView],
        now: Timestamp,
        fetch: &mut dyn FnMut(AgentId) -> Fetched,
    ) -> Result<Written, ReportError> {
        let mut missing = Vec::new();
        let mut document = Document::new(run, tasks, now);
        for task in &mut document.tasks {
            let stem = stem(&task.name, &task.id);
            let name = task.name.clone();
            for attempt in &mut task.attempts {
                let number = attempt.number;
                let mut keep = |agent: Option<AgentId>, what: &str| {
                    self.keep(agent, &format!("{stem}-{number}{what}"), &name, fetch, &mut missing)
                };
                attempt.transcript = keep(Some(attempt.agent), "")?;
                if let Some(verification) = &mut attempt.verification {
                    verification.transcript = keep(Some(verification.agent), "-verify")?;
                    verification.base_transcript = keep(verification.base_agent, "-base")?;
                }
            }
        }
        let json = self.folder.join("report.json");
        let mut text = serde_json::to_string_pretty(&document).map_err(ReportError::Encode)?;
        text.push('\n');
        self.put(&json, text.as_bytes())?;
        let html = self.folder.join("report.html");
        let page = page::render(&document).map_err(ReportError::Render)?;
        self.put(&html, page.as_bytes())?;
        Ok(Written { json, html, missing })
    }

    /// Writes a whole transcript beside the page and keeps its end for it.
    fn keep(
        &self,
        agent: Option<AgentId>,
        stem: &str,
        task: &str,
        fetch: &mut dyn FnMut(AgentId) -> Fetched,
        missing: &mut Vec<String>,
    ) -> Result<Option<TranscriptFile>, ReportError> {
        let Some(agent) = agent else { return Ok(None) };
        match fetch(agent) {
            Fetched::Missing(why) => {
                missing.push(format!("task {task}: no transcript of agent {agent}: {why}"));
                Ok(Some(TranscriptFile {
                    file: None,
                    bytes: 0,
                    missing_bytes: 0,
                    unavailable: Some(why),
                    tail: String::new(),
                }))
            }
            Fetched::Bytes { bytes, missing: missing_bytes, unredacted } => {
                let file = format!("{TRANSCRIPTS}/{stem}.log");
                self.put(&self.folder.join(&file), &bytes)?;
                Ok(Some(TranscriptFile {
                    file: Some(file),
                    bytes: u64::try_from(bytes.len()).unwrap_or(u64::MAX),
                    missing_bytes,
                    unavailable: None,
                    tail: unredacted.map_or_else(|| tail::of(&bytes), |why| format!("[redacted: {why}]")),
                }))
            }
        }
    }

    fn put(&self, path: &Path, bytes: &[u8]) -> Result<(), ReportError> {
        write_atomic(path, bytes).map_err(|source| ReportError::Write { path: path.to_path_buf(), source })
    }
}

const TRANSCRIPTS: &str = "transcripts";

/// A file name for a task: its label may hold anything, the end of its id makes it unique.
fn stem(name: &str, id: &protocol::ids::TaskId) -> String {
    let slug = slug(name, 40);
    if slug.is_empty() { format!("task-{}", id.tail()) } else { format!("{slug}-{}", id.tail()) }
}
