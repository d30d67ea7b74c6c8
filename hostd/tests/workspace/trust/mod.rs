//! What agents can reach is not believed: bases, objects, times of files, and the content of what they leave.

mod bases;
mod brought;
mod collecting;
mod hostile;
mod unseen;
