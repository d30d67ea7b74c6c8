//! Tells when an agent's group becomes empty, for code on the runtime.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::files::value_of;
use super::{AgentGroup, CgroupError};
use crate::sys::process::register;

/// Between two looks where the kernel has no notification (v1 alone, no cgroups).
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Follows one group. One descriptor each and no inotify, whose instances are few per user.
#[derive(Debug)]
pub struct PopulatedWatch {
    inner: Inner,
    last: Option<bool>,
}

#[derive(Debug)]
enum Inner {
    /// `cgroup.events`: the kernel raises a priority event at each change until it is read again.
    Events(AsyncFd<OwnedFd>),
    Looking(Box<AgentGroup>),
}

impl PopulatedWatch {
    /// Must be called on the runtime.
    pub(super) fn events(path: &Path) -> Result<Self, CgroupError> {
        let file = File::open(path).map_err(CgroupError::io("open", path))?;
        let fd = register(file.into(), Interest::PRIORITY).map_err(CgroupError::io("watch", path))?;
        Ok(Self { inner: Inner::Events(fd), last: None })
    }

    pub(super) fn looking(group: AgentGroup) -> Self {
        Self { inner: Inner::Looking(Box::new(group)), last: None }
    }

    /// The first call answers at once whether the group has live processes, each later one when
    /// that has changed. May be cancelled at any point without losing a change.
    pub async fn changed(&mut self) -> io::Result<bool> {
        loop {
            let populated = match &self.inner {
                Inner::Events(fd) => read_populated(fd.get_ref())?,
                Inner::Looking(group) => {
                    let group = group.clone();
                    tokio::task::spawn_blocking(move || group.populated())
                        .await
                        .map_err(io::Error::other)?
                        .map_err(io::Error::other)?
                }
            };
            if self.last != Some(populated) {
                self.last = Some(populated);
                return Ok(populated);
            }
            match &self.inner {
                Inner::Events(fd) => fd.ready(Interest::PRIORITY).await?.clear_ready(),
                Inner::Looking(_) => tokio::time::sleep(LOOK_EVERY).await,
            }
        }
    }

    /// Returns when no process of the agent is left.
    pub async fn empty(&mut self) -> io::Result<()> {
        while self.last != Some(false) {
            self.changed().await?;
        }
        Ok(())
    }
}

fn read_populated(events: &OwnedFd) -> io::Result<bool> {
    let mut buffer = [0_u8; 256];
    let length = match nix::sys::uio::pread(events, &mut buffer, 0) {
        Ok(length) => length,
        // The group was removed, which the kernel allows for an empty one only.
        Err(nix::errno::Errno::ENODEV) => return Ok(false),
        Err(errno) => return Err(errno.into()),
    };
    let text = String::from_utf8_lossy(buffer.get(..length).unwrap_or_default());
    Ok(value_of(&text, "populated") != Some(0))
}
