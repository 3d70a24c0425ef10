//! The subscriber of the demo: an https server on loopback that verifies what it gets, as any receiver would.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use signing::{Key, Scheme, Secret};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
};
use tokio_rustls::TlsAcceptor;

use super::demo::Files;
use crate::complaint::Complaint;

/// The most bytes of a delivery that are read.
const MAX_BODY: usize = 2 << 20;

/// A delivery as the subscriber saw it.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// The event's id, from the signed header.
    pub(super) id: String,
    /// When it came.
    pub(super) at: Timestamp,
    /// Whether its signature is good, and if not, why not.
    pub(super) verdict: Result<(), String>,
}

/// The subscriber.
#[derive(Debug)]
pub(super) struct Subscriber {
    address: SocketAddr,
    key: Arc<Mutex<Option<Key>>>,
    seen: mpsc::UnboundedReceiver<Seen>,
}

impl Subscriber {
    /// Listens on loopback. Verifies nothing until it is told the secret.
    pub(super) async fn start(files: &Files, port: u16) -> Result<Self, Complaint> {
        let fail = |why: String| {
            Complaint::new(
                format!("the demo's subscriber cannot listen on port {port}"),
                why,
                "give another --port, or stop what uses it",
            )
        };
        let certificate = CertificateDer::from_pem_file(files.certificate_file());
        let certificate = certificate.map_err(|error| fail(error.to_string()))?;
        let key = PrivateKeyDer::from_pem_file(files.key_file());
        let key = key.map_err(|error| fail(error.to_string()))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map(|builder| builder.with_no_client_auth())
            .and_then(|builder| builder.with_single_cert(vec![certificate], key))
            .map_err(|error| fail(error.to_string()))?;
        let listener = TcpListener::bind(("127.0.0.1", port)).await;
        let listener = listener.map_err(|error| fail(error.to_string()))?;
        let address = listener.local_addr().map_err(|error| fail(error.to_string()))?;
        let (sender, seen) = mpsc::unbounded_channel();
        let key = Arc::new(Mutex::new(None));
        let acceptor = TlsAcceptor::from(Arc::new(config));
        #[expect(
            clippy::disallowed_methods,
            reason = "a server of this process, not of a function"
        )]
        tokio::spawn(serve(listener, acceptor, Arc::clone(&key), sender));
        Ok(Self { address, key, seen })
    }

    /// Where deliveries go.
    pub(super) fn url(&self) -> String {
        format!("https://127.0.0.1:{}/webhooks", self.address.port())
    }

    /// Takes the endpoint's secret, as a subscriber does after making the endpoint.
    pub(super) fn trust(&mut self, secret: &str) -> Result<(), Complaint> {
        let fail = |why: String| {
            Complaint::new("the endpoint's secret cannot be used", why, "remove the state folder")
        };
        let scheme =
            Scheme::preset("standard_webhooks").ok_or_else(|| fail("no scheme".to_owned()))?;
        let key =
            Key::parse(&scheme, "demo", &Secret::new(secret)).map_err(|e| fail(e.to_string()))?;
        *self.key.lock().unwrap_or_else(PoisonError::into_inner) = Some(key);
        Ok(())
    }

    /// The next delivery.
    pub(super) async fn next(&mut self) -> Option<Seen> {
        self.seen.recv().await
    }
}

type Shared = Arc<Mutex<Option<Key>>>;

async fn serve(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    key: Shared,
    sender: mpsc::UnboundedSender<Seen>,
) {
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, key, sender) = (acceptor.clone(), Arc::clone(&key), sender.clone());
        #[expect(
            clippy::disallowed_methods,
            reason = "a server of this process, not of a function"
        )]
        tokio::spawn(converse(stream, acceptor, key, sender));
    }
}

async fn converse(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    key: Shared,
    sender: mpsc::UnboundedSender<Seen>,
) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let service = service_fn(|request| answer(request, &key, &sender));
    // A connection that breaks is the deliverer's to notice.
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

#[expect(clippy::disallowed_methods, reason = "the edge reads the clock")]
async fn answer(
    request: Request<Incoming>,
    key: &Shared,
    sender: &mpsc::UnboundedSender<Seen>,
) -> Result<Response<Full<bytes::Bytes>>, std::convert::Infallible> {
    let now = Timestamp::now();
    let (head, body) = request.into_parts();
    let verdict = match Limited::new(body, MAX_BODY).collect().await {
        Ok(body) => check(&head, &body.to_bytes(), key, now),
        Err(error) => Err(error.to_string()),
    };
    let id = head.headers.get("webhook-id").and_then(|id| id.to_str().ok());
    let id = id.unwrap_or_default().to_owned();
    let status = if verdict.is_ok() { StatusCode::OK } else { StatusCode::UNAUTHORIZED };
    // Nobody listens any more once the story is told.
    let _ = sender.send(Seen { id, at: now, verdict });
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    Ok(response)
}

fn check(
    head: &http::request::Parts,
    body: &[u8],
    key: &Shared,
    now: Timestamp,
) -> Result<(), String> {
    let scheme = Scheme::preset("standard_webhooks").ok_or("no scheme")?;
    let key = key.lock().unwrap_or_else(PoisonError::into_inner);
    let key = key.as_ref().ok_or("the subscriber has no secret yet")?;
    let request =
        signing::Request { method: "POST", url: head.uri.path(), headers: &head.headers, body };
    let verified = signing::verify(&scheme, std::slice::from_ref(key), &request, now);
    verified.map(|_| ()).map_err(|rejected| rejected.to_string())
}
