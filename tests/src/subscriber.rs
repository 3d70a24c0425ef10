//! A subscriber: an https server that answers as it is told and remembers what it got.

use std::{
    collections::VecDeque,
    convert::Infallible,
    future::pending,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use signing::{Key, Scheme};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;

use crate::{certificate::Certificate, eventually, now};

/// What is done with a request after it was read whole.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
    delay: Duration,
    hangs: bool,
}

impl Reply {
    /// An answer with this status and no body.
    pub fn status(code: u16) -> Self {
        Self { status: StatusCode::from_u16(code).unwrap_or_default(), ..Self::default() }
    }

    /// No answer, until the other side gives up.
    pub fn never() -> Self {
        Self { hangs: true, ..Self::default() }
    }

    /// With a header.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        self
    }

    /// With a body.
    #[must_use]
    pub fn body(self, body: impl Into<Bytes>) -> Self {
        Self { body: body.into(), ..self }
    }

    /// After so long.
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }
}

/// A request as the subscriber saw it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// When it was read whole.
    pub at: Timestamp,
    /// The path and the query.
    pub path: String,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its bytes.
    pub body: Bytes,
}

impl Seen {
    /// A header as text; empty if there is none.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The event's id, which is the same for every attempt.
    pub fn id(&self) -> &str {
        self.header("webhook-id")
    }

    /// Verifies the signature as any receiver would, against the time at which it came.
    ///
    /// # Errors
    /// It is not good.
    pub fn verify(&self, key: &Key) -> Result<()> {
        let scheme = Scheme::preset("standard_webhooks").context("the preset ships")?;
        let (url, headers) = (self.path.as_str(), &self.headers);
        let request =
            signing::Request { method: "POST", url, headers, body: &self.body, path_secret: None };
        signing::verify(&scheme, std::slice::from_ref(key), &request, self.at)?;
        Ok(())
    }
}

/// The subscriber. It ends with the test that made it.
#[derive(Debug)]
pub struct Subscriber {
    address: SocketAddr,
    shared: Arc<Mutex<Shared>>,
    // Dropping the set ends the server.
    _server: JoinSet<()>,
}

#[derive(Debug)]
struct Shared {
    script: VecDeque<Reply>,
    otherwise: Reply,
    seen: Vec<Seen>,
}

impl Subscriber {
    /// Listens on a free port of loopback, and answers 204 until it is told otherwise.
    pub(crate) async fn start(certificate: &Certificate) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let otherwise = Reply::status(204);
        let shared = Shared { script: VecDeque::new(), otherwise, seen: Vec::new() };
        let shared = Arc::new(Mutex::new(shared));
        let acceptor = TlsAcceptor::from(certificate.server());
        let mut server = JoinSet::new();
        server.spawn(serve(listener, acceptor, Arc::clone(&shared)));
        Ok(Self { address, shared, _server: server })
    }

    /// Where it gets its events.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}/hooks", self.address.port())
    }

    /// The next requests are answered so, one after the other.
    pub fn then(&self, replies: impl IntoIterator<Item = Reply>) {
        locked(&self.shared).script.extend(replies);
    }

    /// What is not in the script is answered so.
    pub fn otherwise(&self, reply: Reply) {
        locked(&self.shared).otherwise = reply;
    }

    /// What it got so far, in the order in which it came.
    pub fn seen(&self) -> Vec<Seen> {
        locked(&self.shared).seen.clone()
    }

    /// How many requests it got so far.
    pub fn count(&self) -> usize {
        locked(&self.shared).seen.len()
    }

    /// Waits until it got so many requests.
    ///
    /// # Errors
    /// It does not get them.
    pub async fn until(&self, count: usize) -> Result<Vec<Seen>> {
        eventually(&format!("the subscriber got {count} requests"), async || {
            let seen = self.seen();
            ensure!(seen.len() >= count, "{} so far", seen.len());
            Ok(seen)
        })
        .await
    }
}

fn locked(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, shared: Arc<Mutex<Shared>>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                connections.spawn(converse(stream, acceptor.clone(), Arc::clone(&shared)));
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn converse(stream: TcpStream, acceptor: TlsAcceptor, shared: Arc<Mutex<Shared>>) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let service = service_fn(|request| answer(request, &shared));
    // A connection that breaks is the deliverer's to notice.
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn answer(
    request: Request<Incoming>,
    shared: &Mutex<Shared>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    // A request that is cut off was not received, and a deliverer that died in the middle of it sends it again.
    let Ok(body) = body.collect().await else { pending().await };
    let path = head.uri.path_and_query().map_or_else(String::new, ToString::to_string);
    let seen = Seen { at: now(), path, headers: head.headers, body: body.to_bytes() };
    let reply = {
        let mut shared = locked(shared);
        shared.seen.push(seen);
        shared.script.pop_front().unwrap_or_else(|| shared.otherwise.clone())
    };
    if reply.hangs {
        pending::<()>().await;
    }
    if !reply.delay.is_zero() {
        tokio::time::sleep(reply.delay).await;
    }
    let mut response = Response::new(Full::new(reply.body));
    *response.status_mut() = reply.status;
    *response.headers_mut() = reply.headers;
    Ok(response)
}
