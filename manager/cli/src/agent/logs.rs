//! Pieces of a transcript in their place. Showing them is `watch/logs.rs`'s.

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
