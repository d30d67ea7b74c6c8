//! Who may do what on the bus: the operator, the accounts SYS, FLEET and HOSTS, and their users.
//!
//! FLEET holds JetStream and the managers, HOSTS the hostds and nothing else. They meet only in service
//! exports: a host's put to its own KV key enters FLEET as a service request, and its acknowledgement comes
//! back as the answer. In one account a host could have the server publish a JetStream answer onto another
//! host's key by naming it as the reply subject, whatever its own permissions; across accounts that path does
//! not exist. `$JS.API` is not exported, so hosts have none.

use protocol::ids::HostId;
use protocol::subject::host_inbox;
use serde_json::{Value, json};

use super::HUB;
use super::jwt::Claims;
use super::keys::BusKeys;

/// The subjects hosts send to: (name of the export, subject).
const FROM_HOSTS: [(&str, &str); 6] = [
    ("heartbeats", "hb.>"),
    ("events", "ev.>"),
    ("transcripts", "tr.>"),
    ("agent-reports", "$KV.agents.>"),
    ("host-records", "$KV.hosts.>"),
    ("requests", "rpc.>"),
];

pub fn operator(keys: &BusKeys) -> Claims {
    let nats = json!({"type": "operator", "version": 2, "system_account": keys.system.public_key()});
    Claims { name: "phalanx".to_owned(), subject: keys.operator.public_key(), nats }
}

pub fn system(keys: &BusKeys) -> Claims {
    let nats = account(json!([]), json!([]), json!([]), Storage::None);
    Claims { name: "SYS".to_owned(), subject: keys.system.public_key(), nats }
}

pub fn fleet(keys: &BusKeys) -> Claims {
    let exports: Vec<Value> =
        FROM_HOSTS.iter().map(|(name, subject)| export(name, subject, Answers::One)).collect();
    let hosts = keys.hosts.public_key();
    let imports = json!([import(&format!("orders-{HUB}"), &format!("cmd.{HUB}.>"), &hosts)]);
    let nats = account(json!(exports), imports, json!([]), Storage::JetStream);
    Claims { name: "FLEET".to_owned(), subject: keys.fleet.public_key(), nats }
}

pub fn hosts(keys: &BusKeys) -> Claims {
    let fleet = keys.fleet.public_key();
    let imports: Vec<Value> =
        FROM_HOSTS.iter().map(|(name, subject)| import(name, subject, &fleet)).collect();
    let exports = json!([export(&format!("orders-{HUB}"), &format!("cmd.{HUB}.>"), Answers::Many)]);
    let signing = json!([keys.hosts_signing.public_key()]);
    let nats = account(exports, json!(imports), signing, Storage::None);
    Claims { name: "HOSTS".to_owned(), subject: keys.hosts.public_key(), nats }
}

/// A manager: all of FLEET.
pub fn manager_user(keys: &BusKeys) -> Claims {
    let nats = json!({
        "type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1, "pub": {}, "sub": {},
    });
    Claims { name: "manager".to_owned(), subject: keys.manager.public_key(), nats }
}

/// A hostd: its own subjects only, and any number of answers to what it was asked: the output of a program comes in
/// pieces, for as long as it runs.
pub fn host_user(account: &str, user: &str, region: &str, host: &HostId) -> Claims {
    let publish = [
        format!("hb.{region}.{host}"),
        format!("hb.{region}.{host}.>"),
        format!("ev.{region}.{host}.>"),
        format!("tr.{region}.{host}.>"),
        format!("$KV.agents.{region}.{host}.>"),
        format!("$KV.hosts.{region}.{host}"),
        format!("rpc.{region}.{host}.>"),
    ];
    let subscribe = [format!("cmd.{region}.{host}.>"), format!("{}.>", host_inbox(host))];
    let nats = json!({
        "type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1,
        "issuer_account": account,
        "pub": {"allow": publish},
        "sub": {"allow": subscribe},
        "resp": {"max": -1, "ttl": -1},
    });
    Claims { name: format!("host-{host}"), subject: user.to_owned(), nats }
}

enum Storage {
    JetStream,
    None,
}

fn account(exports: Value, imports: Value, signing_keys: Value, storage: Storage) -> Value {
    let mut limits = json!({
        "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1,
        "leaf": -1,
    });
    if let (Storage::JetStream, Some(limits)) = (storage, limits.as_object_mut()) {
        for field in ["mem_storage", "disk_storage", "streams", "consumer", "max_ack_pending"] {
            limits.insert(field.to_owned(), json!(-1));
        }
    }
    json!({
        "type": "account", "version": 2, "limits": limits, "exports": exports, "imports": imports,
        "signing_keys": signing_keys, "default_permissions": {"pub": {}, "sub": {}},
    })
}

/// How long a program that an operator runs beside an agent may print nothing. The server may keep some 200 bytes per
/// question for so long (measured), so it is hours, not days.
const SILENCE_MOST_NS: u64 = 6 * 3600 * 1_000_000_000;

/// How many answers the server lets back through a service.
enum Answers {
    One,
    Many,
}

fn export(name: &str, subject: &str, answers: Answers) -> Value {
    let mut export = json!({"name": name, "subject": subject, "type": "service"});
    if let Some(fields) = export.as_object_mut() {
        match answers {
            Answers::One => {
                fields.insert("response_type".to_owned(), json!("Singleton"));
            }
            // The server forgets where answers go when none came for the threshold (two minutes unless it is said), or
            // when the asker listens no more.
            Answers::Many => {
                fields.insert("response_type".to_owned(), json!("Stream"));
                fields.insert("response_threshold".to_owned(), json!(SILENCE_MOST_NS));
            }
        }
    }
    export
}

fn import(name: &str, subject: &str, account: &str) -> Value {
    json!({"name": name, "subject": subject, "account": account, "type": "service"})
}
