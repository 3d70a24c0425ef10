//! Endpoints in a thread of their own.

use std::{
    convert::Infallible,
    net::Ipv4Addr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{oneshot, watch},
};
use tokio_rustls::TlsAcceptor;

/// When endpoints answer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Manner {
    AtOnce,
    /// When so many requests have arrived that were not answered.
    WhenAllAreHere(usize),
    Never,
}

/// What is told of each request that has arrived: its path and its `webhook-id`.
pub(crate) type Arrival = Box<dyn Fn(&str) + Send + Sync>;

/// Endpoints behind one port.
#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) port: u16,
    counts: Arc<Counts>,
    /// Dropped, it ends the thread.
    _alive: oneshot::Sender<()>,
}

#[derive(Debug, Default)]
struct Counts {
    requests: AtomicUsize,
    at_once: AtomicUsize,
    most_at_once: AtomicUsize,
}

struct Endpoints {
    manner: Manner,
    counts: Arc<Counts>,
    arrival: Arrival,
    go: watch::Sender<bool>,
}

impl Receiver {
    pub(crate) fn start(tls: Arc<ServerConfig>, manner: Manner) -> Self {
        Self::telling(tls, manner, Box::new(|_| {}))
    }

    /// Endpoints that tell of each arrival, by its event.
    pub(crate) fn telling(tls: Arc<ServerConfig>, manner: Manner, arrival: Arrival) -> Self {
        let counts = Arc::<Counts>::default();
        let (alive, ended) = oneshot::channel();
        let (say, said) = mpsc::channel();
        let go = watch::Sender::new(false);
        let endpoints = Arc::new(Endpoints { manner, counts: Arc::clone(&counts), arrival, go });
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
                say.send(listener.local_addr().unwrap().port()).unwrap();
                tokio::select! {
                    () = accept(listener, TlsAcceptor::from(tls), endpoints) => {}
                    _ = ended => {}
                }
            });
        });
        Self { port: said.recv().unwrap(), counts, _alive: alive }
    }

    pub(crate) fn requests(&self) -> usize {
        self.counts.requests.load(SeqCst)
    }

    pub(crate) fn most_at_once(&self) -> usize {
        self.counts.most_at_once.load(SeqCst)
    }
}

#[expect(clippy::disallowed_methods, reason = "each connection is served beside the others")]
async fn accept(listener: TcpListener, tls: TlsAcceptor, endpoints: Arc<Endpoints>) {
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        tokio::spawn(serve(stream, tls.clone(), Arc::clone(&endpoints)));
    }
}

async fn serve(stream: TcpStream, tls: TlsAcceptor, endpoints: Arc<Endpoints>) {
    let Ok(stream) = tls.accept(stream).await else { return };
    let answer = service_fn(|request| answer(&endpoints, request));
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
}

async fn answer(
    endpoints: &Endpoints,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let _ = body.collect().await;
    let counts = &endpoints.counts;
    counts.requests.fetch_add(1, SeqCst);
    let now = counts.at_once.fetch_add(1, SeqCst) + 1;
    counts.most_at_once.fetch_max(now, SeqCst);
    if let Some(id) = head.headers.get("webhook-id").and_then(|id| id.to_str().ok()) {
        (endpoints.arrival)(id);
    }
    match endpoints.manner {
        Manner::AtOnce => {}
        Manner::Never => std::future::pending().await,
        Manner::WhenAllAreHere(all) => {
            if now == all {
                endpoints.go.send_replace(true);
            }
            let _ = endpoints.go.subscribe().wait_for(|go| *go).await;
        }
    }
    counts.at_once.fetch_sub(1, SeqCst);
    Ok(Response::new(Full::new(Bytes::from_static(b"ok"))))
}
