//! `phalanx-shim attach` in a real tmux.

use std::process::{Command, Output, Stdio};

use crate::support::{Agent, SHIM, shell, wait_until};

/// A private server; its socket has a short name in its own folder.
struct Tmux(tempfile::TempDir);

impl Tmux {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("tmux");
        command.current_dir(self.0.path()).env_remove("TMUX").args(["-u", "-S", "s", "-f", "/dev/null"]);
        command.args(arguments).stdin(Stdio::null()).output().unwrap()
    }

    fn attach(&self, agent: &Agent, cols: &str, rows: &str) {
        let command = format!("exec '{SHIM}' attach '{}'", agent.dir.display());
        let made = self.run(&["new-session", "-d", "-s", "a", "-x", cols, "-y", rows, &command]);
        assert!(made.status.success(), "{made:?}");
    }

    fn screen(&self) -> String {
        String::from_utf8_lossy(&self.run(&["capture-pane", "-p", "-t", "a"]).stdout).into_owned()
    }

    fn wait_screen(&self, text: &str) {
        wait_until(&format!("{text:?} is on the screen"), || self.screen().contains(text));
    }

    fn keys(&self, keys: &[&str]) {
        assert!(self.run(&[&["send-keys", "-t", "a"], keys].concat()).status.success());
    }

    fn server(&self) -> i32 {
        let output = self.run(&["display-message", "-p", "#{pid}"]).stdout;
        String::from_utf8(output).unwrap().trim().parse().unwrap()
    }

    fn kill_9(&self) {
        let server = self.server();
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(server), nix::sys::signal::Signal::SIGKILL)
            .unwrap();
        wait_until("the server is gone", || !crate::support::alive(server));
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = self.run(&["kill-server"]);
    }
}

#[test]
fn an_agent_survives_its_tmux_server_and_is_shown_by_another() {
    let script = "stty -echo; trap 'stty size' WINCH; printf 'first \\033[?2004h\\n'; i=0
        while :; do read -r line && printf 'got <%s>\\n' \"$line\" | cat -v; [ \"$line\" = end ] && exit 3; done";
    let mut agent = Agent::started(&shell(script));
    {
        let tmux = Tmux::new();
        tmux.attach(&agent, "100", "30");
        tmux.wait_screen("first");
        agent.wait_for_output("30 100");
        tmux.keys(&["-l", "hello"]);
        tmux.keys(&["Enter"]);
        tmux.wait_screen("got <hello>");
        tmux.run(&["resize-window", "-t", "a", "-x", "90", "-y", "25"]);
        agent.wait_for_output("25 90");
        tmux.kill_9();
    }
    let before = agent.output();
    assert!(agent.connect().status().child_alive);
    wait_until("the dead viewer is forgotten", || agent.connect().status().attached == 0);

    let tmux = Tmux::new();
    tmux.attach(&agent, "70", "20");
    tmux.wait_screen("got <hello>");
    agent.wait_for_output("20 70");
    // The new server has never seen the mode being set; it was replayed, so that a paste is bracketed.
    tmux.run(&["set-buffer", "pasted"]);
    tmux.run(&["paste-buffer", "-p", "-t", "a"]);
    tmux.keys(&["Enter"]);
    agent.wait_for_output("got <^[[200~pasted^[[201~>");
    tmux.keys(&["-l", "end"]);
    tmux.keys(&["Enter"]);
    tmux.wait_screen("[agent ended: exit 3]");
    assert_eq!(agent.ended().code, Some(3));
    assert!(agent.output().starts_with(&before), "the transcript has no gap");
    // It stays until Enter.
    assert!(tmux.run(&["has-session", "-t", "a"]).status.success());
    tmux.keys(&["Enter"]);
    wait_until("the pane closes", || !tmux.run(&["has-session", "-t", "a"]).status.success());
}

#[test]
fn a_pane_made_before_the_start_waits_and_one_made_after_the_end_tells() {
    let mut agent = Agent::new();
    let early = Tmux::new();
    early.attach(&agent, "80", "24");
    agent.start(&shell("echo hello; read line; kill -KILL $$"));
    early.wait_screen("hello");
    early.keys(&["Enter"]);
    early.wait_screen("[agent ended: signal 9, SIGKILL]");
    agent.ended();
    let late = Tmux::new();
    late.attach(&agent, "80", "24");
    late.wait_screen("[agent ended: signal 9, SIGKILL]");
    late.wait_screen("hello");
}

#[test]
fn a_supervisor_that_was_killed_is_told_as_such() {
    let mut agent = Agent::started(&shell("echo hello; read line"));
    let tmux = Tmux::new();
    tmux.attach(&agent, "80", "24");
    tmux.wait_screen("hello");
    agent.kill_shim();
    tmux.wait_screen("[the agent's supervisor is gone and has left no exit record]");
    // Also to one that comes later, to whom the folder alone must tell it.
    let late = Tmux::new();
    late.attach(&agent, "80", "24");
    late.wait_screen("[the agent's supervisor is gone and has left no exit record]");
}

#[test]
fn the_terminal_is_as_it_was_after_every_way_out() {
    let script = "draw() { printf 'screen'; }; trap draw WINCH; printf '\\033[?25l\\033[?1049h'; draw
        while :; do sleep 0.02; done";
    let mut agent = Agent::started(&shell(script));
    let tmux = Tmux::new();
    let inner = format!("stty -g >before; '{SHIM}' attach '{}'; stty -g >after; cat", agent.dir.display());
    assert!(tmux.run(&["new-session", "-d", "-s", "a", "-x", "80", "-y", "24", &inner]).status.success());
    let (before, after) = (tmux.0.path().join("before"), tmux.0.path().join("after"));
    tmux.wait_screen("screen");
    let relay = crate::support::descendants(tmux.server())
        .into_iter()
        .find(|pid| {
            let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.starts_with(SHIM)
        })
        .unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(relay), nix::sys::signal::Signal::SIGTERM).unwrap();
    wait_until("the relay has left", || after.exists() && !std::fs::read(&after).unwrap().is_empty());
    assert_eq!(std::fs::read(before).unwrap(), std::fs::read(after).unwrap());
    let flags = tmux.run(&["display-message", "-p", "-t", "a", "#{alternate_on} #{cursor_flag}"]).stdout;
    assert_eq!(flags, b"0 1\n");
    agent.kill_shim();
}
