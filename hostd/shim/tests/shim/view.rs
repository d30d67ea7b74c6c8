//! What a program sees of the file system.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use protocol::shim::{Keep, Launch, LaunchUser, View};

use crate::support::{Agent, is_root, shell};

fn keep(path: &Path, read_only: bool) -> Keep {
    Keep { path: path.to_owned(), read_only }
}

fn closed(path: &Path) {
    std::fs::create_dir_all(path).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o700)).unwrap();
}

#[test]
fn of_a_covered_folder_only_what_is_kept_is_seen() {
    if !is_root("a mount namespace") {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let (work, other, lent) =
        (home.path().join("agents/a/work"), home.path().join("agents/b"), home.path().join("lent"));
    [&work, &other, &lent].into_iter().for_each(|path| closed(path));
    std::fs::write(other.join("secret"), "x").unwrap();
    std::fs::write(lent.join("object"), "lent").unwrap();
    let script = "pwd; ls ..; ls ../..; cat $0/lent/object; echo y > $0/lent/object; echo z > $0/new; \
                  rm -rf $0/agents/b; echo made > here";
    let launch = Launch {
        args: ["-c".to_owned(), script.to_owned(), home.path().display().to_string()].into(),
        cwd: work.clone(),
        view: Some(View {
            covers: vec![home.path().join("agents"), home.path().to_owned()],
            keeps: vec![keep(&work, false), keep(&lent, true)],
        }),
        ..shell("")
    };
    let (agent, end) = Agent::run(&launch);
    let printed = String::from_utf8(agent.output()).unwrap();
    assert_eq!(end.code, Some(0), "{printed}");
    assert!(printed.contains(&format!("{}\r\nwork\r\na\r\nlent", work.display())), "{printed}");
    assert_eq!(printed.matches("Read-only file system").count(), 2, "{printed}");
    assert_eq!(std::fs::read_to_string(work.join("here")).unwrap(), "made\n");
    assert_eq!(std::fs::read_to_string(other.join("secret")).unwrap(), "x");
    assert_eq!(std::fs::read_to_string(lent.join("object")).unwrap(), "lent");
    assert!(!home.path().join("new").exists());
}

/// The records of the shim lie in its working folder, which nobody else sees.
#[test]
fn a_shim_keeps_its_records_under_the_cover() {
    if !is_root("a mount namespace") {
        return;
    }
    let mut agent = Agent::new();
    let work = agent.path("work");
    closed(&work);
    let forged = agent.path("exit.json");
    let launch = Launch {
        args: ["-c", "echo '{}' > $0; ls $(dirname $0); exit 3", forged.to_str().unwrap()]
            .map(str::to_owned)
            .into(),
        cwd: work.clone(),
        view: Some(View { covers: vec![agent.dir.clone()], keeps: vec![keep(&work, false)] }),
        ..shell("")
    };
    assert_eq!(agent.start(&launch).failure, None);
    assert_eq!(agent.ended().code, Some(3));
    let printed = String::from_utf8(agent.output()).unwrap();
    assert!(printed.ends_with("Read-only file system\r\nwork\r\n"), "{printed}");
}

#[test]
fn another_user_reaches_what_is_kept_below_folders_that_it_may_not_enter() {
    if !is_root("another user") {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    closed(home.path());
    let work = home.path().join("deep/work");
    closed(&work);
    std::os::unix::fs::chown(&work, Some(65_534), Some(65_534)).unwrap();
    let launch = Launch {
        cwd: work.clone(),
        user: Some(LaunchUser { uid: 65_534, gid: 65_534, groups: vec![65_534] }),
        view: Some(View { covers: vec![home.path().to_owned()], keeps: vec![keep(&work, false)] }),
        scoped: true,
        ..shell("cd .. && cd $OLDPWD && id -u > made")
    };
    let (agent, end) = Agent::run(&launch);
    assert_eq!(end.code, Some(0), "{}", String::from_utf8_lossy(&agent.output()));
    assert_eq!(std::fs::read_to_string(work.join("made")).unwrap(), "65534\n");
}

/// A view that cannot be made fails the start: nothing runs outside of it.
#[test]
fn without_its_view_a_program_is_not_started() {
    let mut agent = Agent::new();
    let view = View { covers: vec![agent.path("absent")], keeps: Vec::new() };
    let ready = agent.start(&Launch { view: Some(view), ..shell("echo ran") });
    let message = ready.failure.unwrap().message;
    assert!(message.contains("absent") || message.contains("mount namespace"), "{message}");
    assert!(agent.output().is_empty());
}
