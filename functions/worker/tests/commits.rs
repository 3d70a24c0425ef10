//! How a commit comes out: what the event's story, the metrics and the queue say of each way.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a suite may fail where it stands"
)]

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use domain::{
    body::{Place, Sha256Hash, StoredBody},
    commit::{Answer, Commit, CommitOutcome, LeaseProof, MAX_PLANS, Reason},
    event::{Object, ObjectRef, Origin, Version},
    id::{InboxKey, SourceName},
    inbox::{Applied, NewRow, Row, Status},
    message::{InboundMessage, Message as _},
    plan::{Change, Emit, OperationKey, Plan},
    ports::{Inbox as _, Lease, State, StoreError, Stored},
    source::{Handler, SchemeChoice, Source},
};
use flow::body;
use jiff::Timestamp;
use runtime::telemetry::Metrics;
use serde_json::json;
use testkit::{
    LIMITS,
    memory::{MemoryQueue, Store},
};
use worker::{
    Outcome, Received, Sources, Worker,
    handlers::{Current, Event, Handlers, MAX_READS, SHIPPED},
};

/// What the next commits meet.
enum Meets {
    /// These reasons, and nothing happens.
    Reasons(Vec<Reason>),
    /// This error, and nothing happens.
    Error(StoreError),
    /// Somebody else does this just before.
    Meanwhile(Box<dyn Fn(&Store) + Send>),
}

/// The tables in memory, and what meets commits in them, one after the other.
struct Scripted {
    store: Store,
    meets: Mutex<VecDeque<Meets>>,
}

impl State for Scripted {
    async fn object(&self, source: &SourceName, object: &ObjectRef) -> Stored<Option<Object>> {
        self.store.object(source, object).await
    }

    async fn commit(&self, commit: &Commit) -> Stored<Answer> {
        let next = self.meets.lock().unwrap().pop_front();
        match next {
            Some(Meets::Reasons(reasons)) => return Ok(Answer::Refused(reasons)),
            Some(Meets::Error(error)) => return Err(error),
            Some(Meets::Meanwhile(act)) => act(&self.store),
            None => {}
        }
        self.store.commit(commit).await
    }

    async fn lease(
        &self,
        what: &str,
        owner: &str,
        now: Timestamp,
        until: Timestamp,
    ) -> Stored<Lease> {
        self.store.lease(what, owner, now, until).await
    }

    async fn give_back(&self, lease: &LeaseProof, now: Timestamp) -> Stored<()> {
        self.store.give_back(lease, now).await
    }
}

type PlanFn = fn(&Handler, &Event<'_>, &Current) -> Plan;
type ReadsFn = fn(&Handler, &Event<'_>) -> Vec<ObjectRef>;

struct Bench {
    state: Scripted,
    sources: Sources<Store>,
    handlers: Handlers,
    metrics: Metrics,
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn key() -> InboxKey {
    InboxKey::new("shop".parse().unwrap(), "evt_1").unwrap()
}

fn order(id: &str) -> ObjectRef {
    ObjectRef { kind: "order".to_owned(), id: id.to_owned() }
}

fn row() -> NewRow {
    NewRow {
        key: key(),
        event_type: Some("order.paid".to_owned()),
        received_at: at(0),
        due_at: at(120),
        body: StoredBody {
            sha256: Sha256Hash::of(b"{}"),
            length: 2,
            place: Place::Inline(body::compress(b"{}").unwrap()),
        },
        headers: BTreeMap::new(),
        object: Some(order("or_1")),
        version: Some(Version::Number(5)),
        occurred_at: Some(at(-7)),
        origin: Origin::Webhook,
        key_id: None,
        token: "token".to_owned(),
        traceparent: None,
        delivery_id: None,
        parent: None,
    }
}

fn sources(handler: Handler) -> Sources<Store> {
    sources_of(SchemeChoice::Preset("stripe".to_owned()), handler)
}

fn sources_of(scheme: SchemeChoice, handler: Handler) -> Sources<Store> {
    let registry = Store::new(1);
    let source = Source::new("shop".parse().unwrap(), scheme, handler, at(0));
    registry.tables().sources.insert(source.name.clone(), source);
    Sources::new(registry, Duration::ZERO, Duration::ZERO)
}

impl Bench {
    async fn new(plan: PlanFn) -> Self {
        let store = Store::new(1);
        let _ = store.accept(&row()).await.unwrap();
        Self {
            state: Scripted { store, meets: Mutex::default() },
            sources: sources(Handler::Mirror { emit_to: None, states: None }),
            handlers: Handlers { plan, ..SHIPPED },
            metrics: Metrics::new("test"),
        }
    }

    async fn meeting(plan: PlanFn, meets: impl IntoIterator<Item = Meets>) -> Self {
        let bench = Self::new(plan).await;
        bench.state.meets.lock().unwrap().extend(meets);
        bench
    }

    async fn handle(&self) -> Outcome {
        let worker = Worker {
            inbox: &self.state.store,
            state: &self.state,
            sources: &self.sources,
            bodies: &self.state.store,
            queue: &MemoryQueue::new(LIMITS.visibility, 16),
            limits: LIMITS,
            payload_max: 1_000_000,
            handlers: self.handlers,
            metrics: &self.metrics,
            now: || at(0),
        };
        let text = InboundMessage(key()).to_text();
        let message = Received { receipt: "r".to_owned(), text, receives: 1, sent_at: at(0) };
        worker.handle(&message, 1.0, std::future::pending()).await
    }

    fn row(&self) -> Row {
        self.state.store.tables().inbox[&key()].row.clone()
    }

    /// Each change of the row's story, and what became of it.
    fn results(&self) -> Vec<(String, Applied)> {
        self.row().results.into_iter().map(|result| (result.what, result.result)).collect()
    }

    fn object(&self, id: &str) -> Option<Object> {
        self.state.store.tables().objects.get(&(key().source().clone(), order(id))).cloned()
    }

    /// Which commits were counted, and how often.
    fn commits(&self) -> Vec<(CommitOutcome, u64)> {
        let lines = self.metrics.lines(at(0));
        let lines = lines.iter().map(|line| serde_json::from_str(line).unwrap());
        let lines: Vec<serde_json::Value> = lines.collect();
        // One line counts for the deployment and for its source.
        let count = |outcome: CommitOutcome| {
            let line = lines.iter().find(|line| line.get(outcome.metric()).is_some())?;
            assert_eq!(line["source"], "shop");
            Some((outcome, format!("{}", line[outcome.metric()].as_f64()?).parse().unwrap()))
        };
        CommitOutcome::ALL.into_iter().filter_map(count).collect()
    }

    fn code(&self) -> String {
        self.row().last_error.map(|error| error.code).unwrap_or_default()
    }
}

/// Somebody else writes an object.
fn put(store: &Store, id: &str, version: Version, fields: serde_json::Value) {
    let object = Object {
        version,
        tie: domain::commit::tie_of(&fields, false),
        fields,
        deleted: false,
        updated_at: at(0),
        as_of: at(0),
        fetched: false,
    };
    store.tables().objects.insert((key().source().clone(), order(id)), object);
}

fn newer(_: &Handler, _: &Event<'_>, _: &Current) -> Plan {
    Plan::change(Change::newer(order("or_1"), Version::Number(5), json!({ "paid": true })))
}

/// Adds one to what the object was, and tells so.
fn adds(_: &Handler, _: &Event<'_>, current: &Current) -> Plan {
    let sum = current.object().map_or(0, |object| object.fields.as_u64().unwrap()) + 1;
    let told = Emit::new("demo".parse().unwrap(), "sum", "or_1", sum.to_string());
    let (object, version) = (order("or_1"), Version::Number(1));
    Change::unchanged(object, current.object(), version, json!(sum)).then_emit(told).into()
}

#[tokio::test]
async fn what_is_written_says_of_when_it_is() {
    let bench = Bench::new(newer).await;
    assert!(bench.handle().await.is_settled());
    assert_eq!(bench.commits(), [(CommitOutcome::Applied, 1)]);
    let object = bench.object("or_1").unwrap();
    // When the provider says it happened.
    assert_eq!((object.as_of, object.fetched, object.updated_at), (at(-7), false, at(0)));
}

/// C4, C31, OUT-transaction-conflict: each way is told apart, in the row, in the metrics and to the queue.
#[tokio::test]
async fn each_way_a_commit_comes_out_has_its_metric_and_its_line_in_the_story() {
    use CommitOutcome as O;
    use Reason::{ConditionFailed, Conflict, Invalid, None, Throttled, TooLarge, Transient};
    let reasons = |reason| Meets::Reasons(vec![None, reason]);
    let error = || StoreError::Throttled("ThrottlingException".into());
    let held = || [reasons(Conflict), reasons(Conflict), reasons(Conflict)];
    type Case = (Vec<Meets>, &'static [(O, u64)], &'static str, Status);
    let table: Vec<Case> = vec![
        (held().into(), &[(O::Conflict, 3)], "conflict", Status::Pending),
        (vec![reasons(Throttled)], &[(O::Throttled, 1)], "throttled", Status::Pending),
        (vec![Meets::Error(error())], &[(O::Throttled, 1)], "throttled", Status::Pending),
        (vec![reasons(Transient)], &[], "store_busy", Status::Pending),
        (vec![reasons(TooLarge)], &[(O::TooLarge, 1)], "too_large", Status::DeadLetter),
        (vec![reasons(Invalid)], &[], "store_refused", Status::DeadLetter),
        // Once held, then let through.
        (vec![reasons(Conflict)], &[(O::Applied, 1), (O::Conflict, 1)], "", Status::Processed),
        (vec![reasons(ConditionFailed)], &[(O::Stale, 1)], "", Status::Processed),
    ];
    for (number, (meets, commits, code, status)) in table.into_iter().enumerate() {
        let bench = Bench::meeting(newer, meets).await;
        let outcome = bench.handle().await;
        let row = bench.row();
        assert_eq!((row.status, bench.code().as_str()), (status, code), "row {number}");
        assert_eq!(bench.commits(), commits, "row {number}");
        // What waits is not the event's fault.
        assert_eq!(row.attempts, u32::from(status == Status::DeadLetter), "row {number}");
        assert_eq!(outcome.is_settled(), status != Status::DeadLetter, "row {number}");
    }
}

#[tokio::test]
async fn what_was_there_before_is_dropped_and_told() {
    let both: PlanFn = |handler, event, current| {
        newer(handler, event, current).and(Change::once(OperationKey::of(&["credit", "or_1"])))
    };
    let bench = Bench::new(both).await;
    put(&bench.state.store, "or_1", Version::Number(9), json!({}));
    bench.state.store.tables().operations.insert("credit#or_1".to_owned());
    assert!(bench.handle().await.is_settled());
    let stale = ("object order or_1".to_owned(), Applied::Stale);
    let duplicate = ("operation credit#or_1".to_owned(), Applied::DuplicateEffect);
    assert_eq!(bench.results(), [stale, duplicate]);
    assert_eq!(bench.commits(), [(CommitOutcome::Stale, 1), (CommitOutcome::DuplicateEffect, 1)]);
}

/// D5: of every object that the plan looked at, not only of the event's own.
#[tokio::test]
async fn what_is_known_to_be_old_costs_no_transaction() {
    let other: PlanFn =
        |_, _, _| Change::newer(order("or_2"), Version::Number(5), json!({})).into();
    let mut bench = Bench::new(other).await;
    bench.handlers.reads = |_, _| vec![order("or_2")];
    put(&bench.state.store, "or_2", Version::Number(9), json!({}));
    assert!(bench.handle().await.is_settled());
    assert_eq!(bench.results(), [("object order or_2".to_owned(), Applied::Stale)]);
    assert_eq!(bench.commits(), [(CommitOutcome::Stale, 1)]);
    assert!(!bench.state.store.chaos.calls().contains(&"state.commit"));
}

/// C4: somebody else was faster, whether the plan changes something or nothing.
#[tokio::test]
async fn an_event_that_somebody_else_finished_is_left_alone() {
    let bench = Bench::meeting(
        newer,
        [Meets::Meanwhile(Box::new(|store| {
            store.tables().inbox.get_mut(&key()).unwrap().row.status = Status::Ignored;
        }))],
    )
    .await;
    let outcome = bench.handle().await;
    assert!(matches!(outcome, Outcome::FinishedBefore), "{outcome:?}");
    assert_eq!(bench.object("or_1"), None);
    assert_eq!(bench.commits(), [(CommitOutcome::AlreadyFinished, 1)]);
}

/// C31: the second plan sees what the first one's object became, and nothing of the first goes out.
#[tokio::test]
async fn an_event_is_planned_again_if_its_object_changed_meanwhile() {
    let change = |sum: u64| {
        Meets::Meanwhile(Box::new(move |store: &Store| {
            put(store, "or_1", Version::Number(1), json!(sum));
        }))
    };
    let bench = Bench::meeting(adds, [change(10), change(20)]).await;
    assert!(bench.handle().await.is_settled());
    assert_eq!(bench.object("or_1").unwrap().fields, json!(21));
    let tables = bench.state.store.tables();
    let told: Vec<_> = tables.outbox.values().map(|row| row.event.payload.clone()).collect();
    assert_eq!(told, [domain::outbox::Payload::Inline(b"21".to_vec())]);
    drop(tables);
    let commits = [(CommitOutcome::Applied, 1), (CommitOutcome::Conflict, 2)];
    assert_eq!(bench.commits(), commits);
}

/// C31: bounded, and not the event's fault.
#[tokio::test]
async fn an_event_whose_object_never_rests_waits_as_for_a_conflict() {
    static PLANS: AtomicU32 = AtomicU32::new(0);
    let counted: PlanFn = |handler, event, current| {
        PLANS.fetch_add(1, Ordering::Relaxed);
        adds(handler, event, current)
    };
    let restless = (1..100_u64).map(|n| {
        Meets::Meanwhile(Box::new(move |store: &Store| {
            put(store, "or_1", Version::Number(1), json!(n));
        }) as Box<dyn Fn(&Store) + Send>)
    });
    let bench = Bench::meeting(counted, restless).await;
    let outcome = bench.handle().await;
    assert!(matches!(outcome, Outcome::Waits { .. }), "{outcome:?}");
    assert_eq!(PLANS.load(Ordering::Relaxed), MAX_PLANS);
    let row = bench.row();
    assert_eq!((row.status, row.attempts, bench.code().as_str()), (Status::Pending, 0, "conflict"));
    assert!(row.next_action.is_some());
    assert!(bench.state.store.tables().outbox.is_empty());
    assert_eq!(bench.commits(), [(CommitOutcome::Conflict, u64::from(MAX_PLANS))]);
}

/// D13, D14: a refused transition stands in the story with its reason, and nothing that follows from it goes out.
#[tokio::test]
async fn a_refused_transition_is_told_and_never_done() {
    let refuses: PlanFn = |_, _, _| {
        let told = Emit::new("demo".parse().unwrap(), "order.failed", "or_1", "{}");
        Change::refused(order("or_1"), "PAID → FAILED is not a move").then_emit(told).into()
    };
    let bench = Bench::new(refuses).await;
    assert!(bench.handle().await.is_settled());
    let row = bench.row();
    assert_eq!(row.status, Status::Processed);
    let [result] = &*row.results else { panic!("{:?}", row.results) };
    assert_eq!((result.what.as_str(), result.result), ("object order or_1", Applied::Refused));
    assert_eq!(result.why.as_deref(), Some("PAID → FAILED is not a move"));
    assert!(bench.state.store.tables().outbox.is_empty());
    assert_eq!((bench.object("or_1"), bench.commits()), (None, vec![]));
    // Beside a change that happens, both are told.
    let bench =
        Bench::new(|handler, event, current| refuses_and(newer(handler, event, current))).await;
    assert!(bench.handle().await.is_settled());
    let what = "object order or_1".to_owned();
    assert_eq!(bench.results(), [(what.clone(), Applied::Refused), (what, Applied::Applied)]);
}

fn refuses_and(plan: Plan) -> Plan {
    plan.and(Change::refused(order("or_1"), "no"))
}

#[tokio::test]
async fn a_plan_that_is_too_large_is_parked_before_anything_is_written() {
    let large: PlanFn = |_, _, _| {
        let fields = json!("x".repeat(400_000));
        Change::newer(order("or_1"), Version::Number(5), fields).into()
    };
    let bench = Bench::new(large).await;
    assert!(matches!(bench.handle().await, Outcome::Parked(_)));
    assert_eq!(bench.code(), "too_large");
    let message = bench.row().last_error.unwrap().message;
    assert!(message.starts_with("object order or_1 would have 400002 bytes"), "{message}");
    assert_eq!(bench.commits(), [(CommitOutcome::TooLarge, 1)]);
}

/// A plan may look at other objects, and is guarded by what they were.
#[tokio::test]
async fn a_plan_sees_the_objects_it_asked_for_and_its_own() {
    let reads: ReadsFn = |_, _| vec![order("or_2"), order("or_1"), order("or_3"), order("or_2")];
    let sees: PlanFn = |_, _, current| {
        let of = |id| current.of(&order(id)).map(|object| object.fields.clone());
        assert_eq!(current.object().map(|object| object.fields.clone()), of("or_1"));
        let seen = json!([of("or_1"), of("or_2"), of("or_3"), of("or_4")]);
        Change::newer(order("seen"), Version::Number(1), seen).into()
    };
    let mut bench = Bench::new(sees).await;
    bench.handlers.reads = reads;
    for id in ["or_1", "or_2", "or_4"] {
        put(&bench.state.store, id, Version::Number(1), json!(id));
    }
    assert!(bench.handle().await.is_settled());
    assert_eq!(bench.object("seen").unwrap().fields, json!(["or_1", "or_2", null, null]));
    let calls = bench.state.store.chaos.calls();
    assert_eq!(calls.iter().filter(|call| **call == "state.object").count(), 3);
}

#[tokio::test]
async fn a_plan_may_not_look_at_the_whole_world() {
    let ids = |count: usize| (0..count).map(|n| order(&n.to_string())).collect::<Vec<_>>();
    assert_eq!(ids(MAX_READS).len(), 10);
    let mut bench = Bench::new(newer).await;
    // The event's own does not count.
    bench.handlers.reads =
        |_, _| (0..10).map(|n| order(&n.to_string())).chain([order("or_1")]).collect();
    assert!(bench.handle().await.is_settled());
    assert_eq!(bench.row().status, Status::Processed);
    let mut bench = Bench::new(newer).await;
    bench.handlers.reads = |_, _| (0..11).map(|n| order(&n.to_string())).collect();
    assert!(matches!(bench.handle().await, Outcome::Parked(_)));
    assert_eq!(bench.code(), "bad_plan");
}

/// C12
#[tokio::test]
async fn a_handler_that_panics_over_what_it_wants_to_read_fails_its_own_event() {
    let mut bench = Bench::new(newer).await;
    bench.handlers.reads = |_, _| panic!("a handler's bug");
    assert!(matches!(bench.handle().await, Outcome::Retry { .. }));
    assert_eq!(bench.code(), "handler_panicked");
}

#[tokio::test]
async fn a_handler_that_is_not_there_parks_its_events_until_it_is() {
    let sources = sources(Handler::Own { name: "nobodys".to_owned(), tenant: None });
    let bench = Bench { sources, ..Bench::new(newer).await };
    assert!(matches!(bench.handle().await, Outcome::Parked(_)));
    assert_eq!(bench.code(), "no_handler");
    let message = bench.row().last_error.unwrap().message;
    assert!(message.contains("nobodys"), "{message}");
}

/// D6: a source declares it, and a scheme that cannot be read declares nothing.
#[tokio::test]
async fn a_handler_hears_whether_versions_can_be_trusted() {
    let own = |version: serde_json::Value| {
        SchemeChoice::Own(json!({
            "algorithm": "token", "signature": { "from": "{header:x-token}" },
            "identity": { "version": version },
        }))
    };
    let trusted = json!({ "from": "{json:/v}", "kind": "number", "trusted": true });
    let untrusted = json!({ "from": "{json:/v}", "kind": "number" });
    let tells: PlanFn =
        |_, event, _| Plan::ignored(if event.trusts_version { "trusted" } else { "not trusted" });
    for (scheme, expected) in [
        (own(trusted), "trusted"),
        (own(untrusted), "not trusted"),
        (SchemeChoice::Preset("stripe".to_owned()), "not trusted"),
    ] {
        let sources = sources_of(scheme.clone(), Handler::Mirror { emit_to: None, states: None });
        let bench = Bench { sources, ..Bench::new(tells).await };
        let outcome = bench.handle().await;
        let Outcome::Finished { reason: Some(reason), .. } = outcome else { panic!("{outcome:?}") };
        assert_eq!(reason, expected, "{scheme:?}");
    }
}

/// C31: a guard on what was never read could not hold, however often it is planned.
#[tokio::test]
async fn a_plan_that_depends_on_what_it_did_not_ask_for_is_parked() {
    let guesses: PlanFn = |_, _, current| {
        let other = order("or_2");
        let known = current.of(&other).cloned();
        Change::unchanged(other, known.as_ref(), Version::Number(1), json!({})).into()
    };
    let bench = Bench::new(guesses).await;
    put(&bench.state.store, "or_2", Version::Number(1), json!(2));
    assert!(matches!(bench.handle().await, Outcome::Parked(_)));
    let failure = bench.row().last_error.unwrap();
    assert_eq!(failure.code, "bad_plan");
    assert!(failure.message.contains("order or_2"), "{}", failure.message);
    assert!(failure.message.contains("name it in `reads`"), "{}", failure.message);
    assert!(!bench.state.store.chaos.calls().contains(&"state.commit"));
    // Named, it may even be absent.
    let mut bench = Bench::new(guesses).await;
    bench.handlers.reads = |_, _| vec![order("or_2")];
    assert!(bench.handle().await.is_settled());
    assert_eq!(bench.row().status, Status::Processed);
}
