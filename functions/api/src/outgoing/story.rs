//! Outgoing events shown with their deliveries, and delivered again.

use std::sync::Arc;

use axum::{extract::State, http::StatusCode};
use domain::{
    delivery::{self, Delivery},
    destination::Destination,
    endpoint::Endpoint,
    id::{EndpointId, EventId, RedeliveryId, TenantId},
    lane::LaneId,
    message::WakeMessage,
    outbox::{OutboxEvent, OutboxRow},
    ports::{
        Again, Configure as _, Deliveries as _, Events as _, Outbox as _, Queue as _,
        Redeliver as _, Registry as _,
    },
    redelivery::due_again,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    Api, Ports, Problem, Started, at_once,
    deliveries::AttemptView,
    endpoints,
    endpoints::tenant_of,
    redeliveries::refuse_stopped,
    request::{Actor, Path, Query},
};

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
    /// What kind of place the endpoint is: `https`, `queue` or `bus`.
    kind: &'static str,
    /// Where it is, as `url`, `queue` or `bus`; a URL without what may hold a token.
    #[serde(flatten)]
    destination: Destination,
    state: delivery::State,
    /// Nobody knows whether it happened, and its target could do it twice.
    outcome_unknown: bool,
    attempts: u32,
    next_attempt_at: Option<Timestamp>,
    /// Since when an attempt is under way, where that is written down.
    begun_at: Option<Timestamp>,
    finished_at: Option<Timestamp>,
    /// What a person should do, where it waits for one.
    next_action: Option<String>,
    /// Who sent it again, the last time.
    #[serde(skip_serializing_if = "Option::is_none")]
    redelivered: Option<delivery::Redelivered>,
    /// Each attempt, with what its outcome means.
    log: Vec<AttemptView>,
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
    // Until the fan-out has ended, any endpoint may have a delivery already.
    let may_have_it = |endpoint: &Endpoint| {
        relayed.as_ref().is_none_or(|relayed| relayed.endpoints.contains(&endpoint.id))
    };
    let mut endpoints = api.registry.endpoints(tenant).await?;
    endpoints.retain(may_have_it);
    // Those that were deleted since: what they got stays to be seen.
    let relayed_to = relayed.iter().flat_map(|relayed| &relayed.endpoints);
    let missing = relayed_to.filter(|id| endpoints.iter().all(|endpoint| endpoint.id != **id));
    let missing: Vec<_> = missing.copied().collect();
    let gone = api.registry.gone(tenant, &missing).await?;
    endpoints.extend(gone.into_iter().map(|gone| gone.endpoint));
    let deliveries = endpoints.into_iter().map(|endpoint| delivery(api, &event, endpoint));
    let deliveries = at_once(deliveries.collect()).await?.into_iter().flatten().collect();
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
    endpoint: Endpoint,
) -> Result<Option<DeliveryStory>, Problem> {
    let lane = LaneId::of(&endpoint, event.id, &event.aggregate_id);
    let found = api.deliveries.read(&lane, &[event.id]).await?;
    Ok(found.into_iter().next().map(|found| DeliveryStory {
        endpoint: endpoint.id,
        kind: endpoint.destination.kind(),
        destination: endpoints::shown(&endpoint.destination),
        state: found.state,
        outcome_unknown: found.is_unknown(),
        attempts: found.attempts,
        next_attempt_at: (found.state == delivery::State::Pending).then_some(found.due_at),
        begun_at: found.begun.as_ref().map(|begun| begun.at),
        finished_at: found.finished_at,
        next_action: next_action(&found, &endpoint),
        redelivered: found.redelivered,
        log: found.log.into_iter().map(AttemptView::from).collect(),
    }))
}

/// What a person should do about a delivery that waits for one.
fn next_action(delivery: &Delivery, endpoint: &Endpoint) -> Option<String> {
    let (Endpoint { tenant, id, .. }, event) = (endpoint, delivery.event);
    let again = format!("`postern events redeliver {tenant} {event} {id}`");
    match delivery.state {
        delivery::State::Dead if delivery.is_unknown() => Some(format!(
            "ask the target whether it has done {event}. If it has, there is nothing to do; if it has not, {again}"
        )),
        delivery::State::Dead => Some(format!("mend the cause, then {again}")),
        delivery::State::Pending | delivery::State::Succeeded | delivery::State::Cancelled => None,
    }
}

/// How a redelivery is asked for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Redelivery {
    /// Send again what the endpoint has taken already.
    #[serde(default)]
    include_delivered: bool,
    /// Try it once, and not again if that fails.
    #[serde(default)]
    once: bool,
}

/// Until when an event is kept that is sent again: somewhat longer than its last try.
const MARGIN: std::time::Duration = std::time::Duration::from_hours(24);

/// Delivers a finished delivery again, with the same event id.
pub async fn redeliver<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path((tenant, event, endpoint)): Path<(String, String, String)>,
    Query(how): Query<Redelivery>,
    Actor(actor): Actor,
) -> Result<(StatusCode, axum::Json<Started>), Problem> {
    let tenant = tenant_of(&tenant)?;
    let id: EventId = event.parse().map_err(|_| absent())?;
    let endpoint: EndpointId = endpoint.parse().map_err(|_| endpoints::absent())?;
    let row = api.outbox.event(&tenant, id).await?.ok_or_else(absent)?;
    let found = api.registry.endpoint(&tenant, endpoint).await?;
    let (endpoint, _) = found.ok_or_else(endpoints::absent)?;
    refuse_stopped(&endpoint, &api.deliveries.health(&tenant, endpoint.id).await?)?;
    let lane = LaneId::of(&endpoint, id, &row.event.aggregate_id);
    let found = api.deliveries.read(&lane, &[id]).await?.into_iter().next();
    let before = found.ok_or_else(|| {
        Problem::absent(
            "delivery of this event to this endpoint: it did not match, or was not relayed yet. What never came to an \
             endpoint is sent by a redelivery with `missing`",
        )
    })?;
    match before.state {
        delivery::State::Pending => return Err(pending()),
        delivery::State::Succeeded if !how.include_delivered => return Err(delivered()),
        delivery::State::Succeeded | delivery::State::Dead | delivery::State::Cancelled => {}
    }

    let now = api.now();
    let subject = format!("{id} {}", endpoint.id);
    api.audit(tenant.as_str(), actor, "delivery.redeliver", &subject, now).await?;
    // A try after its deadline is the last one.
    let tried_for = if how.once { std::time::Duration::ZERO } else { api.limits.delivery_deadline };
    let by = RedeliveryId::new((api.edge.uuid)());
    let after = due_again(&before, by, true, (now, now, tried_for));
    let until = after.deadline.saturating_add(MARGIN).unwrap_or(Timestamp::MAX);
    api.outbox.keep(&tenant, id, until, now).await?.ok_or_else(expired)?;
    // Between the look and the write another call may have come first.
    match api.deliveries.redeliver_as(&lane, &before, &after, now).await? {
        Again::Yes | Again::Before => {}
        Again::Moved => return Err(pending()),
    }
    // A lost message only costs time: the lane's wake_at stands.
    let unsent = api.wakes.send(&[WakeMessage(lane)], std::time::Duration::ZERO).await;
    Ok((StatusCode::ACCEPTED, axum::Json(Started { enqueued: unsent.is_empty() })))
}

fn expired() -> Problem {
    let detail = "The event is past its retention: its payload may be gone at any moment. Publish what it said as a \
                  new event.";
    Problem::conflict("expired", detail)
}

fn pending() -> Problem {
    let detail =
        "The delivery is pending: it will be tried without being asked. Its story says when.";
    Problem::conflict("pending", detail)
}

fn delivered() -> Problem {
    let detail = "The endpoint has taken this event already. To send it once more all the same, ask with \
                  `?include_delivered=true`.";
    Problem::conflict("delivered", detail)
}

fn absent() -> Problem {
    Problem::absent("outgoing event of this id at this tenant")
}
