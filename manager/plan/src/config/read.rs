//! One layer → its values and profiles, strictly: an unknown key, a key that this layer may not set and a value that
//! cannot be are problems with their place. All of them are told at once.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::path::Path;

use super::key::{self, KEYS, Key, PROFILE_LAYERS};
use super::layer::Layer;
use super::{Entry, NamedProfile, Origin, toml};
use crate::notify::hook::Hook;
use crate::runfile::fields::Fields;
use crate::runfile::format::node::{Kind, Node};
use crate::runfile::problem::{Collector, Place, Problems, suggestion};
use crate::runfile::schema::read_profiles;

/// A larger file is no configuration.
const FILE_LIMIT: u64 = 1 << 20;

/// Hooks of one file: each has a delivery under way at times.
const HOOKS_MOST: usize = 32;

/// What one layer says.
#[derive(Debug, Default)]
pub struct Found {
    pub entries: BTreeMap<&'static str, Entry>,
    pub profiles: BTreeMap<String, NamedProfile>,
    pub hooks: Vec<(Place, Hook)>,
}

/// Everything that is wrong with the configuration, by file.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Wrong(Vec<Problems>);

impl Wrong {
    pub fn of(problems: Problems) -> Self {
        Self(vec![problems])
    }

    pub fn missing(path: &Path) -> Self {
        let mut problems = Collector::default();
        problems.add(Place::default(), "there is no such file");
        Self(problems.finish(&path.display().to_string(), ()).err().into_iter().collect())
    }

    pub fn add(&mut self, problems: Problems) {
        self.0.push(problems);
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problems) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problems}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Wrong {}

/// A file of a layer; `None` when it is not there.
pub fn file(path: &Path, layer: Layer) -> Result<Option<Found>, Problems> {
    let name = path.display().to_string();
    let failed = |message: String| {
        let mut problems = Collector::default();
        problems.add(Place::default(), message);
        problems.finish(&name, None)
    };
    let opened = match std::fs::File::open(path) {
        Ok(opened) => opened,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return failed(format!("cannot be read: {error}")),
    };
    let mut text = String::new();
    if let Err(error) = opened.take(FILE_LIMIT + 1).read_to_string(&mut text) {
        return failed(format!("cannot be read: {error}"));
    }
    if u64::try_from(text.len()).unwrap_or(u64::MAX) > FILE_LIMIT {
        return failed("is larger than 1M; that is no configuration".to_owned());
    }
    self::text(&text, &name, layer).map(Some)
}

/// The text of a layer's file.
pub fn text(text: &str, name: &str, layer: Layer) -> Result<Found, Problems> {
    let mut problems = Collector::default();
    let mut found = Found::default();
    match toml::parse(text) {
        Ok(node) => document(&node, name, layer, &mut found, &mut problems),
        Err(problem) => problems.add(problem.at, problem.message),
    }
    problems.finish(name, found)
}

fn document(node: &Node, name: &str, layer: Layer, found: &mut Found, problems: &mut Collector) {
    let mut known = key::sections();
    known.extend(["profiles", "notify"]);
    if Fields::open(node, "a configuration file", &known, None, problems).is_none() {
        return;
    }
    for section in key::sections() {
        if let Some(node) = node.get(section) {
            self::section(section, node, name, layer, found, problems);
        }
    }
    if let Some(node) = node.get("notify") {
        hooks(node, name, layer, found, problems);
    }
    let Some(profiles) = node.get("profiles") else { return };
    if !PROFILE_LAYERS.contains(&layer) {
        problems.add(profiles.at, not_here("profiles", "they name programs that are run", PROFILE_LAYERS));
        return;
    }
    let mut read = BTreeMap::new();
    read_profiles(profiles, &mut read, problems);
    for (profile_name, profile) in read {
        let at = profiles.get(&profile_name).map_or(profiles.at, |node| node.at);
        let origin = Origin { layer, place: format!("{name}:{}", at.line) };
        found.profiles.insert(profile_name, NamedProfile { profile, origin });
    }
}

fn hooks(node: &Node, name: &str, layer: Layer, found: &mut Found, problems: &mut Collector) {
    if !PROFILE_LAYERS.contains(&layer) {
        let why = "they name programs that are run, and where what happens is told";
        return problems.add(node.at, not_here("notify", why, PROFILE_LAYERS));
    }
    let Kind::List(items) = &node.kind else {
        return problems.add(node.at, "notify is a list: write [[notify]]");
    };
    if items.len() > HOOKS_MOST {
        problems.add(node.at, format!("notify: more than {HOOKS_MOST} hooks"));
    }
    for item in items {
        let origin = Origin { layer, place: format!("{name}:{}", item.at.line) };
        found.hooks.extend(Hook::read(item, origin, problems).map(|hook| (item.at, hook)));
    }
}

fn section(
    section: &str,
    node: &Node,
    name: &str,
    layer: Layer,
    found: &mut Found,
    problems: &mut Collector,
) {
    let keys: Vec<&Key> = KEYS.iter().copied().filter(|key| key.parts().0 == section).collect();
    let known: Vec<&str> = keys.iter().map(|key| key.parts().1).collect();
    let Some(mut fields) = Fields::open(node, "this section", &known, None, problems) else { return };
    for key in keys {
        let (_, short) = key.parts();
        let Some(value) = fields.get(short) else { continue };
        let Some(text) = value.scalar().filter(|_| !matches!(value.kind, Kind::Bool { .. })) else {
            let message = format!("{} must be {}, found {}", key.name, key.kind.as_str(), value.what());
            fields.complain(value.at, message);
            continue;
        };
        if !key.may_be_set_by(layer) {
            fields.complain(value.at, not_here(key.name, "it is not a project's to say", key.layers));
        } else if let Err(message) = key.kind.check(text) {
            fields.complain(value.at, format!("{}: {message}", key.name));
        } else {
            let origin = Origin { layer, place: format!("{name}:{}", value.at.line) };
            found.entries.insert(key.name, Entry { text: text.to_owned(), origin });
        }
    }
}

fn not_here(what: &str, why: &str, layers: &[Layer]) -> String {
    let layers: Vec<&str> = layers.iter().map(|layer| layer.as_str()).collect();
    format!("{what} cannot be set in this file, since {why}; it can be in: {}", layers.join(", "))
}

/// The variables that are settings. Others that begin with `PHALANX_` have other uses, unless they begin as a
/// setting would: that is a mistake, which would go unseen.
pub fn environment(variables: &BTreeMap<String, String>) -> Result<Found, Problems> {
    let mut problems = Collector::default();
    let mut found = Found::default();
    let sections: Vec<String> =
        key::sections().iter().map(|section| format!("PHALANX_{}_", section.to_uppercase())).collect();
    let known: Vec<String> =
        KEYS.iter().filter(|key| key.may_be_set_by(Layer::Environment)).map(|key| key.variable()).collect();
    // An empty variable counts as unset.
    for (name, value) in variables.iter().filter(|(_, value)| !value.is_empty()) {
        if !sections.iter().any(|section| name.starts_with(section.as_str())) {
            continue;
        }
        let Some(key) = KEYS.iter().copied().find(|key| key.variable() == *name) else {
            let hint = suggestion(name, known.iter().map(String::as_str));
            problems.add(Place::default(), format!("{name} is no setting{hint}"));
            continue;
        };
        if !key.may_be_set_by(Layer::Environment) {
            let why = "it is for daemons, whoever starts them";
            problems.add(Place::default(), not_here(name, why, key.layers));
        } else if let Err(message) = key.kind.check(value) {
            problems.add(Place::default(), format!("{name}: {message}"));
        } else {
            let origin = Origin { layer: Layer::Environment, place: name.clone() };
            found.entries.insert(key.name, Entry { text: value.clone(), origin });
        }
    }
    problems.finish("the environment", found)
}
