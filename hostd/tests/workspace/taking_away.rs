//! Removal: all of it, only it, and the truth about what is left.

use std::os::unix::fs::{PermissionsExt, symlink};

use hostd::workspace::{OnlyCopy, Options, PrepareSpec, Wanted, WorkspaceError, Workspaces};

use super::fixture::{Fixture, can_be_root, fingerprint, git, kinds, write};

#[tokio::test]
async fn nothing_is_left_and_no_link_is_followed() {
    for kind in kinds() {
        let fixture = Fixture::new().await;
        let (agent, workspace) = fixture.prepare("a", kind).await;
        let top = &workspace.path;
        let precious = fixture.folder().join("precious");
        write(&precious, "file", "precious");
        symlink(&precious, top.join("link")).unwrap();
        symlink("/", top.join("src/root")).unwrap();
        write(top, "closed/file", "");
        std::fs::set_permissions(top.join("closed"), std::fs::Permissions::from_mode(0o000)).unwrap();
        // Deeper than descriptors or a path may go.
        let mut deep = std::fs::File::open(top).unwrap().into();
        for _ in 0..1500 {
            use nix::fcntl::{OFlag, openat};
            use nix::sys::stat::{Mode, mkdirat};
            mkdirat(&deep, "deeper", Mode::S_IRWXU).unwrap();
            let next: std::os::fd::OwnedFd = openat(&deep, "deeper", OFlag::O_RDONLY, Mode::empty()).unwrap();
            deep = next;
        }
        drop(deep);
        let removed = fixture.workspaces.remove(&agent).await.unwrap();
        assert!(!removed.unmounted_lazily);
        assert_eq!(std::fs::read_dir(&agent).unwrap().count(), 0);
        assert!(precious.join("file").exists());
        fixture.workspaces.remove(&agent).await.unwrap();
        // The name can be used again at once, and the base was not touched.
        let (_, again) = fixture.prepare("a", kind).await;
        assert_eq!(git(&again.path, &["status", "--porcelain"]), "");
    }
}

#[tokio::test]
async fn a_file_that_cannot_go_is_named() {
    if !can_be_root("a_file_that_cannot_go_is_named") {
        return;
    }
    let chattr = |flag: &str, path: &std::path::Path| {
        std::process::Command::new("chattr").arg(flag).arg(path).status().is_ok_and(|status| status.success())
    };
    for kind in kinds() {
        let fixture = Fixture::new().await;
        let (agent, workspace) = fixture.prepare("a", kind).await;
        write(&workspace.path, "src/stays.txt", "");
        let real = if kind == Wanted::Overlay { agent.join("upper") } else { workspace.path.clone() };
        let real = real.join("src/stays.txt");
        if !chattr("+i", &real) {
            assert!(std::env::var_os("PHALANX_REQUIRE_ROOT_TESTS").is_none(), "chattr +i failed");
            println!("skipped: this file system has no immutable flag");
            return;
        }
        let refused = fixture.workspaces.remove(&agent).await;
        chattr("-i", &real);
        match refused {
            Err(WorkspaceError::Leftovers { left, .. }) => {
                assert_eq!(left.len(), 1, "{left:?}");
                assert!(left[0].contains("src/stays.txt"), "{left:?}");
            }
            other => panic!("{other:?}"),
        }
        assert!(agent.join("workspace.json").exists(), "what is left still has its record");
        fixture.workspaces.remove(&agent).await.unwrap();
    }
}

#[tokio::test]
async fn a_mount_inside_is_unmounted_and_its_files_live() {
    if !can_be_root("a_mount_inside_is_unmounted_and_its_files_live") {
        return;
    }
    use nix::mount::{MsFlags, mount};
    for kind in kinds() {
        let fixture = Fixture::new().await;
        let (agent, workspace) = fixture.prepare("a", kind).await;
        let precious = fixture.folder().join("precious");
        write(&precious, "file", "precious");
        let point = workspace.path.join("bound here");
        std::fs::create_dir(&point).unwrap();
        mount(Some(&precious), &point, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
        fixture.workspaces.remove(&agent).await.unwrap();
        assert!(!workspace.path.exists());
        assert!(precious.join("file").exists());
    }
}

#[tokio::test]
async fn a_mount_in_use_goes_lazily_and_that_is_said() {
    if !can_be_root("a_mount_in_use_goes_lazily_and_that_is_said") {
        return;
    }
    let fixture = Fixture::new().await;
    let (agent, workspace) = fixture.prepare("a", Wanted::Overlay).await;
    let mut user =
        std::process::Command::new("sleep").arg("60").current_dir(&workspace.path).spawn().unwrap();
    let removed = fixture.workspaces.remove(&agent).await;
    user.kill().unwrap();
    user.wait().unwrap();
    assert!(removed.unwrap().unmounted_lazily);
    assert!(!workspace.path.exists());
}

#[tokio::test]
async fn a_base_is_kept_while_a_workspace_lies_on_it() {
    if !can_be_root("a_base_is_kept_while_a_workspace_lies_on_it") {
        return;
    }
    let fixture = Fixture::new().await;
    let (agent, workspace) = fixture.prepare("a", Wanted::Overlay).await;
    let base = fixture.head();
    assert_eq!(fixture.workspaces.unused_bases().unwrap(), []);
    fixture.workspaces.remove(&agent).await.unwrap();
    let unused = fixture.workspaces.unused_bases().unwrap();
    assert_eq!(unused.len(), 1);
    assert_eq!(unused[0].commit.as_deref(), Some(base.as_str()));
    // Used again between the look and the removal.
    fixture.prepare("b", Wanted::Overlay).await;
    let refused = fixture.workspaces.discard_base(&unused[0]).await;
    assert!(matches!(refused, Err(WorkspaceError::BaseInUse { .. })), "{refused:?}");
    fixture.workspaces.remove(&fixture.agent_dir("b")).await.unwrap();
    let name = format!("refs/phalanx/base/{base}");
    assert_eq!(fixture.git(&["for-each-ref", "--format=%(refname)", "refs/phalanx"]), name);
    fixture.workspaces.discard_base(&unused[0]).await.unwrap();
    assert_eq!(fixture.git(&["for-each-ref", "refs/phalanx"]), "");
    assert!(!fixture.state().join("bases").join(workspace.manifest.base.unwrap()).exists());
    // And it is made again when wanted.
    fixture.prepare("c", Wanted::Overlay).await;
    // A base that was cut off in the making goes at the next start.
    let rubble = unused[0].path.with_file_name(".new-0123");
    std::fs::create_dir(&rubble).unwrap();
    Workspaces::new(&fixture.state(), Options::default()).await.unwrap();
    assert!(!rubble.exists());
}

#[tokio::test]
async fn an_overlay_comes_back_after_a_reboot_with_its_work() {
    if !can_be_root("an_overlay_comes_back_after_a_reboot_with_its_work") {
        return;
    }
    let fixture = Fixture::new().await;
    let (agent, workspace) = fixture.prepare("a", Wanted::Overlay).await;
    write(&workspace.path, "kept.txt", "kept\n");
    nix::mount::umount(&workspace.path).unwrap();
    assert!(!fixture.workspaces.is_mounted(&agent).unwrap());
    // Another hostd; a power cut has emptied a file of the base.
    let base = fixture.state().join("bases").join(workspace.manifest.base.unwrap()).join("tree/README");
    std::fs::write(base, "").unwrap();
    let next = Workspaces::new(&fixture.state(), Options::default()).await.unwrap();
    next.remount(&agent).await.unwrap();
    assert!(next.is_mounted(&agent).unwrap());
    assert_eq!(std::fs::read_to_string(workspace.path.join("kept.txt")).unwrap(), "kept\n");
    assert_eq!(std::fs::read_to_string(workspace.path.join("README")).unwrap(), "read me\n");
    assert_eq!(git(&workspace.path, &["status", "--porcelain"]), "?? kept.txt");
}

#[tokio::test]
async fn a_workspace_in_use_stays_mounted_and_what_was_written_in_its_place_is_not_hidden() {
    if !can_be_root("a_workspace_in_use_stays_mounted_and_what_was_written_in_its_place_is_not_hidden") {
        return;
    }
    let fixture = Fixture::new().await;
    let (agent, workspace) = fixture.prepare("a", Wanted::Overlay).await;
    write(&workspace.path, "kept.txt", "kept\n");
    let open = std::fs::File::open(workspace.path.join("kept.txt")).unwrap();
    assert!(!fixture.workspaces.unmount(&agent).await.unwrap(), "someone reads a file of it");
    assert!(fixture.workspaces.is_mounted(&agent).unwrap());
    drop(open);
    assert!(fixture.workspaces.unmount(&agent).await.unwrap());
    assert!(fixture.workspaces.unmount(&agent).await.unwrap(), "twice is once");
    assert!(!fixture.workspaces.is_mounted(&agent).unwrap());

    write(&workspace.path, "late.txt", "late\n");
    let refused = fixture.workspaces.remount(&agent).await;
    assert!(matches!(refused, Err(WorkspaceError::Covered { .. })), "{refused:?}");
    let copy = fixture.workspaces.holds_only_copy(&agent, None).await;
    assert!(matches!(copy, OnlyCopy::Unknown(_)), "{copy:?}");
    std::fs::rename(workspace.path.join("late.txt"), fixture.state().join("late.txt")).unwrap();
    // As many as may ask at once: one mount.
    let all = futures::future::join_all((0..8).map(|_| fixture.workspaces.remount(&agent))).await;
    assert!(all.iter().all(Result::is_ok), "{all:?}");
    assert_eq!(std::fs::read_to_string(workspace.path.join("kept.txt")).unwrap(), "kept\n");
    nix::mount::umount(&workspace.path).unwrap();
    assert!(!fixture.workspaces.is_mounted(&agent).unwrap(), "it was mounted once");
}

/// Who looks before an end says what would be said after it, and leaves no trace.
#[tokio::test]
async fn what_would_be_lost_is_known_before_the_end() {
    type Change = fn(&std::path::Path);
    let states: [(&str, Change); 10] = [
        ("untouched", |_| ()),
        ("changed", |top| write(top, "README", "changed\n")),
        ("committed", |top| {
            write(top, "README", "changed\n");
            git(top, &["commit", "-qam", "work"]);
            write(top, "new.txt", "new\n");
        }),
        ("stashed", |top| {
            write(top, "README", "changed\n");
            git(top, &["stash", "-q"]);
        }),
        ("on another branch", |top| {
            git(top, &["switch", "-q", "-c", "other"]);
            git(top, &["commit", "-q", "--allow-empty", "-m", "there"]);
            git(top, &["switch", "-q", "phalanx/run-1/a"]);
        }),
        ("a repository inside", |top| {
            std::fs::create_dir(top.join("inner")).unwrap();
            git(&top.join("inner"), &["init", "-q"]);
            write(top, "inner/file", "");
        }),
        ("a repository in the place of a file", |top| {
            std::fs::remove_file(top.join("README")).unwrap();
            git(top, &["init", "-q", "README"]);
            write(top, "README/file", "");
            git(&top.join("README"), &["add", "-A"]);
            git(&top.join("README"), &["commit", "-qm", "inside"]);
        }),
        ("a repository in a folder of the base", |top| {
            git(&top.join("src"), &["init", "-q"]);
            git(&top.join("src"), &["commit", "-q", "--allow-empty", "-m", "inside"]);
        }),
        ("a worktree of its own elsewhere", |top| {
            let elsewhere = top.parent().unwrap().join("elsewhere");
            git(top, &["worktree", "add", "-q", "--detach", elsewhere.to_str().unwrap()]);
            git(&elsewhere, &["commit", "-q", "--allow-empty", "-m", "there"]);
        }),
        ("a folder turned into a link", |top| {
            std::fs::rename(top.join("src"), top.join("moved")).unwrap();
            symlink("moved", top.join("src")).unwrap();
        }),
    ];
    for kind in kinds() {
        for (name, change) in &states {
            let fixture = Fixture::new().await;
            let (agent, workspace) = fixture.prepare("a", kind).await;
            let one = std::fs::read_to_string(workspace.path.join("src/one.txt")).unwrap();
            let one = one.trim_end();
            change(&workspace.path);
            let before = fingerprint(&fixture.repo, &[]);
            let told = fixture.workspaces.would_lose(&agent, &[]).await;
            assert!(before == fingerprint(&fixture.repo, &[]), "{kind:?}, {name}: the look left something");
            let collected = fixture.workspaces.collect(&agent, &fixture.wish("a")).await.unwrap();
            let after = fixture.workspaces.holds_only_copy(&agent, Some(&collected)).await;
            assert_eq!(told, after, "{kind:?}, {name}");
            let is_safe =
                matches!(*name, "untouched" | "changed" | "committed" | "a folder turned into a link");
            // The branches and stashes of a worktree are the repository's own.
            let is_own = matches!(*name, "stashed" | "on another branch" | "a worktree of its own elsewhere");
            let is_shared = kind == Wanted::Worktree && is_own;
            if *name == "a folder turned into a link" {
                let saved = &collected.uncommitted.as_ref().unwrap().commit;
                assert_eq!(fixture.git(&["show", &format!("{saved}:src")]), "moved", "{kind:?}");
                assert_eq!(fixture.git(&["show", &format!("{saved}:moved/one.txt")]), one, "{kind:?}");
            }
            assert_eq!(told == OnlyCopy::No, is_safe || is_shared, "{kind:?}, {name}: {told:?}");
        }
    }
}

#[tokio::test]
async fn files_without_a_repository_are_lost_but_for_declared_outputs() {
    let fixture = Fixture::new().await;
    let agent = fixture.agent_dir("a");
    let spec = PrepareSpec {
        repo: None,
        branch: "phalanx/run-1/a".to_owned(),
        user: None,
        kind: Wanted::Auto,
        prepared: None,
    };
    let workspace = fixture.workspaces.prepare(&agent, &spec).await.unwrap();
    write(&workspace.path, "out/report.txt", "");
    let would_lose = async |patterns: &[&str]| {
        let patterns: Vec<String> = patterns.iter().map(|&pattern| pattern.to_owned()).collect();
        fixture.workspaces.would_lose(&agent, &patterns).await
    };
    assert!(matches!(would_lose(&[]).await, OnlyCopy::Yes { .. }));
    assert_eq!(would_lose(&["out/*.txt"]).await, OnlyCopy::No);
    write(&workspace.path, "notes", "");
    let OnlyCopy::Yes { what } = would_lose(&["out/*.txt", "../outside"]).await else { panic!() };
    assert_eq!(what, ["1 file(s) in a folder without a repository"]);
}

#[tokio::test]
async fn the_branch_of_a_worktree_goes_with_it_unless_it_has_work() {
    let fixture = Fixture::new().await;
    let branches = || fixture.git(&["branch", "--list", "phalanx/*", "--format=%(refname:short)"]);
    let (idle, workspace) = fixture.prepare("idle", Wanted::Worktree).await;
    assert!(workspace.warnings.iter().any(|warning| warning.contains("stash")), "{:?}", workspace.warnings);
    let (busy, workspace) = fixture.prepare("busy", Wanted::Worktree).await;
    git(&workspace.path, &["commit", "-q", "--allow-empty", "-m", "work"]);
    assert_eq!(branches(), "phalanx/run-1/busy\nphalanx/run-1/idle");
    for agent in [idle, busy] {
        fixture.workspaces.remove(&agent).await.unwrap();
    }
    assert_eq!(branches(), "phalanx/run-1/busy");
}
