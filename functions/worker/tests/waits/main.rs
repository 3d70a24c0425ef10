//! Events that wait, and attempts that end: what the row says meanwhile, what brings the event back, and that nothing is
//! forgotten whatever fails.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a suite may fail where it stands"
)]

mod ends;
mod paused;
mod waiting;
mod world;
