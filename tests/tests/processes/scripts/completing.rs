//! Tab in real shells, with names as they are now; and an answer that starts nothing, says no error and is quick.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use phalanx_tests::install::Install;
use phalanx_tests::{programs, wait};

const ODD: &str = "it's \"odd\" $HOME `x` *";

/// What fits after these words, the last one being completed.
fn complete(install: &Install, words: &[&str]) -> Vec<String> {
    let args = [&["complete", "zsh", "--", "phalanx"], words].concat();
    let ran = install.run(&args).succeeded();
    assert_eq!(ran.stderr, "", "{words:?}");
    ran.text().lines().map(str::to_owned).collect()
}

fn with_work() -> Install {
    let install = Install::start();
    let repo = install.repo("repo");
    install.create("two words", &["--repo", &programs::text(&repo.path)], &["hang"]);
    install.create(ODD, &[], &["hang"]);
    install.run(&["snapshot", "create", "two words"]).succeeded();
    let tasks =
        "name: nightly\ntasks:\n  - {name: fix parser, command: 'true'}\n  - {name: lint, command: 'true'}\n";
    install.run(&["run", &install.file("t.yaml", tasks)]).succeeded();
    install
}

#[test]
fn names_are_those_of_now_and_each_argument_takes_its_own() {
    let install = with_work();
    let pager = "[[notify]]\nname = 'pager'\nonly = 'asked'\non = 'failed'\ncommand = 'true'\n";
    install.settings(&format!("[host]\ndisk_share = \"100%\"\n{pager}"));
    for (words, expected) in [
        (&["show", ""][..], &[ODD, "nightly", "two words"][..]),
        (&["show", "tw"], &["two words"]),
        (&["logs", "-f", "it"], &[ODD]),
        (&["wait", "two words", "i"], &[ODD]),
        (&["show", "ni"], &["nightly"]),
        (&["run", "t.yaml", "--notify", "pa"], &["pager"]),
        (&["run", "t.yaml", "--notify", "pager:failed,r"], &["pager:failed,review", "pager:failed,run-end"]),
        (&["tasks", ""], &["nightly"]),
        (&["wait", "nightly/"], &["nightly/fix parser", "nightly/lint"]),
        (&["diff", "l"], &["lint"]),
        (&["accept", "nightly/f"], &["nightly/fix parser"]),
        (&["cancel", "nightly", "l"], &["lint"]),
        (&["retry", "nightly", "lint", "f"], &["fix parser"]),
        (&["file", "get", "tw"], &["two words:"]),
        (&["config", "get", "defaults.mem"], &["defaults.memory"]),
        (&["schema", "snapshot", "r"], &["restore"]),
        (&["profile", "show", "cla"], &["claude"]),
        (&["create", "x", "cod"], &["codex"]),
        (&["snapshot", "restore", "two words", ""], &["1"]),
        (&["wait", "x", "--for", "ACC"], &["ACCEPTED"]),
        (&["--home", "/nowhere", "show", "tw"], &[]),
        (&["sna"], &["snapshot"]),
    ] {
        let look = || {
            let mut found = complete(&install, words);
            found.retain(|word| !word.starts_with('-'));
            found.sort();
            found
        };
        // On a busy machine an answer may come too late, and then is none.
        wait::until(wait::LIMIT, &format!("{words:?}"), look, |found| *found == expected);
    }
    install.run(&["destroy", "two words", "--discard"]).succeeded();
    assert!(complete(&install, &["show", "tw"]).is_empty());
}

#[test]
fn an_answer_starts_nothing_says_no_error_and_waits_for_nobody() {
    let install = Install::new();
    assert!(complete(&install, &["show", ""]).iter().all(|word| word.starts_with('-')));
    assert!(!install.home().exists(), "nothing was made");
    install.settings("[defaults]\ngrase = \"1s\"\n");
    assert_eq!(complete(&install, &["tas"]), ["tasks"]);
    install.settings("[host]\ndisk_share = \"100%\"\n");

    install.run(&["up"]).succeeded();
    install.create("one", &[], &["hang"]);
    let quickest =
        || (0..5).map(|_| install.run(&["complete", "zsh", "--", "phalanx", "show", "o"]).took).min();
    let look = || complete(&install, &["show", "o"]);
    wait::until(wait::LIMIT, "the name is there", look, |found| *found == ["one"]);
    let took = quickest().unwrap();
    assert!(took < Duration::from_millis(150), "{took:?}");
    let manager = Pid::from_raw(install.pid("manager").unwrap().cast_signed());
    kill(manager, Signal::SIGSTOP).unwrap();
    let (found, took) = (complete(&install, &["show", "o"]), quickest().unwrap());
    kill(manager, Signal::SIGCONT).unwrap();
    assert!(found.is_empty(), "{found:?}");
    assert!(took < Duration::from_millis(400), "{took:?}");
}

/// A person at a shell: a terminal of its own, in which he types.
struct Terminal<'a> {
    install: &'a Install,
    socket: PathBuf,
    /// A new session has that of the client that made it.
    path: String,
}

impl<'a> Terminal<'a> {
    fn open(install: &'a Install, shell: &[&str]) -> Self {
        let folder = programs::path_of("phalanx").parent().unwrap().display().to_string();
        let path = format!("{folder}:{}", std::env::var("PATH").unwrap());
        let terminal = Self { install, socket: install.path("typing.sock"), path };
        let home = format!("PHALANX_HOME={}", install.home().display());
        let user = format!("HOME={}", install.path("user").display());
        let session =
            ["-f", "/dev/null", "new-session", "-d", "-x", "200", "-y", "40", "-e", &home, "-e", &user];
        terminal.tmux(&[&session[..], shell].concat());
        terminal
    }

    fn tmux(&self, args: &[&str]) -> String {
        let mut command = Command::new("tmux");
        command
            .env("PATH", &self.path)
            .arg("-S")
            .arg(&self.socket)
            .args(["-u"])
            .args(args)
            .current_dir(self.install.path("user"));
        let output = command.output().unwrap();
        assert!(output.status.success(), "tmux {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    fn types(&self, text: &str) {
        self.tmux(&["send-keys", "-l", "--", text]);
    }

    fn presses(&self, key: &str) {
        self.tmux(&["send-keys", key]);
    }

    /// What was begun is completed with Tab and run; the file it wrote.
    fn completes(&self, begun: &str, name: &str, rest: &str) -> String {
        let file = self.install.path(name);
        self.types(begun);
        wait::until(wait::LIMIT, "it is typed", || self.screen(), |screen| screen.contains(begun));
        let typed = |screen: &String| !screen.trim_end().ends_with(begun.trim_end());
        // As a person does, again when nothing comes for a second: an answer that is late is none.
        let mut looks = 0;
        let tab = || {
            if looks % 50 == 0 {
                self.presses("Tab");
            }
            looks += 1;
            self.screen()
        };
        wait::until(wait::LIMIT, &format!("{begun:?} is completed"), tab, typed);
        self.types(&format!("{rest} > {}", file.display()));
        self.presses("Enter");
        let read = || std::fs::read_to_string(&file).unwrap_or_default();
        wait::until(wait::LIMIT, &format!("{begun:?} has run: {}", self.screen()), read, |text| {
            !text.is_empty()
        })
    }
}

impl Drop for Terminal<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.screen());
        }
        self.tmux(&["kill-server"]);
    }
}

fn in_shell(shell: &[&str], load: &str) {
    if Command::new(shell[0]).arg("-c").arg("true").output().is_err() {
        assert_ne!(shell[0], "bash");
        // deploy/test installs all three.
        assert!(std::env::var_os("PHALANX_REQUIRE_ROOT_TESTS").is_none(), "there is no {}", shell[0]);
        eprintln!("skipped: there is no {}", shell[0]);
        return;
    }
    let install = with_work();
    let terminal = Terminal::open(&install, shell);
    terminal.types(load);
    terminal.presses("Enter");
    let ready = install.path("ready");
    terminal.types(&format!("touch {}", ready.display()));
    terminal.presses("Enter");
    wait::until(wait::LIMIT, "the shell is ready", || ready.exists(), |there| *there);
    terminal.presses("C-l");
    for (place, (begun, rest, expected)) in [
        ("phalanx show -o name tw", "", "two words"),
        ("phalanx show -o name it", "", ODD),
        ("phalanx show -o name 'tw", "", "two words"),
        ("phalanx tasks -o name ni", "", "fix parser\nlint"),
        ("phalanx show -o template='{{ spec.name }}' two\\ w", "", "two words"),
        ("phalanx config get defaults.out", "", "table"),
    ]
    .into_iter()
    .enumerate()
    {
        let text = terminal.completes(begun, &format!("out{place}"), rest);
        assert_eq!(text.trim_end(), expected, "{begun}");
        terminal.presses("C-l");
    }
}

#[test]
fn tab_in_bash_writes_a_name_as_one_word_whatever_is_in_it() {
    in_shell(&["bash", "--norc", "--noprofile", "-i"], "source <(phalanx completion bash)");
}

#[test]
fn tab_in_zsh_writes_a_name_as_one_word_whatever_is_in_it() {
    in_shell(&["zsh", "-f", "-i"], "autoload -U compinit; compinit -u -D; source <(phalanx completion zsh)");
}

#[test]
fn tab_in_fish_writes_a_name_as_one_word_whatever_is_in_it() {
    in_shell(&["fish", "--no-config", "-i"], "phalanx completion fish | source");
}
