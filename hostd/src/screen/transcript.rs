//! The end of a transcript, and from where in it a terminal can be drawn.
//!
//! A transcript may hold gigabytes. Only so much of its end is read; where that begins in the middle, it is begun
//! after a line's end, so that no half sequence or character is taken for text.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Sequences that switch between the two screens of a terminal (xterm's private modes).
const SWITCHES: &[&[u8]] = &[b"\x1b[?1049", b"\x1b[?1047", b"\x1b[?47"];
/// What is looked through for a line's end.
const LINE_LIMIT: usize = 64 << 10;

/// The end of a transcript.
#[derive(Debug, Default)]
pub(super) struct Tail {
    pub(super) bytes: Vec<u8>,
    /// Length of all of it.
    pub(super) length: u64,
    /// Where the program that is drawn began to print.
    begin: u64,
    /// How much at the begin of `bytes` is passed over.
    start: usize,
}

impl Tail {
    /// The last `limit` bytes after `begin`; nothing for a program that never printed.
    pub(super) fn read(path: &Path, begin: u64, limit: u64) -> io::Result<Self> {
        Self::read_to(path, begin, None, limit)
    }

    /// As it was when the transcript was only so long.
    pub(super) fn read_to(path: &Path, begin: u64, end: Option<u64>, limit: u64) -> io::Result<Self> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(error),
        };
        let written = file.metadata()?.len();
        let length = end.map_or(written, |end| end.min(written));
        let begin = begin.min(length);
        let from = length.saturating_sub(limit).max(begin);
        let mut bytes = vec![0_u8; usize::try_from(length - from).unwrap_or(usize::MAX)];
        file.read_exact_at(&mut bytes, from)?;
        let start = if from == begin { 0 } else { after_a_line(&bytes) };
        Ok(Self { bytes, length, begin, start })
    }

    /// What is drawn.
    pub(super) fn drawn(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }

    /// How much the program has printed.
    pub(super) fn printed(&self) -> u64 {
        self.length - self.begin
    }

    pub(super) fn is_whole(&self) -> bool {
        self.printed() == length_of(&self.bytes)
    }

    /// Whether the part before was left with the program's own screen on: the first switch tells, else `now`, where
    /// it is known.
    pub(super) fn begins_alternate(&self, now: Option<bool>) -> bool {
        if self.is_whole() {
            return false;
        }
        first_switch(self.drawn()).map_or_else(|| now.unwrap_or(false), |is_on| !is_on)
    }
}

pub(super) fn length_of(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

fn after_a_line(bytes: &[u8]) -> usize {
    let head = bytes.get(..LINE_LIMIT).unwrap_or(bytes);
    if let Some(at) = head.iter().position(|byte| *byte == b'\n') {
        return at + 1;
    }
    // A program that draws without lines: at the next sequence.
    head.iter().position(|byte| *byte == b'\x1b').unwrap_or(0)
}

/// Whether the first switch in `bytes` is one to the program's own screen.
fn first_switch(bytes: &[u8]) -> Option<bool> {
    let mut at = 0;
    while let Some(found) = bytes.get(at..)?.iter().position(|byte| *byte == b'\x1b') {
        at += found;
        let rest = bytes.get(at..)?;
        let after = SWITCHES.iter().find_map(|switch| rest.strip_prefix(*switch)?.first());
        match after {
            Some(b'h') => return Some(true),
            Some(b'l') => return Some(false),
            Some(_) | None => at += 1,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail(content: &[u8], limit: u64) -> Tail {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        Tail::read(file.path(), 0, limit).unwrap()
    }

    #[test]
    fn a_short_transcript_is_whole_and_a_long_one_begins_with_a_line() {
        let whole = tail(b"one\ntwo\n", 100);
        assert_eq!((whole.drawn(), whole.is_whole()), (&b"one\ntwo\n"[..], true));
        let cut = tail(b"\x1b[31mone\ntwo\nthree", 14);
        assert_eq!((cut.drawn(), cut.is_whole(), cut.length), (&b"two\nthree"[..], false, 18));
        let drawn = tail(b"xxxxxxx;5Hy\x1b[2Jz", 9);
        assert_eq!(drawn.drawn(), b"\x1b[2Jz");
        assert_eq!(Tail::read(Path::new("/no/such/file"), 0, 9).unwrap().length, 0);
    }

    #[test]
    fn what_an_earlier_program_printed_is_not_drawn() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"before> now> ").unwrap();
        let second = Tail::read(file.path(), 8, 100).unwrap();
        assert_eq!((second.drawn(), second.is_whole(), second.printed()), (&b"now> "[..], true, 5));
        assert_eq!(Tail::read(file.path(), 99, 100).unwrap().printed(), 0, "a record that says too much");
    }

    #[test]
    fn which_screen_a_cut_transcript_begins_on_is_told_by_its_first_switch() {
        let cut = |rest: &str| tail(format!("{}\n{rest}", "x".repeat(500)).as_bytes(), 100);
        assert!(cut("a\x1b[?1049lb\x1b[?1049h").begins_alternate(None));
        assert!(!cut("a\x1b[?1049hb\x1b[?1049l").begins_alternate(Some(true)));
        assert!(cut("a").begins_alternate(Some(true)));
        assert!(!cut("a").begins_alternate(None));
        assert!(!tail(b"a\x1b[?1049l", 100).begins_alternate(Some(true)), "a whole one begins with nothing");
    }
}
