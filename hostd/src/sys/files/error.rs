//! Why a file was not listed, read or written.

use std::io;

use protocol::files::FileKind;
use rustix::io::Errno;

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("it is not there")]
    Missing,
    #[error("the folder it shall be in is not there")]
    NoFolder,
    #[error("it leads out of the folder")]
    Outside,
    #[error("it is a folder")]
    IsFolder,
    #[error("it is no folder, or lies behind one that is none")]
    NotAFolder,
    #[error("it is a {}; only files and folders are read and written", match .0 {
        FileKind::Link => "link",
        _ => "pipe, socket or device",
    })]
    NotPlain(FileKind),
    #[error("the agent's user may not do that")]
    Denied,
    #[error("no space is left")]
    NoSpace,
    #[error("it was changed while it was read")]
    Changed,
    #[error("something else is there under this name")]
    Taken,
    #[error("the kernel of this host cannot open files safely (openat2 is missing or forbidden)")]
    Unsupported,
    #[error("cannot {what}")]
    Io {
        what: &'static str,
        #[source]
        source: io::Error,
    },
}

impl FileError {
    /// What the kernel said when `what` was tried.
    pub(super) fn of(what: &'static str, errno: Errno) -> Self {
        match errno {
            Errno::NOENT => Self::Missing,
            // A link that goes round, or one to the outside.
            Errno::XDEV | Errno::LOOP => Self::Outside,
            Errno::NOTDIR => Self::NotAFolder,
            Errno::ISDIR => Self::IsFolder,
            Errno::ACCESS | Errno::PERM | Errno::ROFS => Self::Denied,
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG => Self::NoSpace,
            Errno::EXIST => Self::Taken,
            Errno::NOSYS => Self::Unsupported,
            errno => Self::Io { what, source: errno.into() },
        }
    }

    pub(super) fn io(what: &'static str, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(number) => Self::of(what, Errno::from_raw_os_error(number)),
            None => Self::Io { what, source },
        }
    }
}
