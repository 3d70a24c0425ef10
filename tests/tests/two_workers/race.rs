//! Two workers, the tables they race in, and what is found there afterwards.

use std::{
    collections::{BTreeMap, HashMap},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use aws_sdk_dynamodb::types::AttributeValue;
use domain::{
    body::{Place, Sha256Hash, StoredBody},
    commit::{Answer, Commit, LeaseProof, Reason},
    event::{Object, ObjectRef, Origin, Version},
    id::{InboxKey, SourceName},
    inbox::{NewRow, Row, Status},
    message::{InboundMessage, Message as _},
    plan::{Change, Emit, Plan},
    ports::{Configure as _, Inbox as _, Lease, State, Stored},
    source::{Handler, SchemeChoice, Source},
};
use dynamo::{InboxTable, RegistryTable, StateTable};
use jiff::Timestamp;
use runtime::telemetry::Metrics;
use serde_json::json;
use testkit::{
    LIMITS,
    memory::{self, MemoryQueue},
};
use tokio::{runtime::Handle, sync::Barrier, task::block_in_place};
use worker::{
    Outcome, Received, Sources, Worker,
    handlers::{Current, Event, Handlers, SHIPPED},
};

use crate::tables::Local;

const BODY: &[u8] = br#"{"paid":true}"#;

/// How the store takes two transactions at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    /// One after the other.
    AsItIs,
    /// It refuses the one that comes while the other one is under way.
    Conflicts,
    /// One after the other; and both workers' clocks say the same, to the nanosecond.
    SameMoment,
}

/// One deployment, in which two workers race.
pub(crate) struct Race {
    tables: Local,
    deployment: Deployment,
}

/// What both workers share.
struct Deployment {
    inbox: InboxTable,
    state: StateTable,
    store: Store,
    sources: Sources<RegistryTable>,
    bodies: memory::Store,
    queue: MemoryQueue,
    metrics: Metrics,
    /// Where both set out.
    start: Barrier,
    /// Where both have read the row.
    meeting: Barrier,
    /// Whether a transaction is under way.
    is_held: AtomicBool,
    /// How many transactions were carried out in this round.
    commits: AtomicUsize,
    /// How many were refused because of the other one, in all rounds.
    conflicts: AtomicUsize,
}

/// The state as one of the two workers sees it.
struct Seat<'a> {
    deployment: &'a Deployment,
    has_met: AtomicBool,
}

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn source() -> SourceName {
    "shop".parse().unwrap()
}

fn invoice(n: u64) -> ObjectRef {
    ObjectRef { kind: "invoice".to_owned(), id: format!("in_{n}") }
}

/// What a deploy makes of events.
pub(crate) type PlanFn = fn(&Handler, &Event<'_>, &Current) -> Plan;

/// An object, an operation of the business, and an outgoing event that follows from it.
pub(crate) fn applied(_: &Handler, event: &Event<'_>, _: &Current) -> Plan {
    let (object, version) = (event.row.object.clone().unwrap(), event.row.version.clone().unwrap());
    let operation = format!("credit {}", object.id).parse().unwrap();
    let granted = Emit::new("demo".parse().unwrap(), "credit.granted", &object.id, "{}");
    let fields = json!({ "by": event.row.key.event_id() });
    Plan::change(Change::newer(object, version, fields))
        .and(Change::once(operation).then_emit(granted))
}

/// The same, but the object becomes one more than it was, whichever event comes.
pub(crate) fn counted(_: &Handler, event: &Event<'_>, current: &Current) -> Plan {
    let object = event.row.object.clone().unwrap();
    let was = current.object().map_or(0, |was| was.fields["count"].as_u64().unwrap());
    let fields = json!({ "count": was + 1 });
    let told = Emit::new("demo".parse().unwrap(), "counted", &object.id, fields.to_string());
    let change = Change::unchanged(object, current.object(), Version::Number(was + 1), fields);
    Plan::change(change.then_emit(told))
}

/// Another deploy, which knows better.
pub(crate) fn rejected(_: &Handler, _: &Event<'_>, _: &Current) -> Plan {
    Plan::reject("another deploy refuses it")
}

impl Race {
    pub(crate) async fn new(store: Store) -> Self {
        let tables = Local::new().await;
        let handler = Handler::Mirror { emit_to: None, states: None };
        let source =
            Source::new(source(), SchemeChoice::Preset("stripe".to_owned()), handler, now());
        assert!(tables.registry.add_source(&source).await.unwrap());
        let hour = Duration::from_hours(1);
        let deployment = Deployment {
            inbox: tables.inbox.clone(),
            state: tables.state.clone(),
            store,
            sources: Sources::new(tables.registry.clone(), hour, hour),
            bodies: memory::Store::new(1),
            queue: MemoryQueue::new(LIMITS.visibility, 16),
            metrics: Metrics::new("race"),
            start: Barrier::new(2),
            meeting: Barrier::new(2),
            is_held: AtomicBool::new(false),
            commits: AtomicUsize::new(0),
            conflicts: AtomicUsize::new(0),
        };
        Self { tables, deployment }
    }

    /// An event about the invoice of this round is in the inbox.
    pub(crate) async fn came(&self, n: u64, name: &str, version: u64) -> InboxKey {
        let key = InboxKey::new(source(), &format!("evt_{n}_{name}")).unwrap();
        let row = NewRow {
            key: key.clone(),
            event_type: Some("invoice.paid".to_owned()),
            received_at: now(),
            due_at: now() + Duration::from_secs(120),
            body: StoredBody {
                sha256: Sha256Hash::of(BODY),
                length: BODY.len() as u64,
                place: Place::Inline(flow::body::compress(BODY).unwrap()),
            },
            headers: BTreeMap::new(),
            object: Some(invoice(n)),
            version: Some(Version::Number(version)),
            occurred_at: None,
            origin: Origin::Webhook,
            key_id: None,
            token: name.to_owned(),
            traceparent: None,
            delivery_id: None,
            parent: None,
        };
        assert_eq!(self.tables.inbox.accept(&row).await.unwrap(), domain::inbox::Accepted::New);
        key
    }

    /// Both workers handle their message at once. Their outcomes, in order.
    pub(crate) async fn run(&self, copies: [(&InboxKey, PlanFn); 2]) -> [Outcome; 2] {
        let (deployment, runtime) = (&self.deployment, &Handle::current());
        deployment.commits.store(0, Ordering::SeqCst);
        let work = |(key, plan): (&InboxKey, PlanFn), now| {
            let text = InboundMessage(key.clone()).to_text();
            move || runtime.block_on(work(deployment, text, plan, now))
        };
        let apart = u64::from(deployment.store != Store::SameMoment);
        let [one, other] = copies;
        let (one, other) = (work(one, now()), work(other, now() + Duration::from_nanos(apart)));
        block_in_place(|| {
            thread::scope(|scope| {
                let [one, other] = [scope.spawn(one), scope.spawn(other)];
                [one.join().unwrap(), other.join().unwrap()]
            })
        })
    }

    /// How many transactions were carried out in this round.
    pub(crate) fn commits(&self) -> usize {
        self.deployment.commits.load(Ordering::SeqCst)
    }

    /// How many were refused because of another one.
    pub(crate) fn conflicts(&self) -> usize {
        self.deployment.conflicts.load(Ordering::SeqCst)
    }

    pub(crate) async fn row(&self, key: &InboxKey) -> Row {
        self.tables.inbox.read(key).await.unwrap().unwrap()
    }

    /// The row has ended so, and nothing is said of it that did not happen.
    pub(crate) async fn is(&self, key: &InboxKey, status: Status) {
        let row = self.row(key).await;
        assert_eq!(row.status, status, "{row:?}");
        // A parked row says why; a finished one has met no error.
        let is_told = row.last_error.is_some() == (status == Status::DeadLetter);
        assert!(is_told || self.conflicts() > 0, "{row:?}");
    }

    /// One object, at this version; one credit; one outgoing event.
    pub(crate) async fn has_one_effect(&self, n: u64, version: Version) {
        let mut state: Vec<_> =
            self.keys("StateTable").await.into_iter().map(|(pk, _)| pk).collect();
        state.sort();
        let object = format!("OBJECT#shop#invoice#in_{n}");
        assert_eq!(state, [object, format!("OPERATION#credit in_{n}")]);
        let object = self.tables.state.object(&source(), &invoice(n)).await.unwrap().unwrap();
        assert_eq!(object.version, version);
        assert_eq!(self.keys("OutboxTable").await.len(), 1);
    }

    /// The invoice of this round was counted twice, and each count was told.
    pub(crate) async fn is_counted_twice(&self, n: u64) {
        let object = self.tables.state.object(&source(), &invoice(n)).await.unwrap().unwrap();
        assert_eq!(object.fields["count"], 2, "{object:?}");
        assert_eq!(self.keys("OutboxTable").await.len(), 2);
    }

    /// Nothing of the plan is true.
    pub(crate) async fn has_no_effect(&self) {
        assert_eq!(self.keys("StateTable").await, []);
        assert_eq!(self.keys("OutboxTable").await, []);
    }

    /// Empties the tables.
    pub(crate) async fn clear(&self) {
        for table in ["InboxTable", "StateTable", "OutboxTable"] {
            for (pk, sk) in self.keys(table).await {
                self.tables.delete(table, (&pk, &sk)).await;
            }
        }
    }

    /// The keys of everything in a table, past all ports.
    async fn keys(&self, table: &str) -> Vec<(String, String)> {
        let scan = self.tables.client.scan().table_name(table).consistent_read(true);
        let found = scan.send().await.unwrap();
        assert_eq!(found.last_evaluated_key, None);
        let text =
            |item: &HashMap<String, AttributeValue>, name: &str| item[name].as_s().unwrap().clone();
        let items = found.items.unwrap_or_default();
        items.iter().map(|item| (text(item, "pk"), text(item, "sk"))).collect()
    }
}

async fn work(deployment: &Deployment, text: String, plan: PlanFn, now: Timestamp) -> Outcome {
    let state = &Seat { deployment, has_met: AtomicBool::new(false) };
    let worker = Worker {
        inbox: &deployment.inbox,
        state,
        sources: &deployment.sources,
        bodies: &deployment.bodies,
        queue: &deployment.queue,
        limits: LIMITS,
        payload_max: 1_000_000,
        handlers: Handlers { plan, ..SHIPPED },
        metrics: &deployment.metrics,
        now: || now,
    };
    let message = Received { receipt: text.clone(), text, receives: 1, sent_at: now };
    deployment.start.wait().await;
    Box::pin(worker.handle(&message, 0.5, std::future::pending())).await
}

impl State for Seat<'_> {
    /// Whoever reads the object has read the row; only then may either of them write.
    async fn object(&self, source: &SourceName, object: &ObjectRef) -> Stored<Option<Object>> {
        let found = self.deployment.state.object(source, object).await;
        if !self.has_met.swap(true, Ordering::SeqCst) {
            self.deployment.meeting.wait().await;
        }
        found
    }

    async fn commit(&self, commit: &Commit) -> Stored<Answer> {
        let d = self.deployment;
        if d.store == Store::Conflicts && d.is_held.swap(true, Ordering::SeqCst) {
            d.conflicts.fetch_add(1, Ordering::SeqCst);
            let held = |n| if n == 0 { Reason::Conflict } else { Reason::None };
            return Ok(Answer::Refused((0..commit.actions().len()).map(held).collect()));
        }
        let answer = d.state.commit(commit).await;
        d.is_held.store(false, Ordering::SeqCst);
        if answer.as_ref().is_ok_and(|answer| *answer == Answer::Applied) {
            d.commits.fetch_add(1, Ordering::SeqCst);
        }
        answer
    }

    async fn lease(
        &self,
        what: &str,
        owner: &str,
        now: Timestamp,
        until: Timestamp,
    ) -> Stored<Lease> {
        self.deployment.state.lease(what, owner, now, until).await
    }

    async fn give_back(&self, lease: &LeaseProof, now: Timestamp) -> Stored<()> {
        self.deployment.state.give_back(lease, now).await
    }
}
