//! Handing out what is due: read, rendered as a request would bring it, marked, and only then shown.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use domain::{
    delivery::{Attempt, Cause, Delivery, Next, Outcome},
    endpoint::Endpoint,
    inbox::Noted,
    lane::{Found, Kind, LaneId, Pointer},
    outbox::{OutboxEvent, OutboxRow},
    polling::{MAX_BYTES, Receipt, handed_out},
    ports::{
        Deliveries as _, Due as PointersDue, Keyring as _, Outbox as _, Purpose, SealedSecret,
        StoreError,
    },
};
use flow::{
    leaving::{Content, Leaving, needs_payload},
    payload::{Opened, open},
};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use http::HeaderMap;
use jiff::Timestamp;
use signing::{EndpointSecret, Secret};

use super::{Body, HandedOut};
use crate::{Api, Ports, Problem, WIDTH, at_once};

/// A due delivery, its pointer, and its bytes.
struct Ready {
    lane: LaneId,
    pointer: Pointer,
    delivery: Delivery,
    /// `None`: it cannot be rendered, which is our own fault.
    content: Option<(OutboxEvent, Content)>,
}

/// Hands out at most `max` deliveries, to come again at the second time. Whether there is more.
pub(super) async fn of<P: Ports>(
    api: &Api<P>,
    endpoint: &Endpoint,
    secrets: &[SealedSecret],
    max: usize,
    (now, until): (Timestamp, Timestamp),
) -> Result<(Vec<HandedOut>, bool), Problem> {
    let (due, mut more) = due(api, endpoint, max, now).await?;
    if due.is_empty() {
        return Ok((Vec::new(), more));
    }
    let secrets = opened(api, endpoint, secrets, now).await?;
    let ready: Vec<_> = due.into_iter().map(|due| render(api, endpoint, due)).collect();
    // Only as many are read as an answer holds, and those that are under way beside them.
    let mut ready = stream::iter(ready).buffered(WIDTH);
    let mut bytes = 0;
    let mut within = Vec::new();
    while let Some(ready) = ready.try_next().await? {
        bytes += ready.content.as_ref().map_or(0, |(_, content)| in_answer(&content.bytes));
        // The first goes whatever its size: an event of a megabyte is four of them at worst.
        if bytes > MAX_BYTES && !within.is_empty() {
            more = true;
            break;
        }
        within.push(ready);
    }
    let by = (api.edge.uuid)().simple().to_string();
    let marks =
        within.into_iter().map(|ready| mark(api, endpoint, ready, &secrets, &by, (now, until)));
    let handed = at_once(marks.collect()).await?;
    Ok((handed.into_iter().flatten().collect(), more))
}

/// How many bytes of Lambda's answer a body takes: it stands in ours as a text, and ours stands in Lambda's as one. So a
/// quote is written with three signs of escape, and a line break with two.
fn in_answer(body: &[u8]) -> usize {
    if str::from_utf8(body).is_err() {
        return body.len().div_ceil(3) * 4;
    }
    let written = |byte: &u8| match byte {
        b'"' | b'\\' => 4,
        b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 3,
        0x00..=0x1f => 7,
        _ => 1,
    };
    body.iter().map(written).sum()
}

type Due = (LaneId, Pointer, Delivery);

/// What is due in all lanes, the oldest first. Pointers that lead nowhere are put right.
async fn due<P: Ports>(
    api: &Api<P>,
    endpoint: &Endpoint,
    max: usize,
    now: Timestamp,
) -> Result<(Vec<Due>, bool), Problem> {
    let Endpoint { tenant, id, .. } = endpoint;
    let lanes = (0..endpoint.lanes_ever()).map(|lane| async move {
        let lane = LaneId { tenant: tenant.clone(), endpoint: *id, lane };
        let mut pointers = Vec::new();
        for kind in Kind::ALL {
            let due = api.deliveries.due(&lane, kind, PointersDue::by(now), max + 1).await?;
            pointers.extend(due.into_iter().map(|pointer| (lane.clone(), pointer)));
        }
        Ok(pointers)
    });
    let mut pointers: Vec<_> = at_once(lanes.collect()).await?.into_iter().flatten().collect();
    // In the order of their due times, whether they are fresh or come again.
    pointers.sort_by(|(a_lane, a), (b_lane, b)| {
        (a.due_at, a.event, a_lane).cmp(&(b.due_at, b.event, b_lane))
    });
    let more = pointers.len() > max;
    pointers.truncate(max);
    let found = pointers.into_iter().map(|(lane, pointer)| async move {
        let found = api.deliveries.read(&lane, &[pointer.event]).await?;
        match pointer.judge(found.first()) {
            Found::Due(delivery) => Ok(Some((lane, pointer, delivery.clone()))),
            found => {
                if let Found::Elsewhere(right) = found {
                    api.deliveries.point(&lane, &right).await?;
                }
                api.deliveries.unpoint(&lane, &pointer).await?;
                Ok(None)
            }
        }
    });
    Ok((at_once(found.collect()).await?.into_iter().flatten().collect(), more))
}

/// The secrets that sign now.
async fn opened<P: Ports>(
    api: &Api<P>,
    endpoint: &Endpoint,
    secrets: &[SealedSecret],
    now: Timestamp,
) -> Result<Vec<EndpointSecret>, Problem> {
    let mut opened = Vec::new();
    let active = |secret: &&SealedSecret| {
        secret.purpose == Purpose::Signing && secret.expires_at.is_none_or(|at| at > now)
    };
    for secret in secrets.iter().filter(active) {
        let text = api.keyring.unseal(&endpoint.tenant, endpoint.id, &secret.sealed).await?;
        match EndpointSecret::parse(&Secret::new(text.expose())) {
            Ok(secret) => opened.push(secret),
            Err(error) => tracing::error!(
                tenant = %endpoint.tenant, endpoint = %endpoint.id, secret = secret.id,
                error = %error, "a secret cannot be used"
            ),
        }
    }
    if opened.is_empty() {
        let cause = "the endpoint has no secret that can be used";
        return Err(StoreError::Refused(cause.into()).into());
    }
    Ok(opened)
}

async fn render<P: Ports>(
    api: &Api<P>,
    endpoint: &Endpoint,
    (lane, pointer, delivery): Due,
) -> Result<Ready, Problem> {
    let content = content(api, endpoint, &delivery).await?;
    if content.is_none() {
        tracing::error!(
            stage = "poll", %lane, event_id = %delivery.event,
            "the event or its payload is not there, or is not what was published"
        );
    }
    Ok(Ready { lane, pointer, delivery, content })
}

async fn content<P: Ports>(
    api: &Api<P>,
    endpoint: &Endpoint,
    delivery: &Delivery,
) -> Result<Option<(OutboxEvent, Content)>, Problem> {
    let Some(OutboxRow { event, .. }) = api.outbox.event(&endpoint.tenant, delivery.event).await?
    else {
        return Ok(None);
    };
    let payload = if needs_payload(endpoint.style) {
        match open(&event, &api.bodies).await? {
            Opened::Bytes(payload) => payload,
            Opened::Missing | Opened::Corrupt => return Ok(None),
        }
    } else {
        Vec::new()
    };
    let content = Content::of(endpoint.style, &event, payload).ok();
    Ok(content.map(|content| (event, content)))
}

/// Marks a delivery as handed out. `None`: somebody else has it, or it cannot be sent at all.
async fn mark<P: Ports>(
    api: &Api<P>,
    endpoint: &Endpoint,
    ready: Ready,
    secrets: &[EndpointSecret],
    by: &str,
    (now, until): (Timestamp, Timestamp),
) -> Result<Option<HandedOut>, Problem> {
    let Ready { lane, pointer, delivery, content } = ready;
    let out = handed_out(&delivery, by, until, now);
    let attempt = out.begun.as_ref().map_or(1, |begun| begun.attempt);
    let shown = content.and_then(|(event, content)| {
        let (endpoint, at) = (endpoint.id, now);
        let leaving = Leaving { event: &event, content: &content, endpoint, secrets, attempt, at };
        Some((leaving.headers()?, event.event_type, content.bytes))
    });
    // What cannot be sent is put off, or it would stand in front of all others for ever.
    let after = if shown.is_some() { out } else { put_off(&out, attempt, until, now) };
    if api.deliveries.record(&lane, &delivery, &after).await? == Noted::Moved {
        return Ok(None);
    }
    move_pointer(api, &lane, &pointer, &after).await;
    let Some((headers, event_type, bytes)) = shown else { return Ok(None) };
    let receipt = Receipt { event: delivery.event, lane: lane.lane, attempt };
    Ok(Some(HandedOut {
        receipt: receipt.to_string(),
        event: delivery.event,
        event_type,
        attempt,
        until,
        headers: texts(&headers),
        body: body(bytes),
    }))
}

fn put_off(out: &Delivery, attempt: u32, until: Timestamp, now: Timestamp) -> Delivery {
    let outcome = Outcome::Failed { cause: Cause::Internal };
    let entry =
        Attempt { number: attempt, at: now, duration_ms: 0, outcome, excerpt: String::new() };
    out.ended(entry, Next::RetryAt(until), now)
}

/// The next pointer, then the old one's end. What fails here is put right by whoever finds the old one.
async fn move_pointer<P: Ports>(api: &Api<P>, lane: &LaneId, old: &Pointer, after: &Delivery) {
    let right = Pointer::of(after);
    let moved = async {
        api.deliveries.point(lane, &right).await?;
        if right == *old { Ok(()) } else { api.deliveries.unpoint(lane, old).await }
    };
    if let Err(error) = moved.await {
        let error = runtime::telemetry::chain(&error).to_string();
        tracing::warn!(stage = "poll", %lane, error, "a pointer is put right by whoever finds it");
    }
}

fn texts(headers: &HeaderMap) -> BTreeMap<String, String> {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect()
}

fn body(bytes: Vec<u8>) -> Body {
    match String::from_utf8(bytes) {
        Ok(text) => Body::Text(text),
        Err(error) => Body::Base64(STANDARD.encode(error.as_bytes())),
    }
}
