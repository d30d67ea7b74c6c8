//! Snapshots of an agent's workspace, taken, listed and put back. Putting back wants a workspace that stands still.

use hostd_core::AgentRecord;
use protocol::error::{ErrorCode, WireError};
use protocol::order::Answer;
use protocol::snapshot::{Restored, Snapshot, SnapshotCall};
use protocol::time::Timestamp;

use super::git::workspace_error;
use crate::machine::Handle;
use crate::workspace::Kept;

pub(super) async fn snapshot(
    machine: &Handle,
    record: Option<&AgentRecord>,
    call: SnapshotCall,
) -> Result<Answer, WireError> {
    let record = record.filter(|record| !record.removed);
    let record =
        record.ok_or_else(|| WireError::new(ErrorCode::Conflict, "nothing of its workspace is left"))?;
    let repo = record.spec.checkout.as_ref().map(|checkout| checkout.repo.clone()).ok_or_else(|| {
        WireError::new(
            ErrorCode::Conflict,
            "its workspace is no checkout, so no repository can keep a snapshot",
        )
        .hint("create agents with --repo")
    })?;
    let (folder, agent) = (machine.folders.agent(record.agent), record.agent.to_string());
    let told = |kept: Kept| to_wire(kept, &repo);
    let workspaces = &machine.workspaces;
    match call {
        SnapshotCall::Take { include_ignored } => workspaces
            .snapshot(&folder, &agent, include_ignored)
            .await
            .map(|kept| Answer::Snapshots(vec![told(kept)])),
        SnapshotCall::List => workspaces
            .snapshots(&folder, &agent)
            .await
            .map(|all| Answer::Snapshots(all.into_iter().map(told).collect())),
        SnapshotCall::Restore { number } => {
            stands_still(machine, record).await?;
            workspaces.restore(&folder, &agent, number).await.map(|restored| {
                Answer::Restored(Box::new(Restored {
                    from: told(restored.from),
                    before: told(restored.before),
                    written: restored.written,
                    deleted: restored.deleted,
                    left: restored.left,
                }))
            })
        }
    }
    .map_err(|error| workspace_error(&error))
}

/// A program that writes meanwhile would get a mixture.
async fn stands_still(machine: &Handle, record: &AgentRecord) -> Result<(), WireError> {
    if record.end.is_some() {
        return Ok(());
    }
    let (machine, agent) = (machine.clone(), record.agent.to_string());
    let frozen = tokio::task::spawn_blocking(move || machine.cgroups.open(&agent)?.frozen()).await;
    if matches!(frozen, Ok(Ok(true))) {
        return Ok(());
    }
    let message = "it is alive and may write while its files are put back";
    Err(WireError::new(ErrorCode::Conflict, message)
        .hint(format!("phalanx pause {} (or stop), then restore", record.agent)))
}

fn to_wire(kept: Kept, repo: &str) -> Snapshot {
    Snapshot {
        number: kept.number,
        ref_name: kept.ref_name,
        commit: kept.commit,
        tree: kept.tree,
        head: kept.head,
        repo: repo.to_owned(),
        at: Timestamp(kept.at_ms),
        files: kept.files,
        ignored: kept.ignored,
        not_saved: kept.not_saved,
    }
}
