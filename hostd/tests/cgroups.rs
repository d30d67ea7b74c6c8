//! The cgroup adapter against this machine's kernel.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hostd::sys::cgroup::{AgentGroup, CgroupError, Cgroups, Kind, Limits, Stats};
use hostd::sys::process::ProcessRef;
use nix::sys::signal::Signal;

const LIMIT: Duration = Duration::from_secs(60);

/// Whether what is missing is a failure: as root in `deploy/test`, and for everybody in `deploy/v2`.
fn is_required() -> bool {
    ["PHALANX_REQUIRE_ROOT_TESTS", "PHALANX_REQUIRE_CGROUPS"]
        .iter()
        .any(|name| std::env::var_os(name).is_some())
}

/// Whether `controller` limits groups here; the reason is printed where it does not.
fn limits(groups: &Groups, controller: &str) -> bool {
    let facts = groups.cgroups.describe();
    let has = facts.controllers.iter().any(|name| name == controller);
    assert!(has || !is_required(), "{controller} needed: {facts:?}");
    if !has {
        eprintln!("skipped: {controller} is not limited here: {:?}", facts.reason);
    }
    has
}

/// The groups of one test; takes everything with it when dropped.
struct Groups {
    cgroups: Cgroups,
    children: Vec<Child>,
}

impl Groups {
    /// `None`, with the reason printed, where this machine or user has no cgroups.
    fn new(test: &str) -> Option<Self> {
        let cgroups = Cgroups::detect(&format!("test-{test}-{}", std::process::id()));
        if cgroups.kind() == Kind::None {
            let reason = cgroups.describe().reason.unwrap_or_default();
            assert!(!is_required(), "cgroups needed: {reason}");
            eprintln!("skipped {test}: {reason}");
            return None;
        }
        Some(Self { cgroups, children: Vec::new() })
    }

    /// Runs a shell script inside the agent's leaf.
    fn run(&mut self, group: &AgentGroup, script: &str) -> ProcessRef {
        let join = r#"for file in "$@"; do echo 0 > "$file" || exit 99; done; "#;
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{join}{script}"), "sh"]).args(&group.agent_procs);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let process = ProcessRef::of(i32::try_from(child.id()).unwrap()).unwrap().unwrap();
        self.children.push(child);
        process
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for agent in self.cgroups.list().unwrap_or_default() {
            if let Ok(group) = self.cgroups.open(&agent) {
                let _ = group.kill(LIMIT);
                let _ = group.remove(LIMIT);
            }
        }
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = self.cgroups.remove_instance(Duration::ZERO);
    }
}

/// Waits for a level of the group's counters.
fn wait_for(group: &AgentGroup, what: &str, reached: impl Fn(&Stats) -> bool) -> Stats {
    let deadline = Instant::now() + LIMIT;
    loop {
        let stats = group.stats().unwrap();
        if reached(&stats) {
            return stats;
        }
        assert!(Instant::now() < deadline, "{what} never came: {stats:?}");
        std::thread::yield_now();
    }
}

#[test]
fn what_is_set_is_read_back_from_the_kernel() {
    let Some(groups) = Groups::new("readback") else { return };
    let facts = groups.cgroups.describe();
    let limits = Limits { memory_bytes: Some(64 << 20), cpu_millis: Some(1500), pids: Some(40) };
    let group = groups.cgroups.ensure("a1", &limits).unwrap();
    assert_eq!(group.enforced.memory_bytes, limits.memory_bytes.filter(|_| facts.memory));
    assert_eq!(group.enforced.cpu_millis, limits.cpu_millis.filter(|_| facts.cpu));
    assert_eq!(group.enforced.pids, limits.pids.filter(|_| facts.pids));
    let lacking = |has: [bool; 3]| {
        let names = ["memory", "cpu", "pids"].into_iter().zip(has);
        names.filter(|(_, has)| !has).map(|(name, _)| name).collect::<Vec<_>>()
    };
    let names = |group: &AgentGroup| group.lacking.iter().map(|lack| lack.limit).collect::<Vec<_>>();
    assert_eq!(names(&group), lacking([facts.memory, facts.cpu, facts.pids]));
    assert_eq!(facts.reason.is_some(), !group.lacking.is_empty(), "what is lacking must be explained");
    // Ensuring again with other limits changes them, up and down; opening shows them.
    let wider = Limits { memory_bytes: Some(128 << 20), cpu_millis: None, pids: Some(10) };
    let changed = groups.cgroups.ensure("a1", &wider).unwrap();
    assert_eq!(names(&changed), lacking([facts.memory, true, facts.pids]));
    let opened = groups.cgroups.open("a1").unwrap();
    assert_eq!(opened.enforced.memory_bytes, wider.memory_bytes.filter(|_| facts.memory));
    assert_eq!(opened.enforced.cpu_millis, None);
    let unlimited = groups.cgroups.ensure("a1", &Limits::default()).unwrap();
    assert_eq!(unlimited.enforced, hostd::sys::cgroup::Enforced::default());
}

/// A v2 group to which no controller is delegated still freezes, kills and counts, and says what it lacks.
#[test]
fn a_v2_group_without_controllers_limits_nothing_and_says_so() {
    let Some(outer) = Groups::new("bare") else { return };
    // Beside v1 the unified hierarchy has no controllers; where it has, the leaf of an agent hands none down.
    let bare = if outer.cgroups.kind() == Kind::V2 {
        let holder = outer.cgroups.ensure("holder", &Limits::default()).unwrap();
        let bare = holder.agent_procs[0].with_file_name("bare");
        fs::create_dir(&bare).unwrap();
        bare
    } else {
        "/sys/fs/cgroup/unified".into()
    };
    if !bare.is_dir() {
        return eprintln!("skipped: no unified hierarchy beside v1 here");
    }
    let cgroups = Cgroups::detect_at(&format!("test-bare2-{}", std::process::id()), &bare);
    let mut groups = Groups { cgroups, children: Vec::new() };
    assert_eq!(groups.cgroups.kind(), Kind::V2);
    let facts = groups.cgroups.describe();
    assert!(!facts.memory && !facts.cpu && !facts.pids && facts.freeze, "{facts:?}");
    assert!(facts.reason.unwrap().contains("delegate"));
    let limits = Limits { memory_bytes: Some(1 << 20), ..Limits::default() };
    let group = groups.cgroups.ensure("b1", &limits).unwrap();
    assert!(group.lacking[0].reason.contains("not delegated"), "{:?}", group.lacking);
    let process = groups.run(&group, "exec sleep 1000");
    wait_daemons(&group, 1);
    group.freeze(LIMIT).unwrap();
    group.kill(LIMIT).unwrap();
    assert!(process.wait_ended(LIMIT).unwrap());
}

#[test]
fn a_memory_hog_is_killed_alone_and_counted() {
    let Some(mut groups) = Groups::new("oom") else { return };
    if !limits(&groups, "memory") {
        return;
    }
    let limits = Limits { memory_bytes: Some(32 << 20), ..Limits::default() };
    let group = groups.cgroups.ensure("hog", &limits).unwrap();
    let other = groups.cgroups.ensure("other", &limits).unwrap();
    let bystander = groups.run(&other, "exec sleep 1000");
    // Keeps a line that never ends.
    let hog = groups.run(&group, "exec tail /dev/zero");
    assert!(hog.wait_ended(LIMIT).unwrap(), "the hog was not stopped");
    assert!(wait_for(&group, "an oom kill", |stats| stats.oom_kills > Some(0)).memory_peak_bytes.is_some());
    assert!(bystander.is_alive().unwrap());
    assert_eq!(other.stats().unwrap().oom_kills, Some(0));
}

#[test]
fn a_busy_loop_gets_no_more_than_its_share_of_a_core() {
    let Some(mut groups) = Groups::new("cpu") else { return };
    if !limits(&groups, "cpu") {
        return;
    }
    let limits = Limits { cpu_millis: Some(200), ..Limits::default() };
    let group = groups.cgroups.ensure("busy", &limits).unwrap();
    let started = Instant::now();
    let busy = groups.run(&group, "while :; do :; done");
    assert!(!busy.wait_ended(Duration::from_millis(1500)).unwrap());
    let stats = wait_for(&group, "throttling", |stats| stats.throttled_usec > Some(0));
    let share = stats.cpu_usec.unwrap() as f64 / started.elapsed().as_micros() as f64;
    assert!(share < 0.35, "used {share} of a core");
}

#[test]
fn a_fork_bomb_stops_at_its_limit() {
    let Some(mut groups) = Groups::new("pids") else { return };
    if !limits(&groups, "pids") {
        return;
    }
    let limits = Limits { pids: Some(20), ..Limits::default() };
    let group = groups.cgroups.ensure("bomb", &limits).unwrap();
    groups.run(&group, "while :; do sleep 1000 & done");
    let stats = wait_for(&group, "a refused fork", |stats| stats.pids_refused > Some(0));
    assert!(stats.pids <= Some(20));
    group.kill(LIMIT).unwrap();
    assert!(!group.populated().unwrap());
    assert!(group.processes().unwrap().is_empty());
}

#[test]
fn a_frozen_agent_uses_nothing_goes_on_when_thawed_and_dies_while_frozen() {
    let Some(mut groups) = Groups::new("freeze") else { return };
    let group = groups.cgroups.ensure("cold", &Limits::default()).unwrap();
    let busy = groups.run(&group, "while :; do :; done");
    wait_for(&group, "cpu time", |stats| stats.cpu_usec > Some(0));
    group.freeze(LIMIT).unwrap();
    assert!(group.frozen().unwrap());
    let before = group.stats().unwrap().cpu_usec.unwrap();
    assert!(!busy.wait_ended(Duration::from_millis(200)).unwrap());
    assert!(group.stats().unwrap().cpu_usec.unwrap() - before < 5_000);
    group.thaw(LIMIT).unwrap();
    assert!(!group.frozen().unwrap());
    wait_for(&group, "more cpu time", |stats| stats.cpu_usec > Some(before + 10_000));
    group.freeze(LIMIT).unwrap();
    group.kill(LIMIT).unwrap();
    assert!(busy.wait_ended(LIMIT).unwrap());
    assert!(!group.populated().unwrap());
}

#[test]
fn daemons_that_left_the_session_are_killed_too_and_the_shim_is_not() {
    let Some(mut groups) = Groups::new("daemon") else { return };
    let group = groups.cgroups.ensure("d1", &Limits::default()).unwrap();
    // A shim in its own leaf beside the agent.
    let mut shim = group.clone();
    shim.agent_procs.clone_from(&group.shim_procs);
    let shim = groups.run(&shim, "exec sleep 1000");
    groups.run(&group, "setsid nohup sleep 1000 & (setsid sleep 1000 &) & exit 0");
    wait_daemons(&group, 2);
    // Counted before: the signal ends one of them, at once or a little later.
    let there = group.processes().unwrap().len();
    assert_eq!(group.signal_all(Signal::SIGHUP).unwrap(), there);
    group.kill(LIMIT).unwrap();
    assert!(!group.populated().unwrap());
    assert!(shim.is_alive().unwrap());
    // Nothing is removed under a living shim.
    assert!(group.remove(Duration::ZERO).is_err());
    assert!(shim.signal(Signal::SIGKILL).unwrap());
    group.remove(LIMIT).unwrap();
    group.remove(LIMIT).unwrap();
    group.kill(LIMIT).unwrap();
    assert!(!group.populated().unwrap());
    assert!(matches!(groups.cgroups.open("d1"), Err(CgroupError::Absent(_))));
}

fn wait_daemons(group: &AgentGroup, count: usize) {
    let deadline = Instant::now() + LIMIT;
    let sleeping =
        |pid: &i32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sleep\n");
    while group.processes().unwrap().iter().filter(|pid| sleeping(pid)).count() < count {
        assert!(Instant::now() < deadline, "{:?}", group.processes());
        std::thread::yield_now();
    }
}

#[test]
fn groups_left_by_an_earlier_hostd_are_listed_and_names_cannot_climb() {
    let Some(groups) = Groups::new("list") else { return };
    for agent in ["x1", "x2"] {
        groups.cgroups.ensure(agent, &Limits::default()).unwrap();
    }
    groups.cgroups.viewers().unwrap();
    let again = Cgroups::detect(&format!("test-list-{}", std::process::id()));
    assert_eq!(again.list().unwrap(), ["x1", "x2"]);
    for name in ["", "..", "a/b", "a b", "viewers"] {
        assert!(matches!(again.ensure(name, &Limits::default()), Err(CgroupError::Name(_))), "{name}");
    }
}

#[test]
fn a_folder_that_was_removed_while_it_was_empty_is_made_again_with_its_controllers() {
    let Some(groups) = Groups::new("trimmed") else { return };
    let limits = Limits { memory_bytes: Some(64 << 20), cpu_millis: Some(500), pids: Some(40) };
    let before = groups.cgroups.ensure("t1", &limits).unwrap();
    before.remove(LIMIT).unwrap();
    // As systemd does to empty groups of a unit.
    groups.cgroups.remove_instance(LIMIT).unwrap();
    groups.cgroups.viewers().unwrap();
    groups.cgroups.remove_instance(LIMIT).unwrap();
    let after = groups.cgroups.ensure("t1", &limits).unwrap();
    assert_eq!(after.enforced, before.enforced);
    assert_eq!(after.lacking.len(), before.lacking.len());
}

#[tokio::test]
async fn the_end_of_the_last_process_is_told() {
    let Some(mut groups) = Groups::new("watch") else { return };
    let group = groups.cgroups.ensure("w1", &Limits::default()).unwrap();
    let mut watch = group.watch_empty().unwrap();
    assert!(!watch.changed().await.unwrap());
    let process = groups.run(&group, "exec sleep 1000");
    assert!(tokio::time::timeout(LIMIT, watch.changed()).await.unwrap().unwrap());
    process.signal(Signal::SIGKILL).unwrap();
    tokio::time::timeout(LIMIT, watch.empty()).await.unwrap().unwrap();
    assert!(!group.populated().unwrap());
}

#[test]
fn five_hundred_agents_come_and_go_in_reasonable_time() {
    let Some(groups) = Groups::new("many") else { return };
    let limits = Limits { memory_bytes: Some(64 << 20), cpu_millis: Some(500), pids: Some(100) };
    let started = Instant::now();
    let made: Vec<_> =
        (0..500).map(|number| groups.cgroups.ensure(&format!("n{number}"), &limits).unwrap()).collect();
    let ensured = started.elapsed();
    let started = Instant::now();
    assert!(made.iter().all(|group| group.stats().is_ok()));
    let read = started.elapsed();
    let started = Instant::now();
    made.iter().for_each(|group| group.remove(LIMIT).unwrap());
    eprintln!("500 agents: ensured in {ensured:?}, stats in {read:?}, removed in {:?}", started.elapsed());
    assert!(ensured < LIMIT);
    assert_eq!(groups.cgroups.list().unwrap(), Vec::<String>::new());
}

#[test]
fn without_cgroups_processes_are_found_by_descent_and_environment() {
    let cgroups = Cgroups::detect_at("x", Path::new("/proc/self"));
    assert_eq!(cgroups.kind(), Kind::None);
    assert!(cgroups.describe().reason.is_some());
    check_without(&cgroups);
}

/// As nobody, who may write no cgroup: the whole test binary runs again with that user.
#[test]
fn an_ordinary_user_works_without_cgroups() {
    const INNER: &str = "PHALANX_TEST_AS_NOBODY";
    if std::env::var_os(INNER).is_some() || !nix::unistd::geteuid().is_root() {
        let cgroups = Cgroups::detect("nobody");
        if cgroups.kind() == Kind::None {
            check_without(&cgroups);
        }
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = dir.path().join("cgroups-test");
    fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    let mut command = Command::new(&copy);
    command.args(["--exact", "an_ordinary_user_works_without_cgroups"]).env(INNER, "1");
    let output = command.current_dir("/").uid(65534).gid(65534).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
}

fn check_without(cgroups: &Cgroups) {
    let agent = format!("none-{}", std::process::id());
    let limits = Limits { memory_bytes: Some(1 << 20), cpu_millis: Some(100), pids: Some(5) };
    let group = cgroups.ensure(&agent, &limits).unwrap();
    let lacking: Vec<_> = group.lacking.iter().map(|lack| lack.limit).collect();
    assert_eq!(lacking, ["memory", "cpu", "pids"]);
    assert!(!group.populated().unwrap());
    let mut child = Command::new("sh")
        .args(["-c", "(setsid sleep 1000 &) & exec sleep 1000"])
        .env("PHALANX_AGENT", &agent)
        .spawn()
        .unwrap();
    // A shim carries no such variable and is known by its pid; what is below it counts.
    let mut shim = Command::new("sh").args(["-c", "sleep 1000; true"]).spawn().unwrap();
    let mut with_shim = group.clone();
    with_shim.set_shim(ProcessRef::of(i32::try_from(shim.id()).unwrap()).unwrap().unwrap());
    wait_daemons(&with_shim, 3);
    assert_eq!(group.processes().unwrap().len(), 2);
    assert!(with_shim.stats().unwrap().memory_bytes > Some(0));
    with_shim.kill(LIMIT).unwrap();
    assert!(!with_shim.populated().unwrap());
    assert!(matches!(group.freeze(LIMIT), Err(CgroupError::Unsupported { .. })));
    child.wait().unwrap();
    assert!(shim.wait().unwrap().success(), "the shim itself must live on");
}
