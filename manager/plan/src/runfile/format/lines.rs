//! One command a line: `#` comments and blank lines are skipped, the command goes to `sh -c`, its name is made of its
//! words. Pure.

use std::collections::BTreeSet;

use super::super::problem::Place;
use super::super::slug::slug;
use super::node::{Key, Kind, Node};

/// Characters of a command that make its name.
const NAME_LENGTH: usize = 40;

/// A task node for each command.
pub fn parse(text: &str) -> Vec<Node> {
    let mut taken = BTreeSet::new();
    let mut tasks = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let command = line.trim();
        if command.is_empty() || command.starts_with('#') {
            continue;
        }
        let number = u64::try_from(index).unwrap_or(u64::MAX).saturating_add(1);
        let name = name_for(command, number, &mut taken);
        let at = Place::line(number);
        let entry = |key: &str, text: &str| (Key { at, name: key.to_owned() }, Node::text(at, text));
        tasks.push(Node { at, kind: Kind::Map(vec![entry("name", &name), entry("command", command)]) });
    }
    tasks
}

fn name_for(command: &str, number: u64, taken: &mut BTreeSet<String>) -> String {
    let slug = slug(command, NAME_LENGTH);
    let mut name = if slug.is_empty() { format!("line-{number}") } else { slug };
    if taken.contains(&name) {
        name = format!("{name}-{number}");
    }
    while !taken.insert(name.clone()) {
        name.push('x'); // only when a command is itself named like a numbered one
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_blank_lines_are_no_tasks_and_names_are_unique() {
        let tasks = parse("# all\n\necho hi\r\n  echo hi\n!!!\necho hi-4\n");
        let names: Vec<_> =
            tasks.iter().map(|t| t.get("name").unwrap().scalar().unwrap().to_owned()).collect();
        assert_eq!(names, ["echo-hi", "echo-hi-4", "line-5", "echo-hi-4-6"]);
        assert_eq!(tasks[0].get("command").unwrap().scalar(), Some("echo hi"));
        assert_eq!(tasks[0].at.line, 3);
    }
}
