//! Looks for the signs of all agents that have some, and tells the driver what is seen.
//!
//! One look at all of them at a time, on one thread: files that did not grow cost a `stat`, those that did are drawn
//! on within a bound. The pause after a look is a multiple of what it took, so that this takes a fifth of one core at
//! most, however many agents print however much. Agents without signals are not known here.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt};
use hostd_core::Input;
use protocol::ids::AgentId;
use protocol::shim::{Reply, Request};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::terminal::Size;
use super::watched::{News, Watch, Watched};
use crate::agents::ShimLink;
use crate::clock;

/// Between two looks.
const PACE: Duration = Duration::from_millis(150);
/// A look is followed by a pause of so many times its length.
const REST: u32 = 4;
/// A shim that does not say its size in this time is asked again later.
const SIZE_LIMIT: Duration = Duration::from_millis(500);
/// Shims that are asked at once.
const SIZES_AT_ONCE: usize = 16;
const CAPACITY: usize = 1024;

#[derive(Debug)]
enum Message {
    Begin(Box<Watch>),
    End(AgentId),
}

/// Full only while a look stands still; then an agent's job waits.
#[derive(Clone, Debug)]
pub struct WatchSink(mpsc::Sender<Message>);

impl WatchSink {
    /// Begins to look for the signs of an agent whose start was told.
    pub async fn begin(&self, watch: Watch) {
        let _ = self.0.send(Message::Begin(Box::new(watch))).await;
    }

    pub async fn end(&self, agent: AgentId) {
        let _ = self.0.send(Message::End(agent)).await;
    }
}

#[derive(Debug)]
pub struct Watcher {
    messages: mpsc::Receiver<Message>,
    watched: BTreeMap<AgentId, Watched>,
}

impl Watcher {
    #[must_use]
    pub fn new() -> (WatchSink, Self) {
        let (sink, messages) = mpsc::channel(CAPACITY);
        (WatchSink(sink), Self { messages, watched: BTreeMap::new() })
    }

    /// Until every sink is gone.
    pub async fn run(mut self, inputs: mpsc::Sender<Input>) {
        let mut next = Instant::now();
        loop {
            let message = tokio::select! {
                biased;
                message = self.messages.recv() => Some(message),
                () = tokio::time::sleep_until(next), if !self.watched.is_empty() => None,
            };
            match message {
                Some(Some(Message::Begin(watch))) => {
                    self.watched.insert(watch.agent, Watched::new(*watch));
                }
                Some(Some(Message::End(agent))) => {
                    self.watched.remove(&agent);
                }
                Some(None) => return,
                None => {
                    let took = self.look(&inputs).await;
                    next = Instant::now() + PACE.max(took * REST);
                }
            }
        }
    }

    /// One look at all of them; how long it took.
    async fn look(&mut self, inputs: &mpsc::Sender<Input>) -> Duration {
        self.ask_sizes().await;
        let watched = std::mem::take(&mut self.watched);
        let begun = Instant::now();
        let looked = tokio::task::spawn_blocking(move || look_at_all(watched)).await;
        let took = begun.elapsed();
        let Ok((watched, news)) = looked else { return took };
        self.watched = watched;
        for input in news {
            // Closed only at shutdown.
            let _ = inputs.send(input).await;
        }
        took
    }

    async fn ask_sizes(&mut self) {
        let now = clock::now();
        let wanting: Vec<(AgentId, PathBuf)> = self
            .watched
            .iter()
            .filter(|(_, watched)| watched.wants_size(now))
            .map(|(agent, watched)| (*agent, watched.watch.folder.clone()))
            .collect();
        let mut wanting = wanting.into_iter();
        let mut asking: FuturesUnordered<_> = wanting.by_ref().take(SIZES_AT_ONCE).map(size_of).collect();
        while let Some((agent, size)) = asking.next().await {
            if let Some(watched) = self.watched.get_mut(&agent) {
                watched.set_size(now, size);
            }
            asking.extend(wanting.next().map(size_of));
        }
    }
}

async fn size_of((agent, folder): (AgentId, PathBuf)) -> (AgentId, Option<Size>) {
    let asked = async {
        let mut link = ShimLink::open(&folder).await.ok()?;
        match link.ask(&Request::Status).await {
            Ok(Reply::Status(status)) => Some(Size::new(status.rows, status.cols)),
            Ok(_) | Err(_) => None,
        }
    };
    (agent, tokio::time::timeout(SIZE_LIMIT, asked).await.ok().flatten())
}

fn look_at_all(mut all: BTreeMap<AgentId, Watched>) -> (BTreeMap<AgentId, Watched>, Vec<Input>) {
    let now = clock::now();
    let mut inputs = Vec::new();
    all.retain(|agent, watched| {
        // What one program prints must not end the looks at all others.
        let Ok(news) = catch_unwind(AssertUnwindSafe(|| watched.look(now))) else {
            tracing::error!(%agent, "its screen cannot be drawn: its signs are not looked for any more");
            inputs.push(unreadable(*agent));
            return false;
        };
        inputs.extend(news.into_iter().map(|news| input_of(*agent, news)));
        !watched.is_done()
    });
    (all, inputs)
}

fn input_of(agent: AgentId, news: News) -> Input {
    match news {
        News::Ready => Input::Ready { agent },
        News::Seen(activity, evidence) => Input::Signalled { agent, activity, evidence },
        News::Unreadable => unreadable(agent),
    }
}

fn unreadable(agent: AgentId) -> Input {
    Input::Degraded { agent, what: "no-signals", degraded: true }
}
