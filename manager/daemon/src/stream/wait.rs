//! `wait`: one item per agent as soon as it is where it is waited for, or can no longer get there. Looks at the state
//! first and at every change, so that nothing is missed; how long to wait is the client's.

use std::collections::BTreeMap;

use manager_core::Subject;
use protocol::agent::Phase;
use protocol::api::{AgentView, Item, Reply, Until};
use protocol::error::WireError;
use protocol::ids::AgentId;
use protocol::report::Report;

use crate::driver::Driver;
use crate::driver::changes::Interest;
use crate::queries::{self, Found};
use crate::server::session::Items;
use crate::stopping;

/// Waits for all of them.
///
/// # Errors
/// When a target is not found; nothing is waited for then.
pub async fn wait(
    driver: Driver,
    targets: Vec<String>,
    until: Until,
    items: Items,
) -> Result<Reply, WireError> {
    let found = driver
        .glance(move |glance| {
            targets.iter().map(|target| queries::find(glance, target)).collect::<Result<Vec<_>, _>>()
        })
        .await??;
    let mut open: BTreeMap<AgentId, Found> = found.into_iter().map(|found| (found.view.id, found)).collect();
    let subjects = open.keys().map(|agent| Subject::Agent(*agent)).collect();
    let mut changes = driver.watch(Interest::Subjects(subjects)).await?;
    loop {
        changes.mark_unchanged();
        let ids: Vec<AgentId> = open.keys().copied().collect();
        let looked_up = driver
            .glance(move |glance| {
                ids.into_iter().map(|id| (id, queries::agent(glance, id))).collect::<Vec<_>>()
            })
            .await?;
        for (id, found) in looked_up {
            let settled = match found {
                Some(found) if is_settled(&found, until) => Some(found),
                Some(found) => {
                    open.insert(id, found);
                    None
                }
                // Nothing of it is left, not even a record: as destroyed as it can be.
                None => open.get(&id).cloned(),
            };
            if let Some(found) = settled {
                open.remove(&id);
                items.send(&Item::Agent(Box::new(found.view))).await?;
            }
        }
        if open.is_empty() {
            return Ok(Reply::Done);
        }
        changes.changed().await.map_err(|_| stopping())?;
    }
}

/// Reached, or out of reach for good. Only a report says either: silence says nothing.
fn is_settled(Found { view, gone }: &Found, until: Until) -> bool {
    // A report from before a start that is wanted says nothing of it.
    let report = view.report.as_ref().filter(|report| *gone || !awaits_launch(view, report));
    let over = *gone || report.is_some_and(|report| report.end.is_some());
    match until {
        Until::Started => over || report.is_some_and(has_started),
        Until::Phase(phase) => over || (report.is_some() && view.phase == phase),
        Until::PhaseFor(phase, reason) => {
            over || report.is_some_and(|report| (report.phase, report.phase_reason) == (phase, Some(reason)))
        }
        Until::Ended => over,
        Until::Destroyed => *gone,
        Until::Applied => *gone || view.unmet.iter().all(|unmet| !unmet.why.is_empty()),
    }
}

fn awaits_launch(view: &AgentView, report: &Report) -> bool {
    view.spec.launch > report.spec.launch && view.wanted == "running"
}

fn has_started(report: &Report) -> bool {
    let says_ready = report.spec.ready_text.is_some() || report.spec.signals.is_some();
    // One that waits for a person is not ready, and will not be before that person has looked.
    report.started_at.is_some() && (report.ready || !says_ready || report.phase == Phase::Blocked)
}
