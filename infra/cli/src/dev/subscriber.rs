//! The subscriber of the demo: an https server on loopback that verifies what it gets, as any receiver would.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
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
    endpoint: Shared,
    seen: mpsc::UnboundedReceiver<Seen>,
}

/// Where deliveries come in, and the key that they are signed with; nothing until the endpoint is made.
#[derive(Clone, Debug)]
struct Endpoint {
    path: String,
    key: Key,
}

/// How far behind the first port the subscriber's is: behind that of AWS and of every HTTP API of the template, and of those
/// to come.
const BEHIND: u16 = 9;

type Shared = Arc<Mutex<Option<Endpoint>>>;

impl Subscriber {
    /// Listens on loopback: on the tenth port from `base` on, or for 0 on that of the last start if it is free.
    /// Answers 410 until it is told its endpoint.
    pub(super) async fn start(files: &Files, base: u16) -> Result<Self, Complaint> {
        let acceptor = TlsAcceptor::from(Arc::new(tls(files)?));
        let listener = listen(base, files.port()).await?;
        let address = listener.local_addr().map_err(|error| taken(base, &error))?;
        let (sender, seen) = mpsc::unbounded_channel();
        let endpoint = Shared::default();
        #[expect(
            clippy::disallowed_methods,
            reason = "a server of this process, not of a function"
        )]
        tokio::spawn(serve(listener, acceptor, Arc::clone(&endpoint), sender));
        Ok(Self { address, endpoint, seen })
    }

    /// What its URLs begin with.
    pub(super) fn origin(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Where it listens.
    pub(super) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Takes the endpoint's URL and secret, as a subscriber does after making the endpoint.
    pub(super) fn trust(&mut self, url: &str, secret: &str) -> Result<(), Complaint> {
        let fail = |why: String| {
            let next = "remove the whole state folder to start from nothing";
            Complaint::new("the endpoint's secret cannot be used", why, next)
        };
        let scheme =
            Scheme::preset("standard_webhooks").ok_or_else(|| fail("no scheme".to_owned()))?;
        let key =
            Key::parse(&scheme, "demo", &Secret::new(secret)).map_err(|e| fail(e.to_string()))?;
        let path = url.strip_prefix(&self.origin()).unwrap_or_default().to_owned();
        let endpoint = Endpoint { path, key };
        *self.endpoint.lock().unwrap_or_else(PoisonError::into_inner) = Some(endpoint);
        Ok(())
    }

    /// The next delivery.
    pub(super) async fn next(&mut self) -> Option<Seen> {
        self.seen.recv().await
    }
}

fn tls(files: &Files) -> Result<ServerConfig, Complaint> {
    let broken = |why: String| {
        let folder = files.certificate_file();
        let folder = folder.parent().unwrap_or(&folder).display().to_string();
        Complaint::new(
            "the demo's certificate cannot be used",
            why,
            format!("remove the folder {folder}, and the state folder around it"),
        )
    };
    let certificate = CertificateDer::from_pem_file(files.certificate_file());
    let certificate = certificate.map_err(|error| broken(error.to_string()))?;
    let key = PrivateKeyDer::from_pem_file(files.key_file());
    let key = key.map_err(|error| broken(error.to_string()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    builder
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(vec![certificate], key))
        .map_err(|error| broken(error.to_string()))
}

async fn listen(base: u16, last: Option<u16>) -> Result<TcpListener, Complaint> {
    let bind = async |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
    if base > 0 {
        let port = base.saturating_add(BEHIND);
        return bind(port).await.map_err(|error| taken(port, &error));
    }
    // The endpoint of the last start can be used again, if its port can.
    if let Some(port) = last
        && let Ok(listener) = bind(port).await
    {
        return Ok(listener);
    }
    bind(0).await.map_err(|error| taken(0, &error))
}

fn taken(port: u16, error: &std::io::Error) -> Complaint {
    Complaint::new(
        format!("the demo's subscriber cannot listen on port {port}"),
        error.to_string(),
        "stop what uses it (another `cargo dev`?), or choose other ports with --port (0: free ones)",
    )
}

async fn serve(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    endpoint: Shared,
    sender: mpsc::UnboundedSender<Seen>,
) {
    loop {
        // A connection that was gone before it was taken, or too many open files: the next one may do.
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let (acceptor, endpoint, sender) =
            (acceptor.clone(), Arc::clone(&endpoint), sender.clone());
        #[expect(
            clippy::disallowed_methods,
            reason = "a server of this process, not of a function"
        )]
        tokio::spawn(converse(stream, acceptor, endpoint, sender));
    }
}

async fn converse(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    endpoint: Shared,
    sender: mpsc::UnboundedSender<Seen>,
) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let service = service_fn(|request| answer(request, &endpoint, &sender));
    // A connection that breaks is the deliverer's to notice.
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn answer(
    request: Request<Incoming>,
    endpoint: &Shared,
    sender: &mpsc::UnboundedSender<Seen>,
) -> Result<Response<Full<bytes::Bytes>>, std::convert::Infallible> {
    #[expect(clippy::disallowed_methods, reason = "the edge reads the clock")]
    let now = Timestamp::now();
    let (head, body) = request.into_parts();
    let endpoint = endpoint.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let endpoint = endpoint.filter(|endpoint| endpoint.path == head.uri.path());
    let mut response = Response::new(Full::default());
    let Some(Endpoint { key, .. }) = endpoint else {
        *response.status_mut() = StatusCode::GONE;
        return Ok(response);
    };
    let verdict = match Limited::new(body, MAX_BODY).collect().await {
        Ok(body) => check(&head, &body.to_bytes(), &key, now),
        Err(error) => Err(error.to_string()),
    };
    let id = head.headers.get(signing::sign::ID_HEADER).and_then(|id| id.to_str().ok());
    let id = id.unwrap_or_default().to_owned();
    let status = if verdict.is_ok() { StatusCode::OK } else { StatusCode::UNAUTHORIZED };
    *response.status_mut() = status;
    // Nobody listens any more when the program ends.
    let _ = sender.send(Seen { id, at: now, verdict });
    Ok(response)
}

fn check(
    head: &http::request::Parts,
    body: &[u8],
    key: &Key,
    now: Timestamp,
) -> Result<(), String> {
    let scheme = Scheme::preset("standard_webhooks").ok_or("no scheme")?;
    let request = signing::Request {
        method: "POST",
        url: head.uri.path(),
        headers: &head.headers,
        body,
        path_secret: None,
    };
    let verified = signing::verify(&scheme, std::slice::from_ref(key), &request, now);
    verified.map(|_| ()).map_err(|rejected| rejected.to_string())
}

#[cfg(test)]
mod tests {
    use hyper_rustls::HttpsConnectorBuilder;
    use hyper_util::{client::legacy::Client, rt::TokioExecutor};
    use rustls::{ClientConfig, RootCertStore};
    use signing::{EndpointSecret, sign};

    use super::*;

    /// Sends a delivery as the deliverer does, over TLS that trusts the demo's certificate and nothing else.
    async fn deliver(files: &Files, url: &str, signature: &str, at: Timestamp) -> u16 {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(files.certificate_file()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(tls).https_only().enable_http1().build();
        let client = Client::builder(TokioExecutor::new()).build(connector);
        let request = Request::post(url)
            .header(sign::ID_HEADER, "evt_1")
            .header(sign::TIMESTAMP_HEADER, at.as_second().to_string())
            .header(sign::SIGNATURE_HEADER, signature)
            .body(Full::new(bytes::Bytes::from_static(b"{}")))
            .unwrap();
        client.request(request).await.unwrap().status().as_u16()
    }

    #[tokio::test]
    async fn deliveries_are_verified_and_those_to_another_endpoint_are_gone() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::open(folder.path()).unwrap();
        let mut subscriber = Subscriber::start(&files, 0).await.unwrap();
        let url = format!("{}/webhooks/ours", subscriber.origin());
        #[expect(clippy::disallowed_methods, reason = "the subscriber reads the clock")]
        let now = Timestamp::now();
        let secret = EndpointSecret::shared([7; 32]);
        let exposed = secret.expose();
        let good = sign::header_value(&[secret], "evt_1", now, b"{}");
        let other = sign::header_value(&[EndpointSecret::shared([8; 32])], "evt_1", now, b"{}");

        assert_eq!(deliver(&files, &url, &good, now).await, 410, "it has no endpoint yet");
        subscriber.trust(&url, exposed.expose()).unwrap();
        let lost = format!("{}/webhooks/lost", subscriber.origin());
        assert_eq!(deliver(&files, &lost, &other, now).await, 410);
        assert!(subscriber.seen.try_recv().is_err(), "what is gone is not seen");

        assert_eq!(deliver(&files, &url, &good, now).await, 200);
        let seen = subscriber.next().await.unwrap();
        assert_eq!((seen.id.as_str(), seen.verdict), ("evt_1", Ok(())));
        assert_eq!(deliver(&files, &url, &other, now).await, 401);
        assert!(subscriber.next().await.unwrap().verdict.is_err());
    }

    #[tokio::test]
    async fn a_port_of_the_last_start_is_taken_again_if_it_is_free() {
        let first = listen(0, None).await.unwrap();
        let port = first.local_addr().unwrap().port();
        assert_ne!(listen(0, Some(port)).await.unwrap().local_addr().unwrap().port(), port);
        drop(first);
        assert_eq!(listen(0, Some(port)).await.unwrap().local_addr().unwrap().port(), port);
    }
}
