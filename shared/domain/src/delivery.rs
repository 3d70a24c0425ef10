//! A delivery: one event on its way to one endpoint. And what one attempt's end leads to.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{id::EventId, lane::LaneId};

/// Where a delivery stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Owed.
    Pending,
    /// The endpoint answered 2xx.
    Succeeded,
    /// Given up, with the last outcome; a person can redeliver it.
    Dead,
    /// Its endpoint is gone.
    Cancelled,
}

/// A delivery, as it stands in its lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Which event.
    pub event: EventId,
    /// The event's type.
    pub event_type: String,
    /// Where it stands.
    pub state: State,
    /// Attempts ended so far. Never goes back, not even on redelivery.
    pub attempts: u32,
    /// When the next attempt is due, while pending.
    pub due_at: Timestamp,
    /// When it is given up.
    pub deadline: Timestamp,
    /// When the delivery was made.
    pub created_at: Timestamp,
    /// The last attempts, oldest first; at most [`MAX_LOG`].
    pub log: Vec<Attempt>,
    /// When it was finished.
    pub finished_at: Option<Timestamp>,
}

/// Attempts that a delivery keeps in its log.
pub const MAX_LOG: usize = 30;

/// One attempt, ended. Immutable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Its number, from 1.
    pub number: u32,
    /// When it began.
    pub at: Timestamp,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// The first part of the answer's body, control characters escaped.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub excerpt: String,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Outcome {
    /// The endpoint answered.
    Answered {
        /// The HTTP status.
        status: u16,
        /// How long it asked us to wait, in milliseconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after_ms: Option<u64>,
    },
    /// No complete answer.
    Failed {
        /// Why.
        cause: Cause,
    },
}

/// Why there was no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The name does not resolve.
    Dns,
    /// Our policy forbids the address or the URL; no connection was made.
    BlockedAddress,
    /// Nobody listens.
    Refused,
    /// No connection in time.
    ConnectTimeout,
    /// The certificate has expired.
    TlsExpired,
    /// The certificate is for another host.
    TlsWrongHost,
    /// The certificate's issuer is unknown.
    TlsUnknownIssuer,
    /// Another TLS failure.
    Tls,
    /// Connected, but no complete answer in time.
    Timeout,
    /// The connection broke.
    Reset,
    /// The answer is not HTTP, or its head is too large.
    BadAnswer,
    /// Something of our own: a key or a body that could not be had. Not the endpoint's fault.
    Internal,
}

impl Outcome {
    /// 2xx is success and nothing else is.
    pub const fn is_success(&self) -> bool {
        matches!(self, Self::Answered { status: 200..=299, .. })
    }
}

/// The rule that says what follows from an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Wait between attempts.
    pub backoff: crate::retry::Backoff,
    /// The longest wait that an endpoint can ask for.
    pub retry_after_cap: Duration,
}

/// What happens to the delivery now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It is done.
    Succeeded,
    /// Try again then.
    RetryAt(Timestamp),
    /// Give up: the deadline has passed.
    Dead,
    /// The endpoint said 410: it is disabled, and this delivery is held.
    Gone(Timestamp),
}

/// Decides what follows attempt number `attempt` (counted from 1) of a delivery with this deadline.
pub fn after(
    schedule: &Schedule,
    attempt: u32,
    outcome: &Outcome,
    deadline: Timestamp,
    now: Timestamp,
    jitter: f64,
) -> Next {
    let wait = schedule.backoff.after(attempt, jitter);
    let asked = match outcome {
        Outcome::Answered { status: 200..=299, .. } => return Next::Succeeded,
        Outcome::Answered { status: 410, .. } => {
            return Next::Gone(now.saturating_add(wait).unwrap_or(Timestamp::MAX));
        }
        Outcome::Answered { status: 429 | 503, retry_after_ms: Some(ms) } => {
            Duration::from_millis(*ms).min(schedule.retry_after_cap)
        }
        Outcome::Answered { .. } | Outcome::Failed { .. } => Duration::ZERO,
    };
    let at = now.saturating_add(wait.max(asked)).unwrap_or(Timestamp::MAX);
    if at > deadline { Next::Dead } else { Next::RetryAt(at) }
}

/// A delivery that the relay puts into a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewDelivery {
    /// Which lane.
    pub lane: LaneId,
    /// The delivery.
    pub delivery: Delivery,
}

impl Delivery {
    /// A delivery of an event that has just been relayed.
    pub fn new(event: EventId, event_type: String, deadline: Timestamp, now: Timestamp) -> Self {
        Self {
            event,
            event_type,
            state: State::Pending,
            attempts: 0,
            due_at: now,
            deadline,
            created_at: now,
            log: Vec::new(),
            finished_at: None,
        }
    }

    /// The same delivery after an attempt.
    #[must_use]
    pub fn ended(&self, attempt: Attempt, next: Next, now: Timestamp) -> Self {
        let mut after = self.clone();
        after.attempts = attempt.number.max(self.attempts);
        after.log.push(attempt);
        let surplus = after.log.len().saturating_sub(MAX_LOG);
        after.log.drain(..surplus);
        match next {
            Next::Succeeded => (after.state, after.finished_at) = (State::Succeeded, Some(now)),
            Next::Dead => (after.state, after.finished_at) = (State::Dead, Some(now)),
            Next::RetryAt(at) | Next::Gone(at) => after.due_at = at,
        }
        after
    }
}
