//! Changes of one key in the text of a file; comments and everything else in it stay as they are. Pure.

use toml_edit::{DocumentMut, Item, Table, value};

use super::key::{Key, Kind};
use super::layer::Layer;
use super::read;
use crate::runfile::problem::Problems;

/// Why a text cannot be changed.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// As it is, or as it would be.
    #[error("{0}")]
    Wrong(Problems),
    #[error("it is not TOML")]
    Toml(#[source] toml_edit::TomlError),
    #[error("{0} is not a table in it")]
    NoTable(&'static str),
}

/// The text with the key set.
///
/// # Errors
/// When the text is wrong, or would be.
pub fn set(text: &str, file: &str, layer: Layer, key: &Key, new: &str) -> Result<String, EditError> {
    read::text(text, file, layer).map_err(EditError::Wrong)?;
    let mut document: DocumentMut = text.parse().map_err(EditError::Toml)?;
    let (section, short) = key.parts();
    let table = document.entry(section).or_insert_with(|| Item::Table(Table::new()));
    let table = table.as_table_like_mut().ok_or(EditError::NoTable(section))?;
    let item = match (key.kind, new.parse::<i64>()) {
        (Kind::Count, Ok(number)) => value(number),
        _ => value(new),
    };
    match table.get_mut(short) {
        // The decoration holds a comment behind the value.
        Some(Item::Value(old)) => {
            let decor = old.decor().clone();
            if let Item::Value(mut item) = item {
                *item.decor_mut() = decor;
                *old = item;
            }
        }
        Some(other) => *other = item,
        None => {
            table.insert(short, item);
        }
    }
    let changed = document.to_string();
    read::text(&changed, file, layer).map_err(EditError::Wrong)?;
    Ok(changed)
}

/// The text without the key; `None` when it is not in it.
///
/// # Errors
/// When the text is wrong.
pub fn unset(text: &str, file: &str, layer: Layer, key: &Key) -> Result<Option<String>, EditError> {
    read::text(text, file, layer).map_err(EditError::Wrong)?;
    let mut document: DocumentMut = text.parse().map_err(EditError::Toml)?;
    let (section, short) = key.parts();
    let Some(table) = document.get_mut(section).and_then(Item::as_table_like_mut) else { return Ok(None) };
    if table.remove(short).is_none() {
        return Ok(None);
    }
    if table.is_empty() {
        document.remove(section);
    }
    Ok(Some(document.to_string()))
}

/// Whether the text is right as a whole.
///
/// # Errors
/// Everything that is wrong with it.
pub fn check(text: &str, file: &str, layer: Layer) -> Result<(), Problems> {
    read::text(text, file, layer).map(|_| ())
}
