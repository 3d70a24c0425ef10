//! The way to providers: one GET, to a host that the fetcher pins, with every bound there is.
//!
//! `egress` opens the connection, to an address that it checked. There are no redirects, no proxies and no decompression;
//! the whole call has one deadline, and an answer over the limit is no answer.

use std::{error::Error, fmt, path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use domain::{
    address::{AddressPolicy, EndpointUrl},
    delivery::Cause,
};
use egress::{
    cause,
    connector::{Connector, Dialled},
    resolve::{Resolve, SystemResolver},
    tls::{self, NoTls},
};
use fetch::{Answered, Call, answer::MAX_BYTES};
use hickory_resolver::net::NetError;
use http::{HeaderMap, HeaderValue, Request, Uri};
use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use hyper_util::{client::legacy, rt::TokioExecutor};
use rustls::ClientConfig;
use tokio::time::timeout;

/// Until there is a connection, TLS included.
const CONNECT_WITHIN: Duration = Duration::from_secs(3);

/// Largest head of an answer, in bytes, and most headers in it.
const MAX_HEAD: usize = 32 * 1024;
const MAX_HEADERS: usize = 100;

/// A call without an answer.
#[derive(Debug, thiserror::Error)]
pub enum NoAnswer {
    /// The address is none that may be called.
    #[error("the address may not be called")]
    Address,
    /// No connection, or a broken one.
    #[error("no answer ({0:?})")]
    Broken(Cause, #[source] Box<dyn Error + Send + Sync>),
    /// More than [`MAX_BYTES`].
    #[error("the answer is larger than 8 MiB")]
    TooLarge,
    /// One that broke off.
    #[error("the answer broke off")]
    Unread(#[source] Box<dyn Error + Send + Sync>),
    /// No whole answer in time.
    #[error("no answer in time")]
    Late,
}

impl NoAnswer {
    /// Whether it is the provider's, or the network's, trouble of the moment; else somebody has to correct something.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Address | Self::TooLarge => false,
            Self::Unread(_) | Self::Late => true,
            Self::Broken(cause, _) => matches!(
                cause,
                Cause::Dns | Cause::Refused | Cause::ConnectTimeout | Cause::Timeout | Cause::Reset
            ),
        }
    }
}

/// Calls providers. In production this is [`Client`].
pub trait Provider: Sync {
    /// Makes one call and reads its answer, in bounded time and memory.
    fn get(
        &self,
        call: &Call,
        within: Duration,
    ) -> impl Future<Output = Result<Answered, NoAnswer>> + Send;
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
    http: legacy::Client<Connector<R>, Empty<Bytes>>,
    policy: AddressPolicy,
    stand_in: Option<EndpointUrl>,
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
        Ok(Self::new(SystemResolver::open()?, tls, policy, stand_in))
    }
}

impl<R: Resolve> Client<R> {
    /// A client that keeps to this policy.
    pub fn new(
        resolver: R,
        tls: Arc<ClientConfig>,
        policy: AddressPolicy,
        stand_in: Option<EndpointUrl>,
    ) -> Self {
        let resolver = Arc::new(resolver);
        let dialled = Dialled::default();
        let connector = Connector { resolver, tls, policy, within: CONNECT_WITHIN, dialled };
        let http = legacy::Client::builder(TokioExecutor::new())
            // A frozen sandbox finds its connections dead.
            .pool_max_idle_per_host(0)
            .http1_max_buf_size(MAX_HEAD)
            .http1_max_headers(MAX_HEADERS)
            .build(connector);
        Self { http, policy, stand_in }
    }

    fn request(&self, call: &Call) -> Option<Request<Empty<Bytes>>> {
        let url = EndpointUrl::parse(&call.url, &self.policy).ok()?;
        // Made of the parts of the checked URL and not of its text, so that no second parser reads it.
        let host = self.stand_in.as_ref().unwrap_or(&url);
        let uri = Uri::builder().scheme("https").authority(host.authority());
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = uri.path_and_query(url.path_and_query()).build().ok()?;
        *request.headers_mut() = headers(call)?;
        Some(request)
    }

    async fn exchange(&self, request: Request<Empty<Bytes>>) -> Result<Answered, NoAnswer> {
        let answer = self.http.request(request).await;
        let answer = answer.map_err(|error| NoAnswer::Broken(cause::of(&error), error.into()))?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, MAX_BYTES).collect().await.map_err(|error| {
            if error.is::<LengthLimitError>() {
                NoAnswer::TooLarge
            } else {
                NoAnswer::Unread(error)
            }
        })?;
        let (status, body) = (head.status.as_u16(), body.to_bytes().into());
        Ok(Answered { status, headers: head.headers, body })
    }
}

impl<R: Resolve> Provider for Client<R> {
    async fn get(&self, call: &Call, within: Duration) -> Result<Answered, NoAnswer> {
        let request = self.request(call).ok_or(NoAnswer::Address)?;
        timeout(within, self.exchange(request)).await.unwrap_or(Err(NoAnswer::Late))
    }
}

/// The headers of a call. They hold a token, which must not print.
fn headers(call: &Call) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in &call.headers {
        let mut value = HeaderValue::from_str(value).ok()?;
        value.set_sensitive(true);
        headers.append(name.clone(), value);
    }
    Some(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RTY-provider-outage: a name that cannot be looked up for a moment costs no event an attempt.
    #[test]
    fn trouble_on_the_way_may_pass_and_what_somebody_has_to_correct_does_not() {
        let broken = |cause| NoAnswer::Broken(cause, "x".into());
        for passes in [Cause::Dns, Cause::Refused, Cause::Reset, Cause::Timeout] {
            assert!(broken(passes).may_pass(), "{passes:?}");
        }
        for stays in [broken(Cause::TlsUnknownIssuer), NoAnswer::Address, NoAnswer::TooLarge] {
            assert!(!stays.may_pass(), "{stays:?}");
        }
    }
}
