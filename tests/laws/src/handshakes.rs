//! Handshakes of every scheme that has one: a stranger gets only what the scheme promises, and never a signature.
//!
//! An input is the number of a scheme, whether a secret is awaited, a method, and lines of query, headers and body. Without
//! a key, nothing but public schemes' fixed answers may come back, and whatever a stranger sent comes back only where no
//! browser takes it for a page.

use std::sync::OnceLock;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use signing::{
    Key, Request, Scheme, Secret,
    handshake::{Answer, Reply, answer},
    preset_names,
};

use crate::{bounded, bytes::Bytes};

/// Headers that handshakes are about.
const HEADERS: &[&str] = &[
    "x-hook-secret",
    "x-okta-verification-challenge",
    "authorization",
    "content-type",
    "x-hub-signature-256",
    "x-zm-signature",
    "x-zm-request-timestamp",
];
const METHODS: [&str; 4] = ["GET", "POST", "HEAD", "PUT"];

/// The law of an input.
pub fn law(input: &[u8]) {
    // What no stranger knows, as schemes have it. A fuzzer learns every secret that does not follow from its own input.
    let hash = Sha256::digest(input);
    let secrets = [hex::encode(hash), STANDARD.encode(hash)];
    let mut input = Bytes(input);
    let name = String::from_utf8_lossy(input.line());
    let Some((_, scheme)) = schemes().iter().find(|(preset, _)| *preset == name) else { return };
    let key = |text: &String| Key::parse(scheme, "k", &Secret::new(text.as_str())).ok();
    let keys: Vec<_> = secrets.iter().filter_map(key).collect();
    let flags = input.byte();
    let method = METHODS[usize::from(flags >> 1) % METHODS.len()];
    let query = String::from_utf8_lossy(input.line());
    let url = format!("https://hooks.example/in?{query}");
    let mut headers = HeaderMap::new();
    for _ in 0..input.byte() % 4 {
        let name = HeaderName::from_static(HEADERS[input.below(HEADERS.len())]);
        if let Ok(value) = HeaderValue::from_bytes(input.line()) {
            headers.append(name, value);
        }
    }
    let body = input.0;
    let request = Request { method, url: &url, headers: &headers, body, path_secret: None };
    let now = Timestamp::from_second(1_767_225_600).unwrap();
    let waits = flags & 1 == 1;
    let size = body.len() + url.len() + 1024;
    match bounded(size, 64, || answer(scheme, &keys, &request, waits, now)) {
        None | Some(Answer::Refused(_)) => {}
        Some(Answer::Reply(reply)) => is_harmless(&reply, method, &secrets),
        Some(Answer::Learn { reply, secret }) => {
            assert!(waits, "a secret is learned that nobody waits for");
            assert!(Key::parse(scheme, "k", &secret).is_ok(), "a secret that is of no use");
            is_harmless(&reply, method, &secrets);
        }
        Some(Answer::Confirm { url, .. }) => {
            panic!("{url} would be called for somebody without a key");
        }
    }
}

type Known = (&'static str, Scheme);

fn schemes() -> &'static [Known] {
    static SCHEMES: OnceLock<Vec<Known>> = OnceLock::new();
    let known = |name| Some((name, Scheme::preset(name)?));
    SCHEMES.get_or_init(|| preset_names().filter_map(known).collect())
}

fn is_harmless(reply: &Reply, method: &str, secrets: &[String]) {
    assert!((200..300).contains(&reply.status), "{}", reply.status);
    let header = |wanted: &str| {
        let found = reply.headers.iter().find(|(name, _)| name == wanted);
        found.map(|(_, value)| value.as_str())
    };
    for (name, value) in &reply.headers {
        assert_eq!(*name, name.to_lowercase());
        assert!(!value.chars().any(char::is_control), "{name} would begin another header");
    }
    let told = format!("{reply:?} {}", String::from_utf8_lossy(&reply.body));
    assert!(!secrets.iter().any(|secret| told.contains(secret)), "a secret is told: {told}");
    assert!(method != "PUT", "nobody shakes hands by PUT");
    if reply.body.is_empty() {
        return;
    }
    let kind = header("content-type").unwrap_or_default();
    assert_eq!(header("x-content-type-options"), Some("nosniff"), "{told}");
    if kind.starts_with("application/json") {
        let body = serde_json::from_slice::<Value>(&reply.body);
        assert!(body.is_ok_and(|body| body.is_object()), "{told}");
    } else {
        assert!(kind.starts_with("text/plain"), "{told}");
    }
}
