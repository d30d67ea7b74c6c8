//! `file ls`.

use protocol::files::{FileEntry, FileKind, FilePath};
use protocol::time::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::super::args::files::FileLs;
use super::super::context::Context;
use super::super::error::{Failure, exit};
use super::super::output::pipe::Stdout;
use super::super::output::render::{Listed, Listing, list};
use super::super::output::when::{date, now};
use super::place::{area, parse};
use super::walk;

pub struct Row {
    /// From the workspace.
    path: FilePath,
    /// From the folder that is listed.
    shown: String,
    entry: FileEntry,
}

pub fn run(context: &Context, args: &FileLs) -> Result<u8, Failure> {
    let place = parse(&args.place, area(args.outputs), false)?;
    let mut client = context.client()?;
    let mut rows = Vec::new();
    let first = walk::page(&mut client, &place, &place.path, None)?;
    if !first.is_folder {
        let shown = place.path.to_string();
        rows.extend(first.entries.into_iter().map(|entry| Row {
            path: place.path.clone(),
            shown: shown.clone(),
            entry,
        }));
    } else {
        let start = if place.path.is_empty() { 0 } else { place.path.as_bytes().len() + 1 };
        let mut take = |path: &FilePath, entry: &FileEntry| {
            let shown = path.as_bytes().get(start..).unwrap_or_default();
            let shown = String::from_utf8_lossy(shown).into_owned();
            rows.push(Row { path: path.clone(), shown, entry: entry.clone() });
            Ok(())
        };
        if args.recursive {
            walk::tree(&mut client, &place, &mut |_, path, entry| take(path, entry))?;
        } else {
            walk::folder(&mut client, &place, &place.path, &mut |_, path, entry| take(&path, &entry))?;
        }
    }
    let mut out = Stdout::default();
    let listing = Listing { items: &rows, as_of: Some(now()), note: None, empty: "It is empty." };
    list(&mut out, &context.format, &listing)?;
    out.done()?;
    Ok(exit::OK)
}

/// One entry of a folder. What is no UTF-8 in a name is replaced.
#[derive(Serialize, JsonSchema)]
pub struct EntryDocument<'a> {
    name: &'a str,
    /// Below the workspace.
    path: String,
    kind: FileKind,
    bytes: u64,
    /// Permission bits in octal, as chmod takes them.
    mode: String,
    modified: Timestamp,
    /// Where a link points to.
    target: Option<String>,
}

impl Listed for Row {
    const KIND: &'static str = "FileList";
    const HEADER: &'static [&'static str] = &["MODE", "SIZE", "MODIFIED", "NAME"];
    const WIDE: &'static [&'static str] = &[];

    type Document<'a>
        = EntryDocument<'a>
    where
        Self: 'a;

    fn document(&self) -> EntryDocument<'_> {
        EntryDocument {
            name: &self.shown,
            path: self.path.to_string(),
            kind: self.entry.kind,
            bytes: self.entry.bytes,
            mode: format!("{:04o}", self.entry.mode),
            modified: self.entry.modified,
            target: self.entry.target.as_ref().map(|target| String::from_utf8_lossy(target).into_owned()),
        }
    }

    fn name(&self) -> String {
        self.shown.clone()
    }

    fn cells(&self, _wide: bool) -> Vec<String> {
        let entry = &self.entry;
        let name = match (&entry.kind, &entry.target) {
            (FileKind::Folder, _) => format!("{}/", self.shown),
            (_, Some(target)) => format!("{} -> {}", self.shown, String::from_utf8_lossy(target)),
            _ => self.shown.clone(),
        };
        let bytes = if entry.kind == FileKind::File { entry.bytes.to_string() } else { String::new() };
        vec![mode(entry.kind, entry.mode), bytes, modified(entry.modified), name]
    }
}

fn modified(at: Timestamp) -> String {
    date(at).get(..19).unwrap_or_default().replace('T', " ")
}

/// As ls(1) has it.
fn mode(kind: FileKind, mode: u32) -> String {
    let first = match kind {
        FileKind::File => '-',
        FileKind::Folder => 'd',
        FileKind::Link => 'l',
        FileKind::Other | FileKind::Unknown => '?',
    };
    let bits = ["r", "w", "x", "r", "w", "x", "r", "w", "x"];
    let mut text = String::from(first);
    for (place, bit) in bits.iter().enumerate() {
        text.push_str(if mode & (0o400 >> place) != 0 { bit } else { "-" });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_are_shown_as_people_know_them() {
        assert_eq!(mode(FileKind::Folder, 0o755), "drwxr-xr-x");
        assert_eq!(mode(FileKind::File, 0o640), "-rw-r-----");
    }
}
