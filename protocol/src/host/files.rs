//! Files of an agent's workspace, and the outputs that were kept of it, as they are listed, read and written.
//!
//! Files travel in pieces of at most [`PIECE`] bytes, each with its place. Whoever reads asks for the next piece with the
//! version of the first, so that a file that changes meanwhile is noticed. Whoever writes names its upload; the host
//! keeps what came under that name out of sight until the last piece, which has the digest of the whole.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

use crate::time::Timestamp;
use crate::wire_enum::wire_enum;

/// Largest piece of a file in one message.
pub const PIECE: usize = 512 << 10;

wire_enum!(
    /// Which of an agent's folders.
    FileArea {
        /// Where it works.
        Workspace = "workspace",
        /// The declared outputs that were kept after its end; only to be read.
        Outputs = "outputs",
    }
);

wire_enum!(
    FileKind {
        File = "file",
        Folder = "folder",
        /// A symbolic link.
        Link = "link",
        /// A pipe, socket or device: never opened.
        Other = "other",
    }
);

/// A path below one of the folders: `/` between its levels, no `..`, any bytes but NUL; empty for the folder itself.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
#[serde(transparent)]
pub struct FilePath(#[serde(with = "serde_bytes")] Vec<u8>);

/// Why bytes are no path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPath {
    #[error("it begins at the root; paths are those below the workspace")]
    Absolute,
    #[error("it has a `..`")]
    Upwards,
    #[error("it has a NUL")]
    Nul,
    #[error("it is longer than 4096 bytes")]
    TooLong,
}

impl FilePath {
    /// Empty levels and `.` are left out.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(bytes: &[u8]) -> Result<Self, BadPath> {
        if bytes.len() > 4096 {
            return Err(BadPath::TooLong);
        }
        if bytes.contains(&0) {
            return Err(BadPath::Nul);
        }
        if bytes.first() == Some(&b'/') {
            return Err(BadPath::Absolute);
        }
        let levels: Vec<&[u8]> =
            bytes.split(|byte| *byte == b'/').filter(|level| !matches!(*level, b"" | b".")).collect();
        if levels.contains(&&b".."[..]) {
            return Err(BadPath::Upwards);
        }
        Ok(Self(levels.join(&b'/')))
    }

    /// # Errors
    /// As [`Self::parse`].
    pub fn join(&self, below: &[u8]) -> Result<Self, BadPath> {
        let mut bytes = self.0.clone();
        if !bytes.is_empty() {
            bytes.push(b'/');
        }
        bytes.extend_from_slice(below);
        Self::parse(&bytes)
    }

    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The folder it is in, and its name there; `None` for the folder itself.
    #[must_use]
    pub fn split(&self) -> Option<(&[u8], &[u8])> {
        if self.0.is_empty() {
            return None;
        }
        let at = self.0.iter().rposition(|byte| *byte == b'/');
        let Some(at) = at else { return Some((&[], &self.0)) };
        Some((self.0.get(..at)?, self.0.get(at + 1..)?))
    }
}

impl fmt::Display for FilePath {
    /// For a person: what is no UTF-8 is replaced.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Debug for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

impl<'de> Deserialize<'de> for FilePath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes: Vec<u8> = serde_bytes::deserialize(deserializer)?;
        Self::parse(&bytes).map_err(serde::de::Error::custom)
    }
}

/// One entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    #[serde(with = "serde_bytes")]
    pub name: Vec<u8>,
    pub kind: FileKind,
    pub bytes: u64,
    /// Permission bits.
    pub mode: u32,
    pub modified: Timestamp,
    /// Where a link points to.
    #[serde(default, with = "serde_bytes")]
    pub target: Option<Vec<u8>>,
}

/// Some entries of a folder by their names, or the one entry of what is no folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileList {
    pub is_folder: bool,
    pub entries: Vec<FileEntry>,
    /// There are more after the last of these.
    #[serde(default)]
    pub more: bool,
}

/// A piece of a file, with what was true of the file when it was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePiece {
    pub offset: u64,
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
    /// Of the whole file.
    pub size: u64,
    pub mode: u32,
    pub modified: Timestamp,
    /// Changes with the file's content and with the file that bears the name.
    pub version: String,
}

/// One step of an upload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileWrite {
    pub path: FilePath,
    /// 32 hex digits, drawn by the writer. A step that comes again is not done again.
    pub upload: String,
    pub offset: u64,
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
    /// With the last piece: the file gets its name.
    #[serde(default)]
    pub finish: Option<FileFinish>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileFinish {
    /// Of the whole.
    pub sha256: String,
    /// Permission bits; `None`: those of the file it replaces, else 0644.
    #[serde(default)]
    pub mode: Option<u32>,
}

/// What is made without content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileNode {
    /// A folder and those it is in; one that is there is fine.
    Folder { mode: u32 },
    Link {
        #[serde(with = "serde_bytes")]
        target: Vec<u8>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_stays_below_its_folder() {
        let path = |text: &str| FilePath::parse(text.as_bytes()).map(|path| path.to_string());
        assert_eq!(path("a/b"), Ok("a/b".to_owned()));
        assert_eq!(path("./a//b/."), Ok("a/b".to_owned()));
        assert_eq!(path(""), Ok(String::new()));
        assert_eq!(path("a..b/...c"), Ok("a..b/...c".to_owned()));
        assert_eq!(path("/etc/passwd"), Err(BadPath::Absolute));
        assert_eq!(path("a/../../b"), Err(BadPath::Upwards));
        assert_eq!(path("a\0b"), Err(BadPath::Nul));
        assert_eq!(path(&"a".repeat(5000)), Err(BadPath::TooLong));
    }

    #[test]
    fn a_path_is_split_and_joined_at_its_last_level() {
        let path = FilePath::parse(b"a/b/c").unwrap();
        assert_eq!(path.split(), Some((&b"a/b"[..], &b"c"[..])));
        assert_eq!(FilePath::parse(b"c").unwrap().split(), Some((&b""[..], &b"c"[..])));
        assert_eq!(FilePath::default().split(), None);
        assert_eq!(path.join(b"d\xff").unwrap().as_bytes(), b"a/b/c/d\xff");
        assert_eq!(FilePath::default().join(b"d").unwrap().as_bytes(), b"d");
        assert_eq!(path.join(b".."), Err(BadPath::Upwards));
    }

    #[test]
    fn what_a_peer_sends_is_checked_when_it_is_read() {
        let bytes = crate::codec::to_bytes(&serde_bytes::Bytes::new(b"../x")).unwrap();
        assert!(crate::codec::from_bytes::<FilePath>(&bytes).is_err());
    }
}
