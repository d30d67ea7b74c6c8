//! Which DEC private modes a program has set, read from its output (`CSI ? Pm h` and `l`, RIS, DECSTR), and the bytes
//! that set them in another terminal. Sequences may be split anywhere. Everything else on the screen is not tracked.

/// Start of a bracketed paste is expected by the program.
pub(crate) const BRACKETED_PASTE: u16 = 2004;
/// More than any program sets; bounds what hostile output can make a shim remember.
const MODES_LIMIT: usize = 64;
const PARAMETERS_LIMIT: usize = 16;
/// On in a fresh terminal: autowrap, autorepeat, cursor.
const ON_BY_DEFAULT: [u16; 3] = [7, 8, 25];
const ALTERNATE_SCREENS: [u16; 3] = [47, 1047, 1049];
/// Not replayed: changing the width clears the screen (3), a saved cursor is not a state (1048), and a viewer that
/// enters in the midst of a synchronized update (2026) would wait for its end.
const NOT_REPLAYED: [u16; 3] = [3, 1048, 2026];

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Ground,
    Escape,
    /// In a control sequence. `private` is its leading `<=>?`, `other` says that it holds an intermediate byte.
    Csi {
        private: u8,
        intermediate: u8,
        parameters: Vec<u16>,
        current: u16,
    },
}

/// In the order in which they were changed: of mouse modes the last one set counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Modes {
    changed: Vec<(u16, bool)>,
    state: State,
}

impl Modes {
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.state == State::Ground {
                // Most output holds no escape: skip to the next one.
                let Some(at) = rest.iter().position(|&byte| byte == 0x1b) else { return };
                rest = rest.get(at..).unwrap_or_default();
            }
            let Some((&byte, after)) = rest.split_first() else { return };
            self.step(byte);
            rest = after;
        }
    }

    fn step(&mut self, byte: u8) {
        let state = std::mem::take(&mut self.state);
        self.state = match (state, byte) {
            (_, 0x1b) => State::Escape,
            // CAN and SUB break a sequence off.
            (_, 0x18 | 0x1a) | (State::Ground, _) => State::Ground,
            (State::Escape, b'[') => {
                State::Csi { private: 0, intermediate: 0, parameters: Vec::new(), current: 0 }
            }
            (State::Escape, b'c') => {
                self.changed.clear();
                State::Ground
            }
            // Other controls are carried out inside a sequence, without ending it.
            (State::Escape, 0..=0x1f) => State::Escape,
            (State::Escape, _) => State::Ground,
            (State::Csi { private, intermediate, parameters, current }, byte) => {
                self.csi(private, intermediate, parameters, current, byte)
            }
        };
    }

    fn csi(&mut self, private: u8, middle: u8, mut parameters: Vec<u16>, current: u16, byte: u8) -> State {
        let (mut private, mut intermediate, mut current) = (private, middle, current);
        match byte {
            b'0'..=b'9' => current = current.saturating_mul(10).saturating_add(u16::from(byte - b'0')),
            b';' | b':' => {
                if parameters.len() < PARAMETERS_LIMIT {
                    parameters.push(current);
                }
                current = 0;
            }
            b'<'..=b'?' => private = byte,
            0x20..=0x2f => intermediate = byte,
            0x40..=0x7e => {
                if parameters.len() < PARAMETERS_LIMIT {
                    parameters.push(current);
                }
                self.finished(private, intermediate, &parameters, byte);
                return State::Ground;
            }
            _ => {}
        }
        State::Csi { private, intermediate, parameters, current }
    }

    fn finished(&mut self, private: u8, intermediate: u8, parameters: &[u16], last: u8) {
        match (private, intermediate, last) {
            (b'?', 0, b'h') => parameters.iter().for_each(|&mode| self.change(mode, true)),
            (b'?', 0, b'l') => parameters.iter().for_each(|&mode| self.change(mode, false)),
            // DECSTR: cursor keys, origin and autowrap to their defaults, the cursor shown.
            (0, b'!', b'p') => self.changed.retain(|(mode, _)| ![1, 6, 7, 25].contains(mode)),
            _ => {}
        }
    }

    fn change(&mut self, mode: u16, on: bool) {
        self.changed.retain(|(known, _)| *known != mode);
        if on != ON_BY_DEFAULT.contains(&mode) && self.changed.len() < MODES_LIMIT {
            self.changed.push((mode, on));
        }
    }

    pub(crate) fn is_set(&self, mode: u16) -> bool {
        let changed = self.changed.iter().find(|(known, _)| *known == mode);
        changed.map_or_else(|| ON_BY_DEFAULT.contains(&mode), |(_, on)| *on)
    }

    /// Those set, the defaults among them.
    pub(crate) fn set(&self) -> Vec<u16> {
        let defaults = ON_BY_DEFAULT.into_iter().filter(|&mode| self.is_set(mode));
        defaults.chain(self.changed.iter().filter(|(_, on)| *on).map(|(mode, _)| *mode)).collect()
    }

    pub(crate) fn alternate_screen(&self) -> bool {
        ALTERNATE_SCREENS.iter().any(|&mode| self.is_set(mode))
    }

    /// Brings a fresh terminal into these modes; the alternate screen first, since entering it clears.
    pub(crate) fn replay(&self) -> Vec<u8> {
        let is_screen = |mode: &u16| ALTERNATE_SCREENS.contains(mode);
        let screens = self.changed.iter().filter(|(mode, _)| is_screen(mode));
        let others = self.changed.iter().filter(|(mode, _)| !is_screen(mode) && !NOT_REPLAYED.contains(mode));
        let mut bytes = Vec::new();
        for (mode, on) in screens.chain(others) {
            bytes.extend_from_slice(format!("\x1b[?{mode}{}", if *on { 'h' } else { 'l' }).as_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn after(bytes: &[u8]) -> Modes {
        let mut modes = Modes::default();
        modes.feed(bytes);
        modes
    }

    #[test]
    fn modes_of_a_real_start_are_replayed() {
        let modes = after(b"hello\x1b[?2004h\x1b[?1004h\x1b[?2031h\x1b[?25l\x1b[1;31mred\x1b[?1h");
        assert_eq!(modes.replay(), b"\x1b[?2004h\x1b[?1004h\x1b[?2031h\x1b[?25l\x1b[?1h");
        assert_eq!(modes.set(), [7, 8, 2004, 1004, 2031, 1]);
        assert!(!modes.alternate_screen());
    }

    #[test]
    fn the_alternate_screen_comes_first_and_several_modes_fit_one_sequence() {
        let modes = after(b"\x1b[?1002;1006h\x1b[?1049h");
        assert_eq!(modes.replay(), b"\x1b[?1049h\x1b[?1002h\x1b[?1006h");
        assert!(modes.alternate_screen());
    }

    #[test]
    fn a_mode_reset_is_forgotten_and_a_reset_terminal_has_none() {
        assert_eq!(after(b"\x1b[?2004h\x1b[?2004l").replay(), b"");
        assert_eq!(after(b"\x1b[?2004h\x1bc").replay(), b"");
        assert_eq!(after(b"\x1b[?25l\x1b[?1h\x1b[?2004h\x1b[!p").replay(), b"\x1b[?2004h");
        assert_eq!(after(b"\x1b[?25l\x1b[?25h").replay(), b"");
    }

    #[test]
    fn of_the_mouse_modes_the_last_one_set_comes_last() {
        assert_eq!(after(b"\x1b[?1003h\x1b[?1000h\x1b[?1003h").replay(), b"\x1b[?1000h\x1b[?1003h");
    }

    #[test]
    fn what_looks_like_a_mode_and_is_none_changes_nothing() {
        for bytes in
            [b"\x1b[2004h".as_slice(), b"\x1b[?2004$p", b"\x1b[?20\x1804h", b"[?2004h", b"\x1b[>2004h"]
        {
            assert_eq!(after(bytes).replay(), b"", "{bytes:?}");
        }
        assert_eq!(after(b"\x1b[?2026h\x1b[?3h\x1b[?1048h").replay(), b"");
    }

    #[test]
    fn endless_parameters_and_modes_stay_bounded() {
        let mut modes = Modes::default();
        for mode in 0..10_000 {
            modes.feed(format!("\x1b[?{mode};").as_bytes());
            modes.feed("1;".repeat(100).as_bytes());
            modes.feed(b"5h");
            modes.feed(format!("\x1b[?{mode}h").as_bytes());
        }
        assert!(modes.changed.len() <= MODES_LIMIT);
    }

    proptest! {
        #[test]
        fn where_the_output_is_split_does_not_matter(
            pieces in prop::collection::vec(prop_oneof![
                Just(b"\x1b[?2004h".to_vec()), Just(b"\x1b[?2004l".to_vec()), Just(b"\x1b[?1049;1h".to_vec()),
                Just(b"\x1b[?25l".to_vec()), Just(b"\x1bc".to_vec()), Just(b"\x1b[!p".to_vec()),
                prop::collection::vec(any::<u8>(), 0..6)], 0..20),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let bytes = pieces.concat();
            let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            places.extend([0, bytes.len()]);
            places.sort_unstable();
            let mut split = Modes::default();
            for pair in places.windows(2) {
                split.feed(&bytes[pair[0]..pair[1]]);
            }
            prop_assert_eq!(&split, &after(&bytes));
            // A replay sets exactly what it came from.
            prop_assert_eq!(after(&split.replay()).replay(), split.replay());
        }
    }
}
