//! The guard against our own side of the network, at the one place that opens connections.

use std::{
    env,
    process::{Command, Stdio},
    sync::{Arc, atomic::Ordering},
};
use tokio::time::Instant;

use deliverer::transport::Transport as _;
use domain::address::Ranges;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    sync::mpsc,
};

use super::{
    AddressPolicy, Authority, BOUNDS, Bounds, Bytes, Cause, EndpointUrl, HeaderMap, Post, Script,
    answering, attempt, cause, listen, read_request, receive,
};

/// I9, I14, SSRF-alt-ip-notation, SSRF-ipv4-mapped: no packet leaves for an address that is not allowed, also if it is
/// one of several.
#[tokio::test]
async fn every_address_of_a_name_is_checked_before_any_is_dialled() {
    let authority = Authority::new();
    for answer in [
        &["169.254.169.254"][..],
        &["127.0.0.1", "10.0.0.1"],
        &["127.0.0.1", "::ffff:192.168.1.1"],
        &["127.0.0.1", "fe80::1"],
        &["64:ff9b::7f00:1"],
        &["0.0.0.0"],
        &["::"],
        &["100.100.100.200"],
        &["fd00:ec2::254"],
        &["2002:7f00:1::"],
        &["2001:0:4136:e378:8000:63bf:80ff:fffe"],
        &["2606:4700::5efe:127.0.0.1"],
        // Behind more good ones than are ever dialled.
        &["127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5", "127.0.0.6", "10.0.0.1"],
    ] {
        let client = authority.dialler(Script::new(&[answer]), BOUNDS).client();
        assert_eq!(cause(&client, "https://receiver.example/").await, Cause::BlockedAddress);
        assert!(client.dialled().list().is_empty(), "{answer:?}");
    }
}

/// I14, DNS rebinding: whatever the name meant when it was checked for the last delivery. Asked once for each connection,
/// and the address that was checked is the one that was dialled.
#[tokio::test]
async fn a_name_that_moves_is_checked_again_at_every_connection() {
    let authority = Authority::new();
    let answer = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    let port = answering(&authority, answer).await;
    let script = Script::new(&[
        &["127.0.0.1"],
        &["169.254.169.254"],
        &["127.0.0.1", "10.0.0.1"],
        &["127.0.0.1"],
        &["::ffff:127.0.0.1"],
        &["::ffff:169.254.169.254"],
    ]);
    let asked = Arc::clone(&script.asked);
    let client = authority.dialler(script, BOUNDS).client();
    let blocked = Err(Cause::BlockedAddress);
    for (n, expected) in (1..).zip([Ok(200), blocked, blocked, Ok(200), Ok(200), blocked]) {
        let ended = attempt(&client, &port.url()).await;
        let ended = ended.map(|answered| answered.status).map_err(|failed| failed.cause);
        assert_eq!((ended, asked.load(Ordering::SeqCst)), (expected, n));
    }
    assert_eq!(client.dialled().list(), [port.address; 3]);
    assert_eq!((port.connections(), client.dialled().count()), (3, 3));
}

/// A connection that is kept goes on to the address that was checked when it was opened.
#[tokio::test]
async fn a_name_that_moves_does_not_move_an_open_connection() {
    let authority = Authority::new();
    let port = receive(authority.good_receiver(), |mut stream| async move {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
        let _ = stream.flush().await;
        if read_request(&mut stream).await.is_some() {
            let last = b"HTTP/1.1 201 Created\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
            let _ = stream.write_all(last).await;
            let _ = stream.flush().await;
        }
    })
    .await;
    let script = Script::new(&[&["127.0.0.1"], &["10.0.0.1"]]);
    let asked = Arc::clone(&script.asked);
    let client = authority.dialler(script, BOUNDS).client();
    assert_eq!(attempt(&client, &port.url()).await.unwrap().status, 200);
    assert_eq!(attempt(&client, &port.url()).await.unwrap().status, 201);
    assert_eq!((asked.load(Ordering::SeqCst), port.connections()), (1, 1));
    assert_eq!(cause(&client, &port.url()).await, Cause::BlockedAddress);
    assert_eq!(client.dialled().list(), [port.address]);
}

/// What a deployment opens for itself opens nothing else: the same answers of a resolver are refused as before.
#[tokio::test]
async fn an_opened_range_opens_no_other_address() {
    let authority = Authority::new();
    let ranges = Ranges::new(["10.20.0.0/16", "fd12:3456::/32"]).unwrap();
    let policy = AddressPolicy { ranges, ..AddressPolicy::PUBLIC };
    for answer in [
        &["127.0.0.1"][..],
        &["::1"],
        &["169.254.169.254"],
        &["10.21.0.1"],
        &["10.20.0.1", "10.21.0.1"],
        &["fd12:3456::1", "fd00:ec2::254"],
        &["64:ff9b::a14:1"],
        &["fd12:3456::5efe:127.0.0.1"],
    ] {
        let bounds = Bounds { policy, ..BOUNDS };
        let client = authority.dialler(Script::new(&[answer]), bounds).client();
        assert_eq!(cause(&client, "https://receiver.example/").await, Cause::BlockedAddress);
        assert!(client.dialled().list().is_empty(), "{answer:?}");
    }
}

/// The Runtime API of Lambda: loopback, another port, no TLS. With loopback and every port open, as on the local host, the
/// third of them still holds: all that arrives is the beginning of a handshake, and no word of HTTP.
#[tokio::test]
async fn the_runtime_api_hears_no_word_of_http() {
    let authority = Authority::new();
    let (heard, mut words) = mpsc::unbounded_channel();
    let api = listen(move |mut stream| {
        let heard = heard.clone();
        async move {
            let mut all = Vec::new();
            let refusal = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
            while stream.read_buf(&mut all).await.is_ok_and(|read| read > 0) {
                let _ = stream.write_all(refusal).await;
            }
            let _ = heard.send(all);
        }
    })
    .await;
    let path = "2018-06-01/runtime/invocation/next";
    for host in ["127.0.0.1", "localhost", "receiver.example"] {
        let url = format!("https://{host}:{}/{path}", api.address.port());
        for policy in [
            AddressPolicy::PUBLIC,
            AddressPolicy { any_port: true, ..AddressPolicy::PUBLIC },
            AddressPolicy { allow_loopback: true, ..AddressPolicy::PUBLIC },
        ] {
            let client =
                authority.dialler(Script::loopback(), Bounds { policy, ..BOUNDS }).client();
            assert_eq!(cause(&client, &url).await, Cause::BlockedAddress, "{host}");
        }
        assert!(words.is_empty());
        let client = authority.dialler(Script::loopback(), BOUNDS).client();
        assert_eq!(cause(&client, &url).await, Cause::Tls);
        let heard = words.recv().await.unwrap();
        assert_eq!(heard.first(), Some(&0x16), "a handshake");
        let text = String::from_utf8_lossy(&heard);
        assert!(!text.contains("POST") && !text.contains("HTTP/1.1\r\n") && !text.contains(path));
    }
    assert_eq!(api.connections(), 3);
}

/// F7: this very program again, with a proxy in its environment, which nobody asks.
#[tokio::test]
async fn no_proxy_is_heeded() {
    let proxy = listen(|_| async {}).await;
    let address = format!("http://{}", proxy.address);
    let names =
        ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];
    let run = tokio::task::spawn_blocking(move || {
        Command::new(env::current_exe().unwrap())
            .args(["--exact", "an_ordinary_answer_is_read"])
            .envs(names.map(|name| (name, address.as_str())))
            .env("NO_PROXY", "")
            .stdin(Stdio::null())
            .output()
            .unwrap()
    });
    let run = run.await.unwrap();
    let said = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(run.status.success() && said.contains("1 passed"), "{said}");
    assert_eq!(proxy.connections(), 0);
}

/// SSRF-ip-literal-skips-resolver: the guard holds where no resolver is asked.
#[tokio::test]
async fn a_literal_address_is_checked_without_a_resolver() {
    let authority = Authority::new();
    let port = listen(|_| async {}).await;
    let policy = AddressPolicy { any_port: true, ..AddressPolicy::PUBLIC };
    let script = Script::unknown();
    let asked = Arc::clone(&script.asked);
    let client = authority.dialler(script, Bounds { policy, ..BOUNDS }).client();
    for host in ["127.0.0.1", "[::1]", "[::ffff:7f00:1]"] {
        // A URL of the local policy, as if its row were older than the rule.
        let url = format!("https://{host}:{}/", port.address.port());
        let Ok(url) = EndpointUrl::parse(&url, &AddressPolicy::THIS_MACHINE) else { continue };
        let by = Instant::now() + BOUNDS.attempt;
        let post = Post { url, headers: HeaderMap::new(), body: Bytes::new(), by };
        let failed = client.post(post).await.unwrap_err();
        assert_eq!(failed.cause, Cause::BlockedAddress, "{host}");
    }
    assert_eq!((port.connections(), asked.load(Ordering::SeqCst)), (0, 0));
    assert!(client.dialled().list().is_empty());
}

/// SSRF-ports
#[tokio::test]
async fn a_port_is_checked_where_it_is_dialled() {
    let authority = Authority::new();
    let port = listen(|_| async {}).await;
    let policy = AddressPolicy { allow_loopback: true, ..AddressPolicy::PUBLIC };
    let client = authority.dialler(Script::loopback(), Bounds { policy, ..BOUNDS }).client();
    assert_eq!(cause(&client, &port.url()).await, Cause::BlockedAddress);
    assert_eq!(port.connections(), 0);
}

/// SSRF-response-as-oracle, SEC-secret-in-logs: what a delivery keeps of a failure is one word.
#[tokio::test]
async fn a_failure_shows_addresses_to_operators_only() {
    let authority = Authority::new();
    let client = authority.dialler(Script::new(&[&["10.0.0.1"]]), BOUNDS).client();
    let failed = attempt(&client, "https://receiver.example/").await.unwrap_err();
    assert_eq!(failed.to_string(), "no answer (BlockedAddress)");
    let chain = runtime::telemetry::chain(&failed).to_string();
    assert!(chain.contains("10.0.0.1 is a private address"), "{chain}");
}
