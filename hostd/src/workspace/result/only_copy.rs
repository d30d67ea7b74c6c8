//! Whether a workspace holds work that is nowhere else. A doubt is `Unknown`, which never leads to
//! a removal. Leaves to others: asking the person.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::super::error::{Error, Result};
use super::super::git::{Git, is_object_id};
use super::super::manifest::{self, Folders, Kind, Manifest};
use super::super::{Workspaces, blocking, refs};
use super::inspect::{self, Found};
use super::snapshot::View;
use super::{Collected, aside, first_entry, outputs};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OnlyCopy {
    No,
    /// One line for each kind of work that would be lost.
    Yes {
        what: Vec<String>,
    },
    /// It could not be found out.
    Unknown(String),
}

/// What of it is, or will be, somewhere else.
#[derive(Clone, Copy, Debug)]
enum Elsewhere<'a> {
    /// What was brought home, if it was.
    Collected(Option<&'a Collected>),
    /// What an end now would bring home: HEAD, the files beyond it, and what these patterns name.
    AtTheEnd { outputs: &'a [String] },
}

/// What lies in the folders of a workspace that no manifest tells of.
fn files_without_a_record(folders: &Folders) -> OnlyCopy {
    for folder in [&folders.work, &folders.upper] {
        match std::fs::read_dir(folder).map(|mut entries| entries.next().is_some()) {
            Ok(true) => {
                return OnlyCopy::Yes { what: vec!["files of a workspace whose record is gone".to_owned()] };
            }
            Ok(false) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return OnlyCopy::Unknown(error.to_string()),
        }
    }
    OnlyCopy::No
}

impl Workspaces {
    pub(in super::super) async fn only_copy_now(
        &self,
        agent_dir: &Path,
        collected: Option<&Collected>,
    ) -> OnlyCopy {
        self.only_copy(agent_dir, Elsewhere::Collected(collected)).await
    }

    pub(in super::super) async fn only_copy_at_its_end(
        &self,
        agent_dir: &Path,
        outputs: &[String],
    ) -> OnlyCopy {
        self.only_copy(agent_dir, Elsewhere::AtTheEnd { outputs }).await
    }

    async fn only_copy(&self, agent_dir: &Path, elsewhere: Elsewhere<'_>) -> OnlyCopy {
        match self.look_for_only_copy(agent_dir, elsewhere).await {
            Ok(what) if what.is_empty() => OnlyCopy::No,
            Ok(what) => OnlyCopy::Yes { what },
            // Never made, unless its record was lost: files prove that it was.
            Err(Error::NoWorkspace { .. }) => files_without_a_record(&Folders::of(agent_dir)),
            Err(error) => OnlyCopy::Unknown(protocol::chain(&error)),
        }
    }

    async fn look_for_only_copy(&self, agent_dir: &Path, elsewhere: Elsewhere<'_>) -> Result<Vec<String>> {
        let folders = Folders::of(agent_dir);
        let manifest = manifest::required(&folders)?;
        if manifest.kind == Kind::Plain {
            return plain(folders, elsewhere).await;
        }
        self.mount_again(&folders, &manifest).await?;
        let (at, facts) = (folders.clone(), manifest.clone());
        let found = blocking("look at a workspace", move || {
            Ok(if inspect::is_untouched(&at, &facts) { None } else { Some(inspect::look(&at, &facts)?) })
        })
        .await?;
        let Some(found) = found else { return Ok(Vec::new()) };
        let git = &self.git;
        let mut what = Vec::new();
        for operation in &found.in_progress {
            what.push(format!("a {operation:?} in progress").to_lowercase());
        }
        let view = View::open(git, &folders, &manifest, &found).await?;
        let changes = view.changes(git, &folders).await?;
        let mut tips = tips(&manifest, &found)?;
        // An end now would bring it home.
        if let Elsewhere::Collected(_) = elsewhere {
            tips.extend(aside::find(git, &view, &folders, &manifest, &found, changes.as_ref()).await?);
        }
        if let Some(changes) = changes {
            what.extend(changes.not_saved.iter().map(|path| format!("a repository of its own in {path}")));
            if let Elsewhere::Collected(collected) = elsewhere {
                let tree = view.tree(git, &folders, &changes).await?;
                if tree != view.head_tree(git).await? && !is_kept(git, &manifest, collected, &tree).await? {
                    let untracked = changes.untracked;
                    what.push(format!(
                        "uncommitted changes in {} file(s), {untracked} of them untracked",
                        changes.files
                    ));
                }
            }
        }
        let mut outside = outside(git, &manifest).await?;
        if let Elsewhere::AtTheEnd { .. } = elsewhere {
            outside.insert(found.head.clone());
        }
        let unreached = count(git, &view, &tips, &outside).await?;
        if unreached > 0 {
            what.push(format!("{unreached} commit(s) that no ref of the repository reaches"));
        }
        Ok(what)
    }
}

/// Most paths that are named.
const NAMED: usize = 20;

impl Workspaces {
    pub(in super::super) async fn not_kept_now(&self, agent_dir: &Path) -> Result<Vec<String>> {
        let folders = Folders::of(agent_dir);
        let Some(manifest) = manifest::read(&folders)? else { return Ok(Vec::new()) };
        if manifest.kind == Kind::Plain {
            return Ok(Vec::new());
        }
        self.mount_again(&folders, &manifest).await?;
        let (at, facts) = (folders.clone(), manifest.clone());
        let found = blocking("look at a workspace", move || {
            Ok(if inspect::is_untouched(&at, &facts) { None } else { Some(inspect::look(&at, &facts)?) })
        });
        let Some(found) = found.await? else { return Ok(Vec::new()) };
        let view = View::open(&self.git, &folders, &manifest, &found).await?;
        let ignored = view.ignored(&self.git, &folders).await?;
        // What was brought into it, or prepared in its base, is elsewhere.
        let brought = |path: &str| manifest.prepared.iter().any(|line| line.strip_prefix('/') == Some(path));
        let mut named: Vec<String> = ignored.into_iter().filter(|path| !brought(path)).collect();
        for path in &mut named {
            if path.ends_with('/') && folders.work.join(&*path).join(".git").symlink_metadata().is_ok() {
                path.push_str(" (a repository of its own)");
            }
        }
        let more = named.len().saturating_sub(NAMED);
        named.truncate(NAMED);
        if more > 0 {
            named.push(format!("and {more} more"));
        }
        Ok(named)
    }
}

/// Outputs that were copied are elsewhere; any other file of a plain folder is not.
async fn plain(folders: Folders, elsewhere: Elsewhere<'_>) -> Result<Vec<String>> {
    let (copied, declared) = match elsewhere {
        Elsewhere::Collected(collected) => {
            let outputs = collected.into_iter().flat_map(|c| &c.outputs);
            (outputs.map(|output| output.path.clone()).collect(), Vec::new())
        }
        Elsewhere::AtTheEnd { outputs } => (BTreeSet::new(), outputs.to_vec()),
    };
    blocking("look at a workspace", move || {
        let mut copied: BTreeSet<PathBuf> = copied;
        copied.extend(outputs::named(&folders.work, &declared)?);
        if first_entry(&folders.work)?.is_none() {
            return Ok(Vec::new());
        }
        let (mut open, mut left) = (vec![folders.work.clone()], 0u64);
        while let Some(folder) = open.pop() {
            use super::super::error::At;
            for entry in std::fs::read_dir(&folder).at("read", &folder)? {
                let entry = entry.at("read", &folder)?;
                let path = entry.path();
                if entry.file_type().at("read", &path)?.is_dir() {
                    open.push(path);
                } else if !path.strip_prefix(&folders.work).is_ok_and(|path| copied.contains(path)) {
                    left += 1;
                }
            }
        }
        Ok(if left == 0 {
            Vec::new()
        } else {
            vec![format!("{left} file(s) in a folder without a repository")]
        })
    })
    .await
}

/// True when the repository still has the tree under the ref that was made for it.
async fn is_kept(git: &Git, manifest: &Manifest, collected: Option<&Collected>, tree: &str) -> Result<bool> {
    let (Some(uncommitted), Some(repository)) =
        (collected.and_then(|collected| collected.uncommitted.as_ref()), &manifest.repository)
    else {
        return Ok(false);
    };
    let names = [uncommitted.ref_name.clone()];
    let now = refs::read(git, repository, &names).await?;
    if now.get(&uncommitted.ref_name) != Some(&uncommitted.commit) {
        return Ok(false);
    }
    let answer = git
        .call("find the tree of a commit")
        .git_dir(&repository.common_dir)
        .act_as(repository.act_as)
        .args(["cat-file", "--batch-check=%(objectname)"])
        .stdin(format!("{}^{{tree}}\n", uncommitted.commit))
        .ok()
        .await?;
    Ok(String::from_utf8_lossy(&answer).trim() == tree)
}

/// All that the person's repository reaches: its refs, and the base that is kept for us.
pub(super) async fn outside(git: &Git, manifest: &Manifest) -> Result<BTreeSet<String>> {
    let repository = manifest.repository.as_ref().ok_or(Error::NoRepository)?;
    let mut names = refs::read(git, repository, &[]).await?;
    names.retain(|_, id| is_object_id(id));
    Ok(names.into_values().collect())
}

/// HEAD, every ref, and every stash entry of the workspace.
pub(super) fn tips(manifest: &Manifest, found: &Found) -> Result<BTreeSet<String>> {
    let mut tips = BTreeSet::from([found.head.clone()]);
    if manifest.worktree_git_dir.is_none() {
        tips.extend(inspect::all_refs(&found.git_dir)?.into_values());
        tips.extend(inspect::stash_entries(&found.git_dir)?);
        tips.extend(inspect::linked_heads(&found.git_dir)?);
    }
    Ok(tips)
}

async fn count(git: &Git, view: &View, tips: &BTreeSet<String>, outside: &BTreeSet<String>) -> Result<u64> {
    let new: Vec<&String> = tips.difference(outside).collect();
    if new.is_empty() {
        return Ok(0);
    }
    let mut asked = String::new();
    for tip in new {
        asked.push_str(&format!("{tip}\n"));
    }
    for id in outside {
        asked.push_str(&format!("^{id}\n"));
    }
    const OPERATION: &str = "look for commits that are nowhere else";
    let call = git.call(OPERATION).git_dir(view.scratch.path());
    let counted = call.args(["rev-list", "--count", "--stdin"]).stdin(asked).ok().await?;
    let text = String::from_utf8_lossy(&counted).trim().to_owned();
    text.parse().map_err(|_| Error::GitAnswer { operation: OPERATION, detail: text })
}
