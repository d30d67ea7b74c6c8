//! What can be collected is, whatever its history looks like; what cannot says whose fault it is and whether it may pass.

use hostd::workspace::{Collect, CommitMode, Obstacle, OnlyCopy};

use crate::fixture::{Fixture, git, kinds, write};

/// Commits, with headers that git would not write itself.
fn commit_raw(work: &std::path::Path, author: &str) -> String {
    let tree = git(work, &["write-tree"]);
    let head = git(work, &["rev-parse", "HEAD"]);
    let text = format!("tree {tree}\nparent {head}\nauthor {author}\ncommitter {author}\n\nold\n");
    let path = work.join(".git/raw");
    std::fs::write(&path, text).unwrap();
    let commit = git(work, &["hash-object", "-t", "commit", "-w", "--literally", ".git/raw"]);
    std::fs::remove_file(path).unwrap();
    git(work, &["update-ref", "HEAD", &commit]);
    commit
}

#[tokio::test]
async fn a_history_that_git_tolerates_is_collected() {
    for kind in kinds() {
        for author in ["A <a@b> 1 +051800", "A 1 +0000"] {
            let fixture = Fixture::new().await;
            let (agent, workspace) = fixture.prepare("a", kind).await;
            write(&workspace.path, "new.txt", "new\n");
            git(&workspace.path, &["add", "-A"]);
            let commit = commit_raw(&workspace.path, author);
            let collected = fixture.workspaces.collect(&agent, &fixture.wish("a")).await.unwrap();
            assert_eq!(collected.head_commit.as_deref(), Some(commit.as_str()), "{kind:?} {author}");
            // Many objects take another way.
            for number in 0..120 {
                write(&workspace.path, &format!("many/{number}"), &format!("{number}\n"));
            }
            git(&workspace.path, &["add", "-A"]);
            let commit = commit_raw(&workspace.path, author);
            let wish = Collect { commit_mode: CommitMode::Auto, ..fixture.wish("b") };
            let collected = fixture.workspaces.collect(&agent, &wish).await.unwrap();
            assert_eq!(collected.head_commit.as_deref(), Some(commit.as_str()), "{kind:?} {author}");
        }
    }
}

#[tokio::test]
async fn a_repository_that_is_away_may_come_back_and_a_git_folder_that_is_replaced_is_the_agents() {
    for kind in kinds() {
        let fixture = Fixture::new().await;
        let (agent, workspace) = fixture.prepare("a", kind).await;
        write(&workspace.path, "new.txt", "new\n");
        let away = fixture.folder().join("away");
        std::fs::rename(&fixture.repo, &away).unwrap();
        let failed = fixture.workspaces.collect(&agent, &fixture.wish("a")).await.unwrap_err();
        assert_eq!(failed.obstacle(), Obstacle::Outside, "{kind:?}: {failed:?}");
        std::fs::rename(&away, &fixture.repo).unwrap();
        let collected = fixture.workspaces.collect(&agent, &fixture.wish("a")).await.unwrap();
        assert_eq!(collected.uncommitted.unwrap().files, 1, "{kind:?}");
        std::fs::rename(workspace.path.join(".git"), workspace.path.join(".g2")).unwrap();
        std::fs::write(workspace.path.join(".git"), "gitdir: x\n").unwrap();
        let failed = fixture.workspaces.collect(&agent, &fixture.wish("a")).await.unwrap_err();
        assert_eq!(failed.obstacle(), Obstacle::Content, "{kind:?}: {failed:?}");
        let holds = fixture.workspaces.holds_only_copy(&agent, None).await;
        assert!(matches!(&holds, OnlyCopy::Unknown(why) if why.contains("`.git` is a file")), "{holds:?}");
    }
}

#[tokio::test]
async fn what_only_logs_index_and_fetch_head_hold_is_brought_home() {
    for kind in kinds() {
        let fixture = Fixture::new().await;
        let elsewhere = fixture.folder().join("elsewhere");
        std::fs::create_dir(&elsewhere).unwrap();
        git(&elsewhere, &["init", "-q", "-b", "main"]);
        git(&elsewhere, &["commit", "-q", "--allow-empty", "-m", "elsewhere"]);
        let fetched = git(&elsewhere, &["rev-parse", "HEAD"]);
        let (agent, workspace) = fixture.prepare("a", kind).await;
        let top = &workspace.path;
        write(top, "lost.txt", "lost\n");
        git(top, &["add", "-A"]);
        git(top, &["commit", "-qm", "lost"]);
        let lost = git(top, &["rev-parse", "HEAD"]);
        git(top, &["reset", "-q", "--hard", "HEAD~1"]);
        git(top, &["fetch", "-q", elsewhere.to_str().unwrap()]);
        write(top, "README", "staged\n");
        git(top, &["add", "README"]);
        write(top, "README", "changed again\n");
        // An end would bring it home, so nothing holds up a removal.
        assert_eq!(fixture.workspaces.would_lose(&agent, &[]).await, OnlyCopy::No, "{kind:?}");
        let before = fixture.workspaces.holds_only_copy(&agent, None).await;
        assert!(
            matches!(&before, OnlyCopy::Yes { what } if what.join(";").contains("commit(s)")),
            "{before:?}"
        );
        let collected = fixture.workspaces.collect(&agent, &fixture.wish("a")).await.unwrap();
        let kept = "refs/phalanx/run/a/1-unreached";
        for commit in [&lost, &fetched] {
            fixture.git(&["merge-base", "--is-ancestor", commit, kept]);
        }
        let readmes: Vec<String> = fixture
            .git(&["rev-list", kept])
            .lines()
            .filter(|commit| fixture.git(&["ls-tree", "--name-only", commit]).contains("README"))
            .map(|commit| fixture.git(&["show", &format!("{commit}:README")]))
            .collect();
        assert!(readmes.contains(&"staged".to_owned()), "{kind:?}: {readmes:?}");
        let now = fixture.workspaces.holds_only_copy(&agent, Some(&collected)).await;
        assert_eq!(now, OnlyCopy::No, "{kind:?}");
        let at = fixture.git(&["rev-parse", kept]);
        fixture.workspaces.collect(&agent, &fixture.wish("a")).await.unwrap();
        assert_eq!(fixture.git(&["rev-parse", kept]), at, "{kind:?}: a repetition changes nothing");
    }
}

#[tokio::test]
async fn a_partial_clone_is_refused_by_name_where_objects_are_missing() {
    let fixture = Fixture::new().await;
    fixture.git(&["config", "uploadpack.allowFilter", "true"]);
    fixture.write("README", "second\n");
    fixture.git(&["commit", "-qam", "second"]);
    let clone = fixture.folder().join("partial");
    let from = format!("file://{}", fixture.repo.display());
    git(fixture.folder(), &["clone", "-q", "--filter=blob:none", &from, clone.to_str().unwrap()]);
    fixture.workspaces.resolve(&clone, None).await.unwrap();
    let refused = fixture.workspaces.resolve(&clone, Some("HEAD~1")).await.unwrap_err();
    assert!(refused.is_of_a_missing_object(), "{refused:?}");
    assert!(refused.to_string().contains("is a partial clone without 1 of the objects"), "{refused}");
    // What the message names mends it.
    let commit = git(&clone, &["rev-parse", "HEAD~1"]);
    git(&clone, &["archive", "-o", "/dev/null", &commit]);
    fixture.workspaces.resolve(&clone, Some("HEAD~1")).await.unwrap();
}
