//! What an agent printed, by offset: from its host while that can be asked, else from what the bus keeps of it.

use std::time::Duration;

use protocol::error::{ErrorCode, WireError};
use protocol::ids::{AgentId, HostId, Region};
use protocol::order::{Answer, Question};
use protocol::time::Timestamp;
use tokio::time::Instant;

use super::kept::KeptTranscript;
use crate::hosts::{Hosts, QUICK};

/// Largest piece asked of a host at once: fits into one frame with room.
pub const PIECE: usize = 512 << 10;
/// After a host did not answer: until it is asked again.
const HOST_PAUSE: Duration = Duration::from_secs(3);
/// Read at once when looking for the beginning of the last lines.
const WINDOW: u64 = 64 << 10;
/// Bytes that are searched for the beginning of the last lines.
const TAIL_LIMIT: u64 = 512 << 20;

/// A stretch of a transcript.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Of the first byte: later than asked for where bytes are gone.
    pub offset: u64,
    pub bytes: Vec<u8>,
    /// Of the whole transcript, as far as known.
    pub length: u64,
    /// Nothing is added any more.
    pub ended: bool,
}

impl Piece {
    /// Offset after its last byte.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(u64::try_from(self.bytes.len()).unwrap_or(u64::MAX))
    }
}

/// Whose transcript.
#[derive(Clone, Debug)]
pub struct Place {
    pub region: Region,
    pub host: HostId,
    pub agent: AgentId,
}

/// Reads one transcript.
pub struct Transcript {
    hosts: Hosts,
    place: Place,
    kept: Option<KeptTranscript>,
    host_again_at: Option<Instant>,
    /// The greatest length that its host or the bus has told.
    known_length: u64,
}

impl Transcript {
    #[must_use]
    pub fn new(hosts: Hosts, place: Place) -> Self {
        Self { hosts, place, kept: None, host_again_at: None, known_length: 0 }
    }

    /// Bytes from `offset` on, at most `max` (and at most [`PIECE`]).
    ///
    /// # Errors
    /// The host's refusal, or `Unavailable` when neither host nor bus can be asked.
    pub async fn read(&mut self, offset: u64, max: usize) -> Result<Piece, WireError> {
        let piece = self.read_somewhere(offset, max).await?;
        self.known_length = self.known_length.max(piece.length);
        Ok(piece)
    }

    /// How long it is at least, by all that was read so far.
    #[must_use]
    pub fn known_length(&self) -> u64 {
        self.known_length
    }

    async fn read_somewhere(&mut self, offset: u64, max: usize) -> Result<Piece, WireError> {
        let max = max.min(PIECE);
        if self.host_again_at.is_none_or(|at| at <= Instant::now()) {
            match self.read_host(offset, max).await {
                Ok(piece) => {
                    self.host_again_at = None;
                    self.kept = None;
                    return Ok(piece);
                }
                // The host has forgotten it, or cannot be asked: the replica may still have it.
                Err(error) if matches!(error.code, ErrorCode::Unavailable | ErrorCode::NotFound) => {
                    self.host_again_at = Some(Instant::now() + HOST_PAUSE);
                    return match self.read_kept(offset, max).await {
                        Ok(Some(piece)) => Ok(piece),
                        Ok(None) | Err(_) => Err(error),
                    };
                }
                Err(error) => return Err(error),
            }
        }
        match self.read_kept(offset, max).await? {
            Some(piece) => Ok(piece),
            None => self.read_host(offset, max).await,
        }
    }

    async fn read_host(&self, offset: u64, max: usize) -> Result<Piece, WireError> {
        let agent = self.place.agent;
        let max = u64::try_from(max).unwrap_or(u64::MAX);
        let question = Question::Read { agent, offset, max };
        match self.hosts.ask_once(&self.place.host, question, QUICK).await? {
            Answer::Bytes { offset, length, bytes, ended } => Ok(Piece { offset, bytes, length, ended }),
            Answer::Done => Ok(Piece { offset, bytes: Vec::new(), length: offset, ended: false }),
            Answer::Resolved(_)
            | Answer::Output { .. }
            | Answer::Exited { .. }
            | Answer::Landed { .. }
            | Answer::Diff { .. }
            | Answer::Snapshots(_)
            | Answer::Restored(_)
            | Answer::Screen(_)
            | Answer::Compared(_)
            | Answer::Changed(_)
            | Answer::File { .. }
            | Answer::Files(_)
            | Answer::FilePart(_)
            | Answer::Holdings(_)
            | Answer::Figures(_)
            | Answer::Taken(_)
            | Answer::Freed(_)
            | Answer::MergeTarget(_)
            | Answer::MergeResult(_)
            | Answer::Refused(_) => {
                let host = &self.place.host;
                Err(WireError::new(ErrorCode::Failed, format!("host {host} gave another answer than bytes")))
            }
        }
    }

    /// What the stream has now; opened anew once all of it was read, since it may have got more.
    async fn read_kept(&mut self, offset: u64, max: usize) -> Result<Option<Piece>, WireError> {
        if let Some(kept) = &mut self.kept {
            let piece = kept.read(offset, max).await?;
            if !piece.bytes.is_empty() {
                return Ok(Some(piece));
            }
        }
        let Place { region, host, agent } = &self.place;
        self.kept = KeptTranscript::open(&self.hosts.bus, region, host, agent).await?;
        match &mut self.kept {
            Some(kept) => kept.read(offset, max).await.map(Some),
            None => Ok(None),
        }
    }

    /// Where the last `lines` lines begin, looking back from the end of what there is; a last line without an end
    /// counts as one.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub async fn start_of_tail(&mut self, lines: u64) -> Result<u64, WireError> {
        let end = self.read(u64::MAX, 1).await?.length;
        if lines == 0 {
            return Ok(end);
        }
        let lowest = end.saturating_sub(TAIL_LIMIT);
        let mut finder = TailFinder::new(lines);
        let mut high = end;
        while high > lowest {
            let low = high.saturating_sub(WINDOW).max(lowest);
            let window = self.read_window(low, high).await?;
            if let Some(start) = finder.look_back(&window) {
                return Ok(start);
            }
            if window.offset > low {
                return Ok(window.offset); // what is before is gone
            }
            high = low;
        }
        Ok(lowest)
    }

    /// Where everything begins that was printed at `at` or later, and what its piece has before. The clock is the
    /// bus's: what it does not keep yet is new, and what it does not keep any more may be, so that the whole is shown.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub async fn start_since(&mut self, at: Timestamp) -> Result<u64, WireError> {
        let Place { region, host, agent } = &self.place;
        match KeptTranscript::open(&self.hosts.bus, region, host, agent).await? {
            Some(kept) => kept.start_since(at.0).await,
            None => Ok(0),
        }
    }

    /// The bytes from `low` to `high`, in as many reads as it takes.
    async fn read_window(&mut self, low: u64, high: u64) -> Result<Piece, WireError> {
        let mut window = self.read(low, to_usize(high - low)).await?;
        while window.end() < high {
            let more = self.read(window.end(), to_usize(high - window.end())).await?;
            if more.bytes.is_empty() {
                break;
            }
            if more.offset > window.end() {
                window = more; // only what is behind a gap belongs to the end
            } else {
                window.bytes.extend_from_slice(&more.bytes);
            }
        }
        let wanted = to_usize(high.saturating_sub(window.offset));
        window.bytes.truncate(wanted);
        Ok(window)
    }
}

fn to_usize(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// Counts line ends backwards, window by window.
struct TailFinder {
    lines: u64,
    /// Line ends seen, without one that is the very last byte.
    seen: u64,
    at_end: bool,
}

impl TailFinder {
    fn new(lines: u64) -> Self {
        Self { lines, seen: 0, at_end: true }
    }

    fn look_back(&mut self, window: &Piece) -> Option<u64> {
        for (place, byte) in window.bytes.iter().enumerate().rev() {
            let is_last = std::mem::take(&mut self.at_end);
            if *byte == b'\n' && !is_last {
                self.seen += 1;
                if self.seen == self.lines {
                    let place = u64::try_from(place).unwrap_or(u64::MAX);
                    return Some(window.offset.saturating_add(place).saturating_add(1));
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(text: &str, lines: u64, window: usize) -> u64 {
        let bytes = text.as_bytes();
        let mut finder = TailFinder::new(lines);
        let mut high = bytes.len();
        while high > 0 {
            let low = high.saturating_sub(window);
            let piece = Piece {
                offset: low.try_into().unwrap(),
                bytes: bytes[low..high].to_vec(),
                length: bytes.len().try_into().unwrap(),
                ended: true,
            };
            if let Some(start) = finder.look_back(&piece) {
                return start;
            }
            high = low;
        }
        0
    }

    #[test]
    fn the_last_lines_begin_after_the_line_end_before_them() {
        for window in [1, 2, 3, 100] {
            assert_eq!(start("a\nb\nc\n", 1, window), 4, "window {window}");
            assert_eq!(start("a\nb\nc", 1, window), 4, "an open last line is a line");
            assert_eq!(start("a\nb\nc\n", 2, window), 2);
            assert_eq!(start("a\nb\nc\n", 3, window), 0);
            assert_eq!(start("a\nb\nc\n", 9, window), 0);
            assert_eq!(start("\n\n\n", 2, window), 1);
            assert_eq!(start("", 2, window), 0);
        }
    }
}
