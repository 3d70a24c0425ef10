//! Reading a record of the stream. It is read as plain JSON: a record in a new form must cost itself, not its batch.

use domain::{outbox::OutboxEvent, ports::StoreError};
use serde_json::Value;

/// Why a record is passed over.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unread {
    /// It shows no new state of an item: the stream or its filter is set up in another way than the template says.
    #[error("it has no new image")]
    NoImage,
    /// The item is not as this code writes it.
    #[error("its item is not an outgoing event")]
    Item(#[source] StoreError),
}

/// The records of a batch.
pub(crate) fn all(batch: &Value) -> impl Iterator<Item = &Value> {
    batch.get("Records").and_then(Value::as_array).into_iter().flatten()
}

/// The event that a record shows.
pub(crate) fn read(record: &Value) -> Result<OutboxEvent, Unread> {
    let image = record.pointer("/dynamodb/NewImage").ok_or(Unread::NoImage)?;
    dynamo::from_stream(image).map_err(Unread::Item)
}

/// Where a record stands in its shard.
pub(crate) fn sequence(record: &Value) -> Option<String> {
    record.pointer("/dynamodb/SequenceNumber").and_then(Value::as_str).map(ToOwned::to_owned)
}
