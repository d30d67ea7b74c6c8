//! What the tests of the whole are made of.

pub mod sim;
