//! What one event for many endpoints costs: a thousand endpoints take ten times as long as a hundred.
//!
//! `cargo bench -p tests --bench fanout`. The real code of the relay and of the tables, against a DynamoDB of our own in
//! this process. An event for a thousand endpoints goes in two steps, with a checkpoint between them; one for a hundred in
//! one. Rounds alternate, so that a machine that becomes slower meets both, and the median of each counts.
//!
//! The bound is what the product aims at; it is printed beside what was measured and fails nothing. What does fail is an
//! event that is not relayed, or not to everybody.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a benchmark prints, and may fail where it stands"
)]

#[expect(dead_code, reason = "the tables are all this program asks of the template")]
#[path = "../tests/template/stack.rs"]
mod stack;
#[expect(dead_code, reason = "shared with the suite of contracts, which asks more of it")]
#[path = "../tests/contract/tables.rs"]
mod tables;

use std::{collections::BTreeMap, time::Duration, time::Instant};

use domain::{
    destination::Destination,
    endpoint::Endpoint,
    id::{EndpointId, EventId, TenantId},
    outbox::{OutboxEvent, Payload},
    ports::{Configure as _, Outbox as _},
};
use flow::fanout::{EndpointCache, FanOut, Fate, STEP};
use jiff::Timestamp;
use tables::Local;
use testkit::memory::{MemoryQueue, Store};
use uuid::Uuid;

/// How many endpoints an event is for.
const FEW: u128 = 100;
const MANY: u128 = 1_000;

/// Events of each kind; the first of them fills the caches and does not count.
const ROUNDS: u32 = 12;

/// How many times as long the many may take: ten, and a tenth for the checkpoint and the noise of a machine.
const LONGER: f64 = 11.0;

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

#[tokio::main]
async fn main() {
    let tables = Local::new().await;
    let tenants = [(tenant("few"), FEW), (tenant("many"), MANY)];
    for (tenant, count) in &tenants {
        for n in 0..*count {
            let url = Destination::Https("https://example.com/".to_owned());
            let id = EndpointId::new(Uuid::from_u128(n));
            let endpoint = Endpoint::new(tenant.clone(), id, url, now());
            assert!(tables.registry.add_endpoint(&endpoint, &[]).await.unwrap());
        }
    }
    let cache = EndpointCache::default();
    let mut took: [Vec<f64>; 2] = [Vec::new(), Vec::new()];
    for round in 0..ROUNDS {
        for ((tenant, count), took) in tenants.iter().zip(&mut took) {
            let seconds = relay(&tables, &cache, event(tenant, round), *count).await;
            if round > 0 {
                took.push(seconds);
            }
        }
    }
    println!("{:>9} {:>12} {:>18}", "endpoints", "median, ms", "each endpoint, us");
    let [few, many] = took.map(median);
    for (count, seconds) in [(FEW, few), (MANY, many)] {
        let (ms, each) = (seconds * 1e3, seconds * 1e6 / count as f64);
        println!("{count:9} {ms:12.1} {each:18.1}");
    }
    println!("{MANY} endpoints over {FEW}: {:.2} x the time (aim: {LONGER})", many / few);
}

/// Relays one event, and says how long that took.
async fn relay(tables: &Local, cache: &EndpointCache, event: OutboxEvent, count: u128) -> f64 {
    tables.outbox.publish(&event, None).await.unwrap();
    let fan_out = FanOut {
        lanes: &tables.lanes,
        outbox: &tables.outbox,
        registry: &tables.registry,
        queue: &MemoryQueue::new(Duration::from_secs(60), 9),
        bodies: &Store::new(1),
        cache,
        deadline: Duration::from_hours(96),
        step: STEP,
        now,
    };
    let began = Instant::now();
    let fates = fan_out.run(&[event], Timestamp::MAX).await;
    let seconds = began.elapsed().as_secs_f64();
    let [Fate::Relayed { endpoints, .. }] = fates.as_slice() else { panic!("{fates:?}") };
    assert_eq!(endpoints.len() as u128, count);
    seconds
}

fn tenant(name: &str) -> TenantId {
    name.parse().unwrap()
}

fn event(tenant: &TenantId, round: u32) -> OutboxEvent {
    OutboxEvent {
        id: EventId::derived(now(), &[&round.to_string()]),
        tenant: tenant.clone(),
        event_type: "invoice.paid".to_owned(),
        schema_version: 1,
        aggregate_id: "in_1".to_owned(),
        aggregate_version: None,
        payload: Payload::Inline(b"{}".to_vec()),
        occurred_at: now(),
        traceparent: None,
        labels: BTreeMap::new(),
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
