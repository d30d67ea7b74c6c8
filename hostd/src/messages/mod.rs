//! Types one message into a program through its shim, or asks what became of one. Whether and when is the core's; that
//! a message is typed once is the shim's, which knows it by its id.

mod submitted;

use std::time::Duration;

use hostd_core::{AgentRecord, Input, MessageEntry, TypedOutcome};
use protocol::ids::{AgentId, MessageId};
use protocol::shim::{RefusalReason, Reply, Request, TypeHow, TypeOutcome, TypeText};
use sha2::{Digest, Sha256};

use crate::agents::{LinkError, ShimLink};
use crate::machine::Handle;

/// Between a paste and its Enter: read in one piece with it, some programs take the Enter for a line of the paste.
const ENTER_AFTER_MS: u64 = 300;
/// How long the program may leave the text unread.
const UNREAD_MS: u64 = 10_000;
/// The shim's answer comes within the time that it gives the program, and some.
const ANSWER_LIMIT: Duration = Duration::from_millis(UNREAD_MS + ENTER_AFTER_MS + 5_000);

/// Types it and tells what became of it.
pub async fn type_message(machine: Handle, record: AgentRecord, message: MessageId) {
    let outcome = match request(&machine, &record, message).await {
        Ok(request) => ask(&machine, &record, message, &request).await,
        Err(reason) => TypedOutcome::NotDelivered { reason },
    };
    machine.tell(Input::Typed { agent: record.agent, message, outcome }).await;
}

/// Asks what became of it, and tells that.
pub async fn ask_typed(machine: Handle, record: AgentRecord, message: MessageId) {
    let outcome = ask(&machine, &record, message, &Request::Typed { id: message.to_string() }).await;
    machine.tell(Input::Typed { agent: record.agent, message, outcome }).await;
}

/// The text was needed until its message was decided.
pub async fn forget_text(machine: Handle, record: AgentRecord, message: MessageId) {
    let agent = record.agent;
    let forgotten = tokio::task::spawn_blocking(move || machine.folders.forget_text(agent, message)).await;
    if let Ok(Err(error)) = forgotten {
        tracing::warn!(%agent, error = protocol::chain(&error), "the text of a decided message is left");
    }
}

/// The request that types it. An error is final: without its text it cannot be delivered.
async fn request(machine: &Handle, record: &AgentRecord, message: MessageId) -> Result<Request, String> {
    let entry = entry_of(record, message).ok_or("its record names no such message")?;
    let bytes = text_of(machine, record.agent, message).await?;
    if data_encoding::HEXLOWER.encode(&Sha256::digest(&bytes)) != entry.sha256 {
        return Err("its text is damaged on the disk of the host".to_owned());
    }
    let text = TypeText {
        bytes,
        how: TypeHow::Auto,
        enter_after_ms: entry.press_enter.then_some(ENTER_AFTER_MS),
        refuse_on_draft: true,
        timeout_ms: UNREAD_MS,
        refuse_lines: !entry.each_line,
    };
    Ok(Request::Message { id: message.to_string(), text })
}

fn entry_of(record: &AgentRecord, message: MessageId) -> Option<&MessageEntry> {
    record.messages.entries.iter().find(|entry| entry.message == message)
}

async fn text_of(machine: &Handle, agent: AgentId, message: MessageId) -> Result<Vec<u8>, String> {
    let handle = machine.clone();
    tokio::task::spawn_blocking(move || handle.folders.read_text(agent, message))
        .await
        .map_err(|error| error.to_string())?
        .map_err(|error| format!("its text is lost: {}", protocol::chain(&error)))
}

async fn ask(machine: &Handle, record: &AgentRecord, message: MessageId, request: &Request) -> TypedOutcome {
    let agent = record.agent;
    let folder = machine.folders.agent(agent);
    let asked = async {
        let mut link = ShimLink::open(&folder).await?;
        link.ask_within(request, ANSWER_LIMIT).await
    };
    match asked.await {
        Ok(Reply::Typed(typed)) => match typed.outcome {
            TypeOutcome::Delivered => match typed.entered_at {
                Some(entered_at) => entered(machine, record, message, entered_at).await,
                None => TypedOutcome::Delivered,
            },
            TypeOutcome::NotDelivered => {
                TypedOutcome::Waits { reason: "the program does not read what is typed".to_owned() }
            }
            TypeOutcome::Unknown => TypedOutcome::Unknown {
                reason: "the program left a part of it unread; Enter was not pressed".to_owned(),
            },
        },
        Ok(_) => TypedOutcome::NotKnown,
        Err(LinkError::Refused(refusal)) => match refusal.reason {
            RefusalReason::NotTyped => TypedOutcome::NotTyped,
            RefusalReason::Draft => TypedOutcome::Waits {
                reason: "a person is typing: it is delivered once that line is sent or taken away".to_owned(),
            },
            RefusalReason::Busy => {
                TypedOutcome::Waits { reason: "the program has not read what was typed before".to_owned() }
            }
            RefusalReason::Ended => TypedOutcome::NotDelivered { reason: "its program has ended".to_owned() },
            RefusalReason::UnknownRequest => TypedOutcome::NotDelivered {
                reason:
                    "it was started by an older build, whose supervisor takes no messages: create it anew"
                        .to_owned(),
            },
            RefusalReason::SeveralLines => TypedOutcome::NotDelivered {
                reason: format!("{}; send it with --lines if they are to be", refusal.message),
            },
            RefusalReason::ControlCharacters | RefusalReason::TooLarge | RefusalReason::LineTooLong => {
                TypedOutcome::NotDelivered { reason: refusal.message }
            }
            RefusalReason::NotAttached
            | RefusalReason::Changed
            | RefusalReason::LeaseNotRenewable
            | RefusalReason::Failed
            | RefusalReason::Unknown => TypedOutcome::Waits { reason: refusal.message },
        },
        Err(error) => {
            tracing::warn!(%agent, error = protocol::chain(&error), "a shim said nothing of a message: unknown for now");
            TypedOutcome::NotKnown
        }
    }
}

/// Enter was pressed on a paste: whether the program took it.
async fn entered(
    machine: &Handle,
    record: &AgentRecord,
    message: MessageId,
    entered_at: u64,
) -> TypedOutcome {
    // Without its text it cannot be looked for; it was typed.
    let Ok(bytes) = text_of(machine, record.agent, message).await else { return TypedOutcome::Delivered };
    let text = String::from_utf8_lossy(&bytes);
    submitted::submitted(machine, record, message, &text, entered_at).await
}
