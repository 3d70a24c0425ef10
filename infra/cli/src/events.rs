//! `postern events`: one event's story, replay, redelivery, publishing.

mod story;

use std::io::Write;

use http::{HeaderMap, HeaderValue, Method, header};
use serde::Serialize;
use serde_json::{Value, json, value::RawValue};
use uuid::Uuid;

use crate::{
    client::{Client, segment},
    complaint::Complaint,
    print::{self, table},
};

/// What can be asked.
#[derive(clap::Subcommand, Debug)]
pub enum Events {
    /// Show the whole story of a received event
    Story {
        /// The source
        source: String,
        /// The provider's id of the event
        event: String,
    },
    /// Run a received event through its handler again
    Replay {
        /// The source
        source: String,
        /// The provider's id of the event
        event: String,
    },
    /// List what is parked and waits for a person
    Parked,
    /// Publish an event to a tenant's endpoints
    Publish {
        /// The tenant
        tenant: String,
        /// The event's type, such as `invoice.paid`
        event_type: String,
        /// What the event is about; events of one aggregate share a lane
        #[arg(long, value_name = "ID")]
        aggregate: String,
        /// Names this call: repeating it with the same key publishes nothing more; without one, a new key is made
        #[arg(long, value_name = "KEY")]
        idempotency_key: Option<String>,
        /// The payload, as JSON; subscribers get it byte for byte
        payload: String,
    },
    /// Show an outgoing event with its deliveries
    Show {
        /// The tenant
        tenant: String,
        /// The event's id (`evt_...`)
        event: String,
    },
    /// Deliver an event to an endpoint again, with the same id, after it was given up
    Redeliver {
        /// The tenant
        tenant: String,
        /// The event's id (`evt_...`)
        event: String,
        /// The endpoint's id (`ep_...`)
        endpoint: String,
        /// Also if the endpoint has taken it already
        #[arg(long)]
        include_delivered: bool,
    },
}

impl Events {
    /// Whether it changes something.
    pub fn changes(&self) -> bool {
        matches!(self, Self::Replay { .. } | Self::Publish { .. } | Self::Redeliver { .. })
    }
}

/// Runs one of them.
pub async fn run(
    command: &Events,
    client: &Client,
    json: bool,
    out: &mut dyn Write,
) -> Result<(), Complaint> {
    match command {
        Events::Story { source, event } => {
            let story = client.get(&received(source, event)).await?;
            print::either(json, out, &story, |out| story::received(out, &story))
        }
        Events::Replay { source, event } => {
            let path = format!("{}/replay", received(source, event));
            let done = client.post(&path, &json!({})).await?;
            print::either(json, out, &done, |out| {
                writeln!(out, "{event} is pending again{}.", starts(&done))?;
                writeln!(out, "Follow it with: postern events story {source} {event}")
            })
        }
        Events::Parked => {
            let parked = client.get("/v1/parked").await?;
            print::either(json, out, &parked, |out| {
                let head = ["source", "event", "type", "parked", "attempts", "why"];
                table(out, &head, print::list(&parked, "parked", row))?;
                match parked.get("more") {
                    Some(Value::Bool(true)) => writeln!(out, "... and more, parked earlier"),
                    _ => Ok(()),
                }
            })
        }
        Events::Publish { tenant, event_type, aggregate, idempotency_key, payload } => {
            let payload = raw(payload)?;
            let event = NewEvent { tenant, event_type, aggregate_id: aggregate, payload: &payload };
            let done = publish(client, &event, idempotency_key.as_deref()).await?;
            print::either(json, out, &done, |out| {
                let id = print::text(&done, "id");
                let again = done.get("repeated").and_then(Value::as_bool).unwrap_or_default();
                let how = if again { "was published before" } else { "is published" };
                writeln!(out, "{id} {how}.\nFollow it with: postern events show {tenant} {id}")
            })
        }
        Events::Show { tenant, event } => {
            let story = client.get(&outgoing(tenant, event)).await?;
            print::either(json, out, &story, |out| story::outgoing(out, &story, ""))
        }
        Events::Redeliver { tenant, event, endpoint, include_delivered } => {
            let all = if *include_delivered { "?include_delivered=true" } else { "" };
            let of = outgoing(tenant, event);
            let path = format!("{of}/endpoints/{}/redeliver{all}", segment(endpoint));
            let done = client.post(&path, &json!({})).await.map_err(with_our_words)?;
            print::either(json, out, &done, |out| {
                writeln!(out, "{event} is due again at {endpoint}{}.", starts(&done))?;
                writeln!(out, "Follow it with: postern events show {tenant} {event}")
            })
        }
    }
}

/// When what was asked for begins.
fn starts(done: &Value) -> &'static str {
    match done.get("enqueued") {
        Some(Value::Bool(false)) => {
            "; its message could not be sent, so the sweeper starts it within minutes"
        }
        _ => "",
    }
}

/// The api speaks of its query; here it is an option.
fn with_our_words(complaint: Complaint) -> Complaint {
    let why = complaint.why.replace("`?include_delivered=true`", "--include-delivered");
    Complaint { why, ..complaint }
}

fn received(source: &str, event: &str) -> String {
    format!("/v1/sources/{}/events/{}", segment(source), segment(event))
}

fn outgoing(tenant: &str, event: &str) -> String {
    format!("/v1/tenants/{}/events/{}", segment(tenant), segment(event))
}

/// An event to publish. The payload stays as it was typed: numbers and spaces too.
#[derive(Serialize)]
struct NewEvent<'a> {
    tenant: &'a str,
    #[serde(rename = "type")]
    event_type: &'a str,
    aggregate_id: &'a str,
    payload: &'a RawValue,
}

fn raw(payload: &str) -> Result<Box<RawValue>, Complaint> {
    serde_json::from_str(payload).map_err(|error| {
        let next = "quote it for the shell, as in '{\"id\": 1}'";
        Complaint::new("the payload is not JSON", error.to_string(), next)
    })
}

async fn publish(
    client: &Client,
    event: &NewEvent<'_>,
    key: Option<&str>,
) -> Result<Value, Complaint> {
    #[expect(clippy::disallowed_methods, reason = "the edge mints the key")]
    let key = key.map_or_else(|| Uuid::now_v7().to_string(), str::to_owned);
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let value = HeaderValue::from_str(&key).map_err(|error| {
        let next = "use visible ASCII characters";
        Complaint::new("the idempotency key cannot be sent", error.to_string(), next)
    })?;
    headers.insert("idempotency-key", value);
    // Text and numbers always serialise.
    let body = serde_json::to_string(event).unwrap_or_default();
    let published = client.call_good(Method::POST, "/v1/events", headers, body.into()).await;
    published.map_err(|complaint| {
        if complaint.is_no {
            return complaint;
        }
        // The event may be there, although the answer is not.
        let next = format!("repeat it with --idempotency-key {key}, which publishes nothing twice");
        Complaint { next, ..complaint }
    })
}

fn row(event: &Value) -> Vec<String> {
    let why = event.pointer("/error/message").and_then(Value::as_str).unwrap_or_default();
    let text = |name| print::text(event, name);
    let why = crate::complaint::printable(why);
    vec![
        text("source"),
        text("event_id"),
        text("event_type"),
        text("parked_at"),
        text("attempts"),
        why,
    ]
}
