//! The agent's leaf: freezing and killing it leaves the shim, in the leaf beside it, free to record.

use std::path::{Path, PathBuf};
use std::process::Command;

use protocol::shim::{EndCause, Launch};

use crate::support::{Agent, SHIM, is_root, shell, wait_until};

struct Leaves(PathBuf);

impl Leaves {
    /// `None` where this cannot be tried.
    fn new(name: &str) -> Option<Self> {
        if !is_root("a cgroup of our own") {
            return None;
        }
        let roots = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
        let root = roots.iter().map(Path::new).find(|root| root.join("cgroup.subtree_control").exists());
        let Some(root) = root else {
            assert!(std::env::var_os("PHALANX_REQUIRE_ROOT_TESTS").is_none(), "no cgroup v2");
            println!("skipped: no cgroup v2 is mounted");
            return None;
        };
        let group = root.join(format!("phalanx-test-{}-{name}", std::process::id()));
        let leaves = Self(group);
        for leaf in ["shim", "agent"] {
            std::fs::create_dir_all(leaves.0.join(leaf)).unwrap();
        }
        Some(leaves)
    }

    fn agent(&self, file: &str) -> PathBuf {
        self.0.join("agent").join(file)
    }

    fn launch(&self, script: &str) -> Launch {
        let mut launch = shell(script);
        launch.agent_procs = vec![self.agent("cgroup.procs")];
        launch.cgroup_required = true;
        launch.kill_files = vec![self.agent("cgroup.kill")];
        launch.freeze_files = vec![self.agent("cgroup.freeze")];
        launch.events_file = Some(self.agent("cgroup.events"));
        launch
    }

    fn start(&self, launch: &Launch) -> Agent {
        let mut agent = Agent::new();
        let script =
            format!("echo 0 >'{}' && exec \"$0\" run \"$1\"", self.0.join("shim/cgroup.procs").display());
        let ready =
            agent.start_by(launch, Command::new("sh").args(["-c", &script, SHIM]).arg(agent.dir.clone()));
        assert_eq!(ready.failure, None);
        agent
    }

    fn event(&self, line: &str) -> bool {
        std::fs::read_to_string(self.agent("cgroup.events")).unwrap().lines().any(|l| l == line)
    }
}

impl Drop for Leaves {
    fn drop(&mut self) {
        let _ = std::fs::write(self.agent("cgroup.kill"), "1");
        for folder in [self.0.join("agent"), self.0.join("shim"), self.0.clone()] {
            for _ in 0..500 {
                if std::fs::remove_dir(&folder).is_ok() || !folder.exists() {
                    break;
                }
                std::thread::park_timeout(std::time::Duration::from_millis(5));
            }
        }
    }
}

#[test]
fn freezing_and_killing_the_leaf_leaves_the_shim_free_to_record() {
    let Some(leaves) = Leaves::new("freeze") else { return };
    let mut agent = leaves.start(&leaves.launch("cat /proc/self/cgroup; echo up; sleep 600 & wait"));
    agent.wait_for_output("up");
    assert!(String::from_utf8(agent.output()).unwrap().contains("-freeze/agent"));
    std::fs::write(leaves.agent("cgroup.freeze"), "1").unwrap();
    wait_until("it is frozen", || leaves.event("frozen 1"));
    assert!(agent.connect().status().child_alive, "the shim answers");
    std::fs::write(leaves.agent("cgroup.kill"), "1").unwrap();
    let record = agent.ended();
    assert_eq!((record.cause, record.signal), (EndCause::Signalled, Some(9)));
    wait_until("the leaf is empty", || leaves.event("populated 0"));
}

#[test]
fn a_limit_thaws_a_frozen_program_so_that_it_can_heed_the_term() {
    let Some(leaves) = Leaves::new("thaw") else { return };
    let mut launch = leaves.launch("trap 'echo heard; exit 0' TERM; echo up; while :; do sleep 0.02; done");
    launch.grace_ms = 20_000;
    let mut agent = leaves.start(&launch);
    agent.wait_for_output("up");
    std::fs::write(leaves.agent("cgroup.freeze"), "1").unwrap();
    wait_until("it is frozen", || leaves.event("frozen 1"));
    agent.reach_wall_time();
    let record = agent.ended();
    assert_eq!((record.cause, record.code), (EndCause::WallTime, Some(0)));
    assert!(String::from_utf8(agent.output()).unwrap().contains("heard"));
}

#[test]
fn a_limit_ends_what_is_in_the_leaf_by_its_kill_file() {
    let Some(leaves) = Leaves::new("kill") else { return };
    let child = "trap \"\" TERM; echo up; sleep 600";
    let launch = leaves.launch(&format!("trap '' TERM; setsid sh -c '{child}' & sleep 600"));
    let mut agent = leaves.start(&launch);
    agent.wait_for_output("up");
    agent.reach_wall_time();
    let record = agent.ended();
    assert_eq!((record.cause, record.signal), (EndCause::WallTime, Some(9)));
    wait_until("the leaf is empty", || leaves.event("populated 0"));
}

#[test]
fn a_group_that_holds_the_shim_itself_is_never_ended_as_a_whole() {
    let Some(leaves) = Leaves::new("shared") else { return };
    let bystander = Command::new("sleep").arg("600").spawn();
    let mut bystander = bystander.unwrap();
    let mut launch = leaves.launch("trap '' TERM; echo up; sleep 600; sleep 600");
    launch.agent_procs = vec![leaves.0.join("shim/cgroup.procs")];
    launch.kill_files = vec![leaves.0.join("shim/cgroup.kill")];
    std::fs::write(leaves.0.join("shim/cgroup.procs"), bystander.id().to_string()).unwrap();
    let mut agent = leaves.start(&launch);
    agent.wait_for_output("up");
    agent.reach_wall_time();
    let record = agent.ended();
    assert_eq!((record.cause, record.signal), (EndCause::WallTime, Some(9)));
    assert!(bystander.try_wait().unwrap().is_none(), "another process of the group lives");
    bystander.kill().unwrap();
    bystander.wait().unwrap();
}
