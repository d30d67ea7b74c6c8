//! (in construction)
pub mod sys;
