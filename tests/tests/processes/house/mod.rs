//! Keeping house: settings and profiles, what takes space and how it is freed, and what explains the program itself.

mod blobs;
mod contained;
mod history;
mod leaving;
mod settings;
mod space;
