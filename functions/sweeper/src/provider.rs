//! The way to providers: one call, to a host that the scheme pins, with every bound there is.
//!
//! `egress` opens the connection, to an address that it checked. There are no redirects, no proxies and no
//! decompression; the whole call has one deadline, and an answer over the limit is no answer.

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use domain::address::{AddressPolicy, EndpointUrl};
use egress::{
    cause,
    connector::{Connector, Dialled},
    resolve::{Resolve, SystemResolver},
    tls::{self, NoTls},
};
use hickory_resolver::net::NetError;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::{client::legacy, rt::TokioExecutor};
use rustls::ClientConfig;
use signing::lookup::{Call, MOST_BYTES};
use tokio::time::timeout;

/// For a whole call. A provider that takes longer is asked again later.
const WITHIN: Duration = Duration::from_secs(3);

/// Until there is a connection, TLS included.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);

/// Largest head of an answer, in bytes, and most headers in it.
const MAX_HEAD: usize = 32 * 1024;
const MAX_HEADERS: usize = 100;

/// What a provider answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// The HTTP status.
    pub status: u16,
    /// The whole body.
    pub body: Vec<u8>,
}

/// A call without an answer.
#[derive(Debug, thiserror::Error)]
pub enum NoAnswer {
    /// The address is none that may be called.
    #[error("the address may not be called")]
    Address,
    /// The method or the headers are none.
    #[error("the call is malformed")]
    Malformed,
    /// No connection, or a broken one.
    #[error("no answer ({0:?})")]
    Broken(domain::delivery::Cause, #[source] Box<dyn std::error::Error + Send + Sync>),
    /// An answer over the limit, or one that broke off.
    #[error("the answer could not be read whole")]
    Unread(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// No whole answer in time.
    #[error("no answer in time")]
    Late,
}

/// Calls providers. In production this is [`Client`].
pub trait Provider: Sync {
    /// Makes one call and reads its answer, in bounded time and memory.
    fn call(&self, call: &Call) -> impl Future<Output = Result<Answered, NoAnswer>> + Send;
}

/// Why there is no way to providers.
#[derive(Debug, thiserror::Error)]
pub enum NoWayOut {
    /// No names.
    #[error("the machine's resolver cannot be used")]
    Resolver(#[from] NetError),
    /// No TLS.
    #[error("there can be no TLS")]
    Tls(#[from] NoTls),
}

/// What a client is told by the environment of the local host; on AWS, nothing.
#[derive(Clone, Debug, Default)]
pub struct Local {
    /// What may be dialled.
    pub policy: AddressPolicy,
    /// One more certificate authority, in a PEM file.
    pub extra_root: Option<PathBuf>,
    /// Every call goes here instead, with its own path and query: a stand-in for all providers.
    pub stand_in: Option<EndpointUrl>,
}

/// Calls providers over HTTPS.
pub struct Client<R> {
    http: legacy::Client<Connector<R>, Full<Bytes>>,
    policy: AddressPolicy,
    stand_in: Option<EndpointUrl>,
    within: Duration,
}

impl<R> fmt::Debug for Client<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl Client<SystemResolver> {
    /// A client that asks the machine's resolver and believes the web's authorities.
    ///
    /// # Errors
    /// [`NoWayOut`], at the start of the function.
    pub fn open(local: Local) -> Result<Self, NoWayOut> {
        let tls = tls::config(local.extra_root.as_deref())?;
        let Local { policy, stand_in, .. } = local;
        Ok(Self::new(SystemResolver::open()?, tls, policy, stand_in, WITHIN))
    }
}

impl<R: Resolve> Client<R> {
    /// A client that keeps to this policy, and gives up a call after `within`.
    pub fn new(
        resolver: R,
        tls: Arc<ClientConfig>,
        policy: AddressPolicy,
        stand_in: Option<EndpointUrl>,
        within: Duration,
    ) -> Self {
        let connector = Connector {
            resolver: Arc::new(resolver),
            tls,
            policy,
            within: CONNECT_WITHIN,
            dialled: Dialled::default(),
        };
        let http = legacy::Client::builder(TokioExecutor::new())
            // Sweeps are a minute apart, and a frozen sandbox finds its connections dead.
            .pool_max_idle_per_host(0)
            .http1_max_buf_size(MAX_HEAD)
            .http1_max_headers(MAX_HEADERS)
            .build(connector);
        Self { http, policy, stand_in, within }
    }

    fn request(&self, call: &Call) -> Result<Request<Full<Bytes>>, NoAnswer> {
        let url = EndpointUrl::parse(&call.url, &self.policy).map_err(|_| NoAnswer::Address)?;
        let mut request = Request::new(Full::new(Bytes::copy_from_slice(&call.body)));
        *request.method_mut() =
            Method::from_bytes(call.method.as_bytes()).map_err(|_| NoAnswer::Malformed)?;
        *request.uri_mut() = self.uri(&url).ok_or(NoAnswer::Address)?;
        *request.headers_mut() = headers(call).ok_or(NoAnswer::Malformed)?;
        Ok(request)
    }

    /// Made of the parts of the checked URL and not of its text, so that no second parser reads it.
    fn uri(&self, url: &EndpointUrl) -> Option<Uri> {
        let host = self.stand_in.as_ref().unwrap_or(url);
        let (authority, path) = (host.authority(), url.path_and_query());
        Uri::builder().scheme("https").authority(authority).path_and_query(path).build().ok()
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Answered, NoAnswer> {
        let answer = self.http.request(request).await;
        let answer = answer.map_err(|error| NoAnswer::Broken(cause::of(&error), error.into()))?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, MOST_BYTES).collect().await.map_err(NoAnswer::Unread)?;
        Ok(Answered { status: head.status.as_u16(), body: body.to_bytes().into() })
    }
}

impl<R: Resolve> Provider for Client<R> {
    async fn call(&self, call: &Call) -> Result<Answered, NoAnswer> {
        let request = self.request(call)?;
        timeout(self.within, self.exchange(request)).await.unwrap_or(Err(NoAnswer::Late))
    }
}

/// The headers of a call. They may hold a credential, which must not print.
fn headers(call: &Call) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in &call.headers {
        let mut value = HeaderValue::from_str(value).ok()?;
        value.set_sensitive(true);
        headers.append(HeaderName::from_static(name), value);
    }
    Some(headers)
}
