//! The tmux adapter against the real tmux, on private sockets.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers too")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use hostd::sys::process::ProcessTable;
use hostd::sys::tmux::{
    Relay, SESSIONS_PER_SERVER, SessionSpec, Settings, Shard, ShardState, Tmux, TmuxError,
};
use nix::sys::signal::Signal;
use tempfile::TempDir;

/// A tmux folder, a script in the shim's place, and the end of its servers on drop.
struct Case {
    dir: TempDir,
}

impl Case {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        script(&dir.path().join("shim"), r#"[ "$1" = attach ] && [ -d "$2" ] && exec sleep 1000"#);
        Self { dir }
    }

    fn folder(&self) -> PathBuf {
        // Longer than a socket's path may be.
        self.dir.path().join("long".repeat(40)).join("tmux")
    }

    async fn open(&self) -> Tmux {
        self.open_with("tmux").await.unwrap()
    }

    async fn open_with(&self, program: impl Into<PathBuf>) -> Result<Tmux, TmuxError> {
        let shim = self.dir.path().join("shim");
        Tmux::open(Settings { dir: self.folder(), shim, procs: Vec::new(), program: program.into() }).await
    }

    fn spec(&self, agent: &str, label: &str) -> SessionSpec {
        SessionSpec { agent: agent.to_owned(), label: label.to_owned(), dir: self.dir.path().to_path_buf() }
    }

    /// Asks a server directly, without the adapter.
    fn tmux(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("tmux");
        command.args(["-u", "-S", "00.sock"]).args(arguments).current_dir(self.folder()).env_remove("TMUX");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}

impl Drop for Case {
    fn drop(&mut self) {
        let Ok(folder) = self.folder().canonicalize() else { return };
        let Ok(table) = ProcessTable::read() else { return };
        let below = |pid| {
            let is_tmux = fs::read(format!("/proc/{pid}/comm")).is_ok_and(|name| name.starts_with(b"tmux"));
            is_tmux && fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == folder)
        };
        for server in table.find(below) {
            let _ = server.signal(Signal::SIGKILL);
        }
    }
}

fn script(path: &Path, body: &str) {
    fs::write(path, format!("#!/bin/sh\n{body}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Agents with running relays by shard; every server must be known.
async fn agents(tmux: &Tmux) -> BTreeMap<String, (Shard, String)> {
    let mut agents = BTreeMap::new();
    for (shard, state) in tmux.list().await.unwrap() {
        match state {
            ShardState::Running(sessions) => {
                for session in sessions {
                    assert_eq!(session.relay, Relay::Running, "{session:?}");
                    let doubled = agents.insert(session.agent, (shard, session.session_id));
                    assert_eq!(doubled, None, "an agent has two sessions");
                }
            }
            ShardState::Absent => {}
            ShardState::Silent => panic!("it is silent"),
            ShardState::Unknown(reason) => panic!("{reason}"),
        }
    }
    agents
}

#[tokio::test]
async fn any_label_gets_its_own_session_and_is_shown_without_being_expanded() {
    let case = Case::new();
    let tmux = case.open().await;
    let long = "x".repeat(200);
    let labels = [
        "a.b:c",
        "a_b_c",
        "naïve 名前",
        &long,
        "#(touch x)",
        "it's; #[fg=red] $HOME %H",
        "-t",
        "tab\tand\nline",
    ];
    let specs: Vec<_> =
        labels.iter().enumerate().map(|(n, label)| case.spec(&format!("agent{n}"), label)).collect();
    for made in tmux.ensure_sessions(&specs).await {
        made.unwrap();
    }
    assert_eq!(agents(&tmux).await.len(), labels.len());
    let shown =
        |n: usize| case.tmux(&["display-message", "-p", "-t", &format!("=agent{n}:"), "#{window_name}"]);
    assert_eq!(shown(0), "a.b:c");
    assert_eq!(shown(2), "naïve 名前");
    assert_eq!(shown(3), long);
    assert_eq!(shown(4), "＃(touch x)");
    assert_eq!(shown(5), "it's; ＃[fg=red] $HOME %H");
    assert_eq!(shown(7), "tab and line");
    // The status line expands the label a second time.
    case.tmux(&["display-message", "-p", "-t", "=agent4:", "#{T:status-left}"]);
    assert!(!case.folder().join("x").exists());
    let again = tmux.ensure_sessions(&specs).await;
    assert_eq!(again.len(), specs.len());
    assert_eq!(agents(&tmux).await.len(), labels.len());
    assert!(matches!(tmux.ensure_session(&case.spec("a:b", "x")).await, Err(TmuxError::Name(_))));
    let broken = SessionSpec { dir: "/a\nb".into(), ..case.spec("ok", "x") };
    assert!(matches!(tmux.ensure_session(&broken).await, Err(TmuxError::Path(_))));
}

#[tokio::test]
async fn killing_a_session_twice_leaves_its_longer_namesake() {
    let case = Case::new();
    let tmux = case.open().await;
    for agent in ["demo-1", "demo-10"] {
        tmux.ensure_session(&case.spec(agent, agent)).await.unwrap();
    }
    assert!(tmux.kill_session("demo-1").await.unwrap());
    assert!(!tmux.kill_session("demo-1").await.unwrap());
    assert!(!tmux.kill_session("demo").await.unwrap());
    assert_eq!(agents(&tmux).await.into_keys().collect::<Vec<_>>(), ["demo-10"]);
}

#[tokio::test]
async fn a_hundred_sessions_are_made_at_once_and_found_by_the_next_hostd() {
    let case = Case::new();
    let tmux = case.open().await;
    let specs: Vec<_> = (0..100).map(|n| case.spec(&format!("a{n}"), "label")).collect();
    let started = Instant::now();
    let made = tmux.ensure_sessions(&specs).await;
    let took = started.elapsed();
    eprintln!("100 sessions in {took:?}");
    let made: Vec<_> = made.into_iter().map(Result::unwrap).collect();
    assert!(took < Duration::from_secs(10), "{took:?}");
    let mut counts: BTreeMap<Shard, usize> = BTreeMap::new();
    made.iter().for_each(|session| *counts.entry(session.shard).or_default() += 1);
    assert!(counts.values().all(|count| *count <= SESSIONS_PER_SERVER), "{counts:?}");
    let next = case.open().await;
    let again: Vec<_> = next.ensure_sessions(&specs).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(again, made);
    next.stop_servers().await.unwrap();
    assert!(next.server_processes().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_killed_server_is_absent_and_its_sessions_are_made_again() {
    let case = Case::new();
    let tmux = case.open().await;
    let spec = case.spec("a1", "label");
    tmux.ensure_session(&spec).await.unwrap();
    let server = tmux.server_processes().await.unwrap()[&0];
    server.signal(Signal::SIGKILL).unwrap();
    server.ended().await.unwrap();
    assert_eq!(tmux.list().await.unwrap(), [(0, ShardState::Absent)]);
    tmux.ensure_session(&spec).await.unwrap();
    assert_eq!(agents(&tmux).await.len(), 1);
    assert_ne!(tmux.server_processes().await.unwrap()[&0], server);
}

#[tokio::test]
async fn a_server_whose_socket_was_removed_makes_it_again_and_is_not_doubled() {
    let case = Case::new();
    let tmux = case.open().await;
    let before = tmux.ensure_session(&case.spec("a1", "label")).await.unwrap();
    let servers = tmux.server_processes().await.unwrap();
    fs::remove_file(case.folder().join("00.sock")).unwrap();
    // The next hostd knows nothing of the server but what it can see.
    let next = case.open().await;
    assert_eq!(next.ensure_session(&case.spec("a1", "label")).await.unwrap(), before);
    fs::remove_file(case.folder().join("00.sock")).unwrap();
    next.ensure_session(&case.spec("a2", "label")).await.unwrap();
    assert_eq!(agents(&next).await.len(), 2);
    assert_eq!(next.server_processes().await.unwrap(), servers);
}

#[tokio::test]
async fn a_lost_socket_and_a_lost_folder_end_the_wait_for_a_server_and_are_made_again() {
    let case = Case::new();
    let tmux = case.open().await;
    let at = tmux.ensure_session(&case.spec("a1", "label")).await.unwrap();
    let server = tmux.server_processes().await.unwrap()[&at.shard];
    for lost in ["00.sock", ""] {
        let path = case.folder().join(lost);
        if lost.is_empty() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
        let heard = tokio::time::timeout(Duration::from_secs(20), tmux.server_ended(at.shard)).await;
        heard.unwrap().unwrap();
        tmux.ensure_session(&case.spec("a1", "label")).await.unwrap();
        assert_eq!(agents(&tmux).await.len(), 1);
    }
    // In a folder that is gone nobody finds it.
    server.signal(Signal::SIGKILL).unwrap();
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_unknown_and_gets_nothing_new() {
    let case = Case::new();
    let tmux = case.open().await;
    tmux.ensure_session(&case.spec("a1", "label")).await.unwrap();
    let server = tmux.server_processes().await.unwrap()[&0];
    server.signal(Signal::SIGSTOP).unwrap();
    let answer = tmux.ensure_session(&case.spec("a1", "label")).await;
    assert!(matches!(answer, Err(TmuxError::Unknown { shard: 0, .. })), "{answer:?}");
    assert_eq!(tmux.ensure_session(&case.spec("a2", "label")).await.unwrap().shard, 1);
    server.signal(Signal::SIGCONT).unwrap();
    tmux.ensure_session(&case.spec("a1", "label")).await.unwrap();
    assert_eq!(agents(&tmux).await.len(), 2);
}

#[tokio::test]
async fn a_relay_that_ended_is_started_again_in_the_same_session() {
    let case = Case::new();
    let tmux = case.open().await;
    let spec = case.spec("a1", "label");
    let before = tmux.ensure_session(&spec).await.unwrap();
    let pid: i32 = case.tmux(&["display-message", "-p", "-t", "=a1:", "#{pane_pid}"]).parse().unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while case.tmux(&["display-message", "-p", "-t", "=a1:", "#{pane_dead}"]) != "1" {
        assert!(Instant::now() < deadline, "tmux never saw the pane's end");
    }
    assert_eq!(tmux.ensure_session(&spec).await.unwrap(), before);
    assert_eq!(agents(&tmux).await.len(), 1);
}

#[tokio::test]
async fn our_own_options_hold_whatever_the_user_has_configured() {
    let case = Case::new();
    fs::create_dir_all(case.folder()).unwrap();
    // HOME of our servers is this folder.
    let hostile = "set -g destroy-unattached on\nset -g remain-on-exit off\nset -g default-command fish\n\
                   set-hook -g session-created kill-session\nset -g prefix None\nset -g history-limit 9\n";
    fs::write(case.folder().join(".tmux.conf"), hostile).unwrap();
    let tmux = case.open().await;
    tmux.ensure_session(&case.spec("a1", "label")).await.unwrap();
    let option = |flags: &str, name: &str| case.tmux(&["show-options", flags, name]);
    assert_eq!(option("-gv", "destroy-unattached"), "off");
    assert_eq!(option("-gv", "default-command"), "/bin/false");
    assert_eq!(option("-gv", "prefix"), "C-b");
    assert_eq!(option("-gv", "history-limit"), "2000");
    assert_eq!(option("-gv", "mouse"), "on");
    assert_eq!(option("-gwv", "remain-on-exit"), "on");
    assert_eq!(option("-gwv", "window-size"), "latest");
    assert_eq!(option("-sv", "exit-empty"), "off");
    assert_eq!(option("-sv", "extended-keys"), "on");
    assert_eq!(option("-sv", "escape-time"), "10");
    assert_eq!(
        case.tmux(&["display-message", "-p", "-t", "=a1:", "#{window_width}x#{window_height}"]),
        "200x50"
    );
    let server = tmux.server_processes().await.unwrap()[&0];
    let limits = fs::read_to_string(format!("/proc/{}/limits", server.pid)).unwrap();
    let soft = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    assert!(soft.split_whitespace().nth(3).unwrap().parse::<u64>().unwrap() >= 4096, "{soft}");
}

#[tokio::test]
async fn the_users_own_server_is_left_as_it_was() {
    let case = Case::new();
    let home = tempfile::tempdir().unwrap();
    let user = |arguments: &[&str]| {
        let mut command = Command::new("tmux");
        command.args(arguments).env("TMUX_TMPDIR", home.path()).env("HOME", home.path()).env_remove("TMUX");
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    user(&["new-session", "-d", "-s", "mine", "sleep 1000"]);
    let state = || {
        [
            "show-options -g",
            "show-options -s",
            "show-options -gw",
            "list-keys",
            "list-sessions",
            "list-buffers",
        ]
        .map(|words| user(&words.split(' ').collect::<Vec<_>>()))
    };
    let before = state();
    assert!(before[4].starts_with("mine"), "{before:?}");
    let tmux = case.open().await;
    tmux.ensure_session(&case.spec("mine", "label")).await.unwrap();
    tmux.kill_session("mine").await.unwrap();
    tmux.stop_servers().await.unwrap();
    let after = state();
    user(&["kill-server"]);
    assert_eq!(after, before);
}

#[tokio::test]
async fn a_missing_or_old_tmux_is_named_with_its_remedy() {
    let case = Case::new();
    let missing = case.open_with("/nowhere/tmux").await.unwrap_err();
    assert!(matches!(missing, TmuxError::Missing) && missing.to_string().contains("install"));
    let old = case.dir.path().join("old-tmux");
    script(&old, "echo tmux 3.1b");
    assert!(matches!(case.open_with(old).await, Err(TmuxError::TooOld(version)) if version == "tmux 3.1b"));
}

#[tokio::test]
async fn a_tmux_upgraded_under_a_living_server_is_spoken_to_by_the_servers_own_binary() {
    let case = Case::new();
    let tmux = case.open().await;
    tmux.ensure_session(&case.spec("a1", "label")).await.unwrap();
    let servers = tmux.server_processes().await.unwrap();
    let newer = case.dir.path().join("newer-tmux");
    script(
        &newer,
        r#"[ "$1" = -V ] && { echo tmux 3.9; exit; }
           echo 'protocol version mismatch (client 9, server 8)' >&2; exit 1"#,
    );
    let upgraded = case.open_with(newer).await.unwrap();
    upgraded.ensure_session(&case.spec("a2", "label")).await.unwrap();
    assert_eq!(agents(&upgraded).await.len(), 2);
    assert!(upgraded.kill_session("a1").await.unwrap());
    assert_eq!(upgraded.server_processes().await.unwrap(), servers);
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_replaced_and_makes_nobody_wait_in_line() {
    let case = Case::new();
    let tmux = case.open().await;
    let at = tmux.ensure_session(&case.spec("a1", "label")).await.unwrap();
    let server = tmux.server_processes().await.unwrap()[&at.shard];
    server.signal(Signal::SIGSTOP).unwrap();
    let ended = async { tokio::time::timeout(Duration::from_secs(60), tmux.server_ended(at.shard)).await };
    let meanwhile = async {
        // Once it is known to be silent: many ask, and nobody waits for more than a call's own limit.
        let mut calls = 0_u32;
        while server.is_alive().unwrap() {
            let begun = Instant::now();
            let known = tmux.ensure_session(&case.spec("a1", "label")).await.is_err();
            assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
            calls += u32::from(known);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        calls
    };
    let (heard, calls) = tokio::join!(ended, meanwhile);
    heard.unwrap().unwrap();
    assert!(calls > 20, "{calls} calls were answered while it was silent");
    tmux.ensure_session(&case.spec("a1", "label")).await.unwrap();
    assert_eq!(agents(&tmux).await.len(), 1);
    assert_ne!(tmux.server_processes().await.unwrap()[&at.shard], server);
}

#[tokio::test]
async fn servers_that_hang_are_ended_too_when_all_stop() {
    let case = Case::new();
    let tmux = case.open().await;
    tmux.ensure_session(&case.spec("a1", "label")).await.unwrap();
    let server = tmux.server_processes().await.unwrap()[&0];
    server.signal(Signal::SIGSTOP).unwrap();
    let stopped = tokio::time::timeout(Duration::from_secs(20), tmux.stop_servers()).await;
    stopped.unwrap().unwrap();
    assert!(!server.is_alive().unwrap());
}

/// Whoever sits at the terminal leaves, looks back and copies; nothing that is typed there becomes a command.
#[tokio::test]
async fn no_key_gives_a_command_to_the_server() {
    let case = Case::new();
    let tmux = case.open().await;
    tmux.ensure_session(&case.spec("a", "label")).await.unwrap();
    let keys = case.tmux(&["list-keys"]);
    for command in [
        "run-shell",
        "command-prompt",
        "new-window",
        "new-session",
        "split-window",
        "respawn-",
        "source-file",
        "choose-",
        "display-menu",
        "display-popup",
        "confirm-before",
        "kill-",
        "pipe-pane",
        "set-option",
        "customize",
    ] {
        assert!(!keys.contains(command), "{command}: {keys}");
    }
    // `if-shell -F` compares formats and starts no shell.
    assert!(
        keys.lines().filter(|key| key.contains("if-shell")).all(|key| key.contains("if-shell -F")),
        "{keys}"
    );
    assert!(keys.contains("detach-client") && keys.contains("copy-mode"), "{keys}");
}
