//! A row with its colours: text and SGR sequences (ECMA-48 8.3.117), which are made here and never copied from what
//! the program printed.

use std::fmt::Write;

use avt::{Cell, Color, Line, Pen};

use super::terminal::visible;

/// Without blanks at the end, unless they are coloured; a row leaves no colour behind.
pub(super) fn line(line: &Line) -> String {
    let cells = line.cells();
    let is_blank = |cell: &Cell| cell.char() == ' ' && cell.pen().is_default();
    let end = cells.iter().rposition(|cell| !is_blank(cell)).map_or(0, |last| last + 1);
    let mut text = String::new();
    let mut pen = Pen::default();
    for cell in cells.iter().take(end).filter(|cell| cell.width() > 0) {
        if *cell.pen() != pen {
            pen = *cell.pen();
            text.push_str(&sgr(&pen));
        }
        text.push(visible(cell.char()));
    }
    if !pen.is_default() {
        text.push_str("\x1b[0m");
    }
    text
}

fn sgr(pen: &Pen) -> String {
    let mut text = "\x1b[0".to_owned();
    let attributes = [
        (pen.is_bold(), 1),
        (pen.is_faint(), 2),
        (pen.is_italic(), 3),
        (pen.is_underline(), 4),
        (pen.is_blink(), 5),
        (pen.is_inverse(), 7),
        (pen.is_strikethrough(), 9),
    ];
    for (_, code) in attributes.into_iter().filter(|(is_set, _)| *is_set) {
        let _ = write!(text, ";{code}"); // a String takes everything
    }
    for (colour, base) in [(pen.foreground(), 38), (pen.background(), 48)] {
        let _ = match colour {
            None => Ok(()),
            Some(Color::Indexed(index)) => write!(text, ";{base};5;{index}"),
            Some(Color::RGB(rgb)) => write!(text, ";{base};2;{};{};{}", rgb.r, rgb.g, rgb.b),
        };
    }
    text.push('m');
    text
}

#[cfg(test)]
mod tests {
    use super::super::terminal::{Size, Style, Terminal};

    #[test]
    fn a_row_has_its_colours_and_leaves_none_behind() {
        let mut terminal = Terminal::new(Size::new(3, 30), 0).unwrap();
        terminal.feed(b"a\x1b[1;31mred\x1b[0m \x1b[48;2;1;2;3mx  \x1b[0m\r\nplain\r\n\x1b]8;;http://x\x07link\x1b]8;;\x07");
        let lines = terminal.lines(Style::Coloured);
        assert_eq!(lines[0], "a\x1b[0;1;38;5;1mred\x1b[0m \x1b[0;48;2;1;2;3mx  \x1b[0m");
        assert_eq!(&lines[1..], ["plain", "link"]);
    }
}
