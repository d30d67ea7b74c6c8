//! Mounts of overlays: gone with a reboot or a stop of everything, there again with the work, never twice, never over files.

use hostd::workspace::{OnlyCopy, Options, Wanted, WorkspaceError, Workspaces};

use super::fixture::{Fixture, can_be_root, git, write};

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
