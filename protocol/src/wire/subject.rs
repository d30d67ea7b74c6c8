//! Builds and parses every subject and key of the bus. Nothing else writes one. Every message is a
//! [`crate::codec::Frame`] whose kind is the `KIND` of its body's type.
//!
//! | subject | from → to | body |
//! | --- | --- | --- |
//! | `hb.<region>.<host>` | host → managers, core NATS | [`crate::report::Heartbeat`] |
//! | `$KV.agents.<region>.<host>.<agent>` | host, its only writer | [`crate::report::Report`] |
//! | `ev.<region>.<host>.<agent>` | host → stream EV | [`crate::event::Event`] |
//! | `ev.<region>.manager` | manager → stream EV | [`crate::event::Event`] |
//! | `tr.<region>.<host>.<agent>` | host → stream TR | [`crate::transcript::Chunk`] |
//! | `cmd.<region>.<host>.<verb>` | manager → host | [`crate::order::Order`], [`crate::order::Ask`] |
//! | `rpc.<region>.<host>.<method>` | host → manager | [`crate::report::HostRequest`] |

use crate::ids::{AgentId, HostId, Region};

#[must_use]
pub fn heartbeat(region: &Region, host: &HostId) -> String {
    format!("hb.{region}.{host}")
}

/// Heartbeats of all hosts.
pub const ALL_HEARTBEATS: &str = "hb.>";
/// Requests of all hosts.
pub const ALL_RPC: &str = "rpc.>";
/// Subjects of the event stream.
pub const ALL_EVENTS: &str = "ev.>";

/// Key of an agent in the bucket `agents`.
#[must_use]
pub fn agent_key(region: &Region, host: &HostId, agent: &AgentId) -> String {
    format!("{region}.{host}.{agent}")
}

/// Subject of that key.
#[must_use]
pub fn agent_report(region: &Region, host: &HostId, agent: &AgentId) -> String {
    format!("$KV.agents.{region}.{host}.{agent}")
}

#[must_use]
pub fn agent_event(region: &Region, host: &HostId, agent: &AgentId) -> String {
    format!("ev.{region}.{host}.{agent}")
}

#[must_use]
pub fn host_event(region: &Region, host: &HostId) -> String {
    format!("ev.{region}.{host}.host")
}

#[must_use]
pub fn manager_event(region: &Region) -> String {
    format!("ev.{region}.manager")
}

#[must_use]
pub fn transcript(region: &Region, host: &HostId, agent: &AgentId) -> String {
    format!("tr.{region}.{host}.{agent}")
}

/// `verb` comes from [`crate::order::Command::verb`] or [`crate::order::Ask::VERB`].
#[must_use]
pub fn command(region: &Region, host: &HostId, verb: &str) -> String {
    format!("cmd.{region}.{host}.{verb}")
}

/// All commands for one host.
#[must_use]
pub fn commands(region: &Region, host: &HostId) -> String {
    format!("cmd.{region}.{host}.>")
}

/// `method` comes from [`crate::report::HostRequest::method`].
#[must_use]
pub fn rpc(region: &Region, host: &HostId, method: &str) -> String {
    format!("rpc.{region}.{host}.{method}")
}

/// Inbox of a host: only it may listen there.
#[must_use]
pub fn host_inbox(host: &HostId) -> String {
    format!("_INBOX_{host}")
}

/// Inbox of every manager.
pub const MANAGER_INBOX: &str = "_INBOX_mgr";

/// Region and host that a subject or key of theirs names: the sender is known by the subject it may publish to.
#[must_use]
pub fn sender(subject: &str) -> Option<(Region, HostId)> {
    let rest = subject.strip_prefix("$KV.agents.").or_else(|| {
        let (prefix, rest) = subject.split_once('.')?;
        matches!(prefix, "hb" | "ev" | "tr" | "rpc").then_some(rest)
    })?;
    let mut tokens = rest.split('.');
    Some((tokens.next()?.parse().ok()?, tokens.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sender_of_every_host_subject_is_read_back() {
        let (region, host): (Region, HostId) = ("hub".parse().unwrap(), "db-01".parse().unwrap());
        let agent = AgentId::from_parts(1, 2);
        for subject in [
            heartbeat(&region, &host),
            agent_report(&region, &host, &agent),
            agent_event(&region, &host, &agent),
            host_event(&region, &host),
            transcript(&region, &host, &agent),
            rpc(&region, &host, "blob"),
        ] {
            assert_eq!(sender(&subject), Some((region.clone(), host.clone())), "{subject}");
        }
        for other in ["cmd.hub.db-01.stop", "", "hb", "hb.hub", "hb.HUB.x", "rpc.hub.a b"] {
            assert_eq!(sender(other), None, "{other}");
        }
    }
}
