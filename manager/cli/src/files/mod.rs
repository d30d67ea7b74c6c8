//! `file ls`, `get` and `put`: files of agents, wherever they run.

pub mod archive;
pub mod get;
pub mod list;
pub mod local;
pub mod place;
pub mod put;
pub mod walk;

use super::args::files::File;
use super::context::Context;
use super::error::Failure;

pub fn run(context: &Context, words: &File) -> Result<u8, Failure> {
    match words {
        File::Ls(args) => list::run(context, args),
        File::Get(args) => get::run(context, args),
        File::Put(args) => put::run(context, args),
    }
}
