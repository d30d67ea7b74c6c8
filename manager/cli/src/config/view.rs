//! Settings, files of settings and profiles as rows and as JSON.

use std::path::PathBuf;

use protocol::signals::Signals;
use schemars::JsonSchema;
use serde::Serialize;

use super::super::output::render::Listed;
use manager_plan::config::key::Key;
use manager_plan::config::layer::Layer;
use manager_plan::config::{Entry, NamedProfile, Origin};

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

/// Where a value comes from.
#[derive(Serialize, JsonSchema)]
pub struct OriginDocument<'a> {
    layer: &'a str,
    /// File and line, variable or option; empty for what is built in.
    place: &'a str,
}

impl<'a> OriginDocument<'a> {
    pub fn of(origin: &'a Origin) -> Self {
        Self::at(origin.layer.as_str(), &origin.place)
    }

    pub fn at(layer: &'a str, place: &'a str) -> Self {
        Self { layer, place }
    }
}

#[derive(Serialize, JsonSchema)]
pub struct SettingDocument<'a> {
    key: &'a str,
    value: &'a str,
    default: &'a str,
    origin: OriginDocument<'a>,
    /// What kind of value it takes.
    takes: &'a str,
    /// Where it may be set.
    layers: Vec<&'a str>,
    /// The variable of the environment that sets it.
    variable: Option<String>,
    about: &'a str,
}

impl Listed for SettingRow<'_> {
    const KIND: &'static str = "SettingList";
    const HEADER: &'static [&'static str] = &["KEY", "VALUE"];
    const WIDE: &'static [&'static str] = &["ORIGIN", "DEFAULT", "FOR"];

    type Document<'a>
        = SettingDocument<'a>
    where
        Self: 'a;

    fn document(&self) -> SettingDocument<'_> {
        SettingDocument {
            key: self.key.name,
            value: &self.entry.text,
            default: self.key.default,
            origin: OriginDocument::of(&self.entry.origin),
            takes: self.key.kind.as_str(),
            layers: self.key.layers.iter().map(|layer| layer.as_str()).collect(),
            variable: self.key.may_be_set_by(Layer::Environment).then(|| self.key.variable()),
            about: self.key.about,
        }
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

#[derive(Serialize, JsonSchema)]
pub struct SettingsFile<'a> {
    layer: &'a str,
    path: String,
    present: bool,
}

impl Listed for FileRow {
    const KIND: &'static str = "SettingsFileList";
    const HEADER: &'static [&'static str] = &["LAYER", "FILE", "THERE"];
    const WIDE: &'static [&'static str] = &[];

    type Document<'a>
        = SettingsFile<'a>
    where
        Self: 'a;

    fn document(&self) -> SettingsFile<'_> {
        SettingsFile {
            layer: self.layer.as_str(),
            path: self.path.display().to_string(),
            present: self.present,
        }
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

#[derive(Serialize, JsonSchema)]
pub struct ProfileDocument<'a> {
    name: &'a str,
    command: &'a [String],
    interactive: &'a [String],
    /// A text in its output that shows that it is ready.
    ready: Option<&'a str>,
    signals: Option<&'a Signals>,
    origin: OriginDocument<'a>,
}

impl Listed for ProfileRow<'_> {
    const KIND: &'static str = "ProfileList";
    const HEADER: &'static [&'static str] = &["PROFILE", "ORIGIN", "READY", "COMMAND"];
    const WIDE: &'static [&'static str] = &["INTERACTIVE"];

    type Document<'a>
        = ProfileDocument<'a>
    where
        Self: 'a;

    fn document(&self) -> ProfileDocument<'_> {
        let profile = &self.named.profile;
        ProfileDocument {
            name: self.name,
            command: &profile.command,
            interactive: &profile.interactive,
            ready: profile.ready.as_deref(),
            signals: profile.signals.as_deref(),
            origin: OriginDocument::of(&self.named.origin),
        }
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
