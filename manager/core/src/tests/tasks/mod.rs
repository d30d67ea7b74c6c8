//! What surrounds the life of a task: where it goes, what it is given, and for how long a lost host may keep it.

mod inputs;
mod leases;
mod placing;
