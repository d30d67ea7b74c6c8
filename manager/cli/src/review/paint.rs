//! A patch on a terminal: made safe, and coloured line by line as git does it.

use super::super::output::sanitise::Sanitiser;

const RESET: &str = "\x1b[m";

/// Whether colour is wanted there: <https://no-color.org>.
pub fn is_wanted() -> bool {
    let off = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    !off && std::env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb")
}

/// Takes the bytes of a patch cut anywhere, gives whole lines.
#[derive(Default)]
pub struct Painter {
    sanitiser: Sanitiser,
    /// The begin of a line whose end has not come.
    line: String,
    coloured: bool,
    /// Within the lines of a file: a removed line that begins with `-- ` is no head then.
    in_hunk: bool,
}

impl Painter {
    pub fn new(coloured: bool) -> Self {
        Self { coloured, ..Self::default() }
    }

    pub fn push(&mut self, bytes: &[u8]) -> String {
        let mut safe = String::new();
        self.sanitiser.push(bytes, &mut safe);
        self.lines(&safe)
    }

    pub fn finish(mut self) -> String {
        let mut safe = String::new();
        std::mem::take(&mut self.sanitiser).finish(&mut safe);
        let mut text = self.lines(&safe);
        if !self.line.is_empty() {
            let last = std::mem::take(&mut self.line);
            self.paint(&last, &mut text);
        }
        text
    }

    fn lines(&mut self, safe: &str) -> String {
        let mut text = String::with_capacity(safe.len());
        for piece in safe.split_inclusive('\n') {
            self.line.push_str(piece);
            if piece.ends_with('\n') {
                let line = std::mem::take(&mut self.line);
                self.paint(&line, &mut text);
            }
        }
        text
    }

    fn paint(&mut self, line: &str, text: &mut String) {
        let colour = self.colour_of(line);
        let content = line.trim_end_matches('\n');
        match colour.filter(|_| self.coloured && !content.is_empty()) {
            Some(colour) => {
                text.push_str(colour);
                text.push_str(content);
                text.push_str(RESET);
                text.push_str(line.get(content.len()..).unwrap_or_default());
            }
            None => text.push_str(line),
        }
    }

    fn colour_of(&mut self, line: &str) -> Option<&'static str> {
        if line.starts_with("diff --git ") {
            self.in_hunk = false;
        }
        if line.starts_with("@@ ") {
            self.in_hunk = true;
            return Some("\x1b[36m");
        }
        match (self.in_hunk, line.as_bytes().first()) {
            (false, Some(_)) => Some("\x1b[1m"),
            (true, Some(b'+')) => Some("\x1b[32m"),
            (true, Some(b'-')) => Some("\x1b[31m"),
            (true | false, Some(_) | None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn painted(coloured: bool, pieces: &[&[u8]]) -> String {
        let mut painter = Painter::new(coloured);
        let mut text: String = pieces.iter().map(|piece| painter.push(piece)).collect();
        text.push_str(&painter.finish());
        text
    }

    #[test]
    fn lines_are_coloured_wherever_the_pieces_are_cut() {
        let whole = painted(true, &[b"diff --git a/x b/x\n@@ -1 +1 @@\n--- old\n+new\n same\n"]);
        let cut = painted(true, &[b"diff --git a/x b", b"/x\n@@ -1 +1 @", b"@\n--- old\n+", b"new\n same\n"]);
        assert_eq!(whole, cut);
        assert!(whole.contains("\x1b[31m--- old\x1b[m\n"), "a removed line, not a head: {whole:?}");
        assert!(whole.contains("\x1b[32m+new\x1b[m\n same\n"), "{whole:?}");
    }

    #[test]
    fn escapes_in_a_file_do_not_reach_the_terminal() {
        let text = painted(false, &[b"@@ -1 +1 @@\n+a\x1b]52;c;x\x07b\n+\x1b[2J"]);
        assert_eq!(text, "@@ -1 +1 @@\n+ab\n+");
    }
}
