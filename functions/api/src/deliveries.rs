//! The delivery log of an endpoint: what was sent to it, and what became of it, in plain words.

use std::sync::Arc;

use axum::extract::State;
use domain::{
    delivery::{self, Attempt, Delivery, Redelivered, Words},
    endpoint::{Endpoint, Pattern},
    id::{EndpointId, EventId, TenantId},
    lane::LaneId,
    ports::{Configure as _, Redeliver as _, Registry as _},
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    Api, Ports, Problem, at_once, endpoints,
    endpoints::tenant_of,
    problem::Findings,
    request::{Path, Query},
};

/// Deliveries of a page, if nobody says otherwise, and at most.
const PAGE: usize = 50;
const MAX_PAGE: usize = 200;

/// Deliveries that are read for one page, of all lanes together. A page of a rare state may hold fewer than were asked for.
const READ: usize = 500;

/// Deliveries that are read of each lane at least.
const READ_OF_A_LANE: usize = 20;

/// Most bytes of a page as JSON. Lambda takes 6 MB, and an answer stands in its JSON as a text, with each quote escaped.
const MAX_BYTES: usize = 3_000_000;

/// Which deliveries.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// How they stand: `pending`, `succeeded`, `dead` or `cancelled`.
    #[serde(default)]
    state: Option<delivery::State>,
    /// A pattern of their events' types.
    #[serde(default, rename = "type")]
    event_type: Option<String>,
    /// Of events of then or later.
    #[serde(default)]
    from: Option<Timestamp>,
    /// Of events of before then.
    #[serde(default)]
    to: Option<Timestamp>,
    /// Where the page before ended: its `next`.
    #[serde(default)]
    cursor: Option<String>,
    #[serde(default)]
    limit: Option<usize>,
}

/// A page of an endpoint's deliveries, the latest event first.
#[derive(Debug, Serialize)]
pub struct Log {
    deliveries: Vec<Entry>,
    /// What to ask with for the next page, as `cursor`. A page may hold little and be not the last.
    next: Option<EventId>,
}

/// One delivery.
#[derive(Debug, Serialize)]
pub struct Entry {
    event: EventId,
    #[serde(rename = "type")]
    event_type: String,
    state: delivery::State,
    attempts: u32,
    created_at: Timestamp,
    next_attempt_at: Option<Timestamp>,
    finished_at: Option<Timestamp>,
    /// Who sent it again, the last time.
    #[serde(skip_serializing_if = "Option::is_none")]
    redelivered: Option<Redelivered>,
    log: Vec<AttemptView>,
}

/// One attempt, and what its outcome means.
#[derive(Debug, Serialize)]
pub struct AttemptView {
    #[serde(flatten)]
    attempt: Attempt,
    /// What happened, why that usually is, and what to do.
    words: WordsView,
}

#[derive(Debug, Serialize)]
struct WordsView {
    what: String,
    why: &'static str,
    next: &'static str,
}

impl From<Attempt> for AttemptView {
    fn from(attempt: Attempt) -> Self {
        let Words { what, why, next } = attempt.outcome.words();
        Self { attempt, words: WordsView { what: what.into_owned(), why, next } }
    }
}

impl From<Delivery> for Entry {
    fn from(found: Delivery) -> Self {
        Self {
            event: found.event,
            event_type: found.event_type,
            state: found.state,
            attempts: found.attempts,
            created_at: found.created_at,
            next_attempt_at: (found.state == delivery::State::Pending).then_some(found.due_at),
            finished_at: found.finished_at,
            redelivered: found.redelivered,
            log: found.log.into_iter().map(AttemptView::from).collect(),
        }
    }
}

/// Which deliveries, checked.
struct Choice {
    state: Option<delivery::State>,
    types: Option<Pattern>,
    from: Option<Timestamp>,
    /// Events before this one.
    before: Option<EventId>,
    limit: usize,
}

/// Lists an endpoint's deliveries, also of one that was deleted.
pub async fn list<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path((tenant, endpoint)): Path<(String, String)>,
    Query(wanted): Query<Wanted>,
) -> Result<axum::Json<Log>, Problem> {
    let tenant = tenant_of(&tenant)?;
    let id: EndpointId = endpoint.parse().map_err(|_| endpoints::absent())?;
    let choice = check(&wanted)?;
    let endpoint = with_gone(&api, &tenant, id).await?.ok_or_else(endpoints::absent)?;
    let count = endpoint.lanes_ever();
    let read = (READ / usize::from(count)).max(READ_OF_A_LANE);
    let lanes = (0..count).map(|lane| {
        let lane = LaneId { tenant: tenant.clone(), endpoint: id, lane };
        let (api, before) = (&api, choice.before);
        async move { Ok(api.deliveries.log(&lane, before, true, read).await?) }
    });
    let lanes = at_once(lanes.collect()).await?;
    Ok(axum::Json(merge(lanes, read, &choice)))
}

/// An endpoint, or what is left of it.
async fn with_gone<P: Ports>(
    api: &Api<P>,
    tenant: &TenantId,
    id: EndpointId,
) -> Result<Option<Endpoint>, Problem> {
    if let Some((endpoint, _)) = api.registry.endpoint(tenant, id).await? {
        return Ok(Some(endpoint));
    }
    let gone = api.registry.gone(tenant, &[id]).await?;
    Ok(gone.into_iter().next().map(|gone| gone.endpoint))
}

fn check(wanted: &Wanted) -> Result<Choice, Problem> {
    let mut found = Findings::default();
    let types = wanted.event_type.as_ref().map(|text| found.keep("type", text.parse()));
    let cursor = wanted.cursor.as_ref().map(|text| found.keep("cursor", text.parse()));
    if wanted.from.zip(wanted.to).is_some_and(|(from, to)| from >= to) {
        found.note("from", "it is not before `to`, so that nothing is between them; exchange them");
    }
    if wanted.limit.is_some_and(|limit| !(1..=MAX_PAGE).contains(&limit)) {
        found.note("limit", format!("it is 1 to {MAX_PAGE}"));
    }
    found.done()?;
    let to = wanted.to.map(EventId::floor);
    Ok(Choice {
        state: wanted.state,
        types: types.flatten(),
        from: wanted.from,
        before: [cursor.flatten(), to].into_iter().flatten().min(),
        limit: wanted.limit.unwrap_or(PAGE),
    })
}

/// The latest of all lanes, down to where each of them was read: so many, or to its end.
fn merge(lanes: Vec<Vec<Delivery>>, read: usize, choice: &Choice) -> Log {
    // Where a lane was not read to its end, nothing is known below its last.
    let ends = lanes.iter().filter(|lane| lane.len() >= read).filter_map(|lane| lane.last());
    let known = ends.map(|last| last.event).max();
    let mut all: Vec<Delivery> = lanes.into_iter().flatten().collect();
    all.sort_by_key(|delivery| std::cmp::Reverse(delivery.event));
    let (mut log, mut bytes) = (Log { deliveries: Vec::new(), next: None }, 0);
    for delivery in all {
        let event = delivery.event;
        if known.is_some_and(|known| event < known) {
            break;
        }
        if choice.from.is_some_and(|from| event.time() < from) {
            return log;
        }
        if log.deliveries.len() == choice.limit {
            log.next = log.deliveries.last().map(|last| last.event);
            return log;
        }
        let of_type = |types: &Pattern| types.matches(&delivery.event_type);
        if choice.state.is_none_or(|state| state == delivery.state)
            && choice.types.as_ref().is_none_or(of_type)
        {
            let entry = Entry::from(delivery);
            bytes += length(&entry);
            if bytes > MAX_BYTES && !log.deliveries.is_empty() {
                log.next = log.deliveries.last().map(|last| last.event);
                return log;
            }
            log.deliveries.push(entry);
        }
    }
    log.next = known;
    log
}

/// The bytes of an entry as JSON. Ours always serialise.
fn length(entry: &Entry) -> usize {
    serde_json::to_vec(entry).map_or(0, |text| text.len())
}
