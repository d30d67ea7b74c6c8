//! Programs beside an agent that are spoken with: any length in and out, while they run, and nothing left of them when
//! whoever spoke with them is gone.

use std::io::{Read, Write};
use std::process::{Child, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use phalanx_tests::bytes;
use phalanx_tests::install::{Install, is_alive};
use phalanx_tests::wait;

const LARGE: usize = 20 << 20;

fn spoken_with(install: &Install, script: &str) -> Child {
    let mut command = install.command(&["exec", "-i", "demo", "--", "sh", "-c", script]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// The process id that a program wrote into a file.
fn pid_in(install: &Install, file: &str) -> u32 {
    let lines = || install.lines(file);
    wait::until(wait::LIMIT, "the program runs", lines, |lines| !lines.is_empty())[0].parse().unwrap()
}

/// Well before a host would miss signs of life.
const AT_ONCE: Duration = Duration::from_secs(15);

fn ends(what: &str, pid: u32, within: Duration) {
    wait::until(within, what, || is_alive(pid), |alive| !alive);
}

#[test]
fn twenty_megabytes_go_in_and_come_out_byte_for_byte() {
    let install = Install::start();
    install.create("demo", &[], &["hang"]);
    let whole = bytes::of_seed(7, LARGE);
    let sum = install.run_with(&["exec", "-i", "demo", "--", "sh", "-c", "cat | sha256sum"], &whole);
    assert!(sum.succeeded().text().starts_with(&bytes::sha256(&whole)));
    let back = install.run_with(&["exec", "-i", "demo", "--", "cat"], &whole).succeeded();
    assert!(back.stdout == whole, "{} bytes came back", back.stdout.len());
    // One that does not read ends as it likes.
    install.run_with(&["exec", "-i", "demo", "--", "true"], &whole).succeeded();
    let some = install.run_with(&["exec", "-i", "demo", "--", "head", "-c", "3"], &whole).succeeded();
    assert_eq!(some.stdout, whole[..3]);
    let none = install.run_with(&["exec", "-i", "demo", "--", "wc", "-c"], b"").succeeded();
    assert_eq!(none.text().trim(), "0");
    let silent = install.run_with(&["exec", "demo", "--", "wc", "-c"], b"not passed on").succeeded();
    assert_eq!(silent.text().trim(), "0");
}

#[test]
fn output_comes_while_it_runs_stderr_apart_and_its_exit_code_is_passed_on() {
    let install = Install::start();
    install.create("demo", &[], &["hang"]);
    let script = "while read line; do echo got $line; echo err $line >&2; done; exit 7";
    let mut child = spoken_with(&install, script);
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    for word in ["one", "two"] {
        writeln!(stdin, "{word}").unwrap();
        let mut line = vec![0; "got one\n".len()];
        // Before the next line is written, and while the input is open.
        stdout.read_exact(&mut line).unwrap();
        assert_eq!(String::from_utf8_lossy(&line), format!("got {word}\n"));
    }
    drop(stdin);
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((rest.as_str(), said.as_str()), ("", "err one\nerr two\n"));
    assert_eq!(child.wait().unwrap().code(), Some(7));
}

#[test]
fn a_reader_that_takes_its_time_gets_all_of_it() {
    let install = Install::start();
    install.create("demo", &[], &["hang"]);
    let mut command = install.command(&["exec", "demo", "--", "head", "-c", "60000000", "/dev/zero"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    wait::pause(std::time::Duration::from_secs(3));
    let mut count = 0;
    let mut stdout = child.stdout.take().unwrap();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match stdout.read(&mut buffer).unwrap() {
            0 => break,
            more => count += more,
        }
    }
    assert_eq!((count, child.wait().unwrap().code()), (60_000_000, Some(0)));
}

#[test]
fn a_program_ends_with_its_client_and_takes_no_part_of_its_input_for_all() {
    let install = Install::start();
    install.create("demo", &[], &["hang"]);
    for (name, signal) in [("killed", Signal::SIGKILL), ("interrupted", Signal::SIGINT)] {
        let (pid, whole) = (install.text_path(name), install.text_path(&format!("{name}-whole")));
        let script = format!("echo $$ > {pid}; cat > /dev/null && echo all > {whole}; sleep 1000");
        let mut child = spoken_with(&install, &script);
        child.stdin.as_mut().unwrap().write_all(b"a part").unwrap();
        let program = pid_in(&install, name);
        kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
        child.wait().unwrap();
        ends(&format!("it ends when its client is {name}"), program, AT_ONCE);
        assert_eq!(install.lines(&format!("{name}-whole")), Vec::<String>::new());
    }
    // A reader that closes its end.
    let pid = install.text_path("closed");
    let mut command =
        install.command(&["exec", "demo", "--", "sh", "-c", &format!("echo $$ > {pid}; exec yes")]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let program = pid_in(&install, "closed");
    drop(child.stdout.take());
    child.wait().unwrap();
    ends("it ends when nobody reads", program, AT_ONCE);
    // And with a manager that is gone, after a while.
    let pid = install.text_path("orphan");
    let mut child = spoken_with(&install, &format!("echo $$ > {pid}; exec sleep 1000"));
    let program = pid_in(&install, "orphan");
    install.kill("manager");
    assert_eq!(child.wait().unwrap().code(), Some(125));
    ends("it ends without a sign of life", program, wait::LIMIT);
}
