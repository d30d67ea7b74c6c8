//! Rows for `--map`: JSON or one text a line, from a file, standard input, or the output of `cmd:PROGRAM`.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::format::jsonl;
use super::format::node::{Kind, Node};
use super::problem::{Collector, Place, Problems};

/// Why there are no rows.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    #[error("cannot read the rows from {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot start {command:?} through sh")]
    Start {
        command: String,
        #[source]
        source: std::io::Error,
    },
    #[error("{command:?} failed with {status}{stderr}")]
    Command { command: String, status: String, stderr: String },
    #[error("the rows of {0} are not UTF-8")]
    Encoding(String),
    #[error("{0}")]
    Rows(Problems),
}

/// Bytes of a failed command's stderr that are shown.
const STDERR_SHOWN: usize = 4000;

/// Rows as `--map` names them: `cmd:PROGRAM`, `-`, or a file.
pub fn read_rows(source: &str, folder: &Path) -> Result<Vec<Node>, MapError> {
    let (name, bytes) = match source.strip_prefix("cmd:") {
        Some(command) => (command.to_owned(), run(command, folder)?),
        None if source == "-" => {
            let mut bytes = Vec::new();
            let failed = |source| MapError::Read { path: "standard input".into(), source };
            std::io::stdin().lock().read_to_end(&mut bytes).map_err(failed)?;
            ("standard input".to_owned(), bytes)
        }
        None => {
            let failed = |error| MapError::Read { path: source.into(), source: error };
            (source.to_owned(), std::fs::read(source).map_err(failed)?)
        }
    };
    let text = String::from_utf8(bytes).map_err(|_| MapError::Encoding(name.clone()))?;
    parse_rows(&name, &text).map_err(MapError::Rows)
}

/// One JSON array, one JSON object a line, or one text a line (blank lines are skipped).
pub fn parse_rows(name: &str, text: &str) -> Result<Vec<Node>, Problems> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let start = text.trim_start();
    if start.starts_with('[')
        && let Some(Node { kind: Kind::List(rows), .. }) = jsonl::parse_whole(text)
    {
        return Ok(rows);
    }
    if start.starts_with('{') {
        let mut problems = Collector::default();
        let rows = jsonl::parse(text, &mut problems);
        return problems.finish(name, rows);
    }
    Ok(text
        .lines()
        .zip(1_u64..)
        .map(|(line, number)| (line.trim_end_matches('\r'), number))
        .filter(|(line, _)| !line.trim().is_empty())
        .map(|(line, number)| Node::text(Place::line(number), line))
        .collect())
}

fn run(command: &str, folder: &Path) -> Result<Vec<u8>, MapError> {
    let output = Command::new("sh")
        .args(["-c", command])
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .map_err(|source| MapError::Start { command: command.to_owned(), source })?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let tail = output.stderr.len().saturating_sub(STDERR_SHOWN);
    let shown = String::from_utf8_lossy(output.stderr.get(tail..).unwrap_or_default());
    let stderr = if shown.trim().is_empty() {
        "; it printed nothing on stderr".to_owned()
    } else {
        format!("; its stderr:\n{}", shown.trim_end())
    };
    Err(MapError::Command { command: command.to_owned(), status: output.status.to_string(), stderr })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str) -> Vec<serde_json::Value> {
        parse_rows("rows", text).unwrap().iter().map(Node::to_json).collect()
    }

    #[test]
    fn rows_are_objects_arrays_or_lines() {
        assert_eq!(rows("{\"a\":1}\n{\"a\":2}\n").len(), 2);
        assert_eq!(rows("[1, \"x\"]").len(), 2);
        assert_eq!(rows("one two\r\n\nthree\n"), ["one two", "three"]);
        assert_eq!(rows("[not json\n").len(), 1);
        assert!(parse_rows("rows", "{\"a\":1}\n{\n").is_err());
    }

    #[test]
    fn a_failing_command_shows_its_code_and_what_it_said() {
        let folder = tempfile::tempdir().unwrap();
        let error = read_rows("cmd:echo no such thing >&2; exit 7", folder.path()).unwrap_err().to_string();
        assert!(error.contains("exit status: 7") && error.contains("no such thing"), "{error}");
        assert_eq!(read_rows("cmd:printf 'a\\nb\\n'", folder.path()).unwrap().len(), 2);
    }
}
