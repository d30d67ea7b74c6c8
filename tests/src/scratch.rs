//! Repositories to work on, and what can be told of one: made in a folder of the test, with git's own program.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A git repository of a user.
#[derive(Debug, Clone)]
pub struct Repo {
    pub path: PathBuf,
}

impl Repo {
    /// One with a commit of two files on `main`.
    ///
    /// # Panics
    /// When git fails.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        let repo = Self::empty(path);
        repo.write("README", "read me\n");
        repo.write("src/lib.txt", "one\ntwo\nthree\n");
        repo.git(&["add", "-A"]);
        repo.git(&["commit", "-qm", "first"]);
        repo
    }

    /// One without a commit.
    ///
    /// # Panics
    /// When git fails.
    #[must_use]
    pub fn empty(path: PathBuf) -> Self {
        std::fs::create_dir_all(&path).unwrap();
        let repo = Self { path };
        repo.git(&["init", "-q", "-b", "main"]);
        repo.git(&["config", "user.name", "A User"]);
        repo.git(&["config", "user.email", "user@example.invalid"]);
        repo
    }

    /// # Panics
    /// When the file cannot be written.
    pub fn write(&self, name: &str, content: &str) {
        let path = self.path.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    /// What git says on stdout.
    ///
    /// # Panics
    /// When git fails.
    pub fn git(&self, args: &[&str]) -> String {
        let output = Command::new("git")
            .args(args)
            .current_dir(&self.path)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .output()
            .unwrap();
        assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    pub fn head(&self) -> String {
        self.git(&["rev-parse", "HEAD"])
    }

    /// Refs other than those that hold the results of attempts.
    pub fn refs(&self) -> Vec<String> {
        let all = self.git(&["for-each-ref", "--format=%(refname) %(objectname)"]);
        all.lines().filter(|line| !line.starts_with("refs/phalanx/")).map(str::to_owned).collect()
    }

    /// Everything a user can see to change: his files, index, configuration, hooks and refs; not the objects.
    ///
    /// # Panics
    /// When a file cannot be read.
    #[must_use]
    pub fn picture(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        gather(&self.path, &self.path, &mut files);
        files
    }
}

fn gather(root: &Path, folder: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.strip_prefix(root).unwrap().to_path_buf();
        let ours = name.starts_with(".git/objects") || name.starts_with(".git/refs/phalanx");
        if ours {
            continue;
        }
        if path.is_dir() && !path.is_symlink() {
            gather(root, &path, files);
        } else {
            files.insert(name, std::fs::read(&path).unwrap_or_default());
        }
    }
}
