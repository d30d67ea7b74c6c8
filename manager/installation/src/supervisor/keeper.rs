//! Keeps one component running: adopts the one that lives, starts it otherwise, starts it again when it has
//! ended.
//!
//! ```text
//! Hold ──Run──> look ──lock held──> adopted ──ended──┐
//!                 │ free                             │ pause (100 ms doubling to 10 s, or 1 s once ready,
//!                 └──> spawn ──> starting ──> running ┤        from the start again after 30 s up)
//!                 ^                                   │
//!                 └───────────────────────────────────┘      Stop in any state: SIGTERM, limit, SIGKILL
//! ```
//! Dropping a keeper leaves its component running.

use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::unix::AsyncFd;
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::bus::BusPreparation;
use super::component::{Component, NATS};
use super::log_files::{self, Mark};
use super::refusals::{LOOK_EVERY, Refusals, free_bytes};
use crate::layout::Layout;
use crate::lock::{self, Lock};
use crate::process::{self, ProcessHandle};

const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MOST: Duration = Duration::from_secs(10);
/// After the end of one that had been ready: it can be started, and whoever killed it does so again or not.
const PAUSE_MOST_AFTER_READY: Duration = Duration::from_secs(1);
const UP_LONG: Duration = Duration::from_secs(30);
const READY_PROBE: Duration = Duration::from_millis(5);
const LOG_LINES: usize = 8;

/// What the overseer wants of a component.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    Hold,
    Run,
    Stop,
}

/// What happened to a component.
#[derive(Debug)]
pub(super) enum News {
    Adopted {
        pid: u32,
    },
    Starting {
        pid: u32,
    },
    Ready,
    /// It ended, or could not be started; it is tried again.
    Down {
        cause: String,
        last_log: Vec<String>,
        short_lives: u32,
    },
    Stopped,
}

/// One component and the way to tell of it. The overseer reads news promptly; when the channel is full the
/// keeper waits.
pub(super) struct Keeper {
    pub(super) layout: Layout,
    pub(super) component: Component,
    /// Only for the bus: what is made ready before each start.
    pub(super) bus: Option<BusPreparation>,
    pub(super) index: usize,
    pub(super) news: mpsc::Sender<(usize, News)>,
    pub(super) wish: watch::Receiver<Wish>,
}

/// The component while it lives.
enum Running {
    Child(Child),
    Adopted(AsyncFd<std::os::fd::OwnedFd>),
}

/// A started component: how to signal it, how to see its end, what it logs from now on.
struct Life {
    running: Running,
    /// Absent when it ended before it could be pinned.
    handle: Option<ProcessHandle>,
    adopted: bool,
    marks: Vec<Mark>,
}

/// The end of a component.
struct Ended {
    cause: String,
    last_log: Vec<String>,
    was_ready: bool,
}

const fn pause_most(was_ready: bool) -> Duration {
    if was_ready { PAUSE_MOST_AFTER_READY } else { PAUSE_MOST }
}

impl Keeper {
    pub(super) async fn keep(mut self) {
        if !self.wanted().await {
            return self.tell(News::Stopped).await;
        }
        let mut pause = PAUSE_FIRST;
        let mut short_lives = 0_u32;
        loop {
            let begun = Instant::now();
            let ended = match self.begin().await {
                Ok(life) => match self.watch_over(life).await {
                    Some(ended) => ended,
                    None => return self.tell(News::Stopped).await,
                },
                Err(cause) => Ended { cause, last_log: Vec::new(), was_ready: false },
            };
            let Ended { cause, last_log, was_ready } = ended;
            if begun.elapsed() >= UP_LONG {
                (pause, short_lives) = (PAUSE_FIRST, 0);
            }
            short_lives = short_lives.saturating_add(1);
            pause = pause.min(pause_most(was_ready));
            self.tell(News::Down { cause, last_log, short_lives }).await;
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = stop_wished(&mut self.wish) => return self.tell(News::Stopped).await,
            }
            pause = (pause * 2).min(pause_most(was_ready));
        }
    }

    /// Waits until the component is wanted; false when everything stops instead.
    async fn wanted(&mut self) -> bool {
        let wish = self.wish.wait_for(|wish| *wish != Wish::Hold).await;
        wish.is_ok_and(|wish| *wish == Wish::Run)
    }

    async fn tell(&self, news: News) {
        // The overseer is gone only when the whole process ends.
        let _ = self.news.send((self.index, news)).await;
    }

    async fn begin(&mut self) -> Result<Life, String> {
        let found = self.find_running()?;
        if let Some(bus) = &self.bus {
            let program = bus.prepare(&self.layout, found.is_some()).await?;
            if let Some(program) = program {
                self.component.program = program;
            }
        }
        let marks: Vec<Mark> = self.logs().iter().map(|path| Mark::at_end(path)).collect();
        if let Some(handle) = found {
            let pid = handle.pid();
            let pidfd = ProcessHandle::open(pid)
                .map_err(|error| format!("cannot watch process {pid}: {error}"))?
                .ok_or_else(|| format!("process {pid} ended while it was adopted"))?
                .into_pidfd();
            let pidfd = watch_pidfd(pidfd).map_err(|error| format!("cannot watch process {pid}: {error}"))?;
            self.tell(News::Adopted { pid }).await;
            return Ok(Life { running: Running::Adopted(pidfd), handle: Some(handle), adopted: true, marks });
        }
        let child = self.spawn()?;
        let pid = child.id().unwrap_or_default();
        self.tell(News::Starting { pid }).await;
        let handle = ProcessHandle::open(pid).ok().flatten();
        Ok(Life { running: Running::Child(child), handle, adopted: false, marks })
    }

    /// The live component, whoever started it.
    fn find_running(&self) -> Result<Option<ProcessHandle>, String> {
        let path = self.layout.lock(&self.component.name);
        match lock::holder(&path) {
            Ok(found) => Ok(found),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock && self.component.name == NATS => {
                // A supervisor killed between starting the server and naming it leaves the name to the
                // server.
                let pid = std::fs::read_to_string(self.layout.nats_pid()).ok();
                pid.and_then(|text| text.trim().parse().ok())
                    .filter(|pid| process::has_argument(*pid, &self.layout.nats_conf()))
                    .and_then(|pid| ProcessHandle::open(pid).ok().flatten())
                    .map(Some)
                    .ok_or_else(|| error.to_string())
            }
            Err(error) => Err(format!("cannot look at {}: {error}", path.display())),
        }
    }

    fn logs(&self) -> Vec<PathBuf> {
        let mut logs = vec![self.output_log()];
        if self.bus.is_some() {
            logs.push(self.layout.log_file(&self.component.name));
        }
        logs
    }

    /// Where stdout and stderr go. The server has a log of its own, bounded by itself.
    fn output_log(&self) -> PathBuf {
        if self.bus.is_some() {
            self.layout.log_file(&format!("{NATS}.out"))
        } else {
            self.layout.log_file(&self.component.name)
        }
    }

    fn spawn(&self) -> Result<Child, String> {
        let name = &self.component.name;
        let program = self.component.program.display();
        let failed = |error: std::io::Error| format!("cannot start {program}: {error}");
        let log = log_files::open(&self.output_log()).map_err(failed)?;
        let mut command = Command::new(&self.component.program);
        command
            .args(&self.component.args)
            .envs(self.component.env.iter().map(|(key, value)| (key, value)))
            .env_remove(super::STAGE_VARIABLE)
            .current_dir(self.layout.home())
            .stdout(Stdio::from(log.try_clone().map_err(failed)?))
            .stderr(Stdio::from(log))
            .process_group(0)
            .kill_on_drop(false);
        if self.bus.is_none() {
            return command.stdin(Stdio::null()).spawn().map_err(failed);
        }
        // nats-server knows no locks, and starts no processes: as its standard input the open lock file lives
        // exactly as long as the server does.
        let path = self.layout.lock(name);
        let lock = Lock::try_take(&path).map_err(|error| error.to_string())?;
        let child = command.stdin(Stdio::from(lock.share().map_err(failed)?)).spawn().map_err(failed)?;
        if let Some(pid) = child.id() {
            lock.with_holder(pid).map_err(failed)?;
        }
        Ok(child)
    }

    /// Until the end of the component, or `None` when it was stopped on request.
    async fn watch_over(&mut self, mut life: Life) -> Option<Ended> {
        let mut ready = false;
        let mut probe = tokio::time::interval(READY_PROBE);
        probe.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut refusals = Refusals::from_now(&self.layout.log_file(&self.component.name));
        let mut look = tokio::time::interval(LOOK_EVERY);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                cause = life.running.ended() => {
                    let last_log = life.marks.iter().flat_map(|mark| mark.last_lines(LOG_LINES)).collect();
                    return Some(Ended { cause, last_log, was_ready: ready });
                }
                () = stop_wished(&mut self.wish) => {
                    self.stop(&mut life).await;
                    return None;
                }
                _ = look.tick(), if self.bus.is_some() => {
                    if refusals.persist(free_bytes(&self.layout.bus())) {
                        self.stop(&mut life).await;
                        let cause = "refused to store after the disk had been full, although there is room again";
                        return Some(Ended { cause: cause.to_owned(), last_log: Vec::new(), was_ready: ready });
                    }
                }
                _ = probe.tick(), if !ready => {
                    ready = match &self.bus {
                        Some(bus) => bus.is_ready(&self.layout).await,
                        None => self.component.is_ready(&self.layout),
                    };
                    if ready {
                        let (name, adopted) = (&self.component.name, life.adopted);
                        tracing::info!(component = name, adopted, "component ready");
                        self.tell(News::Ready).await;
                    }
                }
            }
        }
    }

    async fn stop(&self, life: &mut Life) {
        for (signal, limit) in
            [(Signal::TERM, self.component.stop_limit), (Signal::KILL, Duration::from_secs(5))]
        {
            if let Some(Err(error)) = life.handle.as_ref().map(|handle| handle.signal(signal)) {
                tracing::warn!(component = self.component.name, %error, "signal not sent");
            }
            if tokio::time::timeout(limit, life.running.ended()).await.is_ok() {
                return;
            }
            tracing::warn!(component = self.component.name, ?signal, "component did not end in time");
        }
    }
}

impl Running {
    async fn ended(&mut self) -> String {
        match self {
            Self::Child(child) => match child.wait().await {
                Ok(status) => describe_exit(status),
                Err(error) => format!("could not be waited for: {error}"),
            },
            Self::Adopted(pidfd) => match pidfd.readable().await {
                Ok(_) => "ended (it was not our child, so its exit status is not known)".to_owned(),
                Err(error) => format!("could not be watched: {error}"),
            },
        }
    }
}

/// Has the runtime wake us when the process ends.
#[expect(
    unsafe_code,
    reason = "AsyncFd::register asks that the descriptor stays open and the same while registered"
)]
fn watch_pidfd(pidfd: std::os::fd::OwnedFd) -> std::io::Result<AsyncFd<std::os::fd::OwnedFd>> {
    // SAFETY: the AsyncFd owns the OwnedFd, which always returns the one descriptor it keeps open, and
    // deregisters before dropping it.
    Ok(unsafe { AsyncFd::register(pidfd) }?)
}

async fn stop_wished(wish: &mut watch::Receiver<Wish>) {
    // A dropped sender means that the overseer is gone: the component is left as it is.
    if wish.wait_for(|wish| *wish == Wish::Stop).await.is_err() {
        std::future::pending::<()>().await;
    }
}

fn describe_exit(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}
