//! Texts in the simulated world: what a shim types for a hostd that may die at any moment, and the judge of it. A text
//! is typed at most once, in the order in which the manager took it, and is told as what it became.

use std::collections::{BTreeMap, BTreeSet};

use hostd_core::{Input, TypedOutcome};
use protocol::api::{Mutation, Reply};
use protocol::ids::{AgentId, MessageId};
use protocol::message::{MessageState, MessageText, Typing};
use protocol::time::Timestamp;

use super::hostd::HostEvent;
use super::machine::Process;
use super::network::Life;
use super::world::{Event, ProgramEvent, World};

/// What the supervisor of one agent has typed, and what its host keeps for it.
#[derive(Clone, Debug, Default)]
pub struct Typed {
    texts: BTreeSet<MessageId>,
    outcomes: BTreeMap<MessageId, TypedOutcome>,
    /// What the program got, whole, in order.
    whole: Vec<MessageId>,
    halves: BTreeSet<MessageId>,
}

/// What a hostd wants of a supervisor. It reaches it, or not, whatever becomes of that hostd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    Type,
    Outcome,
}

impl World {
    pub fn plan_messages(&mut self, name: &str, created: u64) {
        for n in 0..self.dice.between(0, 5) {
            let at = created + self.dice.between(0, 30_000);
            let (text, press_enter) = (MessageText(format!("{name} {n}")), self.dice.percent(90));
            let typing = Typing { text, press_enter, at_once: false, each_line: false };
            let key = self.key();
            self.plan(at, Mutation::SendMessage { key, targets: vec![name.to_owned()], typing });
        }
    }

    pub fn keep_text(&mut self, m: usize, agent: AgentId, message: MessageId, is_kept: bool) {
        let Some(folder) = self.machines[m].folders.get_mut(&agent) else { return };
        if is_kept {
            folder.typed.texts.insert(message);
        } else {
            folder.typed.texts.remove(&message);
        }
    }

    pub fn ask_shim(&mut self, m: usize, life: Life, agent: AgentId, message: MessageId, asked: Asked) {
        let may_type = |hostd: &super::hostd::Hostd| {
            hostd.core.agent(agent).is_some_and(|agent| agent.may_type(message))
        };
        let stale = asked == Asked::Type && !self.machines[m].hostd.as_ref().is_some_and(may_type);
        if stale {
            let input = Input::Typed { agent, message, outcome: TypedOutcome::NotTyped };
            return self.in_host(m, life, 0, HostEvent::Input(Box::new(input)));
        }
        let (ms, boot) = (self.dice.between(1, 60), self.machines[m].boot);
        self.after(ms, Event::Program(m, boot, agent, ProgramEvent::Shim(life, message, asked)));
    }

    pub fn shim_answers(&mut self, m: usize, life: Life, agent: AgentId, message: MessageId, asked: Asked) {
        let luck = if self.network.stormy { self.dice.below(100) } else { 99 };
        let Some(folder) = self.machines[m].folders.get_mut(&agent) else { return };
        let typed = &mut folder.typed;
        let outcome = match (&folder.process, typed.outcomes.get(&message), asked) {
            (Process::Never | Process::Over(_) | Process::Lost, ..) => TypedOutcome::NotKnown,
            (Process::Running | Process::Left(_), Some(known), _) => known.clone(),
            (Process::Running | Process::Left(_), None, Asked::Outcome) => TypedOutcome::NotTyped,
            (Process::Left(_), None, Asked::Type) => {
                TypedOutcome::NotDelivered { reason: "its program has ended".to_owned() }
            }
            (Process::Running, None, Asked::Type) => match luck {
                0..15 => TypedOutcome::Waits { reason: "a person is typing".to_owned() },
                15..18 => TypedOutcome::NotDelivered { reason: "a line is too long".to_owned() },
                18..22 => {
                    typed.halves.insert(message);
                    let half = TypedOutcome::Unknown { reason: "a part is unread".to_owned() };
                    typed.outcomes.insert(message, half.clone());
                    half
                }
                _ => {
                    typed.outcomes.insert(message, TypedOutcome::Delivered);
                    let again = typed.whole.contains(&message) || typed.halves.contains(&message);
                    let lacks_text = !typed.texts.contains(&message);
                    typed.whole.push(message);
                    if again {
                        self.oracle.broken(format!("{message} is typed twice into {agent}"));
                    }
                    if lacks_text {
                        self.oracle.broken(format!("{message} is typed and its text was not kept"));
                    }
                    TypedOutcome::Delivered
                }
            },
        };
        self.log.say(self.now, || format!("h{m} shim of {agent}: {asked:?} {message}: {outcome:?}"));
        // Bytes that could not be heard: the connection broke off.
        let outcome = if luck < 8 { TypedOutcome::NotKnown } else { outcome };
        let ms = self.dice.between(1, 40);
        self.in_host(m, life, ms, HostEvent::Input(Box::new(Input::Typed { agent, message, outcome })));
    }

    /// Once all is quiet: every message is decided, and rightly.
    pub fn differ_in_messages(&self, found: &mut Vec<String>) {
        let Some(core) = self.manager.core.as_ref() else { return };
        let now = Timestamp(self.now);
        let Ok(views) = core.messages(now, &[], &[]) else { return };
        for action in &self.operator.actions {
            let Some(Ok(Reply::Sent(sent))) = &action.answer else { continue };
            for message in sent.iter().filter_map(|sent| sent.message) {
                if !views.iter().any(|view| view.message == message) {
                    found.push(format!("{message} was accepted and is not known"));
                }
            }
        }
        let mut order: BTreeMap<AgentId, Vec<MessageId>> = BTreeMap::new();
        for view in &views {
            order.entry(view.agent).or_default().push(view.message);
            let typed = self.folder(view.agent).map(|folder| folder.typed.clone()).unwrap_or_default();
            let whole = typed.whole.contains(&view.message);
            let some = whole || typed.halves.contains(&view.message);
            let (message, state) = (view.message, view.state);
            let is_right = match state {
                MessageState::Delivered => whole,
                MessageState::NotDelivered | MessageState::Cancelled => !some,
                MessageState::Unknown => true,
                // It is typed once the agent goes on.
                MessageState::Queued => self
                    .folder(view.agent)
                    .is_some_and(|folder| folder.is_live() && folder.record.spec.frozen),
            };
            if !is_right {
                found.push(format!(
                    "{message} is {state} ({}), typed whole {whole}, some {some}",
                    view.reason
                ));
            }
        }
        for (agent, accepted) in order {
            let Some(folder) = self.folder(agent) else { continue };
            let places = folder.typed.whole.iter().map(|id| accepted.iter().position(|other| other == id));
            if !places.is_sorted() {
                found.push(format!("{agent} got its messages in another order"));
            }
        }
    }
}
