//! What agents' terminals show, to people who look and to hostd.

mod capture;
mod recorded;
mod signals;

use std::process::Command;

use phalanx_tests::install::Install;
use phalanx_tests::wait;

/// Keys into an agent's terminal, as a person presses them who looks at its session.
fn press(install: &Install, name: &str, keys: &[&str]) {
    let session = || install.agent(name).report().session.clone();
    let session = wait::until(wait::LIMIT, "a session", session, Option::is_some).unwrap();
    let pressed = Command::new("tmux")
        .current_dir(&session.folder)
        .args(["-S", &session.socket, "send-keys", "-t", &session.session])
        .args(keys)
        .status()
        .unwrap();
    assert!(pressed.success());
}
