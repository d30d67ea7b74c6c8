//! What differs between a base and recorded or unrecorded work, of any size: git's output is handed on in pieces as the
//! reader takes them. Read through git folders of ours, so no driver of a repository runs; the agent's index, HEAD and
//! files stay as they are. Leaves to others: how the pieces travel.

use std::path::{Path, PathBuf};

use protocol::compare::{FILES_IN_PIECE, FileChange, FileStatus, PIECE, Sides};
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc;

use super::super::checkout::unique;
use super::super::error::{At, Error, Result};
use super::super::git::{Call, Git, is_object_id, object_id};
use super::super::manifest::{self, Folders};
use super::super::repository::Repository;
use super::super::{Workspaces, blocking};
use super::{diff, inspect, snapshot};

/// A piece of an answer, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    Sides(Sides),
    Patch(Vec<u8>),
    Files(Vec<FileChange>),
    /// A piece of a file; pieces of one file follow each other.
    File {
        name: String,
        bytes: Vec<u8>,
    },
}

/// Who takes the pieces. Dropped: the rest is not made.
pub(crate) type Reader = mpsc::Sender<Piece>;

/// How a difference is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Patch,
    Files,
}

const OPERATION: &str = "show a difference";

async fn give(reader: &Reader, piece: Piece) -> Result<()> {
    reader.send(piece).await.map_err(|_| Error::Interrupted { operation: OPERATION })
}

impl Workspaces {
    /// Two commits of a repository.
    pub async fn compare(
        &self,
        repository: &Repository,
        (from, to): (&str, &str),
        form: Form,
        reader: &Reader,
    ) -> Result<()> {
        check_ids(from, to)?;
        let view = diff::view(&self.git, repository, to)?;
        let sides = Sides { from: from.to_owned(), to: Some(to.to_owned()), notes: Vec::new() };
        give(reader, Piece::Sides(sides)).await?;
        tell(&self.git, view.path(), (from, to), form, reader).await
    }

    /// The base of an agent's workspace, and what is in it now.
    pub async fn compare_workspace(&self, agent_dir: &Path, form: Form, reader: &Reader) -> Result<()> {
        let folders = Folders::of(agent_dir);
        let manifest = manifest::required(&folders)?;
        let (Some(_), Some(base)) = (&manifest.repository, manifest.base_commit.clone()) else {
            return Err(Error::NoRepository);
        };
        self.mount_again(&folders, &manifest).await?;
        let (at, facts) = (folders.clone(), manifest.clone());
        let found = blocking("look at a workspace", move || {
            Ok(if inspect::is_untouched(&at, &facts) { None } else { Some(inspect::look(&at, &facts)?) })
        })
        .await?;
        let mut sides = Sides { from: base.clone(), to: None, notes: Vec::new() };
        let Some(found) = found else { return give(reader, Piece::Sides(sides)).await };
        let view = snapshot::View::open(&self.git, &folders, &manifest, &found).await?;
        let tree = match view.changes(&self.git, &folders).await? {
            Some(changes) => {
                let inside = changes.not_saved.iter();
                sides
                    .notes
                    .extend(inside.map(|path| format!("{path} is a repository of its own: not shown")));
                view.tree(&self.git, &folders, &changes).await?
            }
            None => view.head_tree(&self.git).await?,
        };
        sides.notes.extend(found.drift);
        give(reader, Piece::Sides(sides)).await?;
        tell(&self.git, view.scratch.path(), (&base, &tree), form, reader).await
    }

    /// One file per commit from `from` to `to`, as `git am` takes it. A history that does not lead from one to the
    /// other in a line is told as one commit that has the same effect.
    pub async fn mail(
        &self,
        repository: &Repository,
        (from, to): (&str, &str),
        reader: &Reader,
    ) -> Result<()> {
        check_ids(from, to)?;
        let git = &self.git;
        let view = diff::view(git, repository, to)?;
        let mut sides = Sides { from: from.to_owned(), to: Some(to.to_owned()), notes: Vec::new() };
        let mut tip = to.to_owned();
        if from != to && !is_a_line(git, view.path(), from, to).await? {
            tip = squashed(git, view.path(), from, to).await?;
            sides.notes.push("its commits are no line from the base on: they are one patch".to_owned());
        }
        give(reader, Piece::Sides(sides)).await?;
        let folder = Folder(unique(git.scratch(), "mail")?);
        git.call("write patches")
            .git_dir(view.path())
            .args(["format-patch", "-q", "-N", "--binary", "--full-index", "--no-ext-diff", "--no-textconv"])
            .args(["--no-signature", "--no-renames", "-o"])
            .arg_path(&folder.0)
            .args(["--end-of-options", &format!("{from}..{tip}")])
            .ok()
            .await?;
        let at = folder.0.clone();
        let files = blocking("list patches", move || {
            let mut files = Vec::new();
            for entry in std::fs::read_dir(&at).at("read", &at)? {
                files.push(entry.at("read", &at)?.path());
            }
            files.sort();
            Ok(files)
        })
        .await?;
        for path in files {
            give_file(&path, reader).await?;
        }
        Ok(())
    }
}

/// Removed with all that is in it.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn check_ids(from: &str, to: &str) -> Result<()> {
    for id in [from, to] {
        if !is_object_id(id) {
            return Err(Error::BadName { what: "a commit", name: id.to_owned(), why: "it is no full id" });
        }
    }
    Ok(())
}

async fn give_file(path: &Path, reader: &Reader) -> Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut file = tokio::fs::File::open(path).await.at("opened", path)?;
    loop {
        let mut bytes = Vec::new();
        let most = u64::try_from(PIECE).unwrap_or(u64::MAX);
        (&mut file).take(most).read_to_end(&mut bytes).await.at("read", path)?;
        if bytes.is_empty() {
            return Ok(());
        }
        give(reader, Piece::File { name: name.clone(), bytes }).await?;
    }
}

async fn tell(git: &Git, view: &Path, (from, to): (&str, &str), form: Form, reader: &Reader) -> Result<()> {
    let call = git.call(OPERATION).git_dir(view).args([
        "diff-tree",
        "-r",
        "-M",
        "--no-ext-diff",
        "--no-textconv",
        "--no-color",
    ]);
    match form {
        Form::Patch => {
            let call = call.args(["-p", "--binary", "--end-of-options", from, to]);
            stream(git, call, reader).await
        }
        Form::Files => {
            let call = call.args(["-z", "--raw", "--numstat", "--no-abbrev", "--end-of-options", from, to]);
            let changes = changes(&call.ok().await?)?;
            for piece in changes.chunks(FILES_IN_PIECE) {
                give(reader, Piece::Files(piece.to_vec())).await?;
            }
            Ok(())
        }
    }
}

/// Hands on what git writes, no faster than it is taken. A git that says nothing for its whole limit is ended.
async fn stream(git: &Git, call: Call<'_>, reader: &Reader) -> Result<()> {
    let limit = git.limit();
    let _slot = call.slot().await?;
    let mut running = call.start()?;
    drop(running.child.stdin.take());
    let Some(mut out) = running.child.stdout.take() else {
        return Err(Error::Interrupted { operation: OPERATION });
    };
    loop {
        let mut bytes = Vec::new();
        let most = u64::try_from(PIECE).unwrap_or(u64::MAX);
        let mut piece = (&mut out).take(most);
        let read = piece.read_to_end(&mut bytes);
        let late = |_| Error::TimedOut { operation: OPERATION, limit };
        let read = tokio::time::timeout(limit, read).await.map_err(late)?;
        read.map_err(|source| Error::GitStart { operation: OPERATION, source })?;
        if bytes.is_empty() {
            return running.finish().await;
        }
        give(reader, Piece::Patch(bytes)).await?;
    }
}

/// `--raw --numstat -z`: first every file with its status, then the same files with their counts.
fn changes(listed: &[u8]) -> Result<Vec<FileChange>> {
    let wrong = |what: &str| Error::GitAnswer { operation: OPERATION, detail: what.to_owned() };
    let mut words = listed.split(|&b| b == 0).filter(|word| !word.is_empty()).peekable();
    let mut changes = Vec::new();
    while let Some(head) = words.next_if(|word| word.starts_with(b":")) {
        let letter = head.rsplit(|&b| b == b' ').next().and_then(|status| status.first());
        let status = match letter {
            Some(b'A') => FileStatus::Added,
            Some(b'D') => FileStatus::Deleted,
            Some(b'R') => FileStatus::Renamed,
            Some(b'C') => FileStatus::Copied,
            Some(b'T') => FileStatus::TypeChanged,
            Some(_) => FileStatus::Modified,
            None => return Err(wrong("a file without a status")),
        };
        let path = words.next().ok_or_else(|| wrong("a file without a name"))?.to_vec();
        let (path, old_path) = match status {
            FileStatus::Renamed | FileStatus::Copied => {
                let new = words.next().ok_or_else(|| wrong("a renamed file without a name"))?.to_vec();
                (new, Some(path.into()))
            }
            _ => (path, None),
        };
        changes.push(FileChange { path, old_path, status, insertions: None, deletions: None });
    }
    for change in &mut changes {
        let counts = words.next().ok_or_else(|| wrong("a file without counts"))?;
        let mut columns = counts.splitn(3, |&b| b == b'\t');
        let mut count = || columns.next().and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
        (change.insertions, change.deletions) = (count(), count());
        if change.old_path.is_some() {
            // The names of a renamed file are words of their own.
            words.nth(1);
        }
    }
    Ok(changes)
}

/// Whether `to` comes from `from` through commits with one parent each.
async fn is_a_line(git: &Git, view: &Path, from: &str, to: &str) -> Result<bool> {
    let ask = |args: &[&str]| git.call("look at the history").git_dir(view).args(args.to_vec());
    if !ask(&["merge-base", "--is-ancestor", from, to]).output().await?.status.success() {
        return Ok(false);
    }
    let merges = ask(&["rev-list", "--min-parents=2", "--max-count=1", to, &format!("^{from}")]).ok().await?;
    Ok(merges.is_empty())
}

/// A commit on `from` with the files, author and message of `to`.
pub(crate) async fn squashed(git: &Git, view: &Path, from: &str, to: &str) -> Result<String> {
    const OPERATION: &str = "join commits";
    let call = || git.call(OPERATION).git_dir(view).volatile();
    let told = call().args(["log", "-1", "--format=%an%n%ae%n%aI%n%B", "--end-of-options", to]).ok().await?;
    let mut parts = told.splitn(4, |&b| b == b'\n');
    let mut part = || parts.next().unwrap_or_default().to_vec();
    let (name, mail, date, message) = (part(), part(), part(), part());
    let made = call()
        .author(&name, &mail, &date)
        .args(["commit-tree", &format!("{to}^{{tree}}"), "-p", from, "-F", "-"])
        .stdin(message)
        .ok()
        .await?;
    object_id(OPERATION, &made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_their_counts_are_joined_and_renames_keep_both_names() {
        let listed = b":100644 100644 aa bb M\0one\0:100644 100644 aa bb R090\0old\0new \xff\0\
            :000000 100644 00 bb A\0a.png\0\
            3\t1\tone\x001\t2\t\0old\0new \xff\0-\t-\ta.png\0";
        let told = changes(listed).unwrap();
        let short: Vec<_> =
            told.iter().map(|c| (c.path.as_slice(), c.status, c.insertions, c.deletions)).collect();
        assert_eq!(
            short,
            [
                (&b"one"[..], FileStatus::Modified, Some(3), Some(1)),
                (b"new \xff", FileStatus::Renamed, Some(1), Some(2)),
                (b"a.png", FileStatus::Added, None, None),
            ]
        );
        assert_eq!(told[1].old_path.as_deref().map(|path| path.as_slice()), Some(&b"old"[..]));
        assert_eq!(changes(b"").unwrap(), []);
        assert!(changes(b":100644 100644 aa bb M\0one\0").is_err());
    }
}
