//! What hosts say of themselves and their agents, checked and handed to the loop: reports by the watch of their bucket,
//! heartbeats by core NATS. A host is believed about itself and its own agents only.

use protocol::codec::Frame;
use protocol::ids::{AgentId, Fencing};
use protocol::report::{Heartbeat, Report};
use protocol::subject;
use tokio::sync::mpsc;

use manager_core::Input;

use crate::bus::Incoming;
use crate::driver::Driver;
use crate::store::{Change, WatchEvent};

/// The bucket as it was when the watch began.
#[derive(Debug, Default)]
pub struct Snapshot {
    pub reports: Vec<Report>,
    /// The highest term that any host has seen.
    pub fencing: Fencing,
}

/// Takes the watch up to the end of its snapshot; `None` when the watch ended before.
pub async fn snapshot(changes: &mut mpsc::Receiver<WatchEvent>) -> Option<Snapshot> {
    let mut snapshot = Snapshot::default();
    loop {
        match changes.recv().await? {
            WatchEvent::Change(change) => {
                if let Some(report) = report_of(&change) {
                    snapshot.fencing = snapshot.fencing.max(report.fencing);
                    snapshot.reports.push(report);
                }
            }
            WatchEvent::Synced => return Some(snapshot),
            WatchEvent::Recreated => {}
        }
    }
}

/// Hands on reports until the watch or the loop ends.
pub async fn watch_reports(driver: Driver, mut changes: mpsc::Receiver<WatchEvent>) {
    while let Some(event) = changes.recv().await {
        // A bucket made anew says nothing of the agents that it does not name; their hosts put their reports again
        // when they are asked.
        let WatchEvent::Change(change) = event else { continue };
        let input = match &change.value {
            Some(_) => report_of(&change).map(|report| Input::Report(Box::new(report))),
            None => agent_of(&change.key).map(Input::Forgotten),
        };
        let Some(input) = input else { continue };
        if driver.happened(input).await.is_err() {
            return;
        }
    }
}

/// The agent whose report a key holds: its last token.
fn agent_of(key: &str) -> Option<AgentId> {
    key.rsplit('.').next()?.parse().ok()
}

/// The report under a key, if it can be read and belongs there. A key that was deleted says nothing.
fn report_of(change: &Change) -> Option<Report> {
    let value = change.value.as_ref()?;
    let read = Frame::decode(value).and_then(|frame| match frame.kind.as_str() {
        Report::KIND => frame.body::<Report>().map(Some),
        _ => Ok(None),
    });
    match read {
        Ok(Some(report)) if subject::agent_key(&report.region, &report.host, &report.agent) == change.key => {
            Some(report)
        }
        Ok(_) => {
            tracing::warn!(key = change.key, "a record is no report of this agent and is passed over");
            None
        }
        Err(error) => {
            tracing::warn!(key = change.key, error = %protocol::chain(&error), "a report is unreadable");
            None
        }
    }
}

/// The next heartbeat that its host may have sent; `None` once the connection is closed.
pub async fn next_heartbeat(heartbeats: &mut Incoming<Heartbeat>) -> Option<Heartbeat> {
    while let Some(received) = heartbeats.next().await {
        let heartbeat = received.body;
        let named = received
            .sender
            .as_ref()
            .is_some_and(|(region, host)| *region == heartbeat.region && *host == heartbeat.host);
        if named {
            return Some(heartbeat);
        }
        tracing::warn!(host = %heartbeat.host, "a heartbeat came from another host and is passed over");
    }
    None
}

/// Hands on heartbeats until the connection or the loop ends.
pub async fn take_heartbeats(driver: Driver, mut heartbeats: Incoming<Heartbeat>) {
    while let Some(heartbeat) = next_heartbeat(&mut heartbeats).await {
        if driver.happened(Input::Heartbeat(Box::new(heartbeat))).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use protocol::report::HostFacts;

    use super::*;

    #[test]
    fn a_report_under_another_hosts_key_is_passed_over() {
        let heartbeat = Heartbeat {
            region: "hub".parse().unwrap(),
            host: "a".parse().unwrap(),
            incarnation: Default::default(),
            fencing: Default::default(),
            now: Default::default(),
            build: String::new(),
            facts: HostFacts::default(),
            digest: None,
        };
        let frame = Frame::of(Heartbeat::KIND, "", &heartbeat).unwrap().encode().unwrap();
        for value in [None, Some(Bytes::from(frame)), Some(Bytes::from_static(b"\xff"))] {
            let change = Change { key: "hub.a.x".to_owned(), value, revision: 1 };
            assert!(report_of(&change).is_none());
        }
    }
}
