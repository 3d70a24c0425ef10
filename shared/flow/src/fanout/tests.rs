//! Fan-out over the tables in memory: who gets an event, and what a crash leaves behind.

use domain::{
    destination::Destination,
    endpoint::{LaneCount, Stop, Stopped},
    id::EventId,
    outbox::{OutboxRow, Payload},
};
use testkit::{
    chaos::{Fault, When},
    memory::{MemoryQueue, Store, Tables},
};

use super::*;

const DEADLINE: Duration = Duration::from_secs(96 * 3600);

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn endpoint_id(n: u128) -> EndpointId {
    format!("ep_{n:032x}").parse().unwrap()
}

fn endpoint(tenant: &str, n: u128, patterns: &[&str]) -> Endpoint {
    Endpoint {
        patterns: patterns.iter().map(|pattern| pattern.parse().unwrap()).collect(),
        lanes: vec![LaneCount { from: at(0), count: 1 }],
        ..Endpoint::new(
            tenant.parse().unwrap(),
            endpoint_id(n),
            Destination::Https("https://example.com/".to_owned()),
            at(100),
        )
    }
}

fn event(tenant: &str, name: &str, second: i64) -> OutboxEvent {
    OutboxEvent {
        id: EventId::derived(at(second), &[name]),
        tenant: tenant.parse().unwrap(),
        event_type: "invoice.paid".to_owned(),
        schema_version: 1,
        aggregate_id: name.to_owned(),
        aggregate_version: None,
        payload: Payload::Inline(b"{}".to_vec()),
        occurred_at: at(second),
        traceparent: None,
        labels: BTreeMap::new(),
    }
}

struct World {
    store: Store,
    queue: MemoryQueue,
    cache: EndpointCache,
}

impl World {
    fn new(endpoints: &[Endpoint], events: &[OutboxEvent]) -> Self {
        let store = Store::new(1);
        for event in events {
            let row = OutboxRow { event: event.clone(), relayed: None };
            store.tables().outbox.insert((event.tenant.clone(), event.id), row);
        }
        for endpoint in endpoints {
            add(&store, endpoint);
        }
        let queue = MemoryQueue::new(Duration::from_secs(60), 9);
        Self { store, queue, cache: EndpointCache::default() }
    }

    async fn run(&self, events: &[OutboxEvent], now: i64) -> Vec<Fate> {
        let fan_out = FanOut {
            lanes: &self.store,
            outbox: &self.store,
            registry: &self.store,
            queue: &self.queue,
            cache: &self.cache,
            deadline: DEADLINE,
        };
        fan_out.run(events, at(now)).await
    }

    fn messages(&self) -> usize {
        std::iter::from_fn(|| self.queue.receive(|_| 0)).count()
    }

    fn relayed(&self, event: &OutboxEvent) -> Option<Vec<EndpointId>> {
        let tables = self.store.tables();
        let row = &tables.outbox[&(event.tenant.clone(), event.id)];
        row.relayed.as_ref().map(|relayed| relayed.endpoints.clone())
    }
}

fn add(store: &Store, endpoint: &Endpoint) {
    let key = (endpoint.tenant.clone(), endpoint.id);
    let mut tables = store.tables();
    tables.endpoints.insert(key, (endpoint.clone(), Vec::new()));
    *tables.epochs.entry(endpoint.tenant.clone()).or_default() += 1;
}

/// Deliveries, pointers and lanes that were woken, without the times.
fn owed(tables: &Tables) -> (Vec<String>, Vec<String>, Vec<String>) {
    let deliveries = tables.deliveries.keys().map(|(lane, event)| format!("{lane} {event}"));
    let pointers = tables.pointers.iter().map(|(lane, to)| format!("{lane} {}", to.event));
    let woken = tables.lanes.iter().filter(|(_, lane)| lane.wake_at.is_some());
    (deliveries.collect(), pointers.collect(), woken.map(|(lane, _)| lane.to_string()).collect())
}

/// E16, F14
#[tokio::test]
async fn each_endpoint_that_wants_an_event_gets_one_delivery() {
    let endpoints = [
        endpoint("acme", 1, &[]),
        endpoint("acme", 2, &["invoice.*"]),
        endpoint("acme", 3, &["charge.*"]),
        endpoint("other", 4, &[]),
    ];
    let event = event("acme", "in_1", 200);
    let world = World::new(&endpoints, std::slice::from_ref(&event));
    world.run(std::slice::from_ref(&event), 201).await;
    assert_eq!(world.relayed(&event), Some(vec![endpoint_id(1), endpoint_id(2)]));
    let (deliveries, pointers, lanes) = owed(&world.store.tables());
    assert_eq!((deliveries.len(), pointers, lanes.len()), (2, deliveries, 2));
    assert_eq!(world.messages(), 2);
}

/// The order is what makes every step a safe last one.
#[tokio::test]
async fn deliveries_come_before_wakes_before_messages_before_the_mark() {
    let event = event("acme", "in_1", 200);
    let world = World::new(&[endpoint("acme", 1, &[])], std::slice::from_ref(&event));
    world.store.chaos.heal();
    world.run(&[event], 201).await;
    let calls = world.store.chaos.calls();
    let expected = [
        "registry.endpoints_epoch",
        "registry.endpoints",
        "fanout.put_delivery",
        "fanout.put_pointer",
        "fanout.wake",
        "outbox.mark",
    ];
    assert_eq!(calls, expected);
}

/// L2, OUT-fanout-partial, E18
#[tokio::test]
async fn it_may_die_after_any_step_and_run_again() {
    let endpoints = [endpoint("acme", 1, &[]), endpoint("acme", 2, &[])];
    let events = [event("acme", "in_1", 200), event("acme", "in_2", 201)];
    let whole = World::new(&endpoints, &events);
    whole.run(&events, 210).await;
    let expected = owed(&whole.store.tables());
    let calls = whole.store.chaos.calls().len() as u64;
    assert_eq!(calls, 2 + 8 + 2 + 2);
    for call in 0..calls {
        for when in [When::Before, When::After] {
            let world = World::new(&endpoints, &events);
            world.store.chaos.at(call, when, Fault::Crash);
            let died = world.store.chaos.until_crash(world.run(&events, 210)).await;
            assert!(died.is_none(), "call {call} {when:?}");
            world.store.chaos.heal();
            // As the sweeper does: whatever has no mark.
            let left = events.iter().filter(|event| world.relayed(event).is_none());
            let left: Vec<_> = left.cloned().collect();
            world.run(&left, 400).await;
            let (deliveries, mut pointers, lanes) = owed(&world.store.tables());
            // A second pointer to the same delivery is one too many, and its holder deletes it.
            pointers.dedup();
            pointers.sort();
            pointers.dedup();
            assert_eq!((deliveries, pointers, lanes), expected, "call {call} {when:?}");
            assert!(events.iter().all(|event| world.relayed(event).is_some()));
        }
    }
}

#[tokio::test]
async fn running_it_twice_writes_once() {
    let event = event("acme", "in_1", 200);
    let world = World::new(&[endpoint("acme", 1, &[])], std::slice::from_ref(&event));
    world.run(std::slice::from_ref(&event), 201).await;
    let before = owed(&world.store.tables());
    world.run(std::slice::from_ref(&event), 201).await;
    assert_eq!(owed(&world.store.tables()), before);
}

#[tokio::test]
async fn a_lane_that_several_events_touch_is_woken_once() {
    let events: Vec<_> = (0..9).map(|n| event("acme", &format!("in_{n}"), 200 + n)).collect();
    let world = World::new(&[endpoint("acme", 1, &[])], &events);
    world.store.chaos.heal();
    world.run(&events, 300).await;
    let wakes = world.store.chaos.calls().iter().filter(|call| **call == "fanout.wake").count();
    assert_eq!((wakes, world.messages()), (1, 1));
    assert_eq!(world.store.tables().deliveries.len(), 9);
}

#[tokio::test]
async fn an_event_that_nobody_wants_is_marked_as_such() {
    let event = event("acme", "in_1", 200);
    let world = World::new(&[endpoint("acme", 1, &["charge.*"])], std::slice::from_ref(&event));
    world.run(std::slice::from_ref(&event), 201).await;
    assert_eq!((world.relayed(&event), world.messages()), (Some(Vec::new()), 0));
}

/// DLV-disabled-events-vanish
#[tokio::test]
async fn a_disabled_endpoint_gets_its_deliveries_too() {
    let event = event("acme", "in_1", 200);
    let stopped = Some(Stopped { since: at(1), how: Stop::Disabled, reason: String::new() });
    let disabled = Endpoint { stopped, ..endpoint("acme", 1, &[]) };
    let world = World::new(&[disabled], std::slice::from_ref(&event));
    world.run(std::slice::from_ref(&event), 201).await;
    assert_eq!(world.store.tables().deliveries.len(), 1);
}

#[tokio::test]
async fn a_kept_list_is_believed_as_long_as_the_epoch_stands() {
    let events: Vec<_> = (0..3).map(|n| event("acme", &format!("in_{n}"), 200 + n)).collect();
    let world = World::new(&[endpoint("acme", 1, &[])], &events);
    world.run(&events[..1], 201).await;
    world.store.chaos.heal();
    world.run(&events[1..2], 202).await;
    let reads = |world: &World| {
        let calls = world.store.chaos.calls().into_iter();
        calls.filter(|call| call.starts_with("registry.")).collect::<Vec<_>>()
    };
    assert_eq!(reads(&world), ["registry.endpoints_epoch"]);
    // Created a moment ago: its first event is the next one.
    add(&world.store, &endpoint("acme", 2, &[]));
    world.run(&events[2..], 203).await;
    assert_eq!(world.relayed(&events[2]), Some(vec![endpoint_id(1), endpoint_id(2)]));
}

#[tokio::test]
async fn one_epoch_is_read_for_each_tenant_of_a_batch() {
    let events = ["a", "b"].map(|tenant| (0..5).map(move |n| event(tenant, &n.to_string(), 200)));
    let events: Vec<_> = events.into_iter().flatten().collect();
    let world = World::new(&[endpoint("a", 1, &[]), endpoint("b", 2, &[])], &events);
    world.store.chaos.heal();
    world.run(&events, 201).await;
    let calls = world.store.chaos.calls();
    assert_eq!(calls.iter().filter(|call| **call == "registry.endpoints_epoch").count(), 2);
}

/// OUT-poison-blocks-shard
#[tokio::test]
async fn an_event_that_fails_on_its_own_is_left_to_the_sweeper() {
    for fault in [Fault::Throttled, Fault::Refused] {
        let events = [event("acme", "in_1", 200), event("acme", "in_2", 201)];
        let world = World::new(&[endpoint("acme", 1, &[])], &events);
        let mut puts = 0;
        world.store.chaos.set(move |_, name| {
            puts += u32::from(name == "fanout.put_delivery");
            (name == "fanout.put_delivery" && puts == 1).then_some((When::Before, fault))
        });
        let fates = world.run(&events, 210).await;
        assert!(matches!(&fates[..], [Fate::Left(_), Fate::Relayed(_)]), "{fates:?}");
        assert_eq!((world.relayed(&events[0]), world.messages()), (None, 1));
    }
}

#[tokio::test]
async fn trouble_with_one_tenant_does_not_touch_the_others() {
    let events = [event("a", "1", 200), event("b", "1", 200)];
    let world = World::new(&[endpoint("a", 1, &[]), endpoint("b", 2, &[])], &events);
    let mut reads = 0;
    world.store.chaos.set(move |_, name| {
        reads += u32::from(name == "registry.endpoints_epoch");
        (name == "registry.endpoints_epoch" && reads == 1)
            .then_some((When::Before, Fault::Throttled))
    });
    let fates = world.run(&events, 210).await;
    assert!(matches!(&fates[..], [Fate::Left(_), Fate::Relayed(_)]), "{fates:?}");
}

#[tokio::test]
async fn a_store_that_is_down_is_worth_a_retry() {
    for name in ["registry.endpoints_epoch", "fanout.put_pointer", "fanout.wake", "outbox.mark"] {
        let event = event("acme", "in_1", 200);
        let world = World::new(&[endpoint("acme", 1, &[])], std::slice::from_ref(&event));
        world.store.chaos.on(name, When::Before, Fault::Unavailable);
        let fates = world.run(std::slice::from_ref(&event), 201).await;
        assert!(matches!(&fates[..], [Fate::Down(_)]), "{name} {fates:?}");
        assert_eq!(world.relayed(&event), None);
    }
}

#[tokio::test]
async fn an_event_whose_lane_was_not_woken_stays_new() {
    let event = event("acme", "in_1", 200);
    let world = World::new(&[endpoint("acme", 1, &[])], std::slice::from_ref(&event));
    world.store.chaos.on("fanout.wake", When::Before, Fault::Throttled);
    let fates = world.run(std::slice::from_ref(&event), 201).await;
    assert!(matches!(&fates[..], [Fate::Left(_)]), "{fates:?}");
    assert_eq!((world.relayed(&event), world.messages()), (None, 0));
}

/// A wake message may be lost: `wake_at` stands.
#[tokio::test]
async fn a_lost_message_fails_nothing() {
    let event = event("acme", "in_1", 200);
    let world = World::new(&[endpoint("acme", 1, &[])], std::slice::from_ref(&event));
    world.queue.chaos.on("queue.send", When::Before, Fault::Unavailable);
    world.run(std::slice::from_ref(&event), 201).await;
    assert!(world.relayed(&event).is_some());
    assert!(world.store.tables().lanes.values().all(|lane| lane.wake_at == Some(at(201))));
}

#[test]
fn a_delivery_is_tried_from_its_event_on_and_a_very_late_one_from_now_on() {
    let event = event("acme", "in_1", 200);
    let hours = |n: i64| at(200 + n * 3600);
    assert_eq!(deadline(&event, DEADLINE, hours(1)), hours(96));
    assert_eq!(deadline(&event, DEADLINE, hours(95)), hours(96));
    assert_eq!(deadline(&event, DEADLINE, hours(96)), hours(192));
}
