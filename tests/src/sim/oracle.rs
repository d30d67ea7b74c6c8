//! Two judges. At every instant: may this happen at all? When the fleet has settled: is the world as the
//! operator wished, and does the manager see the world as it is?
//!
//! Promises of an instant are checked where the world changes (a program starts, ends, is removed); the rest
//! is in [`World::differences`], which must become empty after the storm and stay so.

use std::collections::{BTreeMap, BTreeSet};

use protocol::agent::{AgentSpec, EndCause, Role, TaskLink};
use protocol::api::{AgentFilter, Mutation, Reply};
use protocol::ids::{AgentId, TaskId};
use protocol::order::Discard;
use protocol::task::{Accept, TaskSpec, TaskState, TaskView};
use protocol::time::Timestamp;

use super::machine::{Folder, Plan, Process};
use super::manager::HOST_CAP;
use super::world::World;

/// Starts that the infrastructure may ruin for nothing, as the manager is configured by default.
const UNCHARGED_MAX: u32 = 10;

#[derive(Default)]
pub struct Oracle {
    broken: Option<String>,
    /// How often attempts of a task were really started.
    starts: BTreeMap<TaskId, u32>,
    /// Commits that a verification has passed in the world.
    verified: BTreeSet<(TaskId, String)>,
    /// When, at the latest, an agent with a lease has ended if nothing more is granted; world time.
    leases: BTreeMap<AgentId, u64>,
    /// Branches of the repository.
    pub landed: BTreeMap<String, String>,
}

impl Oracle {
    /// A promise was broken; the first one counts.
    pub fn broken(&mut self, what: String) {
        self.broken.get_or_insert(what);
    }

    #[must_use]
    pub fn is_content(&self) -> bool {
        self.broken.is_none()
    }

    #[must_use]
    pub fn verdict(&self) -> Option<&str> {
        self.broken.as_deref()
    }
}

impl World {
    fn folders(&self) -> impl Iterator<Item = (usize, AgentId, &Folder)> {
        let all = self.machines.iter().enumerate();
        all.flat_map(|(m, machine)| machine.folders.iter().map(move |(agent, folder)| (m, *agent, folder)))
    }

    pub fn folder(&self, agent: AgentId) -> Option<&Folder> {
        self.machines.iter().find_map(|machine| machine.folders.get(&agent))
    }

    /// A program was executed. Nothing here may depend on what the manager believes.
    pub fn started(&mut self, m: usize, agent: AgentId) {
        let Some(spec) = self.folder(agent).map(|folder| folder.record.spec.clone()) else { return };
        let live: Vec<(usize, AgentId, &AgentSpec)> = self
            .folders()
            .filter(|(_, _, folder)| folder.is_live())
            .map(|(m, agent, folder)| (m, agent, &folder.record.spec))
            .collect();
        let mut broken = Vec::new();
        let here = live.iter().filter(|(at, ..)| *at == m).count();
        if here > HOST_CAP as usize {
            broken.push(format!("h{m} has {here} live agents, over its cap"));
        }
        if self.folders().any(|(at, other, _)| at != m && other == agent) {
            broken.push(format!("{agent} is on two hosts"));
        }
        let launch = self.folder(agent).map_or(0, |folder| folder.launch) as usize;
        if launch > 1 + self.starts_asked_for(spec.name.as_str()) {
            broken.push(format!("{agent} is started for the {launch}. time, unasked"));
        }
        if let Some(link) = &spec.task {
            let of_task = |role: Role| {
                let same = |other: &&AgentSpec| {
                    other.role == role && other.task.as_ref().is_some_and(|other| other.task == link.task)
                };
                live.iter().map(|(.., spec)| *spec).filter(same).count()
            };
            if of_task(Role::Attempt) > 1 {
                broken.push(format!("two live attempts of {}/{}", link.run_name, link.task_name));
            }
            if of_task(Role::Verify) > 1 {
                broken.push(format!("two live verifications of {}/{}", link.run_name, link.task_name));
            }
            let of_run = live.iter().filter(|(.., s)| s.task.as_ref().is_some_and(|t| t.run == link.run));
            let (of_run, cap) = (of_run.count(), self.run_cap(link));
            if cap.is_some_and(|cap| of_run > cap as usize) {
                broken.push(format!("run {} has {of_run} live, over its cap", link.run_name));
            }
            broken.extend(self.open_dependency(link));
        }
        if let Some(link) = spec.task.as_ref().filter(|_| spec.role == Role::Attempt) {
            let most = self.starts_at_most(link);
            let starts = self.oracle.starts.entry(link.task).or_default();
            *starts += 1;
            if *starts > most {
                broken.push(format!("{}/{} is over its budget of starts", link.run_name, link.task_name));
            }
        }
        for what in broken {
            self.oracle.broken(what);
        }
    }

    /// The manager gives a lease; it would move the agent's task a tenth of it after its end.
    pub fn grant_lease(&mut self, agent: AgentId, from: u64, ms: u64) {
        let until = from + ms + ms / 10;
        let known = self.oracle.leases.entry(agent).or_default();
        *known = (*known).max(until);
    }

    /// No agent outlives the lease that it was given, whoever cannot reach whom.
    pub fn check_leases(&mut self, m: usize) {
        let now = self.now;
        let over = self.machines[m].folders.iter().find(|(agent, folder)| {
            folder.is_live() && self.oracle.leases.get(agent).is_some_and(|until| *until < now)
        });
        if let Some(agent) = over.map(|(agent, _)| *agent) {
            self.oracle.broken(format!("{agent} outlives its lease"));
        }
    }

    /// All processes of an agent are gone.
    pub fn oracle_ended(&mut self, m: usize, agent: AgentId) {
        let Some(folder) = self.machines[m].folders.get(&agent) else { return };
        let spec = &folder.record.spec;
        let passed = matches!(&folder.process, Process::Over(exit) if exit.code == Some(0));
        if let (Role::Verify, true, Some(link), Some(checkout)) =
            (spec.role, passed, &spec.task, &spec.checkout)
        {
            self.oracle.verified.insert((link.task, checkout.commit.clone()));
        }
    }

    /// A folder was removed; `lost` is work that existed nowhere else.
    pub fn removed(&mut self, agent: AgentId, live: bool, lost: Option<String>) {
        if live {
            self.oracle.broken(format!("{agent} is removed while it lives"));
        }
        let name = self.folder(agent).map(|folder| folder.record.spec.name.to_string()).unwrap_or_default();
        let discarded = self.operator.actions.iter().any(|action| match &action.request {
            Mutation::DestroyAgents { targets, discard, .. } => {
                *discard == Discard::Yes && targets.contains(&name)
            }
            _ => false,
        });
        if let Some(commit) = lost.filter(|_| !discarded) {
            self.oracle.broken(format!("the only copy of {commit} is removed unasked"));
        }
    }

    fn submitted(&self, link: &TaskLink) -> Option<(&protocol::api::SubmitRun, &TaskSpec)> {
        self.operator.actions.iter().find_map(|action| match &action.request {
            Mutation::SubmitRun(submit) if submit.run.name.as_str() == link.run_name => {
                let task = submit.tasks.iter().find(|task| task.spec.name.as_str() == link.task_name)?;
                Some((&**submit, &task.spec))
            }
            _ => None,
        })
    }

    fn run_cap(&self, link: &TaskLink) -> Option<u32> {
        self.submitted(link)?.0.run.max_parallel
    }

    fn starts_at_most(&self, link: &TaskLink) -> u32 {
        let max = self.submitted(link).map_or(0, |(_, task)| task.retries.max);
        let budgets = if self.is_asked_of(&link.run_name, Asked::Retry) { 2 } else { 1 };
        (1 + max + UNCHARGED_MAX) * budgets
    }

    /// A dependency that is not accepted, as the store has it.
    fn open_dependency(&self, link: &TaskLink) -> Option<String> {
        let (_, task) = self.submitted(link)?;
        let core = self.manager.core.as_ref().filter(|_| !task.depends_on.is_empty())?;
        let tasks = core.tasks(Timestamp(self.now), link.run);
        let accepted = |name: &protocol::ids::Name| {
            tasks.iter().any(|task| {
                task.spec.name == *name && matches!(task.state, TaskState::Accepted | TaskState::Merged)
            })
        };
        let open = task.depends_on.iter().find(|name| !accepted(name))?;
        Some(format!("{}/{} starts before {open} is accepted", link.run_name, link.task_name))
    }

    fn is_asked_of(&self, run: &str, what: Asked) -> bool {
        self.operator.actions.iter().any(|action| match (&action.request, what) {
            (Mutation::CancelRun { run: named, .. }, Asked::Cancel) => named == run,
            (Mutation::RetryTasks { run: named, .. }, Asked::Retry) => named == run,
            _ => false,
        })
    }

    /// Everything that is not as it should be once all is quiet.
    #[must_use]
    pub fn differences(&self) -> Vec<String> {
        let Some(core) = self.manager.core.as_ref() else { return vec!["the manager is down".to_owned()] };
        let mut found = Vec::new();
        self.differ_from_wishes(&mut found);
        let now = Timestamp(self.now);
        for (_, agent, folder) in self.folders() {
            self.differ_from_host(agent, folder, &mut found);
            match core.agent_view(now, agent).and_then(|view| view.report) {
                None => found.push(format!("the manager sees nothing of {agent}")),
                Some(report) => {
                    let view = core.agent_view(now, agent);
                    let open = view.map(|view| view.unmet).unwrap_or_default();
                    // What a machine refuses stays open, and what an order of a stop overtook.
                    let told = |unmet: &protocol::report::Unmet| unmet.why.is_empty();
                    if open.iter().any(told) {
                        found.push(format!("{agent} is not as it is wanted: {open:?}"));
                    }
                    if report.end != folder.record.end || report.generation != folder.record.generation {
                        found.push(format!("the manager sees {agent} as {:?}", report.end));
                    }
                    if core.is_gone(agent) != folder.archived {
                        found.push(format!("gone: {agent} is {}", folder.archived));
                    }
                }
            }
        }
        let everything = AgentFilter { all: true, ..AgentFilter::default() };
        for view in core.agents(now, &everything).into_iter().flatten() {
            if self.folder(view.id).is_none() && !core.is_gone(view.id) {
                found.push(format!("the manager believes in {} ({})", view.id, view.name));
            }
            if view.wanted == "unowned" {
                found.push(format!("{} ({}) is nobody's", view.id, view.name));
            }
        }
        self.differ_in_messages(&mut found);
        for run in core.runs() {
            for task in core.tasks(now, run.id) {
                self.differ_in_task(&task, &mut found);
            }
        }
        found
    }

    /// The host's record against its processes.
    fn differ_from_host(&self, agent: AgentId, folder: &Folder, found: &mut Vec<String>) {
        let end = folder.record.end.as_ref();
        if folder.is_live() == end.is_some() {
            found.push(format!("{agent} is recorded as {end:?} and is {:?}", folder.process));
        }
        if let (Process::Over(exit), Some(end)) = (&folder.process, end)
            && folder.is_of_this_start()
            && (exit.code, exit.signal) != (end.code, end.signal)
        {
            found.push(format!("{agent} ended by {exit:?} and is recorded as {end:?}"));
        }
        if let (Process::Lost, Some(end)) = (&folder.process, end)
            && folder.is_of_this_start()
        {
            let fits = [EndCause::SupervisorLost, EndCause::Rebooted, EndCause::Requested];
            if !fits.contains(&end.cause) {
                found.push(format!("{agent} was lost and is recorded as {end:?}"));
            }
        }
        let plan = Plan::of(&folder.record.spec);
        let name = folder.record.spec.name.as_str();
        let twins = self.folders().filter(|(.., other)| {
            other.record.spec.role == Role::Own && other.record.spec.name.as_str() == name
        });
        if folder.record.spec.role == Role::Own && twins.count() > 1 {
            found.push(format!("{name} was created twice"));
        }
        if folder.is_live() && folder.frozen != folder.record.spec.frozen {
            found.push(format!("{agent} is frozen: {}", folder.frozen));
        }
        if folder.is_live() && plan.work_ms.is_some() && !folder.frozen {
            found.push(format!("{agent} still works"));
        }
    }

    fn differ_from_wishes(&self, found: &mut Vec<String>) {
        for (number, action) in self.operator.actions.iter().enumerate() {
            let reply = match &action.answer {
                None => {
                    found.push(format!("request {number} has no answer"));
                    continue;
                }
                Some(Err(_)) => continue,
                Some(Ok(reply)) => reply,
            };
            match (&action.request, reply) {
                (Mutation::CreateAgent(create), Reply::Accepted { agent }) => {
                    let name = create.spec.name.to_string();
                    let ran = self
                        .folder(*agent)
                        .is_some_and(|folder| folder.record.end.is_some() || folder.is_live());
                    if !ran && !self.is_ended_by_wish(&name) {
                        found.push(format!("{name} was accepted and never started"));
                    }
                }
                (Mutation::StopAgents { .. }, Reply::Outcomes(outcomes)) => {
                    for agent in outcomes.iter().filter(|o| o.error.is_none()).filter_map(|o| o.agent) {
                        // Unless a person had it started again after that.
                        let again = |folder: &&Folder| {
                            folder.launch > 1 && self.starts_asked_for(folder.record.spec.name.as_str()) > 0
                        };
                        let folder = self.folder(agent).filter(|folder| folder.is_live());
                        if folder.is_some_and(|folder| !again(&folder)) {
                            found.push(format!("{agent} was stopped and lives"));
                        }
                    }
                }
                (Mutation::DestroyAgents { .. }, Reply::Outcomes(outcomes)) => {
                    for agent in outcomes.iter().filter(|o| o.error.is_none()).filter_map(|o| o.agent) {
                        if self.folder(agent).is_some_and(|folder| !folder.archived) {
                            found.push(format!("{agent} was destroyed and is there"));
                        }
                    }
                }
                _ => {}
            }
        }
    }

    fn is_ended_by_wish(&self, name: &String) -> bool {
        self.operator.actions.iter().any(|action| match &action.request {
            Mutation::StopAgents { targets, .. } | Mutation::DestroyAgents { targets, .. } => {
                targets.contains(name)
            }
            _ => false,
        })
    }

    fn differ_in_task(&self, task: &TaskView, found: &mut Vec<String>) {
        let name = format!("{}/{}", task.run_name, task.spec.name);
        let last = task.attempts.last();
        let retried = self.is_asked_of(task.run_name.as_str(), Asked::Retry);
        match task.state {
            TaskState::Accepted | TaskState::Merged => {
                let Some(last) = last else { return found.push(format!("{name} is accepted untried")) };
                let exit_0 = self.folder(last.agent).is_some_and(
                    |folder| matches!(&folder.process, Process::Over(exit) if exit.code == Some(0)),
                );
                if !exit_0 {
                    found.push(format!("{name} is accepted and its program failed"));
                }
                if task.spec.accept == Accept::Verify {
                    let commit = last.collected.as_ref().and_then(|c| c.commit.clone()).unwrap_or_default();
                    if !self.oracle.verified.contains(&(task.id, commit.clone())) {
                        found.push(format!("{name} is accepted at {commit}, which was never verified"));
                    }
                    match task.branch.as_ref().and_then(|branch| self.oracle.landed.get(branch)) {
                        Some(landed) if *landed == commit => {}
                        other => {
                            found.push(format!("{name} is accepted at {commit}; its branch is {other:?}"))
                        }
                    }
                }
            }
            TaskState::Failed => {
                let failure = last.and_then(|attempt| attempt.failure.as_ref());
                let charged = task.attempts.iter().filter_map(|a| a.failure.as_ref()).filter(|f| f.charged);
                let charged = u32::try_from(charged.count()).unwrap_or(u32::MAX);
                let by_hand = failure.is_some_and(|failure| failure.reason.contains("by hand"));
                let again = failure.is_some_and(|failure| task.spec.retries.on.contains(&failure.class));
                if again && !by_hand && charged <= task.spec.retries.max {
                    found.push(format!("{name} failed with starts left: {failure:?}"));
                }
            }
            TaskState::Cancelled => {
                let blocked = !task.spec.depends_on.is_empty();
                if !blocked && !self.is_asked_of(task.run_name.as_str(), Asked::Cancel) {
                    found.push(format!("{name} is cancelled unasked"));
                }
            }
            TaskState::Queued
            | TaskState::Assigned
            | TaskState::Running
            | TaskState::Verifying
            | TaskState::Review
            | TaskState::Rejected
            | TaskState::Unknown => found.push(format!("{name} is {} ({:?})", task.state, task.waiting)),
        }
        let live = self.folders().any(|(.., folder)| {
            folder.is_live() && folder.record.spec.task.as_ref().is_some_and(|link| link.task == task.id)
        });
        if live && task.state.is_final() && !retried {
            found.push(format!("{name} is {} and something of it lives", task.state));
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    Cancel,
    Retry,
}
