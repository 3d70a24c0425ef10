//! Redeliveries of many: started, surveyed, shown, halted.
//!
//! The audit entry comes first and says who, what and why. Then the work is a row, and the first pages are done at once;
//! whatever is left, the sweeper does.

pub mod view;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode},
    routing::{get, post},
};
use domain::{
    body::Sha256Hash,
    bulk::{MAX_RATE, MAX_REASON, PAGE},
    endpoint::{Endpoint, Health, Stop},
    id::{EndpointId, RedeliveryId, TenantId},
    inbox::Noted,
    ports::{Deliveries as _, Halt, Redeliveries as _, Registry as _, Started},
    redelivery::{self, MAX_ENDPOINTS, MAX_OPEN, Order, RATE, Selection, Work},
};
use flow::{paged, redeliver::Redeliverer};
use jiff::Timestamp;
use serde::Deserialize;
use uuid::Uuid;

use self::view::{SurveyView, WorkList, WorkView};
use crate::{
    Api, Ports, Problem, endpoints,
    endpoints::tenant_of,
    outgoing::idempotency_key,
    problem::Findings,
    request::{Actor, Json, Path},
};

/// The routes of redeliveries.
pub(crate) fn routes<P: Ports>() -> Router<Arc<Api<P>>> {
    let all = "/v1/tenants/{tenant}/redeliveries";
    let one = format!("{all}/{{redelivery}}");
    Router::new()
        .route(all, get(list::<P>).post(start::<P>))
        .route(&one, get(show::<P>))
        .route(&format!("{one}/cancel"), post(cancel::<P>))
        .route(&format!("{one}/pause"), post(pause::<P>))
        .route(&format!("{one}/resume"), post(resume::<P>))
}

/// Deliveries that a dry run looks at, at most.
const SURVEYED: u64 = 10_000;

/// How long a dry run looks: below what a caller waits for.
const SURVEY_TIME: Duration = Duration::from_secs(8);

/// What is done before the answer: deliveries, and time. The sweeper does the rest.
const AT_ONCE: u64 = 2 * PAGE as u64;
const AT_ONCE_TIME: Duration = Duration::from_secs(3);

/// Works that a list shows.
const LISTED: usize = 50;

/// A redelivery to start, or to survey.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewRedelivery {
    /// To which endpoint. Left out: to all of the tenant's that are not stopped.
    #[serde(default)]
    endpoint: Option<String>,
    /// Which deliveries. Left out: those that were given up.
    #[serde(default)]
    select: Selection,
    /// Deliveries per second.
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

/// Starts a redelivery, or says what it would do.
///
/// With an `Idempotency-Key` a call can be repeated: the work of the first call is the only one.
pub async fn start<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path(tenant): Path<String>,
    Actor(actor): Actor,
    headers: HeaderMap,
    Json(new): Json<NewRedelivery>,
) -> Result<(StatusCode, axum::Json<Answer>), Problem> {
    let tenant = tenant_of(&tenant)?;
    let mut found = Findings::default();
    let key = idempotency_key(&headers, &mut found);
    check(&new, &mut found);
    found.done()?;
    let is_named = new.endpoint.is_some();
    let endpoints = match &new.endpoint {
        Some(name) => vec![open(&api, &tenant, name).await?],
        None => all(&api, &tenant).await?,
    };
    let mut seen = BTreeSet::new();
    let mut selection = new.select;
    selection.events.retain(|event| seen.insert(*event));
    let id = id_of(&tenant, key.as_deref(), api.edge.uuid);
    let rate = new.rate.unwrap_or(RATE);
    let reason = new.reason.unwrap_or_default().trim().to_owned();
    let order = Order { id, tenant, endpoints, is_named, selection, rate, reason, actor };
    if new.dry_run {
        let survey = survey(&api, order).await?;
        return Ok((StatusCode::OK, axum::Json(Answer::Survey(Box::new(survey)))));
    }
    let (is_new, work) = begin(&api, order).await?;
    let status = if is_new { StatusCode::ACCEPTED } else { StatusCode::OK };
    Ok((status, axum::Json(Answer::Work(Box::new(WorkView::of(work, !is_new))))))
}

fn check(new: &NewRedelivery, found: &mut Findings) {
    for (field, why) in new.select.problems() {
        found.note(&format!("select.{field}"), why);
    }
    if new.rate.is_some_and(|rate| !(1..=MAX_RATE).contains(&rate)) {
        found.note("rate", format!("it is 1 to {MAX_RATE} deliveries per second"));
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

/// The endpoint that was named, if anything would be sent to it.
async fn open<P: Ports>(
    api: &Api<P>,
    tenant: &TenantId,
    name: &str,
) -> Result<EndpointId, Problem> {
    let id = name.parse().map_err(|_| endpoints::absent())?;
    let (endpoint, _) = api.registry.endpoint(tenant, id).await?.ok_or_else(endpoints::absent)?;
    let health = api.deliveries.health(tenant, id).await?;
    refuse_stopped(&endpoint, &health)?;
    Ok(id)
}

/// Nothing is made due again that nobody would send: it would look as if it were under way.
pub(crate) fn refuse_stopped(endpoint: &Endpoint, health: &Health) -> Result<(), Problem> {
    let Some(since) = endpoint.stopped_since(health) else { return Ok(()) };
    let Endpoint { tenant, id, .. } = endpoint;
    let disabled = endpoint.disabled_by_health(health).map(|disabled| disabled.reason.as_str());
    let (what, how) = match (&endpoint.stopped, disabled) {
        (Some(stopped), _) if stopped.how == Stop::Paused => ("paused by a person", "resume"),
        (Some(_), _) => ("disabled by a person", "enable"),
        (None, Some("gone")) => ("disabled, because it answered 410 Gone", "enable"),
        (None, _) => ("disabled, because every attempt had failed", "enable"),
    };
    let detail = format!(
        "The endpoint is {what}, since {since}: nothing is sent to it. `postern endpoints {how} {tenant} {id}` starts \
         it again; then the same redelivery works. What was held meanwhile goes out by itself."
    );
    Err(Problem::conflict("endpoint-stopped", detail))
}

/// All endpoints of a tenant. Deliveries of those that are stopped are left, and counted.
async fn all<P: Ports>(api: &Api<P>, tenant: &TenantId) -> Result<Vec<EndpointId>, Problem> {
    let endpoints = api.registry.endpoints(tenant).await?;
    if endpoints.len() > MAX_ENDPOINTS {
        let detail = format!(
            "The tenant has {} endpoints, and one redelivery takes {MAX_ENDPOINTS} at most. Name an endpoint.",
            endpoints.len()
        );
        return Err(Problem::conflict("too-many-endpoints", detail));
    }
    Ok(endpoints.into_iter().map(|endpoint| endpoint.id).collect())
}

/// A key names its work; without one, each call is another.
fn id_of(tenant: &TenantId, key: Option<&str>, uuid: fn() -> Uuid) -> RedeliveryId {
    let named = |key: &str| {
        let Sha256Hash(hash) = Sha256Hash::of(format!("{tenant} {key}").as_bytes());
        Uuid::from_u128(hash.iter().take(16).fold(0, |sum, byte| (sum << 8) | u128::from(*byte)))
    };
    RedeliveryId::new(key.map_or_else(uuid, named))
}

type Redelivers<'a, P> = Redeliverer<
    'a,
    <P as Ports>::Deliveries,
    <P as Ports>::Outbox,
    <P as Ports>::Registry,
    <P as Ports>::Bodies,
    <P as Ports>::Wakes,
>;

fn redeliverer<P: Ports>(api: &Api<P>) -> Redelivers<'_, P> {
    Redeliverer {
        deliveries: &api.deliveries,
        outbox: &api.outbox,
        registry: &api.registry,
        bodies: &api.bodies,
        wakes: &api.wakes,
        tried_for: api.limits.delivery_deadline,
    }
}

async fn survey<P: Ports>(api: &Api<P>, order: Order) -> Result<SurveyView, Problem> {
    let began = api.now();
    let is_late = || api.now().duration_since(began).unsigned_abs() >= SURVEY_TIME;
    let work = Work::new(order, began);
    let survey = redeliverer(api).survey(work.clone(), SURVEYED, is_late).await?;
    Ok(SurveyView::of(work, survey))
}

/// Writes the work down and does its first pages. `false`: it was begun before, by a call with the same key.
async fn begin<P: Ports>(api: &Api<P>, order: Order) -> Result<(bool, Work), Problem> {
    let now = api.now();
    let work = Work::new(order, now);
    let (tenant, actor) = (work.tenant.as_str(), work.actor.clone());
    api.audit(tenant, actor, "redelivery.start", &subject(&work), now).await?;
    match api.registry.start_redelivery(&work, MAX_OPEN).await? {
        Started::Yes => {}
        Started::Before(before) => return repeated(&work, *before).map(|before| (false, before)),
        Started::TooMany => {
            let detail = format!(
                "{MAX_OPEN} redeliveries are under way in this deployment, as many as may be. Wait for one to end, or \
                 cancel one: `GET /v1/tenants/{tenant}/redeliveries` lists a tenant's."
            );
            return Err(Problem::conflict("too-many-redeliveries", detail));
        }
    }
    Ok((true, first_pages(api, work, now).await))
}

/// Which deliveries, how fast, and why.
fn subject(work: &Work) -> String {
    let Work { id, endpoints, selection, rate, reason, .. } = work;
    let to = match (work.is_named, endpoints.as_slice()) {
        (true, [endpoint]) => endpoint.to_string(),
        _ => format!("all {} endpoints", endpoints.len()),
    };
    // A selection always serialises.
    let selection = serde_json::to_string(selection).unwrap_or_default();
    format!("{id} to {to}: {selection}, {rate} per second; reason: {reason}")
}

fn repeated(wanted: &Work, before: Work) -> Result<Work, Problem> {
    let same = before.tenant == wanted.tenant
        && before.selection == wanted.selection
        && before.is_named == wanted.is_named
        && (!wanted.is_named || before.endpoints == wanted.endpoints);
    if same {
        return Ok(before);
    }
    let detail = "The Idempotency-Key was used for another redelivery. Use a new key for this one.";
    Err(Problem::conflict("key-reused", detail))
}

/// Small work is done before the answer. Whatever goes wrong here is the sweeper's: the work is written down.
async fn first_pages<P: Ports>(api: &Api<P>, work: Work, began: Timestamp) -> Work {
    let (id, kind) = (work.id, redeliverer(api));
    let is_late = |now: Timestamp| now.duration_since(began).unsigned_abs() >= AT_ONCE_TIME;
    let (work, left) = paged::begin(&kind, work, AT_ONCE, || api.now(), is_late).await;
    if let Some(error) = left {
        let error = runtime::telemetry::chain(&error).to_string();
        tracing::warn!(stage = "redeliver", %id, error, "the sweeper goes on with it");
    }
    work
}

/// Lists a tenant's redeliveries, the latest first.
pub async fn list<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path(tenant): Path<String>,
) -> Result<axum::Json<WorkList>, Problem> {
    let works = api.registry.redeliveries(&tenant_of(&tenant)?, LISTED + 1).await?;
    Ok(axum::Json(WorkList::of(works, LISTED)))
}

/// Shows how far a redelivery is.
pub async fn show<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path((tenant, id)): Path<(String, String)>,
) -> Result<axum::Json<WorkView>, Problem> {
    Ok(axum::Json(WorkView::of(find(&api, &tenant, &id).await?, false)))
}

/// Stops a redelivery for good. What it has taken is sent all the same.
pub async fn cancel<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path((tenant, id)): Path<(String, String)>,
    Actor(actor): Actor,
) -> Result<axum::Json<WorkView>, Problem> {
    halt(&api, (&tenant, &id), actor, Halt::Cancel).await
}

/// Stops a redelivery for a while.
pub async fn pause<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path((tenant, id)): Path<(String, String)>,
    Actor(actor): Actor,
) -> Result<axum::Json<WorkView>, Problem> {
    halt(&api, (&tenant, &id), actor, Halt::Pause).await
}

/// Lets a paused redelivery go on.
pub async fn resume<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path((tenant, id)): Path<(String, String)>,
    Actor(actor): Actor,
) -> Result<axum::Json<WorkView>, Problem> {
    halt(&api, (&tenant, &id), actor, Halt::Resume).await
}

async fn halt<P: Ports>(
    api: &Api<P>,
    (tenant, id): (&str, &str),
    actor: String,
    how: Halt,
) -> Result<axum::Json<WorkView>, Problem> {
    let work = find(api, tenant, id).await?;
    if work.is_over() {
        return Err(over(&work));
    }
    let (now, action) = (api.now(), action(how));
    api.audit(work.tenant.as_str(), actor.clone(), action, &work.id.to_string(), now).await?;
    let noted = api.registry.halt_redelivery(work.id, how, &actor, now).await?;
    let work = find(api, tenant, id).await?;
    let is_cancelled = work.state() == redelivery::State::Cancelled;
    if work.is_over() && !(noted == Noted::Yes && is_cancelled) {
        return Err(over(&work));
    }
    if noted == Noted::Moved {
        // It stands so already, as after a call whose answer was lost.
        return Ok(axum::Json(WorkView::of(work, true)));
    }
    if is_cancelled && let Err(error) = api.registry.close_redelivery(work.id).await {
        // A failure costs the sweeper one look.
        let (id, error) = (work.id, runtime::telemetry::chain(&error).to_string());
        tracing::warn!(stage = "redeliver", %id, error, "the sweeper closes it");
    }
    Ok(axum::Json(WorkView::of(work, false)))
}

const fn action(how: Halt) -> &'static str {
    match how {
        Halt::Cancel => "redelivery.cancel",
        Halt::Pause => "redelivery.pause",
        Halt::Resume => "redelivery.resume",
    }
}

async fn find<P: Ports>(api: &Api<P>, tenant: &str, id: &str) -> Result<Work, Problem> {
    let tenant = tenant_of(tenant)?;
    let id: RedeliveryId = id.parse().map_err(|_| absent())?;
    let work = api.registry.redelivery(id).await?;
    work.filter(|work| work.tenant == tenant).ok_or_else(absent)
}

fn over(work: &Work) -> Problem {
    let detail = match work.state() {
        redelivery::State::Cancelled => {
            "The redelivery was cancelled before. Its counts say what it had done."
        }
        _ => "The redelivery is over: nothing of it is left. Its counts say what it has done.",
    };
    Problem::conflict("over", detail)
}

fn absent() -> Problem {
    Problem::absent("redelivery of this id at this tenant")
}
