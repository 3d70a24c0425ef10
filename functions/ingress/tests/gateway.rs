//! Why `ingress::gateway` reads events by hand: what `lambda_http` does with the same literal events. When one of these
//! fails, `lambda_http` has changed, and may be worth another look.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use ingress::gateway::{Arrival, Event};

fn text(file: &str) -> String {
    std::fs::read_to_string(format!("{}/tests/events/{file}.json", env!("CARGO_MANIFEST_DIR")))
        .unwrap()
}

fn arrival(file: &str) -> Arrival {
    serde_json::from_str::<Event>(&text(file)).unwrap().into()
}

#[test]
fn lambda_http_panics_where_we_answer() {
    for file in ["base64_true_but_not", "strange_host"] {
        let text = text(file);
        let read = std::panic::catch_unwind(|| lambda_http::request::from_str(&text).is_ok());
        assert!(read.is_err(), "{file}");
    }
    assert!(arrival("base64_true_but_not").body.is_none());
    assert_eq!(
        arrival("strange_host").url,
        "https://abc123.execute-api.eu-central-1.amazonaws.com/webhooks/sw"
    );
}

#[test]
fn lambda_http_refuses_an_event_with_a_header_that_is_not_ascii() {
    assert!(lambda_http::request::from_str(&text("header_not_ascii")).is_err());
    let headers = arrival("header_not_ascii").headers;
    assert_eq!(headers["user-agent"].as_bytes(), "Postbote für Ärger/1.0".as_bytes());
    assert!(
        headers.contains_key("webhook-signature")
            && !headers.keys().any(|name| name.as_str().contains(' '))
    );
}

/// VFY-duplicate-header-joined: the gateway writes names in lower case; whoever does not gets two values, not one of them.
#[test]
fn two_spellings_of_a_header_are_two_values() {
    let headers = arrival("two_spellings").headers;
    assert_eq!(headers.get_all("webhook-id").iter().count(), 2);
}

/// On every event that both can read, both read the same.
#[test]
fn we_read_what_lambda_http_reads() {
    for file in [
        "standard_webhooks",
        "stripe",
        "github",
        "base64_true",
        "base64_false_looks_encoded",
        "base64_true_empty",
        "base64_flag_missing",
        "invalid_utf8",
        "escapes",
        "byte_order_mark",
        "joined_webhook_id",
        "unsigned_gzip",
        "get",
    ] {
        let (ours, theirs) = (arrival(file), lambda_http::request::from_str(&text(file)).unwrap());
        assert_eq!(ours.body.as_deref(), Some(theirs.body().as_ref()), "{file}");
        assert_eq!(&ours.headers, theirs.headers(), "{file}");
        assert_eq!(
            (ours.method.as_str(), ours.url),
            (theirs.method().as_str(), theirs.uri().to_string()),
            "{file}"
        );
    }
}
