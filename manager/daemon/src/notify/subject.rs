//! What the manager knows of a fact that is to be told: names, whose values its reason may hold, and what its run asks
//! for.

use manager_core::{Core, EnvironmentOwner};
use protocol::agent::{Role, TaskLink};
use protocol::event::Fact;
use protocol::ids::RunId;
use protocol::notify::NoticeKind;

use crate::driver::Glance;
use manager_plan::notify::hook::Asked;

pub(super) struct LookedUp {
    /// Whose values the reason may hold; `None`: nobody's.
    pub owner: Option<EnvironmentOwner>,
    pub run_name: Option<String>,
    pub task: Option<TaskLink>,
    /// It is not known any more, so its values are not either.
    pub is_gone: bool,
    /// A task tells of it.
    pub is_told_elsewhere: bool,
    pub asked: Asked,
}

fn asked(core: &Core, run: RunId) -> Asked {
    core.told(run).map_or(Asked::Unknown, |told| Asked::Run(told.to_vec()))
}

impl LookedUp {
    pub(super) fn at(glance: &Glance<'_>, fact: &Fact, kind: NoticeKind) -> Self {
        let core = glance.core;
        let nothing = Self {
            owner: None,
            run_name: None,
            task: None,
            is_gone: false,
            is_told_elsewhere: false,
            asked: Asked::NoRun,
        };
        match fact {
            Fact::TaskState { run, task, .. } => {
                let asked = asked(core, *run);
                let Some(view) = core.task_view(glance.now, *task) else {
                    return Self { is_gone: true, asked, ..nothing };
                };
                let owner = view.spec.has_environment.then_some(EnvironmentOwner::Task(view.id));
                Self { owner, run_name: Some(view.run_name.to_string()), asked, ..nothing }
            }
            Fact::AgentPhase { agent, .. } => {
                let Some(view) = core.agent_view(glance.now, *agent) else {
                    return Self { is_gone: true, asked: Asked::Unknown, ..nothing };
                };
                let is_told_elsewhere = view.role != Role::Own && kind != NoticeKind::Blocked;
                let owner = core.environment_owner(*agent);
                let asked = view.spec.task.as_ref().map_or(Asked::NoRun, |link| asked(core, link.run));
                Self { owner, task: view.spec.task, is_told_elsewhere, asked, ..nothing }
            }
            Fact::RunEnded { run, .. } => Self { asked: asked(core, *run), ..nothing },
            Fact::RecordsLost { .. }
            | Fact::AgentDestroyed { .. }
            | Fact::RunSubmitted { .. }
            | Fact::HostStarted { .. }
            | Fact::BaseReplaced { .. }
            | Fact::Gap { .. }
            | Fact::Unknown => nothing,
        }
    }
}
