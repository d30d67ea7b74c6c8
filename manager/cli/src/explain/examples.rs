//! What commands print, from a session that was played for real: the topic `examples`, and by command for manual pages.

/// Written by `deploy/session`.
pub(super) const TEXT: &str = include_str!("topics/examples.txt");

const PROMPT: &str = "$ ";
const HEADING: &str = "== ";

/// All that was shown of a command, given as its words after `phalanx`.
pub(super) fn of(words: &str) -> String {
    let called = format!("phalanx {words}");
    let is_call = |line: &str| {
        line.split_once(&called).is_some_and(|(_, rest)| rest.is_empty() || rest.starts_with(' '))
    };
    let mut shown = String::new();
    let mut within = false;
    for line in TEXT.lines() {
        if line.starts_with(PROMPT) {
            within = is_call(line);
        } else if line.starts_with(HEADING) {
            within = false;
        }
        if within {
            shown.push_str(line);
            shown.push('\n');
        }
    }
    shown.truncate(shown.trim_end().len());
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_command_all_its_calls_are_shown_with_what_they_printed_and_no_others() {
        let shown = of("ls");
        assert!(shown.starts_with("$ phalanx ls") && shown.contains("RUNNING"), "{shown}");
        assert!(!shown.contains("phalanx show") && !shown.contains(HEADING), "{shown}");
        assert_eq!(of("l"), "", "whole words only");
        assert_eq!(of("no-such-command"), "");
    }

    #[test]
    fn the_session_names_no_machine_and_no_error_of_its_own() {
        for wrong in ["/tmp/", "unrecognized subcommand", "unexpected argument", "\u{1b}"] {
            assert!(!TEXT.contains(wrong), "{wrong:?}");
        }
    }
}
