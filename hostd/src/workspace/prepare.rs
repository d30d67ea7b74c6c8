//! Makes a workspace in an agent's folder: overlay, clone, linked worktree or plain folder.
//! Idempotent: a whole workspace for the same is given again, a half-made one is made anew.
//! Leaves to others: the agent's environment, and everything after its start.

use std::path::Path;
use std::sync::Arc;

use super::base::{self, Base, PreparedBase, Purpose};
use super::checkout::{self, Fill, GitDir, Head};
use super::error::{At, Error, Result};
use super::git::User;
use super::manifest::{self, Folders, Kind, Manifest, VERSION};
use super::overlay::{self, Overlay};
use super::repository::{Repository, Resolved};
use super::{PrepareSpec, Wanted, Workspace, Workspaces, blocking, names, refs, remove};

const WORKTREE_SHARES: &str = "a linked worktree shares the stash, branches and settings of its repository with you and \
     with every other worktree: what one of them stashes, another can pop";

impl Workspaces {
    pub(super) async fn prepare_now(&self, agent_dir: &Path, spec: &PrepareSpec) -> Result<Workspace> {
        if spec.repo.is_some() {
            names::check_branch(&spec.branch)?;
        }
        self.check_user(spec.user)?;
        let folders = Folders::of(agent_dir);
        if let Some(manifest) = manifest::read(&folders)? {
            check_same(&folders, &manifest, spec)?;
            self.mount_again(&folders, &manifest).await?;
            return Ok(Workspace::new(&folders, manifest));
        }
        clear(&folders).await?;
        let Some(resolved) = &spec.repo else {
            return plain(folders, spec.user).await;
        };
        let prepared = spec.prepared.as_ref();
        let draft = Manifest {
            branch: Some(spec.branch.clone()),
            ..manifest_for(&resolved.repository, &resolved.commit, Some(&resolved.tree), spec.user)
        };
        match (spec.kind, &self.overlay) {
            (Wanted::Plain, _) => plain(folders, spec.user).await,
            (Wanted::Worktree, _) => self.worktree(folders, resolved, draft).await,
            (Wanted::Clone, _) | (Wanted::Auto, Err(_)) => {
                self.clone_into(folders, draft, prepared, Purpose::Work).await
            }
            (Wanted::Overlay, Err(reason)) => Err(Error::OverlayUnavailable { reason: reason.clone() }),
            (Wanted::Overlay, Ok(overlay)) => {
                self.overlay_into(*overlay, folders, draft, prepared, Purpose::Work).await
            }
            (Wanted::Auto, Ok(overlay)) => {
                let laid =
                    self.overlay_into(*overlay, folders.clone(), draft.clone(), prepared, Purpose::Work);
                match laid.await {
                    Err(Error::Io { operation: "mounted", source, .. }) => {
                        let agent = agent_dir.display();
                        tracing::warn!(%agent, error = %source, "no overlay; cloned instead");
                        clear(&folders).await?;
                        let mut draft = draft;
                        draft.warnings.push(format!("cloned, since no overlay could be mounted: {source}"));
                        self.clone_into(folders, draft, prepared, Purpose::Work).await
                    }
                    other => other,
                }
            }
        }
    }

    /// A checkout of `commit` with a detached HEAD, over the base of `resolved` where it can.
    pub(super) async fn fresh_now(
        &self,
        dir: &Path,
        resolved: &Resolved,
        commit: &str,
        user: Option<User>,
        prepared: Option<&PreparedBase>,
    ) -> Result<Workspace> {
        self.check_user(user)?;
        let folders = Folders::of(dir);
        if let Some(found) = manifest::read(&folders)? {
            if found.base_commit.as_deref() != Some(commit) || found.branch.is_some() {
                let detail = "not a fresh checkout of that commit".to_owned();
                return Err(Error::OtherWorkspace { agent_dir: dir.to_path_buf(), detail });
            }
            self.mount_again(&folders, &found).await?;
            return Ok(Workspace::new(&folders, found));
        }
        clear(&folders).await?;
        let repository = &resolved.repository;
        let Ok(overlay) = &self.overlay else {
            let draft = manifest_for(repository, commit, None, user);
            return self.clone_into(folders, draft, prepared, Purpose::Verification).await;
        };
        if commit == resolved.commit {
            let draft = manifest_for(repository, commit, Some(&resolved.tree), user);
            return self.overlay_into(*overlay, folders, draft, prepared, Purpose::Verification).await;
        }
        let base = match prepared {
            Some(PreparedBase(base)) => Arc::clone(base),
            None => {
                let ensured =
                    self.bases.ensure(&self.git, repository, &resolved.commit, user, Purpose::Verification);
                ensured.await?
            }
        };
        let mut draft = manifest_for(repository, commit, None, user);
        draft.warnings.extend(self.bases.take_note(&base.name));
        let manifest = lay_over(*overlay, folders.clone(), Arc::clone(&base), draft, Finish::Later).await?;
        let (git_dir, top) = (folders.work.join(".git"), &folders.work);
        let scratch = GitDir::scratch(
            &self.git,
            &repository.object_format,
            &[&repository.objects()],
            Head::At(commit),
        )?;
        scratch.take_shallow(repository)?;
        // The index is warm: only what differs between the two commits is written. What was prepared gives way to
        // what was committed.
        let how = if prepared.is_some() { "--reset" } else { "-m" };
        self.git
            .call("check out the commit")
            .git_dir(scratch.path())
            .work_tree(top)
            .index(&git_dir.join("index"))
            .volatile()
            .args(["read-tree", how, "-u", &resolved.commit, commit])
            .ok()
            .await?;
        self.read_again(&scratch, &folders, commit).await?;
        base::prove(&self.git, repository, &git_dir.join("index"), commit).await?;
        blocking("write the manifest", move || {
            checkout::write_head(&folders.upper.join(".git"), Head::At(commit_of(&manifest)))
                .and_then(|()| checkout::give_all(&folders.upper, manifest.user))
                .and_then(|()| manifest::write(&folders, &manifest))?;
            drop(base);
            Ok(Workspace::new(&folders, manifest))
        })
        .await
    }

    /// Reads what was written above the base and compares it with the index: an object may not be what its id says.
    async fn read_again(&self, scratch: &GitDir, folders: &Folders, commit: &str) -> Result<()> {
        let at = folders.clone();
        blocking("date a checkout", move || {
            for path in overlay::written(&at.upper)? {
                checkout::date_back(&at.work.join(path))?;
            }
            Ok(())
        })
        .await?;
        let refreshed = self
            .git
            .call("check the checkout")
            .git_dir(scratch.path())
            .work_tree(&folders.work)
            .index(&folders.work.join(".git/index"))
            .volatile()
            .args(["update-index", "--refresh"])
            .output()
            .await?;
        if refreshed.status.success() {
            return Ok(());
        }
        let detail = String::from_utf8_lossy(&refreshed.stdout).trim().to_owned() + &refreshed.stderr;
        Err(Error::WrongCheckout { commit: commit.to_owned(), detail })
    }

    /// Of an agent that has ended: whether its workspace lies on a base that was damaged is looked at, and then it is
    /// mounted on one that is whole. What the agent wrote lies in its own layer.
    pub(super) async fn leave_damaged_base(&self, folders: &Folders, manifest: &Manifest) -> Result<()> {
        let (Kind::Overlay, Some(name), Some(repository)) =
            (manifest.kind, &manifest.base, &manifest.repository)
        else {
            return Ok(());
        };
        let (commit, _) = base::commit_in(name);
        if !self.bases.was_damaged(&self.git, &commit, name).await? {
            return Ok(());
        }
        let overlay =
            *self.overlay.as_ref().map_err(|reason| Error::OverlayUnavailable { reason: reason.clone() })?;
        // What was prepared is not work: without it the work is the same.
        let ensured = self.bases.ensure(&self.git, repository, &commit, manifest.user, Purpose::Work).await?;
        let (layers, mounting) = (folders.layers(ensured.tree.clone()), Arc::clone(&self.mounting));
        blocking("leave a damaged base", move || {
            let _turn = mounting.lock().map_err(|_| Error::Interrupted { operation: "mount a workspace" })?;
            if !overlay::unmount_unused(&layers.merged)? {
                let path = layers.merged.display();
                tracing::warn!(workspace = %path, "a workspace in use stays on a damaged base");
                return Ok(());
            }
            check_bare(&layers.merged)?;
            overlay.mount(&layers)?;
            drop(ensured);
            Ok(())
        })
        .await
    }

    pub(super) async fn mount_again(&self, folders: &Folders, manifest: &Manifest) -> Result<()> {
        if manifest.kind != Kind::Overlay || overlay::is_mounted(&folders.work)? {
            return Ok(());
        }
        let overlay =
            *self.overlay.as_ref().map_err(|reason| Error::OverlayUnavailable { reason: reason.clone() })?;
        let (Some(repository), Some(name)) = (&manifest.repository, &manifest.base) else {
            let detail = "an overlay without a base".to_owned();
            return Err(Error::BadManifest { path: folders.manifest.clone(), detail });
        };
        // The lower layer is named after its commit, which is not always the workspace's own.
        let base = match base::commit_in(name) {
            (commit, false) => {
                self.bases.ensure(&self.git, repository, &commit, manifest.user, Purpose::Work).await?
            }
            (commit, true) => self.bases.prepared_before(&self.git, &commit, name).await?,
        };
        let layers = folders.layers(base.tree.clone());
        let mounting = Arc::clone(&self.mounting);
        blocking("mount a workspace", move || {
            let _turn = mounting.lock().map_err(|_| Error::Interrupted { operation: "mount a workspace" })?;
            if overlay::is_mounted(&layers.merged)? {
                return Ok(());
            }
            check_bare(&layers.merged)?;
            overlay.mount(&layers)
        })
        .await
    }

    fn check_user(&self, user: Option<User>) -> Result<()> {
        let ours = nix::unistd::geteuid().as_raw();
        match user {
            Some((wanted, _)) if ours != 0 && wanted != ours => Err(Error::OtherUser { ours, wanted }),
            _ => Ok(()),
        }
    }

    async fn overlay_into(
        &self,
        overlay: Overlay,
        folders: Folders,
        mut draft: Manifest,
        prepared: Option<&PreparedBase>,
        purpose: Purpose,
    ) -> Result<Workspace> {
        let repository = draft.repository.as_ref().ok_or(Error::NoRepository)?;
        let base = match prepared {
            Some(PreparedBase(base)) => Arc::clone(base),
            None => self.bases.ensure(&self.git, repository, commit_of(&draft), draft.user, purpose).await?,
        };
        draft.warnings.extend(self.bases.take_note(&base.name));
        let manifest = lay_over(overlay, folders.clone(), base, draft, Finish::Now).await?;
        Ok(Workspace::new(&folders, manifest))
    }

    async fn clone_into(
        &self,
        folders: Folders,
        mut draft: Manifest,
        prepared: Option<&PreparedBase>,
        purpose: Purpose,
    ) -> Result<Workspace> {
        let repository = draft.repository.clone().ok_or(Error::NoRepository)?;
        let commit = commit_of(&draft).to_owned();
        let lent = self.bases.lend(&self.git, &repository, &commit).await?;
        std::fs::create_dir(&folders.work).at("made", &folders.work)?;
        let fill = Fill { owner: draft.user, lent: &lent, warm: purpose == Purpose::Verification };
        let warnings = checkout::make(&self.git, &repository, &commit, &folders.work, &fill).await?;
        let prepared = prepared.cloned();
        blocking("write the manifest", move || {
            let git_dir = folders.work.join(".git");
            if let Some(PreparedBase(base)) = &prepared {
                base::copy_extra(base, &folders.work)?;
                checkout::exclude(&git_dir, &base.extra.excludes)?;
                draft.prepared.clone_from(&base.extra.excludes);
            }
            checkout::write_head(&git_dir, head_of(&draft))?;
            // The branch's folders are new since the checkout was handed over.
            checkout::give_all(&git_dir.join("refs"), draft.user)?;
            draft.kind = Kind::Clone;
            draft.warnings.extend(warnings);
            manifest::write(&folders, &draft)?;
            // The manifest says from here on that the commit is borrowed.
            drop(lent);
            Ok(Workspace::new(&folders, draft))
        })
        .await
    }

    /// One at a time per repository: git's own locks do not hold when worktrees are added at once.
    async fn worktree(
        &self,
        folders: Folders,
        resolved: &Resolved,
        mut draft: Manifest,
    ) -> Result<Workspace> {
        let repository = &resolved.repository;
        let owner = repository.act_as.map_or_else(|| nix::unistd::geteuid().as_raw(), |(uid, _)| uid);
        if let Some((wanted, _)) = draft.user.filter(|(uid, _)| *uid != owner) {
            return Err(Error::WorktreeUser { owner, wanted });
        }
        let branch = draft.branch.clone().unwrap_or_default();
        let lock = self.lock_of(repository)?;
        let turn = lock.lock().await;
        // Files are written below without the person's filters; no tracking is set up in his config.
        let run =
            |operation| self.git.call(operation).git_dir(&repository.common_dir).act_as(repository.act_as);
        // `--force` only lets the record of a cut-off attempt in the same folder be replaced.
        let add = run("add a worktree").args(["worktree", "add", "--no-checkout", "--force"]);
        let full = names::check_branch(&branch)?;
        let existing = refs::read(&self.git, repository, std::slice::from_ref(&full)).await?.remove(&full);
        match existing {
            None => {
                let add = add.args(["--no-track", "-b", &branch]).arg_path(&folders.work);
                add.args([&resolved.commit]).ok().await?
            }
            Some(found) if found == resolved.commit => {
                add.arg_path(&folders.work).args([&branch]).ok().await?
            }
            found => {
                return Err(Error::RefMoved { name: full, expected: Some(resolved.commit.clone()), found });
            }
        };
        drop(turn);
        let link = folders.work.join(".git");
        let text = std::fs::read_to_string(&link).at("read", &link)?;
        let git_dir = text.trim().strip_prefix("gitdir: ").unwrap_or_default();
        let git_dir = std::fs::canonicalize(folders.work.join(git_dir)).at("reached", &link)?;
        let objects = repository.objects();
        let scratch =
            GitDir::scratch(&self.git, &repository.object_format, &[&objects], Head::At(&resolved.commit))?;
        self.git
            .call("check out the base")
            .git_dir(scratch.path())
            .work_tree(&folders.work)
            .index(&git_dir.join("index"))
            .volatile()
            .args(["read-tree", "--reset", "-u", &resolved.commit])
            .ok()
            .await?;
        let owner = draft.user.or(repository.act_as);
        blocking("write the manifest", move || {
            checkout::give_all(&folders.work, owner)?;
            checkout::give(&git_dir.join("index"), owner)?;
            draft.kind = Kind::Worktree;
            draft.warnings.push(WORKTREE_SHARES.to_owned());
            draft.worktree_git_dir = Some(git_dir);
            manifest::write(&folders, &draft)?;
            Ok(Workspace::new(&folders, draft))
        })
        .await
    }
}

async fn plain(folders: Folders, user: Option<User>) -> Result<Workspace> {
    blocking("make a workspace", move || {
        std::fs::create_dir(&folders.work).at("made", &folders.work)?;
        checkout::give(&folders.work, user)?;
        let manifest = Manifest { kind: Kind::Plain, user, ..empty_manifest() };
        manifest::write(&folders, &manifest)?;
        Ok(Workspace::new(&folders, manifest))
    })
    .await
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Finish {
    Now,
    /// The caller has more to do before the workspace is whole.
    Later,
}

/// The hot path: no process is started.
async fn lay_over(
    overlay: Overlay,
    folders: Folders,
    base: Arc<Base>,
    mut draft: Manifest,
    finish: Finish,
) -> Result<Manifest> {
    blocking("make a workspace", move || {
        let git_dir = folders.upper.join(".git");
        for folder in [&folders.work, &folders.upper, &folders.overlay_work, &git_dir] {
            std::fs::create_dir(folder).at("made", folder)?;
        }
        checkout::write_head(&git_dir, head_of(&draft))?;
        checkout::give_all(&folders.upper, draft.user)?;
        overlay.mount(&folders.layers(base.tree.clone()))?;
        draft.kind = Kind::Overlay;
        draft.base = Some(base.name.clone());
        draft.prepared.clone_from(&base.extra.excludes);
        draft.warnings.extend(base.warnings.iter().cloned());
        if finish == Finish::Now {
            manifest::write(&folders, &draft)?;
        }
        Ok(draft)
    })
    .await
}

/// What a cut-off `prepare` left is no workspace: no agent has started in it.
async fn clear(folders: &Folders) -> Result<()> {
    let there = [&folders.work, &folders.upper, &folders.overlay_work];
    if there.iter().all(|path| path.symlink_metadata().is_err()) {
        return Ok(());
    }
    let folders = folders.clone();
    blocking("clear a half-made workspace", move || remove::folders(&folders).map(|_| ())).await
}

/// What someone wrote where the workspace is seen, while it was not, would be hidden by the mount.
fn check_bare(merged: &Path) -> Result<()> {
    match std::fs::read_dir(merged).at("read", merged)?.next() {
        None => Ok(()),
        Some(entry) => {
            let name = entry.at("read", merged)?.file_name().to_string_lossy().into_owned();
            Err(Error::Covered { path: merged.to_path_buf(), name })
        }
    }
}

fn check_same(folders: &Folders, manifest: &Manifest, spec: &PrepareSpec) -> Result<()> {
    let differs = |detail: &str| {
        Err(Error::OtherWorkspace { agent_dir: folders.agent.clone(), detail: detail.to_owned() })
    };
    if manifest.kind == Kind::Plain {
        return if spec.repo.is_none() || spec.kind == Wanted::Plain {
            Ok(())
        } else {
            differs("a plain folder")
        };
    }
    let Some(resolved) = &spec.repo else { return differs("a checkout") };
    if manifest.repository.as_ref().map(|r| &r.common_dir) != Some(&resolved.repository.common_dir) {
        return differs("another repository");
    }
    if manifest.branch.as_deref() != Some(&spec.branch) {
        return differs("another branch");
    }
    if manifest.base_commit.as_deref() != Some(&resolved.commit) {
        return differs("another base commit");
    }
    Ok(())
}

fn commit_of(manifest: &Manifest) -> &str {
    manifest.base_commit.as_deref().unwrap_or_default()
}

fn head_of(manifest: &Manifest) -> Head<'_> {
    match &manifest.branch {
        Some(branch) => Head::Branch(branch, commit_of(manifest)),
        None => Head::At(commit_of(manifest)),
    }
}

fn manifest_for(repository: &Repository, commit: &str, tree: Option<&str>, user: Option<User>) -> Manifest {
    Manifest {
        repository: Some(repository.clone()),
        base_commit: Some(commit.to_owned()),
        base_tree: tree.map(str::to_owned),
        user,
        ..empty_manifest()
    }
}

fn empty_manifest() -> Manifest {
    Manifest {
        version: VERSION,
        kind: Kind::Plain,
        repository: None,
        base_commit: None,
        base_tree: None,
        branch: None,
        base: None,
        worktree_git_dir: None,
        snapshot: None,
        prepared: Vec::new(),
        user: None,
        created_at_ms: crate::clock::now().0,
        warnings: Vec::new(),
    }
}
