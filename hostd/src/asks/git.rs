//! Questions about repositories: which commit a base is, moving a branch, the difference between two commits.

use std::path::Path;

use protocol::error::{ErrorCode, WireError};
use protocol::merge::{MergeWish, RecordedBranch};
use protocol::order::{Answer, ResolvedBase};

use crate::machine::Handle;
use crate::workspace::WorkspaceError;

/// Largest difference that is answered.
const DIFF_LIMIT: usize = 800 << 10;

pub(super) async fn resolve(machine: &Handle, repo: &str, base: Option<&str>) -> Result<Answer, WireError> {
    let resolved =
        machine.workspaces.resolve(Path::new(repo), base).await.map_err(|error| workspace_error(&error))?;
    Ok(Answer::Resolved(ResolvedBase {
        repo: resolved.repository.path.display().to_string(),
        commit: resolved.commit,
        // Not known is not clean.
        dirty: resolved.dirty.unwrap_or(true),
    }))
}

pub(super) async fn land(
    machine: &Handle,
    repo: &str,
    branch: String,
    commit: String,
    from: Option<String>,
) -> Result<Answer, WireError> {
    let repository =
        machine.workspaces.locate(Path::new(repo)).await.map_err(|error| workspace_error(&error))?;
    let landed = match machine.workspaces.land(&repository, &branch, &commit, None).await {
        Err(WorkspaceError::RefMoved { found, .. }) if found.is_some() && found == from => {
            machine.workspaces.land(&repository, &branch, &commit, from.as_deref()).await
        }
        other => other,
    };
    landed.map_err(|error| workspace_error(&error))?;
    Ok(Answer::Landed { branch, commit })
}

pub(super) async fn merge_look(
    machine: &Handle,
    repo: &str,
    into: Option<&str>,
    recorded: &[RecordedBranch],
) -> Result<Answer, WireError> {
    let target = machine.workspaces.merge_target(Path::new(repo), into, recorded).await;
    target.map(Answer::MergeTarget).map_err(|error| workspace_error(&error))
}

pub(super) async fn merge(machine: &Handle, wish: &MergeWish) -> Result<Answer, WireError> {
    let repository =
        machine.workspaces.locate(Path::new(&wish.repo)).await.map_err(|error| workspace_error(&error))?;
    let result = machine.workspaces.merge(&repository, wish).await;
    result.map(Answer::MergeResult).map_err(|error| workspace_error(&error))
}

/// Moves the branch, unless it is not where it was: then where it is.
pub(super) async fn advance(
    machine: &Handle,
    repo: &str,
    branch: String,
    commit: String,
    from: Option<String>,
) -> Result<Answer, WireError> {
    let workspaces = &machine.workspaces;
    let repository = workspaces.locate(Path::new(repo)).await.map_err(|error| workspace_error(&error))?;
    match workspaces.land(&repository, &branch, &commit, from.as_deref()).await {
        Ok(_) => Ok(Answer::Landed { branch, commit }),
        Err(WorkspaceError::RefMoved { .. }) => merge_look(machine, repo, Some(&branch), &[]).await,
        Err(error) => Err(workspace_error(&error)),
    }
}

pub(super) async fn diff(machine: &Handle, repo: &str, from: &str, to: &str) -> Result<Answer, WireError> {
    let repository =
        machine.workspaces.locate(Path::new(repo)).await.map_err(|error| workspace_error(&error))?;
    let diff = machine
        .workspaces
        .diff(&repository, from, to, DIFF_LIMIT)
        .await
        .map_err(|error| workspace_error(&error))?;
    Ok(Answer::Diff { bytes: diff.bytes, whole: !diff.truncated })
}

pub(super) fn workspace_error(error: &WorkspaceError) -> WireError {
    let code = match error {
        WorkspaceError::PathMissing { .. } => ErrorCode::NotFound,
        WorkspaceError::Permission { .. } => ErrorCode::Denied,
        WorkspaceError::CheckedOut { .. }
        | WorkspaceError::RefMoved { .. }
        | WorkspaceError::NoWorkspace { .. }
        | WorkspaceError::Moving { .. }
        | WorkspaceError::InTheWay { .. }
        | WorkspaceError::Covered { .. }
        | WorkspaceError::UnknownSubmodules { .. }
        | WorkspaceError::PartialClone { .. }
        | WorkspaceError::NoRepository => ErrorCode::Conflict,
        WorkspaceError::RelativePath { .. }
        | WorkspaceError::NotAFolder { .. }
        | WorkspaceError::NotARepository { .. }
        | WorkspaceError::EmptyRepository { .. }
        | WorkspaceError::UnknownBase { .. }
        | WorkspaceError::AmbiguousBase { .. }
        | WorkspaceError::DetachedHead { .. }
        | WorkspaceError::BadName { .. } => ErrorCode::Invalid,
        WorkspaceError::TimedOut { .. } | WorkspaceError::Interrupted { .. } => ErrorCode::Unavailable,
        _ => ErrorCode::Failed,
    };
    WireError::new(code, protocol::chain(error))
}
