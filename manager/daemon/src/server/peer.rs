//! Who is at the other end of a connection, from what the kernel says of it. What a caller may do is
//! [`super::request`]'s.

use std::io;
use std::path::Path;

use protocol::ids::AgentId;
use tokio::net::UnixStream;

/// The process at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// In no agent's group or environment: a person or a script of theirs.
    Operator,
    /// Inside the group or the environment of an agent, of this installation or of another.
    Agent(AgentId),
    /// The kernel does not say: treated as one who may only read.
    Unknown,
}

/// Why a caller is turned away.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    #[error("the kernel does not say who calls")]
    Credentials(#[source] io::Error),
    #[error("the caller is user {caller}; this manager serves user {owner} and root only")]
    Foreign { caller: u32, owner: u32 },
}

/// Checks the user of the caller and finds the agent it runs in, if any.
///
/// # Errors
/// A caller of another user, unless it is root.
pub fn identify(stream: &UnixStream) -> Result<Peer, PeerError> {
    let credentials = stream.peer_cred().map_err(PeerError::Credentials)?;
    let owner = nix::unistd::geteuid().as_raw();
    let caller = credentials.uid();
    if caller != owner && caller != 0 {
        return Err(PeerError::Foreign { caller, owner });
    }
    let Some(pid) = credentials.pid() else { return Ok(Peer::Unknown) };
    Ok(of_process(Path::new("/proc"), pid))
}

/// A process whose record cannot be read is [`Peer::Unknown`]: not seen in a group does not mean outside of one.
fn of_process(proc: &Path, pid: i32) -> Peer {
    let process = proc.join(pid.to_string());
    match std::fs::read_to_string(process.join("cgroup")) {
        Ok(groups) => agent_in(&groups).or_else(|| named_by(&process)).map_or(Peer::Operator, Peer::Agent),
        Err(_) => Peer::Unknown,
    }
}

/// The agent that its environment names, as that of every process of an agent does: on a machine where no groups can be
/// made nothing else tells it from its operator. Proof against mistakes, not against an agent that clears it.
fn named_by(process: &Path) -> Option<AgentId> {
    let environment = std::fs::read(process.join("environ")).ok()?;
    let id = environment.split(|byte| *byte == 0).find_map(|entry| entry.strip_prefix(b"PHALANX_AGENT="))?;
    std::str::from_utf8(id).ok()?.parse().ok()
}

/// The agent whose group a `/proc/<pid>/cgroup` names: `…/phalanx-<instance>/<AgentId>/…` (cgroups(7)). The innermost
/// one, where an agent runs a Phalanx of its own.
fn agent_in(groups: &str) -> Option<AgentId> {
    groups.lines().find_map(|line| {
        let path = line.splitn(3, ':').nth(2)?;
        let mut found = None;
        let mut in_instance = false;
        for part in path.split('/') {
            if let (true, Ok(agent)) = (in_instance, part.parse()) {
                found = Some(agent);
            }
            in_instance = part.starts_with("phalanx-");
        }
        found
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(seed: u128) -> AgentId {
        AgentId::from_parts(7, seed)
    }

    #[test]
    fn a_process_in_an_agents_group_is_that_agent_in_every_layout() {
        let agent = id(1);
        for groups in [
            format!("0::/phalanx-ab12/{agent}/agent\n"),
            format!("0::/user.slice/phalanx-ab12/{agent}/shim\n"),
            format!("9:memory:/phalanx-x/{agent}/agent/deeper\n1:name=systemd:/\n0::/\n"),
            format!("0::/\n3:pids:/a:b/phalanx-x/{agent}\n"),
            format!("0::/phalanx-outer/{}/agent/phalanx-inner/{agent}/agent\n", id(2)),
        ] {
            assert_eq!(agent_in(&groups), Some(agent), "{groups}");
        }
    }

    #[test]
    fn a_process_elsewhere_is_no_agent() {
        let agent = id(1);
        for groups in [
            "0::/\n".to_owned(),
            String::new(),
            "nonsense".to_owned(),
            format!("0::/{agent}/agent\n"),
            format!("0::/other/{agent}\n"),
            format!("0::/phalanx-x/y/{agent}\n"),
            "0::/phalanx-x/not-an-id/agent\n".to_owned(),
        ] {
            assert_eq!(agent_in(&groups), None, "{groups}");
        }
    }

    #[test]
    fn where_there_are_no_groups_an_agent_is_known_by_its_environment() {
        let proc = tempfile::tempdir().unwrap();
        let process = proc.path().join("7");
        std::fs::create_dir(&process).unwrap();
        std::fs::write(process.join("cgroup"), "0::/\n").unwrap();
        assert_eq!(of_process(proc.path(), 7), Peer::Operator);
        std::fs::write(process.join("environ"), format!("A=b\0PHALANX_AGENT={}\0", id(3))).unwrap();
        assert_eq!(of_process(proc.path(), 7), Peer::Agent(id(3)));
        std::fs::write(process.join("environ"), "PHALANX_AGENT=nonsense\0").unwrap();
        assert_eq!(of_process(proc.path(), 7), Peer::Operator);
    }

    #[test]
    fn a_process_whose_groups_cannot_be_read_is_unknown_and_not_an_operator() {
        let empty = tempfile::tempdir().unwrap();
        assert_eq!(of_process(empty.path(), 1), Peer::Unknown);
    }
}
