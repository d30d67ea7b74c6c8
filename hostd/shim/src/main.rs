//! `phalanx-shim`: looks after one program in one folder (`run`), shows it in a terminal (`attach`),
//! and keeps a view of the file system (`view`). This file reads the command line and keeps the log; there are no other
//! commands.

mod attach;
mod facts;
mod frames;
mod modes;
mod records;
mod replay;
mod run;
mod view;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

/// Of this build, in every record and in the hello of the socket.
pub(crate) const BUILD: &str = env!("CARGO_PKG_VERSION");

const USAGE: &str = "usage: phalanx-shim run DIR
       phalanx-shim attach DIR [--read-only]
       phalanx-shim view < VIEW
       phalanx-shim --version";

fn main() -> ExitCode {
    let arguments: Vec<std::ffi::OsString> = std::env::args_os().skip(1).collect();
    let words: Vec<&std::ffi::OsStr> = arguments.iter().map(AsRef::as_ref).collect();
    match words.as_slice() {
        [command, dir] if *command == "run" => run::run(Path::new(dir)),
        [command, dir] if *command == "attach" => attach::attach(Path::new(dir), attach::Access::Full),
        [command, dir, option] if *command == "attach" && *option == "--read-only" => {
            attach::attach(Path::new(dir), attach::Access::ReadOnly)
        }
        [command] if *command == "view" => view::hold(),
        [option] if *option == "--version" => {
            let _ = writeln!(std::io::stdout(), "phalanx-shim {BUILD}");
            ExitCode::SUCCESS
        }
        [option] if *option == "--help" => {
            let _ = writeln!(std::io::stdout(), "{USAGE}");
            ExitCode::SUCCESS
        }
        _ => {
            log(USAGE);
            ExitCode::from(2)
        }
    }
}

/// A line on stderr, which `run` has made the folder's log. A full disk must not end the shim.
pub(crate) fn log(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
