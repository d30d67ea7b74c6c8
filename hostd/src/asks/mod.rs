//! Answers the manager's questions. Each gets an answer in every path; nothing here changes what is known of an agent,
//! but that what is kept of a destroyed one may go.

mod compare;
mod exec;
mod figures;
mod files;
mod git;
mod screen;
mod snapshot;
mod streamed;
mod transcript;
mod uploads;

pub use uploads::Uploads;

use std::collections::BTreeSet;

use hostd_core::AgentRecord;
use protocol::error::{ErrorCode, WireError};
use protocol::ids::AgentId;
use protocol::order::{Answer, Question};

pub use compare::Talks;
use protocol::compare::Compared;
pub use streamed::Programs;

use crate::bus::{Replier, Shipment};
use crate::house;
use crate::machine::Handle;

/// A question with what the driver knows of its agent.
#[derive(Debug)]
pub struct Asked {
    pub question: Question,
    pub record: Option<AgentRecord>,
    /// Of every agent, for questions about the whole host.
    pub records: Vec<AgentRecord>,
    /// Decided already.
    pub refusal: Option<WireError>,
}

#[must_use]
pub fn busy() -> WireError {
    WireError::new(ErrorCode::Unavailable, "the host answers as many questions as it takes").hint("try again")
}

#[must_use]
pub fn adopting() -> WireError {
    WireError::new(ErrorCode::Unavailable, "the host is still looking what became of its agents")
        .hint("try again")
}

/// Of the agents of its last life this hostd has not told yet what became of these. To say that one is not there, or to
/// take what belongs to none that it knows, would be a guess; a transcript is on the disk whatever became of its agent.
#[must_use]
pub fn is_too_early(question: &Question, adopting: &BTreeSet<AgentId>) -> bool {
    let is_of_transcript = matches!(question, Question::Read { .. } | Question::Follow { .. });
    match agent_of(question) {
        Some(agent) => adopting.contains(&agent) && !is_of_transcript,
        None => is_of_host(question) && !adopting.is_empty(),
    }
}

#[must_use]
pub fn outdated() -> WireError {
    WireError::new(ErrorCode::Conflict, "the question has expired")
}

/// Retryable: a manager that leads takes a number above ours as soon as it hears it in our heartbeat.
#[must_use]
pub fn follows_another() -> WireError {
    WireError::new(ErrorCode::Unavailable, "the host follows a manager that took the lead later")
        .hint("try again; a manager that leads takes over within seconds")
}

/// The agent that a question is about.
#[must_use]
pub fn agent_of(question: &Question) -> Option<AgentId> {
    match question {
        Question::Read { agent, .. }
        | Question::Follow { agent, .. }
        | Question::Exec { agent, .. }
        | Question::ExecOpen { agent, .. }
        | Question::Screen { agent, .. }
        | Question::ListFiles { agent, .. }
        | Question::ReadFile { agent, .. }
        | Question::WriteFile { agent, .. }
        | Question::MakeNode { agent, .. } => Some(*agent),
        Question::Snapshot { agent, .. } => Some(*agent),
        Question::Compare { what: Compared::Workspace { agent }, .. } => Some(*agent),
        Question::Resolve { .. }
        | Question::Report { .. }
        | Question::Land { .. }
        | Question::Diff { .. }
        | Question::Survey { .. }
        | Question::Free { .. }
        | Question::Compare { what: Compared::Commits { .. }, .. }
        | Question::MergeLook { .. }
        | Question::Merge(_)
        | Question::Advance { .. }
        | Question::Figures { .. }
        | Question::ExecInput { .. }
        | Question::ExecEnd { .. }
        | Question::More { .. } => None,
    }
}

/// Whether the records of all agents are needed to answer.
#[must_use]
pub fn is_of_host(question: &Question) -> bool {
    matches!(question, Question::Survey { .. } | Question::Free { .. })
}

/// 128 random bits as hex: identity of a transcript.
///
/// # Errors
/// When the kernel has no randomness.
pub fn random_hex() -> Result<String, getrandom::Error> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes)?;
    Ok(data_encoding::HEXLOWER.encode(&bytes))
}

/// Sends one or more answers; the last one ends the talk.
pub async fn answer(machine: &Handle, asked: Asked, replier: Replier) {
    if let Some(refusal) = asked.refusal {
        return replier.refuse(refusal).await;
    }
    let answered = match asked.question {
        Question::Resolve { repo, base } => git::resolve(machine, &repo, base.as_deref()).await,
        Question::Read { agent, offset, max } => {
            transcript::read(machine, agent, offset, max, asked.record.as_ref()).await
        }
        Question::Follow { agent, until } => {
            machine.shipper.tell(Shipment::Follow { agent, until }).await;
            Ok(Answer::Done)
        }
        Question::Report { .. } => Ok(Answer::Done),
        Question::Exec { program, environment, stdin, .. } => match asked.record {
            Some(record) => exec::exec(machine, &record, &program, environment, stdin, &replier).await,
            None => Err(WireError::new(ErrorCode::NotFound, "there is no such agent on this host")),
        },
        Question::ExecOpen { program, environment, input, .. } => match asked.record {
            Some(record) => streamed::open(machine, &record, &program, environment, input, &replier).await,
            None => Err(WireError::new(ErrorCode::NotFound, "there is no such agent on this host")),
        },
        Question::ExecInput { talk, input } => machine.programs.input(talk, input).await,
        Question::ExecEnd { talk } => {
            machine.programs.end(talk);
            Ok(Answer::Done)
        }
        Question::Land { repo, branch, commit, from } => {
            git::land(machine, &repo, branch, commit, from).await
        }
        Question::MergeLook { repo, into, recorded } => {
            git::merge_look(machine, &repo, into.as_deref(), &recorded).await
        }
        Question::Merge(wish) => git::merge(machine, &wish).await,
        Question::Advance { repo, branch, commit, from } => {
            git::advance(machine, &repo, branch, commit, from).await
        }
        Question::Snapshot { call, .. } => snapshot::snapshot(machine, asked.record.as_ref(), call).await,
        Question::Compare { what, form } => compare::compare(machine, what, form, &replier).await,
        Question::More { talk, pieces } => {
            machine.talks.more(talk, pieces);
            machine.programs.alive(talk);
            Ok(Answer::Done)
        }
        Question::Diff { repo, from, to } => git::diff(machine, &repo, &from, &to).await,
        Question::Screen { agent, history, colours } => {
            screen::show(machine, agent, asked.record.as_ref(), history, colours).await
        }
        Question::ListFiles { agent, area, path, after } => {
            files::list(machine, (agent, area, asked.record.as_ref()), path, after).await
        }
        Question::ReadFile { agent, area, path, offset, max, version } => {
            files::read(machine, (agent, area, asked.record.as_ref()), path, (offset, max), version).await
        }
        Question::WriteFile { agent, write } => {
            files::write(machine, agent, asked.record.as_ref(), write).await
        }
        Question::MakeNode { agent, path, node } => {
            files::make(machine, agent, asked.record.as_ref(), path, node).await
        }
        Question::Survey { agents, deep, added } => {
            house::survey(machine, asked.records, &agents, house::Looks { deep, added }, &replier).await
        }
        Question::Figures { agents } => figures::figures(machine, agents, &replier).await,
        Question::Free { items, older_ms, discard } => {
            Ok(house::free(machine, &asked.records, items, older_ms, discard).await)
        }
    };
    match answered {
        Ok(answer) => replier.send(&answer).await,
        Err(error) => replier.refuse(error).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_said_to_be_missing_or_nobodys_before_all_agents_are_known() {
        let [known, unknown] = [1, 2].map(|n| AgentId::from_parts(n, 1));
        let exec = |agent| Question::ExecOpen {
            agent,
            program: Vec::new(),
            environment: Default::default(),
            input: false,
        };
        let survey = Question::Survey { agents: Vec::new(), deep: false, added: false };
        let read = Question::Read { agent: unknown, offset: 0, max: 1 };
        let adopting = BTreeSet::from([unknown]);
        assert!(is_too_early(&exec(unknown), &adopting) && is_too_early(&survey, &adopting));
        assert!(!is_too_early(&exec(known), &adopting) && !is_too_early(&read, &adopting));
        let all_known = BTreeSet::new();
        assert!(!is_too_early(&exec(unknown), &all_known) && !is_too_early(&survey, &all_known));
    }
}
