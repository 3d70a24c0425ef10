//! One HTTP API on a loopback port.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{ConnectInfo, Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header, request::Parts},
    serve::ListenerExt as _,
};
use bytes::Bytes;
use tokio::{net::TcpListener, time::timeout};

use super::{
    answer,
    event::{self, Stamp},
    route::{self, Matched, Route},
};
use crate::compute::{
    clock,
    function::{Cause, EVENT_LIMIT, Outcome},
    pool::Pool,
    process::random_id,
    token::Token,
};

/// A request ends at 10 MB, in bytes.
const BODY_LIMIT: usize = 10 * 1024 * 1024;

/// All header lines together, with the request line, end here, in bytes.
const HEADERS_LIMIT: usize = 10_240;

/// One HTTP API: its routes and who runs them.
#[derive(Debug)]
pub struct Gateway {
    /// The AWS account.
    pub account: String,
    /// The API's id.
    pub api: String,
    /// What callers must present, where the API asks for IAM.
    pub token: Option<Token>,
    /// The routes.
    pub routes: Vec<Route>,
    /// What runs behind each route, in the same order, with the integration's timeout.
    pub integrations: Vec<(Pool, Duration)>,
}

impl Gateway {
    /// Serves the API until the future is dropped.
    ///
    /// # Errors
    /// When the listener fails.
    pub async fn serve(self, listener: TcpListener) -> io::Result<()> {
        let port = listener.local_addr()?.port();
        let router = Router::new().fallback(handle).with_state((Arc::new(self), port));
        let listener = listener.tap_io(|stream| {
            let _ = stream.set_nodelay(true);
        });
        axum::serve(listener, router.into_make_service_with_connect_info::<SocketAddr>()).await
    }

    async fn respond(
        &self,
        parts: &Parts,
        body: Body,
        peer: IpAddr,
        port: u16,
    ) -> Result<Response<Bytes>, Refusal> {
        if size_of_headers(parts) > HEADERS_LIMIT {
            return Err(Refusal::HeadersTooLarge);
        }
        let matched = route::find(&self.routes, parts.method.as_str(), parts.uri.path())
            .ok_or(Refusal::NotFound)?;
        let (pool, limit) = self.integrations.get(matched.index).ok_or(Refusal::NotFound)?;
        if self.token.as_ref().is_some_and(|token| !token.is_in(&parts.headers)) {
            return Err(Refusal::Forbidden);
        }
        let body = to_bytes(body, BODY_LIMIT).await.map_err(|_| Refusal::TooLarge)?;
        let event = self.event(parts, &body, peer, port, &matched);
        if event.len() > EVENT_LIMIT {
            return Err(Refusal::TooLarge);
        }
        match timeout(*limit, pool.invoke(event)).await.map_err(|_| Refusal::TimedOut)? {
            Outcome::Answer(bytes) => answer::response(&bytes).ok_or_else(|| {
                tracing::warn!(
                    function = pool.spec().logical_id,
                    "its answer is no response that an HTTP API understands"
                );
                Refusal::Failed
            }),
            Outcome::Failed(failure) => {
                // The pool has shown already why a function cannot start.
                if failure.cause != Cause::Init {
                    tracing::warn!(function = pool.spec().logical_id, "{failure}");
                }
                Err(Refusal::Failed)
            }
        }
    }

    fn event(
        &self,
        parts: &Parts,
        body: &Bytes,
        peer: IpAddr,
        port: u16,
        matched: &Matched,
    ) -> Bytes {
        let Parts { method, uri, version, headers, .. } = parts;
        let (root, rest): (u32, u128) = (rand::random(), rand::random());
        let stamp = Stamp {
            account: &self.account,
            api: &self.api,
            request: &random_id(),
            trace: &format!("Root=1-{root:08x}-{:024x}", rest >> 32),
            now: clock::now(),
            iam: self.token.is_some(),
        };
        let request = event::Request { method, uri, version: *version, headers, body, peer, port };
        event::event(&request, matched, &stamp).to_string().into()
    }
}

/// What the gateway itself answers.
#[derive(Clone, Copy, Debug)]
enum Refusal {
    Forbidden,
    NotFound,
    TooLarge,
    HeadersTooLarge,
    Failed,
    TimedOut,
}

impl Refusal {
    fn response(self) -> Response<Bytes> {
        let (status, message) = match self {
            Self::Forbidden => (StatusCode::FORBIDDEN, "Forbidden"),
            Self::NotFound => (StatusCode::NOT_FOUND, "Not Found"),
            Self::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "Request Entity Too Large"),
            Self::HeadersTooLarge => {
                (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "Request Header Fields Too Large")
            }
            Self::Failed => (StatusCode::INTERNAL_SERVER_ERROR, "Internal Server Error"),
            Self::TimedOut => (StatusCode::SERVICE_UNAVAILABLE, "Service Unavailable"),
        };
        let mut response = Response::new(format!("{{\"message\":\"{message}\"}}").into());
        *response.status_mut() = status;
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }
}

async fn handle(
    State((gateway, port)): State<(Arc<Gateway>, u16)>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let mut response =
        gateway.respond(&parts, body, peer.ip(), port).await.unwrap_or_else(Refusal::response);
    if let Ok(id) = HeaderValue::try_from(random_id()) {
        response.headers_mut().insert(HeaderName::from_static("apigw-requestid"), id);
    }
    response.map(Body::from)
}

fn size_of_headers(parts: &Parts) -> usize {
    let line = parts.method.as_str().len()
        + parts.uri.path_and_query().map_or(0, |path| path.as_str().len());
    line + headers_length(&parts.headers)
}

fn headers_length(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len()).sum()
}
