//! Values of environments, blotted out of a transcript. Every byte keeps its place, so that the rest reads as it is: a
//! value becomes a mark of its own length.

use protocol::agent::Environment;

/// Shorter values are in every text.
const VALUE_LEAST: usize = 4;
const MARK: &[u8] = b"[redacted]";

/// The values to look for, and the end of what came, in which one may have begun.
pub(super) struct Redactor {
    /// The longest first: one may begin as another does.
    values: Vec<Vec<u8>>,
    /// As it came: a value that is found in it may turn out to be the beginning of a longer one.
    held: Vec<u8>,
    /// Place of the first byte that is held.
    at: u64,
    /// How much of the mark is written, and how much of it is to be written yet.
    marked: usize,
    covered: usize,
}

impl Redactor {
    pub(super) fn new(Environment(values): Environment) -> Self {
        let long = values.into_values().filter(|value| value.len() >= VALUE_LEAST);
        // A terminal writes the lines of a value with CR LF.
        let mut values: Vec<Vec<u8>> =
            long.flat_map(|value| [value.replace('\n', "\r\n").into_bytes(), value.into_bytes()]).collect();
        values.sort_by(|one, two| two.len().cmp(&one.len()).then_with(|| one.cmp(two)));
        values.dedup();
        Self { values, held: Vec::new(), at: 0, marked: 0, covered: 0 }
    }

    /// What of the bytes from `offset` on, after those before, can be told: a place and bytes, or nothing yet.
    pub(super) fn push(&mut self, offset: u64, bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
        let mut out = Vec::new();
        let next = self.at.saturating_add(length_of(&self.held));
        if next != offset {
            // A gap: what is held ends there.
            out.extend(self.finish());
            self.at = offset;
        }
        self.held.extend_from_slice(bytes);
        // From where on a longer value may have begun, if any.
        let open = (0..self.held.len()).find(|place| {
            let rest = self.held.get(*place..).unwrap_or_default();
            self.values.iter().any(|value| value.len() > rest.len() && value.starts_with(rest))
        });
        out.extend(self.tell(open.unwrap_or(self.held.len())));
        out
    }

    /// How far before a byte that a value covers the value may begin.
    pub(super) fn reach(&self) -> u64 {
        let longest = self.values.first().map_or(0, Vec::len);
        u64::try_from(longest.saturating_sub(1)).unwrap_or(u64::MAX)
    }

    /// What was held.
    pub(super) fn finish(&mut self) -> Option<(u64, Vec<u8>)> {
        self.tell(self.held.len())
    }

    /// Takes the first bytes out of what is held. A byte is blotted out where any value covers it; values that overlap
    /// share one mark.
    fn tell(&mut self, count: usize) -> Option<(u64, Vec<u8>)> {
        let mut piece = Vec::with_capacity(count);
        for (place, byte) in self.held.iter().enumerate().take(count) {
            let rest = self.held.get(place..).unwrap_or_default();
            let found = self.values.iter().find(|value| rest.starts_with(value)).map_or(0, Vec::len);
            if self.covered == 0 {
                self.marked = 0;
            }
            self.covered = self.covered.max(found);
            if self.covered == 0 {
                piece.push(*byte);
            } else {
                piece.push(MARK.get(self.marked).copied().unwrap_or(b'*'));
                self.marked += 1;
                self.covered -= 1;
            }
        }
        self.held.drain(..count);
        let at = self.at;
        self.at = at.saturating_add(length_of(&piece));
        (!piece.is_empty()).then_some((at, piece))
    }
}

fn length_of(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redacted(pieces: &[&str], values: &[&str]) -> String {
        let pairs = values.iter().enumerate().map(|(n, value)| (n.to_string(), (*value).to_owned()));
        let mut redactor = Redactor::new(Environment(pairs.collect()));
        let (mut at, mut all) = (0, Vec::new());
        for piece in pieces {
            for (place, bytes) in redactor.push(at, piece.as_bytes()) {
                assert_eq!(place, length_of(&all));
                all.extend(bytes);
            }
            at += length_of(piece.as_bytes());
        }
        all.extend(redactor.finish().map(|(_, bytes)| bytes).unwrap_or_default());
        assert_eq!(length_of(&all), at, "every byte keeps its place");
        String::from_utf8(all).unwrap()
    }

    #[test]
    fn values_are_blotted_out_wherever_a_transcript_is_cut() {
        let values = ["s3cr3t", "s3cr3t-4242", "abc", "4242-then"];
        for (text, wanted) in [
            ("TOKEN=s3cr3t-4242-end and s3cr3t; x=abc\n", "TOKEN=[redacted]*-end and [redac; x=abc\n"),
            ("TOKEN=s3cr3t-4242-then\n", "TOKEN=[redacted]******\n"),
            ("s3cr3ts3cr3t-4242", "[redac[redacted]*"),
            ("s3cr3t-42", "[redac-42"),
        ] {
            for at in 0..text.len() {
                let (one, two) = text.split_at(at);
                assert_eq!(redacted(&[one, two], &values), wanted, "{at}");
            }
            let letters: Vec<&str> = text.split("").collect();
            assert_eq!(redacted(&letters, &values), wanted, "a byte at a time");
        }
        assert_eq!(redacted(&["a\r\nsecond"], &["a\nsecond"]), "[redacted", "as a terminal writes it");
        assert_eq!(redacted(&["plain"], &[]), "plain");
    }

    #[test]
    fn only_what_may_begin_a_value_waits_for_what_follows() {
        let mut redactor = Redactor::new(Environment([("A".to_owned(), "s3cr3t-4242".to_owned())].into()));
        assert_eq!(redactor.push(0, b"ready> "), [(0, b"ready> ".to_vec())]);
        assert_eq!(redactor.push(7, b"a s3cr"), [(7, b"a ".to_vec())]);
        assert_eq!(redactor.push(13, b"et"), [(9, b"s3cret".to_vec())]);
    }
}
