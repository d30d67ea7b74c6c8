//! A client of the socket, one request at a time.

use std::path::Path;
use std::time::Duration;

use manager_daemon::server::frames::{FrameReader, write_frame};
use protocol::agent::{AgentSpec, Environment};
use protocol::api::{
    AgentFilter, AgentView, AnyRequest, CreateAgent, ERROR, HostView, ITEM, Item, Mutation, Query, REPLY,
    REQUEST, Reply,
};
use protocol::codec::{Frame, Hello};
use protocol::error::WireError;
use protocol::ids::{AgentId, RequestKey};
use protocol::row::{AgentRow, RowFilter};
use tokio::io::{ReadHalf, WriteHalf};
use tokio::net::UnixStream;

const LIMIT: Duration = Duration::from_secs(60);

pub(crate) struct Client {
    reader: FrameReader<ReadHalf<UnixStream>>,
    writer: WriteHalf<UnixStream>,
    next_id: u64,
}

impl Client {
    pub(crate) async fn connect(path: &Path) -> Option<Self> {
        let stream = UnixStream::connect(path).await.ok()?;
        let (reader, mut writer) = tokio::io::split(stream);
        let mut reader = FrameReader::new(reader);
        let hello = Frame::of(Hello::KIND, "", &Hello::ours("test")).unwrap();
        write_frame(&mut writer, hello).await.ok()?;
        let theirs: Hello = reader.next().await.ok()??.body().unwrap();
        assert!(theirs.speaks_with_us());
        Some(Self { reader, writer, next_id: 1 })
    }

    pub(crate) async fn send(&mut self, request: &impl AnyRequest) -> String {
        let id = self.next_id.to_string();
        self.next_id += 1;
        write_frame(&mut self.writer, Frame::of(REQUEST, &id, request).unwrap()).await.unwrap();
        id
    }

    /// The next item, or the end.
    pub(crate) async fn next(&mut self) -> Result<Result<Reply, WireError>, Item> {
        let frame = tokio::time::timeout(LIMIT, self.reader.next()).await.expect("an answer in time");
        let frame = frame.unwrap().expect("the connection is open");
        match frame.kind.as_str() {
            ITEM => Err(frame.body().unwrap()),
            REPLY => Ok(Ok(frame.body().unwrap())),
            ERROR => Ok(Err(frame.body().unwrap())),
            other => panic!("a frame of kind {other}"),
        }
    }

    /// Items and the end of one request.
    pub(crate) async fn whole(&mut self, request: &impl AnyRequest) -> (Vec<Item>, Result<Reply, WireError>) {
        self.send(request).await;
        let mut items = Vec::new();
        loop {
            match self.next().await {
                Ok(end) => return (items, end),
                Err(item) => items.push(item),
            }
        }
    }

    pub(crate) async fn ask(&mut self, request: impl AnyRequest) -> Result<Reply, WireError> {
        self.whole(&request).await.1
    }

    pub(crate) async fn hosts(&mut self) -> Vec<HostView> {
        match self.ask(Query::Hosts).await.unwrap() {
            Reply::Hosts(hosts) => hosts,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn create(&mut self, key: &str, name: &str) -> Result<AgentId, WireError> {
        match self.ask(create(key, name, &[])).await? {
            Reply::Accepted { agent } => Ok(agent),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn list(&mut self) -> Vec<AgentView> {
        let all = AgentFilter { all: true, ..AgentFilter::default() };
        match self.ask(Query::ListAgents(all)).await.unwrap() {
            Reply::Agents { agents, .. } => agents,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn rows(&mut self, filter: RowFilter) -> Vec<AgentRow> {
        match self.ask(Query::ListRows(filter)).await.unwrap() {
            Reply::Rows { rows, .. } => rows,
            other => panic!("{other:?}"),
        }
    }

    /// Waits; gives the views that came.
    pub(crate) async fn wait(&mut self, target: &str, until: protocol::api::Until) -> Vec<AgentView> {
        let request = Query::WaitAgents { targets: vec![target.to_owned()], until };
        let (items, end) = self.whole(&request).await;
        assert_eq!(end, Ok(Reply::Done));
        items
            .into_iter()
            .map(|item| match item {
                Item::Agent(view) => *view,
                other => panic!("{other:?}"),
            })
            .collect()
    }
}

pub(crate) fn create(key: &str, name: &str, environment: &[(&str, &str)]) -> Mutation {
    let spec = AgentSpec::own(name.parse().unwrap(), vec!["sleep".to_owned(), "1".to_owned()], 1_000);
    let environment = environment.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    Mutation::CreateAgent(Box::new(CreateAgent {
        key: RequestKey(key.to_owned()),
        spec,
        host: None,
        environment: Environment(environment),
    }))
}
