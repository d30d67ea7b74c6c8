//! Questions about files of an agent: listed, read and written in pieces, below its workspace, as its user. The outputs
//! that were kept of it are hostd's own and can only be read.

use std::path::PathBuf;

use hostd_core::AgentRecord;
use protocol::error::{ErrorCode, WireError};
use protocol::files::{FileArea, FileNode, FilePath, FileWrite};
use protocol::ids::AgentId;
use protocol::order::Answer;
use protocol::shim::LaunchUser;

use crate::machine::Handle;
use crate::sys::files::{FileError, Root, Staged, as_user};
use crate::workspace::Kind;

/// Where the files of one question are, and in whose rights it is answered.
struct Place {
    parent: PathBuf,
    name: &'static str,
    user: Option<LaunchUser>,
}

pub(super) async fn list(
    machine: &Handle,
    place: (AgentId, FileArea, Option<&AgentRecord>),
    path: FilePath,
    after: Option<Vec<u8>>,
) -> Result<Answer, WireError> {
    let place = find(machine, place).await?;
    at(place, path, move |root, path| root.list(path, after.as_deref())).await.map(Answer::Files)
}

pub(super) async fn read(
    machine: &Handle,
    place: (AgentId, FileArea, Option<&AgentRecord>),
    path: FilePath,
    (offset, max): (u64, u64),
    version: Option<String>,
) -> Result<Answer, WireError> {
    let place = find(machine, place).await?;
    let max = usize::try_from(max).unwrap_or(usize::MAX);
    at(place, path, move |root, path| root.read(path, offset, max, version.as_deref()))
        .await
        .map(Answer::FilePart)
}

pub(super) async fn make(
    machine: &Handle,
    agent: AgentId,
    record: Option<&AgentRecord>,
    path: FilePath,
    node: FileNode,
) -> Result<Answer, WireError> {
    let place = find(machine, (agent, FileArea::Workspace, record)).await?;
    at(place, path, move |root, path| root.make(path, &node)).await.map(|()| Answer::Done)
}

pub(super) async fn write(
    machine: &Handle,
    agent: AgentId,
    record: Option<&AgentRecord>,
    write: FileWrite,
) -> Result<Answer, WireError> {
    if write.upload.len() != 32 || !write.upload.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(WireError::new(ErrorCode::Invalid, "the name of an upload is 32 hex digits"));
    }
    let place = find(machine, (agent, FileArea::Workspace, record)).await?;
    let machine = machine.clone();
    let step = move || {
        machine.uploads.step(agent, &write, || {
            let root = Root::open(&place.parent, place.name)?;
            let begun = as_user(place.user.as_ref(), || Staged::begin(&root, &write.path, &write.upload));
            begun.map_err(|source| FileError::Io { what: "take on the agent's user", source })?
        })
    };
    tokio::task::spawn_blocking(step).await.map_err(|error| broke_off(&error))?.map(|()| Answer::Done)
}

async fn at<T: Send + 'static>(
    place: Place,
    path: FilePath,
    work: impl FnOnce(&Root, &FilePath) -> Result<T, FileError> + Send + 'static,
) -> Result<T, WireError> {
    let done = tokio::task::spawn_blocking(move || {
        // The way there leads through folders of hostd's that the agent's user may not enter.
        Root::open(&place.parent, place.name)
            .and_then(|root| {
                let done = as_user(place.user.as_ref(), || work(&root, &path));
                done.map_err(|source| FileError::Io { what: "take on the agent's user", source })?
            })
            .map_err(|error| wire_error(&path, &error))
    });
    done.await.map_err(|error| broke_off(&error))?
}

async fn find(
    machine: &Handle,
    (agent, area, record): (AgentId, FileArea, Option<&AgentRecord>),
) -> Result<Place, WireError> {
    let missing = |message: &str, hint: &str| WireError::new(ErrorCode::NotFound, message).hint(hint);
    match area {
        FileArea::Outputs => {
            let kept = [machine.folders.agent(agent), machine.folders.archived(agent)];
            let parent = kept.into_iter().find(|folder| folder.join("outputs").is_dir());
            let parent = parent.ok_or_else(|| {
                missing("no outputs of it were kept on its host", "outputs: in its task names files to keep")
            })?;
            Ok(Place { parent, name: "outputs", user: None })
        }
        FileArea::Workspace => {
            let parent = machine.folders.agent(agent);
            let record = record.filter(|record| !record.removed && parent.join("work").is_dir());
            let Some(record) = record else {
                return Err(missing("its workspace is not there any more", "--outputs for what was kept"));
            };
            let user = crate::agents::agent_user(record.spec.user.as_deref())
                .map_err(|error| WireError::new(ErrorCode::Failed, protocol::chain(&error)))?;
            mount(machine, &parent).await?;
            Ok(Place { parent, name: "work", user: user.launch })
        }
        FileArea::Unknown => {
            Err(WireError::new(ErrorCode::Invalid, "this hostd does not know that area of files")
                .hint("update hostd on the agent's host"))
        }
    }
}

/// After a reboot an overlay is not mounted: what is seen then is an empty folder, not the workspace.
async fn mount(machine: &Handle, folder: &std::path::Path) -> Result<(), WireError> {
    let failed = |error| WireError::new(ErrorCode::Failed, protocol::chain(&error));
    let manifest = machine.workspaces.manifest(folder).map_err(failed)?;
    let is_overlay = manifest.is_some_and(|manifest| manifest.kind == Kind::Overlay);
    if is_overlay && !machine.workspaces.is_mounted(folder).map_err(failed)? {
        machine.workspaces.remount(folder).await.map_err(failed)?;
    }
    Ok(())
}

fn broke_off(error: &tokio::task::JoinError) -> WireError {
    WireError::new(ErrorCode::Failed, error.to_string())
}

/// What a client is told.
pub(super) fn wire_error(path: &FilePath, error: &FileError) -> WireError {
    let code = match error {
        FileError::Missing | FileError::NoFolder => ErrorCode::NotFound,
        FileError::Outside | FileError::Denied => ErrorCode::Denied,
        FileError::IsFolder | FileError::NotAFolder | FileError::NotPlain(_) => ErrorCode::Invalid,
        FileError::Changed | FileError::Taken => ErrorCode::Conflict,
        FileError::NoSpace => ErrorCode::Exhausted,
        FileError::Unsupported | FileError::Io { .. } => ErrorCode::Failed,
    };
    let hint = match error {
        FileError::IsFolder => "-r for a folder",
        FileError::NoFolder => "-p makes the folders",
        FileError::Changed => "the same command again, or --changing",
        _ => "",
    };
    let named = if path.is_empty() { "the folder".to_owned() } else { format!("{path}") };
    WireError::new(code, format!("{named}: {}", protocol::chain(error))).hint(hint)
}
