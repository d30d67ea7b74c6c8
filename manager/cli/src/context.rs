//! What every command has: where the state lies, the format of its output, and the way to the manager. The only place
//! that starts the manager when it is not there.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use protocol::api::Reply;
use protocol::error::ErrorCode;
use protocol::ids::{AgentId, RequestKey};

use super::args::Global;
use super::client::{Client, ClientError};
use super::error::{Failure, exit};
use super::output::pipe::say;
use super::output::sanitise::safe_line;
use manager_installation::boot::start_in_unit;
use manager_installation::layout::Layout;
use manager_installation::lock;
use manager_installation::start::{UpOptions, UpOutcome, UpReport, ensure_up, is_up};
use manager_plan::config::format::OutputFormat;
use manager_plan::config::layer::{Files, environment};
use manager_plan::config::{Settings, key};
use protocol::chain;

/// A start may take this long on a slow machine.
const START_LIMIT: Duration = Duration::from_secs(30);
/// A manager that is restarted answers again within this time.
pub const PATIENCE: Duration = Duration::from_secs(30);
const CONNECT_AGAIN_AFTER: Duration = Duration::from_millis(200);

pub struct Context {
    pub layout: Layout,
    pub format: OutputFormat,
    pub quiet: bool,
    pub settings: Settings,
    start: bool,
}

/// What a command does with settings that are wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WrongSettings {
    /// It does nothing: what was meant is not known.
    Refuse,
    /// It needs none, or is there to mend them.
    Pass,
}

impl Context {
    pub fn new(global: Global, wrong: WrongSettings) -> Result<Self, Failure> {
        let settings = match (Settings::read(&files(), &environment()), wrong) {
            (Ok(settings), _) => settings,
            (Err(_), WrongSettings::Pass) => Settings::default(),
            (Err(found), WrongSettings::Refuse) => {
                return Err(Failure::usage(format!("the settings are wrong; nothing was done\n{found}"))
                    .hint("phalanx config edit, or: phalanx config path"));
            }
        };
        let format = global.output.unwrap_or_else(|| {
            let set = settings.text(&key::OUTPUT).and_then(|text| text.parse().ok());
            set.unwrap_or(OutputFormat::Table)
        });
        let layout = match global.home {
            Some(home) => Layout::at(std::path::absolute(&home).unwrap_or(home)),
            None => Layout::from_env(),
        };
        let layout = layout.map_err(|error| Failure::usage(chain(&error)))?;
        Ok(Self { layout, format, quiet: global.quiet, settings, start: !global.no_start })
    }

    /// What the operator stopped, no agent of it starts again.
    pub fn refuse_agents(&self) -> Result<(), Failure> {
        if is_of_agent(&self.layout, std::env::var_os("PHALANX_AGENT")) {
            let message = "this is an agent of this installation: agents start nothing";
            return Err(Failure::new(ErrorCode::Denied, message).hint("run it outside of the agent"));
        }
        Ok(())
    }

    /// Starts everything, unless it runs.
    pub fn up(&self) -> Result<UpReport, Failure> {
        self.refuse_agents()?;
        let begun = Instant::now();
        if self.nothing_runs() {
            match start_in_unit(&self.layout) {
                Ok(true) if is_up(&self.layout) => {
                    return Ok(UpReport { outcome: UpOutcome::Started, took: begun.elapsed() });
                }
                Ok(_) => {}
                // Tried without it below, which tells what is wrong, or works but for limits.
                Err(error) => {
                    say(&safe_line(&format!("warning: not started by its unit: {}", chain(&error))));
                }
            }
        }
        let program = std::env::current_exe()
            .map_err(|error| Failure::new(ErrorCode::Failed, format!("cannot find this program: {error}")))?;
        let supervise: Vec<OsString> =
            vec![program.into(), "--home".into(), self.layout.home().into(), "supervise".into()];
        ensure_up(&self.layout, &UpOptions { supervise, limit: START_LIMIT })
            .map_err(|error| Failure::new(ErrorCode::Unavailable, chain(&error)).hint("phalanx doctor"))
    }

    /// Whether there is no supervisor either, which would bring back a manager that is not there.
    fn nothing_runs(&self) -> bool {
        !is_up(&self.layout) && lock::is_held(&self.layout.lock("supervisor")).is_ok_and(|held| !held)
    }

    /// A connection to the manager, which is started first where that is allowed.
    pub fn client(&self) -> Result<Client, Failure> {
        match self.running() {
            Some(client) => client,
            None if self.start => {
                self.up()?;
                Client::open(&self.layout.manager_socket()).map_err(Failure::from)
            }
            None => {
                Err(Failure::new(ErrorCode::Unavailable, "the manager is not running").hint("phalanx up"))
            }
        }
    }

    /// Asks anew whenever the manager went away in the middle, as in its restart, until an answer or the deadline.
    /// `None` from `ask`: not yet. The first connection starts what is not there, no later one does: what the operator
    /// stopped meanwhile stays so.
    pub fn over_restarts<T>(
        &self,
        deadline: Option<Instant>,
        mut ask: impl FnMut(&mut Client) -> Result<Option<T>, Failure>,
    ) -> Result<Option<T>, Failure> {
        let mut client = Some(self.client()?);
        let mut away = None::<Instant>;
        loop {
            let connected = client.take().map(Ok).or_else(|| self.running());
            let connected = connected.unwrap_or_else(|| {
                Err(Failure::new(ErrorCode::Unavailable, "the manager went away").hint("phalanx up"))
            });
            match connected.and_then(|mut client| ask(&mut client)) {
                Ok(Some(answer)) => return Ok(Some(answer)),
                Ok(None) => away = None,
                Err(failure) if failure.exit_code() == exit::UNAVAILABLE => {
                    if away.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                        return Err(failure);
                    }
                    // Nothing tells of a manager's return; a socket that is not there cannot be waited on.
                    #[expect(
                        clippy::disallowed_methods,
                        reason = "a pace between tries, bounded by PATIENCE"
                    )]
                    std::thread::sleep(CONNECT_AGAIN_AFTER);
                }
                Err(failure) => return Err(failure),
            }
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return Ok(None);
            }
        }
    }

    /// A connection, if the manager runs.
    pub fn running(&self) -> Option<Result<Client, Failure>> {
        match Client::open(&self.layout.manager_socket()) {
            Err(ClientError::Connect(error))
                if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) =>
            {
                None
            }
            other => Some(other.map_err(Failure::from)),
        }
    }

    /// Where reports of runs are written.
    pub fn reports(&self) -> PathBuf {
        self.layout.home().join("reports")
    }
}

/// The files of settings, seen from the working folder.
pub fn files() -> Files {
    Files::from_env(std::env::current_dir().ok().as_deref())
}

/// Whether `agent`, as the environment names it, is one of this installation's.
fn is_of_agent(layout: &Layout, agent: Option<OsString>) -> bool {
    let id = agent.and_then(|agent| agent.to_str()?.parse::<AgentId>().ok());
    id.is_some_and(|id| layout.host().join("agents").join(id.to_string()).is_dir())
}

/// 128 random bits as 32 hex digits.
pub fn random_hex() -> Result<String, Failure> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).map_err(|error| {
        Failure::new(ErrorCode::Failed, format!("this system has no random numbers: {error}"))
    })?;
    Ok(data_encoding::HEXLOWER.encode(&bytes))
}

/// The key of a mutation: the caller's, else a new one.
pub fn request_key(given: Option<&str>) -> Result<RequestKey, Failure> {
    match given {
        Some(key) if key.is_empty() || key.len() > 200 || key.chars().any(char::is_control) => {
            Err(Failure::usage("--key must be 1 to 200 printable characters"))
        }
        Some(key) => Ok(RequestKey(key.to_owned())),
        None => Ok(RequestKey(random_hex()?)),
    }
}

/// A mutation failed: it may have been done. The same key asks for the same answer.
pub fn with_key(failure: Failure, command: &str, key: &RequestKey) -> Failure {
    if failure.exit_code() == ErrorCode::Unavailable.exit_code() {
        let again =
            format!("the same command with --key {} (what was done is not done twice): {command}", key.0);
        return failure.hint(again);
    }
    failure
}

/// An answer of another kind than the request has.
pub fn unexpected(_reply: Reply) -> Failure {
    ClientError::Unexpected.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_known_in_its_own_installation_only() {
        let home = tempfile::tempdir().unwrap();
        let layout = Layout::at(home.path()).unwrap();
        let id = "01k8kipdprf4erd7uga6b3t1vj";
        let asked = |agent: Option<&str>| is_of_agent(&layout, agent.map(OsString::from));
        assert!(!asked(Some(id)), "of another installation");
        std::fs::create_dir_all(home.path().join("host/agents").join(id)).unwrap();
        assert!(asked(Some(id)));
        assert!(!asked(None) && !asked(Some("")) && !asked(Some("..")));
    }
}
