//! Where the binaries under test are: beside the test executables, in the folder of the build profile. Who runs the
//! tests builds them first (`cargo build --workspace`); a test package cannot ask for binaries of others.

use std::path::{Path, PathBuf};

/// `target/<profile>/<name>`.
///
/// # Panics
/// When it has not been built.
#[must_use]
pub fn path_of(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    let folder = test.ancestors().skip(1).find(|folder| !folder.ends_with("deps")).expect("a build folder");
    let path = folder.join(name);
    assert!(path.is_file(), "{} is missing; build it first: cargo build --workspace", path.display());
    path
}

/// Our program that misbehaves on command; see `bin/fake_agent.rs`.
#[must_use]
pub fn fake_agent() -> String {
    text(&path_of("fake-agent"))
}

#[must_use]
pub fn text(path: &Path) -> String {
    path.to_str().expect("a path that is text").to_owned()
}

/// Whether this process is root. `what` needs it: where it is missing the reason is printed, and the test fails when
/// `PHALANX_REQUIRE_ROOT_TESTS=1` says that it must run.
///
/// # Panics
/// When root is required and missing.
#[must_use]
pub fn is_root_for(what: &str) -> bool {
    if nix::unistd::geteuid().is_root() {
        return true;
    }
    let required = std::env::var_os("PHALANX_REQUIRE_ROOT_TESTS").is_some_and(|value| value == "1");
    assert!(!required, "{what} needs root, and PHALANX_REQUIRE_ROOT_TESTS=1 is set");
    eprintln!("skipped: {what} needs root");
    false
}
