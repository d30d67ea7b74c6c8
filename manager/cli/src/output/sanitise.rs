//! Text that an agent controls → text that is safe on a person's terminal. Pure; works on a stream cut anywhere.
//!
//! Removed: escape sequences (CSI, OSC, DCS, SOS, PM, APC, charset and two-byte ones), however they end. Shown as
//! `\u{..}`-like marks or U+FFFD: other control characters, C1 in either form, invalid UTF-8, and the invisible marks
//! that reorder text. Kept: printable text, line feed, tab; a carriage return becomes a line feed.

/// Longest string sequence (OSC, DCS, …) that is swallowed; what follows is text again, so that one that is never
/// ended cannot hide the rest of a transcript.
const STRING_LIMIT: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Ground,
    /// After ESC.
    Escape,
    /// After ESC and an intermediate byte: one more final byte.
    Intermediate,
    /// Inside CSI.
    Control,
    /// Inside OSC, DCS, SOS, PM or APC, so many bytes long.
    Text(usize),
    /// After ESC inside such a string.
    TextEscape(usize),
    /// After a carriage return that was not shown yet.
    Return,
}

/// Cleans a stream piece by piece.
#[derive(Debug, Clone)]
pub struct Sanitiser {
    state: State,
    /// Bytes of a UTF-8 character whose rest has not come.
    partial: Vec<u8>,
}

impl Default for Sanitiser {
    fn default() -> Self {
        Self { state: State::Ground, partial: Vec::new() }
    }
}

impl Sanitiser {
    /// Safe text of the next bytes; bytes of a sequence or character that is not whole are kept for later.
    pub fn push(&mut self, bytes: &[u8], safe: &mut String) {
        let joined;
        let mut rest = if self.partial.is_empty() {
            bytes
        } else {
            let mut whole = std::mem::take(&mut self.partial);
            whole.extend_from_slice(bytes);
            joined = whole;
            joined.as_slice()
        };
        loop {
            match std::str::from_utf8(rest) {
                Ok(text) => {
                    text.chars().for_each(|c| self.take(c, safe));
                    return;
                }
                Err(error) => {
                    let (good, bad) = rest.split_at_checked(error.valid_up_to()).unwrap_or((rest, &[]));
                    if let Ok(text) = std::str::from_utf8(good) {
                        text.chars().for_each(|c| self.take(c, safe));
                    }
                    let Some(length) = error.error_len() else {
                        self.partial = bad.to_vec();
                        return;
                    };
                    self.take(char::REPLACEMENT_CHARACTER, safe);
                    rest = bad.get(length..).unwrap_or_default();
                }
            }
        }
    }

    /// What is left at the end of the stream.
    pub fn finish(&mut self, safe: &mut String) {
        if !std::mem::take(&mut self.partial).is_empty() {
            self.take(char::REPLACEMENT_CHARACTER, safe);
        }
        if self.state == State::Return {
            safe.push('\n');
        }
        self.state = State::Ground;
    }

    fn take(&mut self, c: char, safe: &mut String) {
        self.state = match (self.state, c) {
            // CAN and SUB end any sequence (ECMA-48, as every terminal has it).
            (State::Escape | State::Intermediate | State::Control, '\x18' | '\x1a') => State::Ground,
            (State::Text(_) | State::TextEscape(_), '\x18' | '\x1a' | '\x07') => State::Ground,
            (State::Return, '\n') => {
                safe.push('\n');
                State::Ground
            }
            (State::Return, '\r') => State::Return,
            (State::Return, _) => {
                safe.push('\n');
                self.state = State::Ground;
                return self.take(c, safe);
            }
            (State::Ground, '\x1b') => State::Escape,
            (State::Ground, '\r') => State::Return,
            (State::Ground, _) => {
                show(c, safe);
                State::Ground
            }
            (State::Escape | State::Intermediate | State::Control, '\x1b') => State::Escape,
            (State::Escape, '[') => State::Control,
            (State::Escape, ']' | 'P' | 'X' | '^' | '_') => State::Text(0),
            (State::Escape, ' '..='/') => State::Intermediate,
            (State::Escape, '0'..='~') => State::Ground,
            (State::Intermediate, ' '..='/') => State::Intermediate,
            (State::Intermediate, '0'..='~') => State::Ground,
            (State::Control, ' '..='?') => State::Control,
            (State::Control, '@'..='~') => State::Ground,
            // A line's end, a control or a foreign character inside a sequence: it was cut; what follows is text.
            (State::Escape | State::Intermediate | State::Control, _) => {
                self.state = State::Ground;
                return self.take(c, safe);
            }
            (State::Text(_) | State::TextEscape(_), '\n' | '\r') => {
                self.state = State::Ground;
                return self.take(c, safe);
            }
            (State::TextEscape(_), '\\') => State::Ground,
            (State::Text(length), '\x1b') => State::TextEscape(length),
            // An escape that does not end the string begins a new sequence, as terminals have it.
            (State::TextEscape(_), _) => {
                self.state = State::Escape;
                return self.take(c, safe);
            }
            (State::Text(length), _) if length >= STRING_LIMIT => State::Ground,
            (State::Text(length), _) => State::Text(length + 1),
        };
    }
}

fn show(c: char, safe: &mut String) {
    match c {
        '\n' | '\t' => safe.push(c),
        // Bell, backspace and padding say nothing on paper.
        '\0' | '\x07' | '\x08' | '\x7f' => {}
        c if c < ' ' => {
            safe.push('^');
            safe.push(char::from_u32(u32::from(c) + 64).unwrap_or('?'));
        }
        '\u{80}'..='\u{9f}' => safe.push(char::REPLACEMENT_CHARACTER),
        c if is_invisible(c) => safe.push_str(&format!("<U+{:04X}>", u32::from(c))),
        c => safe.push(c),
    }
}

/// Marks that reorder, hide or smuggle text.
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{3164}' | '\u{ffa0}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0100}'..='\u{e01ef}'
        | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// All of a text, lines kept.
pub fn safe_text(bytes: &[u8]) -> String {
    let mut safe = String::with_capacity(bytes.len());
    let mut sanitiser = Sanitiser::default();
    sanitiser.push(bytes, &mut safe);
    sanitiser.finish(&mut safe);
    safe
}

/// A row of a rendered screen: colours (SGR, ECMA-48 8.3.117) stay, all else is as in [`safe_text`].
pub fn safe_coloured(row: &str) -> String {
    let mut safe = String::with_capacity(row.len());
    let mut rest = row;
    while let Some(at) = rest.find("\x1b[") {
        let (text, sequence) = rest.split_at(at);
        let parameters = sequence.strip_prefix("\x1b[").unwrap_or_default();
        let length = parameters.find(|c: char| !c.is_ascii_digit() && c != ';').unwrap_or(parameters.len());
        let is_colour = parameters.get(length..).is_some_and(|after| after.starts_with('m'));
        if !is_colour {
            break;
        }
        let (sequence, after) = sequence.split_at("\x1b[".len() + length + 1);
        safe.push_str(&safe_text(text.as_bytes()));
        safe.push_str(sequence);
        rest = after;
    }
    safe.push_str(&safe_text(rest.as_bytes()));
    safe
}

/// A label or sentence on one line: control characters, also line feeds, are shown as `\x1b`, `\n`, `\u{9b}`.
pub fn safe_line(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => safe.push_str("\\n"),
            '\r' => safe.push_str("\\r"),
            '\t' => safe.push_str("\\t"),
            c if c < ' ' || c == '\x7f' => safe.push_str(&format!("\\x{:02x}", u32::from(c))),
            c if c.is_control() || is_invisible(c) => safe.push_str(&format!("\\u{{{:x}}}", u32::from(c))),
            c => safe.push(c),
        }
    }
    safe
}

/// JSON text in which control characters beyond ASCII are escaped too: they can only stand inside strings.
pub fn safe_json(json: &str) -> String {
    if json.is_ascii() && !json.contains('\x7f') {
        return json.to_owned();
    }
    let mut safe = String::with_capacity(json.len());
    for c in json.chars() {
        if matches!(c, '\x7f'..='\u{9f}') || is_invisible(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                safe.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            safe.push(c);
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sequences_are_removed_and_text_is_kept() {
        for (raw, safe) in [
            (&b"a\x1b[31mred\x1b[0mb"[..], "aredb"),
            (b"\x1b]52;c;aGk=\x07x", "x"),
            (b"\x1b]0;title\x1b\\x", "x"),
            (b"\x1bP1$r0m\x1b\\x", "x"),
            (b"\x1bcx\x1b(Bx\x1b7x", "xxx"),
            (b"\x1b[6n\x1b[2J\x1b[?1049hx", "x"),
            (b"\x1b_apc\x1b\\\x1b^pm\x1b\\\x1bXsos\x1b\\x", "x"),
            ("\u{9d}52;c;x\u{9b}2J".as_bytes(), "\u{fffd}52;c;x\u{fffd}2J"),
            (b"\x9d52;c;x", "\u{fffd}52;c;x"),
            (b"a\r\nb\rc\r\r\nd", "a\nb\nc\nd"),
            (b"\x07\x08\x0ea\tb", "^Na\tb"),
            ("名前 naïve 🎉".as_bytes(), "名前 naïve 🎉"),
            ("a\u{202e}b".as_bytes(), "a<U+202E>b"),
            ("a\u{61c}\u{ad}b".as_bytes(), "a<U+061C><U+00AD>b"),
        ] {
            assert_eq!(safe_text(raw), safe, "{raw:?}");
        }
    }

    #[test]
    fn of_a_rows_sequences_only_colours_stay() {
        let row = "a\x1b[0;1;38;5;1mred\x1b[0m";
        assert_eq!(safe_coloured(row), row);
        assert_eq!(safe_coloured("\x1b[1mx\x1b[2Jy\x1b[1mz"), "\x1b[1mxyz");
        assert_eq!(safe_coloured("a\x1b]52;c;aGk=\x07b\x1b[1m"), "ab\x1b[1m");
        assert_eq!(safe_coloured("\x1b[38;2;1"), "");
        assert_eq!(safe_coloured("\x1b[>4;1mx\x1b["), "x");
    }

    #[test]
    fn a_sequence_that_is_never_ended_hides_one_line_at_most() {
        assert_eq!(safe_text(b"\x1b]0;x\nnext line\n"), "\nnext line\n");
        assert_eq!(safe_text(b"\x1b[12\nnext"), "\nnext");
        let long = [b"\x1b]0;".as_slice(), &[b'a'; 10_000], b"TAIL"].concat();
        assert!(safe_text(&long).ends_with("TAIL"));
    }

    #[test]
    fn labels_and_json_show_what_they_hide() {
        assert_eq!(safe_line("a\x1b[2J\nb\u{9b}\u{202e}"), "a\\x1b[2J\\nb\\u{9b}\\u{202e}");
        let json = serde_json::to_string("a\u{9b}2J\u{7f}\u{e0041}名").unwrap();
        let safe = safe_json(&json);
        assert_eq!(safe, "\"a\\u009b2J\\u007f\\udb40\\udc41名\"");
        assert_eq!(serde_json::from_str::<String>(&safe).unwrap(), "a\u{9b}2J\u{7f}\u{e0041}名");
    }

    fn dangerous(text: &str) -> bool {
        text.chars().any(|c| (c.is_control() && c != '\n' && c != '\t') || is_invisible(c))
    }

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..8),
            proptest::sample::select(vec![
                &b"\x1b"[..],
                b"\x1b[",
                b"\x1b]52;c;",
                b"\x1bP",
                b"\x07",
                b"\x1b\\",
                b"\x9b",
                b"\xc2\x9d",
                b"m",
                b"\r",
                b"\n",
                b"\xe5\x90",
                b"\x8d",
                b"text"
            ])
            .prop_map(<[u8]>::to_vec),
        ];
        proptest::collection::vec(piece, 0..30).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn nothing_dangerous_comes_through(bytes in bytes()) {
            prop_assert!(!dangerous(&safe_text(&bytes)));
            prop_assert!(!dangerous(&safe_line(&String::from_utf8_lossy(&bytes))));
        }

        #[test]
        fn where_the_stream_is_cut_changes_nothing(bytes in bytes(), cuts: Vec<prop::sample::Index>) {
            let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            places.sort_unstable();
            let (mut sanitiser, mut safe, mut from) = (Sanitiser::default(), String::new(), 0);
            for place in places {
                sanitiser.push(&bytes[from..place], &mut safe);
                from = place;
            }
            sanitiser.push(&bytes[from..], &mut safe);
            sanitiser.finish(&mut safe);
            prop_assert_eq!(safe, safe_text(&bytes));
        }
    }
}
