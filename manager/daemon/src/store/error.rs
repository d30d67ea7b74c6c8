//! What can go wrong with the store, told apart by what mends it.

use std::path::PathBuf;

use super::streams::Bucket;

/// An error of the client library; its own text is the cause.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{home} has no bus yet; start it with: phalanx up")]
    NotStarted { home: PathBuf },
    #[error("cannot read the credentials {path}")]
    Credentials {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the bus at {url} refuses the credentials {path}; they belong to another bus or were revoked")]
    Refused {
        url: String,
        path: PathBuf,
        #[source]
        source: Cause,
    },
    #[error("the bus at {url} cannot be reached")]
    Unreachable {
        url: String,
        #[source]
        source: Cause,
    },
    #[error("the bus at {url} is nats-server {found}, and at least 2.15 is needed")]
    TooOld { url: String, found: String },
    #[error("cannot make stream {name}")]
    CreateStream {
        name: String,
        #[source]
        source: Cause,
    },
    #[error("stream {name} was stored as something else than asked: {difference}")]
    StreamDiffers { name: String, difference: String },
    #[error("cannot read {what}")]
    Read {
        what: String,
        #[source]
        source: Cause,
    },
    #[error("{what} was not read within {seconds} s")]
    ReadTimedOut { what: String, seconds: u64 },
    #[error("cannot write {what}")]
    Write {
        what: String,
        #[source]
        source: Cause,
    },
    #[error("blob {name} is damaged: {why}")]
    DamagedBlob { name: String, why: String },
    #[error("the lead in bucket {bucket} is no fencing number; it must not be guessed")]
    DamagedLead { bucket: Bucket },
    #[error("the lead was taken by others {tries} times in a row")]
    LeadContended { tries: u32 },
}
