//! Delivers events to the endpoints of tenants.
//!
//! A wake message names a lane: the queue of one endpoint. The deliverer takes the lane, delivers what is due, and puts
//! the lane to sleep ([`drain`]). Each attempt signs the event anew ([`attempt`]) and posts it through a client that
//! trusts nobody ([`transport`]), or hands it to a queue or a bus of the deployment's account. Several lanes are drained
//! at once, and none waits for another.
//!
//! This is the only function that dials what a tenant chose. It must never follow a redirect, never dial an address
//! that it has not checked, and never lose a delivery because its own process ended.

pub mod attempt;
pub mod config;
pub mod drain;
pub mod transport;

use std::{fmt, time::Duration};

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use domain::{
    lane::LaneId,
    message::{BadMessage, Message as _, WakeMessage},
    ports::{Bodies, Deliveries, Keyring, Lanes, Notices, Outbox, Queue, Registry, StoreError},
};
use egress::resolve::Resolve;
use jiff::Timestamp;
use runtime::{batch, telemetry::Metrics};

use self::{
    attempt::Attempts,
    drain::{Drain, Ended, Rules},
    transport::Targets,
};
pub use self::{
    attempt::keys::Keys,
    config::Config,
    drain::Edge,
    transport::{client::Dialler, targets::AwsTargets},
};

/// Between the end of the last attempt and the end of the invocation: for writing down how it ended.
const MARGIN: Duration = Duration::from_secs(2);

/// What the deliverer works with.
pub struct Deliverer<L, O, R, K, B, Q, N, A> {
    /// Lanes and deliveries.
    pub lanes: L,
    /// Outgoing events.
    pub outbox: O,
    /// Endpoints.
    pub registry: R,
    /// Opens the endpoints' secrets, and remembers them.
    pub keys: Keys<K>,
    /// Large payloads.
    pub bodies: B,
    /// The wake queue.
    pub queue: Q,
    /// Makes clients.
    pub dialler: Dialler<N>,
    /// Queues and buses, those of the operators included.
    pub targets: A,
    /// The rules of draining.
    pub rules: Rules,
    /// How long a pass over one lane begins new attempts.
    pub pass: Duration,
    /// Lanes that are drained at once.
    pub width: usize,
    /// What is counted.
    pub metrics: Metrics,
    /// Time and chance.
    pub edge: Edge,
}

impl<L, O, R, K, B, Q, N, A> fmt::Debug for Deliverer<L, O, R, K, B, Q, N, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deliverer").field("rules", &self.rules).finish_non_exhaustive()
    }
}

/// Why a wake message goes back to the queue.
#[derive(Debug, thiserror::Error)]
pub enum WakeError {
    /// Not one of ours, or of a later version. It ends in the dead-letter queue, for a person to see; the lane that it
    /// may have named is the sweeper's.
    #[error("the wake message cannot be read")]
    Message(#[from] BadMessage),
    /// The store failed.
    #[error("the lane could not be drained")]
    Store(#[from] StoreError),
}

impl<L, O, R, K, B, Q, N, A> Deliverer<L, O, R, K, B, Q, N, A>
where
    L: Lanes + Deliveries,
    O: Outbox,
    R: Registry,
    K: Keyring,
    B: Bodies,
    Q: Queue<WakeMessage>,
    N: Resolve,
    A: Targets + Notices,
{
    /// Drains the lanes that a batch of wake messages names. `request` is new for each invocation, which ends at
    /// `ends`, in milliseconds since the epoch.
    ///
    /// # Errors
    /// If a message has no id, so that it could not be told from the others.
    pub async fn handle(
        &self,
        batch: SqsEvent,
        request: &str,
        ends: u64,
    ) -> Result<SqsBatchResponse, batch::NoMessageId> {
        let ends = i64::try_from(ends).ok().and_then(|ends| Timestamp::from_millisecond(ends).ok());
        let deadline = ends.unwrap_or(Timestamp::MAX);
        let drain = |message: aws_lambda_events::sqs::SqsMessage| async move {
            let id = message.message_id.unwrap_or_default();
            let text = message.body.unwrap_or_default();
            self.wake(&text, &format!("{request}/{id}"), deadline).await.map(drop)
        };
        let answer = batch::each(batch, self.width, drain).await;
        self.metrics.flush((self.edge.now)());
        answer
    }

    /// Drains the lane that one wake message names. A lane that somebody else drains is left to him.
    ///
    /// # Errors
    /// [`WakeError`]: the message goes back to the queue.
    pub async fn wake(
        &self,
        text: &str,
        owner: &str,
        deadline: Timestamp,
    ) -> Result<Ended, WakeError> {
        let WakeMessage(lane) = WakeMessage::from_text(text)?;
        let began = (self.edge.now)();
        let ended = self.drain(&lane, owner, self.until(began, deadline)).await;
        let took = Duration::try_from((self.edge.now)().duration_since(began)).unwrap_or_default();
        let duration_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let result = result(&ended);
        tracing::info!(stage = "drain", lane = %lane, duration_ms, result, "drained");
        Ok(ended?)
    }

    async fn drain(
        &self,
        lane: &LaneId,
        owner: &str,
        until: Timestamp,
    ) -> Result<Ended, StoreError> {
        // A client of its own: connections live as long as this drain.
        let client = self.dialler.client();
        let sender = Attempts {
            outbox: &self.outbox,
            keys: &self.keys,
            bodies: &self.bodies,
            transport: &client,
            targets: &self.targets,
            policy: self.dialler.bounds().policy,
            within: self.dialler.bounds().attempt,
            metrics: &self.metrics,
            edge: self.edge,
        };
        let drain = Drain {
            lanes: &self.lanes,
            registry: &self.registry,
            queue: &self.queue,
            sender: &sender,
            notices: &self.targets,
            metrics: &self.metrics,
            rules: &self.rules,
            edge: self.edge,
        };
        // Boxed: ten of them are kept in one future.
        Box::pin(drain.lane(lane, owner, until)).await
    }

    /// The end of a pass: early enough that an attempt begun at the last moment can end.
    fn until(&self, now: Timestamp, deadline: Timestamp) -> Timestamp {
        let last = deadline.saturating_sub(self.dialler.bounds().attempt + MARGIN);
        let pass = now.saturating_add(self.pass).unwrap_or(Timestamp::MAX);
        last.map_or(pass, |last| pass.min(last))
    }
}

const fn result(ended: &Result<Ended, StoreError>) -> &'static str {
    match ended {
        Ok(Ended::Busy) => "busy",
        Ok(Ended::Absent) => "absent",
        Ok(Ended::Asleep(_)) => "asleep",
        Ok(Ended::Continued) => "continued",
        Ok(Ended::Lost) => "lost",
        Err(_) => "failed",
    }
}
