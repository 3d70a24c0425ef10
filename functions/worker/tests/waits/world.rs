//! One deployment with one source, whose configuration tests change as an operator does.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use domain::{
    body::{Place, Sha256Hash, StoredBody},
    endpoint::Endpoint,
    event::Origin,
    id::{EndpointId, InboxKey, SourceName, TenantId},
    inbox::{NewRow, Row},
    message::{InboundMessage, Message as _},
    plan::Plan,
    ports::{Inbox as _, Queue as _, Registry, SealedSecret, Stored},
    source::{Handler, SchemeChoice, Source},
};
use flow::body;
use jiff::Timestamp;
use runtime::telemetry::Metrics;
use testkit::{
    LIMITS,
    memory::{MemoryQueue, Store},
};
use worker::{
    Outcome, Received, Sources, Worker,
    handlers::{Current, Event, Handlers, SHIPPED},
};

/// How long a worker believes a source.
pub(crate) const SEEN: Duration = Duration::from_secs(10);

pub(crate) type PlanFn = fn(&Handler, &Event<'_>, &Current) -> Plan;

/// The registry, as the worker and the operator share it.
#[derive(Clone, Debug)]
pub(crate) struct Shared(pub(crate) Arc<Store>);

impl Registry for Shared {
    async fn source(&self, name: &SourceName) -> Stored<Option<Source>> {
        self.0.source(name).await
    }

    async fn endpoints_epoch(&self, tenant: &TenantId) -> Stored<u64> {
        self.0.endpoints_epoch(tenant).await
    }

    async fn endpoints(&self, tenant: &TenantId) -> Stored<Vec<Endpoint>> {
        self.0.endpoints(tenant).await
    }

    async fn endpoint(
        &self,
        tenant: &TenantId,
        id: EndpointId,
    ) -> Stored<Option<(Endpoint, Vec<SealedSecret>)>> {
        self.0.endpoint(tenant, id).await
    }

    async fn sources(&self) -> Stored<Vec<Source>> {
        self.0.sources().await
    }
}

pub(crate) struct World {
    pub(crate) store: Store,
    pub(crate) registry: Shared,
    pub(crate) queue: MemoryQueue,
    pub(crate) metrics: Metrics,
    pub(crate) handlers: Handlers,
    sources: Sources<Shared>,
    clock: AtomicI64,
}

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

pub(crate) fn shop() -> SourceName {
    "shop".parse().unwrap()
}

pub(crate) fn key(id: &str) -> InboxKey {
    InboxKey::new(shop(), id).unwrap()
}

pub(crate) fn new(id: &str, body: &[u8], received: Timestamp) -> NewRow {
    NewRow {
        key: key(id),
        event_type: Some("order.paid".to_owned()),
        received_at: received,
        due_at: received + Duration::from_secs(120),
        body: StoredBody {
            sha256: Sha256Hash::of(body),
            length: body.len() as u64,
            place: Place::Inline(body::compress(body).unwrap()),
        },
        headers: BTreeMap::new(),
        object: None,
        version: None,
        occurred_at: None,
        origin: Origin::Webhook,
        key_id: None,
        token: "token".to_owned(),
        traceparent: None,
        delivery_id: None,
        parent: None,
    }
}

impl World {
    pub(crate) fn new() -> Self {
        let registry = Shared(Arc::new(Store::new(1)));
        let handler = Handler::Forward { tenant: "demo".parse().unwrap(), types: Vec::new() };
        let source = Source::new(shop(), SchemeChoice::Preset("stripe".to_owned()), handler, at(0));
        registry.0.tables().sources.insert(shop(), source);
        let world = Self {
            store: Store::new(1),
            queue: MemoryQueue::new(LIMITS.visibility, 16),
            metrics: Metrics::new("test"),
            handlers: SHIPPED,
            sources: Sources::new(registry.clone(), SEEN, Duration::from_secs(3600)),
            registry,
            clock: AtomicI64::new(0),
        };
        world.set_clock(0);
        world
    }

    pub(crate) fn with(plan: PlanFn) -> Self {
        Self { handlers: Handlers { plan, ..SHIPPED }, ..Self::new() }
    }

    pub(crate) fn set_clock(&self, second: i64) {
        self.clock.store(second, Ordering::Relaxed);
        self.queue.set_now(at(second));
    }

    pub(crate) fn later(&self, seconds: i64) {
        self.set_clock(self.clock.load(Ordering::Relaxed) + seconds);
    }

    pub(crate) fn now(&self) -> Timestamp {
        at(self.clock.load(Ordering::Relaxed))
    }

    /// An operator changes the source.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Source)) {
        change(self.registry.0.tables().sources.get_mut(&shop()).unwrap());
    }

    pub(crate) fn pause(&self) {
        let now = self.now();
        self.change(|source| *source = source.pause("a bug", now));
    }

    pub(crate) fn resume(&self) {
        let now = self.now();
        self.change(|source| *source = source.resume(now));
    }

    /// An event is in the inbox, and no message tells of it.
    pub(crate) async fn put(&self, id: &str) -> InboxKey {
        let row = new(id, b"{}", self.now());
        let _ = self.store.accept(&row).await.unwrap();
        self.store.chaos.heal();
        row.key
    }

    pub(crate) async fn send(&self, key: &InboxKey) {
        assert!(self.queue.send(&[InboundMessage(key.clone())], Duration::ZERO).await.is_empty());
    }

    pub(crate) fn worker(
        &self,
    ) -> Worker<'_, Store, Store, Shared, Store, MemoryQueue, impl Fn() -> Timestamp> {
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

    /// A message of the event is handled, as received for the n-th time.
    pub(crate) async fn handle(&self, key: &InboxKey, receives: u32) -> Outcome {
        let text = InboundMessage(key.clone()).to_text();
        let message = Received { receipt: "r".to_owned(), text, receives, sent_at: self.now() };
        self.worker().handle(&message, 1.0, std::future::pending()).await
    }

    /// Receives messages that can be had now, until there are none, and handles each. Gives how many there were.
    pub(crate) async fn work(&self) -> usize {
        let mut handled = 0;
        while let Some(testkit::memory::Received { receipt, text, receives, sent_at }) =
            self.queue.receive(|_| 0)
        {
            handled += 1;
            assert!(handled < 1000, "messages circle");
            let message = Received { receipt: receipt.clone(), text, receives, sent_at };
            if self.worker().handle(&message, 1.0, std::future::pending()).await.is_settled() {
                self.queue.delete(&receipt);
            }
        }
        handled
    }

    pub(crate) fn row(&self, key: &InboxKey) -> Row {
        self.store.tables().inbox[key].row.clone()
    }

    pub(crate) fn edit(&self, key: &InboxKey, change: impl FnOnce(&mut Row)) {
        change(&mut self.store.tables().inbox.get_mut(key).unwrap().row);
    }
}

pub(crate) fn code(row: &Row) -> &str {
    row.last_error.as_ref().map_or("", |error| &error.code)
}
