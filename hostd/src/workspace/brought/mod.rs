//! Files of the person's checkout that git does not track and a project needs (`.env`): brought into a new workspace with
//! their modes, and excluded there, so that they are never staged by habit and never the agent's work. Named by `copy`
//! (paths and patterns of gitignore(5)) and by `.worktreeinclude` in the checkout, of which only ignored files are taken.
//! No link is followed on either side. Leaves to others: which of these are wanted.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use super::base::pattern;
use super::checkout::{self, GitDir, Head};
use super::error::{At, Error, Result};
use super::git::Git;
use super::manifest::{self, Folders, Kind, Manifest};
use super::repository::{Repository, Resolved};
use super::result::{Unread, open_beneath, read_beneath};
use super::{Workspace, Workspaces, blocking};

const INCLUDE: &str = ".worktreeinclude";
const INCLUDE_MAX: u64 = 64 * 1024;
/// Of one workspace; dependencies are prepared, not copied.
const FILES_MAX: usize = 10_000;
const BYTES_MAX: u64 = 256 << 20;

impl Workspaces {
    pub(super) async fn bring_now(
        &self,
        agent_dir: &Path,
        resolved: &Resolved,
        wanted: &[String],
    ) -> Result<Workspace> {
        let folders = Folders::of(agent_dir);
        let mut manifest = manifest::required(&folders)?;
        let repository = &resolved.repository;
        if repository.bare || manifest.kind == Kind::Plain {
            if !wanted.is_empty() {
                manifest.warnings.push("nothing is copied: there is no checkout to copy from".to_owned());
            }
            return Ok(Workspace::new(&folders, manifest));
        }
        let (mut files, mut warnings) = (BTreeSet::new(), Vec::new());
        let view = view(&self.git, resolved)?;
        for name in wanted {
            let found = named(&self.git, &view, repository, name).await?;
            if found.is_empty() {
                let at = repository.path.display();
                warnings.push(format!("copy: {name:?} names no file that {at} has and git does not track"));
            }
            files.extend(found);
        }
        files.extend(included(&self.git, &view, repository).await?);
        if manifest.kind == Kind::Worktree {
            // What is excluded there is excluded in the person's repository.
            let ignored = ignored(&self.git, &view, repository, &files).await?;
            for path in files.difference(&ignored) {
                warnings.push(format!("{} is not copied: it is not ignored", path.display()));
            }
            files = ignored;
        }
        if files.is_empty() && warnings.is_empty() {
            return Ok(Workspace::new(&folders, manifest));
        }
        let from = repository.path.clone();
        blocking("copy files into a workspace", move || {
            let copied = copy_all(&from, &folders, &manifest, &files, &mut warnings)?;
            let lines: Vec<String> = copied.iter().filter_map(|path| pattern(path)).collect();
            if manifest.kind != Kind::Worktree {
                let git_dir = folders.work.join(".git");
                checkout::exclude(&git_dir, &lines)?;
                checkout::give_all(&git_dir.join("info"), manifest.user)?;
            }
            manifest.prepared.extend(lines);
            manifest.warnings.extend(warnings);
            manifest::write(&folders, &manifest)?;
            Ok(Workspace::new(&folders, manifest))
        })
        .await
    }
}

/// The person's checkout, without the settings of his repository.
fn view(git: &Git, resolved: &Resolved) -> Result<GitDir> {
    let repository = &resolved.repository;
    let objects = repository.objects();
    let view = GitDir::scratch(git, &repository.object_format, &[&objects], Head::At(&resolved.commit))?;
    view.take_index(&repository.git_dir)?;
    view.take_excludes(&repository.common_dir)?;
    Ok(view)
}

async fn list(git: &Git, view: &GitDir, repository: &Repository, rules: &str) -> Result<BTreeSet<PathBuf>> {
    let listed = git
        .call("look for files to copy")
        .git_dir(view.path())
        .work_tree(&repository.path)
        .args(["ls-files", "-z", "--others", "--ignored", rules])
        .ok()
        .await?;
    Ok(paths(&listed))
}

fn paths(listed: &[u8]) -> BTreeSet<PathBuf> {
    let names = listed.split(|&byte| byte == 0).filter(|name| !name.is_empty());
    names.map(|name| PathBuf::from(OsStr::from_bytes(name))).collect()
}

/// Untracked files that one entry of `copy` names.
async fn named(git: &Git, view: &GitDir, repository: &Repository, name: &str) -> Result<BTreeSet<PathBuf>> {
    let is_beneath = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
    if !is_beneath || name.starts_with(['!', '#']) {
        return Ok(BTreeSet::new());
    }
    // From the top: a name is a path here, not a name at any depth.
    list(git, view, repository, &format!("--exclude=/{name}")).await
}

/// Ignored files that the checkout says belong into others of it.
async fn included(git: &Git, view: &GitDir, repository: &Repository) -> Result<BTreeSet<PathBuf>> {
    let Ok(rules) = read_beneath(&repository.path, Path::new(INCLUDE), INCLUDE_MAX)? else {
        return Ok(BTreeSet::new());
    };
    let file = view.path().join("include");
    std::fs::write(&file, rules).at("written", &file)?;
    let found = list(git, view, repository, &format!("--exclude-from={}", file.display())).await?;
    ignored(git, view, repository, &found).await
}

async fn ignored(
    git: &Git,
    view: &GitDir,
    repository: &Repository,
    files: &BTreeSet<PathBuf>,
) -> Result<BTreeSet<PathBuf>> {
    if files.is_empty() {
        return Ok(BTreeSet::new());
    }
    let mut asked = Vec::new();
    for path in files {
        asked.extend(path.as_os_str().as_bytes());
        asked.push(0);
    }
    let call = git.call("look for ignored files").git_dir(view.path()).work_tree(&repository.path);
    let output = call.args(["check-ignore", "-z", "--stdin"]).stdin(asked).output().await?;
    // 1: none of them.
    if output.status.code() == Some(1) {
        return Ok(BTreeSet::new());
    }
    Ok(paths(&output.checked("look for ignored files")?))
}

/// The paths that are in the workspace now.
fn copy_all(
    from: &Path,
    folders: &Folders,
    manifest: &Manifest,
    files: &BTreeSet<PathBuf>,
    warnings: &mut Vec<String>,
) -> Result<Vec<Vec<u8>>> {
    let (mut copied, mut left) = (Vec::new(), BYTES_MAX);
    for path in files {
        let mut skip = |why: &str| warnings.push(format!("{} is not copied: {why}", path.display()));
        let bytes = path.as_os_str().as_bytes();
        if copied.len() >= FILES_MAX {
            skip("there are too many files; `prepare` is for dependencies");
            break;
        }
        if path.starts_with(".git") || pattern(bytes).is_none() {
            skip("its name cannot be excluded");
            continue;
        }
        let target = folders.work.join(path);
        if target.symlink_metadata().is_ok() {
            skip("the commit has a file there");
            continue;
        }
        if !make_parents(&folders.work, path, manifest)? {
            skip("it would lie behind a link");
            continue;
        }
        let source = match open_beneath(from, path)? {
            Ok(source) => source,
            Err(Unread::NotAPlainFile) if is_link(&from.join(path)) => {
                let link = std::fs::read_link(from.join(path)).at("read", path)?;
                std::os::unix::fs::symlink(link, &target).at("made", &target)?;
                checkout::give(&target, manifest.user)?;
                copied.push(bytes.to_vec());
                continue;
            }
            Err(why) => {
                skip(&why.to_string());
                continue;
            }
        };
        let facts = source.metadata().at("read", path)?;
        if facts.len() > left {
            skip("all files together are too large; `prepare` is for dependencies");
            continue;
        }
        left -= facts.len();
        let mode = facts.permissions().mode() & 0o777;
        let mut file = std::fs::File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&target)
            .at("made", &target)?;
        std::io::copy(&mut source.take(facts.len()), &mut file).at("copied", path)?;
        checkout::give(&target, manifest.user)?;
        std::fs::set_permissions(&target, PermissionsExt::from_mode(mode)).at("opened", &target)?;
        copied.push(bytes.to_vec());
    }
    Ok(copied)
}

fn is_link(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|facts| facts.is_symlink())
}

/// False where something else stands in the way.
fn make_parents(work: &Path, path: &Path, manifest: &Manifest) -> Result<bool> {
    let mut at = work.to_path_buf();
    for part in path.parent().into_iter().flat_map(Path::components) {
        at.push(part);
        match at.symlink_metadata() {
            Ok(facts) if facts.is_dir() => {}
            Ok(_) => return Ok(false),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                std::fs::create_dir(&at).at("made", &at)?;
                checkout::give(&at, manifest.user)?;
            }
            Err(error) => return Err(Error::io("read", &at, error)),
        }
    }
    Ok(true)
}
