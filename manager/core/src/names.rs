//! Names, branches and ids that the manager makes, and quoting for the one shell script it writes.

use protocol::ids::{AgentId, MessageId, Name, RunId, TaskId};
use protocol::time::Timestamp;
use sha2::{Digest, Sha256};

/// At most 40 of `a-z 0-9 -`, never empty, never beginning or ending with `-`: safe in a ref on any file system.
#[must_use]
pub fn slug(text: &str, otherwise: &str) -> String {
    let mut slug = String::new();
    for c in text.chars() {
        if slug.len() >= 40 {
            break;
        }
        if c.is_ascii_alphanumeric() {
            slug.push(c.to_ascii_lowercase());
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    let slug = slug.trim_end_matches('-');
    if slug.is_empty() { otherwise.to_owned() } else { slug.to_owned() }
}

/// `phalanx/<run slug>-<tail>/<task slug>-<tail>`; distinct tails keep it distinct where file names ignore case.
#[must_use]
pub fn branch(run: RunId, run_name: &Name, task: TaskId, task_name: &Name) -> String {
    format!(
        "phalanx/{}-{}/{}-{}",
        slug(run_name.as_str(), "run"),
        run.tail(),
        slug(task_name.as_str(), "task"),
        task.tail()
    )
}

/// Ref in the repository that receives what an attempt made.
#[must_use]
pub fn result_ref(run: RunId, task: TaskId, attempt: u32) -> String {
    format!("refs/phalanx/{run}/{task}/{attempt}")
}

/// One word of a POSIX shell that means exactly `text`.
#[must_use]
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A script that shows and runs each program and ends with the code of the first that fails. `exec` in a subshell
/// runs programs only: a word such as `exit` is not the shell's own command there.
#[must_use]
pub fn script(programs: &[Vec<String>]) -> String {
    let mut script = String::from("set -e\n");
    for program in programs {
        let words: Vec<String> = program.iter().map(|word| quoted(word)).collect();
        let words = words.join(" ");
        script.push_str(&format!("printf '%s\\n' {}\n(exec {words})\n", quoted(&format!("+ {words}"))));
    }
    script
}

/// The program, with what must be run before it where there is something.
#[must_use]
pub fn with_setup(setup: &[Vec<String>], program: &[String]) -> Vec<String> {
    if setup.is_empty() {
        return program.to_vec();
    }
    let script = format!("{}exec \"$@\"\n", script(setup));
    let mut words = vec![String::from("/bin/sh"), String::from("-c"), script, String::from("setup")];
    words.extend_from_slice(program);
    words
}

/// `wished`, or `wished~<tail>` when an agent that is there has that name. The id makes the second one unique.
pub(crate) fn unique_name(wished: &str, id: AgentId, taken: impl Fn(&Name) -> bool) -> Option<Name> {
    let name = wished.parse::<Name>().ok().filter(|name| !taken(name));
    name.or_else(|| format!("{wished}~{}", id.tail()).parse().ok())
}

/// 128 bits that depend on every part and nothing else.
pub(crate) fn mixed(parts: &[&[u8]]) -> u128 {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        hasher.update(part);
    }
    hasher.finalize().iter().take(16).fold(0, |bits, byte| (bits << 8) | u128::from(*byte))
}

/// Hex of the SHA-256 of `bytes`.
pub(crate) fn digest(bytes: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(&Sha256::digest(bytes))
}

/// Ids of one request, from its seed.
pub(crate) struct Ids {
    now: Timestamp,
    seed: u128,
    count: u64,
}

impl Ids {
    pub(crate) fn new(now: Timestamp, seed: u128) -> Self {
        Self { now, seed, count: 0 }
    }

    fn random(&mut self) -> u128 {
        self.count += 1;
        mixed(&[b"id", &self.seed.to_be_bytes(), &self.count.to_be_bytes()])
    }

    pub(crate) fn agent(&mut self) -> AgentId {
        AgentId::from_parts(self.now.0, self.random())
    }

    pub(crate) fn message(&mut self) -> MessageId {
        MessageId::from_parts(self.now.0, self.random())
    }

    pub(crate) fn run(&mut self) -> RunId {
        RunId::from_parts(self.now.0, self.random())
    }

    pub(crate) fn task(&mut self) -> TaskId {
        TaskId::from_parts(self.now.0, self.random())
    }
}

/// Agent of a task: no input brings a seed for it, so it comes from the task's own unguessable id. `turn` tells
/// verifications of one attempt apart.
pub(crate) fn task_agent(now: Timestamp, task: TaskId, attempt: u32, purpose: &str, turn: u32) -> AgentId {
    let bits = mixed(&[
        task.to_string().as_bytes(),
        &attempt.to_be_bytes(),
        purpose.as_bytes(),
        &turn.to_be_bytes(),
        &now.0.to_be_bytes(),
    ]);
    AgentId::from_parts(now.0, bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::disallowed_methods, reason = "only a real shell can say how it reads the script")]
    fn run(programs: &[&[&str]]) -> (Option<i32>, String) {
        let programs: Vec<Vec<String>> =
            programs.iter().map(|words| words.iter().map(|word| (*word).to_owned()).collect()).collect();
        let output = std::process::Command::new("/bin/sh").arg("-c").arg(script(&programs)).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    }

    #[test]
    fn the_script_passes_every_argument_as_it_is_and_shows_it() {
        let odd = "it's $HOME `x` \"y\" \\ ; *\n-l %s";
        let (code, text) = run(&[&["printf", "<%s>", odd, ""]]);
        assert_eq!(code, Some(0));
        assert!(text.ends_with(&format!("<{odd}><>")), "{text}");
        assert!(text.starts_with("+ 'printf' '<%s>'"), "{text}");
    }

    #[test]
    fn the_script_ends_with_the_code_of_the_first_that_fails() {
        let (code, text) = run(&[&["true"], &["sh", "-c", "exit 7"], &["echo", "never"]]);
        assert_eq!(code, Some(7));
        assert!(!text.contains("\nnever"), "{text}");
        assert_eq!(run(&[&["no-such-program"]]).0, Some(127));
    }

    #[test]
    fn a_command_of_the_shell_itself_does_not_pass_for_a_program() {
        assert_eq!(run(&[&["exit", "0"]]).0, Some(127));
    }

    #[test]
    fn a_slug_is_never_empty_never_long_and_plain_ascii() {
        assert_eq!(slug("  Fix: the *bug*! ", "task"), "fix-the-bug");
        assert_eq!(slug("名前", "task"), "task");
        assert_eq!(slug(&"a".repeat(200), "task").len(), 40);
        assert_eq!(slug("..", "run"), "run");
    }
}
