//! Output that is shown a second time: from a line start, and without the questions a terminal would answer, since
//! the answers would reach the program as if they had been typed.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Most of the earlier output a viewer is shown.
pub(crate) const TAIL_BYTES: u64 = 32 * 1024;

/// The last output, beginning with a whole line where it is not all of it.
pub(crate) fn tail(file: &File, len: u64) -> io::Result<Vec<u8>> {
    let start = len.saturating_sub(TAIL_BYTES);
    let mut bytes = vec![0; usize::try_from(len - start).unwrap_or(0)];
    file.read_exact_at(&mut bytes, start)?;
    if start > 0
        && let Some(newline) = bytes.iter().position(|&byte| byte == b'\n')
    {
        bytes.drain(..=newline);
    }
    Ok(scrub(&bytes))
}

/// Without questions (ECMA-48 and xterm's control sequences that are answered), bells, and strings for the terminal
/// itself. A sequence cut off at the end is dropped.
pub(crate) fn scrub(bytes: &[u8]) -> Vec<u8> {
    let mut kept = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&first, after)) = rest.split_first() {
        let length = match (first, after.first()) {
            (0x1b, Some(b'[')) => control_sequence(rest),
            // Strings: OSC (titles, colours asked), DCS, SOS, PM, APC.
            (0x1b, Some(b']' | b'P' | b'X' | b'^' | b'_')) => Piece::Dropped(string_length(rest)),
            // DECID; a lone escape at the end.
            (0x1b, Some(b'Z')) => Piece::Dropped(2),
            (0x1b, None) => Piece::Dropped(1),
            // ENQ is answered, BEL is heard.
            (0x05 | 0x07, _) => Piece::Dropped(1),
            _ => Piece::Kept(1),
        };
        let (count, keep) = match length {
            Piece::Kept(count) => (count, true),
            Piece::Dropped(count) => (count, false),
        };
        let (piece, later) = rest.split_at_checked(count).unwrap_or((rest, &[]));
        if keep {
            kept.extend_from_slice(piece);
        }
        rest = later;
    }
    kept
}

enum Piece {
    Kept(usize),
    Dropped(usize),
}

fn control_sequence(bytes: &[u8]) -> Piece {
    let body = bytes.get(2..).unwrap_or_default();
    let Some(end) = body.iter().position(|byte| !(0x20..=0x3f).contains(byte)) else {
        return Piece::Dropped(bytes.len());
    };
    let (inner, last) = (body.get(..end).unwrap_or_default(), body.get(end).copied().unwrap_or(0));
    let private = inner.first().copied().unwrap_or(0);
    let middle = inner.last().copied().unwrap_or(0);
    let question = match last {
        // Device attributes, status and window reports, terminal parameters.
        b'c' | b'n' | b't' | b'x' => true,
        // XTVERSION; DECRQM; keyboard protocol; DECRQPSR; checksum of an area.
        b'q' => private == b'>',
        b'p' => middle == b'$',
        b'u' => private == b'?',
        b'w' => middle == b'$' || middle == b'\'',
        b'y' => middle == b'*',
        _ => false,
    };
    let length = end + 3;
    if question { Piece::Dropped(length) } else { Piece::Kept(length) }
}

/// Up to and with BEL or ST; all of the rest when neither comes.
fn string_length(bytes: &[u8]) -> usize {
    let mut at = 2;
    while let Some(&byte) = bytes.get(at) {
        match (byte, bytes.get(at + 1)) {
            (0x07, _) => return at + 1,
            (0x1b, Some(b'\\')) => return at + 2,
            // Another sequence breaks the string off.
            (0x1b, Some(_)) => return at,
            _ => at += 1,
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn questions_are_taken_out_and_the_rest_stays() {
        let shown = scrub(b"a\x1b[6nb\x1b[>0qc\x1b]11;?\x07d\x1b[?2026$pe\x1bP+q544e\x1b\\f\x1b[31mg\x1b[?uh\x05\x07i\x1b[c");
        assert_eq!(shown, b"abcdef\x1b[31mghi");
    }

    #[test]
    fn a_cut_sequence_at_the_end_is_dropped() {
        for cut in [b"x\x1b".as_slice(), b"x\x1b[", b"x\x1b[3", b"x\x1b]0;title"] {
            assert_eq!(scrub(cut), b"x");
        }
    }

    #[test]
    fn a_tail_begins_with_a_whole_line() {
        let mut file = tempfile::tempfile().unwrap();
        let text: String = (0..10_000).map(|line| format!("line {line}\n")).collect();
        io::Write::write_all(&mut file, text.as_bytes()).unwrap();
        let shown = String::from_utf8(tail(&file, text.len() as u64).unwrap()).unwrap();
        assert!(shown.starts_with("line ") && text.ends_with(&shown));
        assert!(shown.len() > 32_000 && shown.len() <= 32 * 1024);
        assert_eq!(tail(&file, 7).unwrap(), b"line 0\n");
    }

    proptest! {
        #[test]
        fn any_bytes_are_scrubbed_and_text_is_left_as_it_is(bytes: Vec<u8>, text in "[ -~\u{a1}-\u{ffff}\r\n]*") {
            prop_assert!(scrub(&bytes).len() <= bytes.len());
            prop_assert_eq!(scrub(text.as_bytes()), text.as_bytes());
        }
    }
}
