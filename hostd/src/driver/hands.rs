//! What the loop touches. A test holds fakes of both and a paused clock.

use std::future::Future;

use hostd_core::{AgentRecord, Effect, Input};
use protocol::event::Fact;
use protocol::ids::{AgentId, MessageId};
use protocol::message::MessageText;
use protocol::report::{DigestRow, Report};
use protocol::time::Timestamp;

use crate::asks::Asked;
use crate::bus::{Heard, Replier};

/// Carries out what the core decided. Cheap to clone: each job has its own.
pub trait Hands: Clone + Send + Sync + 'static {
    fn now(&self) -> Timestamp;

    /// Keeps a record on the disk; what failed, for a person.
    fn save(&self, record: &AgentRecord) -> impl Future<Output = Result<(), String>> + Send;

    /// Keeps the text of a message on the disk; what failed, for a person.
    fn keep_text(
        &self,
        agent: AgentId,
        message: MessageId,
        text: &MessageText,
    ) -> impl Future<Output = Result<(), String>> + Send;

    /// An outcome, for the loop.
    fn tell(&self, input: Input) -> impl Future<Output = ()> + Send;

    /// One effect that touches the machine. Its outcome is told.
    fn carry_out(&self, effect: Effect, record: AgentRecord) -> impl Future<Output = ()> + Send;

    fn answer(&self, asked: Asked, replier: Replier) -> impl Future<Output = ()> + Send;

    /// Fills in what the machine says of live agents.
    fn measure(&self, rows: Vec<DigestRow>) -> impl Future<Output = Vec<DigestRow>> + Send;

    /// Never waits: a newer report of the same agent may take its place.
    fn report(&self, report: Box<Report>);

    fn note(&self, at: Timestamp, agent: AgentId, name: String, fact: Fact);
}

/// Where orders and asks come from.
pub trait Hearing: Send {
    /// `None` once nothing can come any more. Dropping the future loses nothing.
    fn next(&mut self) -> impl Future<Output = Option<Heard>> + Send;
}
