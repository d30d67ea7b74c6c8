//! Snapshots: asked of the agent's host, whose answer is the reply.

use std::time::Duration;

use protocol::api::Reply;
use protocol::error::{ErrorCode, WireError};
use protocol::order::{Answer, Question};
use protocol::snapshot::SnapshotCall;

use crate::hosts::Hosts;
use crate::queries;

/// A large workspace is read whole.
const LIMIT: Duration = Duration::from_secs(55);

/// # Errors
/// The host's refusal; `Unavailable` when it says nothing in time.
pub async fn snapshot(hosts: Hosts, target: String, call: SnapshotCall) -> Result<Reply, WireError> {
    let view = hosts.driver.glance(move |glance| queries::find(glance, &target)).await??.view;
    let question = Question::Snapshot { agent: view.id, call };
    match hosts.ask_once(&view.host, question, LIMIT).await? {
        Answer::Snapshots(snapshots) => Ok(Reply::Snapshots(snapshots)),
        Answer::Restored(restored) => Ok(Reply::Restored(restored)),
        _ => Err(WireError::new(ErrorCode::Failed, "the host gave another answer than snapshots")),
    }
}
