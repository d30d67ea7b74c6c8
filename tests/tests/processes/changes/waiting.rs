//! `wait` for agents, runs and tasks, over restarts of the manager; and what is left to look at when all have ended.

use phalanx_tests::install::Install;
use phalanx_tests::programs::fake_agent;
use phalanx_tests::wait;
use protocol::agent::Phase;

#[test]
fn a_run_or_a_task_of_it_is_waited_for_over_a_restart_of_the_manager() {
    let install = Install::start();
    let (gate, fake) = (install.text_path("gate"), fake_agent());
    let yaml = format!(
        "name: nightly\ntasks:\n  - {{name: good, command: [{fake}, await, {gate}]}}\n  - {{name: bad, command: [{fake}, await, {gate}, exit, '3']}}\n"
    );
    let file = install.file("run.yaml", yaml);
    install.run(&["run", &file, "--detach"]).succeeded();
    install.run(&["wait", "nightly/good", "--for", "running", "--timeout", "20s"]).succeeded();
    install.run(&["wait", "nightly", "--timeout", "300ms"]).ended_with(124);
    install.run(&["wait", "nightly/nobody", "--timeout", "1s"]).ended_with(3);
    install.run(&["wait", "nobody/good", "--timeout", "1s"]).ended_with(3);
    install.run(&["wait", "nightly", "--for", "PAUSED"]).ended_with(2);
    install.run(&["wait", "nightly/good", "nightly/bad"]).ended_with(2);
    let waiting: Vec<_> = [
        (vec!["wait", "nightly", "--timeout", "60s"], 0),
        (vec!["wait", "nightly", "--for", "accepted", "--timeout", "60s"], 1),
        (vec!["wait", "nightly/good", "--for", "accepted", "--timeout", "60s"], 0),
        (vec!["wait", "nightly/bad", "--for", "accepted", "--timeout", "60s"], 1),
        (vec!["wait", "nightly/bad", "--for", "FAILED", "--timeout", "60s"], 0),
    ]
    .into_iter()
    .map(|(args, code)| (install.spawn(&args), args, code))
    .collect();
    install.kill("manager");
    install.settled();
    install.file("gate", "");
    for (waiting, args, code) in waiting {
        let ran = waiting.end();
        assert_eq!(ran.code, code, "{args:?}: {} {}", ran.text(), ran.stderr);
    }
}

#[test]
fn the_sessions_of_ended_agents_go_with_hostd_when_nothing_lives() {
    let install = Install::start();
    install.create("ended", &[], &["hang"]);
    install.create("lives", &[], &["hang"]);
    let servers = || install.tmux_servers().len();
    wait::until(wait::LIMIT, "a session", servers, |count| *count > 0);
    install.run(&["stop", "ended"]).succeeded();
    install.run(&["down"]).succeeded();
    assert!(servers() > 0, "the one that lives can be looked at");
    install.run(&["up"]).succeeded();
    install.agent_until("lives", "is seen", |agent| agent.phase == Phase::Running);
    install.run(&["down", "--stop-agents"]).succeeded();
    assert_eq!(servers(), 0);
}
