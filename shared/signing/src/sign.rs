//! The way out: signatures on the events that we send (Standard Webhooks), and requests made as a provider makes them.

mod endpoint;
mod provider;

pub use endpoint::{EndpointSecret, header_value};
pub use provider::{Outgoing, SignError, sign_as};

/// Header with the event's id, the same on every attempt.
pub const ID_HEADER: &str = "webhook-id";
/// Header with the time of the attempt, in seconds.
pub const TIMESTAMP_HEADER: &str = "webhook-timestamp";
/// Header with one signature for each active secret, separated by spaces.
pub const SIGNATURE_HEADER: &str = "webhook-signature";
