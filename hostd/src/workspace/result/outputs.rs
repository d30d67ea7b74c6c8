//! Files that an agent hands over: its result file and its declared outputs. Paths are opened
//! below the workspace without following links; contents are copied and hashed, never interpreted.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::super::error::{At, Result};
use super::inspect::{self, Unread};

/// A result file is a small JSON document.
pub const RESULT_MAX: u64 = 1024 * 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Below the workspace.
    pub path: PathBuf,
    pub bytes: u64,
    pub sha256: String,
    /// The copy.
    pub stored: PathBuf,
}

/// A declared output that could not be handed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputProblem {
    /// As declared when nothing matched it, else the path that did.
    pub name: String,
    pub why: Unread,
}

pub(crate) fn result(work: &Path, name: &Path) -> Result<std::result::Result<Vec<u8>, Unread>> {
    inspect::read_beneath(work, name, RESULT_MAX)
}

/// What to copy, where to, and how much at most.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) patterns: &'a [String],
    pub(crate) into: &'a Path,
    pub(crate) limit_bytes: u64,
}

/// A path hands over a file or all files of a folder; `*`, `?`, `[a]` match within one level, `**`
/// over levels.
pub(crate) fn collect(work: &Path, wanted: &Wanted<'_>) -> Result<(Vec<Output>, Vec<OutputProblem>)> {
    let (mut outputs, mut problems) = (Vec::new(), Vec::new());
    let mut left = wanted.limit_bytes;
    for declared in wanted.patterns {
        let problem = |why| OutputProblem { name: declared.clone(), why };
        let Some(pattern) = parse(declared) else {
            problems.push(problem(Unread::BadPath));
            continue;
        };
        let found = matches(work, &pattern)?;
        if found.is_empty() {
            problems.push(problem(Unread::Missing));
        }
        for path in found {
            if outputs.iter().any(|output: &Output| output.path == path) {
                continue;
            }
            match copy(work, &path, wanted.into, left)? {
                Ok(output) => {
                    left = left.saturating_sub(output.bytes);
                    outputs.push(output);
                }
                Err(why) => problems.push(OutputProblem { name: path.display().to_string(), why }),
            }
        }
    }
    Ok((outputs, problems))
}

/// The files that these patterns name now, whether or not they can be copied.
pub(crate) fn named(work: &Path, patterns: &[String]) -> Result<Vec<PathBuf>> {
    let mut named = Vec::new();
    for pattern in patterns.iter().filter_map(|declared| parse(declared)) {
        named.extend(matches(work, &pattern)?);
    }
    Ok(named)
}

struct Declared {
    /// The levels before the first that is a pattern.
    start: PathBuf,
    pattern: Option<glob::Pattern>,
}

fn parse(declared: &str) -> Option<Declared> {
    let plain = declared.trim_end_matches('/');
    let plain = plain.strip_prefix("./").unwrap_or(plain);
    let levels: Vec<&str> = plain.split('/').collect();
    if plain.is_empty() || levels.iter().any(|level| matches!(*level, "" | "." | "..")) {
        return None;
    }
    let is_pattern = |level: &&str| level.contains(['*', '?', '[']);
    let start: PathBuf = levels.iter().take_while(|level| !is_pattern(level)).collect();
    let pattern = match levels.iter().any(is_pattern) {
        true => Some(glob::Pattern::new(plain).ok()?),
        false => None,
    };
    Some(Declared { start, pattern })
}

/// Paths below `work`, sorted; links appear as themselves and are never entered.
fn matches(work: &Path, declared: &Declared) -> Result<Vec<PathBuf>> {
    const RULES: glob::MatchOptions = glob::MatchOptions {
        case_sensitive: true,
        require_literal_separator: true,
        require_literal_leading_dot: false,
    };
    let mut found = Vec::new();
    let mut open = vec![declared.start.clone()];
    // A start below a link is refused by the copy; walking it would leave the workspace.
    if declared.start.ancestors().skip(1).any(|above| is_link(&work.join(above), above)) {
        return Ok(vec![declared.start.clone()]);
    }
    while let Some(path) = open.pop() {
        let full = work.join(&path);
        let Ok(facts) = std::fs::symlink_metadata(&full) else { continue };
        if path.starts_with(".git") {
            continue;
        }
        if facts.is_dir() {
            for entry in std::fs::read_dir(&full).at("read", &full)? {
                open.push(path.join(entry.at("read", &full)?.file_name()));
            }
        } else if declared.pattern.as_ref().is_none_or(|pattern| pattern.matches_path_with(&path, RULES)) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn is_link(full: &Path, relative: &Path) -> bool {
    !relative.as_os_str().is_empty() && std::fs::symlink_metadata(full).is_ok_and(|facts| facts.is_symlink())
}

fn copy(work: &Path, path: &Path, into: &Path, left: u64) -> Result<std::result::Result<Output, Unread>> {
    let mut source = match inspect::open_beneath(work, path)? {
        Ok(source) => source,
        Err(unread) => return Ok(Err(unread)),
    };
    let size = source.metadata().at("read", path)?.len();
    if size > left {
        return Ok(Err(Unread::TooLarge { bytes: size }));
    }
    let stored = into.join(path);
    if let Some(parent) = stored.parent() {
        std::fs::create_dir_all(parent).at("made", parent)?;
    }
    let mut target = std::fs::File::create(&stored).at("made", &stored)?;
    let mut digest = Sha256::new();
    let (mut bytes, mut block) = (0u64, vec![0u8; 128 * 1024]);
    loop {
        let read = source.read(&mut block).at("read", path)?;
        let Some(part) = block.get(..read).filter(|part| !part.is_empty()) else { break };
        bytes += u64::try_from(read).unwrap_or_default();
        // It may grow while it is read.
        if bytes > left {
            std::fs::remove_file(&stored).at("removed", &stored)?;
            return Ok(Err(Unread::TooLarge { bytes }));
        }
        digest.update(part);
        target.write_all(part).at("written", &stored)?;
    }
    target.sync_data().at("synced", &stored)?;
    let sha256 = data_encoding::HEXLOWER.encode(&digest.finalize());
    Ok(Ok(Output { path: path.to_path_buf(), bytes, sha256, stored }))
}
