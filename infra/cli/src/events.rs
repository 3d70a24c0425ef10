//! `postern events`: one event's story, replay, redelivery, publishing.

pub(crate) mod replay;
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
    #[expect(missing_docs, reason = "words here would hide those of its options from `--help`")]
    Replay(replay::Replay),
    /// List what is parked and waits for a person, the latest first
    Parked {
        /// Only events of this source
        #[arg(long, value_name = "SOURCE")]
        source: Option<String>,
        /// How many at most, 1 to 100
        #[arg(long, value_name = "NUMBER")]
        limit: Option<u32>,
        /// Go on behind a list, with what it said
        #[arg(long, value_name = "MARK")]
        before: Option<String>,
    },
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
        match self {
            Self::Replay(replay) => replay.changes(),
            Self::Publish { .. } | Self::Redeliver { .. } => true,
            Self::Story { .. } | Self::Parked { .. } | Self::Show { .. } => false,
        }
    }
}

/// Runs one of them.
pub async fn run(
    command: &Events,
    client: &Client,
    deployment: &[String],
    json: bool,
    out: &mut dyn Write,
) -> Result<(), Complaint> {
    match command {
        Events::Story { source, event } => {
            let story = client.get(&received(source, event)).await?;
            print::either(json, out, &story, |out| story::received(out, &story))
        }
        Events::Replay(replay) => replay::run(replay, client, deployment, json, out).await,
        Events::Parked { source, limit, before } => {
            let limit = limit.map(|limit| limit.to_string());
            let query = [("source", source), ("limit", &limit), ("before", before)];
            let query = query
                .into_iter()
                .filter_map(|(name, value)| Some(format!("{name}={}", segment(value.as_ref()?))));
            let query = query.collect::<Vec<_>>().join("&");
            let mark = if query.is_empty() { "" } else { "?" };
            let parked = client.get(&format!("/v1/parked{mark}{query}")).await?;
            print::either(json, out, &parked, |out| {
                let head = ["source", "event", "type", "parked", "attempts", "why", "next"];
                table(out, &head, print::list(&parked, "parked", row))?;
                match parked.get("next") {
                    Some(Value::String(_)) => {
                        let next = print::text(&parked, "next");
                        writeln!(out, "... and more, parked earlier: --before '{next}'")
                    }
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
    let error = event.get("error").unwrap_or(&Value::Null);
    let why = format!("{}: {}", print::text(error, "code"), print::text(error, "message"));
    let text = |name| print::text(event, name);
    vec![
        text("source"),
        text("event_id"),
        text("event_type"),
        text("parked_at"),
        text("attempts"),
        if error.is_null() { "-".to_owned() } else { why },
        text("next_action"),
    ]
}
