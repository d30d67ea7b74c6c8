//! `AGENT:PATH`, as scp and kubectl have it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use protocol::api::Target;
use protocol::files::{FileArea, FilePath};

use super::super::error::Failure;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub agent: Target,
    pub area: FileArea,
    pub path: FilePath,
    /// It was written with a `/` at its end, or is empty: what is put there goes into the folder.
    pub is_folder: bool,
}

/// Up to the first `:` it is the agent, so a path may have one.
///
/// # Errors
/// No agent, or a path that leads out of the workspace.
pub fn parse(text: &OsStr, area: FileArea, needs_path: bool) -> Result<Place, Failure> {
    let bytes = text.as_bytes();
    let shown = text.to_string_lossy();
    let (agent, path) = match bytes.iter().position(|byte| *byte == b':') {
        Some(at) => (bytes.get(..at).unwrap_or_default(), bytes.get(at + 1..).unwrap_or_default()),
        None if needs_path => {
            return Err(Failure::usage(format!("{shown:?} is no AGENT:PATH")).hint(format!("{shown}:PATH")));
        }
        None => (bytes, &[][..]),
    };
    let agent = String::from_utf8(agent.to_vec()).ok().filter(|agent| !agent.is_empty());
    let agent = agent.ok_or_else(|| Failure::usage(format!("{shown:?} names no agent")))?;
    let is_folder = path.is_empty() || path.ends_with(b"/");
    let path = FilePath::parse(path).map_err(|error| {
        Failure::usage(format!("{shown:?}: {error}")).hint(format!("phalanx file ls {agent}"))
    })?;
    Ok(Place { agent, area, path, is_folder })
}

#[must_use]
pub fn area(outputs: bool) -> FileArea {
    if outputs { FileArea::Outputs } else { FileArea::Workspace }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agent_ends_at_the_first_colon() {
        let place = |text: &str| {
            let place = parse(OsStr::new(text), FileArea::Workspace, false).unwrap();
            (place.agent, place.path.to_string(), place.is_folder)
        };
        assert_eq!(place("demo"), ("demo".into(), String::new(), true));
        assert_eq!(place("demo:"), ("demo".into(), String::new(), true));
        assert_eq!(place("demo@db-01:src/a:b"), ("demo@db-01".into(), "src/a:b".into(), false));
        assert_eq!(place("demo:src/"), ("demo".into(), "src".into(), true));
        for wrong in [":x", "", "demo:/etc/passwd", "demo:../x", "demo:a/../../x"] {
            let failure = parse(OsStr::new(wrong), FileArea::Workspace, false).unwrap_err();
            assert_eq!(failure.exit_code(), 2, "{wrong}");
        }
        assert!(parse(OsStr::new("demo"), FileArea::Workspace, true).is_err());
    }
}
