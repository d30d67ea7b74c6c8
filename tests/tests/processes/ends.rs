//! Every way to end is told apart: in `ls`, in `show` and in the events, by code, signal and cause.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use phalanx_tests::install::{Install, kill_and_wait};
use phalanx_tests::programs::{fake_agent, is_root_for};
use phalanx_tests::wait;
use protocol::agent::{EndCause, Phase, StartStep};
use protocol::event::{Event, Fact};

/// The end of an agent as the events tell it.
fn told(install: &Install, name: &str) -> Option<String> {
    let output = install.run(&["events", name, "-o", "jsonl"]).succeeded().stdout;
    let text = String::from_utf8(output).unwrap();
    text.lines().filter_map(|line| serde_json::from_str::<Event>(line).ok()).find_map(|event| {
        match event.fact {
            Fact::AgentPhase { phase, end: Some(end), .. } if phase.is_ended() => {
                let mut text = format!("{phase} {}", end.cause);
                for (name, value) in [("code", end.code), ("signal", end.signal)] {
                    text.extend(value.map(|value| format!(" {name} {value}")));
                }
                Some(text)
            }
            _ => None,
        }
    })
}

fn ends_as(install: &Install, name: &str, right: &str) {
    install.agent_until(name, right, |agent| agent.ending() == right);
    let listed = install.agents(&[]).into_iter().find(|agent| agent.name == name).unwrap();
    assert_eq!(listed.ending(), right, "{name} in ls");
    wait::until(
        wait::LIMIT,
        &format!("{name} in the events"),
        || told(install, name),
        |told| told.as_deref() == Some(right),
    );
}

#[test]
fn every_way_to_end_is_told_apart() {
    let install = Install::start();
    for (name, steps, right) in [
        ("zero", ["exit", "0"], "STOPPED exited code 0"),
        ("one", ["exit", "1"], "CRASHED exited code 1"),
        ("no-command", ["exit", "127"], "CRASHED exited code 127"),
        ("last", ["exit", "255"], "CRASHED exited code 255"),
        ("killed", ["signal", "9"], "CRASHED signalled signal 9"),
        ("segfault", ["signal", "11"], "CRASHED signalled signal 11"),
        ("aborted", ["signal", "6"], "CRASHED signalled signal 6"),
    ] {
        // So that it ends after it was started: `create` has nothing to tell then.
        install.create(name, &[], &["await", &install.text_path("end-now"), steps[0], steps[1]]);
        install.file("end-now", "");
        ends_as(&install, name, right);
        std::fs::remove_file(install.path("end-now")).unwrap();
    }

    install.create("late", &["--timeout", "300ms"], &["hang"]);
    ends_as(&install, "late", "FAILED time-limit signal 15");

    install.create("asked", &[], &["hang"]);
    install.run(&["stop", "asked"]).succeeded();
    let asked = install.agent("asked");
    assert_eq!((asked.phase, asked.end.unwrap().cause), (Phase::Stopped, EndCause::Requested));

    install.create("deaf", &[], &["deaf", "hang"]);
    let ran = install.run(&["stop", "deaf", "--grace", "300ms"]).succeeded();
    assert!(ran.took.as_secs() < 9, "the grace asked for holds, not the default: {:?}", ran.took);
    let deaf = install.agent("deaf");
    assert_eq!((deaf.phase, deaf.end.unwrap().cause), (Phase::Stopped, EndCause::Requested));

    let words = [&install.run(&["ls", "-o", "wide"]).succeeded().text(), "one"].concat();
    for word in ["127", "255", "time-limit", "requested"] {
        assert!(words.contains(word), "{word} in {words}");
    }
}

#[test]
fn a_program_that_cannot_be_started_is_an_end_with_its_reason() {
    let install = Install::start();
    for (name, program, code, step) in [
        ("absent", "/no/such/program".to_owned(), 3, StartStep::ProgramMissing),
        ("not-on-path", "no-such-program-anywhere".to_owned(), 3, StartStep::ProgramMissing),
        ("no-permission", install.file("plain.txt", "not a program"), 4, StartStep::ProgramDenied),
        ("a-folder", install.text_path("user"), 4, StartStep::ProgramDenied),
    ] {
        let ran = install.run(&["create", name, "--", &program]).ended_with(code);
        assert!(ran.stderr.contains(&program), "{name}: {}", ran.stderr);
        let agent = install.agent(name);
        let end = agent.end.unwrap();
        assert_eq!(
            (agent.phase, end.cause, end.step),
            (Phase::Failed, EndCause::StartFailed, Some(step)),
            "{name}"
        );
    }
    // It was executed; what came then is its own affair, and the code is told.
    let ran = install.try_create("at-once", &[], &["exit", "3"]);
    assert!(ran.code == 0 || ran.stderr.contains("exit 3"), "{}: {}", ran.code, ran.stderr);
    install.agent_until("at-once", "with 3", |agent| agent.ending() == "CRASHED exited code 3");

    // An interpreter that is not there is a missing program too, not a code of a shell.
    let script = install.file("script", "#!/no/such/interpreter\n");
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let ran = install.run(&["create", "no-interpreter", "--", &script]).ended_with(1);
    assert!(ran.stderr.contains("interpreter"), "{}", ran.stderr);
    let end = install.agent("no-interpreter").end.unwrap();
    assert_eq!(end.cause, EndCause::StartFailed, "{end:?}");
}

#[test]
fn a_lost_supervisor_is_told_and_takes_its_agent_with_it() {
    let install = Install::start();
    let agent = install.create("orphan", &[], &["descend", "600000", "hang"]);
    let (shim, child) = install.shim_and_child(agent.id);
    kill_and_wait(shim);
    ends_as(&install, "orphan", "CRASHED supervisor-lost");
    assert!(!phalanx_tests::install::is_alive(child));
    wait::until(
        wait::LIMIT,
        "no process of it runs",
        || install.traces().naming(&agent.id.to_string()).processes,
        |processes| processes.iter().all(|process| process.command.contains(" attach ")),
    );
}

/// With the same user an agent can send its supervisor any signal.
#[test]
fn an_agent_that_stops_its_supervisor_is_ended_like_any_other() {
    let install = Install::start();
    let once = install.file("once.sh", "kill -STOP $PPID\nexec sleep 600\n");
    let again = install
        .file("again.sh", "trap '' TERM\nprintf . > marked\nwhile kill -STOP $PPID; do sleep 0.01; done\n");
    let agents = [("once", &once), ("stopped", &again), ("destroyed", &again), ("down", &again)];
    let begin = |(name, script): (&str, &String)| {
        install.run(&["create", name, "--grace", "300ms", "--", "sh", script]).succeeded();
        let agent = install.agent_until(name, "runs", |agent| agent.phase == Phase::Running);
        install.shim_and_child(agent.id)
    };
    let began = agents.map(begin);

    // A stop that is asked for once is let go on: what it supervises is supervised.
    let shim = began[0].0;
    let state = || std::fs::read_to_string(format!("/proc/{shim}/stat")).unwrap();
    wait::until(wait::LIMIT, "the shim goes on", state, |stat| !stat.contains(") T "));
    install.run(&["stop", "once"]).succeeded();
    ends_as(&install, "once", "STOPPED requested signal 15");
    install.run(&["stop", "stopped"]).succeeded();
    ends_as(&install, "stopped", "STOPPED requested signal 9");
    install.run(&["destroy", "destroyed", "--discard"]).succeeded();
    install.run(&["down", "--stop-agents"]).succeeded();
    for (shim, child) in began {
        assert!(![shim, child].into_iter().any(phalanx_tests::install::is_alive));
    }
    install.run(&["up"]).succeeded();
    ends_as(&install, "down", "STOPPED requested signal 9");
}

#[test]
fn descendants_that_are_left_drain_until_they_end() {
    let install = Install::start();
    let gate = install.text_path("gate");
    install.create("parent", &[], &["descend", "4000", "await", &gate, "exit", "0"]);
    install.file("gate", "");
    let draining = install.agent_until("parent", "drains", |agent| agent.report().draining);
    assert!(!draining.phase.is_ended(), "not over while something of it runs: {:?}", draining.phase);
    ends_as(&install, "parent", "STOPPED exited code 0");
    assert!(!install.agent("parent").report().draining);

    // On request they are ended, whatever they left behind.
    let agent = install.create("daemon", &[], &["descend", "600000", "hang"]);
    install.run(&["stop", "daemon"]).succeeded();
    let left = install.traces().naming(&agent.id.to_string()).processes;
    let running: Vec<_> = left.iter().filter(|found| found.command.contains("sleep 600000")).collect();
    assert!(running.is_empty(), "{running:?}");
}

#[test]
fn out_of_memory_is_told_apart_from_a_kill() {
    if !is_root_for("a memory limit in a cgroup") {
        return;
    }
    let install = Install::start();
    let gate = install.text_path("gate");
    install.create("hungry", &["--memory", "32M"], &["await", &gate, "eat", "200", "hang"]);
    install.file("gate", "");
    ends_as(&install, "hungry", "CRASHED out-of-memory signal 9");

    let agent = install.create("victim", &["--memory", "64M"], &["hang"]);
    let (_, child) = install.shim_and_child(agent.id);
    kill(Pid::from_raw(child.cast_signed()), Signal::SIGKILL).unwrap();
    ends_as(&install, "victim", "CRASHED signalled signal 9");
}

#[test]
fn many_that_end_at_the_same_moment_all_have_their_own_code() {
    let install = Install::start();
    let gate = install.text_path("gate");
    let tasks: String =
        (0..60).map(|n| format!("{} await {gate} exit {}\n", fake_agent(), n % 3 + 3)).collect();
    let file = install.file("tasks", tasks);
    install.run(&["run", &file, "--name", "ends", "--max-parallel", "60", "--detach"]).succeeded();
    let states = || install.tasks("ends").iter().filter(|task| task.state.is_live()).count();
    wait::until(wait::LIMIT, "all run", states, |live| *live == 60);
    install.file("gate", "");
    let over = |tasks: &Vec<protocol::task::TaskView>| tasks.iter().all(|task| task.state.is_final());
    for task in wait::until(wait::LIMIT, "all have ended", || install.tasks("ends"), over) {
        let wanted: i32 = task.spec.program.last().unwrap().rsplit(' ').next().unwrap().parse().unwrap();
        assert_eq!(task.attempts.len(), 1);
        assert_eq!(task.attempts[0].end.as_ref().unwrap().code, Some(wanted), "{task:?}");
    }
}

/// As root an agent can put a process where no limit and no kill of its group reaches it.
#[test]
fn a_stop_ends_also_what_left_the_agents_cgroup() {
    if !phalanx_tests::programs::is_root_for("leaving a cgroup") {
        return;
    }
    let install = Install::start();
    let pid_file = install.text_path("pid");
    let script = format!(
        "setsid sh -c 'for at in $(awk \"\\$3 ~ /^cgroup/ {{print \\$2}}\" /proc/mounts); do \
         echo $$ > $at/cgroup.procs; done; echo $$ > {pid_file}.new; mv {pid_file}.new {pid_file}; exec sleep 600' & \
         exec sleep 600"
    );
    install.run(&["create", "escape", "--", "sh", "-c", &script]).succeeded();
    let read = || install.lines("pid");
    let pid = wait::until(wait::LIMIT, "it has left", read, |lines| !lines.is_empty()).remove(0);
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let is_out = !groups.contains("phalanx-");
    install.run(&["stop", "escape", "--grace", "1s"]).succeeded();
    assert_eq!(install.agent("escape").ending(), "STOPPED requested signal 15");
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    assert!(state.is_empty() || state.contains(") Z "), "it lives on: {state}");
    assert!(is_out, "the trial did not leave its groups: {groups}");
}

/// A record that something else than its shim has put there, and a shim that was killed after it.
#[test]
fn a_forged_end_is_refused_and_told() {
    let install = Install::start();
    let other = install.create("other", &[], &["await", &install.text_path("end-now"), "exit", "0"]);
    install.file("end-now", "");
    ends_as(&install, "other", "STOPPED exited code 0");
    let agent = install.create("forger", &[], &["hang"]);
    let (shim, _) = install.shim_and_child(agent.id);
    let record = |agent| install.agent_folder(agent).join("exit.json");
    std::fs::copy(record(other.id), record(agent.id)).unwrap();
    kill_and_wait(shim);
    ends_as(&install, "forger", "CRASHED supervisor-lost");
    let detail = install.agent("forger").end.unwrap().detail;
    assert!(detail.contains("refused") && detail.contains(&other.id.to_string()), "{detail}");
    for command in ["show", "why"] {
        let shown = install.run(&[command, "forger"]).text();
        assert!(shown.contains("refused"), "{command}: {shown}");
    }
}
