//! `clone` and `snapshot`, and changes of agents that are there: `pause`, `resume`, `start`, `rename`, `label`, `limit`. Each asks for what is
//! wanted and waits until it is in force, or until the host says why not.

mod apply;
mod label;
mod limit;
pub mod snapshot;

use protocol::api::{Change, Until};
use protocol::ids::Name;

use self::apply::{Wish, apply};
use super::agent::select::Which;
use super::args::agent::Targets;
use super::args::settings::{CloneAgent, Label, Limit, Pause, Rename, SnapshotCommand, Start};
use super::context::Context;
use super::error::Failure;

pub fn pause(context: &Context, args: &Pause) -> Result<u8, Failure> {
    let wish = Wish { verb: "pause", which: Which::Live, until: Until::Applied };
    apply(context, &wish, &args.agents, &args.change, Change::Freeze)
}

pub fn resume(context: &Context, args: &Pause) -> Result<u8, Failure> {
    let wish = Wish { verb: "resume", which: Which::Live, until: Until::Applied };
    apply(context, &wish, &args.agents, &args.change, Change::Thaw)
}

pub fn start(context: &Context, args: &Start) -> Result<u8, Failure> {
    let wish = Wish { verb: "start", which: Which::Ended, until: Until::Started };
    apply(context, &wish, &args.agents, &args.change, Change::Start)
}

pub fn rename(context: &Context, args: &Rename) -> Result<u8, Failure> {
    let name: Name =
        args.name.parse().map_err(|error: protocol::ids::IdError| Failure::usage(error.to_string()))?;
    let agents = Targets { targets: vec![args.target.clone()], labels: Vec::new() };
    let wish = Wish { verb: "rename", which: Which::Present, until: Until::Applied };
    apply(context, &wish, &agents, &args.change, Change::Rename { name })
}

pub fn label(context: &Context, args: &Label) -> Result<u8, Failure> {
    let (agents, change) = label::read(args)?;
    let wish = Wish { verb: "label", which: Which::Present, until: Until::Applied };
    apply(context, &wish, &agents, &args.change, change)
}

pub fn limit(context: &Context, args: &Limit) -> Result<u8, Failure> {
    let change = limit::read(args)?;
    let wish = Wish { verb: "limit", which: Which::Present, until: Until::Applied };
    apply(context, &wish, &args.agents, &args.change, change)
}

pub fn clone(context: &Context, args: &CloneAgent) -> Result<u8, Failure> {
    snapshot::clone(context, args)
}

pub fn snapshot(context: &Context, command: &SnapshotCommand) -> Result<u8, Failure> {
    snapshot::snapshot(context, command)
}
