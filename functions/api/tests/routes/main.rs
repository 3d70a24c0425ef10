//! Every route, good and bad, over memory and with a fixed clock.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

mod audit;
mod deployment;
mod endpoints;
mod outgoing;
mod outside;
mod received;
mod sources;
