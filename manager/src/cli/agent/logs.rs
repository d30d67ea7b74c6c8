//! `logs`: a transcript byte for byte, or made safe for a terminal.

use protocol::api::{Item, LogStart, Request};
use protocol::error::ErrorCode;

use super::super::args::agent::Logs;
use super::super::client::{Flow, Limits, StreamEnd};
use super::super::context::{Context, unexpected};
use super::super::error::{Failure, exit};
use super::super::output::pipe::{Stdout, say};
use super::super::output::sanitise::Sanitiser;

pub fn run(context: &Context, args: &Logs) -> Result<u8, Failure> {
    let mut client = context.client()?;
    let from = match (args.tail, args.from) {
        (Some(lines), _) => LogStart::Tail(lines),
        (None, offset) => LogStart::Offset(offset.unwrap_or(0)),
    };
    let mut transcript = Transcript::starting_at(match from {
        LogStart::Offset(offset) => Some(offset),
        LogStart::Tail(_) => None,
    });
    let mut out = Stdout::default();
    let mut sanitiser = Sanitiser::default();
    let request = Request::Logs { target: args.target.clone(), from, follow: args.follow };
    let end = client.stream(&request, &Limits::default(), |item| {
        let Item::Log { offset, bytes } = item else { return Ok(Flow::More) };
        let piece = transcript.take(offset, &bytes);
        if piece.missing > 0 {
            out.flush()?;
            say(&format!("[{} bytes from {} on are no longer kept]", piece.missing, offset - piece.missing));
        }
        if args.raw {
            out.bytes(piece.bytes)?;
        } else {
            let mut safe = String::new();
            sanitiser.push(piece.bytes, &mut safe);
            out.text(&safe)?;
        }
        if args.follow {
            out.flush()?;
        }
        Ok(Flow::More)
    })?;
    if !args.raw {
        let mut rest = String::new();
        sanitiser.finish(&mut rest);
        out.text(&rest)?;
    }
    out.done()?;
    match end {
        StreamEnd::Reply(protocol::api::Reply::Done) => Ok(exit::OK),
        StreamEnd::Reply(other) => Err(unexpected(other)),
        StreamEnd::Enough | StreamEnd::TimedOut | StreamEnd::Interrupted(_) => {
            Err(Failure::new(ErrorCode::Unavailable, "the transcript ended early"))
        }
    }
}

/// Puts pieces of a transcript in their place: overlaps are trimmed, gaps are told.
pub struct Transcript {
    next: Option<u64>,
}

/// What is new in a piece.
pub struct Piece<'a> {
    pub missing: u64,
    pub bytes: &'a [u8],
}

impl Transcript {
    /// `None`: wherever the first piece is.
    pub fn starting_at(next: Option<u64>) -> Self {
        Self { next }
    }

    pub fn take<'a>(&mut self, offset: u64, bytes: &'a [u8]) -> Piece<'a> {
        let next = self.next.unwrap_or(offset);
        let seen = usize::try_from(next.saturating_sub(offset)).unwrap_or(usize::MAX);
        let fresh = bytes.get(seen..).unwrap_or_default();
        let end = offset.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        self.next = Some(end.max(next));
        Piece { missing: offset.saturating_sub(next), bytes: fresh }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlaps_are_trimmed_and_gaps_are_told() {
        let mut transcript = Transcript::starting_at(Some(0));
        let mut take = |offset, bytes: &'static [u8]| {
            let piece = transcript.take(offset, bytes);
            (piece.missing, piece.bytes)
        };
        assert_eq!(take(0, b"abc"), (0, &b"abc"[..]));
        assert_eq!(take(1, b"bcd"), (0, &b"d"[..]));
        assert_eq!(take(0, b"ab"), (0, &b""[..]));
        assert_eq!(take(10, b"xy"), (6, &b"xy"[..]));
        assert_eq!(Transcript::starting_at(None).take(99, b"z").missing, 0);
    }
}
