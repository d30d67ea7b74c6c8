//! What hostd keeps on its disk: who it is in this life, its agents' records, and events not yet on the bus.

mod agents;
mod file;
mod life;
mod spool;
mod texts;

pub use agents::{AgentFolders, Loaded, Quarantined};
pub use file::{StateError, replace};
pub use life::{Life, LifeLock, is_held};
pub use spool::{EventSpool, Spooled};
