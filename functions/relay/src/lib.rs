//! Turns one outbox event into one delivery for each endpoint that wants it.
//!
//! The stream of the outbox brings batches of records. What can be read goes through [`flow::fanout`]; the answer names
//! the first record whose event should come again, and the platform goes back to it. The stream is the fast path only:
//! whatever it loses, repeats or brings in a form that cannot be read stays NEW in the outbox, and the sweeper finds it.
//!
//! It must never hold a shard of the stream for one event or one tenant: only a store that is down is worth a retry.

pub mod config;
mod record;

use std::time::Duration;

use aws_lambda_events::streams::{DynamoDbBatchItemFailure, DynamoDbEventResponse};
use domain::{
    id::EndpointId,
    message::WakeMessage,
    outbox::OutboxEvent,
    ports::{Bodies, Fanout, Outbox, Queue, Registry},
};
use flow::fanout::{EndpointCache, FanOut, Fate, STEP};
use jiff::Timestamp;
use runtime::telemetry::{Metrics, Step};
use serde_json::Value;

pub use self::config::Config;
use self::record::Unread;

/// How long before its end an invocation begins nothing more: a step's calls may all need their retries.
const MARGIN: Duration = Duration::from_secs(10);

/// What the relay works with.
#[derive(Debug)]
pub struct Relay<F, O, R, Q, B, N> {
    /// Where deliveries go.
    pub lanes: F,
    /// Where events are marked.
    pub outbox: O,
    /// Where endpoints stand.
    pub registry: R,
    /// The wake queue.
    pub queue: Q,
    /// Where large payloads are.
    pub bodies: B,
    /// Endpoints as they were read before.
    pub cache: EndpointCache,
    /// How long a delivery is tried.
    pub deadline: Duration,
    /// What is counted.
    pub metrics: Metrics,
    /// The edge's clock.
    pub now: N,
}

/// The batch failed at a record that has no sequence number to go back to.
#[derive(Debug, thiserror::Error)]
#[error(
    "a batch could not be finished, and the stream's records have no sequence numbers; all of it comes again"
)]
pub struct NoSequence;

impl<F, O, R, Q, B, N> Relay<F, O, R, Q, B, N>
where
    F: Fanout,
    O: Outbox,
    R: Registry,
    Q: Queue<WakeMessage>,
    B: Bodies,
    N: Fn() -> Timestamp + Sync,
{
    /// Relays a batch of the stream. The answer names at most one record: the first that should come again, with all
    /// behind it (OUT-stream-checkpoint). It begins nothing more shortly before the invocation ends, `ends` milliseconds after
    /// the epoch: what is not begun comes again, and what is begun goes on from where it is.
    ///
    /// # Errors
    /// [`NoSequence`].
    pub async fn handle(
        &self,
        batch: &Value,
        ends: u64,
    ) -> Result<DynamoDbEventResponse, NoSequence> {
        let (sequences, events): (Vec<_>, Vec<_>) = record::all(batch)
            .filter_map(|record| match record::read(record) {
                Ok(event) => Some((record::sequence(record), event)),
                Err(unread) => {
                    self.pass_over(record, &unread);
                    None
                }
            })
            .unzip();
        let fan_out = FanOut {
            lanes: &self.lanes,
            outbox: &self.outbox,
            registry: &self.registry,
            queue: &self.queue,
            bodies: &self.bodies,
            cache: &self.cache,
            deadline: self.deadline,
            step: STEP,
            now: &self.now,
        };
        let fates = fan_out.run(&events, until(ends)).await;
        for (event, fate) in events.iter().zip(&fates) {
            self.tell(event, fate);
        }
        self.metrics.flush((self.now)());
        let again = |fate: &Fate| matches!(fate, Fate::Down(_) | Fate::Unfinished);
        let again = fates.iter().position(again);
        let mut answer = DynamoDbEventResponse::default();
        if let Some(first) = again {
            let sequence = sequences.get(first).cloned().flatten().ok_or(NoSequence)?;
            let mut failure = DynamoDbBatchItemFailure::default();
            failure.item_identifier = Some(sequence);
            answer.batch_item_failures.push(failure);
        }
        Ok(answer)
    }

    /// A record that cannot be read is done with: bringing it again would not help, and its row is the sweeper's.
    fn pass_over(&self, record: &Value, unread: &Unread) {
        self.metrics.count("relay_unreadable_total", None, 1);
        let sequence = record::sequence(record);
        let step = Step {
            stage: "relay",
            event_id: sequence.as_deref(),
            result: "unreadable",
            ..Step::default()
        };
        step.error("a record of the stream cannot be read", Some(unread));
    }

    fn tell(&self, event: &OutboxEvent, fate: &Fate) {
        let id = event.id.to_string();
        let step = Step {
            stage: "relay",
            event_id: Some(&id),
            event_type: Some(&event.event_type),
            ..Step::default()
        };
        match fate {
            Fate::Relayed { unread: Some(unread), endpoints } => {
                self.metrics.count("relay_unreadable_payload_total", None, 1);
                self.tell_relayed(endpoints, &step);
                let step = Step { result: "unreadable", ..step };
                step.warn("filters let nothing pass", Some(unread));
            }
            Fate::Relayed { unread: None, endpoints } => self.tell_relayed(endpoints, &step),
            Fate::Unfinished => {
                Step { result: "unfinished", ..step }.info("goes on in the next invocation");
            }
            Fate::Left(error) => {
                self.metrics.count("relay_left_total", None, 1);
                Step { result: "left", ..step }.warn("left to the sweeper", Some(error));
            }
            Fate::Down(error) => {
                Step { result: "down", ..step }.warn("the store is down", Some(error));
            }
        }
    }

    fn tell_relayed(&self, endpoints: &[EndpointId], step: &Step<'_>) {
        if endpoints.is_empty() {
            self.metrics.count("relay_unmatched_total", None, 1);
            Step { result: "unmatched", ..*step }.info("nobody wants the event");
        } else {
            self.metrics.count("relay_relayed_total", None, 1);
            Step { result: "relayed", ..*step }.info("relayed");
        }
    }
}

fn until(ends: u64) -> Timestamp {
    let ends = i64::try_from(ends).ok().and_then(|ends| Timestamp::from_millisecond(ends).ok());
    ends.and_then(|ends| ends.checked_sub(MARGIN).ok()).unwrap_or(Timestamp::MAX)
}
