//! `notify`: the hooks that are in force, how their deliveries went, and a test of those of the settings. The test is
//! sent by this program itself, so that it shows what would come back, whether the manager runs or not.

use std::borrow::Cow;

use protocol::api::{Query, Reply, SCHEMA_VERSION};
use protocol::error::ErrorCode;
use protocol::ids::{Name, RunId};
use protocol::notify::{HookFailure, HookView, HooksView, MissingHook};
use protocol::time::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::super::args::config::NotifyCommand;
use super::super::config::view::OriginDocument;
use super::super::context::{Context, unexpected};
use super::super::error::{Failure, exit};
use super::super::output::pipe::{Stdout, say};
use super::super::output::render::{Listed, Listing, list, value};
use super::super::output::sanitise::{safe_json, safe_line};
use super::super::output::when::{age, now};
use manager_installation::ledger;
use manager_notify::notice::Notice;
use manager_notify::send::send;
use manager_notify::view::view;
use manager_plan::config::Settings;
use manager_plan::config::format::OutputFormat;
use manager_plan::notify::hook::Hook;

pub fn run(context: &Context, command: &NotifyCommand) -> Result<u8, Failure> {
    match command {
        NotifyCommand::Ls => show(context),
        NotifyCommand::Test { name } => test(context, &named(settings()?.hooks(), name.as_deref())?),
    }
}

fn settings() -> Result<Settings, Failure> {
    Settings::of_daemons().map_err(|wrong| Failure::usage(wrong.to_string()).hint("phalanx config edit"))
}

const EMPTY: &str = "No hooks. Write [[notify]] into your settings: phalanx config edit";
/// A manager that began with settings that are wrong knows no hooks; it keeps how far each has come.
const NOBODY: &str = "warning: the settings are wrong; nobody is notified until they are mended, what hooks that worked \
    before were to be told follows then (mend them: phalanx config edit)";
const AS_BEFORE: &str =
    "warning: the settings are wrong; the hooks of before are in force (mend them: phalanx config edit)";

/// Those that the manager has; where it does not run, those that it would have: none, while the settings are wrong.
pub fn in_force(context: &Context) -> Result<HooksView, Failure> {
    if let Some(client) = context.running() {
        return match client?.ask(&Query::Hooks)? {
            Reply::Hooks(hooks) => Ok(*hooks),
            other => Err(unexpected(other)),
        };
    }
    let folder = ledger::folder(&context.layout);
    let settings = match Settings::of_daemons() {
        Ok(settings) => settings,
        Err(wrong) => return Ok(HooksView { wrong: wrong.to_string(), ..HooksView::default() }),
    };
    let hooks = settings.hooks().iter().map(|hook| {
        let ledger = ledger::read(&folder, &hook.id()).map_err(|error| {
            Failure::new(ErrorCode::Failed, format!("how {hook} has done cannot be read: {error}"))
        })?;
        Ok(view(hook, ledger))
    });
    Ok(HooksView { hooks: hooks.collect::<Result<_, Failure>>()?, ..HooksView::default() })
}

pub struct HookRow {
    view: HookView,
    now: Timestamp,
}

/// A hook that is in force, and how its deliveries went.
#[derive(Serialize, JsonSchema)]
pub struct HookDocument<'a> {
    /// By which runs ask for it.
    name: Option<&'a Name>,
    hook: &'a str,
    /// What it is told of.
    on: Vec<&'a str>,
    /// `asked`: only of runs that ask for it.
    only: Option<&'a str>,
    timeout_ms: u64,
    delivered: u64,
    /// Given up.
    lost: u64,
    /// Why the last delivery failed, while it does.
    failure: Option<&'a HookFailure>,
    origin: OriginDocument<'a>,
}

impl HookRow {
    fn on(&self) -> Vec<&'static str> {
        self.view.on.iter().map(|kind| kind.as_str()).collect()
    }

    fn only(&self) -> Option<&'static str> {
        self.view.only_asked.then_some("asked")
    }
}

impl Listed for HookRow {
    const KIND: &'static str = "HookList";
    const HEADER: &'static [&'static str] = &["NAME", "HOOK", "ON", "ONLY", "DELIVERED", "LOST", "FAILURE"];
    const WIDE: &'static [&'static str] = &["ORIGIN"];

    type Document<'a>
        = HookDocument<'a>
    where
        Self: 'a;

    fn document(&self) -> HookDocument<'_> {
        let view = &self.view;
        HookDocument {
            name: view.name.as_ref(),
            hook: &view.shown,
            on: self.on(),
            only: self.only(),
            timeout_ms: view.timeout_ms,
            delivered: view.delivered,
            lost: view.lost,
            failure: view.failure.as_ref(),
            origin: OriginDocument::at(&view.layer, &view.place),
        }
    }

    fn name(&self) -> String {
        self.view.name.as_ref().map_or_else(|| self.view.shown.clone(), ToString::to_string)
    }

    fn cells(&self, wide: bool) -> Vec<String> {
        let view = &self.view;
        let failure = view.failure.as_ref().map_or_else(
            || "-".to_owned(),
            |failure| format!("{} ago: {}", age(self.now, failure.at), failure.why),
        );
        let name = view.name.as_ref().map(ToString::to_string).unwrap_or_default();
        let (delivered, lost) = (view.delivered.to_string(), view.lost.to_string());
        let only = self.only().unwrap_or_default().to_owned();
        let mut cells = vec![name, view.shown.clone(), self.on().join(","), only, delivered, lost, failure];
        if wide {
            cells.push(view.place.clone());
        }
        cells
    }
}

/// The hooks that are in force, and what is not as somebody meant it.
#[derive(Serialize, JsonSchema)]
pub struct HooksDocument<'a> {
    schema_version: u32,
    kind: Cow<'static, str>,
    as_of: Timestamp,
    items: Vec<HookDocument<'a>>,
    /// What is wrong with the settings as they are now, while the hooks of before are in force; where there are none,
    /// nobody is notified.
    wrong: Option<&'a str>,
    /// What runs that go on ask for and is not in the settings any more.
    missing: Vec<MissingDocument<'a>>,
}

#[derive(Serialize, JsonSchema)]
struct MissingDocument<'a> {
    hook: &'a Name,
    run: RunId,
    run_name: &'a Name,
}

fn show(context: &Context) -> Result<u8, Failure> {
    let HooksView { hooks, wrong, missing } = in_force(context)?;
    let now = now();
    if !wrong.is_empty() {
        say(if hooks.is_empty() { NOBODY } else { AS_BEFORE });
        wrong.lines().for_each(|line| say(&safe_line(line)));
    }
    for MissingHook { hook, run_name, .. } in &missing {
        say(&safe_line(&format!(
            "warning: run {run_name} asks for the hook {hook:?}, which is not there any more"
        )));
    }
    // Which there are is not known while they cannot be read.
    let empty = if wrong.is_empty() { EMPTY } else { "No hooks in force." };
    let rows: Vec<HookRow> = hooks.into_iter().map(|view| HookRow { view, now }).collect();
    let mut out = Stdout::default();
    if context.format == OutputFormat::Json {
        let missing = missing.iter().map(|missing| {
            let MissingHook { hook, run, run_name } = missing;
            MissingDocument { hook, run: *run, run_name }
        });
        let document = HooksDocument {
            schema_version: SCHEMA_VERSION,
            kind: HookRow::KIND.into(),
            as_of: now,
            items: rows.iter().map(Listed::document).collect(),
            wrong: Some(wrong.as_str()).filter(|wrong| !wrong.is_empty()),
            missing: missing.collect(),
        };
        let text = serde_json::to_string_pretty(&value(&document)).unwrap_or_default();
        out.line(&safe_json(&text))?;
    } else {
        list(&mut out, &context.format, &Listing { items: &rows, as_of: Some(now), note: None, empty })?;
    }
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

fn named(hooks: &[Hook], name: Option<&str>) -> Result<Vec<Hook>, Failure> {
    let Some(name) = name else { return Ok(hooks.to_vec()) };
    let found: Vec<Hook> = hooks
        .iter()
        .filter(|hook| hook.name.as_ref().is_some_and(|own| own.as_str() == name))
        .cloned()
        .collect();
    if found.is_empty() {
        return Err(Failure::new(ErrorCode::NotFound, format!("no hook is named {name:?}"))
            .hint("phalanx notify ls; a hook gets a name by `name = \"…\"` in its [[notify]]"));
    }
    Ok(found)
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
