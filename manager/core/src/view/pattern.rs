//! Patterns of names: `*` for any text, `?` for any one character, everything else for itself. Only for lists: what
//! changes an agent takes exact names.

pub(crate) struct Pattern(Vec<char>);

impl Pattern {
    pub(crate) fn new(text: &str) -> Self {
        Self(text.chars().collect())
    }

    /// Whether all of `text` fits. Takes at most pattern × text steps, whatever the pattern.
    pub(crate) fn matches(&self, text: &str) -> bool {
        let text: Vec<char> = text.chars().collect();
        let (mut at, mut place) = (0, 0);
        // Where the last star is, and up to where it has taken text.
        let mut star: Option<(usize, usize)> = None;
        while let Some(letter) = text.get(place) {
            match self.0.get(at) {
                Some('*') => {
                    star = Some((at, place));
                    at += 1;
                }
                Some(wanted) if *wanted == '?' || wanted == letter => {
                    at += 1;
                    place += 1;
                }
                Some(_) | None => match star {
                    Some((star_at, taken)) => {
                        star = Some((star_at, taken + 1));
                        at = star_at + 1;
                        place = taken + 1;
                    }
                    None => return false,
                },
            }
        }
        self.0.iter().skip(at).all(|rest| *rest == '*')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_take_any_text_and_question_marks_one_character() {
        for (pattern, text, fits) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "anything at all", true),
            ("fix-*", "fix-parser", true),
            ("fix-*", "a fix-parser", false),
            ("*-10", "job-10", true),
            ("job-1", "job-10", false),
            ("a*b*c", "a12b3b4c", true),
            ("a*b*c", "a12b3b4", false),
            ("n?me", "näme", true),
            ("n?me", "nme", false),
            ("[ab]", "a", false),
            ("[ab]", "[ab]", true),
        ] {
            assert_eq!(Pattern::new(pattern).matches(text), fits, "{pattern:?} on {text:?}");
        }
    }

    #[test]
    fn a_hostile_pattern_takes_no_exponential_time() {
        let pattern = "*a".repeat(100) + "b";
        assert!(!Pattern::new(&pattern).matches(&"a".repeat(5_000)));
    }
}
