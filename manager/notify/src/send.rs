//! One delivery: the document to a program's standard input, or to a web hook, within a limit. What came back, in a few
//! words, never with the address of a web hook. Leaves to others: trying again.

use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use super::notice::Notice;
use manager_plan::notify::hook::{Address, Hook, To};

/// Of what a program prints as errors the last part is told.
const ERRORS_KEPT: usize = 2 << 10;
/// For errors that a program printed before it ended.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// What a program finds of the manager's own environment.
const INHERITED: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LC_ALL",
    "TZ",
    "XDG_RUNTIME_DIR",
    "DBUS_SESSION_BUS_ADDRESS",
    "DISPLAY",
    "WAYLAND_DISPLAY",
];

/// Why it did not arrive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undelivered {
    /// It may do so the next time.
    TryAgain(String),
    /// The other side does not want it.
    Refused(String),
}

impl Undelivered {
    #[must_use]
    pub fn why(&self) -> &str {
        match self {
            Self::TryAgain(why) | Self::Refused(why) => why,
        }
    }
}

/// What came back.
pub async fn send(hook: &Hook, notice: &Notice) -> Result<String, Undelivered> {
    let document = serde_json::to_vec(notice).map_err(|error| Undelivered::Refused(error.to_string()))?;
    let limit = Duration::from_millis(hook.timeout_ms);
    match &hook.to {
        To::Command(words) => run(words, notice, document, limit).await,
        To::Webhook(address) => {
            let address = address.clone();
            let id = notice.id.clone();
            let posted = tokio::task::spawn_blocking(move || post(&address, &id, &document, limit)).await;
            posted.unwrap_or_else(|error| Err(Undelivered::TryAgain(error.to_string())))
        }
    }
}

/// Processes of a program that is not done: they end with the wait for it.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            let _ = killpg(group, Signal::SIGKILL);
        }
    }
}

async fn run(
    words: &[String],
    notice: &Notice,
    mut document: Vec<u8>,
    limit: Duration,
) -> Result<String, Undelivered> {
    let again = |error: std::io::Error| Undelivered::TryAgain(error.to_string());
    let Some((name, arguments)) = words.split_first() else {
        return Err(Undelivered::Refused("there is no program".to_owned()));
    };
    document.push(b'\n');
    let mut command = tokio::process::Command::new(name);
    let inherited = INHERITED.iter().filter_map(|name| Some((*name, std::env::var_os(name)?)));
    command.args(arguments).env_clear().envs(inherited).envs(notice.variables());
    command.current_dir("/").process_group(0).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Undelivered::TryAgain(format!("{name}: there is no such program")),
        _ => Undelivered::TryAgain(format!("{name}: {error}")),
    })?;
    let mut group = Group(child.id().and_then(|pid| i32::try_from(pid).ok()).map(Pid::from_raw));
    let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
    let feed = async {
        if let Some(mut stdin) = stdin {
            // A program that does not read it is not an error.
            let _ = stdin.write_all(&document).await;
        }
    };
    let mut errors = Vec::new();
    let listen = async {
        let Some(mut stderr) = stderr else { return };
        let mut buffer = vec![0_u8; 4096];
        while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
            errors.extend_from_slice(buffer.get(..count).unwrap_or_default());
            let surplus = errors.len().saturating_sub(ERRORS_KEPT);
            errors.drain(..surplus);
        }
    };
    let all = async {
        let talk = async { tokio::join!(feed, listen) };
        tokio::pin!(talk);
        tokio::select! {
            _ = &mut talk => child.wait().await,
            status = child.wait() => {
                // What it leaves in the background may hold its errors open for ever.
                let _ = tokio::time::timeout(LAST_WORDS, talk).await;
                status
            }
        }
    };
    let Ok(status) = tokio::time::timeout(limit, all).await else {
        return Err(Undelivered::TryAgain(format!("{name}: not done within {} s", limit.as_secs_f32())));
    };
    group.0 = None;
    let status = status.map_err(again)?;
    if status.success() {
        return Ok("exit 0".to_owned());
    }
    let said = String::from_utf8_lossy(&errors).trim().lines().last().unwrap_or_default().to_owned();
    Err(Undelivered::TryAgain(format!("{name}: {status}{}{said}", if said.is_empty() { "" } else { ": " })))
}

fn post(address: &Address, id: &str, document: &[u8], limit: Duration) -> Result<String, Undelivered> {
    let config = ureq::Agent::config_builder()
        .timeout_global(Some(limit))
        .http_status_as_error(false)
        // Another host would get what was meant for this one.
        .max_redirects(0)
        .user_agent(concat!("phalanx/", env!("CARGO_PKG_VERSION")))
        .tls_config(TlsConfig::builder().root_certs(certificates()).build())
        .build();
    let agent = ureq::Agent::new_with_config(config);
    let (location, credentials) = address.request();
    let mut request =
        agent.post(location).header("content-type", "application/json").header("idempotency-key", id);
    if let Some(credentials) = credentials {
        let basic = format!("Basic {}", data_encoding::BASE64.encode(&credentials));
        request = request.header("authorization", basic);
    }
    match request.send(document) {
        Ok(response) => {
            let status = response.status().as_u16();
            let said = format!("{address}: HTTP {status}");
            match status {
                200..=299 => Ok(said),
                408 | 425 | 429 | 500..=599 => Err(Undelivered::TryAgain(said)),
                _ => Err(Undelivered::Refused(said)),
            }
        }
        Err(error) => Err(Undelivered::TryAgain(format!("{address}: {}", words(&error)))),
    }
}

/// The machine's own; where it has none, those that come with the client.
fn certificates() -> RootCerts {
    let found = rustls_native_certs::load_native_certs().certs;
    if found.is_empty() {
        return RootCerts::WebPki;
    }
    let found: Vec<Certificate<'static>> =
        found.iter().map(|found| Certificate::from_der(found.as_ref()).to_owned()).collect();
    RootCerts::from(found.into_iter())
}

/// Errors of the client name the whole address in places.
fn words(error: &ureq::Error) -> String {
    match error {
        ureq::Error::Timeout(_) => "no answer in time".to_owned(),
        ureq::Error::HostNotFound => "the host is not known".to_owned(),
        ureq::Error::ConnectionFailed => "no connection".to_owned(),
        ureq::Error::Io(error) => format!("no connection: {}", error.kind()),
        ureq::Error::Tls(_) | ureq::Error::Rustls(_) => {
            "the certificate or its negotiation failed".to_owned()
        }
        ureq::Error::BadUri(_) | ureq::Error::Http(_) => "the address cannot be used".to_owned(),
        _ => "the request failed".to_owned(),
    }
}
