//! The payload of an outgoing event as filters read it.

use domain::{
    outbox::OutboxEvent,
    ports::{Bodies, Stored},
};
use serde_json::Value;

use crate::payload::{self, Opened};

/// Why filters have nothing to read. None of them lets such an event pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unread {
    /// The payload is no JSON, is nested more than 127 deep, or holds a number that no float of 64 bits does.
    #[error("the payload is not JSON that filters can read")]
    NotJson,
    /// The bucket has no object of that name any more.
    #[error("the payload is gone from the bucket")]
    Missing,
    /// The object in the bucket is not the payload.
    #[error("the payload in the bucket is damaged")]
    Damaged,
}

/// Reads the payload of an event.
///
/// # Errors
/// Those of the bucket.
pub async fn read<B: Bodies>(event: &OutboxEvent, bodies: &B) -> Stored<Result<Value, Unread>> {
    Ok(match payload::open(event, bodies).await? {
        Opened::Bytes(bytes) => serde_json::from_slice(&bytes).map_err(|_| Unread::NotJson),
        Opened::Missing => Err(Unread::Missing),
        Opened::Corrupt => Err(Unread::Damaged),
    })
}
