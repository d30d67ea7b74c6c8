//! `man`: manual pages, one for each command, made of the same words as `--help`.

use std::path::Path;

use clap::Command;
use clap_mangen::roff::{Roff, roman};
use protocol::error::ErrorCode;

use super::super::args;
use super::super::error::{Failure, exit};
use super::super::output::pipe::{Stdout, say};
use super::super::output::sanitise::safe_line;
use super::examples;

/// Into `folder`, or the main page on stdout.
pub fn run(folder: Option<&Path>, quiet: bool) -> Result<u8, Failure> {
    let pages = pages()?;
    let Some(folder) = folder else {
        let mut out = Stdout::default();
        if let Some((_, page)) = pages.first() {
            out.bytes(page)?;
        }
        out.done()?;
        return Ok(exit::OK);
    };
    let failed = |what: &str, path: &Path, error: &std::io::Error| {
        let denied = error.kind() == std::io::ErrorKind::PermissionDenied;
        let code = if denied { ErrorCode::Denied } else { ErrorCode::Failed };
        Failure::new(code, format!("cannot {what} {}: {error}", path.display()))
    };
    std::fs::create_dir_all(folder).map_err(|error| failed("make", folder, &error))?;
    for (name, page) in &pages {
        let path = folder.join(name);
        std::fs::write(&path, page).map_err(|error| failed("write", &path, &error))?;
    }
    if !quiet {
        let folder = folder.display();
        say(&safe_line(&format!("{} pages in {folder}; look: man -l {folder}/phalanx.1", pages.len())));
    }
    Ok(exit::OK)
}

/// File names and pages, the main one first.
fn pages() -> Result<Vec<(String, Vec<u8>)>, Failure> {
    let mut root = args::command();
    root.build();
    let mut pages = Vec::new();
    let mut open = vec![(root, "phalanx".to_owned())];
    while let Some((command, name)) = open.pop() {
        let mut page = Vec::new();
        // `build` has given each its whole name to show.
        clap_mangen::Man::new(command.clone()).render(&mut page)?;
        shown(name.split_once('-').map_or("", |(_, words)| words), &mut page)?;
        let below = command.get_subcommands().filter(|command| !command.is_hide_set());
        open.extend(
            below.map(|command: &Command| (command.clone(), format!("{name}-{}", command.get_name()))),
        );
        pages.push((format!("{name}.1"), page));
    }
    Ok(pages)
}

/// What the command printed when it was called for real.
fn shown(words: &str, page: &mut Vec<u8>) -> Result<(), Failure> {
    let text = examples::of(&words.replace('-', " "));
    if words.is_empty() || text.is_empty() {
        return Ok(());
    }
    let mut roff = Roff::new();
    roff.control("SH", ["EXAMPLES"]).control("nf", []);
    for line in text.lines() {
        roff.text([roman(line)]);
    }
    roff.control("fi", []);
    roff.to_writer(page)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a command prints is seen before it is tried.
    #[test]
    fn every_command_is_shown_with_what_it_printed() {
        let mut root = args::command();
        root.build();
        let mut open = vec![(root, String::new())];
        let mut unseen = Vec::new();
        while let Some((command, words)) = open.pop() {
            let below: Vec<&Command> = command
                .get_subcommands()
                .filter(|below| !below.is_hide_set() && below.get_name() != "help")
                .collect();
            if below.is_empty() && examples::of(&words).is_empty() {
                unseen.push(words.clone());
            }
            let name = |below: &Command| format!("{words} {}", below.get_name()).trim().to_owned();
            open.extend(below.into_iter().map(|below| (below.clone(), name(below))));
        }
        assert!(unseen.is_empty(), "deploy/session shows nothing of: {}", unseen.join(", "));
    }

    #[test]
    fn every_command_has_a_page_with_its_examples_and_hidden_ones_have_none() {
        let pages = pages().unwrap();
        let page = |name: &str| {
            let found = pages.iter().find(|(file, _)| file == name);
            String::from_utf8(found.unwrap_or_else(|| panic!("no {name}")).1.clone()).unwrap()
        };
        assert_eq!(pages[0].0, "phalanx.1");
        assert!(page("phalanx-create.1").contains("memory"));
        assert!(page("phalanx-config-set.1").contains("layer"));
        assert!(!pages.iter().any(|(file, _)| file == "phalanx-supervise.1"));
        assert!(page("phalanx-snapshot-ls.1").contains("NOT SAVED"));
    }
}
