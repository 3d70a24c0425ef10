//! One attempt: the bytes as they were published, signed now, sent once.
//!
//! The id and the bytes never change; timestamp and signature belong to the attempt, so that a retry after ten hours
//! passes the same freshness check as the first try.

use std::{borrow::Cow, time::Duration};

use domain::{
    address::{AddressPolicy, BadUrl, EndpointUrl},
    delivery::{Attempt, Cause, Delivery, Outcome, retry_after},
    endpoint::Endpoint,
    id::TenantId,
    lane::LaneId,
    outbox::OutboxEvent,
    ports::{Bodies, Keyring, Outbox, SealedSecret, StoreError, Stored},
};
use flow::payload::{self, Opened};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use jiff::Timestamp;
use runtime::telemetry::{Metrics, Unit, chain};
use signing::{EndpointSecret, Secret, sign};

use crate::{
    drain::{Edge, Sender},
    transport::{Failed, Post, Transport},
};

/// The number of the attempt, from 1. For people who read the receiver's logs; it is not signed.
const ATTEMPT_HEADER: HeaderName = HeaderName::from_static("webhook-attempt");

/// Who we are.
const USER_AGENT: &str = concat!("Postern/", env!("CARGO_PKG_VERSION"));

/// Sends over HTTPS.
#[derive(Clone, Copy, Debug)]
pub struct HttpsSender<'a, O, K, B, T> {
    /// Where events stand.
    pub outbox: &'a O,
    /// Opens the endpoints' secrets.
    pub keyring: &'a K,
    /// Large payloads.
    pub bodies: &'a B,
    /// The way out.
    pub transport: &'a T,
    /// What may be dialled.
    pub policy: AddressPolicy,
    /// What is counted.
    pub metrics: &'a Metrics,
    /// Time and chance.
    pub edge: Edge,
}

/// An endpoint, ready to be sent to.
#[derive(Debug)]
pub struct Target {
    tenant: TenantId,
    url: Result<EndpointUrl, BadUrl>,
    secrets: Vec<EndpointSecret>,
}

/// Something that an attempt needs and that is not there. None of it is the endpoint's fault.
#[derive(Debug, thiserror::Error)]
enum Missing {
    #[error("the event is not in the outbox")]
    Event,
    #[error("the event's payload is not in the bucket")]
    Payload,
    #[error("the event's payload in the bucket is not what was published")]
    Corrupt,
    #[error("the endpoint has no secret that can be used")]
    Secret,
    #[error("a header cannot be written")]
    Header,
    #[error("the store refused")]
    Refused(#[source] StoreError),
}

impl From<Missing> for Failed {
    fn from(missing: Missing) -> Self {
        Self { cause: Cause::Internal, source: Some(missing.into()) }
    }
}

impl<O, K, B, T> Sender for HttpsSender<'_, O, K, B, T>
where
    O: Outbox,
    K: Keyring,
    B: Bodies,
    T: Transport,
{
    type Target = Target;

    async fn open(&self, endpoint: Endpoint, sealed: Vec<SealedSecret>) -> Stored<Target> {
        let now = (self.edge.now)();
        let mut secrets = Vec::new();
        let active =
            |secret: &&SealedSecret| secret.expires_at.is_none_or(|expires_at| expires_at > now);
        for secret in sealed.iter().filter(active) {
            let opened = self.keyring.unseal(&endpoint.tenant, endpoint.id, &secret.sealed).await;
            let text = match opened {
                Ok(text) => text,
                Err(error) if error.is_transient() => return Err(error),
                // Another secret may still do. Without any, nothing is sent.
                Err(error) => {
                    tracing::error!(
                        tenant = %endpoint.tenant, endpoint = %endpoint.id, secret = secret.id,
                        error = %error, "a secret cannot be opened"
                    );
                    continue;
                }
            };
            match EndpointSecret::parse(&Secret::new(text.expose())) {
                Ok(opened) => secrets.push(opened),
                Err(error) => tracing::error!(
                    tenant = %endpoint.tenant, endpoint = %endpoint.id, secret = secret.id,
                    error = %error, "a secret cannot be used"
                ),
            }
        }
        // Checked again at every send: the row may be older than a rule.
        let url = EndpointUrl::parse(&endpoint.url, &self.policy);
        Ok(Target { tenant: endpoint.tenant, url, secrets })
    }

    async fn send(&self, target: &Target, lane: &LaneId, delivery: &Delivery) -> Stored<Attempt> {
        let number = delivery.attempts.saturating_add(1);
        let at = (self.edge.now)();
        let answer = match self.prepare(target, delivery, number, at).await {
            Ok(post) => self.transport.post(post).await,
            Err(Unready::Now(failed)) => Err(failed),
            Err(Unready::Later(error)) => return Err(error),
        };
        let now = (self.edge.now)();
        let (outcome, excerpt) = match answer {
            Ok(answered) => {
                let asked = answered.retry_after.and_then(|value| retry_after(&value, now));
                let retry_after_ms = asked.map(millis);
                let outcome = Outcome::Answered { status: answered.status, retry_after_ms };
                (outcome, answered.excerpt)
            }
            Err(failed) => {
                log_failure(lane, delivery, number, &failed);
                (Outcome::Failed { cause: failed.cause }, String::new())
            }
        };
        let took = Duration::try_from(now.duration_since(at)).unwrap_or_default();
        let duration_ms = millis(took);
        self.metrics.count("deliveries_attempted_total", None, 1);
        self.metrics.count("deliveries_succeeded_total", None, u32::from(outcome.is_success()));
        let latency = took.as_secs_f64() * 1000.0;
        self.metrics.record("deliveries_attempt_latency", Unit::Milliseconds, None, latency);
        Ok(Attempt { number, at, duration_ms, outcome, excerpt })
    }
}

/// Why nothing is sent.
enum Unready {
    /// The attempt has failed before it left us.
    Now(Failed),
    /// Nothing is known: the store is busy or down, which is no attempt at all.
    Later(StoreError),
}

impl From<StoreError> for Unready {
    fn from(error: StoreError) -> Self {
        if error.is_transient() {
            Self::Later(error)
        } else {
            Self::Now(Missing::Refused(error).into())
        }
    }
}

impl From<Missing> for Unready {
    fn from(missing: Missing) -> Self {
        Self::Now(missing.into())
    }
}

impl<O, K, B, T> HttpsSender<'_, O, K, B, T>
where
    O: Outbox,
    B: Bodies,
{
    async fn prepare(
        &self,
        target: &Target,
        delivery: &Delivery,
        number: u32,
        sent: Timestamp,
    ) -> Result<Post, Unready> {
        let url = target.url.clone().map_err(|bad| {
            Unready::Now(Failed { cause: Cause::BlockedAddress, source: Some(bad.into()) })
        })?;
        if target.secrets.is_empty() {
            return Err(Missing::Secret.into());
        }
        let row = self.outbox.event(&target.tenant, delivery.event).await?;
        let event = row.ok_or(Missing::Event)?.event;
        let body = match payload::open(&event, self.bodies).await? {
            Opened::Bytes(bytes) => bytes,
            Opened::Missing => return Err(Missing::Payload.into()),
            Opened::Corrupt => return Err(Missing::Corrupt.into()),
        };
        let headers = headers(&event, &target.secrets, number, sent, &body);
        let headers = headers.ok_or(Missing::Header)?;
        Ok(Post { url, headers, body: body.into() })
    }
}

/// The headers of one attempt. `None` if one of them cannot be written, which our own ids and numbers always can.
fn headers(
    event: &OutboxEvent,
    secrets: &[EndpointSecret],
    number: u32,
    sent: Timestamp,
    body: &[u8],
) -> Option<HeaderMap> {
    let id = event.id.to_string();
    let signature = sign::header_value(secrets, &id, sent, body);
    let mut headers = HeaderMap::new();
    let mut set = |name: HeaderName, value: Cow<'_, str>| {
        headers.insert(name, HeaderValue::try_from(value.as_ref()).ok()?);
        Some(())
    };
    set(header::CONTENT_TYPE, "application/json".into())?;
    set(header::USER_AGENT, USER_AGENT.into())?;
    // We read a bounded number of bytes as they come: nothing is gained by packing them.
    set(header::ACCEPT_ENCODING, "identity".into())?;
    set(HeaderName::from_static(sign::ID_HEADER), id.into())?;
    set(HeaderName::from_static(sign::TIMESTAMP_HEADER), sent.as_second().to_string().into())?;
    set(HeaderName::from_static(sign::SIGNATURE_HEADER), signature.into())?;
    set(ATTEMPT_HEADER, number.to_string().into())?;
    if let Some(traceparent) = &event.traceparent {
        // It came from outside. A broken one costs the trace, not the delivery.
        let _ = set(HeaderName::from_static("traceparent"), traceparent.into());
    }
    Some(headers)
}

/// What an operator needs beyond the one word of the outcome: addresses, names of certificates.
fn log_failure(lane: &LaneId, delivery: &Delivery, attempt: u32, failed: &Failed) {
    let error = chain(failed);
    tracing::debug!(
        stage = "deliver", lane = %lane, event_id = %delivery.event, attempt, error = %error,
        "why there is no answer"
    );
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
