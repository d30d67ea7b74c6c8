//! Text of a transcript as lines: those that fit a pattern, each with the name of its agent before it.

use regex::Regex;

use super::super::output::sanitise::safe_json;

/// A longer line is shown in pieces of this size, so that none fills the memory.
const LINE_LIMIT: usize = 1 << 20;

pub struct Lines {
    /// Whose lines they are, where each is an object.
    json: Option<String>,
    before: String,
    pattern: Option<Regex>,
    /// A line whose end has not come.
    open: String,
}

impl Lines {
    pub fn new(before: String, pattern: Option<Regex>) -> Self {
        Self { json: None, before, pattern, open: String::new() }
    }

    /// Each line as an object with the name of its agent.
    pub fn json(agent: String, pattern: Option<Regex>) -> Self {
        Self { json: Some(agent), before: String::new(), pattern, open: String::new() }
    }

    /// What is to be shown of more text. Without a name and a pattern that is all of it, at once.
    pub fn push(&mut self, text: &str, shown: &mut String) {
        if self.before.is_empty() && self.pattern.is_none() && self.json.is_none() {
            shown.push_str(text);
            return;
        }
        for piece in text.split_inclusive('\n') {
            self.open.push_str(piece);
            if piece.ends_with('\n') || self.open.len() >= LINE_LIMIT {
                self.close(shown);
            }
        }
    }

    /// The last line, which has no end.
    pub fn finish(&mut self, shown: &mut String) {
        if !self.open.is_empty() {
            self.close(shown);
        }
    }

    fn close(&mut self, shown: &mut String) {
        let line = std::mem::take(&mut self.open);
        let line = line.strip_suffix('\n').unwrap_or(&line);
        if self.pattern.as_ref().is_none_or(|pattern| pattern.is_match(line)) {
            match &self.json {
                Some(agent) => {
                    let object = serde_json::json!({ "agent": agent, "text": line });
                    shown.push_str(&safe_json(&object.to_string()));
                }
                None => {
                    shown.push_str(&self.before);
                    shown.push_str(line);
                }
            }
            shown.push('\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(before: &str, pattern: Option<&str>, pieces: &[&str]) -> String {
        let pattern = pattern.map(|pattern| Regex::new(pattern).unwrap());
        let mut lines = Lines::new(before.to_owned(), pattern);
        let mut shown = String::new();
        pieces.iter().for_each(|piece| lines.push(piece, &mut shown));
        lines.finish(&mut shown);
        shown
    }

    #[test]
    fn lines_are_whole_wherever_the_text_is_cut() {
        assert_eq!(shown("a  ", None, &["on", "e\ntw", "o\n\nthree"]), "a  one\na  two\na  \na  three\n");
        assert_eq!(shown("", Some("^t"), &["on", "e\ntw", "o\nthree"]), "two\nthree\n");
        assert_eq!(shown("", None, &["no ", "end"]), "no end");
    }

    #[test]
    fn as_json_each_line_is_an_object() {
        let mut lines = Lines::json("a".to_owned(), None);
        let mut shown = String::new();
        lines.push("one \"x\"\ntw", &mut shown);
        lines.push("o", &mut shown);
        lines.finish(&mut shown);
        let objects: Vec<serde_json::Value> =
            shown.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(objects[0], serde_json::json!({ "agent": "a", "text": "one \"x\"" }));
        assert_eq!(objects[1]["text"], "two");
    }

    #[test]
    fn a_line_without_end_does_not_fill_the_memory() {
        let mut lines = Lines::new("a ".to_owned(), None);
        let mut all = String::new();
        for _ in 0..40 {
            lines.push(&"x".repeat(100_000), &mut all);
            assert!(lines.open.len() < LINE_LIMIT + 100_000);
        }
        assert!(all.lines().count() >= 3);
    }
}
