//! Things that are followed until they are over: a run, and a merge.

mod merge;
mod run;

pub use merge::follow_merge;
pub use run::follow_run;
