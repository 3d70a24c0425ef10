//! HTTP over loopback, one connection for each call.
//!
//! A pool would keep connections that die with the runtime of the test that made them, and would hide what a restart
//! of the host does to callers.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

/// No call takes longer: the gateway's longest integration is 30 s.
const PATIENCE: Duration = Duration::from_secs(40);

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

impl Answer {
    /// The status as a number.
    pub fn code(&self) -> u16 {
        self.status.as_u16()
    }

    /// The body as JSON.
    ///
    /// # Errors
    /// It is none.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_slice(&self.body)
            .with_context(|| format!("{} is no JSON: {:?}", self.status, self.body))
    }

    /// The JSON of a 2xx.
    ///
    /// # Errors
    /// It is no 2xx, or no JSON.
    pub fn good(&self) -> Result<Value> {
        ensure!(self.status.is_success(), "answered {}: {:?}", self.status, self.body);
        if self.body.is_empty() { Ok(Value::Null) } else { self.json() }
    }

    /// A text in the JSON of a 2xx, by its JSON pointer.
    ///
    /// # Errors
    /// It is no 2xx, or has no such text.
    pub fn text(&self, pointer: &str) -> Result<String> {
        let value = self.good()?;
        let text = value.pointer(pointer).and_then(Value::as_str);
        text.map(str::to_owned).with_context(|| format!("{value} has no {pointer}"))
    }

    /// A header as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

/// A client of one base URL on loopback.
#[derive(Clone, Debug)]
pub struct Client {
    address: SocketAddr,
    token: Option<String>,
}

impl Client {
    /// A client of `http://127.0.0.1:port`.
    ///
    /// # Errors
    /// The URL is of another form.
    pub fn new(base: &str, token: Option<&str>) -> Result<Self> {
        let uri: Uri = base.parse().with_context(|| format!("{base} is no URL"))?;
        let authority = uri.authority().with_context(|| format!("{base} has no host"))?;
        let address: SocketAddr = authority.as_str().parse()?;
        ensure!(address.ip().is_loopback(), "{base} is not on loopback");
        Ok(Self { address, token: token.map(str::to_owned) })
    }

    /// A GET.
    ///
    /// # Errors
    /// No answer.
    pub async fn get(&self, path: &str) -> Result<Answer> {
        self.call(Method::GET, path, HeaderMap::new(), Bytes::new()).await
    }

    /// A POST of JSON.
    ///
    /// # Errors
    /// No answer.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Answer> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self.call(Method::POST, path, headers, body.to_string().into()).await
    }

    /// Any call.
    ///
    /// # Errors
    /// No answer: refused, broken off, or too late.
    pub async fn call(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Answer> {
        let mut request =
            Request::builder().method(method.clone()).uri(path).body(Full::new(body))?;
        *request.headers_mut() = headers;
        let host = HeaderValue::try_from(self.address.to_string())?;
        request.headers_mut().entry(header::HOST).or_insert(host);
        request.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        if let Some(token) = &self.token {
            let bearer = HeaderValue::try_from(format!("Bearer {token}"))?;
            request.headers_mut().insert(header::AUTHORIZATION, bearer);
        }
        match tokio::time::timeout(PATIENCE, self.exchange(request)).await {
            Ok(answer) => answer.with_context(|| format!("{method} {path} had no answer")),
            Err(_) => bail!("{method} {path} had no answer within {} s", PATIENCE.as_secs()),
        }
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Answer> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let exchange = async move {
            let (head, body) = sender.send_request(request).await?.into_parts();
            let body = body.collect().await?.to_bytes();
            Ok(Answer { status: head.status, headers: head.headers, body })
        };
        // The connection ends by itself as soon as the sender is gone; how it ends is in the exchange.
        let (answer, _) = tokio::join!(exchange, connection);
        answer
    }
}
