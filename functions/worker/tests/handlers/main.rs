//! The handlers that ship, and one such as a user writes, through the worker and over the tables in memory.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a suite may fail where it stands"
)]

mod loyalty;
mod ordering;
mod payments;
mod user;
mod world;

use worker::handlers::{Current, Event, Own};
