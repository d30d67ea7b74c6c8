//! Values of environments: sealed on their way into the store, opened for the host that starts the agent, and never in
//! a log. Which host that is, is checked by [`super::hosts::rpc`].

use std::sync::Arc;

use protocol::agent::Environment;
use protocol::codec;
use protocol::error::{ErrorCode, WireError};

use crate::store::seal::FleetKey;
use crate::store::{Bucket, Store};

/// The sealed values; cheap to clone.
#[derive(Clone, Debug)]
pub struct Secrets {
    store: Store,
    key: Arc<FleetKey>,
}

impl Secrets {
    #[must_use]
    pub fn new(store: Store, key: Arc<FleetKey>) -> Self {
        Self { store, key }
    }

    /// The values under `owner`.
    ///
    /// # Errors
    /// When they are not there or cannot be opened: an agent must not start without them.
    pub async fn open(&self, owner: &str) -> Result<Environment, WireError> {
        let stored = self.store.get(Bucket::Secrets, owner).await.map_err(|error| {
            WireError::new(ErrorCode::Unavailable, format!("the environment cannot be read: {error}"))
        })?;
        let failed =
            |why: &str| WireError::new(ErrorCode::Failed, format!("the environment of {owner} {why}"));
        let Some((Some(sealed), _)) = stored else { return Err(failed("is not kept any more")) };
        let opened = self.key.open(owner, &sealed).map_err(|error| failed(&error.to_string()))?;
        codec::from_bytes(&opened).map_err(|_| failed("cannot be decoded"))
    }
}

/// The values as they may be stored under `owner`.
#[must_use]
pub fn seal(key: &FleetKey, owner: &str, environment: &Environment) -> Option<Vec<u8>> {
    let plain = codec::to_bytes(environment).ok()?;
    match key.seal(owner, &plain) {
        Ok(sealed) => Some(sealed),
        Err(error) => {
            tracing::error!(error = %protocol::chain(&error), owner, "an environment cannot be sealed");
            None
        }
    }
}
