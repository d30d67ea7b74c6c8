//! Which manager leads, as a fencing number that only grows: every order carries it, and hosts drop an older
//! one. Embedded mode has one manager, so the lead has no expiry; taking it raises the number.

use bytes::Bytes;
use protocol::ids::Fencing;
use serde::{Deserialize, Serialize};

use super::Store;
use super::error::StoreError;
use super::kv::Cas;
use super::streams::Bucket;

const KEY: &str = "leader";
const TRIES: u32 = 16;

/// The stored value; fields are only added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct LeadRecord {
    version: u32,
    fencing: u64,
}

impl Store {
    /// The number that is stored; 0 where there is none.
    ///
    /// # Errors
    /// When it cannot be read or is none.
    pub async fn stored_lead(&self) -> Result<Fencing, StoreError> {
        Ok(Fencing(self.read_lead().await?.0))
    }

    /// The stored number and its revision.
    async fn read_lead(&self) -> Result<(u64, u64), StoreError> {
        match self.get(Bucket::Lead, KEY).await? {
            None => Ok((0, 0)),
            Some((None, revision)) => Ok((0, revision)),
            Some((Some(value), revision)) => {
                let damaged = |_| StoreError::DamagedLead { bucket: Bucket::Lead };
                let record: LeadRecord = serde_json::from_slice(&value).map_err(damaged)?;
                Ok((record.fencing, revision))
            }
        }
    }

    /// Takes the lead: one above the stored number and above `highest_seen`, the highest that any host
    /// reports (a bus that was restored from an older copy may have forgotten).
    pub async fn acquire_lead(&self, highest_seen: Fencing) -> Result<Fencing, StoreError> {
        for _ in 0..TRIES {
            let (stored, revision) = self.read_lead().await?;
            let fencing = stored.max(highest_seen.0).saturating_add(1);
            let record = serde_json::json!(LeadRecord { version: 1, fencing }).to_string();
            match self.cas(Bucket::Lead, KEY, Bytes::from(record), revision).await? {
                Cas::Written { .. } => return Ok(Fencing(fencing)),
                Cas::Conflict => {}
            }
        }
        Err(StoreError::LeadContended { tries: TRIES })
    }
}
