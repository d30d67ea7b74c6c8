//! The person's repository before and after: what moved there is told, but not what this host moved.

use hostd::workspace::Wanted;

use super::fixture::{Fixture, git, kinds, write};

async fn moved(fixture: &Fixture, name: &str, act: impl AsyncFnOnce(&std::path::Path)) -> Vec<String> {
    let (agent, workspace) = fixture.prepare(name, kinds().remove(0)).await;
    let repository = fixture.workspaces.locate(&fixture.repo).await.unwrap();
    fixture.workspaces.watch_source(&agent, &repository).await.unwrap();
    act(&workspace.path).await;
    fixture.workspaces.collect(&agent, &fixture.wish(name)).await.unwrap().source_moved
}

#[tokio::test]
async fn a_commit_in_the_persons_checkout_is_told() {
    let fixture = Fixture::new().await;
    let said = moved(&fixture, "a", async |_| {
        fixture.write("README", "escaped\n");
        fixture.git(&["commit", "-qam", "escaped"]);
        fixture.git(&["tag", "mark"]);
    })
    .await;
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].starts_with("branch main went from "), "{said:?}");
    assert!(said[1].starts_with("tag mark was made at "), "{said:?}");
}

#[tokio::test]
async fn a_switched_head_a_stash_and_changed_files_are_told() {
    let fixture = Fixture::new().await;
    fixture.write("src/one.txt", "before\n");
    let said = moved(&fixture, "a", async |_| {
        fixture.git(&["stash", "-q"]);
        fixture.git(&["switch", "-q", "-c", "side"]);
    })
    .await;
    let said = said.join("\n");
    for part in [
        "HEAD went from main to side",
        "branch side was made",
        "the stash was made",
        "files of its checkout changed: src/one.txt",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[tokio::test]
async fn work_in_the_workspace_and_branches_that_the_host_moves_are_not_told() {
    let fixture = Fixture::new().await;
    let said = moved(&fixture, "a", async |workspace| {
        write(workspace, "README", "work\n");
        git(workspace, &["commit", "-qam", "work"]);
        let repository = fixture.workspaces.locate(&fixture.repo).await.unwrap();
        fixture.workspaces.land(&repository, "accepted", &fixture.head(), None).await.unwrap();
        fixture.git(&["branch", "phalanx/other/task"]);
    })
    .await;
    assert_eq!(said, Vec::<String>::new());
}

#[tokio::test]
async fn what_moves_after_the_first_collection_is_not_the_agents() {
    let fixture = Fixture::new().await;
    let (agent, _) = fixture.prepare("a", Wanted::Clone).await;
    let repository = fixture.workspaces.locate(&fixture.repo).await.unwrap();
    fixture.workspaces.watch_source(&agent, &repository).await.unwrap();
    let first = fixture.workspaces.collect(&agent, &fixture.wish("a")).await.unwrap();
    fixture.git(&["commit", "-q", "--allow-empty", "-m", "later"]);
    let second = fixture.workspaces.collect(&agent, &fixture.wish("a")).await.unwrap();
    assert_eq!((first.source_moved, second.source_moved), (Vec::new(), Vec::new()));
}
