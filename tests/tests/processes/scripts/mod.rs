//! What scripts read and shells complete: documents and their schemas, the examples, names.

mod completing;
mod documents;
mod driving;
