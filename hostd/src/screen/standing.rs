//! Whether a text that was typed stands in a program's input line, and whether it still does after Enter. Pure but for
//! reading the transcript.
//!
//! A program shows its input line where it likes. With a visible cursor the text stands right before it; without one, the
//! last place where the text is shown counts, together with the row that follows. What was submitted is often shown
//! again further up, so a text that is merely somewhere on the screen proves nothing.

use std::io;
use std::path::Path;

use super::terminal::{Size, Style, Terminal};
use super::transcript::Tail;

/// Of a transcript's end, for one look.
const TAIL: u64 = 512 << 10;
/// So many characters of a text's last line are looked for: a program may show no more of a long one.
const LOOKED_FOR: usize = 40;

/// A text as it stands in an input line; equal to what was seen before: nothing became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The cursor's row up to the cursor.
    AtCursor(String),
    /// The row with the end of the text, and the next one that is not blank.
    InRow(String, String),
}

/// The terminal whose transcript is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Looked {
    pub size: Size,
    /// Whether the program is on a screen of its own now, where that is known.
    pub alternate: Option<bool>,
    /// Where in the transcript its program began to print, and up to where it is drawn.
    pub begin: u64,
    pub end: u64,
}

/// How `text` stands in the input line; `None` where it is not seen.
///
/// # Errors
/// A transcript that cannot be read.
pub fn standing(transcript: &Path, looked: Looked, text: &str) -> io::Result<Option<Standing>> {
    let Looked { size, alternate, begin, end } = looked;
    let tail = Tail::read_to(transcript, begin, Some(end), TAIL)?;
    let mut terminal = Terminal::new(size, 0).map_err(io::Error::other)?;
    if tail.begins_alternate(alternate) {
        terminal.feed(b"\x1b[?1049h");
    }
    terminal.feed(tail.drawn());
    Ok(on(&terminal, text))
}

fn on(terminal: &Terminal, text: &str) -> Option<Standing> {
    let looked_for = end_of(text)?;
    let lines = terminal.lines(Style::Plain);
    if let Some(cursor) = terminal.cursor() {
        let before = terminal.before_cursor();
        let above = lines.get(..usize::from(cursor.row)).unwrap_or_default();
        let flat: String = above.iter().map(|line| bare(line)).collect::<String>() + &bare(&before);
        if !bare(&before).is_empty() && flat.ends_with(&looked_for) {
            return Some(Standing::AtCursor(bare(&before)));
        }
    }
    let mut flat = String::new();
    let mut ends = Vec::new();
    for line in &lines {
        flat.push_str(&bare(line));
        ends.push(flat.len());
    }
    let end = flat.rfind(&looked_for)? + looked_for.len();
    let row = ends.iter().position(|at| *at >= end)?;
    let next = lines.iter().skip(row + 1).find(|line| !line.is_empty());
    Some(Standing::InRow(lines.get(row)?.clone(), next.cloned().unwrap_or_default()))
}

/// The end of the last line that is not blank, as it is compared.
fn end_of(text: &str) -> Option<String> {
    let line = text.lines().rev().map(bare).find(|line| !line.is_empty())?;
    let skipped = line.chars().count().saturating_sub(LOOKED_FOR);
    Some(line.chars().skip(skipped).collect())
}

/// Without blanks and the lines of a box, which break a text where the program likes.
fn bare(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace() && !('\u{2500}'..='\u{257f}').contains(c)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(bytes: &str, text: &str) -> Option<Standing> {
        let mut terminal = Terminal::new(Size::new(8, 20), 0).unwrap();
        terminal.feed(bytes.as_bytes());
        on(&terminal, text)
    }

    fn at_cursor(row: &str) -> Option<Standing> {
        Some(Standing::AtCursor(row.to_owned()))
    }

    #[test]
    fn a_text_stands_before_the_cursor_until_its_row_is_left() {
        assert_eq!(seen("$ sleep 5", "sleep 5"), at_cursor("$sleep5"));
        let run = seen("$ sleep 5\r\n", "sleep 5");
        assert_ne!(run, at_cursor("$sleep5"), "it runs");
        let again = seen("$ sleep 5\r\n$ ", "sleep 5");
        assert_ne!(again, at_cursor("$sleep5"), "it has run");
    }

    #[test]
    fn more_than_the_text_is_not_the_text() {
        assert_eq!(seen("> go on", "go on"), at_cursor(">goon"));
        let joined = seen("> go on, and more", "go on");
        assert!(!matches!(joined, Some(Standing::AtCursor(_))), "{joined:?}");
    }

    #[test]
    fn a_text_that_is_wrapped_or_has_several_lines_stands_by_its_end() {
        let long = "a text that is much longer than one row";
        assert!(matches!(seen(&format!("> {long}"), long), Some(Standing::AtCursor(_))));
        assert!(matches!(seen("> one\r\n  two", "one\ntwo\n"), Some(Standing::AtCursor(_))));
    }

    #[test]
    fn in_a_box_without_a_cursor_the_last_place_counts_with_what_follows_it() {
        let boxed = "\x1b[?25l╭────╮\r\n│ > go on │\r\n╰────╯\r\n  ? for help";
        let before = seen(boxed, "go on");
        assert_eq!(before, Some(Standing::InRow("│ > go on │".into(), "╰────╯".into())));
        let sent = "\x1b[?25l> go on\r\n\r\n* Working\r\n╭────╮\r\n│ >    │\r\n╰────╯";
        assert_ne!(seen(sent, "go on"), before);
    }

    #[test]
    fn what_is_not_shown_is_not_seen() {
        assert_eq!(seen("> [Pasted text +20 lines]", "one\ntwo"), None);
        assert_eq!(seen("", "x"), None);
        assert_eq!(seen("x", " \n "), None);
    }
}
