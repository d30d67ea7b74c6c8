//! Puts hostd together from its configuration, and takes it apart in order.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use hostd_core::{Config, Core, Found, Input};
use protocol::event::Fact;
use protocol::host_config::{HOST_CONFIG_VERSION, HostConfig};
use protocol::ids::{AgentId, HostId, Region};
use protocol::report::HostFacts;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::bus::{self, Events, Heart, Inbox, Reports, Requests, Shipper};
use crate::containment::Containment;
use crate::driver::{Done, Driver, Hearing, OnMachine};
use crate::machine::{Machine, inherited_environment, keep_shim};
use crate::screen::Watcher;
use crate::state::{AgentFolders, Life, LifeLock, Loaded};
use crate::supervisor;
use crate::sys::cgroup::Cgroups;
use crate::sys::facts::{FactsReader, boot_id};
use crate::sys::tmux::{Settings, Tmux};
use crate::workspace::{Options, Workspaces};
use crate::{BUILD, agents, asks, clock, house};

/// Outcomes of jobs that wait for the driver; a job waits when it is full.
const INPUTS: usize = 1024;
/// For what is said last.
const FAREWELL: Duration = Duration::from_secs(3);

/// Reads and checks the configuration.
///
/// # Errors
/// A file that cannot be read, is none, or is of a newer version.
pub fn read_config(path: &Path) -> anyhow::Result<HostConfig> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let config: HostConfig = serde_json::from_slice(&bytes)
        .with_context(|| format!("{} is not a host's configuration", path.display()))?;
    anyhow::ensure!(
        config.version <= HOST_CONFIG_VERSION,
        "{} has version {}, this hostd knows {HOST_CONFIG_VERSION}: install the newer one",
        path.display(),
        config.version
    );
    Ok(config)
}

/// Looks after this host's agents until `stop` says so. Ends no agent.
///
/// # Errors
/// What keeps it from starting: another hostd, a folder that cannot be written, a configuration that makes no sense.
pub async fn run(config: HostConfig, stop: watch::Receiver<bool>) -> anyhow::Result<()> {
    let _lock = LifeLock::take(&config.lock)?;
    let region: Region = config.region.parse().context("region in the configuration")?;
    let host: HostId = config.host.parse().context("host in the configuration")?;
    std::fs::create_dir_all(&config.state).with_context(|| format!("{}", config.state.display()))?;
    let life = Life::begin(&config.state, clock::now().0)?;
    let folders = AgentFolders::open(&config.state)?;
    let loaded = folders.load()?;
    let bus = bus::connect(&config.bus, region.clone(), host.clone()).await?;
    let inbox = Inbox::open(&bus, &config.bus.order_key).await?;
    let (reports, report_task) = Reports::new(bus.clone());
    let epoch = asks::random_hex().context("no randomness")?;
    let (events, event_task) = Events::open(bus.clone(), &config.state, &epoch)?;
    let (shipper, shipper_task) = Shipper::new(bus.clone());
    let (signs, watcher) = Watcher::new();
    let (inputs_in, inputs) = mpsc::channel(INPUTS);
    let instance = instance_of(&config.state);
    let cgroups = tokio::task::spawn_blocking(move || Cgroups::detect(&instance)).await?;
    let (groups, state) = (cgroups.clone(), config.state.clone());
    tokio::task::spawn_blocking(move || agents::end_left_over(&groups, &state)).await?;
    let shim = keep_shim(&config.home.join("bin")).context("cannot keep the shim")?;
    let containment = Containment::open(&config, &shim).await;
    let workspaces = Workspaces::new(&config.state, Options::default()).await?;
    let tmux = open_tmux(&config, &cgroups, &shim).await;
    let machine = Arc::new(Machine {
        bus: bus.clone(),
        folders,
        workspaces,
        cgroups,
        containment,
        tmux,
        shim,
        requests: Requests::new(bus.clone()),
        shipper,
        signs,
        boot_id: boot_id().context("the kernel gives no boot id")?,
        incarnation: life.incarnation(),
        environment: inherited_environment(),
        waiters: agents::Waiters::default(),
        starts: Machine::start_permits(),
        ends: Machine::end_permits(),
        execs: Machine::exec_permits(),
        renders: Machine::render_permits(),
        talks: asks::Talks::default(),
        programs: asks::Programs::default(),
        sizes: crate::house::Sizes::default(),
        uploads: asks::Uploads::default(),
        inputs: inputs_in,
        config,
    });
    let disk_share_max_percent = percent(machine.config.disk_share_max);
    let (fencing, fencing_seen) = watch::channel(life.fencing());
    let (disk_in, disk_used) = watch::channel(0);
    let (digest_in, digests) = mpsc::channel(1);
    let heart = Heart {
        bus: bus.clone(),
        incarnation: life.incarnation(),
        fencing: fencing_seen,
        build: BUILD.to_owned(),
        disk: machine.config.state.clone(),
        fixed: fixed_facts(&machine, disk_share_max_percent, &loaded),
        digest: digest_in,
        disk_used: disk_in,
    };
    let core = Core::new(Config {
        region,
        host,
        incarnation: life.incarnation(),
        fencing: life.fencing(),
        disk_share_max_percent,
    });
    let started = Fact::HostStarted { incarnation: life.incarnation().0 };
    events.note(clock::now(), None, machine.config.host.clone(), started);
    let (sink, host) = (events.clone(), machine.config.host.clone());
    machine.workspaces.on_damage(move |damage| {
        let fact = Fact::BaseReplaced {
            repo: damage.repository.display().to_string(),
            commit: damage.commit.clone(),
            changed: damage.changed.clone(),
        };
        sink.note(clock::now(), None, host.clone(), fact);
    });
    let mut driver = Driver {
        core,
        life,
        hands: OnMachine { machine: machine.clone(), reports, events },
        ears: inbox,
        inputs,
        digests,
        fencing,
        disk_used,
        adopting: BTreeSet::new(),
        jobs: JoinSet::<Done>::new(),
        lanes: BTreeMap::new(),
        texts: BTreeMap::new(),
        reported: BTreeMap::new(),
        asks_under_way: 0,
        unsaved_fencing: None,
    };
    let mut tasks = JoinSet::new();
    tasks.spawn(shipper_task.run());
    tasks.spawn(watcher.run(machine.inputs.clone()));
    alone("heart", heart.run())?;
    tasks.spawn(supervisor::keep(machine.config.supervisor.clone()));
    tasks.spawn(house::keep(machine.clone()));
    let mut farewell = JoinSet::new();
    farewell.spawn(report_task.run());
    let events_told = alone("events", event_task.run())?;
    farewell.spawn(async move {
        let _ = events_told.await;
    });
    adopt(&mut driver, loaded);
    tracing::info!(host = %machine.config.host, incarnation = %driver.core.incarnation(), "hostd looks after this host");
    driver.run(stop).await;
    let agents = driver.core.agents();
    let ended: Vec<AgentId> =
        agents.iter().filter(|(_, agent)| !agent.stage.is_live()).map(|(id, _)| *id).collect();
    // An agent whose state is not told yet may live.
    let others = if driver.adopting.is_empty() && ended.len() == agents.len() {
        house::Others::None
    } else {
        house::Others::Live
    };
    // Jobs are cut off where they are: the next life finishes them. What was decided is still told.
    drop(driver);
    tasks.abort_all();
    let _ = tokio::time::timeout(FAREWELL, async { while farewell.join_next().await.is_some() {} }).await;
    bus.flush(Duration::from_secs(1)).await;
    house::leave(&machine, ended, others).await;
    Ok(())
}

/// Runs `work` on a thread of its own, so that nothing else delays it and it delays nothing else: the heartbeat must
/// not wait for a disk, and the event spool waits for one all the time. The receiver resolves when it is done.
fn alone(
    name: &str,
    work: impl Future<Output = ()> + Send + 'static,
) -> anyhow::Result<tokio::sync::oneshot::Receiver<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (done, told) = tokio::sync::oneshot::channel();
    std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        runtime.block_on(work);
        let _ = done.send(());
    })?;
    Ok(told)
}

fn adopt<E: Hearing>(driver: &mut Driver<OnMachine, E>, loaded: Loaded) {
    for record in loaded.archived {
        driver.take(Input::Found { record: Box::new(record), found: Found::Archived });
    }
    driver.adopting.extend(loaded.present.iter().map(|record| record.agent));
    for record in loaded.present {
        let machine = driver.hands.machine.clone();
        driver.jobs.spawn(async move {
            agents::adopt(machine, record).await;
            Done::Nothing
        });
    }
    for quarantined in loaded.quarantined {
        let (folder, error) = (quarantined.folder.display(), protocol::chain(&quarantined.error));
        tracing::error!(%folder, error, "the record of an agent is unreadable: kept as it is, not acted on");
    }
}

async fn open_tmux(config: &HostConfig, cgroups: &Cgroups, shim: &Path) -> Result<Tmux, String> {
    let settings = Settings {
        dir: config.state.join("tmux"),
        shim: shim.to_owned(),
        procs: cgroups.viewers().unwrap_or_default(),
        program: "tmux".into(),
    };
    Tmux::open(settings).await.map_err(|error| {
        tracing::warn!(%error, "agents get no session for people");
        protocol::chain(&error)
    })
}

fn fixed_facts(machine: &Machine, disk_share_max_percent: u64, loaded: &Loaded) -> HostFacts {
    let identity = FactsReader::new().identity();
    let mut degraded = machine.lacks();
    if !loaded.quarantined.is_empty() {
        degraded.push(format!("{} agent records are unreadable", loaded.quarantined.len()));
    }
    let cgroups = machine.cgroups.describe();
    let cannot_freeze = (!cgroups.freeze).then(|| {
        let why = cgroups.reason.unwrap_or_else(|| "there is no freezer".to_owned());
        format!("{why}; run hostd where cgroups can be made (as root, or in a unit with Delegate=yes)")
    });
    HostFacts {
        cannot_freeze,
        user: agents::agent_user(None).map(|user| user.name).unwrap_or_default(),
        cannot_change_user: machine.containment.cannot_change_user(),
        cpus: identity.cores.and_then(|cores| u32::try_from(cores).ok()).unwrap_or(1),
        memory_total_bytes: identity.memory_total_bytes.unwrap_or(0),
        boot_id: machine.boot_id.clone(),
        cgroups: format!("{:?}", machine.cgroups.kind()).to_lowercase(),
        overlay: machine.workspaces.facts().overlay.is_ok(),
        disk_share_max_percent,
        degraded,
        ..HostFacts::default()
    }
}

/// Two installations on one machine must not share cgroups: the state folder tells them apart.
#[must_use]
pub fn instance_of(state: &Path) -> String {
    use sha2::{Digest, Sha256};
    let path = state.canonicalize().unwrap_or_else(|_| state.to_owned());
    let digest = data_encoding::HEXLOWER.encode(&Sha256::digest(path.as_os_str().as_encoded_bytes()));
    digest.get(..12).unwrap_or(&digest).to_owned()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 0..=100")]
fn percent(share: f64) -> u64 {
    (share * 100.0).round().clamp(0.0, 100.0) as u64
}
