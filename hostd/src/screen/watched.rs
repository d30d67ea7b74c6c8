//! One agent whose signals are looked for: its terminal, kept up with its transcript, and what was last seen on it.
//!
//! Everything here blocks and is done on a thread of its own, a bounded piece at a time.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use hostd_core::{Activity, Evidence};
use protocol::ids::AgentId;
use protocol::signals::Signals;
use protocol::time::Timestamp;

use super::signs::{HasChildren, Signs, Verdict, View};
use super::terminal::{Size, Terminal};
use super::transcript::{Tail, length_of};
use crate::sys::cgroup::AgentGroup;
use crate::sys::process::{ProcessRef, comes_of};

/// What is drawn of a transcript when a terminal is begun.
const TAIL: u64 = 512 << 10;
/// More than this is not drawn step by step: the terminal is begun anew from the end.
const LEAP: u64 = 256 << 10;
/// What is taken of it at once while a text in it is looked for.
const PIECE: u64 = 1 << 20;
/// A sign must be seen for so long: programs draw their screens in steps.
const SETTLE_MS: u64 = 300;
/// Processes are looked at again after so long where a sign hangs on them.
const CHILDREN_AGAIN_MS: u64 = 1_000;
/// The terminal's size is asked again after so long while it is drawn on.
const SIZE_AGAIN_MS: u64 = 5_000;

/// What is to be watched.
#[derive(Debug)]
pub struct Watch {
    pub agent: AgentId,
    pub folder: PathBuf,
    pub signals: Option<Box<Signals>>,
    /// Text anywhere in the output that says that it is ready.
    pub ready_text: Option<String>,
    pub shim: ProcessRef,
    /// The program.
    pub program: i32,
    pub group: AgentGroup,
    /// Where in the transcript it began to print.
    pub begin: u64,
}

/// What a look has for the core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum News {
    Ready,
    Seen(Activity, Evidence),
    /// The signs cannot be looked for.
    Unreadable,
}

#[derive(Debug)]
pub(super) struct Watched {
    pub(super) watch: Watch,
    signs: Option<Signs>,
    terminal: Option<Terminal>,
    size: Size,
    /// So much of the transcript is drawn.
    drawn: u64,
    /// The end of what was searched for the text, in which it may have begun.
    searched: Vec<u8>,
    settle: Settle,
    is_ready: bool,
    by_children_at: Option<Timestamp>,
    size_asked_at: Timestamp,
    has_drawn: bool,
    /// Told once.
    failed: bool,
}

impl Watched {
    pub(super) fn new(watch: Watch) -> Self {
        let compiled = watch.signals.as_deref().map(Signs::compile).transpose();
        let failed = compiled.is_err();
        Self {
            signs: compiled.unwrap_or_default(),
            watch,
            terminal: None,
            size: Size::default(),
            drawn: 0,
            searched: Vec::new(),
            settle: Settle::default(),
            is_ready: false,
            by_children_at: None,
            size_asked_at: Timestamp::default(),
            has_drawn: false,
            failed,
        }
    }

    /// Whether nothing more will be news.
    pub(super) fn is_done(&self) -> bool {
        self.signs.is_none() && (self.is_ready || self.watch.ready_text.is_none())
    }

    /// Whether the size should be asked for: at first, before a prompt or a dialog is told of, and now and then.
    pub(super) fn wants_size(&self, now: Timestamp) -> bool {
        let since = now.ms_since(self.size_asked_at);
        self.size_asked_at == Timestamp::default()
            || (self.has_drawn && since >= SIZE_AGAIN_MS)
            || (self.settle.is_about_to_tell(now.after_ms(SETTLE_MS)) && since >= SETTLE_MS)
    }

    /// The size that the terminal has now; `None` where it cannot be told, which changes nothing.
    pub(super) fn set_size(&mut self, now: Timestamp, size: Option<Size>) {
        self.size_asked_at = now;
        self.has_drawn = false;
        if let Some(size) = size.filter(|size| *size != self.size) {
            self.size = size;
            // What was drawn at another size is not what the program drew for this one.
            self.terminal = None;
        }
    }

    /// One look.
    pub(super) fn look(&mut self, now: Timestamp) -> Vec<News> {
        if std::mem::take(&mut self.failed) {
            return vec![News::Unreadable];
        }
        let grown = match self.catch_up() {
            Ok(grown) => grown,
            // Unknown: what was seen before may no longer be so.
            Err(error) => {
                tracing::warn!(agent = %self.watch.agent, %error, "a transcript cannot be read for signs");
                self.settle.look(now, &Verdict::unknown());
                return self.told(now, false);
            }
        };
        self.has_drawn |= grown.is_some();
        let text_seen = grown.as_deref().is_some_and(|bytes| self.search(bytes));
        let by_children = self.by_children_at.is_some_and(|at| at <= now);
        let mut ready = text_seen;
        if let (Some(signs), Some(terminal), true) =
            (&self.signs, &self.terminal, grown.is_some() || by_children)
        {
            let view = View::of(terminal, signs.rows);
            let watch = &self.watch;
            let mut known = None;
            let verdict = signs.judge(&view, || *known.get_or_insert_with(|| has_children(watch)));
            ready |= verdict.ready;
            // A text that was split by cursor moves is whole on the screen only.
            ready |= watch.ready_text.as_ref().is_some_and(|text| view.rows.contains(text.as_str()));
            self.by_children_at = verdict.by_children.then(|| now.after_ms(CHILDREN_AGAIN_MS));
            self.settle.look(now, &verdict);
            if grown.is_some() {
                self.settle.drawn_on(now);
            }
        }
        self.told(now, ready)
    }

    fn told(&mut self, now: Timestamp, ready: bool) -> Vec<News> {
        let mut news = Vec::new();
        if ready && !std::mem::replace(&mut self.is_ready, true) {
            news.push(News::Ready);
        }
        news.extend(self.settle.news(now).map(|(activity, evidence)| News::Seen(activity, evidence)));
        news
    }

    /// Draws what came since; the new bytes, or `None` when there are none.
    fn catch_up(&mut self) -> std::io::Result<Option<Vec<u8>>> {
        let path = self.watch.folder.join(protocol::shim::file::OUTPUT);
        let length = match std::fs::metadata(&path) {
            Ok(facts) => facts.len(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
            Err(error) => return Err(error),
        };
        let behind = length.saturating_sub(self.drawn);
        let searches = !self.is_ready && self.watch.ready_text.is_some();
        match &mut self.terminal {
            Some(terminal) if behind <= LEAP || searches => {
                if behind == 0 {
                    return Ok(None);
                }
                let mut bytes = vec![0; usize::try_from(behind.min(PIECE)).unwrap_or(0)];
                File::open(&path)?.read_exact_at(&mut bytes, self.drawn)?;
                self.drawn += length_of(&bytes);
                terminal.feed(&bytes);
                Ok(Some(bytes))
            }
            Some(_) | None => {
                let tail = Tail::read(&path, self.watch.begin, if searches { PIECE } else { TAIL })?;
                let mut terminal = Terminal::new(self.size, 0).map_err(std::io::Error::other)?;
                if tail.begins_alternate(None) {
                    terminal.feed(b"\x1b[?1049h");
                }
                terminal.feed(tail.drawn());
                self.terminal = Some(terminal);
                self.drawn = tail.length;
                Ok(Some(tail.bytes))
            }
        }
    }

    /// Whether the text that is looked for is in what came, or began in what came before.
    fn search(&mut self, bytes: &[u8]) -> bool {
        let Some(text) = self.watch.ready_text.as_ref().filter(|text| !self.is_ready && !text.is_empty())
        else {
            return false;
        };
        self.searched.extend_from_slice(bytes);
        let found = self.searched.windows(text.len()).any(|window| window == text.as_bytes());
        self.searched.drain(..self.searched.len().saturating_sub(text.len()));
        found
    }
}

/// Whether the program has children; those that someone runs beside it are none of its own.
fn has_children(watch: &Watch) -> HasChildren {
    let Ok(processes) = watch.group.processes() else { return HasChildren::Unknown };
    let ancestors = [watch.program, watch.shim.pid];
    let mut unknown = false;
    for pid in processes.into_iter().filter(|pid| !ancestors.contains(pid)) {
        match comes_of(pid, &ancestors) {
            Ok(true) => return HasChildren::Yes,
            Ok(false) => {}
            Err(_) => unknown = true,
        }
    }
    if unknown { HasChildren::Unknown } else { HasChildren::No }
}

/// Steadies what is seen: work is told at once, a prompt, a dialog or nothing once it has been seen for a while.
#[derive(Debug, Default)]
struct Settle {
    now: Option<(Activity, Evidence)>,
    since: Timestamp,
    told: Option<(Activity, Evidence)>,
    /// It was drawn on since a prompt was told: once it stands still, the prompt is told again, as the end of a turn that
    /// was too short to be seen as work.
    tell_again: bool,
}

impl Settle {
    fn look(&mut self, now: Timestamp, verdict: &Verdict) {
        let seen = (verdict.activity.clone(), verdict.evidence);
        if self.now.as_ref() != Some(&seen) {
            self.now = Some(seen);
            self.since = now;
        }
    }

    fn drawn_on(&mut self, now: Timestamp) {
        if self.told.as_ref().is_some_and(|told| told.0 == Activity::Idle) {
            self.tell_again = true;
            self.since = now;
        }
    }

    fn is_due(&self, now: Timestamp) -> bool {
        let Some(seen) = &self.now else { return false };
        if self.tell_again && seen.0 == Activity::Idle {
            return now.ms_since(self.since) >= SETTLE_MS;
        }
        // Nothing was told of one that shows nothing yet.
        let unknown = (Activity::Unknown, Evidence::Process);
        if seen == self.told.as_ref().unwrap_or(&unknown) {
            return false;
        }
        seen.0 == Activity::Busy || now.ms_since(self.since) >= SETTLE_MS
    }

    fn is_about_to_tell(&self, now: Timestamp) -> bool {
        let waits =
            self.now.as_ref().is_some_and(|seen| matches!(seen.0, Activity::Idle | Activity::Asking(_)));
        waits && self.is_due(now)
    }

    fn news(&mut self, now: Timestamp) -> Option<(Activity, Evidence)> {
        let due = self.is_due(now).then(|| self.now.clone()).flatten();
        if due.is_some() {
            self.tell_again = false;
            self.told.clone_from(&due);
        }
        due
    }
}

impl Verdict {
    fn unknown() -> Self {
        Self { activity: Activity::Unknown, evidence: Evidence::Process, ready: false, by_children: false }
    }
}
