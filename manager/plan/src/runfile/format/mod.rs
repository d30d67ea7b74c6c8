//! Text → values with places: which format a file has, and one parser for each.

pub mod jsonl;
pub mod lines;
pub mod node;
pub mod yaml;

use std::path::Path;

/// How a task file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// A document with `tasks`.
    Yaml,
    /// One task object a line.
    Jsonl,
    /// One shell command a line.
    Lines,
}

/// Keys with which a YAML document may begin; a command line does not look like one.
const DOCUMENT_KEYS: &[&str] =
    &["name", "max_parallel", "labels", "caps", "notify", "defaults", "profiles", "rows", "tasks"];

/// By extension, else by the first line that says something.
pub fn detect(file: &str, text: &str) -> Format {
    match Path::new(file).extension().and_then(|extension| extension.to_str()) {
        Some("yaml" | "yml" | "json") => return Format::Yaml,
        Some("jsonl" | "ndjson") => return Format::Jsonl,
        _ => {}
    }
    let Some(first) = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'))
    else {
        return Format::Lines;
    };
    let key = first.split(':').next().filter(|key| first.len() > key.len()).unwrap_or_default().trim();
    if first.starts_with('{') {
        // A JSON document of its own has `tasks`; rows are one object a line.
        let whole = jsonl::parse_whole(text);
        return if whole.is_some_and(|node| node.get("tasks").is_some()) {
            Format::Yaml
        } else {
            Format::Jsonl
        };
    }
    if first == "---" || first.starts_with("%YAML") || DOCUMENT_KEYS.contains(&key) {
        return Format::Yaml;
    }
    Format::Lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_seen_from_name_or_text() {
        for (file, text, format) in [
            ("a.yaml", "", Format::Yaml),
            ("a.jsonl", "", Format::Jsonl),
            ("-", "# c\nname: x\ntasks: []", Format::Yaml),
            ("-", "tasks:\n", Format::Yaml),
            ("-", "{\"command\": \"x\"}\n{\"command\": \"y\"}", Format::Jsonl),
            ("-", "{\"tasks\": []}", Format::Yaml),
            ("-", "echo name: x", Format::Lines),
            ("cmds.txt", "make test\n", Format::Lines),
        ] {
            assert_eq!(detect(file, text), format, "{file} {text}");
        }
    }
}
