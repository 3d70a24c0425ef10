//! What is read of an answer: of an endpoint's, what it says beside its status; of an authorization server's, all of it,
//! in bounded time and memory.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

mod receiver;

use std::time::Duration;

use bytes::Bytes;
use deliverer::transport::{Answered, Failed, Post, Reply, Transport as _};
use domain::{
    address::EndpointUrl,
    delivery::{Cause, Steer},
};
use http::HeaderMap;
use receiver::{Authority, BOUNDS, Port, Script, receive};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::{Instant, sleep, timeout},
};

fn post(port: &Port) -> Post {
    let policy = BOUNDS.policy;
    let url = EndpointUrl::parse(&port.url(), &policy).unwrap();
    let by = Instant::now() + BOUNDS.attempt;
    Post { url, headers: HeaderMap::new(), body: Bytes::from_static(b"a=b"), by }
}

async fn ask(authority: &Authority, port: &Port) -> Result<Reply, Failed> {
    let client = authority.dialler(Script::loopback(), BOUNDS).client();
    timeout(Duration::from_secs(20), client.ask(post(port))).await.expect("it ends")
}

/// What an endpoint says with these headers beside its status.
async fn said(status: u16, headers: &'static str) -> Answered {
    let authority = Authority::new();
    let port = receive(authority.good_receiver(), move |mut stream| async move {
        let head = format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n{headers}\r\n");
        let _ = stream.write_all(head.as_bytes()).await;
        let _ = stream.read(&mut [0]).await;
    })
    .await;
    authority.dialler(Script::loopback(), BOUNDS).client().post(post(&port)).await.unwrap()
}

#[tokio::test]
async fn a_receiver_steers_with_one_clear_word() {
    let check = async |headers: &'static str, expected: Option<Steer>| {
        assert_eq!(said(200, headers).await.steer, expected, "{headers}");
    };
    check("webhook-delivery: disable\r\n", Some(Steer::Disable)).await;
    check("Webhook-Delivery:  abort \r\n", Some(Steer::Abort)).await;
    check("", None).await;
    check("webhook-delivery: stop\r\n", None).await;
    check("webhook-delivery: disable, abort\r\n", None).await;
    // Twice is a contradiction.
    check("webhook-delivery: disable\r\nwebhook-delivery: disable\r\n", None).await;
}

/// SSRF-redirect: to where is told without path and query, and that it is not followed.
#[tokio::test]
async fn a_redirect_is_seen_as_one() {
    let answered = said(302, "location: https://example.net/a?token=CANARY\r\n").await;
    assert!(answered.is_redirect);
    assert_eq!(answered.excerpt, "(302, a redirect to https://example.net, not followed)");
    for (status, headers, expected) in [
        (307, "", true),
        (300, "location: /x\r\n", true),
        (300, "", false),
        (304, "", false),
        (200, "location: /x\r\n", false),
        (404, "location: /x\r\n", false),
    ] {
        assert_eq!(said(status, headers).await.is_redirect, expected, "{status} {headers}");
    }
}

/// A server that answers with a head, and then with this over and over.
async fn answering(
    authority: &Authority,
    head: &'static str,
    again: Vec<u8>,
    every: Duration,
) -> Port {
    receive(authority.good_receiver(), move |mut stream| {
        let again = again.clone();
        async move {
            let _ = stream.write_all(head.as_bytes()).await;
            while stream.write_all(&again).await.is_ok() && stream.flush().await.is_ok() {
                sleep(every).await;
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_whole_answer_is_read_whatever_is_in_it() {
    let authority = Authority::new();
    let port = receive(authority.good_receiver(), |mut stream| async move {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad\r\ncontent-length: 4\r\n\r\n\x1b\0\xff{").await;
        let _ = stream.read(&mut [0]).await;
    })
    .await;
    let reply = ask(&authority, &port).await.unwrap();
    assert_eq!((reply.status, reply.body.as_slice()), (400, &b"\x1b\0\xff{"[..]));
    // SEC-secret-in-logs
    assert_eq!(format!("{reply:?}"), "Reply { status: 400, .. }");
}

/// DLV-huge-response
#[tokio::test]
async fn an_answer_without_an_end_is_none() {
    let authority = Authority::new();
    let head = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n";
    let port = answering(&authority, head, vec![b'x'; 10_000], Duration::ZERO).await;
    assert_eq!(ask(&authority, &port).await.unwrap_err().cause, Cause::BadAnswer);
}

/// DLV-slow-drip
#[tokio::test]
async fn an_answer_that_drips_runs_into_the_deadline() {
    let authority = Authority::new();
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n";
    let port = answering(&authority, head, vec![b'{'], Duration::from_millis(50)).await;
    assert_eq!(ask(&authority, &port).await.unwrap_err().cause, Cause::Timeout);
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_none() {
    let authority = Authority::new();
    let port = receive(authority.good_receiver(), |mut stream| async move {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{").await;
        let _ = stream.shutdown().await;
    })
    .await;
    assert_eq!(ask(&authority, &port).await.unwrap_err().cause, Cause::Reset);
}
