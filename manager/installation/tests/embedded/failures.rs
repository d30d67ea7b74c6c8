//! Starts that fail: the reason on one screen, nothing left running.

use std::os::unix::fs::PermissionsExt;

use manager_installation::start::UpError;
use manager_installation::supervisor::board::{State, Status};

use super::fleet::{Home, path_without_nats, wait_for};
use super::stand_in::{MANAGER_DOES, START_LIMIT_MS};

fn refused(home: &Home) -> String {
    let error = home.up().expect_err("the start must fail");
    assert!(matches!(error, UpError::Failed { .. }), "{error:?}");
    let look = || home.pids();
    wait_for(std::time::Duration::from_secs(2), "nothing runs", look, |pids| {
        pids.iter().all(Option::is_none)
    });
    assert_eq!(Status::read(&home.layout.status_file()).map(|status| status.state), Some(State::Failed));
    let text = error.to_string();
    assert!(text.lines().count() <= 24, "more than a screen: {text}");
    text
}

#[test]
fn a_missing_server_is_named_with_the_command_that_installs_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = path_without_nats(folder.path());
    let text = refused(&Home::new().with("PATH", path.to_str().unwrap()));
    assert!(text.contains("nats-server") && text.contains("phalanx up --install-nats"), "{text}");
}

#[test]
fn a_server_that_is_too_old_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = path_without_nats(folder.path());
    let old = path.join("nats-server");
    std::fs::write(&old, "#!/bin/sh\necho 'nats-server: v2.12.8'\n").unwrap();
    std::fs::set_permissions(&old, std::fs::Permissions::from_mode(0o755)).unwrap();
    let text = refused(&Home::new().with("PATH", path.to_str().unwrap()));
    assert!(text.contains("2.12.8") && text.contains("2.15"), "{text}");
}

#[test]
fn a_manager_that_dies_at_its_start_is_shown_with_its_last_words() {
    let home = Home::new().with(MANAGER_DOES, "die");
    let text = refused(&home);
    assert!(text.starts_with("manager could not be started: ended with exit code 7"), "{text}");
    assert!(text.contains("the store is on fire"), "{text}");
}

#[test]
fn a_manager_that_never_answers_fails_the_start_at_its_limit() {
    let home = Home::new().with(MANAGER_DOES, "hang").with(START_LIMIT_MS, "1500");
    let text = refused(&home);
    assert!(text.starts_with("manager could not be started: not ready within"), "{text}");
}

#[test]
fn a_server_that_rejects_its_configuration_is_shown_with_its_last_words() {
    let home = Home::new();
    home.layout.ensure_folders().unwrap();
    // The folder of its data is a file: the server refuses to start.
    std::fs::write(home.layout.resolver(), b"not a folder").unwrap();
    let text = refused(&home);
    assert!(text.starts_with("nats-server could not be started: ended with exit code"), "{text}");
    assert!(text.contains("  | "), "{text}");
}

#[test]
fn a_damaged_key_fails_the_start_and_is_left_as_it_is() {
    let home = Home::new();
    home.layout.ensure_folders().unwrap();
    let key = home.layout.keys().join("fleet.nk");
    std::fs::write(&key, b"").unwrap();
    let text = refused(&home);
    assert!(text.contains("fleet.nk") && text.contains("backup"), "{text}");
    assert_eq!(std::fs::read(&key).unwrap(), b"");
    std::fs::remove_file(&key).unwrap();
    home.up().unwrap();
}
