//! Columns that line up on a terminal, also with wide (CJK) and combining characters. Pure.

use unicode_width::UnicodeWidthStr;

use super::sanitise::safe_line;

pub struct Table {
    rows: Vec<Vec<String>>,
    /// Of the first column: longer cells are cut.
    first_width: usize,
}

impl Table {
    pub fn new(header: &[&str]) -> Self {
        Self { rows: vec![header.iter().map(|cell| (*cell).to_owned()).collect()], first_width: usize::MAX }
    }

    /// Cuts the first column where it is wider, so that one long name does not widen every row.
    #[must_use]
    pub fn cut_first(mut self, width: usize) -> Self {
        self.first_width = width;
        self
    }

    /// Cells may hold anything; they are made safe here.
    pub fn row(&mut self, cells: Vec<String>) {
        let cells = cells.iter().map(|cell| if cell.is_empty() { "-".to_owned() } else { safe_line(cell) });
        let mut cells: Vec<String> = cells.collect();
        if let Some(first) = cells.first_mut().filter(|first| first.width() > self.first_width) {
            *first = cut(first, self.first_width);
        }
        self.rows.push(cells);
    }

    pub fn render(&self) -> String {
        let mut widths: Vec<usize> = Vec::new();
        for row in &self.rows {
            for (column, cell) in row.iter().enumerate() {
                let width = cell.width();
                match widths.get_mut(column) {
                    Some(widest) => *widest = (*widest).max(width),
                    None => widths.push(width),
                }
            }
        }
        let mut text = String::new();
        for row in &self.rows {
            let last = row.len().saturating_sub(1);
            for (column, cell) in row.iter().enumerate() {
                text.push_str(cell);
                if column < last {
                    let missing = widths.get(column).copied().unwrap_or(0).saturating_sub(cell.width());
                    text.extend(std::iter::repeat_n(' ', missing + 2));
                }
            }
            text.push('\n');
        }
        text
    }
}

/// As much of the text as fits into `width` columns with the mark that something is missing.
fn cut(text: &str, width: usize) -> String {
    let mut kept = String::new();
    for character in text.chars() {
        kept.push(character);
        if kept.width() >= width {
            kept.pop();
            break;
        }
    }
    kept.push('…');
    kept
}

/// `key: value` lines; values that are empty are left out.
pub fn details(pairs: &[(&str, String)]) -> String {
    let width =
        pairs.iter().filter(|(_, value)| !value.is_empty()).map(|(key, _)| key.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (key, value) in pairs.iter().filter(|(_, value)| !value.is_empty()) {
        text.push_str(&format!("{:<width$}  {}\n", format!("{key}:"), safe_line(value), width = width + 1));
    }
    text
}

/// The first of many names; the rest is counted.
pub fn some_of<'a>(names: impl Iterator<Item = &'a str>) -> String {
    const NAMED: usize = 5;
    let names: Vec<&str> = names.collect();
    let named = names.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_first_cell_is_cut_where_that_is_asked_for() {
        let mut table = Table::new(&["NAME", "PHASE"]).cut_first(6);
        table.row(vec!["abcdefgh".into(), "RUNNING".into()]);
        table.row(vec!["abcdef".into(), "a long one".into()]);
        table.row(vec!["名前名前".into(), "x".into()]);
        assert_eq!(table.render(), "NAME    PHASE\nabcde…  RUNNING\nabcdef  a long one\n名前…   x\n");
    }

    #[test]
    fn wide_and_combining_characters_line_up_and_escapes_are_shown() {
        let mut table = Table::new(&["NAME", "PHASE"]);
        table.row(vec!["名前".into(), "RUNNING".into()]);
        table.row(vec!["e\u{301}".into(), "PAUSED".into()]);
        table.row(vec!["a\x1b[2J".into(), String::new()]);
        assert_eq!(
            table.render(),
            "NAME      PHASE\n名前      RUNNING\ne\u{301}         PAUSED\na\\x1b[2J  -\n"
        );
    }
}
