//! Takes away what was asked for, after a look at whether it may go now. Repeatable: what is gone is done.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hostd_core::{AgentRecord, Input};
use protocol::house::{Freed, HouseItem};
use protocol::ids::{AgentId, Incarnation};
use protocol::order::{Answer, Discard};
use protocol::time::Timestamp;

use super::measure::disk_bytes;
use super::{leftovers, written_at};
use crate::clock;
use crate::machine::Handle;
use crate::workspace::{MergedRef, Repository, WorkspaceError};

/// Within which the loop and the bus let go of a destroyed agent.
const FORGET_LIMIT: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// One outcome for each item, in their order.
pub async fn free(
    machine: &Handle,
    records: &[AgentRecord],
    items: Vec<HouseItem>,
    older_ms: u64,
    discard: Discard,
) -> Answer {
    let before = Timestamp(clock::now().0.saturating_sub(older_ms));
    let mut outcomes = Vec::with_capacity(items.len());
    let mut repositories = Repositories::default();
    for item in items {
        let outcome = match &item {
            HouseItem::Archive { agent } => archive(machine, records, *agent, before, discard).await,
            HouseItem::Base { path } => base(machine, Path::new(path), before).await,
            HouseItem::Ref { name, .. } if is_named(records, name) => {
                Err("its agent is still there".to_owned())
            }
            HouseItem::Ref { repo, name, commit } => {
                repositories.drop_ref(machine, repo, name, commit, before).await
            }
            HouseItem::Group { .. } | HouseItem::Session { .. } | HouseItem::Socket { .. } => {
                leftovers::take(machine, records, &item, before).await.map(|()| 0)
            }
            HouseItem::Run { .. } | HouseItem::Blob { .. } | HouseItem::Cut { .. } => {
                Err("it is the manager's".to_owned())
            }
            HouseItem::Workspace { .. } | HouseItem::Transcript { .. } | HouseItem::Outputs { .. } => {
                Err("it goes with its agent: phalanx destroy".to_owned())
            }
        };
        let (bytes, kept) = match outcome {
            Ok(bytes) => (bytes, None),
            Err(why) => (0, Some(why)),
        };
        outcomes.push(Freed { item, bytes, kept });
    }
    Answer::Freed(outcomes)
}

pub(super) const YOUNG: &str = "it is younger than asked for";

async fn archive(
    machine: &Handle,
    records: &[AgentRecord],
    agent: AgentId,
    before: Timestamp,
    discard: Discard,
) -> Result<u64, String> {
    let folder = machine.folders.archived(agent);
    match records.iter().find(|record| record.agent == agent) {
        Some(record) if !record.removed => return Err("it is not destroyed".to_owned()),
        Some(record) => {
            if let Some(why) = is_fresh(record, machine.incarnation) {
                return Err(why);
            }
        }
        None if folder.exists() => return Err("its record is unreadable".to_owned()),
        None => return Ok(0),
    }
    if written_at(&folder.join("agent.json")) > before {
        return Err(YOUNG.to_owned());
    }
    if discard == Discard::Keep
        && let Some(holds) = holds_outputs(&folder)
    {
        return Err(holds);
    }
    let measured = folder.clone();
    let bytes = tokio::task::spawn_blocking(move || disk_bytes(&measured)).await.unwrap_or(0);
    machine.tell(Input::Forget { agent }).await;
    let gone = async {
        while folder.exists() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    match tokio::time::timeout(FORGET_LIMIT, gone).await {
        Ok(()) => Ok(bytes),
        Err(_) => Err("the bus is away; try again".to_owned()),
    }
}

/// An order that makes it may still be on its way.
pub(super) fn is_fresh(record: &AgentRecord, incarnation: Incarnation) -> Option<String> {
    let may_go = hostd_core::may_be_forgotten(record, incarnation, clock::now());
    (!may_go).then(|| "it was made less than a minute ago".to_owned())
}

/// Declared outputs were copied out of a workspace that is gone: this may be all there is of them.
pub(super) fn holds_outputs(folder: &Path) -> Option<String> {
    let first = std::fs::read_dir(folder.join("outputs")).ok()?.next();
    first.map(|_| "holds declared outputs, which may exist nowhere else".to_owned())
}

/// Carries out [`hostd_core::Effect::Forget`]: the report goes first, so that a crash in between leaves an archive
/// which the next hostd reports again, never a report without one.
pub async fn forget(machine: Handle, record: AgentRecord) {
    let agent = record.agent;
    if let Err(error) = machine.bus.forget_report(agent).await {
        tracing::warn!(%agent, error, "the report of a destroyed agent cannot be taken away; it stays");
        return;
    }
    let folder = machine.folders.archived(agent);
    let removed = tokio::task::spawn_blocking(move || remove_folder(&folder)).await;
    match removed {
        Ok(Ok(())) => machine.tell(Input::Forgotten { agent }).await,
        Ok(Err(error)) => tracing::warn!(%agent, %error, "the archive of an agent cannot be taken away"),
        Err(error) => tracing::warn!(%agent, %error, "the archive of an agent cannot be taken away"),
    }
}

/// The record goes last: without it the rest would be an archive that nobody can read.
fn remove_folder(folder: &Path) -> std::io::Result<()> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_name() == "agent.json" {
            continue;
        }
        if entry.file_type()?.is_dir() {
            std::fs::remove_dir_all(entry.path())?;
        } else {
            std::fs::remove_file(entry.path())?;
        }
    }
    std::fs::remove_dir_all(folder)
}

async fn base(machine: &Handle, path: &Path, before: Timestamp) -> Result<u64, String> {
    let unused = machine.workspaces.unused_bases().map_err(|error| protocol::chain(&error))?;
    let Some(base) = unused.into_iter().find(|base| base.path == path) else {
        return if path.exists() { Err("a workspace lies on it".to_owned()) } else { Ok(0) };
    };
    if written_at(&path.join("base.json")) > before {
        return Err(YOUNG.to_owned());
    }
    let measured = path.to_path_buf();
    let bytes = tokio::task::spawn_blocking(move || disk_bytes(&measured)).await.unwrap_or(0);
    machine.workspaces.discard_base(&base).await.map_err(|error| protocol::chain(&error))?;
    Ok(bytes)
}

/// The repositories of one request, each looked at once: that costs a walk over its branches.
#[derive(Default)]
struct Repositories(BTreeMap<String, Result<Seen, String>>);

struct Seen {
    repository: Repository,
    merged: Vec<MergedRef>,
}

impl Repositories {
    async fn drop_ref(
        &mut self,
        machine: &Handle,
        repo: &str,
        name: &str,
        commit: &str,
        before: Timestamp,
    ) -> Result<u64, String> {
        let said = |error: WorkspaceError| protocol::chain(&error);
        if !self.0.contains_key(repo) {
            let seen = look(machine, repo).await.map_err(said);
            self.0.insert(repo.to_owned(), seen);
        }
        let seen = match self.0.get(repo) {
            Some(Ok(seen)) => seen,
            Some(Err(why)) => return Err(why.clone()),
            None => return Err("it was not looked at".to_owned()),
        };
        let Some(found) = seen.merged.iter().find(|merged| merged.name == name) else {
            let there = machine.workspaces.has_ref(&seen.repository, name).await.map_err(said)?;
            return if there {
                Err("its work is in no ref of the repository's own".to_owned())
            } else {
                Ok(0)
            };
        };
        if found.commit != commit {
            return Err("it has moved since".to_owned());
        }
        if found.at > before {
            return Err(YOUNG.to_owned());
        }
        // Refused when it has moved after the look.
        let dropped = [(found.name.clone(), found.commit.clone())];
        match machine.workspaces.drop_refs_at(&seen.repository, &dropped).await {
            Ok(()) => Ok(0),
            // Gone is done, whoever did it.
            Err(error) => match machine.workspaces.has_ref(&seen.repository, name).await {
                Ok(false) => Ok(0),
                _ => Err(said(error)),
            },
        }
    }
}

async fn look(machine: &Handle, repo: &str) -> Result<Seen, WorkspaceError> {
    let repository = machine.workspaces.locate(&PathBuf::from(repo)).await?;
    let merged = machine.workspaces.merged_refs(&repository).await?;
    Ok(Seen { repository, merged })
}

/// Whether an agent that is there, and may go on, has the ref for its results.
pub(super) fn is_named(records: &[AgentRecord], name: &str) -> bool {
    records.iter().filter(|record| !record.removed).any(|record| {
        record.spec.checkout.as_ref().and_then(|checkout| checkout.result_ref.as_deref()) == Some(name)
    })
}
