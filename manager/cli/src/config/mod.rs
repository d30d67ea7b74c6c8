//! `config` and `profile`: what the settings are and where they were set; changes of files. None of it needs the
//! manager but `profile test`.

pub mod change;
pub mod profile;
pub mod view;

use protocol::error::ErrorCode;

use super::args::config::ConfigCommand;
use super::context::{Context, files};
use super::error::{Failure, exit};
use super::output::pipe::{Stdout, say};
use super::output::render::{Listing, list};
use super::output::sanitise::safe_line;
use manager_plan::config::format::OutputFormat;
use manager_plan::config::key::{self, KEYS, Key};
use manager_plan::config::layer::{Layer, environment};
use manager_plan::config::{Settings, Wrong};
use manager_plan::runfile::problem::suggestion;
use view::{FileRow, SettingRow};

pub fn run(context: &Context, command: &ConfigCommand) -> Result<u8, Failure> {
    match command {
        ConfigCommand::View { show_origin } => show(context, *show_origin),
        ConfigCommand::Get { key } => get(context, key),
        ConfigCommand::Set { key, value, file } => change::set(context, find(key)?, value, file.layer),
        ConfigCommand::Unset { key, file } => change::unset(context, find(key)?, file.layer),
        ConfigCommand::Edit { file } => change::edit(context, file.layer),
        ConfigCommand::Validate { file, layer } => match file {
            Some(file) => told(context, Settings::of_file(file, *layer), &file.display().to_string()),
            None => told(context, read(), "every file"),
        },
        ConfigCommand::Path => paths(context),
    }
}

fn read() -> Result<Settings, Wrong> {
    Settings::read(&files(), &environment())
}

fn wrong(found: &Wrong) -> Failure {
    Failure::usage(found.to_string()).hint("phalanx config edit")
}

fn find(name: &str) -> Result<&'static Key, Failure> {
    key::find(name).ok_or_else(|| {
        let hint = suggestion(name, KEYS.iter().map(|key| key.name));
        Failure::new(ErrorCode::NotFound, format!("there is no setting {name:?}{hint}"))
            .hint("phalanx config view")
    })
}

fn show(context: &Context, show_origin: bool) -> Result<u8, Failure> {
    let settings = read().map_err(|found| wrong(&found))?;
    let rows: Vec<SettingRow<'_>> =
        KEYS.iter().filter_map(|key| Some(SettingRow { key, entry: settings.entry(key)? })).collect();
    let format = match &context.format {
        OutputFormat::Table if show_origin => &OutputFormat::Wide,
        format => format,
    };
    let mut out = Stdout::default();
    list(&mut out, format, &Listing { items: &rows, as_of: None, note: None, empty: "" })?;
    out.done()?;
    Ok(exit::OK)
}

fn get(context: &Context, name: &str) -> Result<u8, Failure> {
    let key = find(name)?;
    let settings = read().map_err(|found| wrong(&found))?;
    let Some(entry) = settings.entry(key) else { return Err(find(name).err().unwrap_or(Failure::Told(1))) };
    let mut out = Stdout::default();
    if matches!(context.format, OutputFormat::Table | OutputFormat::Wide) {
        out.line(&safe_line(&entry.text))?;
    } else {
        let rows = [SettingRow { key, entry }];
        list(&mut out, &context.format, &Listing { items: &rows, as_of: None, note: None, empty: "" })?;
    }
    out.done()?;
    Ok(exit::OK)
}

fn told(context: &Context, checked: Result<Settings, Wrong>, what: &str) -> Result<u8, Failure> {
    checked.map_err(|found| wrong(&found))?;
    if !context.quiet {
        say(&safe_line(&format!("{what} is right")));
    }
    Ok(exit::OK)
}

fn paths(context: &Context) -> Result<u8, Failure> {
    let files = files();
    let here = std::env::current_dir().unwrap_or_default();
    let rows: Vec<FileRow> = [Layer::System, Layer::User, Layer::Project]
        .into_iter()
        .filter_map(|layer| {
            let path = files.of(layer, &here)?;
            Some(FileRow { layer, present: path.exists(), path })
        })
        .collect();
    let mut out = Stdout::default();
    list(&mut out, &context.format, &Listing { items: &rows, as_of: None, note: None, empty: "" })?;
    out.done()?;
    Ok(exit::OK)
}
