//! `postern events publish`: one event, or a file with one on each line.

mod file;

use std::{collections::BTreeMap, io::Write};

use http::{HeaderMap, HeaderValue, Method, header};
use serde::Serialize;
use serde_json::{Value, value::RawValue};
use uuid::Uuid;

use crate::{
    client::Client,
    complaint::Complaint,
    print::{self, text},
};

/// Publish an event to a tenant's endpoints, or many from a file
///
/// With --file each line is an event as `POST /v1/events` takes it: a JSON object with `tenant`, `type`, `aggregate_id` and
/// `payload`, and what else it has. They are sent a hundred at a time; a line that is refused stops no other. A run that
/// was cut off is repeated with its key, and publishes nothing twice.
#[derive(clap::Args, Debug)]
pub struct Publish {
    /// The tenant
    #[arg(required_unless_present = "file")]
    tenant: Option<String>,
    /// The event's type, such as `invoice.paid`
    #[arg(required_unless_present = "file")]
    event_type: Option<String>,
    /// What the event is about; events of one aggregate share a lane
    #[arg(long, value_name = "ID", required_unless_present = "file")]
    aggregate: Option<String>,
    /// The version of what it is about, so that receivers can drop what is older
    #[arg(long, value_name = "NUMBER")]
    aggregate_version: Option<u64>,
    /// A label that endpoints can choose by; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = label)]
    label: Vec<(String, String)>,
    /// Names this call: repeating it with the same key publishes nothing more; without one, a new key is made
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// A file with an event on each line; `-` reads standard input. An event without an `idempotency_key` has this call's,
    /// with the number of its line
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["tenant", "event_type", "payload", "aggregate", "aggregate_version", "label"]
    )]
    file: Option<String>,
    /// The payload, as JSON; subscribers get it byte for byte
    #[arg(required_unless_present = "file")]
    payload: Option<String>,
}

fn label(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// An event to publish. The payload stays as it was typed: numbers and spaces too.
#[derive(Serialize)]
struct NewEvent<'a> {
    tenant: &'a str,
    #[serde(rename = "type")]
    event_type: &'a str,
    aggregate_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    aggregate_version: Option<u64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<&'a str, &'a str>,
    payload: &'a RawValue,
}

pub(super) async fn run(
    publish: &Publish,
    client: &Client,
    json: bool,
    out: &mut dyn Write,
) -> Result<(), Complaint> {
    #[expect(clippy::disallowed_methods, reason = "the edge mints the key")]
    let new = || Uuid::now_v7().to_string();
    let key = publish.idempotency_key.clone().unwrap_or_else(new);
    if let Some(file) = &publish.file {
        return file::run(file, &key, client, json, out).await;
    }
    // clap asks for each of them where there is no file.
    let word = |word: &'_ Option<String>| word.clone().unwrap_or_default();
    let tenant = word(&publish.tenant);
    let payload = raw(&word(&publish.payload))?;
    let event = NewEvent {
        tenant: &tenant,
        event_type: &word(&publish.event_type),
        aggregate_id: &word(&publish.aggregate),
        aggregate_version: publish.aggregate_version,
        labels: publish.label.iter().map(|(name, value)| (&**name, &**value)).collect(),
        payload: &payload,
    };
    let done = one(client, &event, &key).await?;
    print::either(json, out, &done, |out| {
        let id = text(&done, "id");
        let again = done.get("repeated").and_then(Value::as_bool).unwrap_or_default();
        let how = if again { "was published before" } else { "is published" };
        writeln!(out, "{id} {how}.\nFollow it with: postern events show {tenant} {id}")
    })
}

fn raw(payload: &str) -> Result<Box<RawValue>, Complaint> {
    serde_json::from_str(payload).map_err(|error| {
        let next = "quote it for the shell, as in '{\"id\": 1}'";
        Complaint::new("the payload is not JSON", error.to_string(), next)
    })
}

async fn one(client: &Client, event: &NewEvent<'_>, key: &str) -> Result<Value, Complaint> {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let value = HeaderValue::from_str(key).map_err(|error| {
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
