//! The end of a failed attempt's transcript, kept as a blob for the next attempt.

use std::sync::Arc;

use protocol::agent::Blob;
use protocol::error::WireError;
use protocol::ids::{AgentId, HostId};

use crate::blobs::Blobs;
use crate::hosts::Hosts;
use crate::queries;
use crate::stream::transcript::{Place, Transcript};

/// Most that is kept.
const TAIL_BYTES: usize = 64 << 10;

/// Keeps tails; cheap to clone.
#[derive(Clone)]
pub struct LogTails {
    pub hosts: Hosts,
    pub blobs: Arc<Blobs>,
}

impl LogTails {
    /// The blob, or nothing where there is no log to be had.
    pub async fn keep(&self, agent: AgentId, host: HostId) -> Option<Blob> {
        match self.try_keep(agent, host).await {
            Ok(blob) => blob,
            Err(error) => {
                tracing::warn!(%agent, %error, "the log of a failed attempt is not at hand");
                None
            }
        }
    }

    async fn try_keep(&self, agent: AgentId, host: HostId) -> Result<Option<Blob>, WireError> {
        let wanted = host.clone();
        let address = self.hosts.driver.glance(move |glance| queries::address(glance, &wanted)).await?;
        let Some(address) = address else { return Ok(None) };
        let place = Place { region: address.region, host, agent };
        let mut transcript = Transcript::new(self.hosts.clone(), place);
        let end = transcript.read(u64::MAX, 1).await?.length;
        let wanted = u64::try_from(TAIL_BYTES).unwrap_or(u64::MAX);
        let mut position = end.saturating_sub(wanted);
        let cut = position > 0;
        let mut tail = Vec::new();
        while position < end && tail.len() < TAIL_BYTES {
            let piece = transcript.read(position, TAIL_BYTES - tail.len()).await?;
            if piece.bytes.is_empty() {
                break;
            }
            position = piece.end();
            tail.extend_from_slice(&piece.bytes);
        }
        let tail = whole_lines(&tail, cut);
        if tail.is_empty() {
            return Ok(None);
        }
        self.blobs.put(tail).await.map(Some)
    }
}

/// Without the torn first line of a tail that was cut; a tail without any line end stays as it is.
fn whole_lines(tail: &[u8], cut: bool) -> &[u8] {
    let after = tail.iter().position(|byte| *byte == b'\n').map(|place| place + 1);
    match after {
        Some(after) if cut && after < tail.len() => tail.get(after..).unwrap_or(tail),
        _ => tail,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_tail_begins_with_a_line_and_a_whole_one_is_kept() {
        assert_eq!(whole_lines(b"orn\nline\n", true), b"line\n");
        assert_eq!(whole_lines(b"first\nline\n", false), b"first\nline\n");
        assert_eq!(whole_lines(b"one long line", true), b"one long line");
        assert_eq!(whole_lines(b"only\n", true), b"only\n");
    }
}
