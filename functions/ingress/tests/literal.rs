//! Literal events of the gateway: every way in which it hands over a body, a header, a path. The signatures in `events/`
//! were made by another program; what is kept is compared byte by byte with what was signed.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::indexing_slicing, reason = "a field that a JSON value does not have is null")]

mod world;

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ingress::MAX_BODY;
use serde_json::Value;
use signing::{
    Scheme, Secret, SigningKey,
    sign::{Outgoing, sign_as},
};
use world::{B_ASCII, S1, World, at, event, with};

const B_BAD: &[u8] = b"{\"type\":\"file.added\",\"data\":\"\xff\xfe\x00\x80\"}";
const B_BOM: &[u8] = b"\xef\xbb\xbf{\"type\":\"invoice.paid\"}";
const B_ESC: &[u8] = b"{\"a\":\"\\/x\\u0026\\u001B[34m\",\"b\":\"\\u00e9\",\"n\":9007199254740993,\"f\":1.0,\"f\":2.50}\n";

/// The text secret of the field cases.
const TEXT: &str = "field-secret-1";

fn with_header(event: Value, name: &str, value: &str) -> Value {
    world::with_header(event, name, Some(value))
}

/// The status of an event to a fresh world, and what is kept under which id.
async fn alone(event: Value) -> (u64, Option<(String, Vec<u8>)>) {
    // Nothing here waits; debug builds take their time over large bodies.
    let world = World { budget: Duration::from_secs(60), ..World::new() };
    let status = world.response(event, 0).await["statusCode"].as_u64().unwrap();
    if world.rows().is_empty() {
        return (status, None);
    }
    let row = world.row();
    let body = world.body(&row).await;
    (status, Some((row.new.key.event_id().to_owned(), body)))
}

/// An event is accepted, and exactly these bytes are kept.
async fn keeps(event: Value, expected: &[u8], told: &str) {
    let (status, kept) = alone(event).await;
    let kept = kept.map(|(_, body)| body);
    assert_eq!((status, kept.as_deref()), (200, Some(expected)), "{told}");
}

/// An event is refused, and nothing is kept.
async fn refuses(event: Value, expected: u64, told: &str) {
    assert_eq!(alone(event).await, (expected, None), "{told}");
}

/// The same request, handed over in the other way.
fn turned_around(mut event: Value) -> Value {
    let body = event["body"].as_str().unwrap();
    let is_base64 = event["isBase64Encoded"].as_bool().unwrap();
    let body = if is_base64 {
        String::from_utf8(STANDARD.decode(body).unwrap()).unwrap()
    } else {
        STANDARD.encode(body)
    };
    event["body"] = body.into();
    event["isBase64Encoded"] = (!is_base64).into();
    event
}

/// VFY-base64-flag: forms, cloud events and compressed bodies come in base64, JSON as text, and each might come as the other.
#[tokio::test]
async fn a_body_is_the_same_bytes_in_whichever_form_it_is_handed_over() {
    let form = b"payload=%7B%22zen%22%3A%22Keep+it+logically+awesome.%22%7D&b=1&a=2";
    let cloud = br#"{"specversion":"1.0","type":"invoice.paid","source":"/billing","id":"A234-1234-1234","data":{}}"#;
    for (file, expected) in [
        ("form_github", form.as_slice()),
        ("cloudevents", cloud),
        ("standard_webhooks", B_ASCII),
        ("base64_true", B_ASCII),
        ("escapes", B_ESC),
        ("crlf_stripe", b"{\r\n  \"type\": \"invoice.paid\"\r\n}\r\n"),
    ] {
        keeps(event(file), expected, file).await;
        keeps(turned_around(event(file)), expected, file).await;
    }
}

/// VFY-base64-flag: base64 of another kind is not what the gateway writes.
#[tokio::test]
async fn what_the_gateway_calls_base64_is_plain_base64_or_refused() {
    let good = STANDARD.encode(B_ASCII);
    for bad in [
        good.trim_end_matches('=').to_owned(),
        format!("{good}\n"),
        format!(" {good}"),
        format!("{good}===="),
        "====".to_owned(),
        "_-==".to_owned(),
        "A".to_owned(),
        "\u{0}".to_owned(),
        String::from_utf8(B_ASCII.to_vec()).unwrap(),
    ] {
        refuses(with(event("base64_true"), "/body", bad.as_str()), 400, &bad).await;
    }
    // No body at all is an empty one, which this signature does not sign.
    refuses(with(event("base64_true"), "/body", Value::Null), 401, "null").await;
}

/// VFY-reserialised-json: `B_esc` and `B_bom`, for each of the three signatures, as text and in base64.
#[tokio::test]
async fn a_body_is_hashed_as_it_was_written_whatever_its_json_says() {
    for (file, expected) in [
        ("escapes", B_ESC),
        ("escapes_stripe", B_ESC),
        ("escapes_github", B_ESC),
        ("byte_order_mark", B_BOM),
        ("byte_order_mark_stripe", B_BOM),
        ("byte_order_mark_github", B_BOM),
    ] {
        keeps(event(file), expected, file).await;
        keeps(turned_around(event(file)), expected, file).await;
        let text = event(file)["body"].as_str().unwrap().trim_start_matches('\u{feff}').to_owned();
        let twin = serde_json::from_str::<Value>(&text).unwrap().to_string();
        refuses(with(event(file), "/body", twin), 401, file).await;
    }
    for twin in ["{\n  \"type\": \"invoice.paid\"\n}\n", "{\r\n  \"type\": \"invoice.paid\"\r\n}"] {
        refuses(with(event("crlf_stripe"), "/body", twin), 401, twin).await;
    }
}

/// VFY-invalid-utf8-body
#[tokio::test]
async fn a_body_that_is_not_text_is_kept_and_its_lossy_twin_refused() {
    let lossy = String::from_utf8_lossy(B_BAD).into_owned();
    for file in ["invalid_utf8", "invalid_utf8_stripe", "invalid_utf8_github"] {
        keeps(event(file), B_BAD, file).await;
        let twin = with(event(file), "/body", lossy.as_str());
        refuses(with(twin, "/isBase64Encoded", false), 401, file).await;
        refuses(with(event(file), "/body", STANDARD.encode(&lossy)), 401, file).await;
    }
}

/// ING-pre-auth-decompression: what is signed is what was sent, and so it is kept.
#[tokio::test]
async fn a_compressed_body_is_verified_and_kept_as_it_came() {
    let compressed = STANDARD.decode(event("gzip_signed")["body"].as_str().unwrap()).unwrap();
    assert!(compressed.starts_with(&[0x1f, 0x8b]));
    keeps(event("gzip_signed"), &compressed, "gzip").await;
    for encoding in ["gzip, gzip", "br", "zstd", "identity", "nonsense"] {
        let event = with_header(event("gzip_signed"), "content-encoding", encoding);
        keeps(event, &compressed, encoding).await;
    }
    let plain = with(event("gzip_signed"), "/body", STANDARD.encode(B_ASCII));
    refuses(plain, 401, "what it inflates to").await;
}

/// VFY-duplicate-header-joined: two headers of a client, which the gateway joins.
#[tokio::test]
async fn joined_headers_are_refused_and_never_become_an_id() {
    for file in [
        "joined_stripe_signature",
        "joined_github_signature",
        "joined_webhook_id",
        "joined_webhook_timestamp",
        "joined_webhook_signature",
        "two_spellings",
    ] {
        refuses(event(file), 401, file).await;
    }
    // In both orders, with and without the blank that some proxies write.
    let good = event("github")["headers"]["x-hub-signature-256"].as_str().unwrap().to_owned();
    for joined in [format!("{good},{good}"), format!("{good}, sha256=00"), format!("{good},")] {
        let event = with_header(event("github"), "x-hub-signature-256", &joined);
        refuses(event, 401, &joined).await;
    }
    for joined in ["a,b", "a, b", ",", "a,", "72d3162e-cc78-11e3-81ab-4c9367dc0958,x"] {
        refuses(with_header(event("github"), "x-github-delivery", joined), 401, joined).await;
    }
}

/// VFY-duplicate-header-joined: names of headers have no case.
#[tokio::test]
async fn the_case_of_header_names_changes_nothing() {
    keeps(event("header_case"), B_ASCII, "title case").await;
    let mut upper = event("standard_webhooks");
    let headers = upper["headers"].as_object().unwrap().clone();
    let headers = headers.into_iter().map(|(name, value)| (name.to_uppercase(), value));
    upper["headers"] = headers.collect();
    keeps(upper, B_ASCII, "upper case").await;
}

/// ING-stage-prefix: a custom domain with a base path, a named stage, and names that only look like a source.
#[tokio::test]
async fn stages_and_custom_domains_lead_to_the_same_source() {
    for file in ["custom_domain", "named_stage"] {
        keeps(event(file), B_ASCII, file).await;
        for source in ["s%77", "%73w", "hooks", "prod", "nobody", "webhooks", "../sw", "sw%00"] {
            let other = with(event(file), "/pathParameters/source", source);
            refuses(other, 404, source).await;
        }
    }
    // The path says `sw`, the route says another source: the route's secret decides.
    let crossed = with(event("custom_domain"), "/pathParameters/source", "github");
    refuses(crossed, 401, "crossed").await;
}

/// ING-stage-prefix: a stranger learns nothing about which sources exist but the status.
#[tokio::test]
async fn an_unknown_source_and_a_wrong_signature_get_answers_of_one_shape() {
    let world = World::new();
    let unknown = with(event("custom_domain"), "/pathParameters/source", "nobody");
    let wrong = with(event("custom_domain"), "/body", "x");
    let (unknown, wrong) = (world.response(unknown, 0).await, world.response(wrong, 0).await);
    assert_eq!((&unknown["body"], &unknown["headers"]), (&wrong["body"], &wrong["headers"]));
}

/// VFY-malformed-pairs
#[tokio::test]
async fn odd_signature_headers_are_refused_and_never_an_error_of_ours() {
    let hex = "6363091da4024213079e69729c1bedb0ee32c57e1419fe36b0490a6663156215";
    let long = "v1=".repeat(3000);
    let many = vec!["v1=00"; 1500].join(",");
    let odd = [
        "t",
        "v1",
        "=",
        "t=,v1=",
        "t=1760000000,v1=a=b=c",
        ",,,",
        "sha256",
        "sha256=",
        &format!("sha256={}", hex.trim_start_matches('6')),
        &format!("sha256={hex}0"),
        &format!("SHA256={hex}"),
        &format!("sha256=={hex}"),
        &format!("t=1760000000;v1={hex}"),
        &format!("t=1760000000,v1={hex}00"),
        &format!("t=1760000000,V1={hex}"),
        &format!("T=1760000000,v1={hex}"),
        &format!("t=1760000000,,v1 ={hex}"),
        "\u{ff}",
        "t=\u{ff},v1=\u{ff}",
        &long,
        &many,
        "v1,",
        "v1,,",
        "v1",
        " v1, v1, ",
        "v1a,AAAA",
        "null",
        "undefined",
        "{}",
    ];
    for (file, header) in [
        ("stripe", "stripe-signature"),
        ("github", "x-hub-signature-256"),
        ("standard_webhooks", "webhook-signature"),
    ] {
        for value in odd {
            refuses(with_header(event(file), header, value), 401, &format!("{file}: {value}"))
                .await;
        }
    }
}

/// ING-header-size: the gateway refuses more than 10,240 bytes; other hosts may not.
#[tokio::test]
async fn many_signatures_and_large_tracing_headers_are_judged_and_not_an_error() {
    let size = |event: &Value| {
        let headers = event["headers"].as_object().unwrap();
        let line = "POST /webhooks/sw HTTP/1.1\r\n".len();
        let header =
            |(name, value): (&String, &Value)| name.len() + value.as_str().unwrap().len() + 4;
        line + headers.iter().map(header).sum::<usize>()
    };
    for total in [10_200, 10_300] {
        let traced = with_header(event("standard_webhooks"), "tracestate", "");
        let filler = "x".repeat(total - size(&traced));
        let traced = with_header(traced, "tracestate", &filler);
        assert_eq!(size(&traced), total);
        keeps(traced, B_ASCII, "tracing").await;
    }
    let good =
        event("standard_webhooks")["headers"]["webhook-signature"].as_str().unwrap().to_owned();
    let other = format!("v1,{}", STANDARD.encode([0; 32]));
    let rotated = |others: usize| {
        let signatures = [vec![other.as_str(); others], vec![good.as_str()]].concat().join(" ");
        with_header(event("standard_webhooks"), "webhook-signature", &signatures)
    };
    keeps(rotated(5), B_ASCII, "a rotation").await;
    refuses(rotated(60), 401, "60 signatures").await;
}

/// A request of `length` bytes, signed as this source's provider does.
fn signed(source: &str, preset: &str, secret: &str, length: usize) -> Value {
    let scheme = Scheme::preset(preset).unwrap();
    let key = SigningKey::parse(&scheme, &Secret::new(secret)).unwrap();
    let body = format!("{{\"x\":\"{}\"}}", "y".repeat(length - 8));
    let outgoing = Outgoing {
        method: "POST",
        url: "https://hooks.example/webhooks/x",
        headers: http::HeaderMap::new(),
        id: Some("msg_large"),
        event_type: Some("push"),
        body: body.as_bytes(),
    };
    let signed = sign_as(&scheme, &key, &outgoing, at(0)).unwrap();
    let event = with(event("standard_webhooks"), "/pathParameters/source", source);
    let mut event = with(event, "/body", body.as_str());
    for (name, value) in &signed {
        event = with_header(event, name.as_str(), value.to_str().unwrap());
    }
    event
}

/// A5: the largest body that is taken, and one byte more.
#[tokio::test]
async fn a_body_of_six_megabytes_is_taken_whole_and_not_one_byte_more() {
    let most = signed("sw", "standard_webhooks", S1, MAX_BODY);
    let expected = most["body"].as_str().unwrap().as_bytes().to_vec();
    assert_eq!(expected.len(), MAX_BODY);
    let (status, kept) = alone(most).await;
    assert!(status == 200 && kept.unwrap().1 == expected);
    refuses(signed("stripe", "stripe", TEXT, MAX_BODY + 1), 413, "as text").await;
    let larger = turned_around(signed("sw", "standard_webhooks", S1, MAX_BODY + 1));
    refuses(larger, 413, "in base64").await;
}
