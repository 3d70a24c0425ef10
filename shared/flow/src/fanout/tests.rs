//! Fan-out over the tables in memory: who gets an event, and what a crash leaves behind.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use domain::{
    body::Sha256Hash,
    destination::Destination,
    endpoint::{Choice, Endpoint, LaneCount, Stop, Stopped},
    filter::Filter,
    id::EventId,
    outbox::{OutboxRow, Payload},
};
use serde_json::json;
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
    step: usize,
    /// How many seconds each look at the clock takes, and how many have gone by.
    pace: u32,
    looks: AtomicU32,
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
        let cache = EndpointCache::default();
        Self { store, queue, cache, step: STEP, pace: 0, looks: AtomicU32::new(0) }
    }

    async fn run(&self, events: &[OutboxEvent], now: i64) -> Vec<Fate> {
        let fan_out = FanOut {
            lanes: &self.store,
            outbox: &self.store,
            registry: &self.store,
            queue: &self.queue,
            bodies: &self.store,
            cache: &self.cache,
            deadline: DEADLINE,
            step: self.step,
            now: || at(now + i64::from(self.looks.fetch_add(self.pace, Relaxed))),
        };
        fan_out.run(events, at(now + 10)).await
    }

    fn deliveries(&self) -> usize {
        self.store.tables().deliveries.len()
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

fn remove(store: &Store, endpoint: &Endpoint) {
    let mut tables = store.tables();
    tables.endpoints.remove(&(endpoint.tenant.clone(), endpoint.id));
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
        assert!(matches!(&fates[..], [Fate::Left(_), Fate::Relayed { .. }]), "{fates:?}");
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
    assert!(matches!(&fates[..], [Fate::Left(_), Fate::Relayed { .. }]), "{fates:?}");
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
    assert_eq!(course::deadline(&event, DEADLINE, hours(1)), hours(96));
    assert_eq!(course::deadline(&event, DEADLINE, hours(95)), hours(96));
    assert_eq!(course::deadline(&event, DEADLINE, hours(96)), hours(192));
}

fn asks(n: u128, filter: serde_json::Value) -> Endpoint {
    Endpoint { filter: Some(Filter::new(filter).unwrap()), ..endpoint("acme", n, &[]) }
}

fn with_payload(name: &str, payload: &[u8]) -> OutboxEvent {
    OutboxEvent { payload: Payload::Inline(payload.to_vec()), ..event("acme", name, 200) }
}

fn reads(world: &World, of: &str) -> usize {
    world.store.chaos.calls().iter().filter(|call| **call == of).count()
}

#[tokio::test]
async fn filters_and_labels_choose_by_what_an_event_carries() {
    let region = |n, region: &str| Endpoint {
        labels: [("region".to_owned(), region.to_owned())].into(),
        ..endpoint("acme", n, &[])
    };
    let large = json!({"/amount": {"gte": 100}});
    let endpoints = [
        asks(1, large),
        asks(2, json!({"/amount": {"lt": 100}})),
        region(3, "eu"),
        region(4, "us"),
    ];
    let event = OutboxEvent {
        labels: [("region".to_owned(), "eu".to_owned())].into(),
        ..with_payload("in_1", br#"{"amount": 100}"#)
    };
    let world = World::new(&endpoints, std::slice::from_ref(&event));
    world.run(std::slice::from_ref(&event), 201).await;
    assert_eq!(world.relayed(&event), Some(vec![endpoint_id(1), endpoint_id(3)]));
}

#[tokio::test]
async fn a_large_payload_is_read_once_and_only_if_a_filter_asks() {
    let bytes = br#"{"amount": 100}"#;
    let hash = Sha256Hash::of(bytes);
    let event = OutboxEvent { payload: Payload::Bucket(hash), ..event("acme", "in_1", 200) };
    let other_type = Endpoint {
        patterns: vec!["charge.*".parse().unwrap()],
        ..asks(9, json!({"/a": {"equals": 1}}))
    };
    let asking = |n| asks(n, json!({"/amount": {"equals": 100}}));
    for (endpoints, expected) in [
        (vec![endpoint("acme", 1, &[]), other_type.clone()], 0),
        (vec![asking(1), asking(2), other_type], 1),
    ] {
        let world = World::new(&endpoints, std::slice::from_ref(&event));
        let object = crate::payload::compress(bytes).unwrap();
        let name = crate::payload::name(&event.tenant, &hash);
        world.store.tables().bucket.insert(name, object);
        world.store.chaos.heal();
        world.run(std::slice::from_ref(&event), 201).await;
        assert_eq!(reads(&world, "bodies.get"), expected);
        assert_eq!(world.relayed(&event).unwrap().len(), endpoints.len() - 1);
    }
}

#[tokio::test]
async fn what_filters_cannot_read_passes_none_and_is_told() {
    let gone =
        OutboxEvent { payload: Payload::Bucket(Sha256Hash([1; 32])), ..event("acme", "in_1", 200) };
    for (event, why) in [
        (with_payload("in_2", b"\xff\xfe not json"), Unread::NotJson),
        (with_payload("in_3", "[".repeat(100_000).as_bytes()), Unread::NotJson),
        (with_payload("in_4", b""), Unread::NotJson),
        (gone, Unread::Missing),
    ] {
        let endpoints = [asks(1, json!({"not": {"/a": {"equals": 1}}})), endpoint("acme", 2, &[])];
        let world = World::new(&endpoints, std::slice::from_ref(&event));
        let fates = world.run(std::slice::from_ref(&event), 201).await;
        let [Fate::Relayed { endpoints, unread }] = fates.as_slice() else { panic!("{fates:?}") };
        assert_eq!((endpoints.as_slice(), *unread), ([endpoint_id(2)].as_slice(), Some(why)));
    }
}

/// The bucket is not the store: events without a large payload go on.
#[tokio::test]
async fn a_bucket_that_is_down_leaves_its_events_to_the_sweeper() {
    let large =
        OutboxEvent { payload: Payload::Bucket(Sha256Hash([1; 32])), ..event("acme", "in_1", 200) };
    let events = [large, with_payload("in_2", b"{}")];
    let world = World::new(&[asks(1, json!({"/a": {"exists": false}}))], &events);
    world.store.chaos.on("bodies.get", When::Before, Fault::Unavailable);
    let fates = world.run(&events, 201).await;
    assert!(matches!(&fates[..], [Fate::Left(_), Fate::Relayed { .. }]), "{fates:?}");
    assert_eq!(world.relayed(&events[0]), None);
}

/// Eleven endpoints, of which ten want the event, in steps of three.
fn many() -> (Vec<Endpoint>, OutboxEvent) {
    let mut endpoints: Vec<_> = (1..=11).map(|n| endpoint("acme", n, &[])).collect();
    endpoints[4].patterns = vec!["charge.*".parse().unwrap()];
    // Their ids are in another order than the list.
    endpoints.reverse();
    (endpoints, event("acme", "in_1", 200))
}

fn in_steps(endpoints: &[Endpoint], event: &OutboxEvent) -> World {
    World { step: 3, ..World::new(endpoints, std::slice::from_ref(event)) }
}

fn ten() -> Vec<EndpointId> {
    (1..=11).filter(|n| *n != 5).map(endpoint_id).collect()
}

#[tokio::test]
async fn an_event_for_many_endpoints_goes_in_steps_that_are_written_down() {
    let (endpoints, event) = many();
    let world = in_steps(&endpoints, &event);
    world.store.chaos.heal();
    world.run(std::slice::from_ref(&event), 201).await;
    assert_eq!(world.relayed(&event), Some(ten()));
    let calls = world.store.chaos.calls();
    let order: Vec<_> = calls.iter().filter(|call| call.starts_with("outbox.")).copied().collect();
    let expected = [
        "outbox.reached",
        "outbox.checkpoint",
        "outbox.checkpoint",
        "outbox.checkpoint",
        "outbox.mark",
    ];
    assert_eq!(order, expected);
    assert_eq!((reads(&world, "fanout.put_delivery"), world.messages()), (10, 10));
    assert!(world.store.tables().reached.is_empty());
}

#[tokio::test]
async fn an_event_for_a_step_of_endpoints_needs_no_checkpoint() {
    let (endpoints, event) = many();
    let world = World { step: 10, ..in_steps(&endpoints, &event) };
    world.store.chaos.heal();
    world.run(std::slice::from_ref(&event), 201).await;
    assert_eq!((reads(&world, "outbox.reached"), reads(&world, "outbox.checkpoint")), (0, 0));
    assert_eq!(world.relayed(&event), Some(ten()));
}

/// OUT-fanout-partial, L2: dies before and after each call; meanwhile an endpoint is made, one is deleted, and one wants
/// something else. Each endpoint of the event's time has one delivery, and nobody else has any.
#[tokio::test]
async fn a_fan_out_in_steps_may_die_after_any_call_and_goes_on() {
    let (endpoints, event) = many();
    let whole = in_steps(&endpoints, &event);
    whole.run(std::slice::from_ref(&event), 210).await;
    let expected = owed(&whole.store.tables());
    let calls = whole.store.chaos.calls().len() as u64;
    assert_eq!(calls, 2 + 1 + 10 * 3 + 3 + 1);
    for call in 0..calls {
        for when in [When::Before, When::After] {
            let world = in_steps(&endpoints, &event);
            world.store.chaos.at(call, when, Fault::Crash);
            let run = world.run(std::slice::from_ref(&event), 210);
            assert!(world.store.chaos.until_crash(run).await.is_none(), "call {call} {when:?}");
            world.store.chaos.heal();
            add(&world.store, &Endpoint { created_at: at(300), ..endpoint("acme", 0, &[]) });
            add(&world.store, &Endpoint { created_at: at(300), ..endpoint("acme", 99, &[]) });
            let mut fickle = endpoint("acme", 2, &[]);
            fickle.choose(
                Choice { patterns: vec!["x".parse().unwrap()], ..Choice::default() },
                at(300),
            );
            add(&world.store, &fickle);
            remove(&world.store, &endpoint("acme", 3, &[]));
            if world.relayed(&event).is_none() {
                world.run(std::slice::from_ref(&event), 400).await;
            }
            let (deliveries, pointers, lanes) = owed(&world.store.tables());
            // The deleted one has its delivery if its turn had come; the holder of its lane cancels it.
            let others = |list: &[String]| {
                let deleted = endpoint_id(3).to_string();
                list.iter().filter(|of| !of.contains(&deleted)).cloned().collect::<BTreeSet<_>>()
            };
            for (found, expected) in
                [(deliveries, &expected.0), (pointers, &expected.1), (lanes, &expected.2)]
            {
                assert_eq!(others(&found), others(expected), "call {call} {when:?}");
            }
            let relayed = world.relayed(&event).unwrap();
            let without: Vec<_> = ten().into_iter().filter(|id| *id != endpoint_id(3)).collect();
            assert!(relayed == ten() || relayed == without, "call {call} {when:?}: {relayed:?}");
        }
    }
}

#[tokio::test]
async fn a_fan_out_goes_on_behind_its_last_checkpoint() {
    let (endpoints, event) = many();
    let world = in_steps(&endpoints, &event);
    let mut checkpoints = 0;
    world.store.chaos.set(move |_, name| {
        checkpoints += u32::from(name == "outbox.checkpoint");
        (checkpoints == 2).then_some((When::After, Fault::Crash))
    });
    let run = world.run(std::slice::from_ref(&event), 210);
    assert!(world.store.chaos.until_crash(run).await.is_none());
    world.store.chaos.heal();
    world.run(std::slice::from_ref(&event), 400).await;
    assert_eq!(reads(&world, "fanout.put_delivery"), 4);
    assert_eq!(world.relayed(&event), Some(ten()));
}

/// One lane that is throttled: the others have theirs at once, and the event stays NEW for the sweeper.
#[tokio::test]
async fn a_lane_that_fails_holds_up_no_other() {
    let (endpoints, event) = many();
    let world = in_steps(&endpoints, &event);
    let mut puts = 0;
    world.store.chaos.set(move |_, name| {
        puts += u32::from(name == "fanout.put_delivery");
        (name == "fanout.put_delivery" && puts == 5).then_some((When::Before, Fault::Throttled))
    });
    let fates = world.run(std::slice::from_ref(&event), 210).await;
    assert!(matches!(&fates[..], [Fate::Left(_)]), "{fates:?}");
    assert_eq!((world.deliveries(), world.relayed(&event)), (9, None));
    assert_eq!(world.store.tables().reached.values().map(Vec::len).collect::<Vec<_>>(), [3]);
    world.store.chaos.heal();
    world.run(std::slice::from_ref(&event), 400).await;
    assert_eq!((world.deliveries(), world.relayed(&event)), (10, Some(ten())));
}

#[tokio::test]
async fn a_store_that_goes_down_between_two_steps_ends_the_run() {
    let (endpoints, event) = many();
    for name in ["outbox.reached", "outbox.checkpoint"] {
        let world = in_steps(&endpoints, &event);
        world.store.chaos.on(name, When::Before, Fault::Unavailable);
        let fates = world.run(std::slice::from_ref(&event), 210).await;
        assert!(matches!(&fates[..], [Fate::Down(_)]), "{name} {fates:?}");
        assert!(world.store.tables().deliveries.len() <= 3);
    }
}

#[tokio::test]
async fn when_the_time_is_up_nothing_more_is_begun_and_the_next_run_goes_on() {
    let (endpoints, large) = many();
    let events = [large, event("acme", "in_2", 201), event("acme", "in_3", 202)];
    // The clock is looked at twice in a step; at the fifth look the time is up.
    let world = World { step: 3, pace: 2, ..World::new(&endpoints, &events) };
    let fates = world.run(&events, 210).await;
    assert!(
        matches!(&fates[..], [Fate::Unfinished, Fate::Unfinished, Fate::Unfinished]),
        "{fates:?}"
    );
    let reached = world.store.tables().reached.values().map(Vec::len).sum::<usize>();
    assert!((3..10).contains(&reached), "{reached}");
    let world = World { pace: 0, looks: AtomicU32::new(0), ..world };
    let fates = world.run(&events, 300).await;
    assert!(fates.iter().all(|fate| matches!(fate, Fate::Relayed { .. })), "{fates:?}");
    assert_eq!(world.store.tables().deliveries.len(), 30);
}

/// However short the time: or an invocation with too much to do would never do anything.
#[tokio::test]
async fn the_first_step_is_always_taken() {
    let events: Vec<_> = (0..4).map(|n| event("acme", &format!("in_{n}"), 200)).collect();
    let endpoints: Vec<_> = (1..=2).map(|n| endpoint("acme", n, &[])).collect();
    let world = World { step: 4, pace: 100, ..World::new(&endpoints, &events) };
    let fates = world.run(&events, 210).await;
    assert!(
        matches!(
            &fates[..],
            [Fate::Relayed { .. }, Fate::Relayed { .. }, Fate::Unfinished, Fate::Unfinished]
        ),
        "{fates:?}"
    );
}
