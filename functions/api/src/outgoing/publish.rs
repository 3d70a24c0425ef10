//! Events published over HTTP: one, or up to 100 with a result for each.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
};
use domain::{
    body::Sha256Hash,
    id::{EventId, TenantId},
    outbox::{INLINE_MAX, OutboxEvent, Payload, object_name, rules},
    ports::{Bodies as _, Outbox as _, Published, StoreError},
};
use futures_util::{StreamExt as _, stream};
use serde::Serialize;
use serde_json::value::RawValue;

use super::wanted::{Batch, NewEvent, Wanted};
use crate::{Api, Ports, Problem, WIDTH, problem::Findings, request::Json};

/// Most events of one request.
pub const MAX_EVENTS: usize = 100;

/// Most bytes of a request that publishes: as many as a Lambda event holds.
///
/// The gateway escapes JSON on its way into one, so that it refuses somewhat smaller ones by itself: about 5 MB of
/// ordinary JSON come through.
pub const MAX_BODY: usize = 6_291_456;

/// The id of a published event.
#[derive(Debug, Serialize)]
pub struct PublishedEvent {
    id: EventId,
    /// Whether an earlier call with the same idempotency key had published it.
    repeated: bool,
}

/// What became of one event of a batch.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Fate {
    Published(PublishedEvent),
    Refused { problem: Problem },
}

/// What became of all events of a batch, in their order.
#[derive(Debug, Serialize)]
struct Fates {
    results: Vec<Fate>,
}

/// Publishes an event, or `{"events": [..]}`.
///
/// With an `Idempotency-Key`, or the member `idempotency_key`, a call can be repeated: whether its answer was lost or
/// not, the first call's event is the only one, and its id comes back. Without one, a repeated call publishes a second
/// event. Of a batch each event stands for itself: one that is refused stops no other, and the answer is 207.
pub async fn publish<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    headers: HeaderMap,
    Json(body): Json<Box<RawValue>, MAX_BODY>,
) -> Result<Response, Problem> {
    let mut found = Findings::default();
    let key = idempotency_key(&headers, &mut found);
    let trace = flow::incoming::traceparent(&headers);
    match Wanted::read(&body, api.limits.payload_bytes, &mut found) {
        Wanted::One(event) => {
            let Some(event) = event.and_then(|event| keyed(event, key, &mut found)) else {
                return Err(found.problem());
            };
            found.done()?;
            let done = put(&api, event, (api.edge.uuid)(), trace).await?;
            let status = if done.repeated { StatusCode::OK } else { StatusCode::ACCEPTED };
            Ok((status, axum::Json(done)).into_response())
        }
        Wanted::Many(batch) => {
            if headers.contains_key("idempotency-key") {
                let problem = "a batch has none: give each of its events an `idempotency_key`";
                found.note("Idempotency-Key", problem);
            }
            found.done()?;
            let results = each(&api, batch, trace.as_deref()).await;
            let is_good = |fate: &Fate| matches!(fate, Fate::Published(_));
            let all = results.iter().all(is_good);
            let status = if all { StatusCode::OK } else { StatusCode::MULTI_STATUS };
            Ok((status, axum::Json(Fates { results })).into_response())
        }
    }
}

/// The event with the key that the request's header gives it.
fn keyed(mut event: NewEvent, key: Option<String>, found: &mut Findings) -> Option<NewEvent> {
    if key.is_some() && event.idempotency_key.is_some() {
        found.note("idempotency_key", "the header Idempotency-Key says one, too; say it once");
        return None;
    }
    event.idempotency_key = event.idempotency_key.or(key);
    Some(event)
}

/// Publishes every event that can be, several at once.
async fn each<P: Ports>(api: &Api<P>, batch: Batch, trace: Option<&str>) -> Vec<Fate> {
    let mut runs: BTreeMap<(TenantId, String), Vec<usize>> = BTreeMap::new();
    let (mut alone, mut fates, mut events) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
    for (place, event) in batch.into_iter().enumerate() {
        let event = match event {
            Ok(event) => event,
            Err(problem) => {
                fates.insert(place, Fate::Refused { problem });
                continue;
            }
        };
        match &event.idempotency_key {
            Some(key) => {
                runs.entry((event.tenant.clone(), key.clone())).or_default().push(place);
            }
            None => alone.push(vec![place]),
        }
        // Minted before anything is under way: ids are in the order of the batch.
        events.insert(place, (event, (api.edge.uuid)()));
    }
    // One key's events go one after another, so that the first of them is the one that counts.
    let runs: Vec<Vec<_>> = alone
        .into_iter()
        .chain(runs.into_values())
        .map(|run| run.into_iter().filter_map(|n| Some((n, events.remove(&n)?))).collect())
        .collect();
    let done = stream::iter(runs).map(|run| async move {
        let mut done = Vec::new();
        for (place, (event, id)) in run {
            let fate = match put(api, event, id, trace.map(str::to_owned)).await {
                Ok(published) => Fate::Published(published),
                Err(problem) => Fate::Refused { problem },
            };
            done.push((place, fate));
        }
        done
    });
    fates.extend(done.buffer_unordered(WIDTH).collect::<Vec<_>>().await.into_iter().flatten());
    fates.into_values().collect()
}

/// Publishes one event.
pub(crate) async fn put<P: Ports>(
    api: &Api<P>,
    new: NewEvent,
    id: uuid::Uuid,
    traceparent: Option<String>,
) -> Result<PublishedEvent, Problem> {
    let NewEvent { tenant, event_type, idempotency_key, .. } = new;
    let event = OutboxEvent {
        id: EventId::new(id),
        payload: keep(api, &tenant, new.payload.get().as_bytes()).await?,
        tenant,
        event_type,
        schema_version: new.schema_version,
        aggregate_id: new.aggregate_id,
        aggregate_version: new.aggregate_version,
        occurred_at: api.now(),
        traceparent,
        labels: new.labels,
    };
    match api.outbox.publish(&event, idempotency_key.as_deref()).await? {
        Published::New => Ok(PublishedEvent { id: event.id, repeated: false }),
        Published::Before(id) => Ok(PublishedEvent { id, repeated: true }),
        Published::Other => {
            let detail =
                "The idempotency key was used for another event. Use a new key for each event.";
            Err(Problem::conflict("key-reused", detail))
        }
    }
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
    api.bodies.put(&object_name(tenant, &hash), compressed).await?;
    Ok(Payload::Bucket(hash))
}

/// The header that names a call.
pub(crate) fn idempotency_key(headers: &HeaderMap, found: &mut Findings) -> Option<String> {
    let mut keys = headers.get_all("idempotency-key").iter();
    let key = keys.next()?;
    let key = key.to_str().ok().filter(|key| rules::is_key(key));
    if key.is_none() || keys.next().is_some() {
        let most = rules::MAX_TEXT;
        let problem = format!("it comes once, with 1 to {most} visible ASCII characters");
        found.note("Idempotency-Key", problem);
    }
    key.map(str::to_owned)
}
