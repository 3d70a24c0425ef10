//! Polling: the owner of an endpoint fetches what it gets, from behind a firewall, and acknowledges it.
//!
//! These are the only routes that are open to others than operators. Who calls shows a token, which opens one endpoint and
//! nothing else; a wrong one, an endpoint that does not exist and one that is not polled get the same answer.
//!
//! What is handed out is marked before it is shown, and comes again when its time is over. So a poller that dies loses
//! nothing, two that poll at once get different deliveries, and nobody need hold the lane.

mod handout;
mod token;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{Router, extract::State, routing::post};
use domain::{
    delivery::Delivery,
    endpoint::Endpoint,
    id::{EndpointId, EventId, TenantId},
    inbox::Noted,
    lane::{LaneId, Pointer},
    polling::{Acked, MAX_HANDED_OUT, Receipt, acknowledged},
    ports::{Deliveries as _, Registry as _, SealedSecret},
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use self::token::Token;
pub(crate) use self::token::{mint, sealed};
use crate::{
    Api, Ports, Problem, at_once,
    problem::Findings,
    redeliveries::refuse_stopped,
    request::{Json, Path},
};

/// The routes of those who poll.
pub(crate) fn routes<P: Ports>() -> Router<Arc<Api<P>>> {
    Router::new()
        .route("/poll/{tenant}/{endpoint}", post(poll::<P>))
        .route("/poll/{tenant}/{endpoint}/ack", post(ack::<P>))
}

/// Deliveries that are handed out if nobody says how many.
const MAX: usize = 10;

/// How long a poller may take to acknowledge.
const LONGEST: Duration = Duration::from_hours(12);
const SHORTEST: Duration = Duration::from_secs(1);

/// How often an acknowledgement looks again, when somebody changes the delivery meanwhile.
const LOOKS: u32 = 3;

/// What a poller asks for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Poll {
    /// Deliveries, at most.
    #[serde(default)]
    max: Option<usize>,
    /// How long it has to acknowledge them, in milliseconds.
    #[serde(default)]
    visibility_ms: Option<u64>,
    /// The `cursor` of an earlier answer: all that came with it is acknowledged.
    #[serde(default)]
    cursor: Option<String>,
}

/// What a poller gets.
#[derive(Debug, Serialize)]
pub struct Polled {
    /// The oldest due first.
    deliveries: Vec<HandedOut>,
    /// Acknowledges all of them, given with the next call.
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
    /// Whether there is more to fetch at once.
    more: bool,
    /// What the `cursor` of this call acknowledged.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    acknowledged: Vec<AckView>,
}

/// A delivery, as a request would bring it.
#[derive(Debug, Serialize)]
pub struct HandedOut {
    /// Acknowledges it.
    receipt: String,
    /// Its event's id, which is `webhook-id`, too.
    event: EventId,
    #[serde(rename = "type")]
    event_type: String,
    /// The number of the attempt, from 1.
    attempt: u32,
    /// When it comes again, if nobody acknowledges it.
    until: Timestamp,
    /// The headers of the request, signature included.
    headers: BTreeMap<String, String>,
    /// The bytes that are signed.
    #[serde(flatten)]
    body: Body,
}

/// The bytes that are signed: as text, or in base64 if they are none.
#[derive(Debug, Serialize)]
enum Body {
    #[serde(rename = "body")]
    Text(String),
    #[serde(rename = "body_base64")]
    Base64(String),
}

/// What a poller has.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Acks {
    receipts: Vec<String>,
}

/// What became of acknowledgements, in their order.
#[derive(Debug, Serialize)]
pub struct AckAnswer {
    acknowledged: Vec<AckView>,
}

/// What became of one.
#[derive(Clone, Debug, Serialize)]
pub struct AckView {
    receipt: String,
    result: AckResult,
}

/// What can become of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AckResult {
    /// It is delivered.
    Acknowledged,
    /// It was before.
    Before,
    /// It was given up before.
    TooLate,
    /// No delivery that is owed was handed out with this receipt.
    Unknown,
}

/// Hands out what is due.
pub async fn poll<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path((tenant, endpoint)): Path<(String, String)>,
    token: Token,
    Json(wanted): Json<Poll>,
) -> Result<axum::Json<Polled>, Problem> {
    let (endpoint, secrets) = open(&api, &tenant, &endpoint, &token).await?;
    let (max, visibility, receipts) = check(&api, &wanted)?;
    let acknowledged = ack_all(&api, &endpoint, receipts).await?;
    let health = api.deliveries.health(&endpoint.tenant, endpoint.id).await?;
    refuse_stopped(&endpoint, &health)?;
    let now = api.now();
    let until = now.saturating_add(visibility).unwrap_or(Timestamp::MAX);
    let (deliveries, more) = handout::of(&api, &endpoint, &secrets, max, (now, until)).await?;
    let receipts: Vec<_> = deliveries.iter().map(|one| one.receipt.as_str()).collect();
    let cursor = (!receipts.is_empty()).then(|| receipts.join(","));
    Ok(axum::Json(Polled { deliveries, cursor, more, acknowledged }))
}

/// Acknowledges. Any call can be repeated.
pub async fn ack<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path((tenant, endpoint)): Path<(String, String)>,
    token: Token,
    Json(acks): Json<Acks>,
) -> Result<axum::Json<AckAnswer>, Problem> {
    let (endpoint, _) = open(&api, &tenant, &endpoint, &token).await?;
    let mut found = Findings::default();
    let count = acks.receipts.len();
    if !(1..=MAX_HANDED_OUT).contains(&count) {
        found.note("receipts", format!("there are 1 to {MAX_HANDED_OUT}"));
    }
    let receipts = acks.receipts.iter().take(MAX_HANDED_OUT).enumerate();
    let receipts: Vec<Option<Receipt>> =
        receipts.map(|(at, text)| found.keep(&format!("receipts[{at}]"), text.parse())).collect();
    found.done()?;
    let receipts = receipts.into_iter().flatten().collect();
    Ok(axum::Json(AckAnswer { acknowledged: ack_all(&api, &endpoint, receipts).await? }))
}

fn check<P: Ports>(
    api: &Api<P>,
    wanted: &Poll,
) -> Result<(usize, Duration, Vec<Receipt>), Problem> {
    let mut found = Findings::default();
    if wanted.max.is_some_and(|max| !(1..=MAX_HANDED_OUT).contains(&max)) {
        found.note("max", format!("it is 1 to {MAX_HANDED_OUT}"));
    }
    let visibility = wanted.visibility_ms.map(Duration::from_millis);
    if visibility.is_some_and(|time| !(SHORTEST..=LONGEST).contains(&time)) {
        let (least, most) = (SHORTEST.as_millis(), LONGEST.as_millis());
        found.note("visibility_ms", format!("it is {least} to {most}, which is 12 hours"));
    }
    let cursor = wanted.cursor.as_deref().unwrap_or_default();
    let texts = cursor.split(',').filter(|text| !text.is_empty());
    let receipts: Result<Vec<Receipt>, _> = texts.take(MAX_HANDED_OUT).map(str::parse).collect();
    let Ok(receipts) = receipts else {
        found.note("cursor", "it is not the `cursor` of an answer; leave it out to begin");
        return Err(found.problem());
    };
    found.done()?;
    let visibility = visibility.unwrap_or(api.limits.poll_visibility);
    Ok((wanted.max.unwrap_or(MAX), visibility, receipts))
}

/// The endpoint that a token opens.
async fn open<P: Ports>(
    api: &Api<P>,
    tenant: &str,
    endpoint: &str,
    token: &Token,
) -> Result<(Endpoint, Vec<SealedSecret>), Problem> {
    let (Ok(tenant), Ok(id)) = (tenant.parse::<TenantId>(), endpoint.parse::<EndpointId>()) else {
        return Err(token::refused());
    };
    let found = api.registry.endpoint(&tenant, id).await?;
    let (endpoint, secrets) = found.ok_or_else(token::refused)?;
    let is_polled = matches!(endpoint.destination, domain::destination::Destination::Poll(_));
    if !token.opens(&secrets, api.now()) || !is_polled {
        return Err(token::refused());
    }
    Ok((endpoint, secrets))
}

async fn ack_all<P: Ports>(
    api: &Api<P>,
    endpoint: &Endpoint,
    receipts: Vec<Receipt>,
) -> Result<Vec<AckView>, Problem> {
    let acks = receipts.into_iter().map(|receipt| async move {
        let result = ack_one(api, endpoint, receipt).await?;
        Ok(AckView { receipt: receipt.to_string(), result })
    });
    at_once(acks.collect()).await
}

async fn ack_one<P: Ports>(
    api: &Api<P>,
    endpoint: &Endpoint,
    receipt: Receipt,
) -> Result<AckResult, Problem> {
    if receipt.lane >= endpoint.lanes_ever() {
        return Ok(AckResult::Unknown);
    }
    let Endpoint { tenant, id, .. } = endpoint;
    let lane = LaneId { tenant: tenant.clone(), endpoint: *id, lane: receipt.lane };
    for _ in 0..LOOKS {
        let found = api.deliveries.read(&lane, &[receipt.event]).await?;
        let Some(before) = found.into_iter().next() else { return Ok(AckResult::Unknown) };
        let now = api.now();
        let after = match acknowledged(&before, receipt.attempt, now) {
            Acked::Ends(after) => after,
            Acked::Before => return Ok(AckResult::Before),
            Acked::TooLate => return Ok(AckResult::TooLate),
            Acked::Unknown => return Ok(AckResult::Unknown),
        };
        // Moved: somebody hands it out again, or acknowledges it, in this moment.
        if api.deliveries.record(&lane, &before, &after).await? == Noted::Yes {
            tell(&lane, &after, receipt.attempt);
            forget(api, &lane, &before).await;
            return Ok(AckResult::Acknowledged);
        }
    }
    let detail =
        "The delivery was changed again and again meanwhile. Send the same acknowledgement again.";
    Err(Problem::conflict("busy", detail))
}

/// Deletes the pointer of what has ended. Who finds it otherwise deletes it.
async fn forget<P: Ports>(api: &Api<P>, lane: &LaneId, before: &Delivery) {
    if let Err(error) = api.deliveries.unpoint(lane, &Pointer::of(before)).await {
        let error = runtime::telemetry::chain(&error).to_string();
        tracing::warn!(stage = "poll", %lane, error, "a pointer stays until somebody finds it");
    }
}

/// The line of an attempt, as the deliverer writes it.
fn tell(lane: &LaneId, after: &Delivery, attempt: u32) {
    tracing::info!(
        stage = "deliver",
        tenant = %lane.tenant,
        endpoint = %lane.endpoint,
        lane = lane.lane,
        event_id = %after.event,
        event_type = after.event_type,
        attempt,
        result = "succeeded",
        "acknowledged"
    );
}
