//! Talking to a deployment over HTTP: its `api`, and on this machine its ingress and its local host.

use std::time::Duration;

use aws_credential_types::Credentials;
use aws_sigv4::{
    http_request::{SignableBody, SignableRequest, SigningSettings, sign},
    sign::v4,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client as Hyper, connect::HttpConnector},
    rt::TokioExecutor,
};
use jiff::Timestamp;
use serde_json::Value;

use crate::complaint::{Complaint, printable};

/// The most bytes of an answer that are read.
const MAX_ANSWER: usize = 8 << 20;

/// No call takes longer, if nobody says otherwise.
const PATIENCE: Duration = Duration::from_secs(15);

/// How calls prove who makes them.
#[derive(Clone)]
pub enum Proof {
    /// Nothing: providers sign their own requests.
    None,
    /// The local host's token, which stands for IAM.
    Token(String),
    /// An AWS signature.
    Iam {
        /// Whose.
        credentials: Credentials,
        /// Where.
        region: String,
        /// When: a signature holds for some minutes.
        now: Timestamp,
    },
}

impl std::fmt::Debug for Proof {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Token(_) => "Token(..)",
            Self::Iam { .. } => "Iam(..)",
        })
    }
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its body.
    pub body: Bytes,
}

impl Answer {
    /// The body as JSON; `null` if it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// A client of one base URL.
#[derive(Clone, Debug)]
pub struct Client {
    base: String,
    proof: Proof,
    patience: Duration,
    hyper: Hyper<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl Client {
    /// A client of a base URL without a slash at its end.
    pub fn new(base: impl Into<String>, proof: Proof) -> Result<Self, Complaint> {
        let connector = HttpsConnectorBuilder::new()
            .with_provider_and_webpki_roots(rustls::crypto::ring::default_provider())
            .map_err(|error| {
                Complaint::new(
                    "TLS cannot be set up",
                    error.to_string(),
                    "build this program anew: its TLS library does not fit",
                )
            })?
            .https_or_http()
            .enable_http1()
            .build();
        let hyper = Hyper::builder(TokioExecutor::new()).build(connector);
        Ok(Self { base: base.into(), proof, patience: PATIENCE, hyper })
    }

    /// The same, waiting so long for an answer.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// The base URL.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// GET, and the answer's JSON.
    pub async fn get(&self, path: &str) -> Result<Value, Complaint> {
        let answer = self.call(Method::GET, path, HeaderMap::new(), Bytes::new()).await?;
        self.good(path, &answer)
    }

    /// POST of JSON, and the answer's JSON.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Value, Complaint> {
        let answer = self.post_raw(path, body).await?;
        self.good(path, &answer)
    }

    /// POST of JSON, and the answer whatever it is.
    pub async fn post_raw(&self, path: &str, body: &Value) -> Result<Answer, Complaint> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self.call(Method::POST, path, headers, body.to_string().into()).await
    }

    /// PATCH of JSON, and the answer's JSON.
    pub async fn patch(&self, path: &str, body: &Value) -> Result<Value, Complaint> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self.call_good(Method::PATCH, path, headers, body.to_string().into()).await
    }

    /// DELETE, and the answer's JSON.
    pub async fn delete(&self, path: &str) -> Result<Value, Complaint> {
        self.call_good(Method::DELETE, path, HeaderMap::new(), Bytes::new()).await
    }

    /// Any call, and the answer's JSON.
    pub async fn call_good(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Value, Complaint> {
        let answer = self.call(method, path, headers, body).await?;
        self.good(path, &answer)
    }

    /// Any call, and the answer whatever it is.
    pub async fn call(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Answer, Complaint> {
        let fail = |why: String| {
            Complaint::new(
                format!("{} cannot be reached", self.base),
                why,
                "check that the deployment runs (`cargo dev` on this machine), and what --api or POSTERN_API says",
            )
        };
        let uri: Uri = format!("{}{path}", self.base)
            .parse()
            .map_err(|error: http::uri::InvalidUri| fail(error.to_string()))?;
        let mut request = Request::builder().method(method).uri(uri).body(Full::new(body.clone()));
        if let Ok(request) = &mut request {
            *request.headers_mut() = headers;
            self.prove(request, &body).map_err(&fail)?;
        }
        let request = request.map_err(|error| fail(error.to_string()))?;
        let answer = tokio::time::timeout(self.patience, async {
            let response = self.hyper.request(request).await.map_err(|error| chain(&error))?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, MAX_ANSWER).collect().await;
            let body = body.map_err(|error| error.to_string())?.to_bytes();
            Ok::<_, String>(Answer { status: head.status, body })
        });
        match answer.await {
            Ok(answer) => answer.map_err(fail),
            Err(_) => Err(fail(format!("no answer within {} s", self.patience.as_secs()))),
        }
    }

    /// The JSON of an answer that says yes.
    pub fn good(&self, path: &str, answer: &Answer) -> Result<Value, Complaint> {
        if answer.status.is_success() {
            return Ok(answer.json());
        }
        let next = match answer.status.as_u16() {
            401 | 403 => "check --token or the AWS credentials, and what they may do",
            404 => &absent(path),
            409 | 413 | 422 => "change what the reason names, and try again",
            _ => "try again; if it stays, look into the log of the function `api`",
        };
        let what = format!("{} answered {} to {path}", self.base, answer.status);
        let complaint = Complaint::new(what, reason(&answer.json()), next);
        // What the deployment itself could not do is no answer to what was asked.
        Err(if answer.status.is_client_error() { complaint.as_no() } else { complaint })
    }

    fn prove(&self, request: &mut Request<Full<Bytes>>, body: &Bytes) -> Result<(), String> {
        match &self.proof {
            Proof::None => Ok(()),
            Proof::Token(token) => {
                let value = HeaderValue::try_from(format!("Bearer {token}"));
                let value = value.map_err(|_| "the token is not a header value".to_owned())?;
                request.headers_mut().insert(header::AUTHORIZATION, value);
                Ok(())
            }
            Proof::Iam { credentials, region, now } => {
                sign_iam(request, body, credentials, region, *now)
            }
        }
    }
}

/// Signs a call for API Gateway (Signature Version 4).
fn sign_iam(
    request: &mut Request<Full<Bytes>>,
    body: &Bytes,
    credentials: &Credentials,
    region: &str,
    now: Timestamp,
) -> Result<(), String> {
    let identity = credentials.clone().into();
    let seconds = Duration::from_secs(u64::try_from(now.as_second()).unwrap_or_default());
    let params = v4::SigningParams::builder()
        .identity(&identity)
        .region(region)
        .name("execute-api")
        .time(std::time::UNIX_EPOCH + seconds)
        .settings(SigningSettings::default())
        .build()
        .map_err(|error| error.to_string())?
        .into();
    let method = request.method().to_string();
    let uri = request.uri().to_string();
    let headers: Vec<_> = request
        .headers()
        .iter()
        .filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)))
        .collect();
    let signable =
        SignableRequest::new(&method, uri, headers.into_iter(), SignableBody::Bytes(body))
            .map_err(|error| error.to_string())?;
    let (instructions, _) = sign(signable, &params).map_err(|e| e.to_string())?.into_parts();
    instructions.apply_to_request_http1x(request);
    Ok(())
}

/// Why, as a problem or a gateway says it: every field that is wrong on a line of its own.
fn reason(problem: &Value) -> String {
    let text = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(printable);
    let fields = problem.get("problems").and_then(Value::as_array).map(Vec::as_slice);
    let fields = fields.unwrap_or_default().iter();
    let fields: Vec<_> = fields
        .filter_map(|found| Some(format!("{}: {}", text(found, "field")?, text(found, "problem")?)))
        .collect();
    if !fields.is_empty() {
        return fields.join("\n        ");
    }
    let told = text(problem, "detail").or_else(|| text(problem, "title"));
    told.or_else(|| text(problem, "message"))
        .unwrap_or_else(|| "the answer gives no reason".to_owned())
}

/// An error and what lies below it, on one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut below = error.source();
    while let Some(cause) = below {
        text = format!("{text}: {cause}");
        below = cause.source();
    }
    text
}

/// What to do where nothing was found: with the command that lists what there is.
fn absent(path: &str) -> String {
    let path = path.split('?').next().unwrap_or_default();
    let segments: Vec<&str> = path.split('/').skip(2).collect();
    let list = match segments.as_slice() {
        ["sources", name, "events" | "objects", ..] => {
            Some(format!("postern sources show {name}` and `postern events parked"))
        }
        ["sources", ..] => Some("postern sources list".to_owned()),
        ["replays", ..] => Some("postern replays list".to_owned()),
        ["tenants", tenant, "endpoints", ..] => Some(format!("postern endpoints list {tenant}")),
        ["tenants", tenant, "redeliveries", ..] => {
            Some(format!("postern deliveries progress {tenant}"))
        }
        ["tenants", tenant, "events", ..] => Some(format!(
            "postern events unmatched {tenant}` and `postern deliveries list {tenant} ENDPOINT"
        )),
        _ => None,
    };
    match list {
        Some(list) => format!("check the names in the command; `{list}` lists what there is"),
        None => "check the names in the command".to_owned(),
    }
}

/// A name as one segment of a path.
pub fn segment(name: &str) -> String {
    url::form_urlencoded::byte_serialize(name.as_bytes()).collect::<String>().replace('+', "%20")
}

/// What is asked for beside a path, with its question mark; nothing if nothing is.
pub fn query<const N: usize>(wanted: [(&str, Option<String>); N]) -> String {
    let wanted = wanted.into_iter();
    let pairs =
        wanted.filter_map(|(name, value)| Some(format!("{name}={}", segment(value.as_ref()?))));
    let pairs = pairs.collect::<Vec<_>>().join("&");
    if pairs.is_empty() { pairs } else { format!("?{pairs}") }
}

#[cfg(test)]
mod tests {
    use hmac::{Hmac, KeyInit as _, Mac as _};
    use serde_json::json;
    use sha2::{Digest as _, Sha256};

    use super::*;

    #[test]
    fn what_is_not_there_is_answered_with_what_lists_it() {
        let check = |path: &str, command: &str| {
            let next = absent(path);
            assert!(next.contains(&format!("`{command}`")), "{path}: {next}");
        };
        check("/v1/sources/shop?x=1", "postern sources list");
        check("/v1/sources/shop/secrets", "postern sources list");
        check("/v1/sources/shop/events/evt_1", "postern events parked");
        check("/v1/replays/rpl_1", "postern replays list");
        check("/v1/tenants/acme/endpoints/ep_1/deliveries", "postern endpoints list acme");
        check("/v1/tenants/acme/redeliveries/rdl_1", "postern deliveries progress acme");
        check("/v1/tenants/acme/events/evt_1", "postern deliveries list acme ENDPOINT");
        assert_eq!(absent("/v1/elsewhere"), "check the names in the command");
    }

    #[test]
    fn a_name_is_one_segment_of_a_path_whatever_is_in_it() {
        let check = |name: &str, expected: &str| assert_eq!(segment(name), expected);
        check("evt_1", "evt_1");
        check("a/b", "a%2Fb");
        check("a b+c", "a%20b%2Bc");
        check("?x#y&z", "%3Fx%23y%26z");
        check("%41", "%2541");
        check("\u{e9}", "%C3%A9");
    }

    #[test]
    fn proofs_do_not_print() {
        let credentials = Credentials::new("AKID", "CANARY", None, None, "test");
        let iam = Proof::Iam { credentials, region: "x".to_owned(), now: Timestamp::UNIX_EPOCH };
        let token = Proof::Token("CANARY".to_owned());
        assert_eq!(format!("{iam:?} {token:?}"), "Iam(..) Token(..)");
    }

    #[test]
    fn a_reason_is_the_fields_or_the_detail_or_what_a_gateway_says() {
        let check = |problem: Value, expected: &str| assert_eq!(reason(&problem), expected);
        let fields =
            json!([{"field": "url", "problem": "no"}, {"field": "b", "problem": "\u{1b}x"}]);
        check(json!({"detail": "x", "problems": fields}), "url: no\n        b: \\u{1b}x");
        check(json!({"detail": "d", "title": "t"}), "d");
        check(json!({"title": "t"}), "t");
        check(json!({"message": "Forbidden"}), "Forbidden");
        check(json!(null), "the answer gives no reason");
        check(json!({"problems": [], "detail": 5}), "the answer gives no reason");
    }

    fn mac(key: &[u8], text: &str) -> Vec<u8> {
        let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
        mac.update(text.as_bytes());
        mac.finalize().into_bytes().to_vec()
    }

    /// Against the algorithm as AWS documents it, done by hand.
    #[test]
    fn a_call_is_signed_for_api_gateway() {
        let credentials =
            Credentials::new("AKID", "SECRET", Some("SESSION".to_owned()), None, "test");
        let now: Timestamp = "2026-09-21T14:13:20Z".parse().unwrap();
        let body = Bytes::from_static(b"{}");
        let mut request = Request::post(
            "https://x.execute-api.eu-central-1.amazonaws.com/v1/sources/a%20b/events",
        )
        .header("content-type", "application/json")
        .body(Full::new(body.clone()))
        .unwrap();
        sign_iam(&mut request, &body, &credentials, "eu-central-1", now).unwrap();
        let header = |name: &str| request.headers()[name].to_str().unwrap();
        assert_eq!(header("x-amz-date"), "20260921T141320Z");
        assert_eq!(header("x-amz-security-token"), "SESSION");

        let names = "content-type;host;x-amz-date;x-amz-security-token";
        let canonical = format!(
            "POST\n/v1/sources/a%2520b/events\n\ncontent-type:application/json\n\
             host:x.execute-api.eu-central-1.amazonaws.com\nx-amz-date:20260921T141320Z\n\
             x-amz-security-token:SESSION\n\n{names}\n{}",
            hex::encode(Sha256::digest(b"{}"))
        );
        let scope = "20260921/eu-central-1/execute-api/aws4_request";
        let to_sign = format!(
            "AWS4-HMAC-SHA256\n20260921T141320Z\n{scope}\n{}",
            hex::encode(Sha256::digest(canonical))
        );
        let key = scope.split('/').fold(b"AWS4SECRET".to_vec(), |key, part| mac(&key, part));
        let signature = hex::encode(mac(&key, &to_sign));
        assert_eq!(
            header("authorization"),
            format!(
                "AWS4-HMAC-SHA256 Credential=AKID/{scope}, SignedHeaders={names}, Signature={signature}"
            )
        );
    }
}
