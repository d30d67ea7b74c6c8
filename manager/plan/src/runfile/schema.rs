//! The document of a YAML task file: which keys it has, and what stands under them. One task is `task.rs`'s.

use std::collections::BTreeMap;

use super::fields::{EXTENSION, Fields};
use super::format::node::{Kind, Node};
use super::problem::{Collector, Place};
use super::profile::{Profile, signals};
use crate::notify::asked::{self, Asked};

const DOCUMENT: &[&str] = &[
    "include",
    "name",
    "max_parallel",
    "labels",
    "caps",
    "notify",
    "defaults",
    "profiles",
    "rows",
    "tasks",
    "reduce",
    EXTENSION,
];
const PROFILE: &[&str] = &["command", "interactive", "ready", "signals"];

/// A document, its tasks not yet read.
#[derive(Debug, Default)]
pub struct Document {
    pub name: Option<(Place, String)>,
    pub max_parallel: Option<u32>,
    pub labels: BTreeMap<String, String>,
    /// Most live tasks with a label.
    pub caps: BTreeMap<String, u32>,
    /// Hooks that are told of the run.
    pub notify: Vec<Asked>,
    pub defaults: Option<Node>,
    pub profiles: BTreeMap<String, Profile>,
    pub rows: Option<Vec<Node>>,
    pub tasks: Vec<Node>,
    /// One more task, after all others.
    pub reduce: Option<Node>,
}

impl Document {
    /// One that is only a list of tasks.
    pub fn of_tasks(tasks: Vec<Node>, profiles: BTreeMap<String, Profile>) -> Self {
        Self { profiles, tasks, ..Self::default() }
    }

    /// `profiles` are those that the document need not define.
    pub fn read(node: &Node, profiles: BTreeMap<String, Profile>, problems: &mut Collector) -> Self {
        let mut document = Self::of_tasks(Vec::new(), profiles);
        if node.kind == Kind::Null {
            problems.add(Place::line(1), "the file is empty; it needs tasks:");
            return document;
        }
        let Some(mut fields) = Fields::open(node, "a task file", DOCUMENT, None, problems) else {
            return document;
        };
        document.name = fields.text("name").map(|name| (fields.place("name"), name));
        document.max_parallel = fields.whole("max_parallel");
        if document.max_parallel == Some(0) {
            fields.complain(fields.place("max_parallel"), "max_parallel must be at least 1");
        }
        document.labels = fields.pairs("labels");
        document.caps = caps(&mut fields);
        document.notify =
            fields.get("notify").map(|node| asked::read(node, fields.problems)).unwrap_or_default();
        document.defaults = fields.get("defaults").cloned();
        document.rows = list(&mut fields, "rows");
        document.reduce = fields.get("reduce").cloned();
        match list(&mut fields, "tasks") {
            Some(tasks) => document.tasks = tasks,
            None if fields.get("tasks").is_none() => fields.complain(fields.at, "tasks is missing"),
            None => {}
        }
        if let Some(profiles) = fields.get("profiles") {
            read_profiles(profiles, &mut document.profiles, fields.problems);
        }
        document
    }
}

fn caps(fields: &mut Fields<'_>) -> BTreeMap<String, u32> {
    let at = fields.place("caps");
    let mut caps = BTreeMap::new();
    for (label, text) in fields.pairs("caps") {
        let most =
            text.parse::<u32>().map_err(|_| format!("{label}: {text:?} is not a whole number that fits"));
        match most.and_then(|most| manager_core::check_cap(&label, most).map(|()| most)) {
            Ok(most) => drop(caps.insert(label, most)),
            Err(message) => fields.complain(at, format!("caps: {message}")),
        }
    }
    caps
}

fn list(fields: &mut Fields<'_>, key: &str) -> Option<Vec<Node>> {
    let node = fields.get(key)?;
    match &node.kind {
        Kind::List(items) => Some(items.clone()),
        _ => {
            fields.complain(node.at, format!("{key} must be a list, found {}", node.what()));
            None
        }
    }
}

/// Adds the profiles of a map to those that are known; one of the same name is replaced.
pub fn read_profiles(node: &Node, profiles: &mut BTreeMap<String, Profile>, problems: &mut Collector) {
    let Kind::Map(entries) = &node.kind else {
        problems.add(node.at, format!("profiles must be a map of profiles, found {}", node.what()));
        return;
    };
    for (index, (key, item)) in entries.iter().enumerate() {
        if entries.iter().take(index).any(|(before, _)| before.name == key.name) {
            problems.add(key.at, format!("the profile {:?} is given twice", key.name));
        }
        let Some(mut fields) = Fields::open(item, "a profile", PROFILE, None, problems) else { continue };
        let ready = fields.text("ready").filter(|text| !text.is_empty());
        let signals = fields.get("signals").and_then(|node| signals::read(node, fields.problems));
        let interactive = interactive(&mut fields);
        match fields.program("command") {
            Some(command) => {
                let interactive = interactive.unwrap_or_else(|| command.clone());
                let signals = signals.map(Box::new);
                let profile = Profile { command, interactive, ready, signals };
                profiles.insert(key.name.clone(), profile);
            }
            None if fields.get("command").is_none() => {
                fields.complain(key.at, format!("the profile {:?} has no command", key.name));
            }
            None => {}
        }
    }
}

/// The program that a person talks to. `true` would be the program of that name.
fn interactive(fields: &mut Fields<'_>) -> Option<Vec<String>> {
    let node = fields.get("interactive")?;
    if let Kind::Bool { text, .. } = &node.kind {
        let message = format!(
            "interactive must be the command that a person talks to, as a text or a list of texts, found {text}; \
             leave it out where it is the same as command"
        );
        fields.complain(node.at, message);
        return None;
    }
    fields.program("interactive")
}
