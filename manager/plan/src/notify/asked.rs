//! `notify:` of a task file and `--notify`: hooks of the settings by their names, never what they run or where they
//! write. A task file comes with whatever repository one has, and agents may edit it: what it could name would run as the
//! operator. Whether there are such hooks is the manager's to know.

use protocol::ids::Name;
use protocol::notify::{NoticeKind, Told};

use super::hook::SEPARATOR;
use crate::runfile::fields::Fields;
use crate::runfile::format::node::{Kind, Node};
use crate::runfile::problem::{Collector, Place, suggestion};

const KEYS: &[&str] = &["to", "on"];
/// Keys that somebody writes who wants to say here what a hook is.
const OF_HOOKS: &[&str] = &["command", "cmd", "run", "exec", "webhook", "url", "address"];

/// A hook that a run asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    pub told: Told,
    /// In the task file; `None`: on the command line.
    pub at: Option<Place>,
}

/// A name, a list of names, or a list of maps.
pub fn read(node: &Node, problems: &mut Collector) -> Vec<Asked> {
    let items = match &node.kind {
        Kind::List(items) => items.as_slice(),
        _ => std::slice::from_ref(node),
    };
    let mut asked: Vec<Asked> = Vec::new();
    for item in items {
        let Some(told) = one(item, problems) else { continue };
        if asked.iter().any(|before| before.told.to == told.to) {
            problems.add(item.at, format!("notify: {:?} is named twice", told.to));
        }
        asked.push(Asked { told, at: Some(item.at) });
    }
    asked
}

fn one(item: &Node, problems: &mut Collector) -> Option<Told> {
    if let Some(text) = item.scalar() {
        let to = name(text).map_err(|message| problems.add(item.at, format!("notify: {message}"))).ok()?;
        return Some(Told { to, on: Vec::new() });
    }
    let Kind::Map(entries) = &item.kind else {
        let message = format!("notify must be names of hooks or maps with `to`, found {}", item.what());
        problems.add(item.at, message);
        return None;
    };
    if let Some((key, _)) = entries.iter().find(|(key, _)| OF_HOOKS.contains(&key.name.as_str())) {
        problems.add(key.at, format!("notify: {}", not_here(&key.name)));
        return None;
    }
    let mut fields = Fields::open(item, "notify", KEYS, None, problems)?;
    let to = fields.parsed("to", "a name", name);
    if fields.get("to").is_none() {
        fields.complain(item.at, "notify: `to` is missing: the name of a hook");
    }
    let mut on = Vec::new();
    let is_given = fields.get("on").is_some();
    for (at, word) in fields.texts("on") {
        match kind(&word) {
            Ok(kind) if on.contains(&kind) => {}
            Ok(kind) => on.push(kind),
            Err(message) => fields.complain(at, format!("notify: on: {message}")),
        }
    }
    if is_given && on.is_empty() {
        let message = "notify: `on` is empty; leave it out for what the hook itself is for";
        fields.complain(fields.place("on"), message);
    }
    Some(Told { to: to?, on })
}

/// Says nothing of what was written: it may hold a token.
fn not_here(what: &str) -> String {
    let is_address = ["webhook", "url", "address", "an address"].contains(&what);
    let line = if is_address { "webhook = \"https://…\"" } else { "command = [\"…\"]" };
    format!(
        "a run names a hook, and cannot say {what}: whoever can edit a task file, an agent too, would choose what is run or told in \
         your name. Write the hook into your own settings (phalanx config edit):\n    \
         [[notify]]\n    name = \"pager\"\n    only = \"asked\"\n    on = [\"failed\", \"run-end\"]\n    {line}\n  \
         and name it here: notify: [pager]"
    )
}

fn name(text: &str) -> Result<Name, String> {
    // No name holds one.
    if text.contains('/') {
        return Err(not_here(if text.contains("://") { "an address" } else { "a command" }));
    }
    if let Some((to, _)) = text.split_once(SEPARATOR) {
        return Err(format!("{text:?} is no name of a hook; in a file write {{to: {to}, on: [failed]}}"));
    }
    text.parse::<Name>().map_err(|error| format!("{text:?}: {error}"))
}

fn kind(word: &str) -> Result<NoticeKind, String> {
    NoticeKind::from_word(word).ok_or_else(|| {
        let known = NoticeKind::ALL.iter().map(|kind| kind.as_str());
        format!("{word:?} is nothing that is notified of{}", suggestion(word, known))
    })
}

/// `NAME` or `NAME:KIND,…`.
///
/// # Errors
/// What is wrong with it.
pub fn of_option(text: &str) -> Result<Told, String> {
    let Some((to, kinds)) = text.split_once(SEPARATOR) else {
        return Ok(Told { to: name(text)?, on: Vec::new() });
    };
    let mut on = Vec::new();
    for word in kinds.split(',').map(str::trim) {
        let kind = kind(word)?;
        if !on.contains(&kind) {
            on.push(kind);
        }
    }
    Ok(Told { to: name(to)?, on })
}

/// As `--notify` takes it.
pub fn written(told: &Told) -> String {
    let on: Vec<&str> = told.on.iter().map(|kind| kind.as_str()).collect();
    if on.is_empty() { told.to.to_string() } else { format!("{}{SEPARATOR}{}", told.to, on.join(",")) }
}

/// What the command line says of a hook is in the place of what the file says of it.
pub fn over(mut file: Vec<Asked>, options: &[Told]) -> Vec<Asked> {
    file.retain(|asked| options.iter().all(|told| told.to != asked.told.to));
    file.extend(options.iter().map(|told| Asked { told: told.clone(), at: None }));
    file
}
