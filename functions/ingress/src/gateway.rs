//! What an HTTP API hands to a function, and takes from it: payload format 2.0.
//!
//! Read by hand, and not by `lambda_http`, which panics when a body that is said to be base64 is not, panics over a strange
//! host, and refuses the whole event for one header that is not ASCII: requests that fail for ever, without our answer.
//! `tests/gateway.rs` keeps an eye on that.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use domain::{
    message::InboundMessage,
    ports::{Bodies, Inbox, Learning, PublishedKeys, Queue, SetSourceSecrets, Watch},
};
use http::{HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{Answer, Ingress};

/// A request, as the gateway tells of it. Only what is used is read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    #[serde(default)]
    raw_path: String,
    #[serde(default)]
    raw_query_string: String,
    #[serde(default)]
    headers: HashMap<String, String>,
    #[serde(default)]
    path_parameters: HashMap<String, String>,
    request_context: RequestContext,
    #[serde(default)]
    body: Option<String>,
    #[serde(default)]
    is_base64_encoded: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RequestContext {
    #[serde(default)]
    domain_name: String,
    http: Http,
}

#[derive(Deserialize)]
struct Http {
    method: String,
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").finish_non_exhaustive()
    }
}

/// Takes in what the gateway hands over, and answers as the gateway reads it.
pub async fn answer<R, S, I, Q, B, T>(
    ingress: &Ingress<'_, R, S, I, Q, B, T>,
    event: Event,
    token: String,
    now: Timestamp,
) -> Response
where
    R: Learning,
    S: SetSourceSecrets,
    I: Inbox,
    Q: Queue<InboundMessage>,
    B: Bodies,
    T: Watch + PublishedKeys,
{
    let arrival = event.into();
    let answer = ingress.receive(&arrival, token, now).await;
    // Before the answer, for after it the sandbox may freeze.
    ingress.metrics.flush(now);
    Response::new(answer, &arrival.method)
}

/// A request, as it was sent.
#[derive(Clone)]
pub struct Arrival {
    /// In capitals.
    pub method: String,
    /// The address that was called, as the gateway knows it.
    pub url: String,
    /// What stands in the place of the source's name in the path.
    pub source: String,
    /// What stands behind it, for addresses that are secret.
    pub slot: Option<String>,
    /// Repeated headers are joined with commas: the gateway does that.
    pub headers: HeaderMap,
    /// The untouched bytes. `None`: the gateway said base64, and it was not.
    pub body: Option<Vec<u8>>,
}

impl fmt::Debug for Arrival {
    /// Tokens and signatures stand in headers and addresses, and personal data in bodies.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arrival").field("source", &self.source).finish_non_exhaustive()
    }
}

impl From<Event> for Arrival {
    fn from(event: Event) -> Self {
        let query = if event.raw_query_string.is_empty() { "" } else { "?" };
        let body = event.body.unwrap_or_default();
        Self {
            url: format!(
                "https://{}{}{query}{}",
                event.request_context.domain_name, event.raw_path, event.raw_query_string
            ),
            method: event.request_context.http.method,
            // The route's parameter: a stage or a base path in front of the path changes nothing.
            source: event.path_parameters.get("source").cloned().unwrap_or_default(),
            slot: event.path_parameters.get("slot").cloned(),
            headers: headers(event.headers),
            body: if event.is_base64_encoded {
                STANDARD.decode(body).ok()
            } else {
                Some(body.into_bytes())
            },
        }
    }
}

/// A header that cannot be one is left out: no scheme signs it, and one stray byte must not cost the event.
fn headers(headers: HashMap<String, String>) -> HeaderMap {
    let header = |(name, value): (String, String)| {
        let name = HeaderName::try_from(name).ok()?;
        Some((name, HeaderValue::from_bytes(value.as_bytes()).ok()?))
    };
    let mut map = HeaderMap::new();
    for (name, value) in headers.into_iter().filter_map(header) {
        // Two spellings of one name are two values, and single-valued headers refuse that.
        map.append(name, value);
    }
    map
}

/// What the gateway answers for us. A body only where a provider waits for one: any other would tell a stranger why.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Response {
    status_code: u16,
    headers: BTreeMap<String, String>,
    body: String,
    is_base64_encoded: bool,
}

impl Response {
    /// An answer to a request of this method.
    pub fn new(answer: Answer, method: &str) -> Self {
        let status_code = answer.status().as_u16();
        let wait = answer.retry_after().map(|wait| wait.as_secs().to_string());
        let mut headers: BTreeMap<_, _> =
            wait.into_iter().map(|wait| ("retry-after".to_owned(), wait)).collect();
        let Answer::Said(reply) = answer else {
            return Self { status_code, headers, body: String::new(), is_base64_encoded: false };
        };
        headers.extend(reply.headers);
        if !reply.body.is_empty() {
            // What is said may hold what a stranger sent: no browser is to take it for a page.
            headers.entry("content-type".to_owned()).or_insert_with(|| PLAIN.to_owned());
            headers.insert("x-content-type-options".to_owned(), "nosniff".to_owned());
        }
        let body = if method == "HEAD" { Vec::new() } else { reply.body };
        let (body, is_base64_encoded) = match String::from_utf8(body) {
            Ok(text) => (text, false),
            Err(bytes) => (STANDARD.encode(bytes.as_bytes()), true),
        };
        Self { status_code, headers, body, is_base64_encoded }
    }
}

const PLAIN: &str = "text/plain; charset=utf-8";
