//! One line of the caller's crontab (crontab(5)), found again by the mark at its end. All other lines stay as they are,
//! byte for byte.

use std::path::Path;

use super::program::{run, said};
use super::{BootError, Entry, Start, Way, lacks_program, name_of};
use crate::layout::Layout;
use crate::supervisor::component::on_path;

const PROGRAM: &str = "crontab";
/// Of the command of a line: cron itself cuts longer ones in silence.
const COMMAND_MOST: usize = 990;

pub(super) fn is_here() -> bool {
    on_path(PROGRAM).is_some()
}

fn mark(layout: &Layout) -> String {
    format!("# {}", name_of(layout))
}

fn entry() -> Entry {
    let uid = nix::unistd::geteuid();
    let user = nix::unistd::User::from_uid(uid).ok().flatten();
    let user = user.map_or_else(|| uid.to_string(), |user| user.name);
    Entry { way: Way::Cron, place: format!("crontab of {user}"), lacks: String::new() }
}

/// Whether some cron waits for its times.
fn is_running() -> bool {
    let Ok(processes) = std::fs::read_dir("/proc") else { return false };
    processes.flatten().any(|process| {
        let name = std::fs::read_to_string(process.path().join("comm")).unwrap_or_default();
        matches!(name.trim(), "cron" | "crond" | "fcron" | "cronie")
    })
}

fn lacks_cron() -> String {
    if is_running() {
        return String::new();
    }
    "no cron runs now; see that it starts with the machine, such as with: service cron start".to_owned()
}

/// The crontab as it is; `None` when there is no such program or the user has none.
fn read() -> Result<Option<Vec<u8>>, BootError> {
    if !is_here() {
        return Ok(None);
    }
    let Some(output) = run(PROGRAM, &["-l"], &[], b"")? else { return Ok(None) };
    if output.status.success() {
        return Ok(Some(output.stdout));
    }
    let said = said(&output);
    // The words of vixie-cron and cronie, and of busybox.
    if said.contains("no crontab for") || said.contains("No such file or directory") {
        return Ok(None);
    }
    Err(BootError::Refused { words: "crontab -l".to_owned(), said })
}

/// An empty one is none, as before there was a line of ours.
fn write(text: &[u8]) -> Result<(), BootError> {
    let arg = if text.is_empty() { "-r" } else { "-" };
    match run(PROGRAM, &[arg], &[], text)? {
        Some(output) if output.status.success() => Ok(()),
        Some(output) => Err(BootError::Refused { words: format!("{PROGRAM} {arg}"), said: said(&output) }),
        None => Err(BootError::Neither),
    }
}

pub(super) fn enable(start: &Start<'_>) -> Result<Entry, BootError> {
    let (line, mark) = (line(start)?, mark(start.layout));
    let before = read()?.unwrap_or_default();
    if ours(&before, &mark) != [line.as_bytes()] {
        let mut after = without(&before, &mark);
        after.extend_from_slice(line.as_bytes());
        after.push(b'\n');
        write(&after)?;
    }
    Ok(Entry { lacks: lacks_cron(), ..entry() })
}

pub(super) fn disable(layout: &Layout) -> Result<Option<Entry>, BootError> {
    let (Some(before), mark) = (read()?, mark(layout)) else { return Ok(None) };
    if ours(&before, &mark).is_empty() {
        return Ok(None);
    }
    write(&without(&before, &mark))?;
    Ok(Some(entry()))
}

pub(super) fn found(layout: &Layout, program: Option<&Path>) -> Result<Option<Entry>, BootError> {
    let (Some(text), mark) = (read()?, mark(layout)) else { return Ok(None) };
    let Some(line) = ours(&text, &mark).pop() else { return Ok(None) };
    let program = program.and_then(Path::to_str).map(quoted);
    let other = lacks_program(&String::from_utf8_lossy(line), program.as_deref());
    let lacks = if other.is_empty() { lacks_cron() } else { other };
    Ok(Some(Entry { lacks, ..entry() }))
}

fn ours<'a>(text: &'a [u8], mark: &str) -> Vec<&'a [u8]> {
    text.split(|byte| *byte == b'\n').filter(|line| is_ours(line, mark)).collect()
}

/// A comment that happens to speak of it is not ours.
fn is_ours(line: &[u8], mark: &str) -> bool {
    line.starts_with(b"@reboot ") && line.ends_with(mark.as_bytes())
}

/// The text without our line, and with an end to its last one.
fn without(text: &[u8], mark: &str) -> Vec<u8> {
    let mut left = Vec::with_capacity(text.len() + 1);
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let bare = line.strip_suffix(b"\n").unwrap_or(line);
        if !is_ours(bare, mark) {
            left.extend_from_slice(bare);
            left.push(b'\n');
        }
    }
    left
}

/// For cron, then the shell. Cron ends the command at a `%` that has no backslash, and makes one of two backslashes in a
/// row; neither is left.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("'");
    for character in text.chars() {
        match character {
            '\'' => quoted.push_str("'\\''"),
            '\\' => quoted.push_str("\\''"),
            '%' => quoted.push_str("'\\%'"),
            other => quoted.push(other),
        }
    }
    quoted.push('\'');
    quoted
}

/// What it says goes to `log/boot.log`, anew at each boot.
fn line(start: &Start<'_>) -> Result<String, BootError> {
    let texts = start.texts("a crontab")?;
    let environment: String =
        texts.environment.iter().map(|(name, value)| format!("{name}={} ", quoted(value))).collect();
    let log = quoted(&format!("{}/log/boot.log", texts.home));
    let (program, mark) = (quoted(texts.program), mark(start.layout));
    let command = format!("{environment}{program} up >{log} 2>&1 {mark}");
    if command.len() > COMMAND_MOST {
        return Err(BootError::TooLong { length: command.len(), most: COMMAND_MOST });
    }
    Ok(format!("@reboot {command}"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// As cron does it: up to the first `%` that has no backslash, `\%` being `%` and `\\` being `\`.
    fn as_cron_runs_it(line: &str) -> String {
        let mut command = String::new();
        let mut characters = line.strip_prefix("@reboot ").unwrap().chars();
        while let Some(character) = characters.next() {
            match (character, characters.clone().next()) {
                ('\\', Some(next @ ('%' | '\\'))) => {
                    command.push(next);
                    characters.next();
                }
                ('%', _) => break,
                (other, _) => command.push(other),
            }
        }
        command
    }

    fn start<'a>(program: &Path, layout: &'a Layout) -> Start<'a> {
        let path = ("PATH".into(), "/usr/bin:/bin:/a b".into());
        Start::new(program.to_path_buf(), layout, std::iter::once(path))
    }

    #[test]
    fn the_shell_of_cron_reads_back_every_path() {
        let temp = tempfile::tempdir().unwrap();
        let odd = temp.path().join("it's 100% $HOME \"x\" \\ \\\\ \\% \\' y");
        std::fs::create_dir_all(odd.join("log")).unwrap();
        let program = odd.join("phalanx");
        std::fs::write(&program, "#!/bin/sh\nprintf '%s|%s|%s' \"$PHALANX_HOME\" \"$PATH\" \"$1\"\n")
            .unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&program, mode).unwrap();
        let layout = Layout::at(&odd).unwrap();
        let line = line(&start(&program, &layout)).unwrap();
        let status = Command::new("sh").arg("-c").arg(as_cron_runs_it(&line)).status().unwrap();
        assert!(status.success(), "{line}");
        let said = std::fs::read_to_string(odd.join("log/boot.log")).unwrap();
        assert_eq!(said, format!("{}|/usr/bin:/bin:/a b|up", odd.display()));
    }

    #[test]
    fn other_lines_stay_and_ours_is_there_once() {
        let layout = Layout::at("/h").unwrap();
        let (line, mark) = (line(&start(Path::new("/p"), &layout)).unwrap(), mark(&layout));
        let text = format!("# a comment {mark}\n5 4 * * * backup \\%\n{line}\n");
        assert_eq!(ours(text.as_bytes(), &mark), [line.as_bytes()]);
        let left = without(text.as_bytes(), &mark);
        assert_eq!(left, format!("# a comment {mark}\n5 4 * * * backup \\%\n").as_bytes());
        assert_eq!(without(b"no end, no \xff text", &mark), b"no end, no \xff text\n");
        let other = Layout::at("/other").unwrap();
        assert!(!is_ours(self::line(&start(Path::new("/p"), &other)).unwrap().as_bytes(), &mark));
    }

    #[test]
    fn a_line_that_cron_would_cut_is_refused() {
        let layout = Layout::at(format!("/{}", "h".repeat(800))).unwrap();
        assert!(matches!(line(&start(Path::new("/p"), &layout)), Err(BootError::TooLong { .. })));
    }
}
