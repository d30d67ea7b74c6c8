//! `FollowRun`: the run as an item at each change, until it has ended. Changes that come faster than the client reads
//! are joined.

use std::collections::BTreeSet;

use manager_core::Subject;
use protocol::api::{Item, Reply};
use protocol::error::WireError;

use crate::driver::Driver;
use crate::driver::changes::Interest;
use crate::queries;
use crate::server::session::Items;
use crate::stopping;

/// Follows one run.
///
/// # Errors
/// When it is not found.
pub async fn follow_run(driver: Driver, target: String, items: Items) -> Result<Reply, WireError> {
    let run = driver.glance(move |glance| queries::run(glance, &target)).await??;
    let subjects = BTreeSet::from([Subject::Run(run.id)]);
    let mut changes = driver.watch(Interest::Subjects(subjects)).await?;
    let id = run.id;
    let mut shown = None;
    loop {
        changes.mark_unchanged();
        let run = driver.glance(move |glance| queries::run_by_id(glance, id)).await?;
        let Some(run) = run else { return Ok(Reply::Done) };
        let ended = run.ended_at.is_some();
        if shown.as_ref() != Some(&run) {
            shown = Some(run.clone());
            items.send(&Item::Run(Box::new(run))).await?;
        }
        if ended {
            return Ok(Reply::Done);
        }
        changes.changed().await.map_err(|_| stopping())?;
    }
}
