//! Polling: deliveries that a receiver behind a firewall fetches, and acknowledges.
//!
//! Handing out a delivery is an attempt of it: it is marked as begun, counted, and due again when the hand-out's time is
//! over. An acknowledgement ends it. A poller that dies acknowledges nothing, and what it had comes again.
//!
//! An acknowledgement names the hand-out, by a [`Receipt`]. One that comes late is as good as one in time, as long as the
//! delivery is still owed: whoever acknowledges has it. But one from before a redelivery is no answer to that.

use std::{fmt, str::FromStr, time::Duration};

use jiff::Timestamp;

use crate::{
    delivery::{Attempt, Cause, Delivery, Next, Outcome, State},
    id::EventId,
};

/// Deliveries that are handed out at once, at most.
pub const MAX_HANDED_OUT: usize = 100;

/// Bytes that the payloads take which are handed out at once, as they are written in the answer: one of Lambda ends at 6 MB,
/// and holds headers and receipts too.
pub const MAX_BYTES: usize = 5_000_000;

/// Names one hand-out: the delivery, by its lane and its event, and the number of the attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Receipt {
    /// The event.
    pub event: EventId,
    /// The lane of the endpoint.
    pub lane: u16,
    /// The attempt, from 1.
    pub attempt: u32,
}

/// A text that is no receipt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not a receipt as it was handed out with a delivery")]
pub struct InvalidReceipt;

impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.event, self.lane, self.attempt)
    }
}

impl FromStr for Receipt {
    type Err = InvalidReceipt;

    fn from_str(text: &str) -> Result<Self, InvalidReceipt> {
        let mut parts = text.split('.');
        let mut next = || parts.next().ok_or(InvalidReceipt);
        let (event, lane, attempt) = (next()?, next()?, next()?);
        let receipt = Self {
            event: event.parse().map_err(|_| InvalidReceipt)?,
            lane: lane.parse().map_err(|_| InvalidReceipt)?,
            attempt: attempt.parse().map_err(|_| InvalidReceipt)?,
        };
        // One spelling for each, or `+1` and `01` would name it too.
        if receipt.to_string() == text { Ok(receipt) } else { Err(InvalidReceipt) }
    }
}

/// What an acknowledgement leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acked {
    /// The delivery ends, so.
    Ends(Box<Delivery>),
    /// It was acknowledged before.
    Before,
    /// It was given up, or its endpoint is gone: the acknowledgement comes too late.
    TooLate,
    /// No such hand-out belongs to what is owed now: it was never made, or was of before a redelivery.
    Unknown,
}

/// How a hand-out ended that nobody acknowledged in its time.
fn unacknowledged(delivery: &Delivery, now: Timestamp) -> Delivery {
    let Some(begun) = &delivery.begun else { return delivery.clone() };
    let attempt = Attempt {
        number: begun.attempt,
        at: begun.at,
        duration_ms: millis(begun.at, now),
        outcome: Outcome::Failed { cause: Cause::Unacknowledged },
        excerpt: String::new(),
    };
    delivery.ended(attempt, Next::RetryAt(delivery.due_at), now)
}

/// The delivery when it is handed out to `by`, to come again at `until` if nobody acknowledges it.
#[must_use]
pub fn handed_out(delivery: &Delivery, by: &str, until: Timestamp, now: Timestamp) -> Delivery {
    Delivery { due_at: until, ..unacknowledged(delivery, now).begins(by, now) }
}

/// The delivery when its endpoint has not fetched it until its deadline, or not acknowledged it.
#[must_use]
pub fn given_up(delivery: &Delivery, cause: Cause, now: Timestamp) -> Delivery {
    unacknowledged(delivery, now).given_up(cause, now)
}

/// What an acknowledgement of this attempt leads to.
pub fn acknowledged(delivery: &Delivery, attempt: u32, now: Timestamp) -> Acked {
    match delivery.state {
        State::Succeeded => return Acked::Before,
        State::Dead | State::Cancelled => return Acked::TooLate,
        State::Pending => {}
    }
    let begun = delivery.begun.as_ref();
    let last = begun.map_or(delivery.attempts, |begun| begun.attempt);
    let first = delivery.redelivered.as_ref().map_or(0, |mark| mark.after);
    if attempt <= first || attempt > last {
        return Acked::Unknown;
    }
    let current = begun.filter(|begun| begun.attempt == attempt);
    // A later hand-out is under way. It is counted, so that its receipt cannot close what comes after a redelivery.
    let before = if current.is_some() { delivery.clone() } else { unacknowledged(delivery, now) };
    let at = current.map_or(now, |begun| begun.at);
    let outcome = Outcome::Answered { status: 200, retry_after_ms: None };
    let duration_ms = millis(at, now);
    let entry = Attempt { number: attempt, at, duration_ms, outcome, excerpt: String::new() };
    Acked::Ends(Box::new(before.ended(entry, Next::Succeeded, now)))
}

fn millis(from: Timestamp, to: Timestamp) -> u64 {
    let took = Duration::try_from(to.duration_since(from)).unwrap_or_default();
    u64::try_from(took.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
