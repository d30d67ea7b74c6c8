//! A machine as its kernel and disk are: folders of agents, their supervisors and programs. Knows no rules;
//! what it does follows from what it is told and from the seed.

use std::collections::BTreeMap;

use hostd_core::{AgentRecord, ExitCause, ExitSeen, Found, StartFacts};
use protocol::agent::{AgentSpec, Role};
use protocol::ids::{AgentId, Fencing, HostId, Incarnation};
use protocol::report::{Collected, Usage};
use protocol::time::Timestamp;

use super::hostd::Hostd;
use super::messages::Typed;
use super::network::Life;

/// What is left of the process tree of an agent.
#[derive(Clone, Debug, PartialEq)]
pub enum Process {
    /// No supervisor ever ran.
    Never,
    Running,
    /// The program has ended, processes that it left have not.
    Left(ExitSeen),
    /// All are gone; the exit record is on the disk.
    Over(ExitSeen),
    /// All are gone, without an exit record.
    Lost,
}

/// One agent's folder.
#[derive(Clone, Debug)]
pub struct Folder {
    pub record: AgentRecord,
    pub process: Process,
    /// The boot in which it was started.
    pub boot: Life,
    pub started_at: Timestamp,
    pub lease_until: Option<Timestamp>,
    /// Commits that exist nowhere but here.
    pub only_copy: Option<String>,
    pub archived: bool,
    /// The start that `process` is of; 0 before the first.
    pub launch: u32,
    /// Its processes stand still.
    pub frozen: bool,
    pub typed: Typed,
}

impl Folder {
    #[must_use]
    pub fn new(record: AgentRecord) -> Self {
        Self {
            record,
            process: Process::Never,
            boot: 0,
            started_at: Timestamp(0),
            lease_until: None,
            only_copy: None,
            archived: false,
            launch: 0,
            frozen: false,
            typed: Typed::default(),
        }
    }

    /// Whether what is left of processes is of the start that the record tells of.
    #[must_use]
    pub fn is_of_this_start(&self) -> bool {
        self.launch == self.record.launch
    }

    #[must_use]
    pub fn is_live(&self) -> bool {
        match self.process {
            Process::Running | Process::Left(_) => true,
            Process::Never | Process::Over(_) | Process::Lost => false,
        }
    }

    #[must_use]
    pub fn facts(&self) -> StartFacts {
        let frozen = self.frozen;
        StartFacts { started_at: self.started_at, user: "sim".to_owned(), frozen, ..StartFacts::default() }
    }

    /// The kernel ends everything that runs.
    pub fn kill(&mut self, at: Timestamp, cause: ExitCause) {
        match &self.process {
            Process::Running => {
                let seen = ExitSeen { launch: self.launch, ..exit(cause, None, Some(9), at) };
                self.process = Process::Over(seen);
            }
            Process::Left(exit) => self.process = Process::Over(exit.clone()),
            Process::Never | Process::Over(_) | Process::Lost => {}
        }
    }

    /// What a new hostd proves about it.
    #[must_use]
    pub fn found(&self, boot: Life) -> Found {
        if self.archived {
            return Found::Archived;
        }
        let facts = Box::new(self.facts());
        match &self.process {
            Process::Never => Found::NeverStarted,
            _ if !self.is_of_this_start() => Found::NeverStarted,
            Process::Running => Found::Alive { facts, exited: None },
            Process::Left(exit) => Found::Alive { facts, exited: Some(exit.clone()) },
            Process::Over(exit) => Found::Ended { exit: exit.clone(), facts },
            Process::Lost if self.boot != boot => Found::Rebooted { facts },
            Process::Lost => Found::Lost { detail: "its supervisor is gone".to_owned(), facts },
        }
    }

    /// Brings the work to the repository; from then on this is not the only copy.
    pub fn collect(&mut self) -> Collected {
        let commit = self.only_copy.take();
        Collected { commit, ..Collected::default() }
    }
}

#[must_use]
pub fn exit(cause: ExitCause, code: Option<i32>, signal: Option<i32>, at: Timestamp) -> ExitSeen {
    ExitSeen {
        launch: 1,
        cause,
        code,
        signal,
        out_of_memory: false,
        at,
        transcript_bytes: 100,
        usage: Usage::default(),
        detail: String::new(),
    }
}

pub struct Machine {
    pub host: HostId,
    /// The host's clock minus the world's.
    pub clock_ms: i64,
    pub boot: Life,
    pub incarnation: Incarnation,
    pub fencing: Fencing,
    pub folders: BTreeMap<AgentId, Folder>,
    /// `None` while no hostd runs.
    pub hostd: Option<Hostd>,
    pub lives: Life,
    /// A start of hostd is under way, or the machine is down.
    pub rising: bool,
}

impl Machine {
    #[must_use]
    pub fn new(host: HostId, clock_ms: i64) -> Self {
        Self {
            host,
            clock_ms,
            boot: 1,
            incarnation: Incarnation(0),
            fencing: Fencing(0),
            folders: BTreeMap::new(),
            hostd: None,
            lives: 0,
            rising: false,
        }
    }

    #[must_use]
    pub fn clock(&self, now: u64) -> Timestamp {
        Timestamp(now.saturating_add_signed(self.clock_ms))
    }

    /// When the host's clock shows `at`.
    #[must_use]
    pub fn world_time(&self, at: Timestamp) -> u64 {
        at.0.saturating_add_signed(self.clock_ms.wrapping_neg())
    }
}

/// What a program of the simulation does, as its arguments say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// `None`: until it is stopped.
    pub work_ms: Option<u64>,
    pub succeeds: bool,
    /// Whether what it commits verifies.
    pub is_good: bool,
    pub ignores_term: bool,
    pub leaves_ms: Option<u64>,
}

impl Plan {
    /// `sim WORK_MS OK_FROM GOOD_FROM IGNORES_TERM LEAVES_MS`: from which attempt on it succeeds, and is
    /// good.
    #[must_use]
    pub fn program(
        work_ms: u64,
        ok_from: u64,
        good_from: u64,
        ignores_term: bool,
        leaves_ms: u64,
    ) -> Vec<String> {
        let numbers = [work_ms, ok_from, good_from, u64::from(ignores_term), leaves_ms];
        std::iter::once("sim".to_owned()).chain(numbers.iter().map(ToString::to_string)).collect()
    }

    #[must_use]
    pub fn of(spec: &AgentSpec) -> Self {
        if spec.role == Role::Verify {
            return Self::of_verification(spec);
        }
        let mut numbers = spec.program.iter().skip(1).map(|word| word.parse::<u64>().unwrap_or(0));
        let mut next = || numbers.next().unwrap_or(0);
        let attempt = spec.task.as_ref().map_or(1, |task| u64::from(task.attempt));
        Self {
            work_ms: Some(next()).filter(|ms| *ms > 0),
            succeeds: attempt >= next(),
            is_good: attempt >= next(),
            ignores_term: next() == 1,
            leaves_ms: Some(next()).filter(|ms| *ms > 0),
        }
    }

    /// The verification of a good commit passes, and so does the base.
    fn of_verification(spec: &AgentSpec) -> Self {
        let commit = spec.checkout.as_ref().map_or("", |checkout| checkout.commit.as_str());
        let passes = !commit.starts_with("bad");
        Self { work_ms: Some(400), succeeds: passes, is_good: passes, ignores_term: false, leaves_ms: None }
    }
}
