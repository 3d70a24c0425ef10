//! The other end: a subscriber who answers, or does not, and the deliverer that calls on him.

use std::{
    cell::Cell,
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use deliverer::drain::{Drain, Edge, Prepared, Rules, Sender};
use domain::{
    breaker::Limits,
    delivery::{Attempt, Cause, Delivery, Outcome, Schedule},
    endpoint::{Endpoint, HealthLimits},
    id::EventId,
    lane::LaneId,
    message::{Message as _, WakeMessage},
    ports::{Outbox as _, SealedSecret, StoreError, Stored},
    retry::Backoff,
};
use jiff::Timestamp;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use runtime::telemetry::Metrics;
use testkit::memory::Store;

use crate::{
    actors::{Process, process},
    world::World,
};

/// The deliverer's rules: the template's defaults.
pub(crate) const RULES: Rules = Rules {
    lease: Duration::from_secs(60),
    schedule: Schedule {
        backoff: Backoff {
            floor: Duration::from_secs(1),
            base: Duration::from_secs(30),
            cap: Duration::from_secs(43_200),
        },
        retry_after_cap: Duration::from_secs(86_400),
    },
    breaker: Limits {
        opens_after: 10,
        probe: Duration::from_secs(60),
        probe_cap: Duration::from_secs(900),
        retry_after_cap: Duration::from_secs(86_400),
    },
    tried_for: Duration::from_secs(345_600),
    health: HealthLimits { disable_after: Duration::from_secs(432_000) },
    hold: Duration::from_secs(1_209_600),
    concurrency: 5,
};

/// How long a pass over a lane begins new attempts.
const PASS: Duration = Duration::from_secs(20);

thread_local! {
    /// The simulation's clock, for those who can only ask a function. A world lives on one thread.
    static NOW: Cell<Timestamp> = const { Cell::new(Timestamp::UNIX_EPOCH) };
}

/// Sets the clock of this thread's world.
pub(crate) fn set_now(now: Timestamp) {
    NOW.set(now);
}

/// What time it is in this thread's world.
pub(crate) fn now() -> Timestamp {
    NOW.get()
}

const EDGE: Edge = Edge { now: || NOW.get(), jitter: || 0.5 };

/// What a subscriber has seen, and how reliable he is.
#[derive(Debug, Default)]
pub(crate) struct Subscriber {
    /// How often each event reached him.
    received: Mutex<BTreeMap<EventId, u32>>,
    luck: Mutex<Option<(StdRng, f64)>>,
}

impl Subscriber {
    /// Which share of his answers is no success.
    pub(crate) fn set_failures(&self, seed: u64, share: f64) {
        *self.luck.lock().unwrap_or_else(PoisonError::into_inner) =
            (share > 0.0).then(|| (StdRng::seed_from_u64(seed), share));
    }

    /// How often an event reached him.
    pub(crate) fn received(&self, event: EventId) -> u32 {
        let received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        received.get(&event).copied().unwrap_or_default()
    }

    fn post(&self, event: EventId) -> Outcome {
        let mut luck = self.luck.lock().unwrap_or_else(PoisonError::into_inner);
        let answered = |status| Outcome::Answered { status, retry_after_ms: None };
        let fails = luck.as_mut().is_some_and(|(rng, share)| rng.random_bool(*share));
        let is_seen = !fails || luck.as_mut().is_some_and(|(rng, _)| rng.random_bool(0.5));
        if is_seen {
            let mut received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
            *received.entry(event).or_default() += 1;
        }
        match (fails, is_seen) {
            (false, _) => answered(204),
            (true, true) => answered(500),
            (true, false) => Outcome::Failed { cause: Cause::Timeout },
        }
    }
}

/// Calls on the subscriber.
struct Calls<'w> {
    store: &'w Store,
    subscriber: &'w Subscriber,
}

impl Sender for Calls<'_> {
    type Target = ();
    type Request = ();

    async fn open(&self, _: Endpoint, _: Vec<SealedSecret>) -> Stored<()> {
        Ok(())
    }

    async fn prepare(&self, (): &(), lane: &LaneId, delivery: &Delivery) -> Stored<Prepared<()>> {
        let row = self.store.event(&lane.tenant, delivery.event).await?;
        if row.is_none() {
            return Err(StoreError::Unreadable("a delivery without its event".to_owned()));
        }
        Ok(Prepared::Ready(()))
    }

    /// No time passes while a request is under way.
    async fn look_again(&self, _: Duration) {
        std::future::pending::<()>().await;
    }

    async fn send(&self, _: &LaneId, delivery: &Delivery, (): ()) -> Attempt {
        Attempt {
            number: delivery.attempts + 1,
            at: NOW.get(),
            duration_ms: 0,
            outcome: self.subscriber.post(delivery.event),
            excerpt: String::new(),
        }
    }
}

/// Lambda takes a wake message, and runs the deliverer on it.
pub(crate) fn deliverer<'w>(world: &'w World, rng: &mut StdRng) -> Option<Process<'w>> {
    let got = world.wake.receive(|visible| rng.random_range(0..visible.max(1)))?;
    let is_ack_lost = rng.random_bool(world.weather.get().lost_acks);
    let owner = world.name("drain");
    process("deliverer", async move {
        let WakeMessage(lane) = WakeMessage::from_text(&got.text).unwrap();
        let store = &world.sim.store;
        let sender = &Calls { store, subscriber: &world.subscriber };
        let (lanes, registry, queue, rules) = (store, store, &world.wake, &RULES);
        let (notices, metrics) = (store, &Metrics::new("simulation"));
        let drain = Drain { lanes, registry, queue, sender, notices, metrics, rules, edge: EDGE };
        let drained = drain.lane(&lane, &owner, world.now() + PASS).await;
        if drained.is_ok() && !is_ack_lost {
            world.wake.delete(&got.receipt);
        }
    })
}
