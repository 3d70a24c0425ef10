//! Redelivery over the tables in memory, with a deliverer that is as simple as can be.
#![expect(clippy::unwrap_used, clippy::panic, reason = "test code")]

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use domain::{
    bulk::PAGE,
    delivery::{Attempt, Delivery, Next, Outcome as Ended, State},
    destination::Destination,
    endpoint::{Disabled, Endpoint, Health, LaneCount, Pattern},
    id::{EndpointId, EventId, RedeliveryId, TenantId},
    inbox::Noted,
    lane::{Kind, LaneId},
    message::{Message as _, WakeMessage},
    outbox::{OutboxEvent, OutboxRow, Payload, Relayed},
    ports::{Deliveries as _, Due, Fanout as _, Halt, Redeliveries as _, Started},
    redelivery::{Counts, Order, Outcome, Selection, State as Stands, Survey, Work},
};
use flow::redeliver::{Redeliverer, Step};
use futures_util::future::{join, join3};
use jiff::Timestamp;
use testkit::{
    chaos::{Fault, When},
    memory::{MemoryQueue, Store},
};
use uuid::Uuid;

const TRIED_FOR: Duration = Duration::from_secs(345_600);

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_790_000_000 + second).unwrap()
}

fn acme() -> TenantId {
    "acme".parse().unwrap()
}

fn endpoint(number: u128) -> EndpointId {
    EndpointId::new(Uuid::from_u128(number))
}

/// The `n`-th event of a time.
fn event(second: i64, n: usize) -> EventId {
    EventId::derived(at(second), &[&n.to_string()])
}

fn us(number: u128) -> RedeliveryId {
    RedeliveryId::new(Uuid::from_u128(number))
}

struct Bench {
    store: Store,
    wakes: MemoryQueue,
}

impl Bench {
    fn new() -> Self {
        let wakes = MemoryQueue::new(Duration::from_secs(180), 16);
        wakes.set_now(at(0));
        let bench = Self { store: Store::new(4), wakes };
        bench.add(endpoint(1), |_| {});
        bench
    }

    fn add(&self, id: EndpointId, change: impl FnOnce(&mut Endpoint)) {
        let url = Destination::Https("https://example.com/".to_owned());
        let mut added = Endpoint::new(acme(), id, url, at(-100_000));
        change(&mut added);
        self.store.tables().endpoints.insert((acme(), id), (added, Vec::new()));
    }

    /// An event that was relayed to these endpoints.
    fn relay(&self, id: EventId, event_type: &str, to: Vec<EndpointId>) -> OutboxEvent {
        let event = OutboxEvent {
            id,
            tenant: acme(),
            event_type: event_type.to_owned(),
            schema_version: 1,
            aggregate_id: format!("order-{id}"),
            aggregate_version: None,
            payload: Payload::Inline(br#"{"amount":7}"#.to_vec()),
            occurred_at: id.time(),
            traceparent: None,
            labels: BTreeMap::new(),
        };
        let relayed = Some(Relayed { at: id.time(), endpoints: to });
        let row = OutboxRow { event: event.clone(), relayed };
        self.store.tables().outbox.insert((acme(), id), row);
        event
    }

    /// A delivery of an event of a while ago that stands so.
    fn put(&self, id: EventId, to: EndpointId, state: State) -> LaneId {
        let event = self.relay(id, "invoice.paid", vec![to]);
        let place = self.store.tables().endpoints.get(&(acme(), to)).unwrap().0.clone();
        let lane = LaneId::of(&place, id, &event.aggregate_id);
        let new = Delivery::new(id, event.event_type, at(-500), id.time());
        let finished_at = (state != State::Pending).then(|| at(-400));
        let delivery = Delivery { state, attempts: 3, finished_at, ..new };
        self.store.tables().deliveries.insert((lane.clone(), id), delivery);
        lane
    }

    fn redeliverer(&self) -> Redeliverer<'_, Store, Store, Store, Store, MemoryQueue> {
        Redeliverer {
            deliveries: &self.store,
            outbox: &self.store,
            registry: &self.store,
            bodies: &self.store,
            wakes: &self.wakes,
            tried_for: TRIED_FOR,
        }
    }

    fn order(selection: Selection) -> Order {
        Order {
            id: us(1),
            tenant: acme(),
            endpoints: vec![endpoint(1)],
            is_named: true,
            selection,
            rate: 1000,
            reason: "the receiver is mended".to_owned(),
            actor: "me".to_owned(),
        }
    }

    async fn start(&self, order: Order) -> Work {
        let work = Work::new(order, at(0));
        assert_eq!(self.store.start_redelivery(&work, 9).await.unwrap(), Started::Yes);
        work
    }

    /// Until it is over, by a clock that goes on.
    async fn finish(&self, mut work: Work) -> Work {
        for second in 0..100_000 {
            match self.redeliverer().step(&work, at(second)).await.unwrap() {
                Step::Went(after) => work = *after,
                Step::Waits => {}
                Step::Over => return work,
                Step::Lost => panic!("nobody else is at work"),
            }
        }
        panic!("it does not end")
    }

    fn delivery(&self, lane: &LaneId, id: EventId) -> Delivery {
        self.store.tables().deliveries.get(&(lane.clone(), id)).unwrap().clone()
    }

    fn count(&self, state: State) -> usize {
        let tables = self.store.tables();
        tables.deliveries.values().filter(|delivery| delivery.state == state).count()
    }

    /// No delivery is pending without a pointer at its time and a lane that is awake.
    fn nothing_is_stranded(&self) {
        let tables = self.store.tables();
        for ((lane, _), delivery) in &tables.deliveries {
            if delivery.state == State::Pending {
                let pointer = domain::lane::Pointer::of(delivery);
                assert!(tables.pointers.contains(&(lane.clone(), pointer)), "{delivery:?}");
                assert!(tables.lanes.get(lane).is_some_and(|lane| lane.wake_at.is_some()));
            }
        }
    }
}

fn counts(change: impl FnOnce(&mut Counts)) -> Counts {
    let mut counts = Counts::default();
    change(&mut counts);
    counts
}

/// RPL-in-flight, RPL-already-delivered: the case's own numbers, 50 rows of which only the dead are taken.
#[tokio::test]
async fn what_was_given_up_is_due_again_and_nothing_else() {
    let bench = Bench::new();
    let mut dead = Vec::new();
    for n in 0..60 {
        let state = match n {
            0..37 => State::Pending,
            37..40 => State::Cancelled,
            40..50 => State::Succeeded,
            _ => State::Dead,
        };
        let lane = bench.put(event(-1000, n), endpoint(1), state);
        if state == State::Dead {
            dead.push((lane, event(-1000, n)));
        }
    }
    let work = bench.start(Bench::order(Selection::default())).await;
    let survey = bench.redeliverer().survey(work.clone(), 10_000, || false).await.unwrap();
    assert_eq!(bench.count(State::Dead), 10, "a survey changes nothing");
    let done = bench.finish(work).await;
    let expected = counts(|c| {
        (c.looked_at, c.redelivered, c.in_flight) = (60, 10, 37);
        (c.cancelled, c.already_delivered) = (3, 10);
    });
    assert_eq!((done.counts, survey.counts), (expected, expected));
    assert_eq!(survey.by_state, BTreeMap::from([("dead".to_owned(), 10)]));
    assert_eq!(survey.by_endpoint, BTreeMap::from([(endpoint(1), 10)]));
    for (lane, id) in dead {
        let delivery = bench.delivery(&lane, id);
        assert_eq!((delivery.state, delivery.attempts, delivery.event), (State::Pending, 3, id));
        assert_eq!(delivery.redelivered.unwrap().by, us(1));
        assert!(delivery.deadline > at(345_000));
    }
    assert!(done.told.iter().all(|told| told.outcome == Outcome::InFlight));
    // The lane and its pointer are the taken ones'.
    assert_eq!(bench.store.tables().pointers.len(), 10);
}

#[tokio::test]
async fn delivered_and_cancelled_ones_go_only_where_they_are_asked_for() {
    for (delivered, cancelled) in [(true, false), (false, true), (true, true)] {
        let bench = Bench::new();
        for (n, state) in [State::Succeeded, State::Cancelled, State::Dead].into_iter().enumerate()
        {
            bench.put(event(-1000, n), endpoint(1), state);
        }
        let selection = Selection {
            include_delivered: delivered,
            include_cancelled: cancelled,
            ..Selection::default()
        };
        let work = bench.start(Bench::order(selection)).await;
        let done = bench.finish(work).await;
        let expected = 1 + u64::from(delivered) + u64::from(cancelled);
        assert_eq!(done.counts.redelivered, expected, "{delivered} {cancelled}");
        bench.nothing_is_stranded();
    }
}

/// OUT-transaction-conflict: each take writes the lane's own item, in a transaction. Two at once would cancel each other.
#[tokio::test]
async fn deliveries_of_one_lane_are_taken_one_after_the_other() {
    let bench = Bench::new();
    for n in 0..20 {
        bench.put(event(-1000, n), endpoint(1), State::Dead);
    }
    let work = bench.start(Bench::order(Selection::default())).await;
    bench.store.chaos.set(|_, _| None);
    let step = bench.redeliverer().step(&work, at(1)).await.unwrap();
    assert!(matches!(step, Step::Went(after) if after.counts.redelivered == 20));
    let calls = bench.store.chaos.calls();
    let takes = ["events.keep", "redeliver.redeliver_as"];
    let takes: Vec<_> = calls.into_iter().filter(|name| takes.contains(name)).collect();
    assert_eq!(takes, ["events.keep", "redeliver.redeliver_as"].repeat(20));
}

/// The rate is kept, and each message goes when its delivery is due.
#[tokio::test]
async fn a_rate_spreads_deliveries_and_their_messages() {
    let bench = Bench::new();
    for n in 0..200 {
        bench.put(event(-1000, n), endpoint(1), State::Dead);
    }
    let work = bench.start(Order { rate: 10, ..Bench::order(Selection::default()) }).await;
    let done = bench.finish(work).await;
    assert_eq!(done.counts.redelivered, 200);
    let mut by_second: BTreeMap<i64, u32> = BTreeMap::new();
    for delivery in bench.store.tables().deliveries.values() {
        *by_second.entry(delivery.due_at.as_second()).or_default() += 1;
    }
    assert!(by_second.values().all(|count| *count <= 11), "{by_second:?}");
    assert!(by_second.len() >= 19, "{by_second:?}");
    bench.nothing_is_stranded();
}

/// DLV-discarded-retry-stuck
#[tokio::test]
async fn what_is_of_a_stopped_endpoint_is_left_and_goes_after_enabling_by_the_same_command() {
    let bench = Bench::new();
    let lane = bench.put(event(-1000, 0), endpoint(1), State::Dead);
    let disabled = Disabled { since: at(-10), reason: "gone".to_owned() };
    let health = Health { disabled: Some(disabled), ..Health::default() };
    bench.store.tables().health.insert((acme(), endpoint(1)), health);
    let work = bench.start(Bench::order(Selection::default())).await;
    let done = bench.finish(work).await;
    assert_eq!(done.counts, counts(|c| (c.looked_at, c.stopped) = (1, 1)));
    assert_eq!(bench.delivery(&lane, event(-1000, 0)).state, State::Dead);
    bench.add(endpoint(1), |endpoint| endpoint.enabled_at = Some(at(-5)));
    let work = bench.start(Order { id: us(2), ..Bench::order(Selection::default()) }).await;
    assert_eq!(bench.finish(work).await.counts.redelivered, 1);
    bench.nothing_is_stranded();
}

/// RPL-already-delivered: what is past its retention is said to be.
#[tokio::test]
async fn an_event_past_its_retention_is_told_and_one_near_it_is_kept() {
    let bench = Bench::new();
    for n in 0..3 {
        bench.put(event(-1000, n), endpoint(1), State::Succeeded);
    }
    let expiry = |n: usize, second| {
        let key = (acme(), event(-1000, n));
        bench.store.tables().outbox_expiry.insert(key, at(second));
    };
    expiry(0, -1);
    expiry(1, 100);
    bench.store.tables().outbox.remove(&(acme(), event(-1000, 2)));
    let selection = Selection { include_delivered: true, ..Selection::default() };
    let done = bench.finish(bench.start(Bench::order(selection)).await).await;
    assert_eq!(done.counts, counts(|c| (c.looked_at, c.redelivered, c.expired) = (3, 1, 2)));
    let kept = bench.store.tables().outbox_expiry[&(acme(), event(-1000, 1))];
    assert!(kept > at(345_600 + 86_000), "{kept}");
    // By name, too.
    let events = (0..3).map(|n| event(-1000, n)).collect();
    let named = Selection { events, include_delivered: true, ..Selection::default() };
    let done = bench.finish(bench.start(Order { id: us(2), ..Bench::order(named) }).await).await;
    let told: Vec<_> = done.told.iter().map(|told| told.outcome).collect();
    assert_eq!(told, [Outcome::Expired, Outcome::InFlight, Outcome::Expired]);
}

#[tokio::test]
async fn named_events_are_told_of_one_by_one() {
    let bench = Bench::new();
    bench.add(endpoint(2), |endpoint| {
        endpoint.lanes = vec![LaneCount { from: at(-100_000), count: 4 }];
    });
    bench.put(event(-1, 0), endpoint(1), State::Dead);
    bench.put(event(-1, 1), endpoint(2), State::Succeeded);
    bench.relay(event(-1, 2), "a", vec![]);
    let unrelayed = bench.relay(event(-1, 3), "a", vec![]);
    bench.store.tables().outbox.get_mut(&(acme(), unrelayed.id)).unwrap().relayed = None;
    let events: Vec<_> = (0..5).map(|n| event(-1, n)).collect();
    let selection = Selection { events: events.clone(), ..Selection::default() };
    let both = Order {
        endpoints: vec![endpoint(1), endpoint(2)],
        is_named: false,
        ..Bench::order(selection.clone())
    };
    let done = bench.finish(bench.start(both).await).await;
    let of = |done: &Work, n: usize| -> Vec<Outcome> {
        let told = done.told.iter().filter(|told| told.event == events[n]);
        told.map(|told| told.outcome).collect()
    };
    assert_eq!(of(&done, 0), [Outcome::Redelivered, Outcome::NotSelected]);
    assert_eq!(of(&done, 1), [Outcome::NotSelected, Outcome::AlreadyDelivered]);
    assert_eq!(of(&done, 2), [Outcome::NotSelected; 2]);
    assert_eq!(of(&done, 3), [Outcome::InFlight; 2]);
    assert_eq!(of(&done, 4), [Outcome::NotSelected; 2]);
    let named = Order { id: us(2), ..Bench::order(selection) };
    let done = bench.finish(bench.start(named).await).await;
    assert_eq!((of(&done, 2), of(&done, 4)), (vec![Outcome::Absent], vec![Outcome::Absent]));
    bench.nothing_is_stranded();
}

/// E: what never came to an endpoint: of before it was made, of a type it did not ask for, as its filter says now.
#[tokio::test]
async fn what_never_came_to_an_endpoint_is_made_for_it() {
    let bench = Bench::new();
    bench.add(endpoint(1), |endpoint| {
        endpoint.patterns = vec!["invoice.*".parse::<Pattern>().unwrap()];
        endpoint.created_at = at(-100);
    });
    for n in 0..120 {
        bench.relay(event(-5000, n), "invoice.paid", vec![]);
    }
    bench.relay(event(-5000, 200), "charge.made", vec![]);
    bench.relay(event(-50_000, 201), "invoice.paid", vec![]);
    bench.put(event(-5000, 202), endpoint(1), State::Dead);
    let unrelayed = bench.relay(event(-5000, 203), "invoice.paid", vec![]);
    bench.store.tables().outbox.get_mut(&(acme(), unrelayed.id)).unwrap().relayed = None;
    let selection = Selection { missing: true, from: Some(at(-6000)), ..Selection::default() };
    let work = bench.start(Bench::order(selection.clone())).await;
    let survey = bench.redeliverer().survey(work.clone(), 10_000, || false).await.unwrap();
    assert_eq!(survey.by_state, BTreeMap::from([("missing".to_owned(), 120)]));
    let done = bench.finish(work).await;
    assert_eq!((done.counts.redelivered, done.counts.in_flight), (120, 1));
    assert_eq!((bench.count(State::Pending), bench.count(State::Dead)), (120, 1));
    // The story of the event tells it.
    let row = bench.store.tables().outbox[&(acme(), event(-5000, 7))].clone();
    assert_eq!(row.relayed.unwrap().endpoints, [endpoint(1)]);
    bench.nothing_is_stranded();
    // Again there is nothing left to do.
    let again = Order { id: us(2), ..Bench::order(selection) };
    let done = bench.finish(bench.start(again).await).await;
    assert_eq!((done.counts.redelivered, done.counts.in_flight), (0, 121));
}

#[tokio::test]
async fn a_filter_decides_about_what_is_missing() {
    for (limit, expected) in [(5, 1), (9, 0)] {
        let bench = Bench::new();
        let filter = serde_json::json!({"/amount": {"gte": limit}});
        bench.add(endpoint(1), |endpoint| {
            endpoint.filter = Some(domain::filter::Filter::new(filter).unwrap());
        });
        bench.relay(event(-5, 0), "a", vec![]);
        let selection = Selection { missing: true, from: Some(at(-6000)), ..Selection::default() };
        let done = bench.finish(bench.start(Bench::order(selection)).await).await;
        assert_eq!(done.counts.redelivered, expected, "{limit}");
    }
}

#[tokio::test]
async fn a_range_is_of_the_events_times_over_all_lanes_and_endpoints() {
    let bench = Bench::new();
    bench.add(endpoint(2), |endpoint| {
        endpoint.lanes = vec![LaneCount { from: at(-100_000), count: 4 }];
    });
    for (n, second) in (-200..0).enumerate() {
        bench.put(event(second, n), endpoint(1 + (n % 2) as u128), State::Dead);
    }
    let selection = Selection { from: Some(at(-150)), to: Some(at(-50)), ..Selection::default() };
    let order = Order {
        endpoints: vec![endpoint(1), endpoint(2), endpoint(3)],
        is_named: false,
        ..Bench::order(selection)
    };
    let done = bench.finish(bench.start(order).await).await;
    assert_eq!((done.counts.redelivered, done.counts.looked_at), (100, 100));
    bench.nothing_is_stranded();
}

/// A page that was cut off at any call is done again: each delivery is taken once, and counted once.
#[tokio::test]
async fn a_death_after_any_call_takes_nothing_twice_and_strands_nothing() {
    for skip in 0..60 {
        for when in [When::Before, When::After] {
            let bench = Bench::new();
            for n in 0..5 {
                bench.put(event(-1000, n), endpoint(1), State::Dead);
            }
            bench.relay(event(-900, 9), "invoice.paid", vec![]);
            let work = bench.start(Bench::order(Selection::default())).await;
            let missing = Selection { missing: true, from: Some(at(-950)), ..Selection::default() };
            let other = bench.start(Order { id: us(2), ..Bench::order(missing) }).await;
            let mut left = skip;
            bench.store.chaos.set(move |_, _| {
                left -= 1;
                (left == -1).then_some((when, Fault::Unavailable))
            });
            for work in [&work, &other] {
                let _ = bench.redeliverer().step(work, at(0)).await;
            }
            bench.store.chaos.heal();
            for id in [us(1), us(2)] {
                let read = bench.store.redelivery(id).await.unwrap().unwrap();
                let done = bench.finish(read).await;
                let expected = if id == us(1) { 5 } else { 1 };
                assert_eq!(done.counts.redelivered, expected, "{skip} {when:?}");
            }
            assert_eq!(bench.count(State::Pending), 6, "{skip} {when:?}");
            bench.nothing_is_stranded();
        }
    }
}

#[tokio::test]
async fn a_pause_keeps_it_where_it_is_and_a_cancel_ends_it() {
    let bench = Bench::new();
    for n in 0..3 * PAGE {
        bench.put(event(-1000, n), endpoint(1), State::Dead);
    }
    let halt = async |how, second| {
        let noted = bench.store.halt_redelivery(us(1), how, "me", at(second)).await.unwrap();
        assert_eq!(noted, Noted::Yes);
    };
    let work = bench.start(Bench::order(Selection::default())).await;
    let Step::Went(first) = bench.redeliverer().step(&work, at(0)).await.unwrap() else {
        panic!("it went")
    };
    assert_eq!(first.counts.redelivered, PAGE as u64);
    halt(Halt::Pause, 1).await;
    let paused = bench.store.redelivery(us(1)).await.unwrap().unwrap();
    assert_eq!(bench.redeliverer().step(&paused, at(2)).await.unwrap(), Step::Waits);
    assert_eq!(bench.store.tables().open_redeliveries.len(), 1);
    halt(Halt::Resume, 3).await;
    let resumed = bench.store.redelivery(us(1)).await.unwrap().unwrap();
    let Step::Went(_) = bench.redeliverer().step(&resumed, at(100)).await.unwrap() else {
        panic!("it went")
    };
    halt(Halt::Cancel, 101).await;
    let stopped = bench.store.redelivery(us(1)).await.unwrap().unwrap();
    assert_eq!(bench.redeliverer().step(&stopped, at(102)).await.unwrap(), Step::Over);
    assert_eq!(bench.count(State::Dead), PAGE);
    assert!(bench.store.tables().open_redeliveries.is_empty());
    assert_eq!((stopped.state(), stopped.counts.redelivered), (Stands::Cancelled, 100));
}

#[tokio::test]
async fn a_survey_is_cut_and_says_so() {
    let bench = Bench::new();
    for n in 0..4 * PAGE {
        bench.put(event(-1000, n), endpoint(1), State::Dead);
    }
    let survey = |most, late| {
        let work = Work::new(Bench::order(Selection::default()), at(0));
        let bench = &bench;
        async move { bench.redeliverer().survey(work, most, move || late).await.unwrap() }
    };
    let cut = survey(100, false).await;
    assert!(cut.more && cut.counts.looked_at == 100, "{cut:?}");
    assert_eq!(survey(1, true).await, Survey { more: true, ..Survey::default() });
    let whole = survey(10_000, false).await;
    assert!(!whole.more && whole.counts.redelivered == 200 && whole.first.len() == 20);
}

/// Makes an attempt of everything that is due in a lane, as a deliverer does: read, post, record as it was read.
async fn deliver(
    bench: &Bench,
    lane: &LaneId,
    posts: &std::sync::Mutex<Vec<EventId>>,
    seed: u64,
    now: Timestamp,
) {
    let mut pointers = Vec::new();
    for kind in Kind::ALL {
        pointers.extend(bench.store.due(lane, kind, Due::by(now), 100).await.unwrap());
    }
    for pointer in pointers {
        let found = bench.store.read(lane, &[pointer.event]).await.unwrap();
        tokio::task::yield_now().await;
        let Some(before) = found.into_iter().next() else { continue };
        if before.state != State::Pending || before.due_at != pointer.due_at {
            bench.store.unpoint(lane, &pointer).await.unwrap();
            continue;
        }
        posts.lock().unwrap().push(pointer.event);
        let goes_through = !(seed.wrapping_mul(31) + u64::from(before.attempts)).is_multiple_of(3);
        let status = if goes_through { 200 } else { 500 };
        let next = if goes_through { Next::Succeeded } else { Next::Dead };
        let outcome = Ended::Answered { status, retry_after_ms: None };
        let number = before.attempts + 1;
        let attempt = Attempt { number, at: now, duration_ms: 1, outcome, excerpt: String::new() };
        let after = before.ended(attempt, next, now);
        tokio::task::yield_now().await;
        let _ = bench.store.record(lane, &before, &after).await.unwrap();
        bench.store.unpoint(lane, &pointer).await.unwrap();
    }
}

/// RPL-in-flight: 200 rounds of two redeliveries, each advanced by two at once, beside a deliverer. The receiver sees
/// one request for each delivery that was owed, and one more for each that is reported as redelivered.
#[tokio::test]
async fn beside_deliverers_only_what_is_reported_as_redelivered_is_sent_again() {
    for round in 0..200_u64 {
        let bench = Bench::new();
        let mut owed = 0;
        let mut lanes = BTreeSet::new();
        for n in 0..12 {
            let state = match (n as u64 + round) % 4 {
                0 => State::Pending,
                1 => State::Succeeded,
                2 => State::Cancelled,
                _ => State::Dead,
            };
            let id = event(-1000, n);
            let lane = bench.put(id, endpoint(1), state);
            if state == State::Pending {
                owed += 1;
                let delivery = Delivery { due_at: at(-1), ..bench.delivery(&lane, id) };
                let pointer = domain::lane::Pointer::of(&delivery);
                bench.store.tables().deliveries.insert((lane.clone(), id), delivery);
                bench.store.tables().pointers.insert((lane.clone(), pointer));
                bench.store.wake(&lane, at(-1)).await.unwrap();
            }
            lanes.insert(lane);
        }
        let faults = Chance::new(round + 1000);
        bench.store.chaos.set(move |_, name| faults.fault(name));
        let chance = Chance::new(round);
        let posts = std::sync::Mutex::new(Vec::new());
        let advance = async |id: u128, include_delivered: bool| {
            let selection = Selection { include_delivered, ..Selection::default() };
            let order = Order { id: us(id), ..Bench::order(selection) };
            let work = Work::new(order, at(0));
            // A start whose answer was lost is made again.
            while bench.store.start_redelivery(&work, 9).await.is_err() {}
            let one = async || {
                for second in 0..40 {
                    chance.wait().await;
                    let Ok(Some(work)) = bench.store.redelivery(us(id)).await else { continue };
                    if work.is_over() {
                        break;
                    }
                    let _ = bench.redeliverer().step(&work, at(second / 4)).await;
                }
            };
            join(one(), one()).await;
        };
        let deliverer = async {
            for second in 0..60 {
                for lane in &lanes {
                    deliver(&bench, lane, &posts, round, at(second)).await;
                }
                chance.wait().await;
            }
        };
        join3(advance(1, false), advance(2, round % 2 == 0), deliverer).await;
        bench.store.chaos.heal();
        let mut reported = 0;
        for id in [1, 2] {
            let done = bench.finish(bench.store.redelivery(us(id)).await.unwrap().unwrap()).await;
            assert_eq!(done.counts.looked_at, 12, "round {round}");
            reported += done.counts.redelivered;
        }
        for second in 60..70 {
            for lane in &lanes {
                deliver(&bench, lane, &posts, round, at(second)).await;
            }
        }
        let sent = posts.lock().unwrap().len() as u64;
        assert_eq!(sent, owed + reported, "round {round}");
        assert_eq!(bench.count(State::Pending), 0, "round {round}");
    }
}

/// A seeded source of numbers.
struct Chance(std::sync::Mutex<u64>);

impl Chance {
    fn new(seed: u64) -> Self {
        Self(std::sync::Mutex::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1))
    }

    fn next(&self, below: u64) -> u64 {
        let mut state = self.0.lock().unwrap();
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        (*state >> 11) % below
    }

    /// Lets others come first, for a while.
    async fn wait(&self) {
        for _ in 0..self.next(20) {
            tokio::task::yield_now().await;
        }
    }

    /// One call of the redelivery in eight fails, before its effect or after it.
    fn fault(&self, name: &str) -> Option<(When, Fault)> {
        let is_ours = name.starts_with("redeliver") || name.starts_with("events");
        match self.next(16) {
            0 if is_ours => Some((When::Before, Fault::Unavailable)),
            1 if is_ours => Some((When::After, Fault::Unavailable)),
            _ => None,
        }
    }
}

/// What was sent names lanes, and no more than there are.
#[tokio::test]
async fn one_message_wakes_a_lane_for_each_second() {
    let bench = Bench::new();
    for n in 0..30 {
        bench.put(event(-1000, n), endpoint(1), State::Dead);
    }
    let work = bench.start(Order { rate: 10, ..Bench::order(Selection::default()) }).await;
    bench.finish(work).await;
    bench.wakes.set_now(at(1000));
    let mut received = Vec::new();
    while let Some(message) = bench.wakes.receive(|_| 0) {
        received.push(WakeMessage::from_text(&message.text).unwrap());
    }
    assert_eq!(received.len(), 3);
}
