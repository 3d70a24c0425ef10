//! `postern events`: one event's story, replay, redelivery, publishing.

use std::io::Write;

use serde_json::{Value, json};

use crate::{
    client::{Client, segment},
    complaint::Complaint,
    print::{self, table},
};

/// Events received and events sent
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
        /// Sent with the call, so that repeating it publishes once
        #[arg(long, value_name = "KEY")]
        idempotency_key: Option<String>,
        /// The payload, as JSON
        payload: String,
    },
    /// Show an outgoing event with its deliveries
    Show {
        /// The tenant
        tenant: String,
        /// The event's id (`evt_...`)
        event: String,
    },
    /// Deliver an event to an endpoint again, with the same id
    Redeliver {
        /// The tenant
        tenant: String,
        /// The event's id (`evt_...`)
        event: String,
        /// The endpoint's id (`ep_...`)
        endpoint: String,
    },
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
            print::pretty(out, &story)
        }
        Events::Replay { source, event } => {
            let done =
                client.post(&format!("{}/replay", received(source, event)), &json!({})).await?;
            print::either(json, out, &done, |out| {
                writeln!(
                    out,
                    "{event} is pending again; see `postern events story {source} {event}`"
                )
            })
        }
        Events::Parked => {
            let parked = client.get("/v1/parked").await?;
            print::either(json, out, &parked, |out| {
                table(out, &["source", "event", "type", "parked", "attempts", "why"], rows(&parked))
            })
        }
        Events::Publish { tenant, event_type, aggregate, idempotency_key, payload } => {
            let event = new_event(tenant, event_type, aggregate, payload)?;
            let done = publish(client, &event, idempotency_key.as_deref()).await?;
            print::pretty(out, &done)
        }
        Events::Show { tenant, event } => {
            let story = client.get(&outgoing(tenant, event)).await?;
            print::pretty(out, &story)
        }
        Events::Redeliver { tenant, event, endpoint } => {
            let path =
                format!("{}/endpoints/{}/redeliver", outgoing(tenant, event), segment(endpoint));
            let done = client.post(&path, &json!({})).await?;
            print::either(json, out, &done, |out| {
                writeln!(out, "{event} is due again at {endpoint}")
            })
        }
    }
}

fn received(source: &str, event: &str) -> String {
    format!("/v1/sources/{}/events/{}", segment(source), segment(event))
}

fn outgoing(tenant: &str, event: &str) -> String {
    format!("/v1/tenants/{}/events/{}", segment(tenant), segment(event))
}

fn new_event(
    tenant: &str,
    event_type: &str,
    aggregate: &str,
    payload: &str,
) -> Result<Value, Complaint> {
    let payload: Box<serde_json::value::RawValue> =
        serde_json::from_str(payload).map_err(|error| {
            Complaint::new(
                "the payload is not JSON",
                error.to_string(),
                "quote it for the shell, as in '{\"id\": 1}'",
            )
        })?;
    Ok(json!({
        "tenant": tenant, "type": event_type, "aggregate_id": aggregate, "payload": payload,
    }))
}

async fn publish(client: &Client, event: &Value, key: Option<&str>) -> Result<Value, Complaint> {
    use http::{HeaderMap, HeaderValue, Method, header};

    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(key) = key {
        let value = HeaderValue::from_str(key).map_err(|error| {
            Complaint::new(
                "the idempotency key cannot be sent",
                error.to_string(),
                "use visible ASCII characters",
            )
        })?;
        headers.insert("idempotency-key", value);
    }
    client.call_good(Method::POST, "/v1/events", headers, event.to_string().into()).await
}

fn rows(parked: &Value) -> Vec<Vec<String>> {
    let parked = parked.as_array().map(Vec::as_slice).unwrap_or_default();
    let row = |event: &Value| {
        let why = event.pointer("/error/message").and_then(Value::as_str).unwrap_or_default();
        let text = |name| print::text(event, name);
        vec![
            text("source"),
            text("event_id"),
            text("event_type"),
            text("parked_at"),
            text("attempts"),
            crate::complaint::printable(why),
        ]
    };
    parked.iter().map(row).collect()
}
