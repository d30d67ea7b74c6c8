//! Files below one folder: opened without leaving it, as the user they belong to. What may be asked for, and by whom, is
//! decided elsewhere.

mod as_user;
mod beneath;
mod error;
mod staged;

pub use as_user::as_user;
pub use beneath::{Looked, Root};
pub use error::FileError;
pub use staged::Staged;
