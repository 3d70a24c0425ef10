//! Bulk work: many received events are replayed, or sent now, by names or by a selection; its progress, its end.
//!
//! The audit entry comes first and says who, what and why. Then the work is a row, and the first pages are done at once;
//! whatever is left, the sweeper does.

pub mod view;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use axum::{
    extract::State,
    http::{HeaderMap, StatusCode},
};
use domain::{
    body::Sha256Hash,
    bulk::{self, Kind, MAX_RATE, MAX_REASON, Order, Selection, Work},
    id::{ReplayId, SourceName},
    inbox::Noted,
    ports::{Bulk as _, Registry as _, Start},
    source::Source,
};
use flow::{bulk::Bulks, paged};
use jiff::Timestamp;
use serde::Deserialize;
use uuid::Uuid;

use self::view::{SurveyView, WorkList, WorkView};
use crate::{
    Api, OF_THE_DEPLOYMENT, Ports, Problem,
    outgoing::idempotency_key,
    problem::Findings,
    request::{Actor, Json, Path},
};

/// Rows that a dry run looks at, at most.
const SURVEYED: u64 = 10_000;

/// How long a dry run looks: below what a caller waits for.
const SURVEY_TIME: Duration = Duration::from_secs(8);

/// What is done before the answer: rows, and time. The sweeper does the rest.
const AT_ONCE: u64 = 2 * bulk::PAGE as u64;
const AT_ONCE_TIME: Duration = Duration::from_secs(3);

/// How often a resume that is over is told from the ones after it. Each of them takes [`bulk::SETTLES`] at least.
const MAX_REPEATED: u32 = 50;

/// Works that a list shows.
const LISTED: usize = 50;

/// How far a source's own clock may have been ahead when it was added: its first events are on the first day that is
/// walked.
const MARGIN: Duration = Duration::from_hours(24);

/// Bulk work to start, or to survey.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewReplay {
    source: String,
    #[serde(default)]
    select: Selection,
    #[serde(default)]
    kind: Kind,
    /// Events per second.
    #[serde(default)]
    rate: Option<u32>,
    /// Says what would be done, and does nothing.
    #[serde(default)]
    dry_run: bool,
    /// Why, for the audit.
    #[serde(default)]
    reason: Option<String>,
}

/// What a start answers: the work, or what it would do.
#[derive(Debug, serde::Serialize)]
#[serde(untagged)]
pub enum Answer {
    /// It is under way.
    Work(Box<WorkView>),
    /// It would do this.
    Survey(Box<SurveyView>),
}

/// Starts bulk work, or says what it would do.
///
/// With an `Idempotency-Key` a call can be repeated: the work of the first call is the only one.
pub async fn start<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Actor(actor): Actor,
    headers: HeaderMap,
    Json(new): Json<NewReplay>,
) -> Result<(StatusCode, axum::Json<Answer>), Problem> {
    let mut found = Findings::default();
    let key = idempotency_key(&headers, &mut found);
    let name = found.keep("source", new.source.parse::<SourceName>());
    check(&new, &mut found);
    let Some(name) = name else { return Err(found.problem()) };
    found.done()?;
    let source = api.registry.source(&name).await?.ok_or_else(no_source)?;
    let selection = selection(&api, &source, new.kind, new.select).await?;
    let order = Order {
        id: id_of(key.as_deref(), api.edge.uuid),
        kind: new.kind,
        source: source.filed_under().clone(),
        selection,
        rate: new.rate.unwrap_or(bulk::RATE),
        reason: new.reason.unwrap_or_default().trim().to_owned(),
        actor,
    };
    if new.dry_run {
        let survey = survey(&api, order).await?;
        return Ok((StatusCode::OK, axum::Json(Answer::Survey(Box::new(survey)))));
    }
    let (is_new, work) = begin(&api, order).await?;
    let status = if is_new { StatusCode::ACCEPTED } else { StatusCode::OK };
    Ok((status, axum::Json(Answer::Work(Box::new(WorkView::of(work, !is_new))))))
}

fn check(new: &NewReplay, found: &mut Findings) {
    for (field, why) in new.select.problems(new.kind) {
        found.note(&format!("select.{field}"), why);
    }
    if new.rate.is_some_and(|rate| !(1..=MAX_RATE).contains(&rate)) {
        found.note("rate", format!("it is 1 to {MAX_RATE} events per second"));
    }
    let reason = new.reason.as_deref().unwrap_or_default();
    let length = reason.trim().chars().count();
    if reason.chars().any(char::is_control) || length > MAX_REASON {
        let problem = format!("it is at most {MAX_REASON} characters, without control characters");
        found.note("reason", problem);
    } else if length == 0 && !new.dry_run {
        found.note("reason", "say why, for those who read the audit later; a dry run needs none");
    }
}

/// The selection with what it leaves open filled in, if this deployment can walk it.
async fn selection<P: Ports>(
    api: &Api<P>,
    source: &Source,
    kind: Kind,
    wanted: Selection,
) -> Result<Selection, Problem> {
    let mut selection = wanted.or_default(kind);
    let mut seen = BTreeSet::new();
    selection.events.retain(|event| seen.insert(event.clone()));
    if !selection.walks_days() {
        return Ok(selection);
    }
    if !api.limits.list_by_source {
        let detail = "Processed and ignored events are selected by day, and this deployment does not list events by \
                      source and day (parameter ListBySource). Name the events, or select status `dead_letter`, or \
                      set the parameter: events received from then on are listed.";
        return Err(Problem::conflict("not-listed", detail));
    }
    if selection.from.is_none() {
        let filed = source.filed_under();
        let first = match &source.same_as {
            Some(_) => api.registry.source(filed).await?.map(|filed| filed.created_at),
            None => None,
        };
        let first = first.unwrap_or(source.created_at);
        selection.from = Some(first.saturating_sub(MARGIN).unwrap_or(Timestamp::MIN));
    }
    Ok(selection)
}

/// A key names its work; without one, each call is another.
fn id_of(key: Option<&str>, uuid: fn() -> Uuid) -> ReplayId {
    let named = |key: &str| {
        let Sha256Hash(hash) = Sha256Hash::of(key.as_bytes());
        Uuid::from_u128(hash.iter().take(16).fold(0, |sum, byte| (sum << 8) | u128::from(*byte)))
    };
    ReplayId::new(key.map_or_else(uuid, named))
}

fn bulks<P: Ports>(api: &Api<P>) -> Bulks<'_, P::Inbox, P::Registry, P::Queues> {
    Bulks {
        inbox: &api.inbox,
        bulk: &api.registry,
        queue: &api.inbound,
        shards: api.limits.pending_shards,
        first_due: api.limits.first_due,
    }
}

async fn survey<P: Ports>(api: &Api<P>, order: Order) -> Result<SurveyView, Problem> {
    let began = api.now();
    let is_late = || api.now().duration_since(began).unsigned_abs() >= SURVEY_TIME;
    let work = Work::new(order, began);
    let survey = bulks(api).survey(work.clone(), SURVEYED, is_late).await?;
    Ok(SurveyView::of(work, survey))
}

/// Writes the work down and does its first pages. `false`: it was begun before, by a call with the same key.
pub(crate) async fn begin<P: Ports>(api: &Api<P>, order: Order) -> Result<(bool, Work), Problem> {
    let now = api.now();
    let work = Work::new(order, now);
    api.audit(OF_THE_DEPLOYMENT, work.actor.clone(), action(work.kind), &subject(&work), now)
        .await?;
    let most = match work.kind {
        Kind::Replay => bulk::MAX_OPEN,
        Kind::Resume => bulk::MAX_OPEN_FOR_RESUME,
    };
    match api.registry.start(&work, most).await? {
        Start::Yes => {}
        Start::Before(before) => return repeated(&work, *before).map(|before| (false, before)),
        Start::TooMany => {
            let detail = format!(
                "{most} replays and resumes are under way, as many as may be. Wait for one to end, or cancel one: \
                 `GET /v1/replays` lists them."
            );
            return Err(Problem::conflict("too-many-replays", detail));
        }
    }
    Ok((true, first_pages(api, work, now).await))
}

/// Sends the waiting events of a source now, because it was resumed then. A repeated call finds the first one's work as
/// long as that is under way, and begins another when it is over.
///
/// # Errors
/// It could not be written down; nothing is sent before its time then.
pub(crate) async fn resume<P: Ports>(
    api: &Api<P>,
    source: &Source,
    resumed_at: Timestamp,
    rate: u32,
    actor: String,
) -> Result<Work, Problem> {
    let order = Order {
        id: free_id(api, &format!("resume of {} at {resumed_at}", source.name)).await?,
        kind: Kind::Resume,
        // Not where its events are filed now: those that wait were filed before it became the same as another.
        source: source.name.clone(),
        selection: Selection::default().or_default(Kind::Resume),
        rate,
        reason: "the source was resumed".to_owned(),
        actor,
    };
    Ok(begin(api, order).await?.1)
}

/// The id of this name, or the first one after it that no work that is over has. Two who ask at once come to the same.
async fn free_id<P: Ports>(api: &Api<P>, name: &str) -> Result<ReplayId, Problem> {
    let mut id = id_of(Some(name), api.edge.uuid);
    for _ in 0..MAX_REPEATED {
        match api.registry.bulk(id).await? {
            Some(before) if before.state() != bulk::State::Running => {
                id = id_of(Some(&format!("after {id}")), api.edge.uuid);
            }
            Some(_) | None => return Ok(id),
        }
    }
    Ok(id_of(None, api.edge.uuid))
}

const fn action(kind: Kind) -> &'static str {
    match kind {
        Kind::Replay => "replay.start",
        Kind::Resume => "resume.start",
    }
}

/// Which events, how fast, and why.
fn subject(work: &Work) -> String {
    let Work { id, source, selection, rate, reason, .. } = work;
    // A selection always serialises.
    let selection = serde_json::to_string(selection).unwrap_or_default();
    format!("{id} of {source}: {selection}, {rate} per second; reason: {reason}")
}

fn repeated(wanted: &Work, before: Work) -> Result<Work, Problem> {
    let same = before.source == wanted.source
        && before.selection == wanted.selection
        && before.kind == wanted.kind;
    if same {
        return Ok(before);
    }
    let detail = "The Idempotency-Key was used for another replay. Use a new key for this one.";
    Err(Problem::conflict("key-reused", detail))
}

/// Small work is done before the answer. Whatever goes wrong here is the sweeper's: the work is written down.
async fn first_pages<P: Ports>(api: &Api<P>, work: Work, began: Timestamp) -> Work {
    let (id, kind) = (work.id, bulks(api));
    let is_late = |now: Timestamp| now.duration_since(began).unsigned_abs() >= AT_ONCE_TIME;
    let (work, left) = paged::begin(&kind, work, AT_ONCE, || api.now(), is_late).await;
    if let Some(error) = left {
        let error = runtime::telemetry::chain(&error).to_string();
        tracing::warn!(stage = "bulk", %id, error, "the sweeper goes on with it");
    }
    work
}

/// Lists bulk work, the latest first.
pub async fn list<P: Ports>(
    State(api): State<Arc<Api<P>>>,
) -> Result<axum::Json<WorkList>, Problem> {
    let works = api.registry.bulks(LISTED + 1).await?;
    Ok(axum::Json(WorkList::of(works, LISTED)))
}

/// Shows how far bulk work is.
pub async fn show<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path(id): Path<String>,
) -> Result<axum::Json<WorkView>, Problem> {
    let id: ReplayId = id.parse().map_err(|_| absent())?;
    let work = api.registry.bulk(id).await?.ok_or_else(absent)?;
    Ok(axum::Json(WorkView::of(work, false)))
}

/// Stops bulk work. What it has taken is processed all the same.
pub async fn cancel<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path(id): Path<String>,
    Actor(actor): Actor,
) -> Result<axum::Json<WorkView>, Problem> {
    let id: ReplayId = id.parse().map_err(|_| absent())?;
    let work = api.registry.bulk(id).await?.ok_or_else(absent)?;
    if work.state() != bulk::State::Running {
        return Err(over(&work));
    }
    let now = api.now();
    api.audit(OF_THE_DEPLOYMENT, actor.clone(), "replay.cancel", &id.to_string(), now).await?;
    let noted = api.registry.cancel(id, &actor, now).await?;
    let work = api.registry.bulk(id).await?.ok_or_else(absent)?;
    if noted == Noted::Moved || work.state() == bulk::State::Completed {
        return Err(over(&work));
    }
    // A failure costs the sweeper one look.
    if let Err(error) = api.registry.close(id).await {
        let error = runtime::telemetry::chain(&error).to_string();
        tracing::warn!(stage = "bulk", %id, error, "the sweeper closes it");
    }
    Ok(axum::Json(WorkView::of(work, false)))
}

fn over(work: &Work) -> Problem {
    let detail = match work.state() {
        bulk::State::Cancelled => {
            "The replay was cancelled before. Its counts say what it had done."
        }
        _ => {
            "The replay is over: there is nothing left to cancel. Its counts say what it has done."
        }
    };
    Problem::conflict("over", detail)
}

fn absent() -> Problem {
    Problem::absent("replay of this id")
}

fn no_source() -> Problem {
    Problem::absent("source of this name")
}
