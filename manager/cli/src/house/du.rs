//! `du`: what takes space, by agent, then what belongs to none.

use std::collections::BTreeMap;

use protocol::house::{HouseItem, StreamUse};
use protocol::ids::{AgentId, HostId};
use schemars::JsonSchema;
use serde::Serialize;

use super::super::agent::select;
use super::super::args::house::Du;
use super::super::context::Context;
use super::super::error::{Failure, exit};
use super::super::output::pipe::Stdout;
use super::super::output::render::{Listed, Listing, list};
use super::survey::{Looks, Survey, survey, unheard};
use manager_plan::runfile::units::human_size;

pub fn run(context: &Context, args: &Du) -> Result<u8, Failure> {
    let mut client = context.client()?;
    let whole = args.agents.targets.is_empty() && args.agents.labels.is_empty();
    let targets =
        if whole { Vec::new() } else { select::targets(&mut client, &args.agents, select::Which::Present)? };
    // A selector that finds nothing means nothing, not everything.
    let found = if !whole && targets.is_empty() {
        Survey { holdings: Vec::new(), streams: Vec::new(), unheard: Vec::new() }
    } else {
        survey(&mut client, targets, Looks { deep: false, blobs: whole })?
    };
    let rows = rows(&found, args.all);
    let mut out = Stdout::default();
    let empty = "Nothing takes space.";
    list(&mut out, &context.format, &Listing { items: &rows, as_of: None, note: None, empty })?;
    out.done()?;
    unheard(&found.unheard)?;
    Ok(exit::OK)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    Agent,
    /// A destroyed agent, or the sum of them.
    Archive,
    Bases,
    Bus,
}

impl What {
    fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Archive => "archive",
            Self::Bases => "bases",
            Self::Bus => "bus",
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub struct UseRow {
    what: What,
    name: String,
    agent: Option<AgentId>,
    host: Option<HostId>,
    workspace: u64,
    transcript: u64,
    outputs: u64,
    /// What nothing names of it.
    unnamed: Option<u64>,
    total: u64,
}

impl UseRow {
    fn new(what: What, name: &str, agent: Option<AgentId>, host: Option<&HostId>) -> Self {
        let (name, host) = (name.to_owned(), host.cloned());
        let unnamed = None;
        Self { what, name, agent, host, workspace: 0, transcript: 0, outputs: 0, unnamed, total: 0 }
    }
}

fn rows(found: &Survey, all: bool) -> Vec<UseRow> {
    let mut agents: BTreeMap<AgentId, UseRow> = BTreeMap::new();
    let mut others: BTreeMap<(HostId, &'static str), UseRow> = BTreeMap::new();
    for (host, holding) in &found.holdings {
        let Some(host) = host else { continue };
        let bytes = holding.bytes;
        let mut of_agent = |agent: AgentId, what: What| {
            let row = agents
                .entry(agent)
                .or_insert_with(|| UseRow::new(what, &holding.label, Some(agent), Some(host)));
            row.total = row.total.saturating_add(bytes);
            match &holding.item {
                HouseItem::Workspace { .. } => row.workspace = bytes,
                HouseItem::Transcript { .. } => row.transcript = bytes,
                HouseItem::Outputs { .. } => row.outputs = bytes,
                _ => {}
            }
        };
        match &holding.item {
            HouseItem::Workspace { agent }
            | HouseItem::Transcript { agent }
            | HouseItem::Outputs { agent } => of_agent(*agent, What::Agent),
            HouseItem::Archive { agent } if all => of_agent(*agent, What::Archive),
            HouseItem::Archive { .. } => {
                let key = (host.clone(), "archive");
                let row = others
                    .entry(key)
                    .or_insert_with(|| UseRow::new(What::Archive, "destroyed agents", None, Some(host)));
                row.total = row.total.saturating_add(bytes);
            }
            HouseItem::Base { .. } => {
                let key = (host.clone(), "bases");
                let row = others
                    .entry(key)
                    .or_insert_with(|| UseRow::new(What::Bases, "unused bases", None, Some(host)));
                row.total = row.total.saturating_add(bytes);
            }
            HouseItem::Ref { .. }
            | HouseItem::Group { .. }
            | HouseItem::Session { .. }
            | HouseItem::Socket { .. }
            | HouseItem::Run { .. }
            | HouseItem::Blob { .. }
            | HouseItem::Cut { .. } => {}
        }
    }
    let streams = found.streams.iter().filter(|stream| stream.messages > 0).map(of_stream);
    agents.into_values().chain(others.into_values()).chain(streams).collect()
}

fn of_stream(stream: &StreamUse) -> UseRow {
    let unnamed = stream.unnamed_bytes;
    UseRow { total: stream.bytes, unnamed, ..UseRow::new(What::Bus, &stream.name, None, None) }
}

/// What something takes on a disk.
#[derive(Serialize, JsonSchema)]
pub struct UseDocument<'a> {
    what: What,
    name: &'a str,
    agent: Option<AgentId>,
    host: Option<&'a HostId>,
    workspace_bytes: u64,
    transcript_bytes: u64,
    outputs_bytes: u64,
    /// Of blobs: prompts, logs and inputs that no record names; `gc` takes them.
    unnamed_bytes: Option<u64>,
    /// All of it.
    bytes: u64,
}

impl Listed for UseRow {
    const KIND: &'static str = "UsageList";
    const HEADER: &'static [&'static str] =
        &["WHAT", "NAME", "HOST", "WORKSPACE", "TRANSCRIPT", "OUTPUTS", "TOTAL"];
    const WIDE: &'static [&'static str] = &["ID"];

    type Document<'a>
        = UseDocument<'a>
    where
        Self: 'a;

    fn document(&self) -> UseDocument<'_> {
        UseDocument {
            what: self.what,
            name: &self.name,
            agent: self.agent,
            host: self.host.as_ref(),
            workspace_bytes: self.workspace,
            transcript_bytes: self.transcript,
            outputs_bytes: self.outputs,
            unnamed_bytes: self.unnamed,
            bytes: self.total,
        }
    }

    fn name(&self) -> String {
        self.agent.map_or_else(|| self.name.clone(), |agent| agent.to_string())
    }

    fn cells(&self, wide: bool) -> Vec<String> {
        let part = |bytes: u64| if bytes > 0 { human_size(bytes) } else { String::new() };
        let name = match self.unnamed {
            Some(bytes) if bytes > 0 => format!("{} ({} of it unnamed)", self.name, human_size(bytes)),
            Some(_) | None => self.name.clone(),
        };
        let mut cells = vec![
            self.what.as_str().to_owned(),
            name,
            self.host.as_ref().map(ToString::to_string).unwrap_or_default(),
            part(self.workspace),
            part(self.transcript),
            part(self.outputs),
            human_size(self.total),
        ];
        if wide {
            cells.push(self.agent.map(|agent| agent.to_string()).unwrap_or_default());
        }
        cells
    }
}
