//! The task that brings batches of records to the store: one at a time, again and again until the store has them.
//! What waits for them is [`super::commit`]'s.

use std::future::Future;
use std::time::Duration;

use manager_core::StoredRecord;
use tokio::sync::mpsc;

use super::commit::Batch;

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Where records are kept.
pub trait Records: Send + Sync + 'static {
    type Error: std::error::Error;

    /// Puts and deletes; `Ok` says that all of it is durable. After an error any part may be, and all of it again is
    /// harmless.
    fn write(&self, layer: &[StoredRecord]) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// Writes batches until their sender is gone. Each is acknowledged by one `()`.
pub async fn run<R: Records>(records: R, mut batches: mpsc::Receiver<Batch>, acknowledged: mpsc::Sender<()>) {
    while let Some(batch) = batches.recv().await {
        for layer in &batch {
            write_until_durable(&records, layer).await;
        }
        if acknowledged.send(()).await.is_err() {
            return;
        }
    }
}

async fn write_until_durable<R: Records>(records: &R, layer: &[StoredRecord]) {
    let mut pause = FIRST_PAUSE;
    let mut attempts: u64 = 1;
    while let Err(error) = records.write(layer).await {
        // Once per outage, not once per attempt.
        if attempts == 1 {
            tracing::warn!(error = %protocol::chain(&error), records = layer.len(), "records wait for the bus");
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
        attempts += 1;
    }
    if attempts > 1 {
        tracing::info!(attempts, "records that waited for the bus are written");
    }
}
