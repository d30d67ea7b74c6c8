//! Whether an attached person may have typed something that he has not sent: the bytes since the last Enter.
//! What terminals send by themselves (focus, mouse, answers) is not counted. Only an estimate: the program's own
//! editing is not known here.

const CTRL_C: u8 = 0x03;
const PASTE_BEGIN: &[u8] = b"200";
const PASTE_END: &[u8] = b"201";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Ground,
    Escape,
    /// Parameters so far, as many as matter.
    Csi(Vec<u8>),
    /// One more byte belongs to the key.
    SingleShift,
    /// Until BEL or ST; whether the last byte was an escape.
    String {
        escape: bool,
    },
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Draft {
    bytes: u64,
    pasting: bool,
    state: State,
}

impl Draft {
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.step(byte));
    }

    /// Bytes typed and not sent.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// An Enter that was not a person's has sent it.
    pub(crate) const fn sent(&mut self) {
        self.bytes = 0;
    }

    fn step(&mut self, byte: u8) {
        self.state = match (std::mem::take(&mut self.state), byte) {
            (State::String { escape: false }, 0x1b) => State::String { escape: true },
            (State::String { .. }, 0x07) | (State::String { escape: true }, _) => State::Ground,
            (State::String { escape: false }, _) => State::String { escape: false },
            (_, 0x1b) => State::Escape,
            (State::Escape, b'[') => State::Csi(Vec::new()),
            (State::Escape, b'O') => State::SingleShift,
            (State::Escape, b']' | b'P' | b'_' | b'^' | b'X') => State::String { escape: false },
            // Alt and a key; in many programs Alt-Enter is a line break in the draft.
            (State::Escape, _) => {
                self.bytes += 1;
                State::Ground
            }
            (State::SingleShift, _) => State::Ground,
            (State::Csi(mut parameters), 0x20..=0x3f) => {
                if parameters.len() < 8 {
                    parameters.push(byte);
                }
                State::Csi(parameters)
            }
            (State::Csi(parameters), _) => {
                match (parameters.as_slice(), byte) {
                    (PASTE_BEGIN, b'~') => self.pasting = true,
                    (PASTE_END, b'~') => self.pasting = false,
                    _ => {}
                }
                State::Ground
            }
            (State::Ground, b'\r' | CTRL_C) if !self.pasting => {
                self.bytes = 0;
                State::Ground
            }
            (State::Ground, 0x08 | 0x7f) if !self.pasting => {
                self.bytes = self.bytes.saturating_sub(1);
                State::Ground
            }
            (State::Ground, 0x20..) => {
                self.bytes += 1;
                State::Ground
            }
            (State::Ground, _) => {
                self.bytes += u64::from(self.pasting);
                State::Ground
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(bytes: &[u8]) -> u64 {
        let (mut whole, mut split) = (Draft::default(), Draft::default());
        whole.feed(bytes);
        bytes.chunks(1).for_each(|byte| split.feed(byte));
        assert_eq!(whole, split, "where input is split does not matter");
        whole.bytes()
    }

    #[test]
    fn typed_text_is_a_draft_until_enter_or_interrupt() {
        assert_eq!(after(b"hello"), 5);
        assert_eq!(after(b"hello\r"), 0);
        assert_eq!(after(b"hello\x03"), 0);
        assert_eq!(after(b"ab\x7f\x7f\x7f"), 0);
        assert_eq!(after("é".as_bytes()), 2);
    }

    #[test]
    fn what_the_terminal_says_by_itself_is_no_draft() {
        assert_eq!(after(b"\x1b[I\x1b[O\x1b[<0;10;10M\x1b[?1;2c\x1b[12;1R\x1bOA"), 0);
        assert_eq!(after(b"\x1b]11;rgb:0000/0000/0000\x07\x1bP>|tmux 3.3a\x1b\\"), 0);
    }

    #[test]
    fn a_line_end_inside_a_paste_sends_nothing() {
        assert_eq!(after(b"\x1b[200~a\rb\x1b[201~"), 3);
        assert_eq!(after(b"\x1b[200~a\rb\x1b[201~\r"), 0);
    }
}
