//! A provider's API on this machine, over TLS, that behaves as it is told.

use std::{
    convert::Infallible,
    net::{IpAddr, Ipv4Addr},
    sync::{Arc, Mutex},
};

use domain::address::{AddressPolicy, EndpointUrl};
use egress::resolve::Resolve;
use rcgen::{CertificateParams, Issuer, KeyPair};
use rustls::{ClientConfig, RootCertStore, ServerConfig, crypto::ring};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::Notify,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use worker::fetching::Client;

pub(crate) const LOCAL: AddressPolicy = AddressPolicy::THIS_MACHINE;

/// A resolver that knows one address, whatever it is asked for.
pub(crate) struct Says(IpAddr);

impl Resolve for Says {
    type Error = Infallible;

    async fn addresses(&self, _: &str) -> Result<Vec<IpAddr>, Infallible> {
        Ok(vec![self.0])
    }
}

/// What comes back to a request.
#[derive(Clone)]
pub(crate) enum Reply {
    /// These bytes.
    Bytes(Vec<u8>),
    /// These bytes, when somebody says so; the first notice is that the request is there.
    When(Arc<Notify>, Arc<Notify>, Vec<u8>),
    /// Nothing, until the other side goes.
    Nothing,
    /// This many bytes of a body that claims to be JSON.
    Flood(usize),
}

pub(crate) fn answer(status: &str, headers: &str, body: &str) -> Reply {
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n{headers}\r\n",
        body.len()
    );
    Reply::Bytes([head.as_bytes(), body.as_bytes()].concat())
}

pub(crate) fn json(body: &serde_json::Value) -> Reply {
    answer("200 OK", "content-type: application/json\r\n", &body.to_string())
}

type Says2 = Box<dyn FnMut(&str) -> Reply + Send>;

/// Keeps what it was asked. Ends with the test's runtime.
pub(crate) struct Provider {
    url: EndpointUrl,
    tls: Arc<ClientConfig>,
    asked: Arc<Mutex<Vec<String>>>,
    reply: Arc<Mutex<Says2>>,
}

impl Provider {
    pub(crate) async fn answering(reply: Reply) -> Self {
        let (server, client) = certificates();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://127.0.0.1:{}", listener.local_addr().unwrap().port());
        let asked = Arc::new(Mutex::default());
        let reply: Arc<Mutex<Says2>> = Arc::new(Mutex::new(Box::new(move |_| reply.clone())));
        let acceptor = TlsAcceptor::from(Arc::new(server));
        tokio::task::spawn(serve(listener, acceptor, Arc::clone(&asked), Arc::clone(&reply)));
        let url = EndpointUrl::parse(&url, &LOCAL).unwrap();
        Self { url, tls: Arc::new(client), asked, reply }
    }

    /// From now on it answers so.
    pub(crate) fn says(&self, reply: Reply) {
        self.answers(move |_| reply.clone());
    }

    /// From now on it answers each request, by its head, so.
    pub(crate) fn answers(&self, reply: impl FnMut(&str) -> Reply + Send + 'static) {
        *self.reply.lock().unwrap() = Box::new(reply);
    }

    /// The heads of the requests so far.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    /// A way to it, whatever provider is meant.
    pub(crate) fn client(&self) -> Client<Says> {
        let (stand_in, tls) = (Some(self.url.clone()), Arc::clone(&self.tls));
        Client::new(Says(Ipv4Addr::LOCALHOST.into()), tls, LOCAL, stand_in)
    }
}

fn certificates() -> (ServerConfig, ClientConfig) {
    let ca_key = KeyPair::generate().unwrap();
    let mut ca = CertificateParams::new(Vec::new()).unwrap();
    ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let root = ca.self_signed(&ca_key).unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let leaf = leaf.signed_by(&key, &Issuer::new(ca, &ca_key)).unwrap();
    let provider = Arc::new(ring::default_provider());
    let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![leaf.der().clone()],
            rustls::pki_types::PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
        )
        .unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(root.der().clone()).unwrap();
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    (server, client)
}

async fn serve(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    asked: Arc<Mutex<Vec<String>>>,
    reply: Arc<Mutex<Says2>>,
) {
    while let Ok((tcp, _)) = listener.accept().await {
        let (acceptor, asked, reply) = (acceptor.clone(), Arc::clone(&asked), Arc::clone(&reply));
        tokio::task::spawn(async move {
            let Ok(mut stream) = acceptor.accept(tcp).await else { return };
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let Ok(byte) = stream.read_u8().await else { return };
                head.push(byte);
            }
            let head = String::from_utf8_lossy(&head).to_lowercase();
            asked.lock().unwrap().push(head.clone());
            let reply = (reply.lock().unwrap())(&head);
            Box::pin(send(&mut stream, reply)).await;
            let _ = stream.shutdown().await;
        });
    }
}

async fn send(stream: &mut TlsStream<TcpStream>, reply: Reply) {
    match reply {
        Reply::Bytes(bytes) => {
            let _ = stream.write_all(&bytes).await;
        }
        Reply::When(there, go, bytes) => {
            there.notify_one();
            go.notified().await;
            let _ = stream.write_all(&bytes).await;
        }
        Reply::Nothing => {
            let _ = stream.read_u8().await;
        }
        Reply::Flood(bytes) => {
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {bytes}\r\n\r\n"
            );
            let _ = stream.write_all(head.as_bytes()).await;
            let piece = [b' '; 16 * 1024];
            for _ in 0..bytes / piece.len() {
                if stream.write_all(&piece).await.is_err() {
                    return;
                }
            }
        }
    }
}
