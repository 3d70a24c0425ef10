//! A test event: one event of ours, by the way of all others, to one endpoint.
//!
//! Its URL is the endpoint's own and never the request's, and the deliverer treats it as any other: signed, guarded,
//! tried again, written down.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{extract::State, http::StatusCode};
use domain::{
    address::EndpointUrl,
    delivery::{Delivery, NewDelivery},
    destination::Destination,
    endpoint::Endpoint,
    id::EventId,
    lane::LaneId,
    message::WakeMessage,
    outbox::{OutboxEvent, Payload, Relayed},
    ports::{Deliveries as _, Fanout as _, Outbox as _, Queue as _, Registry as _},
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{absent, named};
use crate::{
    Api, Ports, Problem,
    problem::Findings,
    request::{Actor, Path, Query},
};

/// The type of test events. No endpoint has to ask for it.
pub const TEST_TYPE: &str = "postern.test";

/// Nothing is asked for but the test itself: least of all where it goes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// A test event on its way.
#[derive(Debug, Serialize)]
pub struct Trial {
    /// Its id: its story says what became of it.
    event: EventId,
    /// Whether the deliverer was told at once. If not, the sweeper tells it within minutes.
    enqueued: bool,
}

/// Sends a test event to an endpoint.
pub async fn test<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path(names): Path<(String, String)>,
    Query(Nothing {}): Query<Nothing>,
    Actor(actor): Actor,
) -> Result<(StatusCode, axum::Json<Trial>), Problem> {
    let (tenant, id) = named(&names)?;
    let (endpoint, _) = api.registry.endpoint(&tenant, id).await?.ok_or_else(absent)?;
    let health = api.deliveries.health(&tenant, id).await?;
    if let Some(since) = endpoint.stopped_since(&health) {
        let detail = format!(
            "The endpoint gets nothing since {since}, and a test would be held with everything else. Resume or enable it \
             first."
        );
        return Err(Problem::conflict("stopped", detail));
    }
    Ok((StatusCode::ACCEPTED, axum::Json(send(&api, &endpoint, actor).await?)))
}

/// Sends a test event to an endpoint that may be older than a rule for URLs.
pub(super) async fn send<P: Ports>(
    api: &Api<P>,
    endpoint: &Endpoint,
    actor: String,
) -> Result<Trial, Problem> {
    check(api, endpoint)?;
    let Endpoint { tenant, id, .. } = endpoint;
    let (now, event) = (api.now(), EventId::new((api.edge.uuid)()));
    let subject = format!("{id} {event}");
    api.audit(tenant.as_str(), actor, "endpoint.test", &subject, now).await?;
    let payload = json!({
        "type": TEST_TYPE,
        "endpoint": id,
        "message": "This is a test event of Postern. If your receiver has verified its signature, all is well.",
    });
    let outgoing = OutboxEvent {
        id: event,
        tenant: tenant.clone(),
        event_type: TEST_TYPE.to_owned(),
        schema_version: 1,
        aggregate_id: id.to_string(),
        aggregate_version: None,
        payload: Payload::Inline(payload.to_string().into_bytes()),
        occurred_at: now,
        traceparent: None,
        labels: BTreeMap::new(),
    };
    let deadline = now.saturating_add(api.limits.delivery_deadline).unwrap_or(Timestamp::MAX);
    let lane = LaneId::of(endpoint, event, &outgoing.aggregate_id);
    let delivery = Delivery::new(event, TEST_TYPE.to_owned(), deadline, now);
    // Should this die between the two, there is no test, and no answer that says there is one.
    api.outbox.publish_to(&outgoing, &Relayed { at: now, endpoints: vec![*id] }).await?;
    api.deliveries.put_awake(&NewDelivery { lane: lane.clone(), delivery }, now).await?;
    let unsent = api.wakes.send(&[WakeMessage(lane)], Duration::ZERO).await;
    Ok(Trial { event, enqueued: unsent.is_empty() })
}

/// The same check as when the endpoint was made: its row may be older than a rule, or written by another hand.
fn check<P: Ports>(api: &Api<P>, endpoint: &Endpoint) -> Result<(), Problem> {
    let Destination::Https(url) = &endpoint.destination else { return Ok(()) };
    let mut found = Findings::default();
    found.keep("url", EndpointUrl::parse(url, &api.limits.addresses));
    found.done()
}
