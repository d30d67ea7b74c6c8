//! Brings what an ended agent left to where it is kept, and says what that is.

use std::path::{Path, PathBuf};

use hostd_core::{AgentRecord, Input, Obstacle};
use protocol::agent::CommitMode;
use protocol::report::{Collected, Output};

use crate::machine::{Handle, Machine};
use crate::workspace::{self, Collect};

/// All declared outputs of one agent.
const OUTPUTS_LIMIT: u64 = 1 << 30;

/// Collects and tells. What may pass is told as such, to be tried again; what cannot, with whose fault it is.
pub async fn collect(machine: Handle, record: AgentRecord) {
    let _permit = machine.ends.acquire().await;
    let agent = record.agent;
    let collected = match collect_now(&machine, &record).await {
        Ok(collected) => to_report(&record, &collected),
        Err(error) => {
            let reason = protocol::chain(&error);
            let failed_by_content = match error.obstacle() {
                workspace::Obstacle::Outside => {
                    return machine
                        .tell(Input::CollectFailed { agent, obstacle: Obstacle::Outside, reason })
                        .await;
                }
                workspace::Obstacle::Unclear => {
                    return machine
                        .tell(Input::CollectFailed { agent, obstacle: Obstacle::Unclear, reason })
                        .await;
                }
                workspace::Obstacle::Content => true,
                workspace::Obstacle::Record => false,
            };
            tracing::warn!(%agent, error = reason, "work of an agent cannot be collected");
            Collected { failed: Some(reason), failed_by_content, ..Collected::default() }
        }
    };
    machine.tell(Input::Collected { agent, collected: Box::new(collected) }).await;
}

/// Repeatable: also called before a removal, to see what is saved.
///
/// # Errors
/// A workspace that is missing, tampered with, or a repository that does not take the result.
pub(super) async fn collect_now(
    machine: &Machine,
    record: &AgentRecord,
) -> workspace::Result<workspace::Collected> {
    let folder = machine.folders.agent(record.agent);
    let spec = &record.spec;
    let ref_name = spec
        .checkout
        .as_ref()
        .and_then(|checkout| checkout.result_ref.clone())
        .unwrap_or_else(|| format!("refs/phalanx/adhoc/{}", record.agent));
    let wanted = Collect {
        ref_name,
        commit_mode: match spec.commit {
            CommitMode::Auto => workspace::CommitMode::Auto,
            CommitMode::Agent | CommitMode::Unknown => workspace::CommitMode::Agent,
        },
        recorded: record.collected.as_ref().and_then(|collected| collected.commit.clone()),
        message: message(record),
        outputs: spec.outputs.clone(),
        outputs_dir: folder.join("outputs"),
        outputs_limit_bytes: OUTPUTS_LIMIT,
        result: spec.result.as_ref().map(PathBuf::from),
    };
    machine.workspaces.collect(&folder, &wanted).await
}

/// Of the commit that is made of what was not committed. With `commit: auto` it lands on a branch, where people read it.
fn message(record: &AgentRecord) -> String {
    let spec = &record.spec;
    let of = spec.task.as_ref().map_or_else(
        || format!("Phalanx-Agent: {} ({})", spec.name, record.agent),
        |task| format!("Phalanx-Task: {}/{}#{}", task.run_name, task.task_name, task.attempt),
    );
    match (spec.commit, &spec.task) {
        (CommitMode::Auto, Some(task)) => {
            format!("{}\n\nWhat the agent had left in its files at its end.\n\n{of}", task.task_name)
        }
        (CommitMode::Auto | CommitMode::Agent | CommitMode::Unknown, _) => {
            format!("Uncommitted work of {}\n\n{of}", spec.name)
        }
    }
}

pub(super) fn to_report(record: &AgentRecord, collected: &workspace::Collected) -> Collected {
    let mut problems: Vec<String> = collected
        .output_problems
        .iter()
        .map(|problem| format!("output {}: {}", problem.name, problem.why))
        .collect();
    let result = match (&record.spec.result, &collected.result) {
        (Some(name), Some(Ok(bytes))) => match result_text(bytes) {
            Ok(text) => Some(text),
            Err(why) => {
                problems.push(format!("result {name}: {why}"));
                None
            }
        },
        (Some(name), Some(Err(why))) => {
            problems.push(format!("result {name}: {why}"));
            None
        }
        (Some(_), None) | (None, _) => None,
    };
    if !collected.in_progress.is_empty() {
        problems.push(format!("an operation of git is unfinished: {:?}", collected.in_progress));
    }
    let aside =
        collected.uncommitted.as_ref().filter(|rest| Some(&rest.ref_name) != collected.ref_name.as_ref());
    Collected {
        commit: collected.head_commit.clone(),
        base_commit: collected.base_commit.clone(),
        result_ref: collected.ref_name.clone(),
        uncommitted: collected.uncommitted.as_ref().map(|rest| rest.commit.clone()),
        uncommitted_ref: aside.map(|rest| rest.ref_name.clone()),
        left_out: collected.not_saved.clone(),
        branch_drift: collected.branch_drift.clone(),
        files: collected.diff.files,
        insertions: collected.diff.insertions,
        deletions: collected.diff.deletions,
        result,
        problems,
        outputs: collected.outputs.iter().map(|output| to_output(&output.path, output)).collect(),
        unknown_submodules: collected.unknown_submodules.clone(),
        source_moved: collected.source_moved.clone(),
        failed: None,
        failed_by_content: false,
    }
}

fn to_output(path: &Path, output: &workspace::Output) -> Output {
    Output { path: path.display().to_string(), bytes: output.bytes, sha256: output.sha256.clone() }
}

/// A result is a JSON document in UTF-8.
fn result_text(bytes: &[u8]) -> Result<String, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| format!("not UTF-8: {error}"))?;
    serde_json::from_str::<serde::de::IgnoredAny>(text).map_err(|error| format!("not JSON: {error}"))?;
    Ok(text.to_owned())
}
