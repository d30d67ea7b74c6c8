//! Settings, files of settings and profiles as rows and as JSON.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::super::output::render::Listed;
use crate::config::key::Key;
use crate::config::layer::Layer;
use crate::config::{Entry, NamedProfile, Origin};

pub struct SettingRow<'a> {
    pub key: &'a Key,
    pub entry: &'a Entry,
}

fn origin(origin: &Origin) -> String {
    if origin.place.is_empty() {
        origin.layer.to_string()
    } else {
        format!("{} ({})", origin.layer, origin.place)
    }
}

impl Listed for SettingRow<'_> {
    const KIND: &'static str = "SettingList";
    const HEADER: &'static [&'static str] = &["KEY", "VALUE"];
    const WIDE: &'static [&'static str] = &["ORIGIN", "DEFAULT", "FOR"];

    fn json(&self) -> Value {
        let layers: Vec<&str> = self.key.layers.iter().map(|layer| layer.as_str()).collect();
        json!({
            "key": self.key.name,
            "value": self.entry.text,
            "default": self.key.default,
            "origin": {"layer": self.entry.origin.layer.as_str(), "place": self.entry.origin.place},
            "takes": self.key.kind.as_str(),
            "layers": layers,
            "variable": self.key.may_be_set_by(Layer::Environment).then(|| self.key.variable()),
            "about": self.key.about,
        })
    }

    fn name(&self) -> String {
        self.key.name.to_owned()
    }

    fn cells(&self, wide: bool) -> Vec<String> {
        let mut cells = vec![self.key.name.to_owned(), self.entry.text.clone()];
        if wide {
            cells.extend([
                origin(&self.entry.origin),
                self.key.default.to_owned(),
                self.key.about.to_owned(),
            ]);
        }
        cells
    }
}

pub struct FileRow {
    pub layer: Layer,
    pub path: PathBuf,
    pub present: bool,
}

impl Listed for FileRow {
    const KIND: &'static str = "SettingsFileList";
    const HEADER: &'static [&'static str] = &["LAYER", "FILE", "THERE"];
    const WIDE: &'static [&'static str] = &[];

    fn json(&self) -> Value {
        json!({"layer": self.layer.as_str(), "path": self.path, "present": self.present})
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn cells(&self, _wide: bool) -> Vec<String> {
        let there = if self.present { "yes" } else { "no" };
        vec![self.layer.to_string(), self.path.display().to_string(), there.to_owned()]
    }
}

pub struct ProfileRow<'a> {
    pub name: &'a str,
    pub named: &'a NamedProfile,
}

impl Listed for ProfileRow<'_> {
    const KIND: &'static str = "ProfileList";
    const HEADER: &'static [&'static str] = &["PROFILE", "ORIGIN", "READY", "COMMAND"];
    const WIDE: &'static [&'static str] = &["INTERACTIVE"];

    fn json(&self) -> Value {
        let profile = &self.named.profile;
        json!({
            "name": self.name,
            "command": profile.command,
            "interactive": profile.interactive,
            "ready": profile.ready,
            "signals": profile.signals,
            "origin": {"layer": self.named.origin.layer.as_str(), "place": self.named.origin.place},
        })
    }

    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn cells(&self, wide: bool) -> Vec<String> {
        let profile = &self.named.profile;
        let mut cells = vec![
            self.name.to_owned(),
            origin(&self.named.origin),
            profile.ready.clone().unwrap_or_default(),
            words(&profile.command),
        ];
        if wide {
            cells.push(words(&profile.interactive));
        }
        cells
    }
}

/// A program on one line; what `sh -c` runs as it was written.
pub fn words(program: &[String]) -> String {
    match program {
        [sh, c, command] if sh == "sh" && c == "-c" => command.clone(),
        words => format!("{words:?}"),
    }
}
