//! One client for one drain: connections are reused inside it and end with it, because a sandbox that was frozen finds
//! its connections dead.

use std::{fmt, path::Path, sync::Arc};

use bytes::Bytes;
use domain::{address::EndpointUrl, delivery::Cause};
use egress::{
    cause,
    connector::{Connector, Dialled},
    resolve::{Resolve, SystemResolver},
    tls::{self, NoTls},
};
use hickory_resolver::net::NetError;
use http::{Method, Request, Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::{client::legacy, rt::TokioExecutor};
use rustls::ClientConfig;
use tokio::time::timeout_at;
use url::Url;

use super::{Answered, Bounds, Failed, Post, Reply, Transport, answer};

/// Largest head of an answer, in bytes, and most headers in it. Both are far above what any framework sends.
const MAX_HEAD: usize = 32 * 1024;
const MAX_HEADERS: usize = 100;

/// Makes clients. Lives as long as the process and holds no connection.
pub struct Dialler<R> {
    resolver: Arc<R>,
    tls: Arc<ClientConfig>,
    bounds: Bounds,
}

impl<R> fmt::Debug for Dialler<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialler").field("bounds", &self.bounds).finish_non_exhaustive()
    }
}

/// Why there is no way out.
#[derive(Debug, thiserror::Error)]
pub enum NoWayOut {
    /// No names.
    #[error("the machine's resolver cannot be used")]
    Resolver(#[from] NetError),
    /// No TLS.
    #[error("there can be no TLS")]
    Tls(#[from] NoTls),
}

impl Dialler<SystemResolver> {
    /// A maker of clients that ask the machine's resolver and believe the web's authorities, and `extra_root` on the
    /// local host.
    ///
    /// # Errors
    /// [`NoWayOut`], at the start of the function.
    pub fn open(bounds: Bounds, extra_root: Option<&Path>) -> Result<Self, NoWayOut> {
        Ok(Self::new(SystemResolver::open()?, tls::config(extra_root)?, bounds))
    }
}

impl<R: Resolve> Dialler<R> {
    /// A maker of clients that keep to these bounds.
    pub fn new(resolver: R, tls: Arc<ClientConfig>, bounds: Bounds) -> Self {
        Self { resolver: Arc::new(resolver), tls, bounds }
    }

    /// The bounds of every attempt.
    pub const fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// A client without connections.
    pub fn client(&self) -> Client<R> {
        let connector = Connector {
            resolver: Arc::clone(&self.resolver),
            tls: Arc::clone(&self.tls),
            policy: self.bounds.policy,
            within: self.bounds.connect,
            dialled: Dialled::default(),
        };
        let dialled = connector.dialled.clone();
        let http = legacy::Client::builder(TokioExecutor::new())
            .http1_max_buf_size(MAX_HEAD)
            .http1_max_headers(MAX_HEADERS)
            .build(connector);
        Client { http, bounds: self.bounds, dialled }
    }
}

/// Sends requests, and keeps its connections until it is dropped.
pub struct Client<R> {
    http: legacy::Client<Connector<R>, Full<Bytes>>,
    bounds: Bounds,
    dialled: Dialled,
}

impl<R> fmt::Debug for Client<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("dialled", &self.dialled).finish_non_exhaustive()
    }
}

impl<R> Client<R> {
    /// What was dialled so far.
    pub const fn dialled(&self) -> &Dialled {
        &self.dialled
    }
}

impl<R: Resolve> Transport for Client<R> {
    async fn post(&self, post: Post) -> Result<Answered, Failed> {
        let by = post.by;
        let (response, url) = self.begin(post).await?;
        Ok(answer::read(response, &url, &self.bounds, by).await)
    }

    async fn ask(&self, post: Post) -> Result<Reply, Failed> {
        let by = post.by;
        let (response, _) = self.begin(post).await?;
        answer::whole(response, &self.bounds, by).await
    }
}

impl<R: Resolve> Client<R> {
    /// The head of the answer, and where it came from.
    async fn begin(&self, post: Post) -> Result<(Response<Incoming>, Url), Failed> {
        // One deadline around everything: limits on single reads never end a drip of bytes.
        let by = post.by;
        let (request, url) = request(post).ok_or(Failed::new(Cause::BlockedAddress))?;
        match timeout_at(by, self.http.request(request)).await {
            Ok(Ok(response)) => Ok((response, url)),
            Ok(Err(error)) => Err(Failed { cause: cause::of(&error), source: Some(error.into()) }),
            Err(elapsed) => Err(Failed { cause: Cause::Timeout, source: Some(elapsed.into()) }),
        }
    }
}

/// The request, made of the parts of the checked URL and not of its text, so that no second parser reads it.
fn request(post: Post) -> Option<(Request<Full<Bytes>>, Url)> {
    let uri = uri(&post.url)?;
    let mut request = Request::new(Full::new(post.body));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = uri;
    *request.headers_mut() = post.headers;
    Some((request, post.url.as_url().clone()))
}

fn uri(url: &EndpointUrl) -> Option<Uri> {
    let (authority, path) = (url.authority(), url.path_and_query());
    Uri::builder().scheme("https").authority(authority).path_and_query(path).build().ok()
}

#[cfg(test)]
mod tests {
    use domain::address::AddressPolicy;

    use super::*;

    /// SSRF-url-parser-confusion: the host that is dialled is the host that was checked.
    #[test]
    fn the_request_goes_to_the_host_that_was_checked() {
        for (text, host, port) in [
            ("https://EXAMPLE.com", "example.com", None),
            ("https://example.com:8443/a?b=c", "example.com", Some(8443)),
            ("https://example.com/a@10.0.0.1:22/?@x", "example.com", None),
            ("https://[2606:4700:4700::1111]/", "[2606:4700:4700::1111]", None),
            ("https://bücher.example/ü|^\"<>`{}", "xn--bcher-kva.example", None),
        ] {
            let url = EndpointUrl::parse(text, &AddressPolicy::default()).unwrap();
            let uri = uri(&url).unwrap();
            assert_eq!((uri.host(), uri.port_u16()), (Some(host), port), "{text}");
        }
    }
}
