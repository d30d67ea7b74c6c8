//! Typed reading of one map of a task file: unknown and double keys, wrong types and wrong values become problems
//! that name the field, and reading goes on.

use std::collections::BTreeMap;

use super::format::node::{Key, Kind, Node};
use super::problem::{Collector, Place, suggestion};

/// Among the keys that are known: any that begins with `x-`, where authors keep what they name by YAML anchors.
pub const EXTENSION: &str = "x-*";

fn is_known(key: &str, known: &[&str]) -> bool {
    known.contains(&key) || (key.starts_with("x-") && known.contains(&EXTENSION))
}

/// One map while it is read.
pub struct Fields<'a> {
    entries: &'a [(Key, Node)],
    pub at: Place,
    task: Option<&'a str>,
    /// `retries.` for the fields of a nested map.
    prefix: &'static str,
    pub problems: &'a mut Collector,
}

impl<'a> Fields<'a> {
    /// `None` (and a problem) when `node` is no map.
    pub fn open(
        node: &'a Node,
        what: &'static str,
        known: &[&str],
        task: Option<&'a str>,
        problems: &'a mut Collector,
    ) -> Option<Self> {
        let Kind::Map(entries) = &node.kind else {
            let message = format!("{what} must be a map of keys, found {}", node.what());
            match task {
                Some(task) => problems.add_to_task(node.at, task, message),
                None => problems.add(node.at, message),
            }
            return None;
        };
        let prefix = if what == "retries" { "retries." } else { "" };
        let mut fields = Self { entries, at: node.at, task, prefix, problems };
        for (index, (key, _)) in entries.iter().enumerate() {
            if entries.iter().take(index).any(|(before, _)| before.name == key.name) {
                fields.complain(key.at, format!("the key {:?} is given twice", key.name));
            } else if !is_known(&key.name, known) {
                let hint = suggestion(&key.name, known.iter().copied());
                fields.complain(key.at, format!("unknown key {:?} in {what}{hint}", key.name));
            }
        }
        Some(fields)
    }

    pub fn complain(&mut self, at: Place, message: impl Into<String>) {
        match self.task {
            Some(task) => self.problems.add_to_task(at, task, message),
            None => self.problems.add(at, message),
        }
    }

    /// The value; one that is null counts as not given.
    pub fn get(&self, key: &str) -> Option<&'a Node> {
        let entries = self.entries;
        entries.iter().find(|(k, node)| k.name == key && node.kind != Kind::Null).map(|(_, node)| node)
    }

    pub fn place(&self, key: &str) -> Place {
        self.get(key).map_or(self.at, |node| node.at)
    }

    /// A value read by `read`, whose error names what is wrong.
    pub fn parsed<T, E: std::fmt::Display>(
        &mut self,
        key: &str,
        expected: &str,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let node = self.get(key)?;
        let Some(text) = node.scalar() else {
            let found = node.what();
            self.complain(node.at, format!("{}{key} must be {expected}, found {found}", self.prefix));
            return None;
        };
        match read(text) {
            Ok(value) => Some(value),
            Err(error) => {
                self.complain(node.at, format!("{}{key}: {error}", self.prefix));
                None
            }
        }
    }

    pub fn text(&mut self, key: &str) -> Option<String> {
        self.parsed(key, "a text", |text| {
            if text.contains('\0') { Err("it holds a NUL character") } else { Ok(text.to_owned()) }
        })
    }

    pub fn whole<T: std::str::FromStr>(&mut self, key: &str) -> Option<T> {
        self.parsed(key, "a whole number", |text| {
            text.parse::<T>().map_err(|_| format!("{text:?} is not a whole number that fits"))
        })
    }

    /// A word of a fixed set.
    pub fn word<T: Copy>(&mut self, key: &str, words: &[(&str, T)]) -> Option<T> {
        self.parsed(key, "a word", |text| {
            words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value).ok_or_else(|| {
                format!("{text:?} is not known{}", suggestion(text, words.iter().map(|(word, _)| *word)))
            })
        })
    }

    /// A list of texts; a single text is a list of one.
    pub fn texts(&mut self, key: &str) -> Vec<(Place, String)> {
        let Some(node) = self.get(key) else { return Vec::new() };
        let items = match &node.kind {
            Kind::List(items) => items.as_slice(),
            _ => std::slice::from_ref(node),
        };
        let mut texts = Vec::new();
        for item in items {
            match item.scalar() {
                Some(text) if !text.contains('\0') => texts.push((item.at, text.to_owned())),
                Some(_) => self.complain(item.at, format!("{}{key}: it holds a NUL character", self.prefix)),
                None => {
                    let found = item.what();
                    self.complain(
                        item.at,
                        format!("{}{key} must be a list of texts, found {found}", self.prefix),
                    );
                }
            }
        }
        texts
    }

    /// A map of texts.
    pub fn pairs(&mut self, key: &str) -> BTreeMap<String, String> {
        let Some(node) = self.get(key) else { return BTreeMap::new() };
        let Kind::Map(entries) = &node.kind else {
            self.complain(node.at, format!("{key} must be a map of texts, found {}", node.what()));
            return BTreeMap::new();
        };
        let mut pairs = BTreeMap::new();
        for (name, item) in entries {
            match item.scalar() {
                Some(text) if text.contains('\0') || name.name.contains('\0') => {
                    self.complain(
                        item.at,
                        format!("{key}.{}: it holds a NUL character", name.name.escape_debug()),
                    );
                }
                Some(text) => {
                    if pairs.insert(name.name.clone(), text.to_owned()).is_some() {
                        self.complain(name.at, format!("the key {:?} is given twice in {key}", name.name));
                    }
                }
                None => {
                    self.complain(
                        item.at,
                        format!("{key}.{} must be a text, found {}", name.name, item.what()),
                    );
                }
            }
        }
        pairs
    }

    /// A program: a text goes to `sh -c`, a list is taken as it is.
    pub fn program(&mut self, key: &str) -> Option<Vec<String>> {
        let node = self.get(key)?;
        self.program_of(node, key)
    }

    /// Several programs: a text is one, a list has one in each item.
    pub fn programs(&mut self, key: &str) -> Vec<Vec<String>> {
        let Some(node) = self.get(key) else { return Vec::new() };
        match &node.kind {
            Kind::List(items) => items.iter().filter_map(|item| self.program_of(item, key)).collect(),
            _ => self.program_of(node, key).into_iter().collect(),
        }
    }

    fn program_of(&mut self, node: &Node, key: &str) -> Option<Vec<String>> {
        let words: Vec<String> = match &node.kind {
            Kind::List(items) => {
                let words: Option<Vec<String>> =
                    items.iter().map(|item| item.scalar().map(str::to_owned)).collect();
                let Some(words) = words else {
                    self.complain(node.at, format!("{key} must be a text or a list of texts"));
                    return None;
                };
                words
            }
            _ => match node.scalar() {
                Some(text) => vec!["sh".to_owned(), "-c".to_owned(), text.to_owned()],
                None => {
                    self.complain(
                        node.at,
                        format!("{key} must be a text or a list of texts, found {}", node.what()),
                    );
                    return None;
                }
            },
        };
        let blank = |word: &String| word.trim().is_empty();
        if words.first().is_none_or(blank) || (node.scalar().is_some() && words.last().is_none_or(blank)) {
            self.complain(node.at, format!("{key} is empty"));
            return None;
        }
        if words.iter().any(|word| word.contains('\0')) {
            self.complain(node.at, format!("{key}: it holds a NUL character"));
            return None;
        }
        Some(words)
    }
}
