//! An outgoing event as it leaves: the bytes of its style, and the headers of one attempt.
//!
//! The bytes and the id never change; timestamp, signature, number and span belong to the attempt, so that a try after
//! ten hours passes the same freshness check as the first. Whoever hands an event out to a subscriber makes it here,
//! whether he posts it or is asked for it.

mod content;
mod trace;

use std::{borrow::Cow, fmt::Write as _};

use domain::{id::EndpointId, outbox::OutboxEvent};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use jiff::Timestamp;
use signing::{EndpointSecret, sign};

pub use self::content::{Content, needs_payload};

/// The number of the attempt, from 1. For people who read the receiver's logs.
pub const ATTEMPT_HEADER: &str = "webhook-attempt";
/// The event's type, for receivers that choose by it before they parse.
pub const TYPE_HEADER: &str = "webhook-event-type";
/// The version of the type's schema.
pub const SCHEMA_HEADER: &str = "webhook-schema-version";
/// What the event is about.
pub const AGGREGATE_HEADER: &str = "webhook-aggregate-id";
/// The version of what it is about: events of one aggregate are in the order of it, whatever order they come in.
pub const VERSION_HEADER: &str = "webhook-aggregate-version";

/// The event's id once more, under the name by which services that know nothing of webhooks recognise a repetition.
const IDEMPOTENCY_HEADER: &str = "idempotency-key";

/// Longest value of a header that tells about the event, in bytes. Longer ones are left out: servers refuse a request
/// whose headers are too large (8 KiB in all with several of them), and the event would never arrive.
const MAX_TOLD: usize = 1024;

/// One attempt, about to leave.
#[derive(Clone, Copy, Debug)]
pub struct Leaving<'a> {
    /// The event.
    pub event: &'a OutboxEvent,
    /// What is sent of it.
    pub content: &'a Content,
    /// To whom.
    pub endpoint: EndpointId,
    /// What it is signed with: every secret that is active now.
    pub secrets: &'a [EndpointSecret],
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// Now.
    pub at: Timestamp,
}

impl Leaving<'_> {
    /// The headers that come from us, but for those of HTTP. Only the three of Standard Webhooks and the body are behind
    /// the signature. `None` if one of them cannot be written, which our own ids and numbers always can.
    pub fn headers(&self) -> Option<HeaderMap> {
        let Self { event, content, secrets, attempt, at, .. } = self;
        let id = event.id.to_string();
        let signature = sign::header_value(secrets, &id, *at, &content.bytes);
        let mut headers = HeaderMap::new();
        let mut set = |name: &'static str, value: Cow<'_, str>| {
            let value = HeaderValue::try_from(value.as_ref()).ok()?;
            headers.insert(HeaderName::from_static(name), value);
            Some(())
        };
        set(header::CONTENT_TYPE.as_str(), content.content_type.into())?;
        set(IDEMPOTENCY_HEADER, id.as_str().into())?;
        set(sign::ID_HEADER, id.into())?;
        set(sign::TIMESTAMP_HEADER, at.as_second().to_string().into())?;
        set(sign::SIGNATURE_HEADER, signature.into())?;
        set(ATTEMPT_HEADER, attempt.to_string().into())?;
        set(SCHEMA_HEADER, event.schema_version.to_string().into())?;
        if let Some(version) = event.aggregate_version {
            set(VERSION_HEADER, version.to_string().into())?;
        }
        for (name, text) in
            [(TYPE_HEADER, &event.event_type), (AGGREGATE_HEADER, &event.aggregate_id)]
        {
            let value = visible(text);
            if (1..=MAX_TOLD).contains(&value.len()) {
                set(name, value.into())?;
            }
        }
        // It came from outside. A broken one costs the trace, not the delivery.
        if let Some(traceparent) = self.traceparent() {
            set("traceparent", traceparent.into())?;
        }
        Some(headers)
    }

    /// The trace context of this attempt: a span of its own, below the event's. An event without one has none. A new one
    /// would have to say whether it is sampled, and receivers would follow that.
    fn traceparent(&self) -> Option<String> {
        let Self { event, endpoint, attempt, at, .. } = self;
        let span = format!("{} {endpoint} {attempt} {}", event.id, at.as_nanosecond());
        trace::child(event.traceparent.as_deref()?, &span)
    }
}

/// A text as the value of a header: printable ASCII as it is, all else, `"` and `%` percent-encoded, as the HTTP binding
/// of `CloudEvents` 1.0 has it (3.1.3.2).
fn visible(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'"' | b'%' => {}
            b'!'..=b'~' => {
                out.push(char::from(byte));
                continue;
            }
            _ => {}
        }
        let _ = write!(out, "%{byte:02X}");
    }
    out
}

#[cfg(test)]
mod tests {
    use domain::{endpoint::Style, id::EventId, outbox::Payload};

    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

    pub(super) fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    pub(super) fn event() -> OutboxEvent {
        OutboxEvent {
            id: EventId::derived(at(1_760_000_000), &["x"]),
            tenant: "acme".parse().unwrap(),
            event_type: "invoice.paid".to_owned(),
            schema_version: 3,
            aggregate_id: "in_1".to_owned(),
            aggregate_version: Some(u64::MAX),
            payload: Payload::Inline(Vec::new()),
            occurred_at: at(1_760_000_000),
            traceparent: Some(format!("00-{TRACE}-b7ad6b7169203331-01")),
            labels: std::collections::BTreeMap::new(),
        }
    }

    fn headers(event: &OutboxEvent, attempt: u32, second: i64) -> HeaderMap {
        let content = Content::of(Style::Full, event, b"{}".to_vec()).unwrap();
        let secrets = [EndpointSecret::shared([7; 32])];
        let endpoint = format!("ep_{:032x}", 7).parse().unwrap();
        let leaving = Leaving {
            event,
            content: &content,
            endpoint,
            secrets: &secrets,
            attempt,
            at: at(second),
        };
        leaving.headers().unwrap()
    }

    /// F3: what belongs to the event stays, what belongs to the attempt changes.
    #[test]
    fn the_headers_of_two_attempts_differ_in_what_is_the_attempts() {
        let (first, second) = (headers(&event(), 1, 10), headers(&event(), 2, 20));
        let differs = first.iter().filter(|(name, value)| second[*name] != **value);
        let mut differs: Vec<_> = differs.map(|(name, _)| name.as_str()).collect();
        differs.sort_unstable();
        let expected = ["traceparent", "webhook-attempt", "webhook-signature", "webhook-timestamp"];
        assert_eq!(differs, expected);
        assert_eq!(first["webhook-schema-version"], "3");
        assert_eq!(first["webhook-aggregate-version"], u64::MAX.to_string());
    }

    #[test]
    fn each_attempt_has_a_span_of_its_own_in_the_trace_of_its_event() {
        let mut spans = std::collections::BTreeSet::new();
        for (attempt, second) in [(1, 10), (2, 10), (2, 11)] {
            let value = headers(&event(), attempt, second)["traceparent"].clone();
            let parts: Vec<_> = value.to_str().unwrap().split('-').map(str::to_owned).collect();
            assert_eq!(
                (parts[0].as_str(), parts[1].as_str(), parts[3].as_str()),
                ("00", TRACE, "01")
            );
            assert_ne!(parts[2], "b7ad6b7169203331");
            assert!(spans.insert(parts[2].clone()));
        }
        let none = OutboxEvent { traceparent: None, ..event() };
        assert!(!headers(&none, 1, 10).contains_key("traceparent"));
    }

    #[test]
    fn what_is_told_of_an_event_is_one_printable_line() {
        let check = |aggregate_id: &str, expected: Option<&str>| {
            let event = OutboxEvent { aggregate_id: aggregate_id.to_owned(), ..event() };
            let headers = headers(&event, 1, 10);
            let told = headers.get(AGGREGATE_HEADER).map(|value| value.to_str().unwrap());
            assert_eq!(told, expected, "{aggregate_id}");
        };
        check("in_1", Some("in_1"));
        check("Jürgen \"100%\"", Some("J%C3%BCrgen%20%22100%25%22"));
        check("a\r\nwebhook-id: b", Some("a%0D%0Awebhook-id:%20b"));
        check("", None);
        check(&"x".repeat(1024), Some(&"x".repeat(1024)));
        check(&"x".repeat(1025), None);
        let plain = OutboxEvent { aggregate_version: None, ..event() };
        assert!(!headers(&plain, 1, 10).contains_key(VERSION_HEADER));
    }
}
