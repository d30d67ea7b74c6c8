//! A terminal without a window: bytes of a program in, the screen that they draw out. The emulator is `avt`'s.

use protocol::screen::{COLS_MAX, CursorPlace, ROWS_MAX};

use super::colours;
use super::title::Title;

/// Where nothing says how large the terminal is.
const ROWS: u16 = 40;
const COLS: u16 = 120;

/// Rows and columns, each from 1 to a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    rows: u16,
    cols: u16,
}

impl Default for Size {
    fn default() -> Self {
        Self { rows: ROWS, cols: COLS }
    }
}

impl Size {
    /// What is beyond the bounds is cut; zeros, which nobody looks at, are the size that programs are started with.
    #[must_use]
    pub fn new(rows: u16, cols: u16) -> Self {
        if rows == 0 || cols == 0 {
            return Self::default();
        }
        Self { rows: rows.min(ROWS_MAX), cols: cols.min(COLS_MAX) }
    }

    #[must_use]
    pub fn rows(self) -> u16 {
        self.rows
    }

    #[must_use]
    pub fn cols(self) -> u16 {
        self.cols
    }
}

/// How lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Plain,
    /// With SGR sequences.
    Coloured,
}

pub struct Terminal {
    emulator: avt::Terminal,
    size: Size,
    title: Title,
    /// Bytes of a character whose rest has not come.
    partial: Vec<u8>,
}

impl std::fmt::Debug for Terminal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Terminal").field("size", &self.size).finish_non_exhaustive()
    }
}

impl Terminal {
    /// An empty one that keeps so many lines that scroll off.
    ///
    /// # Errors
    /// None for a [`Size`], which has rows and columns.
    pub fn new(size: Size, history: usize) -> Result<Self, avt::InvalidSize> {
        let emulator =
            avt::Terminal::with_scrollback(usize::from(size.cols), usize::from(size.rows), Some(history))?;
        Ok(Self { emulator, size, title: Title::default(), partial: Vec::new() })
    }

    #[must_use]
    pub fn size(&self) -> Size {
        self.size
    }

    /// Takes output, cut anywhere; what is no UTF-8 is shown as U+FFFD.
    pub fn feed(&mut self, bytes: &[u8]) {
        let joined;
        let mut rest = if self.partial.is_empty() {
            bytes
        } else {
            joined = [std::mem::take(&mut self.partial).as_slice(), bytes].concat();
            joined.as_slice()
        };
        loop {
            match std::str::from_utf8(rest) {
                Ok(text) => return self.text(text),
                Err(error) => {
                    let (good, bad) = rest.split_at_checked(error.valid_up_to()).unwrap_or((&[], rest));
                    if let Ok(text) = std::str::from_utf8(good) {
                        self.text(text);
                    }
                    let Some(length) = error.error_len() else {
                        self.partial = bad.to_vec();
                        return;
                    };
                    self.text("\u{fffd}");
                    rest = bad.get(length..).unwrap_or_default();
                }
            }
        }
    }

    fn text(&mut self, text: &str) {
        text.chars().for_each(|c| self.title.push(c));
        self.emulator.feed(text);
    }

    #[must_use]
    pub fn title(&self) -> &str {
        self.title.text()
    }

    #[must_use]
    pub fn is_alternate(&self) -> bool {
        self.emulator.active_screen_kind() == avt::ScreenKind::Alternate
    }

    /// `None` while the program hides it.
    #[must_use]
    pub fn cursor(&self) -> Option<CursorPlace> {
        self.emulator.cursor().visible.then(|| self.place())
    }

    /// Where the next character goes, shown or not; within the screen.
    #[must_use]
    pub fn place(&self) -> CursorPlace {
        let cursor = self.emulator.cursor();
        let within = |at: usize, end: u16| u16::try_from(at).unwrap_or(end).min(end.saturating_sub(1));
        CursorPlace { row: within(cursor.row, self.size.rows), col: within(cursor.col, self.size.cols) }
    }

    /// The rows of the screen, top first, without the blanks at their ends.
    #[must_use]
    pub fn lines(&self, style: Style) -> Vec<String> {
        self.emulator.screen().visible_lines().map(|line| written(line, style)).collect()
    }

    /// The last `count` lines that scrolled off, oldest first. A screen that a program draws itself has none.
    #[must_use]
    pub fn history(&self, count: usize, style: Style) -> Vec<String> {
        if self.is_alternate() {
            return Vec::new();
        }
        let screen = self.emulator.screen();
        let above = screen.all_lines().count().saturating_sub(usize::from(self.size.rows));
        screen.all_lines().take(above).skip(above.saturating_sub(count)).map(|l| written(l, style)).collect()
    }

    /// What stands in a row before the cursor, and in it.
    #[must_use]
    pub fn before_cursor(&self) -> String {
        let CursorPlace { row, col } = self.place();
        let line = self.emulator.screen().line(usize::from(row));
        let cells = line.map(avt::Line::cells).unwrap_or_default();
        // A cursor that waits behind the last column stands after all of the row.
        let end = if self.emulator.cursor().col > usize::from(col) { cells.len() } else { usize::from(col) };
        cells.iter().take(end).filter(|cell| cell.width() > 0).map(|cell| visible(cell.char())).collect()
    }
}

fn written(line: &avt::Line, style: Style) -> String {
    match style {
        Style::Plain => {
            let mut text: String = line.chars().map(visible).collect();
            text.truncate(text.trim_end().len());
            text
        }
        Style::Coloured => colours::line(line),
    }
}

/// A cell holds a character to look at, never one that acts.
pub(super) fn visible(c: char) -> char {
    if c.is_control() { ' ' } else { c }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(rows: u16, cols: u16, pieces: &[&[u8]]) -> Terminal {
        let mut terminal = Terminal::new(Size::new(rows, cols), 100).unwrap();
        pieces.iter().for_each(|piece| terminal.feed(piece));
        terminal
    }

    #[test]
    fn words_split_by_cursor_moves_and_writes_are_whole_on_the_screen() {
        let bytes = b"Yes,\x1b[CI\x1b[Ctrust \xe5\x90\x8d";
        let whole = shown(3, 40, &[bytes]);
        assert_eq!(whole.lines(Style::Plain)[0], "Yes, I trust 名");
        for at in 0..bytes.len() {
            let (one, two) = bytes.split_at(at);
            assert_eq!(shown(3, 40, &[one, two]).lines(Style::Plain), whole.lines(Style::Plain), "{at}");
        }
    }

    #[test]
    fn what_is_no_text_is_shown_as_such_and_loses_nothing_after_it() {
        assert_eq!(
            shown(2, 20, &[b"a\xff\xfeb\xe5\x90c"]).lines(Style::Plain)[0],
            "a\u{fffd}\u{fffd}b\u{fffd}c"
        );
    }

    #[test]
    fn a_screen_of_its_own_has_no_history_and_gives_the_other_back() {
        let mut terminal = shown(2, 20, &[b"one\r\ntwo\r\nthree\x1b[?1049h\x1b[Hdrawn\x1b[?25l"]);
        assert_eq!(terminal.lines(Style::Plain), ["drawn", ""]);
        assert!(terminal.is_alternate() && terminal.history(9, Style::Plain).is_empty());
        assert_eq!(terminal.cursor(), None);
        terminal.feed(b"\x1b[?1049l\x1b[?25h");
        assert_eq!(terminal.lines(Style::Plain), ["two", "three"]);
        assert_eq!(terminal.history(9, Style::Plain), ["one"]);
        assert_eq!(terminal.cursor(), Some(CursorPlace { row: 1, col: 5 }));
    }

    #[test]
    fn lines_of_a_dialog_are_drawn_as_lines() {
        let terminal = shown(2, 20, &[b"\x1b(0lqqk\x1b(B ok"]);
        assert_eq!(terminal.lines(Style::Plain)[0], "┌──┐ ok");
    }

    #[test]
    fn no_size_that_a_program_claims_costs_memory() {
        let size = Size::new(u16::MAX, u16::MAX);
        assert_eq!((size.rows(), size.cols()), (ROWS_MAX, COLS_MAX));
        assert_eq!(Size::new(0, 80), Size::default());
        let terminal = shown(5, 10, &[b"\x1b[8;60000;60000tx\x1b[65535;65535Hy\x1b[65535S"]);
        assert_eq!(terminal.lines(Style::Plain).len(), 5);
    }

    #[test]
    fn what_stands_before_the_cursor_is_a_prompt_also_at_the_edge() {
        assert_eq!(shown(2, 20, &[b">>> "]).before_cursor(), ">>> ");
        assert_eq!(shown(2, 20, &[b">>> typed\x1b[4D"]).before_cursor(), ">>> t");
        assert_eq!(shown(2, 4, &[b">>> "]).before_cursor(), ">>> ");
    }

    #[test]
    fn random_bytes_do_no_harm() {
        let mut seed = 0x2545_f491_4f6c_dd1d_u64;
        let mut next = || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        };
        for _ in 0..200 {
            let bytes: Vec<u8> = (0..600)
                .map(|_| match next() % 5 {
                    0 => b"\x1b[]PX^_();?0123456789mHJKhlrLMSTX@"[usize::try_from(next() % 34).unwrap()],
                    _ => u8::try_from(next() % 256).unwrap(),
                })
                .collect();
            let terminal = shown(7, 13, &[&bytes]);
            for line in terminal.lines(Style::Plain) {
                assert!(!line.chars().any(char::is_control), "{line:?}");
            }
        }
    }
}
