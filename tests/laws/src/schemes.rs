//! Schemes as people write them, in TOML and in JSON.
//!
//! A text that is a scheme is one after it was written and read again, signs what it says it signs, and does not accept
//! what nobody signed. A text that is none is answered with problems that a terminal can show.

use http::HeaderMap;
use jiff::Timestamp;
use serde_json::Value;
use signing::{
    Key, Problems, Request, Scheme, Secret, SigningKey, Trust,
    sign::{Outgoing, sign_as},
    verify,
};

use crate::bounded;

/// A body that has something to find at the usual places.
const BODY: &[u8] =
    br#"{"id":"evt_1","type":"a.b","created":1767225600,"data":{"id":"x","object":{"id":"y"}}}"#;
const URL: &str = "https://hooks.example/in?a=1";
/// Texts that can be a secret of some scheme: any, 32 bytes in base64, in hexadecimal.
const SECRETS: [&str; 3] = [
    "a-secret-with-enough-bytes",
    "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=",
    "0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20",
];

/// The law of an input.
pub fn law(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    for read in [Scheme::from_toml, Scheme::from_json] {
        match bounded(input.len(), 2048, || read(text)) {
            Ok(scheme) => holds(&scheme),
            Err(problems) => shows(&problems),
        }
    }
}

fn shows(problems: &Problems) {
    assert!(!problems.0.is_empty(), "refused, and no reason given");
    for problem in &problems.0 {
        let told = problem.to_string();
        assert!(!told.chars().any(char::is_control), "{told:?}");
    }
}

fn holds(scheme: &Scheme) {
    let written = serde_json::to_value(scheme).unwrap();
    let again = Scheme::from_value(written.clone()).unwrap();
    assert_eq!(serde_json::to_value(&again).unwrap(), written);
    assert_eq!(again.name(), scheme.name());
    assert_eq!(again.about(), scheme.about());
    assert_eq!(again.missing_config(), scheme.missing_config());
    is_safe(scheme, &written);
    for secret in SECRETS {
        signs(scheme, &written, &Secret::new(secret));
    }
}

/// What would look like a check and be none, judged by the text of the scheme alone.
fn is_safe(scheme: &Scheme, written: &Value) {
    if written["timestamp"].is_object() {
        let tolerance = scheme.tolerance_seconds().unwrap();
        assert!((5..=3600).contains(&tolerance), "{tolerance} s");
        assert!(matches!(scheme.trust(), Trust::Signed | Trust::BodyUnsigned));
    }
    let signed = written["signed"].as_str().unwrap_or_default();
    let by_code = scheme.verifier().is_some();
    match written["algorithm"].as_str() {
        Some("token" | "basic") => assert_eq!(scheme.trust(), Trust::Token),
        Some("none") => assert_eq!(scheme.trust(), Trust::None),
        _ if written["body_unsigned"] == true => assert_eq!(scheme.trust(), Trust::BodyUnsigned),
        _ => assert!(by_code || signed.contains("{body}"), "anybody can change it: {written}"),
    }
}

/// What is signed by the scheme is accepted by it or found wanting, and is refused with another body or key.
fn signs(scheme: &Scheme, written: &Value, secret: &Secret) {
    let now = Timestamp::from_second(1_767_225_600).unwrap();
    let Ok(signing_key) = SigningKey::parse(scheme, secret) else { return };
    let outgoing = Outgoing {
        method: "POST",
        url: URL,
        headers: HeaderMap::new(),
        id: Some("msg_1"),
        event_type: Some("a.b"),
        body: BODY,
    };
    let Ok(headers) = sign_as(scheme, &signing_key, &outgoing, now) else { return };
    let Ok(key) = Key::parse(scheme, "k", secret) else { return };
    let keys = [key];
    let accepts = |keys: &[Key], headers: &HeaderMap, body: &[u8], path_secret: Option<&str>| {
        let request = Request { method: "POST", url: URL, headers, body, path_secret };
        verify(scheme, keys, &request, now).is_ok()
    };
    let shown = Some(secret.expose());
    if !accepts(&keys, &headers, BODY, shown) {
        return;
    }
    if scheme.trust() == Trust::Signed {
        let mut turned = BODY.to_vec();
        for at in 0..turned.len() {
            turned[at] ^= 1;
            assert!(!accepts(&keys, &headers, &turned, shown), "byte {at} is unsigned: {written}");
            turned[at] ^= 1;
        }
    }
    assert!(!accepts(&[], &headers, BODY, shown), "accepted without a key: {written}");
    let nothing = HeaderMap::new();
    assert!(!accepts(&keys, &nothing, BODY, None), "accepted without a signature: {written}");
}
