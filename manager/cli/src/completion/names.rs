//! Names as they are now. What cannot be asked is empty: nothing is started for a completion, and nothing said.

use std::sync::mpsc::sync_channel;
use std::time::Duration;

use protocol::api::{Action, AnyRequest, Query, Reply};
use protocol::notify::NoticeKind;
use protocol::row::{AgentRow, RowFilter};
use protocol::snapshot::{SnapshotCall, SnapshotWish};
use protocol::task::{RunView, TaskState};

use super::super::client::Client;
use super::super::explain::schema;
use super::kinds::Kind;
use crate::context::files;
use manager_installation::layout::Layout;
use manager_plan::config::Settings;
use manager_plan::config::key::KEYS;
use manager_plan::config::layer::environment;
use manager_plan::notify::hook::SEPARATOR;

/// For one answer of the manager: a person waits with his finger on the key.
pub(super) const LIMIT: Duration = Duration::from_millis(100);

pub(super) struct Names {
    home: Option<Layout>,
    /// Words of the command that are no options, before the one at the cursor.
    before: Vec<String>,
}

impl Names {
    pub(super) fn new(home: Option<Layout>, words: &[String]) -> Self {
        let typed = words.split_last().map(|(_, before)| before).unwrap_or_default();
        let mut before: Vec<String> =
            typed.iter().skip(1).filter(|word| !word.starts_with('-')).cloned().collect();
        if let Some(home) = &home {
            // The value of an option of all commands is no word of this one.
            before.retain(|word| std::path::Path::new(word) != home.home());
        }
        Self { home, before }
    }

    /// Those that may be meant by what was typed so far.
    pub(super) fn of(&self, kind: Kind, begun: &str) -> Vec<String> {
        match kind {
            Kind::Agent => self.agents().into_iter().map(|row| row.name).collect(),
            // What is in a workspace is its host's to tell, and slow.
            Kind::Place if begun.contains(':') => Vec::new(),
            Kind::Place => self.agents().into_iter().map(|row| format!("{}:", row.name)).collect(),
            Kind::Host => self.hosts(),
            Kind::Run => self.runs().into_iter().map(|run| run.spec.name.to_string()).collect(),
            Kind::Task => match begun.rsplit_once('/') {
                Some((run, _)) => self.tasks(run).into_iter().map(|task| format!("{run}/{task}")).collect(),
                None => self.tasks_of_latest(),
            },
            // After the command's own word.
            Kind::TaskOfRun => self.before.get(1).map(|run| self.tasks(run)).unwrap_or_default(),
            Kind::Profile => {
                let settings = Settings::read(&files(), &environment()).unwrap_or_default();
                settings.named_profiles().keys().cloned().collect()
            }
            Kind::Setting => KEYS.iter().map(|key| key.name.to_owned()).collect(),
            Kind::Hook => self.hooks(begun),
            Kind::Schema => self.schemas(),
            // `snapshot restore AGENT`.
            Kind::Snapshot => self.before.get(2).map(|agent| self.snapshots(agent)).unwrap_or_default(),
            Kind::Awaited => awaited(),
            Kind::Path => Vec::new(),
        }
    }

    fn ask(&self, request: impl AnyRequest + Send + 'static) -> Option<Reply> {
        let socket = self.home.as_ref()?.manager_socket();
        let (sender, receiver) = sync_channel(1);
        // Not waited for beyond the limit: it goes with this process.
        let asking = move || Client::open(&socket).ok()?.ask(&request).ok();
        let asking = std::thread::Builder::new().spawn(move || drop(sender.send(asking())));
        asking.ok().and_then(|_| receiver.recv_timeout(LIMIT).ok()).flatten()
    }

    fn agents(&self) -> Vec<AgentRow> {
        match self.ask(Query::ListRows(RowFilter::default())) {
            Some(Reply::Rows { rows, .. }) => rows,
            _ => Vec::new(),
        }
    }

    fn hosts(&self) -> Vec<String> {
        match self.ask(Query::Hosts) {
            Some(Reply::Hosts(hosts)) => hosts.into_iter().map(|view| view.host.to_string()).collect(),
            _ => Vec::new(),
        }
    }

    /// After the name, one more of what it is told of.
    fn hooks(&self, begun: &str) -> Vec<String> {
        let Some((name, kinds)) = begun.split_once(SEPARATOR) else {
            let Some(Reply::Hooks(view)) = self.ask(Query::Hooks) else { return Vec::new() };
            return view.hooks.into_iter().filter_map(|hook| Some(hook.name?.to_string())).collect();
        };
        let before = kinds.rsplit_once(',').map_or("", |(before, _)| before);
        let given: Vec<&str> = before.split(',').collect();
        let comma = if before.is_empty() { "" } else { "," };
        let more = NoticeKind::ALL.iter().map(|kind| kind.as_str()).filter(|kind| !given.contains(kind));
        more.map(|kind| format!("{name}{SEPARATOR}{before}{comma}{kind}")).collect()
    }

    /// The latest first.
    fn runs(&self) -> Vec<RunView> {
        let mut runs = match self.ask(Query::ListRuns) {
            Some(Reply::Runs(runs)) => runs,
            _ => Vec::new(),
        };
        runs.sort_by_key(|run| (std::cmp::Reverse(run.submitted_at), run.id));
        runs
    }

    fn tasks(&self, run: &str) -> Vec<String> {
        match self.ask(Query::ShowRun { run: run.to_owned() }) {
            Some(Reply::Run { tasks, .. }) => {
                tasks.into_iter().map(|task| task.spec.name.to_string()).collect()
            }
            _ => Vec::new(),
        }
    }

    /// And the names of all runs, each with the `/` before its tasks.
    fn tasks_of_latest(&self) -> Vec<String> {
        let runs = self.runs();
        let mut found = runs.first().map(|run| self.tasks(&run.id.to_string())).unwrap_or_default();
        found.extend(runs.iter().map(|run| format!("{}/", run.spec.name)));
        found
    }

    /// The next word of one: `snapshot`, then `create`.
    fn schemas(&self) -> Vec<String> {
        let given: Vec<&str> = self.before.iter().skip(1).map(String::as_str).collect();
        let mut found: Vec<String> = schema::names()
            .filter_map(|name| {
                let words: Vec<&str> = name.split(' ').collect();
                words.strip_prefix(given.as_slice())?.first().map(|word| (*word).to_owned())
            })
            .collect();
        found.dedup();
        found
    }

    fn snapshots(&self, agent: &str) -> Vec<String> {
        let wish = SnapshotWish { target: agent.to_owned(), call: SnapshotCall::List };
        match self.ask(Action::Snapshot(wish)) {
            Some(Reply::Snapshots(all)) => {
                all.into_iter().map(|snapshot| snapshot.number.to_string()).collect()
            }
            _ => Vec::new(),
        }
    }
}

fn awaited() -> Vec<String> {
    let own = ["started", "ended", "destroyed", "accepted"].into_iter().map(str::to_owned);
    let phases = protocol::agent::Phase::ALL.iter().map(|phase| phase.as_str().to_owned());
    let states = TaskState::ALL.iter().map(|state| state.as_str().to_owned());
    let mut all: Vec<String> = own.chain(phases).chain(states).collect();
    all.dedup();
    all
}
