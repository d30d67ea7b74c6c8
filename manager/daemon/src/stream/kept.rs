//! A transcript as the stream TR keeps it, found by offset: what is left when its host cannot be asked.
//!
//! Chunks of one transcript were cut by its host from front to back, so their ends grow with their sequence numbers,
//! but for a stretch that was cut anew after a crash, which begins where the durable part ended. So a binary search
//! over sequence numbers finds a chunk that covers an offset; where none does, the bytes are gone (a gap).

use protocol::error::WireError;
use protocol::ids::{AgentId, HostId, Region};
use protocol::subject;
use protocol::transcript::Chunk;

use super::transcript::Piece;
use crate::bus::{Bus, BusError, Kept, KeptMessage};
use crate::store::streams::TRANSCRIPTS;
use crate::unavailable;

/// One kept transcript.
pub struct KeptTranscript {
    stream: Kept,
    subject: String,
    first: u64,
    /// Sequence of its newest chunk when this was opened.
    newest: u64,
    length: u64,
    ended: bool,
    /// Where the last read ended, and the sequence after the chunk that it ended in.
    cursor: (u64, u64),
}

impl KeptTranscript {
    /// `None` when the stream holds nothing of it.
    ///
    /// # Errors
    /// `Unavailable` when the stream cannot be read.
    pub async fn open(
        bus: &Bus,
        region: &Region,
        host: &HostId,
        agent: &AgentId,
    ) -> Result<Option<Self>, WireError> {
        let subject = subject::transcript(region, host, agent);
        let opened = async {
            let stream = bus.kept(TRANSCRIPTS).await?;
            let (first, _) = stream.bounds().await?;
            let last = stream.last::<Chunk>(&subject, Chunk::KIND).await?;
            Ok::<_, BusError>((stream, first, last))
        };
        let (stream, first, last) = opened.await.map_err(|error| cannot_read(&error))?;
        let Some(KeptMessage { sequence, body: Some(chunk), .. }) = last else { return Ok(None) };
        Ok(Some(Self {
            stream,
            subject,
            first,
            newest: sequence,
            length: end_of(&chunk),
            ended: chunk.last,
            cursor: (0, first),
        }))
    }

    /// Bytes from `offset` on, at most `max`; from a later place where those are gone.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub async fn read(&mut self, offset: u64, max: usize) -> Result<Piece, WireError> {
        let sequence = match self.cursor {
            (place, sequence) if place == offset => sequence,
            _ => self.find(offset).await?,
        };
        let (mut start, mut bytes) = (offset, Vec::new());
        let mut next = sequence;
        while bytes.len() < max && next <= self.newest {
            let Some(message) = self.chunk(next).await? else { break };
            let Some(chunk) = message.body else {
                next = message.sequence + 1;
                continue;
            };
            let wanted = start + length_of(&bytes);
            if end_of(&chunk) <= wanted {
                next = message.sequence + 1;
                continue;
            }
            if chunk.offset > wanted {
                if !bytes.is_empty() {
                    break; // a gap: the next piece begins behind it
                }
                start = chunk.offset;
            }
            let skip = usize::try_from(wanted.max(start) - chunk.offset).unwrap_or(usize::MAX);
            let rest = chunk.bytes.get(skip..).unwrap_or_default();
            let room = max - bytes.len();
            bytes.extend_from_slice(rest.get(..room).unwrap_or(rest));
            if rest.len() > room {
                break; // the same chunk again, from further on
            }
            next = message.sequence + 1;
        }
        self.cursor = (start + length_of(&bytes), next);
        Ok(Piece { offset: start, bytes, length: self.length, ended: self.ended })
    }

    /// The lowest sequence at which a chunk of this transcript ends after `offset`.
    async fn find(&self, offset: u64) -> Result<u64, WireError> {
        let (mut low, mut high) = (self.first, self.newest);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.chunk(middle).await? {
                Some(KeptMessage { sequence, body: Some(chunk), .. }) if end_of(&chunk) <= offset => {
                    low = sequence.saturating_add(1).min(high);
                }
                // One that cannot be read is passed over by the reader, not here.
                Some(KeptMessage { .. }) => high = middle,
                None => high = middle,
            }
        }
        Ok(low)
    }

    /// The offset from which on everything lies that was printed at `at_ms` or later. A chunk is stored after it was
    /// printed, and in the order of its offsets: so that is the first one that was stored since.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub async fn start_since(&self, at_ms: u64) -> Result<u64, WireError> {
        let (mut low, mut high) = (self.first, self.newest.saturating_add(1));
        while low < high {
            let middle = low + (high - low) / 2;
            match self.chunk(middle).await? {
                Some(message) if message.stored_unix_ms < at_ms => {
                    low = message.sequence.saturating_add(1).min(high);
                }
                Some(_) | None => high = middle,
            }
        }
        let Some(found) = self.chunk(low).await? else { return Ok(self.length) };
        let oldest = self.chunk(self.first).await?.map(|message| message.sequence);
        match found.body {
            // What was before it is not kept any more, so nobody knows when it was printed.
            Some(_) | None if oldest == Some(found.sequence) => Ok(0),
            Some(chunk) => Ok(chunk.offset),
            None => Ok(0),
        }
    }

    async fn chunk(&self, sequence: u64) -> Result<Option<KeptMessage<Chunk>>, WireError> {
        self.stream.next(&self.subject, Chunk::KIND, sequence).await.map_err(|error| cannot_read(&error))
    }
}

fn cannot_read(error: &BusError) -> WireError {
    unavailable(format!("the kept transcript cannot be read: {}", protocol::chain(error)))
}

/// Offset after the last byte of a chunk.
#[must_use]
pub fn end_of(chunk: &Chunk) -> u64 {
    chunk.offset.saturating_add(length_of(&chunk.bytes))
}

fn length_of(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
