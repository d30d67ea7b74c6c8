//! Workspaces against real git, real mounts and repositories that mean harm.

mod contract;
mod fixture;
mod hostile;
mod many;
mod repository;
mod taking_away;
