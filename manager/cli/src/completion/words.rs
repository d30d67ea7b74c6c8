//! What was typed, as words; and how a candidate is written so that bash takes it as one. Only bash needs it: it gives
//! the line as it is and takes what it is given as it is, where zsh and fish quote for themselves.

/// Characters at which readline begins a word anew: the part before stays as it was typed.
const BREAKS: &[char] = &['@', '=', ':', ',', '<', '>', '|', '&', ';', '('];

/// Words up to the cursor, the last one being completed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Typed {
    pub(super) words: Vec<String>,
    /// The quote that is open at the cursor.
    quote: Option<char>,
    /// Of the last word, what readline takes for a word before: it is not written again.
    kept: usize,
}

/// As zsh and fish tell them.
pub(super) fn of_words(words: &[String]) -> Typed {
    Typed { words: words.to_vec(), ..Typed::default() }
}

/// Of a line of bash up to the cursor.
pub(super) fn of_line(line: &str) -> Typed {
    let mut before_quote = 0;
    let mut typed = Typed::default();
    let mut word: Option<String> = None;
    let mut chars = line.chars();
    while let Some(char) = chars.next() {
        match (typed.quote, char) {
            (None, ' ' | '\t' | '\n') => {
                typed.words.extend(word.take());
                typed.kept = 0;
            }
            (None, ';' | '|' | '&' | '(') => {
                // Another command begins.
                typed = Typed::default();
                word = None;
            }
            (None, '\'' | '"') => {
                typed.quote = Some(char);
                // Readline's word begins after a quote that is open.
                before_quote = typed.kept;
                typed.kept = word.get_or_insert_default().len();
            }
            (Some(quote), char) if quote == char => {
                typed.quote = None;
                typed.kept = before_quote;
            }
            (None | Some('"'), '\\') => {
                let word = word.get_or_insert_default();
                match chars.next() {
                    Some(next) => word.push(next),
                    None => word.push('\\'),
                }
            }
            (quote, char) => {
                let word = word.get_or_insert_default();
                word.push(char);
                if quote.is_none() && BREAKS.contains(&char) {
                    typed.kept = word.len();
                }
            }
        }
    }
    typed.words.push(word.unwrap_or_default());
    typed
}

impl Typed {
    /// What readline puts in place of its word.
    pub(super) fn completed(&self, value: &str) -> String {
        let rest = value.get(self.kept..).unwrap_or(value);
        let quoted = |special: fn(char) -> bool| {
            let mut text = String::new();
            for char in rest.chars() {
                if special(char) {
                    text.push('\\');
                }
                text.push(char);
            }
            text
        };
        match self.quote {
            Some('\'') => rest.replace('\'', "'\\''"),
            Some(_) => quoted(|char| matches!(char, '"' | '\\' | '$' | '`' | '!')),
            None => quoted(|char| {
                char.is_ascii() && !char.is_ascii_alphanumeric() && !"_-./:=@,+%^".contains(char)
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        of_line(line).words
    }

    #[test]
    fn a_line_is_split_as_bash_does_it() {
        assert_eq!(words("phalanx show "), ["phalanx", "show", ""]);
        assert_eq!(words("phalanx show two\\ wo"), ["phalanx", "show", "two wo"]);
        assert_eq!(words("phalanx show 'it is"), ["phalanx", "show", "it is"]);
        assert_eq!(words("phalanx show \"a \\\"b\" c"), ["phalanx", "show", "a \"b", "c"]);
        assert_eq!(words("cd x && FOO; phalanx ls"), ["phalanx", "ls"]);
        assert_eq!(words("phalanx show a\\"), ["phalanx", "show", "a\\"]);
    }

    #[test]
    fn a_candidate_is_written_as_one_word_wherever_the_cursor_is() {
        let name = "it's $HOME `x` two";
        let completed = |line: &str| of_line(line).completed(name);
        assert_eq!(completed("phalanx show "), r"it\'s\ \$HOME\ \`x\`\ two");
        assert_eq!(completed("phalanx show it"), r"it\'s\ \$HOME\ \`x\`\ two");
        assert_eq!(completed("phalanx show '"), r"it'\''s $HOME `x` two");
        assert_eq!(completed("phalanx show \"it"), r"it's \$HOME \`x\` two");
        assert_eq!(completed("phalanx show 'it'"), r"it\'s\ \$HOME\ \`x\`\ two");
        // Readline's word begins after the colon.
        assert_eq!(of_line("phalanx show a:b").completed("a:b c"), r"b\ c");
        assert_eq!(of_line("phalanx show --run=ni").completed("--run=nightly"), "nightly");
        assert_eq!(of_line("phalanx show x").completed("naïve 名前"), "naïve\\ 名前");
    }
}
