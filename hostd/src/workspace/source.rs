//! The person's own repository while an agent works: its HEAD, branches, tags, stash and changed files before and after,
//! so that work that went there instead of into the workspace is seen. What this host moved itself is left out.
//! Leaves to others: telling it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::{At, Error, Result};
use super::manifest::Manifest;
use super::repository::{self, Freshness, Repository};
use super::{Workspaces, blocking};

const FILE: &str = "source.json";
/// What starts the message of every move of ours in a reflog.
const OURS: &str = "phalanx:";
/// Moves, and changed files, that are told.
const TOLD: usize = 8;
/// The end of a reflog that is read.
const LOG_TAIL: usize = 4096;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Record {
    /// As it was when the workspace was made.
    Before(Box<Picture>),
    /// What was found when the work was first collected: whatever happens later is not the agent's.
    Moved(Vec<String>),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Picture {
    head: String,
    refs: BTreeMap<String, String>,
    /// `None`: it could not be told, or there is no checkout.
    status: Option<BTreeSet<String>>,
}

impl Workspaces {
    /// Records how the repository is now, in the agent's folder.
    pub async fn watch_source(&self, agent_dir: &Path, repository: &Repository) -> Result<()> {
        self.within("look at the source repository", async {
            let picture = self.picture(repository, Freshness::Kept).await?;
            write(agent_dir, Record::Before(Box::new(picture))).await
        })
        .await
    }

    /// What moved since and was not moved by this host; nothing where nobody watched.
    pub(super) async fn source_moved(&self, agent_dir: &Path, manifest: &Manifest) -> Result<Vec<String>> {
        let Some(repository) = &manifest.repository else { return Ok(Vec::new()) };
        let before = match read(agent_dir)? {
            Some(Record::Before(before)) => before,
            Some(Record::Moved(moved)) => return Ok(moved),
            None => return Ok(Vec::new()),
        };
        let after = self.picture(repository, Freshness::Now).await?;
        let own = manifest.branch.as_ref().map(|branch| format!("refs/heads/{branch}"));
        let moved = differences(&before, &after, |name, _| {
            Some(name) == own.as_deref() || is_last_moved_by_us(&repository.common_dir, name)
        });
        write(agent_dir, Record::Moved(moved.clone())).await?;
        Ok(moved)
    }

    async fn picture(&self, repository: &Repository, freshness: Freshness) -> Result<Picture> {
        let path = repository.git_dir.join("HEAD");
        let head = std::fs::read(&path).at("read", &path)?;
        let listed = self
            .git
            .call("list refs")
            .git_dir(&repository.common_dir)
            .act_as(repository.act_as)
            .args(["for-each-ref", "--format=%(objectname) %(refname)"])
            .args(["refs/heads", "refs/tags", "refs/stash"])
            .ok()
            .await?;
        let listed = String::from_utf8_lossy(&listed).into_owned();
        let refs = listed
            .lines()
            .filter_map(|line| line.split_once(' '))
            .filter(|(_, name)| !name.starts_with("refs/heads/phalanx/"))
            .map(|(id, name)| (name.to_owned(), id.to_owned()))
            .collect();
        let status = repository::status(&self.git, &self.known, repository, freshness).await;
        Ok(Picture { head: String::from_utf8_lossy(&head).trim().to_owned(), refs, status })
    }
}

fn differences(before: &Picture, after: &Picture, is_ours: impl Fn(&str, &str) -> bool) -> Vec<String> {
    let mut moved = Vec::new();
    if before.head != after.head {
        moved.push(format!("HEAD went from {} to {}", shown(&before.head), shown(&after.head)));
    }
    let names: BTreeSet<&String> = before.refs.keys().chain(after.refs.keys()).collect();
    for name in names {
        let (was, is) = (before.refs.get(name), after.refs.get(name));
        if was == is || is_ours(name, is.map_or("", String::as_str)) {
            continue;
        }
        let what = match name.split_once("refs/heads/").or_else(|| name.split_once("refs/tags/")) {
            Some((_, short)) if name.starts_with("refs/heads/") => format!("branch {short}"),
            Some((_, short)) => format!("tag {short}"),
            None => String::from("the stash"),
        };
        moved.push(match (was, is) {
            (Some(was), Some(is)) => format!("{what} went from {} to {}", shown(was), shown(is)),
            (None, Some(is)) => format!("{what} was made at {}", shown(is)),
            (Some(was), None) => format!("{what} at {} was deleted", shown(was)),
            (None, None) => continue,
        });
    }
    if let (Some(was), Some(is)) = (&before.status, &after.status) {
        let changed: BTreeSet<&str> = was.symmetric_difference(is).map(|line| path_of(line)).collect();
        if !changed.is_empty() {
            let named: Vec<&str> = changed.iter().take(3).copied().collect();
            let more = changed.len().saturating_sub(named.len());
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            moved.push(format!("files of its checkout changed: {}{more}", named.join(", ")));
        }
    }
    let more = moved.len().saturating_sub(TOLD);
    moved.truncate(TOLD);
    if more > 0 {
        moved.push(format!("{more} more"));
    }
    moved
}

/// `XY path`, as `git status --porcelain` has it.
fn path_of(line: &str) -> &str {
    line.get(3..).unwrap_or(line)
}

fn shown(id: &str) -> String {
    id.strip_prefix("ref: refs/heads/").map_or_else(|| id.chars().take(12).collect(), str::to_owned)
}

/// By the last line of its reflog: branches that are made or moved at acceptance, and by a merge.
fn is_last_moved_by_us(common_dir: &Path, name: &str) -> bool {
    use std::io::{Seek, SeekFrom};
    let Ok(mut file) = std::fs::File::open(common_dir.join("logs").join(name)) else { return false };
    let length = file.metadata().map_or(0, |facts| facts.len());
    let tail = u64::try_from(LOG_TAIL).unwrap_or(u64::MAX);
    let mut bytes = Vec::new();
    if file.seek(SeekFrom::Start(length.saturating_sub(tail))).is_err()
        || file.take(tail).read_to_end(&mut bytes).is_err()
    {
        return false;
    }
    let text = String::from_utf8_lossy(&bytes);
    text.lines().last().and_then(|line| line.split_once('\t')).is_some_and(|(_, said)| said.starts_with(OURS))
}

fn place(agent_dir: &Path) -> PathBuf {
    agent_dir.join(FILE)
}

fn read(agent_dir: &Path) -> Result<Option<Record>> {
    let path = place(agent_dir);
    match std::fs::read(&path) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|error| Error::BadManifest { path, detail: error.to_string() }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("read", &path, error)),
    }
}

/// As a whole or not at all; what a power cut takes is only this comparison.
async fn write(agent_dir: &Path, record: Record) -> Result<()> {
    let path = place(agent_dir);
    blocking("record the source repository", move || {
        let bytes = serde_json::to_vec(&record)
            .map_err(|error| Error::BadManifest { path: path.clone(), detail: error.to_string() })?;
        let new = path.with_extension("json.new");
        std::fs::write(&new, bytes).at("written", &new)?;
        std::fs::rename(&new, &path).at("renamed", &path)
    })
    .await
}
