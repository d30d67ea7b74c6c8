//! A message as a row, as JSON, and in one sentence.

use protocol::error::WireError;
use protocol::message::{MessageState, MessageView};
use protocol::time::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::super::error::exit;
use super::super::output::render::Listed;
use super::super::output::when::{age, date};
use manager_plan::runfile::units::human_size;

/// A message, or why a target has none.
pub struct MessageRow {
    pub target: String,
    pub message: Result<MessageView, WireError>,
    pub now: Timestamp,
}

impl MessageRow {
    pub fn of(view: MessageView, now: Timestamp) -> Self {
        Self { target: view.name.clone(), message: Ok(view), now }
    }

    /// `demo delivered <id>`.
    pub fn sentence(&self) -> String {
        match &self.message {
            Ok(view) => {
                let why = if view.reason.is_empty() { String::new() } else { format!(": {}", view.reason) };
                format!("{} {} {}{why}", self.target, view.state, view.message)
            }
            Err(error) => format!("{}: {}", self.target, error.message),
        }
    }

    /// `queued` is the code of one that is still to come.
    pub fn exit_code(&self, queued: u8) -> u8 {
        match &self.message {
            Ok(view) => match view.state {
                MessageState::Delivered => exit::OK,
                MessageState::Queued => queued,
                MessageState::NotDelivered | MessageState::Cancelled => exit::FAILED,
                MessageState::Unknown => exit::UNAVAILABLE,
            },
            Err(error) => error.code.exit_code(),
        }
    }
}

/// A message, or why a target has none.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub enum MessageDocument<'a> {
    There {
        #[serde(flatten)]
        view: &'a MessageView,
        target: &'a str,
    },
    Refused {
        target: &'a str,
        message: (),
        error: &'a WireError,
    },
}

impl Listed for MessageRow {
    const KIND: &'static str = "MessageList";
    const HEADER: &'static [&'static str] = &["MESSAGE", "AGENT", "STATE", "AGE", "SIZE", "TEXT", "WHY"];
    const WIDE: &'static [&'static str] = &["AGENT-ID", "DECIDED"];

    type Document<'a>
        = MessageDocument<'a>
    where
        Self: 'a;

    fn document(&self) -> MessageDocument<'_> {
        let target = &self.target;
        match &self.message {
            Ok(view) => MessageDocument::There { view, target },
            Err(error) => MessageDocument::Refused { target, message: (), error },
        }
    }

    fn name(&self) -> String {
        self.message.as_ref().map(|view| view.message.to_string()).unwrap_or_default()
    }

    fn cells(&self, wide: bool) -> Vec<String> {
        let view = match &self.message {
            Ok(view) => view,
            Err(error) => {
                let mut cells = vec![String::new(); Self::HEADER.len()];
                for (place, text) in [(1, &self.target), (6, &error.message)] {
                    if let Some(cell) = cells.get_mut(place) {
                        cell.clone_from(text);
                    }
                }
                return cells;
            }
        };
        let mut cells = vec![
            view.message.to_string(),
            view.name.clone(),
            view.state.to_string(),
            age(self.now, view.accepted_at),
            human_size(view.bytes),
            view.preview.clone(),
            view.reason.clone(),
        ];
        if wide {
            cells.push(view.agent.to_string());
            cells.push(view.decided_at.map(date).unwrap_or_default());
        }
        cells
    }
}
