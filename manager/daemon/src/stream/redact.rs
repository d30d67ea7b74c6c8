//! Values of environments, blotted out of a transcript. Every byte keeps its place, so that the rest reads as it is: a
//! value becomes a mark of its own length.

use protocol::agent::Environment;

/// Shorter values are in every text.
const VALUE_LEAST: usize = 4;
const MARK: &[u8] = b"[redacted]";

/// The values to look for, and the end of what came, in which one may have begun.
pub(super) struct Redactor {
    /// The longest first: one may be part of another.
    values: Vec<Vec<u8>>,
    held: Vec<u8>,
    /// Place of the first byte that is held.
    at: u64,
}

impl Redactor {
    pub(super) fn new(Environment(values): Environment) -> Self {
        let long = values.into_values().filter(|value| value.len() >= VALUE_LEAST);
        // A terminal writes the lines of a value with CR LF.
        let mut values: Vec<Vec<u8>> =
            long.flat_map(|value| [value.replace('\n', "\r\n").into_bytes(), value.into_bytes()]).collect();
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        values.dedup();
        Self { values, held: Vec::new(), at: 0 }
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
        self.blot();
        let longest = self.values.first().map_or(0, Vec::len);
        let told = self.held.len().saturating_sub(longest.saturating_sub(1));
        if told > 0 {
            let rest = self.held.split_off(told);
            let piece = std::mem::replace(&mut self.held, rest);
            let at = self.at;
            self.at = at.saturating_add(length_of(&piece));
            out.push((at, piece));
        }
        out
    }

    /// What was held.
    pub(super) fn finish(&mut self) -> Option<(u64, Vec<u8>)> {
        let piece = std::mem::take(&mut self.held);
        let at = self.at;
        self.at = at.saturating_add(length_of(&piece));
        (!piece.is_empty()).then_some((at, piece))
    }

    fn blot(&mut self) {
        for value in &self.values {
            let mut from = 0;
            while let Some(found) = self.held.get(from..).and_then(|rest| position(rest, value)) {
                let (start, end) = (from + found, from + found + value.len());
                let mark = MARK.iter().copied().chain(std::iter::repeat(b'*'));
                if let Some(place) = self.held.get_mut(start..end) {
                    place.iter_mut().zip(mark).for_each(|(byte, mark)| *byte = mark);
                }
                from = end;
            }
        }
    }
}

fn position(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    let first = wanted.first()?;
    let mut from = 0;
    loop {
        from += bytes.get(from..)?.iter().position(|byte| byte == first)?;
        if bytes.get(from..)?.starts_with(wanted) {
            return Some(from);
        }
        from += 1;
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
        let text = "TOKEN=s3cr3t-4242-end and s3cr3t; x=abc\n";
        let wanted = "TOKEN=[redacted]*-end and [redac; x=abc\n";
        for at in 0..text.len() {
            let (one, two) = text.split_at(at);
            assert_eq!(redacted(&[one, two], &["s3cr3t", "s3cr3t-4242", "abc"]), wanted, "{at}");
        }
        assert_eq!(redacted(&["a\r\nsecond"], &["a\nsecond"]), "[redacted", "as a terminal writes it");
        assert_eq!(redacted(&["plain"], &[]), "plain");
    }
}
