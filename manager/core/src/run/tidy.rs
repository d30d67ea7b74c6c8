//! Clears away what a final task no longer needs: verifications, attempts that another one followed, and, of an
//! accepted task, the attempt whose commit is in the repository. The last attempt of any other task stays for a look.
//! Hosts are never told to discard: one that holds the only copy of work keeps it, and is not asked again.

use std::collections::BTreeSet;

use protocol::ids::{AgentId, TaskId};
use protocol::order::Discard;
use protocol::task::TaskState;

use crate::Core;
use crate::fleet::agent::Standing;
use crate::record::{Landing, Wanted};

impl Core {
    pub(super) fn tidy(&mut self, id: TaskId) {
        let Some(task) = self.work.task(id) else { return };
        let last = task.record.attempts.last().map(|attempt| attempt.agent);
        let stays: Option<AgentId> = match (task.record.state, task.record.landing) {
            // Until the branch is there, or refused, the workspace may be the shorter way to the commit.
            (TaskState::Accepted, Landing::Due | Landing::Refused) => last,
            (TaskState::Accepted, Landing::None | Landing::Done) | (TaskState::Merged, _) => None,
            (TaskState::Failed | TaskState::Cancelled | TaskState::Rejected, _) => last,
            (
                TaskState::Queued
                | TaskState::Assigned
                | TaskState::Running
                | TaskState::Verifying
                | TaskState::Review
                | TaskState::Unknown,
                _,
            ) => return,
        };
        let unneeded: BTreeSet<AgentId> = task
            .agents
            .iter()
            .copied()
            .filter(|agent| Some(*agent) != stays && self.is_to_go(*agent))
            .collect();
        for agent in unneeded {
            self.want_destroyed(agent, Discard::Keep);
        }
    }

    /// Ended, wanted by nobody yet to go, and never refused by its host.
    fn is_to_go(&self, id: AgentId) -> bool {
        let Some(desired) = self.fleet.desired(id) else { return false };
        let asked = match desired.wanted {
            Wanted::Stopped => desired.kept,
            Wanted::Destroyed => true,
            // Refused while it was alive, if ever: it did more since.
            Wanted::Running => false,
        };
        !asked
            && match self.fleet.standing(id) {
                Standing::Ended => true,
                Standing::Unheard | Standing::Live | Standing::Gone => false,
            }
    }
}
