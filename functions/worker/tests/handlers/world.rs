//! One deployment with one source, `shop`. Events come to it, each as often and in whatever order a test says.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::pin,
    sync::atomic::{AtomicI64, Ordering},
    time::Duration,
};

use domain::{
    body::{Place, Sha256Hash, StoredBody},
    event::{Object, ObjectRef, Origin, Version},
    id::InboxKey,
    inbox::{ChangeResult, NewRow, Row, Status},
    message::{InboundMessage, Message as _},
    outbox::{OutboxEvent, Payload},
    ports::Inbox as _,
    source::{Handler, SchemeChoice, Source},
};
use flow::body;
use jiff::Timestamp;
use runtime::telemetry::Metrics;
use serde_json::Value;
use testkit::{
    LIMITS,
    memory::{MemoryQueue, Store},
};
use worker::{
    Outcome, Received, Sources, Worker,
    handlers::{self, Handlers},
};

/// What the provider sends.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sent {
    pub(crate) id: String,
    pub(crate) event_type: String,
    pub(crate) object: Option<(&'static str, String)>,
    pub(crate) version: Option<Version>,
    pub(crate) body: String,
}

pub(crate) struct World {
    pub(crate) store: Store,
    queue: MemoryQueue,
    sources: Sources<Store>,
    metrics: Metrics,
    clock: AtomicI64,
    pub(crate) handlers: Handlers,
}

/// Where everything stands in the end: what does not depend on when something was done.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct End {
    /// Fields, version and whether it is deleted, by kind and id.
    pub(crate) objects: BTreeMap<(String, String), (Value, Version, bool)>,
    /// Operation keys.
    pub(crate) operations: BTreeSet<String>,
}

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

impl Sent {
    pub(crate) fn new(id: &str, event_type: &str, body: &Value) -> Self {
        Self {
            id: id.to_owned(),
            event_type: event_type.to_owned(),
            object: None,
            version: None,
            body: body.to_string(),
        }
    }

    pub(crate) fn about(self, kind: &'static str, id: &str, version: Option<Version>) -> Self {
        Self { object: Some((kind, id.to_owned())), version, ..self }
    }

    pub(crate) fn key(&self) -> InboxKey {
        InboxKey::new("shop".parse().unwrap(), &self.id).unwrap()
    }

    fn row(&self, now: Timestamp) -> NewRow {
        let body = self.body.as_bytes();
        NewRow {
            key: self.key(),
            event_type: Some(self.event_type.clone()),
            received_at: now,
            due_at: now + Duration::from_secs(120),
            body: StoredBody {
                sha256: Sha256Hash::of(body),
                length: body.len() as u64,
                place: Place::Inline(body::compress(body).unwrap()),
            },
            headers: BTreeMap::new(),
            object: self.object.clone().map(|(kind, id)| ObjectRef { kind: kind.to_owned(), id }),
            version: self.version.clone(),
            occurred_at: None,
            origin: Origin::Webhook,
            key_id: None,
            token: format!("{now}"),
            traceparent: None,
            delivery_id: None,
            parent: None,
        }
    }
}

impl World {
    pub(crate) fn new(handler: Handler) -> Self {
        let registry = Store::new(1);
        // The scheme is not asked what an event is about: the rows say it.
        let scheme = SchemeChoice::Preset("stripe".to_owned());
        let source = Source::new("shop".parse().unwrap(), scheme, handler, at(0));
        registry.tables().sources.insert(source.name.clone(), source);
        Self {
            store: Store::new(1),
            queue: MemoryQueue::new(LIMITS.visibility, 16),
            sources: Sources::new(
                registry,
                Duration::from_secs(1 << 30),
                Duration::from_secs(1 << 30),
            ),
            metrics: Metrics::new("test"),
            clock: AtomicI64::new(0),
            handlers: handlers::SHIPPED,
        }
    }

    pub(crate) fn own(name: &str, tenant: Option<&str>) -> Self {
        let tenant = tenant.map(|tenant| tenant.parse().unwrap());
        Self::new(Handler::Own { name: name.to_owned(), tenant })
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
            payload_max: 1_000_000,
            handlers: self.handlers,
            metrics: &self.metrics,
            now: || self.now(),
        }
    }

    /// An event comes, perhaps again.
    pub(crate) async fn comes(&self, sent: &Sent) -> Outcome {
        self.put(sent).await;
        self.handle(&sent.key()).await
    }

    /// An event is in the inbox, as ingress puts it, and nobody has looked at it.
    pub(crate) async fn put(&self, sent: &Sent) {
        self.later(1);
        let _ = self.store.accept(&sent.row(self.now())).await.unwrap();
    }

    /// Events come, one after the other; then what has to wait is looked at again, as the sweeper does.
    pub(crate) async fn all<'a>(&self, sent: impl IntoIterator<Item = &'a Sent>) {
        for sent in sent {
            self.comes(sent).await;
        }
        self.sweeps().await;
    }

    pub(crate) async fn handle(&self, key: &InboxKey) -> Outcome {
        self.worker().handle(&self.message(key), 0.5, std::future::pending()).await
    }

    /// The process may die in a call of the store.
    pub(crate) async fn handle_or_die(&self, key: &InboxKey) -> Option<Outcome> {
        let (worker, message) = (self.worker(), self.message(key));
        let handling = pin!(worker.handle(&message, 0.5, std::future::pending()));
        self.store.chaos.until_crash(handling).await
    }

    fn message(&self, key: &InboxKey) -> Received {
        let text = InboundMessage(key.clone()).to_text();
        Received { receipt: "r".to_owned(), text, receives: 1, sent_at: self.now() }
    }

    /// The sweeper comes a few times, and sends whatever is due.
    pub(crate) async fn sweeps(&self) {
        for _ in 0..5 {
            self.later(1000);
            for row in self.pending() {
                self.handle(&row.new.key).await;
            }
        }
    }

    fn pending(&self) -> Vec<Row> {
        let tables = self.store.tables();
        let rows = tables.inbox.values().map(|item| item.row.clone());
        rows.filter(|row| row.status == Status::Pending).collect()
    }

    pub(crate) fn now(&self) -> Timestamp {
        at(self.clock.load(Ordering::Relaxed))
    }

    pub(crate) fn later(&self, seconds: i64) {
        self.clock.fetch_add(seconds, Ordering::Relaxed);
    }

    pub(crate) fn row(&self, sent: &Sent) -> Row {
        self.store.tables().inbox[&sent.key()].row.clone()
    }

    /// What became of each change of an event.
    pub(crate) fn results(&self, sent: &Sent) -> Vec<ChangeResult> {
        self.row(sent).results
    }

    pub(crate) fn object(&self, kind: &str, id: &str) -> Option<Object> {
        let object = ObjectRef { kind: kind.to_owned(), id: id.to_owned() };
        self.store.tables().objects.get(&("shop".parse().unwrap(), object)).cloned()
    }

    /// What went out, in the order in which it was written.
    pub(crate) fn out(&self) -> Vec<OutboxEvent> {
        self.store.tables().stream.clone()
    }

    /// Type and payload of what went out for a tenant, sorted.
    pub(crate) fn told(&self, tenant: &str) -> Vec<(String, Value)> {
        let mine = self.out().into_iter().filter(|event| event.tenant.as_str() == tenant);
        let mut told: Vec<_> = mine
            .map(|event| {
                let Payload::Inline(bytes) = &event.payload else { panic!("a large payload") };
                (event.event_type, serde_json::from_slice(bytes).unwrap())
            })
            .collect();
        told.sort_by_key(|(event_type, payload): &(String, Value)| {
            format!("{event_type} {payload}")
        });
        told
    }

    pub(crate) fn end(&self) -> End {
        let tables = self.store.tables();
        let object = |((_, at), is): (&(_, ObjectRef), &Object)| {
            let key = (at.kind.clone(), at.id.clone());
            (key, (is.fields.clone(), is.version.clone(), is.deleted))
        };
        End {
            objects: tables.objects.iter().map(object).collect(),
            operations: tables.operations.clone(),
        }
    }
}

/// Every order of some things.
pub(crate) fn permutations<T: Clone>(of: &[T]) -> Vec<Vec<T>> {
    if of.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for n in 0..of.len() {
        let mut rest = of.to_vec();
        let first = rest.remove(n);
        all.extend(permutations(&rest).into_iter().map(|mut tail| {
            tail.insert(0, first.clone());
            tail
        }));
    }
    all
}

/// Runs a future to its end on this thread: for proptest, whose tests are not async.
pub(crate) fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(future)
}
