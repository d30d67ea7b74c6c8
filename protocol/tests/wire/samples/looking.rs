//! Lists of many agents: filters and rows.

use std::collections::BTreeMap;

use protocol::agent::{Phase, Role};
use protocol::api::{Reachability, Reply, Request};
use protocol::row::{AgentRow, Figures, RowFilter};

use super::agents::{end, spec};
use super::{AT, agent_id, host, region, text, texts};
use crate::rules::Sample;

fn row() -> AgentRow {
    AgentRow {
        reason: text("signal 9"),
        started_at: Some(AT.after_ms(1)),
        end: Some(end()),
        stopping: true,
        draining: true,
        degraded: texts(&["no-cgroup"]),
        labels: BTreeMap::from([(text("team"), text("blue")), (text("tier"), text("2"))]),
        profile: Some(text("claude")),
        task: spec().task,
        user: text("dev"),
        workspace: Some(text("/srv/a/work")),
        branch: Some(text("phalanx/x/y")),
        last_output: Some(AT.after_ms(3)),
        figures: Figures {
            cpu_ms: Some(1_540),
            cpu_millis: Some(900),
            memory_bytes: Some(1 << 20),
            pids: Some(7),
            disk_bytes: Some(1 << 33),
            disk_as_of: Some(AT),
        },
        ..least_row()
    }
}

pub(crate) fn least_row() -> AgentRow {
    AgentRow {
        id: agent_id(),
        name: text("naïve 名前"),
        role: Role::Own,
        region: region(),
        host: host(),
        reachability: Reachability::Late,
        phase: Phase::Crashed,
        reason: String::new(),
        wanted: text("running"),
        as_of: AT,
        created_at: AT,
        started_at: None,
        end: None,
        stopping: false,
        draining: false,
        degraded: Vec::new(),
        labels: BTreeMap::new(),
        profile: None,
        task: None,
        user: String::new(),
        workspace: None,
        branch: None,
        last_output: None,
        figures: Figures::default(),
    }
}

pub(crate) fn all() -> Vec<Sample> {
    let filter = RowFilter {
        all: true,
        labels: BTreeMap::from([(text("team"), text("blue"))]),
        phases: vec![Phase::Running],
        run: Some(text("nightly")),
        hosts: vec![host()],
        names: texts(&["fix-*"]),
    };
    vec![
        Sample::of("request-list-rows", Request::ListRows(filter)),
        Sample::of("request-list-rows-least", Request::ListRows(RowFilter::default())),
        Sample::of("reply-rows", Reply::Rows { rows: vec![row(), least_row()], as_of: AT }),
    ]
}
