//! What is left of views that nobody needs: sessions of ended agents, servers without a session, sockets without a
//! server. Which agents have ended is the caller's to know.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use futures::future::join_all;

use super::server::{Shard, ShardState, complaint, socket_name};
use super::{Tmux, TmuxError, lock};

impl Tmux {
    /// Ends the sessions of these agents, with one call for each server; how many have gone.
    pub async fn end_sessions(&self, agents: &BTreeSet<String>) -> Result<usize, TmuxError> {
        // Beside each other: one that does not answer makes none of the others wait.
        let shards = self.servers.shards().await?;
        let ended = join_all(shards.into_iter().map(|shard| self.end_sessions_on(shard, agents))).await;
        ended.into_iter().sum()
    }

    async fn end_sessions_on(&self, shard: Shard, agents: &BTreeSet<String>) -> Result<usize, TmuxError> {
        self.refuse_silent(shard)?;
        let guard = self.guard(shard);
        let _changing = guard.lock().await;
        let ShardState::Running(sessions) = self.look(shard).await else { return Ok(0) };
        let theirs: Vec<_> = sessions.iter().filter(|found| agents.contains(&found.agent)).collect();
        // By ids, which are never used again: what has gone meanwhile is no other session.
        let words = |session: &str| ["kill-session", "-t", session, ";"].map(str::to_owned);
        let commands: Vec<String> = theirs.iter().flat_map(|found| words(&found.session_id)).collect();
        if commands.is_empty() {
            return Ok(0);
        }
        let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
        let output = self.servers.call(shard, &commands).await?;
        if !output.status.success() {
            return Err(TmuxError::Refused(complaint(&output)));
        }
        let mut placed = lock(&self.placed);
        for found in &theirs {
            placed.remove(&found.agent);
        }
        Ok(theirs.len())
    }

    /// Ends servers that have no session. Nobody may be making one meanwhile.
    pub async fn end_empty_servers(&self) -> Result<(), TmuxError> {
        let ended = self.servers.running().await?.into_iter().map(async |(shard, server)| {
            let guard = self.guard(shard);
            let _changing = guard.lock().await;
            match self.look(shard).await {
                ShardState::Running(sessions) if sessions.is_empty() => self.servers.end(server).await,
                _ => Ok(()),
            }
        });
        join_all(ended).await.into_iter().collect()
    }

    /// Sockets that no server has: a server that was killed leaves its own behind.
    pub async fn stale_sockets(&self) -> Result<Vec<(Shard, PathBuf)>, TmuxError> {
        let mut stale = Vec::new();
        let running = self.servers.running().await?;
        for shard in self.servers.shards().await?.into_iter().filter(|shard| !running.contains_key(shard)) {
            let path = self.servers.dir().join(socket_name(shard));
            if path.symlink_metadata().is_ok() && self.servers.look(shard).await == ShardState::Absent {
                stale.push((shard, path));
            }
        }
        Ok(stale)
    }

    /// Removes such a socket, after looking again. Gone is done.
    pub async fn remove_socket(&self, shard: Shard) -> Result<(), TmuxError> {
        let guard = self.guard(shard);
        let _changing = guard.lock().await;
        if self.servers.look(shard).await != ShardState::Absent {
            return Err(TmuxError::Refused("a server has this socket".to_owned()));
        }
        match fs::remove_file(self.servers.dir().join(socket_name(shard))) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                Err(TmuxError::Io { action: "remove a socket", source })
            }
            _ => Ok(()),
        }
    }
}
