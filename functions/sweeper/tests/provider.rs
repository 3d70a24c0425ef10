//! The way to providers, against a stand-in on this machine that behaves as it is told.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::disallowed_methods, reason = "the stand-in works beside the test")]

use std::{
    convert::Infallible,
    net::{IpAddr, Ipv4Addr},
    sync::{Arc, Mutex},
    time::Duration,
};

use domain::address::{AddressPolicy, EndpointUrl};
use egress::resolve::Resolve;
use rcgen::{CertificateParams, Issuer, KeyPair};
use rustls::{ClientConfig, RootCertStore, ServerConfig, crypto::ring};
use signing::lookup::Call;
use sweeper::provider::{Client, NoAnswer, Provider as _};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

const LOCAL: AddressPolicy = AddressPolicy::THIS_MACHINE;

/// A resolver that knows one address, whatever it is asked for.
struct Says(IpAddr);

impl Resolve for Says {
    type Error = Infallible;

    async fn addresses(&self, _: &str) -> Result<Vec<IpAddr>, Infallible> {
        Ok(vec![self.0])
    }
}

/// Answers every request with these bytes, and keeps what was asked. It ends with the test's runtime.
struct StandIn {
    url: EndpointUrl,
    tls: Arc<ClientConfig>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl StandIn {
    async fn answering(answer: Vec<u8>) -> Self {
        let ca_key = KeyPair::generate().unwrap();
        let mut ca = CertificateParams::new(Vec::new()).unwrap();
        ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let root = ca.self_signed(&ca_key).unwrap();
        let key = KeyPair::generate().unwrap();
        let names = vec!["127.0.0.1".to_owned(), "keys.example".to_owned()];
        let leaf = CertificateParams::new(names).unwrap();
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
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://127.0.0.1:{}", listener.local_addr().unwrap().port());
        let (acceptor, asked) = (TlsAcceptor::from(Arc::new(server)), Arc::new(Mutex::default()));
        tokio::task::spawn(serve(listener, acceptor, answer, Arc::clone(&asked)));
        Self { url: EndpointUrl::parse(&url, &LOCAL).unwrap(), tls: Arc::new(client), asked }
    }

    fn client(&self, within: Duration) -> Client<Says> {
        let (stand_in, tls) = (Some(self.url.clone()), Arc::clone(&self.tls));
        Client::new(Says(Ipv4Addr::LOCALHOST.into()), tls, LOCAL, stand_in, within)
    }
}

async fn serve(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    answer: Vec<u8>,
    asked: Arc<Mutex<Vec<String>>>,
) {
    while let Ok((tcp, _)) = listener.accept().await {
        let Ok(mut stream) = acceptor.accept(tcp).await else { continue };
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let Ok(byte) = stream.read_u8().await else { break };
            head.push(byte);
        }
        asked.lock().unwrap().push(String::from_utf8_lossy(&head).into_owned());
        let _ = stream.write_all(&answer).await;
        if answer.is_empty() {
            // Silent until the other side goes.
            let _ = stream.read_u8().await;
        }
        let _ = stream.shutdown().await;
    }
}

fn answer(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n{headers}\r\n");
    [head.as_bytes(), body].concat()
}

fn call(url: &str) -> Call {
    let headers = vec![("authorization", "Bearer x".to_owned().into())];
    Call { method: "GET", url: url.to_owned(), headers, body: Vec::new().into() }
}

const LONG: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_call_comes_to_the_stand_in_with_its_own_path_and_query() {
    let stand_in = StandIn::answering(answer("200 OK", "", b"the key")).await;
    let answered = stand_in.client(LONG).call(&call("https://keys.example/a/b?c=d")).await.unwrap();
    assert_eq!((answered.status, answered.body.as_slice()), (200, b"the key".as_slice()));
    let asked = stand_in.asked.lock().unwrap().concat().to_lowercase();
    assert!(asked.starts_with("get /a/b?c=d http/1.1\r\n"), "{asked}");
    assert!(asked.contains("authorization: bearer x\r\n"), "{asked}");
}

/// SSRF-redirect
#[tokio::test]
async fn a_redirect_is_an_answer_and_is_not_followed() {
    let to = "location: https://169.254.169.254/latest/\r\n";
    let stand_in = StandIn::answering(answer("302 Found", to, b"")).await;
    let answered = stand_in.client(LONG).call(&call("https://keys.example/")).await.unwrap();
    assert_eq!(answered.status, 302);
    assert_eq!(stand_in.asked.lock().unwrap().len(), 1);
}

/// DLV-huge-response
#[tokio::test]
async fn an_answer_over_the_limit_is_none() {
    for (length, is_read) in [(64 * 1024, true), (64 * 1024 + 1, false)] {
        let stand_in = StandIn::answering(answer("200 OK", "", &vec![b'x'; length])).await;
        let answered = stand_in.client(LONG).call(&call("https://keys.example/")).await;
        assert_eq!(answered.is_ok(), is_read, "{length}: {answered:?}");
    }
}

#[tokio::test]
async fn a_silent_provider_does_not_hold_the_sweep() {
    let stand_in = StandIn::answering(Vec::new()).await;
    let client = stand_in.client(Duration::from_millis(300));
    let answered = client.call(&call("https://keys.example/")).await;
    assert!(matches!(answered, Err(NoAnswer::Late)), "{answered:?}");
}

/// SSRF-update-and-test-paths: without the stand-in, the policy of production holds for every address.
#[tokio::test]
async fn no_call_goes_where_none_may_go() {
    let stand_in = StandIn::answering(answer("200 OK", "", b"no")).await;
    let strict = AddressPolicy::default();
    for (url, resolves_to) in [
        ("https://keys.example/", IpAddr::from([127, 0, 0, 1])),
        ("https://keys.example/", IpAddr::from([169, 254, 169, 254])),
        ("https://127.0.0.1/", IpAddr::from([127, 0, 0, 1])),
        ("http://keys.example/", IpAddr::from([93, 184, 216, 34])),
        ("https://user:pw@keys.example/", IpAddr::from([93, 184, 216, 34])),
        ("https://keys.example:22/", IpAddr::from([93, 184, 216, 34])),
    ] {
        let client = Client::new(Says(resolves_to), Arc::clone(&stand_in.tls), strict, None, LONG);
        let answered = client.call(&call(url)).await;
        let is_blocked = match &answered {
            Err(NoAnswer::Address) => true,
            Err(NoAnswer::Broken(cause, _)) => *cause == domain::delivery::Cause::BlockedAddress,
            _ => false,
        };
        assert!(is_blocked, "{url}: {answered:?}");
    }
    assert!(stand_in.asked.lock().unwrap().is_empty());
}
