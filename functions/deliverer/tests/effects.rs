//! Effects: a payment service behind an endpoint, which is charged once whoever dies when.
//!
//! With idempotency the service recognises the key, and a request is made as often as it takes. Without, no request is
//! made twice unless a person asks for it.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "test code")]

use std::{
    cell::Cell,
    collections::{BTreeMap, VecDeque},
    pin::pin,
    sync::Mutex,
    task::Poll,
    time::Duration,
};

use deliverer::drain::{Drain, Edge, Ended, Prepared, Rules, Sender};
use domain::{
    breaker::{Breaker, Limits},
    delivery::{Attempt, Cause, Delivery, Outcome, Schedule, State},
    destination::Destination,
    endpoint::{Endpoint, HealthLimits, Stop, Stopped},
    id::EventId,
    inbox::Noted,
    lane::{LaneId, Pointer},
    ports::{Deliveries as _, SealedSecret, Stored},
    retry::Backoff,
};
use jiff::Timestamp;
use runtime::telemetry::Metrics;
use testkit::{
    chaos::{Fault, When},
    memory::{LaneItem, MemoryQueue, Store},
};

const RULES: Rules = Rules {
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

const START: i64 = 1_000_000;
const DEADLINE: i64 = 345_600;

thread_local! {
    static CLOCK: Cell<i64> = const { Cell::new(0) };
}

fn clock() -> Timestamp {
    Timestamp::from_second(CLOCK.get()).unwrap()
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(START + second).unwrap()
}

fn set_clock(second: i64) {
    CLOCK.set(START + second);
}

const OK: Outcome = Outcome::Answered { status: 200, retry_after_ms: None };

const fn answered(status: u16) -> Outcome {
    Outcome::Answered { status, retry_after_ms: None }
}

const fn failed(cause: Cause) -> Outcome {
    Outcome::Failed { cause }
}

/// How a call on the service ends.
#[derive(Clone, Debug)]
enum Call {
    /// It takes the request, and we hear this.
    Takes(Outcome),
    /// It takes the request and no answer comes, until the process dies or the test lets one come: the kill switch.
    Hangs,
    /// It sees nothing, and we know that.
    Unseen(Cause),
    /// It sees nothing, and that is seen before the request is made.
    Unready(Cause),
}

/// A payment service: one charge per key, or one per request if it knows no keys.
#[derive(Debug, Default)]
struct Payments {
    calls: Mutex<VecDeque<Call>>,
    /// Requests that it took, by key.
    requests: Mutex<BTreeMap<EventId, u32>>,
    /// Whether a hanging call hears its answer now.
    released: Mutex<bool>,
}

impl Payments {
    fn new(calls: impl IntoIterator<Item = Call>) -> Self {
        Self { calls: Mutex::new(calls.into_iter().collect()), ..Self::default() }
    }

    /// The next call; at the end it takes everything.
    fn call(&self) -> Call {
        self.calls.lock().unwrap().pop_front().unwrap_or(Call::Takes(OK))
    }

    fn requests(&self, n: usize) -> u32 {
        self.requests.lock().unwrap().get(&event(n)).copied().unwrap_or_default()
    }

    fn most_requests(&self) -> u32 {
        self.requests.lock().unwrap().values().copied().max().unwrap_or_default()
    }

    fn take(&self, key: EventId) {
        *self.requests.lock().unwrap().entry(key).or_default() += 1;
    }
}

impl Sender for Payments {
    type Target = ();
    type Request = Call;

    async fn open(&self, _: Endpoint, _: Vec<SealedSecret>) -> Stored<()> {
        Ok(())
    }

    async fn prepare(&self, (): &(), _: &LaneId, delivery: &Delivery) -> Stored<Prepared<Call>> {
        Ok(match self.call() {
            Call::Unready(cause) => Prepared::Failed(attempt(delivery, failed(cause))),
            call => Prepared::Ready(call),
        })
    }

    async fn send(&self, _: &LaneId, delivery: &Delivery, call: Call) -> Attempt {
        let outcome = match call {
            Call::Takes(outcome) => {
                self.take(delivery.event);
                outcome
            }
            Call::Hangs => {
                self.take(delivery.event);
                std::future::poll_fn(|context| {
                    context.waker().wake_by_ref();
                    if *self.released.lock().unwrap() { Poll::Ready(()) } else { Poll::Pending }
                })
                .await;
                OK
            }
            Call::Unseen(cause) | Call::Unready(cause) => failed(cause),
        };
        attempt(delivery, outcome)
    }
}

fn attempt(delivery: &Delivery, outcome: Outcome) -> Attempt {
    let (number, excerpt) = (delivery.attempts + 1, String::new());
    Attempt { number, at: clock(), duration_ms: 7, outcome, excerpt }
}

fn endpoint(idempotent: bool) -> Endpoint {
    let id = format!("ep_{:032x}", 7).parse().unwrap();
    let url = Destination::Https("https://payments.example/charges".to_owned());
    Endpoint { idempotent, ..Endpoint::new("internal".parse().unwrap(), id, url, at(-1000)) }
}

fn lane() -> LaneId {
    LaneId { tenant: endpoint(true).tenant, endpoint: endpoint(true).id, lane: 0 }
}

fn event(n: usize) -> EventId {
    EventId::derived(at(0), &[&n.to_string()])
}

struct World {
    store: Store,
    queue: MemoryQueue,
    payments: Payments,
}

impl World {
    /// A lane with this many charges that are due.
    fn new(idempotent: bool, due: usize, calls: impl IntoIterator<Item = Call>) -> Self {
        set_clock(0);
        let queue = MemoryQueue::new(Duration::from_secs(60), 9);
        let world = Self { store: Store::new(1), queue, payments: Payments::new(calls) };
        {
            let mut tables = world.store.tables();
            let item = LaneItem { wakes: 1, wake_at: Some(at(0)), ..LaneItem::default() };
            tables.lanes.insert(lane(), item);
            let endpoint = endpoint(idempotent);
            tables.endpoints.insert((endpoint.tenant.clone(), endpoint.id), (endpoint, vec![]));
            for n in 0..due {
                let delivery = Delivery::new(event(n), "charge".to_owned(), at(DEADLINE), at(0));
                tables.pointers.insert((lane(), Pointer::of(&delivery)));
                tables.deliveries.insert((lane(), event(n)), delivery);
            }
        }
        world.store.chaos.heal();
        world
    }

    async fn drain(&self, owner: &str) -> Stored<Ended> {
        let drain = Drain {
            lanes: &self.store,
            registry: &self.store,
            queue: &self.queue,
            sender: &self.payments,
            notices: &self.store,
            metrics: &Metrics::new("test"),
            rules: &RULES,
            edge: Edge { now: clock, jitter: || 1.0 },
        };
        drain.lane(&lane(), owner, clock() + Duration::from_secs(3600)).await
    }

    /// Drains until the service has taken a request whose answer does not come; then the process is dead.
    async fn drain_and_die(&self, owner: &str) {
        let mut drain = pin!(self.drain(owner));
        let before = self.payments.most_requests();
        std::future::poll_fn(|context| {
            let ended = drain.as_mut().poll(context);
            assert!(ended.is_pending(), "{ended:?}");
            if self.payments.most_requests() > before { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// As the sweeper: wakes the lane when its time has come, until it sleeps for good.
    async fn finish(&self) {
        for round in 0..20 {
            let Some(wake_at) = self.store.tables().lanes[&lane()].wake_at else { return };
            let now = CLOCK.get() - START;
            set_clock((wake_at.as_second() - START).max(now + 61));
            self.drain(&format!("sweep-{round}")).await.unwrap();
        }
        panic!("the lane never sleeps");
    }

    fn delivery(&self, n: usize) -> Delivery {
        self.store.tables().deliveries[&(lane(), event(n))].clone()
    }

    fn outcomes(&self, n: usize) -> Vec<Outcome> {
        self.delivery(n).log.into_iter().map(|attempt| attempt.outcome).collect()
    }

    fn records(&self) -> usize {
        self.store.chaos.calls().iter().filter(|call| **call == "deliveries.record").count()
    }

    async fn redeliver(&self, n: usize) {
        let now = clock();
        let deadline = now + Duration::from_secs(345_600);
        let noted = self.store.redeliver(&lane(), event(n), deadline, now).await.unwrap();
        assert_eq!(noted, Noted::Yes);
    }
}

/// Whether a delivery waits for a person because nobody knows what became of it.
fn is_parked_as_unknown(delivery: &Delivery) -> bool {
    delivery.state == State::Dead
        && delivery.begun.is_none()
        && delivery.log.last().is_some_and(|last| last.outcome == failed(Cause::OutcomeUnknown))
}

/// L3, L18, C25, C28: DESIGN 13, "POST, before the outcome". The service knows the key and charges once.
#[tokio::test]
async fn a_service_that_knows_the_key_is_asked_again() {
    let world = World::new(true, 1, [Call::Hangs]);
    world.drain_and_die("dies").await;
    world.finish().await;
    assert_eq!((world.payments.requests(0), world.delivery(0).state), (2, State::Succeeded));
    // One key, so one charge.
    assert_eq!(world.payments.requests.lock().unwrap().len(), 1);
    assert_eq!(world.delivery(0).attempts, 1);
}

/// INB-lease-expires-side-effect-repeats, DLV-crash-after-post, L3, L18, C17, C24, C29: DESIGN 13, "POST, before the
/// outcome". The service knows no keys: the charge waits for a person, and nothing asks for it a second time.
#[tokio::test]
async fn a_service_that_knows_no_keys_is_not_asked_again() {
    let world = World::new(false, 1, [Call::Hangs]);
    world.drain_and_die("dies").await;
    world.finish().await;
    let parked = world.delivery(0);
    assert_eq!(world.payments.requests(0), 1);
    assert!(is_parked_as_unknown(&parked), "{parked:?}");
    // The attempt is counted, and says when it began.
    assert_eq!((parked.attempts, parked.log[0].number, parked.log[0].at), (1, 1, at(0)));
    assert!(world.store.tables().pointers.is_empty());
    // A person has looked at the service, and asks for it.
    world.redeliver(0).await;
    world.finish().await;
    assert_eq!((world.payments.requests(0), world.delivery(0).state), (2, State::Succeeded));
    assert_eq!(world.delivery(0).attempts, 2);
}

/// The same at every write, before and after it: DESIGN 13 for both kinds of endpoint.
#[tokio::test]
async fn a_holder_may_die_in_any_call_and_nobody_is_charged_twice() {
    for idempotent in [true, false] {
        let calls = || [Call::Unready(Cause::Dns), Call::Takes(OK), Call::Takes(answered(429))];
        let whole = World::new(idempotent, 2, calls());
        whole.drain("whole").await.unwrap();
        let count = whole.store.chaos.calls().len() as u64;
        assert!(count > 10, "{count}");
        let mut parked = 0;
        for call in 0..count {
            for when in [When::Before, When::After] {
                let what = format!("{idempotent} call {call} {when:?}");
                let world = World::new(idempotent, 2, calls());
                world.store.chaos.at(call, when, Fault::Crash);
                let died = world.store.chaos.until_crash(world.drain("dies")).await;
                assert!(died.is_none(), "{what}");
                world.store.chaos.heal();
                world.finish().await;
                assert!(world.store.tables().pointers.is_empty(), "{what}");
                for n in [0, 1] {
                    let delivery = world.delivery(n);
                    let unknown = is_parked_as_unknown(&delivery);
                    assert!(delivery.state == State::Succeeded || unknown, "{what} {delivery:?}");
                    assert!(!(idempotent && unknown), "{what} {delivery:?}");
                    parked += u32::from(unknown);
                    if !idempotent {
                        // One request, and a second where the first was refused.
                        let refused = world.outcomes(n).contains(&answered(429));
                        let most = 1 + u32::from(refused);
                        assert!(world.payments.requests(n) <= most, "{what} {delivery:?}");
                    }
                }
            }
        }
        assert_eq!(parked > 0, !idempotent, "{parked}");
    }
}

/// The holder is slow, not dead: its lease ends while its request is under way. The conditions decide.
#[tokio::test]
async fn a_holder_that_outlives_its_lease_charges_nobody_twice() {
    for idempotent in [true, false] {
        let world = World::new(idempotent, 1, [Call::Hangs]);
        let mut slow = pin!(world.drain("slow"));
        std::future::poll_fn(|context| {
            assert!(slow.as_mut().poll(context).is_pending());
            if world.payments.requests(0) == 1 { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        set_clock(61);
        world.drain("next").await.unwrap();
        let after_next = world.delivery(0);
        // Now the slow one hears its answer.
        *world.payments.released.lock().unwrap() = true;
        assert_eq!(slow.await.unwrap(), Ended::Lost);
        assert_eq!(world.delivery(0), after_next);
        if idempotent {
            assert_eq!((after_next.state, world.payments.requests(0)), (State::Succeeded, 2));
        } else {
            assert!(is_parked_as_unknown(&after_next), "{after_next:?}");
            assert_eq!(world.payments.requests(0), 1);
        }
        // Asked again by a person, the late end of the first attempt closes nothing.
        world.redeliver(0).await;
        world.finish().await;
        let done = world.delivery(0);
        assert_eq!((done.state, done.attempts), (State::Succeeded, 2));
    }
}

/// What came of the request, and whether it may be made again.
#[tokio::test]
async fn only_what_surely_did_not_happen_is_asked_again() {
    for (call, asked_again) in [
        (Call::Takes(answered(429)), true),
        (Call::Takes(answered(404)), true),
        (Call::Unseen(Cause::Refused), true),
        (Call::Unseen(Cause::ConnectTimeout), true),
        (Call::Unseen(Cause::Throttled), true),
        (Call::Unready(Cause::Internal), true),
        (Call::Takes(answered(500)), false),
        (Call::Takes(answered(504)), false),
        (Call::Takes(failed(Cause::Timeout)), false),
        (Call::Takes(failed(Cause::Reset)), false),
        (Call::Takes(failed(Cause::Unavailable)), false),
    ] {
        let world = World::new(false, 1, [call.clone()]);
        world.finish().await;
        let delivery = world.delivery(0);
        assert_eq!(delivery.state == State::Succeeded, asked_again, "{call:?}");
        assert_eq!(is_parked_as_unknown(&delivery), !asked_again, "{call:?} {delivery:?}");
        if let Call::Takes(outcome) = &call
            && !asked_again
        {
            // How it ended is said too.
            assert_eq!(world.outcomes(0), [outcome.clone(), failed(Cause::OutcomeUnknown)]);
            assert_eq!(world.payments.requests(0), 1, "{call:?}");
        }
        // The same from one that knows keys is tried until it works.
        let world = World::new(true, 1, [call]);
        world.finish().await;
        assert_eq!(world.delivery(0).state, State::Succeeded);
    }
}

/// What a queue can never take is not tried for four days, and it does not close the lane for the others.
#[tokio::test]
async fn what_can_never_be_taken_ends_at_once() {
    for cause in [Cause::TooLarge, Cause::Unacceptable] {
        let calls = vec![Call::Unready(cause); 20];
        let world = World::new(true, 21, calls);
        assert_eq!(world.drain("one").await.unwrap(), Ended::Asleep(None));
        let mut states: Vec<_> = (0..21).map(|n| world.delivery(n).state).collect();
        states.sort_by_key(|state| *state == State::Succeeded);
        assert_eq!(states.pop(), Some(State::Succeeded));
        assert!(states.iter().all(|state| *state == State::Dead));
        assert_eq!(world.store.tables().lanes[&lane()].left.breaker, Breaker::default());
    }
}

/// The mark costs a write, and only where it is needed.
#[tokio::test]
async fn an_endpoint_that_knows_keys_costs_no_mark() {
    for (idempotent, writes) in [(true, 1), (false, 2)] {
        let world = World::new(idempotent, 1, []);
        world.drain("one").await.unwrap();
        assert_eq!(world.records(), writes, "{idempotent}");
        assert_eq!((world.delivery(0).state, world.delivery(0).begun), (State::Succeeded, None));
    }
    // What fails before it leaves is not marked.
    let world = World::new(false, 1, [Call::Unready(Cause::Internal)]);
    world.drain("one").await.unwrap();
    assert_eq!(world.records(), 1);
}

/// RTY-store-outage: the mark could not be written, or its answer was lost. Nothing was sent, and nobody need ask.
#[tokio::test]
async fn a_mark_whose_write_failed_parks_nothing() {
    for when in [When::Before, When::After] {
        for fault in [Fault::Throttled, Fault::Unavailable] {
            let world = World::new(false, 1, []);
            let mut once = true;
            world.store.chaos.set(move |_, called| {
                (called == "deliveries.record" && std::mem::take(&mut once))
                    .then_some((when, fault))
            });
            world.drain("unlucky").await.unwrap_err();
            assert_eq!(world.payments.requests(0), 0);
            world.store.chaos.heal();
            world.finish().await;
            let done = world.delivery(0);
            assert_eq!((done.state, done.attempts), (State::Succeeded, 1), "{when:?} {fault:?}");
            assert_eq!(world.payments.requests(0), 1);
        }
    }
}

/// Whatever else ends a delivery whose attempt was begun: it is said that nobody knows.
#[tokio::test]
async fn a_begun_attempt_that_is_given_up_is_given_up_as_unknown() {
    let begun = |world: &World| {
        for delivery in world.store.tables().deliveries.values_mut() {
            *delivery = delivery.begins("dead", at(1));
        }
    };
    let held = World::new(false, 1, []);
    begun(&held);
    held.store.tables().endpoints.values_mut().for_each(|(e, _)| e.stopped = stopped());
    set_clock(1_209_600);
    held.drain("one").await.unwrap();
    assert!(is_parked_as_unknown(&held.delivery(0)));
    let overdue = World::new(false, 1, []);
    begun(&overdue);
    set_clock(DEADLINE + 1);
    let open = Breaker { failures: 12, open_until: Some(at(DEADLINE + 60)) };
    overdue.store.tables().lanes.get_mut(&lane()).unwrap().left.breaker = open;
    overdue.drain("one").await.unwrap();
    assert!(is_parked_as_unknown(&overdue.delivery(0)));
    assert_eq!(overdue.payments.requests(0), 0);
}

/// A person has switched the endpoint off.
fn stopped() -> Option<Stopped> {
    Some(Stopped { since: at(0), how: Stop::Disabled, reason: "by a test".to_owned() })
}
