//! An authorization server that behaves badly. What is asked of it ends in bounded time and memory, like an attempt.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

mod receiver;

use std::time::Duration;

use bytes::Bytes;
use deliverer::transport::{Failed, Post, Reply, Transport as _};
use domain::{
    address::{AddressPolicy, EndpointUrl},
    delivery::Cause,
};
use http::HeaderMap;
use receiver::{Authority, BOUNDS, Port, Script, receive};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::{Instant, sleep, timeout},
};

async fn ask(authority: &Authority, port: &Port) -> Result<Reply, Failed> {
    let policy = AddressPolicy { allow_loopback: true, any_port: true };
    let url = EndpointUrl::parse(&port.url(), &policy).unwrap();
    let by = Instant::now() + BOUNDS.attempt;
    let post = Post { url, headers: HeaderMap::new(), body: Bytes::from_static(b"a=b"), by };
    let client = authority.dialler(Script::loopback(), BOUNDS).client();
    timeout(Duration::from_secs(20), client.ask(post)).await.expect("it ends")
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
