//! An agent's environment, built from nothing: an allow-list of hostd's own, what Phalanx says, what was asked for.

use std::collections::BTreeMap;

use hostd_core::AgentRecord;
use protocol::agent::Environment;
use protocol::ids::AgentId;

use super::user::AgentUser;
use crate::bus::RequestError;
use crate::machine::Machine;
use crate::sys::cgroup::AGENT_VARIABLE;

/// The whole environment. The values asked for win over everything but the agent's own id.
///
/// # Errors
/// When the manager does not hand the values over.
pub async fn environment_of(
    machine: &Machine,
    record: &AgentRecord,
    user: &AgentUser,
) -> Result<Environment, RequestError> {
    let asked = if record.spec.has_environment {
        machine.requests.environment(record.agent).await?.0
    } else {
        BTreeMap::new()
    };
    let folder = machine.folders.agent(record.agent);
    let path_of = |name: &str| folder.join(name).display().to_string();
    let mut all = machine.environment.clone();
    for (key, value) in
        [("HOME", &user.home), ("USER", &user.name), ("LOGNAME", &user.name), ("SHELL", &user.shell)]
    {
        all.insert(key.to_owned(), value.clone());
    }
    let spec = &record.spec;
    let mut set = |key: &str, value: String| {
        all.insert(key.to_owned(), value);
    };
    set("TERM", "xterm-256color".to_owned());
    set("TMPDIR", path_of("scratch"));
    set("XDG_CACHE_HOME", path_of("cache"));
    set("PHALANX_AGENT_NAME", spec.name.to_string());
    set("PHALANX_WORKSPACE", path_of("work"));
    if spec.prompt.is_some() {
        set("PHALANX_PROMPT_FILE", path_of("given/prompt"));
    }
    if spec.feedback.is_some() {
        set("PHALANX_FEEDBACK_FILE", path_of("given/feedback"));
    }
    if spec.inputs.is_some() {
        set("PHALANX_INPUTS_FILE", path_of("given/inputs"));
    }
    if let Some(link) = &spec.task {
        set("PHALANX_RUN", link.run.to_string());
        set("PHALANX_RUN_NAME", link.run_name.clone());
        set("PHALANX_TASK", link.task.to_string());
        set("PHALANX_TASK_NAME", link.task_name.clone());
        set("PHALANX_ATTEMPT", link.attempt.to_string());
    }
    if let Some(result) = &spec.result {
        set("PHALANX_RESULT_FILE", format!("{}/{result}", path_of("work")));
    }
    // Commits work in a checkout without any configuration; the agent's own settings still win.
    for who in ["AUTHOR", "COMMITTER"] {
        set(&format!("GIT_{who}_NAME"), spec.name.to_string());
        set(&format!("GIT_{who}_EMAIL"), format!("{}@phalanx.localhost", record.agent));
    }
    all.extend(asked);
    let mut environment = Environment(all);
    name_agent(&mut environment, record.agent);
    Ok(environment)
}

/// Goes last: how an agent's processes are found where there are no cgroups is not to be changed by a request.
pub fn name_agent(environment: &mut Environment, agent: AgentId) {
    environment.0.insert(AGENT_VARIABLE.to_owned(), agent.to_string());
}

/// `K=V` pairs, each ended by NUL.
#[must_use]
pub(super) fn environment_file(environment: &Environment) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (key, value) in &environment.0 {
        bytes.extend_from_slice(key.as_bytes());
        bytes.push(b'=');
        bytes.extend_from_slice(value.as_bytes());
        bytes.push(0);
    }
    bytes
}
