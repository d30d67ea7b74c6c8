//! Whom an agent runs as: its profile's user, else the one hostd runs as.

use std::ffi::CString;

use nix::unistd::{Uid, User, getgrouplist};
use protocol::shim::LaunchUser;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentUser {
    pub name: String,
    pub home: String,
    pub shell: String,
    pub uid: u32,
    pub gid: u32,
    /// `None`: the shim's own user, nothing to take on.
    pub launch: Option<LaunchUser>,
}

#[derive(Debug, thiserror::Error)]
pub enum UserError {
    #[error("there is no user {0:?} on this host")]
    Unknown(String),
    #[error("the users of this host cannot be looked up: {0}")]
    Lookup(nix::errno::Errno),
    #[error("hostd runs as {ours} and cannot start an agent as {wanted:?}: run it as root")]
    Denied { ours: String, wanted: String },
}

/// # Errors
/// A user that does not exist or may not be taken on.
pub fn agent_user(wanted: Option<&str>) -> Result<AgentUser, UserError> {
    let own = Uid::effective();
    let ours = User::from_uid(own).map_err(UserError::Lookup)?;
    let user = match wanted {
        None => ours,
        Some(name) => {
            let user = User::from_name(name)
                .map_err(UserError::Lookup)?
                .ok_or_else(|| UserError::Unknown(name.to_owned()))?;
            if user.uid != own && !own.is_root() {
                let ours = ours.map_or_else(|| own.to_string(), |user| user.name);
                return Err(UserError::Denied { ours, wanted: name.to_owned() });
            }
            Some(user)
        }
    };
    let Some(user) = user else {
        // No entry for our own uid, as in some containers: the number is the name.
        let gid = nix::unistd::getegid().as_raw();
        let (name, uid) = (own.to_string(), own.as_raw());
        return Ok(AgentUser {
            name,
            home: "/".to_owned(),
            shell: "/bin/sh".to_owned(),
            uid,
            gid,
            launch: None,
        });
    };
    let launch = if user.uid == own { None } else { Some(launch_user(&user)?) };
    Ok(AgentUser {
        home: user.dir.display().to_string(),
        shell: user.shell.display().to_string(),
        uid: user.uid.as_raw(),
        gid: user.gid.as_raw(),
        name: user.name,
        launch,
    })
}

fn launch_user(user: &User) -> Result<LaunchUser, UserError> {
    let name = CString::new(user.name.as_str()).map_err(|_| UserError::Unknown(user.name.clone()))?;
    let groups = getgrouplist(&name, user.gid).map_err(UserError::Lookup)?;
    Ok(LaunchUser {
        uid: user.uid.as_raw(),
        gid: user.gid.as_raw(),
        groups: groups.into_iter().map(nix::unistd::Gid::as_raw).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_that_does_not_exist_is_named() {
        let error = agent_user(Some("no-such-user-here")).unwrap_err();
        assert!(error.to_string().contains("no-such-user-here"), "{error}");
    }

    #[test]
    fn without_a_wish_it_is_the_one_hostd_runs_as() {
        let user = agent_user(None).unwrap();
        assert_eq!(user.uid, Uid::effective().as_raw());
        assert_eq!(user.launch, None);
    }
}
