//! Files that git does not track and a project needs.

use std::os::unix::fs::PermissionsExt;

use hostd::workspace::{Collect, CommitMode, OnlyCopy, Wanted};

use crate::fixture::{Fixture, git, kinds};

async fn project() -> Fixture {
    let fixture = Fixture::new().await;
    fixture.write(".gitignore", "*.log\n.env\nsecrets/\nbig/\n");
    fixture.git(&["commit", "-qam", "ignore"]);
    fixture.write(".env", "KEY=1\n");
    std::fs::set_permissions(fixture.repo.join(".env"), PermissionsExt::from_mode(0o640)).unwrap();
    fixture.write("secrets/a.key", "a\n");
    fixture.write("secrets/b.txt", "b\n");
    fixture.write("big/data", "data\n");
    fixture.write("loose.txt", "loose\n");
    fixture.write(".worktreeinclude", "# keys\n*.key\nloose.txt\n");
    fixture
}

#[tokio::test]
async fn listed_and_included_files_come_with_their_modes_and_are_never_staged_or_collected() {
    for kind in kinds().into_iter().chain([Wanted::Worktree]) {
        let fixture = project().await;
        let (agent, workspace) = fixture.prepare("a", kind).await;
        let wanted = [".env", "nosuch", "../x"].map(str::to_owned);
        let from = fixture.resolved().await;
        let brought = fixture.workspaces.bring(&agent, &from, &wanted).await.unwrap();
        let top = &workspace.path;
        assert_eq!(std::fs::read_to_string(top.join(".env")).unwrap(), "KEY=1\n", "{kind:?}");
        assert_eq!(top.join(".env").metadata().unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(std::fs::read_to_string(top.join("secrets/a.key")).unwrap(), "a\n", "{kind:?}");
        for absent in ["secrets/b.txt", "big", "loose.txt"] {
            assert!(!top.join(absent).exists(), "{kind:?}: {absent}");
        }
        let told = brought.warnings.join("\n");
        assert!(
            told.contains("\"nosuch\" names no file") && told.contains("\"../x\" names no file"),
            "{told}"
        );
        git(top, &["add", "-A"]);
        assert_eq!(git(top, &["status", "--porcelain"]), "", "{kind:?}");
        let wish = Collect { commit_mode: CommitMode::Auto, ..fixture.wish("a") };
        let collected = fixture.workspaces.collect(&agent, &wish).await.unwrap();
        assert_eq!((collected.head_commit, collected.uncommitted), (Some(fixture.head()), None), "{kind:?}");
        assert_eq!(fixture.workspaces.holds_only_copy(&agent, None).await, OnlyCopy::No, "{kind:?}");
    }
}

#[tokio::test]
async fn an_untracked_file_that_is_listed_is_excluded_and_no_link_is_followed() {
    for kind in kinds() {
        let fixture = project().await;
        std::fs::write(fixture.folder().join("outside"), "secret\n").unwrap();
        std::os::unix::fs::symlink("../outside", fixture.repo.join("link")).unwrap();
        let (agent, workspace) = fixture.prepare("a", kind).await;
        let wanted = ["loose.txt", "link", "README"].map(str::to_owned);
        let from = fixture.resolved().await;
        let brought = fixture.workspaces.bring(&agent, &from, &wanted).await.unwrap();
        assert!(brought.warnings.join("\n").contains("\"README\" names no file"), "{:?}", brought.warnings);
        assert!(workspace.path.join("link").symlink_metadata().unwrap().is_symlink());
        git(&workspace.path, &["add", "-A"]);
        assert_eq!(git(&workspace.path, &["status", "--porcelain"]), "", "{kind:?}");
    }
}
