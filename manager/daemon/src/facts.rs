//! The manager's own facts, brought to the event stream in their order. Each carries the number that tells readers of a
//! repeated one.

use bytes::Bytes;
use data_encoding::HEXLOWER;
use protocol::codec::Frame;
use protocol::event::Event;
use protocol::ids::Region;
use protocol::subject;
use tokio::sync::mpsc;

use super::clock::Clock;
use super::driver::DatedFact;
use crate::store::Store;

/// Facts that wait while the bus is away.
pub const FACTS_WAITING: usize = 65_536;

/// Appends facts until their sender is gone. The store sends each again until it has it.
pub async fn append_facts(store: Store, region: Region, clock: Clock, mut facts: mpsc::Receiver<DatedFact>) {
    let epoch = HEXLOWER.encode(&clock.random().to_be_bytes());
    let subject = subject::manager_event(&region);
    let mut seq = 0;
    while let Some(DatedFact { at, name, fact }) = facts.recv().await {
        seq += 1;
        let event = Event {
            at,
            epoch: epoch.clone(),
            seq,
            region: region.clone(),
            host: None,
            name,
            fact,
            cursor: None,
        };
        let id = format!("{epoch}:{seq}");
        let bytes = match Frame::of(Event::KIND, &id, &event).and_then(|frame| frame.encode()) {
            Ok(bytes) => Bytes::from(bytes),
            Err(error) => {
                tracing::error!(error = %protocol::chain(&error), "a fact cannot be encoded");
                continue;
            }
        };
        if let Err(error) = store.append_event(&subject, &id, bytes).await {
            tracing::error!(error = %protocol::chain(&error), "a fact is lost");
        }
    }
}
