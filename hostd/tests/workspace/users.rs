//! Whose files they are: agents of another user under root, and everything without root.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;

use hostd::workspace::{Kind, PrepareSpec, Wanted, WorkspaceError};

use super::fixture::{Fixture, can_be_root, is_root};

#[tokio::test]
async fn files_belong_to_the_agents_user() {
    if !can_be_root("files_belong_to_the_agents_user") {
        return;
    }
    for kind in [Wanted::Overlay, Wanted::Clone] {
        let fixture = Fixture::new().await;
        let (agent, workspace) = fixture.prepare_for("a", kind, Some((12345, 12346))).await;
        for name in [
            "",
            "README",
            "src",
            "src/one.txt",
            ".git",
            ".git/HEAD",
            ".git/index",
            ".git/refs/heads/phalanx/run-1/a",
        ] {
            let facts = workspace.path.join(name).symlink_metadata().unwrap();
            assert_eq!((facts.uid(), facts.gid()), (12345, 12346), "{kind:?} {name}");
        }
        let script =
            "cd \"$0\" && echo x > x && git add x && git -c user.name=a -c user.email=a@b commit -qm x";
        let mut commit = std::process::Command::new("sh");
        commit.args(["-c", script]).arg(&workspace.path).env("HOME", "/nonexistent").uid(12345).gid(12346);
        assert!(commit.status().unwrap().success());
        let collected = fixture.workspaces.collect(&agent, &fixture.wish("a")).await.unwrap();
        assert_eq!(collected.diff.files, 1);
        let dir = fixture.agent_dir("v");
        let base = fixture.resolved().await;
        let commit = collected.head_commit.unwrap();
        let fresh = fixture
            .workspaces
            .fresh_checkout(&dir, &base, &commit, Some((12345, 12346)), None)
            .await
            .unwrap();
        assert_eq!(fresh.path.join("x").metadata().unwrap().uid(), 12345);
    }
}

#[tokio::test]
async fn without_root_another_user_is_refused_and_clones_are_made() {
    if is_root() {
        return as_somebody_else();
    }
    let fixture = Fixture::new().await;
    let (_, workspace) = fixture.prepare("a", Wanted::Auto).await;
    assert_eq!(workspace.kind, Kind::Clone);
    assert!(fixture.workspaces.facts().overlay.is_err());
    let (branch, user) = ("b".to_owned(), Some((0, 0)));
    let spec = PrepareSpec { repo: None, branch, user, kind: Wanted::Auto, prepared: None };
    let refused = fixture.workspaces.prepare(&fixture.agent_dir("b"), &spec).await;
    assert!(matches!(refused, Err(WorkspaceError::OtherUser { .. })), "{refused:?}");
}

/// Runs tests again as a normal user: the test program lies open for all.
fn as_somebody_else() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let program = folder.path().join("tests");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let output = std::process::Command::new(&program)
        .args(["--test-threads=2", "contract", "taking_away", "without_root"])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("TMPDIR", folder.path())
        .current_dir(folder.path())
        .gid(65534)
        .uid(65534)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("without_root_another_user_is_refused_and_clones_are_made ... ok"), "{said}");
}
