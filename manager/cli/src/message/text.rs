//! What is to be sent: from words, a file or standard input, checked before anything is done.

use std::io::Read;
use std::path::Path;

use protocol::message::{TEXT_LIMIT, has_controls};

use super::super::args::message::Send;
use super::super::error::Failure;
use super::super::output::pipe::say;

/// The agent that is named, if one is, and the text.
pub fn read(args: &Send) -> Result<(Option<String>, String), Failure> {
    let mut words = args.words.iter();
    let agent = if args.labels.is_empty() {
        let missing = || Failure::usage("no agent is named").hint("phalanx send AGENT TEXT, or -l key=value");
        Some(words.next().ok_or_else(missing)?.clone())
    } else {
        None
    };
    let words: Vec<&str> = words.map(String::as_str).collect();
    let text = match (&args.file, words.as_slice()) {
        (Some(_), [_, ..]) => {
            return Err(Failure::usage("a text and -f are given; use one of them"));
        }
        (Some(file), []) if file == Path::new("-") => from_stdin(args)?,
        (Some(file), []) => {
            let shown = format!("cannot read {}", file.display());
            let opened =
                std::fs::File::open(file).map_err(|error| Failure::usage(format!("{shown}: {error}")))?;
            whole(&shown, opened, args)?
        }
        (None, ["-"]) => from_stdin(args)?,
        (None, []) => return Err(Failure::usage("there is no text").hint("give words, -, or -f FILE")),
        (None, words) => words.join(" ").replace("\r\n", "\n"),
    };
    check(&text)?;
    Ok((agent, text))
}

fn from_stdin(args: &Send) -> Result<String, Failure> {
    whole("cannot read standard input", std::io::stdin().lock(), args)
}

fn whole(failed: &str, reader: impl Read, args: &Send) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(TEXT_LIMIT).unwrap_or(u64::MAX).saturating_mul(2);
    reader
        .take(limit)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::usage(format!("{failed}: {error}")))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::usage(format!("the text is not UTF-8: byte {at} begins no character"))
    })?;
    if text.contains("\r\n") {
        say("note: its line ends CR LF are typed as LF");
    }
    let mut text = text.replace("\r\n", "\n");
    if !args.no_enter && text.ends_with('\n') {
        text.pop();
    }
    Ok(text)
}

fn check(text: &str) -> Result<(), Failure> {
    if text.is_empty() {
        return Err(Failure::usage("the text is empty: Enter is not pressed on what is not ours"));
    }
    if text.len() > TEXT_LIMIT {
        let message = format!("the text is longer than {TEXT_LIMIT} bytes");
        return Err(
            Failure::usage(message).hint("put it into a file in its workspace and send the file's name")
        );
    }
    for (number, line) in text.split('\n').enumerate() {
        if let Some((column, bad)) = line.chars().enumerate().find(|(_, c)| has_controls(&c.to_string())) {
            let place = format!("line {}, column {}", number + 1, column + 1);
            let message = format!("the text holds the control character U+{:04X} at {place}", u32::from(bad));
            return Err(Failure::usage(message).hint("only TAB and line ends may be sent"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_words(words: &[&str]) -> Result<(Option<String>, String), Failure> {
        read(&Send {
            wait: None,
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            file: None,
            labels: Vec::new(),
            no_enter: false,
            now: false,
            lines: false,
            timeout: "10s".to_owned(),
            no_wait: false,
            key: None,
            yes: false,
        })
    }

    #[test]
    fn words_are_joined_and_line_ends_of_other_systems_become_ours() {
        assert_eq!(read_words(&["a", "one", "two"]).unwrap(), (Some("a".to_owned()), "one two".to_owned()));
        assert_eq!(read_words(&["a", "-l"]).unwrap().1, "-l");
        assert_eq!(read_words(&["a", "x\r\ny\n"]).unwrap().1, "x\ny\n");
    }

    #[test]
    fn a_control_character_is_named_with_its_place_and_not_shown() {
        let said = read_words(&["a", "one\ntwo\u{1b}[201~"]).unwrap_err().rendered(false).unwrap();
        assert!(said.contains("U+001B at line 2, column 4") && !said.contains('\u{1b}'), "{said}");
        for bad in ["\0", "\r", "\u{7f}", "\u{9b}", "\u{3}"] {
            assert_eq!(read_words(&["a", bad]).unwrap_err().exit_code(), 2, "{bad:?}");
        }
        assert!(read_words(&["a", "tab\tline\n日本 👩‍🚀"]).is_ok());
    }

    #[test]
    fn nothing_to_send_is_wrong_usage() {
        for words in [&[][..], &["a"], &["a", ""]] {
            assert_eq!(read_words(words).unwrap_err().exit_code(), 2, "{words:?}");
        }
    }
}
