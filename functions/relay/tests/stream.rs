//! Batches of the stream, as Lambda hands them over, good and bad.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use std::time::Duration;

use domain::{
    destination::Destination,
    endpoint::Endpoint,
    id::EventId,
    outbox::{OutboxEvent, OutboxRow, Payload},
};
use flow::fanout::EndpointCache;
use jiff::Timestamp;
use relay::Relay;
use runtime::telemetry::Metrics;
use serde_json::{Value, json};
use testkit::{
    chaos::{Fault, When},
    memory::{MemoryQueue, Store},
};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn endpoint(tenant: &str, n: u128) -> Endpoint {
    Endpoint::new(
        tenant.parse().unwrap(),
        format!("ep_{n:032x}").parse().unwrap(),
        Destination::Https("https://example.com/".to_owned()),
        at(0),
    )
}

fn event(tenant: &str, name: &str) -> OutboxEvent {
    OutboxEvent {
        id: EventId::derived(at(100), &[name]),
        tenant: tenant.parse().unwrap(),
        event_type: "invoice.paid".to_owned(),
        schema_version: 1,
        aggregate_id: name.to_owned(),
        aggregate_version: None,
        payload: Payload::Inline(b"{}".to_vec()),
        occurred_at: at(100),
        traceparent: None,
        labels: std::collections::BTreeMap::new(),
    }
}

/// A record of the stream, in the form in which Lambda hands it over.
fn record(sequence: u64, event: &OutboxEvent) -> Value {
    json!({
        "eventID": format!("{sequence:032x}"),
        "eventName": "INSERT",
        "eventSource": "aws:dynamodb",
        "dynamodb": {
            "SequenceNumber": sequence.to_string(),
            "StreamViewType": "NEW_IMAGE",
            "NewImage": {
                "pk": {"S": format!("{}#0", event.tenant)},
                "sk": {"S": event.id.to_string()},
                "kind": {"S": "outbox_event"},
                "type": {"S": event.event_type},
                "schema_version": {"N": "1"},
                "aggregate_id": {"S": event.aggregate_id},
                "payload": {"B": "e30="},
                "occurred_at": {"N": event.occurred_at.as_millisecond().to_string()},
                "relay_state": {"S": "NEW"},
                "unrelayed_shard": {"S": "0"},
            },
        },
    })
}

type MemoryRelay = Relay<Store, Store, Store, MemoryQueue, Store, fn() -> Timestamp>;

/// Never: an invocation has its time.
const ENDS: u64 = 10_000_000_000_000;

fn relay(endpoints: &[Endpoint], events: &[OutboxEvent]) -> MemoryRelay {
    let relay = MemoryRelay {
        lanes: Store::new(1),
        outbox: Store::new(1),
        registry: Store::new(1),
        queue: MemoryQueue::new(Duration::from_secs(60), 9),
        bodies: Store::new(1),
        cache: EndpointCache::default(),
        deadline: Duration::from_secs(345_600),
        metrics: Metrics::new("test"),
        now: || at(110),
    };
    for endpoint in endpoints {
        let key = (endpoint.tenant.clone(), endpoint.id);
        relay.registry.tables().endpoints.insert(key, (endpoint.clone(), Vec::new()));
    }
    for event in events {
        let row = OutboxRow { event: event.clone(), relayed: None };
        relay.outbox.tables().outbox.insert((event.tenant.clone(), event.id), row);
    }
    relay
}

fn batch(records: &[Value]) -> Value {
    json!({ "Records": records })
}

async fn failed(relay: &MemoryRelay, batch: &Value) -> Vec<String> {
    let answer = relay.handle(batch, ENDS).await.unwrap();
    // The platform reads exactly this shape; anything else is taken for a whole success.
    let json = serde_json::to_value(&answer).unwrap();
    let failures = json["batchItemFailures"].as_array().unwrap();
    failures.iter().map(|f| f["itemIdentifier"].as_str().unwrap().to_owned()).collect()
}

fn relayed(relay: &MemoryRelay) -> usize {
    relay.outbox.tables().outbox.values().filter(|row| row.relayed.is_some()).count()
}

/// E15
#[tokio::test]
async fn a_batch_of_the_stream_becomes_deliveries() {
    let events = [event("acme", "in_1"), event("acme", "in_2")];
    let relay = relay(&[endpoint("acme", 1)], &events);
    let records = [record(1, &events[0]), record(2, &events[1])];
    assert_eq!(failed(&relay, &batch(&records)).await, Vec::<String>::new());
    assert_eq!((relayed(&relay), relay.lanes.tables().deliveries.len()), (2, 2));
}

/// OUT-poison-blocks-shard: ten kinds of poison between good records.
#[tokio::test]
async fn a_record_that_cannot_be_read_costs_itself_only() {
    let events: Vec<_> = (0..10).map(|n| event("acme", &format!("in_{n}"))).collect();
    let mut poison: Vec<Value> = [
        json!(null),
        json!("text"),
        json!({}),
        json!({"dynamodb": {}}),
        json!({"dynamodb": {"SequenceNumber": "5", "NewImage": null}}),
        json!({"dynamodb": {"SequenceNumber": "6", "NewImage": {}}}),
        json!({"dynamodb": {"SequenceNumber": "7", "NewImage": {"pk": {"S": "x"}}}}),
        json!({"dynamodb": {"SequenceNumber": "8", "NewImage": []}}),
    ]
    .into();
    let mut broken = record(9, &events[0]);
    broken["dynamodb"]["NewImage"]["occurred_at"] = json!({"S": "yesterday"});
    poison.push(broken);
    let mut nameless = record(10, &events[0]);
    nameless["dynamodb"]["NewImage"]["sk"] = json!({"S": "evt_zzz"});
    poison.push(nameless);
    let relay = relay(&[endpoint("acme", 1)], &events);
    let good = events.iter().zip(20..).map(|(event, sequence)| record(sequence, event));
    let records: Vec<_> =
        poison.into_iter().zip(good).flat_map(|(bad, good)| [bad, good]).collect();
    assert_eq!(failed(&relay, &batch(&records)).await, Vec::<String>::new());
    assert_eq!(relayed(&relay), 10);
    let lines = relay.metrics.lines(at(110));
    assert!(lines.is_empty(), "the counters are flushed before the answer: {lines:?}");
}

/// OUT-stream-checkpoint
#[tokio::test]
async fn a_store_that_is_down_sends_the_stream_back_to_the_first_failed_record() {
    let events: Vec<_> = (1..=10).map(|n| event(&format!("t{n}"), "x")).collect();
    let endpoints: Vec<_> = (1..=10).map(|n| endpoint(&format!("t{n}"), n)).collect();
    let relay = relay(&endpoints, &events);
    let mut puts = 0;
    relay.lanes.chaos.set(move |_, name| {
        puts += u32::from(name == "fanout.put_delivery");
        let fails = name == "fanout.put_delivery" && (puts == 4 || puts == 8);
        fails.then_some((When::Before, Fault::Unavailable))
    });
    let records: Vec<_> = events.iter().zip(1..).map(|(event, n)| record(n, event)).collect();
    assert_eq!(failed(&relay, &batch(&records)).await, ["4"]);
    assert_eq!(relayed(&relay), 8);
    // The platform comes again with everything from there on.
    relay.lanes.chaos.heal();
    assert_eq!(failed(&relay, &batch(&records[3..])).await, Vec::<String>::new());
    assert_eq!((relayed(&relay), relay.lanes.tables().deliveries.len()), (10, 10));
}

#[tokio::test]
async fn an_event_that_fails_on_its_own_counts_as_handled() {
    let events = [event("acme", "in_1")];
    let relay = relay(&[endpoint("acme", 1)], &events);
    relay.lanes.chaos.on("fanout.put_delivery", When::Before, Fault::Throttled);
    assert_eq!(failed(&relay, &batch(&[record(1, &events[0])])).await, Vec::<String>::new());
    assert_eq!(relayed(&relay), 0);
}

#[tokio::test]
async fn a_failure_without_a_sequence_number_fails_the_batch() {
    let events = [event("acme", "in_1")];
    let relay = relay(&[endpoint("acme", 1)], &events);
    relay.lanes.chaos.on("fanout.put_delivery", When::Before, Fault::Unavailable);
    let mut nameless = record(1, &events[0]);
    nameless["dynamodb"].as_object_mut().unwrap().remove("SequenceNumber");
    assert!(relay.handle(&batch(&[nameless]), ENDS).await.is_err());
}

#[tokio::test]
async fn what_is_no_batch_at_all_is_an_empty_one() {
    let relay = relay(&[], &[]);
    for nonsense in [json!(null), json!({}), json!({"Records": {}}), json!([])] {
        assert_eq!(failed(&relay, &nonsense).await, Vec::<String>::new());
    }
}
