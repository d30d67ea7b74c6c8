//! Files of agents: every question goes to the host of the agent; a file comes as pieces, each asked for when the client has
//! room, so that a file of any size takes the memory of some pieces.

use std::time::Duration;

use protocol::api::{Item, Reply};
use protocol::error::{ErrorCode, WireError};
use protocol::files::{FileArea, FileNode, FilePath, FilePiece, FileWrite, PIECE};
use protocol::ids::{AgentId, HostId};
use protocol::order::{Answer, Question};

use crate::hosts::Hosts;
use crate::queries;
use crate::server::session::Items;

/// For one piece, also on a slow disk; the last of an upload waits until all of it is there.
const PIECE_LIMIT: Duration = Duration::from_secs(60);

/// Whose files.
struct Place {
    agent: AgentId,
    host: HostId,
}

/// # Errors
/// The host's refusal, or that it cannot be asked.
pub async fn list(
    hosts: &Hosts,
    target: String,
    (area, path): (FileArea, FilePath),
    after: Option<Vec<u8>>,
) -> Result<Reply, WireError> {
    let Place { agent, host } = find(hosts, target).await?;
    let question = Question::ListFiles { agent, area, path, after };
    match hosts.ask_once(&host, question, PIECE_LIMIT).await? {
        Answer::Files(list) => Ok(Reply::Files(list)),
        _ => Err(another_answer(&host)),
    }
}

/// Shows the whole file. With `changing`, as much of it as it had at first.
///
/// # Errors
/// As [`list`]; when it changes on the way.
pub async fn get(
    hosts: &Hosts,
    target: String,
    (area, path): (FileArea, FilePath),
    changing: bool,
    items: Items,
) -> Result<Reply, WireError> {
    let Place { agent, host } = find(hosts, target).await?;
    let (mut offset, mut first): (u64, Option<FilePiece>) = (0, None);
    loop {
        let size = first.as_ref().map(|first| first.size);
        let left = size.map_or(u64::MAX, |size| size.saturating_sub(offset));
        let question = Question::ReadFile {
            agent,
            area,
            path: path.clone(),
            offset,
            max: u64::try_from(PIECE).unwrap_or(u64::MAX).min(left),
            version: first.as_ref().filter(|_| !changing).map(|first| first.version.clone()),
        };
        let Answer::FilePart(mut piece) = hosts.ask_once(&host, question, PIECE_LIMIT).await? else {
            return Err(another_answer(&host));
        };
        // What is added on the way is not asked for; what is missing cannot be made up.
        let end = size.unwrap_or(piece.size);
        let room = usize::try_from(end.saturating_sub(offset)).unwrap_or(usize::MAX);
        piece.bytes.truncate(room);
        let count = u64::try_from(piece.bytes.len()).unwrap_or(u64::MAX);
        if piece.offset != offset || (count == 0 && offset < end) {
            let message = format!("{path}: it became shorter while it was read");
            return Err(WireError::new(ErrorCode::Conflict, message).hint("the same command again"));
        }
        offset = offset.saturating_add(count);
        if let Some(first) = &first {
            piece.size = first.size;
        } else {
            first = Some(FilePiece { bytes: Vec::new(), ..piece.clone() });
        }
        items.send(&Item::FilePart(piece)).await?;
        if offset >= end {
            return Ok(Reply::Done);
        }
    }
}

/// # Errors
/// As [`list`].
pub async fn put(hosts: &Hosts, target: String, write: FileWrite) -> Result<Reply, WireError> {
    let Place { agent, host } = find(hosts, target).await?;
    change(hosts, &host, Question::WriteFile { agent, write }).await
}

/// # Errors
/// As [`list`].
pub async fn make(hosts: &Hosts, target: String, path: FilePath, node: FileNode) -> Result<Reply, WireError> {
    let Place { agent, host } = find(hosts, target).await?;
    change(hosts, &host, Question::MakeNode { agent, path, node }).await
}

async fn change(hosts: &Hosts, host: &HostId, question: Question) -> Result<Reply, WireError> {
    match hosts.ask_once(host, question, PIECE_LIMIT).await? {
        Answer::Done => Ok(Reply::Done),
        _ => Err(another_answer(host)),
    }
}

async fn find(hosts: &Hosts, target: String) -> Result<Place, WireError> {
    let view = hosts.driver.glance(move |glance| queries::find(glance, &target)).await??.view;
    Ok(Place { agent: view.id, host: view.host })
}

fn another_answer(host: &HostId) -> WireError {
    WireError::new(ErrorCode::Failed, format!("host {host} gave another answer than was asked for"))
}
