//! Receivers on loopback that behave as badly as they are told to, and a resolver that says what it is told to.

#![allow(dead_code, reason = "each suite uses its part")]

use std::{
    collections::VecDeque,
    io::Write as _,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use deliverer::transport::{Bounds, client::Dialler};
use domain::address::AddressPolicy;
use egress::{resolve::Resolve, tls};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, pem::PemObject as _},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// The name of every good receiver.
pub(crate) const HOST: &str = "receiver.example";

/// An authority that nobody knows unless he is told.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        Self::named("an authority of the tests")
    }

    pub(crate) fn named(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// This authority's own certificate.
    pub(crate) fn root(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap()
    }

    /// A certificate for this name, changed before it is signed, and its key.
    pub(crate) fn certificate(
        &self,
        name: &str,
        years: (i32, i32),
        change: impl FnOnce(&mut CertificateParams),
    ) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.not_before, params.not_after) =
            (date_time_ymd(years.0, 1, 1), date_time_ymd(years.1, 1, 1));
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        (vec![CertificateDer::from(certificate)], key)
    }

    /// The TLS of a receiver with a certificate for this name.
    pub(crate) fn receiver(&self, name: &str, years: (i32, i32)) -> TlsAcceptor {
        let (chain, key) = self.certificate(name, years, |_| {});
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        TlsAcceptor::from(Arc::new(config))
    }

    pub(crate) fn good_receiver(&self) -> TlsAcceptor {
        self.receiver(HOST, (2020, 2099))
    }

    /// Makes clients that believe this authority, as `LOCAL_EXTRA_ROOT` does.
    pub(crate) fn dialler<R: Resolve>(&self, resolver: R, bounds: Bounds) -> Dialler<R> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(self.pem.as_bytes()).unwrap();
        Dialler::new(resolver, tls::config(Some(file.path())).unwrap(), bounds)
    }
}

/// Bounds that end within a test: everything else about them is the product's.
pub(crate) const BOUNDS: Bounds = Bounds {
    policy: AddressPolicy::THIS_MACHINE,
    connect: Duration::from_millis(400),
    attempt: Duration::from_millis(800),
    read: 64 * 1024,
    kept: 4096,
};

/// Says one answer after the other, and the last one for ever. No answers at all: never says anything.
#[derive(Debug, Default)]
pub(crate) struct Script {
    answers: Mutex<VecDeque<Result<Vec<IpAddr>, Unknown>>>,
    pub(crate) asked: Arc<AtomicUsize>,
}

#[derive(Clone, Debug, thiserror::Error)]
#[error("no such name")]
pub(crate) struct Unknown;

impl Script {
    pub(crate) fn new(answers: &[&[&str]]) -> Self {
        let addresses =
            |answer: &&[&str]| Ok(answer.iter().map(|address| address.parse().unwrap()).collect());
        let answers = Mutex::new(answers.iter().map(addresses).collect());
        Self { answers, asked: Arc::default() }
    }

    pub(crate) fn loopback() -> Self {
        Self::new(&[&["127.0.0.1"]])
    }

    pub(crate) fn unknown() -> Self {
        let answers = Mutex::new([Err(Unknown)].into());
        Self { answers, asked: Arc::default() }
    }

    pub(crate) fn silent() -> Self {
        Self::default()
    }
}

impl Resolve for Script {
    type Error = Unknown;

    async fn addresses(&self, _: &str) -> Result<Vec<IpAddr>, Unknown> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let answer = {
            let mut answers = self.answers.lock().unwrap();
            if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() }
        };
        match answer {
            Some(answer) => answer,
            None => std::future::pending().await,
        }
    }
}

/// A port of this machine, and how often somebody connected to it.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) address: SocketAddr,
    pub(crate) connections: Arc<AtomicUsize>,
}

impl Port {
    pub(crate) fn url(&self) -> String {
        format!("https://{HOST}:{}/hook", self.address.port())
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// Listens, and gives each connection to `serve`. Ends with the test's runtime.
#[expect(clippy::disallowed_methods, reason = "a receiver lives beside its test")]
pub(crate) async fn listen<F>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> Port
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(serve(stream));
        }
    });
    Port { address, connections }
}

/// Listens with TLS, reads each request to its end, and then does as it is told.
pub(crate) async fn receive<F>(
    tls: TlsAcceptor,
    answer: impl Fn(TlsStream<TcpStream>) -> F + Clone + Send + Sync + 'static,
) -> Port
where
    F: Future<Output = ()> + Send + 'static,
{
    listen(move |stream| {
        let (tls, answer) = (tls.clone(), answer.clone());
        async move {
            let Ok(mut stream) = tls.accept(stream).await else { return };
            if read_request(&mut stream).await.is_some() {
                answer(stream).await;
            }
        }
    })
    .await
}

/// Reads one request: its head, and its body. `None`: there is none.
pub(crate) async fn read_request(
    stream: &mut (impl AsyncRead + Unpin),
) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let head_ends = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..head_ends].to_vec()).unwrap();
    let length = head
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok())
        .unwrap_or(0);
    while bytes.len() < head_ends + length {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    Some((head, bytes[head_ends..head_ends + length].to_vec()))
}
