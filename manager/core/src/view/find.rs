//! From what a person wrote to one thing: exact names and ids, never a prefix or a pattern.

use protocol::error::{ErrorCode, WireError};
use protocol::ids::{AgentId, HostId, Name, RunId, TaskId};
use protocol::task::Attempt;

use crate::Core;

impl Core {
    /// `NAME`, `NAME@HOST`, `RUN/TASK#ATTEMPT` or an id. A name means the agent that is there, else the last one that was.
    ///
    /// # Errors
    /// Nothing, or more than one thing, is called so.
    pub fn find_agent(&self, target: &str) -> Result<AgentId, WireError> {
        let unknown = || {
            let error = WireError::new(ErrorCode::NotFound, format!("no agent {target:?}"));
            error.hint(match self.last_attempt(target) {
                Some(last) => format!("it is a task; its last agent is {target}#{}", last.number),
                None => String::from("phalanx ls"),
            })
        };
        let is_forgotten = |id: &AgentId| self.fleet.agent(*id).is_some_and(|agent| agent.is_forgotten());
        if let Ok(id) = target.parse::<AgentId>()
            && self.fleet.agent(id).is_some()
        {
            let message = "nothing is kept of that agent any more";
            return if is_forgotten(&id) {
                Err(WireError::new(ErrorCode::NotFound, message))
            } else {
                Ok(id)
            };
        }
        if let Some((run, attempt)) = target.split_once('/') {
            let found = self.find_attempt(run, attempt);
            return found.map_err(|error| if error.code == ErrorCode::NotFound { unknown() } else { error });
        }
        let (name, host) = match target.split_once('@') {
            Some((name, host)) => (name, Some(host.parse::<HostId>().map_err(|_| unknown())?)),
            None => (target, None),
        };
        let name: Name = name.parse().map_err(|_| unknown())?;
        let here = |id: &AgentId| {
            let on = self.fleet.agent(*id).and_then(|agent| agent.host());
            host.as_ref().is_none_or(|host| on == Some(host))
        };
        let live: Vec<AgentId> = self.fleet.named_live(&name).filter(here).collect();
        match live.as_slice() {
            [one] => Ok(*one),
            [] => {
                let gone = self.fleet.named(&name).filter(here).filter(|id| !is_forgotten(id));
                gone.last().ok_or_else(unknown)
            }
            several => {
                let ids: Vec<String> = several.iter().map(ToString::to_string).collect();
                let message = format!("{} agents are called {target:?}: {}", several.len(), ids.join(", "));
                Err(WireError::new(ErrorCode::Conflict, message).hint("name one of the ids"))
            }
        }
    }

    /// As [`Self::find_agent`]; who looks at a task or talks to it means the agent of its last attempt. What ends an
    /// agent or takes it away is not asked of a task so: the task would begin again.
    ///
    /// # Errors
    /// As there.
    pub fn find_agent_of(&self, target: &str) -> Result<AgentId, WireError> {
        self.find_agent(target).or_else(|error| match self.last_attempt(target) {
            Some(last) if error.code == ErrorCode::NotFound => Ok(last.agent),
            None if error.code == ErrorCode::NotFound => {
                let message = match self.find_task(target) {
                    Ok(_) => format!("task {target:?} has had no agent yet"),
                    Err(_) => format!("no agent or task {target:?}"),
                };
                Err(WireError::new(ErrorCode::NotFound, message).hint("phalanx ls -a; phalanx tasks RUN"))
            }
            Some(_) | None => Err(error),
        })
    }

    fn last_attempt(&self, task: &str) -> Option<&Attempt> {
        self.work.task(self.find_task(task).ok()?)?.record.attempts.last()
    }

    /// `TASK#ATTEMPT` of this run.
    fn find_attempt(&self, run: &str, attempt: &str) -> Result<AgentId, WireError> {
        let unknown = || WireError::new(ErrorCode::NotFound, format!("no attempt {attempt:?} of {run:?}"));
        let run = self.find_run(run)?;
        let (task, number) = attempt.rsplit_once('#').ok_or_else(unknown)?;
        let task = self.work.task(self.find_task_in(run, task)?).ok_or_else(unknown)?;
        let number: u32 = number.parse().map_err(|_| unknown())?;
        let found = task.record.attempts.iter().find(|attempt| attempt.number == number);
        found.map(|attempt| attempt.agent).ok_or_else(unknown)
    }

    /// Name or id. A name means the run that is not over, else the last one that was.
    ///
    /// # Errors
    /// Nothing, or more than one run that is not over, is called so.
    pub fn find_run(&self, target: &str) -> Result<RunId, WireError> {
        if let Ok(id) = target.parse::<RunId>()
            && self.work.run(id).is_some()
        {
            return Ok(id);
        }
        let mut last = None;
        let mut open = Vec::new();
        for run in self.work.runs().filter(|run| run.record.spec.name.as_str() == target) {
            last = Some(run.record.id);
            if run.record.ended_at.is_none() {
                open.push(run.record.id);
            }
        }
        match open.as_slice() {
            [one] => Ok(*one),
            [] => last.ok_or_else(|| {
                WireError::new(ErrorCode::NotFound, format!("no run {target:?}")).hint("phalanx runs")
            }),
            several => {
                let ids: Vec<String> = several.iter().map(ToString::to_string).collect();
                let message =
                    format!("{} runs called {target:?} are not over: {}", several.len(), ids.join(", "));
                Err(WireError::new(ErrorCode::Conflict, message).hint("name one of the ids"))
            }
        }
    }

    /// `RUN/TASK`, the name of a task of the latest run, or an id.
    ///
    /// # Errors
    /// Nothing, or more than one run that is not over, is called so.
    pub fn find_task(&self, target: &str) -> Result<TaskId, WireError> {
        if let Some((run, task)) = target.split_once('/') {
            return self.find_task_in(self.find_run(run)?, task);
        }
        if let Some(id) = target.parse::<TaskId>().ok().filter(|id| self.work.task(*id).is_some()) {
            return Ok(id);
        }
        let latest = self.work.runs().max_by_key(|run| (run.record.submitted_at, run.record.id));
        let Some(latest) = latest.map(|run| &run.record) else {
            return Err(WireError::new(ErrorCode::NotFound, "there is no run yet").hint("phalanx run FILE"));
        };
        self.find_task_in(latest.id, target).map_err(|_| {
            let message = format!("no task {target:?} in the latest run, {}", latest.spec.name);
            WireError::new(ErrorCode::NotFound, message)
                .hint("phalanx tasks; a task of another run is RUN/TASK")
        })
    }
}
