//! The wire contract: every message that a released build wrote is read for ever, an older build reads what a newer
//! one writes, and no bytes whatever do harm.
//!
//! `samples` has one message or more of each type, `rules` what holds for each, `words` the words of enums,
//! `mutation` broken and hostile bytes, `speed` what a long list costs. The shim's forms are in `shim_golden`.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what it saw by failing"
)]

mod mutation;
mod rules;
mod samples;
mod speed;
mod tree;
mod words;

use std::path::PathBuf;

use protocol::codec::{Frame, from_bytes, read_frame, socket_bytes, to_bytes};
use protocol::error::WireError;
use protocol::event::Fact;
use protocol::order::{Answer, Command, Discard, Question};
use protocol::report::{HostReply, HostRequest};
use protocol::task::Waiting;
use protocol::{api, host_config};
use rules::Released;
use tree::Tree;

fn released() -> Released {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    Released { folder, samples: samples::all() }
}

#[test]
fn todays_encoder_gives_the_released_bytes() {
    released().todays_encoder_gives_the_released_bytes();
}

#[test]
fn todays_decoder_reads_every_released_file() {
    released().todays_decoder_reads_every_released_file();
}

#[test]
fn what_an_older_writer_left_out_reads_as_its_default() {
    released().what_an_older_writer_left_out_reads_as_its_default();
}

#[test]
fn a_field_of_a_newer_writer_is_skipped() {
    released().a_field_of_a_newer_writer_is_skipped();
}

#[test]
fn each_twin_says_what_its_bytes_say() {
    released().each_twin_says_what_its_bytes_say();
}

/// On a socket a frame has its length before it, most significant byte first.
#[test]
fn a_frame_on_a_socket_is_its_length_and_itself() {
    let frame = Frame::new("reply", "7", vec![0xc0]);
    let bytes = socket_bytes(&frame).unwrap();
    let plain = frame.encode().unwrap();
    assert_eq!(bytes[..4], u32::try_from(plain.len()).unwrap().to_be_bytes());
    assert_eq!(bytes[4..], plain);
    assert_eq!(read_frame(&mut bytes.as_slice()).unwrap(), Some(frame));
}

#[test]
fn a_fact_or_a_wait_of_a_newer_build_is_unknown_and_not_an_error() {
    let newer = |tag: &str| {
        let nested = Tree::Map(vec![("deep".to_owned(), Tree::List(vec![Tree::Nil, Tree::Float(0.5)]))]);
        let fields =
            vec![("first".to_owned(), nested), (tag.to_owned(), Tree::Text("of-tomorrow".to_owned()))];
        to_bytes(&Tree::Map(fields)).unwrap()
    };
    assert_eq!(from_bytes::<Fact>(&newer("kind")).unwrap(), Fact::Unknown);
    assert_eq!(from_bytes::<Waiting>(&newer("why")).unwrap(), Waiting::Unknown);
}

/// What acts on the world is never guessed: an order, a question, a request that this build does not know is refused
/// by name, and its sender can be told.
#[test]
fn a_command_or_request_of_a_newer_build_is_an_error_that_names_it() {
    fn refused<T: serde::de::DeserializeOwned + std::fmt::Debug>() {
        let name = std::any::type_name::<T>();
        for value in [Tree::Nil, Tree::Map(vec![("x".to_owned(), Tree::Nil)])] {
            let newer = Tree::Map(vec![("of-tomorrow".to_owned(), value)]);
            let error = from_bytes::<T>(&to_bytes(&newer).unwrap()).unwrap_err();
            let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            assert!(cause.contains("of-tomorrow"), "{name}: {cause}");
        }
        let word = to_bytes(&"of-tomorrow").unwrap();
        assert!(from_bytes::<T>(&word).is_err(), "{name}");
    }
    refused::<Command>();
    refused::<Discard>();
    refused::<Question>();
    refused::<Answer>();
    refused::<HostRequest>();
    refused::<HostReply>();
    refused::<api::Request>();
    refused::<api::Reply>();
    refused::<api::Item>();
    refused::<api::Until>();
    refused::<api::LogStart>();
    refused::<protocol::files::FileNode>();
    refused::<api::MessageUntil>();
}

#[test]
fn the_configuration_of_a_newer_version_says_so() {
    let config = samples::hosts::host_config();
    assert_eq!(config.version, host_config::HOST_CONFIG_VERSION);
}

#[test]
fn an_error_without_a_hint_reads_as_one_that_has_none() {
    let old = Tree::Map(vec![
        ("code".to_owned(), Tree::Text("a-code-of-tomorrow".to_owned())),
        ("message".to_owned(), Tree::Text("no".to_owned())),
    ]);
    let error: WireError = from_bytes(&to_bytes(&old).unwrap()).unwrap();
    assert_eq!((error.code.exit_code(), error.code.is_retryable()), (9, true));
    assert!(error.hint.is_empty());
}
