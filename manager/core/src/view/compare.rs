//! What a task or an agent changed: which two states that is, and the host that can tell them apart. Work that is
//! recorded is told by its commits; of work under way the files are told as they are.

use protocol::compare::{Compared, Comparison, Sides};
use protocol::error::{ErrorCode, WireError};
use protocol::ids::{AgentId, HostId, TaskId};
use protocol::report::{Life, Report};
use protocol::task::Attempt;

use crate::Core;
use crate::record::TaskRecord;

/// A question for a host, and what the answer is about. The sides are filled in by the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToCompare {
    pub host: HostId,
    pub what: Compared,
    pub about: Comparison,
}

fn conflict(message: String, hint: &str) -> WireError {
    WireError::new(ErrorCode::Conflict, message).hint(hint)
}

impl Core {
    /// `target` is `RUN/TASK`, a task of the latest run, an agent, or an id of either. `attempt` is from 1.
    ///
    /// # Errors
    /// Nothing, or more than one thing, is called so; or it has nothing that could be compared.
    pub fn to_compare(&self, target: &str, attempt: Option<u32>) -> Result<ToCompare, WireError> {
        match (self.find_task(target), self.find_agent(target)) {
            (Ok(task), Ok(_)) if target.parse::<TaskId>().is_err() => {
                let message = format!("a task of the latest run and an agent are called {target:?}");
                Err(conflict(
                    message,
                    &format!("phalanx tasks; then name the id {task}, or that of the agent"),
                ))
            }
            (Ok(task), _) => self.compare_task(task, attempt),
            (Err(_), Ok(_)) if attempt.is_some() => {
                let message = format!("{target:?} is an agent: it has no attempts");
                Err(WireError::new(ErrorCode::Invalid, message).hint("name a task"))
            }
            (Err(_), Ok(agent)) => self.compare_agent(agent, target),
            (Err(task), Err(agent)) => Err(match (task.code, agent.code) {
                (ErrorCode::NotFound, ErrorCode::NotFound) if !target.contains('/') => {
                    let message = format!("no task of the latest run and no agent {target:?}");
                    WireError::new(ErrorCode::NotFound, message).hint("phalanx tasks; phalanx ls -a")
                }
                (ErrorCode::NotFound, ErrorCode::Conflict) => agent,
                (_, _) => task,
            }),
        }
    }

    fn compare_task(&self, id: TaskId, number: Option<u32>) -> Result<ToCompare, WireError> {
        let record = self.work.task(id).map(|task| &task.record);
        let record = record.ok_or_else(|| WireError::new(ErrorCode::NotFound, format!("no task {id}")))?;
        let name = &record.spec.name;
        if record.spec.repo.is_none() {
            return Err(conflict(
                format!("task {name} has no repository"),
                "phalanx logs shows what it printed",
            ));
        }
        let attempt = match number {
            Some(number) => record.attempts.iter().find(|attempt| attempt.number == number),
            None => record.attempts.last(),
        };
        let Some(attempt) = attempt else {
            return Err(match number {
                Some(number) => {
                    let has = record.attempts.len();
                    WireError::new(
                        ErrorCode::NotFound,
                        format!("task {name} has {has} attempts, none is {number}"),
                    )
                }
                None => conflict(format!("task {name} was not started yet"), &format!("phalanx why {id}")),
            });
        };
        let mut found = match recorded(record, attempt) {
            Some(what) => ToCompare {
                host: attempt.host.clone(),
                what,
                about: about(record.spec.name.to_string(), attempt.agent, attempt.host.clone()),
            },
            None => self.compare_agent(attempt.agent, name.as_str())?,
        };
        found.about.name = name.to_string();
        found.about.task = Some(id);
        found.about.attempt = Some(attempt.number);
        Ok(found)
    }

    fn compare_agent(&self, id: AgentId, target: &str) -> Result<ToCompare, WireError> {
        let report = self.fleet.report(id).ok_or_else(|| {
            conflict(format!("{target} was not reported by its host yet"), &format!("phalanx why {id}"))
        })?;
        let checkout = report.workspace.as_ref().is_some_and(|facts| facts.repo.is_some());
        let what = if report.life == Life::Present && checkout {
            Compared::Workspace { agent: id }
        } else {
            recorded_of(report).ok_or_else(|| {
                let message =
                    format!("{target} has no checkout of a repository, and nothing of it was recorded");
                conflict(message, &format!("phalanx show {id}"))
            })?
        };
        let host = report.host.clone();
        let about = about(report.spec.name.to_string(), id, host.clone());
        Ok(ToCompare { host, what, about })
    }
}

fn about(name: String, agent: AgentId, host: HostId) -> Comparison {
    let sides = Sides { from: String::new(), to: None, notes: Vec::new() };
    Comparison { name, task: None, attempt: None, agent, host, sides }
}

/// What was brought home of an attempt, against what it started from.
fn recorded(record: &TaskRecord, attempt: &Attempt) -> Option<Compared> {
    let collected = attempt.collected.as_ref()?;
    let from = collected.base_commit.clone().or_else(|| record.spec.base_commit.clone())?;
    Some(Compared::Commits { repo: record.spec.repo.clone()?, from, to: collected.commit.clone()? })
}

fn recorded_of(report: &Report) -> Option<Compared> {
    let collected = report.collected.as_ref()?;
    let repo = report.spec.checkout.as_ref()?.repo.clone();
    // What was left uncommitted holds what was committed too.
    let to = collected.uncommitted.clone().or_else(|| collected.commit.clone())?;
    Some(Compared::Commits { repo, from: collected.base_commit.clone()?, to })
}
