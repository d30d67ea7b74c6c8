//! `file put`: files and folders of this side, standard input, or a tar from there.

use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use protocol::api::{Action, Reply};
use protocol::error::ErrorCode;
use protocol::files::{FileArea, FileFinish, FileNode, FilePath, FileWrite, PIECE};
use sha2::{Digest, Sha256};

use super::super::args::files::FilePut;
use super::super::client::Client;
use super::super::context::{Context, random_hex, unexpected};
use super::super::error::{Failure, exit};
use super::super::output::pipe::say;
use super::super::output::sanitise::safe_line;
use super::local::failed;
use super::place::{Place, parse};
use super::walk;

/// Where things go.
struct Put {
    client: Client,
    place: Place,
}

pub fn run(context: &Context, args: &FilePut) -> Result<u8, Failure> {
    let Some((to, from)) = args.paths.split_last() else { return Ok(exit::USAGE) };
    let place = parse(to, FileArea::Workspace, true)?;
    for path in from.iter().filter(|path| *path != "-") {
        check(Path::new(path), args.recursive)?;
    }
    let mut put = Put { client: context.client()?, place };
    let into = put.is_folder(from.len() > 1)?;
    if args.parents {
        let folder = if into { Some(put.place.path.as_bytes()) } else { put.place.path.split().map(|p| p.0) };
        let folder = path_of(folder.unwrap_or_default())?;
        put.make(&folder, FileNode::Folder { mode: 0o755 })?;
    }
    for path in from {
        if path == "-" {
            put.standard_input(args.recursive, into)?;
        } else {
            let path = Path::new(path);
            let to = if into { put.place.path.join(name_of(path)?) } else { Ok(put.place.path.clone()) };
            let to = to.map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?;
            put.any(path, &to)?;
        }
    }
    Ok(exit::OK)
}

/// Before anything is done: a typo in the second name must not leave the first one put.
fn check(path: &Path, recursive: bool) -> Result<(), Failure> {
    let facts = path.metadata().map_err(|error| failed("read", path, &error))?;
    if facts.is_dir() && !recursive {
        return Err(Failure::usage(format!("{} is a folder", path.display())).hint("-r for a folder"));
    }
    if !facts.is_dir() && !facts.is_file() {
        return Err(Failure::usage(format!("{} is no file", path.display())).hint("- for standard input"));
    }
    Ok(())
}

fn name_of(path: &Path) -> Result<&[u8], Failure> {
    path.file_name()
        .map(OsStrExt::as_bytes)
        .ok_or_else(|| Failure::usage(format!("{} has no name to be put under", path.display())))
}

fn path_of(bytes: &[u8]) -> Result<FilePath, Failure> {
    FilePath::parse(bytes)
        .map_err(|error| Failure::usage(format!("{:?}: {error}", String::from_utf8_lossy(bytes))))
}

impl Put {
    /// Whether things go into the folder that was named, and not under its name.
    fn is_folder(&mut self, several: bool) -> Result<bool, Failure> {
        if self.place.is_folder || several {
            return Ok(true);
        }
        match walk::page(&mut self.client, &self.place, &self.place.path, None) {
            Ok(list) => Ok(list.is_folder),
            Err(failure) if failure.exit_code() == ErrorCode::NotFound.exit_code() => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    fn any(&mut self, from: &Path, to: &FilePath) -> Result<(), Failure> {
        let facts = from.metadata().map_err(|error| failed("read", from, &error))?;
        let mode = facts.permissions().mode();
        if facts.is_dir() {
            self.make(to, FileNode::Folder { mode })?;
            return self.folder(from, to);
        }
        let mut file = File::open(from).map_err(|error| failed("read", from, &error))?;
        self.file(&mut file, to, Some(mode), from)
    }

    fn folder(&mut self, from: &Path, to: &FilePath) -> Result<(), Failure> {
        for entry in std::fs::read_dir(from).map_err(|error| failed("list", from, &error))? {
            let entry = entry.map_err(|error| failed("list", from, &error))?;
            let (path, kind) = (entry.path(), entry.file_type());
            let kind = kind.map_err(|error| failed("read", &path, &error))?;
            let to = to.join(entry.file_name().as_bytes());
            let to = to.map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?;
            if kind.is_symlink() {
                let target = std::fs::read_link(&path).map_err(|error| failed("read", &path, &error))?;
                let target = target.as_os_str().as_bytes().to_vec();
                self.make(&to, FileNode::Link { target })?;
            } else if kind.is_dir() || kind.is_file() {
                self.any(&path, &to)?;
            } else {
                say(&safe_line(&format!("{}: left out, it is a pipe, socket or device", path.display())));
            }
        }
        Ok(())
    }

    fn standard_input(&mut self, recursive: bool, into: bool) -> Result<(), Failure> {
        let mut stdin = std::io::stdin().lock();
        if recursive {
            return self.archive(stdin);
        }
        if into {
            return Err(Failure::usage("standard input has no name to be put under")
                .hint(format!("{}:PATH of a file", self.place.agent)));
        }
        let to = self.place.path.clone();
        self.file(&mut stdin, &to, None, Path::new("standard input"))
    }

    /// Everything in a tar; what is no file, folder or link is named and left out.
    fn archive(&mut self, from: impl Read) -> Result<(), Failure> {
        let wrong =
            |error: std::io::Error| Failure::usage(format!("standard input is no whole tar: {error}"));
        let root = self.place.path.clone();
        let mut archive = tar::Archive::new(from);
        for entry in archive.entries().map_err(wrong)? {
            let mut entry = entry.map_err(wrong)?;
            let name = entry.path_bytes().into_owned();
            let shown = String::from_utf8_lossy(&name).into_owned();
            let below = path_of(&name)?;
            let to = root.join(below.as_bytes());
            let to = to.map_err(|error| Failure::usage(format!("{shown:?}: {error}")))?;
            let mode = entry.header().mode().map_err(wrong)?;
            match entry.header().entry_type() {
                tar::EntryType::Directory => self.make(&to, FileNode::Folder { mode })?,
                tar::EntryType::Regular | tar::EntryType::Continuous => {
                    self.file(&mut entry, &to, Some(mode), Path::new(&shown))?;
                }
                tar::EntryType::Symlink => {
                    let target = entry.link_name_bytes().unwrap_or_default().into_owned();
                    self.make(&to, FileNode::Link { target })?;
                }
                _ => say(&safe_line(&format!("{shown}: left out, it is no file, folder or symbolic link"))),
            }
        }
        Ok(())
    }

    fn make(&mut self, path: &FilePath, node: FileNode) -> Result<(), Failure> {
        if path.is_empty() {
            return Ok(()); // the workspace itself
        }
        let target = self.place.agent.clone();
        match self.client.ask(&Action::MakeNode { target, path: path.clone(), node })? {
            Reply::Done => Ok(()),
            other => Err(unexpected(other)),
        }
    }

    /// Piece by piece; the last one has the digest and gives the file its name.
    fn file(
        &mut self,
        from: &mut impl Read,
        to: &FilePath,
        mode: Option<u32>,
        shown: &Path,
    ) -> Result<(), Failure> {
        let upload = random_hex()?;
        let (mut offset, mut hash) = (0_u64, Sha256::new());
        let mut next = piece(from, shown)?;
        loop {
            let bytes = next;
            hash.update(&bytes);
            // Only when there is nothing after it, a piece is the last.
            next = if bytes.len() < PIECE { Vec::new() } else { piece(from, shown)? };
            let count = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
            let is_last = next.is_empty();
            let finish = is_last.then(|| FileFinish {
                sha256: data_encoding::HEXLOWER.encode(&hash.clone().finalize()),
                mode,
            });
            let write = FileWrite { path: to.clone(), upload: upload.clone(), offset, bytes, finish };
            match self.client.ask(&Action::PutFile { target: self.place.agent.clone(), write })? {
                Reply::Done if is_last => return Ok(()),
                Reply::Done => offset = offset.saturating_add(count),
                other => return Err(unexpected(other)),
            }
        }
    }
}

/// A whole piece, but at the end.
fn piece(from: &mut impl Read, shown: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(PIECE).unwrap_or(u64::MAX);
    from.take(limit).read_to_end(&mut bytes).map_err(|error| failed("read", shown, &error))?;
    Ok(bytes)
}
