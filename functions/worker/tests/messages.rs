//! One message at a time, over the tables in memory: what the row says afterwards, and whether the queue may forget it.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a suite may fail where it stands"
)]

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicI64, Ordering},
    time::Duration,
};

use aws_lambda_events::sqs::{SqsEvent, SqsMessage};
use domain::{
    body::{Place, Sha256Hash, StoredBody},
    event::{Object, ObjectRef, Origin, Version},
    id::InboxKey,
    inbox::{NewRow, Row, Status},
    message::{InboundMessage, Message as _},
    outbox::Payload,
    plan::{Change, Plan},
    ports::{Bodies as _, Inbox as _},
    source::{Handler, SchemeChoice, Source},
};
use flow::{body, payload};
use jiff::Timestamp;
use runtime::telemetry::Metrics;
use testkit::{
    LIMITS,
    chaos::{Fault, When},
    memory::{MemoryQueue, Store},
};
use worker::{
    Outcome, Received, Sources, Worker,
    handlers::{Current, Event, Handlers, SHIPPED},
};

type PlanFn = fn(&Handler, &Event<'_>, &Current) -> Plan;

/// One deployment, with one event in its inbox.
struct Bench {
    store: Store,
    queue: MemoryQueue,
    sources: Sources<Store>,
    metrics: Metrics,
    clock: AtomicI64,
    handlers: Handlers,
    payload_max: usize,
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn key() -> InboxKey {
    InboxKey::new("shop".parse().unwrap(), "evt_1").unwrap()
}

fn row(body: &[u8]) -> NewRow {
    NewRow {
        key: key(),
        event_type: Some("order.paid".to_owned()),
        received_at: at(0),
        due_at: at(120),
        body: StoredBody {
            sha256: Sha256Hash::of(body),
            length: body.len() as u64,
            place: Place::Inline(body::compress(body).unwrap()),
        },
        headers: BTreeMap::new(),
        object: Some(ObjectRef { kind: "order".to_owned(), id: "or_1".to_owned() }),
        version: Some(Version::Number(5)),
        occurred_at: None,
        origin: Origin::Webhook,
        key_id: None,
        token: "token".to_owned(),
        traceparent: Some("00-1-2-01".to_owned()),
        delivery_id: None,
        parent: None,
    }
}

fn source() -> Source {
    let scheme = SchemeChoice::Preset("stripe".to_owned());
    let handler = Handler::Mirror { emit_to: Some("demo".parse().unwrap()), states: None };
    Source::new("shop".parse().unwrap(), scheme, handler, at(0))
}

impl Bench {
    async fn new(new: &NewRow) -> Self {
        let (registry, store) = (Store::new(1), Store::new(1));
        let source = source();
        registry.tables().sources.insert(source.name.clone(), source);
        let _ = store.accept(new).await.unwrap();
        Self {
            store,
            queue: MemoryQueue::new(LIMITS.visibility, 16),
            sources: Sources::new(registry, Duration::from_secs(300), Duration::from_secs(3600)),
            metrics: Metrics::new("test"),
            clock: AtomicI64::new(1_800_000_000),
            handlers: SHIPPED,
            payload_max: 1_000_000,
        }
    }

    /// The source is configured in another way.
    fn change(&mut self, change: impl FnOnce(&mut Source)) {
        let registry = Store::new(1);
        let mut source = source();
        change(&mut source);
        registry.tables().sources.insert(source.name.clone(), source);
        self.sources = Sources::new(registry, Duration::ZERO, Duration::ZERO);
    }

    async fn with(plan: PlanFn) -> Self {
        Self { handlers: Handlers { plan, ..SHIPPED }, ..Self::new(&row(b"{}")).await }
    }

    async fn handle(&self, receives: u32, sent_at: Timestamp) -> Outcome {
        self.until(&message(receives, sent_at), std::future::pending()).await
    }

    async fn until(&self, message: &Received, deadline: impl Future<Output = ()>) -> Outcome {
        self.worker().handle(message, 1.0, deadline).await
    }

    fn worker(
        &self,
    ) -> Worker<'_, Store, Store, Store, Store, MemoryQueue, impl Fn() -> Timestamp> {
        Worker {
            inbox: &self.store,
            state: &self.store,
            sources: &self.sources,
            bodies: &self.store,
            queue: &self.queue,
            limits: LIMITS,
            payload_max: self.payload_max,
            handlers: self.handlers,
            metrics: &self.metrics,
            now: || Timestamp::from_second(self.clock.load(Ordering::Relaxed)).unwrap(),
        }
    }

    fn later(&self, seconds: i64) {
        self.clock.fetch_add(seconds, Ordering::Relaxed);
    }

    fn row(&self) -> Row {
        self.store.tables().inbox[&key()].row.clone()
    }

    fn deferred(&self) -> bool {
        self.queue.chaos.calls().contains(&"queue.defer")
    }
}

fn message(receives: u32, sent_at: Timestamp) -> Received {
    let text = InboundMessage(key()).to_text();
    Received { receipt: "r".to_owned(), text, receives, sent_at }
}

fn code(row: &Row) -> &str {
    row.last_error.as_ref().map_or("", |error| &error.code)
}

#[tokio::test]
async fn an_event_is_carried_out_in_one_transaction_and_told() {
    let bench = Bench::new(&row(br#"{"total": 1.0}"#)).await;
    bench.later(3);
    let outcome = bench.handle(1, at(0)).await;
    assert!(outcome.is_settled() && !bench.deferred(), "{outcome:?}");
    let row = bench.row();
    assert_eq!((row.status, row.attempts, row.due_at), (Status::Processed, 0, None));
    let tables = bench.store.tables();
    let [outgoing] = &*tables.outbox.values().collect::<Vec<_>>() else { panic!() };
    assert_eq!(outgoing.event.payload, Payload::Inline(br#"{"total": 1.0}"#.to_vec()));
    assert_eq!(outgoing.event.traceparent.as_deref(), Some("00-1-2-01"));
    assert_eq!(outgoing.event.aggregate_version, Some(5));
    let metrics = bench.metrics.lines(at(3)).join("\n");
    assert!(metrics.contains(r#""webhooks_processing_latency":3000"#), "{metrics}");
}

/// SEC-live-test-mode
#[tokio::test]
async fn an_event_of_another_mode_is_kept_and_reaches_no_handler() {
    for (body, wanted) in [
        (r#"{"livemode":true,"id":"CANARY"}"#, true),
        (r#"{"livemode":false}"#, false),
        (r#"{"livemode":"CANARY"}"#, false),
        ("{}", false),
        ("livemode=true", false),
    ] {
        let mut bench = Bench::new(&row(body.as_bytes())).await;
        bench.change(|source| source.only = [("/livemode".to_owned(), true.into())].into());
        if !wanted {
            bench.handlers.plan = |_, _, _| panic!("a handler met it");
        }
        assert!(bench.handle(1, at(0)).await.is_settled(), "{body}");
        let row = bench.row();
        let expected = if wanted { Status::Processed } else { Status::Ignored };
        assert_eq!((row.status, row.attempts), (expected, 0), "{body}");
        let told = if wanted { None } else { Some("other mode: /livemode is not true") };
        assert_eq!(row.next_action.as_deref(), told, "{body}");
        assert_eq!(bench.store.tables().outbox.len(), usize::from(wanted));
    }
}

/// C2
#[tokio::test]
async fn a_copy_of_a_finished_event_costs_one_read() {
    let bench = Bench::new(&row(b"{}")).await;
    bench.handle(1, at(0)).await;
    bench.store.chaos.heal();
    let outcome = bench.handle(2, at(0)).await;
    assert!(matches!(outcome, Outcome::FinishedBefore), "{outcome:?}");
    assert_eq!(bench.store.chaos.calls(), ["inbox.read"]);
}

/// D5, D17
#[tokio::test]
async fn a_late_older_version_changes_nothing_and_needs_no_transaction() {
    let bench = Bench::new(&row(b"{}")).await;
    let newer = Object {
        version: Version::Number(9),
        tie: String::new(),
        fields: serde_json::json!("newer"),
        deleted: false,
        updated_at: at(0),
        as_of: at(0),
        fetched: false,
    };
    let object = (key().source().clone(), row(b"").object.unwrap());
    bench.store.tables().objects.insert(object.clone(), newer.clone());
    bench.store.chaos.heal();
    assert!(bench.handle(1, at(0)).await.is_settled());
    let row = bench.row();
    assert_eq!(row.status, Status::Processed);
    assert_eq!(row.results[0].result, domain::inbox::Applied::Stale);
    assert_eq!(bench.store.tables().objects[&object], newer);
    assert!(bench.store.tables().outbox.is_empty());
    assert!(!bench.store.chaos.calls().contains(&"state.commit"));
}

/// The reason of a message that leads nowhere is logged and counted; the message itself is what an operator sees.
#[tokio::test]
async fn a_message_that_leads_nowhere_goes_to_the_dead_letter_queue_at_once() {
    let bench = Bench::new(&row(b"{}")).await;
    bench.store.tables().inbox.clear();
    let outcome = bench.handle(1, at(0)).await;
    assert!(matches!(outcome, Outcome::Missing) && !outcome.is_settled() && bench.deferred());

    for text in ["", "{}", r#"{"v":2}"#] {
        let message = Received { text: text.to_owned(), ..message(1, at(0)) };
        let outcome = bench.until(&message, std::future::pending()).await;
        assert!(matches!(outcome, Outcome::Unreadable(_)) && !outcome.is_settled());
    }
}

/// WRK-queue-message-size
#[tokio::test]
async fn a_body_that_is_gone_or_changed_parks_the_event_with_that_reason() {
    let place = |place| NewRow { body: StoredBody { place, ..row(b"{}").body }, ..row(b"{}") };
    let gone = Bench::new(&place(Place::Bucket)).await;
    let outcome = gone.handle(1, at(0)).await;
    assert!(matches!(outcome, Outcome::Parked(_)) && !outcome.is_settled(), "{outcome:?}");
    assert_eq!((gone.row().status, code(&gone.row())), (Status::DeadLetter, "payload_missing"));
    assert!(gone.metrics.lines(at(0)).join("").contains("webhooks_dead_lettered_total"));

    let other = body::compress(b"{ }").unwrap();
    let changed = Bench::new(&place(Place::Inline(other))).await;
    changed.handle(1, at(0)).await;
    assert_eq!(code(&changed.row()), "payload_corrupt");
}

fn panics(_: &Handler, _: &Event<'_>, _: &Current) -> Plan {
    panic!("a handler's bug")
}

/// WRK-swallowed-error-drops-batch, C12, C36
#[tokio::test]
async fn a_handler_that_panics_is_tried_again_and_then_parked() {
    let bench = Bench::with(panics).await;
    for attempt in 1..12 {
        let outcome = bench.handle(1, at(0)).await;
        let Outcome::Retry { wait, .. } = outcome else { panic!("{outcome:?}") };
        assert!(!outcome.is_settled());
        let row = bench.row();
        assert_eq!((row.status, row.attempts), (Status::Pending, attempt));
        // The message comes first, and the sweeper after its next visibility.
        let now = at(0)
            + Duration::from_secs(bench.clock.load(Ordering::Relaxed).abs_diff(1_800_000_000));
        assert!(row.due_at.unwrap() >= now + wait + LIMITS.visibility);
        let next = row.next_action.unwrap();
        assert!(next.starts_with(&format!("attempt {} of 12 at ", attempt + 1)), "{next}");
        bench.later(1000);
    }
    let outcome = bench.handle(1, at(0)).await;
    assert!(matches!(outcome, Outcome::Parked(_)), "{outcome:?}");
    let row = bench.row();
    assert_eq!(
        (row.status, row.attempts, code(&row)),
        (Status::DeadLetter, 12, "handler_panicked")
    );
    assert!(
        !row.last_error.unwrap().message.contains("bug"),
        "what a panic says may quote the event"
    );
}

/// WRK-dlq-redrive, C14
#[tokio::test]
async fn a_parked_event_fails_fast_until_an_operator_redrives_it() {
    let bench = Bench::with(panics).await;
    bench.store.tables().inbox.get_mut(&key()).unwrap().row.attempts = 11;
    bench.handle(1, at(0)).await;
    assert_eq!(bench.row().status, Status::DeadLetter);
    let outcome = bench.handle(2, at(0)).await;
    assert!(matches!(outcome, Outcome::ParkedBefore) && !outcome.is_settled());

    let fixed = Bench { handlers: SHIPPED, ..bench };
    fixed.later(600);
    assert!(matches!(fixed.handle(1, at(100)).await, Outcome::ParkedBefore));
    assert!(fixed.handle(1, at(500)).await.is_settled());
    let row = fixed.row();
    assert_eq!((row.status, row.cycle, row.attempts), (Status::Processed, 1, 0));
}

/// C13
#[tokio::test]
async fn from_the_third_receive_on_an_attempt_is_counted_before_it_runs() {
    for (receives, counted) in [(1, 0), (2, 0), (3, 1), (9, 1)] {
        let bench = Bench::new(&row(b"{}")).await;
        bench.store.chaos.on("state.commit", When::Before, Fault::Crash);
        // The process dies in the commit: the message never ends.
        let ended = tokio::select! {
            biased;
            _ = bench.handle(receives, at(0)) => true,
            () = died(&bench) => false,
        };
        assert!(!ended);
        let row = bench.row();
        assert_eq!((row.status, row.attempts), (Status::Pending, counted), "{receives}");
        assert!(row.due_at.is_some());
    }
}

async fn died(bench: &Bench) {
    while !bench.store.chaos.crashed() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_event_whose_attempts_left_no_trace_is_parked_when_they_are_used_up() {
    let bench = Bench::new(&row(b"{}")).await;
    bench.store.tables().inbox.get_mut(&key()).unwrap().row.attempts = 12;
    assert!(matches!(bench.handle(15, at(0)).await, Outcome::Parked(_)));
    assert_eq!((bench.row().status, code(&bench.row())), (Status::DeadLetter, "attempts_used_up"));
}

/// C31: what is not the event's fault is not counted, even if the attempt was counted first.
#[tokio::test]
async fn a_throttled_commit_waits_and_counts_nothing() {
    for receives in [1, 5] {
        let bench = Bench::new(&row(b"{}")).await;
        bench.store.chaos.on("state.commit", When::Before, Fault::Throttled);
        let outcome = bench.handle(receives, at(0)).await;
        assert!(matches!(outcome, Outcome::Waits { .. }) && outcome.is_settled(), "{outcome:?}");
        let row = bench.row();
        assert_eq!((row.status, row.attempts, code(&row)), (Status::Pending, 0, "throttled"));
        assert_eq!((row.waits_until, row.due_at), (Some(at(10)), Some(at(70))));
        assert_eq!(row.next_action.unwrap(), "tried again at 08:00:10Z");
    }
}

/// C34, C35
#[tokio::test]
async fn an_event_that_waits_too_long_is_parked_for_reconciliation() {
    let waits: PlanFn = |_, _, _| Plan::Requeue {
        delay: Duration::from_secs(900),
        reason: "its order is not there yet".to_owned(),
    };
    let bench = Bench::with(waits).await;
    for _ in 0..96 {
        assert!(matches!(bench.handle(1, at(0)).await, Outcome::Waits { .. }));
        let row = bench.row();
        bench.later(900);
        let now = Timestamp::from_second(bench.clock.load(Ordering::Relaxed)).unwrap();
        assert_eq!((row.waits_until, row.due_at), (Some(now), Some(now + LIMITS.wait_margin)));
    }
    assert!(matches!(bench.handle(1, at(0)).await, Outcome::Parked(_)));
    let row = bench.row();
    assert_eq!(
        (row.status, row.attempts, code(&row)),
        (Status::DeadLetter, 0, "needs_reconciliation")
    );
    assert!(row.last_error.unwrap().message.contains("its order is not there yet"));
}

/// RTY-store-outage: what cannot be written down is not acknowledged.
#[tokio::test]
async fn a_store_that_is_down_leaves_the_message_in_the_queue() {
    for name in ["inbox.read", "inbox.note"] {
        let bench = Bench::with(panics).await;
        bench.store.chaos.on(name, When::Before, Fault::Unavailable);
        let outcome = bench.handle(1, at(0)).await;
        assert!(matches!(outcome, Outcome::Unsure(_)) && !outcome.is_settled() && bench.deferred());
        bench.store.chaos.heal();
        assert_eq!(bench.row().attempts, 0);
    }
}

/// OBS-async-silence: a permission that is gone is not the event's fault, but somebody has to hear of it.
#[tokio::test]
async fn a_refusing_store_uses_attempts_up() {
    let bench = Bench::new(&row(b"{}")).await;
    bench.store.chaos.on("state.commit", When::Before, Fault::Refused);
    assert!(matches!(bench.handle(1, at(0)).await, Outcome::Retry { .. }));
    assert_eq!((bench.row().attempts, code(&bench.row())), (1, "store_refused"));
}

#[tokio::test]
async fn an_attempt_ends_in_time_and_what_it_did_after_all_stands() {
    let bench = Bench::new(&row(b"{}")).await;
    let outcome = bench.until(&message(1, at(0)), std::future::ready(())).await;
    assert!(matches!(outcome, Outcome::Retry { .. }), "{outcome:?}");
    assert_eq!((bench.row().attempts, code(&bench.row())), (1, "timed_out"));

    // The commit happens, its answer never comes, and the time is over.
    let bench = Bench::new(&row(b"{}")).await;
    bench.store.chaos.on("state.commit", When::After, Fault::Crash);
    let outcome = bench.until(&message(1, at(0)), died(&bench)).await;
    assert!(matches!(outcome, Outcome::FinishedBefore), "{outcome:?}");
    assert_eq!((bench.row().status, bench.row().attempts), (Status::Processed, 0));
}

/// C4: a row that moves between the read and the commit is read again, in its new cycle.
#[tokio::test]
async fn a_row_that_was_re_armed_meanwhile_is_carried_out_in_its_new_cycle() {
    let bench = Bench::new(&row(b"{}")).await;
    let mut handling = std::pin::pin!(bench.handle(1, at(0)));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    while !bench.store.chaos.calls().contains(&"state.object") {
        assert!(handling.as_mut().poll(&mut context).is_pending());
    }
    // Parked and re-armed by others while this one was planning.
    bench.store.tables().inbox.get_mut(&key()).unwrap().row.cycle = 1;
    let outcome = handling.await;
    assert!(matches!(outcome, Outcome::Finished { .. }), "{outcome:?}");
    assert_eq!((bench.row().status, bench.row().cycle), (Status::Processed, 1));
    assert_eq!(bench.store.tables().outbox.len(), 1);
}

#[tokio::test]
async fn a_plan_that_no_transaction_can_hold_is_parked_as_the_handlers_mistake() {
    let twice: PlanFn = |_, _, _| {
        let change = || Change::once("credit".parse().unwrap());
        Plan::Apply(vec![change(), change()])
    };
    let bench = Bench::with(twice).await;
    assert!(matches!(bench.handle(1, at(0)).await, Outcome::Parked(_)));
    assert_eq!(code(&bench.row()), "bad_plan");
}

#[tokio::test]
async fn a_plan_without_changes_is_one_write() {
    let bench = Bench::with(|_, _, _| Plan::Apply(Vec::new())).await;
    bench.store.chaos.heal();
    assert!(bench.handle(1, at(0)).await.is_settled());
    assert_eq!(bench.row().status, Status::Processed);
    assert_eq!(bench.store.chaos.calls(), ["inbox.read", "state.object", "inbox.finish"]);
}

#[tokio::test]
async fn a_source_that_is_gone_parks_its_events_until_it_is_back() {
    let mut new = row(b"{}");
    new.key = InboxKey::new("gone".parse().unwrap(), "evt_1").unwrap();
    let bench = Bench::new(&new).await;
    let text = InboundMessage(new.key.clone()).to_text();
    let outcome =
        bench.until(&Received { text, ..message(1, at(0)) }, std::future::pending()).await;
    assert!(matches!(outcome, Outcome::Parked(why) if why.code == "source_missing"));
}

/// A large payload is in the bucket before the row that names it.
#[tokio::test]
async fn a_large_payload_is_laid_aside_before_the_commit() {
    let large = format!(r#""{}""#, "x".repeat(20_000));
    let bench = Bench::new(&row(large.as_bytes())).await;
    bench.store.chaos.heal();
    assert!(bench.handle(1, at(0)).await.is_settled());
    let order = ["inbox.read", "state.object", "bodies.put", "state.commit"];
    assert_eq!(bench.store.chaos.calls(), order);
    let event = bench.store.tables().outbox.values().next().unwrap().event.clone();
    assert!(matches!(event.payload, Payload::Bucket(_)));
    let opened = payload::open(&event, &bench.store).await.unwrap();
    assert_eq!(opened, payload::Opened::Bytes(large.into_bytes()));
    let name = payload::name(&event.tenant, &Sha256Hash::of(b"nothing"));
    assert_eq!(bench.store.get(&name, 10).await.unwrap(), None);
}

#[tokio::test]
async fn a_payload_over_the_limit_is_refused_with_the_numbers() {
    let bench = Bench { payload_max: 1, ..Bench::new(&row(b"{}")).await };
    assert!(matches!(bench.handle(1, at(0)).await, Outcome::Parked(_)));
    let error = bench.row().last_error.unwrap();
    assert_eq!(error.code, "payload_too_large");
    assert!(error.message.contains("2 bytes, and 1 are allowed"), "{}", error.message);
}

fn sqs(id: &str, text: &str, attributes: &[(&str, &str)]) -> SqsMessage {
    let mut message = SqsMessage::default();
    message.message_id = Some(id.to_owned());
    message.receipt_handle = Some(id.to_owned());
    message.body = Some(text.to_owned());
    message.attributes =
        attributes.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    message
}

fn batch(records: Vec<SqsMessage>) -> SqsEvent {
    let mut batch = SqsEvent::default();
    batch.records = records;
    batch
}

/// WRK-batch-response-shape, C13
#[tokio::test]
async fn only_what_is_not_settled_comes_back_and_suspects_run_last_and_alone() {
    let bench = Bench::new(&row(b"{}")).await;
    let other =
        NewRow { key: InboxKey::new("shop".parse().unwrap(), "evt_2").unwrap(), ..row(b"{}") };
    let _ = bench.store.accept(&other).await.unwrap();
    bench.store.chaos.heal();
    let suspect = InboundMessage(other.key.clone()).to_text();
    let good = InboundMessage(key()).to_text();
    let records = vec![
        sqs("suspect", &suspect, &[("ApproximateReceiveCount", "3")]),
        sqs("bad", "{}", &[]),
        sqs("good", &good, &[("ApproximateReceiveCount", "1")]),
    ];
    let response = bench.worker().batch(batch(records), at(30), || 0.5).await.unwrap();
    let failed: Vec<_> =
        response.batch_item_failures.iter().map(|item| item.item_identifier.as_str()).collect();
    assert_eq!(failed, ["bad"]);
    let calls = bench.store.chaos.calls();
    let ends = calls.iter().position(|call| *call == "state.commit").unwrap();
    let counted = calls.iter().position(|call| *call == "inbox.note").unwrap();
    assert!(ends < counted, "{calls:?}");
}

#[tokio::test]
async fn an_attempt_without_time_for_it_is_not_begun() {
    let bench = Bench::new(&row(b"{}")).await;
    bench.store.chaos.heal();
    let message = sqs("m", &InboundMessage(key()).to_text(), &[("ApproximateReceiveCount", "5")]);
    let response = bench.worker().batch(batch(vec![message]), at(2), || 0.5).await.unwrap();
    assert_eq!(response.batch_item_failures.len(), 1);
    assert!(bench.store.chaos.calls().is_empty());
}

/// A message without its time never looks like a redrive; one with it does.
#[tokio::test]
async fn the_time_of_a_message_is_read_from_its_attributes() {
    for (sent, status) in [(None, Status::DeadLetter), (Some(at(500)), Status::Processed)] {
        let bench = Bench::new(&row(b"{}")).await;
        if let Some(item) = bench.store.tables().inbox.get_mut(&key()) {
            let row = &mut item.row;
            (row.status, row.due_at, row.dead_at) = (Status::DeadLetter, None, Some(at(100)));
        }
        bench.later(600);
        let sent = sent.map(|at| at.as_millisecond().to_string());
        let sent: Vec<_> = sent.iter().map(|ms| ("SentTimestamp", ms.as_str())).collect();
        let message = sqs("m", &InboundMessage(key()).to_text(), &sent);
        bench.worker().batch(batch(vec![message]), at(630), || 0.5).await.unwrap();
        assert_eq!(bench.row().status, status);
    }
}
