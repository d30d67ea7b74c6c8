//! The life of the daemon: what is opened in which order, and how it ends.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use manager_core::{Config, Core, Input};
use protocol::ids::Region;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::blobs::Blobs;
use super::bus::Bus;
use super::clock::Clock;
use super::driver::writer;
use super::driver::{self, Driver, Outlets, WriterEnds};
use super::error::DaemonError;
use super::guard::{Began, Guard, Sealed};
use super::hosts::inbound;
use super::hosts::log_tail::LogTails;
use super::hosts::rpc::Rpc;
use super::hosts::{self, Hosts};
use super::lead::Lead;
use super::notify;
use super::parts::Writing;
use super::queries::ShellFacts;
use super::secrets::Secrets;
use super::server::request::Answerer;
use super::server::{BUILD, Server};
use super::{facts, parts, retention, stream};
use crate::store::seal::FleetKey;
use crate::store::{Bucket, Store, StoreConfig};
use manager_installation::Layout;
use manager_installation::ledger;
use manager_installation::lock::Lock;
use manager_installation::nats::keys;

/// Within which what was decided must be written when the daemon ends.
const FLUSH_LIMIT: Duration = Duration::from_secs(3);
/// Within which the last answers must have left.
const FAREWELL_LIMIT: Duration = Duration::from_secs(2);
/// Within which the hosts' reports must have been read at the start.
const SNAPSHOT_LIMIT: Duration = Duration::from_secs(30);
/// How long the first heartbeat of any host is waited for: a little over its period.
const FIRST_HOST_LIMIT: Duration = Duration::from_secs(5);
/// Orders that wait to be signed and sent.
const ORDERS_WAITING: usize = 8_192;
const ASKS_WAITING: usize = 4_096;

/// How the daemon is run.
#[derive(Clone, Debug)]
pub struct Options {
    pub layout: Layout,
    /// The command that starts the supervisor, which is brought back when it is gone; `None` where something else,
    /// such as systemd, does that.
    pub supervise: Option<Vec<OsString>>,
    /// Agents that may be live on one host at once.
    pub host_cap: Option<u32>,
    /// Tasks with a label that may be live at once.
    pub label_caps: BTreeMap<String, u32>,
    /// How long a blob that nothing names stays in any case: a client brings it before it names it.
    pub blob_grace_ms: u64,
}

/// Runs the manager until `shutdown` resolves, then ends in good order.
///
/// # Errors
/// Why it could not be started, or that a part of it failed.
pub async fn run(options: Options, shutdown: impl Future<Output = ()>) -> Result<(), DaemonError> {
    let layout = &options.layout;
    layout.ensure_folders()?;
    let _lock = Lock::try_take(&layout.lock("manager"))?;
    let clock = Clock::system();
    let order_key = keys::read_order_signing(layout)?;
    let fleet_key = Arc::new(FleetKey::ensure(&layout.fleet_key())?);
    let config = StoreConfig::of_layout(layout)?;
    let region: Region = config.region.parse().map_err(|_| DaemonError::Region(config.region.clone()))?;

    // Tasks of the store outlive all others: what ends last still writes.
    let mut store_tasks = JoinSet::new();
    let store = Store::open(&config, &mut store_tasks).await?;
    let mut reports = store.watch(Bucket::Agents, &mut store_tasks);
    let mut began = Began::look(&store).await?;
    let records = parts::load_records(&store).await?;
    let sealed = Sealed::default();
    let secrets = store.load(Bucket::Secrets).await?;
    sealed.note(secrets.into_iter().map(|entry| (entry.key, Some(entry.value))));
    let snapshot = tokio::time::timeout(SNAPSHOT_LIMIT, inbound::snapshot(&mut reports)).await;
    let snapshot = snapshot.ok().flatten().ok_or(DaemonError::Reports)?;
    let bus = Bus::new(store.client().clone(), order_key);
    let mut heartbeats = bus.heartbeats().await?;
    // Who asks first shall not be told that no host is heard when one just has not had its turn to speak. What it says
    // of the lead counts: a bus that was wiped has forgotten it.
    let first = tokio::time::timeout(FIRST_HOST_LIMIT, inbound::next_heartbeat(&mut heartbeats)).await;
    let first = first.ok().flatten();
    let heard = first.as_ref().map(|heartbeat| heartbeat.fencing).unwrap_or_default();
    let heard = snapshot.fencing.max(heard);
    began.compare(layout, &records, store.stored_lead().await?, heard);
    let fencing = store.acquire_lead(heard).await?;

    let mut core_config = Config::new(fencing);
    core_config.host_cap = options.host_cap;
    core_config.label_caps.clone_from(&options.label_caps);
    let (record_count, report_count) = (records.len(), snapshot.reports.len());
    let (core, aside) = Core::load(core_config, records, clock.now());
    let set_aside = aside.iter().map(|bad| (bad.bucket, bad.key.clone())).collect();
    for bad in aside {
        tracing::error!(bucket = bad.bucket, key = bad.key, reason = bad.reason, "a record is set aside");
    }
    // Before anyone is served, so that nobody sees an agent without what its host has reported of it.
    let mut early: std::collections::VecDeque<Input> =
        snapshot.reports.into_iter().map(|report| Input::Report(Box::new(report))).collect();

    early.extend(first.map(|heartbeat| Input::Heartbeat(Box::new(heartbeat))));
    let (batches, batches_in) = mpsc::channel(1);
    let (acknowledge, acknowledged) = mpsc::channel(1);
    let (orders, orders_in) = mpsc::channel(ORDERS_WAITING);
    let (asks, asks_in) = mpsc::channel(ASKS_WAITING);
    let (dated_facts, facts_in) = mpsc::channel(facts::FACTS_WAITING);
    let surroundings = parts::System { clock: clock.clone(), key: Arc::clone(&fleet_key) };
    let losses = dated_facts.clone();
    let outlets = Outlets { orders, asks, facts: dated_facts };
    let ends = WriterEnds { batches, acknowledged };
    let (driver, turning) = driver::new(core, surroundings, ends, outlets, early);

    let hosts = Hosts {
        bus: bus.clone(),
        driver: driver.clone(),
        clock: clock.clone(),
        lead: Lead::new(store.clone(), fencing),
        region: region.clone(),
    };
    let blobs = Blobs::open(store.clone(), clock.clone(), options.blob_grace_ms, &layout.manager());
    let blobs = Arc::new(blobs.map_err(DaemonError::Spool)?);
    let secrets = Secrets::new(store.clone(), fleet_key);
    let logs = LogTails { hosts: hosts.clone(), blobs: Arc::clone(&blobs) };
    let (stop, stopped) = watch::channel(false);

    let mut tasks: JoinSet<()> = JoinSet::new();
    tasks.spawn(writer::run(
        Writing { store: store.clone(), sealed: sealed.clone() },
        batches_in,
        acknowledge,
    ));
    let guard = Guard {
        store: store.clone(),
        driver: driver.clone(),
        lead: hosts.lead.clone(),
        sealed,
        facts: losses,
        clock: clock.clone(),
        layout: layout.clone(),
        aside: set_aside,
        began,
    };
    tasks.spawn(guard.keep(stopped.clone()));
    tasks.spawn(hosts::send_orders(hosts.clone(), orders_in));
    tasks.spawn(hosts::carry_out_asks(hosts.clone(), logs, asks_in));
    tasks.spawn(facts::append_facts(store.clone(), region, clock.clone(), facts_in));
    tasks.spawn(inbound::watch_reports(driver.clone(), reports));
    tasks.spawn(inbound::take_heartbeats(driver.clone(), heartbeats));
    let (keeper, hooks) = notify::new(notify::Surroundings {
        hosts: hosts.clone(),
        store: store.clone(),
        secrets: secrets.clone(),
        folder: ledger::folder(layout),
    });
    tasks.spawn(keeper.keep(stopped.clone()));
    tasks.spawn(retention::keep(driver.clone(), Arc::clone(&blobs), clock.clone(), stopped.clone()));
    let rpc = Rpc { hosts: hosts.clone(), blobs: Arc::clone(&blobs), secrets: secrets.clone() };
    tasks.spawn(rpc.serve(bus.host_requests().await?, stopped.clone()));
    if let Some(command) = options.supervise.clone() {
        tasks.spawn(parts::keep_supervisor(layout.clone(), command, stopped.clone()));
    }
    let facts = Arc::new(ShellFacts { build: BUILD.to_owned(), started_at: clock.now() });
    let (ends, ends_in) = stream::exec::ends();
    tasks.spawn(stream::exec::end_all(hosts.clone(), ends_in));
    let answerer = Answerer { hosts, store: store.clone(), blobs, facts, ends, hooks, secrets };
    let server = Server::listen(&layout.manager_socket())?;
    tracing::info!(fencing = fencing.0, records = record_count, reports = report_count, "manager ready");

    let life = Life { tasks, stop, stopped, driver };
    let result = life.live(turning, server, answerer, shutdown).await;
    store_tasks.shutdown().await;
    result
}

/// The running parts.
struct Life {
    tasks: JoinSet<()>,
    stop: watch::Sender<bool>,
    stopped: watch::Receiver<bool>,
    driver: Driver,
}

impl Life {
    async fn live<S: driver::Surroundings>(
        mut self,
        turning: driver::Loop<S>,
        server: Server,
        answerer: Answerer,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), DaemonError> {
        let (end_sessions, sessions_end) = watch::channel(false);
        let mut turning_task = JoinSet::new();
        turning_task.spawn(turning.run(self.stopped.clone(), FLUSH_LIMIT));
        let mut serving = JoinSet::new();
        serving.spawn(server.run(answerer, self.stopped.clone(), sessions_end));
        drop(self.driver);
        let ended = tokio::select! {
            () = shutdown => Ok(()),
            // Each of them goes on until it is told to stop: one that does not has failed.
            Some(ended) = self.tasks.join_next() => Err(ended.err()),
            Some(ended) = turning_task.join_next() => Err(ended.err()),
        };
        if let Err(error) = &ended {
            let error =
                error.as_ref().map_or_else(|| "it returned".to_owned(), |error| protocol::chain(error));
            tracing::error!(error, "a part of the manager ended by itself");
        }
        tracing::info!("manager stopping");
        let _ = self.stop.send(true);
        let unwritten = match turning_task.join_next().await {
            Some(Ok(unwritten)) => unwritten,
            Some(Err(_)) | None => 0,
        };
        let _ = end_sessions.send(true);
        let farewell = async { while serving.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(FAREWELL_LIMIT, farewell).await;
        serving.shutdown().await;
        self.tasks.shutdown().await;
        if unwritten > 0 {
            return Err(DaemonError::Unwritten(unwritten));
        }
        tracing::info!("manager stopped");
        ended.map_err(|_| DaemonError::Part)
    }
}
