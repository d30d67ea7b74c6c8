//! Bases that were changed by somebody else: set aside, looked at for what was changed, and told of.
//! Leaves to others: making them anew, and whom to tell.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use super::super::checkout::{self, GitDir, Head};
use super::super::error::{At, Error, Result};
use super::super::git::Git;
use super::{Base, Bases, DAMAGED, Facts, Once, file_name, read_facts};

/// Most changed files that are named.
const NAMED: usize = 5;

/// A base that was not as it had been made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Where the base was; what is left of it lies beside it.
    pub path: PathBuf,
    pub commit: String,
    pub repository: PathBuf,
    /// Some of what was changed in it.
    pub changed: Vec<String>,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let commit = self.commit.get(..12).unwrap_or(&self.commit);
        write!(f, "the base of commit {commit} was changed from outside and was made anew")?;
        match self.changed.as_slice() {
            [] => f.write_str(" (its git folder, or times of its files)"),
            changed => write!(f, " (changed: {})", changed.join(", ")),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Damages {
    /// For the next workspace on a base of this name.
    notes: Mutex<HashMap<PathBuf, String>>,
    teller: OnceLock<Teller>,
}

/// Who is told of each damage.
pub(super) struct Teller(Box<dyn Fn(&Damage) + Send + Sync>);

impl std::fmt::Debug for Teller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Teller")
    }
}

impl Bases {
    /// Called once, before the first base is used.
    pub(crate) fn on_damage(&self, tell: impl Fn(&Damage) + Send + Sync + 'static) {
        if self.damages.teller.set(Teller(Box::new(tell))).is_err() {
            tracing::error!("who is told of damaged bases was set before");
        }
    }

    /// What the next workspace on this base is to be told of it.
    pub(crate) fn take_note(&self, name: &Path) -> Option<String> {
        self.damages.notes.lock().ok()?.remove(name)
    }

    /// A base that is out of use may still be mounted somewhere: it is moved, and dropped when unused.
    pub(super) fn set_aside(&self, path: &Path, mark: &str) -> Result<Option<PathBuf>> {
        if path.symlink_metadata().is_err() {
            return Ok(None);
        }
        let parent = path.parent().unwrap_or(&self.folder);
        let aside = checkout::unique(parent, &format!("{}{mark}", file_name(path)))?;
        std::fs::rename(path, &aside).at("moved aside", path)?;
        Ok(Some(aside))
    }

    /// Puts the base of this cell out of use, unless somebody else did so.
    pub(super) fn replace(&self, name: &Path, cell: &Once<Base>, mark: &str) -> Result<Option<PathBuf>> {
        let mut cells = self.cells.lock().map_err(|_| Error::Interrupted { operation: "find a base" })?;
        if !cells.get(name).is_some_and(|current| Arc::ptr_eq(current, cell)) {
            return Ok(None);
        }
        let aside = self.set_aside(&self.folder.join(name), mark)?;
        cells.remove(name);
        Ok(aside)
    }

    pub(super) async fn discard_damaged(&self, git: &Git, name: &Path, cell: &Once<Base>) -> Result<()> {
        if let Some(aside) = self.replace(name, cell, DAMAGED)? {
            self.note_damage(git, name, &aside).await;
        }
        Ok(())
    }

    /// Whether a base of this name was damaged, now or before: a workspace may lie on what is left of it.
    pub(crate) async fn was_damaged(&self, git: &Git, commit: &str, name: &Path) -> Result<bool> {
        let cell = self.cell(name)?;
        match cell.get() {
            Some(base) if !base.is_whole().await => self.discard_damaged(git, name, &cell).await?,
            Some(_) => {}
            None => drop(self.find(git, commit, name).await?),
        }
        let path = self.folder.join(name);
        let marked = format!("{}{DAMAGED}", file_name(&path));
        let beside = std::fs::read_dir(path.parent().unwrap_or(&self.folder)).into_iter().flatten().flatten();
        Ok(beside.map(|entry| entry.path()).any(|other| file_name(&other).starts_with(&marked)))
    }

    /// `aside`: where the damaged base lies now.
    pub(super) async fn note_damage(&self, git: &Git, name: &Path, aside: &Path) {
        let Ok(Some(facts)) = read_facts(aside) else { return };
        let changed = changed(git, &facts, &aside.join("tree")).await.unwrap_or_else(|error| {
            tracing::debug!(error = protocol::chain(&error), "what was changed in a base is not known");
            Vec::new()
        });
        let path = self.folder.join(name);
        let damage = Damage { path, commit: facts.commit, repository: facts.repository.path, changed };
        tracing::warn!(base = %damage.path.display(), changed = ?damage.changed, "a base was changed from outside and is made anew");
        if let Ok(mut notes) = self.damages.notes.lock() {
            notes.insert(name.to_path_buf(), damage.to_string());
        }
        if let Some(Teller(tell)) = self.damages.teller.get() {
            tell(&damage);
        }
    }
}

/// Files that are not as the commit and the programs that prepared it left them. Nothing in the base is believed, its
/// index least of all.
async fn changed(git: &Git, facts: &Facts, tree: &Path) -> Result<Vec<String>> {
    let repository = &facts.repository;
    let objects = repository.objects();
    let view = GitDir::scratch(git, &repository.object_format, &[&objects], Head::At(&facts.commit))?;
    view.take_shallow(repository)?;
    view.exclude(&facts.extra.excludes)?;
    const OPERATION: &str = "look at a damaged base";
    let call = || git.call(OPERATION).git_dir(view.path()).work_tree(tree).volatile();
    call().args(["read-tree", &facts.commit]).ok().await?;
    let listed = call()
        .args(["status", "--porcelain", "-z", "--no-renames", "--untracked-files=normal"])
        .args(["--ignored=matching", "--ignore-submodules=all"])
        .ok()
        .await?;
    let prepared: Vec<&Path> = facts.extra.paths.iter().map(PathBuf::as_path).collect();
    let names = listed.split(|&byte| byte == 0).filter_map(|entry| entry.get(3..));
    let names = names.map(|name| String::from_utf8_lossy(name).into_owned());
    let names = names.filter(|name| !prepared.contains(&Path::new(name.trim_end_matches('/'))));
    Ok(names.take(NAMED).collect())
}
