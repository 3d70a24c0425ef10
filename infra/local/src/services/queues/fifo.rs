//! What is different about FIFO queues, as far as senders see it: a group and a deduplication id for each message, and five
//! minutes in which the same id sends nothing more.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use serde_json::Value;

use super::{
    Queues,
    error::QueueError,
    message::{Outgoing, Sent},
};
use crate::services::{answer::text, faults::Rule};

/// What the name of a FIFO queue ends with.
pub(super) const SUFFIX: &str = ".fifo";

/// For so long a queue remembers a deduplication id.
const WINDOW_MS: i64 = 300_000;

/// Deduplication ids by queue, with the time and the answer of the message that was sent. Gone with the host.
#[derive(Debug, Default)]
pub(super) struct Seen(Mutex<BTreeMap<(String, String), (i64, Sent)>>);

/// Whether a name or an ARN is a FIFO queue's.
pub(super) fn is(name: &str) -> bool {
    name.ends_with(SUFFIX)
}

/// Refuses what the kind of queue does not go with.
pub(super) fn check(arn: &str, request: &Value) -> Result<(), QueueError> {
    let given = |member: &str| text(request, member);
    let invalid = |message: &str| Err(QueueError::Invalid(message.to_owned()));
    match (is(arn), given("MessageDeduplicationId")) {
        (false, Some(_)) => invalid(
            "The request includes a parameter that is not valid for this queue type: MessageDeduplicationId",
        ),
        (false, None) => Ok(()),
        (true, _) if given("MessageGroupId").is_none() => {
            Err(QueueError::Missing("MessageGroupId"))
        }
        (true, None) => invalid(
            "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly",
        ),
        (true, Some(_)) if request.get("DelaySeconds").is_some_and(|delay| *delay != 0) => invalid(
            "Value for parameter DelaySeconds is invalid. Reason: The request include parameter that is not valid for this queue type.",
        ),
        (true, Some(id)) => {
            let is_good = (1..=128).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic());
            if is_good {
                Ok(())
            } else {
                invalid("Value for parameter MessageDeduplicationId is invalid.")
            }
        }
    }
}

impl Queues {
    /// Sends a message, unless its FIFO queue has seen its deduplication id a moment ago.
    pub(super) fn send_once(
        &self,
        arn: &str,
        request: &Value,
        outgoing: Outgoing,
        strike: Option<&Rule>,
    ) -> Result<Sent, QueueError> {
        let shared = &self.shared;
        let Some(id) = text(request, "MessageDeduplicationId") else {
            return shared.send(arn, outgoing, strike);
        };
        let (now, key) = (shared.clock.now_ms(), (arn.to_owned(), id.to_owned()));
        let mut seen = shared.seen.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.retain(|_, (at, _)| now - *at < WINDOW_MS);
        if let Some((_, sent)) = seen.get(&key) {
            return Ok(sent.clone());
        }
        let sent = shared.send(arn, outgoing, strike)?;
        seen.insert(key, (now, sent.clone()));
        Ok(sent)
    }
}
