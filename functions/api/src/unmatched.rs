//! Events that nobody wanted: a list of them, for whoever wonders where an event went.

use std::sync::Arc;

use axum::extract::State;
use domain::{
    id::{EventId, TenantId},
    outbox::OutboxRow,
    ports::{Outbox as _, Stored},
};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    Api, Ports, Problem,
    problem::Findings,
    request::{Path, Query},
};

/// Events that one list shows, at most, and if nobody says how many: each is read, for its type and its labels.
const LISTED: usize = 50;

/// Events of its last millisecond that a page holds beside those: as many as a batch publishes.
const OF_ONE_MOMENT: usize = 100;

/// Events that are read at once.
const WIDTH: usize = 10;

/// An event that was relayed to nobody.
#[derive(Debug, Serialize)]
pub struct Unmatched {
    event_id: String,
    event_type: String,
    labels: std::collections::BTreeMap<String, String>,
    occurred_at: Timestamp,
    relayed_at: Timestamp,
}

/// Such events of a tenant, the latest first.
#[derive(Debug, Serialize)]
pub struct UnmatchedList {
    unmatched: Vec<Unmatched>,
    /// What to ask for as `before` to see earlier ones; absent: these were the last.
    next: Option<Timestamp>,
}

/// Which of them are asked for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    before: Option<String>,
    limit: Option<usize>,
}

/// Lists events of a tenant that nobody wanted, the latest first.
pub async fn list<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path(tenant): Path<String>,
    Query(wanted): Query<Wanted>,
) -> Result<axum::Json<UnmatchedList>, Problem> {
    let mut found = Findings::default();
    let tenant = found.keep("tenant", tenant.parse::<TenantId>());
    let before = wanted.before.map(|text| text.parse::<Timestamp>());
    let before = before.map(|before| found.keep("before", before));
    let limit = wanted.limit.unwrap_or(LISTED);
    if !(1..=LISTED).contains(&limit) {
        found.note("limit", format!("it is 1 to {LISTED}"));
    }
    let Some(tenant) = tenant else { return Err(found.problem()) };
    found.done()?;
    let before = before.flatten().unwrap_or(Timestamp::MAX);

    let mut events = api.outbox.unmatched(&tenant, before, limit + OF_ONE_MOMENT).await?;
    let next = end_page(&mut events, limit);
    let rows: Stored<Vec<Option<OutboxRow>>> = stream::iter(events)
        .map(|(_, id)| {
            let (api, tenant) = (&api, &tenant);
            async move { api.outbox.event(tenant, id).await }
        })
        .buffered(WIDTH)
        .try_collect()
        .await;
    // A row may have expired since the index was read.
    let unmatched = rows?.into_iter().flatten().filter_map(view).collect();
    Ok(axum::Json(UnmatchedList { unmatched, next }))
}

/// Cuts events, the latest first, to a page, and says where the next one goes on. The page holds all of its last moment:
/// the next begins before that.
fn end_page(events: &mut Vec<(Timestamp, EventId)>, limit: usize) -> Option<Timestamp> {
    let (last, _) = *events.get(limit.saturating_sub(1))?;
    let all = events.len();
    // By the millisecond, in which events are listed.
    let end = events.partition_point(|(at, _)| at.as_millisecond() >= last.as_millisecond());
    events.truncate(end);
    let is_cut = end < all || all >= limit + OF_ONE_MOMENT;
    let moment = Timestamp::from_millisecond(last.as_millisecond()).unwrap_or(last);
    is_cut.then_some(moment)
}

fn view(row: OutboxRow) -> Option<Unmatched> {
    Some(Unmatched {
        event_id: row.event.id.to_string(),
        event_type: row.event.event_type,
        labels: row.event.labels,
        occurred_at: row.event.occurred_at,
        relayed_at: row.relayed?.at,
    })
}
