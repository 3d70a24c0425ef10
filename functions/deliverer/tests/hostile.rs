//! Attempts against receivers that behave badly. Each attempt ends, in bounded time and memory, with a word for why.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

#[path = "hostile/encryption.rs"]
mod encryption;
#[path = "hostile/guard.rs"]
mod guard;
#[path = "hostile/memory.rs"]
mod memory;
mod receiver;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use deliverer::transport::{Answered, Bounds, Failed, Post, Transport as _, client::Client};
use domain::{
    address::{AddressPolicy, EndpointUrl},
    delivery::{Cause, Outcome},
};
use egress::resolve::Resolve;
use http::{HeaderMap, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use receiver::{Authority, BOUNDS, HOST, Port, Script, listen, read_request, receive};
use tokio::{
    io::{AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpListener,
    time::{Instant, timeout},
};

/// Long after every bound: an attempt that takes this long was not bounded at all.
const FOR_EVER: Duration = Duration::from_secs(20);

fn post(url: &str) -> Post {
    let local = AddressPolicy::THIS_MACHINE;
    let url = EndpointUrl::parse(url, &local).unwrap();
    let by = Instant::now() + BOUNDS.attempt;
    Post { url, headers: HeaderMap::new(), body: Bytes::from_static(b"{\"a\":1}"), by }
}

async fn attempt<R: Resolve>(client: &Client<R>, url: &str) -> Result<Answered, Failed> {
    timeout(FOR_EVER, client.post(post(url))).await.expect("an attempt without an end")
}

async fn cause<R: Resolve>(client: &Client<R>, url: &str) -> Cause {
    attempt(client, url).await.expect_err("an answer where there should be none").cause
}

fn client(authority: &Authority) -> Client<Script> {
    authority.dialler(Script::loopback(), BOUNDS).client()
}

/// Writes until the other side has had enough.
async fn flood(to: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) {
    while to.write_all(bytes).await.is_ok() && to.flush().await.is_ok() {}
}

/// A receiver that answers with these bytes, and waits for the other side to go.
async fn answering(authority: &Authority, answer: &'static [u8]) -> Port {
    receive(authority.good_receiver(), move |mut stream| async move {
        let _ = stream.write_all(answer).await;
        let _ = stream.flush().await;
        let _ = stream.read(&mut [0]).await;
    })
    .await
}

/// The cause of an attempt at a receiver that answers with these bytes and then closes.
async fn cause_of_closing_after(answer: &'static [u8]) -> Cause {
    let authority = Authority::new();
    let port = receive(authority.good_receiver(), move |mut stream| async move {
        let _ = stream.write_all(answer).await;
        let _ = stream.shutdown().await;
    })
    .await;
    cause(&client(&authority), &port.url()).await
}

#[tokio::test]
async fn an_ordinary_answer_is_read() {
    let authority = Authority::new();
    let answer = b"HTTP/1.1 202 Accepted\r\ncontent-length: 5\r\nretry-after: 7\r\n\r\nhello";
    let port = answering(&authority, answer).await;
    let answered = attempt(&client(&authority), &port.url()).await.unwrap();
    let retry_after = Some("7".to_owned());
    let expected = Answered { retry_after, ..Answered::plain(202, "hello".to_owned()) };
    assert_eq!(answered, expected);
}

/// F5, DLV-slow-drip
#[tokio::test]
async fn a_receiver_that_never_answers_runs_into_the_deadline() {
    let authority = Authority::new();
    let port = answering(&authority, b"").await;
    assert_eq!(cause(&client(&authority), &port.url()).await, Cause::Timeout);
}

/// DLV-slow-drip
#[tokio::test]
async fn a_handshake_that_never_ends_runs_into_the_deadline() {
    let authority = Authority::new();
    let port = listen(|mut stream| async move {
        while stream.read(&mut [0; 1024]).await.is_ok_and(|read| read > 0) {}
    })
    .await;
    assert_eq!(cause(&client(&authority), &port.url()).await, Cause::Timeout);
}

/// DLV-slow-drip: no single read takes long, and so no limit on single reads would end it.
#[tokio::test]
async fn a_head_that_drips_runs_into_the_deadline() {
    let authority = Authority::new();
    let port = receive(authority.good_receiver(), |mut stream| async move {
        let mut pace = tokio::time::interval(Duration::from_millis(20));
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nx: ").await;
        while stream.write_all(b"y").await.is_ok() && stream.flush().await.is_ok() {
            pace.tick().await;
        }
    })
    .await;
    assert_eq!(cause(&client(&authority), &port.url()).await, Cause::Timeout);
}

/// DLV-slow-drip: the status has come, and the status decides.
#[tokio::test]
async fn a_body_that_drips_ends_with_the_deadline_and_its_status_counts() {
    let authority = Authority::new();
    let port = receive(authority.good_receiver(), |mut stream| async move {
        let mut pace = tokio::time::interval(Duration::from_millis(20));
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n").await;
        while stream.write_all(b"y").await.is_ok() && stream.flush().await.is_ok() {
            pace.tick().await;
        }
    })
    .await;
    let answered = attempt(&client(&authority), &port.url()).await.unwrap();
    assert_eq!(answered.status, 200);
    assert!(answered.excerpt.starts_with('y') && answered.excerpt.len() < 9999);
}

/// DLV-huge-response, I21: the connection is closed after 64 KiB and what the system had taken before.
#[tokio::test]
async fn an_endless_body_is_left_after_its_limit() {
    for head in [
        "HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nfffffff\r\n",
    ] {
        let authority = Authority::new();
        let sent = Arc::new(AtomicU64::new(0));
        let (count, (left, mut was_left)) = (Arc::clone(&sent), tokio::sync::mpsc::channel(1));
        let port = receive(authority.good_receiver(), move |mut stream| {
            let (count, left) = (Arc::clone(&count), left.clone());
            async move {
                let _ = stream.write_all(head.as_bytes()).await;
                while stream.write_all(&[b'z'; 4096]).await.is_ok() {
                    count.fetch_add(4096, Ordering::SeqCst);
                }
                let _ = left.send(()).await;
            }
        })
        .await;
        let answered = attempt(&client(&authority), &port.url()).await.unwrap();
        assert_eq!((answered.status, answered.excerpt.len()), (200, 4096), "{head}");
        timeout(FOR_EVER, was_left.recv()).await.expect("the connection stays open");
        let sent = sent.load(Ordering::SeqCst);
        assert!(sent < 32 * 1024 * 1024, "{sent} bytes were taken of {head}");
    }
}

/// DLV-huge-response
#[tokio::test]
async fn a_body_longer_than_it_says_is_cut() {
    let authority = Authority::new();
    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabcdefghijklmnop";
    let port = answering(&authority, answer).await;
    assert_eq!(attempt(&client(&authority), &port.url()).await.unwrap().excerpt, "abc");
}

/// DLV-slow-drip, DLV-huge-response
#[tokio::test]
async fn an_endless_head_is_a_bad_answer() {
    for line in [&b"x-pad: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n"[..], b"y"] {
        let authority = Authority::new();
        let port = receive(authority.good_receiver(), move |mut stream| async move {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nx: ").await;
            flood(&mut stream, &line.repeat(100)).await;
        })
        .await;
        assert_eq!(cause(&client(&authority), &port.url()).await, Cause::BadAnswer);
    }
}

#[tokio::test]
async fn a_head_of_too_many_headers_is_a_bad_answer() {
    let authority = Authority::new();
    let port = receive(authority.good_receiver(), |mut stream| async move {
        let head = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(101));
        let _ = stream.write_all(head.as_bytes()).await;
        let _ = stream.read(&mut [0]).await;
    })
    .await;
    assert_eq!(cause(&client(&authority), &port.url()).await, Cause::BadAnswer);
}

/// DLV-huge-response
#[tokio::test]
async fn a_flood_of_interim_answers_runs_into_the_deadline() {
    for interim in
        [&b"HTTP/1.1 100 Continue\r\n\r\n"[..], b"HTTP/1.1 103 Early Hints\r\na: b\r\n\r\n"]
    {
        let authority = Authority::new();
        let port = receive(authority.good_receiver(), move |mut stream| async move {
            flood(&mut stream, interim).await;
        })
        .await;
        assert_eq!(cause(&client(&authority), &port.url()).await, Cause::Timeout);
    }
}

/// DLV-compressed-response-bomb
#[tokio::test]
async fn a_compressed_body_is_not_unpacked() {
    for encoding in ["gzip", "br", "zstd", "deflate", "gzip, gzip", "no\x07nsense"] {
        let authority = Authority::new();
        let port = receive(authority.good_receiver(), move |mut stream| async move {
            let encoding = encoding.replace('\x07', "-");
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-encoding: {encoding}\r\ncontent-length: 20000\r\n\r\n"
            );
            let _ = stream.write_all(head.as_bytes()).await;
            let _ = stream.write_all(&[0x1f; 20_000]).await;
            let _ = stream.read(&mut [0]).await;
        })
        .await;
        let answered = attempt(&client(&authority), &port.url()).await.unwrap();
        assert_eq!(answered.status, 200);
        assert!(answered.excerpt.starts_with("(a body with content-encoding "), "{answered:?}");
    }
}

/// SSRF-redirect, F7, I15
#[tokio::test]
async fn no_redirect_is_followed() {
    let authority = Authority::new();
    let canary = listen(|_| async {}).await;
    let there = canary.address;
    for status in [300_u16, 301, 302, 303, 304, 305, 307, 308] {
        for location in [
            format!("http://{there}/"),
            format!("https://{there}/latest/meta-data/?a=b"),
            format!("//{there}/"),
            "/relative".to_owned(),
            format!("HTTPS://user@{there}/"),
            "http://169.254.169.254/latest/meta-data/".to_owned(),
            "//10.0.0.5/".to_owned(),
            "HTTPS://[::1]/".to_owned(),
            format!("http://localhost:{}/", there.port()),
            "gopher://127.0.0.1/".to_owned(),
            "\u{ff}".to_owned(),
        ] {
            let head = format!(
                "HTTP/1.1 {status} Moved\r\nlocation: {location}\r\nrefresh: 0;url=http://{there}/\r\n\
                 alt-svc: h2=\"{there}\"\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
            );
            let port = receive(authority.good_receiver(), move |mut stream| {
                let head = head.clone();
                async move {
                    let _ = stream.write_all(head.as_bytes()).await;
                    let _ = stream.read(&mut [0]).await;
                }
            })
            .await;
            let client = client(&authority);
            let answered = attempt(&client, &port.url()).await.unwrap();
            assert_eq!(answered.status, status);
            assert!(!answered.excerpt.contains("meta-data"), "{answered:?}");
            // A second delivery, after everything that the first answer offered instead.
            assert_eq!(attempt(&client, &port.url()).await.unwrap().status, status);
            assert_eq!(client.dialled().list().len(), 2, "{location}");
            assert!(client.dialled().list().iter().all(|dialled| *dialled == port.address));
        }
    }
    assert_eq!(canary.connections(), 0);
}

#[tokio::test]
async fn a_connection_that_breaks_is_told_apart_from_a_bad_answer() {
    assert_eq!(cause_of_closing_after(b"").await, Cause::Reset);
    assert_eq!(cause_of_closing_after(b"HTTP/1.1 200 O").await, Cause::Reset);
    assert_eq!(cause_of_closing_after(b"SSH-2.0-OpenSSH_9.6\r\n\r\n").await, Cause::BadAnswer);
    assert_eq!(cause_of_closing_after(b"HTTP/1.1 abc\r\n\r\n").await, Cause::BadAnswer);
}

/// What TLS says once the request has left says nothing about the request: it may have been carried out.
#[tokio::test]
async fn an_alert_after_the_request_is_a_broken_connection_and_may_have_happened() {
    // A record that cannot be decrypted makes either side fail. Read by the receiver, its TLS says so in a fatal alert;
    // sent to us, it is ours that fails.
    const BROKEN: [u8; 29] = {
        let mut record = [0x5a; 29];
        (record[0], record[1], record[2], record[3], record[4]) = (23, 3, 3, 0, 24);
        record
    };
    for is_alert in [true, false] {
        let authority = Authority::new();
        let port = receive(authority.good_receiver(), move |mut stream| async move {
            let (tcp, session) = stream.get_mut();
            let mut bytes = BROKEN.to_vec();
            if is_alert {
                bytes.clear();
                session.read_tls(&mut &BROKEN[..]).unwrap();
                session.process_new_packets().unwrap_err();
                while session.wants_write() {
                    session.write_tls(&mut bytes).unwrap();
                }
            }
            let _ = tcp.write_all(&bytes).await;
            let _ = tcp.shutdown().await;
        })
        .await;
        let failed = attempt(&client(&authority), &port.url()).await.unwrap_err();
        let is_tls = std::iter::successors(
            failed.source.as_ref().map(|source| &**source as &dyn std::error::Error),
            |error| error.source(),
        )
        .filter_map(|error| error.downcast_ref::<std::io::Error>()?.get_ref())
        .any(|inner| inner.is::<rustls::Error>());
        assert!(is_tls, "not the case that is meant: {failed:?}");
        assert_eq!(failed.cause, Cause::Reset, "{is_alert}");
        assert!(Outcome::Failed { cause: failed.cause }.may_have_happened());
        assert_eq!(port.connections(), 1, "sent once");
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_in_its_body_counts_by_its_status() {
    let authority = Authority::new();
    let port = receive(authority.good_receiver(), |mut stream| async move {
        let _ = stream.write_all(b"HTTP/1.1 500 No\r\ncontent-length: 100\r\n\r\nhalf").await;
        let _ = stream.shutdown().await;
    })
    .await;
    let answered = attempt(&client(&authority), &port.url()).await.unwrap();
    assert_eq!((answered.status, answered.excerpt.as_str()), (500, "half"));
}

/// J32
#[tokio::test]
async fn what_is_wrong_with_a_certificate_is_told() {
    let authority = Authority::new();
    for (name, years, expected) in [
        (HOST, (2020, 2021), Cause::TlsExpired),
        ("other.example", (2020, 2099), Cause::TlsWrongHost),
        (HOST, (2098, 2099), Cause::Tls),
    ] {
        let port = receive(authority.receiver(name, years), |_| async {}).await;
        assert_eq!(cause(&client(&authority), &port.url()).await, expected, "{name} {years:?}");
    }
    let stranger = receive(Authority::named("a stranger").good_receiver(), |_| async {}).await;
    assert_eq!(cause(&client(&authority), &stranger.url()).await, Cause::TlsUnknownIssuer);
}

/// I16: what speaks plainly is not spoken to.
#[tokio::test]
async fn a_plain_receiver_is_no_receiver() {
    let authority = Authority::new();
    let port = listen(|mut stream| async move {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
        let _ = stream.read(&mut [0; 1024]).await;
    })
    .await;
    assert_eq!(cause(&client(&authority), &port.url()).await, Cause::Tls);
}

#[tokio::test]
async fn a_port_where_nobody_listens_refuses() {
    let authority = Authority::new();
    let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let url = format!("https://{HOST}:{}/", address.port());
    assert_eq!(cause(&client(&authority), &url).await, Cause::Refused);
}

#[tokio::test]
async fn a_name_without_an_address_is_a_matter_of_dns() {
    let authority = Authority::new();
    for resolver in [Script::unknown(), Script::silent(), Script::new(&[&[]])] {
        let client = authority.dialler(resolver, BOUNDS).client();
        assert_eq!(cause(&client, "https://receiver.example/").await, Cause::Dns);
        assert!(client.dialled().list().is_empty());
    }
}

#[tokio::test]
async fn the_next_address_is_tried_when_one_refuses() {
    let authority = Authority::new();
    let answer = b"HTTP/1.1 204 No Content\r\n\r\n";
    let port = answering(&authority, answer).await;
    let script = Script::new(&[&["127.0.0.2", "127.0.0.1"]]);
    let client = authority.dialler(script, BOUNDS).client();
    assert_eq!(attempt(&client, &port.url()).await.unwrap().status, 204);
    assert_eq!(client.dialled().list().len(), 2);
}

/// A client's connections end with it: a sandbox that was frozen would find them dead.
#[tokio::test]
async fn a_connection_is_reused_by_its_client_and_by_no_other() {
    let authority = Authority::new();
    let port = receive(authority.good_receiver(), |mut stream| async move {
        loop {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
            let _ = stream.flush().await;
            if read_request(&mut stream).await.is_none() {
                return;
            }
        }
    })
    .await;
    let dialler = authority.dialler(Script::loopback(), BOUNDS);
    let client = dialler.client();
    for _ in 0..5 {
        assert_eq!(attempt(&client, &port.url()).await.unwrap().status, 200);
    }
    assert_eq!(port.connections(), 1);
    assert_eq!(attempt(&dialler.client(), &port.url()).await.unwrap().status, 200);
    assert_eq!(port.connections(), 2);
}
