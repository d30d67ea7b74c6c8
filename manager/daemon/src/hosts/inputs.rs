//! What the tasks before a task left, as the JSON that its attempts read, kept as a blob.

use protocol::agent::Blob;
use protocol::ids::TaskId;
use protocol::task::TaskInput;
use serde_json::{Value, json};

use crate::blobs::Blobs;

/// The blob, or nothing where it could not be stored: it is asked for again.
pub(super) async fn keep(blobs: &Blobs, task: TaskId, inputs: &[TaskInput]) -> Option<Blob> {
    match blobs.put(document(inputs).to_string().as_bytes()).await {
        Ok(blob) => Some(blob),
        Err(error) => {
            tracing::warn!(%task, %error, "what the tasks before it left cannot be kept; tried again soon");
            None
        }
    }
}

/// Results are JSON already and are put in as values.
fn document(inputs: &[TaskInput]) -> Value {
    let row = |input: &TaskInput| {
        let mut row = serde_json::to_value(input).unwrap_or_default();
        let result = input.result.as_deref().and_then(|text| serde_json::from_str::<Value>(text).ok());
        if let (Value::Object(fields), Some(result)) = (&mut row, result) {
            fields.insert("result".to_owned(), result);
        }
        row
    };
    json!({"schema_version": protocol::api::SCHEMA_VERSION, "items": inputs.iter().map(row).collect::<Vec<_>>()})
}
