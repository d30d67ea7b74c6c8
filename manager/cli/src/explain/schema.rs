//! `schema`: what each command prints with `-o json`, as JSON Schema (draft 2020-12), made from the types that are
//! printed. Needs no manager, no settings and no home.

use std::borrow::Cow;

use protocol::api::AgentScreen;
use protocol::error::ErrorCode;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde_json::{Value, json};

use super::super::agent::change::OutcomeRow;
use super::super::agent::events::EventRow;
use super::super::agent::view::AgentRow;
use super::super::config::profile::Tried;
use super::super::config::view::{FileRow as SettingsFileRow, ProfileRow, SettingRow};
use super::super::context::Context;
use super::super::error::{ErrorDocument, Failure, exit};
use super::super::files::list::Row as EntryRow;
use super::super::house::du::UseRow;
use super::super::house::gc::Row as HouseRow;
use super::super::message::view::MessageRow;
use super::super::output::pipe::Stdout;
use super::super::output::render::{List, Listed, Listing, list};
use super::super::review::files::{Diff, FileRow};
use super::super::review::merge::{MergeDocument, Row as MergeRow};
use super::super::review::patch::PatchRow;
use super::super::run::plan::PlannedRow;
use super::super::run::view::{ReasonRow, RunRow, TaskRow};
use super::super::settings::snapshot::{RestoredRow, Row as SnapshotRow};
use super::super::system::doctor::CheckRow;
use super::super::system::hosts::HostRow;
use super::super::system::notify::{HookRow, HooksDocument, TestRow};
use super::super::system::status::{self, StatusDocument};
use super::super::watch::changes::ChangeDocument;
use super::super::watch::row::Row;
use super::super::watch::top::{TopDocument, TopRow};
use crate::report::document::Document as RunReport;
use manager_plan::runfile::problem::suggestion;

/// The documents that one type of this program makes.
struct Shape {
    /// The field `kind` of the document of `-o json`; empty where it has none.
    kind: &'static str,
    /// The document of `-o json`.
    whole: fn(&mut SchemaGenerator) -> Schema,
    /// One line of `-o jsonl`.
    line: Option<fn(&mut SchemaGenerator) -> Schema>,
}

const fn list_of<T: Listed + 'static>() -> Shape {
    Shape { kind: T::KIND, whole: of::<List<T::Document<'static>>>, line: Some(of::<T::Document<'static>>) }
}

/// A document of its own around the items of a list.
const fn around<D: JsonSchema, T: Listed + 'static>() -> Shape {
    Shape { kind: T::KIND, whole: of::<D>, line: Some(of::<T::Document<'static>>) }
}

fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

const AGENTS: Shape = list_of::<AgentRow>();
const OUTCOMES: Shape = list_of::<OutcomeRow>();
const RUNS: Shape = list_of::<RunRow>();
const TASKS: Shape = list_of::<TaskRow>();
const MESSAGES: Shape = list_of::<MessageRow>();
const SNAPSHOTS: Shape = list_of::<SnapshotRow>();
const SETTINGS: Shape = list_of::<SettingRow<'static>>();
const PROFILES: Shape = list_of::<ProfileRow<'static>>();

/// What prints it, and what it prints. A command that prints one of two has a name for each.
const KNOWN: &[(&str, Shape)] = &[
    ("accept", TASKS),
    ("cancel", RUNS),
    ("capture", list_of::<AgentScreen>()),
    ("clone", AGENTS),
    ("config get", SETTINGS),
    ("config path", list_of::<SettingsFileRow>()),
    ("config view", SETTINGS),
    ("create", AGENTS),
    ("destroy", OUTCOMES),
    ("diff", around::<Diff<'static>, FileRow>()),
    ("doctor", list_of::<CheckRow>()),
    ("du", list_of::<UseRow>()),
    ("error", Shape { kind: "", whole: of::<ErrorDocument<'static>>, line: None }),
    ("events", list_of::<EventRow>()),
    ("file ls", list_of::<EntryRow>()),
    ("gc", list_of::<HouseRow>()),
    ("hosts", list_of::<HostRow>()),
    ("label", OUTCOMES),
    ("limit", OUTCOMES),
    ("ls", list_of::<Row>()),
    (
        "ls --watch",
        Shape { kind: "", whole: of::<ChangeDocument<'static>>, line: Some(of::<ChangeDocument<'static>>) },
    ),
    ("merge", around::<MergeDocument<'static>, MergeRow<'static>>()),
    ("messages", MESSAGES),
    ("notify ls", around::<HooksDocument<'static>, HookRow>()),
    ("notify test", list_of::<TestRow>()),
    ("patch", list_of::<PatchRow>()),
    ("pause", OUTCOMES),
    ("profile ls", PROFILES),
    ("profile show", PROFILES),
    ("profile test", list_of::<Tried<'static>>()),
    ("reject", TASKS),
    ("rename", OUTCOMES),
    ("report", Shape { kind: "RunReport", whole: of::<RunReport>, line: None }),
    ("resume", OUTCOMES),
    ("retry", RUNS),
    ("run", RUNS),
    ("run --dry-run", list_of::<PlannedRow<'static>>()),
    ("runs", RUNS),
    ("scale", RUNS),
    ("schema --list", list_of::<SchemaRow>()),
    ("send", MESSAGES),
    ("show", AGENTS),
    ("show RUN", RUNS),
    ("snapshot create", SNAPSHOTS),
    ("snapshot ls", SNAPSHOTS),
    ("snapshot restore", list_of::<RestoredRow>()),
    ("start", OUTCOMES),
    (
        "status",
        Shape {
            kind: status::KIND,
            whole: of::<List<StatusDocument<'static>>>,
            line: Some(of::<List<StatusDocument<'static>>>),
        },
    ),
    ("stop", OUTCOMES),
    ("tasks", TASKS),
    ("top", around::<TopDocument<'static>, TopRow>()),
    ("wait", AGENTS),
    ("wait RUN", RUNS),
    ("wait RUN/TASK", TASKS),
    ("why", list_of::<ReasonRow>()),
];

/// Names of all schemas.
pub fn names() -> impl Iterator<Item = &'static str> {
    KNOWN.iter().map(|(name, _)| *name)
}

/// Of `phalanx schema`.
pub enum Wanted<'a> {
    List,
    /// Of a command, as words or as one word.
    Whole(&'a [String]),
    Line(&'a [String]),
}

pub fn run(context: &Context, wanted: &Wanted<'_>) -> Result<u8, Failure> {
    let mut out = Stdout::default();
    match wanted {
        Wanted::List => {
            let rows: Vec<SchemaRow> = KNOWN.iter().map(SchemaRow::of).collect();
            list(&mut out, &context.format, &Listing { items: &rows, as_of: None, note: None, empty: "" })?;
        }
        Wanted::Whole(words) => {
            let (name, shape) = find(words)?;
            out.line(&pretty(&root(name, shape.kind, shape.whole)))?;
        }
        Wanted::Line(words) => {
            let (name, shape) = find(words)?;
            let line = shape.line.ok_or_else(|| {
                Failure::usage(format!("{name} has no lines: -o jsonl prints the same as -o json"))
                    .hint(format!("phalanx schema {name}"))
            })?;
            out.line(&pretty(&root(name, "", line)))?;
        }
    }
    out.done()?;
    Ok(exit::OK)
}

fn find(words: &[String]) -> Result<&'static (&'static str, Shape), Failure> {
    let asked = words.join(" ");
    KNOWN.iter().find(|(name, _)| *name == asked).ok_or_else(|| {
        let message = format!("there is no schema {asked:?}{}", suggestion(&asked, names()));
        Failure::new(ErrorCode::NotFound, message).hint("phalanx schema --list")
    })
}

fn pretty(schema: &Value) -> String {
    serde_json::to_string_pretty(schema).unwrap_or_default()
}

/// As it is written out: what is always printed is required.
fn generator() -> SchemaGenerator {
    SchemaSettings::draft2020_12().for_serialize().into_generator()
}

/// A schema that stands alone.
fn root(name: &str, kind: &str, shape: fn(&mut SchemaGenerator) -> Schema) -> Value {
    let mut generator = generator();
    let schema = shape(&mut generator).to_value();
    let mut root = generator.take_definitions(true);
    // The outermost is not referred to from anywhere else: it is told in place.
    let top = schema.get("$ref").and_then(Value::as_str).and_then(|path| path.rsplit('/').next());
    let mut whole = top.and_then(|top| root.remove(top)).unwrap_or(schema);
    if let Value::Object(fields) = &mut whole {
        fields.insert("$schema".into(), json!("https://json-schema.org/draft/2020-12/schema"));
        fields.insert("title".into(), json!(format!("phalanx {name}")));
        fields.insert("$defs".into(), Value::Object(root));
    }
    if let Some(field) = whole.pointer_mut("/properties/kind").filter(|_| !kind.is_empty()) {
        *field = json!({"const": kind});
    }
    if let Some(field) = whole.pointer_mut("/properties/schema_version") {
        *field = json!({"const": protocol::api::SCHEMA_VERSION});
    }
    whole
}

/// Every schema, each type in it told once: what a review looks at when a document changes.
pub fn all() -> Value {
    let mut generator = generator();
    let mut documents = serde_json::Map::new();
    for (name, shape) in KNOWN {
        let whole = (shape.whole)(&mut generator);
        let line = shape.line.map(|line| line(&mut generator));
        documents.insert((*name).into(), json!({"kind": shape.kind, "json": whole, "jsonl": line}));
    }
    json!({"documents": documents, "$defs": generator.take_definitions(true)})
}

pub struct SchemaRow {
    name: &'static str,
    kind: &'static str,
    has_lines: bool,
}

impl SchemaRow {
    fn of((name, shape): &(&'static str, Shape)) -> Self {
        Self { name, kind: shape.kind, has_lines: shape.line.is_some() }
    }
}

/// A schema that `phalanx schema` prints.
#[derive(Serialize, JsonSchema)]
pub struct SchemaDocument {
    /// What `phalanx schema` takes.
    name: Cow<'static, str>,
    /// The field `kind` of what it describes; empty where there is none.
    kind: Cow<'static, str>,
    /// It has a schema for the lines of `-o jsonl` too.
    has_lines: bool,
}

impl Listed for SchemaRow {
    const KIND: &'static str = "SchemaList";
    const HEADER: &'static [&'static str] = &["SCHEMA", "KIND"];
    const WIDE: &'static [&'static str] = &["LINES"];
    type Document<'a> = SchemaDocument;

    fn document(&self) -> SchemaDocument {
        SchemaDocument { name: self.name.into(), kind: self.kind.into(), has_lines: self.has_lines }
    }

    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn cells(&self, wide: bool) -> Vec<String> {
        let mut cells = vec![self.name.to_owned(), self.kind.to_owned()];
        if wide {
            cells.push(if self.has_lines { "yes" } else { "no" }.to_owned());
        }
        cells
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn every_reference_of_a_schema_leads_to_a_definition_in_it() {
        fn references(value: &Value, found: &mut Vec<String>) {
            match value {
                Value::Object(fields) => {
                    found.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
                    fields.values().for_each(|value| references(value, found));
                }
                Value::Array(values) => values.iter().for_each(|value| references(value, found)),
                _ => {}
            }
        }
        for (name, shape) in KNOWN {
            for (kind, make) in
                std::iter::once((shape.kind, shape.whole)).chain(shape.line.map(|line| ("", line)))
            {
                let schema = root(name, kind, make);
                let mut found = Vec::new();
                references(&schema, &mut found);
                for reference in found {
                    let place = reference.strip_prefix('#').unwrap();
                    assert!(schema.pointer(place).is_some(), "{name}: {reference}");
                }
                assert!(schema["properties"].is_object() || schema["anyOf"].is_array(), "{name}");
            }
        }
    }

    #[test]
    fn every_command_has_a_schema_or_prints_no_json() {
        // What they print is another program's, a file's, or a sentence.
        const WITHOUT: &[&str] = &[
            "attach",
            "completion",
            "config edit",
            "config set",
            "config unset",
            "config validate",
            "down",
            "exec",
            "file get",
            "file put",
            "help",
            "logs",
            "man",
            "schema",
            "up",
        ];
        let root = args::command();
        let mut leaves = Vec::new();
        for command in root.get_subcommands().filter(|command| !command.is_hide_set()) {
            let below: Vec<String> = command
                .get_subcommands()
                .map(|below| format!("{} {}", command.get_name(), below.get_name()))
                .collect();
            leaves.extend(if below.is_empty() { vec![command.get_name().to_owned()] } else { below });
        }
        for leaf in &leaves {
            let has = names().any(|name| name == leaf);
            assert_ne!(has, WITHOUT.contains(&leaf.as_str()), "{leaf}");
        }
        for name in names().filter(|name| *name != "error") {
            assert!(
                leaves.iter().any(|leaf| name == leaf || name.starts_with(&format!("{leaf} "))),
                "{name}"
            );
        }
    }

    #[test]
    fn help_of_a_command_names_its_schema() {
        for (command, line) in
            [("ls", "phalanx schema ls"), ("snapshot create", "phalanx schema snapshot create")]
        {
            let mut found = &args::command();
            for word in command.split(' ') {
                found = found.find_subcommand(word).unwrap();
            }
            assert!(found.clone().render_long_help().to_string().contains(line), "{command}");
        }
        let mut logs = args::command().find_subcommand("logs").unwrap().clone();
        assert!(!logs.render_long_help().to_string().contains("phalanx schema"));
    }

    #[test]
    fn an_unknown_name_is_not_found_and_the_nearest_is_told() {
        let failure = find(&words("snapshot creat")).err().unwrap();
        assert_eq!(failure.exit_code(), 3);
        assert!(failure.rendered(false).unwrap().contains("did you mean \"snapshot create\"?"));
        assert_eq!(find(&words("snapshot create")).unwrap().0, "snapshot create");
    }
}
