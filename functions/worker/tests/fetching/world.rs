//! One deployment with one source, `shop`, whose provider is asked; and the provider.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU32, Ordering},
    },
    time::Duration,
};

use domain::{
    body::{Place, Sha256Hash, StoredBody},
    event::{Object, ObjectRef, Origin, Version},
    fetch::{Fetch, FetchChoice, Pace},
    id::{InboxKey, SourceName},
    inbox::{ChangeResult, NewRow, Row},
    message::{InboundMessage, Message as _},
    outbox::Payload,
    ports::{Inbox as _, SourceSecret, SourceSecrets, Stored, Turn, Turns},
    secret::SecretText,
    source::{Handler, SchemeChoice, Source},
};
use flow::body;
use jiff::Timestamp;
use runtime::telemetry::Metrics;
use serde_json::Value;
use testkit::{
    LIMITS,
    memory::{MemoryQueue, MemorySecrets, Store},
};
use worker::{
    Outcome, Received, Sources, Worker,
    fetching::Asker,
    handlers::{Handlers, SHIPPED},
};

use crate::provider::{Provider, Reply};

/// When a test begins.
pub(crate) const BEGIN: i64 = 1_800_000_000_000;

pub(crate) fn at(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(BEGIN + ms).unwrap()
}

pub(crate) fn shop() -> SourceName {
    "shop".parse().unwrap()
}

pub(crate) fn invoice() -> ObjectRef {
    ObjectRef { kind: "invoice".to_owned(), id: "in_1".to_owned() }
}

pub(crate) const LEASE: &str = "OBJECT#shop#invoice#in_1";

/// Shared tables: the worker's and the asker's are one.
struct Shared<T>(Arc<T>);

impl Turns for Shared<Store> {
    async fn take_turn(
        &self,
        source: &SourceName,
        pace: Pace,
        patience: Duration,
        now: Timestamp,
    ) -> Stored<Turn> {
        self.0.take_turn(source, pace, patience, now).await
    }

    async fn hold_turns(&self, source: &SourceName, until: Timestamp) -> Stored<()> {
        self.0.hold_turns(source, until).await
    }
}

impl SourceSecrets for Shared<MemorySecrets> {
    async fn of(&self, source: &SourceName) -> Stored<Vec<SourceSecret>> {
        self.0.of(source).await
    }
}

pub(crate) struct World {
    pub(crate) store: Arc<Store>,
    pub(crate) tokens: Arc<MemorySecrets>,
    pub(crate) provider: Provider,
    pub(crate) handlers: Handlers,
    pub(crate) metrics: Metrics,
    queue: MemoryQueue,
    sources: Sources<Store>,
    clock: Arc<AtomicI64>,
    receipts: AtomicU32,
}

pub(crate) fn token(id: &str, text: &str) -> SourceSecret {
    SourceSecret { id: id.to_owned(), text: SecretText::new(text.to_owned()), expires_at: None }
}

impl World {
    /// A mirror of Stripe's objects, which asks about each event, and tells the tenant `demo`.
    pub(crate) async fn new(reply: Reply) -> Self {
        Self::with(reply, |_| ()).await
    }

    pub(crate) async fn with(reply: Reply, change: impl FnOnce(&mut Source)) -> Self {
        let scheme = SchemeChoice::Preset("stripe".to_owned());
        let handler = Handler::Mirror { emit_to: Some("demo".parse().unwrap()), states: None };
        let fetch = Fetch { choice: FetchChoice::Preset("stripe".to_owned()), when: None };
        let mut source =
            Source { fetch: Some(fetch), ..Source::new(shop(), scheme, handler, at(0)) };
        change(&mut source);
        let registry = Store::new(1);
        registry.tables().sources.insert(shop(), source);
        let (store, tokens) = (Arc::new(Store::new(1)), Arc::new(MemorySecrets::default()));
        tokens.set(&shop(), vec![token("1", "sk_canary_1")]);
        let provider = Provider::answering(reply).await;
        let clock = Arc::new(AtomicI64::new(BEGIN));
        let fresh = (Duration::from_secs(300), Duration::from_secs(3600));
        let times = (Duration::from_millis(500), Duration::from_secs(45));
        let now = {
            let clock = Arc::clone(&clock);
            move || Timestamp::from_millisecond(clock.load(Ordering::Relaxed)).unwrap()
        };
        let (turns, secrets) = (Shared(Arc::clone(&store)), Shared(Arc::clone(&tokens)));
        let asker = Asker::new(turns, secrets, provider.client(), now, times, fresh);
        let sources = Sources::new(registry, fresh.0, fresh.1).asking(asker);
        Self {
            store,
            tokens,
            provider,
            handlers: SHIPPED,
            metrics: Metrics::new("test"),
            queue: MemoryQueue::new(LIMITS.visibility, 16),
            sources,
            clock,
            receipts: AtomicU32::new(0),
        }
    }

    pub(crate) fn later(&self, ms: i64) {
        self.clock.fetch_add(ms, Ordering::Relaxed);
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_millisecond(self.clock.load(Ordering::Relaxed)).unwrap()
    }

    /// An event about the invoice is accepted now.
    pub(crate) async fn accept(&self, id: &str, version: Option<u64>, body: &Value) -> InboxKey {
        self.accept_of(id, "invoice.updated", Some(invoice()), version, body).await
    }

    pub(crate) async fn accept_of(
        &self,
        id: &str,
        event_type: &str,
        object: Option<ObjectRef>,
        version: Option<u64>,
        body: &Value,
    ) -> InboxKey {
        let key = InboxKey::new(shop(), id).unwrap();
        let body = body.to_string();
        let now = self.now();
        let row = NewRow {
            key: key.clone(),
            event_type: Some(event_type.to_owned()),
            received_at: now,
            due_at: now,
            body: StoredBody {
                sha256: Sha256Hash::of(body.as_bytes()),
                length: body.len() as u64,
                place: Place::Inline(body::compress(body.as_bytes()).unwrap()),
            },
            headers: BTreeMap::new(),
            object,
            version: version.map(Version::Number),
            occurred_at: None,
            origin: Origin::Webhook,
            key_id: None,
            token: "token".to_owned(),
            traceparent: None,
            delivery_id: None,
            parent: None,
        };
        let _ = self.store.accept(&row).await.unwrap();
        key
    }

    /// One receive of its message.
    pub(crate) async fn handle(&self, key: &InboxKey) -> Outcome {
        self.handle_until(key, Timestamp::MAX).await
    }

    pub(crate) async fn handle_until(&self, key: &InboxKey, ends: Timestamp) -> Outcome {
        self.handle_with(key, ends, 1.0).await
    }

    pub(crate) async fn handle_with(
        &self,
        key: &InboxKey,
        ends: Timestamp,
        jitter: f64,
    ) -> Outcome {
        let receipt = format!("receipt {}", self.receipts.fetch_add(1, Ordering::Relaxed));
        let text = InboundMessage(key.clone()).to_text();
        let message = Received { receipt, text, receives: 1, sent_at: at(0) };
        self.worker().handle_until(&message, jitter, std::future::pending(), ends).await
    }

    fn worker(
        &self,
    ) -> Worker<'_, Store, Store, Store, Store, MemoryQueue, impl Fn() -> Timestamp> {
        Worker {
            inbox: &*self.store,
            state: &*self.store,
            sources: &self.sources,
            bodies: &*self.store,
            queue: &self.queue,
            limits: LIMITS,
            payload_max: 1_000_000,
            handlers: self.handlers,
            metrics: &self.metrics,
            now: || self.now(),
        }
    }

    pub(crate) fn row(&self, key: &InboxKey) -> Row {
        self.store.tables().inbox[key].row.clone()
    }

    pub(crate) fn object(&self) -> Option<Object> {
        self.store.tables().objects.get(&(shop(), invoice())).cloned()
    }

    /// Type and payload of the outgoing events, in the order in which they were written.
    pub(crate) fn told(&self) -> Vec<(String, Value)> {
        let tables = self.store.tables();
        let told = tables.stream.iter().map(|event| {
            let Payload::Inline(bytes) = &event.payload else { panic!("{event:?}") };
            (event.event_type.clone(), serde_json::from_slice(bytes).unwrap())
        });
        told.collect()
    }

    /// Until when the invoice's lease is held.
    pub(crate) fn lease(&self) -> Option<Timestamp> {
        self.store.tables().leases.get(LEASE).map(|(_, _, until)| *until)
    }
}

/// What became of each change, in short.
pub(crate) fn results(outcome: &Outcome) -> Vec<String> {
    let Outcome::Finished { results, .. } = outcome else { panic!("{outcome:?}") };
    results.iter().map(|ChangeResult { what, result, .. }| format!("{what} {result:?}")).collect()
}

/// The code and the words of why an event is not finished.
pub(crate) fn why(outcome: &Outcome) -> (String, String) {
    match outcome {
        Outcome::Retry { failure, .. } | Outcome::Parked(failure) => {
            (failure.code.clone(), failure.message.clone())
        }
        Outcome::Waits { reason, .. } => (reason.code.clone(), reason.message.clone()),
        other => panic!("{other:?}"),
    }
}
