//! What is sent of an event, in the style of an endpoint. It is made of the event alone, so that every attempt has the
//! same bytes.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use domain::{endpoint::Style, outbox::OutboxEvent};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;

/// The bytes that leave, and what they are.
#[derive(Clone, PartialEq, Eq)]
pub struct Content {
    /// The bytes: what is signed.
    pub bytes: Vec<u8>,
    /// The value of `content-type`.
    pub content_type: &'static str,
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Content({}, {} bytes)", self.content_type, self.bytes.len())
    }
}

/// Whether a style sends anything of an event's payload.
pub const fn needs_payload(style: Style) -> bool {
    match style {
        Style::Full | Style::CloudEvents => true,
        Style::Thin => false,
    }
}

/// Ids only, in the shape that Standard Webhooks recommends: `type`, `timestamp`, `data`.
#[derive(Serialize)]
struct Thin<'a> {
    id: String,
    #[serde(rename = "type")]
    event_type: &'a str,
    timestamp: Timestamp,
    schema_version: u32,
    data: About<'a>,
}

#[derive(Serialize)]
struct About<'a> {
    id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<u64>,
}

/// `CloudEvents` 1.0, structured mode, JSON format. Versions are texts: an integer of `CloudEvents` has 32 bits.
#[derive(Serialize)]
struct Envelope<'a> {
    specversion: &'static str,
    id: String,
    source: String,
    #[serde(rename = "type")]
    event_type: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<&'a str>,
    time: Timestamp,
    schemaversion: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    aggregateversion: Option<String>,
    datacontenttype: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_base64: Option<String>,
}

impl Content {
    /// What an endpoint of this style gets. `payload` is ignored where [`needs_payload`] says no.
    ///
    /// # Errors
    /// Those of serde, which has none for what stands here.
    pub fn of(
        style: Style,
        event: &OutboxEvent,
        payload: Vec<u8>,
    ) -> Result<Self, serde_json::Error> {
        let (bytes, content_type) = match style {
            Style::Full => (payload, "application/json"),
            Style::Thin => (thin(event)?, "application/json"),
            Style::CloudEvents => (envelope(event, &payload)?, "application/cloudevents+json"),
        };
        Ok(Self { bytes, content_type })
    }
}

fn thin(event: &OutboxEvent) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(&Thin {
        id: event.id.to_string(),
        event_type: &event.event_type,
        timestamp: event.occurred_at,
        schema_version: event.schema_version,
        data: About { id: &event.aggregate_id, version: event.aggregate_version },
    })
}

fn envelope(event: &OutboxEvent, payload: &[u8]) -> Result<Vec<u8>, serde_json::Error> {
    let data = json(payload);
    serde_json::to_vec(&Envelope {
        specversion: "1.0",
        id: event.id.to_string(),
        source: format!("/tenants/{}", event.tenant),
        event_type: &event.event_type,
        // The attribute's type has no control characters, and an empty one is none.
        subject: Some(event.aggregate_id.as_str())
            .filter(|id| !id.is_empty() && !id.contains(char::is_control)),
        time: event.occurred_at,
        schemaversion: event.schema_version.to_string(),
        aggregateversion: event.aggregate_version.map(|version| version.to_string()),
        datacontenttype: if data.is_some() {
            "application/json"
        } else {
            "application/octet-stream"
        },
        data,
        data_base64: data.is_none().then(|| STANDARD.encode(payload)),
    })
}

/// The payload as it is, numbers and all, if it is JSON.
fn json(payload: &[u8]) -> Option<&RawValue> {
    serde_json::from_slice(payload).ok()
}

#[cfg(test)]
mod tests {
    use super::{super::tests::event, *};

    fn check(style: Style, event: &OutboxEvent, payload: &[u8], expected: &str) {
        let content = Content::of(style, event, payload.to_vec()).unwrap();
        let text = String::from_utf8(content.bytes.clone()).unwrap();
        assert_eq!(text.replace(&event.id.to_string(), "ID"), expected);
        // Whatever style: the same bytes on every attempt.
        assert_eq!(Content::of(style, event, payload.to_vec()).unwrap(), content);
    }

    /// F1, F3. A change of these texts breaks the signatures of nobody, and the parsers of everybody.
    #[test]
    fn the_bytes_of_each_style_are_these() {
        let payload = br#"{"n":9007199254740993, "f":1.0}"#;
        check(Style::Full, &event(), payload, r#"{"n":9007199254740993, "f":1.0}"#);
        check(
            Style::Thin,
            &event(),
            payload,
            r#"{"id":"ID","type":"invoice.paid","timestamp":"2025-10-09T08:53:20Z","schema_version":3,"data":{"id":"in_1","version":18446744073709551615}}"#,
        );
        check(
            Style::CloudEvents,
            &event(),
            payload,
            r#"{"specversion":"1.0","id":"ID","source":"/tenants/acme","type":"invoice.paid","subject":"in_1","time":"2025-10-09T08:53:20Z","schemaversion":"3","aggregateversion":"18446744073709551615","datacontenttype":"application/json","data":{"n":9007199254740993, "f":1.0}}"#,
        );
    }

    #[test]
    fn what_an_event_does_not_have_is_left_out() {
        let bare =
            OutboxEvent { aggregate_id: "a\nb".to_owned(), aggregate_version: None, ..event() };
        check(
            Style::Thin,
            &bare,
            b"",
            r#"{"id":"ID","type":"invoice.paid","timestamp":"2025-10-09T08:53:20Z","schema_version":3,"data":{"id":"a\nb"}}"#,
        );
        check(
            Style::CloudEvents,
            &bare,
            b"[]",
            r#"{"specversion":"1.0","id":"ID","source":"/tenants/acme","type":"invoice.paid","time":"2025-10-09T08:53:20Z","schemaversion":"3","datacontenttype":"application/json","data":[]}"#,
        );
    }

    #[test]
    fn a_payload_that_is_no_json_stands_in_an_envelope_as_base64() {
        for payload in [&b"\xff\x00"[..], b"", b"{", b"{} x", b"\"\xff\"", b"\xef\xbb\xbf{}"] {
            let content = Content::of(Style::CloudEvents, &event(), payload.to_vec()).unwrap();
            let read: serde_json::Value = serde_json::from_slice(&content.bytes).unwrap();
            assert_eq!(read["data_base64"], STANDARD.encode(payload), "{payload:?}");
            assert_eq!(read["datacontenttype"], "application/octet-stream");
            assert!(read.get("data").is_none());
        }
        let deep = format!("{}1{}", "[".repeat(900), "]".repeat(900));
        let content = Content::of(Style::CloudEvents, &event(), deep.clone().into_bytes()).unwrap();
        let text = String::from_utf8(content.bytes).unwrap();
        assert!(text.ends_with(&format!(r#""data":{deep}}}"#)));
    }
}
