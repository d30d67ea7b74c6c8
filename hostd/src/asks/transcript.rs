//! Pieces of a transcript.

use std::os::unix::fs::FileExt;

use hostd_core::AgentRecord;
use protocol::error::{ErrorCode, WireError};
use protocol::ids::AgentId;
use protocol::order::Answer;

use crate::machine::Handle;

/// Largest piece of a transcript or of an output in one answer.
const PIECE: usize = 512 << 10;

pub(super) async fn read(
    machine: &Handle,
    agent: AgentId,
    offset: u64,
    max: u64,
    record: Option<&AgentRecord>,
) -> Result<Answer, WireError> {
    let ended = record.is_some_and(|record| record.end.is_some());
    let folders = machine.folders.clone();
    let max = usize::try_from(max).unwrap_or(PIECE).min(PIECE);
    let read = tokio::task::spawn_blocking(move || -> std::io::Result<(Vec<u8>, u64)> {
        let file = match folders.open_transcript(agent) {
            Ok(Some(file)) => file,
            // Not started yet, or its start failed: nothing was printed.
            Ok(None) => return Ok((Vec::new(), 0)),
            Err(error) => return Err(error),
        };
        let length = file.metadata()?.len();
        // A manager that asks past the end wants the length; the kernel would refuse the offset.
        if offset >= length {
            return Ok((Vec::new(), length));
        }
        let mut bytes = vec![0_u8; max];
        let count = file.read_at(&mut bytes, offset)?;
        bytes.truncate(count);
        Ok((bytes, length))
    });
    match read.await {
        Ok(Ok((bytes, length))) if record.is_some() || length > 0 => {
            Ok(Answer::Bytes { offset, length, bytes, ended })
        }
        Ok(Ok(_)) => Err(WireError::new(ErrorCode::NotFound, "there is no transcript of this agent here")),
        Ok(Err(error)) => {
            Err(WireError::new(ErrorCode::Failed, format!("cannot read the transcript: {error}")))
        }
        Err(error) => Err(WireError::new(ErrorCode::Failed, error.to_string())),
    }
}
