//! Requests of hosts: values of an environment, pieces of blobs, leases. The sender is the host that its subject names,
//! since the bus lets a host publish under its own name only; it gets what belongs to its own agents.

use std::sync::Arc;

use protocol::error::{ErrorCode, WireError};
use protocol::ids::{AgentId, HostId};
use protocol::report::{HostReply, HostRequest};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::blobs::Blobs;
use crate::bus::{Incoming, Received};
use crate::hosts::Hosts;
use crate::queries;
use crate::raised;
use crate::secrets::Secrets;

/// Requests that are answered at once; more wait on the bus, and a host asks again.
const CONCURRENT: usize = 64;

/// What is needed to answer; cheap to clone.
#[derive(Clone)]
pub struct Rpc {
    pub hosts: Hosts,
    pub blobs: Arc<Blobs>,
    pub secrets: Secrets,
}

impl Rpc {
    /// Answers requests until `stop` turns true or the connection has ended for good.
    pub async fn serve(self, mut requests: Incoming<HostRequest>, mut stop: watch::Receiver<bool>) {
        let mut jobs: JoinSet<()> = JoinSet::new();
        loop {
            tokio::select! {
                () = raised(&mut stop) => break,
                Some(_) = jobs.join_next() => {}
                received = requests.next(), if jobs.len() < CONCURRENT => match received {
                    Some(received) => {
                        jobs.spawn(self.clone().answer(received));
                    }
                    None => break,
                },
            }
        }
        jobs.shutdown().await;
    }

    async fn answer(self, received: Received<HostRequest>) {
        let Some(to) = received.reply_to else { return };
        let method = received.body.method();
        let reply = match received.sender {
            Some((_, host)) => self.reply(&host, received.body).await.unwrap_or_else(|refusal| {
                tracing::warn!(%host, method, %refusal, "a host's request is refused");
                HostReply::Refused(refusal)
            }),
            None => HostReply::Refused(denied("the subject names no host")),
        };
        if let Err(error) = self.hosts.bus.reply(to, &received.id, &reply).await {
            tracing::debug!(error = %protocol::chain(&error), method, "a host was not answered");
        }
    }

    async fn reply(&self, host: &HostId, request: HostRequest) -> Result<HostReply, WireError> {
        match request {
            HostRequest::Environment { agent } => self.environment(host, agent).await,
            HostRequest::BlobPart { sha256, offset, max } => {
                let (bytes, total) = self.blobs.part(&sha256, offset, max).await?;
                Ok(HostReply::BlobPart { bytes, total })
            }
            HostRequest::RenewLease { agent, generation } => {
                self.check_owner(host, agent).await?;
                let length_ms = self.hosts.driver.lease(host.clone(), agent, generation).await?;
                Ok(HostReply::Lease { length_ms })
            }
        }
    }

    async fn environment(&self, host: &HostId, agent: AgentId) -> Result<HostReply, WireError> {
        self.check_owner(host, agent).await?;
        let owner = self.hosts.driver.glance(move |glance| glance.core.environment_owner(agent)).await?;
        let Some(owner) = owner else { return Ok(HostReply::Environment(Default::default())) };
        Ok(HostReply::Environment(self.secrets.open(&owner.to_string()).await?))
    }

    async fn check_owner(&self, host: &HostId, agent: AgentId) -> Result<(), WireError> {
        let found = self.hosts.driver.glance(move |glance| queries::agent(glance, agent)).await?;
        let owned = found.is_some_and(|found| found.view.host == *host && found.view.wanted != "unowned");
        if owned { Ok(()) } else { Err(denied("it is no agent of this host")) }
    }
}

fn denied(message: &str) -> WireError {
    WireError::new(ErrorCode::Denied, message)
}
