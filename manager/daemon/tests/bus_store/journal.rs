//! Events and transcripts.

use std::time::Duration;

use bytes::Bytes;
use manager_daemon::store::journal::Log;

use super::server::Server;

#[tokio::test]
async fn an_event_sent_twice_is_stored_once_and_pages_read_all() {
    let server = Server::start().await;
    let open = server.open().await;
    let store = &open.store;
    let empty = store.read_log(Log::Events, "ev.>", 0, 10).await.unwrap();
    assert!(empty.messages.is_empty() && !empty.more);
    for n in 0..25 {
        for _ in 0..2 {
            let (id, body) = (format!("epoch:{n}"), Bytes::from(n.to_string()));
            store.append_event("ev.hub.manager", &id, body).await.unwrap();
        }
    }
    store.append_event("ev.hub.h1.a", "other:1", Bytes::from("other")).await.unwrap();
    let (mut from, mut read) = (0, Vec::new());
    loop {
        let page = store.read_log(Log::Events, "ev.hub.manager", from, 10).await.unwrap();
        read.extend(
            page.messages.iter().map(|message| String::from_utf8_lossy(&message.payload).into_owned()),
        );
        from = page.next;
        if !page.more {
            break;
        }
    }
    assert_eq!(read, (0..25).map(|n| n.to_string()).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_follower_hears_each_event_once_over_a_killed_server() {
    let mut server = Server::start().await;
    let mut open = server.open().await;
    let mut heard = open.store.follow_log(Log::Events, "ev.hub.manager".into(), 0, &mut open.tasks);
    for n in 0..60 {
        if n % 20 == 10 {
            server.kill();
            server.run().await;
        }
        let body = Bytes::from(n.to_string());
        open.store.append_event("ev.hub.manager", &format!("epoch:{n}"), body).await.unwrap();
    }
    for n in 0..60 {
        let message = tokio::time::timeout(Duration::from_secs(20), heard.recv()).await.unwrap().unwrap();
        assert_eq!(message.payload, n.to_string());
        assert_eq!(message.message_id.as_deref(), Some(format!("epoch:{n}").as_str()));
    }
}
