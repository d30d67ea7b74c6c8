//! A task file, its rows and its variables → a plan that is right as a whole, or every problem. Nothing is sent, and
//! nothing is read here but prompt files and files that are included.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use protocol::ids::Name;

use super::format::node::{Key, Kind, Node};
use super::format::{self, Format};
use super::problem::{Collector, Place, Problems};
use super::profile::{self, Profile};
use super::prompt::PromptReader;
use super::schema::Document;
use super::task::{PlannedTask, Reader};
use super::template::{BUILT_IN, RenderError, Renderer, Scope};
use super::{include, slug, validate};
use crate::notify::asked::Asked;

/// A file as it was read.
pub struct Source {
    /// For messages.
    pub name: String,
    /// Relative paths start here.
    pub folder: PathBuf,
    pub bytes: Vec<u8>,
}

/// What the command line and the settings add.
pub struct Options {
    /// `None`: seen from the file.
    pub format: Option<Format>,
    /// Rows of `--map`.
    pub rows: Option<Vec<Node>>,
    pub set: BTreeMap<String, String>,
    /// Profiles that need no definition in the file.
    pub profiles: BTreeMap<String, Profile>,
    /// Of a stream whose pieces are parsed one by one: what came before this one. `None`: it is the whole.
    pub before: Option<Before>,
    /// Fields of tasks that neither they nor the file's `defaults` give, such as `("memory", "2G")`.
    pub fields: Vec<(&'static str, String)>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            format: None,
            rows: None,
            set: BTreeMap::new(),
            profiles: profile::built_in(),
            before: None,
            fields: Vec::new(),
        }
    }
}

/// The part of a stream that was parsed before.
#[derive(Debug, Clone, Default)]
pub struct Before {
    /// Rows, or tasks where there are no rows.
    pub count: usize,
    /// Names of its tasks.
    pub names: BTreeSet<String>,
}

/// A run that is right in itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    pub name: Option<Name>,
    pub max_parallel: Option<u32>,
    pub labels: BTreeMap<String, String>,
    pub caps: BTreeMap<String, u32>,
    /// Hooks that are told of it; whether there are such is the manager's to know.
    pub notify: Vec<Asked>,
    pub tasks: Vec<PlannedTask>,
}

pub fn parse(source: &Source, options: &Options) -> Result<Plan, Problems> {
    let mut problems = Collector::default();
    let text = match std::str::from_utf8(&source.bytes) {
        Ok(text) => text.strip_prefix('\u{feff}').unwrap_or(text),
        Err(error) => {
            let before = source.bytes.get(..error.valid_up_to()).unwrap_or_default();
            let lines = before.iter().filter(|byte| **byte == b'\n').count();
            let line = u64::try_from(lines).unwrap_or(0).saturating_add(1);
            problems.add(Place::line(line), "the file is not UTF-8");
            return problems.finish(&source.name, Plan::empty());
        }
    };
    let format = options.format.unwrap_or_else(|| format::detect(&source.name, text));
    let document = match format {
        Format::Yaml => match format::yaml::parse(text) {
            Ok(node) => {
                let node = include::resolve(node, source, &mut problems);
                Document::read(&node, options.profiles.clone(), &mut problems)
            }
            Err(problem) => {
                problems.add(problem.at, problem.message);
                return problems.finish(&source.name, Plan::empty());
            }
        },
        Format::Jsonl => {
            Document::of_tasks(format::jsonl::parse(text, &mut problems), options.profiles.clone())
        }
        Format::Lines => Document::of_tasks(format::lines::parse(text), options.profiles.clone()),
    };
    if document.tasks.is_empty() && problems.count() == 0 {
        problems.add(Place::default(), "there are no tasks in it");
    }
    for name in options.set.keys().filter(|name| BUILT_IN.contains(&name.as_str())) {
        problems.add(Place::default(), format!("--set {name}: {name} has a meaning of its own"));
    }
    // Texts are taken as they are, unless something is there to be put into them: one rule for all formats.
    let templated = options.rows.is_some() || document.rows.is_some() || !options.set.is_empty();
    let mut prompts = PromptReader::default();
    let expanded = expand(&document, options, templated, (&source.folder, &mut prompts), &mut problems);
    let mut reader = Reader { folder: &source.folder, profiles: &document.profiles, prompts };
    let tasks: Vec<PlannedTask> =
        expanded.iter().filter_map(|task| reader.read(&task.node, &task.name, &mut problems)).collect();
    if problems.count() == 0 {
        validate::check(&tasks, &mut problems);
    }
    let name = document.name.and_then(|(at, name)| {
        name.parse::<Name>().map_err(|error| problems.add(at, format!("name: {error}"))).ok()
    });
    let plan = Plan {
        name,
        max_parallel: document.max_parallel,
        labels: document.labels,
        caps: document.caps,
        notify: document.notify,
        tasks,
    };
    problems.finish(&source.name, plan)
}

impl Plan {
    fn empty() -> Self {
        Self {
            name: None,
            max_parallel: None,
            labels: BTreeMap::new(),
            caps: BTreeMap::new(),
            notify: Vec::new(),
            tasks: Vec::new(),
        }
    }
}

/// A task node with everything in it but its meaning.
struct Expanded {
    name: String,
    node: Node,
}

/// Every task, once or once a row, with the defaults in it and its templates rendered.
fn expand(
    document: &Document,
    options: &Options,
    templated: bool,
    (folder, prompts): (&Path, &mut PromptReader),
    problems: &mut Collector,
) -> Vec<Expanded> {
    let rows = options.rows.as_ref().or(document.rows.as_ref());
    if rows.is_some_and(Vec::is_empty) {
        problems.add(Place::default(), "there are no rows");
    }
    let merged: Vec<Node> =
        document.tasks.iter().map(|task| with_defaults(document.defaults.as_ref(), task, problems)).collect();
    let merged = merged.into_iter().map(|task| with_settings(&options.fields, task)).collect::<Vec<_>>();
    let renderer = Renderer::default();
    let Before { count: before, names: mut taken } = options.before.clone().unwrap_or_default();
    let mut expanded = Vec::new();
    let several = options.before.is_some() || rows.is_some_and(|rows| rows.len() > 1);
    // Tasks are counted where there are no rows, else the rows are.
    let first_place = if rows.is_some() { 1 } else { before.saturating_add(1) };
    let mut each_row = |row: Option<&Node>, index: usize| {
        let scope = Scope::new(&options.set, row, index);
        let mut names: BTreeMap<String, String> = BTreeMap::new();
        let first = expanded.len();
        for (place, task) in merged.iter().enumerate() {
            let mut errors = Vec::new();
            let mut node = if templated && is_template(task) {
                renderer.render(task, &scope, &mut errors)
            } else {
                task.clone()
            };
            render_prompt(&mut node, (folder, &mut *prompts), (&renderer, &scope), &mut errors);
            let wanted = name_of(&node, place + first_place);
            let fixed = name_of(task, place + first_place) == wanted;
            let name = match (row, names.get(&wanted)) {
                (None, _) => wanted.clone(),
                // A double within one row is a mistake that is told, not mended.
                (Some(_), Some(double)) => double.clone(),
                (Some(_), None) if fixed && several => format!("{wanted}-{index}"),
                (Some(_), None) => unique(&wanted, index, &taken),
            };
            for RenderError { at, message } in errors {
                problems.add_to_task(at, &name, message);
            }
            taken.insert(name.clone());
            names.insert(wanted, name.clone());
            set_name(&mut node, &name);
            expanded.push(Expanded { name, node });
        }
        // Within a row, a task depends on the task of the same row.
        if row.is_some() {
            expanded.iter_mut().skip(first).for_each(|task| rename_dependencies(&mut task.node, &names));
        }
    };
    match rows {
        Some(rows) => {
            rows.iter().zip(before.saturating_add(1)..).for_each(|(row, index)| each_row(Some(row), index))
        }
        None => each_row(None, 1),
    }
    if let Some(reduce) = &document.reduce {
        let task =
            with_settings(&options.fields, with_defaults(document.defaults.as_ref(), reduce, problems));
        let scope = Scope::new(&options.set, None, 1);
        let mut errors = Vec::new();
        let mut node =
            if templated && is_template(&task) { renderer.render(&task, &scope, &mut errors) } else { task };
        render_prompt(&mut node, (folder, &mut *prompts), (&renderer, &scope), &mut errors);
        let name = node.get("name").and_then(Node::scalar).unwrap_or("reduce").to_owned();
        for RenderError { at, message } in errors {
            problems.add_to_task(at, &name, message);
        }
        set_name(&mut node, &name);
        wait_for_all(&mut node, &expanded);
        expanded.push(Expanded { name, node });
    }
    expanded
}

/// Whether its texts may be templates: `template: false` takes all of them as they are.
fn is_template(task: &Node) -> bool {
    task.get("template").and_then(Node::scalar) != Some("false")
}

/// Ends of prompt files that are templates.
const TEMPLATES: &[&str] = &[".j2", ".jinja", ".jinja2"];

/// A prompt file that is a template becomes the prompt that it gives; any other is taken as it is, by its reader.
fn render_prompt(
    node: &mut Node,
    (folder, prompts): (&Path, &mut PromptReader),
    (renderer, scope): (&Renderer, &Scope),
    errors: &mut Vec<RenderError>,
) {
    if !is_template(node) {
        return;
    }
    let Kind::Map(entries) = &mut node.kind else { return };
    // Both is an error of its own.
    if entries.iter().any(|(key, node)| key.name == "prompt" && node.kind != Kind::Null) {
        return;
    }
    let Some((key, file)) = entries.iter_mut().find(|(key, _)| key.name == "prompt_file") else { return };
    let Some(path) = file.scalar().filter(|path| TEMPLATES.iter().any(|end| path.ends_with(end))) else {
        return;
    };
    // One that cannot be read is told by its reader.
    let Ok(bytes) = prompts.file(&folder.join(path)) else { return };
    let rendered = match std::str::from_utf8(&bytes) {
        Ok(text) => renderer.render_file(text, scope),
        Err(_) => Err("it is not UTF-8".to_owned()),
    };
    match rendered {
        Ok(text) => {
            key.name = "prompt".to_owned();
            file.kind = Kind::Text(text);
        }
        Err(message) => {
            errors.push(RenderError { at: file.at, message: format!("prompt_file {path}: {message}") })
        }
    }
}

/// After every other task, unless it says after which.
fn wait_for_all(node: &mut Node, others: &[Expanded]) {
    let at = node.at;
    let Kind::Map(entries) = &mut node.kind else { return };
    if entries.iter().any(|(key, _)| key.name == "after") {
        return;
    }
    let names = others.iter().map(|other| Node::text(at, &other.name)).collect();
    entries.push((Key { at, name: "after".to_owned() }, Node { at, kind: Kind::List(names) }));
}

/// Keys of which a task has one; its own drives out those of the defaults.
const PROGRAM_KEYS: &[&str] = &["command", "profile", "prompt", "prompt_file"];

fn with_defaults(defaults: Option<&Node>, task: &Node, problems: &mut Collector) -> Node {
    let (Some(defaults), Kind::Map(own)) = (defaults, &task.kind) else { return task.clone() };
    let Kind::Map(defaults) = &defaults.kind else {
        problems
            .add(defaults.at, format!("defaults must be a map of task fields, found {}", defaults.what()));
        return task.clone();
    };
    Node { at: task.at, kind: Kind::Map(inherit(defaults, own)) }
}

/// The fields of `own`, and those of `defaults` that it neither has nor drives out.
pub(super) fn inherit(defaults: &[(Key, Node)], own: &[(Key, Node)]) -> Vec<(Key, Node)> {
    let has = |key: &str| own.iter().any(|(k, _)| k.name == key);
    let mut entries = own.to_vec();
    for (key, value) in defaults {
        let driven_out = match key.name.as_str() {
            "command" => PROGRAM_KEYS.iter().any(|key| has(key)),
            "profile" => has("command"),
            "prompt" | "prompt_file" => has("command") || has("prompt") || has("prompt_file"),
            _ => false,
        };
        let merged = entries.iter_mut().find(|(k, _)| k.name == key.name);
        match (merged, &value.kind) {
            // Maps are merged key by key, the task's own winning.
            (Some((_, Node { kind: Kind::Map(own), .. })), Kind::Map(inherited))
                if matches!(key.name.as_str(), "labels" | "env") =>
            {
                let missing = inherited.iter().filter(|(k, _)| !own.iter().any(|(o, _)| o.name == k.name));
                let missing: Vec<(Key, Node)> = missing.cloned().collect();
                own.extend(missing);
            }
            (Some(_), _) => {}
            (None, _) if !driven_out => entries.push((key.clone(), value.clone())),
            (None, _) => {}
        }
    }
    entries
}

/// What neither the task nor its file says.
fn with_settings(fields: &[(&'static str, String)], mut task: Node) -> Node {
    if let Kind::Map(entries) = &mut task.kind {
        for (name, value) in fields {
            if !entries.iter().any(|(key, _)| key.name == *name) {
                let key = Key { at: task.at, name: (*name).to_owned() };
                entries.push((key, Node::text(task.at, value)));
            }
        }
    }
    task
}

/// The name it gives itself, else one made of its command or place.
fn name_of(node: &Node, place: usize) -> String {
    if let Some(name) = node.get("name").and_then(Node::scalar) {
        return name.to_owned();
    }
    let command =
        node.get("command").and_then(Node::scalar).map(|text| slug::slug(text, 40)).unwrap_or_default();
    if command.is_empty() { format!("task-{place}") } else { format!("{command}-{place}") }
}

/// The name that a row gives, or with a number when an earlier row gave the same.
fn unique(wanted: &str, index: usize, taken: &BTreeSet<String>) -> String {
    if !taken.contains(wanted) {
        return wanted.to_owned();
    }
    (index..)
        .map(|number| format!("{wanted}-{number}"))
        .find(|name| !taken.contains(name))
        .unwrap_or_default()
}

fn set_name(node: &mut Node, name: &str) {
    let at = node.at;
    let Kind::Map(entries) = &mut node.kind else { return };
    match entries.iter_mut().find(|(key, _)| key.name == "name") {
        Some((_, value)) if value.scalar().is_some() => value.kind = Kind::Text(name.to_owned()),
        Some(_) => {}
        None => entries.push((Key { at, name: "name".to_owned() }, Node::text(at, name))),
    }
}

/// Keys that name other tasks.
const DEPENDENCIES: &[&str] = &["depends_on", "after", "base_from"];

fn rename_dependencies(node: &mut Node, names: &BTreeMap<String, String>) {
    let Kind::Map(entries) = &mut node.kind else { return };
    let rename = |item: &mut Node| {
        if let Some(name) = item.scalar().and_then(|name| names.get(name)) {
            item.kind = Kind::Text(name.clone());
        }
    };
    let named = entries.iter_mut().filter(|(key, _)| DEPENDENCIES.contains(&key.name.as_str()));
    for (_, value) in named {
        match &mut value.kind {
            Kind::List(items) => items.iter_mut().for_each(rename),
            _ => rename(value),
        }
    }
}
