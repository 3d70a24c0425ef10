//! Received events: one event's story, replay, and what is parked.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    http::StatusCode,
};
use domain::{
    id::{EventId, InboxKey, TenantId},
    inbox::{Noted, Row},
    message::InboundMessage,
    ports::{AuditEntry, Configure as _, DueInbox as _, Inbox as _, Queue as _, Registry as _},
    source::Handler,
};
use jiff::Timestamp;
use serde::Serialize;

use crate::{
    Actor, Api, Ports, Problem,
    outgoing::{self, OutgoingStory},
};

/// Everything that is known of one received event, in the order in which it happened.
#[derive(Debug, Serialize)]
pub struct Story {
    source: String,
    event_id: String,
    event_type: Option<String>,
    status: domain::inbox::Status,
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
    key_id: Option<String>,
    /// The outgoing events that followed from it.
    outgoing: Vec<OutgoingStory>,
}

/// Shows one event's whole story.
pub async fn story<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path((source, event)): Path<(String, String)>,
) -> Result<axum::Json<Story>, Problem> {
    let key = key_of(&source, &event)?;
    let row = api.inbox.read(&key).await?.ok_or_else(absent)?;
    let outgoing = match tenant_told(&api, &key).await? {
        Some(tenant) => outgoing_of(&api, &tenant, &row).await?,
        None => Vec::new(),
    };
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
        key_id: row.new.key_id,
        outgoing,
    }))
}

/// What a replay did.
#[derive(Debug, Serialize)]
pub struct Replayed {
    /// Whether the worker was told at once. If not, the sweeper finds the event within minutes.
    enqueued: bool,
}

/// Runs an event through its handler again. Effects that happened do not happen again.
pub async fn replay<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path((source, event)): Path<(String, String)>,
    Actor(actor): Actor,
) -> Result<(StatusCode, axum::Json<Replayed>), Problem> {
    let key = key_of(&source, &event)?;
    let now = (api.edge.now)();
    let due_at = now.saturating_add(api.limits.first_due).unwrap_or(Timestamp::MAX);
    if api.inbox.read(&key).await?.is_none() {
        return Err(absent());
    }
    // The row first: a message that found it finished would be dropped.
    if api.inbox.replay(&key, due_at, now).await? == Noted::Moved {
        return Err(Problem::conflict(
            "The event is pending: it will be processed without being asked. Look at its next action.",
        ));
    }
    let subject = key.to_string();
    let unsent = api.inbound.send(&[InboundMessage(key)], std::time::Duration::ZERO).await;
    let action = "event.replay".to_owned();
    let tenant = "-".to_owned();
    api.registry.audit(&AuditEntry { tenant, at: now, actor, action, subject }).await?;
    Ok((StatusCode::ACCEPTED, axum::Json(Replayed { enqueued: unsent.is_empty() })))
}

/// A parked event, in a list.
#[derive(Debug, Serialize)]
pub struct Parked {
    source: String,
    event_id: String,
    event_type: Option<String>,
    parked_at: Option<Timestamp>,
    attempts: u32,
    error: Option<domain::inbox::Failure>,
}

/// Parked events that one list shows, at most.
const PARKED_LISTED: usize = 100;

/// Lists parked events, the latest first.
pub async fn parked<P: Ports>(
    State(api): State<Arc<Api<P>>>,
) -> Result<axum::Json<Vec<Parked>>, Problem> {
    let mut rows = Vec::new();
    for shard in 0..api.limits.pending_shards {
        for key in api.inbox.parked_keys(shard, PARKED_LISTED).await? {
            rows.extend(api.inbox.read(&key).await?);
        }
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.dead_at));
    let view = |row: Row| Parked {
        source: row.new.key.source().to_string(),
        event_id: row.new.key.event_id().to_owned(),
        event_type: row.new.event_type,
        parked_at: row.dead_at,
        attempts: row.attempts,
        error: row.last_error,
    };
    // A row may have been re-armed since the index was read.
    let parked = rows.into_iter().filter(|row| row.dead_at.is_some());
    Ok(axum::Json(parked.take(PARKED_LISTED).map(view).collect()))
}

fn absent() -> Problem {
    Problem::absent("event of this id at this source")
}

fn key_of(source: &str, event: &str) -> Result<InboxKey, Problem> {
    let source = source.parse().map_err(|_| absent())?;
    InboxKey::new(source, event).map_err(|_| absent())
}

/// The tenant whose endpoints hear of a source's events.
async fn tenant_told<P: Ports>(api: &Api<P>, key: &InboxKey) -> Result<Option<TenantId>, Problem> {
    let source = api.registry.source(key.source()).await?;
    Ok(source.and_then(|source| match source.handler {
        Handler::Mirror { emit_to } => emit_to,
        Handler::Forward { tenant, .. } => Some(tenant),
    }))
}

async fn outgoing_of<P: Ports>(
    api: &Api<P>,
    tenant: &TenantId,
    row: &Row,
) -> Result<Vec<OutgoingStory>, Problem> {
    let ids = row.results.iter().filter_map(|result| result.what.strip_prefix("event "));
    let ids = ids.filter_map(|id| id.parse::<EventId>().ok());
    let mut stories = Vec::new();
    for id in ids {
        stories.extend(outgoing::tell(api, tenant, id).await?);
    }
    Ok(stories)
}
