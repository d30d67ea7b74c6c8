//! A list of items in the format that was asked for. JSON has one shape for none, one and many.

use std::borrow::Cow;

use minijinja::{Environment, UndefinedBehavior};
use protocol::api::SCHEMA_VERSION;
use protocol::time::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::super::error::Failure;
use super::pipe::Stdout;
use super::sanitise::{safe_json, safe_line, safe_text};
use super::table::Table;
use manager_plan::config::format::OutputFormat;
use manager_plan::runfile::problem::suggestion;
use manager_plan::runfile::template::value_of;

/// Something that is listed.
pub trait Listed {
    /// `AgentList`, `RunList`, …
    const KIND: &'static str;
    const HEADER: &'static [&'static str];
    /// Further columns of `-o wide`.
    const WIDE: &'static [&'static str];

    /// Its JSON, field by field. `phalanx schema` is made from this type.
    type Document<'a>: Serialize + JsonSchema
    where
        Self: 'a;

    fn document(&self) -> Self::Document<'_>;
    /// What `-o name` prints: a name that other commands take.
    fn name(&self) -> String;
    /// Cells of a row, those of `-o wide` last.
    fn cells(&self, wide: bool) -> Vec<String>;
}

/// The document of a list: the same for none, one and many.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "{T}List")]
pub struct List<T> {
    pub schema_version: u32,
    pub kind: Cow<'static, str>,
    /// Until when it is what its items say; `null` where they carry their own dates.
    pub as_of: Option<Timestamp>,
    pub items: Vec<T>,
}

/// One item as JSON.
fn json<T: Listed>(item: &T) -> Value {
    value(&item.document())
}

/// Its fields in alphabetical order. Nothing that is printed as JSON fails to be JSON: its maps have text for keys.
pub fn value(document: &impl Serialize) -> Value {
    serde_json::to_value(document).unwrap_or_default()
}

/// A list on its way out.
pub struct Listing<'a, T> {
    pub items: &'a [T],
    pub as_of: Option<Timestamp>,
    /// A line above a table: how old the knowledge is.
    pub note: Option<String>,
    /// What a table says instead of rows.
    pub empty: &'a str,
}

/// Prints the whole list.
pub fn list<T: Listed>(
    out: &mut Stdout,
    format: &OutputFormat,
    listing: &Listing<'_, T>,
) -> Result<(), Failure> {
    match format {
        OutputFormat::Table | OutputFormat::Wide => {
            if let Some(note) = &listing.note {
                out.line(&safe_line(note))?;
            }
            if listing.items.is_empty() {
                super::pipe::say(listing.empty);
                return Ok(());
            }
            out.text(&table(listing.items, *format == OutputFormat::Wide))
        }
        OutputFormat::Json => {
            let items = listing.items.iter().map(Listed::document).collect();
            let kind = T::KIND.into();
            let document = List { schema_version: SCHEMA_VERSION, kind, as_of: listing.as_of, items };
            let text = serde_json::to_string_pretty(&value(&document)).unwrap_or_default();
            out.line(&safe_json(&text))
        }
        OutputFormat::JsonLines | OutputFormat::Name | OutputFormat::Template(_) => {
            listing.items.iter().try_for_each(|item| one(out, format, item))
        }
    }
}

/// Prints one item of a list that has no end. JSON is one object a line then; a table has no header.
pub fn one<T: Listed>(out: &mut Stdout, format: &OutputFormat, item: &T) -> Result<(), Failure> {
    match format {
        OutputFormat::Table | OutputFormat::Wide => {
            let cells = item.cells(*format == OutputFormat::Wide);
            out.line(&cells.iter().map(|cell| safe_line(cell)).collect::<Vec<_>>().join("  "))
        }
        OutputFormat::Json | OutputFormat::JsonLines => out.line(&safe_json(&json(item).to_string())),
        OutputFormat::Name => out.line(&safe_line(&item.name())),
        OutputFormat::Template(template) => out.line(&template_of(template, &json(item))?),
    }
}

/// Of the first column of a table; `-o wide` shows it whole.
const FIRST_WIDTH: usize = 48;

fn table<T: Listed>(items: &[T], wide: bool) -> String {
    let mut header = T::HEADER.to_vec();
    if wide {
        header.extend(T::WIDE);
    }
    let mut table = Table::new(&header);
    if !wide {
        table = table.cut_first(FIRST_WIDTH);
    }
    for item in items {
        table.row(item.cells(wide));
    }
    table.render()
}

/// Renders `template` over `item`; a field that does not exist is an error that names the nearest.
pub fn template_of(template: &str, item: &Value) -> Result<String, Failure> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::SemiStrict);
    let wrong = |error: &minijinja::Error| {
        let line = error.line().map(|line| format!(" in line {line}")).unwrap_or_default();
        Failure::usage(format!("-o template{line}: {}", error.detail().unwrap_or("it cannot be rendered")))
    };
    let compiled = environment.template_from_str(template).map_err(|error| wrong(&error))?;
    let rendered = compiled.render(value_of(item)).map_err(|error| {
        let missing =
            compiled.undeclared_variables(true).into_iter().find_map(|path| missing_field(&path, item));
        missing.unwrap_or_else(|| wrong(&error))
    })?;
    Ok(safe_text(rendered.as_bytes()))
}

fn missing_field(path: &str, item: &Value) -> Option<Failure> {
    let mut value = item;
    for field in path.split('.') {
        match value.get(field) {
            Some(next) => value = next,
            None => {
                let known: Vec<&str> = value.as_object()?.keys().map(String::as_str).collect();
                let hint = suggestion(field, known);
                return Some(Failure::usage(format!("-o template: there is no field {path:?}{hint}")));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_typo_in_a_template_is_one_line_with_the_nearest_field() {
        let item = json!({"name": "a", "spec": {"grace_ms": 1}});
        assert_eq!(template_of("{{ name }}/{{ spec.grace_ms }}", &item).unwrap(), "a/1");
        let said = |template: &str| template_of(template, &item).unwrap_err().rendered(false).unwrap();
        assert_eq!(
            said("{{ nme }}"),
            "error: -o template: there is no field \"nme\"; did you mean \"name\"?"
        );
        assert!(said("{{ spec.grace }}").contains("grace_ms"));
        assert!(said("{{ name").starts_with("error: -o template"));
    }

    #[test]
    fn a_name_with_escapes_is_shown_by_a_template_without_them() {
        assert_eq!(template_of("{{ name }}", &json!({"name": "a\x1b[2Jb"})).unwrap(), "ab");
    }
}
