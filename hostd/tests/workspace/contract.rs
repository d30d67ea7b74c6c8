//! What holds for every kind of checkout: one suite over overlay and clone.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use hostd::workspace::{
    Collect, CommitMode, InProgress, Kind, OnlyCopy, Options, PrepareSpec, Unread, Wanted, WorkspaceError,
};

use super::fixture::{Fixture, can_be_root, fingerprint, git, kinds, write};

#[tokio::test]
async fn a_new_workspace_is_clean_on_its_branch_at_the_base() {
    for kind in kinds() {
        let fixture = Fixture::new().await;
        fixture.git(&["tag", "v1"]);
        let (_, workspace) = fixture.prepare("a", kind).await;
        let top = &workspace.path;
        assert_eq!(git(top, &["status", "--porcelain", "--branch"]), "## phalanx/run-1/a");
        assert_eq!(git(top, &["rev-parse", "HEAD"]), fixture.head());
        assert_eq!(workspace.base_commit.as_deref(), Some(fixture.head().as_str()));
        assert_eq!(git(top, &["describe", "--tags"]), "v1");
        assert_eq!(git(top, &["rev-parse", "origin/main"]), fixture.head());
        assert_eq!(git(top, &["log", "--oneline"]).lines().count(), 1);
        git(top, &["fsck"]);
        // None of ours lies in the work tree.
        let mut names: Vec<_> = std::fs::read_dir(top).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, [".git", ".gitignore", "README", "run.sh", "src"]);
        // The agent's branch is not in the person's repository.
        assert_eq!(fixture.git(&["for-each-ref", "refs/heads", "--format=%(refname)"]), "refs/heads/main");
    }
}

#[tokio::test]
async fn a_push_by_habit_does_not_reach_the_persons_repository() {
    let fixture = Fixture::new().await;
    let (_, workspace) = fixture.prepare("a", Wanted::Clone).await;
    let pushed = super::fixture::run_git(&workspace.path, &["push", "origin", "HEAD:main"]);
    assert!(!pushed.status.success());
    git(&workspace.path, &["fetch", "-q", "origin"]);
}

#[tokio::test]
async fn files_are_not_read_again_by_the_first_status() {
    if !can_be_root("files_are_not_read_again_by_the_first_status") {
        return;
    }
    let fixture = Fixture::new().await;
    let other = Some((12, 34));
    for (kind, user) in [(Wanted::Overlay, None), (Wanted::Overlay, other)] {
        let name = format!("{kind:?}{}", user.is_some()).to_lowercase();
        let (_, workspace) = fixture.prepare_for(&name, kind, user).await;
        let index = workspace.path.join(".git/index").metadata().unwrap().mtime();
        let file = workspace.path.join("README").metadata().unwrap().mtime();
        assert!(file < index, "an index no younger than its files is never trusted");
        // As root on files of somebody else, with the git folder named: no ownership check.
        let seen = git(&workspace.path, &["--git-dir=.git", "diff-files", "--raw"]);
        assert_eq!(seen, "", "{kind:?} {user:?}: times, owner and inode are as in the index");
    }
}

#[tokio::test]
async fn untouched_work_gets_its_ref_and_nothing_else() {
    for kind in kinds() {
        let fixture = Fixture::new().await;
        let (agent, _) = fixture.prepare("a", kind).await;
        let collected = fixture.workspaces.collect(&agent, &fixture.wish("a")).await.unwrap();
        assert_eq!(collected.head_commit, Some(fixture.head()));
        assert_eq!(collected.uncommitted, None);
        assert_eq!(collected.branch_drift, None);
        assert_eq!(collected.diff.files, 0);
        assert_eq!(fixture.git(&["rev-parse", "refs/phalanx/run/a/1"]), fixture.head());
        assert_eq!(fixture.workspaces.holds_only_copy(&agent, None).await, OnlyCopy::No);
    }
}

#[tokio::test]
async fn commits_and_uncommitted_work_come_home_and_the_agent_sees_no_change() {
    for kind in kinds() {
        let fixture = Fixture::new().await;
        fixture.write("src/mine.txt", "not committed by the person\n");
        fixture.write("README", "staged\n");
        fixture.git(&["add", "README"]);
        fixture.write("README", "staged, then edited\n");
        let refs = ["refs", "objects", "logs", "packed-refs", "info"].map(|name| format!(".git/{name}"));
        let refs = refs.each_ref().map(String::as_str);
        let before = fingerprint(&fixture.repo, &refs);

        let (agent, workspace) = fixture.prepare("a", kind).await;
        let top = &workspace.path;
        write(top, "new.txt", "new\n");
        git(top, &["add", "new.txt"]);
        git(top, &["commit", "-qm", "agent's commit"]);
        let head = git(top, &["rev-parse", "HEAD"]);
        write(top, "src/one.txt", "changed\n");
        std::fs::remove_file(top.join("src/two.txt")).unwrap();
        std::fs::set_permissions(top.join("run.sh"), std::fs::Permissions::from_mode(0o755)).unwrap();
        write(top, "staged.txt", "staged\n");
        git(top, &["add", "staged.txt"]);
        write(top, "deep/er/untracked.txt", "untracked\n");
        symlink("/etc/passwd", top.join("link")).unwrap();
        write(top, "ignored.log", "ignored\n");
        let mine = fingerprint(top, &[]);

        let OnlyCopy::Yes { what } = fixture.workspaces.holds_only_copy(&agent, None).await else {
            panic!("a commit and changes are nowhere else");
        };
        assert_eq!(what.len(), 2, "{what:?}");
        let collected = fixture.workspaces.collect(&agent, &fixture.wish("a")).await.unwrap();

        assert_eq!(fingerprint(top, &[]), mine, "{kind:?}: files, index and HEAD of the agent");
        assert_eq!(fingerprint(&fixture.repo, &refs), before, "{kind:?}: files, index, config of the person");
        assert_eq!(collected.head_commit.as_deref(), Some(head.as_str()));
        assert_eq!((collected.diff.files, collected.diff.insertions), (1, 1));
        let left = collected.uncommitted.clone().unwrap();
        assert_eq!((left.files, left.untracked), (6, 2));
        assert_eq!(left.ref_name, "refs/phalanx/run/a/1-uncommitted");
        let shown = fixture.git(&["diff-tree", "-r", "--name-status", &head, &left.ref_name]);
        let expected =
            "A\tdeep/er/untracked.txt\nA\tlink\nM\trun.sh\nM\tsrc/one.txt\nD\tsrc/two.txt\nA\tstaged.txt";
        assert_eq!(shown, expected);
        assert_eq!(fixture.git(&["show", &format!("{}:link", left.ref_name)]), "/etc/passwd");
        let who = fixture.git(&["show", "-s", "--format=%an <%ae>", &left.ref_name]);
        assert_eq!(who, "Phalanx <phalanx@localhost>");
        fixture.git(&["fsck", "--strict"]);
        assert_eq!(fixture.workspaces.holds_only_copy(&agent, Some(&collected)).await, OnlyCopy::No);

        // Once more, after a change: the same refs move on.
        write(top, "src/one.txt", "changed again\n");
        let after = fixture.workspaces.holds_only_copy(&agent, Some(&collected)).await;
        assert!(matches!(after, OnlyCopy::Yes { .. }), "{after:?}");
        let again = fixture.workspaces.collect(&agent, &fixture.wish("a")).await.unwrap();
        let name = again.uncommitted.unwrap().ref_name;
        assert_eq!(fixture.git(&["show", &format!("{name}:src/one.txt")]), "changed again");
    }
}

#[tokio::test]
async fn mode_auto_records_all_that_is_there() {
    for kind in kinds() {
        let fixture = Fixture::new().await;
        let (agent, workspace) = fixture.prepare("a", kind).await;
        write(&workspace.path, "made.txt", "made\n");
        let wish = Collect { commit_mode: CommitMode::Auto, ..fixture.wish("a") };
        let collected = fixture.workspaces.collect(&agent, &wish).await.unwrap();
        let left = collected.uncommitted.unwrap();
        assert_eq!(Some(&left.commit), collected.head_commit.as_ref());
        assert_eq!(fixture.git(&["show", "refs/phalanx/run/a/1:made.txt"]), "made");
        assert_eq!(git(&workspace.path, &["rev-parse", "HEAD"]), fixture.head());
        assert_eq!(collected.diff.files, 1);
    }
}

#[tokio::test]
async fn a_recorded_commit_stays_under_its_ref_and_what_came_later_goes_beside_it() {
    for kind in kinds() {
        let fixture = Fixture::new().await;
        let (agent, workspace) = fixture.prepare("a", kind).await;
        write(&workspace.path, "made.txt", "made\n");
        let wish = Collect { commit_mode: CommitMode::Auto, ..fixture.wish("a") };
        let recorded = fixture.workspaces.collect(&agent, &wish).await.unwrap().head_commit.unwrap();
        // In the next second the same work would be another commit.
        let at = git(&workspace.path, &["log", "-1", "--format=%ct", &recorded]);
        let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        while now() <= at.parse::<u64>().unwrap() {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        let again = Collect { recorded: Some(recorded.clone()), ..wish };
        let same = fixture.workspaces.collect(&agent, &again).await.unwrap();
        assert_eq!(same.head_commit.as_ref(), Some(&recorded));
        assert_eq!(fixture.git(&["rev-parse", "refs/phalanx/run/a/1"]), recorded);
        assert_eq!(fixture.git(&["for-each-ref", "refs/phalanx/run/a/1-later"]), "");

        write(&workspace.path, "made.txt", "changed by a person\n");
        let later = fixture.workspaces.collect(&agent, &again).await.unwrap();
        assert_ne!(later.head_commit.as_ref(), Some(&recorded));
        assert_eq!(fixture.git(&["rev-parse", "refs/phalanx/run/a/1"]), recorded);
        assert_eq!(fixture.git(&["show", "refs/phalanx/run/a/1-later:made.txt"]), "changed by a person");
    }
}

#[tokio::test]
async fn drift_of_head_is_told_and_what_head_has_is_recorded() {
    for kind in kinds() {
        let fixture = Fixture::new().await;
        let (agent, workspace) = fixture.prepare("a", kind).await;
        let top = &workspace.path;
        let collect = async || fixture.workspaces.collect(&agent, &fixture.wish("a")).await.unwrap();

        git(top, &["commit", "-q", "--allow-empty", "-m", "on its own branch"]);
        git(top, &["checkout", "-q", "--detach"]);
        git(top, &["commit", "-q", "--allow-empty", "-m", "detached"]);
        let detached = collect().await;
        assert!(detached.branch_drift.unwrap().contains("detached"));
        assert_eq!(detached.head_commit.unwrap(), git(top, &["rev-parse", "HEAD"]));

        git(top, &["switch", "-q", "-c", "other"]);
        git(top, &["pack-refs", "--all"]);
        assert!(collect().await.branch_drift.unwrap().contains("refs/heads/other"));
        git(top, &["branch", "-m", "renamed"]);
        assert!(collect().await.branch_drift.unwrap().contains("refs/heads/renamed"));

        git(top, &["switch", "-q", "--orphan", "empty"]);
        let unborn = collect().await;
        assert!(unborn.branch_drift.unwrap().contains("no commit"));
        let own = git(top, &["rev-parse", "phalanx/run-1/a"]);
        assert_eq!(unborn.head_commit.as_ref(), Some(&own));
        // The commit on `renamed` was collected before, but the ref has moved back since.
        let left = fixture.workspaces.holds_only_copy(&agent, None).await;
        assert!(matches!(left, OnlyCopy::Yes { .. }), "{left:?}");
    }
}

#[tokio::test]
async fn stash_conflict_and_a_merge_in_progress_are_seen() {
    for kind in kinds() {
        let fixture = Fixture::new().await;
        let (agent, workspace) = fixture.prepare("a", kind).await;
        let top = &workspace.path;
        write(top, "README", "stashed\n");
        git(top, &["stash", "-q"]);
        let OnlyCopy::Yes { what } = fixture.workspaces.holds_only_copy(&agent, None).await else {
            panic!("a stash is the only copy of what is in it");
        };
        assert!(what[0].contains("commit"), "{what:?}");
        git(top, &["stash", "drop", "-q"]);
        assert_eq!(fixture.workspaces.holds_only_copy(&agent, None).await, OnlyCopy::No);

        git(top, &["switch", "-q", "-c", "theirs"]);
        write(top, "README", "theirs\n");
        git(top, &["commit", "-qam", "theirs"]);
        git(top, &["switch", "-q", "phalanx/run-1/a"]);
        write(top, "README", "ours\n");
        git(top, &["commit", "-qam", "ours"]);
        assert!(!super::fixture::run_git(top, &["merge", "-q", "theirs"]).status.success());
        let index = std::fs::read(top.join(".git/index")).unwrap();
        let collected = fixture.workspaces.collect(&agent, &fixture.wish("a")).await.unwrap();
        assert_eq!(collected.in_progress, [InProgress::Merge]);
        let left = collected.uncommitted.clone().unwrap();
        assert!(fixture.git(&["show", &format!("{}:README", left.ref_name)]).contains("<<<<<<<"));
        assert_eq!(std::fs::read(top.join(".git/index")).unwrap(), index);
        let OnlyCopy::Yes { what } = fixture.workspaces.holds_only_copy(&agent, Some(&collected)).await
        else {
            panic!("a merge in progress and the branch `theirs`");
        };
        assert_eq!(what.len(), 2, "{what:?}");
    }
}

#[tokio::test]
async fn changes_hidden_from_status_are_saved_too() {
    let fixture = Fixture::new().await;
    let (agent, workspace) = fixture.prepare("a", Wanted::Auto).await;
    let top = &workspace.path;
    git(top, &["update-index", "--assume-unchanged", "README"]);
    git(top, &["update-index", "--skip-worktree", "src/one.txt"]);
    write(top, "README", "hidden\n");
    write(top, "src/one.txt", "hidden too\n");
    let collected = fixture.workspaces.collect(&agent, &fixture.wish("a")).await.unwrap();
    assert_eq!(collected.uncommitted.unwrap().files, 2);
}

#[tokio::test]
async fn an_agent_cannot_hide_work_by_its_own_excludes_and_what_the_person_excludes_is_no_work() {
    for kind in kinds() {
        let fixture = Fixture::new().await;
        fixture.write(".git/info/exclude", "persons.txt\n");
        let (agent, workspace) = fixture.prepare("a", kind).await;
        let top = &workspace.path;
        write(top, ".git/info/exclude", "*\n");
        git(top, &["config", "core.excludesFile", "/etc/passwd"]);
        write(top, "persons.txt", "a log\n");
        let copy = fixture.workspaces.holds_only_copy(&agent, None).await;
        assert!(matches!(&copy, OnlyCopy::No), "{copy:?}");
        write(top, "hidden.txt", "work\n");
        let copy = fixture.workspaces.holds_only_copy(&agent, None).await;
        assert!(matches!(&copy, OnlyCopy::Yes { .. }), "{copy:?}");
        let collected = fixture.workspaces.collect(&agent, &fixture.wish("a")).await.unwrap();
        let name = collected.uncommitted.unwrap().ref_name;
        assert_eq!(
            fixture.git(&["ls-tree", "--name-only", &name, "hidden.txt", "persons.txt"]),
            "hidden.txt"
        );
    }
}

#[tokio::test]
async fn a_change_of_the_same_size_in_the_same_second_is_seen() {
    for kind in kinds() {
        let fixture = Fixture::new().await;
        let (agent, workspace) = fixture.prepare("a", kind).await;
        let top = &workspace.path;
        let path = top.join("same.txt");
        // Until commit and change fall into one second, all that git's index knows of time.
        let second = loop {
            write(top, "same.txt", "one");
            git(top, &["add", "-A"]);
            git(top, &["commit", "-q", "--allow-empty", "-m", "one"]);
            let committed = path.metadata().unwrap();
            write(top, "same.txt", "two");
            let changed = path.metadata().unwrap();
            if committed.mtime() == changed.mtime() && committed.ctime() == changed.ctime() {
                break changed.mtime();
            }
        };
        // A copy of the index that is younger than the file hides the change.
        let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        while now() <= u64::try_from(second).unwrap() {
            tokio::task::yield_now().await;
        }
        let copy = fixture.workspaces.holds_only_copy(&agent, None).await;
        assert!(matches!(&copy, OnlyCopy::Yes { what } if what.len() == 2), "{copy:?}");
        let collected = fixture.workspaces.collect(&agent, &fixture.wish("a")).await.unwrap();
        let name = collected.uncommitted.unwrap().ref_name;
        assert_eq!(fixture.git(&["show", &format!("{name}:same.txt")]), "two");
    }
}

#[tokio::test]
async fn a_missing_or_broken_index_loses_nothing() {
    let fixture = Fixture::new().await;
    let (agent, workspace) = fixture.prepare("a", Wanted::Auto).await;
    write(&workspace.path, "README", "changed\n");
    for broken in [true, false] {
        let index = workspace.path.join(".git/index");
        if broken {
            std::fs::write(&index, "nonsense").unwrap();
        } else {
            std::fs::remove_file(&index).unwrap();
        }
        let collected = fixture.workspaces.collect(&agent, &fixture.wish("a")).await.unwrap();
        assert_eq!(collected.uncommitted.unwrap().files, 1);
    }
}

#[tokio::test]
async fn outputs_and_the_result_are_copied_without_following_links() {
    for kind in kinds() {
        let fixture = Fixture::new().await;
        let (agent, workspace) = fixture.prepare("a", kind).await;
        let top = &workspace.path;
        write(top, "out/a.json", "{}");
        write(top, "out/deep/b.json", "[]");
        write(top, "out/c.txt", "c");
        write(top, "big.bin", &"x".repeat(2 << 20));
        symlink("/etc/passwd", top.join("out/link.json")).unwrap();
        symlink("/etc", top.join("etc")).unwrap();
        nix::unistd::mkfifo(&top.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let result = async |name: &str| {
            let wish = Collect { result: Some(name.into()), ..fixture.wish("a") };
            fixture.workspaces.collect(&agent, &wish).await.unwrap().result.unwrap()
        };
        assert_eq!(result("out/a.json").await.unwrap(), b"{}");
        assert_eq!(result("none.json").await, Err(Unread::Missing));
        for bad in ["out/link.json", "etc/passwd", "pipe", "out"] {
            assert_eq!(result(bad).await, Err(Unread::NotAPlainFile), "{bad}");
        }
        for bad in ["../../agent.json", "/etc/passwd", ""] {
            assert_eq!(result(bad).await, Err(Unread::BadPath), "{bad}");
        }
        assert_eq!(result("big.bin").await, Err(Unread::TooLarge { bytes: 2 << 20 }));

        let patterns =
            ["out/**/*.json", "out/deep/", "none*", "etc/passwd", "../x", "big.bin", ".git/config"];
        let outputs = patterns.map(str::to_owned).to_vec();
        let wish = Collect { outputs, ..fixture.wish("a") };
        let collected = fixture.workspaces.collect(&agent, &wish).await.unwrap();
        let paths: Vec<_> = collected.outputs.iter().map(|output| output.path.as_path()).collect();
        assert_eq!(paths, [Path::new("out/a.json"), Path::new("out/deep/b.json")]);
        let first = &collected.outputs[0];
        assert_eq!(std::fs::read(&first.stored).unwrap(), b"{}");
        assert_eq!(first.sha256, "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a");
        let problems: Vec<_> = collected
            .output_problems
            .iter()
            .map(|problem| (problem.name.as_str(), problem.why.clone()))
            .collect();
        assert_eq!(
            problems,
            [
                ("out/link.json", Unread::NotAPlainFile),
                ("none*", Unread::Missing),
                ("etc/passwd", Unread::NotAPlainFile),
                ("../x", Unread::BadPath),
                ("big.bin", Unread::TooLarge { bytes: 2 << 20 }),
                (".git/config", Unread::Missing),
            ]
        );
    }
}

#[tokio::test]
async fn a_repeated_prepare_gives_the_same_and_rubble_is_not_used() {
    for kind in kinds() {
        let fixture = Fixture::new().await;
        let (agent, first) = fixture.prepare("a", kind).await;
        write(&first.path, "kept.txt", "kept\n");
        let (_, again) = fixture.prepare("a", kind).await;
        assert_eq!(first.manifest, again.manifest);
        assert!(again.path.join("kept.txt").exists());
        // Killed before the manifest was written: what lies there is not a workspace.
        std::fs::remove_file(agent.join("workspace.json")).unwrap();
        let (_, anew) = fixture.prepare("a", kind).await;
        assert!(!anew.path.join("kept.txt").exists());
        assert_eq!(git(&anew.path, &["status", "--porcelain"]), "");
        // For something else it is refused.
        let spec = PrepareSpec {
            repo: Some(fixture.resolved().await),
            branch: "phalanx/run-1/other".to_owned(),
            user: None,
            kind,
            prepared: None,
        };
        let refused = fixture.workspaces.prepare(&agent, &spec).await;
        assert!(matches!(refused, Err(WorkspaceError::OtherWorkspace { .. })), "{refused:?}");
    }
}

#[tokio::test]
async fn a_fresh_checkout_shows_the_recorded_commit_and_no_more() {
    for (kind, allow_overlay) in [(Wanted::Auto, true), (Wanted::Clone, false)] {
        let fixture = Fixture::with(Options { allow_overlay, ..Options::default() }).await;
        let base = fixture.resolved().await;
        let (agent, workspace) = fixture.prepare("a", kind).await;
        let top = &workspace.path;
        std::fs::remove_file(top.join("README")).unwrap();
        write(top, "src/one.txt", "changed\n");
        write(top, "src/new.txt", "new\n");
        git(top, &["add", "-A"]);
        git(top, &["commit", "-qm", "work"]);
        write(top, "untracked.txt", "");
        let commit =
            fixture.workspaces.collect(&agent, &fixture.wish("a")).await.unwrap().head_commit.unwrap();
        for (name, commit) in [("v", &commit), ("b", &base.commit)] {
            let dir = fixture.agent_dir(name);
            let fresh = fixture.workspaces.fresh_checkout(&dir, &base, commit, None, None).await.unwrap();
            assert_eq!(&git(&fresh.path, &["rev-parse", "HEAD"]), commit);
            assert_eq!(git(&fresh.path, &["status", "--porcelain"]), "");
            assert_eq!(fresh.path.join("src/new.txt").exists(), name == "v");
            assert_eq!(fresh.path.join("README").exists(), name == "b");
            assert!(!fresh.path.join("untracked.txt").exists());
            assert_eq!(fixture.workspaces.holds_only_copy(&dir, None).await, OnlyCopy::No);
            fixture.workspaces.remove(&dir).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_plain_folder_needs_no_repository() {
    let fixture = Fixture::new().await;
    let agent = fixture.agent_dir("p");
    let spec =
        PrepareSpec { repo: None, branch: "x".to_owned(), user: None, kind: Wanted::Auto, prepared: None };
    let workspace = fixture.workspaces.prepare(&agent, &spec).await.unwrap();
    assert_eq!(workspace.kind, Kind::Plain);
    assert_eq!(fixture.workspaces.holds_only_copy(&agent, None).await, OnlyCopy::No);
    write(&workspace.path, "out.txt", "out");
    let copy = fixture.workspaces.holds_only_copy(&agent, None).await;
    assert!(matches!(copy, OnlyCopy::Yes { .. }), "{copy:?}");
    let wish = Collect { outputs: vec!["out.txt".to_owned()], ..fixture.wish("p") };
    let collected = fixture.workspaces.collect(&agent, &wish).await.unwrap();
    assert_eq!((collected.head_commit.as_ref(), collected.outputs.len()), (None, 1));
    assert_eq!(fixture.workspaces.holds_only_copy(&agent, Some(&collected)).await, OnlyCopy::No);
}
