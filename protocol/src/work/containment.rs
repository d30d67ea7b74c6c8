//! What keeps an agent's program apart: whom it runs as, what it sees, and what of that holds. How it is done lies in
//! `phalanx-shim`, whether and for whom in hostd.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::wire_enum::wire_enum;

wire_enum!(
    /// What an agent's program cannot get around.
    Isolation {
        /// It has a uid other than hostd's and a mount namespace of its own: holds against malice.
        User = "user",
        /// It has hostd's uid and a mount namespace of its own: holds against accident, not against a program that
        /// sets out to leave it.
        Namespace = "namespace",
        /// It has hostd's uid and sees all that hostd sees.
        None = "none",
    }
);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchUser {
    pub uid: u32,
    pub gid: u32,
    /// Supplementary groups; all others are dropped.
    #[serde(default)]
    pub groups: Vec<u32>,
}

/// A view of the file system in a mount namespace of its own (mount_namespaces(7)).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// Folders of which nothing is seen but what `keeps` names.
    #[serde(default)]
    pub covers: Vec<PathBuf>,
    #[serde(default)]
    pub keeps: Vec<Keep>,
}

/// A folder that is seen where it is, inside of a cover or outside of all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keep {
    pub path: PathBuf,
    #[serde(default)]
    pub read_only: bool,
}
