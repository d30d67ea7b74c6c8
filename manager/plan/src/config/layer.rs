//! Where each layer is written. Reads nothing but whether a project's file is there.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

/// The file of a project, looked for from the working folder upward.
pub const PROJECT_FILE: &str = ".phalanx.toml";
const SYSTEM_FILE: &str = "/etc/phalanx/config.toml";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Layer {
    #[value(skip)]
    BuiltIn,
    /// Of this machine
    System,
    /// Yours
    User,
    /// Of the repository you stand in
    Project,
    #[value(skip)]
    Environment,
}

impl Layer {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BuiltIn => "built-in",
            Self::System => "system",
            Self::User => "user",
            Self::Project => "project",
            Self::Environment => "environment",
        }
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The files of the layers that are files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    pub system: PathBuf,
    /// `None` without a home folder.
    pub user: Option<PathBuf>,
    /// `None` when no folder above has one.
    pub project: Option<PathBuf>,
}

impl Files {
    /// As the XDG base directory specification says; `here` is where the search for a project begins.
    #[must_use]
    pub fn from_env(here: Option<&Path>) -> Self {
        Self::from_lookup(|name| std::env::var_os(name), here)
    }

    /// Those of daemons: no project's, wherever they were started.
    #[must_use]
    pub fn of_daemons() -> Self {
        Self { project: None, ..Self::from_env(None) }
    }

    fn from_lookup(lookup: impl Fn(&str) -> Option<OsString>, here: Option<&Path>) -> Self {
        let folder = |name: &str| {
            lookup(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        let config = folder("XDG_CONFIG_HOME").or_else(|| Some(folder("HOME")?.join(".config")));
        let project = here.and_then(|here| {
            here.ancestors().map(|folder| folder.join(PROJECT_FILE)).find(|path| path.is_file())
        });
        Self {
            system: PathBuf::from(SYSTEM_FILE),
            user: config.map(|folder| folder.join("phalanx/config.toml")),
            project,
        }
    }

    /// In the order in which they win over each other.
    pub fn all(&self) -> impl Iterator<Item = (Layer, &Path)> {
        let system = Some((Layer::System, self.system.as_path()));
        let user = self.user.as_deref().map(|path| (Layer::User, path));
        let project = self.project.as_deref().map(|path| (Layer::Project, path));
        [system, user, project].into_iter().flatten()
    }

    /// Where a layer is written, or would be.
    #[must_use]
    pub fn of(&self, layer: Layer, here: &Path) -> Option<PathBuf> {
        match layer {
            Layer::System => Some(self.system.clone()),
            Layer::User => self.user.clone(),
            Layer::Project => Some(self.project.clone().unwrap_or_else(|| here.join(PROJECT_FILE))),
            Layer::BuiltIn | Layer::Environment => None,
        }
    }
}

/// The variables that can be settings.
#[must_use]
pub fn environment() -> BTreeMap<String, String> {
    let pairs = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok().filter(|name| name.starts_with("PHALANX_"))?;
        Some((name, value.to_string_lossy().into_owned()))
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_where_xdg_says_and_a_relative_folder_is_none() {
        let found = |pairs: &[(&str, &str)]| {
            let of =
                |name: &str| pairs.iter().find(|(n, _)| *n == name).map(|(_, value)| OsString::from(value));
            Files::from_lookup(of, None).user
        };
        assert_eq!(found(&[("HOME", "/h")]), Some(PathBuf::from("/h/.config/phalanx/config.toml")));
        assert_eq!(
            found(&[("HOME", "/h"), ("XDG_CONFIG_HOME", "/c")]),
            Some(PathBuf::from("/c/phalanx/config.toml"))
        );
        assert_eq!(
            found(&[("HOME", "/h"), ("XDG_CONFIG_HOME", "c")]),
            Some(PathBuf::from("/h/.config/phalanx/config.toml"))
        );
        assert_eq!(found(&[]), None);
    }

    #[test]
    fn the_nearest_file_above_is_the_projects() {
        let temp = tempfile::tempdir().unwrap();
        let deep = temp.path().join("a/b/c");
        std::fs::create_dir_all(&deep).unwrap();
        let outer = temp.path().join(PROJECT_FILE);
        std::fs::write(&outer, "").unwrap();
        assert_eq!(Files::from_lookup(|_| None, Some(&deep)).project, Some(outer));
        let inner = temp.path().join("a/b").join(PROJECT_FILE);
        std::fs::write(&inner, "").unwrap();
        assert_eq!(Files::from_lookup(|_| None, Some(&deep)).project, Some(inner));
    }
}
