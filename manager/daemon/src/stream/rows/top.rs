//! `Top`: figures of agents, asked of their hosts while somebody looks. Nothing of them is kept or put anywhere: what
//! changes all the time is no state. The share of a core is the CPU time between two measurements of one agent over the
//! time between them by its host's clock, so that neither the way there nor our own pace is in it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use protocol::api::{Item, Reply};
use protocol::error::{ErrorCode, WireError};
use protocol::house::Unheard;
use protocol::ids::{AgentId, HostId};
use protocol::order::{Answer, Question};
use protocol::row::{AgentRow, Figures};
use protocol::top::{Measured, TopView, TopWish};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::hosts::Hosts;
use crate::server::session::Items;

/// Within which a host must answer: one that does not is told as such, and the others are shown.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// A single look has no next one that could do better.
const ONCE_LIMIT: Duration = Duration::from_secs(5);
/// Between the first two measurements, before which no share of a core is known.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// One look waits so often for sizes on disk, which hosts count in their own time.
const DISK_TRIES: usize = 6;
const LEAST_INTERVAL: Duration = Duration::from_millis(200);

/// Measures until the client is gone, or once.
///
/// # Errors
/// When the filter names a run that is not there.
pub async fn top(hosts: Hosts, wish: TopWish, items: Items) -> Result<Reply, WireError> {
    let filter = wish.filter;
    let selection = Arc::new(hosts.driver.glance(move |glance| glance.core.selection(&filter)).await??);
    let limit = if wish.interval_ms.is_some() { ANSWER_LIMIT } else { ONCE_LIMIT };
    let mut before = Samples::default();
    let mut looks = 0;
    loop {
        let begun = Instant::now();
        let looking = Arc::clone(&selection);
        let rows = hosts.driver.glance(move |glance| glance.rows.all(glance.core, &looking).0).await?;
        let view = measure(&hosts, rows, &mut before, limit).await?;
        looks += 1;
        if looks == 1 && !view.rows.is_empty() {
            tokio::time::sleep(FIRST_PAUSE).await;
            continue;
        }
        let heard = |row: &AgentRow| !view.unheard.iter().any(|unheard| unheard.host == row.host);
        let is_open = |row: &AgentRow| row.figures.disk_bytes.is_none() && heard(row);
        match wish.interval_ms {
            None if looks <= DISK_TRIES && view.rows.iter().any(is_open) => {
                tokio::time::sleep(FIRST_PAUSE).await;
            }
            None => {
                items.send(&Item::Top(Box::new(view))).await?;
                return Ok(Reply::Done);
            }
            Some(interval_ms) => {
                items.send(&Item::Top(Box::new(view))).await?;
                let interval = Duration::from_millis(interval_ms).max(LEAST_INTERVAL);
                tokio::time::sleep_until(begun + interval).await;
            }
        }
    }
}

async fn measure(
    hosts: &Hosts,
    mut rows: Vec<AgentRow>,
    before: &mut Samples,
    limit: Duration,
) -> Result<TopView, WireError> {
    let mut wanted: BTreeMap<HostId, Vec<AgentId>> = BTreeMap::new();
    for row in &rows {
        wanted.entry(row.host.clone()).or_default().push(row.id);
    }
    let mut jobs: JoinSet<Result<Vec<Measured>, Unheard>> = JoinSet::new();
    for (host, agents) in wanted {
        jobs.spawn(ask(hosts.clone(), host, agents, limit));
    }
    let (mut measured, mut unheard) = (Vec::new(), Vec::new());
    while let Some(done) = jobs.join_next().await {
        match done {
            Ok(Ok(mut some)) => measured.append(&mut some),
            Ok(Err(failed)) => unheard.push(failed),
            Err(error) => return Err(WireError::new(ErrorCode::Failed, error.to_string())),
        }
    }
    unheard.sort_by(|one, other| one.host.cmp(&other.host));
    let mut figures = before.take(measured);
    for row in &mut rows {
        row.figures = figures.remove(&row.id).unwrap_or_default();
    }
    Ok(TopView { rows, unheard, as_of: hosts.clock.now() })
}

async fn ask(
    hosts: Hosts,
    host: HostId,
    agents: Vec<AgentId>,
    limit: Duration,
) -> Result<Vec<Measured>, Unheard> {
    let asked = async {
        let mut answers = hosts.ask(&host, Question::Figures { agents }, Some(limit)).await?;
        let mut measured = Vec::new();
        while let Some(answer) = answers.next().await? {
            if let Answer::Figures(mut some) = answer {
                measured.append(&mut some);
            }
        }
        Ok(measured)
    };
    asked.await.map_err(|error: WireError| Unheard { host: host.clone(), error })
}

/// CPU time and the host's clock at the last measurement of each agent.
#[derive(Default)]
struct Samples(BTreeMap<AgentId, (u64, u64)>);

impl Samples {
    fn take(&mut self, measured: Vec<Measured>) -> BTreeMap<AgentId, Figures> {
        let mut now = BTreeMap::new();
        let mut figures = BTreeMap::new();
        for one in measured {
            if let Some(cpu_us) = one.cpu_us {
                now.insert(one.agent, (cpu_us, one.at_us));
            }
            let cpu_millis = self.0.get(&one.agent).and_then(|before| share(*before, &one));
            figures.insert(
                one.agent,
                Figures {
                    cpu_ms: one.cpu_us.map(|us| us / 1_000),
                    cpu_millis,
                    memory_bytes: one.memory_bytes,
                    pids: one.pids,
                    disk_bytes: one.disk_bytes,
                    disk_as_of: one.disk_as_of,
                },
            );
        }
        // One that was not heard this time has no share the next time: the pause would be taken for rest.
        self.0 = now;
        figures
    }
}

/// Thousandths of a core. Unknown where a counter went back: the agent or the machine was started anew.
fn share((cpu_us, at_us): (u64, u64), now: &Measured) -> Option<u64> {
    let used = now.cpu_us?.checked_sub(cpu_us)?;
    let passed = now.at_us.checked_sub(at_us).filter(|passed| *passed > 0)?;
    used.saturating_mul(1_000).checked_div(passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_needs_two_measurements_that_follow_each_other_and_is_unknown_else() {
        let agent = AgentId::from_parts(1, 1);
        let at = |at_us, cpu_us| {
            let none = Measured {
                agent,
                at_us,
                cpu_us,
                memory_bytes: None,
                pids: None,
                disk_bytes: None,
                disk_as_of: None,
            };
            vec![none]
        };
        let mut samples = Samples::default();
        let mut share = |measured| samples.take(measured).get(&agent).and_then(|row| row.cpu_millis);
        assert_eq!(share(at(1_000, Some(500))), None);
        assert_eq!(share(at(3_000, Some(3_500))), Some(1_500), "one core and a half");
        assert_eq!(share(at(4_000, Some(3_500))), Some(0));
        assert_eq!(share(at(4_000, Some(3_600))), None, "no time has passed");
        assert_eq!(share(at(5_000, Some(10))), None, "it was started anew");
        assert_eq!(share(at(6_000, None)), None);
        assert_eq!(share(at(7_000, Some(900))), None, "not since long ago");
        assert_eq!(share(Vec::new()), None);
    }
}
