//! `include:` of a task file: other task files laid under it, so that what the including file says wins. Each file is
//! read once; a circle is an error. What the merged document means is `schema.rs`'s.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::fields::{EXTENSION, Fields};
use super::format::node::{Kind, Node};
use super::format::yaml;
use super::parse::{Source, inherit};
use super::problem::{Collector, Place};

/// Files one below the other, the first not counted.
const DEPTH_MOST: usize = 10;
/// Bytes of one included file.
const FILE_MOST: u64 = 64 << 20;
/// What an included file may say; the rest is about the run, which is the first file's.
const INCLUDED: &[&str] = &["include", "defaults", "profiles", "labels", "caps", "tasks", EXTENSION];

/// The document with everything in it that it includes; itself when it includes nothing.
pub fn resolve(document: Node, source: &Source, problems: &mut Collector) -> Node {
    let file = Path::new(&source.name).file_name().map(|name| source.folder.join(name));
    let first = Open { path: file.and_then(|file| canonical(&file)), name: source.name.clone() };
    let mut includer = Includer { open: vec![first], read: BTreeSet::new(), problems };
    includer.whole(document, &source.folder)
}

/// A file that is being read.
struct Open {
    /// `None` for one that is no file, such as standard input.
    path: Option<PathBuf>,
    name: String,
}

struct Includer<'a> {
    /// From the first file to the one at hand.
    open: Vec<Open>,
    read: BTreeSet<PathBuf>,
    problems: &'a mut Collector,
}

impl Includer<'_> {
    fn whole(&mut self, mut document: Node, folder: &Path) -> Node {
        let Kind::Map(entries) = &mut document.kind else { return document };
        let Some(index) = entries.iter().position(|(key, _)| key.name == "include") else { return document };
        let (_, include) = entries.remove(index);
        let items = match include.kind {
            Kind::List(items) => items,
            Kind::Null => return document,
            _ => vec![include],
        };
        let mut below: Option<Node> = None;
        for item in items {
            let Some(wanted) = item.scalar() else {
                let message = format!("include must be a list of files, found {}", item.what());
                self.problems.add(item.at, message);
                continue;
            };
            let Some(included) = self.file(wanted, item.at, folder) else { continue };
            below = Some(match below {
                // Two that are included beside each other: the later one wins, but no task hides another.
                Some(before) => over(&before, included, Doubles::Stay),
                None => included,
            });
        }
        match below {
            Some(below) => over(&below, document, Doubles::Replace),
            None => document,
        }
    }

    fn file(&mut self, wanted: &str, at: Place, folder: &Path) -> Option<Node> {
        let path = folder.join(wanted);
        let beside = self.open.last().filter(|open| open.path.is_some());
        let beside = beside.and_then(|open| Path::new(&open.name).parent());
        let name = beside.map_or_else(|| wanted.into(), |parent| parent.join(wanted)).display().to_string();
        let Some(found) = canonical(&path) else {
            self.problems.add(at, format!("include: there is no file {}", path.display()));
            return None;
        };
        if let Some(from) = self.open.iter().position(|open| open.path.as_ref() == Some(&found)) {
            let circle: Vec<&str> = self.open.iter().skip(from).map(|open| open.name.as_str()).collect();
            let message = format!("include: a circle: {} includes {name}", circle.join(" includes "));
            self.problems.add(at, message);
            return None;
        }
        if self.open.len() > DEPTH_MOST {
            self.problems.add(at, format!("include: {name} is more than {DEPTH_MOST} files deep"));
            return None;
        }
        if !self.read.insert(found.clone()) {
            return None;
        }
        let text = match read(&path) {
            Ok(text) => text,
            Err(why) => {
                self.problems.add(at, format!("include: {} {why}", path.display()));
                return None;
            }
        };
        let file = self.problems.file(&name);
        let mut document = match yaml::parse(text.strip_prefix('\u{feff}').unwrap_or(&text)) {
            Ok(document) => document,
            // The parser's own words may quote the file, which may be any that the operator can read.
            Err(problem) => {
                self.problems.add(Place { file, ..problem.at }, "this is not YAML, so it is no task file");
                return None;
            }
        };
        stamp(&mut document, file);
        // Any readable file may be named here, and many are YAML: nothing of one that is no task file is quoted.
        if !is_task_file(&document) {
            let message = format!("this is no task file: it has none of the keys {}", INCLUDED.join(", "));
            self.problems.add(Place { file, ..Place::line(1) }, message);
            return None;
        }
        Fields::open(&document, "an included task file", INCLUDED, None, self.problems)?;
        let here = path.parent().unwrap_or(folder).to_owned();
        if !self.has_right_kinds(&document) {
            return None;
        }
        move_paths(&mut document, &here);
        self.open.push(Open { path: Some(found), name });
        let document = self.whole(document, &here);
        self.open.pop();
        Some(document)
    }

    /// What cannot be merged is told here, since the merged document no longer shows it.
    fn has_right_kinds(&mut self, document: &Node) -> bool {
        let before = self.problems.count();
        for key in ["defaults", "profiles", "labels", "caps"] {
            if let Some(node) =
                document.get(key).filter(|node| !matches!(node.kind, Kind::Map(_) | Kind::Null))
            {
                self.problems.add(node.at, format!("{key} must be a map, found {}", node.what()));
            }
        }
        if let Some(node) =
            document.get("tasks").filter(|node| !matches!(node.kind, Kind::List(_) | Kind::Null))
        {
            self.problems.add(node.at, format!("tasks must be a list, found {}", node.what()));
        }
        self.problems.count() == before
    }
}

fn is_task_file(document: &Node) -> bool {
    let Kind::Map(entries) = &document.kind else { return document.kind == Kind::Null };
    entries.is_empty() || entries.iter().any(|(key, _)| INCLUDED.contains(&key.name.as_str()))
}

fn canonical(path: &Path) -> Option<PathBuf> {
    path.canonicalize().ok().filter(|path| path.is_file())
}

fn read(path: &Path) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("cannot be read: {error}");
    let mut bytes = Vec::new();
    std::fs::File::open(path).map_err(failed)?.take(FILE_MOST + 1).read_to_end(&mut bytes).map_err(failed)?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > FILE_MOST {
        return Err("is larger than 64M; that is no task file".to_owned());
    }
    String::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned())
}

/// Every place in it is one of this file.
fn stamp(node: &mut Node, file: u32) {
    node.at.file = file;
    match &mut node.kind {
        Kind::List(items) => items.iter_mut().for_each(|item| stamp(item, file)),
        Kind::Map(entries) => {
            for (key, item) in entries {
                key.at.file = file;
                stamp(item, file);
            }
        }
        Kind::Null | Kind::Bool { .. } | Kind::Number { .. } | Kind::Text(_) => {}
    }
}

/// Paths of tasks start at the file that names them. One that begins with a template is whole, or starts at the first
/// file.
fn move_paths(document: &mut Node, folder: &Path) {
    let Kind::Map(entries) = &mut document.kind else { return };
    for (key, node) in entries {
        match (key.name.as_str(), &mut node.kind) {
            ("defaults", _) => move_paths_of(node, folder),
            ("tasks", Kind::List(tasks)) => tasks.iter_mut().for_each(|task| move_paths_of(task, folder)),
            _ => {}
        }
    }
}

fn move_paths_of(task: &mut Node, folder: &Path) {
    let Kind::Map(entries) = &mut task.kind else { return };
    for (key, node) in entries {
        if let ("repo" | "prompt_file", Kind::Text(text)) = (key.name.as_str(), &mut node.kind)
            && !text.is_empty()
            && !text.starts_with("{{")
        {
            *text = folder.join(&*text).display().to_string();
        }
    }
}

/// What becomes of a task whose name the upper document has too.
#[derive(Clone, Copy)]
enum Doubles {
    Replace,
    /// Both stay, which is a problem unless a file above replaces them.
    Stay,
}

/// `upper` laid over `lower`, map by map.
fn over(lower: &Node, mut upper: Node, doubles: Doubles) -> Node {
    let (Kind::Map(below), Kind::Map(entries)) = (&lower.kind, &mut upper.kind) else { return upper };
    for (key, inherited) in below {
        let own = entries.iter_mut().find(|(own, _)| own.name == key.name).map(|(_, node)| node);
        match (own, &inherited.kind) {
            (None, _) => entries.push((key.clone(), inherited.clone())),
            (Some(own), _) if own.kind == Kind::Null => *own = inherited.clone(),
            (Some(own), Kind::List(tasks)) => {
                let Kind::List(own) = &mut own.kind else { continue };
                let is_kept = |task: &&Node| match doubles {
                    Doubles::Stay => true,
                    Doubles::Replace => {
                        let name = task.get("name").and_then(Node::scalar);
                        name.is_none() || own.iter().all(|own| own.get("name").and_then(Node::scalar) != name)
                    }
                };
                let mut kept: Vec<Node> = tasks.iter().filter(is_kept).cloned().collect();
                kept.append(own);
                *own = kept;
            }
            (Some(own), Kind::Map(inherited)) => {
                let Kind::Map(own) = &mut own.kind else { continue };
                if key.name == "defaults" {
                    *own = inherit(inherited, own);
                    continue;
                }
                let missing =
                    inherited.iter().filter(|(key, _)| own.iter().all(|(own, _)| own.name != key.name));
                let missing: Vec<_> = missing.cloned().collect();
                own.extend(missing);
            }
            (Some(_), _) => {}
        }
    }
    upper
}
