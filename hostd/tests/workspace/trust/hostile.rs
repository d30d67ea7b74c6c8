//! Repositories that mean harm: whatever they configure, nothing of it is run, and nothing of
//! somebody else's is read or written in their stead.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use hostd::workspace::{Obstacle, OnlyCopy, Wanted, WorkspaceError};

use crate::fixture::{Fixture, git, kinds, run_git, write};

/// Sets every trap that git knows; each leaves a file in the folder that is returned.
fn set_traps(repo: &Path, git_dir: &Path, traps: &Path) {
    std::fs::create_dir_all(traps).unwrap();
    let trap = |name: &str| {
        let path = traps.join(format!("{name}.sh"));
        std::fs::write(&path, format!("#!/bin/sh\ntouch {}/pwned-{name}\ncat\n", traps.display())).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path.display().to_string()
    };
    let hooks = traps.join("hooks");
    std::fs::create_dir_all(&hooks).unwrap();
    for hook in [
        "post-checkout",
        "pre-commit",
        "post-commit",
        "reference-transaction",
        "post-index-change",
        "update",
        "pre-receive",
        "post-rewrite",
        "prepare-commit-msg",
    ] {
        for folder in [&hooks, &git_dir.join("hooks")] {
            std::fs::create_dir_all(folder).unwrap();
            std::fs::copy(trap(&format!("hook-{hook}")), folder.join(hook)).unwrap();
        }
    }
    let included = traps.join("included");
    std::fs::write(&included, format!("[diff]\n\texternal = {}\n", trap("included"))).unwrap();
    let settings = [
        ("core.fsmonitor", trap("fsmonitor")),
        ("core.hooksPath", hooks.display().to_string()),
        ("core.sshCommand", trap("ssh")),
        ("core.pager", trap("pager")),
        ("core.editor", trap("editor")),
        ("core.alternateRefsCommand", trap("alternate-refs")),
        ("diff.external", trap("external")),
        ("diff.x.textconv", trap("textconv")),
        ("diff.x.command", trap("diff-command")),
        ("filter.x.clean", trap("clean")),
        ("filter.x.smudge", trap("smudge")),
        ("filter.x.process", trap("process")),
        ("filter.x.required", "true".to_owned()),
        ("merge.x.driver", trap("merge")),
        ("gpg.program", trap("gpg")),
        ("commit.gpgSign", "true".to_owned()),
        ("credential.helper", trap("credential")),
        ("uploadpack.packObjectsHook", trap("pack")),
        ("remote.origin.uploadpack", trap("uploadpack")),
        ("include.path", included.display().to_string()),
    ];
    for (name, value) in settings {
        git(repo, &["config", name, &value]);
    }
    // The test's own git calls above may have sprung some.
    for pwned in sprung(traps) {
        std::fs::remove_file(traps.join(pwned)).unwrap();
    }
}

fn sprung(traps: &Path) -> Vec<String> {
    let names = std::fs::read_dir(traps).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("pwned")).collect()
}

#[tokio::test]
async fn nothing_that_a_persons_repository_configures_is_run() {
    for kind in [kinds(), vec![Wanted::Worktree]].concat() {
        let fixture = Fixture::new().await;
        fixture.write(".gitattributes", "* filter=x diff=x merge=x\n");
        fixture.git(&["add", "-A"]);
        fixture.git(&["commit", "-qm", "attributes"]);
        let traps = fixture.folder().join("traps");
        set_traps(&fixture.repo, &fixture.repo.join(".git"), &traps);
        fixture.write("README", "touched\n");
        let resolved = fixture.resolved().await;
        assert_eq!(resolved.dirty, Some(true));
        let (agent, workspace) = fixture.prepare("a", kind).await;
        assert!(kind == Wanted::Worktree || workspace.warnings.iter().any(|w| w.contains("filter `x`")));
        write(&workspace.path, "README", "changed\n");
        write(&workspace.path, "new.txt", "new\n");
        assert_eq!(sprung(&traps), [""; 0], "{kind:?}: prepare");
        let collected = fixture.workspaces.collect(&agent, &fixture.wish("a")).await.unwrap();
        assert_eq!(sprung(&traps), [""; 0], "{kind:?}: collect");
        let saved = collected.uncommitted.unwrap().commit;
        let repository = &resolved.repository;
        let patch = fixture.workspaces.diff(repository, &resolved.commit, &saved, 1 << 20).await.unwrap();
        assert!(String::from_utf8_lossy(&patch.bytes).contains("+changed"));
        fixture.workspaces.diff_stat(repository, &resolved.commit, &saved).await.unwrap();
        fixture.workspaces.land(repository, "landed", &saved, None).await.unwrap();
        let dir = fixture.agent_dir("v");
        fixture.workspaces.fresh_checkout(&dir, &resolved, &saved, None, None).await.unwrap();
        fixture.workspaces.holds_only_copy(&agent, None).await;
        fixture.workspaces.remove(&agent).await.unwrap();
        assert_eq!(sprung(&traps), [""; 0], "{kind:?}");
    }
}

#[tokio::test]
async fn nothing_that_an_agent_configures_in_its_workspace_is_run() {
    for kind in kinds() {
        let fixture = Fixture::new().await;
        let (agent, workspace) = fixture.prepare("a", kind).await;
        let top = &workspace.path;
        write(top, ".gitattributes", "* filter=x diff=x\n");
        // A repository within: git would look into it with its own configuration.
        std::fs::create_dir(top.join("inner")).unwrap();
        git(&top.join("inner"), &["init", "-q"]);
        git(&top.join("inner"), &["commit", "-q", "--allow-empty", "-m", "inner"]);
        let traps = fixture.folder().join("traps");
        run_git(top, &["add", "inner"]);
        git(top, &["commit", "-qm", "gitlink"]);
        write(top, "inner/dirty.txt", "dirty\n");
        write(top, "other/.git/HEAD", "ref: refs/heads/x\n");
        set_traps(&top.join("inner"), &top.join("inner/.git"), &traps);
        set_traps(top, &top.join(".git"), &traps);
        write(top, "README", "changed\n");
        let copy = fixture.workspaces.holds_only_copy(&agent, None).await;
        assert!(matches!(copy, OnlyCopy::Yes { .. }), "{copy:?}");
        let collected = fixture.workspaces.collect(&agent, &fixture.wish("a")).await.unwrap();
        assert!(collected.uncommitted.is_some());
        fixture.workspaces.remove(&agent).await.unwrap();
        assert_eq!(sprung(&traps), [""; 0], "{kind:?}");
    }
}

async fn is_tampered(fixture: &Fixture, agent: &Path) -> String {
    let copy = fixture.workspaces.holds_only_copy(agent, None).await;
    assert!(matches!(copy, OnlyCopy::Unknown(_)), "a doubt never allows a removal: {copy:?}");
    match fixture.workspaces.collect(agent, &fixture.wish("a")).await {
        Err(WorkspaceError::WorkspaceTampered { detail, .. }) => detail,
        other => panic!("not seen as tampered with: {other:?}"),
    }
}

#[tokio::test]
async fn a_git_folder_that_is_gone_or_stands_for_another_is_refused() {
    for kind in kinds() {
        let fixture = Fixture::new().await;
        // The state lies inside another repository, which must not be taken for the agent's.
        git(fixture.folder(), &["init", "-q", "-b", "parent"]);
        git(fixture.folder(), &["commit", "-q", "--allow-empty", "-m", "parent"]);
        let parent = git(fixture.folder(), &["rev-parse", "HEAD"]);
        let (agent, workspace) = fixture.prepare("a", kind).await;
        let dot_git = workspace.path.join(".git");
        let aside: PathBuf = workspace.path.join("aside");
        std::fs::rename(&dot_git, &aside).unwrap();
        write(&workspace.path, "README", "changed\n");
        assert!(is_tampered(&fixture, &agent).await.contains("gone"));
        symlink(fixture.repo.join(".git"), &dot_git).unwrap();
        assert!(is_tampered(&fixture, &agent).await.contains("a link"));
        std::fs::remove_file(&dot_git).unwrap();
        std::fs::write(&dot_git, format!("gitdir: {}\n", fixture.repo.join(".git").display())).unwrap();
        assert!(is_tampered(&fixture, &agent).await.contains("a file"));
        std::fs::remove_file(&dot_git).unwrap();
        std::fs::rename(&aside, &dot_git).unwrap();
        assert_eq!(git(fixture.folder(), &["rev-parse", "HEAD"]), parent);
        assert_eq!(fixture.git(&["status", "--porcelain"]), "");

        let alternates = dot_git.join("objects/info/alternates");
        let lent = std::fs::read(&alternates).unwrap();
        std::fs::write(&alternates, "/srv/secret/.git/objects\n").unwrap();
        assert!(is_tampered(&fixture, &agent).await.contains("alternates"));
        std::fs::write(&alternates, lent).unwrap();
        symlink("/etc", dot_git.join("objects/ab")).unwrap();
        assert!(is_tampered(&fixture, &agent).await.contains("not a plain file"));
        std::fs::remove_file(dot_git.join("objects/ab")).unwrap();
        std::fs::write(dot_git.join("commondir"), fixture.repo.join(".git").display().to_string()).unwrap();
        assert!(is_tampered(&fixture, &agent).await.contains("commondir"));
        std::fs::remove_file(dot_git.join("commondir")).unwrap();
        std::fs::write(dot_git.join("HEAD"), "ref: ../../../../etc/passwd\n").unwrap();
        assert!(is_tampered(&fixture, &agent).await.contains("no ref name"));
        std::fs::remove_file(dot_git.join("HEAD")).unwrap();
        symlink("/etc/passwd", dot_git.join("HEAD")).unwrap();
        assert!(is_tampered(&fixture, &agent).await.contains("HEAD"));
        // Nothing was given a ref.
        assert_eq!(fixture.git(&["for-each-ref", "refs/phalanx/run"]), "");
    }
}

#[tokio::test]
async fn a_workspace_replaced_by_a_link_leads_nowhere() {
    let fixture = Fixture::new().await;
    let (agent, workspace) = fixture.prepare("a", Wanted::Clone).await;
    let (_, other) = fixture.prepare("b", Wanted::Clone).await;
    std::fs::rename(&workspace.path, fixture.folder().join("moved")).unwrap();
    symlink(&other.path, &workspace.path).unwrap();
    is_tampered(&fixture, &agent).await;
    fixture.workspaces.remove(&agent).await.unwrap();
    assert!(other.path.join("README").exists());
}

#[tokio::test]
async fn objects_that_would_harm_a_checkout_are_not_brought_home() {
    let fixture = Fixture::new().await;
    let (agent, workspace) = fixture.prepare("a", Wanted::Clone).await;
    let top = &workspace.path;
    // A tree with an entry `.git`: `mktree` does not look at names.
    let blob = git(top, &["hash-object", "-w", "README"]);
    let tree = fixture.folder().join("tree");
    std::fs::write(&tree, format!("100644 blob {blob}\t.git\n")).unwrap();
    let made = std::process::Command::new("git")
        .args(["mktree"])
        .stdin(std::fs::File::open(&tree).unwrap())
        .current_dir(top)
        .output()
        .unwrap();
    let tree = String::from_utf8(made.stdout).unwrap();
    let commit = git(top, &["commit-tree", tree.trim(), "-p", "HEAD", "-m", "harm"]);
    git(top, &["update-ref", "HEAD", &commit]);
    let refused = fixture.workspaces.collect(&agent, &fixture.wish("a")).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.obstacle(), Obstacle::Content, "{refused:?}");
    assert!(refused.to_string().contains("hasDotgit"), "{refused}");
    assert_eq!(fixture.git(&["for-each-ref", "refs/phalanx/run"]), "");
}
