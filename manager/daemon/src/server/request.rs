//! One request of one client: whether it may, who answers it, and how long it may take. Every path ends in an answer.

use std::sync::Arc;
use std::time::Duration;

use protocol::api::{Action, Mutation, Query, Reply, Request};
use protocol::error::{ErrorCode, WireError};
use protocol::ids::AgentId;
use protocol::order::{Answer, Question};
use protocol::snapshot::SnapshotWish;
use protocol::view::AgentView;

use super::peer::Peer;
use super::session::{Items, Requests};
use crate::blobs::Blobs;
use crate::hosts::{GIT, Hosts};
use crate::notify::Hooks;
use crate::queries::{self, ShellFacts};
use crate::secrets::Secrets;
use crate::store::Store;
use crate::stream;

/// Within which a change must be durable.
const CHANGE_LIMIT: Duration = Duration::from_secs(10);
/// The core itself waits this long for a host's word on a `destroy`; then it answers.
const DESTROY_LIMIT: Duration = Duration::from_secs(40);
/// More for each task of a submission: every one is a record.
const PER_TASK: Duration = Duration::from_millis(2);

/// More for each message: every one is a record with a text.
const PER_TEXT: Duration = Duration::from_millis(50);

/// Answers requests of clients; cheap to clone.
#[derive(Clone)]
pub struct Answerer {
    pub hosts: Hosts,
    pub store: Store,
    pub blobs: Arc<Blobs>,
    pub facts: Arc<ShellFacts>,
    pub ends: stream::exec::Ends,
    pub hooks: Hooks,
    pub secrets: Secrets,
}

impl Requests for Answerer {
    async fn answer(&self, peer: Peer, request: Request, items: Items) -> Result<Reply, WireError> {
        match who_may(&request) {
            Asks::Everybody => {}
            Asks::Itself(own) => self.refuse_agents(peer, Some(own)).await?,
            Asks::Operators => self.refuse_agents(peer, None).await?,
        }
        match request {
            Request::Mutation(mutation) => {
                if let Mutation::SubmitRun(submit) = &mutation {
                    self.hooks.check(submit).await?;
                }
                self.change(mutation).await
            }
            Request::Action(action) => self.act(action, items).await,
            Request::Query(query) => self.look(query, items).await,
        }
    }
}

impl Answerer {
    /// What is carried out at once and leaves no record.
    async fn act(&self, action: Action, items: Items) -> Result<Reply, WireError> {
        let driver = &self.hosts.driver;
        match action {
            Action::Exec { target, program, environment, stdin } => {
                stream::exec::exec(self.hosts.clone(), target, program, environment, stdin, items).await
            }
            Action::ExecOpen(open) => {
                stream::exec::open(self.hosts.clone(), self.ends.clone(), open, items).await
            }
            Action::ExecInput { to, input } => stream::exec::input(&self.hosts, to, input).await,
            Action::Snapshot(SnapshotWish { target, call }) => {
                crate::hosts::snapshot::snapshot(self.hosts.clone(), target, call).await
            }
            Action::PutFile { target, write } => stream::files::put(&self.hosts, target, write).await,
            Action::MakeNode { target, path, node } => {
                stream::files::make(&self.hosts, target, path, node).await
            }
            Action::FreeBlobs { items, older_ms } => {
                Ok(Reply::Freed(self.blobs.free(driver, items, older_ms).await?))
            }
            Action::Free { host, items, older_ms, discard } => {
                stream::house::free(&self.hosts, host, items, older_ms, discard).await
            }
            Action::PutBlob { sha256, offset, bytes, last } => {
                self.blobs.put_piece(&sha256, offset, &bytes, last).await?;
                Ok(if last { Reply::Stored } else { Reply::Done })
            }
        }
    }

    /// What changes nothing.
    async fn look(&self, query: Query, items: Items) -> Result<Reply, WireError> {
        let driver = &self.hosts.driver;
        match query {
            Query::Status => {
                let facts = Arc::clone(&self.facts);
                let connected = self.hosts.bus.is_connected();
                Ok(Reply::Status(Box::new(
                    driver.glance(move |glance| queries::status(glance, &facts, connected)).await?,
                )))
            }
            Query::Hooks => Ok(Reply::Hooks(Box::new(self.hooks.views().await?))),
            Query::Hosts => Ok(Reply::Hosts(driver.glance(queries::hosts).await?)),
            Query::ListAgents(filter) => driver.glance(move |glance| queries::list(glance, &filter)).await?,
            Query::ListRows(filter) => driver.glance(move |glance| queries::rows(glance, &filter)).await?,
            Query::Top(wish) => stream::rows::top::top(self.hosts.clone(), wish, items).await,
            Query::WatchRows(wish) => stream::rows::watch::watch(driver.clone(), wish, items).await,
            Query::ShowAgents { targets } => {
                driver.glance(move |glance| queries::show(glance, &targets)).await?
            }
            Query::ListRuns => Ok(Reply::Runs(driver.glance(queries::runs).await?)),
            Query::ShowRun { run } => driver.glance(move |glance| queries::show_run(glance, &run)).await?,
            Query::Why { target } => driver.glance(move |glance| queries::why(glance, &target)).await?,
            Query::ListMessages { targets, messages } => {
                driver.glance(move |glance| queries::messages(glance, &targets, &messages)).await?
            }
            Query::WaitMessages { messages, until } => {
                stream::messages::wait(driver.clone(), messages, until, items).await
            }
            Query::WaitAgents { targets, until } => {
                stream::wait::wait(driver.clone(), targets, until, items).await
            }
            Query::FollowRun { run } => stream::follow::follow_run(driver.clone(), run, items).await,
            Query::Logs { target, from, follow, redact } => {
                let secrets = redact.then(|| self.secrets.clone());
                stream::logs::logs(self.hosts.clone(), target, (from, follow), secrets, items).await
            }
            Query::ShowTask { task } => driver.glance(move |glance| queries::task(glance, &task)).await?,
            Query::FollowMerge { run } => stream::follow::follow_merge(driver.clone(), run, items).await,
            Query::Compare { target, attempt, form } => {
                stream::compare::compare(self.hosts.clone(), target, attempt, form, items).await
            }
            Query::Events { since, follow, targets, after } => {
                let (hosts, store) = (self.hosts.clone(), self.store.clone());
                stream::events::events(hosts, store, (since, targets, after), follow, items).await
            }
            Query::Capture { target, history, colours } => {
                stream::capture::capture(self.hosts.clone(), target, history, colours).await
            }
            Query::ListFiles { target, area, path, after } => {
                stream::files::list(&self.hosts, target, (area, path), after).await
            }
            Query::GetFile { target, area, path, changing } => {
                stream::files::get(&self.hosts, target, (area, path), changing, items).await
            }
            Query::Survey { targets, deep, added, blobs } => {
                let looks = stream::house::Looks { deep, added };
                let own = stream::house::Own { store: &self.store, blobs: blobs.then_some(&*self.blobs) };
                stream::house::survey(&self.hosts, own, targets, looks, items).await
            }
            Query::ResolveRepo { repo, base } => self.resolve(repo, base).await,
        }
    }

    /// A change goes on when its client's time is up: the same key gives its answer later.
    async fn change(&self, request: Mutation) -> Result<Reply, WireError> {
        let limit = match &request {
            Mutation::DestroyAgents { .. } => DESTROY_LIMIT,
            Mutation::AddTasks(add) => {
                CHANGE_LIMIT + PER_TASK * u32::try_from(add.tasks.len()).unwrap_or(u32::MAX)
            }
            Mutation::SubmitRun(submit) => {
                CHANGE_LIMIT + PER_TASK * u32::try_from(submit.tasks.len()).unwrap_or(u32::MAX)
            }
            Mutation::SendMessage { targets, .. } => {
                CHANGE_LIMIT + PER_TEXT * u32::try_from(targets.len()).unwrap_or(u32::MAX)
            }
            _ => CHANGE_LIMIT,
        };
        let changed = async {
            let driver = &self.hosts.driver;
            let _named = self.blobs.named_by(&request, driver).await?;
            driver.change(request).await
        };
        tokio::time::timeout(limit, changed).await.unwrap_or_else(|_| {
            Err(WireError::new(
                ErrorCode::Unavailable,
                "the bus did not take it in time; it may still come about",
            )
            .hint("ask again with the same --key: it then gives the one answer"))
        })
    }

    /// On one machine there is one host; where there are more, repositories are known by their place on each.
    async fn resolve(&self, repo: String, base: Option<String>) -> Result<Reply, WireError> {
        let host = self.hosts.driver.glance(queries::any_host).await?.ok_or_else(|| {
            WireError::new(ErrorCode::Unavailable, "no host was heard yet").hint("see `phalanx status`")
        })?;
        match self.hosts.ask_once(&host, Question::Resolve { repo, base }, GIT).await? {
            Answer::Resolved(base) => Ok(Reply::Resolved(base)),
            _ => Err(WireError::new(ErrorCode::Failed, "the host gave another answer than a commit")),
        }
    }

    /// Agents act as agents, not as the operator. Only those of this installation are meant: an agent that builds a
    /// Phalanx of its own is the operator of that one.
    async fn refuse_agents(&self, peer: Peer, own: Option<&str>) -> Result<(), WireError> {
        let agent: AgentId = match peer {
            Peer::Operator => return Ok(()),
            Peer::Unknown => {
                return Err(WireError::new(ErrorCode::Denied, "the caller cannot be told from an agent"));
            }
            Peer::Agent(agent) => agent,
        };
        let ours = self.hosts.driver.glance(move |glance| queries::agent(glance, agent)).await?;
        match ours {
            None => Ok(()),
            Some(found) if own.is_some_and(|own| is_name_of(own, &found.view)) => Ok(()),
            Some(found) => Err(WireError::new(
                ErrorCode::Denied,
                format!(
                    "this is agent {}: agents may look at phases and at their own output, and change nothing",
                    found.view.name
                ),
            )
            .hint("run it outside of the agent")),
        }
    }
}

/// An agent names itself by its id or its name; any other way to a target may lead to another agent.
fn is_name_of(target: &str, agent: &AgentView) -> bool {
    target == agent.id.to_string() || target == agent.name
}

/// Who may ask for something.
enum Asks<'a> {
    Everybody,
    /// The operator, and the agent that is named so.
    Itself(&'a str),
    Operators,
}

/// What agents may ask for is listed, all else is for operators: changes, and what another agent has printed, shows,
/// or has in its files. Every query is named, so that nobody adds one without deciding whether agents may.
fn who_may(request: &Request) -> Asks<'_> {
    match request {
        Request::Mutation(_) | Request::Action(_) => Asks::Operators,
        Request::Query(query) => match query {
            Query::Logs { target, .. } | Query::Capture { target, .. } => Asks::Itself(target),
            Query::ListFiles { .. }
            | Query::GetFile { .. }
            | Query::Compare { .. }
            | Query::Survey { .. }
            | Query::ListMessages { .. }
            | Query::WaitMessages { .. } => Asks::Operators,
            Query::Status
            | Query::Hooks
            | Query::Hosts
            | Query::ListAgents(_)
            | Query::ListRows(_)
            | Query::Top(_)
            | Query::WatchRows(_)
            | Query::ShowAgents { .. }
            | Query::ListRuns
            | Query::ShowRun { .. }
            | Query::Why { .. }
            | Query::WaitAgents { .. }
            | Query::FollowRun { .. }
            | Query::ShowTask { .. }
            | Query::FollowMerge { .. }
            | Query::Events { .. }
            | Query::ResolveRepo { .. } => Asks::Everybody,
        },
    }
}
