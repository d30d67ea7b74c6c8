//! Specs, ends and collections as tests want them.

use std::collections::BTreeMap;

use protocol::agent::{AgentSpec, CommitMode, End, EndCause, Environment, ResourceLimits};
use protocol::api::CreateAgent;
use protocol::ids::RequestKey;
use protocol::report::Collected;
use protocol::task::{Accept, Retries, RunSpec, TaskSpec};
use protocol::time::Timestamp;

pub(super) const BASE: &str = "1111111111111111111111111111111111111111";
pub(super) const LEASE_MS: u64 = 300_000;
pub(super) const WORK: &str = "2222222222222222222222222222222222222222";

pub(super) fn end(cause: EndCause, code: Option<i32>, at: Timestamp) -> End {
    End { cause, code, signal: None, step: None, detail: String::new(), at }
}

pub(super) fn collected(commit: Option<&str>) -> Collected {
    Collected {
        commit: commit.map(str::to_owned),
        base_commit: commit.map(|_| BASE.to_owned()),
        ..Collected::default()
    }
}

pub(super) fn create(key: RequestKey, name: &str) -> CreateAgent {
    CreateAgent { key, spec: agent_spec(name), host: None, environment: Environment::default() }
}

pub(super) fn agent_spec(name: &str) -> AgentSpec {
    AgentSpec::own(name.parse().unwrap(), vec![String::from("/bin/true")], 5_000)
}

pub(super) fn run_spec(name: &str) -> RunSpec {
    RunSpec {
        name: name.parse().unwrap(),
        max_parallel: None,
        labels: BTreeMap::new(),
        caps: BTreeMap::new(),
        notify: Vec::new(),
        open: false,
    }
}

pub(super) fn labelled(mut task: TaskSpec, labels: &[(&str, &str)]) -> TaskSpec {
    task.labels.extend(labels.iter().map(|(key, value)| (String::from(*key), String::from(*value))));
    task
}

pub(super) fn capped(cap: u32) -> RunSpec {
    RunSpec { max_parallel: Some(cap), ..run_spec("r") }
}

/// A task that is accepted by its exit code.
pub(super) fn task_spec(name: &str) -> TaskSpec {
    TaskSpec {
        name: name.parse().unwrap(),
        program: vec![String::from("/bin/true")],
        prompt: None,
        profile: None,
        repo: None,
        base_commit: None,
        depends_on: Vec::new(),
        after: Vec::new(),
        base_from: None,
        setup: Vec::new(),
        prepare: None,
        copy: Vec::new(),
        priority: 0,
        labels: BTreeMap::new(),
        limits: ResourceLimits::default(),
        grace_ms: 5_000,
        retries: Retries { jitter_percent: 0, ..Retries::default() },
        verify: Vec::new(),
        verify_timeout_ms: None,
        accept: Accept::Exit,
        result: None,
        outputs: Vec::new(),
        commit: CommitMode::Agent,
        user: None,
        has_environment: false,
        ready_text: None,
        signals: None,
        move_after_ms: None,
        needs_change: false,
    }
}

pub(super) fn after(name: &str, on: &[&str]) -> TaskSpec {
    let depends_on = on.iter().map(|name| name.parse().unwrap()).collect();
    TaskSpec { depends_on, ..task_spec(name) }
}

pub(super) fn retried(name: &str, max: u32) -> TaskSpec {
    let mut spec = task_spec(name);
    spec.retries.max = max;
    spec
}

/// A task in a repository.
pub(super) fn repo_spec(name: &str) -> TaskSpec {
    let (repo, base_commit) = (Some(String::from("/repo")), Some(BASE.to_owned()));
    TaskSpec { repo, base_commit, ..task_spec(name) }
}

pub(super) fn verified(name: &str) -> TaskSpec {
    let verify = vec![vec![String::from("/bin/check"), String::from("it's")]];
    TaskSpec { verify, accept: Accept::Verify, ..repo_spec(name) }
}

/// May go on elsewhere when its host was lost for five minutes.
pub(super) fn movable(spec: TaskSpec) -> TaskSpec {
    TaskSpec { move_after_ms: Some(LEASE_MS), ..spec }
}
