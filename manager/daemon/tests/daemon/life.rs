//! From a wish to a host and back: create, stop, destroy, wait, secrets, blobs, restarts.

use protocol::agent::{EndCause, Phase};
use protocol::api::{Action, Mutation, Outcome, Reply, Until};
use protocol::error::ErrorCode;
use protocol::ids::RequestKey;
use protocol::order::Discard;
use protocol::report::{HostReply, HostRequest};

use super::client::create;
use super::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_is_created_listed_stopped_and_destroyed() {
    let world = World::start().await;
    let mut client = world.client().await;
    let agent = client.create("k1", "one").await.unwrap();
    let started = client.wait("one", Until::Started).await;
    assert_eq!((started.len(), started[0].id, started[0].phase), (1, agent, Phase::Running));
    assert_eq!(client.list().await.iter().map(|view| view.id).collect::<Vec<_>>(), [agent]);
    assert_eq!(world.host.carried_out("ensure"), [agent]);

    let stop = Mutation::StopAgents {
        key: RequestKey("k2".to_owned()),
        targets: vec!["one".to_owned(), "nobody".to_owned()],
        grace_ms: None,
    };
    let Reply::Outcomes(outcomes) = client.ask(stop).await.unwrap() else { panic!("outcomes") };
    assert!(matches!(&outcomes[0], Outcome { agent: Some(id), error: None, .. } if *id == agent));
    assert_eq!(outcomes[1].error.as_ref().unwrap().code, ErrorCode::NotFound);
    let ended = client.wait("one", Until::Ended).await;
    let end = ended[0].report.as_ref().unwrap().end.clone().unwrap();
    assert_eq!((ended[0].phase, end.cause), (Phase::Stopped, EndCause::Requested));

    let destroy = Mutation::DestroyAgents {
        key: RequestKey("k3".to_owned()),
        targets: vec!["one".to_owned()],
        discard: Discard::Keep,
    };
    let Reply::Outcomes(outcomes) = client.ask(destroy).await.unwrap() else { panic!("outcomes") };
    assert_eq!(outcomes[0].error, None);
    client.wait(&agent.to_string(), Until::Destroyed).await;
    client.create("k4", "one").await.expect("the name is free again");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_key_gives_the_same_answer_also_after_a_restart_of_the_manager() {
    let mut world = World::start().await;
    let mut client = world.client().await;
    let agent = client.create("k1", "one").await.unwrap();
    assert_eq!(client.create("k1", "one").await.unwrap(), agent);
    let other = client.create("k1", "two").await.unwrap_err();
    assert_eq!(other.code, ErrorCode::Conflict);
    client.wait("one", Until::Started).await;

    world.stop_manager().await.unwrap();
    assert!(!world.server.layout.manager_socket().exists(), "the socket goes with the manager");
    world.start_manager().await;
    let mut client = world.client().await;
    assert_eq!(client.create("k1", "one").await.unwrap(), agent);

    world.kill_manager().await;
    world.start_manager().await;
    let mut client = world.client().await;
    assert_eq!(client.create("k1", "one").await.unwrap(), agent);
    let views = client.list().await;
    assert_eq!((views.len(), views[0].phase), (1, Phase::Running));
    assert_eq!(world.host.carried_out("ensure").len(), 1, "a restart orders nothing anew");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_manager_is_refused_while_the_first_one_lives() {
    let world = World::start().await;
    let options = manager_daemon::Options {
        layout: world.server.layout.clone(),
        supervise: None,
        host_cap: None,
        label_caps: Default::default(),
        blob_grace_ms: manager_plan::config::BLOB_GRACE_MS,
    };
    let error = manager_daemon::run(options, std::future::pending()).await.unwrap_err();
    assert!(matches!(error, manager_daemon::DaemonError::Lock(_)), "{error:?}");
    world.client().await.list().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn values_of_an_environment_are_sealed_and_go_to_the_agents_host_only() {
    let world = World::start().await;
    let mut client = world.client().await;
    let request = create("k1", "one", &[("TOKEN", "s3cr3t-value")]);
    let Reply::Accepted { agent } = client.ask(request).await.unwrap() else { panic!("accepted") };
    client.wait("one", Until::Started).await;
    let open = world.server.open().await;
    for bucket in manager_daemon::store::Bucket::ALL {
        for entry in open.store.load(bucket).await.unwrap() {
            assert!(!entry.value.windows(12).any(|window| window == b"s3cr3t-value"), "in {bucket}");
        }
    }
    let HostReply::Environment(values) = world.host.request(&HostRequest::Environment { agent }).await else {
        panic!("an environment")
    };
    assert_eq!(values.0.get("TOKEN").map(String::as_str), Some("s3cr3t-value"));
    let stranger = protocol::ids::AgentId::from_parts(1, 2);
    let refused = world.host.request(&HostRequest::Environment { agent: stranger }).await;
    assert!(matches!(refused, HostReply::Refused(error) if error.code == ErrorCode::Denied));
    // The values go with the agent.
    let destroy = Mutation::DestroyAgents {
        key: RequestKey("k2".to_owned()),
        targets: vec!["one".to_owned()],
        discard: Discard::Yes,
    };
    client.ask(destroy).await.unwrap();
    assert!(open.store.load(manager_daemon::store::Bucket::Secrets).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blob_is_brought_in_pieces_checked_and_fetched_in_parts() {
    let world = World::start().await;
    let mut client = world.client().await;
    let content: Vec<u8> = (0..1_500_000_u32).map(|i| i.wrapping_mul(31).to_le_bytes()[1]).collect();
    let sha256 = manager_daemon::store::blobs::name_of(&content);
    let put = |sha256: &str, offset: usize, bytes: &[u8], last| Action::PutBlob {
        sha256: sha256.to_owned(),
        offset: offset.try_into().unwrap(),
        bytes: bytes.to_vec(),
        last,
    };
    let wrong = "0".repeat(64);
    let refused = client.ask(put(&wrong, 0, b"not this", true)).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::Invalid);
    assert_eq!(client.ask(put("../evil", 0, b"x", true)).await.unwrap_err().code, ErrorCode::Invalid);
    assert_eq!(client.ask(put(&sha256, 0, &content[..700_000], false)).await, Ok(Reply::Done));
    let hole = client.ask(put(&sha256, 900_000, b"x", false)).await.unwrap_err();
    assert_eq!(hole.code, ErrorCode::Invalid);
    // Another client brings the same at the same time: neither is in the way of the other.
    let mut other = world.client().await;
    assert_eq!(other.ask(put(&sha256, 0, &content[..300_000], false)).await, Ok(Reply::Done));
    assert_eq!(client.ask(put(&sha256, 700_000, &content[700_000..], true)).await, Ok(Reply::Stored));
    assert_eq!(other.ask(put(&sha256, 300_000, &content[300_000..], true)).await, Ok(Reply::Stored));
    assert_eq!(client.ask(put(&sha256, 0, b"anything", false)).await, Ok(Reply::Done), "it is there already");

    let mut fetched = Vec::new();
    while fetched.len() < content.len() {
        let offset = fetched.len().try_into().unwrap();
        let request = HostRequest::BlobPart { sha256: sha256.clone(), offset, max: u64::MAX };
        let HostReply::BlobPart { bytes, total } = world.host.request(&request).await else {
            panic!("a part")
        };
        assert!(!bytes.is_empty() && bytes.len() <= 512 << 10 && total == 1_500_000);
        fetched.extend_from_slice(&bytes);
    }
    assert!(fetched == content);
    let missing = world.host.request(&HostRequest::BlobPart { sha256: wrong, offset: 0, max: 1 }).await;
    assert!(matches!(missing, HostReply::Refused(error) if error.code == ErrorCode::NotFound));
}
