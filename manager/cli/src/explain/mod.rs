//! `help`, `man` and `schema`: what explains the program. Needs no manager, no settings and no home.

mod examples;
pub mod help;
pub mod man;
pub mod schema;
