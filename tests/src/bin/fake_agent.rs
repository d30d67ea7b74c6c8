//! A program that behaves and misbehaves on command: its arguments are steps, done one after the other.
//! `fake-agent mark started.txt lines 10 100 exit 3` appends its process id to a file, prints ten lines, ends with 3.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "test code: it fails by panicking, prints, and takes its time"
)]

use std::fs::OpenOptions;
use std::io::{BufRead, Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::termios;
use phalanx_tests::bytes;

fn main() {
    let mut words = std::env::args().skip(1);
    while let Some(step) = words.next() {
        do_step(&step, &mut words);
    }
}

fn do_step(step: &str, words: &mut dyn Iterator<Item = String>) {
    let mut word = || words.next().unwrap_or_else(|| panic!("{step} lacks a word"));
    match step {
        // Files
        "mark" => append(&word(), &format!("{}\n", std::process::id())),
        "tell" => append(&word(), &format!("{}\n", word())),
        "tell-env" => append(&word(), &format!("{}\n", std::env::var(word()).unwrap_or_default())),
        "write" => std::fs::write(word(), word()).unwrap(),
        "copy-env-file" => drop(std::fs::copy(std::env::var(word()).unwrap(), word()).unwrap()),
        "sum-env-file" => {
            println!("{}", bytes::sha256(&std::fs::read(std::env::var(word()).unwrap()).unwrap()))
        }
        "commit" => commit(&word()),
        "await" => await_file(&word()),
        // Output
        "say" => println!("{}", word()),
        "raw" => make_terminal_raw(),
        "bytes" => print(&bytes::of_seed(number(&word()), usize::try_from(number(&word())).unwrap())),
        "escape" => print(b"plain \x1b]52;c;aGk=\x07 \x1b[2J \xc2\x9b6n \x1bP1\x1b\\ \x1bc end\r\n"),
        "lines" => lines(number(&word()), number(&word())),
        "ask" => ask(&word()),
        "echo-input" => echo_input(),
        "input-line" => input_line(number(&word())),
        // Time and processes
        "sleep" => std::thread::sleep(Duration::from_millis(number(&word()))),
        "hang" => hang(),
        "spin" => loop {
            std::hint::spin_loop();
        },
        "deaf" => be_deaf(),
        "new-session" => drop(nix::unistd::setsid().unwrap()),
        "descend" => descend(&word()),
        "leave" => drop(again(&["sleep", &word()]).spawn().unwrap()),
        "children" => have_children(number(&word())),
        "eat" => eat(number(&word())),
        // Ends
        "exit" => std::process::exit(word().parse().unwrap()),
        "signal" => end_by(Signal::try_from(i32::try_from(number(&word())).unwrap()).unwrap()),
        "fail-until" => fail_until(&word(), &word()),
        other => panic!("there is no step {other:?}"),
    }
}

fn number(word: &str) -> u64 {
    word.parse().unwrap_or_else(|_| panic!("{word:?} is no number"))
}

fn append(path: &str, text: &str) {
    let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

fn print(bytes: &[u8]) {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes).unwrap();
    out.flush().unwrap();
}

fn lines(count: u64, pause_ms: u64) {
    for line in 1..=count {
        println!("line {line:06}");
        std::thread::sleep(Duration::from_millis(pause_ms));
    }
}

/// So that the terminal hands every byte on as it is.
fn make_terminal_raw() {
    let stdout = std::io::stdout();
    let Ok(mut modes) = termios::tcgetattr(&stdout) else { return };
    termios::cfmakeraw(&mut modes);
    termios::tcsetattr(&stdout, termios::SetArg::TCSADRAIN, &modes).unwrap();
}

fn ask(question: &str) {
    println!("{question}");
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).unwrap();
    println!("GOT[{}]", answer.trim_end());
}

/// An input line that takes pastes and swallows every Enter that follows one within so many milliseconds, as many
/// programs with a screen do. What is submitted is printed, with the number of Enters that it took.
fn input_line(swallows_ms: u64) {
    make_terminal_raw();
    print(b"\x1b[?2004h> ");
    let (mut line, mut enters, mut pasted_at) = (Vec::new(), 0, None::<Instant>);
    let mut bytes = [0_u8; 4096];
    loop {
        let count = std::io::stdin().lock().read(&mut bytes).unwrap();
        if count == 0 {
            return;
        }
        for byte in bytes.iter().take(count) {
            line.push(*byte);
            if line.ends_with(b"\x1b[200~") {
                line.truncate(line.len() - 6);
            } else if line.ends_with(b"\x1b[201~") {
                line.truncate(line.len() - 6);
                pasted_at = Some(Instant::now());
                print(String::from_utf8_lossy(&line).replace('\n', "\r\n  ").as_bytes());
            } else if line.last() == Some(&b'\r') && !line.contains(&0x1b) {
                line.pop();
                enters += 1;
                if pasted_at.is_some_and(|at| at.elapsed() < Duration::from_millis(swallows_ms)) {
                    continue;
                }
                let submitted = String::from_utf8_lossy(&line).into_owned();
                print(format!("\r\nGOT[{submitted}] after {enters}\r\n> ").as_bytes());
                (line, enters, pasted_at) = (Vec::new(), 0, None);
            } else if pasted_at.is_some() && *byte != 0x1b && !line.contains(&0x1b) {
                print(&[*byte]);
            }
        }
    }
}

fn echo_input() {
    let mut input = Vec::new();
    std::io::stdin().lock().read_to_end(&mut input).unwrap();
    print(&input);
}

fn commit(message: &str) {
    for args in [vec!["add", "-A"], vec!["commit", "-qm", message]] {
        assert!(Command::new("git").args(&args).status().unwrap().success(), "git {args:?}");
    }
}

fn await_file(path: &str) {
    while !std::path::Path::new(path).exists() {
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn hang() {
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

/// Blocked is as good as ignored, and needs no handler.
fn be_deaf() {
    let mut set = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT] {
        set.add(signal);
    }
    set.thread_block().unwrap();
}

fn again(steps: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(steps).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Leaves a process in a session of its own whose parent has ended.
fn descend(ms: &str) {
    assert!(again(&["new-session", "leave", ms]).status().unwrap().success());
}

/// Stops at the first that cannot be had, and says so.
fn have_children(count: u64) {
    for child in 0..count {
        if let Err(error) = again(&["sleep", "600000"]).spawn() {
            println!("child {child} refused: {error}");
            return;
        }
    }
    println!("all {count} children were had");
}

fn eat(megabytes: u64) {
    let mut all: Vec<Vec<u8>> = Vec::new();
    for _ in 0..megabytes {
        all.push(vec![1; 1 << 20]);
    }
    println!("ate {} MB", all.len());
}

fn end_by(signal: Signal) {
    // The runtime's own handler of SIGSEGV gives way at the first, the second one ends us.
    loop {
        nix::sys::signal::raise(signal).unwrap();
    }
}

/// Counts its turns in a file and fails until the turn is reached.
fn fail_until(path: &str, turn: &str) {
    append(path, "x\n");
    let turns = std::fs::read_to_string(path).unwrap().lines().count();
    if turns < usize::try_from(number(turn)).unwrap() {
        println!("turn {turns} fails");
        std::process::exit(1);
    }
    let _ = std::io::stdout().flush();
}
