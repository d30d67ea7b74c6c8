//! The supervisor, `up` and `down` against a real nats-server. The daemons are stand-ins: this test program
//! itself, started again with a variable set, which takes the lock and binds the socket as a daemon must.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test program: what cannot go on panics")]

mod failures;
mod faults;
mod fleet;
mod stand_in;
mod up;
