//! A run and its tasks → the document of the report, failed tasks first. Pure; this is the shape of `report.json`,
//! which scripts read: fields are only added.

use std::collections::BTreeMap;

use protocol::agent::End;
use protocol::api::SCHEMA_VERSION;
use protocol::ids::{AgentId, HostId, RunId, TaskId};
use protocol::report::{Collected, Output};
use protocol::task::{Attempt, Decision, RunView, TaskState, TaskView, Verification};
use protocol::time::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

#[derive(Debug, JsonSchema, Serialize)]
#[schemars(rename = "RunReport")]
pub struct Document {
    pub schema_version: u32,
    pub kind: &'static str,
    pub as_of: Timestamp,
    pub run: RunFacts,
    pub summary: Summary,
    pub tasks: Vec<TaskFacts>,
}

#[derive(Debug, JsonSchema, Serialize)]
pub struct RunFacts {
    pub id: RunId,
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub max_parallel: Option<u32>,
    pub submitted_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    pub took_ms: u64,
}

#[derive(Debug, Default, JsonSchema, Serialize)]
pub struct Summary {
    pub total: u64,
    pub accepted: u64,
    /// Of the accepted: by exit code alone.
    pub unverified: u64,
    pub failed: u64,
    pub rejected: u64,
    pub cancelled: u64,
    pub review: u64,
    /// Queued or live.
    pub open: u64,
    /// Failed tasks whose verification fails at the base too.
    pub base_fails_too: u64,
    pub attempts: u64,
}

/// What became of a task, coarsely; also the order of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    Failed,
    Rejected,
    Cancelled,
    Review,
    Open,
    Accepted,
}

impl Outcome {
    fn of(state: TaskState) -> Self {
        match state {
            TaskState::Failed => Self::Failed,
            TaskState::Rejected => Self::Rejected,
            TaskState::Cancelled => Self::Cancelled,
            TaskState::Review => Self::Review,
            TaskState::Accepted | TaskState::Merged => Self::Accepted,
            TaskState::Queued
            | TaskState::Assigned
            | TaskState::Running
            | TaskState::Verifying
            | TaskState::Unknown => Self::Open,
        }
    }
}

#[derive(Debug, JsonSchema, Serialize)]
pub struct TaskFacts {
    pub id: TaskId,
    pub name: String,
    pub outcome: Outcome,
    pub state: TaskState,
    /// Class of the last failure.
    pub class: Option<String>,
    pub reason: String,
    pub unverified: bool,
    pub base_fails_too: bool,
    pub labels: BTreeMap<String, String>,
    pub program: Vec<String>,
    pub profile: Option<String>,
    pub repo: Option<String>,
    pub base_commit: Option<String>,
    pub branch: Option<String>,
    /// The recorded commit of the last attempt that has one.
    pub commit: Option<String>,
    pub diff: Option<Diff>,
    /// The `result:` of the last attempt that left one.
    pub result: Option<serde_json::Value>,
    pub depends_on: Vec<String>,
    pub verify: Vec<Vec<String>>,
    /// From the first start to the end.
    pub took_ms: u64,
    /// What persons said of it, oldest first.
    pub decisions: Vec<Decision>,
    pub attempts: Vec<AttemptFacts>,
}

#[derive(Debug, Clone, JsonSchema, Serialize)]
pub struct Diff {
    pub files: u64,
    pub insertions: u64,
    pub deletions: u64,
}

#[derive(Debug, JsonSchema, Serialize)]
pub struct AttemptFacts {
    pub number: u32,
    pub agent: AgentId,
    pub host: HostId,
    pub end: Option<End>,
    pub took_ms: u64,
    pub class: Option<String>,
    pub reason: String,
    /// Counts against `retries.max`.
    pub charged: bool,
    pub commit: Option<String>,
    pub uncommitted: Option<String>,
    pub branch_drift: Option<String>,
    pub diff: Option<Diff>,
    pub problems: Vec<String>,
    pub outputs: Vec<Output>,
    pub verification: Option<VerificationFacts>,
    pub transcript: Option<TranscriptFile>,
}

#[derive(Debug, JsonSchema, Serialize)]
pub struct VerificationFacts {
    #[serde(skip)]
    pub agent: AgentId,
    #[serde(skip)]
    pub base_agent: Option<AgentId>,
    pub commit: String,
    pub end: Option<End>,
    /// `None`: there is no verdict.
    pub passed: Option<bool>,
    pub base_passed: Option<bool>,
    pub restarts: u32,
    /// Whether agents could reach nothing that the verdict rests on; `None`: not known.
    pub isolated: Option<bool>,
    pub transcript: Option<TranscriptFile>,
    pub base_transcript: Option<TranscriptFile>,
}

#[derive(Debug, JsonSchema, Serialize)]
pub struct TranscriptFile {
    /// Beside the report.
    pub file: Option<String>,
    pub bytes: u64,
    pub missing_bytes: u64,
    pub unavailable: Option<String>,
    /// The last lines, without escape sequences.
    pub tail: String,
}

impl Document {
    pub fn new(run: &RunView, tasks: &[TaskView], now: Timestamp) -> Self {
        let mut tasks: Vec<TaskFacts> = tasks.iter().map(|task| TaskFacts::new(task, now)).collect();
        // Within an outcome, the order of the file: ids sort by it.
        tasks.sort_by_key(|task| (task.outcome, task.id));
        Self {
            schema_version: SCHEMA_VERSION,
            kind: "RunReport",
            as_of: now,
            run: RunFacts {
                id: run.id,
                name: run.spec.name.to_string(),
                labels: run.spec.labels.clone(),
                max_parallel: run.spec.max_parallel,
                submitted_at: run.submitted_at,
                ended_at: run.ended_at,
                took_ms: run.ended_at.unwrap_or(now).ms_since(run.submitted_at),
            },
            summary: Summary::of(&tasks),
            tasks,
        }
    }
}

impl Summary {
    fn of(tasks: &[TaskFacts]) -> Self {
        let mut summary = Self::default();
        for task in tasks {
            summary.total += 1;
            summary.attempts =
                summary.attempts.saturating_add(u64::try_from(task.attempts.len()).unwrap_or(0));
            match task.outcome {
                Outcome::Accepted => summary.accepted += 1,
                Outcome::Failed => summary.failed += 1,
                Outcome::Rejected => summary.rejected += 1,
                Outcome::Cancelled => summary.cancelled += 1,
                Outcome::Review => summary.review += 1,
                Outcome::Open => summary.open += 1,
            }
            summary.unverified += u64::from(task.unverified && task.outcome == Outcome::Accepted);
            summary.base_fails_too += u64::from(task.base_fails_too);
        }
        summary
    }
}

impl TaskFacts {
    fn new(task: &TaskView, now: Timestamp) -> Self {
        let outcome = Outcome::of(task.state);
        let last = task.attempts.last();
        let failure = last.and_then(|attempt| attempt.failure.as_ref());
        let collected = |wanted: fn(&Collected) -> bool| {
            task.attempts.iter().rev().filter_map(|attempt| attempt.collected.as_ref()).find(|c| wanted(c))
        };
        let with_commit = collected(|collected| collected.commit.is_some());
        let verification = last.and_then(|attempt| attempt.verification.as_ref());
        let reason = match (task.reason.is_empty(), failure) {
            (true, Some(failure)) => failure.reason.clone(),
            _ => task.reason.clone(),
        };
        Self {
            id: task.id,
            name: task.spec.name.to_string(),
            outcome,
            state: task.state,
            class: failure.filter(|_| outcome != Outcome::Accepted).map(|failure| failure.class.to_string()),
            reason,
            unverified: task.unverified,
            base_fails_too: outcome != Outcome::Accepted
                && verification.is_some_and(|v| v.passed == Some(false) && v.base_passed == Some(false)),
            labels: task.spec.labels.clone(),
            program: task.spec.program.clone(),
            profile: task.spec.profile.clone(),
            repo: task.spec.repo.clone(),
            base_commit: task.spec.base_commit.clone(),
            branch: task.branch.clone(),
            commit: with_commit.and_then(|collected| collected.commit.clone()),
            diff: with_commit.map(diff),
            result: collected(|collected| collected.result.is_some())
                .and_then(|collected| collected.result.as_deref())
                .and_then(|text| serde_json::from_str(text).ok()),
            depends_on: task
                .spec
                .depends_on
                .iter()
                .chain(&task.spec.after)
                .map(ToString::to_string)
                .collect(),
            verify: task.spec.verify.clone(),
            took_ms: task.took_ms(now).unwrap_or(0),
            decisions: task.decisions.clone(),
            attempts: task.attempts.iter().map(|attempt| AttemptFacts::new(attempt, now)).collect(),
        }
    }
}

fn diff(collected: &Collected) -> Diff {
    Diff { files: collected.files, insertions: collected.insertions, deletions: collected.deletions }
}

impl AttemptFacts {
    fn new(attempt: &Attempt, now: Timestamp) -> Self {
        let collected = attempt.collected.as_ref();
        let mut problems = collected.map(|collected| collected.problems.clone()).unwrap_or_default();
        problems.extend(collected.and_then(|collected| collected.failed.clone()));
        let begun = attempt.started_at.unwrap_or(attempt.assigned_at);
        Self {
            number: attempt.number,
            agent: attempt.agent,
            host: attempt.host.clone(),
            end: attempt.end.clone(),
            took_ms: attempt.ended_at.unwrap_or(now).ms_since(begun),
            class: attempt.failure.as_ref().map(|failure| failure.class.to_string()),
            reason: attempt.failure.as_ref().map(|failure| failure.reason.clone()).unwrap_or_default(),
            charged: attempt.failure.as_ref().is_some_and(|failure| failure.charged),
            commit: collected.and_then(|collected| collected.commit.clone()),
            uncommitted: collected.and_then(|collected| collected.uncommitted.clone()),
            branch_drift: collected.and_then(|collected| collected.branch_drift.clone()),
            diff: collected.filter(|collected| collected.commit.is_some()).map(diff),
            problems,
            outputs: collected.map(|collected| collected.outputs.clone()).unwrap_or_default(),
            verification: attempt.verification.as_ref().map(verification),
            transcript: None,
        }
    }
}

fn verification(verification: &Verification) -> VerificationFacts {
    VerificationFacts {
        agent: verification.agent,
        base_agent: verification.base_agent,
        commit: verification.commit.clone(),
        end: verification.end.clone(),
        passed: verification.passed,
        base_passed: verification.base_passed,
        restarts: verification.restarts,
        isolated: verification.isolated,
        transcript: None,
        base_transcript: None,
    }
}
