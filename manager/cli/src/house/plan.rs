//! What `gc` would take away: pure, from a survey. The hosts look at each thing again before it goes.

use std::collections::BTreeMap;

use protocol::house::{Holding, HouseItem};
use protocol::ids::HostId;
use protocol::time::Timestamp;

use super::super::args::house::What;

/// What was asked for.
pub struct Wish<'a> {
    pub what: &'a [What],
    pub older_ms: u64,
    pub keep_size: Option<u64>,
    /// Outputs of destroyed agents may go too.
    pub discard: bool,
    pub now: Timestamp,
}

/// One thing that was looked at, and what is to become of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// None: the manager holds it.
    pub host: Option<HostId>,
    pub holding: Holding,
    /// Why it stays; `None`: it goes.
    pub kept: Option<String>,
}

/// Everything that is old enough and of a kind that may go, the oldest first. Live agents and what is younger are not
/// even named.
pub fn plan(holdings: Vec<(Option<HostId>, Holding)>, wish: &Wish<'_>) -> Vec<Planned> {
    let mut left: BTreeMap<Option<HostId>, u64> = BTreeMap::new();
    let mut live = Vec::new();
    for (host, holding) in &holdings {
        let sum = left.entry(host.clone()).or_default();
        *sum = sum.saturating_add(holding.bytes);
        if let (HouseItem::Workspace { agent }, Some("it is live")) = (&holding.item, holding.kept.as_deref())
        {
            live.push(*agent);
        }
    }
    let mut planned: Vec<Planned> = holdings
        .into_iter()
        .filter(|(_, holding)| kind_of(&holding.item).is_some_and(|kind| wish.what.contains(&kind)))
        .filter(|(_, holding)| holding.since.after_ms(wish.older_ms) <= wish.now)
        .filter(
            |(_, holding)| !matches!(&holding.item, HouseItem::Workspace { agent } if live.contains(agent)),
        )
        .map(|(host, holding)| {
            let archive = matches!(holding.item, HouseItem::Archive { .. });
            let outputs = |why: &String| archive && wish.discard && why.starts_with("holds ");
            let kept = holding.kept.clone().filter(|why| !outputs(why));
            Planned { host, holding, kept }
        })
        .collect();
    planned.sort_by_key(|planned| (planned.holding.since, planned.holding.item.clone()));
    if let Some(most) = wish.keep_size {
        // What the manager holds is of no host: it goes by its age alone.
        let goes = |planned: &&mut Planned| planned.kept.is_none() && planned.host.is_some();
        for planned in planned.iter_mut().filter(goes) {
            let left = left.entry(planned.host.clone()).or_default();
            if *left > most {
                *left = left.saturating_sub(planned.holding.bytes);
            } else {
                planned.kept = Some("its host holds no more than asked for".to_owned());
            }
        }
    }
    planned
}

/// What has to be asked for so that a thing goes; `None` for what goes along with another.
fn kind_of(item: &HouseItem) -> Option<What> {
    match item {
        HouseItem::Workspace { .. } => Some(What::Agents),
        HouseItem::Archive { .. } => Some(What::Transcripts),
        HouseItem::Base { .. } => Some(What::Bases),
        HouseItem::Ref { .. } => Some(What::Refs),
        HouseItem::Group { .. } | HouseItem::Session { .. } | HouseItem::Socket { .. } => {
            Some(What::Leftovers)
        }
        HouseItem::Run { .. } => Some(What::Runs),
        HouseItem::Blob { .. } | HouseItem::Cut { .. } => Some(What::Blobs),
        HouseItem::Transcript { .. } | HouseItem::Outputs { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::ids::AgentId;

    fn holding(n: u64, item: HouseItem, kept: Option<&str>) -> (Option<HostId>, Holding) {
        let host = Some("a".parse().unwrap());
        let kept = kept.map(str::to_owned);
        (host, Holding { item, label: n.to_string(), bytes: 10, since: Timestamp(n), kept })
    }

    fn all() -> Vec<(Option<HostId>, Holding)> {
        let agent = |n| AgentId::from_parts(n, 0);
        vec![
            holding(4, HouseItem::Base { path: "/b".into() }, None),
            holding(1, HouseItem::Workspace { agent: agent(1) }, None),
            holding(1, HouseItem::Transcript { agent: agent(1) }, None),
            holding(2, HouseItem::Workspace { agent: agent(2) }, Some("it is live")),
            holding(3, HouseItem::Workspace { agent: agent(3) }, Some("holds work")),
            holding(5, HouseItem::Archive { agent: agent(5) }, Some("holds declared outputs")),
            holding(9, HouseItem::Archive { agent: agent(9) }, None),
        ]
    }

    fn labels(wish: &Wish<'_>) -> Vec<(String, bool)> {
        let planned = plan(all(), wish);
        planned.into_iter().map(|planned| (planned.holding.label, planned.kept.is_none())).collect()
    }

    const EVERY: &[What] = &[What::Agents, What::Transcripts, What::Bases, What::Refs];

    fn wish(what: &[What]) -> Wish<'_> {
        Wish { what, older_ms: 2, keep_size: None, discard: false, now: Timestamp(10) }
    }

    fn expected(pairs: &[(u64, bool)]) -> Vec<(String, bool)> {
        pairs.iter().map(|(n, goes)| (n.to_string(), *goes)).collect()
    }

    #[test]
    fn what_is_live_or_young_is_left_out_and_what_holds_work_is_named_and_stays() {
        assert_eq!(labels(&wish(EVERY)), expected(&[(1, true), (3, false), (4, true), (5, false)]));
        assert_eq!(labels(&wish(&[What::Bases])), expected(&[(4, true)]));
        let older = Wish { older_ms: 100, ..wish(EVERY) };
        assert!(labels(&older).is_empty());
    }

    #[test]
    fn outputs_go_only_when_that_was_said_and_work_never_does() {
        let discard = Wish { discard: true, ..wish(EVERY) };
        assert_eq!(labels(&discard), expected(&[(1, true), (3, false), (4, true), (5, true)]));
    }

    #[test]
    fn a_size_to_keep_takes_the_oldest_until_it_is_reached() {
        let keep = |most| labels(&Wish { keep_size: Some(most), ..wish(EVERY) });
        assert_eq!(keep(70), expected(&[(1, false), (3, false), (4, false), (5, false)]));
        assert_eq!(keep(65), expected(&[(1, true), (3, false), (4, false), (5, false)]));
        assert_eq!(keep(0), expected(&[(1, true), (3, false), (4, true), (5, false)]));
        // Records of runs take no space on a host: they go by their age alone.
        let run = HouseItem::Run { run: protocol::ids::RunId::from_parts(1, 1) };
        let holdings = vec![(None, Holding { bytes: 0, ..holding(1, run, None).1 })];
        let planned = plan(holdings, &Wish { keep_size: Some(70), ..wish(&[What::Runs]) });
        assert_eq!(planned.iter().map(|planned| planned.kept.clone()).collect::<Vec<_>>(), [None]);
    }
}
