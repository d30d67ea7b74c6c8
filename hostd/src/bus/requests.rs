//! Questions of this host to the manager: values of an environment, pieces of a blob, a longer lease.

use std::time::Duration;

use bytes::Bytes;
use protocol::agent::{Blob, Environment};
use protocol::codec::Frame;
use protocol::error::{ErrorCode, WireError};
use protocol::ids::{AgentId, Generation};
use protocol::report::{HostReply, HostRequest};
use protocol::subject;
use sha2::{Digest, Sha256};

use super::connect::Bus;

/// One try of a question.
const LIMIT: Duration = Duration::from_secs(5);
/// Tries of a question that changes nothing.
const TRIES: u32 = 3;
/// One piece of a blob.
const PIECE: u64 = 512 << 10;

#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error("the manager did not answer")]
    Unavailable,
    #[error("the manager refused")]
    Refused(#[source] WireError),
    #[error("the manager's answer makes no sense")]
    Answer,
    #[error("the blob {sha256} came damaged")]
    Damaged { sha256: String },
}

#[derive(Clone, Debug)]
pub struct Requests {
    bus: Bus,
}

impl Requests {
    #[must_use]
    pub fn new(bus: Bus) -> Self {
        Self { bus }
    }

    /// # Errors
    /// Unavailable after three tries of 5 s, or the manager's refusal.
    pub async fn environment(&self, agent: AgentId) -> Result<Environment, RequestError> {
        match self.ask(&HostRequest::Environment { agent }).await? {
            HostReply::Environment(environment) => Ok(environment),
            other => Err(unexpected(other)),
        }
    }

    /// The whole blob, checked against its digest.
    ///
    /// # Errors
    /// As [`Requests::environment`], or a digest that does not fit.
    pub async fn blob(&self, blob: &Blob) -> Result<Vec<u8>, RequestError> {
        let mut content = Vec::with_capacity(usize::try_from(blob.bytes).unwrap_or(0));
        loop {
            let offset = u64::try_from(content.len()).unwrap_or(u64::MAX);
            let request = HostRequest::BlobPart { sha256: blob.sha256.clone(), offset, max: PIECE };
            let (bytes, total) = match self.ask(&request).await? {
                HostReply::BlobPart { bytes, total } => (bytes, total),
                other => return Err(unexpected(other)),
            };
            let is_short = bytes.is_empty() && offset < total;
            content.extend_from_slice(&bytes);
            let have = u64::try_from(content.len()).unwrap_or(u64::MAX);
            if have >= total || is_short {
                break;
            }
        }
        let digest = data_encoding::HEXLOWER.encode(&Sha256::digest(&content));
        if digest == blob.sha256 {
            Ok(content)
        } else {
            Err(RequestError::Damaged { sha256: blob.sha256.clone() })
        }
    }

    /// Length of the lease from when it was asked for.
    ///
    /// # Errors
    /// As [`Requests::environment`].
    pub async fn lease(&self, agent: AgentId, generation: Generation) -> Result<u64, RequestError> {
        match self.ask(&HostRequest::RenewLease { agent, generation }).await? {
            HostReply::Lease { length_ms } => Ok(length_ms),
            other => Err(unexpected(other)),
        }
    }

    async fn ask(&self, request: &HostRequest) -> Result<HostReply, RequestError> {
        let subject = subject::rpc(&self.bus.region, &self.bus.host, request.method());
        let bytes = Frame::of(HostRequest::KIND, "", request)
            .and_then(|frame| frame.encode())
            .map_err(|_| RequestError::Answer)?;
        let mut refused = None;
        for _ in 0..TRIES {
            let asked = self.bus.client.request(subject.clone(), Bytes::from(bytes.clone()));
            let Ok(answered) = tokio::time::timeout(LIMIT, asked).await else { continue };
            let Ok(message) = answered else {
                // No manager listens yet: it is on its way up.
                tokio::time::sleep(Duration::from_millis(300)).await;
                continue;
            };
            let frame = Frame::decode(&message.payload).map_err(|_| RequestError::Answer)?;
            let reply: HostReply = frame.body().map_err(|_| RequestError::Answer)?;
            match reply {
                HostReply::Refused(error) if error.code == ErrorCode::Unavailable => refused = Some(error),
                HostReply::Refused(error) => return Err(RequestError::Refused(error)),
                reply => return Ok(reply),
            }
        }
        Err(refused.map_or(RequestError::Unavailable, RequestError::Refused))
    }
}

fn unexpected(_: HostReply) -> RequestError {
    RequestError::Answer
}
