//! Bodies of every size and coding, as they come through the gateway.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::indexing_slicing, reason = "a field that a JSON value does not have is null")]

mod world;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use domain::body::{Place, Sha256Hash};
use http::HeaderMap;
use serde_json::Value;
use signing::{Scheme, Secret, SigningKey, sign};
use world::{World, at, event, with, with_header};

/// Bytes that do not compress, the same each time.
fn noise(length: usize) -> Vec<u8> {
    let mut block = Sha256Hash::of(b"noise");
    let mut bytes = Vec::with_capacity(length + 32);
    while bytes.len() < length {
        bytes.extend_from_slice(&block.0);
        block = Sha256Hash::of(&block.0);
    }
    bytes.truncate(length);
    bytes
}

/// GitHub's event with this body, which the gateway hands over as base64.
fn with_body(body: &[u8]) -> Value {
    let scheme = Scheme::preset("github").unwrap();
    let key = SigningKey::parse(&scheme, &Secret::new("field-secret-1")).unwrap();
    let outgoing = sign::Outgoing {
        method: "POST",
        url: "https://hooks.example/webhooks/github",
        headers: HeaderMap::new(),
        id: None,
        event_type: None,
        body,
    };
    let headers = sign::sign_as(&scheme, &key, &outgoing, at(0)).unwrap();
    let signature = headers["x-hub-signature-256"].to_str().unwrap();
    let event = with_header(event("github"), "x-hub-signature-256", Some(signature));
    let event = with_header(event, "content-type", Some("application/octet-stream"));
    with(with(event, "/body", STANDARD.encode(body)), "/isBase64Encoded", true)
}

/// WRK-queue-message-size: wherever its body goes, the event is one, and its body comes back whole.
#[tokio::test]
async fn a_body_goes_where_its_size_belongs_and_comes_back() {
    for (length, place) in [
        (1, "inline"),
        (200, "inline"),
        (4 * 1024, "beside"),
        (8 * 1024 - 64, "beside"),
        (9 * 1024, "bucket"),
        (1024 * 1024, "bucket"),
        // The most that fits in 6 MB of Lambda's as base64, beside the headers.
        (4_400_000, "bucket"),
    ] {
        let world = World::new();
        let body = noise(length);
        let answer = world.response(with_body(&body), 0).await;
        assert_eq!(answer["statusCode"], 200, "{length}");
        let row = world.row();
        let found = match &row.new.body.place {
            Place::Inline(_) => "inline",
            Place::Beside => "beside",
            Place::Bucket => "bucket",
        };
        assert_eq!(found, place, "{length}");
        assert_eq!(row.new.body.length, length as u64);
        assert!(world.body(&row).await == body, "{length}");
        let message = world.queue.receive(|_| 0).unwrap().text;
        assert!(message.len() < 200, "{message}");
    }
}

/// ING-pre-auth-decompression: what was sent is what was signed, and stays as it is.
#[tokio::test]
async fn a_compressed_body_is_verified_and_kept_as_it_was_sent() {
    // `{"a":1}`, by gzip.
    let compressed = STANDARD.decode("H4sIAAAAAAACA6tWSlSyMqwFAK+sG1YHAAAA").unwrap();
    let world = World::new();
    let event = with_header(with_body(&compressed), "content-encoding", Some("gzip"));
    assert_eq!(world.response(event, 0).await["statusCode"], 200);
    let row = world.row();
    assert_eq!(row.new.headers["content-encoding"], "gzip");
    assert_eq!(world.body(&row).await, compressed);
    // Signed before it was compressed: not what came over the wire.
    let world = World::new();
    let event = with(with_body(br#"{"a":1}"#), "/body", STANDARD.encode(&compressed));
    let event = with_header(event, "content-encoding", Some("gzip"));
    assert_eq!(world.response(event, 0).await["statusCode"], 401);
}
