//! Terminals that people look at: from inside a tmux of their own, and only to look.

use std::process::Command;

use phalanx_tests::install::Install;
use phalanx_tests::programs::path_of;
use phalanx_tests::wait;

use super::outer::Outer;

#[test]
fn people_attach_from_inside_a_tmux_and_may_only_look() {
    let install = Install::start();
    install.create("demo", &[], &["ask", "Proceed?", "exit", "0"]);
    let session = || install.agent("demo").report().session.clone();
    let session = wait::until(wait::LIMIT, "a session", session, Option::is_some).unwrap();
    let outer = Outer::of(&install);
    let attach = format!("{} --home {} attach", path_of("phalanx").display(), install.home().display());
    for (name, words, size) in [("looker", "-r demo", "60"), ("worker", "demo", "100")] {
        let command = format!("{attach} {words}");
        outer.tmux(&["new-session", "-d", "-s", name, "-x", size, "-y", "20", &command]);
    }
    let clients = || {
        let out = Command::new("tmux")
            .current_dir(&session.folder)
            .args(["-S", &session.socket, "list-clients", "-F", "#{client_width} #{client_readonly}"])
            .output()
            .unwrap();
        let mut lines: Vec<String> =
            String::from_utf8_lossy(&out.stdout).lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    wait::until(wait::LIMIT, "both are there", clients, |lines| lines == &["100 0", "60 1"]);
    let seen = || outer.tmux(&["capture-pane", "-p", "-t", "looker"]);
    wait::until(wait::LIMIT, "the looker sees the agent", seen, |text| text.contains("Proceed?"));
    outer.tmux(&["send-keys", "-t", "looker", "from the looker", "Enter"]);
    outer.tmux(&["send-keys", "-t", "worker", "from the worker", "Enter"]);
    let read = || install.run(&["logs", "demo"]).text();
    let text = wait::until(wait::LIMIT, "the worker is heard", read, |text| text.contains("GOT["));
    assert!(text.contains("GOT[from the worker]") && !text.contains("looker"), "{text}");
}

#[test]
fn a_viewer_with_an_absurd_terminal_hangs_nobody() {
    let install = Install::start();
    install.create("demo", &[], &["ask", "Proceed?", "exit", "0"]);
    let session = || install.agent("demo").report().session.clone();
    let session = wait::until(wait::LIMIT, "a session", session, Option::is_some).unwrap();
    // `script` gives the command a terminal, whose size the command sets before it attaches.
    let attach = format!(
        "stty rows 65535 cols 65535; exec {} --home {} attach demo",
        path_of("phalanx").display(),
        install.home().display()
    );
    let mut viewer = Command::new("script")
        .args(["-qfc", &attach, "/dev/null"])
        .env("TERM", "xterm-256color")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let size = || {
        let out = Command::new("tmux")
            .current_dir(&session.folder)
            .args(["-S", &session.socket, "list-clients", "-F", "#{client_width} #{client_height}"])
            .output()
            .unwrap();
        String::from_utf8_lossy(&out.stdout).trim().to_owned()
    };
    wait::until(wait::LIMIT, "its size is clamped", size, |size| size == "1000 500");
    viewer.kill().unwrap();
    viewer.wait().unwrap();
    let kept = || size().is_empty();
    wait::until(wait::LIMIT, "the server answers, and the viewer is gone", kept, |gone| *gone);
}
