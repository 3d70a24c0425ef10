//! Every route, good and bad, over memory and with a fixed clock.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

mod audit;
mod bus;
mod changes;
mod deliveries;
mod deployment;
mod endpoint_life;
mod endpoint_secrets;
mod endpoint_setup;
mod endpoints;
mod fetching;
mod health;
mod objects;
mod outgoing;
mod outside;
mod pause;
mod polling;
mod publish;
mod received;
mod redeliveries;
mod replays;
mod schemes;
mod secrets;
mod sources;
mod unmatched;
