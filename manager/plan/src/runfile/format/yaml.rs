//! YAML text → [`Node`] with line and column. What the keys mean is `schema.rs`'s.

use serde::Deserialize;
use serde_saphyr::{DuplicateKeyPolicy, Location, Options, Spanned};

use super::super::problem::{Place, Problem};
use super::node::{Key, Kind, Node, Raw};

#[derive(Deserialize)]
#[serde(transparent)]
struct Value(Raw<Spanned<Value>, Spanned<String>>);

/// Deeper nesting than any task file has; each level costs stack.
const DEPTH_LIMIT: usize = 64;

/// The one document of `text`; an empty one reads as null.
pub fn parse(text: &str) -> Result<Node, Problem> {
    serde_saphyr::from_str_with_options::<Spanned<Value>>(text, options())
        .map(|value| node(value, text))
        .map_err(|error| problem(&error))
}

fn options() -> Options {
    let mut budget = serde_saphyr::Budget::default();
    budget.max_depth = DEPTH_LIMIT;
    budget.flow_nesting_limit = DEPTH_LIMIT;
    // Room for 100,000 tasks and their prompts of up to 8 MiB; aliases stay bounded by their own limits.
    budget.max_nodes = 5_000_000;
    budget.max_events = 10_000_000;
    budget.max_total_scalar_bytes = 1 << 30;
    budget.max_recorded_anchor_events = 100_000;
    serde_saphyr::options! {
        budget: Some(budget),
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        strict_booleans: true,
        leading_zero_numbers_as_strings: true,
        underscored_numbers_as_strings: true,
        // `1e400` is for whoever reads the field to refuse.
        non_finite_float_policy: serde_saphyr::options::NonFiniteFloatPolicy::AsString,
        with_snippet: false,
    }
}

fn problem(error: &serde_saphyr::Error) -> Problem {
    let error = error.without_snippet();
    let at = error.location().map(place).unwrap_or_default();
    if error.render().contains("budget breached") {
        let message = format!(
            "the file expands to more than a task file may hold: its anchors and aliases, or nesting deeper than \
             {DEPTH_LIMIT} levels"
        );
        return Problem { at, task: None, message };
    }
    // The place is said once, before the message.
    let full = error.render();
    let message = match full.find(" at line ") {
        Some(cut) => full.get(..cut).unwrap_or(&full).to_owned(),
        None => full,
    };
    Problem { at, task: None, message: format!("not YAML: {}", message.trim_start_matches("error: ")) }
}

fn place(location: Location) -> Place {
    Place::new(location.line(), location.column())
}

fn node(value: Spanned<Value>, source: &str) -> Node {
    let at = place(value.referenced);
    let written =
        |fallback: String| match value.defined.span().byte_offset().zip(value.defined.span().byte_len()) {
            Some((offset, length)) => written_text(source, offset, length).unwrap_or(fallback),
            None => fallback,
        };
    let kind = match value.value.0 {
        Raw::Null => Kind::Null,
        Raw::Bool(value) => Kind::Bool { value, text: written(value.to_string()) },
        Raw::Number(value) => {
            let text = written(value.to_string());
            Kind::Number { value, text }
        }
        Raw::Text(text) => Kind::Text(text),
        Raw::List(items) => Kind::List(items.into_iter().map(|item| node(item, source)).collect()),
        Raw::Map(entries) => Kind::Map(
            entries
                .into_iter()
                .map(|(key, item)| (Key { at: place(key.referenced), name: key.value }, node(item, source)))
                .collect(),
        ),
    };
    Node { at, kind }
}

/// The source of a plain scalar. Anything with white space is not one, and then the parsed value is the text.
fn written_text(source: &str, offset: u64, length: u64) -> Option<String> {
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(usize::try_from(length).ok()?)?;
    let text = source.get(start..end)?.trim();
    let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    plain.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_their_place_and_scalars_their_text() {
        let doc =
            parse("name: x\ntasks:\n  - command: [echo, 1.10, true, 007, no]\n    priority: 5\n").unwrap();
        let task = match &doc.get("tasks").unwrap().kind {
            Kind::List(items) => items[0].clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(task.get("priority").unwrap().at, Place::new(4, 15));
        let Kind::List(words) = &task.get("command").unwrap().kind else { panic!() };
        let words: Vec<_> = words.iter().map(|word| word.scalar().unwrap()).collect();
        assert_eq!(words, ["echo", "1.10", "true", "007", "no"]);
    }

    #[test]
    fn duplicate_keys_are_kept_for_the_schema_to_refuse() {
        let Kind::Map(entries) = parse("a: 1\na: 2\n").unwrap().kind else { panic!() };
        assert_eq!(entries.len(), 2);
        assert_eq!(entries[1].0.at, Place::new(2, 1));
    }

    #[test]
    fn an_alias_is_where_it_is_used_and_a_bomb_is_refused() {
        let doc = parse("a: &x 1.50\nb: *x\n").unwrap();
        assert_eq!(doc.get("b").unwrap().scalar(), Some("1.50"));
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let previous = level - 1;
            bomb.push_str(&format!("a{level}: &a{level} ["));
            bomb.push_str(&vec![format!("*a{previous}"); 9].join(", "));
            bomb.push_str("]\n");
        }
        assert!(parse(&bomb).is_err());
        assert!(parse(&"[".repeat(100_000)).is_err());
    }

    #[test]
    fn broken_yaml_says_where() {
        let problem = parse("tasks:\n  - name: a\n   bad: [\n").unwrap_err();
        assert!(problem.at.line >= 2, "{problem:?}");
        assert!(problem.message.starts_with("not YAML: "), "{problem:?}");
    }
}
