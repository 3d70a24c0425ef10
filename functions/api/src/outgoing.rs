//! Outgoing events: published, shown with their deliveries, delivered again.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
};
use domain::{
    delivery::Attempt,
    endpoint::Endpoint,
    id::{EndpointId, EventId, TenantId},
    inbox::Noted,
    lane::LaneId,
    message::WakeMessage,
    outbox::{OutboxEvent, OutboxRow, Payload},
    ports::{
        AuditEntry, Configure as _, Deliveries as _, Outbox as _, Published, Queue as _,
        Registry as _,
    },
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{Actor, Api, Json, Ports, Problem, endpoints::tenant_of};

/// An event to publish.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewEvent {
    tenant: TenantId,
    #[serde(rename = "type")]
    event_type: String,
    /// The version of the type's schema; 1 if it is left out.
    #[serde(default = "first_version")]
    schema_version: u32,
    /// What the event is about.
    aggregate_id: String,
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
pub async fn publish<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    headers: HeaderMap,
    Json(new): Json<NewEvent>,
) -> Result<(StatusCode, axum::Json<PublishedEvent>), Problem> {
    check(&new, api.limits.payload_bytes)?;
    let key = idempotency_key(&headers)?;
    let id = EventId::new((api.edge.uuid)());
    let event = OutboxEvent {
        id,
        tenant: new.tenant,
        event_type: new.event_type,
        schema_version: new.schema_version,
        aggregate_id: new.aggregate_id,
        aggregate_version: new.aggregate_version,
        payload: Payload::Inline(new.payload.get().as_bytes().to_vec()),
        occurred_at: (api.edge.now)(),
        traceparent: None,
    };
    match api.outbox.publish(&event, key.as_deref()).await? {
        Published::New => {
            Ok((StatusCode::ACCEPTED, axum::Json(PublishedEvent { id, repeated: false })))
        }
        Published::Before(id) => {
            Ok((StatusCode::OK, axum::Json(PublishedEvent { id, repeated: true })))
        }
        Published::OtherBody => Err(Problem::conflict(
            "The idempotency key was used for another event. Use a new key for each event.",
        )),
    }
}

/// Everything that is known of one outgoing event.
#[derive(Debug, Serialize)]
pub struct OutgoingStory {
    id: EventId,
    tenant: TenantId,
    #[serde(rename = "type")]
    event_type: String,
    aggregate_id: String,
    occurred_at: Timestamp,
    relayed_at: Option<Timestamp>,
    /// It was relayed, and no endpoint wanted it.
    unmatched: bool,
    deliveries: Vec<DeliveryStory>,
}

/// Everything that is known of one delivery.
#[derive(Debug, Serialize)]
pub struct DeliveryStory {
    endpoint: EndpointId,
    /// Where the endpoint is, without its path: paths often carry tokens.
    host: String,
    state: domain::delivery::State,
    attempts: u32,
    next_attempt_at: Option<Timestamp>,
    finished_at: Option<Timestamp>,
    log: Vec<Attempt>,
}

/// Shows an outgoing event with its deliveries.
pub async fn story<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path((tenant, event)): Path<(String, String)>,
) -> Result<axum::Json<OutgoingStory>, Problem> {
    let id = event.parse().map_err(|_| absent())?;
    let story = tell(&api, &tenant_of(&tenant)?, id).await?.ok_or_else(absent)?;
    Ok(axum::Json(story))
}

/// The story of an outgoing event, if there is such an event.
pub(crate) async fn tell<P: Ports>(
    api: &Api<P>,
    tenant: &TenantId,
    id: EventId,
) -> Result<Option<OutgoingStory>, Problem> {
    let Some(OutboxRow { event, relayed }) = api.outbox.event(tenant, id).await? else {
        return Ok(None);
    };
    let mut deliveries = Vec::new();
    for endpoint in api.registry.endpoints(tenant).await? {
        deliveries.extend(delivery(api, &event, &endpoint).await?);
    }
    Ok(Some(OutgoingStory {
        id,
        tenant: tenant.clone(),
        event_type: event.event_type,
        aggregate_id: event.aggregate_id,
        occurred_at: event.occurred_at,
        relayed_at: relayed.as_ref().map(|relayed| relayed.at),
        unmatched: relayed.is_some_and(|relayed| relayed.endpoints.is_empty()),
        deliveries,
    }))
}

async fn delivery<P: Ports>(
    api: &Api<P>,
    event: &OutboxEvent,
    endpoint: &Endpoint,
) -> Result<Option<DeliveryStory>, Problem> {
    let lane = LaneId::of(endpoint, event.id, &event.aggregate_id);
    let found = api.deliveries.read(&lane, &[event.id]).await?;
    let pending = domain::delivery::State::Pending;
    let host = url::Url::parse(&endpoint.url).ok();
    let host = host.and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_default();
    Ok(found.into_iter().next().map(|found| DeliveryStory {
        endpoint: endpoint.id,
        host,
        state: found.state,
        attempts: found.attempts,
        next_attempt_at: (found.state == pending).then_some(found.due_at),
        finished_at: found.finished_at,
        log: found.log,
    }))
}

/// Delivers a finished delivery again, with the same event id.
pub async fn redeliver<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path((tenant, event, endpoint)): Path<(String, String, String)>,
    Actor(actor): Actor,
) -> Result<StatusCode, Problem> {
    let tenant = tenant_of(&tenant)?;
    let id: EventId = event.parse().map_err(|_| absent())?;
    let no_endpoint = || Problem::absent("endpoint of this id at this tenant");
    let endpoint: EndpointId = endpoint.parse().map_err(|_| no_endpoint())?;
    let row = api.outbox.event(&tenant, id).await?.ok_or_else(absent)?;
    let (endpoint, _) = api.registry.endpoint(&tenant, endpoint).await?.ok_or_else(no_endpoint)?;

    let lane = LaneId::of(&endpoint, id, &row.event.aggregate_id);
    let now = (api.edge.now)();
    let deadline = now.saturating_add(api.limits.delivery_deadline).unwrap_or(Timestamp::MAX);
    if api.deliveries.redeliver(&lane, id, deadline, now).await? == Noted::Moved {
        return Err(Problem::conflict(
            "There is no finished delivery of this event to this endpoint: it never matched, or it is still pending \
             and will be tried without being asked.",
        ));
    }
    // A lost message only costs time: the lane's wake_at stands.
    let _ = api.wakes.send(&[WakeMessage(lane)], std::time::Duration::ZERO).await;
    let (tenant, subject) = (tenant.to_string(), format!("{id} {}", endpoint.id));
    let action = "delivery.redeliver".to_owned();
    api.registry.audit(&AuditEntry { tenant, at: now, actor, action, subject }).await?;
    Ok(StatusCode::ACCEPTED)
}

fn absent() -> Problem {
    Problem::absent("outgoing event of this id at this tenant")
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    match value.to_str() {
        Ok(key) if (1..=MAX_TEXT).contains(&key.len()) => Ok(Some(key.to_owned())),
        _ => Err(Problem::invalid(&format!(
            "Idempotency-Key is 1 to {MAX_TEXT} visible ASCII characters."
        ))),
    }
}

fn check(new: &NewEvent, payload_bytes: usize) -> Result<(), Problem> {
    let mut problems = Vec::new();
    let type_is_good = (1..=MAX_TEXT).contains(&new.event_type.len())
        && new.event_type.chars().all(|c| c.is_ascii_graphic());
    if !type_is_good {
        problems.push(format!("`type` is 1 to {MAX_TEXT} visible ASCII characters"));
    }
    let aggregate_is_good = (1..=MAX_TEXT).contains(&new.aggregate_id.len())
        && !new.aggregate_id.chars().any(char::is_control);
    if !aggregate_is_good {
        problems
            .push(format!("`aggregate_id` is 1 to {MAX_TEXT} bytes without control characters"));
    }
    if new.payload.get().len() > payload_bytes {
        problems.push(format!(
            "`payload` is {} bytes, and this deployment takes {payload_bytes}; send a link to what is large",
            new.payload.get().len()
        ));
    }
    if problems.is_empty() { Ok(()) } else { Err(Problem::invalid(&problems.join("; "))) }
}
