//! The receiving half of a deployment in memory, and events as the gateway hands them over.

use std::{cell::Cell, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use domain::{
    id::SourceName,
    inbox::Row,
    ports::{PublishedKey, SourceSecret},
    secret::SecretText,
    source::{Handler, SchemeChoice, Source},
};
use flow::accept::Door;
use http::HeaderMap;
use ingress::{
    Ingress, Lookout,
    gateway::{Arrival, Event, Response},
    sources::Sources,
};
use jiff::Timestamp;
use runtime::telemetry::Metrics;
use serde_json::{Value, json};
use testkit::memory::{MemoryQueue, MemorySecrets, Store};

use crate::example::Case;

/// Every port of `ingress`, in memory.
#[derive(Debug)]
pub struct World {
    /// The tables.
    pub store: Store,
    queue: MemoryQueue,
    secrets: MemorySecrets,
    tries: Cell<u64>,
}

impl Default for World {
    fn default() -> Self {
        Self {
            store: Store::default(),
            queue: MemoryQueue::new(Duration::from_secs(30), 16),
            secrets: MemorySecrets::default(),
            tries: Cell::default(),
        }
    }
}

impl World {
    /// Adds a source, with secrets that are called `k0`, `k1` and so on.
    pub fn add(&self, source: &str, preset: &str, secrets: &[&str]) {
        let ids = (0..).map(|index| format!("k{index}"));
        self.add_named(source, preset, ids.zip(secrets.iter().copied()), None);
    }

    /// Adds a source for a case, with what its provider publishes. Without a secret, it waits for one.
    pub fn add_case(&self, source: &str, case: &Case) {
        let secrets = case.secret_ids().into_iter().zip(case.secrets.iter().map(String::as_str));
        let waits = case.secrets.is_empty().then_some(Timestamp::MAX);
        let name = self.add_named(source, case.preset(), secrets, waits);
        let key = |(id, text): (&String, &String)| {
            let (id, text, fetched_at) = (id.clone(), text.clone(), case.now);
            (id.clone(), PublishedKey { id, text, fetched_at })
        };
        if let Some(source) = self.store.tables().sources.get_mut(&name) {
            source.config = case.config.clone();
        }
        self.store.tables().published.insert(name, case.published.iter().map(key).collect());
    }

    fn add_named<'t>(
        &self,
        source: &str,
        preset: &str,
        secrets: impl Iterator<Item = (String, &'t str)>,
        awaits_secret_until: Option<Timestamp>,
    ) -> SourceName {
        let name: SourceName = source.parse().unwrap();
        let secret = |(id, text): (String, &str)| SourceSecret {
            id,
            text: SecretText::new(text.to_owned()),
            expires_at: None,
        };
        self.secrets.set(&name, secrets.map(secret).collect());
        let scheme = SchemeChoice::Preset(preset.to_owned());
        let handler = Handler::Mirror { emit_to: None, states: None };
        let source = Source::new(name.clone(), scheme, handler, Timestamp::UNIX_EPOCH);
        let source = Source { awaits_secret_until, ..source };
        self.store.tables().sources.insert(name.clone(), source);
        name
    }

    /// What the function answers to an event, in a sandbox that has just started.
    pub async fn answer(&self, event: Event, now: Timestamp) -> Value {
        let ingress = Ingress {
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
            budget: Duration::from_secs(4),
        };
        self.tries.set(self.tries.get() + 1);
        let token = self.tries.get().to_string();
        // What `gateway::answer` does, without the lines of metrics on stdout.
        let arrival = Arrival::from(event);
        let answer = ingress.receive(&arrival, token, now).await;
        serde_json::to_value(Response::new(answer, &arrival.method)).unwrap()
    }

    /// The rows of the inbox.
    pub fn rows(&self) -> Vec<Row> {
        self.store.tables().inbox.values().map(|item| item.row.clone()).collect()
    }
}

/// A request to a source, as the gateway hands it over.
///
/// Names of headers are in lower case, repeats joined with commas. `None` for headers that are not text, which no gateway
/// hands over.
pub fn event(
    source: &str,
    method: &str,
    url: &str,
    headers: &HeaderMap,
    body: Body<'_>,
) -> Option<Value> {
    let (address, query) = url.split_once('?').unwrap_or((url, ""));
    let rest = address.strip_prefix("https://").unwrap_or(address);
    let (domain, path) = rest.split_once('/').unwrap_or((rest, ""));
    let joined = |name: &http::HeaderName| {
        let values =
            headers.get_all(name).iter().map(|value| std::str::from_utf8(value.as_bytes()));
        Some((
            name.as_str().to_owned(),
            Value::from(values.collect::<Result<Vec<_>, _>>().ok()?.join(",")),
        ))
    };
    let headers = headers.keys().map(joined).collect::<Option<serde_json::Map<_, _>>>()?;
    let (body, is_base64_encoded) = match body {
        Body::Text(text) => (text.to_owned(), false),
        Body::Binary(bytes) => (STANDARD.encode(bytes), true),
    };
    Some(json!({
        "version": "2.0",
        "routeKey": format!("{method} /webhooks/{{source}}"),
        "rawPath": format!("/{path}"),
        "rawQueryString": query,
        "headers": headers,
        "requestContext": {
            "domainName": domain,
            "http": {"method": method, "path": format!("/{path}"), "sourceIp": "203.0.113.7"},
            "stage": "$default",
        },
        "pathParameters": {"source": source},
        "body": body,
        "isBase64Encoded": is_base64_encoded,
    }))
}

/// A body, as the gateway chooses to hand it over.
#[derive(Clone, Copy, Debug)]
pub enum Body<'a> {
    /// As text.
    Text(&'a str),
    /// In base64.
    Binary(&'a [u8]),
}

impl<'a> Body<'a> {
    /// Text where it can be.
    pub fn of(bytes: &'a [u8]) -> Self {
        std::str::from_utf8(bytes).map_or(Self::Binary(bytes), Self::Text)
    }
}
