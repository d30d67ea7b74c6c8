//! What surrounds the life of a task: how it comes to its run, where it goes, what it is given, and for how long a lost host may keep it.

mod adding;
mod caps;
mod changes;
mod inputs;
mod leases;
mod placing;
