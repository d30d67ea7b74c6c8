//! The document → one HTML page that needs nothing from outside. Everything is escaped by the template engine.

use minijinja::{AutoEscape, Environment, UndefinedBehavior, Value};

use super::document::Document;
use crate::output::sanitise::safe_line;
use crate::output::when::date;
use manager_plan::runfile::template::value_of;
use manager_plan::runfile::units::{human_duration, human_size};

const PAGE: &str = include_str!("page.html");

pub(super) fn render(document: &Document) -> Result<String, minijinja::Error> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.add_filter("took", |ms: u64| human_duration(ms));
    environment.add_filter("size", size);
    environment.add_filter("date", |ms: u64| date(protocol::time::Timestamp(ms)));
    environment.add_filter("short", |commit: &str| commit.chars().take(12).collect::<String>());
    // Names, reasons and paths are an agent's or a file's: what a browser would hide or reorder is shown.
    environment.add_filter("line", |text: &str| safe_line(text));
    environment.add_filter("end", |value: Value| ended(&value));
    let json = serde_json::to_value(document).unwrap_or_default();
    environment.template_from_named_str("report.html", PAGE)?.render(value_of(&json))
}

/// `166 B`, `4.5 KiB`: in running text a number needs its unit.
fn size(bytes: u64) -> String {
    let short = human_size(bytes);
    match short.strip_suffix(|unit: char| unit.is_ascii_uppercase()) {
        None => format!("{short} B"),
        Some(number) => format!("{number} {}iB", short.trim_start_matches(number)),
    }
}

/// An end in a few words.
fn ended(end: &Value) -> String {
    let field =
        |name: &str| end.get_attr(name).ok().filter(|value| !value.is_undefined() && !value.is_none());
    let cause = field("cause").map(|cause| cause.to_string()).unwrap_or_default();
    let number = |name: &str| field(name).map(|value| value.to_string());
    let mut text = match (cause.as_str(), number("code"), number("signal")) {
        ("exited", Some(code), _) => format!("exit {code}"),
        ("signalled", _, Some(signal)) => format!("signal {signal}"),
        _ => cause,
    };
    if let Some(step) = number("step") {
        text.push_str(&format!(" ({step})"));
    }
    if let Some(detail) = number("detail").filter(|detail| !detail.is_empty()) {
        text.push_str(&format!(": {detail}"));
    }
    safe_line(&text)
}
