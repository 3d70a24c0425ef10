//! What a subscriber is told beside the body.

use std::borrow::Cow;

use domain::outbox::OutboxEvent;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use jiff::Timestamp;
use signing::{EndpointSecret, sign};

/// The number of the attempt, from 1. For people who read the receiver's logs; it is not signed.
const ATTEMPT_HEADER: HeaderName = HeaderName::from_static("webhook-attempt");

/// The event's id once more, under the name by which services that know nothing of webhooks recognise a repetition.
const IDEMPOTENCY_HEADER: HeaderName = HeaderName::from_static("idempotency-key");

/// Who we are.
const USER_AGENT: &str = concat!("Postern/", env!("CARGO_PKG_VERSION"));

/// The headers of one attempt. `None` if one of them cannot be written, which our own ids and numbers always can.
pub(super) fn headers(
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
    set(IDEMPOTENCY_HEADER, id.as_str().into())?;
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
