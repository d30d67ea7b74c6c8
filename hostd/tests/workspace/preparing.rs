//! Prepared bases: run once, in reach of every checkout and of none to write, and never work of an agent.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt;
use hostd::workspace::{
    Bench, CommitMode, OnlyCopy, Options, Preparation, PrepareSpec, PreparedBase, RunError, Wanted,
    Workspace, WorkspaceError, Workspaces, left_over,
};
use tokio::sync::Notify;

use super::fixture::{Fixture, git, kinds, write};

/// What a preparation does in these tests, and how often.
fn preparing(
    identity: &str,
    runs: &Arc<AtomicUsize>,
    act: impl FnOnce(&Path) -> Result<(), String> + Send + 'static,
) -> Preparation {
    let runs = Arc::clone(runs);
    let run = move |bench: Bench| {
        async move {
            runs.fetch_add(1, Ordering::SeqCst);
            act(&bench.tree).map_err(|why| RunError { why, log: Vec::new() })
        }
        .boxed()
    };
    Preparation { identity: identity.into(), run: Box::new(run) }
}

fn dependencies(tree: &Path) -> Result<(), String> {
    write(tree, "deps/one/code.txt", "one\n");
    write(tree, "src/gen.txt", "made\n");
    write(tree, "build.log", "ignored\n");
    symlink("one", tree.join("deps/link")).unwrap();
    std::fs::create_dir(tree.join("empty")).unwrap();
    std::fs::set_permissions(tree.join("deps/one/code.txt"), PermissionsExt::from_mode(0o755)).unwrap();
    // Nobody's settings but ours reach the agents.
    write(tree, ".git/hooks/post-commit", "#!/bin/sh\n");
    Ok(())
}

async fn base(fixture: &Fixture, runs: &Arc<AtomicUsize>) -> PreparedBase {
    let resolved = fixture.resolved().await;
    fixture.workspaces.prepared_base(&resolved, None, preparing("a", runs, dependencies)).await.unwrap()
}

async fn on(fixture: &Fixture, name: &str, kind: Wanted, base: &PreparedBase) -> (PathBuf, Workspace) {
    let agent = fixture.agent_dir(name);
    let spec = PrepareSpec {
        repo: Some(fixture.resolved().await),
        branch: format!("phalanx/run-1/{name}"),
        user: None,
        kind,
        prepared: Some(base.clone()),
    };
    let workspace = fixture.workspaces.prepare(&agent, &spec).await.unwrap();
    (agent, workspace)
}

#[tokio::test]
async fn every_checkout_finds_what_was_prepared_once() {
    for kind in kinds() {
        let (fixture, runs) = (Fixture::new().await, Arc::default());
        for name in ["a", "b", "c"] {
            let base = base(&fixture, &runs).await;
            let (_, workspace) = on(&fixture, name, kind, &base).await;
            let top = &workspace.path;
            assert_eq!(std::fs::read_to_string(top.join("deps/link/code.txt")).unwrap(), "one\n");
            assert_eq!(std::fs::read_to_string(top.join("build.log")).unwrap(), "ignored\n");
            assert_eq!(top.join("deps/one/code.txt").metadata().unwrap().mode() & 0o777, 0o755);
            assert!(!top.join(".git/hooks/post-commit").exists());
            assert_eq!(git(top, &["status", "--porcelain"]), "", "{kind:?}");
        }
        assert_eq!(runs.load(Ordering::SeqCst), 1);
        let resolved = fixture.resolved().await;
        let other = preparing("b", &runs, dependencies);
        fixture.workspaces.prepared_base(&resolved, None, other).await.unwrap();
        assert_eq!(runs.load(Ordering::SeqCst), 2, "other commands, another base");
    }
}

#[tokio::test]
async fn what_was_prepared_is_never_the_work_of_an_agent() {
    for kind in kinds() {
        let (fixture, runs) = (Fixture::new().await, Arc::default());
        let base = base(&fixture, &runs).await;
        let (agent, workspace) = on(&fixture, "a", kind, &base).await;
        assert_eq!(fixture.workspaces.holds_only_copy(&agent, None).await, OnlyCopy::No, "{kind:?}");
        let top = &workspace.path;
        // The agent's own word on it does not count.
        std::fs::write(top.join(".git/info/exclude"), "").unwrap();
        assert_eq!(fixture.workspaces.holds_only_copy(&agent, None).await, OnlyCopy::No, "{kind:?}");
        write(top, "answer.txt", "42\n");
        write(top, "empty/work.txt", "work\n");
        write(top, "src/more.txt", "work\n");
        let wish = fixture.wish("a");
        let wish = hostd::workspace::Collect { commit_mode: CommitMode::Auto, ..wish };
        let collected = fixture.workspaces.collect(&agent, &wish).await.unwrap();
        let names = fixture.git(&["diff", "--name-only", "main", &collected.head_commit.unwrap()]);
        assert_eq!(names, "answer.txt\nempty/work.txt\nsrc/more.txt", "{kind:?}");
        // What it writes there is its own alone.
        std::fs::write(top.join("deps/one/code.txt"), "changed\n").unwrap();
        let (_, other) = on(&fixture, "b", kind, &base).await;
        assert_eq!(std::fs::read_to_string(other.path.join("deps/one/code.txt")).unwrap(), "one\n");
    }
}

#[tokio::test]
async fn a_verification_sees_the_prepared_base_and_the_commit_wins() {
    for kind in kinds() {
        let allow_overlay = kind == Wanted::Overlay;
        let fixture = Fixture::with(Options { allow_overlay, ..Options::default() }).await;
        let runs = Arc::default();
        let base = base(&fixture, &runs).await;
        let (agent, workspace) = on(&fixture, "a", kind, &base).await;
        write(&workspace.path, "deps/one/code.txt", "committed\n");
        git(&workspace.path, &["add", "-f", "deps/one/code.txt"]);
        git(&workspace.path, &["commit", "-qm", "deps"]);
        let commit =
            fixture.workspaces.collect(&agent, &fixture.wish("a")).await.unwrap().head_commit.unwrap();
        let resolved = fixture.resolved().await;
        let dir = fixture.agent_dir("check");
        let fresh =
            fixture.workspaces.fresh_checkout(&dir, &resolved, &commit, None, Some(&base)).await.unwrap();
        assert_eq!(git(&fresh.path, &["rev-parse", "HEAD"]), commit);
        assert_eq!(std::fs::read_to_string(fresh.path.join("deps/one/code.txt")).unwrap(), "committed\n");
        assert_eq!(std::fs::read_to_string(fresh.path.join("src/gen.txt")).unwrap(), "made\n");
        assert_eq!(git(&fresh.path, &["status", "--porcelain"]), "", "{kind:?}");
    }
}

#[tokio::test]
async fn many_wait_for_one_and_share_its_failure_which_is_kept_for_nobody() {
    let (fixture, runs) = (Fixture::new().await, Arc::default());
    let resolved = fixture.resolved().await;
    let go = Arc::new(Notify::new());
    let waiting = |runs: &Arc<AtomicUsize>| {
        let (runs, go) = (Arc::clone(runs), Arc::clone(&go));
        let run = move |_: Bench| {
            async move {
                runs.fetch_add(1, Ordering::SeqCst);
                go.notified().await;
                Err(RunError { why: "exit 7".to_owned(), log: b"no network\n".to_vec() })
            }
            .boxed()
        };
        Preparation { identity: b"a".to_vec(), run: Box::new(run) }
    };
    let all = (0..50).map(|_| fixture.workspaces.prepared_base(&resolved, None, waiting(&runs)));
    let opener = async {
        while runs.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        go.notify_one();
    };
    let (outcomes, ()) = tokio::join!(futures::future::join_all(all), opener);
    for outcome in outcomes {
        match outcome {
            Err(WorkspaceError::NotPrepared(why)) => assert_eq!(why.to_string(), "exit 7"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    assert_eq!(left_over(&fixture.state()), [""; 0], "nothing half-made is left");
    base(&fixture, &runs).await;
    assert_eq!(runs.load(Ordering::SeqCst), 2, "tried again");
}

#[tokio::test]
async fn work_for_which_nobody_waits_any_more_is_broken_off_and_another_goes_on() {
    let (fixture, runs) = (Fixture::new().await, Arc::<AtomicUsize>::default());
    let resolved = fixture.resolved().await;
    let slow = |runs: &Arc<AtomicUsize>| {
        let runs = Arc::clone(runs);
        let run = move |_: Bench| {
            async move {
                runs.fetch_add(1, Ordering::SeqCst);
                std::future::pending::<()>().await;
                Ok(())
            }
            .boxed()
        };
        Preparation { identity: b"a".to_vec(), run: Box::new(run) }
    };
    let begun = async {
        while runs.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
    };
    {
        let first = fixture.workspaces.prepared_base(&resolved, None, slow(&runs));
        tokio::select! {
            made = first => panic!("{made:?}"),
            () = begun => {}
        }
    }
    assert_eq!(left_over(&fixture.state()), [""; 0], "its folder is gone");
    base(&fixture, &runs).await;
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_preparation_that_changes_what_is_committed_is_refused_by_name() {
    let (fixture, runs) = (Fixture::new().await, Arc::default());
    let resolved = fixture.resolved().await;
    let act = |tree: &Path| {
        write(tree, "src/one.txt", "another\n");
        Ok(())
    };
    let refused = fixture.workspaces.prepared_base(&resolved, None, preparing("a", &runs, act)).await;
    match refused {
        Err(WorkspaceError::NotPrepared(why)) => {
            assert!(why.to_string().contains("src/one.txt"), "{why}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_next_hostd_finds_the_base_and_takes_away_what_was_half_made() {
    for kind in kinds() {
        let (fixture, runs) = (Fixture::new().await, Arc::default());
        let base_made = base(&fixture, &runs).await;
        let (agent, workspace) = on(&fixture, "a", kind, &base_made).await;
        drop(base_made);
        write(&fixture.state(), "preparing/prepare-1/tree/file", "half");
        let next = Workspaces::new(&fixture.state(), Options::default()).await.unwrap();
        assert_eq!(left_over(&fixture.state()), [""; 0]);
        let resolved = fixture.resolved().await;
        let again = preparing("a", &runs, dependencies);
        drop(next.prepared_base(&resolved, None, again).await.unwrap());
        assert_eq!(runs.load(Ordering::SeqCst), 1, "found, not made again");
        if kind == Wanted::Overlay {
            nix::mount::umount(&workspace.path).unwrap();
            next.remount(&agent).await.unwrap();
        }
        assert!(workspace.path.join("deps/one/code.txt").exists());
        let prepared = |base: &hostd::workspace::UnusedBase| base.path.to_string_lossy().contains('+');
        if kind == Wanted::Overlay {
            assert!(!next.unused_bases().unwrap().iter().any(prepared), "an agent lies on it");
        }
        next.remove(&agent).await.unwrap();
        let unused = next.unused_bases().unwrap();
        let unused = unused.iter().find(|base| prepared(base)).expect("unused by now");
        next.discard_base(unused).await.unwrap();
        assert!(!unused.path.exists());
    }
}
