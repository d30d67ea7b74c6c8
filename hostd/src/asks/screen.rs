//! What an agent's terminal shows: its transcript, rendered at the size that its terminal has or had.

use hostd_core::AgentRecord;
use protocol::error::{ErrorCode, WireError};
use protocol::ids::AgentId;
use protocol::order::Answer;
use protocol::shim::{ExitRecord, Reply, Request, file};

use crate::agents::{ShimLink, begin_of_launch};
use crate::machine::Handle;
use crate::screen::{Capture, Size, capture};

/// Modes with which a program draws a screen of its own.
const ALTERNATE: &[u16] = &[47, 1047, 1049];

pub(super) async fn show(
    machine: &Handle,
    agent: AgentId,
    record: Option<&AgentRecord>,
    history: u32,
    colours: bool,
) -> Result<Answer, WireError> {
    let failed = |error: String| WireError::new(ErrorCode::Failed, error);
    let path = machine.folders.transcript(agent);
    if record.is_none() && !path.exists() {
        return Err(WireError::new(ErrorCode::NotFound, "there is no transcript of this agent here"));
    }
    let ended = record.is_none_or(|record| record.end.is_some());
    let (size, alternate) = terminal(machine, agent, ended).await;
    let begin = record.map_or(0, |record| begin_of_launch(&machine.folders.agent(agent), record.launch));
    let asked = Capture { size, alternate, history, colours, ended, begin };
    // Some at once would only make each slower, and each holds some megabytes.
    let _permit = machine.renders.acquire().await;
    let rendered = tokio::task::spawn_blocking(move || capture(&path, asked)).await;
    let view = rendered
        .map_err(|error| failed(format!("the screen cannot be rendered: {error}")))?
        .map_err(|error| failed(protocol::chain(&error)))?;
    Ok(Answer::Screen(Box::new(view)))
}

/// Size, and whether the program is on a screen of its own: the shim knows while it lives, its last record after.
async fn terminal(machine: &Handle, agent: AgentId, ended: bool) -> (Size, Option<bool>) {
    if !ended && let Some(known) = of_shim(machine, agent).await {
        return known;
    }
    let (live, archived) = (machine.folders.agent(agent), machine.folders.archived(agent));
    let read = tokio::task::spawn_blocking(move || {
        let bytes =
            std::fs::read(live.join(file::EXIT)).or_else(|_| std::fs::read(archived.join(file::EXIT)));
        bytes.ok().and_then(|bytes| serde_json::from_slice::<ExitRecord>(&bytes).ok())
    });
    let exit = read.await.ok().flatten();
    (exit.map_or_else(Size::default, |exit| Size::new(exit.rows, exit.cols)), None)
}

async fn of_shim(machine: &Handle, agent: AgentId) -> Option<(Size, Option<bool>)> {
    let mut link = ShimLink::open(&machine.folders.agent(agent)).await.ok()?;
    let Ok(Reply::Status(status)) = link.ask(&Request::Status).await else { return None };
    let alternate = match link.ask(&Request::Modes).await {
        Ok(Reply::Modes { set }) => Some(set.iter().any(|mode| ALTERNATE.contains(mode))),
        Ok(_) | Err(_) => None,
    };
    Some((Size::new(status.rows, status.cols), alternate))
}
