//! `completion`: a script for a shell.

use clap::CommandFactory;

use super::super::args::Cli;
use super::super::error::{Failure, exit};
use super::super::output::pipe::Stdout;

pub fn run(shell: clap_complete::Shell) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "phalanx", &mut script);
    let mut out = Stdout::default();
    out.bytes(&script)?;
    out.done()?;
    Ok(exit::OK)
}
