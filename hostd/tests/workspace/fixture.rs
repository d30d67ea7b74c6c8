//! A repository, hostd's state and agents' folders in a temporary place that is cleaned up with
//! all its mounts.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use hostd::workspace::{
    Collect, CommitMode, Options, PrepareSpec, Resolved, User, Wanted, Workspace, Workspaces,
};

pub(crate) struct Fixture {
    folder: tempfile::TempDir,
    pub(crate) workspaces: Workspaces,
    pub(crate) repo: PathBuf,
}

pub(crate) fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// False, with the reason printed, where a test needs root; fails where the runner promised it.
pub(crate) fn can_be_root(test: &str) -> bool {
    if is_root() {
        return true;
    }
    assert!(std::env::var_os("PHALANX_REQUIRE_ROOT_TESTS").is_none(), "{test} needs root");
    println!("{test} skipped: needs root");
    false
}

/// The kinds that this machine can make.
pub(crate) fn kinds() -> Vec<Wanted> {
    if can_be_root("the overlay half") { vec![Wanted::Overlay, Wanted::Clone] } else { vec![Wanted::Clone] }
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        Self::with(Options::default()).await
    }

    pub(crate) async fn with(options: Options) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Agents of another user must reach their workspace.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).unwrap();
        let state = folder.path().join("host");
        std::fs::create_dir_all(state.join("agents")).unwrap();
        let repo = folder.path().join("repo");
        let workspaces = Workspaces::new(&state, options).await.unwrap();
        let fixture = Self { folder, workspaces, repo };
        std::fs::create_dir(&fixture.repo).unwrap();
        fixture.git(&["init", "-q", "-b", "main"]);
        fixture.write("README", "read me\n");
        fixture.write("src/one.txt", "one\n");
        fixture.write("src/two.txt", "two\n");
        fixture.write("run.sh", "#!/bin/sh\n");
        fixture.write(".gitignore", "*.log\n");
        fixture.git(&["add", "-A"]);
        fixture.git(&["commit", "-qm", "first"]);
        fixture
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.folder().join("host")
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        write(&self.repo, name, text);
    }

    pub(crate) fn git(&self, args: &[&str]) -> String {
        git(&self.repo, args)
    }

    pub(crate) fn head(&self) -> String {
        self.git(&["rev-parse", "HEAD"])
    }

    pub(crate) fn agent_dir(&self, name: &str) -> PathBuf {
        let path = self.state().join("agents").join(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    pub(crate) async fn resolved(&self) -> Resolved {
        self.workspaces.resolve(&self.repo, None).await.unwrap()
    }

    pub(crate) async fn prepare(&self, name: &str, kind: Wanted) -> (PathBuf, Workspace) {
        self.prepare_for(name, kind, None).await
    }

    pub(crate) async fn prepare_for(
        &self,
        name: &str,
        kind: Wanted,
        user: Option<User>,
    ) -> (PathBuf, Workspace) {
        let agent_dir = self.agent_dir(name);
        let spec = PrepareSpec {
            repo: Some(self.resolved().await),
            branch: format!("phalanx/run-1/{name}"),
            user,
            kind,
            prepared: None,
        };
        let workspace = self.workspaces.prepare(&agent_dir, &spec).await.unwrap();
        (agent_dir, workspace)
    }

    pub(crate) fn wish(&self, name: &str) -> Collect {
        Collect {
            ref_name: format!("refs/phalanx/run/{name}/1"),
            commit_mode: CommitMode::Agent,
            recorded: None,
            message: "left uncommitted".to_owned(),
            outputs: Vec::new(),
            outputs_dir: self.folder().join("outputs").join(name),
            outputs_limit_bytes: 1 << 20,
            result: None,
        }
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let ours = self.folder.path().to_string_lossy().into_owned();
        let mut points: Vec<&str> = table.lines().filter_map(|line| line.split(' ').nth(4)).collect();
        points.retain(|point| point.starts_with(&ours));
        points.reverse();
        for point in points {
            let _ = nix::mount::umount2(point, nix::mount::MntFlags::MNT_DETACH);
        }
    }
}

pub(crate) fn write(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

pub(crate) fn run_git(folder: &Path, args: &[&str]) -> Output {
    Command::new("git")
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", "/nonexistent")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_AUTHOR_NAME", "Agent")
        .env("GIT_AUTHOR_EMAIL", "agent@localhost")
        .env("GIT_COMMITTER_NAME", "Agent")
        .env("GIT_COMMITTER_EMAIL", "agent@localhost")
        .args(["-c", "protocol.file.allow=always"])
        .args(args)
        .current_dir(folder)
        .output()
        .unwrap()
}

pub(crate) fn git(folder: &Path, args: &[&str]) -> String {
    let output = run_git(folder, args);
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

/// Every file below with mode, size, time and content: what must not change.
pub(crate) fn fingerprint(folder: &Path, skip: &[&str]) -> Vec<String> {
    use std::os::unix::fs::MetadataExt;
    let (mut lines, mut open) = (Vec::new(), vec![folder.to_path_buf()]);
    while let Some(at) = open.pop() {
        for entry in std::fs::read_dir(&at).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(folder).unwrap().to_string_lossy().into_owned();
            if skip.iter().any(|skip| name == *skip) {
                continue;
            }
            let facts = path.symlink_metadata().unwrap();
            if facts.is_dir() {
                open.push(path);
                continue;
            }
            let content = if facts.is_symlink() {
                format!("{:?}", std::fs::read_link(&path).unwrap())
            } else {
                format!("{:?}", std::fs::read(&path).unwrap())
            };
            let times = (facts.mtime(), facts.mtime_nsec(), facts.ino(), facts.uid(), facts.mode());
            lines.push(format!("{name} {times:?} {content}"));
        }
    }
    lines.sort();
    lines
}
