//! The life of a received event: `pending → processed | ignored | dead_letter`, and back when somebody asks.

use std::{collections::BTreeMap, fmt, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    body::StoredBody,
    event::{ObjectRef, Origin, Version},
    id::InboxKey,
    retry::Backoff,
};

/// Where an event stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Accepted, and owed: it has a due time, and the sweeper finds it.
    Pending,
    /// Done; what it proposed is true, or was refused by a guard.
    Processed,
    /// Done; nobody wanted it.
    Ignored,
    /// Parked: it waits for a person, with a reason.
    DeadLetter,
}

impl Status {
    /// Whether nothing is owed any more.
    pub const fn is_finished(self) -> bool {
        matches!(self, Self::Processed | Self::Ignored)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pending => "pending",
            Self::Processed => "processed",
            Self::Ignored => "ignored",
            Self::DeadLetter => "dead_letter",
        })
    }
}

/// An event that has been verified and identified, on its way into the inbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRow {
    /// What it is called.
    pub key: InboxKey,
    /// The provider's word for what happened.
    pub event_type: Option<String>,
    /// When we got it.
    pub received_at: Timestamp,
    /// When the sweeper looks for it, if no message has brought it to the worker by then.
    pub due_at: Timestamp,
    /// Its bytes.
    pub body: StoredBody,
    /// The headers that are kept: those on the scheme's allow-list.
    pub headers: BTreeMap<String, String>,
    /// The object it speaks of.
    pub object: Option<ObjectRef>,
    /// How new its knowledge of the object is.
    pub version: Option<Version>,
    /// When the provider says it happened.
    pub occurred_at: Option<Timestamp>,
    /// Who brought it.
    pub origin: Origin,
    /// Which of the source's secrets it was signed with, so that an operator sees when an old one can go.
    pub key_id: Option<String>,
    /// Told apart from every other try to put this row: a retry that meets its own row is not a duplicate.
    pub token: String,
    /// The W3C trace context that came with it.
    pub traceparent: Option<String>,
}

/// What became of a try to put a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// The row is there, and it is ours.
    New,
    /// The row was there before.
    Duplicate {
        /// Where the old row stands.
        status: Status,
        /// Whether the old row has the same body.
        same_body: bool,
    },
}

/// A row of the inbox, as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// What was put.
    pub new: NewRow,
    /// Where it stands.
    pub status: Status,
    /// Attempts of this cycle that have failed, or were counted before they ran.
    pub attempts: u32,
    /// How often it was re-armed. Every write of a worker is conditional on it, so that a slow worker of an
    /// earlier cycle cannot end a later one.
    pub cycle: u32,
    /// How often the sweeper has claimed it in this cycle.
    pub sweeps: u32,
    /// When the sweeper looks for it next; pending rows only.
    pub due_at: Option<Timestamp>,
    /// When it was parked; parked rows only.
    pub dead_at: Option<Timestamp>,
    /// When it was finished.
    pub finished_at: Option<Timestamp>,
    /// What went wrong last.
    pub last_error: Option<Failure>,
    /// What will happen next and when, in plain words.
    pub next_action: Option<String>,
    /// What became of each change it proposed.
    pub results: Vec<ChangeResult>,
    /// When this cycle began: received, or re-armed.
    pub armed_at: Timestamp,
}

/// What became of one change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeResult {
    /// Which change: an object, an operation key, or an outgoing event.
    pub what: String,
    /// What became of it.
    pub result: Applied,
}

/// The ways a change can end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Applied {
    /// It is true now.
    Applied,
    /// A newer version was there already.
    Stale,
    /// The operation had been done already.
    DuplicateEffect,
    /// The outgoing event had been written already.
    AlreadyEmitted,
}

/// Longest error text that is kept, in characters.
pub const MAX_ERROR: usize = 500;

/// Why an attempt failed, or why an event was parked: a stable code, and words for a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// A stable word, such as `handler_failed`.
    pub code: String,
    /// Words for a person, sanitised.
    pub message: String,
}

impl Failure {
    /// A failure whose message is cut to [`MAX_ERROR`] characters and holds no control characters.
    pub fn new(code: &str, message: &str) -> Self {
        let message =
            message.chars().take(MAX_ERROR).map(|c| if c.is_control() { ' ' } else { c }).collect();
        Self { code: code.to_owned(), message }
    }
}

/// Proof that a row was read as pending in one cycle. What ends an attempt is conditional on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The row.
    pub key: InboxKey,
    /// Its cycle when it was read.
    pub cycle: u32,
}

/// Whether a conditional write found the row as its claim says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Noted {
    /// Written.
    Yes,
    /// The row has moved on: finished, parked, or re-armed by somebody else. Read it again.
    Moved,
}

/// The limits of processing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Attempts before an event is parked.
    pub attempts: u32,
    /// Wait between attempts.
    pub backoff: Backoff,
    /// How long a message stays hidden after it was received. The sweeper waits longer than this.
    pub visibility: Duration,
    /// How long an event may wait for something (a missing parent, a conflict) before it is parked.
    pub horizon: Duration,
    /// How much younger than the parking a message must be to count as an operator's redrive.
    pub redrive_margin: Duration,
    /// How long a finished row stays, to recognise duplicates.
    pub retention: Duration,
}

/// What a worker does with a message whose row it has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Triage {
    /// Run the handler.
    Run {
        /// Count the attempt before the handler runs: earlier receives ended without a trace, so this event may be
        /// one that kills its process.
        count_first: bool,
    },
    /// Nothing is owed: acknowledge.
    Finished,
    /// An operator moved the message back from the dead-letter queue: re-arm the row, then run.
    Redriven,
    /// Parked: let the message fail at once, until SQS moves it to the dead-letter queue.
    Parked,
    /// Attempts are used up, although nothing parked the row: park it now.
    Exhausted,
}

/// Receives of one message from which on an attempt is counted before it runs.
pub const COUNT_FIRST_FROM: u32 = 3;

/// Decides what to do with a message, received `receives` times, sent at `sent_at`, for `row`.
pub fn triage(row: &Row, receives: u32, sent_at: Timestamp, limits: &Limits) -> Triage {
    match row.status {
        Status::Processed | Status::Ignored => Triage::Finished,
        Status::DeadLetter => {
            // Only a redrive sends an old message with a new time; the margin exceeds clock skew and any sender's
            // time-out, so a message that was under way when the row was parked does not look like one.
            let dead_at = row.dead_at.unwrap_or(Timestamp::MAX);
            let redriven =
                dead_at.saturating_add(limits.redrive_margin).is_ok_and(|at| sent_at > at);
            if redriven { Triage::Redriven } else { Triage::Parked }
        }
        Status::Pending if row.attempts >= limits.attempts => Triage::Exhausted,
        Status::Pending => Triage::Run { count_first: receives >= COUNT_FIRST_FROM },
    }
}

/// What is written after an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterFailure {
    /// Try again.
    Retry {
        /// The wait of the message.
        wait: Duration,
        /// When the sweeper looks, should the message be lost.
        due_at: Timestamp,
    },
    /// Stop and wait for a person.
    Park,
}

/// Decides what follows the failure that makes the count of attempts `attempts` (counted from 1).
pub fn after_failure(
    attempts: u32,
    permanent: bool,
    now: Timestamp,
    jitter: f64,
    limits: &Limits,
) -> AfterFailure {
    if permanent || attempts >= limits.attempts {
        return AfterFailure::Park;
    }
    let wait = limits.backoff.after(attempts, jitter);
    // Past the next visibility: the message gets its chance first, and the sweeper only finds what was lost.
    AfterFailure::Retry { wait, due_at: later(now, wait + limits.visibility) }
}

/// What follows when an event has to wait for something that is not its own failure.
pub fn after_waiting(row: &Row, delay: Duration, now: Timestamp, limits: &Limits) -> AfterFailure {
    if later(row.armed_at, limits.horizon) <= now {
        return AfterFailure::Park;
    }
    AfterFailure::Retry { wait: delay, due_at: later(now, delay) }
}

/// When a row that the sweeper claims for the `sweeps`-th time (counted from 0) is due again.
pub fn claimed_until(sweeps: u32, base: Duration, cap: Duration, now: Timestamp) -> Timestamp {
    later(now, base.saturating_mul(1_u32 << sweeps.min(20)).min(cap))
}

fn later(at: Timestamp, by: Duration) -> Timestamp {
    at.saturating_add(by).unwrap_or(Timestamp::MAX)
}
