//! `notify`: the hooks of the settings, how their deliveries went, and a test of them. The test is sent by this program
//! itself, so that it shows what would come back, whether the manager runs or not.

use protocol::error::ErrorCode;
use protocol::time::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::super::args::config::NotifyCommand;
use super::super::config::view::OriginDocument;
use super::super::context::Context;
use super::super::error::{Failure, exit};
use super::super::output::pipe::Stdout;
use super::super::output::render::{Listed, Listing, list};
use super::super::output::when::{age, now};
use crate::config::Settings;
use crate::notify::hook::Hook;
use crate::notify::ledger::{self, Ledger};
use crate::notify::notice::Notice;
use crate::notify::send::send;

pub fn run(context: &Context, command: &NotifyCommand) -> Result<u8, Failure> {
    let settings = Settings::of_daemons()
        .map_err(|wrong| Failure::usage(wrong.to_string()).hint("phalanx config edit"))?;
    match command {
        NotifyCommand::Ls => show(context, settings.hooks()),
        NotifyCommand::Test => test(context, settings.hooks()),
    }
}

const EMPTY: &str = "No hooks. Write [[notify]] into your settings: phalanx config edit";

pub struct HookRow<'a> {
    hook: &'a Hook,
    ledger: Option<Ledger>,
    now: Timestamp,
}

fn on(hook: &Hook) -> Vec<&'static str> {
    hook.on.iter().map(|kind| kind.as_str()).collect()
}

/// A hook of the settings, and how its deliveries went.
#[derive(Serialize, JsonSchema)]
pub struct HookDocument<'a> {
    hook: String,
    /// What it is told of.
    on: Vec<&'a str>,
    timeout_ms: u64,
    delivered: u64,
    /// Given up.
    lost: u64,
    /// Why the last delivery failed, while it does.
    failure: Option<HookFailure<'a>>,
    origin: OriginDocument<'a>,
}

#[derive(Serialize, JsonSchema)]
struct HookFailure<'a> {
    at: Timestamp,
    why: &'a str,
}

impl Listed for HookRow<'_> {
    const KIND: &'static str = "HookList";
    const HEADER: &'static [&'static str] = &["HOOK", "ON", "DELIVERED", "LOST", "FAILURE"];
    const WIDE: &'static [&'static str] = &["ORIGIN"];

    type Document<'a>
        = HookDocument<'a>
    where
        Self: 'a;

    fn document(&self) -> HookDocument<'_> {
        let ledger = self.ledger.as_ref();
        let failure = ledger.and_then(|ledger| ledger.failure.as_ref());
        HookDocument {
            hook: self.hook.to_string(),
            on: on(self.hook),
            timeout_ms: self.hook.timeout_ms,
            delivered: ledger.map_or(0, |ledger| ledger.delivered),
            lost: ledger.map_or(0, |ledger| ledger.lost),
            failure: failure.map(|failure| HookFailure { at: Timestamp(failure.at_ms), why: &failure.why }),
            origin: OriginDocument::of(&self.hook.origin),
        }
    }

    fn name(&self) -> String {
        self.hook.to_string()
    }

    fn cells(&self, wide: bool) -> Vec<String> {
        let ledger = self.ledger.clone().unwrap_or_default();
        let failure = ledger.failure.map_or_else(
            || "-".to_owned(),
            |failure| format!("{} ago: {}", age(self.now, Timestamp(failure.at_ms)), failure.why),
        );
        let (delivered, lost) = (ledger.delivered.to_string(), ledger.lost.to_string());
        let mut cells = vec![self.name(), on(self.hook).join(","), delivered, lost, failure];
        if wide {
            cells.push(self.hook.origin.place.clone());
        }
        cells
    }
}

fn show(context: &Context, hooks: &[Hook]) -> Result<u8, Failure> {
    let (folder, now) = (ledger::folder(&context.layout), now());
    let rows = hooks.iter().map(|hook| {
        let ledger = ledger::read(&folder, &hook.id()).map_err(|error| {
            Failure::new(ErrorCode::Failed, format!("how {hook} has done cannot be read: {error}"))
        })?;
        Ok(HookRow { hook, ledger, now })
    });
    let rows: Vec<HookRow<'_>> = rows.collect::<Result<_, Failure>>()?;
    let mut out = Stdout::default();
    list(&mut out, &context.format, &Listing { items: &rows, as_of: Some(now), note: None, empty: EMPTY })?;
    out.done()?;
    Ok(exit::OK)
}

pub struct TestRow {
    hook: String,
    outcome: Result<String, String>,
}

/// What became of a test of a hook.
#[derive(Serialize, JsonSchema)]
pub struct HookTest<'a> {
    hook: &'a str,
    delivered: bool,
    /// What came back, or why it failed.
    came_back: &'a str,
}

impl Listed for TestRow {
    const KIND: &'static str = "HookTestList";
    const HEADER: &'static [&'static str] = &["HOOK", "OUTCOME", "CAME BACK"];
    const WIDE: &'static [&'static str] = &[];

    type Document<'a>
        = HookTest<'a>
    where
        Self: 'a;

    fn document(&self) -> HookTest<'_> {
        let came_back = self.outcome.as_ref().unwrap_or_else(|why| why);
        HookTest { hook: &self.hook, delivered: self.outcome.is_ok(), came_back }
    }

    fn name(&self) -> String {
        self.hook.clone()
    }

    fn cells(&self, _wide: bool) -> Vec<String> {
        let (outcome, said) = match &self.outcome {
            Ok(said) => ("delivered", said),
            Err(why) => ("failed", why),
        };
        vec![self.hook.clone(), outcome.to_owned(), said.clone()]
    }
}

fn test(context: &Context, hooks: &[Hook]) -> Result<u8, Failure> {
    let cannot =
        |error: std::io::Error| Failure::new(ErrorCode::Failed, format!("nothing was sent: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot)?;
    let sample = Notice::sample(now());
    let rows: Vec<TestRow> = hooks
        .iter()
        .map(|hook| {
            let outcome = runtime.block_on(send(hook, &sample)).map_err(|failure| failure.why().to_owned());
            TestRow { hook: hook.to_string(), outcome }
        })
        .collect();
    let mut out = Stdout::default();
    list(&mut out, &context.format, &Listing { items: &rows, as_of: None, note: None, empty: EMPTY })?;
    out.done()?;
    let all = rows.iter().all(|row| row.outcome.is_ok());
    if all { Ok(exit::OK) } else { Err(Failure::Told(exit::FAILED)) }
}
