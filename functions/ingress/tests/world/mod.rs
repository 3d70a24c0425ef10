//! One sandbox of ingress, with every port in memory, and the literal events that come to it.

#![allow(dead_code, reason = "each suite uses its part")]
#![allow(clippy::indexing_slicing, clippy::panic, reason = "a test that cannot go on has failed")]

use std::time::Duration;

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
use http::{HeaderMap, StatusCode};
use ingress::{
    Ingress, Lookout,
    gateway::{Arrival, Event, Response},
    sources::Sources,
};
use jiff::Timestamp;
use runtime::telemetry::Metrics;
use serde_json::{Value, json};
use signing::{Scheme, Secret, SigningKey, sign};
use testkit::memory::{MemoryQueue, MemorySecrets, Store};

pub(crate) const S1: &str = "whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=";
pub(crate) const B_ASCII: &[u8] = br#"{"type":"invoice.paid","data":{"id":"in_1","amount":1999}}"#;

/// T0 of the field cases.
pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_760_000_000 + second).unwrap()
}

pub(crate) fn name(text: &str) -> SourceName {
    text.parse().unwrap()
}

pub(crate) fn event(file: &str) -> Value {
    let path = format!("{}/tests/events/{file}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

pub(crate) fn with(mut event: Value, pointer: &str, value: impl Into<Value>) -> Value {
    *event.pointer_mut(pointer).unwrap() = value.into();
    event
}

pub(crate) fn with_header(mut event: Value, name: &str, value: Option<&str>) -> Value {
    let headers = event["headers"].as_object_mut().unwrap();
    match value {
        Some(value) => headers.insert(name.to_owned(), value.into()),
        None => headers.remove(name),
    };
    event
}

pub(crate) fn arrival(event: Value) -> Arrival {
    serde_json::from_value::<Event>(event).unwrap().into()
}

pub(crate) struct World {
    pub(crate) store: Store,
    pub(crate) queue: MemoryQueue,
    pub(crate) secrets: MemorySecrets,
    pub(crate) budget: Duration,
}

impl World {
    pub(crate) fn new() -> Self {
        let world = Self {
            store: Store::default(),
            queue: MemoryQueue::new(Duration::from_secs(30), 16),
            secrets: MemorySecrets::default(),
            budget: Duration::from_secs(4),
        };
        let preset = |name: &str| SchemeChoice::Preset(name.to_owned());
        world.add("sw", preset("standard_webhooks"), S1);
        world.add("stripe", preset("stripe"), "field-secret-1");
        world.add("github", preset("github"), "field-secret-1");
        let no_id = json!({"like": "github", "identity": {"id": null, "type": null}});
        world.add("noid", SchemeChoice::Own(no_id), "field-secret-1");
        world
    }

    pub(crate) fn add(&self, source: &str, scheme: SchemeChoice, secret: &str) {
        let name = name(source);
        let handler = Handler::Mirror { emit_to: None, states: None };
        self.secrets.set(&name, vec![key("k1", secret)]);
        let source = Source::new(name.clone(), scheme, handler, at(-1000));
        self.store.tables().sources.insert(name, source);
    }

    pub(crate) fn ingress(
        &self,
    ) -> Ingress<'_, Store, MemorySecrets, Store, MemoryQueue, Store, Store> {
        Ingress {
            sources: Sources::new(
                &self.store,
                &self.secrets,
                &self.store,
                Duration::from_mins(5),
                Duration::from_mins(60),
            ),
            door: Door {
                inbox: &self.store,
                queue: &self.queue,
                bodies: &self.store,
                first_due: Duration::from_secs(120),
            },
            lookout: Lookout::new(&self.store),
            metrics: Metrics::new("test"),
            budget: self.budget,
        }
    }

    /// One event, to a sandbox that has just started.
    pub(crate) async fn answer(&self, event: Value, second: i64) -> StatusCode {
        let (ingress, arrival) = (self.ingress(), arrival(event));
        let token = format!("{second}-{}", self.rows().len());
        let work = ingress.receive(&arrival, token, at(second));
        // Only a bug comes near this.
        tokio::time::timeout(Duration::from_secs(20), work).await.unwrap().status()
    }

    /// One event to this sandbox, and what the gateway is told.
    pub(crate) async fn response(&self, event: Value, second: i64) -> Value {
        let (ingress, arrival) = (self.ingress(), arrival(event));
        let token = format!("{second}-{}", self.rows().len());
        let answer = ingress.receive(&arrival, token, at(second)).await;
        serde_json::to_value(Response::new(answer, &arrival.method)).unwrap()
    }

    /// Changes the configuration of a source.
    pub(crate) fn configure(&self, source: &str, change: impl FnOnce(&mut Source)) {
        change(self.store.tables().sources.get_mut(&name(source)).unwrap());
    }

    /// How often a call of the store was made.
    pub(crate) fn calls(&self, call: &str) -> usize {
        self.store.chaos.calls().iter().filter(|called| **called == call).count()
    }

    pub(crate) fn rows(&self) -> Vec<Row> {
        self.store.tables().inbox.values().map(|item| item.row.clone()).collect()
    }

    pub(crate) fn row(&self) -> Row {
        let [row] = self.rows().try_into().unwrap();
        row
    }

    pub(crate) async fn body(&self, row: &Row) -> Vec<u8> {
        match body::open(&row.new, &self.store, &self.store).await.unwrap() {
            Opened::Bytes(bytes) => bytes,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn messages(&self) -> usize {
        std::iter::from_fn(|| self.queue.receive(|_| 0)).count()
    }
}

pub(crate) fn key(id: &str, secret: &str) -> SourceSecret {
    SourceSecret { id: id.to_owned(), text: SecretText::new(secret.to_owned()), expires_at: None }
}

/// The status of an event to a fresh world, and how many rows it left.
pub(crate) async fn alone(event: Value) -> (u16, usize) {
    let world = World::new();
    let status = world.answer(event, 0).await;
    (status.as_u16(), world.rows().len())
}

/// Name, source (or `-`) and value of what was counted.
pub(crate) fn counted(metrics: &Metrics) -> Vec<(String, String, f64)> {
    let lines =
        metrics.lines(at(0)).into_iter().map(|line| serde_json::from_str::<Value>(&line).unwrap());
    lines
        .flat_map(|line| {
            let source =
                line.get("source").map_or("-", |source| source.as_str().unwrap()).to_owned();
            let of = |(name, value): (&String, &Value)| {
                Some((name.clone(), source.clone(), value.as_f64()?))
            };
            line.as_object().unwrap().iter().filter_map(of).collect::<Vec<_>>()
        })
        .collect()
}

pub(crate) fn preset(name: &str) -> SchemeChoice {
    SchemeChoice::Preset(name.to_owned())
}

/// A literal event of the gateway: a request without a query and, if it has a body, one of text.
pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Value {
    let segments: Vec<&str> = path.split('/').skip(2).collect();
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let mut parameters = json!({});
    for (name, value) in ["source", "slot"].into_iter().zip(&segments) {
        parameters[name] = value.split('?').next().into();
    }
    let headers: serde_json::Map<String, Value> =
        headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect();
    json!({
        "version": "2.0",
        "routeKey": "ANY",
        "rawPath": path,
        "rawQueryString": query,
        "headers": headers,
        "pathParameters": parameters,
        "requestContext": {
            "domainName": "hooks.example",
            "http": { "method": method, "path": path, "sourceIp": "203.0.113.9" },
            "stage": "$default",
        },
        "body": body,
        "isBase64Encoded": false,
    })
}

/// A request that its provider signed.
pub(crate) fn signed(
    source: &str,
    scheme: &Scheme,
    secret: &str,
    body: &str,
    second: i64,
) -> Value {
    let key = SigningKey::parse(scheme, &Secret::new(secret)).unwrap();
    let url = format!("https://hooks.example/webhooks/{source}");
    let outgoing = sign::Outgoing {
        method: "POST",
        url: &url,
        headers: HeaderMap::new(),
        id: Some("id-1"),
        event_type: Some("some.type"),
        body: body.as_bytes(),
    };
    let headers = sign::sign_as(scheme, &key, &outgoing, at(second)).unwrap();
    let headers: Vec<_> =
        headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
    request("POST", &format!("/webhooks/{source}"), &headers, body)
}
