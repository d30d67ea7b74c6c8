//! `file get`: one file, or a folder as a new folder or as tar.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use protocol::api::{Item, Query, Reply};
use protocol::error::ErrorCode;
use protocol::files::{FileEntry, FileKind, FilePath, FilePiece};

use super::super::args::files::FileGet;
use super::super::client::reader::Interrupts;
use super::super::client::{Client, Flow, Limits, StreamEnd};
use super::super::context::{Context, unexpected};
use super::super::error::{Failure, exit};
use super::super::output::pipe::{Stdout, say, stdout_is_terminal};
use super::super::output::sanitise::{Sanitiser, safe_line};
use super::archive::Archive;
use super::local::{LocalFile, LocalFolder, failed};
use super::place::{Place, area, parse};
use super::walk;

/// How files are fetched.
struct Fetch<'a> {
    place: &'a Place,
    changing: bool,
    interrupts: &'a Interrupts,
}

pub fn run(context: &Context, args: &FileGet) -> Result<u8, Failure> {
    let place = parse(&args.place, area(args.outputs), true)?;
    let interrupts = Interrupts::catch()
        .map_err(|error| Failure::new(ErrorCode::Failed, format!("signals cannot be caught: {error}")))?;
    let mut client = context.client()?;
    let fetch = Fetch { place: &place, changing: args.changing, interrupts: &interrupts };
    let to_stdout = args.to.as_deref() == Some(OsStr::new("-"));
    match (args.recursive, to_stdout) {
        (false, true) => to_standard_output(&mut client, &fetch),
        (false, false) => {
            let to = destination(&place, args.to.as_deref())?;
            let mut file = None;
            let first = fetch.file(&mut client, &place.path, |piece| {
                if file.is_none() {
                    file = Some(LocalFile::create(&to)?);
                }
                file.as_mut().map_or(Ok(()), |file| file.write(&piece.bytes))
            })?;
            file.map_or(Ok(()), |file| file.finish(first.mode))
        }
        (true, true) => to_archive(&mut client, &fetch),
        (true, false) => {
            let to = destination(&place, args.to.as_deref())?;
            to_folder(&mut client, &fetch, &to)
        }
    }?;
    Ok(exit::OK)
}

/// The file or folder here: into a folder that is there, else under the name that was given.
fn destination(place: &Place, to: Option<&OsStr>) -> Result<PathBuf, Failure> {
    let name = place.path.split().map(|(_, name)| OsStr::from_bytes(name));
    let to = PathBuf::from(to.unwrap_or(OsStr::new(".")));
    if !to.is_dir() {
        return Ok(to);
    }
    name.map(|name| to.join(name)).ok_or_else(|| {
        Failure::usage("the whole workspace needs a name here").hint("give a folder that is not there yet")
    })
}

impl Fetch<'_> {
    /// Every piece of a file in order; the first one, for what it says of the whole.
    fn file(
        &self,
        client: &mut Client,
        path: &FilePath,
        mut take: impl FnMut(&FilePiece) -> Result<(), Failure>,
    ) -> Result<FilePiece, Failure> {
        let Place { agent, area, .. } = self.place;
        let request = Query::GetFile {
            target: agent.clone(),
            area: *area,
            path: path.clone(),
            changing: self.changing,
        };
        let limits = Limits { deadline: None, interrupts: Some(self.interrupts) };
        let (mut next, mut first) = (0, None);
        let end = client.stream(&request, &limits, |item| {
            let Item::FilePart(piece) = item else { return Ok(Flow::More) };
            if piece.offset != next {
                return Err(incomplete(path));
            }
            next = piece.offset.saturating_add(u64::try_from(piece.bytes.len()).unwrap_or(u64::MAX));
            take(&piece)?;
            first.get_or_insert(piece);
            Ok(Flow::More)
        })?;
        match end {
            StreamEnd::Reply(Reply::Done) => {}
            StreamEnd::Reply(other) => return Err(unexpected(other)),
            StreamEnd::Interrupted(signal) => {
                return Err(Failure::Told(u8::try_from(128 + signal).unwrap_or(exit::INTERRUPTED)));
            }
            StreamEnd::Enough | StreamEnd::TimedOut => return Err(incomplete(path)),
        }
        first.filter(|first: &FilePiece| first.size == next).ok_or_else(|| incomplete(path))
    }
}

fn incomplete(path: &FilePath) -> Failure {
    Failure::new(ErrorCode::Unavailable, format!("{path}: it did not come whole"))
        .hint("the same command again")
}

/// The bytes as they are, but for a terminal.
fn to_standard_output(client: &mut Client, fetch: &Fetch<'_>) -> Result<(), Failure> {
    let mut out = Stdout::default();
    let mut sanitiser = stdout_is_terminal().then(Sanitiser::default);
    fetch.file(client, &fetch.place.path, |piece| match &mut sanitiser {
        None => out.bytes(&piece.bytes),
        Some(sanitiser) => {
            let mut safe = String::new();
            sanitiser.push(&piece.bytes, &mut safe);
            out.text(&safe)
        }
    })?;
    if let Some(mut sanitiser) = sanitiser {
        let mut rest = String::new();
        sanitiser.finish(&mut rest);
        out.text(&rest)?;
    }
    out.done()
}

fn to_folder(client: &mut Client, fetch: &Fetch<'_>, to: &Path) -> Result<(), Failure> {
    let place = fetch.place;
    let mut folder = LocalFolder::create(to)?;
    walk::tree(client, place, &mut |client, path, entry| {
        let below = PathBuf::from(OsStr::from_bytes(relative(place, path)));
        match entry.kind {
            FileKind::Folder => folder.folder(&below, entry.mode),
            FileKind::Link => {
                let (target, link) = (entry.target.as_deref().unwrap_or_default(), folder.place(&below));
                std::os::unix::fs::symlink(OsStr::from_bytes(target), &link)
                    .map_err(|error| failed("make", &link, &error))
            }
            FileKind::File => {
                let mut file = LocalFile::create(&folder.place(&below))?;
                gone_is_fine(path, fetch.file(client, path, |piece| file.write(&piece.bytes)))?
                    .map_or(Ok(()), |first| file.finish(first.mode))
            }
            FileKind::Other | FileKind::Unknown => left_out(path),
        }
    })?;
    folder.finish()
}

fn to_archive(client: &mut Client, fetch: &Fetch<'_>) -> Result<(), Failure> {
    if stdout_is_terminal() {
        return Err(
            Failure::usage("a tar is not for a terminal").hint("> FILE.tar, or a folder instead of -")
        );
    }
    let place = fetch.place;
    let mut archive = Archive::new(std::io::BufWriter::new(std::io::stdout().lock()));
    walk::tree(client, place, &mut |client, path, entry| {
        let name = relative(place, path);
        match entry.kind {
            FileKind::Folder | FileKind::Link => archive.begin(name, entry, 0),
            FileKind::File => {
                let mut begun = false;
                let fetched = fetch.file(client, path, |piece| {
                    if !std::mem::replace(&mut begun, true) {
                        let entry = FileEntry { mode: piece.mode, ..entry.clone() };
                        archive.begin(name, &entry, piece.size)?;
                    }
                    archive.bytes(&piece.bytes)
                });
                // Once it was begun, an archive without the rest is none.
                let fetched = if begun { fetched.map(Some) } else { gone_is_fine(path, fetched) };
                fetched?.map_or(Ok(()), |first| archive.end(first.size))
            }
            FileKind::Other | FileKind::Unknown => left_out(path),
        }
    })?;
    std::io::Write::flush(&mut archive.finish()?)?;
    Ok(())
}

/// A file that an agent has removed since it was listed is none that is missing.
fn gone_is_fine(path: &FilePath, fetched: Result<FilePiece, Failure>) -> Result<Option<FilePiece>, Failure> {
    match fetched {
        Err(failure) if failure.exit_code() == ErrorCode::NotFound.exit_code() => {
            say(&safe_line(&format!("{path}: gone meanwhile")));
            Ok(None)
        }
        other => other.map(Some),
    }
}

fn left_out(path: &FilePath) -> Result<(), Failure> {
    say(&safe_line(&format!("{path}: left out, it is a pipe, socket or device")));
    Ok(())
}

/// From the folder that is fetched.
fn relative<'a>(place: &Place, path: &'a FilePath) -> &'a [u8] {
    let start = if place.path.is_empty() { 0 } else { place.path.as_bytes().len() + 1 };
    path.as_bytes().get(start..).unwrap_or_default()
}
