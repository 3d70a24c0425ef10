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
use serde_json::Value;

use crate::complaint::{Complaint, printable};

/// The most bytes of an answer that are read.
const MAX_ANSWER: usize = 8 << 20;

/// No call takes longer.
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
        Ok(Self { base: base.into(), proof, hyper })
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
                "check that the deployment runs (`cargo dev` on this machine), and --api or POSTERN_API",
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
        let answer = tokio::time::timeout(PATIENCE, async {
            let response = self.hyper.request(request).await.map_err(|error| chain(&error))?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, MAX_ANSWER).collect().await;
            let body = body.map_err(|error| error.to_string())?.to_bytes();
            Ok::<_, String>(Answer { status: head.status, body })
        });
        match answer.await {
            Ok(answer) => answer.map_err(fail),
            Err(_) => Err(fail(format!("no answer within {} s", PATIENCE.as_secs()))),
        }
    }

    fn good(&self, path: &str, answer: &Answer) -> Result<Value, Complaint> {
        if answer.status.is_success() {
            return Ok(answer.json());
        }
        let problem = answer.json();
        let text = |name: &str| problem.get(name).and_then(Value::as_str).map(printable);
        let why = text("detail").or_else(|| text("title")).or_else(|| text("message"));
        let why = why.unwrap_or_else(|| "the answer gives no reason".to_owned());
        let next = match answer.status.as_u16() {
            401 | 403 => "check --token or the AWS credentials",
            404 => "check the name in the command; list what there is",
            409 | 422 => "change what the reason names, and try again",
            _ => "try again; if it stays, look into the function's log",
        };
        Err(Complaint::new(format!("{path} answered {}", answer.status), why, next))
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
            Proof::Iam { credentials, region } => sign_iam(request, body, credentials, region),
        }
    }
}

#[expect(clippy::disallowed_types, reason = "the signer takes the time in this type")]
fn sign_iam(
    request: &mut Request<Full<Bytes>>,
    body: &Bytes,
    credentials: &Credentials,
    region: &str,
) -> Result<(), String> {
    let identity = credentials.clone().into();
    let params = v4::SigningParams::builder()
        .identity(&identity)
        .region(region)
        .name("execute-api")
        .time(std::time::SystemTime::now())
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

/// A name as one segment of a path.
pub fn segment(name: &str) -> String {
    url::form_urlencoded::byte_serialize(name.as_bytes()).collect::<String>().replace('+', "%20")
}
