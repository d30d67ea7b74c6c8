//! Merges in a private checkout: the person's files stay as they are, conflicts are told and never committed.

use hostd::workspace::{Landed, WorkspaceError};
use protocol::merge::{MergeResult, MergeWish, RecordedBranch};
use protocol::time::Timestamp;

use super::fixture::{Fixture, fingerprint, git};

/// A commit on top of the first one that writes these files; the person's HEAD stays.
fn work(fixture: &Fixture, name: &str, files: &[(&str, &str)]) -> String {
    let side = fixture.folder().join(format!("side-{name}"));
    git(&fixture.repo, &["worktree", "add", "-q", "--detach", side.to_str().unwrap(), "main"]);
    for (file, text) in files {
        super::fixture::write(&side, file, text);
    }
    git(&side, &["add", "-A"]);
    git(&side, &["commit", "-qm", name]);
    let commit = git(&side, &["rev-parse", "HEAD"]);
    git(&fixture.repo, &["worktree", "remove", "--force", side.to_str().unwrap()]);
    commit
}

fn wish(fixture: &Fixture, onto: &str, work: &str) -> MergeWish {
    MergeWish {
        repo: fixture.repo.display().to_string(),
        onto: onto.to_owned(),
        work: work.to_owned(),
        message: "Merge task x\n\nTask: x\n".to_owned(),
        at: Timestamp(1_700_000_000_000),
        keep: "refs/phalanx/run/merge/1".to_owned(),
        dry_run: false,
    }
}

async fn merge(fixture: &Fixture, onto: &str, work: &str) -> MergeResult {
    let repository = fixture.workspaces.locate(&fixture.repo).await.unwrap();
    fixture.workspaces.merge(&repository, &wish(fixture, onto, work)).await.unwrap()
}

async fn merged(fixture: &Fixture, onto: &str, work: &str) -> String {
    match merge(fixture, onto, work).await {
        MergeResult::Merged { commit } => commit,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn three_results_are_merged_while_the_persons_changes_stay_byte_for_byte() {
    let fixture = Fixture::new().await;
    let base = fixture.head();
    let results: Vec<String> =
        ["a", "b", "c"].iter().map(|name| work(&fixture, name, &[(&format!("{name}.txt"), name)])).collect();
    fixture.write("README", "staged\n");
    fixture.git(&["add", "README"]);
    fixture.write("src/one.txt", "unstaged\n");
    fixture.write("untracked.txt", "untracked\n");
    let picture = || {
        fingerprint(&fixture.repo, &[".git/packed-refs"])
            .into_iter()
            .filter(|line| {
                !line.starts_with(".git/objects")
                    && !line.starts_with(".git/refs/phalanx")
                    && !line.starts_with(".git/refs/heads/all")
                    && !line.starts_with(".git/logs/refs/heads/all")
                    && !line.starts_with(".git/logs/refs/phalanx")
            })
            .collect::<Vec<_>>()
    };
    let before = picture();
    let mut tip = base.clone();
    for result in &results {
        tip = merged(&fixture, &tip, result).await;
        assert_eq!(fixture.git(&["rev-parse", &format!("{tip}^2")]), *result);
    }
    let repository = fixture.workspaces.locate(&fixture.repo).await.unwrap();
    let landed = fixture.workspaces.land(&repository, "all", &tip, None).await.unwrap();
    assert_eq!(landed, Landed::Created);
    assert_eq!(picture(), before);
    for name in ["a", "b", "c"] {
        assert_eq!(fixture.git(&["show", &format!("all:{name}.txt")]), name);
    }
    assert_eq!(fixture.git(&["log", "-1", "--format=%an|%cn|%at", "all"]), "Phalanx|Phalanx|1700000000");
    assert_eq!(fixture.git(&["log", "-1", "--format=%an", "all^2"]), "Agent", "the author stays who it was");
    fixture.git(&["fsck", "--strict"]);
    // The same wish gives the same commit; what is kept is what was made last.
    assert_eq!(merged(&fixture, &base, &results[0]).await, merged(&fixture, &base, &results[0]).await);
}

#[tokio::test]
async fn a_conflict_is_told_with_both_sides_and_nothing_is_committed() {
    let fixture = Fixture::new().await;
    let base = fixture.head();
    let one = work(&fixture, "one", &[("README", "one\n"), ("new.txt", "one\n")]);
    let two = work(&fixture, "two", &[("README", "two\n"), ("new.txt", "two\n")]);
    let tip = merged(&fixture, &base, &one).await;
    let refs = fixture.git(&["for-each-ref"]);
    let MergeResult::Conflict { files } = merge(&fixture, &tip, &two).await else { panic!() };
    let blob = |commit: &str, name: &str| Some(fixture.git(&["rev-parse", &format!("{commit}:{name}")]));
    let names: Vec<_> = files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(names, ["README", "new.txt"]);
    assert_eq!(
        (&files[0].base, &files[0].ours, &files[0].theirs),
        (&blob(&base, "README"), &blob(&one, "README"), &blob(&two, "README"))
    );
    assert_eq!((&files[1].base, &files[1].theirs), (&None, &blob(&two, "new.txt")));
    assert_eq!(fixture.git(&["for-each-ref"]), refs);
}

#[tokio::test]
async fn files_that_hold_conflict_markers_on_purpose_are_merged() {
    let fixture = Fixture::new().await;
    let text = "How a conflict looks:\n<<<<<<< HEAD\nours\n=======\ntheirs\n>>>>>>> other\n";
    let result = work(&fixture, "doc", &[("doc.md", text)]);
    let tip = merged(&fixture, &fixture.head(), &result).await;
    assert_eq!(fixture.git(&["show", &format!("{tip}:doc.md")]), text.trim_end());
}

#[tokio::test]
async fn what_a_person_merged_by_hand_is_known() {
    let fixture = Fixture::new().await;
    let result = work(&fixture, "mine", &[("mine.txt", "1\n2\n3\n")]);
    // As a merge, as a picked commit, and squashed with changes after it.
    fixture.git(&["checkout", "-qb", "merged"]);
    fixture.git(&["merge", "-q", "--no-ff", "-m", "by hand", &result]);
    assert_eq!(merge(&fixture, &fixture.head(), &result).await, MergeResult::Already);
    fixture.git(&["checkout", "-qb", "squashed", "main"]);
    fixture.git(&["commit", "-q", "--allow-empty", "-m", "between"]);
    fixture.git(&["merge", "-q", "--squash", &result]);
    fixture.git(&["commit", "-qm", "squashed"]);
    assert_eq!(merge(&fixture, &fixture.head(), &result).await, MergeResult::Already);
    fixture.write("mine.txt", "1\nchanged after\n3\n");
    fixture.git(&["commit", "-qam", "after"]);
    assert_eq!(merge(&fixture, &fixture.head(), &result).await, MergeResult::Already);
}

#[tokio::test]
async fn a_branch_that_is_checked_out_or_moved_is_told_and_not_moved() {
    let fixture = Fixture::new().await;
    let target = fixture.workspaces.merge_target(&fixture.repo, None, &[]).await.unwrap();
    let at = Some(fixture.repo.canonicalize().unwrap().display().to_string());
    assert_eq!((target.branch.as_str(), &target.checked_out, target.dirty), ("main", &at, false));
    fixture.write("README", "mine\n");
    assert!(fixture.workspaces.merge_target(&fixture.repo, Some("main"), &[]).await.unwrap().dirty);
    fixture.git(&["restore", "README"]);
    let new = fixture.workspaces.merge_target(&fixture.repo, Some("new"), &[]).await.unwrap();
    assert_eq!((new.tip, new.start, new.checked_out), (None, fixture.head(), None));
    let repository = fixture.workspaces.locate(&fixture.repo).await.unwrap();
    let (first, result) = (fixture.head(), work(&fixture, "x", &[("x", "x")]));
    let refused = fixture.workspaces.land(&repository, "main", &result, Some(&first)).await.unwrap_err();
    assert!(matches!(refused, WorkspaceError::CheckedOut { .. }), "{refused:?}");
    fixture.git(&["branch", "other"]);
    let lost = fixture.workspaces.land(&repository, "other", &result, Some(&result)).await;
    assert!(matches!(lost, Err(WorkspaceError::RefMoved { .. })) || lost.is_ok());
    assert!(fixture.workspaces.merge_target(&fixture.repo, Some("a..b"), &[]).await.is_err());
    fixture.git(&["checkout", "-q", "--detach"]);
    let detached = fixture.workspaces.merge_target(&fixture.repo, None, &[]).await.unwrap_err();
    assert!(matches!(detached, WorkspaceError::DetachedHead { .. }), "{detached:?}");
}

#[tokio::test]
async fn a_repository_cannot_make_a_merge_run_anything() {
    let fixture = Fixture::new().await;
    let owned = fixture.folder().join("owned");
    let touch = format!("touch {}", owned.display());
    for (key, value) in [
        ("merge.evil.driver", touch.as_str()),
        ("filter.evil.smudge", touch.as_str()),
        ("filter.evil.clean", touch.as_str()),
        ("core.fsmonitor", touch.as_str()),
    ] {
        fixture.git(&["config", key, value]);
    }
    let hook = fixture.repo.join(".git/hooks/commit-msg");
    std::fs::create_dir_all(hook.parent().unwrap()).unwrap();
    std::fs::write(&hook, format!("#!/bin/sh\n{touch}\n")).unwrap();
    std::fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let attributes = ".gitattributes";
    let base = fixture.head();
    let one =
        work(&fixture, "one", &[(attributes, "* merge=evil filter=evil\n"), ("README", "read me\none\n")]);
    let _ = std::fs::remove_file(&owned);
    let tip = merged(&fixture, &base, &one).await;
    let two = work(&fixture, "two", &[("README", "two\nread me\n")]);
    let _ = std::fs::remove_file(&owned);
    let _ = merge(&fixture, &tip, &two).await;
    assert!(!owned.exists(), "a driver, filter or hook of the repository ran");
}

#[tokio::test]
async fn a_dry_run_leaves_no_ref() {
    let fixture = Fixture::new().await;
    let result = work(&fixture, "mine", &[("mine.txt", "1\n")]);
    let refs = fixture.git(&["for-each-ref"]);
    let repository = fixture.workspaces.locate(&fixture.repo).await.unwrap();
    let wish = MergeWish { dry_run: true, ..wish(&fixture, &fixture.head(), &result) };
    let merged = fixture.workspaces.merge(&repository, &wish).await.unwrap();
    assert!(matches!(merged, MergeResult::Merged { .. }), "{merged:?}");
    assert_eq!(fixture.git(&["for-each-ref"]), refs);
}

#[tokio::test]
async fn attributes_of_the_branch_say_how_its_files_are_merged() {
    let fixture = Fixture::new().await;
    let attributes = work(&fixture, "attributes", &[("list/.gitattributes", "*.txt merge=union\n")]);
    let base = merged(&fixture, &fixture.head(), &attributes).await;
    fixture.git(&["update-ref", "refs/heads/based", &base]);
    let one = work(&fixture, "one", &[("list/a.txt", "one\n")]);
    let two = work(&fixture, "two", &[("list/a.txt", "two\n")]);
    let tip = merged(&fixture, &base, &one).await;
    let tip = merged(&fixture, &tip, &two).await;
    assert_eq!(fixture.git(&["show", &format!("{tip}:list/a.txt")]), "one\ntwo");
}

#[tokio::test]
async fn commits_that_a_branch_got_after_acceptance_are_told_until_they_are_merged() {
    let fixture = Fixture::new().await;
    let result = work(&fixture, "mine", &[("mine.txt", "1\n")]);
    fixture.git(&["branch", "task", &result]);
    let look = async |recorded: &[RecordedBranch]| {
        fixture.workspaces.merge_target(&fixture.repo, Some("refs/heads/main"), recorded).await.unwrap()
    };
    let recorded = [RecordedBranch { branch: "task".to_owned(), commit: result.clone() }];
    assert_eq!(look(&recorded).await.moved, []);
    let tree = fixture.git(&["rev-parse", &format!("{result}^{{tree}}")]);
    let late = fixture.git(&["commit-tree", &tree, "-p", &result, "-m", "by hand"]);
    fixture.git(&["branch", "-f", "task", &late]);
    let target = look(&recorded).await;
    assert_eq!((target.branch.as_str(), target.moved.len()), ("main", 1));
    assert_eq!((&target.moved[0].tip, target.moved[0].commits), (&late, 1));
    assert!(target.moved[0].shown[0].ends_with("by hand"), "{:?}", target.moved);
    fixture.git(&["merge", "-q", "task"]);
    assert_eq!(look(&recorded).await.moved, []);
}

#[tokio::test]
async fn an_untracked_file_does_not_make_a_checkout_dirty() {
    let fixture = Fixture::new().await;
    let dirty = async || fixture.workspaces.merge_target(&fixture.repo, None, &[]).await.unwrap().dirty;
    fixture.write("untracked.txt", "untracked\n");
    assert!(!dirty().await);
    fixture.write("README", "changed\n");
    assert!(dirty().await);
}

#[tokio::test]
async fn work_that_points_to_a_submodule_commit_which_only_the_workspace_has_is_flagged_and_not_merged() {
    let fixture = Fixture::new().await;
    let library = fixture.folder().join("library");
    std::fs::create_dir(&library).unwrap();
    git(&library, &["init", "-q", "-b", "main"]);
    super::fixture::write(&library, "code.txt", "one\n");
    git(&library, &["add", "-A"]);
    git(&library, &["commit", "-qm", "one"]);
    let add =
        ["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", library.to_str().unwrap(), "sub"];
    fixture.git(&add);
    fixture.git(&["commit", "-qm", "with a submodule"]);
    let base = fixture.head();
    let (agent, workspace) = fixture.prepare("a", super::fixture::kinds().remove(0)).await;
    let url = library.to_str().unwrap();
    git(&workspace.path, &["-c", "protocol.file.allow=always", "clone", "-q", url, "sub"]);
    let sub = workspace.path.join("sub");
    super::fixture::write(&sub, "code.txt", "two\n");
    git(&sub, &["commit", "-qam", "two"]);
    let inner = git(&sub, &["rev-parse", "HEAD"]);
    let link = format!("160000,{inner},sub");
    git(&workspace.path, &["update-index", "--cacheinfo", &link]);
    git(&workspace.path, &["commit", "-qm", "moves the submodule"]);
    let collected = fixture.workspaces.collect(&agent, &fixture.wish("a")).await.unwrap();
    assert_eq!(collected.unknown_submodules, [format!("submodule sub at {}", &inner[..12])]);
    let work = collected.head_commit.unwrap();
    let repository = fixture.workspaces.locate(&fixture.repo).await.unwrap();
    let refused = fixture.workspaces.merge(&repository, &wish(&fixture, &base, &work)).await.unwrap_err();
    assert!(matches!(refused, WorkspaceError::UnknownSubmodules { .. }), "{refused}");
    // Once the person has it, it is merged.
    git(&fixture.repo.join("sub"), &["fetch", "-q", sub.to_str().unwrap(), "HEAD"]);
    merged(&fixture, &base, &work).await;
}
