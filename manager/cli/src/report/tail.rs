//! The end of a transcript as text for a page: the last lines, no escape sequences. Pure.

use crate::output::sanitise::safe_text;

const LINES: usize = 200;
/// However long its lines are, a page stays readable.
const BYTES: usize = 64 << 10;

/// The last [`LINES`] lines, at most [`BYTES`] bytes.
pub(super) fn of(transcript: &[u8]) -> String {
    // Escape sequences go, so more is looked at than is shown.
    let from = transcript.len().saturating_sub(4 * BYTES);
    let recent = transcript.get(from..).unwrap_or_default();
    let whole_lines = match (from, recent.iter().position(|byte| *byte == b'\n')) {
        (0, _) | (_, None) => recent,
        (_, Some(end)) => recent.get(end + 1..).unwrap_or_default(),
    };
    let text = safe_text(whole_lines);
    let text = text.trim_end();
    let lines = text.rmatch_indices('\n').nth(LINES - 1).map_or(0, |(place, _)| place + 1);
    let mut from = lines.max(text.len().saturating_sub(BYTES));
    while !text.is_char_boundary(from) {
        from += 1;
    }
    text.get(from..).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_200_lines_are_kept_and_escapes_are_not() {
        let whole: String = (1..=500).map(|n| format!("\x1b[32mline {n}\x1b[0m\r\n")).collect();
        let tail = of(whole.as_bytes());
        assert_eq!(tail.lines().count(), 200);
        assert!(tail.starts_with("line 301\n") && tail.ends_with("line 500"), "{tail}");
        assert_eq!(of(b""), "");
        assert_eq!(of(b"one"), "one");
    }

    #[test]
    fn one_endless_line_is_cut_at_a_character() {
        let tail = of("é".repeat(500_000).as_bytes());
        assert!(tail.len() <= BYTES && tail.ends_with('é'));
    }
}
