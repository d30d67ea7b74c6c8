//! Writes git folders of ours and fills a checkout from one.
//! No `git init` or `git clone`: a git folder is five files, and written by hand it holds no hook,
//! no template and no setting that we did not choose. Leaves to others: where checkouts lie.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::fcntl::AT_FDCWD;
use nix::sys::stat::{UtimensatFlags, utimensat};
use nix::sys::time::TimeSpec;

use super::base::Lent;
use super::error::{At, Error, Result};
use super::git::{Git, User};
use super::repository::Repository;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Head<'a> {
    At(&'a str),
    Branch(&'a str, &'a str),
}

/// A git folder for one job, removed afterwards. Its configuration is ours, so no filter,
/// textconv, hook or include of the objects' true home applies.
#[derive(Debug)]
pub(crate) struct GitDir {
    path: PathBuf,
}

impl Drop for GitDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

impl GitDir {
    pub(crate) fn scratch(git: &Git, object_format: &str, borrow: &[&Path], head: Head<'_>) -> Result<Self> {
        let path = unique(git.scratch(), "git")?;
        let dir = Self { path };
        write_git_dir(&dir.path, object_format, borrow, head, "")?;
        Ok(dir)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn index(&self) -> PathBuf {
        self.path.join("index")
    }

    /// Copies an index, with the shared part that a split index refers to. Says whether there was one.
    pub(crate) fn take_index(&self, from: &Path) -> Result<bool> {
        let (index, copy) = (from.join("index"), self.index());
        if regular_file(&index).is_none() {
            return Ok(false);
        }
        // The copy keeps the time: git reads a file again only when it is as young as the index, and
        // would miss a change of the same size and second under a younger one.
        let written = std::fs::metadata(&index).and_then(|facts| facts.modified()).at("read", &index)?;
        std::fs::copy(&index, &copy).at("copied", &index)?;
        let file = std::fs::File::options().append(true).open(&copy).at("opened", &copy)?;
        file.set_modified(written).at("dated", &copy)?;
        for entry in std::fs::read_dir(from).at("read", from)?.flatten() {
            let name = entry.file_name();
            if name.as_bytes().starts_with(b"sharedindex.") && regular_file(&entry.path()).is_some() {
                std::fs::copy(entry.path(), self.path.join(name)).at("copied", &entry.path())?;
            }
        }
        Ok(true)
    }

    /// What the person left out of his repository by `info/exclude` stays out.
    pub(crate) fn take_excludes(&self, from: &Path) -> Result<()> {
        const MOST: u64 = 256 * 1024;
        let excludes = from.join("info/exclude");
        let plain = std::fs::symlink_metadata(from.join("info")).is_ok_and(|facts| facts.is_dir());
        if plain && regular_file(&excludes).is_some_and(|size| size <= MOST) {
            std::fs::copy(&excludes, self.path.join("info/exclude")).at("copied", &excludes)?;
        }
        Ok(())
    }

    /// Files are taken byte for byte, whatever a `.gitattributes` says: this file comes before all of them.
    pub(crate) fn take_bytes_as_they_are(&self) -> Result<()> {
        let attributes = self.path.join("info/attributes");
        std::fs::write(&attributes, "* -text -ident -filter -working-tree-encoding\n")
            .at("written", &attributes)
    }

    /// These lines, beside what was taken.
    pub(crate) fn exclude(&self, lines: &[String]) -> Result<()> {
        exclude(&self.path, lines)
    }

    /// A shallow history ends where that of the lender ends.
    pub(crate) fn take_shallow(&self, repository: &Repository) -> Result<()> {
        write_shallow(&self.path, repository)
    }
}

/// Adds lines to the `info/exclude` of a git folder of ours.
pub(crate) fn exclude(git_dir: &Path, lines: &[String]) -> Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    let path = git_dir.join("info/exclude");
    let mut text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(Error::io("read", &path, error)),
    };
    if !text.is_empty() && !text.ends_with(b"\n") {
        text.push(b'\n');
    }
    for line in lines {
        text.extend_from_slice(line.as_bytes());
        text.push(b'\n');
    }
    std::fs::write(&path, text).at("written", &path)
}

/// The size, when the path itself (no link) is a plain file.
fn regular_file(path: &Path) -> Option<u64> {
    std::fs::symlink_metadata(path).ok().filter(std::fs::Metadata::is_file).map(|facts| facts.len())
}

/// A new folder with a name that nobody can guess.
pub(crate) fn unique(parent: &Path, prefix: &str) -> Result<PathBuf> {
    std::fs::create_dir_all(parent).at("made", parent)?;
    let mut random = [0u8; 8];
    getrandom::fill(&mut random)
        .map_err(|error| Error::io("named", parent, std::io::Error::other(error.to_string())))?;
    let path = parent.join(format!("{prefix}-{}", data_encoding::HEXLOWER.encode(&random)));
    std::fs::create_dir(&path).at("made", &path)?;
    Ok(path)
}

/// Makes a usable git folder at `dir`; `extra` is appended to its configuration.
pub(crate) fn write_git_dir(
    dir: &Path,
    object_format: &str,
    borrow: &[&Path],
    head: Head<'_>,
    extra: &str,
) -> Result<()> {
    for folder in ["objects/info", "objects/pack", "refs/heads", "refs/tags", "info", "hooks"] {
        let folder = dir.join(folder);
        std::fs::create_dir_all(&folder).at("made", &folder)?;
    }
    let (version, extension) = match object_format {
        "sha1" => (0, String::new()),
        other => (1, format!("[extensions]\n\tobjectformat = {other}\n")),
    };
    let config = format!(
        "[core]\n\trepositoryformatversion = {version}\n\tfilemode = true\n\tbare = false\n\
         \tlogallrefupdates = true\n[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n{extension}{extra}"
    );
    let write = |name: &str, bytes: &[u8]| {
        let path = dir.join(name);
        std::fs::write(&path, bytes).at("written", &path)
    };
    write("config", config.as_bytes())?;
    write("objects/info/alternates", &alternates(borrow))?;
    write_head(dir, head)
}

/// The content of `objects/info/alternates`: one folder a line.
pub(crate) fn alternates(borrow: &[&Path]) -> Vec<u8> {
    let mut lines = Vec::new();
    for objects in borrow {
        let bytes = objects.as_os_str().as_bytes();
        if bytes.contains(&b'\n') {
            lines.push(b'"');
            for &byte in bytes {
                match byte {
                    b'\n' => lines.extend(b"\\n"),
                    b'"' | b'\\' => lines.extend([b'\\', byte]),
                    _ => lines.push(byte),
                }
            }
            lines.push(b'"');
        } else {
            lines.extend(bytes);
        }
        lines.push(b'\n');
    }
    lines
}

/// Writes HEAD and, for a branch, its ref. No process, no lock: nobody uses the folder yet.
pub(crate) fn write_head(dir: &Path, head: Head<'_>) -> Result<()> {
    let text = match head {
        Head::At(commit) => format!("{commit}\n"),
        Head::Branch(branch, commit) => {
            let path = dir.join("refs/heads").join(branch);
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent).at("made", parent)?;
            }
            std::fs::write(&path, format!("{commit}\n")).at("written", &path)?;
            format!("ref: refs/heads/{branch}\n")
        }
    };
    let path = dir.join("HEAD");
    std::fs::write(&path, text).at("written", &path)
}

fn write_shallow(dir: &Path, repository: &Repository) -> Result<()> {
    let Some(shallow) = repository.shallow() else { return Ok(()) };
    let path = dir.join("shallow");
    std::fs::write(&path, shallow).at("written", &path)
}

/// How a checkout is to come out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fill<'a> {
    pub(crate) owner: Option<User>,
    pub(crate) lent: &'a Lent,
    /// Read every file once more and compare what was checked out with the commit's id. Pays for a fast first
    /// `git status` as well, where many look at the same files.
    pub(crate) warm: bool,
}

/// A new checkout of `commit` at `top`: files, index, and a git folder that borrows the person's
/// objects. HEAD is detached. Returns what the agent should know about it.
pub(crate) async fn make(
    git: &Git,
    repository: &Repository,
    commit: &str,
    top: &Path,
    fill: &Fill<'_>,
) -> Result<Vec<String>> {
    let owner = fill.owner;
    let git_dir = top.join(".git");
    let (at, source, id) = (git_dir.clone(), repository.clone(), commit.to_owned());
    let refs = fill.lent.refs.clone();
    super::blocking("write a git folder", move || {
        write_git_dir(&at, &source.object_format, &[&source.objects()], Head::At(&id), &remote(&source))?;
        write_shallow(&at, &source)?;
        let exclude = source.common_dir.join("info/exclude");
        if exclude.is_file() {
            std::fs::copy(&exclude, at.join("info/exclude")).at("copied", &exclude)?;
        }
        let packed = at.join("packed-refs");
        std::fs::write(&packed, refs).at("written", &packed)
    })
    .await?;
    let run = |operation| git.call(operation).git_dir(&git_dir).work_tree(top).volatile();
    run("check out the base").args(["read-tree", "--reset", "-u", commit]).ok().await?;
    // A new owner is a change to git as well: its index must see it.
    if fill.warm || owner.is_some() {
        let all = top.to_path_buf();
        let times = if fill.warm { Times::Past } else { Times::Kept };
        super::blocking("hand over a checkout", move || settle(&all, owner, times)).await?;
        let refreshed = run("check the base").args(["update-index", "--refresh"]).output().await?;
        if !refreshed.status.success() {
            let differs = String::from_utf8_lossy(&refreshed.stdout).trim().to_owned();
            let detail = format!("{differs}{}", refreshed.stderr);
            return Err(Error::WrongCheckout { commit: commit.to_owned(), detail });
        }
        let index = git_dir.join("index");
        if fill.warm {
            super::base::prove(git, repository, &index, commit).await?;
        }
        super::blocking("hand over a checkout", move || give(&index, owner)).await?;
    }
    if let Some(known) = fill.lent.warnings.get() {
        return Ok(known.clone());
    }
    let found = warnings(git, &git_dir, top).await?;
    Ok(fill.lent.warnings.get_or_init(|| found).clone())
}

/// The person's branches as `origin/…`, his tags and other remote branches, in packed form.
pub(crate) async fn refs_to_show(git: &Git, repository: &Repository) -> Result<Vec<u8>> {
    let listed = git
        .call("list refs")
        .git_dir(&repository.common_dir)
        .act_as(repository.act_as)
        .args(["for-each-ref", "--format=%(objectname) %(symref) %(refname)"])
        .args(["refs/heads", "refs/remotes", "refs/tags"])
        .ok()
        .await?;
    let mut packed = std::collections::BTreeMap::new();
    for line in String::from_utf8_lossy(&listed).lines() {
        let mut words = line.splitn(3, ' ');
        let (Some(id), Some(""), Some(name)) = (words.next(), words.next(), words.next()) else { continue };
        match name.strip_prefix("refs/heads/") {
            // His branch is what a clone would show as `origin/<branch>`.
            Some(branch) => packed.insert(format!("refs/remotes/origin/{branch}"), id.to_owned()),
            None => {
                packed.entry(name.to_owned()).or_insert_with(|| id.to_owned());
                None
            }
        };
    }
    let mut text = String::from("# pack-refs with: sorted \n");
    for (name, id) in &packed {
        // A name below another name cannot be a ref beside it.
        let mut above = name.as_str();
        let below_a_ref = std::iter::from_fn(|| {
            above = above.rsplit_once('/')?.0;
            Some(above)
        })
        .any(|folder| packed.contains_key(folder));
        if !below_a_ref {
            text.push_str(&format!("{id} {name}\n"));
        }
    }
    Ok(text.into_bytes())
}

/// `origin` can be fetched from; a push would write into the person's repository behind his back.
fn remote(repository: &Repository) -> String {
    let path = repository.common_dir.to_string_lossy();
    let path = path.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!(
        "[remote \"origin\"]\n\turl = \"{path}\"\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n\
         \tpushurl = /dev/null/results-are-collected-not-pushed\n"
    )
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Times {
    Kept,
    /// Ten seconds back: git cannot trust the times of files as young as its index and would read every one of them
    /// again at each `git status`. Whoever does so waits until the second is over, or a change in it is not seen.
    Past,
}

fn past() -> TimeSpec {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    TimeSpec::from(now.saturating_sub(Duration::from_secs(10)))
}

/// Sets a file back, so that git reads it again.
pub(crate) fn date_back(path: &Path) -> Result<()> {
    let past = past();
    utimensat(AT_FDCWD, path, &past, &past, UtimensatFlags::NoFollowSymlink).at("dated", path)
}

/// Gives all files to `owner`, and sets them back where that is wanted.
fn settle(top: &Path, owner: Option<User>, times: Times) -> Result<()> {
    let past = past();
    let mut folders = vec![(top.to_path_buf(), false)];
    while let Some((folder, inside_git)) = folders.pop() {
        for entry in std::fs::read_dir(&folder).at("read", &folder)? {
            let entry = entry.at("read", &folder)?;
            let path = entry.path();
            let inside_git = inside_git || entry.file_name() == OsStr::new(".git");
            give(&path, owner)?;
            if entry.file_type().at("read", &path)?.is_dir() {
                folders.push((path, inside_git));
            } else if !inside_git && times == Times::Past {
                utimensat(AT_FDCWD, &path, &past, &past, UtimensatFlags::NoFollowSymlink)
                    .at("dated", &path)?;
            }
        }
    }
    give(top, owner)
}

/// Changes the owner of the path itself, never of what a link points to.
pub(crate) fn give(path: &Path, owner: Option<User>) -> Result<()> {
    let Some((uid, gid)) = owner else { return Ok(()) };
    std::os::unix::fs::lchown(path, Some(uid), Some(gid)).at("handed over", path)
}

/// As `give`, for all below. Only for trees that no agent has touched.
pub(crate) fn give_all(top: &Path, owner: Option<User>) -> Result<()> {
    if owner.is_none() {
        return Ok(());
    }
    let mut folders = vec![top.to_path_buf()];
    while let Some(folder) = folders.pop() {
        give(&folder, owner)?;
        for entry in std::fs::read_dir(&folder).at("read", &folder)? {
            let entry = entry.at("read", &folder)?;
            if entry.file_type().at("read", &entry.path())?.is_dir() {
                folders.push(entry.path());
            } else {
                give(&entry.path(), owner)?;
            }
        }
    }
    Ok(())
}

/// Submodules and filtered files (LFS and its kind) come out as pointers, and that is said.
async fn warnings(git: &Git, git_dir: &Path, top: &Path) -> Result<Vec<String>> {
    let mut warnings = Vec::new();
    let listed =
        git.call("list the files of the base").git_dir(git_dir).args(["ls-files", "-s", "-z"]).ok().await?;
    let entries = || listed.split(|&b| b == 0);
    let submodules = entries().filter(|entry| entry.starts_with(b"160000 ")).count();
    if submodules > 0 {
        warnings.push(format!("{submodules} submodule(s) are empty folders in the checkout"));
    }
    let mut filters = std::collections::BTreeSet::new();
    for entry in entries() {
        let Some(tab) = entry.iter().position(|&b| b == b'\t') else { continue };
        let path = Path::new(OsStr::from_bytes(entry.get(tab + 1..).unwrap_or_default()));
        if path.file_name() != Some(OsStr::new(".gitattributes")) {
            continue;
        }
        let file = top.join(path);
        if regular_file(&file).is_none() {
            continue;
        }
        let text = std::fs::read(&file).at("read", &file)?;
        for word in String::from_utf8_lossy(&text).split_whitespace() {
            filters.extend(word.strip_prefix("filter=").map(str::to_owned));
        }
    }
    for filter in filters {
        let what = if filter == "lfs" { "LFS pointers" } else { "stored form" };
        warnings.push(format!("files with filter `{filter}` are checked out as {what}: filters are not run"));
    }
    Ok(warnings)
}
