//! How anything is said: ids and times, errors, the one frame and its codec, and where it travels.

pub mod codec;
pub mod error;
pub mod ids;
pub(crate) mod one_of;
pub mod subject;
pub mod time;
pub(crate) mod wire_enum;
