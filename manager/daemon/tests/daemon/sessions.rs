//! What a connection does with those who do not follow the protocol, and with more than it takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use manager_daemon::server::frames::{FrameReader, write_frame};
use manager_daemon::server::peer::Peer;
use manager_daemon::server::session::{CONCURRENT, Ended, Items, Requests, serve};
use protocol::api::{ERROR, Item, Query, REPLY, REQUEST, Reply, Request};
use protocol::codec::{Frame, Hello};
use protocol::error::{ErrorCode, WireError};
use tokio::io::{DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

/// Answers when it is let; counts those it works on.
#[derive(Clone)]
struct Gate {
    open: Arc<Semaphore>,
    working: Arc<AtomicUsize>,
}

struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Requests for Gate {
    async fn answer(&self, _: Peer, _: Request, items: Items) -> Result<Reply, WireError> {
        self.working.fetch_add(1, Ordering::SeqCst);
        let _counted = Counted(Arc::clone(&self.working));
        items.send(&Item::Log { offset: 0, bytes: b"begun".to_vec() }).await?;
        self.open.acquire().await.unwrap().forget();
        Ok(Reply::Done)
    }
}

struct Talk {
    reader: FrameReader<ReadHalf<DuplexStream>>,
    writer: WriteHalf<DuplexStream>,
    gate: Gate,
    stop: watch::Sender<bool>,
    served: JoinSet<Ended>,
}

async fn talk() -> Talk {
    let (near, far) = tokio::io::duplex(1 << 20);
    let gate = Gate { open: Arc::new(Semaphore::new(0)), working: Arc::default() };
    let (stop, stopped) = watch::channel(false);
    let mut served = JoinSet::new();
    served.spawn(serve(far, Peer::Operator, gate.clone(), stopped));
    let (reader, writer) = tokio::io::split(near);
    let mut talk = Talk { reader: FrameReader::new(reader), writer, gate, stop, served };
    assert_eq!(talk.read().await.kind, Hello::KIND);
    talk
}

impl Talk {
    async fn greeted() -> Self {
        let mut talk = talk().await;
        talk.write(Frame::of(Hello::KIND, "", &Hello::ours("test")).unwrap()).await;
        talk
    }

    async fn write(&mut self, frame: Frame) {
        write_frame(&mut self.writer, frame).await.unwrap();
    }

    async fn read(&mut self) -> Frame {
        self.reader.next().await.unwrap().expect("a frame")
    }

    async fn error(&mut self, id: &str) -> WireError {
        let frame = self.read().await;
        assert_eq!((frame.kind.as_str(), frame.id.as_str()), (ERROR, id));
        frame.body().unwrap()
    }

    async fn ended(mut self) -> Ended {
        self.served.join_next().await.unwrap().unwrap()
    }
}

#[tokio::test]
async fn another_version_is_told_what_to_do_and_the_connection_ends() {
    let mut talk = talk().await;
    let other = Hello { versions: vec![99], build: "9.9".to_owned() };
    talk.write(Frame::of(Hello::KIND, "", &other).unwrap()).await;
    let error = talk.error("").await;
    assert_eq!(error.code, ErrorCode::Unavailable);
    assert!(error.message.contains("9.9") && error.hint.contains("phalanx up"), "{error:?}");
    assert_eq!(talk.ended().await, Ended::Refused);
}

#[tokio::test]
async fn what_cannot_be_decoded_is_answered_and_the_next_request_works() {
    let mut talk = Talk::greeted().await;
    talk.write(Frame::new(REQUEST, "1", vec![0xc1])).await;
    assert_eq!(talk.error("1").await.code, ErrorCode::Invalid);
    talk.write(Frame::of("other", "2", &Query::Status).unwrap()).await;
    assert_eq!(talk.error("2").await.code, ErrorCode::Invalid);
    talk.gate.open.add_permits(1);
    talk.write(Frame::of(REQUEST, "3", &Query::Status).unwrap()).await;
    assert_eq!(talk.read().await.id, "3");
    assert_eq!(talk.read().await.kind, REPLY);
}

#[tokio::test]
async fn one_request_more_than_a_connection_takes_is_refused_at_once() {
    let mut talk = Talk::greeted().await;
    for id in 0..CONCURRENT {
        talk.write(Frame::of(REQUEST, &id.to_string(), &Query::Status).unwrap()).await;
        assert_eq!(talk.read().await.id, id.to_string(), "its item");
    }
    talk.write(Frame::of(REQUEST, "more", &Query::Status).unwrap()).await;
    assert_eq!(talk.error("more").await.code, ErrorCode::Unavailable);
    talk.gate.open.add_permits(1);
    assert_eq!(talk.read().await.kind, REPLY);
}

#[tokio::test]
async fn a_client_that_goes_ends_its_streams() {
    let mut talk = Talk::greeted().await;
    talk.write(Frame::of(REQUEST, "1", &Query::Status).unwrap()).await;
    talk.read().await;
    let working = Arc::clone(&talk.gate.working);
    assert_eq!(working.load(Ordering::SeqCst), 1);
    let Talk { reader, writer, mut served, .. } = talk;
    drop((reader, writer));
    assert_eq!(served.join_next().await.unwrap().unwrap(), Ended::ByClient);
    assert_eq!(working.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn every_open_request_is_answered_when_the_manager_stops() {
    let mut talk = Talk::greeted().await;
    talk.write(Frame::of(REQUEST, "1", &Query::Status).unwrap()).await;
    talk.read().await;
    talk.stop.send(true).unwrap();
    let error = talk.error("1").await;
    assert_eq!(error.code, ErrorCode::Unavailable);
    assert_eq!(talk.ended().await, Ended::Stopping);
}
