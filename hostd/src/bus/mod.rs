//! All that hostd says and hears on the bus. Nothing else names `async_nats`.
//!
//! | file | says or hears | when it cannot |
//! | --- | --- | --- |
//! | `connect` | the connection | tries for ever, with jitter; agents do not notice |
//! | `inbox` | orders and asks, verified | refuses what does not verify, and names it in the log |
//! | `reports` | whole reports to the agents' keys | keeps the newest of each agent and goes on trying |
//! | `events` | facts, from the spool | they stay in the spool |
//! | `transcripts` | chunks of what agents print | the file on disk is the spool |
//! | `heartbeat` | that the host lives | is skipped: a late one would lie |
//! | `requests` | questions to the manager | an error that says unavailable |

mod connect;
mod events;
mod heartbeat;
mod inbox;
mod reports;
mod requests;
mod transcripts;

pub use connect::{Bus, BusError, connect};
pub use events::{EventSink, Events};
pub use heartbeat::{DigestSource, Heart};
pub use inbox::{Heard, Inbox, Replier};
pub use reports::{ReportSink, Reports};
pub use requests::{RequestError, Requests};
pub use transcripts::{Shipment, Shipper, ShipperSink};
