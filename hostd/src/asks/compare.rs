//! Differences, sent in pieces no faster than the reader takes them: the bus has no way to slow a sender down, and would
//! drop what a slow reader leaves lying.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use protocol::compare::{CompareForm, Compared, WINDOW};
use protocol::error::{ErrorCode, WireError};
use protocol::ids::OrderId;
use protocol::order::Answer;
use tokio::sync::{Semaphore, mpsc};

use super::busy;
use super::git::workspace_error;
use crate::bus::Replier;
use crate::machine::Handle;
use crate::workspace::{Form, Piece};

/// Differences and programs that are told of at once; more are refused.
const TALKS: usize = 256;
/// A reader that takes nothing for so long is gone.
const PATIENCE: Duration = Duration::from_secs(60);

/// What each reader still takes, by the id of its ask.
#[derive(Debug, Default)]
pub struct Talks(Mutex<HashMap<String, Arc<Semaphore>>>);

/// A talk, forgotten at its end.
pub(super) struct Talk<'a> {
    talks: &'a Talks,
    id: &'a str,
    room: Arc<Semaphore>,
}

impl Talks {
    pub(super) fn begin<'a>(&'a self, id: &'a str) -> Result<Talk<'a>, WireError> {
        let mut talks = self.0.lock().map_err(|_| busy())?;
        if talks.len() >= TALKS || talks.contains_key(id) {
            return Err(busy());
        }
        let room = Arc::new(Semaphore::new(usize::try_from(WINDOW).unwrap_or(1)));
        talks.insert(id.to_owned(), Arc::clone(&room));
        Ok(Talk { talks: self, id, room })
    }

    /// The reader takes so many pieces more. A talk that is over is no fault of its reader.
    pub(super) fn more(&self, talk: OrderId, pieces: u32) {
        let Ok(talks) = self.0.lock() else { return };
        if let Some(room) = talks.get(&talk.to_string()) {
            room.add_permits(usize::try_from(pieces.min(WINDOW)).unwrap_or(0));
        }
    }
}

impl Talk<'_> {
    /// Permits for pieces that the reader takes.
    pub(super) fn room(&self) -> &Semaphore {
        &self.room
    }
}

impl Drop for Talk<'_> {
    fn drop(&mut self) {
        if let Ok(mut talks) = self.talks.0.lock() {
            talks.remove(self.id);
        }
    }
}

pub(super) async fn compare(
    machine: &Handle,
    what: Compared,
    form: CompareForm,
    replier: &Replier,
) -> Result<Answer, WireError> {
    let talk = machine.talks.begin(replier.ask())?;
    let (reader, mut pieces) = mpsc::channel(1);
    let tell = async move { tell(machine, what, form, &reader).await };
    let send = async {
        // Dropping the channel ends what makes the pieces.
        let mut pieces = std::pin::pin!(&mut pieces);
        while let Some(piece) = pieces.recv().await {
            let room = tokio::time::timeout(PATIENCE, talk.room.acquire()).await;
            let Ok(Ok(room)) = room else {
                pieces.close();
                return;
            };
            room.forget();
            replier.send(&answer_of(piece)).await;
        }
    };
    let (told, ()) = tokio::join!(tell, send);
    told.map(|()| Answer::Done)
}

async fn tell(
    machine: &Handle,
    what: Compared,
    form: CompareForm,
    reader: &mpsc::Sender<Piece>,
) -> Result<(), WireError> {
    let workspaces = &machine.workspaces;
    let of_files = |form| match form {
        CompareForm::Patch => Some(Form::Patch),
        CompareForm::Files => Some(Form::Files),
        CompareForm::Mail | CompareForm::Unknown => None,
    };
    let told = match (what, form) {
        (Compared::Commits { repo, from, to }, form) => {
            let repository =
                workspaces.locate(Path::new(&repo)).await.map_err(|error| workspace_error(&error))?;
            match (of_files(form), form) {
                (Some(form), _) => workspaces.compare(&repository, (&from, &to), form, reader).await,
                (None, CompareForm::Mail) => workspaces.mail(&repository, (&from, &to), reader).await,
                (None, _) => return Err(WireError::new(ErrorCode::Invalid, "this form is not known here")),
            }
        }
        (Compared::Workspace { agent }, form) => {
            let Some(form) = of_files(form) else {
                let message = "what an agent has not finished is in no commit that could be sent";
                return Err(WireError::new(ErrorCode::Conflict, message).hint("phalanx diff shows it"));
            };
            workspaces.compare_workspace(&machine.folders.agent(agent), form, reader).await
        }
    };
    told.map_err(|error| workspace_error(&error))
}

fn answer_of(piece: Piece) -> Answer {
    match piece {
        Piece::Sides(sides) => Answer::Compared(sides),
        Piece::Patch(bytes) => Answer::Output { stream: protocol::order::OutputStream::Stdout, bytes },
        Piece::Files(changes) => Answer::Changed(changes),
        Piece::File { name, bytes } => Answer::File { name, bytes },
    }
}
