//! Who is let in, and what a host may do.

use std::time::Duration;

use async_nats::{Client, HeaderMap};
use bytes::Bytes;
use futures::StreamExt;
use manager_daemon::store::{Bucket, Store, StoreError};
use manager_installation::nats::port;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::server::{Server, within};

#[tokio::test]
async fn the_server_accepts_our_operator_accounts_and_users() {
    let server = Server::start().await;
    let open = server.open().await;
    assert_eq!(open.store.client().connection_state(), async_nats::connection::State::Connected);
    assert_eq!(server.host().await.connection_state(), async_nats::connection::State::Connected);
}

#[tokio::test]
async fn credentials_of_another_fleet_are_refused_and_the_error_says_so() {
    let (ours, theirs) = (Server::start().await, Server::start().await);
    let mut config = ours.config();
    config.credentials = theirs.layout.manager_creds();
    let error = Store::open(&config, &mut JoinSet::new()).await.unwrap_err();
    assert!(matches!(error, StoreError::Refused { .. }), "{error:?}");
    assert!(error.to_string().contains("manager.creds"), "{error}");
    config.credentials = ours.layout.home().join("none");
    let error = Store::open(&config, &mut JoinSet::new()).await.unwrap_err();
    assert!(matches!(error, StoreError::Credentials { .. }), "{error:?}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unreachable() {
    let mut server = Server::start().await;
    server.kill();
    let error = Store::open(&server.config(), &mut JoinSet::new()).await.unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error:?}");
}

#[tokio::test]
async fn a_server_below_2_15_is_refused() {
    let server = Server::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = server.config();
    config.url = port::url(listener.local_addr().unwrap().port());
    let mut old = JoinSet::new();
    old.spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let (reader, mut writer) = stream.into_split();
        writer.write_all(format!("INFO {OLD_INFO}\r\n").as_bytes()).await.unwrap();
        let mut lines = BufReader::new(reader).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            if line.starts_with("PING") {
                writer.write_all(b"PONG\r\n").await.unwrap();
            }
        }
    });
    let error = Store::open(&config, &mut JoinSet::new()).await.unwrap_err();
    assert!(matches!(&error, StoreError::TooOld { found, .. } if found == "2.12.8"), "{error:?}");
}

/// What an older server says of itself.
const OLD_INFO: &str = concat!(
    r#"{"server_id":"X","server_name":"x","version":"2.12.8","go":"go1","host":"127.0.0.1","#,
    r#""port":1,"proto":1,"headers":true,"max_payload":1048576,"nonce":"abc"}"#
);

/// Sends as the host does and says whether the answer is an acknowledgement of the stream.
async fn acknowledged(host: &Client, subject: &str, headers: HeaderMap, body: &'static str) -> bool {
    match host.request_with_headers(subject.to_owned(), headers, Bytes::from(body)).await {
        Ok(answer) => {
            let text = String::from_utf8_lossy(&answer.payload).into_owned();
            text.contains("\"stream\"") && !text.contains("\"error\"")
        }
        Err(_) => false,
    }
}

#[tokio::test]
async fn a_host_writes_its_own_records_and_no_others() {
    let server = Server::start().await;
    let open = server.open().await;
    let host = server.host().await;
    let put = async |subject: &str| acknowledged(&host, subject, HeaderMap::new(), "x").await;
    for own in ["$KV.agents.hub.h1.a1", "$KV.hosts.hub.h1", "ev.hub.h1.a1", "tr.hub.h1.a1"] {
        assert!(put(own).await, "{own} is the host's own");
    }
    let foreign = [
        "$KV.agents.hub.h2.a1",
        "$KV.agents.other.h1.a1",
        "$KV.hosts.hub.h2",
        "ev.hub.h2.a1",
        "ev.hub.manager",
        "tr.hub.h2.a1",
        "$KV.desired.a1",
        "$KV.lead.leader",
        "$KV.secrets.a1",
    ];
    let all = foreign.iter().map(|subject| put(subject));
    let reached = futures::future::join_all(all).await;
    assert_eq!(reached, vec![false; foreign.len()], "{foreign:?}");
    let keys: Vec<String> =
        open.store.load(Bucket::Agents).await.unwrap().into_iter().map(|entry| entry.key).collect();
    assert_eq!(keys, ["hub.h1.a1"]);
}

#[tokio::test]
async fn a_host_has_no_jetstream_api() {
    let server = Server::start().await;
    let _open = server.open().await;
    let host = server.host().await;
    let asks = [
        "$JS.API.INFO",
        "$JS.hub.API.INFO",
        "$JS.API.STREAM.INFO.KV_agents",
        "$JS.API.STREAM.PURGE.KV_agents",
        "$JS.API.DIRECT.GET.KV_secrets.$KV.secrets.a1",
        "$SYS.REQ.SERVER.PING",
    ];
    let answers = futures::future::join_all(asks.iter().map(|ask| host.request(*ask, Bytes::new()))).await;
    for (ask, answer) in asks.iter().zip(answers) {
        assert!(answer.is_err(), "{ask} was answered: {answer:?}");
    }
}

#[tokio::test]
async fn a_rollup_header_does_not_wipe_a_bucket() {
    let server = Server::start().await;
    let open = server.open().await;
    let host = server.host().await;
    assert!(acknowledged(&host, "$KV.agents.hub.h1.a1", HeaderMap::new(), "1").await);
    assert!(acknowledged(&host, "$KV.agents.hub.h1.a2", HeaderMap::new(), "2").await);
    for scope in ["all", "sub"] {
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Rollup", scope);
        assert!(!acknowledged(&host, "$KV.agents.hub.h1.a1", headers, "wipe").await, "rollup {scope}");
    }
    assert_eq!(open.store.load(Bucket::Agents).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_host_hears_its_own_orders_only_and_answers_them() {
    let server = Server::start().await;
    let open = server.open().await;
    let host = server.host().await;
    let mut own = host.subscribe("cmd.hub.h1.>").await.unwrap();
    let mut foreign = host.subscribe("cmd.hub.h2.>").await.unwrap();
    let mut managers = host.subscribe("_INBOX_mgr.>").await.unwrap();
    // Nobody serves this, which the server says after it has taken the subscriptions before it.
    assert!(host.request("rpc.hub.h1.none", Bytes::new()).await.is_err());
    let answering = async {
        let order = own.next().await.unwrap();
        host.publish(order.reply.unwrap(), "done".into()).await.unwrap();
    };
    let manager = open.store.client();
    let asked = within(Duration::from_secs(5), "the order is answered", async || {
        manager.request("cmd.hub.h1.stop", "order".into()).await.ok()
    });
    let (answer, ()) = tokio::join!(asked, answering);
    assert_eq!(answer.payload, "done");
    let nobody = manager.request("cmd.hub.h2.stop", "order".into()).await;
    assert!(nobody.is_err(), "an absent host answers at once: {nobody:?}");
    for heard in [&mut foreign, &mut managers] {
        assert!(tokio::time::timeout(Duration::from_millis(50), heard.next()).await.is_err());
    }
}

#[tokio::test]
async fn a_manager_hears_heartbeats_and_answers_requests_of_hosts() {
    let server = Server::start().await;
    let open = server.open().await;
    let host = server.host().await;
    let manager = open.store.client();
    let mut beats = manager.subscribe("hb.>").await.unwrap();
    let mut asks = manager.subscribe("rpc.>").await.unwrap();
    // An answer on the same connection: the server has taken the subscriptions before it. A flush does not
    // wait for that.
    open.store.load(Bucket::Lead).await.unwrap();
    host.publish("hb.hub.h1", "beat".into()).await.unwrap();
    let beat = tokio::time::timeout(Duration::from_secs(5), beats.next()).await.unwrap().unwrap();
    assert_eq!((beat.subject.as_str(), &beat.payload[..]), ("hb.hub.h1", &b"beat"[..]));
    let answering = async {
        let ask = asks.next().await.unwrap();
        assert_eq!(ask.subject.as_str(), "rpc.hub.h1.secret", "the sender is the one in the subject");
        manager.publish(ask.reply.unwrap(), "answer".into()).await.unwrap();
    };
    let (answer, ()) = tokio::join!(host.request("rpc.hub.h1.secret", "?".into()), answering);
    assert_eq!(answer.unwrap().payload, "answer");
}
