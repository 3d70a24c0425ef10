//! Carries out what an accepted event proposes: from a message that names a row of the inbox to one transaction that
//! ends the row, changes objects and writes outgoing events.
//!
//! The story of one message is [`Worker::handle`]: read the row, ask [`domain::inbox::triage`] what is owed, plan, commit,
//! and write down how the attempt ended *before* the queue is answered. What the queue is told follows from what the
//! table holds, never the other way round: a message is acknowledged only when the row is finished, or has a due time at
//! which the sweeper sends it again.
//!
//! It must never: acknowledge what is not written, send to the dead-letter queue itself (a redrive from the console would
//! refuse the message), let one event's failure or panic touch its neighbours, or do a handler's work outside the
//! transaction.
//!
//! Reading order: this file; `attempt` is one try, from the body to the commit; `knowing` finds out what its
//! plan may look at, and [`fetching`] asks the provider for it; `split` is what is done with a request that carries several
//! events; `ending` writes down what became of it; `sources` are read and remembered, and a `payload` that is large laid aside;
//! [`handlers`] is what events mean; `telling` is the log line and the metrics; `batch` is how messages come from SQS.

mod attempt;
mod batch;
pub mod config;
mod ending;
pub mod fetching;
pub mod handlers;
mod knowing;
mod payload;
mod sources;
mod split;
mod telling;

use std::{pin::pin, time::Duration};

use domain::{
    id::InboxKey,
    inbox::{ChangeResult, Failure, Limits, Row, Status, Triage, triage},
    message::{BadMessage, InboundMessage, Message as _},
    ports::{Bodies, Inbox, Queue, Registry, State, StoreError, Stored},
};
use futures_util::future::{Either, select};
use jiff::Timestamp;
use runtime::telemetry::Metrics;

pub use self::sources::{Feed, Sources};

/// Most times that one message reads its row again because somebody else had moved it.
const READS: u32 = 4;

/// What a worker works with.
#[derive(Debug)]
pub struct Worker<'a, I, S, R, B, Q, N> {
    /// Events received.
    pub inbox: &'a I,
    /// Objects, operation keys, and the transaction.
    pub state: &'a S,
    /// What is done with each source's events.
    pub sources: &'a Sources<R>,
    /// Large bodies.
    pub bodies: &'a B,
    /// The queue that the messages come from.
    pub queue: &'a Q,
    /// The limits of processing.
    pub limits: Limits,
    /// Largest payload of an outgoing event, in bytes.
    pub payload_max: usize,
    /// What events mean: [`handlers::SHIPPED`], or a test's own.
    pub handlers: handlers::Handlers,
    /// What is counted.
    pub metrics: &'a Metrics,
    /// The edge's clock. An attempt takes seconds, and what follows from its end is timed from its end.
    pub now: N,
}

/// A message, as the queue gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Defers this receive of the message.
    pub receipt: String,
    /// Its text.
    pub text: String,
    /// How often it was received, this time included.
    pub receives: u32,
    /// When it was sent.
    pub sent_at: Timestamp,
}

/// One receive of a message, and the time there is for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Try<'m> {
    /// No other receive has it.
    pub(crate) receipt: &'m str,
    /// When the attempt is ended, whatever it does.
    pub(crate) ends: Timestamp,
    /// Drawn evenly from 0 to 1, for this receive alone.
    pub(crate) jitter: f64,
}

/// What became of a message.
#[derive(Debug)]
pub enum Outcome {
    /// This attempt finished the row.
    Finished {
        /// Processed or ignored.
        status: Status,
        /// What became of each change.
        results: Vec<ChangeResult>,
        /// Why it was ignored.
        reason: Option<String>,
    },
    /// The row was finished before: the message is a copy, or its acknowledgement was lost.
    FinishedBefore,
    /// The attempt failed; the message comes back.
    Retry {
        /// How long it waits.
        wait: Duration,
        /// What went wrong.
        failure: Failure,
    },
    /// The event waits for something that is not its own failure; a delayed message or the sweeper brings it back.
    Waits {
        /// From when on.
        until: Timestamp,
        /// What it waits for.
        reason: Failure,
    },
    /// The event's source is paused, and nothing of the event was begun.
    Paused {
        /// Since when.
        since: Timestamp,
        /// When it is looked at again, whether or not anybody resumes the source.
        until: Timestamp,
    },
    /// This attempt parked the row.
    Parked(Failure),
    /// The row was parked before, and the message is on its way to the dead-letter queue.
    ParkedBefore,
    /// There is no such row.
    ///
    /// The row is always put before its message, is read consistently, and outlives every message (35 days against
    /// SQS's 14). So somebody removed it by hand, or a table was restored, or the message is another deployment's. The
    /// id is all that is left of the event: it goes to the dead-letter queue, where it is seen and kept.
    Missing,
    /// The message cannot be read. A later version of this code may be able to, so it goes to the dead-letter queue.
    Unreadable(BadMessage),
    /// The row was moved by others each time it was read. The message comes back.
    Restless,
    /// The store could not be asked, or could not be told how the attempt ended. The message comes back.
    Unsure(StoreError),
}

impl Outcome {
    /// Whether the queue may forget the message: the row is finished, or its due time brings it back.
    pub const fn is_settled(&self) -> bool {
        matches!(
            self,
            Self::Finished { .. } | Self::FinishedBefore | Self::Waits { .. } | Self::Paused { .. }
        )
    }

    /// How long an unsettled message is hidden before it comes back.
    fn back_after(&self, limits: &Limits, receives: u32, jitter: f64) -> Option<Duration> {
        match self {
            Self::Finished { .. }
            | Self::FinishedBefore
            | Self::Waits { .. }
            | Self::Paused { .. } => None,
            Self::Retry { wait, .. } => Some(*wait),
            // At once, until it has been received too often and SQS moves it to the dead-letter queue.
            Self::Parked(_) | Self::ParkedBefore | Self::Missing | Self::Unreadable(_) => {
                Some(Duration::ZERO)
            }
            // Only a measure of the wait: attempts are counted in the row.
            Self::Restless | Self::Unsure(_) => Some(limits.backoff.after(receives, jitter)),
        }
    }
}

impl<I, S, R, B, Q, N> Worker<'_, I, S, R, B, Q, N>
where
    I: Inbox,
    S: State,
    R: Registry,
    B: Bodies,
    Q: Queue<InboundMessage>,
    N: Fn() -> Timestamp,
{
    /// Handles one message until `deadline` is over, which leaves time to write down that it is.
    ///
    /// A message that is not [settled](Outcome::is_settled) has been deferred, and must be reported as failed.
    pub async fn handle(
        &self,
        message: &Received,
        jitter: f64,
        deadline: impl Future<Output = ()>,
    ) -> Outcome {
        self.handle_until(message, jitter, deadline, Timestamp::MAX).await
    }

    /// The same; `ends` is when `deadline` will be over, for what asks before it begins whether there is time.
    pub async fn handle_until(
        &self,
        message: &Received,
        jitter: f64,
        deadline: impl Future<Output = ()>,
        ends: Timestamp,
    ) -> Outcome {
        let began = (self.now)();
        let mut last = None;
        let (key, outcome) = match InboundMessage::from_text(&message.text) {
            Err(bad) => (None, Outcome::Unreadable(bad)),
            Ok(InboundMessage(key)) => {
                let settled = self.settle(&key, (message, ends), jitter, deadline, &mut last).await;
                (Some(key), settled.unwrap_or_else(Outcome::Unsure))
            }
        };
        self.tell(key.as_ref(), last.as_ref(), &outcome, began);
        if let Some(wait) = outcome.back_after(&self.limits, message.receives, jitter) {
            self.queue.defer(&message.receipt, wait).await;
        }
        outcome
    }

    /// Reads the row and does what is owed, again if somebody else moved the row meanwhile.
    async fn settle(
        &self,
        key: &InboxKey,
        (message, ends): (&Received, Timestamp),
        jitter: f64,
        deadline: impl Future<Output = ()>,
        last: &mut Option<Row>,
    ) -> Stored<Outcome> {
        let mut deadline = pin!(deadline);
        let mut out_of_time = false;
        for _ in 0..READS {
            let Some(row) = self.inbox.read(key).await? else { return Ok(Outcome::Missing) };
            let row = last.insert(row);
            match triage(row, message.receives, message.sent_at, &self.limits) {
                Triage::Finished => return Ok(Outcome::FinishedBefore),
                Triage::Parked => return Ok(Outcome::ParkedBefore),
                // Whether it was us or somebody else who re-armed it: the row says what is owed now.
                Triage::Redriven => self.rearm(key).await?,
                Triage::Exhausted => {
                    if let Some(outcome) =
                        self.park(row, row.attempts, row.attempts_used_up()).await?
                    {
                        return Ok(outcome);
                    }
                }
                Triage::Run { .. } if out_of_time => break,
                Triage::Run { count_first } => {
                    let attempt = pin!(self.attempt(
                        row,
                        Try { receipt: &message.receipt, ends, jitter },
                        count_first
                    ));
                    let ended = match select(attempt, &mut deadline).await {
                        Either::Left((ended, _)) => ended,
                        Either::Right(((), _)) => {
                            out_of_time = true;
                            self.out_of_time(row).await?
                        }
                    };
                    if let Some(outcome) = self.conclude(row, ended, jitter).await? {
                        return Ok(outcome);
                    }
                }
            }
        }
        Ok(Outcome::Restless)
    }
}
