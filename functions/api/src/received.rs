//! Received events: one event's story, and replay.

use std::{collections::BTreeSet, sync::Arc};

use axum::{extract::State, http::StatusCode};
use domain::{
    id::{EventId, InboxKey, TenantId},
    inbox::{Noted, OtherBodies, Row, Status},
    message::InboundMessage,
    ports::{Inbox as _, Queue as _, Registry as _},
    source::Handler,
};
use jiff::Timestamp;
use serde::Serialize;

use crate::{
    Api, OF_THE_DEPLOYMENT, Ports, Problem, Started, at_once,
    outgoing::{self, OutgoingStory},
    request::{Actor, Path},
};

/// Everything that is known of one received event, in the order in which it happened.
#[derive(Debug, Serialize)]
pub struct Story {
    source: String,
    event_id: String,
    event_type: Option<String>,
    status: Status,
    origin: domain::event::Origin,
    received_at: Timestamp,
    finished_at: Option<Timestamp>,
    parked_at: Option<Timestamp>,
    due_at: Option<Timestamp>,
    attempts: u32,
    cycle: u32,
    last_error: Option<domain::inbox::Failure>,
    next_action: Option<String>,
    results: Vec<domain::inbox::ChangeResult>,
    body_bytes: u64,
    body_sha256: String,
    /// Other bodies that came under its id, if any was noted.
    other_bodies: Option<OtherBodiesView>,
    key_id: Option<String>,
    /// The provider's id of the delivery, for its dashboard.
    delivery_id: Option<String>,
    /// The event whose request carried this one among others.
    parent: Option<String>,
    /// The bulk work that ran it again last.
    replay: Option<domain::id::ReplayId>,
    /// The outgoing events that followed from it.
    outgoing: Vec<OutgoingStory>,
}

/// That other bodies came under an event's id: how many were noted, and the one that was noted last.
#[derive(Debug, Serialize)]
struct OtherBodiesView {
    count: u64,
    sha256: String,
    at: Timestamp,
    length: u64,
    meaning: &'static str,
}

impl OtherBodiesView {
    fn of(noted: OtherBodies) -> Self {
        let OtherBodies { count, last } = noted;
        let meaning = "another body came under this id; the first one stands";
        Self { count, sha256: last.sha256.to_string(), at: last.at, length: last.length, meaning }
    }
}

/// Shows one event's whole story.
pub async fn story<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path((source, event)): Path<(String, String)>,
) -> Result<axum::Json<Story>, Problem> {
    let key = key_of(&source, &event)?;
    let row = api.inbox.read(&key).await?.ok_or_else(absent)?;
    let mut outgoing = Vec::new();
    for tenant in tenants_told(&api, &key).await? {
        outgoing.extend(outgoing_of(&api, &tenant, &row).await?);
    }
    Ok(axum::Json(Story {
        source,
        event_id: key.event_id().to_owned(),
        event_type: row.new.event_type,
        status: row.status,
        origin: row.new.origin,
        received_at: row.new.received_at,
        finished_at: row.finished_at,
        parked_at: row.dead_at,
        due_at: row.due_at,
        attempts: row.attempts,
        cycle: row.cycle,
        last_error: row.last_error,
        next_action: row.next_action,
        results: row.results,
        body_bytes: row.new.body.length,
        body_sha256: row.new.body.sha256.to_string(),
        other_bodies: row.other_bodies.map(OtherBodiesView::of),
        key_id: row.new.key_id,
        delivery_id: row.new.delivery_id,
        parent: row.new.parent,
        replay: row.replay.map(|taken| taken.by),
        outgoing,
    }))
}

/// Runs an event through its handler again. Effects that happened do not happen again.
pub async fn replay<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path((source, event)): Path<(String, String)>,
    Actor(actor): Actor,
) -> Result<(StatusCode, axum::Json<Started>), Problem> {
    let key = key_of(&source, &event)?;
    let now = api.now();
    let row = api.inbox.read(&key).await?.ok_or_else(absent)?;
    if row.status == Status::Pending {
        return Err(pending());
    }
    api.audit(OF_THE_DEPLOYMENT, actor, "event.replay", &key.to_string(), now).await?;
    let due_at = now.saturating_add(api.limits.first_due).unwrap_or(Timestamp::MAX);
    // The row before the message: one that found it finished would be dropped. Between the look and the write another
    // call may have come first.
    if api.inbox.replay(&key, due_at, now).await? == Noted::Moved {
        return Err(pending());
    }
    let unsent = api.inbound.send(&[InboundMessage(key)], std::time::Duration::ZERO).await;
    Ok((StatusCode::ACCEPTED, axum::Json(Started { enqueued: unsent.is_empty() })))
}

fn pending() -> Problem {
    let detail =
        "The event is pending: it will be processed without being asked. Its story says when.";
    Problem::conflict("pending", detail)
}

fn absent() -> Problem {
    Problem::absent("event of this id at this source")
}

fn key_of(source: &str, event: &str) -> Result<InboxKey, Problem> {
    let source = source.parse().map_err(|_| absent())?;
    InboxKey::new(source, event).map_err(|_| absent())
}

/// The tenants whose endpoints hear of a source's events: the one that it names, and ourselves if it has a handler of our
/// own, which may have effects.
async fn tenants_told<P: Ports>(
    api: &Api<P>,
    key: &InboxKey,
) -> Result<BTreeSet<TenantId>, Problem> {
    let source = api.registry.source(key.source()).await?;
    let handler = source.map(|source| source.handler);
    let named = handler.as_ref().and_then(Handler::tenant).cloned();
    let is_own = matches!(handler, Some(Handler::Own { .. }));
    Ok(named.into_iter().chain(is_own.then(TenantId::internal)).collect())
}

/// The outgoing events that a row's results name.
async fn outgoing_of<P: Ports>(
    api: &Api<P>,
    tenant: &TenantId,
    row: &Row,
) -> Result<Vec<OutgoingStory>, Problem> {
    let names = row.results.iter().filter_map(|result| result.what.strip_prefix("event "));
    let ids = names.filter_map(|id| id.parse::<EventId>().ok());
    let stories = ids.map(|id| outgoing::tell(api, tenant, id));
    Ok(at_once(stories.collect()).await?.into_iter().flatten().collect())
}
