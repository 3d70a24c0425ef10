//! The function with every port in memory, and the literal events of `events/`.

use std::{fs, time::Duration};

use domain::{
    id::SourceName,
    inbox::Row,
    ports::SourceSecret,
    secret::SecretText,
    source::{Handler, SchemeChoice, Source},
};
use flow::{
    accept::Door,
    body::{self, Opened},
};
use ingress::{
    Ingress, Lookout,
    gateway::{Arrival, Event, Response},
    sources::Sources,
};
use jiff::Timestamp;
use runtime::telemetry::Metrics;
use serde_json::Value;
use testkit::memory::{MemoryQueue, MemorySecrets, Store};

/// S1 of the field cases.
pub(crate) const S1: &str = "whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=";
/// The text secret of the field cases.
pub(crate) const TEXT: &str = "field-secret-1";

/// T0 of the field cases.
pub(crate) fn now() -> Timestamp {
    Timestamp::from_second(1_760_000_000).unwrap()
}

/// A literal event.
pub(crate) fn event(file: &str) -> Value {
    let path = format!("{}/tests/events/{file}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// The same event with another value somewhere.
pub(crate) fn with(mut event: Value, pointer: &str, value: impl Into<Value>) -> Value {
    *event.pointer_mut(pointer).unwrap() = value.into();
    event
}

/// The same event with another header.
pub(crate) fn with_header(mut event: Value, name: &str, value: &str) -> Value {
    event["headers"][name] = value.into();
    event
}

/// The request of an event.
pub(crate) fn arrival(event: Value) -> Arrival {
    serde_json::from_value::<Event>(event).unwrap().into()
}

/// One deployment, with the sources `sw`, `stripe` and `github`.
pub(crate) struct World {
    pub(crate) store: Store,
    pub(crate) queue: MemoryQueue,
    pub(crate) secrets: MemorySecrets,
}

impl World {
    pub(crate) fn new() -> Self {
        let world = Self {
            store: Store::default(),
            queue: MemoryQueue::new(Duration::from_secs(30), 16),
            secrets: MemorySecrets::default(),
        };
        world.add("sw", "standard_webhooks", S1);
        world.add("stripe", "stripe", TEXT);
        world.add("github", "github", TEXT);
        world
    }

    fn add(&self, source: &str, preset: &str, secret: &str) {
        let name: SourceName = source.parse().unwrap();
        let text = SecretText::new(secret.to_owned());
        self.secrets.set(&name, vec![SourceSecret { id: "k".to_owned(), text, expires_at: None }]);
        let scheme = SchemeChoice::Preset(preset.to_owned());
        let handler = Handler::Mirror { emit_to: None };
        let source = Source::new(name.clone(), scheme, handler, Timestamp::UNIX_EPOCH);
        self.store.tables().sources.insert(name, source);
    }

    /// The function in a sandbox that has just started.
    pub(crate) fn ingress(
        &self,
    ) -> Ingress<'_, Store, MemorySecrets, Store, MemoryQueue, Store, Store> {
        let (fresh, stale) = (Duration::from_mins(5), Duration::from_mins(60));
        Ingress {
            sources: Sources::new(&self.store, &self.secrets, &self.store, fresh, stale),
            door: Door {
                inbox: &self.store,
                queue: &self.queue,
                bodies: &self.store,
                first_due: Duration::from_secs(120),
            },
            lookout: Lookout::new(&self.store),
            metrics: Metrics::new("test"),
            // Nothing here waits; debug builds take their time over large bodies.
            budget: Duration::from_secs(60),
        }
    }

    /// What the gateway gets back.
    pub(crate) async fn respond(&self, arrival: &Arrival) -> Value {
        let answer = self.ingress().receive(arrival, "t".to_owned(), now()).await;
        serde_json::to_value(Response::new(answer, &arrival.method)).unwrap()
    }

    /// The one row.
    pub(crate) fn row(&self) -> Row {
        let rows: Vec<_> = self.store.tables().inbox.values().map(|i| i.row.clone()).collect();
        let [row] = rows.try_into().unwrap();
        row
    }

    /// The body as the worker will read it.
    pub(crate) async fn body(&self, row: &Row) -> Vec<u8> {
        match body::open(&row.new, &self.store, &self.store).await.unwrap() {
            Opened::Bytes(bytes) => bytes,
            other => panic!("{other:?}"),
        }
    }
}

/// The status of an event to a fresh world, and what is kept under which id.
pub(crate) async fn alone(event: Value) -> (u64, Option<(String, Vec<u8>)>) {
    let world = World::new();
    let status = world.respond(&arrival(event)).await["statusCode"].as_u64().unwrap();
    if world.store.tables().inbox.is_empty() {
        return (status, None);
    }
    let row = world.row();
    let body = world.body(&row).await;
    (status, Some((row.new.key.event_id().to_owned(), body)))
}
