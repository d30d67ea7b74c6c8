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
    #[error("the rows of {0} are more than 64 MB")]
    TooLarge(String),
    #[error("the rows of {0} are not UTF-8")]
    Encoding(String),
    #[error("{0}")]
    Rows(Problems),
}

/// Bytes of all rows together.
const ROWS_MOST: u64 = 64 << 20;
/// Bytes of a failed command's stderr that are shown.
const STDERR_SHOWN: usize = 4000;

/// Rows as `--map` names them: `cmd:PROGRAM`, `-`, or a file.
pub fn read_rows(source: &str, folder: &Path) -> Result<Vec<Node>, MapError> {
    let (name, bytes) = match source.strip_prefix("cmd:") {
        Some(command) => (command.to_owned(), run(command, folder)?),
        None if source == "-" => {
            let name = "standard input";
            let failed = |source| MapError::Read { path: name.into(), source };
            let bytes = read_bounded(&mut std::io::stdin().lock()).map_err(failed)?;
            (name.to_owned(), bytes.ok_or_else(|| MapError::TooLarge(name.to_owned()))?)
        }
        None => {
            let failed = |error| MapError::Read { path: source.into(), source: error };
            let bytes =
                std::fs::File::open(source).and_then(|mut file| read_bounded(&mut file)).map_err(failed)?;
            (source.to_owned(), bytes.ok_or_else(|| MapError::TooLarge(source.to_owned()))?)
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

/// All of `from`, unless that is more than rows may be.
fn read_bounded(from: &mut impl Read) -> std::io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    from.take(ROWS_MOST + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= ROWS_MOST).then_some(bytes))
}

fn run(command: &str, folder: &Path) -> Result<Vec<u8>, MapError> {
    let failed = |source| MapError::Start { command: command.to_owned(), source };
    let mut child = Command::new("sh")
        .args(["-c", command])
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let said = std::thread::spawn(move || stderr.map(last_of).unwrap_or_default());
    let rows = stdout.map(|mut stdout| read_bounded(&mut stdout)).transpose().map_err(failed)?.flatten();
    // What goes on printing finds its output closed.
    let Some(rows) = rows else {
        let _ = child.kill();
        let _ = child.wait();
        return Err(MapError::TooLarge(command.to_owned()));
    };
    let status = child.wait().map_err(failed)?;
    if status.success() {
        return Ok(rows);
    }
    let said = said.join().unwrap_or_default();
    let shown = String::from_utf8_lossy(&said);
    let stderr = if shown.trim().is_empty() {
        "; it printed nothing on stderr".to_owned()
    } else {
        format!("; its stderr:\n{}", shown.trim_end())
    };
    Err(MapError::Command { command: command.to_owned(), status: status.to_string(), stderr })
}

/// The last bytes of `from`, however much comes.
fn last_of(mut from: impl Read) -> Vec<u8> {
    let (mut kept, mut chunk) = (Vec::new(), [0_u8; 4096]);
    while let Ok(count @ 1..) = from.read(&mut chunk) {
        kept.extend(chunk.iter().take(count));
        let beyond = kept.len().saturating_sub(STDERR_SHOWN);
        kept.drain(..beyond);
    }
    kept
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

    #[test]
    fn rows_without_end_are_refused_before_they_fill_the_memory() {
        let folder = tempfile::tempdir().unwrap();
        for source in ["cmd:yes", "cmd:cat /dev/zero", "/dev/zero"] {
            let error = read_rows(source, folder.path()).unwrap_err();
            assert!(matches!(error, MapError::TooLarge(_)), "{error}");
        }
        let endless_stderr = "cmd:head -c 300000 /dev/zero | tr '\\0' x >&2; echo end >&2; exit 3";
        let error = read_rows(endless_stderr, folder.path()).unwrap_err().to_string();
        assert!(error.ends_with("xend") && error.len() < 5000, "{error}");
    }
}
