//! A terminal of a person: a tmux server that has nothing to do with ours, ended with the test.

use std::process::Command;

use phalanx_tests::install::Install;

pub(crate) struct Outer(std::path::PathBuf);

impl Outer {
    pub(crate) fn of(install: &Install) -> Self {
        Self(install.path("outer"))
    }

    pub(crate) fn tmux(&self, args: &[&str]) -> String {
        let out = Command::new("tmux").arg("-S").arg(&self.0).args(["-f", "/dev/null"]).args(args).output();
        String::from_utf8_lossy(&out.unwrap().stdout).trim_end().to_owned()
    }
}

impl Drop for Outer {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}
