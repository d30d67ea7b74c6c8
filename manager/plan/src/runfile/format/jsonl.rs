//! JSON, one value a line → [`Node`]s. A value's line is exact; its column is that of its key where the key stands
//! only once in the line.

use serde::Deserialize;

use super::super::problem::{Collector, Place};
use super::node::{Key, Kind, Node, Raw};

#[derive(Deserialize)]
#[serde(transparent)]
struct Value(Raw<Value, String>);

/// Every line that is not blank. Lines that are no JSON become problems.
pub fn parse(text: &str, problems: &mut Collector) -> Vec<Node> {
    let mut nodes = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let number = u64::try_from(index).unwrap_or(u64::MAX).saturating_add(1);
        match serde_json::from_str::<Value>(line) {
            Ok(value) => nodes.push(node(value, Place::new(number, 1), line)),
            Err(error) => {
                let column = u64::try_from(error.column()).unwrap_or(0);
                let full = error.to_string();
                let message = full.split(" at line ").next().unwrap_or(&full);
                problems.add(Place::new(number, column), format!("not JSON: {message}"));
            }
        }
    }
    nodes
}

/// All of `text` as one JSON value.
pub fn parse_whole(text: &str) -> Option<Node> {
    serde_json::from_str::<Value>(text).ok().map(|value| node(value, Place::new(1, 1), ""))
}

fn node(value: Value, at: Place, line: &str) -> Node {
    let kind = match value.0 {
        Raw::Null => Kind::Null,
        Raw::Bool(value) => Kind::Bool { value, text: value.to_string() },
        Raw::Number(value) => Kind::Number { text: value.to_string(), value },
        Raw::Text(text) => Kind::Text(text),
        Raw::List(items) => Kind::List(items.into_iter().map(|item| node(item, at, line)).collect()),
        Raw::Map(entries) => Kind::Map(
            entries
                .into_iter()
                .map(|(name, item)| {
                    let at = Place::new(at.line, column_of(&name, line).unwrap_or(at.column));
                    (Key { at, name }, node(item, at, line))
                })
                .collect(),
        ),
    };
    Node { at, kind }
}

/// Where the key stands, if that is one place only.
fn column_of(key: &str, line: &str) -> Option<u64> {
    let quoted = format!("\"{key}\"");
    let mut places = line.match_indices(&quoted);
    let (first, _) = places.next()?;
    if places.next().is_some() {
        return None;
    }
    u64::try_from(line.get(..first)?.chars().count() + 1).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_a_value_with_its_place() {
        let mut problems = Collector::default();
        let nodes = parse("{\"name\":\"a\", \"cpu\": 1}\n\n{\"name\":\"b\"}\n", &mut problems);
        assert_eq!(problems.count(), 0);
        assert_eq!(nodes.len(), 2);
        assert_eq!(nodes[0].get("cpu").unwrap().at, Place::new(1, 14));
        assert_eq!(nodes[1].at.line, 3);
    }

    #[test]
    fn a_line_that_is_no_json_is_named_and_the_others_are_read() {
        let mut problems = Collector::default();
        let nodes = parse("{\"a\":1}\n{\"b\":}\n", &mut problems);
        assert_eq!(nodes.len(), 1);
        let text = problems.finish("f", ()).unwrap_err().to_string();
        assert!(text.starts_with("f:2:6: not JSON: expected value"), "{text}");
    }
}
