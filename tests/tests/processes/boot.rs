//! The start with the machine: the line of cron comes and goes alone, and what it starts after a reboot finds all again.
//!
//! The machine of a test is not rebooted. What a reboot does is done to one installation: all its processes end at the
//! same instant, its mounts and groups are gone, and the line runs as cron runs it, where the kernel's boot id is another.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use phalanx_tests::install::{Install, is_alive};
use phalanx_tests::json;
use phalanx_tests::programs::{fake_agent, is_root_for};
use phalanx_tests::wait;
use protocol::agent::{EndCause, Phase};
use protocol::task::{FailureClass, TaskState};

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// An installation whose `crontab` is a file of the test, since the caller's own is no place for tests.
struct Machine {
    install: Install,
}

impl Machine {
    fn new() -> Self {
        let install = Install::new();
        std::fs::create_dir(install.path("bin")).unwrap();
        let table = install.text_path("crontab");
        // As crontab(1) of Debian says and does it.
        let script = format!(
            "#!/bin/sh
case $1 in
-l) [ -f {table} ] || {{ echo 'no crontab for me' >&2; exit 1; }}; cat {table} ;;
-r) rm {table} ;;
-) cat >{table}.new && mv {table}.new {table} ;;
*) exit 2 ;;
esac
"
        );
        let program = install.file("bin/crontab", script);
        std::fs::set_permissions(program, std::fs::Permissions::from_mode(0o755)).unwrap();
        Self { install }
    }

    /// Ours, on a machine that systemd does not run, whatever runs this one.
    fn run(&self, args: &[&str]) -> Output {
        let plain = self.install.command(args);
        let path = plain.get_envs().find(|(name, _)| *name == "PATH").unwrap().1.unwrap().to_owned();
        let mut command = if Path::new("/run/systemd/system").is_dir() {
            let script = "mount -t tmpfs none /run/systemd && exec \"$0\" \"$@\"";
            let mut command = Command::new("unshare");
            command.args(["--mount", "sh", "-c", script]).arg(plain.get_program()).args(args).env_clear();
            command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
            command.current_dir(self.install.path("user"));
            command
        } else {
            plain
        };
        let path = format!("{}:{}", self.install.text_path("bin"), path.to_str().unwrap());
        command.env("PATH", path).output().unwrap()
    }

    #[track_caller]
    fn says(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{args:?}: {said} {}", String::from_utf8_lossy(&output.stderr));
        said
    }

    fn table(&self) -> Option<String> {
        std::fs::read_to_string(self.install.path("crontab")).ok()
    }

    fn at_boot(&self) -> serde_json::Value {
        let output = self.run(&["status", "-o", "json"]);
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        status["items"][0]["local"]["at_boot"].clone()
    }
}

/// Without systemd as its first process, or with the right to hide it.
fn can_hide_systemd() -> bool {
    !Path::new("/run/systemd/system").is_dir() || is_root_for("hiding systemd from a test")
}

#[test]
fn a_line_of_cron_comes_once_and_goes_alone() {
    if !can_hide_systemd() {
        return;
    }
    let machine = Machine::new();
    assert_eq!(machine.at_boot()["state"], "not-enabled");
    let said = machine.says(&["up", "--enable"]);
    assert!(said.contains("starts at boot: cron crontab of "), "{said}");
    let line = machine.table().unwrap();
    assert_eq!(line.lines().count(), 1, "{line}");
    machine.says(&["down", "--disable"]);
    assert_eq!(machine.table(), None, "there was no crontab before");

    let others = "# backups\n5 4 * * * backup --at 100\\%\n@reboot other >/dev/null # phalanx-000000000000\n";
    machine.install.file("crontab", others);
    machine.says(&["up", "--enable"]);
    assert_eq!(machine.table().unwrap(), format!("{others}{line}"));
    let inode = || std::os::unix::fs::MetadataExt::ino(&machine.install.path("crontab").metadata().unwrap());
    let before = inode();
    machine.says(&["up", "--enable"]);
    assert_eq!(machine.table().unwrap(), format!("{others}{line}"));
    assert_eq!(inode(), before, "what is right is not written again");
    let at_boot = machine.at_boot();
    assert_eq!((&at_boot["state"], &at_boot["entries"][0]["way"]), (&"enabled".into(), &"cron".into()));
    let said = machine.says(&["doctor"]);
    assert!(said.lines().any(|line| line.starts_with("boot ") && line.contains("started by cron")), "{said}");

    let said = machine.says(&["down"]);
    assert!(said.contains("again at boot"), "{said}");
    assert_eq!(machine.table().unwrap(), format!("{others}{line}"), "down is not for good");
    let said = machine.says(&["down", "--disable"]);
    assert!(said.contains("starts no longer at boot: cron"), "{said}");
    assert_eq!(machine.table().unwrap(), others);
    assert_eq!(machine.at_boot()["state"], "not-enabled");
    assert!(machine.says(&["down", "--disable"]).contains("nothing started it at boot"));
}

#[test]
fn what_cannot_be_enabled_or_started_leaves_all_as_it_was() {
    if !can_hide_systemd() {
        return;
    }
    let machine = Machine::new();
    let crontab = machine.install.path("bin/crontab");
    let refused = |code: i32, words: &str| {
        let output = machine.run(&["up", "--enable"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(words) && said.contains("try: "), "{said}");
        assert!(!machine.install.layout().run().exists(), "nothing was started");
        assert_eq!(machine.table(), None);
    };
    // A crontab that this user may not have: the words of cron are told.
    std::fs::write(&crontab, "#!/bin/sh\necho 'You are not allowed to use this program' >&2; exit 1\n")
        .unwrap();
    refused(1, "crontab -l: You are not allowed to use this program");
    assert_eq!(machine.at_boot()["state"], "unknown");

    // A home that no crontab can hold.
    let machine = Machine::new();
    let odd = machine.install.text_path("two\nlines");
    let output = machine.run(&["up", "--enable", "--home", &odd]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("a crontab cannot hold the value of PHALANX_HOME"), "{said}");
    assert!(!Path::new(&odd).exists() && machine.table().is_none());
}

/// A machine that systemd runs, as far as this command sees: its own `/run` and units, and a `systemctl` of the test.
#[test]
fn a_unit_that_systemd_does_not_take_is_not_left_behind() {
    if !is_root_for("units of its own") {
        return;
    }
    let machine = Machine::new();
    let program = machine.install.file("bin/systemctl", "");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let up = |systemctl: &str| {
        std::fs::write(&program, systemctl).unwrap();
        let plain = machine.install.command(&["up", "--enable"]);
        let script = "mount -t tmpfs none /run && mkdir -p /run/systemd/system /etc/systemd/system \
            && mount -t tmpfs none /etc/systemd/system && PATH=$BIN:$PATH && \"$0\" \"$@\"; code=$?
            ls /etc/systemd/system; exit $code";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script]).arg(plain.get_program()).args(["up", "--enable"]);
        command.env_clear().envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.env("BIN", machine.install.path("bin")).output().unwrap()
    };
    let refused = up("#!/bin/sh\ncase $1 in enable) echo 'Unit is masked' >&2; exit 1 ;; esac\n");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("enable") && said.contains("Unit is masked"), "{said}");
    assert_eq!((refused.status.code(), refused.stdout.as_slice()), (Some(1), &b""[..]), "no unit is left");
    assert!(!machine.install.layout().run().exists(), "nothing was started");
    let taken = up("#!/bin/sh\nexit 0\n");
    let listed = String::from_utf8_lossy(&taken.stdout).into_owned();
    assert!(listed.contains("system unit") && listed.trim_end().ends_with(".service"), "{listed}");
}

/// Ends all of an installation at one instant, as when the power fails: who is stopped cannot write down how others
/// ended, or start anything again.
fn power_cut(install: &Install) {
    let stop = || {
        let processes = install.traces().processes;
        for process in &processes {
            let _ = kill(Pid::from_raw(process.pid.cast_signed()), Signal::SIGSTOP);
        }
        let is_stopped = |pid: u32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit_once(')').is_none_or(|(_, rest)| rest.starts_with(" T"))
        };
        processes.iter().filter(|process| !is_stopped(process.pid)).cloned().collect::<Vec<_>>()
    };
    wait::until(wait::LIMIT, "all processes stand still", stop, Vec::is_empty);
    install.traces().remove();
}

/// Runs the line as cron does after a boot: by `sh`, with almost no environment, from the home of its user.
fn boot(machine: &Machine, id: &str) {
    let line = machine.table().unwrap();
    let command = line.trim_end().strip_prefix("@reboot ").unwrap();
    let file = machine.install.file("boot_id", format!("{id}\n"));
    let hide = if Path::new("/run/systemd").is_dir() { "mount -t tmpfs none /run/systemd; " } else { "" };
    let script = format!("{hide}mount --bind {file} {BOOT_ID} && exec sh -c \"$0\"");
    let output = Command::new("unshare")
        .args(["--mount", "/bin/sh", "-c", &script, command])
        .env_clear()
        .envs([("SHELL", "/bin/sh"), ("PATH", "/usr/bin:/bin"), ("HOME", "/"), ("LOGNAME", "root")])
        .current_dir("/")
        .output()
        .unwrap();
    let log = std::fs::read_to_string(machine.install.path("home/log/boot.log")).unwrap_or_default();
    assert!(output.status.success(), "{log} {}", String::from_utf8_lossy(&output.stderr));
    assert!(log.contains("up after"), "{log}");
    machine.install.settled();
}

#[test]
fn after_a_reboot_all_is_found_again() {
    if !is_root_for("a mount namespace with another boot id") {
        return;
    }
    let machine = Machine::new();
    machine.says(&["up", "--enable"]);
    let install = &machine.install;
    let repo = install.repo("repo");
    let (from, starts) = (repo.path.to_str().unwrap().to_owned(), install.text_path("starts"));
    let work = |words: &str| {
        ["write", "new.txt", words, "write", "src/lib.txt", "changed\n", "mark", &starts].map(str::to_owned)
    };
    let steps = |words: &str, rest: &[&str]| -> Vec<String> {
        work(words).into_iter().chain(rest.iter().map(|step| (*step).to_owned())).collect()
    };
    let create = |name: &str, steps: Vec<String>| {
        let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
        install.try_create(name, &["--repo", &from], &steps)
    };
    create("runs", steps("of runs", &["say", "before", "hang"])).succeeded();
    create("stopped", steps("of stopped", &["hang"])).succeeded();
    let _ = create("ended", steps("of ended", &["exit", "3"])).ended_with(1);
    wait::until(wait::LIMIT, "all have begun", || install.lines("starts").len(), |count| *count == 3);
    install.run(&["stop", "stopped"]).succeeded();
    install.agent_until("ended", "ended", |agent| agent.ending() == "CRASHED exited code 3");

    let (fake, folder) = (fake_agent(), install.text_path(""));
    let folder = folder.trim_end_matches('/');
    let yaml = format!(
        "defaults: {{repo: {from}}}
tasks:
  - {{name: first, command: ['{fake}', tell, {folder}/order, first, write, first.txt, x], verify: test -f first.txt}}
  - name: second
    command: ['{fake}', tell, {folder}/order, second, write, second.txt, x, await, {folder}/gate]
    verify: test -f second.txt
    depends_on: [first]
  - {{name: third, allow_no_change: true, command: ['{fake}', tell, {folder}/order, third], depends_on: [second]}}
"
    );
    let file = install.file("tasks.yaml", yaml);
    install.run(&["run", &file, "--name", "over", "--detach"]).succeeded();
    wait::until(
        wait::LIMIT,
        "the second task is at work",
        || install.lines("order").len(),
        |done| *done == 2,
    );
    assert_eq!(install.task("over", "first").state, TaskState::Accepted);
    let printed = || install.run(&["logs", "runs"]).text();
    wait::until(wait::LIMIT, "it has printed", printed, |text| text.contains("before"));
    let before = install.agents(&["-a"]).len();
    let others = ["ended", "stopped"].map(|name| install.agent(name).end);

    power_cut(install);
    assert!(install.traces().is_empty(), "{:?}", install.traces());
    install.file("gate", "");
    boot(&machine, "0f0f0f0f-1111-4222-8333-444444444444");

    let runs = install.agent_until("runs", "is told as rebooted", |agent| agent.phase.is_ended());
    assert_eq!((runs.phase, runs.end.unwrap().cause), (Phase::Crashed, EndCause::Rebooted));
    let listed = install.agents(&["runs"]);
    assert_eq!(listed[0].ending(), "CRASHED rebooted");
    assert_eq!(["ended", "stopped"].map(|name| install.agent(name).end), others, "ends stay as they were");
    assert!(printed().contains("before"), "what it printed is kept");
    let rebooted = || {
        let events = install.run(&["events", "runs", "-o", "jsonl"]).succeeded().text();
        events.lines().filter(|line| line.contains("\"rebooted\"")).count()
    };
    wait::until(wait::LIMIT, "an event tells of it", rebooted, |count| *count == 1);

    // Work that was never committed is there, whoever looks first: a file, a diff, a start.
    let new = |name: &str| install.run(&["file", "get", &format!("{name}:new.txt"), "-"]).succeeded().text();
    assert_eq!(new("ended"), "of ended");
    let diff = install.run(&["diff", "stopped"]).succeeded().text();
    assert!(diff.contains("+changed") && diff.contains("new.txt"), "{diff}");
    install.run(&["start", "runs"]).succeeded();
    wait::until(wait::LIMIT, "it is started again", || install.lines("starts").len(), |count| *count == 4);
    assert_eq!(install.agent("runs").phase, Phase::Running);
    assert_eq!(new("runs"), "of runs");
    assert!(
        install.run(&["exec", "runs", "--", "git", "status", "-s"]).succeeded().text().contains("lib.txt")
    );

    // The run goes on: what was done is done, what was cut short is done again and not charged.
    let states = || install.tasks("over").into_iter().map(|task| task.state).collect::<Vec<_>>();
    wait::until(wait::LIMIT, "the run ends", states, |states| {
        states.iter().all(|state| *state == TaskState::Accepted)
    });
    assert_eq!(install.lines("order"), ["first", "second", "second", "third"]);
    let second = install.task("over", "second");
    let failures: Vec<_> = second.attempts.iter().map(|attempt| attempt.failure.clone()).collect();
    let failure = failures[0].as_ref().unwrap();
    assert_eq!((failure.class, failure.charged), (FailureClass::Infrastructure, false), "{failures:?}");
    assert_eq!((failures.len(), &failures[1]), (2, &None));
    assert_eq!(install.task("over", "first").attempts.len(), 1);

    // Nothing twice: another hostd of the same boot tells nothing anew, and starts nothing.
    let after = install.agents(&["-a"]).len();
    assert!(after > before, "the second attempt, and the third task");
    install.kill("hostd");
    install.settled();
    assert_eq!(rebooted(), 1);
    assert_eq!(install.agents(&["-a"]).len(), after);
    assert_eq!(install.lines("starts").len(), 4);
    assert_eq!(install.agent("runs").phase, Phase::Running);
    let ended: Vec<json::Agent> = install.agents(&["ended", "stopped"]);
    assert_eq!(ended.len(), 2);
    assert_eq!(["ended", "stopped"].map(|name| install.agent(name).end), others);
}

/// Before a machine goes down, its first process asks all others to end. That is no end of the program's own.
#[test]
fn an_agent_that_its_machine_asked_to_end_is_told_as_rebooted() {
    if !is_root_for("a mount namespace with another boot id") {
        return;
    }
    let machine = Machine::new();
    machine.says(&["up", "--enable"]);
    let install = &machine.install;
    let ask_shim = |name: &str| {
        let (shim, _) = install.shim_and_child(install.create(name, &[], &["hang"]).id);
        move || {
            kill(Pid::from_raw(shim.cast_signed()), Signal::SIGTERM).unwrap();
            wait::until(wait::LIMIT, "the shim ends", || is_alive(shim), |alive| !alive);
        }
    };
    let (lone, polite) = (ask_shim("lone"), ask_shim("polite"));
    lone();
    let told = install.agent_until("lone", "has ended", |agent| agent.phase.is_ended());
    assert!(told.ending().starts_with("CRASHED supervisor-lost"), "{}", told.ending());
    machine.says(&["down"]);
    polite();
    power_cut(install);
    boot(&machine, "0f0f0f0f-1111-4222-8333-444444444444");
    install.agent_until("polite", "is told as rebooted", |agent| agent.ending() == "CRASHED rebooted");
    assert_eq!(install.agent("lone").end, told.end);
}
