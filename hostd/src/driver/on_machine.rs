//! The hands and ears of a real hostd: its folders, its jobs, its bus.

use hostd_core::{AgentRecord, Effect, Input};
use protocol::event::Fact;
use protocol::ids::{AgentId, MessageId};
use protocol::message::MessageText;
use protocol::report::{DigestRow, Report};
use protocol::time::Timestamp;

use super::hands::{Hands, Hearing};
use crate::asks::{self, Asked};
use crate::bus::{EventSink, Heard, Inbox, Replier, ReportSink};
use crate::machine::Handle;
use crate::{activity, agents, clock, house, messages};

#[derive(Clone, Debug)]
pub struct OnMachine {
    pub machine: Handle,
    pub reports: ReportSink,
    pub events: EventSink,
}

impl Hands for OnMachine {
    fn now(&self) -> Timestamp {
        clock::now()
    }

    async fn save(&self, record: &AgentRecord) -> Result<(), String> {
        let (folders, record) = (self.machine.folders.clone(), record.clone());
        match tokio::task::spawn_blocking(move || folders.save(&record)).await {
            Ok(saved) => saved.map_err(|error| protocol::chain(&error)),
            Err(error) => Err(error.to_string()),
        }
    }

    async fn keep_text(&self, agent: AgentId, message: MessageId, text: &MessageText) -> Result<(), String> {
        let (folders, text) = (self.machine.folders.clone(), text.clone());
        match tokio::task::spawn_blocking(move || folders.keep_text(agent, message, &text)).await {
            Ok(kept) => kept.map_err(|error| protocol::chain(&error)),
            Err(error) => Err(error.to_string()),
        }
    }

    async fn tell(&self, input: Input) {
        self.machine.tell(input).await;
    }

    async fn carry_out(&self, effect: Effect, record: AgentRecord) {
        let machine = self.machine.clone();
        match effect {
            Effect::Create { .. } => agents::create(machine, record).await,
            Effect::Freeze(agent) => agents::freeze(machine, agent).await,
            Effect::Thaw(agent) => agents::thaw(machine, agent).await,
            Effect::SetLimits(_) => agents::set_limits(machine, record).await,
            Effect::Rename(_) => agents::rename(machine, record).await,
            Effect::Collect(_) => agents::collect(machine, record).await,
            Effect::Weigh(_) => agents::weigh(machine, record).await,
            Effect::Remove { discard, .. } => agents::remove(machine, record, discard).await,
            Effect::CallOff(agent) => machine.waiters.call_off(agent),
            Effect::Terminate(_) => agents::terminate(machine, record).await,
            Effect::Kill(_) => agents::kill(machine, record).await,
            Effect::AskLease { agent, generation } => agents::ask_lease(&machine, agent, generation).await,
            Effect::SetLease { agent, until } => agents::set_lease(&machine, agent, until).await,
            Effect::Forget(_) => house::forget(machine, record).await,
            Effect::Type { message, .. } => messages::type_message(machine, record, message).await,
            Effect::AskTyped { message, .. } => messages::ask_typed(machine, record, message).await,
            Effect::ForgetText { message, .. } => messages::forget_text(machine, record, message).await,
            // Not of the machine: the loop's own.
            Effect::KeepText { .. }
            | Effect::Save(_)
            | Effect::SaveFencing(_)
            | Effect::Report(_)
            | Effect::Event { .. } => {}
        }
    }

    async fn answer(&self, asked: Asked, replier: Replier) {
        asks::answer(&self.machine, asked, replier).await;
    }

    async fn measure(&self, rows: Vec<DigestRow>) -> Vec<DigestRow> {
        activity::measure(self.machine.clone(), rows).await
    }

    fn report(&self, report: Box<Report>) {
        self.reports.put(report);
    }

    fn note(&self, at: Timestamp, agent: AgentId, name: String, fact: Fact) {
        self.events.note(at, Some(agent), name, fact);
    }
}

impl Hearing for Inbox {
    async fn next(&mut self) -> Option<Heard> {
        Self::next(self).await
    }
}
