//! Caps by label, with real agents: held at every instant, also while the manager is killed, and of no hindrance to others.

use phalanx_tests::install::Install;
use phalanx_tests::programs::fake_agent;
use phalanx_tests::wait;
use protocol::task::TaskState;

/// How many were alive after each line: each agent writes `+` first and `-` last, in one file that is only appended.
fn alive(lines: &[String]) -> Vec<i32> {
    let mut alive = 0;
    let mut step = |line: &String| {
        alive += if line == "+" { 1 } else { -1 };
        alive
    };
    lines.iter().map(&mut step).collect()
}

#[test]
fn no_more_agents_than_the_cap_of_their_label_are_alive_at_any_instant() {
    let install = Install::start();
    let (fake, folder) = (fake_agent(), install.text_path(""));
    let folder = folder.trim_end_matches('/');
    let mut yaml = String::from("caps: {gpu: 2}\nmax_parallel: 20\ntasks:\n");
    for n in 0..8 {
        yaml.push_str(&format!(
            "  - {{name: g{n}, labels: {{gpu: big}}, command: ['{fake}', tell, '{folder}/gpu', '+', sleep, '400', \
             tell, '{folder}/gpu', '-']}}\n"
        ));
    }
    for n in 0..3 {
        yaml.push_str(&format!(
            "  - {{name: o{n}, command: ['{fake}', tell, '{folder}/others', '+', await, '{folder}/gate']}}\n"
        ));
    }
    let file = install.file("capped.yaml", yaml);
    install.run(&["run", &file, "--name", "capped", "--detach"]).succeeded();
    let begun = || install.lines("gpu").len() >= 3;
    wait::until(wait::LIMIT, "two were alive and one has ended", begun, |begun| *begun);
    install.kill("manager");
    install.settled();
    let accepted = || {
        let tasks = install.tasks("capped");
        let capped = tasks.iter().filter(|task| task.spec.name.as_str().starts_with('g'));
        capped.filter(|task| task.state == TaskState::Accepted).count()
    };
    wait::until(wait::LIMIT, "all with the label are accepted", accepted, |count| *count == 8);
    let seen = alive(&install.lines("gpu"));
    assert_eq!((seen.len(), seen.iter().max()), (16, Some(&2)), "{seen:?}");
    // Nothing held those up that have no label.
    assert_eq!(install.lines("others").len(), 3);
    install.file("gate", "");
    let all = || install.tasks("capped").iter().all(|task| task.state == TaskState::Accepted);
    wait::until(wait::LIMIT, "all are accepted", all, |all| *all);
}
