//! The manager's rules as tests, over a small world of honest hosts that lose nothing unless told to.

mod agents;
mod blobs;
mod forgetting;
mod invariants;
mod landing;
mod loading;
mod messages;
mod retaining;
mod review;
mod runs;
mod scale;
mod specs;
mod submitting;
mod tasks;
mod verifying;
mod world;
