//! A deployment in memory, and calls of its api.

use std::{cell::Cell, sync::Arc, time::Duration};

use api::{Api, Edge, Limits, Ports, router};
use axum::{
    body::Body,
    http::{HeaderMap, Method, Request, StatusCode},
};
use domain::{address::AddressPolicy, destination::Reach, id::TenantId};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use serde_json::{Value, json};
use testkit::{
    chaos::{Chaos, Fault, When},
    memory::{MemoryKeyring, MemoryQueue, MemorySecrets, Store},
};
use tower::ServiceExt as _;
use uuid::Uuid;

/// Each port has tables of its own: no route relies on two ports being one store.
pub(crate) enum InMemory {}

impl Ports for InMemory {
    type Inbox = Store;
    type Outbox = Store;
    type Deliveries = Store;
    type Registry = Store;
    type Queues = MemoryQueue;
    type Wakes = MemoryQueue;
    type Keyring = MemoryKeyring;
    type Secrets = MemorySecrets;
    type Watch = Store;
    type Bodies = Store;
}

/// A secret that Stripe might show.
pub(crate) const SECRET: &str = "whsec_CANARY0123456789abcdef0123456789";

/// When everything happens.
pub(crate) fn now() -> Timestamp {
    at(0)
}

/// So many seconds later.
pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_790_000_000 + seconds).unwrap()
}

thread_local! {
    // A test has a thread of its own.
    static MINTED: Cell<u128> = const { Cell::new(0) };
}

/// The first is 1.
fn next_uuid() -> Uuid {
    let number = MINTED.get() + 1;
    MINTED.set(number);
    // A time in front, as version 7 has it: the lane of an event is found by it.
    let millis = u128::try_from(now().as_millisecond()).unwrap();
    Uuid::from_u128((millis << 80) | number)
}

/// Each is another one.
pub(crate) fn next_random() -> [u8; 32] {
    let mut random = [0; 32];
    let number = MINTED.get() + 1;
    MINTED.set(number);
    for (at, byte) in random.iter_mut().enumerate() {
        *byte = u8::try_from((number * 31 + at as u128 * 7) % 251).unwrap();
    }
    random
}

pub(crate) struct Deployment(pub(crate) Arc<Api<InMemory>>);

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
    }

    /// A problem of this kind; its detail.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16, slug: &str) -> String {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        assert_eq!(self.header("content-type"), "application/problem+json");
        let json = self.json();
        assert_eq!(json["type"], format!("urn:postern:problem:{slug}"), "{}", self.text);
        assert_eq!(json["status"], status);
        json["detail"].as_str().unwrap().to_owned()
    }

    /// The fields that a refused request is told of.
    pub(crate) fn fields(&self) -> Vec<String> {
        let problems = self.json()["problems"].as_array().unwrap().clone();
        problems.iter().map(|problem| problem["field"].as_str().unwrap().to_owned()).collect()
    }

    #[track_caller]
    pub(crate) fn good(self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        self.json()
    }
}

impl Deployment {
    pub(crate) fn new() -> Self {
        let queue = || MemoryQueue::new(Duration::from_secs(30), 16);
        let limits = Limits {
            ingress_url: "https://in.example.com".to_owned(),
            addresses: AddressPolicy::default(),
            reach: Reach::new(
                "arn:aws:events:eu-central-1:123456789012:event-bus/postern-ops".parse().unwrap(),
                vec!["postern-InboundQueue".to_owned(), "postern-WakeQueue".to_owned()],
            ),
            endpoints_per_tenant: 3,
            concurrency: 5,
            payload_bytes: 40_000,
            first_due: Duration::from_secs(120),
            delivery_deadline: Duration::from_secs(1000),
            poll_visibility: Duration::from_secs(60),
            pending_shards: 8,
            list_by_source: true,
        };
        Self(Arc::new(Api {
            inbox: Store::default(),
            outbox: Store::default(),
            deliveries: Store::default(),
            registry: Store::default(),
            inbound: queue(),
            wakes: queue(),
            keyring: MemoryKeyring::default(),
            secrets: MemorySecrets::default(),
            tokens: MemorySecrets::default(),
            watch: Store::default(),
            bodies: Store::default(),
            limits,
            edge: Edge { now, uuid: next_uuid, random: || [7; 32] },
        }))
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        let response = router(Arc::clone(&self.0)).oneshot(request).await.unwrap();
        let (head, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        Answer { status: head.status, headers: head.headers, text }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Request::get(path).body(Body::empty()).unwrap()).await
    }

    /// POST without a body.
    pub(crate) async fn ask(&self, path: &str) -> Answer {
        self.send(Request::post(path).body(Body::empty()).unwrap()).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.post_with(path, body, &[]).await
    }

    pub(crate) async fn post_with(
        &self,
        path: &str,
        body: &Value,
        headers: &[(&str, &str)],
    ) -> Answer {
        let mut request = Request::builder().method(Method::POST).uri(path);
        request = request.header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send(request.body(Body::from(body.to_string())).unwrap()).await
    }

    pub(crate) async fn patch(&self, path: &str, body: &Value) -> Answer {
        let request = Request::patch(path).header("content-type", "application/json");
        self.send(request.body(Body::from(body.to_string())).unwrap()).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Answer {
        let request = Request::put(path).header("content-type", "application/json");
        self.send(request.body(Body::from(body.to_string())).unwrap()).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.send(Request::delete(path).body(Body::empty()).unwrap()).await
    }

    /// Every store that can fail.
    pub(crate) fn all_chaos(&self) -> [&Chaos; 9] {
        let api = &self.0;
        let stores =
            [&api.inbox, &api.outbox, &api.deliveries, &api.registry, &api.bodies, &api.watch];
        let [a, b, c, d, e, f] = stores.map(|store| &store.chaos);
        [a, b, c, d, e, f, &api.keyring.chaos, &api.secrets.chaos, &api.tokens.chaos]
    }

    /// Every store fails at every call.
    pub(crate) fn break_all(&self, fault: Fault) {
        for chaos in self.all_chaos() {
            chaos.set(move |_, _| Some((When::Before, fault)));
        }
    }
}

/// A source to add.
pub(crate) fn source(name: &str) -> Value {
    json!({
        "name": name,
        "scheme": {"preset": "stripe"},
        "handler": {"kind": "forward", "tenant": "acme", "types": ["invoice.*"]},
        "secrets": {"2026": SECRET},
    })
}

pub(crate) fn acme() -> TenantId {
    "acme".parse().unwrap()
}
