//! Finds what is owed and starts it again, each minute. Queues and the stream only make things fast: whatever they lose,
//! a row with a due time remembers, and this is who reads every such index.
//!
//! One sweep, under a lease so that two never run at once: [`inbox`] sends events whose message was lost, and parks those
//! whose attempts are used up; [`outbox`] relays what the stream did not bring; [`lanes`] wakes lanes whose time has
//! come; `works` advances replays of many events and redeliveries; [`errands`] fetches keys that providers publish and confirms
//! subscriptions, over the one way out ([`provider`]). They run side by side, oldest first, until the budget is spent. Then
//! [`gauges`] measures what is left, so that an alarm sees what no sweep could fix. One part's failure does not stop the
//! others, and fails the function at the end.
//!
//! It must never: delete anything, deliver anything itself, call an address that no scheme pins, or claim a row without
//! moving its due time ahead.

pub mod config;
pub mod errands;
pub mod gauges;
pub mod inbox;
pub mod lanes;
pub mod outbox;
pub mod provider;
mod works;

use std::time::Duration;

use domain::{
    message::{InboundMessage, WakeMessage},
    ports::{
        Bodies, Bulk, Deliveries, DueInbox, Events, Fanout, Inbox, Lanes, Lease, Outbox,
        PublishedKeys, Queue, Redeliver, Redeliveries, Registry, SourceSecrets, State, StoreError,
        Walk, Watch,
    },
};
use flow::fanout::EndpointCache;
use futures_util::join;
use jiff::Timestamp;
use runtime::telemetry::{Metrics, Step};

use crate::{errands::Errands, provider::Provider};

/// What the lease is of.
const LEASE: &str = "sweeper";

/// The waits and limits of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// How long the sweeps have; the gauges come after it.
    pub budget: Duration,
    /// How long the lease holds, should the sweeper die.
    pub lease: Duration,
    /// Shards of the index of pending rows.
    pub pending_shards: u16,
    /// Shards of the index of unrelayed events.
    pub outbox_shards: u16,
    /// Shards of the index of sleeping lanes.
    pub wake_shards: u16,
    /// Attempts before an event is parked.
    pub attempts: u32,
    /// How long a claimed row has until it is due again; doubles with each claim.
    pub claim_base: Duration,
    /// The longest such time.
    pub claim_cap: Duration,
    /// How long the stream has to bring an event to the relay.
    pub unrelayed_after: Duration,
    /// How long a delivery is tried, from its event on.
    pub delivery_deadline: Duration,
}

/// What a sweep works with.
#[derive(Debug)]
pub struct Sweeper<'a, I, S, O, L, R, Q, W, N, K, P, B> {
    /// Events received.
    pub inbox: &'a I,
    /// The lease, and when each source was last heard.
    pub state: &'a S,
    /// Outgoing events.
    pub outbox: &'a O,
    /// Lanes and what is put into them.
    pub lanes: &'a L,
    /// Endpoints and sources; bulk work.
    pub registry: &'a R,
    /// The worker's queue.
    pub inbound: &'a Q,
    /// The deliverer's queue.
    pub wake: &'a W,
    /// What is owed to providers.
    pub errands: Errands<'a, K, P>,
    /// Large payloads of outgoing events.
    pub bodies: &'a B,
    /// Endpoints as they were read before.
    pub cache: &'a EndpointCache,
    /// The waits and limits.
    pub rules: Rules,
    /// What is measured.
    pub metrics: &'a Metrics,
    /// The edge's clock: a sweep ends when its budget is spent.
    pub now: N,
}

/// What became of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swept {
    /// It is over.
    Done {
        /// Rows sent, events relayed, lanes woken, events replayed.
        started: u64,
        /// Rows parked because their attempts were used up.
        parked: u64,
    },
    /// Another sweep is under way until then.
    Busy(Timestamp),
}

/// At least one part of a sweep failed. What could be done was done, and the next sweep does the rest.
#[derive(Debug, thiserror::Error)]
#[error("a part of the sweep failed: {parts}")]
pub struct SweepFailed {
    /// The parts that failed.
    pub parts: String,
    /// The first error.
    #[source]
    pub first: StoreError,
}

/// What one part of a sweep did.
#[derive(Debug, Default)]
pub struct Part {
    /// What was started again.
    pub started: u64,
    /// What was parked.
    pub parked: u64,
    /// The first error.
    pub error: Option<StoreError>,
}

impl Part {
    /// Keeps the first error; the others are as good as it.
    pub(crate) fn fail(&mut self, error: StoreError) {
        tracing::warn!(error = %runtime::telemetry::chain(&error), "a step of the sweep failed");
        self.error.get_or_insert(error);
    }
}

impl<I, S, O, L, R, Q, W, N, K, P, B> Sweeper<'_, I, S, O, L, R, Q, W, N, K, P, B>
where
    I: Inbox + DueInbox + Walk,
    S: State + Watch + PublishedKeys,
    O: Outbox + Events,
    L: Lanes + Fanout + Deliveries + Redeliver,
    R: Registry + Bulk + Redeliveries,
    Q: Queue<InboundMessage>,
    W: Queue<WakeMessage>,
    N: Fn() -> Timestamp + Sync,
    K: SourceSecrets,
    P: Provider,
    B: Bodies,
{
    /// Makes one sweep as `owner`, a name that no other sweep has.
    ///
    /// # Errors
    /// The parts that failed, after all parts have run.
    pub async fn sweep(&self, owner: &str) -> Result<Swept, SweepFailed> {
        let began = (self.now)();
        let failed = |parts: String, first| SweepFailed { parts, first };
        let lease =
            match self.state.lease(LEASE, owner, began, after(began, self.rules.lease)).await {
                Ok(Lease::Held(lease)) => lease,
                Ok(Lease::Busy(until)) => return Ok(Swept::Busy(until)),
                Err(error) => return Err(failed(LEASE.to_owned(), error)),
            };
        let until = after(began, self.rules.budget);
        // On the heap: each holds a page of what it reads.
        let (inbox, outbox, lanes, bulk, redeliver, errands) = join!(
            Box::pin(inbox::sweep(self, until)),
            Box::pin(outbox::sweep(self, until)),
            Box::pin(lanes::sweep(self, until)),
            Box::pin(works::replay(self, until)),
            Box::pin(works::redeliver(self, until)),
            Box::pin(errands::sweep(self, until)),
        );
        let gauges = Box::pin(gauges::measure(self)).await;

        let parts = [
            ("inbox", inbox),
            ("outbox", outbox),
            ("lanes", lanes),
            ("bulk", bulk),
            ("redeliver", redeliver),
            ("errands", errands),
            ("gauges", gauges),
        ];
        let (mut started, mut parked) = (0, 0);
        let mut broken: Option<SweepFailed> = None;
        for (name, part) in parts {
            started += part.started;
            parked += part.parked;
            self.tell(name, &part, began);
            match (part.error, &mut broken) {
                (None, _) => {}
                (Some(first), None) => broken = Some(failed(name.to_owned(), first)),
                (Some(_), Some(broken)) => broken.parts = format!("{}, {name}", broken.parts),
            }
        }
        // Failing to give it back costs one sweep at most: it expires.
        if let Err(error) = self.state.give_back(&lease, (self.now)()).await {
            broken.get_or_insert(failed(LEASE.to_owned(), error));
        }
        broken.map_or(Ok(Swept::Done { started, parked }), Err)
    }

    fn tell(&self, name: &str, part: &Part, began: Timestamp) {
        let duration = (self.now)().duration_since(began).try_into().ok();
        let result = if part.error.is_some() { "failed" } else { "swept" };
        let step = Step { stage: "sweep", duration, result, ..Step::default() };
        let message = format!("{name}: {} started again, {} parked", part.started, part.parked);
        match &part.error {
            Some(error) => step.error(&message, Some(error)),
            None => step.info(&message),
        }
    }
}

fn after(at: Timestamp, by: Duration) -> Timestamp {
    at.saturating_add(by).unwrap_or(Timestamp::MAX)
}

fn before(at: Timestamp, by: Duration) -> Timestamp {
    at.saturating_sub(by).unwrap_or(Timestamp::MIN)
}

/// Messages that did not go. The rows they name are due again after their claim.
fn not_sent(count: usize) -> StoreError {
    StoreError::Unavailable(format!("{count} messages were not sent").into())
}

/// An error that several events share.
fn shared(error: &StoreError) -> StoreError {
    let text = runtime::telemetry::chain(error).to_string();
    StoreError::Unavailable(text.into())
}
