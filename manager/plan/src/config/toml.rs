//! TOML text → [`Node`] with line and column, as task files are read. What the keys mean is `read.rs`'s.

use std::ops::Range;

use toml_edit::{Document, Item, TableLike, Value};

use crate::runfile::format::node::{Key, Kind, Node};
use crate::runfile::problem::{Place, Problem};

/// The document, or the first thing that is not TOML.
pub fn parse(text: &str) -> Result<Node, Problem> {
    let document = Document::parse(text).map_err(|error| Problem {
        at: error.span().map(|span| place(text, &span)).unwrap_or_default(),
        task: None,
        message: format!("not TOML: {}", error.message().lines().next().unwrap_or_default()),
    })?;
    Ok(table(text, document.as_table(), Place::line(1)))
}

/// Line and column, from 1, in characters.
fn place(text: &str, span: &Range<usize>) -> Place {
    let before = text.get(..span.start).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    let lines = before.bytes().filter(|byte| *byte == b'\n').count();
    let column = before.get(line_start..).unwrap_or_default().chars().count();
    let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX).saturating_add(1);
    Place::new(number(lines), number(column))
}

fn table(text: &str, table: &dyn TableLike, at: Place) -> Node {
    let entries = table.iter().filter_map(|(name, item)| {
        let key = table.get_key_value(name).and_then(|(key, _)| key.span()).map(|span| place(text, &span));
        let key = Key { at: key.unwrap_or(at), name: name.to_owned() };
        let node = node(text, item, key.at)?;
        Some((key, node))
    });
    Node { at, kind: Kind::Map(entries.collect()) }
}

fn node(text: &str, item: &Item, parent: Place) -> Option<Node> {
    let at = item.span().map_or(parent, |span| place(text, &span));
    match item {
        Item::None => None,
        Item::Value(found) => Some(value(text, found, at)),
        Item::Table(found) => Some(table(text, found, at)),
        Item::ArrayOfTables(found) => {
            let items = found.iter().map(|item| {
                let at = item.span().map_or(at, |span| place(text, &span));
                table(text, item, at)
            });
            Some(Node { at, kind: Kind::List(items.collect()) })
        }
    }
}

fn value(text: &str, value: &Value, parent: Place) -> Node {
    let span = value.span();
    let at = span.as_ref().map_or(parent, |span| place(text, span));
    let written = || span.clone().and_then(|span| text.get(span)).unwrap_or_default().to_owned();
    let kind = match value {
        Value::String(found) => Kind::Text(found.value().clone()),
        Value::Integer(found) => {
            Kind::Number { value: (*found.value()).into(), text: found.value().to_string() }
        }
        // Also a float that JSON has not is a text that no value takes.
        Value::Float(found) => match serde_json::Number::from_f64(*found.value()) {
            Some(value) => Kind::Number { value, text: written() },
            None => Kind::Text(written()),
        },
        Value::Boolean(found) => Kind::Bool { value: *found.value(), text: found.value().to_string() },
        Value::Datetime(_) => Kind::Text(written()),
        Value::Array(items) => Kind::List(items.iter().map(|item| self::value(text, item, at)).collect()),
        Value::InlineTable(found) => return table(text, found, at),
    };
    Node { at, kind }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_those_of_the_text_and_numbers_stay_as_written() {
        let node = parse("# ä\n[defaults]\n  cpu = 1.50\npids = 1_0\n").unwrap();
        let defaults = node.get("defaults").unwrap();
        let cpu = defaults.get("cpu").unwrap();
        assert_eq!((cpu.scalar(), cpu.at), (Some("1.50"), Place::new(3, 9)));
        assert_eq!(defaults.get("pids").unwrap().scalar(), Some("10"));
    }

    #[test]
    fn each_of_several_tables_of_one_name_has_its_own_place() {
        let node = parse("[[notify]]\non = 'failed'\n\n[[notify]]\non = 'blocked'\n").unwrap();
        let Kind::List(items) = &node.get("notify").unwrap().kind else { panic!("{node:?}") };
        assert_eq!(items.iter().map(|item| item.at.line).collect::<Vec<_>>(), [1, 4]);
    }

    #[test]
    fn what_is_no_toml_is_told_with_its_place() {
        let problem = parse("[defaults]\ngrace = \n").unwrap_err();
        assert_eq!(problem.at.line, 2, "{problem:?}");
        assert!(parse("a = 1\na = 2\n").unwrap_err().message.starts_with("not TOML: "));
    }
}
