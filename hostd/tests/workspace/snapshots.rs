//! Snapshots against a real git: what is in one comes back byte for byte, what is in none is not touched.

use crate::fixture::{Fixture, git, kinds};
use hostd::workspace::{Wanted, WorkspaceError};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn write(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// Every file below the workspace but git's own, with its content and whether it may be executed.
fn all(folder: &Path) -> std::collections::BTreeMap<String, (String, bool)> {
    let mut found = std::collections::BTreeMap::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(at) = open.pop() {
        for entry in std::fs::read_dir(&at).unwrap().flatten() {
            let path = entry.path();
            let name = path.strip_prefix(folder).unwrap().to_string_lossy().into_owned();
            if name == ".git" {
                continue;
            }
            if path.is_symlink() {
                found.insert(name, (format!("-> {}", path.read_link().unwrap().display()), false));
            } else if path.is_dir() {
                open.push(path);
            } else {
                let mode = path.metadata().unwrap().permissions().mode() & 0o100 != 0;
                found.insert(name, (std::fs::read_to_string(&path).unwrap(), mode));
            }
        }
    }
    found
}

async fn comes_back(kind: Wanted) {
    let fixture = Fixture::new().await;
    fixture.write(".gitignore", "*.log\n");
    fixture.write("old.txt", "old\n");
    fixture.git(&["add", "-A"]);
    fixture.git(&["commit", "-qm", "more"]);
    let (agent, workspace) = fixture.prepare("a", kind).await;
    let work = &workspace.path;
    write(work, "new/deep.txt", "untracked\n");
    write(work, "staged.txt", "staged\n");
    git(work, &["add", "staged.txt"]);
    write(work, "odd \n name", "odd\n");
    std::fs::remove_file(work.join("old.txt")).unwrap();
    std::os::unix::fs::symlink("staged.txt", work.join("link")).unwrap();
    write(work, "run.sh", "#!/bin/sh\n");
    std::fs::set_permissions(work.join("run.sh"), std::fs::Permissions::from_mode(0o755)).unwrap();
    write(work, "kept.log", "ignored\n");
    let (head, index) = (git(work, &["rev-parse", "HEAD"]), git(work, &["ls-files", "-s"]));
    let first = all(work);

    let workspaces = &fixture.workspaces;
    let one = workspaces.snapshot(&agent, "a", false).await.unwrap();
    assert_eq!((one.number, one.ignored, one.not_saved), (1, false, vec!["kept.log".to_owned()]));
    assert_eq!(all(work), first, "taking one changes nothing");
    // Then all is changed.
    write(work, "new/deep.txt", "changed\n");
    write(work, "old.txt", "again\n");
    std::fs::remove_file(work.join("link")).unwrap();
    std::fs::set_permissions(work.join("run.sh"), std::fs::Permissions::from_mode(0o644)).unwrap();
    write(work, "later.txt", "the snapshot does not know it\n");
    let second = all(work);

    let restored = workspaces.restore(&agent, "a", 1).await.unwrap();
    assert_eq!((restored.before.number, restored.left), (2, vec!["later.txt".to_owned()]));
    let mut wanted = first.clone();
    wanted.insert("later.txt".into(), ("the snapshot does not know it\n".into(), false));
    assert_eq!(all(work), wanted);
    assert_eq!((git(work, &["rev-parse", "HEAD"]), git(work, &["ls-files", "-s"])), (head, index));
    // And back to what was there before.
    let restored = workspaces.restore(&agent, "a", 2).await.unwrap();
    assert_eq!(
        restored.left,
        ["link"],
        "it was not there then, in no commit either: nobody said that it may go"
    );
    std::fs::remove_file(work.join("link")).unwrap();
    assert_eq!(all(work), second);
    let numbers: Vec<u32> =
        workspaces.snapshots(&agent, "a").await.unwrap().iter().map(|kept| kept.number).collect();
    assert_eq!(numbers, [1, 2, 3]);
    assert!(matches!(workspaces.restore(&agent, "a", 9).await, Err(WorkspaceError::BadName { .. })));
    // Another agent begins with it.
    let (second_dir, cloned) = {
        let dir = fixture.agent_dir("b");
        let resolved = workspaces.resolve(&fixture.repo, Some(&one.head)).await.unwrap();
        let spec = hostd::workspace::PrepareSpec {
            repo: Some(resolved),
            branch: "phalanx/run-1/b".into(),
            user: None,
            kind,
            prepared: None,
        };
        let made = workspaces.prepare(&dir, &spec).await.unwrap();
        (dir, made)
    };
    workspaces.lay(&second_dir, &one.commit).await.unwrap();
    let mut wanted = first;
    wanted.remove("kept.log");
    assert_eq!(all(&cloned.path), wanted);
    write(&cloned.path, "own.txt", "its own\n");
    workspaces.lay(&second_dir, &one.commit).await.unwrap();
    assert!(cloned.path.join("own.txt").exists(), "it is laid once");
    let status = git(&cloned.path, &["status", "--porcelain"]);
    assert!(
        status.contains(" D old.txt") && status.contains("?? own.txt"),
        "uncommitted there too: {status}"
    );
}

#[tokio::test]
async fn what_is_in_a_snapshot_comes_back_byte_for_byte() {
    comes_back(Wanted::Auto).await;
}

#[tokio::test]
async fn what_is_in_a_snapshot_comes_back_in_a_clone_too() {
    comes_back(Wanted::Clone).await;
}

#[tokio::test]
async fn a_file_that_is_in_no_snapshot_is_not_written_over() {
    let fixture = Fixture::new().await;
    let (agent, workspace) = fixture.prepare("a", Wanted::Auto).await;
    let work = &workspace.path;
    write(work, "data.bin", "saved\n");
    let workspaces = &fixture.workspaces;
    workspaces.snapshot(&agent, "a", false).await.unwrap();
    // From now on it is ignored, and another.
    write(work, ".gitignore", "*.bin\n");
    write(work, "data.bin", "precious\n");
    let refused = workspaces.restore(&agent, "a", 1).await;
    assert!(matches!(refused, Err(WorkspaceError::InTheWay { .. })), "{refused:?}");
    assert_eq!(std::fs::read_to_string(work.join("data.bin")).unwrap(), "precious\n");
    let with = workspaces.snapshot(&agent, "a", true).await.unwrap();
    assert!(with.ignored && with.not_saved.is_empty());
}

#[tokio::test]
async fn many_snapshots_at_once_each_have_a_number() {
    let fixture = Fixture::new().await;
    let (agent, workspace) = fixture.prepare("a", Wanted::Auto).await;
    write(&workspace.path, "new.txt", "new\n");
    let taken =
        futures::future::join_all((0..8).map(|_| fixture.workspaces.snapshot(&agent, "a", false))).await;
    let mut numbers: Vec<u32> = taken.into_iter().map(|kept| kept.unwrap().number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7, 8]);
}

/// Line ends, keywords and filters of a `.gitattributes` that nobody committed are not applied to what is the only copy.
#[tokio::test]
async fn bytes_are_kept_as_they_are_whatever_rules_an_agent_left_beside_them() {
    let cases = kinds().into_iter().flat_map(|kind| {
        let rules = [(".gitattributes", ""), ("deep/.gitattributes", ""), (".gitattributes", ".git*\n")];
        rules.map(|(rules, ignored)| (kind, rules, ignored))
    });
    for (kind, rules, ignored) in cases {
        let fixture = Fixture::new().await;
        // As a person leaves files out of his repository.
        std::fs::write(fixture.repo.join(".git/info/exclude"), ignored).unwrap();
        fixture.write("deep/tracked.txt", "one\n");
        fixture.git(&["add", "-A"]);
        fixture.git(&["commit", "-qm", "more"]);
        let (agent, workspace) = fixture.prepare("a", kind).await;
        let work = &workspace.path;
        write(work, rules, "*.txt text eol=lf\n*.txt ident\n");
        write(work, "deep/new.txt", "q\r\n$Id: mine$\r\n");
        write(work, "deep/tracked.txt", "one\r\n");
        let tracked = std::fs::File::options().write(true).open(work.join("deep/tracked.txt")).unwrap();
        tracked.set_modified(std::time::SystemTime::now() - std::time::Duration::from_secs(60)).unwrap();
        // By its own rules: its index takes the file for unchanged from now on.
        let _ = git(work, &["add", "deep/tracked.txt"]);
        let collected = fixture.workspaces.collect(&agent, &fixture.wish("a")).await.unwrap();
        let commit = collected.uncommitted.unwrap().commit;
        for (file, wanted) in [("deep/new.txt", "q\r\n$Id: mine$\r\n"), ("deep/tracked.txt", "one\r\n")] {
            let show = ["cat-file", "-p", &format!("{commit}:{file}")];
            let shown =
                std::process::Command::new("git").args(show).current_dir(&fixture.repo).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&shown.stdout), wanted, "{rules} {file}");
        }
        let snapshot = fixture.workspaces.snapshot(&agent, "a", false).await.unwrap();
        std::fs::remove_file(work.join("deep/new.txt")).unwrap();
        fixture.workspaces.restore(&agent, "a", snapshot.number).await.unwrap();
        assert_eq!(std::fs::read(work.join("deep/new.txt")).unwrap(), b"q\r\n$Id: mine$\r\n", "{rules}");
    }
}
