//! One screen, rendered for someone who asks: from how a terminal of that size would stand after the transcript.

use std::path::Path;
use std::time::UNIX_EPOCH;

use protocol::screen::ScreenView;
use protocol::time::Timestamp;

use super::terminal::{Size, Style, Terminal};
use super::transcript::{Tail, length_of};
use crate::clock;

/// So much of a transcript's end is rendered: some tenths of a second of one core.
const TAIL: u64 = 4 << 20;
/// Lines above the screen at most.
const HISTORY_MAX: u32 = 10_000;
/// Text of one answer, below what a message may hold.
const TEXT_MAX: usize = 600 << 10;

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Capture {
    pub size: Size,
    /// Whether the program is on a screen of its own now, where that is known.
    pub alternate: Option<bool>,
    pub history: u32,
    pub colours: bool,
    pub ended: bool,
    /// Where in the transcript its program began to print.
    pub begin: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    #[error("cannot read the transcript")]
    Read(#[source] std::io::Error),
    #[error("no terminal has this size")]
    Size(#[from] avt::InvalidSize),
}

/// Renders; for a thread that may take its time.
///
/// # Errors
/// A transcript that cannot be read. One that is not there is an empty screen.
pub fn capture(transcript: &Path, asked: Capture) -> Result<ScreenView, CaptureError> {
    let history = usize::try_from(asked.history.min(HISTORY_MAX)).unwrap_or(0);
    let as_of = clock::now();
    let tail = Tail::read(transcript, asked.begin, TAIL).map_err(CaptureError::Read)?;
    let mut terminal = Terminal::new(asked.size, history)?;
    if tail.begins_alternate(asked.alternate) {
        terminal.feed(b"\x1b[?1049h");
    }
    terminal.feed(tail.drawn());
    let (lines, history) = texts(&terminal, history, asked.colours);
    let rendered = if tail.is_whole() { tail.printed() } else { length_of(tail.drawn()) };
    Ok(ScreenView {
        rows: asked.size.rows(),
        cols: asked.size.cols(),
        cursor: terminal.cursor(),
        lines,
        history,
        title: terminal.title().to_owned(),
        alternate: terminal.is_alternate(),
        as_of,
        last_output: written_at(transcript).filter(|_| tail.printed() > 0),
        transcript_bytes: tail.printed(),
        rendered_bytes: rendered,
        ended: asked.ended,
    })
}

/// Lines and history that fit an answer: colours are left out first, then the oldest history.
fn texts(terminal: &Terminal, history: usize, colours: bool) -> (Vec<String>, Vec<String>) {
    let style = if colours { Style::Coloured } else { Style::Plain };
    let size = |lines: &[String]| lines.iter().map(|line| line.len() + 4).sum::<usize>();
    let (mut style, mut lines) = (style, terminal.lines(style));
    if size(&lines) > TEXT_MAX {
        (style, lines) = (Style::Plain, terminal.lines(Style::Plain));
    }
    if size(&lines) > TEXT_MAX {
        // The largest screen, full of wide characters: each row is cut, and shows it.
        let room = TEXT_MAX.checked_div(lines.len()).unwrap_or(0).saturating_sub(8);
        lines = lines.into_iter().map(|line| cut(line, room)).collect();
    }
    let room = TEXT_MAX.saturating_sub(size(&lines));
    let mut above = terminal.history(history, style);
    let mut taken = 0;
    let fits = above.iter().rev().take_while(|line| {
        taken += line.len() + 4;
        taken <= room
    });
    let fits = fits.count();
    above.drain(..above.len().saturating_sub(fits));
    (lines, above)
}

fn cut(mut line: String, room: usize) -> String {
    if line.len() > room {
        line.truncate(line.floor_char_boundary(room));
        line.push('…');
    }
    line
}

fn written_at(transcript: &Path) -> Option<Timestamp> {
    let modified = std::fs::metadata(transcript).ok()?.modified().ok()?;
    u64::try_from(modified.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok().map(Timestamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(content: &[u8], history: u32) -> ScreenView {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        let asked = Capture {
            size: Size::new(5, 40),
            alternate: None,
            history,
            colours: false,
            ended: false,
            begin: 0,
        };
        capture(file.path(), asked).unwrap()
    }

    #[test]
    fn a_huge_transcript_is_rendered_from_its_end_and_says_so() {
        let mut content = b"\x1b[31m".to_vec();
        for line in 0..1_000_000 {
            content.extend_from_slice(format!("line {line:07}\r\n").as_bytes());
        }
        let view = of(&content, 3);
        assert_eq!(view.lines, ["line 0999996", "line 0999997", "line 0999998", "line 0999999", ""]);
        assert_eq!(view.history, ["line 0999993", "line 0999994", "line 0999995"]);
        assert_eq!(view.transcript_bytes, length_of(&content));
        assert!(view.rendered_bytes <= TAIL && view.rendered_bytes > TAIL - 100, "{}", view.rendered_bytes);
        assert_eq!(view.cursor.map(|cursor| (cursor.row, cursor.col)), Some((4, 0)));
    }

    #[test]
    fn a_program_that_drew_its_own_screen_before_the_tail_is_still_on_it() {
        let content = [b"\x1b[?1049h".to_vec(), b"\x1b[H\x1b[2Jframe\r\n".repeat(400_000)].concat();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        let asked = Capture {
            size: Size::new(5, 40),
            alternate: Some(true),
            history: 10,
            colours: false,
            ended: false,
            begin: 0,
        };
        let view = capture(file.path(), asked).unwrap();
        assert!(view.alternate && view.history.is_empty());
        assert_eq!(view.lines[0], "frame");
    }

    #[test]
    fn an_answer_fits_a_message() {
        let asked = Capture {
            size: Size::new(u16::MAX, u16::MAX),
            alternate: None,
            history: u32::MAX,
            colours: true,
            ended: false,
            begin: 0,
        };
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut content = String::new();
        for n in 0..400_000 {
            content.push_str(&format!("\x1b[38;2;{};{};7m名", n % 256, n / 256 % 256));
        }
        std::fs::write(file.path(), content).unwrap();
        let view = capture(file.path(), asked).unwrap();
        let bytes: usize = view.lines.iter().chain(&view.history).map(String::len).sum();
        assert!(bytes <= TEXT_MAX && bytes > 100_000, "{bytes}");
    }

    #[test]
    fn one_that_never_printed_has_an_empty_screen() {
        let view = of(b"", 0);
        assert_eq!((view.lines.len(), view.last_output, view.title.as_str()), (5, None, ""));
    }
}
