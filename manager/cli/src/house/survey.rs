//! The survey that `du` and `gc` begin with.

use std::time::{Duration, Instant};

use protocol::api::{Item, Query, Reply};
use protocol::error::ErrorCode;
use protocol::house::{Holding, StreamUse, Unheard};
use protocol::ids::HostId;

use super::super::client::{Client, Flow, Limits, StreamEnd};
use super::super::context::unexpected;
use super::super::error::Failure;

/// The manager gives each host less.
const LIMIT: Duration = Duration::from_secs(330);

/// What every host said.
pub struct Survey {
    /// With their host, or none of what the manager holds itself.
    pub holdings: Vec<(Option<HostId>, Holding)>,
    pub streams: Vec<StreamUse>,
    pub unheard: Vec<Unheard>,
}

/// What is looked at beside sizes.
#[derive(Clone, Copy)]
pub struct Looks {
    /// Whether each thing may go, of all kinds.
    pub deep: bool,
    /// What nothing names on the bus.
    pub blobs: bool,
}

pub fn survey(client: &mut Client, targets: Vec<String>, looks: Looks) -> Result<Survey, Failure> {
    let Looks { deep, blobs } = looks;
    let limits = Limits { deadline: Some(Instant::now() + LIMIT), interrupts: None };
    let mut holdings = Vec::new();
    let end = client.stream(&Query::Survey { targets, deep, added: deep, blobs }, &limits, |item| {
        match item {
            Item::Holdings { host, holdings: piece } => {
                holdings.extend(piece.into_iter().map(|holding| (Some(host.clone()), holding)));
            }
            Item::OwnHoldings(piece) => holdings.extend(piece.into_iter().map(|holding| (None, holding))),
            _ => {}
        }
        Ok(Flow::More)
    })?;
    match end {
        StreamEnd::Reply(Reply::Surveyed { streams, unheard }) => Ok(Survey { holdings, streams, unheard }),
        StreamEnd::Reply(other) => Err(unexpected(other)),
        StreamEnd::Enough | StreamEnd::TimedOut | StreamEnd::Interrupted(_) => {
            Err(Failure::new(ErrorCode::TimedOut, "not every host has said what it holds"))
        }
    }
}

/// The failure that hosts which did not answer are, once all else was said.
pub fn unheard(unheard: &[Unheard]) -> Result<(), Failure> {
    let Some(first) = unheard.first() else { return Ok(()) };
    let hosts: Vec<&str> = unheard.iter().map(|unheard| unheard.host.as_str()).collect();
    let message = format!("not known of {}: {}", hosts.join(", "), first.error.message);
    Err(Failure::new(ErrorCode::Unavailable, message).hint("phalanx hosts"))
}
