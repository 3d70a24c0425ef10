//! TLS that is wrong, in each way that a receiver can be wrong about it, and TLS that is slow.

use std::sync::Arc;

use rcgen::{ExtendedKeyUsagePurpose, IsCa, KeyPair};
use rustls::{
    HandshakeKind, RootCertStore, ServerConfig,
    crypto::ring,
    server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier},
    sign::CertifiedKey,
    version::TLS12,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_rustls::TlsAcceptor;

use super::{
    Authority, BOUNDS, Bytes, Cause, Duration, HOST, Outcome, Script, StatusCode, TokioExecutor,
    TokioIo, attempt, cause, client, listen, receive,
};

/// The cause of an attempt at a receiver that answers our first words with these, and then as it is told.
async fn cause_of_saying(words: &'static [u8], then_close: bool) -> Cause {
    let authority = Authority::new();
    let port = listen(move |mut stream| async move {
        let _ = stream.read(&mut [0; 4096]).await;
        let _ = stream.write_all(words).await;
        if !then_close {
            while stream.read(&mut [0; 4096]).await.is_ok_and(|read| read > 0) {}
        }
    })
    .await;
    cause(&client(&authority), &port.url()).await
}

/// J32
#[tokio::test]
async fn what_is_no_handshake_is_told_from_a_connection_that_breaks() {
    const ALERT: &[u8] = &[21, 3, 3, 0, 2, 2, 40];
    /// TLS 1.0, chosen by a receiver that knows nothing newer.
    const OLD: &[u8] = &{
        let mut hello = [7; 5 + 4 + 38];
        let head = [22, 3, 1, 0, 42, 2, 0, 0, 38, 3, 1];
        let mut at = 0;
        while at < head.len() {
            hello[at] = head[at];
            at += 1;
        }
        // No session, RSA with AES, no compression.
        (hello[43], hello[44], hello[45], hello[46]) = (0, 0, 0x2f, 0);
        hello
    };
    for (name, words, then_close, expected) in [
        ("an alert", ALERT, false, Cause::Tls),
        ("an old version", OLD, false, Cause::Tls),
        ("plain HTTP", b"HTTP/1.1 400 Bad Request\r\n\r\n", false, Cause::Tls),
        ("SSH", b"SSH-2.0-OpenSSH_9.6\r\n", false, Cause::Tls),
        ("noise", &[0xff; 64], false, Cause::Tls),
        ("application data", &[23, 3, 3, 0, 1, 0], false, Cause::Tls),
        ("a record that is too long", &[22, 3, 3, 0xff, 0xff], false, Cause::Tls),
        ("nothing", b"", true, Cause::Reset),
        ("half a record", &[22, 3, 3, 0, 80, 2, 0], true, Cause::Reset),
        ("half a record, and then nothing", &[22, 3, 3, 0, 80, 2, 0], false, Cause::Timeout),
    ] {
        assert_eq!(cause_of_saying(words, then_close).await, expected, "{name}");
    }
}

/// DLV-slow-drip: every byte comes in time, and the handshake does not.
#[tokio::test]
async fn a_handshake_that_drips_runs_into_the_deadline() {
    let authority = Authority::new();
    let tls = authority.good_receiver();
    let port = listen(move |outside| {
        let tls = tls.clone();
        async move {
            let (inside, tunnel) = tokio::io::duplex(64 * 1024);
            let (mut from_us, mut to_us) = outside.into_split();
            let (mut from_it, mut to_it) = tokio::io::split(tunnel);
            let drip = async {
                let mut pace = tokio::time::interval(Duration::from_millis(5));
                let mut byte = [0];
                while from_it.read_exact(&mut byte).await.is_ok()
                    && to_us.write_all(&byte).await.is_ok()
                {
                    pace.tick().await;
                }
            };
            let _ =
                tokio::join!(drip, tokio::io::copy(&mut from_us, &mut to_it), tls.accept(inside));
        }
    })
    .await;
    assert_eq!(cause(&client(&authority), &port.url()).await, Cause::Timeout);
}

/// A receiver whose certificate has something about it.
fn odd(authority: &Authority, change: impl FnOnce(&mut rcgen::CertificateParams)) -> TlsAcceptor {
    let (chain, key) = authority.certificate(HOST, (2020, 2099), change);
    TlsAcceptor::from(Arc::new(plain().with_single_cert(chain, key).unwrap()))
}

fn plain() -> rustls::ConfigBuilder<ServerConfig, rustls::server::WantsServerCert> {
    ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
}

/// J32
#[tokio::test]
async fn a_certificate_for_something_else_is_refused() {
    let authority = Authority::new();
    let for_clients = odd(&authority, |params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    });
    let an_authority = odd(&authority, |params| {
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    });
    let nameless = odd(&authority, |params| params.subject_alt_names.clear());
    let parent = odd(&authority, |params| {
        params.subject_alt_names = vec![rcgen::SanType::DnsName("example".try_into().unwrap())];
    });
    let address = odd(&authority, |params| {
        params.subject_alt_names = vec![rcgen::SanType::IpAddress([127, 0, 0, 1].into())];
    });
    for (name, tls, expected) in [
        ("for clients", for_clients, Cause::Tls),
        ("of an authority", an_authority, Cause::Tls),
        ("without a name", nameless, Cause::TlsWrongHost),
        ("for the name above", parent, Cause::TlsWrongHost),
        ("for the address", address, Cause::TlsWrongHost),
    ] {
        let port = receive(tls, |_| async {}).await;
        assert_eq!(cause(&client(&authority), &port.url()).await, expected, "{name}");
    }
}

/// Shows somebody's certificate and has another key.
#[derive(Debug)]
struct Impostor(Arc<CertifiedKey>);

impl ResolvesServerCert for Impostor {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

#[tokio::test]
async fn a_stolen_certificate_without_its_key_is_worth_nothing() {
    let authority = Authority::new();
    let (chain, _) = authority.certificate(HOST, (2020, 2099), |_| {});
    let key = KeyPair::generate().unwrap();
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(key.serialize_der());
    let key = ring::sign::any_supported_type(&key.into()).unwrap();
    let impostor = Impostor(Arc::new(CertifiedKey::new(chain, key)));
    let tls = TlsAcceptor::from(Arc::new(plain().with_cert_resolver(Arc::new(impostor))));
    let port = receive(tls, |_| async { panic!("a request to an impostor") }).await;
    assert_eq!(cause(&client(&authority), &port.url()).await, Cause::Tls);
}

/// A receiver that wants to know us by a certificate. In TLS 1.3 it says so only after our side has done its part, when
/// the request has left: then nobody knows what became of it.
#[tokio::test]
async fn a_receiver_that_asks_for_a_certificate_of_ours_gets_none() {
    let authority = Authority::new();
    let mut roots = RootCertStore::empty();
    roots.add(authority.root()).unwrap();
    for (versions, expected) in
        [(&[&TLS12][..], Cause::Tls), (rustls::DEFAULT_VERSIONS, Cause::Reset)]
    {
        let provider = Arc::new(ring::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots.clone()), provider.clone());
        let (chain, key) = authority.certificate(HOST, (2020, 2099), |_| {});
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(chain, key)
            .unwrap();
        let port = receive(TlsAcceptor::from(Arc::new(config)), |_| async {}).await;
        assert_eq!(cause(&client(&authority), &port.url()).await, expected, "{versions:?}");
    }
    assert!(Outcome::Failed { cause: Cause::Reset }.may_have_happened());
}

/// Nothing that a receiver gave to one connection is used for the next: each looks at the certificate again.
#[tokio::test]
async fn no_session_is_kept_for_another_connection() {
    for versions in [&[&TLS12][..], rustls::DEFAULT_VERSIONS] {
        let authority = Authority::new();
        let (chain, key) = authority.certificate(HOST, (2020, 2099), |_| {});
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(versions)
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        config.send_tls13_tickets = 100;
        let (seen, mut kinds) = tokio::sync::mpsc::unbounded_channel();
        let port = receive(TlsAcceptor::from(Arc::new(config)), move |mut stream| {
            let seen = seen.clone();
            async move {
                let _ = seen.send(stream.get_ref().1.handshake_kind());
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
                let _ = stream.flush().await;
                let _ = stream.read(&mut [0]).await;
            }
        })
        .await;
        let dialler = authority.dialler(Script::loopback(), BOUNDS);
        for _ in 0..3 {
            assert_eq!(attempt(&dialler.client(), &port.url()).await.unwrap().status, 200);
            assert_eq!(kinds.recv().await, Some(Some(HandshakeKind::Full)), "{versions:?}");
        }
    }
}

/// A receiver that speaks HTTP/2 too is spoken to in HTTP/1.1; one that speaks nothing else is not spoken to.
#[tokio::test]
async fn http_2_is_not_spoken() {
    async fn serve(stream: tokio_rustls::server::TlsStream<TcpStream>) {
        let answer = hyper::service::service_fn(|request: http::Request<_>| async move {
            let version = request.version();
            drop::<http::Request<hyper::body::Incoming>>(request);
            let body = http_body_util::Full::new(Bytes::from(format!("{version:?}")));
            let mut answer = http::Response::new(body);
            *answer.status_mut() = StatusCode::CREATED;
            Ok::<_, std::convert::Infallible>(answer)
        });
        let http = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
        let _ = http.serve_connection(TokioIo::new(stream), answer).await;
    }
    let authority = Authority::new();
    for (offered, expected) in [
        (&["h2", "http/1.1"][..], Ok("HTTP/1.1")),
        (&["h2"], Err(Cause::Tls)),
        (&[], Ok("HTTP/1.1")),
    ] {
        let mut config = ServerConfig::clone(authority.good_receiver().config());
        config.alpn_protocols = offered.iter().map(|name| name.as_bytes().to_vec()).collect();
        let tls = TlsAcceptor::from(Arc::new(config));
        let port = listen(move |stream| {
            let tls = tls.clone();
            async move {
                if let Ok(stream) = tls.accept(stream).await {
                    serve(stream).await;
                }
            }
        })
        .await;
        let ended = attempt(&client(&authority), &port.url()).await;
        let ended = ended.map(|answered| answered.excerpt).map_err(|failed| failed.cause);
        assert_eq!(ended.as_deref(), expected.as_deref(), "{offered:?}");
    }
}
