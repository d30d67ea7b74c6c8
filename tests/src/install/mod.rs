//! One installation with the real binaries in a folder of its own. All that it started is gone after `Drop`: agents,
//! tmux servers, daemons, mounts, cgroups. Looking at what is left is `traces.rs`'s, running commands `command.rs`'s.

mod command;
mod traces;

use std::path::{Path, PathBuf};
use std::time::Duration;

use manager_installation::{Layout, lock};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use protocol::ids::AgentId;
use serde_json::Value;

use crate::scratch::Repo;
use crate::{json, wait};

pub use command::{Background, Ran};
pub use traces::{Process, Traces};

/// What can be killed by name; the supervisor brings the other three back.
pub const DAEMONS: [&str; 3] = ["hostd", "manager", "nats-server"];

pub struct Install {
    layout: Layout,
    folder: tempfile::TempDir,
}

impl Install {
    /// A home in which nothing was started yet.
    ///
    /// # Panics
    /// When the folder cannot be made.
    #[must_use]
    pub fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("phalanx-test-").tempdir().unwrap();
        // How full the disk of a machine is that runs tests is no matter of theirs.
        let settings = folder.path().join("user/.config/phalanx");
        std::fs::create_dir_all(&settings).unwrap();
        std::fs::write(settings.join("config.toml"), "[host]\ndisk_share = \"99%\"\n").unwrap();
        let layout = Layout::at(folder.path().join("home")).unwrap();
        let install = Self { layout, folder };
        // How full the machine of a test is, is not what any of them is about.
        install.settings("[host]\ndisk_share = \"100%\"\n");
        install
    }

    /// The user's settings, with this content.
    ///
    /// # Panics
    /// When they cannot be written.
    pub fn settings(&self, content: &str) {
        let file = self.settings_file();
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, content).unwrap();
    }

    #[must_use]
    pub fn settings_file(&self) -> PathBuf {
        self.path("user").join(".config/phalanx/config.toml")
    }

    /// One that is up.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start() -> Self {
        let install = Self::new();
        install.run(&["up"]).succeeded();
        install
    }

    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// For the files of a test; beside the home, not in it.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    #[must_use]
    pub fn text_path(&self, name: &str) -> String {
        crate::programs::text(&self.path(name))
    }

    /// A file of the test, with this content; its path.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        std::fs::write(self.path(name), content).unwrap();
        self.text_path(name)
    }

    #[must_use]
    pub fn repo(&self, name: &str) -> Repo {
        Repo::new(self.path(name))
    }

    /// The lines of a file that agents append to; none while it is not there.
    #[must_use]
    pub fn lines(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.path(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    #[must_use]
    pub fn agent_folder(&self, agent: AgentId) -> PathBuf {
        self.layout.host().join("agents").join(agent.to_string())
    }

    /// Agents in `ls`, or with ended attempts and destroyed ones in `ls -a`.
    ///
    /// # Panics
    /// When `ls` fails.
    #[must_use]
    #[track_caller]
    pub fn agents(&self, extra: &[&str]) -> Vec<json::Agent> {
        let mut args = vec!["ls", "-o", "json"];
        args.extend(extra);
        json::items(&self.run(&args).succeeded().stdout)
    }

    /// # Panics
    /// When there is not exactly one of this name or id.
    #[must_use]
    #[track_caller]
    pub fn agent(&self, name: &str) -> json::Agent {
        let mut items = json::items(&self.run(&["show", name, "-o", "json"]).succeeded().stdout);
        assert_eq!(items.len(), 1, "{items:?}");
        items.remove(0)
    }

    /// Waits until the agent is as `right` says.
    #[track_caller]
    pub fn agent_until(
        &self,
        name: &str,
        what: &str,
        right: impl FnMut(&json::Agent) -> bool,
    ) -> json::Agent {
        wait::until(wait::LIMIT, &format!("{name} {what}"), || self.agent(name), right)
    }

    /// # Panics
    /// When there is no such run.
    #[must_use]
    #[track_caller]
    pub fn tasks(&self, run: &str) -> Vec<protocol::task::TaskView> {
        json::items(&self.run(&["tasks", run, "-o", "json"]).succeeded().stdout)
    }

    /// # Panics
    /// When there is no such task.
    #[must_use]
    #[track_caller]
    pub fn task(&self, run: &str, name: &str) -> protocol::task::TaskView {
        let mut tasks = self.tasks(run);
        tasks.retain(|task| task.spec.name.to_string() == name);
        assert_eq!(tasks.len(), 1, "{name} in {run}: {tasks:?}");
        tasks.remove(0)
    }

    /// The live holder of a part's lock.
    #[must_use]
    pub fn pid(&self, part: &str) -> Option<u32> {
        lock::holder(&self.layout.lock(part)).ok().flatten().map(|process| process.pid())
    }

    /// `kill -9`, and waits until it is gone. Nothing when it does not run at this moment.
    pub fn kill(&self, part: &str) {
        if let Some(pid) = self.pid(part) {
            kill_and_wait(pid);
        }
    }

    /// The supervisor and the child of an agent's shim.
    ///
    /// # Panics
    /// When the agent has no shim.
    #[must_use]
    pub fn shim_and_child(&self, agent: AgentId) -> (u32, u32) {
        let text = std::fs::read(self.agent_folder(agent).join("shim.json")).expect("shim.json");
        let record: Value = serde_json::from_slice(&text).unwrap();
        let pid = |part: &str| record[part]["pid"].as_u64().unwrap().try_into().unwrap();
        (pid("shim"), pid("child"))
    }

    /// Process ids of this home's tmux servers.
    #[must_use]
    pub fn tmux_servers(&self) -> Vec<u32> {
        let processes = self.traces().processes;
        processes
            .into_iter()
            .filter(|found| found.command.starts_with("tmux "))
            .map(|found| found.pid)
            .collect()
    }

    /// Waits until manager, bus and host answer again, with the processes that run now.
    #[track_caller]
    pub fn settled(&self) {
        let up = || self.run(&["status", "-o", "json"]);
        wait::until(wait::LIMIT, "manager, bus and host answer", up, |ran| {
            let Ok(status) = serde_json::from_slice::<Value>(&ran.stdout) else { return false };
            let fleet = &status["items"][0]["fleet"];
            ran.code == 0
                && fleet["bus_connected"] == true
                && fleet["hosts"][0]["reachability"] == "fresh"
                && DAEMONS.iter().all(|part| self.pid(part).is_some())
        });
    }

    /// Stops the daemons and starts them again: their pauses between restarts begin anew.
    pub fn restart(&self) {
        self.run(&["down"]).succeeded();
        self.run(&["up"]).succeeded();
    }

    /// What of this home is on the machine.
    #[must_use]
    pub fn traces(&self) -> Traces {
        Traces::of(self.layout.home())
    }

    /// Waits until nothing of an agent is left but its archive.
    #[track_caller]
    pub fn gone(&self, agent: AgentId) {
        let id = agent.to_string();
        let look = || (self.traces().naming(&id), self.agent_folder(agent).exists());
        wait::until(wait::LIMIT, &format!("nothing is left of {id}"), look, |(traces, folder)| {
            traces.is_empty() && !folder
        });
    }

    #[must_use]
    pub fn home(&self) -> &Path {
        self.layout.home()
    }
}

impl Default for Install {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Install {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.tell();
        }
        if let Err(error) = manager_installation::stop::down(&self.layout) {
            eprintln!("down: {error}");
        }
        self.traces().remove();
    }
}

impl Install {
    /// The last lines of the logs, for whoever reads why a test failed.
    fn tell(&self) {
        for part in ["supervisor", "hostd", "manager"] {
            let text = std::fs::read_to_string(self.layout.log_file(part)).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            let from = lines.len().saturating_sub(12);
            eprintln!("== {part}\n{}", lines[from..].join("\n"));
        }
    }
}

/// `kill -9`, and waits until the process is gone or a zombie.
pub fn kill_and_wait(pid: u32) {
    let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
    wait::until(Duration::from_secs(10), &format!("process {pid} is gone"), || is_alive(pid), |alive| !alive);
}

/// Whether the process runs; a zombie does not.
#[must_use]
pub fn is_alive(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    !stat.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" Z") || rest.starts_with(" X"))
}
