//! What takes space, asked of every host at once, and the taking away of what a survey showed. A host that does not
//! answer is named; nothing is said of what it holds.

use std::collections::BTreeMap;
use std::time::Duration;

use manager_core::OverRun;
use protocol::api::{Item, Reply};
use protocol::error::{ErrorCode, WireError};
use protocol::house::{Freed, Holding, HouseItem, Unheard};
use protocol::ids::{AgentId, HostId};
use protocol::order::{Answer, Discard, Question};
use tokio::task::JoinSet;

use crate::blobs::Blobs;
use crate::hosts::Hosts;
use crate::queries;
use crate::server::session::Items;
use crate::store::Store;
use crate::store::streams::BLOBS;

/// A host walks every folder of its agents, and asks git about each when it looks deep.
const SURVEY: Duration = Duration::from_secs(300);
/// For a batch of [`BATCH`].
const FREE: Duration = Duration::from_secs(120);
/// Holdings of one item.
const PIECE: usize = 100;
/// Things that are taken away with one question.
const BATCH: usize = 50;

/// What is looked at beside sizes: whether each may go, and kinds that were added since.
#[derive(Debug, Clone, Copy)]
pub struct Looks {
    pub deep: bool,
    pub added: bool,
}

/// What the manager itself looks at.
#[derive(Clone, Copy)]
pub struct Own<'a> {
    pub store: &'a Store,
    /// Where it is asked what nothing names on the bus.
    pub blobs: Option<&'a Blobs>,
}

/// # Errors
/// When a target is not found.
pub async fn survey(
    hosts: &Hosts,
    own: Own<'_>,
    targets: Vec<String>,
    looks: Looks,
    items: Items,
) -> Result<Reply, WireError> {
    let whole = targets.is_empty();
    let wanted = hosts.driver.glance(move |glance| by_host(glance, &targets)).await??;
    let mut jobs: JoinSet<Result<(), Unheard>> = JoinSet::new();
    for (host, agents) in wanted {
        jobs.spawn(survey_host(hosts.clone(), host, agents, looks, items.clone()));
    }
    if whole && looks.added {
        let runs = hosts.driver.glance(|glance| glance.core.over_runs()).await?;
        let held: Vec<Holding> = runs.into_iter().map(of_run).collect();
        for piece in held.chunks(PIECE) {
            items.send(&Item::OwnHoldings(piece.to_vec())).await?;
        }
    }
    let mut unnamed = None;
    if let Some(blobs) = own.blobs.filter(|_| whole) {
        let found = blobs.unnamed(&hosts.driver).await?;
        unnamed = Some(found.iter().fold(0_u64, |sum, holding| sum.saturating_add(holding.bytes)));
        for piece in found.chunks(PIECE) {
            items.send(&Item::OwnHoldings(piece.to_vec())).await?;
        }
    }
    let mut unheard = Vec::new();
    while let Some(done) = jobs.join_next().await {
        match done {
            Ok(Ok(())) => {}
            Ok(Err(failed)) => unheard.push(failed),
            Err(error) => return Err(WireError::new(ErrorCode::Failed, error.to_string())),
        }
    }
    unheard.sort_by(|one, other| one.host.cmp(&other.host));
    let streams = if whole {
        let used = own.store.usage().await;
        let mut used =
            used.map_err(|error| WireError::new(ErrorCode::Unavailable, protocol::chain(&error)))?;
        if let Some(blobs) = used.iter_mut().find(|stream| stream.name == BLOBS) {
            blobs.unnamed_bytes = unnamed;
        }
        used
    } else {
        Vec::new()
    };
    Ok(Reply::Surveyed { streams, unheard })
}

fn of_run(run: OverRun) -> Holding {
    let item = HouseItem::Run { run: run.id };
    // Records are small and many of one stream: what one run takes of it cannot be told.
    Holding { item, label: run.name, bytes: 0, since: run.ended_at, kept: run.kept }
}

/// The agents of each host; every host with none when none is named.
fn by_host(
    glance: &crate::driver::Glance<'_>,
    targets: &[String],
) -> Result<BTreeMap<HostId, Vec<AgentId>>, WireError> {
    if targets.is_empty() {
        return Ok(queries::hosts(glance).into_iter().map(|view| (view.host, Vec::new())).collect());
    }
    let mut wanted: BTreeMap<HostId, Vec<AgentId>> = BTreeMap::new();
    for target in targets {
        let view = queries::find(glance, target)?.view;
        wanted.entry(view.host).or_default().push(view.id);
    }
    Ok(wanted)
}

async fn survey_host(
    hosts: Hosts,
    host: HostId,
    agents: Vec<AgentId>,
    Looks { deep, added }: Looks,
    items: Items,
) -> Result<(), Unheard> {
    let asked = async {
        let mut answers = hosts.ask(&host, Question::Survey { agents, deep, added }, Some(SURVEY)).await?;
        while let Some(answer) = answers.next().await? {
            if let Answer::Holdings(holdings) = answer {
                items.send(&Item::Holdings { host: host.clone(), holdings }).await?;
            }
        }
        Ok(())
    };
    asked.await.map_err(|error: WireError| Unheard { host: host.clone(), error })
}

/// What the core still needs is kept; the host looks at the rest itself.
///
/// # Errors
/// When the host does not answer: then some may be gone, and asking again is safe.
pub async fn free(
    hosts: &Hosts,
    host: HostId,
    items: Vec<HouseItem>,
    older_ms: u64,
    discard: Discard,
) -> Result<Reply, WireError> {
    let looked = hosts.driver.glance(move |glance| {
        let looked = items.into_iter().map(|item| {
            let kept = match &item {
                HouseItem::Archive { agent } => glance.core.may_forget(*agent).err(),
                HouseItem::Workspace { .. }
                | HouseItem::Transcript { .. }
                | HouseItem::Outputs { .. }
                | HouseItem::Base { .. }
                | HouseItem::Ref { .. }
                | HouseItem::Group { .. }
                | HouseItem::Session { .. }
                | HouseItem::Socket { .. }
                | HouseItem::Run { .. }
                | HouseItem::Blob { .. }
                | HouseItem::Cut { .. } => None,
            };
            (item, kept)
        });
        looked.collect::<Vec<_>>()
    });
    let (mut outcomes, mut asked) = (Vec::new(), Vec::new());
    for (item, kept) in looked.await? {
        match kept {
            Some(why) => outcomes.push(Freed { item, bytes: 0, kept: Some(why) }),
            None => asked.push(item),
        }
    }
    for batch in asked.chunks(BATCH) {
        let question = Question::Free { items: batch.to_vec(), older_ms, discard };
        match hosts.ask_once(&host, question, FREE).await? {
            Answer::Freed(mut freed) => outcomes.append(&mut freed),
            _ => return Err(WireError::new(ErrorCode::Failed, "the host gave another answer than outcomes")),
        }
    }
    Ok(Reply::Freed(outcomes))
}
