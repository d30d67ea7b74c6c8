//! `attach`: this process becomes the tmux client of the agent's session.

use std::io::IsTerminal;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use protocol::error::ErrorCode;
use protocol::report::Life;
use protocol::screen::{COLS_MAX, ROWS_MAX};
use rustix::termios::{Winsize, tcgetwinsize, tcsetwinsize};

use super::super::args::agent::Attach;
use super::super::context::Context;
use super::super::error::Failure;
use super::select;
use super::view::{end, long_end};

pub fn run(context: &Context, args: &Attach) -> Result<u8, Failure> {
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        let message = "attach needs a terminal on standard input and output";
        return Err(Failure::usage(message).hint(format!("phalanx logs -f {}", args.target)));
    }
    let mut client = context.client()?;
    let view = select::one(&mut client, &args.target)?;
    let there = view.report.as_ref().filter(|report| report.life != Life::Destroyed);
    let Some(session) = there.and_then(|report| report.session.as_ref()) else {
        return Err(match end(&view) {
            Some(end) => Failure::new(
                ErrorCode::Conflict,
                format!("{} has no terminal any more: {}", view.name, long_end(end)),
            )
            .hint(format!("phalanx logs {}", view.id)),
            None => Failure::new(ErrorCode::Unavailable, format!("{} has no terminal yet", view.name))
                .hint(format!("phalanx wait {} --for started, then attach", view.id)),
        });
    };
    if !Path::new(&session.folder).is_dir() {
        let message = format!("{} runs on {}; its terminal is not on this machine", view.name, view.host);
        return Err(Failure::new(ErrorCode::Unavailable, message));
    }
    drop(client);
    let before = clamp_terminal();
    let mut tmux = Command::new("tmux");
    // The socket's path may be longer than a socket address holds: from its folder, its name is enough.
    tmux.current_dir(&session.folder)
        .args(["-u", "-S", &session.socket])
        // A window whose size was once set by hand follows its viewers again.
        .args(["set-option", "-wu", "-t", &session.session, "window-size", ";"])
        .args(["attach-session", "-t", &session.session])
        .args(args.read_only.then_some("-r"))
        // Inside another tmux, this variable would make it refuse.
        .env_remove("TMUX");
    if std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb" || term == "unknown") {
        tmux.env("TERM", "xterm-256color");
    }
    let error = tmux.exec();
    if let Some(before) = before {
        let _ = tcsetwinsize(std::io::stdin(), before);
    }
    let missing = error.kind() == std::io::ErrorKind::NotFound;
    let code = if missing { ErrorCode::NotFound } else { ErrorCode::Failed };
    let hint = if missing { "install tmux; phalanx doctor says how" } else { "phalanx doctor" };
    Err(Failure::new(code, format!("cannot execute tmux: {error}")).hint(hint))
}

/// Makes a terminal that claims to be larger than any screen as large as the largest: a tmux server that draws for it is
/// never done. The size before, where it was changed.
fn clamp_terminal() -> Option<Winsize> {
    let before = tcgetwinsize(std::io::stdin()).ok()?;
    let clamped =
        Winsize { ws_row: before.ws_row.min(ROWS_MAX), ws_col: before.ws_col.min(COLS_MAX), ..before };
    let is_larger = (before.ws_row, before.ws_col) != (clamped.ws_row, clamped.ws_col);
    (is_larger && tcsetwinsize(std::io::stdin(), clamped).is_ok()).then_some(before)
}
