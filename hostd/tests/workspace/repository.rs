//! Finding repositories and bases, and writing refs: what is taken, what is refused and why.

use std::os::unix::fs::symlink;

use hostd::workspace::{Landed, Wanted, WorkspaceError};

use super::fixture::{Fixture, can_be_root, git, kinds, run_git, write};

#[tokio::test]
async fn a_folder_of_a_repository_or_a_link_to_it_is_the_repository() {
    let fixture = Fixture::new().await;
    let link = fixture.folder().join("link");
    symlink(&fixture.repo, &link).unwrap();
    let main = fixture.workspaces.locate(&fixture.repo).await.unwrap();
    for path in [fixture.repo.join("src"), link.join("src"), link] {
        assert_eq!(fixture.workspaces.locate(&path).await.unwrap(), main);
    }
    // A linked worktree has a HEAD of its own and the same common folder.
    let linked = fixture.folder().join("linked");
    fixture.git(&["worktree", "add", "-q", "-b", "side", linked.to_str().unwrap()]);
    git(&linked, &["commit", "-q", "--allow-empty", "-m", "side"]);
    let side = fixture.workspaces.resolve(&linked, None).await.unwrap();
    assert_eq!(side.repository.common_dir, main.common_dir);
    assert_eq!(side.head_branch.as_deref(), Some("side"));
    assert_ne!(side.commit, fixture.head());
}

#[tokio::test]
async fn a_base_is_resolved_to_its_commit_of_this_moment() {
    let fixture = Fixture::new().await;
    let first = fixture.head();
    fixture.git(&["update-ref", "refs/remotes/origin/main", &first]);
    fixture.git(&["tag", "-a", "v1", "-m", "annotated"]);
    fixture.git(&["commit", "-q", "--allow-empty", "-m", "second"]);
    let second = fixture.head();
    let resolve =
        async |base: &str| fixture.workspaces.resolve(&fixture.repo, Some(base)).await.unwrap().commit;
    for base in ["origin/main", "v1", "main~1", &first, &first[..12]] {
        assert_eq!(resolve(base).await, first, "{base}");
    }
    assert_eq!(resolve("main").await, second);
    fixture.git(&["update-ref", "refs/remotes/origin/main", &second]);
    assert_eq!(resolve("origin/main").await, second);
    let resolved = fixture.resolved().await;
    assert_eq!(resolved.tree, fixture.git(&["rev-parse", "HEAD^{tree}"]));
    assert_eq!((resolved.head_branch.as_deref(), resolved.dirty), (Some("main"), Some(false)));
}

#[tokio::test]
async fn a_name_that_is_a_branch_and_a_tag_means_the_branch() {
    let fixture = Fixture::new().await;
    let first = fixture.head();
    fixture.git(&["tag", "release"]);
    fixture.git(&["commit", "-q", "--allow-empty", "-m", "second"]);
    let second = fixture.head();
    fixture.git(&["branch", "release"]);
    let resolve =
        async |base: &str| fixture.workspaces.resolve(&fixture.repo, Some(base)).await.unwrap().commit;
    for base in ["release", "refs/heads/release", "heads/release"] {
        assert_eq!(resolve(base).await, second, "{base}");
    }
    assert_eq!(resolve("release~1").await, first);
    for tag in ["refs/tags/release", "tags/release"] {
        assert_eq!(resolve(tag).await, first, "{tag}");
    }
    let into = fixture.workspaces.merge_target(&fixture.repo, Some("release"), &[]).await.unwrap();
    assert_eq!((into.branch.as_str(), into.tip.as_ref()), ("release", Some(&second)));
}

#[tokio::test]
async fn changes_that_no_checkout_will_have_are_told() {
    let fixture = Fixture::new().await;
    fixture.write("forgotten.txt", "");
    let index = std::fs::read(fixture.repo.join(".git/index")).unwrap();
    assert_eq!(fixture.resolved().await.dirty, Some(true));
    assert_eq!(std::fs::read(fixture.repo.join(".git/index")).unwrap(), index);
}

#[tokio::test]
async fn what_cannot_be_a_base_is_refused_with_its_reason() {
    let fixture = Fixture::new().await;
    let resolve = async |path: &std::path::Path, base: Option<&str>| {
        fixture.workspaces.resolve(path, base).await.unwrap_err()
    };
    let folder = fixture.folder();
    assert!(matches!(resolve(&folder.join("none"), None).await, WorkspaceError::PathMissing { .. }));
    let file = fixture.repo.join("README");
    assert!(matches!(resolve(&file, None).await, WorkspaceError::NotAFolder { .. }));
    assert!(matches!(resolve("repo".as_ref(), None).await, WorkspaceError::RelativePath { .. }));
    assert!(matches!(resolve(folder, None).await, WorkspaceError::NotARepository { .. }));
    for unknown in ["nope", "HEAD~99", "main:README", "0000000", "a b", "main^{tree}"] {
        let refused = resolve(&fixture.repo, Some(unknown)).await;
        assert!(matches!(refused, WorkspaceError::UnknownBase { .. }), "{unknown}: {refused:?}");
    }
    for bad in ["", "--all", "-n", "a\nb", "--output=/tmp/x"] {
        let refused = resolve(&fixture.repo, Some(bad)).await;
        assert!(matches!(refused, WorkspaceError::BadName { .. }), "{bad}: {refused:?}");
    }
    let empty = folder.join("empty");
    std::fs::create_dir(&empty).unwrap();
    git(&empty, &["init", "-q"]);
    for base in [None, Some("main")] {
        let refused = resolve(&empty, base).await;
        assert!(matches!(refused, WorkspaceError::EmptyRepository { .. }), "{refused:?}");
        assert!(refused.to_string().contains("commit"), "{refused}");
    }
    // Its repository goes away while we know it.
    std::fs::rename(fixture.repo.join(".git"), fixture.folder().join("gone")).unwrap();
    assert!(matches!(resolve(&fixture.repo, None).await, WorkspaceError::NotARepository { .. }));
}

#[tokio::test]
async fn a_bare_repository_serves_as_well() {
    for kind in kinds() {
        let fixture = Fixture::new().await;
        let bare = fixture.folder().join("bare.git");
        git(fixture.folder(), &["clone", "-q", "--bare", "repo", "bare.git"]);
        let resolved = fixture.workspaces.resolve(&bare, None).await.unwrap();
        assert!(resolved.repository.bare);
        let agent = fixture.agent_dir("a");
        let spec = hostd::workspace::PrepareSpec {
            repo: Some(resolved),
            branch: "phalanx/r/t".to_owned(),
            user: None,
            kind,
            prepared: None,
        };
        let workspace = fixture.workspaces.prepare(&agent, &spec).await.unwrap();
        write(&workspace.path, "README", "changed\n");
        git(&workspace.path, &["commit", "-qam", "work"]);
        let collected = fixture.workspaces.collect(&agent, &fixture.wish("a")).await.unwrap();
        assert_eq!(git(&bare, &["rev-parse", "refs/phalanx/run/a/1"]), collected.head_commit.unwrap());
    }
}

#[tokio::test]
async fn a_shallow_history_stays_readable_and_sha256_works() {
    for kind in kinds() {
        let fixture = Fixture::new().await;
        fixture.git(&["commit", "-q", "--allow-empty", "-m", "second"]);
        let origin = format!("file://{}", fixture.repo.display());
        git(fixture.folder(), &["clone", "-q", "--depth=1", &origin, "shallow"]);
        git(fixture.folder(), &["init", "-q", "--object-format=sha256", "wide"]);
        let wide = fixture.folder().join("wide");
        write(&wide, "README", "wide\n");
        git(&wide, &["add", "-A"]);
        git(&wide, &["commit", "-qm", "first"]);
        for name in ["shallow", "wide"] {
            let repo = fixture.folder().join(name);
            let resolved = fixture.workspaces.resolve(&repo, None).await.unwrap();
            let agent = fixture.agent_dir(name);
            let branch = "phalanx/r/t".to_owned();
            let spec = hostd::workspace::PrepareSpec {
                repo: Some(resolved),
                branch,
                user: None,
                kind,
                prepared: None,
            };
            let workspace = fixture.workspaces.prepare(&agent, &spec).await.unwrap();
            assert_eq!(git(&workspace.path, &["log", "--oneline"]).lines().count(), 1);
            write(&workspace.path, "README", "changed\n");
            git(&workspace.path, &["commit", "-qam", "work"]);
            let collected = fixture.workspaces.collect(&agent, &fixture.wish(name)).await.unwrap();
            assert_eq!(collected.diff.files, 1);
            git(&repo, &["fsck"]);
        }
    }
}

#[tokio::test]
async fn gc_in_the_persons_repository_takes_nothing_that_an_agent_needs() {
    for kind in kinds() {
        let fixture = Fixture::new().await;
        fixture.write("README", "only on a branch that goes\n");
        fixture.git(&["commit", "-qam", "goes"]);
        let (agent, workspace) = fixture.prepare("a", kind).await;
        write(&workspace.path, "new.txt", "new\n");
        let collected = fixture.workspaces.collect(&agent, &fixture.wish("a")).await.unwrap();
        fixture.git(&["reset", "-q", "--hard", "HEAD~1"]);
        fixture.git(&["reflog", "expire", "--expire=now", "--all"]);
        fixture.git(&["gc", "-q", "--prune=now"]);
        git(&workspace.path, &["fsck", "--connectivity-only"]);
        git(&workspace.path, &["checkout", "-q", "HEAD", "--", "."]);
        fixture.git(&["cat-file", "-e", &collected.uncommitted.unwrap().commit]);
    }
}

#[tokio::test]
async fn submodules_and_lfs_files_are_told_and_do_not_stop_a_checkout() {
    for kind in kinds() {
        let fixture = Fixture::new().await;
        let url = fixture.repo.to_str().unwrap();
        fixture.git(&["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", url, "sub"]);
        fixture.write("deep/.gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n");
        fixture.write("deep/big.bin", "version https://git-lfs.github.com/spec/v1\n");
        fixture.git(&["add", "-A"]);
        fixture.git(&["commit", "-qm", "sub and lfs"]);
        let (agent, workspace) = fixture.prepare("a", kind).await;
        assert_eq!(workspace.warnings.len(), 2, "{:?}", workspace.warnings);
        assert_eq!(git(&workspace.path, &["status", "--porcelain"]), "");
        write(&workspace.path, "README", "x");
        let collected = fixture.workspaces.collect(&agent, &fixture.wish("a")).await.unwrap();
        assert_eq!(collected.uncommitted.unwrap().files, 1);
    }
}

#[tokio::test]
async fn a_branch_lands_by_compare_and_swap_and_never_under_a_checkout() {
    let fixture = Fixture::new().await;
    let first = fixture.head();
    fixture.git(&["commit", "-q", "--allow-empty", "-m", "second"]);
    let second = fixture.head();
    let repository = fixture.resolved().await.repository;
    let land = async |branch: &str, commit: &str, old: Option<&str>| {
        fixture.workspaces.land(&repository, branch, commit, old).await
    };
    let branch = "phalanx/run-q1/task-w2";
    assert_eq!(land(branch, &first, None).await.unwrap(), Landed::Created);
    assert_eq!(land(branch, &first, None).await.unwrap(), Landed::Already);
    assert!(matches!(land(branch, &second, None).await, Err(WorkspaceError::RefMoved { .. })));
    assert!(matches!(
        land(branch, &second, Some(&second)).await,
        Ok(Landed::Moved) | Err(WorkspaceError::RefMoved { .. })
    ));
    assert_eq!(land(branch, &second, Some(&first)).await.unwrap(), Landed::Moved);
    assert!(fixture.git(&["reflog", "show", branch]).contains("phalanx: accepted work"));
    let refused = land("main", &first, Some(&second)).await;
    assert!(matches!(refused, Err(WorkspaceError::CheckedOut { .. })), "{refused:?}");
    for bad in ["-x", "a..b", "a b", "HEAD", "../x"] {
        assert!(matches!(land(bad, &first, None).await, Err(WorkspaceError::BadName { .. })), "{bad}");
    }
    let below = format!("{branch}/x");
    assert!(matches!(land(&below, &first, None).await, Err(WorkspaceError::RefRefused { .. })));
    let missing = "1".repeat(40);
    assert!(land("missing", &missing, None).await.is_err());

    let refs = ["refs/heads/main".to_owned()];
    assert!(fixture.workspaces.drop_refs(&repository, &refs).await.is_err());
    fixture.git(&["update-ref", "refs/phalanx/r/t/1", &first]);
    let refs = ["refs/phalanx/r/t/1".to_owned(), "refs/phalanx/r/t/2".to_owned()];
    fixture.workspaces.drop_refs(&repository, &refs).await.unwrap();
    assert_eq!(fixture.git(&["for-each-ref", "refs/phalanx/r"]), "");
}

#[tokio::test]
async fn a_lock_that_a_dead_git_left_on_a_ref_of_ours_does_not_hold_it_for_ever() {
    let fixture = Fixture::new().await;
    let (agent, _) = fixture.prepare("a", Wanted::Auto).await;
    let lock = fixture.repo.join(".git/refs/phalanx/run/a/1.lock");
    std::fs::create_dir_all(lock.parent().unwrap()).unwrap();
    let file = std::fs::File::create(&lock).unwrap();
    let held = fixture.workspaces.collect(&agent, &fixture.wish("a")).await;
    assert!(matches!(held, Err(WorkspaceError::RefRefused { .. })), "{held:?}");
    file.set_modified(std::time::SystemTime::now() - std::time::Duration::from_secs(3600)).unwrap();
    fixture.workspaces.collect(&agent, &fixture.wish("a")).await.unwrap();
    assert_eq!(fixture.git(&["rev-parse", "refs/phalanx/run/a/1"]), fixture.head());
}

#[tokio::test]
async fn a_long_difference_is_cut_and_said_to_be() {
    let fixture = Fixture::new().await;
    let first = fixture.head();
    fixture.write("long.txt", &"line\n".repeat(100_000));
    fixture.git(&["add", "-A"]);
    fixture.git(&["commit", "-qm", "long"]);
    let repository = fixture.resolved().await.repository;
    let cut = fixture.workspaces.diff(&repository, &first, &fixture.head(), 1000).await.unwrap();
    assert_eq!((cut.bytes.len(), cut.truncated), (1000, true));
    let stat = fixture.workspaces.diff_stat(&repository, &first, &fixture.head()).await.unwrap();
    assert_eq!((stat.files, stat.insertions, stat.deletions), (1, 100_000, 0));
}

#[tokio::test]
async fn what_root_writes_in_a_persons_repository_belongs_to_him() {
    if !can_be_root("what_root_writes_in_a_persons_repository_belongs_to_him") {
        return;
    }
    use std::os::unix::fs::MetadataExt;
    let fixture = Fixture::new().await;
    let owned = std::process::Command::new("chown").args(["-R", "23456:23456"]).arg(&fixture.repo).status();
    assert!(owned.unwrap().success());
    let (agent, workspace) = fixture.prepare("a", Wanted::Overlay).await;
    write(&workspace.path, "new.txt", "new\n");
    fixture.workspaces.collect(&agent, &fixture.wish("a")).await.unwrap();
    let mut open = vec![fixture.repo.clone()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            assert_eq!(path.symlink_metadata().unwrap().uid(), 23456, "{}", path.display());
            if path.is_dir() {
                open.push(path);
            }
        }
    }
    let refused = run_git(&fixture.repo, &["status"]);
    assert!(!refused.status.success(), "git itself would have refused: {refused:?}");
}
