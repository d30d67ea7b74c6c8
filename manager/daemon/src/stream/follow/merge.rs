//! `FollowMerge`: the last merge of a run as an item at each change, until it is over.

use std::collections::BTreeSet;

use manager_core::Subject;
use protocol::api::{Item, Reply};
use protocol::error::{ErrorCode, WireError};

use crate::driver::Driver;
use crate::driver::changes::Interest;
use crate::queries;
use crate::server::session::Items;
use crate::stopping;

/// # Errors
/// When the run is not found, or was never merged.
pub async fn follow_merge(driver: Driver, target: String, items: Items) -> Result<Reply, WireError> {
    let run = driver.glance(move |glance| queries::run(glance, &target)).await??.id;
    let subjects = BTreeSet::from([Subject::Run(run)]);
    let mut changes = driver.watch(Interest::Subjects(subjects)).await?;
    let mut shown = None;
    loop {
        changes.mark_unchanged();
        let merge = driver.glance(move |glance| glance.core.merge_view(run)).await?;
        let merge = merge.ok_or_else(|| {
            WireError::new(ErrorCode::NotFound, "the run was never merged").hint("phalanx merge")
        })?;
        let over = merge.ended_at.is_some();
        if shown.as_ref() != Some(&merge) {
            shown = Some(merge.clone());
            items.send(&Item::Merge(Box::new(merge))).await?;
        }
        if over {
            return Ok(Reply::Done);
        }
        changes.changed().await.map_err(|_| stopping())?;
    }
}
