//! What the compiler cannot check of this code: where names may appear, how large files and folders are, and that every
//! input of the cores is tried by a test.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const FILE_LINES_MAX: usize = 500;
const FOLDER_FILES_MAX: usize = 12;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// Every file that git has, or would have, by its path from the root.
fn files() -> Vec<String> {
    let listed = std::process::Command::new("git")
        .args(["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let text = String::from_utf8(listed.stdout).unwrap();
    let mut files: Vec<String> = text.split('\0').map(str::to_owned).collect();
    files.retain(|path| !path.is_empty() && root().join(path).is_file());
    files.sort();
    files.dedup();
    files
}

fn read(path: &str) -> String {
    String::from_utf8_lossy(&std::fs::read(root().join(path)).unwrap()).into_owned()
}

fn sources() -> Vec<(String, String)> {
    files()
        .into_iter()
        .filter(|path| path.ends_with(".rs"))
        .map(|path| (read(&path), path))
        .map(swap)
        .collect()
}

fn swap((text, path): (String, String)) -> (String, String) {
    (path, text)
}

/// Code that ships, without the unit tests at the end of a file.
fn shipped() -> Vec<(String, String)> {
    let mut sources = sources();
    sources
        .retain(|(path, _)| path.contains("src/") && !path.starts_with("tests/") && !path.contains("/tests"));
    for (_, text) in &mut sources {
        if let Some(at) = text.find("#[cfg(test)]\nmod tests {") {
            text.truncate(at);
        }
    }
    sources
}

/// The lines without comments: those may speak of anything.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.trim_start().starts_with("//"))
}

fn none(what: &str, found: &[String]) {
    assert!(found.is_empty(), "{what}:\n  {}", found.join("\n  "));
}

#[test]
fn only_the_adapters_of_the_bus_name_its_client_library() {
    const ALLOWED: &[&str] = &["manager/daemon/src/store/", "manager/daemon/src/bus.rs", "hostd/src/bus/"];
    let found: Vec<String> = shipped()
        .into_iter()
        .filter(|(path, text)| {
            !ALLOWED.iter().any(|allowed| path.starts_with(allowed))
                && code(text).any(|line| line.contains("async_nats"))
        })
        .map(|(path, _)| path)
        .collect();
    none("async_nats is named outside the adapters of the bus", &found);
}

/// The packages of the manager, lowest first; each may depend on those before it.
#[test]
fn packages_of_the_manager_depend_only_downward() {
    const LAYERS: &[&str] = &["core", "plan", "installation", "notify", "daemon"];
    let mut found = Vec::new();
    for (at, layer) in LAYERS.iter().chain(&["cli"]).enumerate() {
        let manifest = read(&format!("manager/{layer}/Cargo.toml"));
        let allowed: &[&str] =
            if *layer == "cli" { &["core", "plan", "installation", "notify"] } else { &LAYERS[..at] };
        for line in manifest.lines().filter(|line| line.starts_with("manager-")) {
            let other = line.trim_start_matches("manager-").split(['.', ' ', '=']).next().unwrap_or_default();
            if !allowed.contains(&other) {
                found.push(format!("manager/{layer} depends on manager-{other}"));
            }
        }
    }
    none("arrows point upward", &found);
}

#[test]
fn only_one_file_holds_the_prefixes_of_subjects() {
    // Grants of the bus and streams are patterns over whole families of subjects, not subjects of one message.
    const PATTERNS: &[&str] =
        &["manager/installation/src/nats/accounts.rs", "manager/daemon/src/store/streams.rs"];
    // Followed by a token: the words alone are ordinary ones.
    const PREFIXES: &[&str] = &["\"$KV.", "\"cmd.", "\"ev.", "\"tr.", "\"hb.", "\"rpc."];
    let found: Vec<String> = shipped()
        .into_iter()
        .filter(|(path, text)| {
            path != "protocol/src/wire/subject.rs"
                && !PATTERNS.contains(&path.as_str())
                && code(text).any(|line| PREFIXES.iter().any(|prefix| line.contains(prefix)))
        })
        .map(|(path, _)| path)
        .collect();
    none("a subject is made by hand", &found);
}

#[test]
fn tmux_is_run_by_its_adapter_and_by_attach_alone() {
    const ALLOWED: &[&str] =
        &["hostd/src/sys/tmux/", "manager/cli/src/agent/attach.rs", "manager/installation/src/doctor/"];
    let found: Vec<String> = shipped()
        .into_iter()
        .filter(|(path, text)| {
            !ALLOWED.iter().any(|allowed| path.starts_with(allowed))
                && code(text)
                    .any(|line| line.contains("Command::new(\"tmux") || line.contains("program(\"tmux"))
        })
        .map(|(path, _)| path)
        .collect();
    none("tmux is run elsewhere", &found);
}

#[test]
fn no_file_is_longer_than_a_person_reads() {
    let found: Vec<String> = sources()
        .into_iter()
        .map(|(path, text)| (path, text.lines().count()))
        .filter(|(_, lines)| *lines > FILE_LINES_MAX)
        .map(|(path, lines)| format!("{path}: {lines} lines"))
        .collect();
    none("files are too long", &found);
}

#[test]
fn no_folder_holds_more_than_a_person_overlooks() {
    let mut folders: BTreeMap<String, usize> = BTreeMap::new();
    // `mod.rs` is the face of its folder, not one more part of it.
    for (path, _) in sources().into_iter().filter(|(path, _)| !path.ends_with("/mod.rs")) {
        let folder = Path::new(&path).parent().unwrap().display().to_string();
        *folders.entry(folder).or_default() += 1;
    }
    let found: Vec<String> = folders
        .into_iter()
        .filter(|(_, count)| *count > FOLDER_FILES_MAX)
        .map(|(folder, count)| format!("{folder}: {count} files"))
        .collect();
    none("folders are too full", &found);
}

#[test]
fn every_file_says_what_it_answers_for() {
    let found: Vec<String> =
        sources().into_iter().filter(|(_, text)| !text.starts_with("//! ")).map(|(path, _)| path).collect();
    none("files do not open with //!", &found);
}

#[test]
fn no_file_or_folder_has_a_name_that_says_nothing() {
    const NAMES: &[&str] = &["utils", "util", "helpers", "helper", "common", "misc", "imp"];
    let says_nothing = |path: &String| {
        Path::new(path).iter().any(|part| {
            let part = part.to_string_lossy();
            NAMES.contains(&part.split('.').next().unwrap_or_default())
        })
    };
    let found: Vec<String> = files().into_iter().filter(says_nothing).collect();
    none("names say nothing", &found);
}

/// The variants of `pub enum Input` in a file.
fn inputs(path: &str) -> Vec<String> {
    let text = read(path);
    let (_, body) = text.split_once("pub enum Input {").unwrap();
    let mut variants = Vec::new();
    for line in body.lines().take_while(|line| *line != "}") {
        let is_variant =
            line.starts_with("    ") && line.as_bytes().get(4).is_some_and(u8::is_ascii_uppercase);
        if is_variant {
            let name: String = line.trim().chars().take_while(char::is_ascii_alphanumeric).collect();
            variants.push(name);
        }
    }
    variants
}

#[test]
fn every_input_of_a_core_is_tried_by_a_test() {
    for (definition, tests) in [
        ("manager/core/src/input.rs", "manager/core/src/tests/"),
        ("hostd/core/src/input.rs", "hostd/core/tests/"),
    ] {
        let tests: String =
            sources().into_iter().filter(|(path, _)| path.starts_with(tests)).map(|(_, text)| text).collect();
        let variants = inputs(definition);
        assert!(variants.len() > 5, "{definition}: {variants:?}");
        let untried: Vec<String> = variants
            .into_iter()
            .filter(|name| {
                let named = format!("Input::{name}");
                !tests.match_indices(&named).any(|(at, _)| {
                    let next = tests.as_bytes().get(at + named.len());
                    !next.is_some_and(u8::is_ascii_alphanumeric)
                })
            })
            .map(|name| format!("{definition}: {name}"))
            .collect();
        none("no test tries", &untried);
    }
}

#[test]
fn nothing_names_the_machine_it_was_written_on_or_a_mirror() {
    // In pieces, so that this file does not find itself.
    let mut words: Vec<String> =
        [["/wo", "rk/"], ["replace", "-with"], ["index", "-url"], ["GOP", "ROXY"], ["[sour", "ce."]]
            .iter()
            .map(|parts| parts.concat())
            .collect();
    words.push(root().display().to_string());
    let mut found = Vec::new();
    for path in files() {
        for (number, line) in read(&path).lines().enumerate() {
            for word in words.iter().filter(|word| names_it(line, word)) {
                found.push(format!("{path}:{}: {word} in {}", number + 1, line.trim()));
            }
        }
    }
    none("paths of a machine, or settings of a mirror", &found);

    let of_crates_io = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";
    let lock = read("Cargo.lock");
    let foreign = |line: &&str| line.starts_with("source = ") && *line != of_crates_io;
    let foreign: Vec<String> = lock.lines().filter(foreign).map(str::to_owned).collect();
    none("dependencies from elsewhere", &foreign);
}

/// A path counts only from its start: the same word inside a longer relative path names no machine.
fn names_it(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line.get(..at).and_then(|before| before.chars().next_back()).unwrap_or(' ');
        !word.starts_with('/') || matches!(before, ' ' | '"' | '\'' | '`' | '(' | '=' | ':')
    })
}
