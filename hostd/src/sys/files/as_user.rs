//! File work in the rights of another user.

use std::io;

use protocol::shim::LaunchUser;
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

/// Does `work` as `user`, or as this process where there is none. Blocks.
///
/// Credentials belong to a thread (credentials(7)), and a thread that took them on must do nothing else afterwards: so
/// it is one of its own, which ends with the work.
///
/// # Errors
/// When there is no thread, or the user may not be taken on; nothing was done then.
pub fn as_user<T: Send>(user: Option<&LaunchUser>, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    let Some(user) = user else { return Ok(work()) };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("as-user".to_owned()).spawn_scoped(scope, || {
            take_on(user)?;
            Ok(work())
        })?;
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the work broke off")))
    })
}

/// Of this thread only: the calls are the kernel's own, not those of libc that change every thread.
fn take_on(user: &LaunchUser) -> io::Result<()> {
    let groups: Vec<Gid> = user.groups.iter().copied().map(Gid::from_raw).collect();
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    set_thread_groups(&groups)?;
    set_thread_res_gid(gid, gid, gid)?;
    Ok(set_thread_res_uid(uid, uid, uid)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    #[test]
    fn work_has_the_rights_of_its_user_and_nobody_else_changes() {
        if !rustix::process::geteuid().is_root() {
            assert!(
                std::env::var_os("PHALANX_REQUIRE_ROOT_TESTS").is_none(),
                "only root takes on another user"
            );
            eprintln!("skipped: only root takes on another user");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        let (secret, made) = (folder.path().join("secret"), folder.path().join("made"));
        std::fs::write(&secret, "x").unwrap();
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
        let nobody = LaunchUser { uid: 65_534, gid: 65_534, groups: vec![65_534] };
        let (read, wrote) =
            as_user(Some(&nobody), || (std::fs::read(&secret), std::fs::write(&made, "y"))).unwrap();
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        wrote.unwrap();
        assert_eq!(made.metadata().unwrap().uid(), 65_534);
        assert_eq!(std::fs::read(&secret).unwrap(), b"x", "this thread is still root");
        assert_eq!(as_user(None, || 7).unwrap(), 7);
    }
}
