//! The supervisor's one loop: hears from the keepers, writes the status, decides whether the start has
//! succeeded or failed, stops everything in order when asked.

use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::board::{ComponentState, Failure, State, Status, unix_ms};
use super::bus::{self, BusPreparation};
use super::component::NATS;
use super::keeper::{Keeper, News, Wish};
use super::log_files::{self, LOG_BYTES, LOG_FILES};
use super::{Options, SupervisorError};
use crate::layout::Layout;

/// A component that ends this often before it was ever ready fails the start.
const START_TRIES: u32 = 3;
/// Ending this often without having lasted is called a crash loop.
const CRASH_LOOP: u32 = 5;
const LOG_CHECK: Duration = Duration::from_secs(5);

/// A keeper's task and the wish it follows.
struct Kept {
    wish: watch::Sender<Wish>,
    task: JoinSet<()>,
}

struct Overseer<'a> {
    layout: &'a Layout,
    status: Status,
    kept: Vec<Kept>,
    news: mpsc::Receiver<(usize, News)>,
    ready: Vec<bool>,
    /// Something was running when this supervisor came: then a failed start stops nothing.
    adopted: bool,
}

/// Runs until SIGTERM or SIGINT. `settled` is called once, when the start has succeeded or failed.
pub(super) async fn run(
    layout: &Layout,
    options: Options,
    settled: impl FnOnce(),
) -> Result<(), SupervisorError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(SupervisorError::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(SupervisorError::Signals)?;
    // Whoever started us from a terminal may close it.
    let _hangup = signal(SignalKind::hangup()).map_err(SupervisorError::Signals)?;
    let mut overseer = Overseer::start(layout, &options);
    let mut settled = Some(settled);
    let mut limit = Box::pin(tokio::time::sleep(options.start_limit));
    let mut logs = tokio::time::interval(LOG_CHECK);
    loop {
        let mut failure = None;
        tokio::select! {
            heard = overseer.news.recv() => {
                if let Some((index, news)) = heard {
                    failure = overseer.hear(index, news);
                }
            }
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            () = &mut limit, if settled.is_some() => failure = overseer.late(options.start_limit),
            _ = logs.tick() => overseer.bound_logs(),
        }
        let up = overseer.ready.iter().all(|ready| *ready);
        if settled.is_none() || (!up && failure.is_none()) {
            overseer.publish();
            continue;
        }
        match failure {
            Some(failure) if !overseer.adopted => {
                tracing::error!(component = failure.component, cause = failure.cause, "start failed");
                overseer.status.failure = Some(failure.clone());
                overseer.stop_all().await;
                overseer.finish(State::Failed);
                if let Some(settled) = settled.take() {
                    settled();
                }
                return Err(SupervisorError::Start { component: failure.component, cause: failure.cause });
            }
            // What ran before goes on; what is missing is tried again and shown.
            failure => {
                overseer.status.state = State::Up;
                overseer.status.failure = failure;
                overseer.publish();
                if let Some(settled) = settled.take() {
                    settled();
                }
            }
        }
    }
    overseer.status.state = State::Stopping;
    overseer.publish();
    overseer.stop_all().await;
    overseer.finish(State::Stopped);
    Ok(())
}

impl<'a> Overseer<'a> {
    fn start(layout: &'a Layout, options: &Options) -> Self {
        let clients: Vec<String> =
            options.components.iter().map(|component| component.name.clone()).collect();
        let preparation = BusPreparation { clients, supervise: options.supervise.clone() };
        let mut components = vec![(bus::component(layout), Some(preparation))];
        components.extend(options.components.iter().map(|component| (component.clone(), None)));
        let status = Status::new(components.iter().map(|(component, _)| component.name.clone()));
        let (sender, news) = mpsc::channel(64);
        let ready = vec![false; components.len()];
        let mut kept = Vec::new();
        for (index, (component, bus)) in components.into_iter().enumerate() {
            let (wish, follows) = watch::channel(if bus.is_some() { Wish::Run } else { Wish::Hold });
            let news = sender.clone();
            let keeper = Keeper { layout: layout.clone(), component, bus, index, news, wish: follows };
            let mut task = JoinSet::new();
            task.spawn(keeper.keep());
            kept.push(Kept { wish, task });
        }
        let overseer = Self { layout, status, kept, news, ready, adopted: false };
        overseer.publish();
        overseer
    }

    /// Takes in what happened; a failure when it ends the start.
    fn hear(&mut self, index: usize, news: News) -> Option<Failure> {
        let name =
            self.status.components.get(index).map(|component| component.name.clone()).unwrap_or_default();
        let component = self.status.components.get_mut(index)?;
        let was_ready = self.ready.get(index).copied().unwrap_or(false);
        let before = component.state;
        let mut failure = None;
        match news {
            News::Adopted { pid } => {
                tracing::info!(component = name, pid, "component adopted");
                (component.pid, component.adopted, component.state) =
                    (Some(pid), true, ComponentState::Running);
                self.adopted = true;
            }
            News::Starting { pid } => {
                tracing::info!(component = name, pid, "component started");
                if matches!(before, ComponentState::Restarting | ComponentState::CrashLoop) {
                    component.restarts += 1;
                } else {
                    component.state = ComponentState::Starting;
                }
                (component.pid, component.adopted) = (Some(pid), false);
            }
            News::Ready => {
                component.state = ComponentState::Running;
                if let Some(ready) = self.ready.get_mut(index) {
                    *ready = true;
                }
                let resolved = self.status.failure.as_ref().is_some_and(|failure| failure.component == name);
                if resolved {
                    self.status.failure = None;
                }
                if index == 0 {
                    self.kept.iter().for_each(|kept| {
                        // Stopping is never taken back.
                        kept.wish.send_if_modified(|wish| {
                            let held = *wish == Wish::Hold;
                            if held {
                                *wish = Wish::Run;
                            }
                            held
                        });
                    });
                }
            }
            News::Down { cause, last_log, short_lives } => {
                tracing::warn!(component = name, cause, short_lives, "component down, will be started again");
                component.state = if short_lives >= CRASH_LOOP {
                    ComponentState::CrashLoop
                } else {
                    ComponentState::Restarting
                };
                (component.pid, component.last_exit) = (None, Some(cause.clone()));
                component.last_log.clone_from(&last_log);
                if !was_ready && (short_lives >= START_TRIES || index == 0 && last_log.is_empty()) {
                    failure = Some(Failure { component: name, cause, last_log });
                }
            }
            News::Stopped => (component.pid, component.state) = (None, ComponentState::Stopped),
        }
        if component.state != before {
            component.since_unix_ms = unix_ms();
        }
        failure
    }

    /// The failure of a start that took too long.
    fn late(&self, limit: Duration) -> Option<Failure> {
        let index = self.ready.iter().position(|ready| !ready)?;
        let component = self.status.components.get(index)?;
        let last_log = log_files::tail(&self.layout.log_file(&component.name), 8);
        let cause = match &component.last_exit {
            Some(exit) => format!("not ready within {} s; it last {exit}", limit.as_secs()),
            None => format!("not ready within {} s", limit.as_secs()),
        };
        Some(Failure { component: component.name.clone(), cause, last_log })
    }

    fn publish(&self) {
        self.status.publish(&self.layout.status_file());
    }

    fn finish(&mut self, state: State) {
        self.status.state = state;
        self.publish();
    }

    /// Last started, first stopped: the manager, hostd, then the bus they speak over.
    async fn stop_all(&mut self) {
        for index in (0..self.kept.len()).rev() {
            let Some(kept) = self.kept.get_mut(index) else { continue };
            kept.wish.send_replace(Wish::Stop);
            while let Some(kept) = self.kept.get_mut(index) {
                tokio::select! {
                    heard = self.news.recv() => {
                        if let Some((from, news)) = heard {
                            self.hear(from, news);
                        }
                    }
                    ended = kept.task.join_next() => if ended.is_none() { break },
                }
            }
            if let Some(component) = self.status.components.get_mut(index) {
                (component.pid, component.state) = (None, ComponentState::Stopped);
            }
            self.publish();
        }
    }

    fn bound_logs(&self) {
        let names = self.status.components.iter().map(|component| component.name.as_str());
        // The server bounds its own log; what it prints before it has one is ours.
        let ours = names.filter(|name| *name != NATS).chain(["supervisor", "nats-server.out"]);
        for name in ours {
            if let Err(error) = log_files::rotate(&self.layout.log_file(name), LOG_BYTES, LOG_FILES) {
                tracing::warn!(name, %error, "log not set aside");
            }
        }
    }
}
