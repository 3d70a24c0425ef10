//! Draining lanes in memory, under a clock that only the endpoint moves.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "test code")]

use std::{
    cell::Cell,
    collections::VecDeque,
    pin::pin,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use deliverer::drain::{Drain, Edge, Ended, Prepared, Rules, Sender};
use domain::{
    breaker::{Breaker, Limits},
    delivery::{Attempt, Cause, Delivery, Outcome, Schedule, State},
    destination::Destination,
    endpoint::{Disabled, Endpoint, Health, HealthLimits, Stop, Stopped},
    id::EventId,
    lane::{Kind, LaneId, Left, Pointer},
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
    tried_for: Duration::from_secs(DEADLINE.unsigned_abs()),
    health: HealthLimits { disable_after: Duration::from_secs(432_000) },
    hold: Duration::from_secs(1_209_600),
    concurrency: 5,
};

/// When each test begins, in seconds; deliveries are due from then on.
const START: i64 = 1_000_000;
const DEADLINE: i64 = 345_600;

thread_local! {
    static CLOCK: Cell<i64> = const { Cell::new(0) };
}

fn clock() -> Timestamp {
    Timestamp::from_millisecond(CLOCK.get()).unwrap()
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(START + second).unwrap()
}

fn set_clock(second: i64) {
    CLOCK.set((START + second) * 1000);
}

const EDGE: Edge = Edge { now: clock, jitter: || 1.0 };

const OK: Outcome = Outcome::Answered { status: 200, retry_after_ms: None };
const BROKEN: Outcome = Outcome::Answered { status: 500, retry_after_ms: None };
const GONE: Outcome = Outcome::Answered { status: 410, retry_after_ms: None };
const HANGS: Outcome = Outcome::Failed { cause: Cause::Timeout };

/// An endpoint that answers as it is told, and the last answer for ever.
#[derive(Debug)]
struct Script {
    outcomes: Mutex<VecDeque<Outcome>>,
    /// How long each attempt takes, by the clock.
    takes_ms: i64,
    sent: Mutex<Vec<(EventId, u32)>>,
    under_way: AtomicUsize,
    most_under_way: AtomicUsize,
}

impl Script {
    fn new(outcomes: impl IntoIterator<Item = Outcome>) -> Self {
        Self {
            outcomes: Mutex::new(outcomes.into_iter().collect()),
            takes_ms: 0,
            sent: Mutex::default(),
            under_way: AtomicUsize::new(0),
            most_under_way: AtomicUsize::new(0),
        }
    }

    fn sent(&self) -> usize {
        self.sent.lock().unwrap().len()
    }

    fn outcome(&self) -> Outcome {
        let mut outcomes = self.outcomes.lock().unwrap();
        if outcomes.len() > 1 { outcomes.pop_front() } else { outcomes.front().cloned() }.unwrap()
    }
}

impl Sender for Script {
    type Target = ();
    type Request = ();

    async fn open(&self, _: Endpoint, _: Vec<SealedSecret>) -> Stored<()> {
        Ok(())
    }

    async fn prepare(&self, (): &(), _: &LaneId, _: &Delivery) -> Stored<Prepared<()>> {
        Ok(Prepared::Ready(()))
    }

    async fn send(&self, _: &LaneId, delivery: &Delivery, (): ()) -> Attempt {
        let now_under_way = self.under_way.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_under_way.fetch_max(now_under_way, Ordering::SeqCst);
        let at = clock();
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        CLOCK.set(CLOCK.get() + self.takes_ms);
        let number = delivery.attempts + 1;
        self.sent.lock().unwrap().push((delivery.event, number));
        self.under_way.fetch_sub(1, Ordering::SeqCst);
        let outcome = self.outcome();
        Attempt { number, at, duration_ms: 7, outcome, excerpt: "x".to_owned() }
    }
}

fn endpoint() -> Endpoint {
    Endpoint::new(
        "acme".parse().unwrap(),
        format!("ep_{:032x}", 7).parse().unwrap(),
        Destination::Https("https://example.com/".to_owned()),
        at(-1000),
    )
}

fn lane() -> LaneId {
    LaneId { tenant: endpoint().tenant, endpoint: endpoint().id, lane: 0 }
}

fn event(n: usize) -> EventId {
    EventId::derived(at(0), &[&n.to_string()])
}

struct World {
    store: Store,
    queue: MemoryQueue,
    script: Script,
}

impl World {
    /// A lane with this many deliveries that are due, and an endpoint that gives these answers.
    fn new(due: usize, outcomes: impl IntoIterator<Item = Outcome>) -> Self {
        set_clock(0);
        let world = Self {
            store: Store::new(1),
            queue: MemoryQueue::new(Duration::from_secs(60), 9),
            script: Script::new(outcomes),
        };
        {
            let mut tables = world.store.tables();
            let item = LaneItem { wakes: 1, wake_at: Some(at(0)), ..LaneItem::default() };
            tables.lanes.insert(lane(), item);
            let key = (endpoint().tenant, endpoint().id);
            tables.endpoints.insert(key, (endpoint(), Vec::new()));
            for n in 0..due {
                let delivery = Delivery::new(event(n), "a".to_owned(), at(DEADLINE), at(0));
                tables.pointers.insert((lane(), Pointer::of(&delivery)));
                tables.deliveries.insert((lane(), event(n)), delivery);
            }
        }
        world
    }

    async fn drain_until(&self, until: Timestamp) -> Stored<Ended> {
        let drain = Drain {
            lanes: &self.store,
            registry: &self.store,
            queue: &self.queue,
            sender: &self.script,
            notices: &self.store,
            metrics: &Metrics::new("test"),
            rules: &RULES,
            edge: EDGE,
        };
        drain.lane(&lane(), &format!("owner-{}", CLOCK.get()), until).await
    }

    async fn drain(&self) -> Ended {
        self.drain_until(clock() + Duration::from_secs(3600)).await.unwrap()
    }

    fn states(&self) -> Vec<State> {
        self.store.tables().deliveries.values().map(|delivery| delivery.state).collect()
    }

    fn delivery(&self, n: usize) -> Delivery {
        self.store.tables().deliveries[&(lane(), event(n))].clone()
    }

    fn pointers(&self) -> Vec<Pointer> {
        self.store.tables().pointers.iter().map(|(_, pointer)| pointer.clone()).collect()
    }

    fn item(&self) -> LaneItem {
        self.store.tables().lanes[&lane()].clone()
    }

    fn health(&self) -> Health {
        let key = (endpoint().tenant, endpoint().id);
        self.store.tables().health.get(&key).cloned().unwrap_or_default()
    }

    fn set_health(&self, health: Health) {
        self.store.tables().health.insert((endpoint().tenant, endpoint().id), health);
    }

    /// When the messages in the wake queue become visible, in seconds after they were sent.
    fn messages(&self) -> Option<i64> {
        self.queue.next_visible().map(|visible| visible.as_second())
    }
}

#[tokio::test]
async fn what_is_due_is_delivered_and_the_lane_sleeps_until_it_is_woken() {
    let world = World::new(120, [OK]);
    assert_eq!(world.drain().await, Ended::Asleep(None));
    assert_eq!(world.script.sent(), 120);
    assert!(world.states().iter().all(|state| *state == State::Succeeded));
    assert_eq!((world.pointers().len(), world.messages()), (0, None));
    let item = world.item();
    assert_eq!((item.holder, item.wake_at, item.left), (None, None, Left::default()));
}

/// F15
#[tokio::test]
async fn no_more_are_under_way_than_the_endpoint_allows() {
    let world = World::new(60, [OK]);
    world.drain().await;
    assert_eq!(world.script.most_under_way.load(Ordering::SeqCst), 5);
}

/// F8, F9, RTY-attempt-count
#[tokio::test]
async fn a_failure_is_tried_again_at_its_time() {
    let world = World::new(1, [BROKEN, BROKEN, OK]);
    assert_eq!(world.drain().await, Ended::Asleep(Some(at(30))));
    let delivery = world.delivery(0);
    assert_eq!((delivery.attempts, delivery.due_at), (1, at(30)));
    assert_eq!(
        (world.pointers(), world.item().wake_at),
        (vec![Pointer::of(&delivery)], Some(at(30)))
    );
    // Soon enough for a message; the sweeper would come within a minute.
    assert_eq!(world.messages(), Some(30));
    set_clock(30);
    assert_eq!(world.drain().await, Ended::Asleep(Some(at(90))));
    set_clock(90);
    assert_eq!(world.drain().await, Ended::Asleep(None));
    let numbers: Vec<u32> = world.delivery(0).log.iter().map(|attempt| attempt.number).collect();
    assert_eq!((numbers, world.states()), (vec![1, 2, 3], vec![State::Succeeded]));
}

#[tokio::test]
async fn a_far_retry_is_left_to_the_sweeper() {
    let world = World::new(1, [BROKEN]);
    world.store.tables().deliveries.values_mut().for_each(|delivery| delivery.attempts = 9);
    assert!(matches!(world.drain().await, Ended::Asleep(Some(_))));
    assert_eq!(world.messages(), None);
}

/// A message that finds nothing to do leaves none behind, or they would circle and grow with every event.
#[tokio::test]
async fn a_pass_that_does_nothing_sends_no_message() {
    let world = World::new(1, [BROKEN]);
    world.drain().await;
    world.queue.purge();
    set_clock(10);
    assert_eq!(world.drain().await, Ended::Asleep(Some(at(30))));
    assert_eq!((world.script.sent(), world.messages()), (1, None));
}

/// F17, DLV-dlq-pollution: a delivery that is given up is a piece of work that was done.
#[tokio::test]
async fn a_delivery_dies_when_its_next_try_would_be_too_late() {
    let world = World::new(1, [BROKEN]);
    set_clock(DEADLINE - 29);
    assert_eq!(world.drain().await, Ended::Asleep(None));
    let dead = world.delivery(0);
    assert_eq!((dead.state, dead.attempts, dead.log.len()), (State::Dead, 1, 1));
    assert_eq!(dead.log[0].outcome, BROKEN);
    assert!(world.pointers().is_empty());
}

/// F14
#[tokio::test]
async fn after_ten_failures_the_lane_is_left_alone_and_then_probed() {
    let world = World::new(40, [BROKEN]);
    world.store.tables().endpoints.values_mut().for_each(|(e, _)| e.concurrency = Some(1));
    assert_eq!(world.drain().await, Ended::Asleep(Some(at(60))));
    assert_eq!((world.script.sent(), world.messages()), (10, Some(60)));
    set_clock(59);
    assert_eq!(world.drain().await, Ended::Asleep(Some(at(60))));
    assert_eq!(world.script.sent(), 10);
    set_clock(60);
    assert_eq!(world.drain().await, Ended::Asleep(Some(at(180))));
    assert_eq!(world.script.sent(), 11);
}

/// F15, RTY-jitter-and-herd
#[tokio::test]
async fn a_probe_that_succeeds_opens_the_lane_step_by_step() {
    let world = World::new(40, [OK]);
    let paused = Breaker { failures: 12, open_until: Some(at(0)) };
    world.store.tables().lanes.get_mut(&lane()).unwrap().left.breaker = paused;
    world.store.tables().endpoints.values_mut().for_each(|(e, _)| e.concurrency = Some(3));
    assert_eq!(world.drain().await, Ended::Asleep(None));
    assert_eq!(world.item().left.breaker, Breaker::default());
    assert_eq!(world.script.most_under_way.load(Ordering::SeqCst), 3);
    // A probe that fails ends the pass, so it was alone.
    let failing = World::new(40, [BROKEN]);
    failing.store.tables().lanes.get_mut(&lane()).unwrap().left.breaker = paused;
    failing.drain().await;
    assert_eq!(failing.script.sent(), 1);
}

/// DLV-head-of-line
#[tokio::test]
async fn three_time_outs_end_a_pass() {
    let world = World::new(40, [HANGS]);
    assert!(matches!(world.drain().await, Ended::Asleep(Some(_))));
    // Five were under way, and one more began after each of the first two.
    assert_eq!(world.script.sent(), 7);
    assert!(world.item().left.breaker.open(clock()).is_some());
}

/// F12
#[tokio::test]
async fn an_endpoint_that_asks_for_a_pause_gets_it_for_the_whole_lane() {
    let slow_down = Outcome::Answered { status: 429, retry_after_ms: Some(120_000) };
    let world = World::new(9, [slow_down, OK]);
    world.store.tables().endpoints.values_mut().for_each(|(e, _)| e.concurrency = Some(1));
    assert_eq!(world.drain().await, Ended::Asleep(Some(at(120))));
    assert_eq!((world.script.sent(), world.delivery(0).due_at), (1, world.delivery(0).due_at));
    set_clock(120);
    assert_eq!(world.drain().await, Ended::Asleep(None));
    assert!(world.states().iter().all(|state| *state == State::Succeeded));
}

/// F13, DLV-disabled-events-vanish
#[tokio::test]
async fn gone_disables_the_endpoint_and_holds_its_deliveries() {
    let world = World::new(9, [GONE]);
    world.store.tables().endpoints.values_mut().for_each(|(e, _)| e.concurrency = Some(1));
    let ended = world.drain().await;
    assert_eq!(world.script.sent(), 1);
    assert_eq!(world.health().disabled, Some(Disabled { since: at(0), reason: "gone".to_owned() }));
    assert!(world.states().iter().all(|state| *state == State::Pending));
    assert_eq!(ended, Ended::Asleep(Some(at(1_209_600))));
    // Woken by a new event: left at once.
    set_clock(50);
    assert_eq!(world.drain().await, Ended::Asleep(Some(at(1_209_600))));
    assert_eq!(world.script.sent(), 1);
    // Enabled: everything that was held goes, however old it is.
    world.set_health(Health::default());
    world.script.outcomes.lock().unwrap().clear();
    world.script.outcomes.lock().unwrap().push_back(OK);
    set_clock(DEADLINE * 2);
    assert_eq!(world.drain().await, Ended::Asleep(None));
    assert!(world.states().iter().all(|state| *state == State::Succeeded));
}

#[tokio::test]
async fn what_was_held_for_too_long_is_given_up_with_that_reason() {
    let world = World::new(60, [OK]);
    world.store.tables().endpoints.values_mut().for_each(|(e, _)| e.stopped = stopped());
    set_clock(1_209_599);
    assert_eq!(world.drain().await, Ended::Asleep(Some(at(1_209_600))));
    assert!(world.states().iter().all(|state| *state == State::Pending));
    set_clock(1_209_600);
    assert_eq!(world.drain().await, Ended::Asleep(None));
    assert_eq!(world.script.sent(), 0);
    let dead = world.delivery(3);
    assert_eq!((dead.state, dead.attempts), (State::Dead, 0));
    assert_eq!(dead.log[0].outcome, Outcome::Failed { cause: Cause::HeldExpired });
    assert!(world.states().iter().all(|state| *state == State::Dead));
}

/// Nothing is sent to an endpoint that is polled: what its owner has not fetched until its deadline is given up, and what
/// was fetched and not acknowledged says so.
#[tokio::test]
async fn an_endpoint_that_is_polled_gets_nothing_and_loses_what_nobody_fetches_in_time() {
    let world = World::new(60, [OK]);
    let poll = Destination::Poll(domain::destination::Polling {});
    world.store.tables().endpoints.values_mut().for_each(|(e, _)| e.destination = poll.clone());
    let longest = 3600;
    assert_eq!(world.drain().await, Ended::Asleep(Some(at(longest))));
    set_clock(DEADLINE - 10);
    assert_eq!(world.drain().await, Ended::Asleep(Some(at(DEADLINE))));
    assert!(world.states().iter().all(|state| *state == State::Pending));
    // One is fetched at the last moment, and comes up again after its deadline.
    let fetched = domain::polling::handed_out(&world.delivery(3), "p", at(DEADLINE + 50), clock());
    {
        let mut tables = world.store.tables();
        tables.pointers.remove(&(lane(), Pointer::of(&world_delivery(&fetched, 0))));
        tables.pointers.insert((lane(), Pointer::of(&fetched)));
        tables.deliveries.insert((lane(), event(3)), fetched);
    }
    set_clock(DEADLINE);
    assert_eq!(world.drain().await, Ended::Asleep(Some(at(DEADLINE + longest))));
    let dead = world.states().iter().filter(|state| **state == State::Dead).count();
    assert_eq!((dead, world.delivery(3).state), (59, State::Pending));
    set_clock(DEADLINE + 50);
    assert_eq!(world.drain().await, Ended::Asleep(None));
    let failed = |cause| Outcome::Failed { cause };
    let said =
        |n| world.delivery(n).log.iter().map(|entry| entry.outcome.clone()).collect::<Vec<_>>();
    assert_eq!(said(3), [failed(Cause::Unacknowledged), failed(Cause::Expired)]);
    assert_eq!((said(4), world.delivery(4).attempts), (vec![failed(Cause::Expired)], 0));
    assert_eq!((world.script.sent(), world.pointers().len()), (0, 0));
}

/// What was fetched before its endpoint was stopped, and held for too long, says that; nobody need ask what became of it.
#[tokio::test]
async fn what_was_fetched_and_then_held_too_long_is_no_riddle() {
    let world = World::new(1, [OK]);
    let poll = Destination::Poll(domain::destination::Polling {});
    world.store.tables().endpoints.values_mut().for_each(|(e, _)| e.destination = poll.clone());
    let fetched = domain::polling::handed_out(&world.delivery(0), "p", at(50), at(1));
    {
        let mut tables = world.store.tables();
        tables.pointers.clear();
        tables.pointers.insert((lane(), Pointer::of(&fetched)));
        tables.deliveries.insert((lane(), event(0)), fetched);
        let stopped = Stopped { since: at(2), how: Stop::Disabled, reason: "x".to_owned() };
        tables.endpoints.values_mut().for_each(|(e, _)| e.stopped = Some(stopped.clone()));
    }
    set_clock(1_209_600 + 50);
    assert_eq!(world.drain().await, Ended::Asleep(None));
    let held = world.delivery(0);
    let said: Vec<_> = held.log.iter().map(|entry| entry.outcome.clone()).collect();
    let failed = |cause| Outcome::Failed { cause };
    assert_eq!(said, [failed(Cause::Unacknowledged), failed(Cause::HeldExpired)]);
    assert!(held.state == State::Dead && !held.is_unknown());
}

/// Who wants an old delivery to be tried once more gets that try, also if its endpoint is left alone just then.
#[tokio::test]
async fn the_one_try_that_a_person_asked_for_is_waited_for() {
    let asked_at = DEADLINE + 100;
    let ask = |world: &World| {
        set_clock(asked_at);
        let dead = world.delivery(0).given_up(Cause::Expired, clock());
        let by = format!("rdl_{:032x}", 5).parse().unwrap();
        let times = (clock(), clock(), Duration::ZERO);
        let again = domain::redelivery::due_again(&dead, by, true, times);
        let mut tables = world.store.tables();
        tables.pointers.clear();
        tables.pointers.insert((lane(), Pointer::of(&again)));
        tables.deliveries.insert((lane(), event(0)), again);
    };
    let world = World::new(1, [BROKEN]);
    ask(&world);
    world.store.tables().lanes.get_mut(&lane()).unwrap().left.breaker =
        Breaker { failures: 10, open_until: Some(at(asked_at + 60)) };
    assert_eq!(world.drain().await, Ended::Asleep(Some(at(asked_at + 60))));
    assert_eq!(world.delivery(0).state, State::Pending);
    set_clock(asked_at + 60);
    world.drain().await;
    assert_eq!((world.script.sent(), world.delivery(0).state), (1, State::Dead));
    // But not for ever.
    let world = World::new(1, [OK]);
    let poll = Destination::Poll(domain::destination::Polling {});
    world.store.tables().endpoints.values_mut().for_each(|(e, _)| e.destination = poll.clone());
    ask(&world);
    assert_eq!(world.drain().await, Ended::Asleep(Some(at(asked_at + 3600))));
    assert_eq!(world.delivery(0).state, State::Pending);
    set_clock(asked_at + 86_400);
    assert_eq!(world.drain().await, Ended::Asleep(None));
    assert_eq!((world.script.sent(), world.delivery(0).state), (0, State::Dead));
}

/// Each wake of a lane that is left alone looks for what is overdue. Nothing is that young, and reading a hundred deliveries
/// to see it, for each event that comes, would cost more than sending them.
#[tokio::test]
async fn a_lane_that_is_left_alone_reads_no_delivery_that_cannot_be_overdue() {
    let check = |polled: bool, second: i64, expected: usize| async move {
        let world = World::new(60, [OK]);
        if polled {
            let poll = Destination::Poll(domain::destination::Polling {});
            let endpoints = &mut world.store.tables().endpoints;
            endpoints.values_mut().for_each(|(e, _)| e.destination = poll.clone());
        }
        set_clock(second);
        world.store.tables().lanes.get_mut(&lane()).unwrap().left.breaker =
            Breaker { failures: 10, open_until: Some(at(second + 60)) };
        world.store.chaos.set(|_, _| None);
        world.drain().await;
        let calls = world.store.chaos.calls();
        let reads = calls.iter().filter(|name| **name == "deliveries.read").count();
        assert_eq!(reads, expected, "{polled} {second}");
    };
    for polled in [false, true] {
        check(polled, DEADLINE - 1, 0).await;
    }
    check(false, DEADLINE, 1).await;
}

#[tokio::test]
async fn a_hold_counts_from_the_disabling() {
    let world = World::new(1, [OK]);
    let disabled = Some(Disabled { since: at(500), reason: "gone".to_owned() });
    world.set_health(Health { disabled, ..Health::default() });
    set_clock(600);
    assert_eq!(world.drain().await, Ended::Asleep(Some(at(1_210_100))));
}

#[tokio::test]
async fn the_deliveries_of_an_endpoint_that_is_gone_are_cancelled() {
    let world = World::new(60, [BROKEN]);
    // One of them waits for a retry far ahead.
    let far = Delivery { due_at: at(40_000), attempts: 7, ..world.delivery(3) };
    {
        let mut tables = world.store.tables();
        tables.pointers.remove(&(lane(), Pointer::of(&world_delivery(&far, 0))));
        tables.pointers.insert((lane(), Pointer::of(&far)));
        tables.deliveries.insert((lane(), event(3)), far);
        tables.endpoints.clear();
    }
    assert_eq!(world.drain().await, Ended::Asleep(None));
    assert_eq!((world.script.sent(), world.pointers().len()), (0, 0));
    assert!(world.states().iter().all(|state| *state == State::Cancelled));
}

/// OUT-fanout-partial: a relay died between deliveries and their pointers, and the endpoint was gone when it came back.
#[tokio::test]
async fn deliveries_without_pointers_are_cancelled_with_their_endpoint() {
    let world = World::new(120, [BROKEN]);
    world.store.tables().pointers.clear();
    world.store.tables().endpoints.clear();
    assert_eq!(world.drain().await, Ended::Asleep(None));
    assert!(world.states().iter().all(|state| *state == State::Cancelled));
    assert_eq!((world.script.sent(), world.pointers().len()), (0, 0));
}

fn world_delivery(delivery: &Delivery, due: i64) -> Delivery {
    Delivery { due_at: at(due), ..delivery.clone() }
}

#[tokio::test]
async fn what_is_overdue_is_given_up_while_the_endpoint_is_left_alone() {
    let world = World::new(3, [OK]);
    let now = DEADLINE + 1;
    let open = Breaker { failures: 12, open_until: Some(at(now + 60)) };
    world.store.tables().lanes.get_mut(&lane()).unwrap().left.breaker = open;
    set_clock(now);
    assert_eq!(world.drain().await, Ended::Asleep(Some(at(now + 60))));
    assert!(world.states().iter().all(|state| *state == State::Dead));
    assert_eq!(world.delivery(0).log[0].outcome, Outcome::Failed { cause: Cause::Expired });
}

#[tokio::test]
async fn a_pass_that_is_over_leaves_the_lane_awake_and_says_so() {
    let mut world = World::new(500, [OK]);
    world.script.takes_ms = 100;
    let ended = world.drain_until(at(20)).await.unwrap();
    assert_eq!(ended, Ended::Continued);
    // What was under way at the end of the pass has ended too.
    let (sent, succeeded) = (world.script.sent(), world.states());
    let succeeded = succeeded.iter().filter(|state| **state == State::Succeeded).count();
    assert_eq!(sent, succeeded);
    assert!((200..=205).contains(&sent), "{sent}");
    let item = world.item();
    assert!(item.wake_at.is_some_and(|wake_at| wake_at <= clock()) && item.holder.is_none());
    assert_eq!(world.messages(), Some(0));
}

#[tokio::test]
async fn a_lease_is_renewed_at_half_its_life() {
    let mut world = World::new(4, [OK]);
    world.script.takes_ms = 25_000;
    world.store.tables().endpoints.values_mut().for_each(|(e, _)| e.concurrency = Some(1));
    world.store.chaos.heal();
    assert_eq!(world.drain().await, Ended::Asleep(None));
    let renewals = world.store.chaos.calls().iter().filter(|call| **call == "lanes.renew").count();
    assert_eq!(renewals, 2);
}

#[tokio::test]
async fn a_holder_that_has_lost_its_lease_stops() {
    let mut world = World::new(9, [OK]);
    world.script.takes_ms = 61_000;
    world.store.tables().endpoints.values_mut().for_each(|(e, _)| e.concurrency = Some(1));
    let mut taken = false;
    // Somebody else takes the lane as soon as it can be taken.
    let ended = {
        let mut drain = pin!(world.drain());
        std::future::poll_fn(|context| {
            if clock() > at(60) && !taken {
                taken = true;
                let mut tables = world.store.tables();
                let item = tables.lanes.get_mut(&lane()).unwrap();
                item.fence += 1;
                item.holder = Some(("other".to_owned(), at(999)));
            }
            drain.as_mut().poll(context)
        })
        .await
    };
    assert_eq!((ended, world.script.sent()), (Ended::Lost, 1));
    assert_eq!(world.item().holder.unwrap().0, "other");
}

#[tokio::test]
async fn a_lane_that_is_woken_while_it_is_drained_is_looked_at_again() {
    let world = World::new(1, [OK]);
    world.store.chaos.heal();
    let ended = {
        let mut drain = pin!(world.drain());
        let mut woken = false;
        std::future::poll_fn(|context| {
            if world.script.sent() == 1 && !woken {
                woken = true;
                world.store.tables().lanes.get_mut(&lane()).unwrap().wakes += 1;
            }
            drain.as_mut().poll(context)
        })
        .await
    };
    assert_eq!((ended, world.item().holder), (Ended::Asleep(None), None));
    let calls = world.store.chaos.calls();
    assert_eq!(calls.iter().filter(|call| **call == "lanes.release").count(), 2);
    // With eyes of its own: the endpoint may have changed meanwhile.
    assert_eq!(calls.iter().filter(|call| **call == "registry.endpoint").count(), 2);
}

#[tokio::test]
async fn a_lane_that_is_held_or_absent_is_left() {
    let world = World::new(1, [OK]);
    let holder = Some(("other".to_owned(), at(60)));
    world.store.tables().lanes.get_mut(&lane()).unwrap().holder = holder;
    assert_eq!(world.drain().await, Ended::Busy);
    world.store.tables().lanes.clear();
    assert_eq!(world.drain().await, Ended::Absent);
    assert_eq!(world.script.sent(), 0);
}

/// A crash may leave two pointers, or an old one.
#[tokio::test]
async fn pointers_are_repaired() {
    let world = World::new(3, [OK]);
    {
        let mut tables = world.store.tables();
        // Moved, and its next pointer was never put.
        let key = (lane(), event(0));
        tables.deliveries.get_mut(&key).unwrap().due_at = at(500);
        // Finished, and its pointer was never deleted.
        tables.deliveries.get_mut(&(lane(), event(1))).unwrap().state = State::Succeeded;
        // Nothing there at all.
        tables
            .pointers
            .insert((lane(), Pointer { kind: Kind::Fresh, due_at: at(-5), event: event(77) }));
    }
    assert_eq!(world.drain().await, Ended::Asleep(Some(at(500))));
    assert_eq!(world.pointers(), [Pointer { kind: Kind::Fresh, due_at: at(500), event: event(0) }]);
    assert_eq!(world.script.sent.lock().unwrap().as_slice(), [(event(2), 1)]);
}

/// RTY-store-outage: the lane is let go, awake, and nothing is lost.
#[tokio::test]
async fn a_store_that_fails_ends_the_pass_and_not_the_deliveries() {
    for name in [
        "registry.endpoint",
        "deliveries.health",
        "deliveries.due",
        "deliveries.read",
        "deliveries.record",
        "deliveries.point",
        "deliveries.unpoint",
        "deliveries.note_health",
        "deliveries.next_due",
    ] {
        for fault in [Fault::Throttled, Fault::Unavailable, Fault::Refused] {
            let world = World::new(4, [BROKEN, BROKEN, BROKEN, BROKEN, OK]);
            world.store.chaos.on(name, When::Before, fault);
            let ended = world.drain_until(at(3600)).await;
            assert!(ended.is_err(), "{name}: {ended:?}");
            let item = world.item();
            assert!(item.holder.is_none() && item.wake_at.is_some(), "{name}: {item:?}");
            world.store.chaos.heal();
            finish(&world).await;
            assert!(world.states().iter().all(|state| *state == State::Succeeded), "{name}");
        }
    }
}

/// L2, L10, DLV-crash-after-post
#[tokio::test]
async fn a_holder_may_die_in_any_call() {
    let outcomes = || [BROKEN, OK, OK];
    let whole = World::new(2, outcomes());
    whole.store.chaos.heal();
    whole.drain().await;
    let calls = whole.store.chaos.calls().len() as u64;
    assert!(calls > 10, "{calls}");
    for call in 0..calls {
        for when in [When::Before, When::After] {
            let world = World::new(2, outcomes());
            world.store.chaos.at(call, when, Fault::Crash);
            let died = world.store.chaos.until_crash(world.drain()).await;
            assert!(died.is_none(), "call {call} {when:?}");
            world.store.chaos.heal();
            finish(&world).await;
            assert!(
                world.states().iter().all(|state| *state == State::Succeeded),
                "{call} {when:?}"
            );
            // Sent again if the outcome was not written; never more than that.
            assert!(world.script.sent() <= 5, "call {call} {when:?}: {}", world.script.sent());
            assert!(world.pointers().is_empty());
        }
    }
}

/// As the sweeper: wakes the lane when its time has come, until it sleeps for good.
async fn finish(world: &World) {
    for _ in 0..20 {
        let Some(wake_at) = world.item().wake_at else { return };
        let second = (wake_at.as_second() - START).max((CLOCK.get() / 1000) - START + 61);
        set_clock(second);
        world.drain().await;
    }
    panic!("the lane never sleeps");
}

/// RPL-in-flight: redelivered while its last attempt is still under way elsewhere.
#[tokio::test]
async fn a_late_outcome_of_an_old_attempt_does_not_close_a_new_one() {
    let world = World::new(1, [BROKEN, OK]);
    world.drain().await;
    let old = world.delivery(0);
    let now = at(40);
    let dead = old.given_up(Cause::Expired, now);
    world.store.tables().deliveries.insert((lane(), event(0)), dead);
    let again = world.store.redeliver(&lane(), event(0), at(DEADLINE * 2), now).await.unwrap();
    assert_eq!(again, domain::inbox::Noted::Yes);
    set_clock(40);
    assert_eq!(world.drain().await, Ended::Asleep(None));
    let delivery = world.delivery(0);
    assert_eq!((delivery.state, delivery.attempts), (State::Succeeded, 2));
}

#[tokio::test]
async fn health_is_written_when_it_changes_and_not_otherwise() {
    // Three events that fail, and the first success.
    let world = World::new(6, [BROKEN, BROKEN, BROKEN, OK, OK, OK]);
    world.store.tables().endpoints.values_mut().for_each(|(e, _)| e.concurrency = Some(1));
    world.store.chaos.heal();
    world.drain().await;
    let calls = world.store.chaos.calls();
    assert_eq!(calls.iter().filter(|call| **call == "deliveries.note_health").count(), 4);
    assert_eq!(world.health(), Health { version: 4, ..Health::default() });
}

/// A person has switched the endpoint off.
fn stopped() -> Option<Stopped> {
    Some(Stopped { since: at(0), how: Stop::Disabled, reason: "by a test".to_owned() })
}
