//! The number under which this manager leads, for everything that is said to hosts; taken anew when a host knows a
//! higher one, which happens when the bus has forgotten ours.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use protocol::ids::Fencing;
use tokio::sync::Mutex;

use crate::store::{Store, StoreError};

const AGAIN: Duration = Duration::from_secs(1);

/// The lead; cheap to clone.
#[derive(Clone)]
pub struct Lead {
    store: Store,
    number: Arc<AtomicU64>,
    taking: Arc<Mutex<()>>,
}

impl Lead {
    #[must_use]
    pub fn new(store: Store, number: Fencing) -> Self {
        Self { store, number: Arc::new(AtomicU64::new(number.0)), taking: Arc::default() }
    }

    #[must_use]
    pub fn number(&self) -> Fencing {
        Fencing(self.number.load(Ordering::Acquire))
    }

    /// Writes a number again that the store has lost. The new one when it was lost.
    ///
    /// # Errors
    /// The store's.
    pub async fn keep(&self) -> Result<Option<Fencing>, StoreError> {
        let number = self.number();
        if self.store.stored_lead().await? >= number {
            return Ok(None);
        }
        Ok(Some(self.rise_above(number).await))
    }

    /// The number under which it leads once that is above `above`; tried until the store has it.
    pub async fn rise_above(&self, above: Fencing) -> Fencing {
        let _alone = self.taking.lock().await;
        loop {
            let number = self.number();
            if number > above {
                return number;
            }
            match self.store.acquire_lead(above).await {
                Ok(taken) => {
                    tracing::warn!(
                        before = number.0,
                        now = taken.0,
                        "a host knew a higher number than the bus: the lead is taken above it"
                    );
                    self.number.store(taken.0, Ordering::Release);
                    return taken;
                }
                Err(error) => {
                    tracing::warn!(error = %protocol::chain(&error), "the lead is not taken yet, trying again");
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
    }
}
