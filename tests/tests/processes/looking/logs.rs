//! What an agent printed: byte for byte on request, safe on a terminal else, live, and after everything is gone.

use phalanx_tests::bytes;
use phalanx_tests::install::Install;
use phalanx_tests::wait;

/// Whether a terminal would do anything with it but show it.
fn acts_on_a_terminal(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\t')) || std::str::from_utf8(bytes).is_err()
}

#[test]
fn eight_megabytes_of_random_bytes_are_read_as_they_were_printed_also_when_all_is_gone() {
    let install = Install::start();
    let length = 8 << 20;
    let whole = bytes::of_seed(42, length);
    let agent = install.create("noise", &[], &["raw", "bytes", "42", &length.to_string(), "exit", "0"]);
    install.agent_until("noise", "ends", |agent| agent.phase.is_ended());
    let check = |what: &str, target: &str| {
        let read = install.run(&["logs", target, "--raw"]).succeeded().stdout;
        assert!(read == whole, "{what}: {} bytes", read.len());
    };
    check("from the host", "noise");
    let tail = install.run(&["logs", "noise", "--raw", "--from", "8388000"]).succeeded().stdout;
    assert!(tail == whole[8_388_000..], "{} bytes", tail.len());
    let safe = install.run(&["logs", "noise"]).succeeded().stdout;
    assert!(!acts_on_a_terminal(&safe));

    install.run(&["destroy", "noise"]).succeeded();
    install.gone(agent.id);
    let id = agent.id.to_string();
    check("after destroy", &id);

    // The host is gone for good: what was shipped to the bus is all there is.
    let archive = install.layout().host().join("archive").join(&id);
    assert!(archive.is_dir());
    install.kill("supervisor");
    install.kill("hostd");
    std::fs::rename(&archive, install.path("hidden")).unwrap();
    check("from the bus", &id);
}

#[test]
fn escape_sequences_of_an_agent_reach_no_terminal() {
    let install = Install::start();
    install.create("evil", &[], &["escape", "exit", "0"]);
    install.agent_until("evil", "ends", |agent| agent.phase.is_ended());
    let safe = install.run(&["logs", "evil"]).succeeded();
    assert!(!acts_on_a_terminal(&safe.stdout), "{:?}", safe.text());
    assert!(safe.text().starts_with("plain ") && safe.text().ends_with(" end"), "{:?}", safe.text());
    let raw = install.run(&["logs", "evil", "--raw"]).succeeded().stdout;
    assert!(raw.windows(5).any(|window| window == b"\x1b]52;"));

    // Nor through what it was called with.
    let label = "text=\u{1b}]52;c;aGk=\u{7}\u{9b}2J";
    let _ = install.try_create("called", &["--label", label], &["say", "\u{1b}[2J", "hang"]);
    for args in [
        vec!["ls", "-o", "wide"],
        vec!["show", "called"],
        vec!["ls", "-o", "json"],
        vec!["events"],
        vec!["why", "called"],
    ] {
        let ran = install.run(&args);
        assert!(!acts_on_a_terminal(&ran.stdout), "{args:?}: {:?}", ran.text());
        assert!(!acts_on_a_terminal(ran.stderr.as_bytes()), "{args:?}: {:?}", ran.stderr);
    }
}

#[test]
fn logs_follow_while_it_prints_and_end_when_it_ends() {
    let install = Install::start();
    let (first, second) = (install.text_path("first"), install.text_path("second"));
    let steps = ["say", "one", "await", &first, "say", "two", "await", &second, "say", "three", "exit", "4"];
    install.create("talker", &[], &steps);
    // Into a file, so that what has come so far can be seen.
    let out = std::fs::File::create(install.path("followed")).unwrap();
    let mut command = install.command(&["logs", "-f", "talker"]);
    let mut following = command.stdout(out).spawn().unwrap();
    let followed = || install.lines("followed");
    wait::until(wait::LIMIT, "the first line", followed, |lines| lines == &["one"]);
    install.file("first", "");
    wait::until(wait::LIMIT, "the second line while it runs", followed, |lines| lines == &["one", "two"]);
    install.file("second", "");
    let ended = || following.try_wait().unwrap();
    let status = wait::until(wait::LIMIT, "it ends with its agent", ended, Option::is_some).unwrap();
    assert_eq!(status.code(), Some(0));
    assert_eq!(followed(), ["one", "two", "three"]);
    assert_eq!(install.run(&["logs", "talker", "--tail", "2"]).succeeded().text(), "two\nthree");
}

#[test]
fn what_a_running_agent_printed_is_read_when_hostd_is_stopped() {
    let install = Install::start();
    install.create("talker", &[], &["lines", "20", "0", "hang"]);
    let read = || install.run(&["logs", "talker"]).text();
    let all = wait::until(wait::LIMIT, "all lines", read, |text| text.ends_with("line 000020"));
    // Shipped within some seconds although nobody follows: the stream is what is left without the host.
    install.kill("supervisor");
    wait::pause(std::time::Duration::from_secs(6));
    let pid = install.pid("hostd").unwrap();
    // Stopped, not ended: nobody brings another one.
    let signal =
        |signal| nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid.cast_signed()), signal).unwrap();
    signal(nix::sys::signal::Signal::SIGSTOP);
    let ran = install.run(&["logs", "talker"]);
    signal(nix::sys::signal::Signal::SIGCONT);
    assert_eq!(ran.succeeded().text(), all);
}

#[test]
fn lines_are_chosen_by_pattern_and_time_and_told_apart_by_agent() {
    let install = Install::start();
    let gate = install.text_path("gate");
    let steps = ["say", "old error", "await", &gate, "say", "new \u{1b}[31merror", "say", "new", "hang"];
    install.create("one", &["--label", "k=v"], &steps);
    install.create("another", &["--label", "k=v"], &["lines", "30", "0", "say", "an error", "exit", "0"]);
    let text = |args: &[&str]| install.run(args).succeeded().text();
    let printed = || text(&["logs", "one"]);
    wait::until(wait::LIMIT, "it prints", printed, |text| text == "old error");
    // Shipped: from then on its time is known.
    let rest = || text(&["logs", "one", "--since", "1ms"]);
    wait::until(wait::LIMIT, "it is shipped", rest, String::is_empty);
    install.file("gate", "");
    wait::until(wait::LIMIT, "it goes on", printed, |text| text.ends_with("new"));
    assert_eq!(rest().replace("\u{1b}", ""), "new error\nnew");
    assert_eq!(text(&["logs", "one", "--since", "1h"]), printed(), "all of it, rather than too little");

    assert_eq!(text(&["logs", "one", "--grep", "^(old|new) error$"]), "old error\nnew error");
    assert_eq!(text(&["logs", "one", "--grep", "^n", "--tail", "1"]), "new");
    let wrong = install.run(&["logs", "one", "--grep", "("]).ended_with(2);
    assert!(wrong.stderr.contains("--grep"), "{}", wrong.stderr);
    install.run(&["logs", "one", "--since", "yesterday"]).ended_with(2);

    let both = text(&["logs", "-l", "k=v"]);
    let lines: Vec<&str> = both.lines().collect();
    assert_eq!(lines.iter().filter(|line| line.starts_with("another  ")).count(), 10, "{both}");
    assert!(lines.contains(&"one      old error") && lines.contains(&"another  an error"), "{both}");
    let errors = text(&["logs", "one", "another", "--grep", "error"]);
    assert_eq!(errors, "one      old error\none      new error\nanother  an error");
    install.run(&["logs", "one", "another", "--raw"]).ended_with(2);
    install.run(&["logs", "one", "nobody"]).ended_with(3);

    // Followed beside each other until all have ended.
    let following = install.spawn(&["logs", "-f", "one", "another", "--grep", "error"]);
    install.run(&["stop", "one"]).succeeded();
    let mut lines: Vec<String> = following.end().succeeded().text().lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["another  an error", "one      new error", "one      old error"]);
}
