//! An event as a message of a queue: the payload as the body, the idempotency key as an attribute.
//!
//! What the queue would refuse is seen before it is sent: the same payload would be refused for four days.

use domain::{body::Sha256Hash, delivery::Cause, destination::QueueUrl, outbox::OutboxEvent};

use crate::transport::{Failed, Fifo, Message};

/// Most bytes of a message, its attributes' names, types and values included: 1 MiB.
///
/// AWS Compute Blog, "More room to build", 29 January 2026. A queue may be set to less, which it says itself.
pub const MOST: usize = 1_048_576;

/// The attribute with the event's id.
pub const KEY: &str = "idempotency_key";

/// The attribute with the event's type.
pub const TYPE: &str = "event_type";

/// The type of both attributes.
pub const TEXT: &str = "String";

/// Longest message group id, in bytes (`SendMessage`).
const MAX_GROUP: usize = 128;

/// The message of an event.
pub(super) fn of(queue: &QueueUrl, event: &OutboxEvent, body: Vec<u8>) -> Result<Message, Failed> {
    let body = String::from_utf8(body).map_err(|error| Failed {
        cause: Cause::Unacceptable,
        source: Some(error.utf8_error().into()),
    })?;
    if body.is_empty() || !body.chars().all(is_carried) {
        return Err(Failed::new(Cause::Unacceptable));
    }
    let (key, event_type) = (event.id.to_string(), event.event_type.clone());
    let attribute = |name: &str, value: &str| name.len() + TEXT.len() + value.len();
    if body.len() + attribute(KEY, &key) + attribute(TYPE, &event_type) > MOST {
        return Err(Failed::new(Cause::TooLarge));
    }
    // Events of one aggregate stay in order, as they do in their lane.
    let fifo = queue.is_fifo().then(|| Fifo { group: group(&event.aggregate_id) });
    Ok(Message { queue: queue.clone(), body, key, event_type, fifo })
}

/// The characters that SQS carries: those of XML.
const fn is_carried(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

fn group(aggregate_id: &str) -> String {
    let fits = (1..=MAX_GROUP).contains(&aggregate_id.len())
        && aggregate_id.bytes().all(|b| b.is_ascii_graphic());
    if fits { aggregate_id.to_owned() } else { Sha256Hash::of(aggregate_id.as_bytes()).to_string() }
}
