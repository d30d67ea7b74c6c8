//! What is said to tmux and what it prints: quoting, list format, version. Pure.

/// Format of `list-sessions`. Free text comes last and splitting stops before it, so nothing in a
/// session's name can shift a field; labels are not read back at all.
pub(super) const SESSIONS: &str =
    "#{session_id}:#{@phalanx_agent}:#{pane_pid}:#{pane_dead}:#{session_attached}:#{session_name}";

/// Longest label shown in a window's name.
const LABEL_CHARACTERS: usize = 200;

/// A session of one of our servers that belongs to an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// The agent's id.
    pub agent: String,
    /// tmux's own id, `$N`: never used twice in the life of a server.
    pub session_id: String,
    pub pane_pid: Option<i32>,
    pub relay: Relay,
    /// People looking at it now.
    pub attached: u32,
}

/// Whether the pane's program, the relay to the shim, runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relay {
    Running,
    Ended,
}

/// Sessions that are ours; lines of any other shape are someone else's and are left alone.
pub(super) fn parse_sessions(text: &str) -> Vec<Session> {
    text.lines().filter_map(parse_session).collect()
}

fn parse_session(line: &str) -> Option<Session> {
    let mut fields = line.splitn(6, ':');
    let session_id = fields.next().filter(|id| is_session_id(id))?.to_owned();
    let option = fields.next()?;
    let pane_pid = fields.next()?.parse().ok();
    let relay = if fields.next()? == "1" { Relay::Ended } else { Relay::Running };
    let attached = fields.next()?.parse().ok()?;
    let name = fields.next()?;
    // The option survives a rename by a person; the name is there before the option is set.
    let agent = if option.is_empty() { name } else { option };
    is_agent_id(agent).then(|| Session { agent: agent.to_owned(), session_id, pane_pid, relay, attached })
}

fn is_session_id(text: &str) -> bool {
    text.strip_prefix('$').is_some_and(|number| number.parse::<u64>().is_ok())
}

/// Ids go into targets and file names as they are.
pub(super) fn is_agent_id(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    text.len() <= 64
        && text.bytes().all(fits)
        && text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
}

/// A label as tmux may show it: `#` begins formats and shell commands in several places that expand
/// text again, so it becomes its wide twin; control characters become blanks.
pub(super) fn shown_label(label: &str) -> String {
    let safe = |character: char| match character {
        '#' => '＃',
        other if other.is_control() => ' ',
        other => other,
    };
    let shown: String = label.chars().map(safe).take(LABEL_CHARACTERS).collect();
    if shown.trim().is_empty() { "agent".to_owned() } else { shown }
}

/// One word of a tmux command file; `None` for what such a file cannot hold.
pub(super) fn quote(word: &str) -> Option<String> {
    if word.contains(['\n', '\r', '\0']) {
        return None;
    }
    Some(format!("'{}'", word.replace('\'', "'\\''")))
}

/// `tmux -V`, as a number to compare and the letter after it: `3.1c` is `(3, 1, 'c')`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version(u32, u32, char);

/// That of Debian 11, the oldest that the tests were run with. It lacks `extended-keys` and `terminal-features`, so a
/// viewer has plain keys there.
pub(super) const OLDEST: Version = Version(3, 1, 'c');

/// `None` for builds without a number (`tmux master`), which are newer than any we refuse.
pub(super) fn parse_version(text: &str) -> Option<Version> {
    let number =
        text.trim().rsplit([' ', '-']).find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
    let (major, rest) = number.split_once('.')?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (minor, letter) = rest.split_at_checked(digits)?;
    Some(Version(major.parse().ok()?, minor.parse().ok()?, letter.chars().next().unwrap_or(' ')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_options_of_others_cannot_pass_for_an_agent() {
        let text = "$0:abc1:41:0:2:abc1\n$1::42:1:0:abc2\n$2:abc3:43:0:0:a:b\tc\n\
                    $3::44:0:0:work\tshop\n$4:a:b:c:d:e:f:g\nno server\n$x:abc4:1:0:0:z\n$5:\n\n";
        let sessions = parse_sessions(text);
        let agents: Vec<_> = sessions.iter().map(|session| session.agent.as_str()).collect();
        assert_eq!(agents, ["abc1", "abc2", "abc3"]);
        assert_eq!(sessions[0].attached, 2);
        assert_eq!(sessions[1].relay, Relay::Ended);
        assert_eq!(sessions[2].session_id, "$2");
    }

    #[test]
    fn a_label_loses_what_tmux_would_expand() {
        assert_eq!(shown_label("#(touch x) #[fg=red]"), "＃(touch x) ＃[fg=red]");
        assert_eq!(shown_label("a\tb\nc\u{1b}[2J"), "a b c [2J");
        assert_eq!(shown_label(" \n"), "agent");
        assert_eq!(shown_label(&"名".repeat(300)).chars().count(), 200);
    }

    #[test]
    fn a_quoted_word_is_one_word() {
        assert_eq!(quote("it's; $HOME #{x}"), Some("'it'\\''s; $HOME #{x}'".to_owned()));
        assert_eq!(quote("a\nb"), None);
    }

    #[test]
    fn versions_compare_as_released() {
        let version = |text| parse_version(text).unwrap();
        assert!(version("tmux 3.1b") < OLDEST);
        assert!(version("tmux 3.1") < OLDEST);
        assert!(version("tmux 3.1c\n") >= OLDEST);
        assert!(version("tmux 3.3a") > OLDEST);
        assert!(version("tmux next-3.7") > OLDEST);
        assert!(version("tmux openbsd-7.4") > OLDEST);
        assert!(version("tmux 2.9a") < OLDEST);
        assert_eq!(parse_version("tmux master"), None);
    }
}
