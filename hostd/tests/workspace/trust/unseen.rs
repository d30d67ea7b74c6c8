//! A change is seen whatever its size and time say.

use hostd::workspace::{OnlyCopy, Wanted};

use crate::fixture::{Fixture, can_be_root, git, kinds};

/// The same size, the old time.
fn change_unseen(path: &std::path::Path) {
    let time = path.metadata().unwrap().modified().unwrap();
    std::fs::write(path, "two\n").unwrap();
    std::fs::File::options().append(true).open(path).unwrap().set_modified(time).unwrap();
}

#[tokio::test]
async fn a_change_of_the_same_size_with_the_old_time_is_seen_in_the_first_second() {
    for kind in kinds() {
        let fixture = Fixture::new().await;
        let (agent, workspace) = fixture.prepare("a", kind).await;
        change_unseen(&workspace.path.join("src/one.txt"));
        let holds = fixture.workspaces.holds_only_copy(&agent, None).await;
        assert!(matches!(holds, OnlyCopy::Yes { .. }), "{kind:?}: {holds:?}");
        assert_eq!(fixture.workspaces.snapshot(&agent, "a", false).await.unwrap().files, 1, "{kind:?}");
        let collected = fixture.workspaces.collect(&agent, &fixture.wish("a")).await.unwrap();
        let commit = collected.uncommitted.unwrap().commit;
        assert_eq!(fixture.git(&["show", &format!("{commit}:src/one.txt")]), "two", "{kind:?}");
        // The agent's own git sees it too.
        assert_eq!(git(&workspace.path, &["diff", "--name-only"]), "src/one.txt", "{kind:?}");
    }
}

#[tokio::test]
async fn what_lies_in_an_overlays_own_layer_is_compared_by_content() {
    if !can_be_root("what_lies_in_an_overlays_own_layer_is_compared_by_content") {
        return;
    }
    let fixture = Fixture::new().await;
    let (agent, workspace) = fixture.prepare("a", Wanted::Overlay).await;
    // An index of the agent's own that says of every file that it is as it was.
    git(&workspace.path, &["update-index", "--refresh"]);
    git(&workspace.path, &["config", "core.trustctime", "false"]);
    change_unseen(&workspace.path.join("src/one.txt"));
    git(&workspace.path, &["update-index", "--force-write-index"]);
    let kept = fixture.workspaces.snapshot(&agent, "a", false).await.unwrap();
    assert_eq!(kept.files, 1);
    assert_eq!(fixture.git(&["show", &format!("{}:src/one.txt", kept.commit)]), "two");
}
