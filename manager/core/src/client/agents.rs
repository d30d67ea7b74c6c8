//! `create`, `stop` and `destroy`: what an operator wants of agents.

use protocol::agent::{Environment, Role};
use protocol::api::{CreateAgent, Outcome, Reachability, Reply, Target};
use protocol::error::{ErrorCode, WireError};
use protocol::ids::{AgentId, HostId, Region};
use protocol::order::Discard;
use protocol::report::{HostFacts, Report};
use protocol::task::Waiting;
use protocol::time::Timestamp;

use super::{Caller, check};
use crate::Core;
use crate::effect::{Effect, EnvironmentOwner};
use crate::fleet::agent::Standing;
use crate::names::Ids;
use crate::record::{OpenTarget, Origin, RequestState};
use crate::run::placement;
use crate::run::queue::Demand;

/// The host says that nothing was removed, and what would have been lost, if it still knows.
pub(crate) fn refused_to_destroy(report: Option<&Report>) -> WireError {
    let mut message = String::from("it holds the only copy of work");
    let holds = report.map(|report| report.holds.as_slice()).unwrap_or_default();
    if !holds.is_empty() {
        message = format!("{message}: {}", holds.join(", "));
    }
    let (state, remedy) = match report {
        Some(report) if report.end.is_none() => {
            ("it goes on as it was", format!("save that elsewhere: phalanx attach {}", report.agent))
        }
        Some(report) if report.spec.role == Role::Own => (
            "it is stopped and otherwise as it was",
            format!("phalanx start {} goes on with it", report.agent),
        ),
        Some(report) => ("it stays as it is", format!("look: phalanx show {}", report.agent)),
        None => ("it stays as it is", String::from("phalanx ls -a")),
    };
    WireError::new(ErrorCode::Conflict, format!("{message}; {state}"))
        .hint(format!("{remedy}; lose that work: phalanx destroy --discard"))
}

impl Core {
    pub(super) fn create_agent(
        &mut self,
        now: Timestamp,
        caller: Caller,
        create: CreateAgent,
        environments: Vec<Environment>,
    ) {
        let mut spec = create.spec;
        let environment = environments.into_iter().next().unwrap_or_default();
        spec.role = Role::Own;
        spec.task = None;
        spec.has_environment = !environment.0.is_empty();
        let checked = check::agent(&spec);
        let checked = checked.and_then(|()| check::environment(&spec.name, &environment)).and_then(|()| {
            if self.fleet.is_taken(&spec.name) {
                let error = WireError::new(ErrorCode::Conflict, format!("an agent {:?} is there", spec.name));
                return Err(error.hint("choose another name, or destroy that agent"));
            }
            let place = self.place_agent(now, &Demand::of(&spec.limits), create.host.as_ref())?;
            self.check_user(spec.user.as_deref(), &place.0).map(|()| place)
        });
        let place = match checked {
            Ok(place) => place,
            Err(error) => return self.out.reply(caller.reply_to, Err(error)),
        };
        let id = Ids::new(now, caller.seed).agent();
        if spec.has_environment {
            self.out.seal(Effect::Seal { owner: EnvironmentOwner::Agent(id), environment });
        }
        let origin = Origin { key: caller.key.clone(), digest: caller.digest.clone() };
        let reply = Reply::Accepted { agent: id };
        self.want_running(now, id, place, spec, Some(origin));
        let state = RequestState::Answered { reply: reply.clone() };
        self.keep_request(now, (caller.key, caller.digest), state, false);
        self.out.reply(caller.reply_to, Ok(reply));
    }

    /// An agent whose start must fail is not made.
    fn check_user(&self, user: Option<&str>, host: &HostId) -> Result<(), WireError> {
        let facts = self.fleet.host(host).and_then(|host| host.beat.as_ref()).map(|beat| &beat.facts);
        match (user, facts) {
            (Some(user), Some(HostFacts { user: own, cannot_change_user: Some(why), .. })) if user != own => {
                let message = format!("host {host} cannot run an agent as user {user:?}: {why}");
                Err(WireError::new(ErrorCode::Denied, message))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn place_agent(
        &self,
        now: Timestamp,
        demand: &Demand,
        wished: Option<&HostId>,
    ) -> Result<(HostId, Region), WireError> {
        if let Some(id) = wished {
            let host = self.fleet.host(id).ok_or_else(|| {
                WireError::new(ErrorCode::NotFound, format!("no host {id}")).hint("phalanx hosts")
            })?;
            if host.reachability(now, &self.config) == Reachability::Lost {
                let message = format!("host {id} is not heard");
                return Err(WireError::new(ErrorCode::Unavailable, message).hint("phalanx hosts"));
            }
        }
        let rooms: Vec<_> = self
            .rooms(now)
            .into_iter()
            .filter(|room| wished.is_none_or(|wished| room.host == *wished))
            .collect();
        let after = self.work.last_host.as_ref();
        let host = placement::choose(&rooms, demand, None, self.config.strategy, after)
            .map_err(|waiting| no_place(&waiting))?;
        self.fleet
            .host(&host)
            .map(|known| (host, known.region.clone()))
            .ok_or_else(|| no_place(&Waiting::NoHost))
    }

    pub(super) fn stop_agents(
        &mut self,
        now: Timestamp,
        caller: Caller,
        targets: Vec<Target>,
        grace_ms: Option<u64>,
    ) {
        let mut outcomes = Vec::with_capacity(targets.len());
        for target in targets {
            let found = self.find_agent(&target);
            let note = found.as_ref().map_or("", |agent| match self.fleet.standing(*agent) {
                Standing::Unheard | Standing::Live => "",
                Standing::Ended => "it had ended before",
                Standing::Gone => "it was destroyed before",
            });
            if let Ok(agent) = &found {
                self.want_stopped(*agent, grace_ms.map(|ms| ms.min(check::GRACE_MS_MAX)));
            }
            outcomes.push(Outcome {
                target,
                agent: found.as_ref().ok().copied(),
                error: found.err(),
                note: note.to_owned(),
            });
        }
        let reply = Reply::Outcomes(outcomes);
        let state = RequestState::Answered { reply: reply.clone() };
        self.keep_request(now, (caller.key, caller.digest), state, true);
        self.out.reply(caller.reply_to, Ok(reply));
    }

    /// Answered when the hosts have decided.
    pub(super) fn destroy_agents(
        &mut self,
        now: Timestamp,
        caller: Caller,
        targets: Vec<Target>,
        discard: Discard,
    ) {
        let targets: Vec<OpenTarget> = targets
            .into_iter()
            .map(|target| OpenTarget { found: self.find_agent(&target), target })
            .collect();
        let state = RequestState::Open { targets: targets.clone() };
        self.keep_request(now, (caller.key.clone(), caller.digest), state, true);
        let agents: Vec<AgentId> = targets.iter().filter_map(|target| target.found.clone().ok()).collect();
        let before: Vec<AgentId> =
            agents.iter().copied().filter(|agent| self.fleet.standing(*agent) == Standing::Gone).collect();
        for agent in agents {
            self.want_destroyed(agent, discard);
        }
        self.await_destroy(now, caller.key, caller.reply_to, targets, &before);
    }
}

pub(super) fn no_place(waiting: &Waiting) -> WireError {
    let code = match waiting {
        Waiting::HostCap { .. }
        | Waiting::Memory { .. }
        | Waiting::Cpu { .. }
        | Waiting::DiskShare { .. }
        | Waiting::LabelCap { .. }
        | Waiting::RunCap { .. } => ErrorCode::Exhausted,
        Waiting::NoHost
        | Waiting::Turn { .. }
        | Waiting::Dependencies { .. }
        | Waiting::Backoff { .. }
        | Waiting::Unknown => ErrorCode::Unavailable,
    };
    // A new agent is never tried again later, so no time is told.
    let (why, remedy) = crate::view::waiting_words(Timestamp::default(), waiting);
    WireError::new(code, why).hint(remedy)
}
