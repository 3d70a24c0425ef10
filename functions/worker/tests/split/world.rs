//! One deployment with two sources, `batches` and `plain`, whose events go out as they came.

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::atomic::{AtomicI64, AtomicU32, Ordering},
    time::Duration,
};

use domain::{
    body::{Place, Sha256Hash, StoredBody},
    event::Origin,
    id::InboxKey,
    inbox::{NewRow, Row, Status},
    message::{InboundMessage, Message as _},
    outbox::Payload,
    ports::{Inbox as _, Queue as _},
    source::{Handler, SchemeChoice, Source},
};
use flow::body;
use jiff::Timestamp;
use runtime::telemetry::Metrics;
use serde_json::{Value, json};
use testkit::{
    LIMITS,
    memory::{MemoryQueue, Store},
};
use worker::{Outcome, Received, Sources, Worker, handlers};

pub(crate) struct World {
    pub(crate) store: Store,
    pub(crate) queue: MemoryQueue,
    pub(crate) metrics: Metrics,
    sources: Sources<Store>,
    clock: AtomicI64,
    receives: AtomicU32,
}

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

pub(crate) fn key(source: &str, id: &str) -> InboxKey {
    InboxKey::new(source.parse().unwrap(), id).unwrap()
}

/// A list of events, as the provider sends it.
pub(crate) fn list(ids: &[&str]) -> Value {
    json!({ "events": ids.iter().map(|id| event(id)).collect::<Vec<_>>() })
}

pub(crate) fn event(id: &str) -> Value {
    json!({ "id": id, "type": "order.paid" })
}

fn scheme(is_batch: bool) -> SchemeChoice {
    let mut own = json!({ "like": "stripe" });
    if is_batch {
        own["batch"] = "/events".into();
    }
    SchemeChoice::Own(own)
}

impl World {
    pub(crate) fn new() -> Self {
        let registry = Store::new(1);
        for (name, is_batch) in [("batches", true), ("plain", false)] {
            let forward = Handler::Forward { tenant: "demo".parse().unwrap(), types: Vec::new() };
            let source = Source::new(name.parse().unwrap(), scheme(is_batch), forward, at(0));
            registry.tables().sources.insert(source.name.clone(), source);
        }
        Self {
            store: Store::new(1),
            queue: MemoryQueue::new(LIMITS.visibility, 16),
            sources: Sources::new(registry, Duration::from_secs(300), Duration::from_secs(3600)),
            metrics: Metrics::new("test"),
            clock: AtomicI64::new(0),
            receives: AtomicU32::new(0),
        }
    }

    /// One of the sources is configured in another way; the other one is gone.
    pub(crate) fn change(&mut self, name: &str, change: impl FnOnce(&mut Source)) {
        let forward = Handler::Forward { tenant: "demo".parse().unwrap(), types: Vec::new() };
        let mut source =
            Source::new(name.parse().unwrap(), scheme(name == "batches"), forward, at(0));
        change(&mut source);
        self.only(source);
    }

    /// This source, and no other.
    pub(crate) fn only(&mut self, source: Source) {
        let registry = Store::new(1);
        registry.tables().sources.insert(source.name.clone(), source);
        self.sources = Sources::new(registry, Duration::ZERO, Duration::ZERO);
    }

    /// A request is in the inbox, as ingress puts it, and its message in the queue.
    pub(crate) async fn came(&self, source: &str, body: &[u8], encoding: Option<&str>) -> InboxKey {
        let sha256 = Sha256Hash::of(body);
        let row = NewRow {
            key: InboxKey::of_body(source.parse().unwrap(), &sha256.0),
            event_type: None,
            received_at: self.now(),
            due_at: self.now() + Duration::from_secs(120),
            body: StoredBody {
                sha256,
                length: body.len() as u64,
                place: Place::Inline(body::compress(body).unwrap()),
            },
            headers: encoding
                .map(|name| BTreeMap::from([("content-encoding".to_owned(), name.to_owned())]))
                .unwrap_or_default(),
            object: None,
            version: None,
            occurred_at: None,
            origin: Origin::Webhook,
            key_id: Some("k1".to_owned()),
            token: "token".to_owned(),
            traceparent: Some("00-1-2-01".to_owned()),
            delivery_id: None,
            parent: None,
        };
        self.put(&row).await;
        row.key
    }

    pub(crate) async fn put(&self, row: &NewRow) {
        let _ = self.store.accept(row).await.unwrap();
        self.send(&row.key).await;
        self.store.chaos.heal();
        self.queue.chaos.heal();
    }

    pub(crate) async fn send(&self, key: &InboxKey) {
        assert!(self.queue.send(&[InboundMessage(key.clone())], Duration::ZERO).await.is_empty());
    }

    pub(crate) fn worker(
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
            handlers: handlers::SHIPPED,
            metrics: &self.metrics,
            now: || self.now(),
        }
    }

    /// A message that names a row, received for the first time.
    pub(crate) fn message(&self, key: &InboxKey) -> Received {
        Received {
            receipt: format!("r{}", self.receives.fetch_add(1, Ordering::Relaxed)),
            text: InboundMessage(key.clone()).to_text(),
            receives: 1,
            sent_at: self.now(),
        }
    }

    pub(crate) async fn handle(&self, key: &InboxKey) -> Outcome {
        self.worker().handle(&self.message(key), 1.0, std::future::pending()).await
    }

    /// The process lives for so many polls of its work at most, or until a call of it kills it.
    pub(crate) async fn handle_for(&self, key: &InboxKey, polls: u32) -> Option<Outcome> {
        let (worker, message) = (self.worker(), self.message(key));
        let mut left = polls;
        let deadline = std::future::poll_fn(move |context| {
            if left == 0 {
                return std::task::Poll::Ready(());
            }
            left -= 1;
            context.waker().wake_by_ref();
            std::task::Poll::Pending
        });
        self.store.chaos.until_crash(pin!(worker.handle(&message, 1.0, deadline))).await
    }

    /// Handles what is in the queue, and what the sweeper would send, until nothing is owed.
    pub(crate) async fn rest(&self) {
        for _ in 0..200 {
            while let Some(got) = self.queue.receive(|_| 0) {
                let message = Received {
                    receipt: got.receipt,
                    text: got.text,
                    receives: got.receives,
                    sent_at: got.sent_at,
                };
                let outcome = self.worker().handle(&message, 1.0, std::future::pending()).await;
                if outcome.is_settled() {
                    self.queue.delete(&message.receipt);
                }
            }
            let owed: Vec<_> =
                self.rows(Status::Pending).into_iter().map(|row| row.new.key).collect();
            if owed.is_empty() {
                return;
            }
            self.later(1000);
            for key in owed {
                self.send(&key).await;
            }
        }
        panic!("something is still owed: {:?}", self.rows(Status::Pending));
    }

    pub(crate) fn now(&self) -> Timestamp {
        at(self.clock.load(Ordering::Relaxed))
    }

    pub(crate) fn later(&self, seconds: i64) {
        self.clock.fetch_add(seconds, Ordering::Relaxed);
        self.queue.set_now(self.now());
    }

    pub(crate) fn row(&self, key: &InboxKey) -> Row {
        self.store.tables().inbox[key].row.clone()
    }

    pub(crate) fn rows(&self, status: Status) -> Vec<Row> {
        let tables = self.store.tables();
        let rows = tables.inbox.values().map(|item| item.row.clone());
        rows.filter(|row| row.status == status).collect()
    }

    pub(crate) fn code(&self, key: &InboxKey) -> String {
        self.row(key).last_error.map(|error| error.code).unwrap_or_default()
    }

    /// What went out, in order of its bytes.
    pub(crate) fn told(&self) -> Vec<String> {
        let tables = self.store.tables();
        let payloads = tables.outbox.values().map(|row| match &row.event.payload {
            Payload::Inline(bytes) => String::from_utf8(bytes.clone()).unwrap(),
            Payload::Bucket(sha256) => sha256.to_string(),
        });
        let mut told: Vec<_> = payloads.collect();
        told.sort();
        told
    }

    /// The message of a row is the last of it that is left: all others are lost.
    pub(crate) fn purge(&self) {
        self.queue.purge();
    }
}
