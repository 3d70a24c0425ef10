//! Bodies that came compressed: kept as they were signed, handled as what they say.

use std::io::Read as _;

use domain::inbox::Status;
use flow::body::MAX_BODY;
use worker::Outcome;

use crate::world::{World, event, list};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoded = Vec::new();
    let mut encoder = flate2::read::GzEncoder::new(bytes, flate2::Compression::default());
    encoder.read_to_end(&mut encoded).unwrap();
    encoded
}

#[tokio::test]
async fn subscribers_get_what_a_compressed_event_says() {
    let world = World::new();
    let body = r#"{ "id":"evt_1", "n":1.0 }"#;
    let key = world.came("plain", &gzip(body.as_bytes()), Some("gzip")).await;
    assert!(world.handle(&key).await.is_settled());
    assert_eq!(world.told(), [body]);
}

#[tokio::test]
async fn a_compressed_request_becomes_its_events() {
    let world = World::new();
    let body = gzip(list(&["evt_1", "evt_2"]).to_string().as_bytes());
    let parent = world.came("batches", &body, Some("gzip")).await;
    world.handle(&parent).await;
    world.rest().await;
    assert_eq!(world.told(), ["evt_1", "evt_2"].map(|id| event(id).to_string()));
}

/// ING-pre-auth-decompression: capped, with a reason, and nothing is lost.
#[tokio::test]
async fn what_cannot_be_decoded_is_parked_with_the_reason() {
    let bomb = gzip(&vec![b' '; 2 * MAX_BODY]);
    for (source, encoding, body, code, says) in [
        ("plain", "gzip", bomb.as_slice(), "decompressed_too_large", "more than 8388608 bytes"),
        ("batches", "gzip", &bomb, "decompressed_too_large", "more than 8388608 bytes"),
        ("plain", "gzip", b"\x1f\x8b\x08", "encoding_corrupt", "`gzip`"),
        ("plain", "br", b"\x0b\x02\x80", "encoding_unknown", "`br`"),
        ("plain", "gzip, gzip", &bomb, "encoding_unknown", "`gzip, gzip`"),
    ] {
        let world = World::new();
        let key = world.came(source, body, Some(encoding)).await;
        assert!(matches!(world.handle(&key).await, Outcome::Parked(_)));
        let row = world.row(&key);
        assert_eq!((row.status, world.code(&key).as_str()), (Status::DeadLetter, code));
        let told = row.last_error.unwrap().message;
        assert!(told.contains(says), "{told}");
        assert_eq!(row.new.body.length, body.len() as u64);
    }
}

/// INB-raw-bytes-kept: bytes that are no text go out in an envelope, and are not lost.
#[tokio::test]
async fn an_event_that_is_not_json_goes_out_wrapped() {
    let world = World::new();
    for body in [&b"\xff\xfe"[..], b"a=1"] {
        let key = world.came("plain", body, None).await;
        assert!(world.handle(&key).await.is_settled());
    }
    let told = world.told();
    assert!(
        told[0].contains(r#""body":"//4=""#) && told[1].contains(r#""body":"a=1""#),
        "{told:?}"
    );
}
