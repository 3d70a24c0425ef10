//! One endpoint with some lanes, a receiver, and a host that wakes lanes when their time has come.

use std::{
    cell::Cell,
    collections::BTreeMap,
    fmt,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use deliverer::drain::{Drain, Edge, Ended, Prepared, Rules, Sender};
use domain::{
    breaker::Limits,
    delivery::{Attempt, Delivery, Outcome, Schedule, State},
    destination::Destination,
    endpoint::{Endpoint, Health, HealthLimits, LaneCount, Notice, What},
    id::EventId,
    lane::{LaneId, Pointer},
    ports::{Fanout as _, SealedSecret, Stored},
    retry::Backoff,
};
use jiff::Timestamp;
use runtime::telemetry::Metrics;
use testkit::memory::{LaneItem, MemoryQueue, Store};

use super::clock::{at, ms, now, sleep};

/// The template's defaults.
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
    tried_for: Duration::from_secs(DEADLINE.unsigned_abs()),
    health: HealthLimits { disable_after: Duration::from_secs(432_000) },
    hold: Duration::from_secs(1_209_600),
    concurrency: 5,
};

pub(crate) const DEADLINE: i64 = 345_600;
pub(crate) const HOUR: i64 = 3_600;
const PASS: Duration = Duration::from_secs(20);

thread_local! {
    static SEED: Cell<u64> = const { Cell::new(0) };
}

/// An even sequence, the same each time (`SplitMix64`).
fn jitter() -> f64 {
    SEED.set(SEED.get().wrapping_add(0x9e37_79b9_7f4a_7c15));
    let mut z = SEED.get();
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    f64::from(u32::try_from((z ^ (z >> 31)) >> 32).unwrap()) / f64::from(u32::MAX)
}

const EDGE: Edge = Edge { now, jitter };

pub(crate) const OK: Outcome = Outcome::answered(200, None, None);
pub(crate) const BROKEN: Outcome = Outcome::answered(500, None, None);

type Answers = Box<dyn Fn(i64, &Delivery) -> Outcome + Send + Sync>;

/// A receiver: what it answers at which second, and how long it takes.
pub(crate) struct Receiver {
    answers: Mutex<Answers>,
    takes: Duration,
    /// When each request began, in milliseconds, of which event, and which attempt it was.
    pub(crate) began: Mutex<Vec<(i64, EventId, u32)>>,
    under_way: AtomicUsize,
    pub(crate) most: AtomicUsize,
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("takes", &self.takes).finish_non_exhaustive()
    }
}

impl Sender for Receiver {
    type Target = ();
    type Request = ();

    async fn open(&self, _: Endpoint, _: Vec<SealedSecret>) -> Stored<()> {
        Ok(())
    }

    async fn prepare(&self, (): &(), _: &LaneId, _: &Delivery) -> Stored<Prepared<()>> {
        Ok(Prepared::Ready(()))
    }

    async fn send(&self, _: &LaneId, delivery: &Delivery, (): ()) -> Attempt {
        let most = self.under_way.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(most, Ordering::SeqCst);
        let (number, began) = (delivery.attempts + 1, now());
        self.began.lock().unwrap().push((ms(), delivery.event, number));
        sleep(self.takes).await;
        self.under_way.fetch_sub(1, Ordering::SeqCst);
        let outcome = self.answers.lock().unwrap()(ms() / 1000, delivery);
        Attempt { number, at: began, duration_ms: 1, outcome, excerpt: String::new() }
    }

    async fn wait(&self, wait: Duration) {
        sleep(wait).await;
    }
}

pub(crate) struct World {
    pub(crate) store: Store,
    pub(crate) receiver: Receiver,
    pub(crate) metrics: Metrics,
    queue: MemoryQueue,
    lanes: u16,
    pass: Duration,
    holders: AtomicUsize,
}

pub(crate) fn endpoint() -> Endpoint {
    Endpoint::new(
        "acme".parse().unwrap(),
        format!("ep_{:032x}", 7).parse().unwrap(),
        Destination::Https("https://example.com/".to_owned()),
        at(-1_000_000),
    )
}

pub(crate) fn lane(number: u16) -> LaneId {
    LaneId { tenant: endpoint().tenant, endpoint: endpoint().id, lane: number }
}

pub(crate) fn event(n: usize) -> EventId {
    EventId::derived(at(0), &[&n.to_string()])
}

impl World {
    pub(crate) fn new(
        endpoint: Endpoint,
        takes_ms: u64,
        answers: impl Fn(i64, &Delivery) -> Outcome + Send + Sync + 'static,
    ) -> Self {
        SEED.set(7);
        let world = Self {
            store: Store::new(1),
            receiver: Receiver {
                answers: Mutex::new(Box::new(answers)),
                takes: Duration::from_millis(takes_ms),
                began: Mutex::default(),
                under_way: AtomicUsize::new(0),
                most: AtomicUsize::new(0),
            },
            metrics: Metrics::new("test"),
            queue: MemoryQueue::new(Duration::from_secs(60), 9),
            lanes: endpoint.lanes_at_work(at(0)),
            pass: PASS,
            holders: AtomicUsize::new(0),
        };
        let key = (endpoint.tenant.clone(), endpoint.id);
        world.store.tables().endpoints.insert(key, (endpoint, Vec::new()));
        world
    }

    /// The same with passes of this length.
    pub(crate) fn passing(self, pass: Duration) -> Self {
        Self { pass, ..self }
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Endpoint)) {
        let key = (endpoint().tenant, endpoint().id);
        change(&mut self.store.tables().endpoints.get_mut(&key).unwrap().0);
    }

    /// Puts a delivery into its lane, as it stands, and wakes the lane.
    pub(crate) async fn add(&self, n: usize, second: i64, more: impl Fn(Delivery) -> Delivery) {
        let new = Delivery::new(event(n), "a".to_owned(), at(second + DEADLINE), at(second));
        let (delivery, lane) = (more(new), lane(u16::try_from(n).unwrap() % self.lanes));
        {
            let mut tables = self.store.tables();
            tables.pointers.insert((lane.clone(), Pointer::of(&delivery)));
            tables.deliveries.insert((lane.clone(), delivery.event), delivery);
        }
        self.store.wake(&lane, now()).await.unwrap();
    }

    pub(crate) async fn add_all(&self, numbers: std::ops::Range<usize>, second: i64) {
        for n in numbers {
            self.add(n, second, |delivery| delivery).await;
        }
    }

    pub(crate) async fn drain(&self, number: u16) -> Stored<Ended> {
        let drain = Drain {
            lanes: &self.store,
            registry: &self.store,
            queue: &self.queue,
            sender: &self.receiver,
            notices: &self.store,
            metrics: &self.metrics,
            rules: &RULES,
            edge: EDGE,
        };
        let owner = format!("holder-{}", self.holders.fetch_add(1, Ordering::SeqCst));
        drain.lane(&lane(number), &owner, now() + self.pass).await
    }

    pub(crate) fn item(&self, number: u16) -> LaneItem {
        self.store.tables().lanes.get(&lane(number)).cloned().unwrap_or_default()
    }

    /// Wakes a lane whenever its time has come, until then, or until it sleeps for good. As a queue's messages do, or
    /// the sweeper: whole seconds are not waited for.
    pub(crate) async fn host(&self, number: u16, until: i64) {
        let look = if until > 10 * HOUR { 60_000 } else { 500 };
        loop {
            let _ = self.drain(number).await;
            // What is added meanwhile wakes the lane as well: look for it often enough.
            let wake_at = loop {
                match self.item(number).wake_at {
                    Some(wake_at) if wake_at <= now() => break wake_at,
                    Some(wake_at) if wake_at < at(until) => {
                        let wait = Duration::try_from(wake_at.duration_since(now())).unwrap();
                        sleep(wait.min(Duration::from_millis(look))).await;
                    }
                    _ => return,
                }
            };
            if wake_at >= at(until) || now() >= at(until) {
                return;
            }
        }
    }

    pub(crate) fn began(&self) -> Vec<(i64, EventId, u32)> {
        self.receiver.began.lock().unwrap().clone()
    }

    pub(crate) fn delivery(&self, n: usize) -> Delivery {
        let lane = lane(u16::try_from(n).unwrap() % self.lanes);
        self.store.tables().deliveries[&(lane, event(n))].clone()
    }

    pub(crate) fn states(&self) -> BTreeMap<String, usize> {
        let mut states = BTreeMap::new();
        for delivery in self.store.tables().deliveries.values() {
            *states.entry(format!("{:?}", delivery.state)).or_default() += 1;
        }
        states
    }

    pub(crate) fn all(&self, state: State) -> bool {
        self.store.tables().deliveries.values().all(|delivery| delivery.state == state)
    }

    pub(crate) fn health(&self) -> Health {
        let key = (endpoint().tenant, endpoint().id);
        self.store.tables().health.get(&key).cloned().unwrap_or_default()
    }

    pub(crate) fn notices(&self) -> Vec<Notice> {
        self.store.tables().notices.iter().map(|(_, notice)| notice.clone()).collect()
    }

    pub(crate) fn heard(&self) -> Vec<What> {
        self.notices().iter().map(|notice| notice.what).collect()
    }

    /// How much was counted under a name.
    pub(crate) fn counted(&self, name: &str) -> f64 {
        let values = self.metrics.lines(now());
        let values = values.iter().map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            match &line[name] {
                serde_json::Value::Array(values) => values.iter().filter_map(|v| v.as_f64()).sum(),
                value => value.as_f64().unwrap_or_default(),
            }
        });
        values.sum()
    }
}

/// The most that began in any second.
pub(crate) fn most_in_a_second(began: &[i64]) -> usize {
    let in_window =
        |from: &i64| began.iter().filter(|at| (*from..from + 1000).contains(*at)).count();
    began.iter().map(in_window).max().unwrap_or_default()
}

pub(crate) fn lanes(count: u16) -> Vec<LaneCount> {
    vec![LaneCount { from: Timestamp::UNIX_EPOCH, count }]
}
