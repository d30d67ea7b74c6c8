//! Lines of a terminal that are drawn again in place. Whatever the size of the terminal, nothing that is drawn is wider
//! or higher than it, so that the place of the first line stays known.

use std::time::{Duration, Instant};

use unicode_width::UnicodeWidthChar;

use super::super::error::Failure;
use super::pipe::Stdout;

/// Between two drawings, however much changes meanwhile.
const PACE: Duration = Duration::from_millis(200);
/// Ages grow while nothing else happens.
const LONGEST_STILL: Duration = Duration::from_secs(1);

/// Columns and rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub columns: usize,
    pub rows: usize,
}

impl Size {
    /// Of the terminal at stdout; what does not say its size is taken as an old one.
    fn of_stdout() -> Self {
        let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok();
        let size = size.filter(|size| size.ws_col > 0 && size.ws_row > 0);
        size.map_or(Self { columns: 80, rows: 24 }, |size| Self {
            columns: usize::from(size.ws_col),
            rows: usize::from(size.ws_row),
        })
    }
}

/// What fits: lines cut at the last column but one, where no terminal wraps, and the number of those left out instead
/// of them.
pub fn frame(lines: &[String], size: Size) -> Vec<String> {
    let columns = size.columns.saturating_sub(1).max(1);
    let fits = lines.len() <= size.rows;
    let shown = if fits { lines.len() } else { size.rows.saturating_sub(1) };
    let mut frame: Vec<String> = lines.iter().take(shown).map(|line| cut(line, columns)).collect();
    if !fits {
        frame.push(cut(&format!("… {} more", lines.len() - shown), columns));
    }
    frame
}

fn cut(line: &str, columns: usize) -> String {
    let mut width = 0;
    let within = |letter: &char| {
        width += letter.width().unwrap_or(0);
        width <= columns
    };
    line.chars().take_while(within).collect()
}

/// When it was drawn last, and what.
#[derive(Default)]
pub struct Redraw {
    drawn: Vec<String>,
    drawn_at: Option<Instant>,
    /// Something is different from what is drawn.
    due: bool,
}

impl Redraw {
    pub fn changed(&mut self) {
        self.due = true;
    }

    /// When to look again.
    pub fn deadline(&self) -> Option<Instant> {
        let pause = if self.due { PACE } else { LONGEST_STILL };
        self.drawn_at.map(|at| at + pause)
    }

    pub fn is_due(&self) -> bool {
        self.deadline().is_none_or(|deadline| deadline <= Instant::now())
    }

    /// Draws in the place of what was drawn before.
    pub fn draw(&mut self, out: &mut Stdout, lines: &[String]) -> Result<(), Failure> {
        let frame = frame(lines, Size::of_stdout());
        (self.drawn_at, self.due) = (Some(Instant::now()), false);
        if frame == self.drawn {
            return Ok(());
        }
        out.text(&over(self.drawn.len(), &frame))?;
        self.drawn = frame;
        out.flush()
    }

    /// The terminal has another size, or something else was on it: it is begun anew at its top.
    pub fn anew(&mut self, out: &mut Stdout) -> Result<(), Failure> {
        (self.drawn, self.due) = (Vec::new(), true);
        out.text("\x1b[H\x1b[2J")
    }

    /// Leaves what is drawn, with the cursor below it.
    pub fn end(self, out: &mut Stdout) -> Result<(), Failure> {
        if self.drawn.is_empty() { Ok(()) } else { out.text("\r\n") }
    }
}

/// The bytes that replace `before` lines, at whose last one the cursor is, by others.
fn over(before: usize, lines: &[String]) -> String {
    let mut text = String::from("\r");
    if before > 1 {
        text.push_str(&format!("\x1b[{}A", before - 1));
    }
    for (place, line) in lines.iter().enumerate() {
        if place > 0 {
            text.push_str("\r\n");
        }
        text.push_str(line);
        text.push_str("\x1b[K");
    }
    text.push_str("\x1b[J");
    text
}

#[cfg(test)]
mod tests {
    use unicode_width::UnicodeWidthStr;

    use super::*;

    #[test]
    fn nothing_is_wider_or_higher_than_the_terminal_whatever_its_size() {
        let lines: Vec<String> = (0..40)
            .map(|n| format!("名前{n} {}", "e\u{301}x".repeat(n * 3)))
            .chain([String::new()])
            .collect();
        for columns in 0..130 {
            for rows in 0..60 {
                let frame = frame(&lines, Size { columns, rows });
                assert!(frame.len() <= rows.max(1), "{columns}x{rows}");
                assert!(frame.iter().all(|line| line.width() <= columns.saturating_sub(1).max(1)));
            }
        }
        let whole = frame(&lines, Size { columns: 1000, rows: 41 });
        assert_eq!(whole, lines);
        let cut = frame(&lines, Size { columns: 1000, rows: 10 });
        assert_eq!((cut.len(), cut[9].as_str()), (10, "… 32 more"));
    }

    #[test]
    fn a_drawing_goes_back_to_the_first_line_of_the_one_before_and_clears_what_is_below_its_own() {
        let lines = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
        assert_eq!(over(0, &lines(&["a", "b"])), "\ra\x1b[K\r\nb\x1b[K\x1b[J");
        assert_eq!(over(1, &lines(&["a"])), "\ra\x1b[K\x1b[J");
        assert_eq!(over(3, &lines(&["a"])), "\r\x1b[2Aa\x1b[K\x1b[J");
    }
}
