//! What clients ask of hooks: which are in force and how they do, and whether those are there that a run asks for.

use std::time::Duration;

use protocol::api::SubmitRun;
use protocol::error::{ErrorCode, WireError};
use protocol::notify::HooksView;

use super::force::Force;
use super::{Hooks, ledger_of, missing};
use manager_notify::view::view;
use manager_plan::runfile::problem::suggestion;

/// For a look at the settings.
const LOOK: Duration = Duration::from_secs(5);

impl Hooks {
    async fn looked(&self) -> Result<std::sync::Arc<Force>, WireError> {
        let force = tokio::time::timeout(LOOK, self.look(None)).await.ok().flatten();
        // Neither right nor wrong: a file is just being written.
        let force = force.filter(|force| force.is_read || !force.wrong.is_empty());
        force.ok_or_else(|| {
            WireError::new(ErrorCode::Unavailable, "the hooks of the settings could not be looked at in time")
                .hint("ask again in a moment")
        })
    }

    /// # Errors
    /// They could not be looked at, or how one does could not be read.
    pub async fn views(&self) -> Result<HooksView, WireError> {
        let force = self.looked().await?;
        let mut hooks = Vec::with_capacity(force.hooks.len());
        for hook in &force.hooks {
            let ledger = ledger_of(&self.folder, &hook.id()).await.map_err(|why| {
                WireError::new(ErrorCode::Failed, format!("how {hook} has done cannot be read: {why}"))
            })?;
            hooks.push(view(hook, ledger));
        }
        // Which hooks there are is unknown until the settings were right once: none of them is missing.
        let missing = if force.is_read {
            let names = force.names();
            self.hosts.driver.glance(move |glance| missing(glance, &names)).await?
        } else {
            Vec::new()
        };
        Ok(HooksView { hooks, wrong: force.wrong.clone(), missing })
    }

    /// A run whose hooks are not there begins not at all; one that was taken under this key before has its answer.
    ///
    /// # Errors
    /// There is no such hook, or they could not be looked at.
    pub async fn check(&self, submit: &SubmitRun) -> Result<(), WireError> {
        if submit.run.notify.is_empty() {
            return Ok(());
        }
        let key = submit.key.clone();
        if self.hosts.driver.glance(move |glance| glance.core.has_answered(&key)).await? {
            return Ok(());
        }
        let force = self.looked().await?;
        if !force.is_read {
            let name = &submit.run.name;
            let message = format!(
                "run {name:?}: notify: the settings are wrong, so which hooks there are is not known: {}",
                force.wrong
            );
            return Err(WireError::new(ErrorCode::Invalid, message).hint("phalanx config edit"));
        }
        let names = force.names();
        let known = || names.iter().map(|name| name.as_str());
        let wrong: Vec<String> = submit
            .run
            .notify
            .iter()
            .filter(|told| !names.contains(&told.to))
            .map(|told| format!("there is no hook {:?}{}", told.to, suggestion(told.to.as_str(), known())))
            .collect();
        if wrong.is_empty() {
            return Ok(());
        }
        let message = format!("run {:?}: notify: {}", submit.run.name, wrong.join("; "));
        Err(WireError::new(ErrorCode::Invalid, message).hint("phalanx notify ls"))
    }
}
