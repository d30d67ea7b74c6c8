//! What clients of the control socket ask, and its answers. Every request gets one reply.

use nix::sys::signal::{Signal, killpg};
use protocol::codec::{Frame, Hello};
use protocol::shim::{
    Event, Refusal, RefusalReason, Reply, Request, SOCKET_VERSION, Status, TypeHow, TypeText, file, kind,
};

use protocol::screen::{COLS_MAX, ROWS_MAX};

use super::client::{Client, View};
use super::limits::Limits;
use super::supervisor::Supervisor;
use super::typing::{self, Answer, Asker};
use crate::modes::BRACKETED_PASTE;
use crate::{facts, log, records};
use protocol::codec::socket_bytes;

/// Between the two sizes of a nudge: a program that compares sizes when it gets around to it must see both.
const NUDGE_MS: u64 = 60;
/// Longest text typed in one piece.
const TEXT_LIMIT: usize = 16 << 20;
/// A terminal in canonical mode keeps so much of a line and drops the rest without a word (N_TTY_BUF_SIZE of Linux,
/// less the line's end).
const LINE_LIMIT: usize = 4095;
/// Added to a line by the brackets of a paste, at most.
const PASTE_BRACKETS: usize = 12;
/// Full reset: whatever state the skipped output left the viewer in.
const RESET: &[u8] = b"\x1bc";

type Answered = Result<Reply, Refusal>;

impl Supervisor {
    pub(crate) fn on_readable(&mut self, id: u64) {
        let Some(client) = self.client(id) else { return };
        for frame in client.receive() {
            self.on_frame(id, frame);
        }
    }

    pub(crate) fn on_writable(&mut self, id: u64) {
        if self.client(id).is_some_and(Client::flush) {
            self.draw(id, RESET);
        }
    }

    fn client(&mut self, id: u64) -> Option<&mut Client> {
        self.clients.iter_mut().find(|client| client.id == id)
    }

    fn on_frame(&mut self, id: u64, frame: Frame) {
        let Some(client) = self.client(id) else { return };
        if !client.greeted {
            let hello = (frame.kind == Hello::KIND).then(|| frame.body::<Hello>().ok()).flatten();
            match hello {
                Some(hello) if hello.versions.contains(&SOCKET_VERSION) => client.greeted = true,
                // It has our hello and can say what it lacks; until it hangs up nothing is answered.
                Some(_) => {}
                None => client.close(),
            }
            return;
        }
        match frame.kind.as_str() {
            kind::INPUT => {
                if client.view == View::Full && self.end.is_none() {
                    self.typist.person(frame.body);
                }
            }
            kind::REQUEST => {
                let reply = match frame.body::<Request>() {
                    Ok(request) => self.answer(id, &frame.id, request),
                    Err(error) => Some(Err(refusal(RefusalReason::UnknownRequest, &error.to_string()))),
                };
                if let Some(reply) = reply {
                    self.reply(id, &frame.id, &reply.unwrap_or_else(Reply::Refused));
                }
            }
            other => {
                let text = format!("this shim knows no frames of kind {other}");
                self.reply(id, &frame.id, &Reply::Refused(refusal(RefusalReason::UnknownRequest, &text)));
            }
        }
    }

    fn reply(&mut self, id: u64, frame_id: &str, reply: &Reply) {
        let Some(client) = self.client(id) else { return };
        match Frame::of(kind::REPLY, frame_id, reply) {
            Ok(frame) => client.send(frame),
            Err(error) => log(&format!("cannot encode a reply: {error}")),
        }
    }

    pub(crate) fn answer_typed(&mut self, answer: Answer) {
        for asker in answer.askers {
            self.reply(asker.client, &asker.frame_id, &Reply::Typed(answer.typed));
        }
    }

    /// `None`: the answer follows later.
    fn answer(&mut self, id: u64, frame_id: &str, request: Request) -> Option<Answered> {
        Some(match request {
            Request::Attach { rows, cols, read_only } => {
                // Answered first: the reply marks where this view's output begins.
                self.reply(id, frame_id, &Reply::Done);
                self.attach(id, rows, cols, if read_only { View::ReadOnly } else { View::Full });
                return None;
            }
            Request::Detach => {
                if let Some(client) = self.client(id) {
                    client.view = View::None;
                    client.forget_output();
                }
                Ok(Reply::Done)
            }
            Request::Resize { rows, cols } => self.resize(id, rows, cols),
            Request::Type(text) => return self.type_text(id, frame_id, None, text).err().map(Err),
            Request::Message { id: message, text } => {
                return self.typed(id, frame_id, &message).unwrap_or_else(|_not_typed| {
                    self.type_text(id, frame_id, Some(message), text).err().map(Err)
                });
            }
            Request::Typed { id: message } => {
                return self.typed(id, frame_id, &message).unwrap_or_else(|refusal| Some(Err(refusal)));
            }
            Request::PressAgain { id: message, out_len } => {
                return self.press_again(id, frame_id, &message, out_len).err().map(Err);
            }
            Request::Modes => Ok(Reply::Modes { set: self.modes.set() }),
            Request::Status => Ok(Reply::Status(Box::new(self.status()))),
            Request::RenewLease { deadline_boottime_ms } => {
                self.change_limits(|limits| limits.renew_lease(facts::boottime_ms(), deadline_boottime_ms))
            }
            Request::SetWallTime { wall_time_ms } => {
                self.change_limits(|limits| limits.set_wall_time(wall_time_ms))
            }
            Request::Watch => {
                self.reply(id, frame_id, &Reply::Done);
                self.watch(id);
                return None;
            }
            Request::Signal { signo } => self.signal(signo),
        })
    }

    fn attach(&mut self, id: u64, rows: u16, cols: u16, view: View) {
        let Some(client) = self.client(id) else { return };
        client.view = view;
        client.forget_output();
        let (rows, cols) = clamped(rows, cols);
        let size = self.pty.size();
        if rows > 0 && cols > 0 && (rows, cols) != size {
            // The new size is a reason to draw in itself.
            self.nudge_at = None;
            self.pty.resize(rows, cols);
            self.draw(id, b"");
        } else {
            self.draw(id, b"");
            self.nudge();
        }
    }

    fn nudge(&mut self) {
        // One that is under way is not drawn out: the size would stay wrong.
        if self.end.is_none() && self.nudge_at.is_none() {
            self.pty.nudge();
            self.nudge_at = Some(facts::boottime_ms() + NUDGE_MS);
        }
    }

    /// Brings a view to where the program is: what it printed last, unless it draws a screen of its own, and its
    /// modes. Where the view has missed output (`reset`), a program with a screen of its own has to draw it anew.
    fn draw(&mut self, id: u64, reset: &[u8]) {
        let mut bytes = reset.to_vec();
        if !self.modes.alternate_screen() {
            match self.output.tail() {
                Ok(tail) => bytes.extend_from_slice(&tail),
                Err(error) => log(&format!("cannot read out.raw for a viewer: {error}")),
            }
        }
        bytes.extend_from_slice(&self.modes.replay());
        if let Some(client) = self.client(id) {
            client.forget_output();
            if let Ok(frame) = socket_bytes(&Frame::new(kind::OUTPUT, "", bytes)) {
                client.show(&frame);
            }
        }
        if !reset.is_empty() && self.modes.alternate_screen() {
            self.nudge();
        }
    }

    fn resize(&mut self, id: u64, rows: u16, cols: u16) -> Answered {
        if self.client(id).is_none_or(|client| client.view == View::None) {
            return Err(refusal(RefusalReason::NotAttached, "only an attached client has a size"));
        }
        if rows > 0 && cols > 0 {
            self.nudge_at = None;
            let (rows, cols) = clamped(rows, cols);
            self.pty.resize(rows, cols);
        }
        Ok(Reply::Done)
    }

    /// The answer about a message of which something was or is being typed: at once, or (`None`) with the others that
    /// wait for it.
    fn typed(&mut self, id: u64, frame_id: &str, message: &str) -> Result<Option<Answered>, Refusal> {
        if let Some(typed) = self.typist.decided(message) {
            return Ok(Some(Ok(Reply::Typed(typed))));
        }
        let asker = Asker { client: id, frame_id: frame_id.to_owned() };
        if self.typist.join(message, asker) {
            return Ok(None);
        }
        Err(refusal(RefusalReason::NotTyped, "nothing of this message was typed"))
    }

    fn type_text(
        &mut self,
        id: u64,
        frame_id: &str,
        message: Option<String>,
        text: TypeText,
    ) -> Result<(), Refusal> {
        if self.end.is_some() {
            return Err(refusal(RefusalReason::Ended, "the program has ended"));
        }
        if text.bytes.len() > TEXT_LIMIT {
            let message = format!("the text is longer than {TEXT_LIMIT} bytes");
            return Err(refusal(RefusalReason::TooLarge, &message));
        }
        if text.how != TypeHow::Keys && typing::has_controls(&text.bytes) {
            let message = "the text holds control characters other than TAB and LF";
            return Err(refusal(RefusalReason::ControlCharacters, message));
        }
        let paste_on = self.modes.is_set(BRACKETED_PASTE);
        let longest = typing::longest_line(&text.bytes) + if paste_on { PASTE_BRACKETS } else { 0 };
        if text.how != TypeHow::Keys && longest > LINE_LIMIT && self.pty.collects_lines() {
            let message = format!(
                "the program reads whole lines of at most {LINE_LIMIT} bytes, and one of these has {longest}"
            );
            return Err(refusal(RefusalReason::LineTooLong, &message));
        }
        if text.refuse_lines && !paste_on && text.bytes.contains(&b'\n') {
            let lines = text.bytes.split(|byte| *byte == b'\n').count();
            let message = format!(
                "the program takes no pastes: each of the {lines} lines would be submitted on its own"
            );
            return Err(refusal(RefusalReason::SeveralLines, &message));
        }
        if !self.typist.has_room() {
            let message = "the program has not read what was typed before";
            return Err(refusal(RefusalReason::Busy, message));
        }
        let draft = self.typist.draft();
        if text.refuse_on_draft && draft > 0 {
            let message = format!("an attached person has typed about {draft} bytes without sending them");
            return Err(refusal(RefusalReason::Draft, &message));
        }
        let asker = Asker { client: id, frame_id: frame_id.to_owned() };
        self.typist.text(facts::boottime_ms(), asker, message, text, paste_on);
        Ok(())
    }

    fn press_again(&mut self, id: u64, frame_id: &str, message: &str, out_len: u64) -> Result<(), Refusal> {
        if self.end.is_some() {
            return Err(refusal(RefusalReason::Ended, "the program has ended"));
        }
        let asker = Asker { client: id, frame_id: frame_id.to_owned() };
        let is_as_seen = self.output.len() == out_len && !self.pty.has_unread_input();
        if is_as_seen && self.typist.again(facts::boottime_ms(), asker, message) {
            return Ok(());
        }
        Err(refusal(RefusalReason::Changed, "something was typed or printed since it was looked at"))
    }

    fn status(&self) -> Status {
        let (rows, cols) = self.pty.size();
        let attached = self.clients.iter().filter(|client| client.view != View::None).count();
        Status {
            child_alive: self.end.is_none(),
            out_len: self.output.len(),
            last_output_at_ms: self.last_output_at_ms,
            attached: u32::try_from(attached).unwrap_or(u32::MAX),
            degraded: self.degraded.all(),
            exit: self.end.as_ref().and_then(|end| end.told().cloned()),
            rows,
            cols,
            draft_possible: self.typist.draft(),
            wall_time_ms: self.limits.wall_time(),
            lease_deadline_boottime_ms: self.limits.lease(),
        }
    }

    /// On disk first: a limit that was answered for and then forgotten would end the program early, or never.
    fn change_limits<E: std::fmt::Display>(
        &mut self,
        change: impl FnOnce(&mut Limits) -> Result<(), E>,
    ) -> Answered {
        let mut limits = self.limits.clone();
        change(&mut limits).map_err(|error| refusal(RefusalReason::LeaseNotRenewable, &error.to_string()))?;
        let mut record = self.record.clone();
        record.lease_deadline_boottime_ms = limits.lease();
        record.wall_time_ms = limits.wall_time();
        if record != self.record {
            records::store(file::SHIM, &record)
                .map_err(|error| refusal(RefusalReason::Failed, &error.to_string()))?;
        }
        (self.record, self.limits) = (record, limits);
        Ok(Reply::Done)
    }

    /// Events that have happened are told at once: a watcher that comes late knows as much as one that was there.
    fn watch(&mut self, id: u64) {
        let mut events = Vec::new();
        let degraded = self.degraded.all();
        if !degraded.is_empty() {
            events.push(Event::Degraded { what: degraded });
        }
        events.extend(self.end.iter().flat_map(super::ending::End::events));
        let Some(client) = self.client(id) else { return };
        client.watching = true;
        for event in &events {
            match Frame::of(kind::EVENT, "", event) {
                Ok(frame) => client.send(frame),
                Err(error) => log(&format!("cannot encode an event: {error}")),
            }
        }
    }

    fn signal(&self, signo: i32) -> Answered {
        let Some(group) = self.program_group() else {
            return Err(refusal(RefusalReason::Ended, "the program has ended"));
        };
        let signal = Signal::try_from(signo);
        signal
            .and_then(|signal| killpg(group, signal))
            .map(|()| Reply::Done)
            .map_err(|error| refusal(RefusalReason::Failed, &format!("cannot send signal {signo}: {error}")))
    }
}

/// A terminal can claim any size; a program that draws for it would never be done.
fn clamped(rows: u16, cols: u16) -> (u16, u16) {
    (rows.min(ROWS_MAX), cols.min(COLS_MAX))
}

fn refusal(reason: RefusalReason, message: &str) -> Refusal {
    Refusal { reason, message: message.to_owned() }
}
