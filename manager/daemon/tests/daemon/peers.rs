//! Who may change something: the operator, and no agent of this manager.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use protocol::api::{AgentFilter, LogStart, Query, Until};
use protocol::error::ErrorCode;
use protocol::ids::AgentId;

use super::client::{Client, create};
use super::world::World;

const SOCKET: &str = "PHALANX_TEST_SOCKET";

/// A cgroup as an agent's, removed when dropped.
struct Group {
    instance: PathBuf,
    agent: PathBuf,
}

impl Group {
    /// `None` where this user may make none.
    fn make(agent: AgentId) -> Option<Self> {
        let name = format!("phalanx-test-{}-{}", std::process::id(), agent.tail());
        ["/sys/fs/cgroup/unified", "/sys/fs/cgroup/pids", "/sys/fs/cgroup"].iter().find_map(|root| {
            let instance = Path::new(root).join(&name);
            let group = Self { agent: instance.join(agent.to_string()), instance };
            std::fs::create_dir_all(&group.agent).ok()?;
            group.agent.join("cgroup.procs").exists().then_some(group)
        })
    }

    fn add(&self, pid: u32) {
        std::fs::write(self.agent.join("cgroup.procs"), pid.to_string()).unwrap();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.agent);
        let _ = std::fs::remove_dir(&self.instance);
    }
}

/// The caller within the group: this program again. Does nothing when it is run as a test.
#[tokio::test]
async fn caller() {
    let Some(socket) = std::env::var_os(SOCKET) else { return };
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let mut client = Client::connect(Path::new(&socket)).await.unwrap();
    let listed = client.ask(Query::ListAgents(AgentFilter::default())).await.is_ok();
    let created = client.ask(create("k9", "nine", &[])).await;
    let code = created.map_or_else(|error| error.code.to_string(), |_| "created".to_owned());
    let mut seen = Vec::new();
    for name in ["one", "two"] {
        let from = LogStart::Tail(1);
        let printed =
            client.ask(Query::Logs { target: name.to_owned(), from, follow: false, redact: false }).await;
        let shown = client.ask(Query::Capture { target: name.to_owned(), history: 0, colours: false }).await;
        let denied = |error: Option<ErrorCode>| error == Some(ErrorCode::Denied);
        seen.push((!denied(printed.err().map(|e| e.code)), !denied(shown.err().map(|e| e.code))));
    }
    eprintln!("may-list={listed} create={code}; may-read={seen:?};");
}

/// What the caller says of itself after it was put into `group`.
async fn call(socket: PathBuf, group: Option<&Group>) -> String {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "peers::caller", "--nocapture"])
        .env(SOCKET, socket)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    if let Some(group) = group {
        group.add(child.id());
    }
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let output = tokio::task::spawn_blocking(move || child.wait_with_output()).await.unwrap().unwrap();
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_of_this_manager_may_look_and_change_nothing() {
    let world = World::start().await;
    let mut client = world.client().await;
    let agent = client.create("k1", "one").await.unwrap();
    client.wait("one", Until::Started).await;
    let Some(group) = Group::make(agent) else {
        let required = std::env::var_os("PHALANX_REQUIRE_ROOT_TESTS").is_some_and(|value| value == "1");
        assert!(!required, "no cgroup can be made here");
        eprintln!("skipped: this user can make no cgroup");
        return;
    };
    let socket = world.server.layout.manager_socket();
    client.create("k2", "two").await.unwrap();
    let said = call(socket.clone(), Some(&group)).await;
    assert!(said.contains(&format!("may-list=true create={};", ErrorCode::Denied)), "{said}");
    assert!(said.contains("may-read=[(true, true), (false, false)];"), "only what it printed itself: {said}");

    let stranger = Group::make(AgentId::from_parts(1, 1)).unwrap();
    let said = call(socket, Some(&stranger)).await;
    assert!(said.contains("may-list=true create=created;"), "an agent of another installation: {said}");
}
