//! Events published over HTTP.

use std::sync::Arc;

use axum::{
    extract::State,
    http::{HeaderMap, StatusCode},
};
use domain::{
    body::Sha256Hash,
    id::{EventId, TenantId},
    outbox::{INLINE_MAX, OutboxEvent, Payload},
    ports::{Bodies as _, Outbox as _, Published, StoreError},
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{Api, Ports, Problem, problem::Findings, request::Json};

/// An event to publish.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewEvent {
    tenant: String,
    #[serde(rename = "type")]
    event_type: String,
    /// The version of the type's schema; 1 if it is left out.
    #[serde(default = "first_version")]
    schema_version: u32,
    /// What the event is about. Events of one aggregate share a lane.
    aggregate_id: String,
    /// The aggregate's version, so that receivers can drop what is old.
    #[serde(default)]
    aggregate_version: Option<u64>,
    /// Sent to subscribers byte for byte as it stands here.
    payload: Box<RawValue>,
}

fn first_version() -> u32 {
    1
}

/// The id of a published event.
#[derive(Debug, Serialize)]
pub struct PublishedEvent {
    id: EventId,
    /// Whether an earlier call with the same idempotency key had published it.
    repeated: bool,
}

/// Longest event type, aggregate id and idempotency key, in bytes.
const MAX_TEXT: usize = 256;

/// Publishes an event.
///
/// With an `Idempotency-Key` a call can be repeated: whether its answer was lost or not, the first call's event is the
/// only one, and its id comes back. Without one, a repeated call publishes a second event.
pub async fn publish<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    headers: HeaderMap,
    Json(new): Json<NewEvent>,
) -> Result<(StatusCode, axum::Json<PublishedEvent>), Problem> {
    let mut found = Findings::default();
    check(&new, api.limits.payload_bytes, &mut found);
    let key = idempotency_key(&headers, &mut found);
    let Some(tenant) = found.keep("tenant", new.tenant.parse()) else {
        return Err(found.problem());
    };
    found.done()?;

    let payload = keep(&api, &tenant, new.payload.get().as_bytes()).await?;
    let event = OutboxEvent {
        id: EventId::new((api.edge.uuid)()),
        tenant,
        event_type: new.event_type,
        schema_version: new.schema_version,
        aggregate_id: new.aggregate_id,
        aggregate_version: new.aggregate_version,
        payload,
        occurred_at: api.now(),
        traceparent: flow::incoming::traceparent(&headers),
        labels: std::collections::BTreeMap::new(),
    };
    let (status, id) = match api.outbox.publish(&event, key.as_deref()).await? {
        Published::New => (StatusCode::ACCEPTED, event.id),
        Published::Before(id) => (StatusCode::OK, id),
        Published::Other => {
            let detail =
                "The Idempotency-Key was used for another event. Use a new key for each event.";
            return Err(Problem::conflict("key-reused", detail));
        }
    };
    Ok((status, axum::Json(PublishedEvent { id, repeated: status == StatusCode::OK })))
}

/// Puts a large payload into the bucket before the row that names it.
async fn keep<P: Ports>(
    api: &Api<P>,
    tenant: &TenantId,
    payload: &[u8],
) -> Result<Payload, Problem> {
    if payload.len() <= INLINE_MAX {
        return Ok(Payload::Inline(payload.to_vec()));
    }
    let hash = Sha256Hash::of(payload);
    let compressed =
        flow::payload::compress(payload).map_err(|error| StoreError::Refused(error.into()))?;
    api.bodies.put(&flow::payload::name(tenant, &hash), compressed).await?;
    Ok(Payload::Bucket(hash))
}

pub(crate) fn idempotency_key(headers: &HeaderMap, found: &mut Findings) -> Option<String> {
    let mut keys = headers.get_all("idempotency-key").iter();
    let key = keys.next()?;
    let key = key.to_str().ok().filter(|key| (1..=MAX_TEXT).contains(&key.trim().len()));
    if key.is_none() || keys.next().is_some() {
        let problem = format!("it comes once, with 1 to {MAX_TEXT} visible ASCII characters");
        found.note("Idempotency-Key", problem);
    }
    key.map(str::to_owned)
}

fn check(new: &NewEvent, payload_bytes: usize, found: &mut Findings) {
    let fits = |text: &str| (1..=MAX_TEXT).contains(&text.len());
    if !fits(&new.event_type) || !new.event_type.bytes().all(|b| b.is_ascii_graphic()) {
        found.note("type", format!("it is 1 to {MAX_TEXT} visible ASCII characters"));
    }
    if !fits(&new.aggregate_id) || new.aggregate_id.chars().any(char::is_control) {
        found.note(
            "aggregate_id",
            format!("it is 1 to {MAX_TEXT} bytes without control characters"),
        );
    }
    if new.schema_version == 0 {
        found.note("schema_version", "versions are counted from 1");
    }
    let length = new.payload.get().len();
    if length > payload_bytes {
        found.note(
            "payload",
            format!("it has {length} bytes, and this deployment takes {payload_bytes}; send a link to what is large"),
        );
    }
}
