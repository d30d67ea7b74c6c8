//! The manager of a fleet, and everything that `phalanx` is.
//!
//! [`manager_core`] decides; `daemon` carries out and answers; `store` keeps records on the bus; `notify` tells people;
//! `embedded` brings a whole installation up on one machine; `cli`, `runfile` and `report` are what an operator works
//! with.

pub mod cli;
pub mod config;
pub mod daemon;
pub mod embedded;
pub mod notify;
pub mod report;
pub mod runfile;
pub mod store;

/// An error with what caused it, in one line. What an error has said of its cause already is not said twice.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.ends_with(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = error.source();
    }
    text
}
