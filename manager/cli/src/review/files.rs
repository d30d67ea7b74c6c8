//! Changed files as rows: names, a statistic, JSON.

use std::borrow::Cow;

use protocol::api::SCHEMA_VERSION;
use protocol::compare::{Comparison, FileChange, FileStatus};
use schemars::JsonSchema;
use serde::Serialize;

use super::super::output::render::Listed;

/// Widest bar of the statistic.
const BAR: u64 = 40;

pub struct FileRow(pub FileChange);

impl FileRow {
    pub fn path(&self) -> String {
        String::from_utf8_lossy(&self.0.path).into_owned()
    }

    fn old_path(&self) -> Option<String> {
        self.0.old_path.as_ref().map(|path| String::from_utf8_lossy(path).into_owned())
    }

    fn changed(&self) -> Option<u64> {
        Some(self.0.insertions?.saturating_add(self.0.deletions?))
    }
}

/// One file that differs. What is no UTF-8 in a path is replaced.
#[derive(Serialize, JsonSchema)]
pub struct FileDocument {
    name: String,
    path: String,
    /// Where it was before, of a renamed or copied one.
    old_path: Option<String>,
    status: FileStatus,
    /// `null` for a binary file.
    insertions: Option<u64>,
    deletions: Option<u64>,
    binary: bool,
}

impl Listed for FileRow {
    const KIND: &'static str = "Diff";
    const HEADER: &'static [&'static str] = &["FILE", "CHANGE", "ADDED", "REMOVED"];
    const WIDE: &'static [&'static str] = &["BEFORE"];

    type Document<'a>
        = FileDocument
    where
        Self: 'a;

    fn document(&self) -> FileDocument {
        FileDocument {
            name: self.path(),
            path: self.path(),
            old_path: self.old_path(),
            status: self.0.status,
            insertions: self.0.insertions,
            deletions: self.0.deletions,
            binary: self.0.insertions.is_none(),
        }
    }

    fn name(&self) -> String {
        self.path()
    }

    fn cells(&self, wide: bool) -> Vec<String> {
        let count = |count: Option<u64>| count.map_or_else(|| "binary".to_owned(), |count| count.to_string());
        let mut cells =
            vec![self.path(), self.0.status.to_string(), count(self.0.insertions), count(self.0.deletions)];
        if wide {
            cells.push(self.old_path().unwrap_or_default());
        }
        cells
    }
}

/// The document of `-o json`: the files, with what was compared beside them.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "DiffDocument")]
pub struct Diff<'a> {
    schema_version: u32,
    kind: Cow<'static, str>,
    #[serde(flatten)]
    about: &'a Comparison,
    items: Vec<FileDocument>,
}

pub fn document<'a>(about: &'a Comparison, rows: &[FileRow]) -> Diff<'a> {
    let items = rows.iter().map(Listed::document).collect();
    Diff { schema_version: SCHEMA_VERSION, kind: FileRow::KIND.into(), about, items }
}

/// As `git diff --stat` has it: a line per file and a sum.
pub fn statistic(rows: &[FileRow]) -> Vec<String> {
    let label = |row: &FileRow| match row.old_path() {
        Some(old) => format!("{old} => {}", row.path()),
        None => row.path(),
    };
    let width = rows.iter().map(|row| label(row).chars().count()).max().unwrap_or(0);
    let most = rows.iter().filter_map(FileRow::changed).max().unwrap_or(0).max(1);
    let digits = most.to_string().len();
    let scaled = |count: u64| if most <= BAR || count == 0 { count } else { (count * BAR / most).max(1) };
    let mut lines: Vec<String> = rows
        .iter()
        .map(|row| {
            let name = label(row);
            let pad = " ".repeat(width.saturating_sub(name.chars().count()));
            let change = match (row.0.insertions, row.0.deletions) {
                (Some(plus), Some(minus)) => {
                    let bar =
                        |letter: &str, count| letter.repeat(usize::try_from(scaled(count)).unwrap_or(0));
                    format!("{:>digits$} {}{}", plus + minus, bar("+", plus), bar("-", minus))
                }
                (_, _) => format!("{:>digits$}", "Bin"),
            };
            let what = match row.0.status {
                FileStatus::Added => " (new)",
                FileStatus::Deleted => " (gone)",
                FileStatus::Modified
                | FileStatus::Renamed
                | FileStatus::Copied
                | FileStatus::TypeChanged
                | FileStatus::Unknown => "",
            };
            format!(" {name}{pad} | {}{what}", change.trim_end())
        })
        .collect();
    let sum =
        |count: fn(&FileChange) -> Option<u64>| rows.iter().filter_map(|row| count(&row.0)).sum::<u64>();
    let (plus, minus) = (sum(|change| change.insertions), sum(|change| change.deletions));
    let files = if rows.len() == 1 { "file" } else { "files" };
    lines.push(format!(" {} {files} changed, {plus} insertions(+), {minus} deletions(-)", rows.len()));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(path: &str, status: FileStatus, counts: Option<(u64, u64)>) -> FileRow {
        FileRow(FileChange {
            path: path.as_bytes().to_vec(),
            old_path: None,
            status,
            insertions: counts.map(|counts| counts.0),
            deletions: counts.map(|counts| counts.1),
        })
    }

    #[test]
    fn the_statistic_is_aligned_and_summed() {
        let rows = [
            row("a.rs", FileStatus::Modified, Some((3, 1))),
            row("long/name.rs", FileStatus::Added, Some((400, 0))),
            row("p.png", FileStatus::Deleted, None),
        ];
        let lines = statistic(&rows);
        assert_eq!(lines[0], " a.rs         |   4 +-");
        assert_eq!(lines[1], format!(" long/name.rs | 400 {} (new)", "+".repeat(40)));
        assert_eq!(lines[2], " p.png        | Bin (gone)");
        assert_eq!(lines[3], " 3 files changed, 403 insertions(+), 1 deletions(-)");
    }
}
