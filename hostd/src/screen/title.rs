//! What a program calls its window: OSC 0 and OSC 2 (xterm, ctlseqs), found in its output. The emulator passes them
//! over.

/// A longer title is no title.
const TITLE_LIMIT: usize = 512;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Text,
    /// After ESC.
    Escape,
    /// Inside an OSC.
    Inside,
    /// After ESC inside one.
    InsideEscape,
}

/// Finds titles in a stream of characters that may be cut anywhere.
#[derive(Clone, Debug, Default)]
pub(super) struct Title {
    state: State,
    payload: String,
    title: String,
}

impl Title {
    #[must_use]
    pub(super) fn text(&self) -> &str {
        &self.title
    }

    pub(super) fn push(&mut self, c: char) {
        self.state = match (self.state, c) {
            (State::Text, '\x1b') => State::Escape,
            (State::Text, _) => State::Text,
            (State::Escape, ']') => {
                self.payload.clear();
                State::Inside
            }
            (State::Escape, '\x1b') => State::Escape,
            (State::Escape, _) => State::Text,
            (State::Inside, '\x07' | '\u{9c}') | (State::InsideEscape, '\\') => {
                self.take();
                State::Text
            }
            (State::Inside, '\x1b') => State::InsideEscape,
            // Given up by the program: CAN and SUB.
            (State::Inside | State::InsideEscape, '\x18' | '\x1a') => State::Text,
            (State::InsideEscape, ']') => {
                self.payload.clear();
                State::Inside
            }
            (State::InsideEscape, _) => State::Text,
            (State::Inside, c) => {
                if self.payload.len() <= TITLE_LIMIT + "0;".len() {
                    self.payload.push(c);
                }
                State::Inside
            }
        };
    }

    fn take(&mut self) {
        let title = self.payload.strip_prefix("0;").or_else(|| self.payload.strip_prefix("2;"));
        if let Some(title) = title.filter(|title| title.len() <= TITLE_LIMIT) {
            self.title = title.chars().filter(|c| !c.is_control()).collect();
        }
        self.payload.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn title(output: &str) -> String {
        let mut title = Title::default();
        output.chars().for_each(|c| title.push(c));
        title.text().to_owned()
    }

    #[test]
    fn the_last_title_counts_however_it_is_ended() {
        assert_eq!(title("a\x1b]0;one\x07b\x1b]2;two ✳\x1b\\c"), "two ✳");
        assert_eq!(title("\x1b]0;one\x07\x1b]2;\x07"), "", "one that is taken back");
        assert_eq!(title("\x1b]0;one\x07\x1b]1;icon\x07\x1b]52;c;aGk=\x07\x1b]8;;x\x1b\\"), "one");
    }

    #[test]
    fn one_that_is_not_ended_or_too_long_is_none() {
        assert_eq!(title("\x1b]0;one"), "");
        assert_eq!(title("\x1b]0;one\x18\x07"), "");
        assert_eq!(title(&format!("\x1b]0;{}\x07", "x".repeat(10_000))), "");
        assert_eq!(title("\x1b]0;broken\x1b]0;whole\x07"), "whole");
    }
}
