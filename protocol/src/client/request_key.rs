//! Which requests of a client change something: those have a key. And which name blobs, that must be there.

use crate::agent::Blob;
use crate::api::Request;
use crate::ids::RequestKey;

impl Request {
    /// Key of a mutation.
    #[must_use]
    pub fn key(&self) -> Option<&RequestKey> {
        match self {
            Self::CreateAgent(create) => Some(&create.key),
            Self::SubmitRun(submit) => Some(&submit.key),
            Self::AddTasks(add) => Some(&add.key),
            Self::DecideTasks(decide) => Some(&decide.key),
            Self::MergeRun(merge) => Some(&merge.key),
            Self::StopAgents { key, .. }
            | Self::DestroyAgents { key, .. }
            | Self::CancelRun { key, .. }
            | Self::RetryTasks { key, .. }
            | Self::ScaleRun { key, .. }
            | Self::CloseRun { key, .. }
            | Self::ChangeAgents { key, .. }
            | Self::SendMessage { key, .. }
            | Self::CancelMessages { key, .. }
            | Self::FreeRuns { key, .. } => Some(key),
            Self::Status
            | Self::Hosts
            | Self::Hooks
            | Self::ListAgents(_)
            | Self::ShowAgents { .. }
            | Self::WaitAgents { .. }
            | Self::Logs { .. }
            | Self::Exec { .. }
            | Self::Events { .. }
            | Self::ResolveRepo { .. }
            | Self::PutBlob { .. }
            | Self::ListRuns
            | Self::ShowRun { .. }
            | Self::FollowRun { .. }
            | Self::Why { .. }
            | Self::ListRows(_)
            | Self::Survey { .. }
            | Self::Free { .. }
            | Self::FreeBlobs { .. }
            | Self::Capture { .. }
            | Self::Compare { .. }
            | Self::ShowTask { .. }
            | Self::ListFiles { .. }
            | Self::GetFile { .. }
            | Self::PutFile { .. }
            | Self::MakeNode { .. }
            | Self::FollowMerge { .. }
            | Self::ListMessages { .. }
            | Self::Snapshot(_)
            | Self::WaitMessages { .. }
            | Self::WatchRows(_)
            | Self::Top(_)
            | Self::ExecOpen(_)
            | Self::ExecInput { .. } => None,
        }
    }

    /// What it names of the blobs that were brought before it.
    #[must_use]
    pub fn blobs(&self) -> Vec<&Blob> {
        match self {
            Self::CreateAgent(create) => {
                let spec = &create.spec;
                [&spec.prompt, &spec.feedback, &spec.inputs].into_iter().flatten().collect()
            }
            Self::SubmitRun(submit) => {
                submit.tasks.iter().filter_map(|task| task.spec.prompt.as_ref()).collect()
            }
            Self::AddTasks(add) => add.tasks.iter().filter_map(|task| task.spec.prompt.as_ref()).collect(),
            Self::DecideTasks(decide) => decide.feedback.iter().collect(),
            _ => Vec::new(),
        }
    }
}
