//! Uncommitted work as a commit: modified, staged, deleted, conflicted and untracked files, by way
//! of a git folder and an index of ours. The agent's HEAD, index and files stay as they are; no
//! hook, filter or identity of the agent's is used.

use std::collections::BTreeSet;
use std::path::Path;

use super::super::blocking;
use super::super::checkout::{GitDir, Head};
use super::super::error::Result;
use super::super::git::{Call, Git, object_id};
use super::super::manifest::{Folders, Kind, Manifest};
use super::super::overlay;
use super::inner;
use super::inspect::Found;

/// What is in the workspace beyond HEAD's commit.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Changes {
    /// Paths whose content must be read from the work tree, NUL-ended each.
    to_add: Vec<u8>,
    /// Paths that are not there any more: what stands in the place of a folder above them does not count as them.
    to_remove: Vec<u8>,
    pub(crate) files: u64,
    pub(crate) untracked: u64,
    /// Some file was staged and then changed again: what was staged is in no file.
    pub(crate) staged: bool,
    /// Repositories inside the workspace: their files cannot be in a commit of this one.
    pub(crate) not_saved: Vec<String>,
}

impl Changes {
    /// Also this file.
    pub(super) fn add(&mut self, path: &[u8]) {
        self.to_add.extend(path);
        self.to_add.push(0);
    }
}

/// A git folder of ours that sees the agent's objects, its HEAD and a copy of its index.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) scratch: GitDir,
    head: String,
    head_tree: Option<String>,
    is_overlay: bool,
}

impl View {
    pub(crate) async fn open(
        git: &Git,
        folders: &Folders,
        manifest: &Manifest,
        found: &Found,
    ) -> Result<Self> {
        let repository = manifest.repository.as_ref().ok_or(super::super::error::Error::NoRepository)?;
        let (lent, own) = (repository.objects(), found.git_dir.join("objects"));
        let mut borrow = vec![lent.as_path()];
        if manifest.worktree_git_dir.is_none() {
            borrow.push(&own);
        }
        let scratch = GitDir::scratch(git, &repository.object_format, &borrow, Head::At(&found.head))?;
        scratch.take_shallow(repository)?;
        // The person's, never the agent's own: an agent must not be able to hide work.
        scratch.take_excludes(&repository.common_dir)?;
        scratch.exclude(&manifest.prepared)?;
        let at_base = manifest.base_commit.as_ref() == Some(&found.head);
        let head_tree = manifest.base_tree.clone().filter(|_| at_base);
        let is_overlay = manifest.kind == Kind::Overlay;
        let view = Self { scratch, head: found.head.clone(), head_tree, is_overlay };
        // The index of the base is ours: nothing is hidden in it.
        let is_bases = is_overlay && folders.upper.join(".git/index").symlink_metadata().is_err();
        let usable =
            view.scratch.take_index(&found.git_dir)? && (is_bases || view.unhide(git, folders).await?);
        if !usable {
            // No index, or a broken one: compare the files with HEAD instead.
            view.index_of_head(git, folders).await?;
        } else if is_overlay {
            view.doubt_what_was_written(git, folders).await?;
        }
        Ok(view)
    }

    /// Has git read what lies in the agent's own layer, whatever its index says of sizes and times: there is little of
    /// it, and times can be set.
    async fn doubt_what_was_written(&self, git: &Git, folders: &Folders) -> Result<()> {
        use std::os::unix::ffi::OsStrExt;
        let upper = folders.upper.clone();
        let written = blocking("look at a workspace", move || overlay::written(&upper)).await?;
        if written.is_empty() {
            return Ok(());
        }
        let written: BTreeSet<&[u8]> = written.iter().map(|path| path.as_os_str().as_bytes()).collect();
        let list = self.call(git, folders, "read the index").args(["ls-files", "--stage", "-z"]);
        let mut again = Vec::new();
        for entry in list.ok().await?.split(|&byte| byte == 0) {
            let mut halves = entry.splitn(2, |&byte| byte == b'\t');
            let (Some(facts), Some(path)) = (halves.next(), halves.next()) else { continue };
            // A conflict has no times.
            if facts.ends_with(b" 0") && !facts.starts_with(b"160000") && written.contains(path) {
                again.extend(entry);
                again.push(0);
            }
        }
        if !again.is_empty() {
            // The same entry, without times.
            let call = self.call(git, folders, "read the index");
            call.args(["update-index", "-z", "--index-info"]).stdin(again).ok().await?;
        }
        Ok(())
    }

    /// Knows nothing of the files: each is read.
    async fn index_of_head(&self, git: &Git, folders: &Folders) -> Result<()> {
        let _ = std::fs::remove_file(self.scratch.index());
        self.call(git, folders, "read HEAD's files").args(["read-tree", "HEAD"]).ok().await?;
        Ok(())
    }

    pub(super) fn call<'a>(&self, git: &'a Git, folders: &Folders, operation: &'static str) -> Call<'a> {
        git.call(operation).git_dir(self.scratch.path()).work_tree(&folders.work).volatile()
    }

    /// Files marked as "assume unchanged" or "skip" count like all others. False when the index
    /// cannot be read.
    async fn unhide(&self, git: &Git, folders: &Folders) -> Result<bool> {
        let listed =
            self.call(git, folders, "read the index").args(["ls-files", "-v", "-z"]).output().await?;
        if !listed.status.success() {
            return Ok(false);
        }
        let (mut assumed, mut skipped) = (Vec::new(), Vec::new());
        for entry in listed.stdout.split(|&b| b == 0) {
            let [tag, b' ', path @ ..] = entry else { continue };
            if tag.is_ascii_lowercase() {
                assumed.extend(path);
                assumed.push(0);
            }
            // A skipped file that is there may have been changed; one that is absent was never wanted.
            if tag.eq_ignore_ascii_case(&b'S') && exists(&folders.work, path) {
                skipped.extend(path);
                skipped.push(0);
            }
        }
        for (flag, paths) in [("--no-assume-unchanged", assumed), ("--no-skip-worktree", skipped)] {
            if !paths.is_empty() {
                let call = self.call(git, folders, "read the index");
                call.args(["update-index", "-z", flag, "--stdin"]).stdin(paths).ok().await?;
            }
        }
        Ok(true)
    }

    /// None when the work tree and the index are as HEAD says.
    pub(crate) async fn changes(&self, git: &Git, folders: &Folders) -> Result<Option<Changes>> {
        let mut listed = self.status(git, folders).await?;
        // Rules that are as new as the files may not decide which of their bytes are kept: this is the only copy.
        if listed.split(|&b| b == 0).any(is_of_attributes) {
            self.scratch.take_bytes_as_they_are()?;
            self.index_of_head(git, folders).await?;
            listed = self.status(git, folders).await?;
        }
        let (at, is_overlay) = (folders.clone(), self.is_overlay);
        let changes = blocking("look at changed files", move || sorted(&listed, &at, is_overlay)).await?;
        Ok((changes.files > 0 || !changes.not_saved.is_empty()).then_some(changes))
    }

    async fn status(&self, git: &Git, folders: &Folders) -> Result<Vec<u8>> {
        self.call(git, folders, "look for uncommitted work")
            .args(["status", "--porcelain", "-z", "--untracked-files=all", "--no-renames"])
            // git follows a `.gitattributes` that it is told to ignore, too.
            .args(["--ignored=matching"])
            // A dirty submodule would be looked into by a git process under its own configuration.
            .args(["--ignore-submodules=dirty"])
            .ok()
            .await
    }

    /// Ignored paths; of a folder that is ignored as a whole only its own.
    pub(super) async fn ignored(&self, git: &Git, folders: &Folders) -> Result<Vec<String>> {
        let listed = self
            .call(git, folders, "look for ignored files")
            .args(["ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory"])
            .ok()
            .await?;
        let paths = listed.split(|&byte| byte == 0).filter(|path| !path.is_empty());
        Ok(paths.map(|path| String::from_utf8_lossy(path).into_owned()).collect())
    }

    /// The tree of all that is there now.
    pub(crate) async fn tree(&self, git: &Git, folders: &Folders, changes: &Changes) -> Result<String> {
        if !changes.to_remove.is_empty() {
            self.call(git, folders, "save uncommitted work")
                .args(["update-index", "--force-remove", "-z", "--stdin"])
                .stdin(changes.to_remove.clone())
                .ok()
                .await?;
        }
        if !changes.to_add.is_empty() {
            self.call(git, folders, "save uncommitted work")
                .args(["update-index", "--add", "--remove", "--replace", "-z", "--stdin"])
                .stdin(changes.to_add.clone())
                .ok()
                .await?;
        }
        const OPERATION: &str = "write the tree of uncommitted work";
        object_id(OPERATION, &self.call(git, folders, OPERATION).args(["write-tree"]).ok().await?)
    }

    /// A commit of the tree on top of HEAD; none when the tree is HEAD's.
    pub(crate) async fn commit(
        &self,
        git: &Git,
        folders: &Folders,
        changes: &Changes,
        message: &str,
    ) -> Result<Option<String>> {
        let tree = self.tree(git, folders, changes).await?;
        if tree == self.head_tree(git).await? {
            return Ok(None);
        }
        const OPERATION: &str = "commit uncommitted work";
        let made = self
            .call(git, folders, OPERATION)
            .args(["commit-tree", &tree, "-p", &self.head, "-F", "-"])
            .stdin(message)
            .ok()
            .await?;
        object_id(OPERATION, &made).map(Some)
    }

    pub(crate) async fn head_tree(&self, git: &Git) -> Result<String> {
        if let Some(tree) = &self.head_tree {
            return Ok(tree.clone());
        }
        const OPERATION: &str = "find the tree of a commit";
        let call = git.call(OPERATION).git_dir(self.scratch.path());
        object_id(OPERATION, &call.args(["rev-parse", "--verify", "HEAD^{tree}"]).ok().await?)
    }
}

/// What `status` listed, by what is to be done with it.
fn sorted(listed: &[u8], folders: &Folders, is_overlay: bool) -> Result<Changes> {
    let (mut changes, mut ignored) = (Changes::default(), BTreeSet::new());
    for entry in listed.split(|&b| b == 0) {
        let [staged, unstaged, b' ', path @ ..] = entry else { continue };
        if *staged == b'!' {
            ignored.insert(path.strip_suffix(b"/").unwrap_or(path).to_owned());
            continue;
        }
        if path.ends_with(b"/") {
            changes.not_saved.push(String::from_utf8_lossy(path).into_owned());
            continue;
        }
        changes.files += 1;
        changes.untracked += u64::from(*staged == b'?');
        let conflicted =
            [staged, unstaged].contains(&&b'U') || matches!((staged, unstaged), (b'A', b'A') | (b'D', b'D'));
        if !conflicted && *unstaged == b' ' {
            continue;
        }
        changes.staged |= !conflicted && !matches!(staged, b' ' | b'?');
        let place = match beneath(&folders.work, path) {
            Beneath::File => &mut changes.to_add,
            // Of a submodule its commit; in the place of a file what is in the folder is listed by itself.
            Beneath::Folder if *unstaged != b'D' => &mut changes.to_add,
            Beneath::Folder | Beneath::Nothing => &mut changes.to_remove,
        };
        place.extend(path);
        place.push(0);
    }
    changes.not_saved.extend(inner::repositories(folders, is_overlay, &ignored)?);
    changes.not_saved.sort();
    changes.not_saved.dedup();
    Ok(changes)
}

enum Beneath {
    File,
    Folder,
    Nothing,
}

/// What is at this path, without following a link on the way: below one there is nothing of the workspace.
fn beneath(work: &Path, path: &[u8]) -> Beneath {
    use std::os::unix::ffi::OsStrExt;
    let path = Path::new(std::ffi::OsStr::from_bytes(path));
    let is_link = |folder: &Path| work.join(folder).symlink_metadata().is_ok_and(|facts| facts.is_symlink());
    if path.ancestors().skip(1).any(|folder| !folder.as_os_str().is_empty() && is_link(folder)) {
        return Beneath::Nothing;
    }
    match work.join(path).symlink_metadata() {
        Ok(facts) if facts.is_dir() => Beneath::Folder,
        Ok(facts) if facts.is_file() || facts.is_symlink() => Beneath::File,
        // Nor is a pipe, a socket or a device anything that git could keep.
        Ok(_) | Err(_) => Beneath::Nothing,
    }
}

fn exists(work: &Path, path: &[u8]) -> bool {
    use std::os::unix::ffi::OsStrExt;
    work.join(std::ffi::OsStr::from_bytes(path)).symlink_metadata().is_ok()
}

/// An entry of `status` whose file says how others are to be changed on their way into a commit.
fn is_of_attributes(entry: &[u8]) -> bool {
    entry.get(3..).is_some_and(|path| path == b".gitattributes" || path.ends_with(b"/.gitattributes"))
}
