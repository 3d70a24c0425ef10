//! An event as an entry of a bus: the payload is its detail, the idempotency key its one resource.
//!
//! What the bus would refuse, or take and drop without a word, is seen before it is sent.

use domain::{delivery::Cause, destination::BusArn, outbox::OutboxEvent};
use serde::de::IgnoredAny;

use crate::transport::{Entry, Failed};

/// Most bytes of an entry: 1 MB, taken as 1 MiB.
///
/// AWS Compute Blog, "More room to build", 29 January 2026; 256 KB before. Where a region allows less, the bus says so.
pub const MOST: usize = 1_048_576;

/// What the time of an entry counts (EventBridge user guide, on the size of `PutEvents` entries).
const TIME: usize = 14;

/// Longest detail type, in bytes (`PutEventsRequestEntry`). EventBridge drops an event with a longer one and answers
/// that it has it.
const MAX_TYPE: usize = 128;

/// The entry of an event.
pub(super) fn of(bus: &BusArn, event: &OutboxEvent, body: Vec<u8>) -> Result<Entry, Failed> {
    let unacceptable = |source| Failed { cause: Cause::Unacceptable, source };
    // A detail is a JSON object.
    serde_json::from_slice::<IgnoredAny>(&body)
        .map_err(|error| unacceptable(Some(error.into())))?;
    let detail =
        String::from_utf8(body).map_err(|error| unacceptable(Some(error.utf8_error().into())))?;
    if !detail.trim_ascii_start().starts_with('{') || event.event_type.len() > MAX_TYPE {
        return Err(unacceptable(None));
    }
    let entry = Entry {
        bus: bus.clone(),
        source: format!("postern.{}", event.tenant),
        detail_type: event.event_type.clone(),
        detail,
        key: event.id.to_string(),
        at: event.occurred_at,
    };
    let Entry { source, detail_type, detail, key, .. } = &entry;
    if TIME + source.len() + detail_type.len() + detail.len() + key.len() > MOST {
        return Err(Failed::new(Cause::TooLarge));
    }
    Ok(entry)
}
