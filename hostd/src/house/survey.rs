//! Answers what takes space. Changes nothing; slow where git is asked, so it comes in pieces.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use futures::stream::{self, StreamExt};
use hostd_core::AgentRecord;
use protocol::error::{ErrorCode, WireError};
use protocol::house::{Holding, HouseItem};
use protocol::ids::{AgentId, Incarnation};
use protocol::order::Answer;

use super::measure::{disk_bytes, workspace_bytes};
use super::{leftovers, written_at};
use crate::bus::Replier;
use crate::machine::Handle;
use crate::workspace::{OnlyCopy, Repository};

/// Holdings of one answer.
const PIECE: usize = 100;
/// Agents that are looked at at once: each costs processes of git and a walk over its files.
const LOOKS_AT_ONCE: usize = 8;

/// How far it looks.
#[derive(Debug, Clone, Copy)]
pub struct Looks {
    /// Also at refs, and whether each thing may go.
    pub deep: bool,
    /// Also for kinds that came later, which an older asker does not know.
    pub added: bool,
}

/// Of these agents, or of the whole host.
pub async fn survey(
    machine: &Handle,
    records: Vec<AgentRecord>,
    agents: &[AgentId],
    Looks { deep, added }: Looks,
    replier: &Replier,
) -> Result<Answer, WireError> {
    let wanted = |record: &AgentRecord| agents.is_empty() || agents.contains(&record.agent);
    let mut piece = Vec::new();
    let looks: Vec<_> = records
        .iter()
        .filter(|record| wanted(record))
        .map(|record| of_record(machine.clone(), record.clone(), deep))
        .collect();
    let mut looks = std::pin::pin!(stream::iter(looks).buffered(LOOKS_AT_ONCE));
    while let Some(holdings) = looks.next().await {
        piece.append(&mut holdings?);
        if piece.len() >= PIECE {
            replier.send(&Answer::Holdings(std::mem::take(&mut piece))).await;
        }
    }
    if agents.is_empty() {
        piece.extend(bases(machine).await?);
        if deep {
            piece.extend(refs(machine, &records).await);
        }
        if added {
            piece.extend(leftovers::find(machine, &records).await);
        }
    }
    for piece in piece.chunks(PIECE) {
        replier.send(&Answer::Holdings(piece.to_vec())).await;
    }
    Ok(Answer::Done)
}

/// What there is of one agent.
async fn of_record(machine: Handle, record: AgentRecord, deep: bool) -> Result<Vec<Holding>, WireError> {
    let (folders, copy) = (machine.folders.clone(), record.clone());
    let incarnation = machine.incarnation;
    let measured = tokio::task::spawn_blocking(move || {
        if copy.removed {
            vec![of_archive(&folders.archived(copy.agent), &copy, incarnation)]
        } else {
            of_agent(&folders.agent(copy.agent), &copy)
        }
    });
    let mut holdings = measured.await.map_err(|error| failed(&error))?;
    if deep && record.end.is_some() {
        look_for_work(&machine, &record, &mut holdings).await;
    }
    Ok(holdings)
}

fn failed(error: &dyn std::error::Error) -> WireError {
    WireError::new(ErrorCode::Failed, protocol::chain(error))
}

fn of_agent(folder: &Path, record: &AgentRecord) -> Vec<Holding> {
    let agent = record.agent;
    let since = record.end.as_ref().map_or(record.created_at, |end| end.at);
    let kept = record.end.is_none().then(|| "it is live".to_owned());
    let holding = |item, bytes| Holding { item, label: label(record), bytes, since, kept: kept.clone() };
    let workspace = workspace_bytes(folder);
    let mut holdings = vec![
        holding(HouseItem::Workspace { agent }, workspace),
        holding(HouseItem::Transcript { agent }, disk_bytes(&folder.join(protocol::shim::file::OUTPUT))),
    ];
    let outputs = disk_bytes(&folder.join("outputs"));
    if outputs > 0 {
        holdings.push(holding(HouseItem::Outputs { agent }, outputs));
    }
    holdings
}

fn of_archive(folder: &Path, record: &AgentRecord, incarnation: Incarnation) -> Holding {
    Holding {
        item: HouseItem::Archive { agent: record.agent },
        label: label(record),
        bytes: disk_bytes(folder),
        since: written_at(&folder.join("agent.json")),
        kept: super::free::is_fresh(record, incarnation).or_else(|| super::free::holds_outputs(folder)),
    }
}

fn label(record: &AgentRecord) -> String {
    record.spec.name.to_string()
}

/// What destroying it would lose, which brings home what it can.
async fn look_for_work(machine: &Handle, record: &AgentRecord, holdings: &mut [Holding]) {
    let folder = machine.folders.agent(record.agent);
    if record.removed {
        return;
    }
    let holds = match machine.workspaces.would_lose(&folder, &record.spec.outputs).await {
        OnlyCopy::No => return,
        OnlyCopy::Yes { what } => format!("holds {}", what.join("; ")),
        OnlyCopy::Unknown(reason) => format!("what it holds cannot be told: {reason}"),
    };
    for holding in holdings.iter_mut().filter(|holding| matches!(holding.item, HouseItem::Workspace { .. })) {
        holding.kept.get_or_insert_with(|| holds.clone());
    }
}

async fn bases(machine: &Handle) -> Result<Vec<Holding>, WireError> {
    let unused = machine.workspaces.unused_bases().map_err(|error| failed(&error))?;
    let measured = tokio::task::spawn_blocking(move || {
        let holding = |base: crate::workspace::UnusedBase| Holding {
            label: base.commit.unwrap_or_else(|| "damaged".to_owned()),
            bytes: disk_bytes(&base.path),
            since: written_at(&base.path.join("base.json")),
            item: HouseItem::Base { path: base.path.display().to_string() },
            kept: None,
        };
        unused.into_iter().map(holding).collect()
    });
    measured.await.map_err(|error| failed(&error))
}

/// Refs of ours in the repositories that agents of this host work for. A repository that cannot be asked now keeps
/// its refs.
async fn refs(machine: &Handle, records: &[AgentRecord]) -> Vec<Holding> {
    let mut found = Vec::new();
    for repository in repositories(machine, records).await {
        let listed = match machine.workspaces.merged_refs(&repository).await {
            Ok(listed) => listed,
            Err(error) => {
                let (repo, error) = (repository.path.display(), protocol::chain(&error));
                tracing::warn!(%repo, error, "refs of a repository cannot be looked at and stay");
                continue;
            }
        };
        found.extend(listed.into_iter().map(|merged| Holding {
            item: HouseItem::Ref {
                repo: repository.path.display().to_string(),
                name: merged.name.clone(),
                commit: merged.commit.clone(),
            },
            kept: super::free::is_named(records, &merged.name).then(|| "its agent is still there".to_owned()),
            label: merged.commit.clone(),
            // Objects are shared and packed: what one ref alone holds cannot be told.
            bytes: 0,
            since: merged.at,
        }));
    }
    found
}

async fn repositories(machine: &Handle, records: &[AgentRecord]) -> Vec<Repository> {
    let paths: BTreeSet<PathBuf> = records
        .iter()
        .filter_map(|record| record.spec.checkout.as_ref().map(|checkout| PathBuf::from(&checkout.repo)))
        .collect();
    let mut found: Vec<Repository> = Vec::new();
    for path in paths {
        if let Ok(repository) = machine.workspaces.locate(&path).await
            && !found.iter().any(|known| known.common_dir == repository.common_dir)
        {
            found.push(repository);
        }
    }
    found
}
