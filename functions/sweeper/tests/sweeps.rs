//! One sweep at a time, over the tables in memory.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a suite may fail where it stands"
)]

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use domain::{
    body::{Place, Sha256Hash, StoredBody},
    bulk::{self, Kind, Order, Selection, Work},
    delivery::{Delivery, State as Stands},
    destination::Destination,
    endpoint::{Endpoint, LaneCount},
    event::Origin,
    id::{EndpointId, EventId, InboxKey, RedeliveryId, ReplayId, TenantId},
    inbox::{NewRow, Noted, Row, Status},
    lane::LaneId,
    message::{InboundMessage, Message as _, WakeMessage},
    outbox::{OutboxEvent, OutboxRow, Payload},
    ports::{
        AcceptReport, Bulk as _, Fanout as _, Halt, Inbox as _, Outbox as _, PublishedKeys as _,
        Queue, Redeliveries as _, SourceSecret, Start, Started, State as _, Want, Watch as _,
    },
    redelivery,
    secret::SecretText,
    source::{Handler, SchemeChoice, Source},
};
use flow::fanout::EndpointCache;
use jiff::Timestamp;
use runtime::telemetry::Metrics;
use signing::lookup::Call;
use sweeper::{
    Rules, SweepFailed, Sweeper, Swept,
    errands::Errands,
    provider::{Answered, NoAnswer, Provider},
};
use testkit::{
    chaos::{Fault, When},
    memory::{MemoryQueue, MemorySecrets, Store},
};

const RULES: Rules = Rules {
    budget: Duration::from_secs(45),
    lease: Duration::from_secs(60),
    pending_shards: 2,
    outbox_shards: 2,
    wake_shards: 2,
    attempts: 12,
    claim_base: Duration::from_secs(600),
    claim_cap: Duration::from_secs(21_600),
    unrelayed_after: Duration::from_secs(120),
    delivery_deadline: Duration::from_secs(345_600),
};

/// A provider that answers as it is told, and otherwise not at all.
#[derive(Default)]
struct Canned {
    answer: Mutex<Option<(u16, String)>>,
    asked: Mutex<Vec<(String, bool)>>,
}

impl Provider for Canned {
    async fn call(&self, call: &Call) -> Result<Answered, NoAnswer> {
        let with_credentials = !call.headers.is_empty();
        self.asked.lock().unwrap().push((call.url.clone(), with_credentials));
        match self.answer.lock().unwrap().clone() {
            Some((status, body)) => Ok(Answered { status, body: body.into_bytes() }),
            None => Err(NoAnswer::Late),
        }
    }
}

struct Bench {
    store: Store,
    inbound: MemoryQueue,
    wake: MemoryQueue,
    secrets: MemorySecrets,
    provider: Canned,
    cache: EndpointCache,
    metrics: Metrics,
    clock: AtomicI64,
    /// How many seconds each look at the clock takes.
    pace: i64,
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn key(name: &str) -> InboxKey {
    InboxKey::new("shop".parse().unwrap(), name).unwrap()
}

fn tenant() -> TenantId {
    "demo".parse().unwrap()
}

impl Bench {
    fn new() -> Self {
        let queue = || MemoryQueue::new(Duration::from_secs(180), 16);
        let bench = Self {
            store: Store::new(2),
            inbound: queue(),
            wake: queue(),
            secrets: MemorySecrets::default(),
            provider: Canned::default(),
            cache: EndpointCache::default(),
            metrics: Metrics::new("test"),
            clock: AtomicI64::new(1_800_000_000),
            pace: 0,
        };
        bench.at(0);
        bench
    }

    /// A row that was received at `received`, and is due 120 s later.
    async fn row(&self, name: &str, received: i64) {
        self.row_at("shop", name, received).await;
    }

    async fn row_at(&self, source: &str, name: &str, received: i64) -> InboxKey {
        let key = InboxKey::new(source.parse().unwrap(), name).unwrap();
        let new = NewRow {
            key: key.clone(),
            event_type: None,
            received_at: at(received),
            due_at: at(received + 120),
            body: StoredBody {
                sha256: Sha256Hash::of(b""),
                length: 0,
                place: Place::Inline(Vec::new()),
            },
            headers: BTreeMap::new(),
            object: None,
            version: None,
            occurred_at: None,
            origin: Origin::Webhook,
            key_id: None,
            token: name.to_owned(),
            traceparent: None,
            delivery_id: None,
            parent: None,
        };
        let _ = self.store.accept(&new).await.unwrap();
        key
    }

    fn set(&self, name: &str, change: impl FnOnce(&mut Row)) {
        self.set_at(&key(name), change);
    }

    fn set_at(&self, key: &InboxKey, change: impl FnOnce(&mut Row)) {
        change(&mut self.store.tables().inbox.get_mut(key).unwrap().row);
    }

    fn pause(&self, name: &str, second: i64) {
        let mut tables = self.store.tables();
        let source = tables.sources.get_mut(&name.parse().unwrap()).unwrap();
        *source = source.pause("a bug", at(second));
    }

    fn read(&self, name: &str) -> Row {
        self.store.tables().inbox[&key(name)].row.clone()
    }

    fn at(&self, second: i64) {
        self.clock.store(at(second).as_second(), Ordering::Relaxed);
        self.inbound.set_now(at(second));
        self.wake.set_now(at(second));
    }

    async fn sweep(&self) -> Result<Swept, SweepFailed> {
        let sweeper = Sweeper {
            inbox: &self.store,
            state: &self.store,
            outbox: &self.store,
            lanes: &self.store,
            registry: &self.store,
            inbound: &self.inbound,
            wake: &self.wake,
            errands: Errands { secrets: &self.secrets, provider: &self.provider },
            bodies: &self.store,
            cache: &self.cache,
            rules: RULES,
            metrics: &self.metrics,
            now: || {
                Timestamp::from_second(self.clock.fetch_add(self.pace, Ordering::Relaxed)).unwrap()
            },
        };
        sweeper.sweep("me").await
    }

    /// What the worker would get.
    fn messages(&self) -> Vec<String> {
        let taken = std::iter::from_fn(|| {
            let got = self.inbound.receive(|_| 0)?;
            self.inbound.delete(&got.receipt);
            Some(InboundMessage::from_text(&got.text).unwrap().0.event_id().to_owned())
        });
        let mut taken: Vec<_> = taken.collect();
        taken.sort();
        taken
    }

    fn endpoint(&self) -> EndpointId {
        self.endpoint_numbered(7)
    }

    fn endpoint_numbered(&self, n: u128) -> EndpointId {
        let id = EndpointId::new(uuid::Uuid::from_u128(n));
        let endpoint = Endpoint {
            lanes: vec![LaneCount { from: Timestamp::UNIX_EPOCH, count: 1 }],
            ..Endpoint::new(
                tenant(),
                id,
                Destination::Https("https://subscriber.example".to_owned()),
                Timestamp::UNIX_EPOCH,
            )
        };
        let mut tables = self.store.tables();
        tables.epochs.insert(tenant(), 1);
        tables.endpoints.insert((tenant(), id), (endpoint, Vec::new()));
        id
    }

    fn outgoing(&self, name: &str, second: i64) -> EventId {
        let id = EventId::derived(at(second), &[name]);
        let event = OutboxEvent {
            id,
            tenant: tenant(),
            event_type: "order.paid".to_owned(),
            schema_version: 1,
            aggregate_id: name.to_owned(),
            aggregate_version: None,
            payload: Payload::Inline(b"{}".to_vec()),
            occurred_at: at(second),
            traceparent: None,
            labels: BTreeMap::new(),
        };
        let row = OutboxRow { event, relayed: None };
        self.store.tables().outbox.insert((tenant(), id), row);
        id
    }
}

#[track_caller]
fn done(swept: Result<Swept, SweepFailed>, started: u64, parked: u64) {
    assert_eq!(swept.unwrap(), Swept::Done { started, parked });
}

/// C10, B26
#[tokio::test]
async fn an_event_whose_message_was_lost_is_sent_again_less_and_less_often() {
    let bench = Bench::new();
    bench.row("a", 0).await;
    bench.at(119);
    done(bench.sweep().await, 0, 0);
    let mut now = 120;
    for wait in [600, 1200, 2400, 4800, 9600, 19_200, 21_600, 21_600] {
        bench.at(now);
        done(bench.sweep().await, 1, 0);
        assert_eq!(bench.messages(), ["a"]);
        assert_eq!(bench.read("a").due_at, Some(at(now + wait)));
        now += wait;
        bench.at(now - 1);
        done(bench.sweep().await, 0, 0);
    }
}

/// REC-orphan-states: whatever state a row is in, and however old, nothing that is owed stays where it is.
#[tokio::test]
async fn no_state_of_a_row_is_left_to_nobody() {
    let bench = Bench::new();
    for name in ["young", "old", "retried", "spent", "done", "ignored", "parked"] {
        bench.row(name, if name == "young" { 86_300 } else { 0 }).await;
    }
    bench.set("retried", |row| (row.attempts, row.sweeps, row.due_at) = (5, 3, Some(at(80_000))));
    bench.set("spent", |row| row.attempts = 12);
    for (name, status) in
        [("done", Status::Processed), ("ignored", Status::Ignored), ("parked", Status::DeadLetter)]
    {
        bench.set(name, |row| (row.status, row.due_at) = (status, None));
    }
    bench.at(86_400);
    done(bench.sweep().await, 2, 1);
    assert_eq!(bench.messages(), ["old", "retried"]);
    let spent = bench.read("spent");
    assert_eq!(
        (spent.status, spent.last_error.unwrap().code.as_str()),
        (Status::DeadLetter, "attempts_used_up")
    );
    // Not due yet, and seen when it is.
    bench.at(86_420);
    done(bench.sweep().await, 1, 0);
    assert_eq!(bench.messages(), ["young"]);
    for name in ["done", "ignored", "parked"] {
        assert_eq!(bench.read(name).due_at, None);
    }
}

#[tokio::test]
async fn more_rows_than_a_page_are_all_sent_in_one_sweep() {
    let bench = Bench::new();
    for n in 0..230 {
        bench.row(&format!("{n:03}"), 0).await;
    }
    bench.at(120);
    done(bench.sweep().await, 230, 0);
    assert_eq!(bench.messages().len(), 230);
}

/// With a message for every pending row in the queue, more of them would only circle.
#[tokio::test]
async fn a_full_queue_gets_no_more_messages_but_rows_are_still_parked() {
    let bench = Bench::new();
    bench.row("a", 0).await;
    bench.row("b", 0).await;
    bench.set("b", |row| row.attempts = 12);
    bench.inbound.send(&[InboundMessage(key("a")), InboundMessage(key("b"))], Duration::ZERO).await;
    bench.at(500);
    done(bench.sweep().await, 0, 1);
    assert_eq!((bench.read("a").sweeps, bench.read("a").due_at), (0, Some(at(120))));
    assert_eq!(bench.read("b").status, Status::DeadLetter);
    bench.messages();
    done(bench.sweep().await, 1, 0);
}

/// Rows that wait on purpose are no reason to send more and more messages for the others.
#[tokio::test]
async fn rows_of_a_paused_source_do_not_make_a_full_queue_look_empty() {
    let bench = Bench::new();
    bench.source("shop", "stripe");
    bench.row("a", 0).await;
    bench.inbound.send(&[InboundMessage(key("a"))], Duration::ZERO).await;
    for n in 0..9 {
        let waiting = bench.row_at("quiet", &format!("w{n}"), 0).await;
        bench.set_at(&waiting, |row| row.due_at = Some(at(21_600)));
    }
    bench.at(500);
    // As many as there are: of no paused source yet.
    done(bench.sweep().await, 1, 0);
    bench.messages();

    bench.source("quiet", "stripe");
    bench.pause("quiet", 10);
    bench.inbound.send(&[InboundMessage(key("a"))], Duration::ZERO).await;
    bench.at(2000);
    done(bench.sweep().await, 0, 0);
}

/// A pause is on purpose: it must not raise the alarm of what waits, and not hide what waits elsewhere.
#[tokio::test]
async fn what_waits_on_purpose_is_measured_apart() {
    let bench = Bench::new();
    bench.source("shop", "stripe");
    bench.source("quiet", "stripe");
    bench.pause("quiet", 10);
    bench.row("a", 60).await;
    for n in 0..3 {
        bench.row_at("quiet", &format!("w{n}"), 10 * n).await;
    }
    bench.at(100);
    bench.sweep().await.unwrap();
    let lines = bench.metrics.lines(at(100)).join("\n");
    for expected in [
        r#""webhooks_pending_count":1"#,
        r#""oldest_pending_webhook_age":40"#,
        r#""webhooks_paused_count":3"#,
        r#""oldest_paused_webhook_age":100"#,
    ] {
        assert!(lines.contains(expected), "{expected} in\n{lines}");
    }
}

#[tokio::test]
async fn a_message_that_could_not_be_sent_fails_the_sweep_and_comes_after_its_claim() {
    let bench = Bench::new();
    bench.row("a", 0).await;
    bench.at(120);
    bench.inbound.chaos.on("queue.send", When::Before, Fault::Unavailable);
    let failed = bench.sweep().await.unwrap_err();
    assert_eq!(failed.parts, "inbox");
    bench.inbound.chaos.heal();
    done(bench.sweep().await, 0, 0);
    bench.at(720);
    done(bench.sweep().await, 1, 0);
}

#[tokio::test]
async fn one_row_that_cannot_be_read_does_not_hold_the_others() {
    let bench = Bench::new();
    for name in ["a", "b", "c"] {
        bench.row(name, 0).await;
    }
    bench.at(120);
    let mut reads = 0;
    bench.store.chaos.set(move |_, name| {
        reads += u32::from(name == "inbox.read");
        (name == "inbox.read" && reads == 1).then_some((When::Before, Fault::Refused))
    });
    assert_eq!(bench.sweep().await.unwrap_err().parts, "inbox");
    assert_eq!(bench.messages().len(), 2);
}

#[tokio::test]
async fn rows_that_cannot_be_read_do_not_hide_those_behind_them() {
    let bench = Bench::new();
    for n in 0..300 {
        bench.row(&format!("{n:03}"), 0).await;
    }
    bench.at(120);
    let mut reads = 0;
    bench.store.chaos.set(move |_, name| {
        reads += u32::from(name == "inbox.read");
        (name == "inbox.read" && reads <= 250).then_some((When::Before, Fault::Refused))
    });
    assert_eq!(bench.sweep().await.unwrap_err().parts, "inbox");
    assert_eq!(bench.messages().len(), 50);
}

/// REC-orphan-states: each part of the sweep goes wrong, and all others still do their work.
#[tokio::test]
async fn one_part_that_fails_does_not_stop_the_others() {
    for (call, part) in [
        ("inbox.due", "inbox"),
        ("outbox.unrelayed", "outbox"),
        ("lanes.sleepers", "lanes"),
        ("inbox.parked", "gauges"),
        ("registry.sources", "gauges"),
    ] {
        let bench = Bench::new();
        let endpoint = bench.endpoint();
        bench.row("a", 0).await;
        let outgoing = bench.outgoing("o", 0);
        let lane = LaneId { tenant: tenant(), endpoint, lane: 0 };
        bench.store.wake(&lane, at(0)).await.unwrap();
        bench.at(200);
        bench.store.chaos.on(call, When::Before, Fault::Unavailable);
        let failed = bench.sweep().await.unwrap_err();
        bench.store.chaos.heal();
        assert_eq!(failed.parts, part);
        assert_eq!(!bench.messages().is_empty(), part != "inbox");
        let relayed = bench.store.event(&tenant(), outgoing).await.unwrap().unwrap().relayed;
        assert_eq!(relayed.is_some(), part != "outbox");
        let wakes: u64 = Queue::<InboundMessage>::visible(&bench.wake).await.unwrap();
        assert!(wakes > 0);
        let lines = bench.metrics.lines(at(0)).join("");
        assert!(lines.contains("webhooks_pending_count"), "{call}");
    }
}

/// OUT-fanout-partial: an event for many endpoints goes over as many sweeps as it takes.
#[tokio::test]
async fn an_event_for_many_endpoints_goes_on_in_the_next_sweep() {
    let mut bench = Bench::new();
    let endpoints: Vec<_> = (0..1_700).map(|n| bench.endpoint_numbered(n)).collect();
    let event = bench.outgoing("many", 0);
    bench.at(200);
    // The budget is 45 seconds, and each look at the clock takes six.
    bench.pace = 6;
    done(bench.sweep().await, 0, 0);
    let reached = bench.store.reached(&tenant(), event).await.unwrap().len();
    assert!(reached > 0 && reached < 1_700 && reached % 500 == 0, "{reached}");
    bench.pace = 0;
    bench.at(300);
    let Swept::Done { started, .. } = bench.sweep().await.unwrap() else { panic!() };
    let tables = bench.store.tables();
    let lanes = tables.lanes.values().filter(|lane| lane.wake_at.is_some()).count();
    assert_eq!((tables.deliveries.len(), lanes), (1_700, 1_700));
    let relayed = tables.outbox[&(tenant(), event)].relayed.clone().unwrap();
    assert_eq!(relayed.endpoints, endpoints);
    assert!(started >= 1);
}

/// What the sweeper relays is as visible as what the stream brings.
#[tokio::test]
async fn an_event_that_nobody_wants_is_counted_by_whoever_relays_it() {
    let bench = Bench::new();
    bench.outgoing("nobody's", 0);
    bench.at(121);
    done(bench.sweep().await, 1, 0);
    let lines = bench.metrics.lines(at(121)).join("");
    assert!(lines.contains(r#""relay_unmatched_total":1"#), "{lines}");
}

/// E19
#[tokio::test]
async fn an_event_that_the_stream_did_not_bring_is_relayed_after_its_time() {
    let bench = Bench::new();
    let endpoint = bench.endpoint();
    for n in 0..60 {
        bench.outgoing(&format!("{n}"), 0);
    }
    bench.at(120);
    done(bench.sweep().await, 0, 0);
    bench.at(121);
    let Swept::Done { started, .. } = bench.sweep().await.unwrap() else { panic!() };
    assert_eq!(started, 60);
    let tables = bench.store.tables();
    let relayed =
        |row: &OutboxRow| row.relayed.as_ref().is_some_and(|to| to.endpoints == [endpoint]);
    assert!(tables.outbox.values().all(relayed));
    assert_eq!((tables.deliveries.len(), tables.pointers.len()), (60, 60));
}

#[tokio::test]
async fn a_lane_whose_time_has_come_is_woken_unless_its_message_is_there() {
    let bench = Bench::new();
    let lane = LaneId { tenant: tenant(), endpoint: bench.endpoint(), lane: 0 };
    bench.store.wake(&lane, at(100)).await.unwrap();
    bench.at(99);
    done(bench.sweep().await, 0, 0);
    bench.at(100);
    done(bench.sweep().await, 1, 0);
    done(bench.sweep().await, 0, 0);
    bench.wake.purge();
    done(bench.sweep().await, 1, 0);
}

/// The message of a worker that died is hidden for minutes, and a row that fails may have two: none stands for this row.
#[tokio::test]
async fn messages_that_nobody_can_have_now_do_not_keep_an_event_waiting() {
    let bench = Bench::new();
    bench.row("a", 0).await;
    bench.at(200);
    let other = [InboundMessage(key("other"))];
    bench.inbound.send(&other, Duration::ZERO).await;
    assert!(bench.inbound.receive(|_| 0).is_some());
    done(bench.sweep().await, 1, 0);
}

/// The message of a deliverer that died is hidden for minutes, and the next tries of failing endpoints are delayed: neither
/// will wake this lane.
#[tokio::test]
async fn messages_that_nobody_can_have_now_do_not_keep_a_lane_asleep() {
    let bench = Bench::new();
    let lane = LaneId { tenant: tenant(), endpoint: bench.endpoint(), lane: 0 };
    bench.store.wake(&lane, at(100)).await.unwrap();
    bench.at(100);
    let other = [WakeMessage(LaneId { lane: 1, ..lane })];
    bench.wake.send(&other, Duration::ZERO).await;
    assert!(bench.wake.receive(|_| 0).is_some());
    done(bench.sweep().await, 1, 0);

    bench.wake.purge();
    bench.wake.send(&other, Duration::from_secs(900)).await;
    done(bench.sweep().await, 1, 0);
}

#[tokio::test]
async fn two_sweeps_never_run_at_once_and_a_dead_one_holds_the_next_for_its_lease_only() {
    let bench = Bench::new();
    bench.row("a", 0).await;
    bench.at(200);
    let _ = bench.store.lease("sweeper", "another", at(200), at(260)).await.unwrap();
    assert_eq!(bench.sweep().await.unwrap(), Swept::Busy(at(260)));
    assert!(bench.messages().is_empty());
    bench.at(260);
    done(bench.sweep().await, 1, 0);
    let (_, _, until) = bench.store.tables().leases["sweeper"].clone();
    assert_eq!(until, at(260), "given back");
}

/// The gauges come after the budget: they are what an alarm sees when no sweep is fast enough.
#[tokio::test]
async fn a_sweep_ends_when_its_budget_is_spent_and_still_measures() {
    let bench = Bench { pace: 1, ..Bench::new() };
    for n in 0..200 {
        bench.row(&format!("{n:03}"), 0).await;
    }
    bench.at(200);
    let Swept::Done { started, .. } = bench.sweep().await.unwrap() else { panic!() };
    assert!((1..200).contains(&started), "{started}");
    assert!(bench.metrics.lines(at(0)).join("").contains("webhooks_pending_count"));
}

/// OBS-stall-alarm, J15, J16, J21: ages come from the tables, whatever the queues say.
#[tokio::test]
async fn the_gauges_say_what_is_left_and_for_how_long() {
    let bench = Bench::new();
    let lane = LaneId { tenant: tenant(), endpoint: bench.endpoint(), lane: 0 };
    bench.row("a", 0).await;
    bench.row("b", 50).await;
    bench.row("p", 0).await;
    bench.set("p", |row| {
        (row.status, row.due_at, row.dead_at) = (Status::DeadLetter, None, Some(at(9)));
    });
    bench.outgoing("o", 30);
    bench.store.wake(&lane, at(70)).await.unwrap();
    let scheme = SchemeChoice::Preset("stripe".to_owned());
    let handler = Handler::Mirror { emit_to: None, states: None };
    let source = Source::new("shop".parse().unwrap(), scheme, handler, at(0));
    bench.store.tables().sources.insert(source.name.clone(), source.clone());
    let accepted = AcceptReport { at: at(40), key_id: None, is_new: true };
    bench.store.note_accepted(&source.name, &accepted).await.unwrap();
    bench.at(100);
    bench.sweep().await.unwrap();
    let lines = bench.metrics.lines(at(100)).join("\n");
    for expected in [
        r#""webhooks_pending_count":2"#,
        r#""oldest_pending_webhook_age":100"#,
        r#""webhooks_dead_letter_count":1"#,
        r#""outbox_unrelayed_count":1"#,
        r#""oldest_unrelayed_age":70"#,
        r#""lanes_due_count":1"#,
        r#""oldest_due_age":30"#,
        r#""last_event_age":60"#,
    ] {
        assert!(lines.contains(expected), "{expected} in\n{lines}");
    }
}

const CIRCLE_KEY: &str = "879dc113-5ca4-4ff7-a6b7-54652083fcf8";

impl Bench {
    fn source(&self, name: &str, scheme: &str) {
        let scheme = SchemeChoice::Preset(scheme.to_owned());
        let handler = Handler::Mirror { emit_to: None, states: None };
        let source = Source::new(name.parse().unwrap(), scheme, handler, at(0));
        self.store.tables().sources.insert(source.name.clone(), source);
    }

    fn answers(&self, status: u16, body: &str) {
        *self.provider.answer.lock().unwrap() = Some((status, body.to_owned()));
    }

    fn asked(&self) -> Vec<String> {
        let asked = std::mem::take(&mut *self.provider.asked.lock().unwrap());
        asked.into_iter().map(|(url, _)| url).collect()
    }

    async fn owed(&self) -> usize {
        self.store.owed(at(1_000_000), 100).await.unwrap().len()
    }
}

/// What the provider of the preset answers, with a key that can be used.
fn circle_answer() -> String {
    let pair = rcgen::KeyPair::generate().unwrap();
    let spki = rcgen::PublicKeyData::subject_public_key_info(&pair);
    let key = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, spki);
    serde_json::json!({ "data": { "id": CIRCLE_KEY, "publicKey": key } }).to_string()
}

#[tokio::test]
async fn a_key_that_is_wanted_is_fetched_from_the_address_that_the_scheme_pins() {
    let bench = Bench::new();
    bench.source("circle", "circle");
    let circle = "circle".parse().unwrap();
    let secret = SecretText::new("the-api-key".to_owned());
    let secret = SourceSecret { id: "k1".to_owned(), text: secret, expires_at: None };
    bench.secrets.set(&circle, vec![secret]);
    bench.store.want(&circle, &Want::Key(CIRCLE_KEY.to_owned()), at(0)).await.unwrap();
    bench.answers(200, &circle_answer());
    bench.at(5);
    assert_eq!(bench.sweep().await.unwrap(), Swept::Done { started: 1, parked: 0 });
    let url = format!("https://api.circle.com/v2/notifications/publicKey/{CIRCLE_KEY}");
    assert_eq!(*bench.provider.asked.lock().unwrap(), [(url, true)]);
    let [key] = bench.store.published(&circle).await.unwrap().try_into().unwrap();
    assert_eq!((key.id.as_str(), key.fetched_at, bench.owed().await), (CIRCLE_KEY, at(5), 0));
    bench.sweep().await.unwrap();
    assert_eq!(bench.asked().len(), 1, "once");
}

#[tokio::test]
async fn a_key_that_cannot_be_had_now_is_asked_for_later_and_given_up_after_a_day() {
    let bench = Bench::new();
    bench.source("circle", "circle");
    let circle = "circle".parse().unwrap();
    bench.store.want(&circle, &Want::Key(CIRCLE_KEY.to_owned()), at(0)).await.unwrap();
    for (second, answer, asked) in [
        (0, None, 1),
        (59, None, 0),
        (60, Some(503), 1),
        (179, Some(503), 0),
        (180, Some(429), 1),
        (86_400, Some(500), 1),
        (90_000, None, 0),
    ] {
        bench.at(second);
        if let Some(status) = answer {
            bench.answers(status, "");
        }
        bench.sweep().await.unwrap();
        assert_eq!(bench.asked().len(), asked, "{second}");
    }
    assert_eq!(bench.owed().await, 0);
    assert!(bench.metrics.lines(at(0)).join("").contains("provider_calls_given_up_total"));
}

/// What strangers make up costs one call, and nothing is believed of it.
#[tokio::test]
async fn what_is_no_key_is_given_up_at_once() {
    for (status, body) in [
        (404, String::new()),
        (302, String::new()),
        (200, "<html>".to_owned()),
        (200, r#"{"data":{"publicKey":"AAAA"}}"#.to_owned()),
    ] {
        let bench = Bench::new();
        bench.source("circle", "circle");
        let circle = "circle".parse().unwrap();
        bench.store.want(&circle, &Want::Key(CIRCLE_KEY.to_owned()), at(0)).await.unwrap();
        bench.answers(status, &body);
        assert_eq!(bench.sweep().await.unwrap(), Swept::Done { started: 0, parked: 1 });
        assert_eq!((bench.owed().await, bench.asked().len()), (0, 1), "{status} {body}");
        assert!(bench.store.published(&circle).await.unwrap().is_empty());
    }
    // And what names no address of the scheme's costs none.
    let bench = Bench::new();
    bench.source("circle", "circle");
    bench.source("hub", "github");
    for (source, want) in [
        ("circle", Want::Key("../admin".to_owned())),
        (
            "circle",
            Want::Confirm("https://internal.example/?Action=ConfirmSubscription&a".to_owned()),
        ),
        ("hub", Want::Key(CIRCLE_KEY.to_owned())),
        ("gone", Want::Key(CIRCLE_KEY.to_owned())),
    ] {
        bench.store.want(&source.parse().unwrap(), &want, at(0)).await.unwrap();
    }
    bench.answers(200, &circle_answer());
    bench.sweep().await.unwrap();
    assert_eq!((bench.owed().await, bench.asked().len()), (0, 0));
}

#[tokio::test]
async fn a_subscription_is_confirmed_once() {
    let bench = Bench::new();
    bench.source("topic", "aws_sns");
    let topic = "topic".parse().unwrap();
    let url = "https://sns.us-east-1.amazonaws.com/?Action=ConfirmSubscription&TopicArn=arn:aws:sns:us-east-1:1:t&Token=abc";
    bench.store.want(&topic, &Want::Confirm(url.to_owned()), at(0)).await.unwrap();
    bench.answers(500, "");
    bench.sweep().await.unwrap();
    bench.answers(200, "<ConfirmSubscriptionResponse/>");
    bench.at(60);
    bench.sweep().await.unwrap();
    assert_eq!(bench.asked(), [url, url]);
    assert_eq!((bench.owed().await, bench.store.published(&topic).await.unwrap().len()), (0, 0));
}

#[tokio::test]
async fn a_flood_of_wanted_keys_costs_few_calls_and_does_not_hold_up_others() {
    let bench = Bench::new();
    bench.source("flooded", "circle");
    bench.source("quiet", "circle");
    for n in 0..15 {
        let key = Want::Key(format!("879dc113-5ca4-4ff7-a6b7-{n:012}"));
        bench.store.want(&"flooded".parse().unwrap(), &key, at(n)).await.unwrap();
    }
    let key = Want::Key(CIRCLE_KEY.to_owned());
    bench.store.want(&"quiet".parse().unwrap(), &key, at(19)).await.unwrap();
    bench.at(20);
    bench.answers(404, "");
    bench.sweep().await.unwrap();
    let asked = bench.asked();
    assert_eq!(asked.len(), 6, "{asked:?}");
    assert!(asked.iter().any(|url| url.ends_with(CIRCLE_KEY)));
    assert_eq!(bench.owed().await, 10);
}

fn work(number: u128, rate: u32, began: i64) -> Work {
    let order = Order {
        id: ReplayId::new(uuid::Uuid::from_u128(number)),
        kind: Kind::Replay,
        source: "shop".parse().unwrap(),
        selection: Selection::default().or_default(Kind::Replay),
        rate,
        reason: "mended".to_owned(),
        actor: "ann".to_owned(),
    };
    Work::new(order, at(began))
}

impl Bench {
    async fn with_parked(count: usize) -> Self {
        let bench = Self::new();
        for n in 0..count {
            bench.row(&format!("{n:03}"), 0).await;
            bench.set(&format!("{n:03}"), |row| {
                (row.status, row.due_at, row.dead_at) = (Status::DeadLetter, None, Some(at(5)));
            });
        }
        bench
    }

    fn replay(&self, number: u128) -> Work {
        self.store.tables().bulks[&ReplayId::new(uuid::Uuid::from_u128(number))].clone()
    }
}

/// K2, K6
#[tokio::test]
async fn replays_that_are_under_way_go_on_each_minute_at_their_rate_and_end() {
    let bench = Bench::with_parked(230).await;
    assert_eq!(bench.store.start(&work(1, 2, 10), 20).await.unwrap(), Start::Yes);
    bench.at(20);
    // Two a second, for the minute until the next sweep.
    done(bench.sweep().await, 120, 0);
    assert_eq!(bench.replay(1).state(), bulk::State::Running);
    bench.at(80);
    done(bench.sweep().await, 110, 0);
    assert_eq!(bench.replay(1).state(), bulk::State::Completed);
    assert!(bench.store.tables().open_bulks.is_empty());
    done(bench.sweep().await, 0, 0);
    assert_eq!(bench.replay(1).counts.replayed, 230);
    // The message of the last is the last to go, and the sweeper looks for it only later.
    let last = (0..230).map(|n| bench.read(&format!("{n:03}")).due_at.unwrap()).max();
    assert_eq!(last, Some(at(80 + 54 + 600)));
}

#[tokio::test]
async fn a_replay_that_fails_does_not_hold_another_and_goes_on_with_the_next_sweep() {
    let bench = Bench::with_parked(60).await;
    for number in [1, 2] {
        assert_eq!(bench.store.start(&work(number, 1000, 10), 20).await.unwrap(), Start::Yes);
    }
    bench.at(20);
    let mut pages = 0;
    bench.store.chaos.set(move |_, name| {
        pages += u32::from(name == "walk.page");
        (name == "walk.page" && pages == 1).then_some((When::Before, Fault::Throttled))
    });
    assert_eq!(bench.sweep().await.unwrap_err().parts, "bulk");
    bench.store.chaos.heal();
    assert_eq!(bench.replay(1).state(), bulk::State::Running);
    assert_eq!(bench.replay(2).counts.replayed, 60);
    let _ = bench.sweep().await.unwrap();
    assert_eq!(bench.replay(1).state(), bulk::State::Completed);
    assert!(bench.store.tables().inbox.values().all(|item| item.row.cycle == 1));
}

#[tokio::test]
async fn the_budget_ends_replays_too() {
    let mut bench = Bench::with_parked(230).await;
    bench.pace = 4;
    assert_eq!(bench.store.start(&work(1, 1000, 10), 20).await.unwrap(), Start::Yes);
    bench.at(20);
    let _ = bench.sweep().await.unwrap();
    let first = bench.replay(1);
    assert!((1..230).contains(&first.counts.replayed), "{:?}", first.counts);
    for minute in 1..20 {
        bench.at(20 + 60 * minute);
        let _ = bench.sweep().await.unwrap();
    }
    assert_eq!(bench.replay(1).counts.replayed, 230);
}

#[tokio::test]
async fn a_replay_that_was_cancelled_or_is_gone_is_looked_at_once_more() {
    let bench = Bench::with_parked(3).await;
    assert_eq!(bench.store.start(&work(1, 1, 10), 20).await.unwrap(), Start::Yes);
    assert_eq!(bench.store.start(&work(2, 1, 10), 20).await.unwrap(), Start::Yes);
    assert_eq!(bench.store.cancel(work(1, 1, 10).id, "bob", at(15)).await.unwrap(), Noted::Yes);
    bench.store.tables().bulks.remove(&work(2, 1, 10).id);
    done(bench.sweep().await, 0, 0);
    assert!(bench.store.tables().open_bulks.is_empty());
    assert_eq!(bench.read("001").status, Status::DeadLetter);
}

/// A redelivery of this rate, of what was given up at an endpoint.
fn redelivery(number: u128, rate: u32) -> redelivery::Work {
    let order = redelivery::Order {
        id: RedeliveryId::new(uuid::Uuid::from_u128(number)),
        tenant: "acme".parse().unwrap(),
        endpoints: vec![EndpointId::new(uuid::Uuid::from_u128(1))],
        is_named: true,
        selection: redelivery::Selection::default(),
        rate,
        reason: "mended".to_owned(),
        actor: "ann".to_owned(),
    };
    redelivery::Work::new(order, at(10))
}

impl Bench {
    fn with_dead_deliveries(count: usize) -> Self {
        let bench = Self::new();
        let (tenant, id): (TenantId, _) = ("acme".parse().unwrap(), redelivery(1, 1).endpoints[0]);
        let url = Destination::Https("https://example.com/".to_owned());
        let endpoint = Endpoint::new(tenant.clone(), id, url, at(-500));
        let lane = LaneId { tenant: tenant.clone(), endpoint: id, lane: 0 };
        {
            let mut tables = bench.store.tables();
            tables.endpoints.insert((tenant.clone(), id), (endpoint, Vec::new()));
            for n in 0..count {
                let event = EventId::derived(at(-100), &[&n.to_string()]);
                let outgoing = OutboxEvent {
                    id: event,
                    tenant: tenant.clone(),
                    event_type: "a".to_owned(),
                    schema_version: 1,
                    aggregate_id: "x".to_owned(),
                    aggregate_version: None,
                    payload: Payload::Inline(b"{}".to_vec()),
                    occurred_at: at(-100),
                    traceparent: None,
                    labels: BTreeMap::new(),
                };
                let relayed = Some(domain::outbox::Relayed { at: at(-99), endpoints: vec![id] });
                let row = OutboxRow { event: outgoing, relayed };
                tables.outbox.insert((tenant.clone(), event), row);
                let new = Delivery::new(event, "a".to_owned(), at(-50), at(-100));
                let (state, finished_at) = (Stands::Dead, Some(at(-50)));
                tables
                    .deliveries
                    .insert((lane.clone(), event), Delivery { state, finished_at, ..new });
            }
        }
        bench
    }

    fn redelivered(&self, number: u128) -> redelivery::Work {
        self.store.tables().redeliveries[&redelivery(number, 1).id].clone()
    }
}

#[tokio::test]
async fn redeliveries_that_are_under_way_go_on_each_minute_at_their_rate_and_end() {
    let bench = Bench::with_dead_deliveries(230);
    assert_eq!(bench.store.start_redelivery(&redelivery(1, 2), 20).await.unwrap(), Started::Yes);
    bench.at(20);
    // Two a second, for the minute until the next sweep; the lane is woken by the same sweep.
    let _ = bench.sweep().await.unwrap();
    assert_eq!(bench.redelivered(1).counts.redelivered, 120);
    // One that is paused stays where it is, and does not hold another.
    let noted = bench.store.halt_redelivery(redelivery(1, 1).id, Halt::Pause, "bob", at(21)).await;
    assert_eq!(noted.unwrap(), Noted::Yes);
    bench.at(80);
    let _ = bench.sweep().await.unwrap();
    assert_eq!(bench.redelivered(1).counts.redelivered, 120);
    let noted = bench.store.halt_redelivery(redelivery(1, 1).id, Halt::Resume, "bob", at(81)).await;
    assert_eq!(noted.unwrap(), Noted::Yes);
    bench.at(140);
    let _ = bench.sweep().await.unwrap();
    let done = bench.redelivered(1);
    assert_eq!((done.counts.redelivered, done.state()), (230, redelivery::State::Completed));
    assert!(bench.store.tables().open_redeliveries.is_empty());
}

#[tokio::test]
async fn a_redelivery_that_fails_does_not_hold_another_and_goes_on_with_the_next_sweep() {
    let bench = Bench::with_dead_deliveries(20);
    for number in [1, 2] {
        let work = redelivery(number, 1000);
        assert_eq!(bench.store.start_redelivery(&work, 20).await.unwrap(), Started::Yes);
    }
    bench.at(20);
    let mut pages = 0;
    bench.store.chaos.set(move |_, name| {
        pages += u32::from(name == "redeliver.log");
        (name == "redeliver.log" && pages == 1).then_some((When::Before, Fault::Throttled))
    });
    assert_eq!(bench.sweep().await.unwrap_err().parts, "redeliver");
    bench.store.chaos.heal();
    let _ = bench.sweep().await.unwrap();
    let counts = [1, 2].map(|number| bench.redelivered(number).counts);
    assert_eq!(counts.iter().map(|counts| counts.redelivered).sum::<u64>(), 20);
    assert_eq!(counts.iter().map(|counts| counts.in_flight).sum::<u64>(), 20);
}
