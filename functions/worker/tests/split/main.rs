//! Requests with several events, over the tables in memory: each event is carried out once, wherever it dies.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a suite may fail where it stands"
)]

mod crashes;
mod encoded;
mod large;
mod requests;
mod world;
