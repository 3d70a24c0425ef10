//! Laws that hold for every scheme that ships, over bytes that nobody thought of.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;
use proptest::prelude::*;
use signing::scheme::Algorithm;
use signing::sign::{Outgoing, sign_as};
use signing::{
    EndpointSecret, Key, Rejected, Request, Scheme, Secret, SigningKey, preset_names, verify,
};

const NOW: i64 = 1_767_225_600;

/// One scheme with a key and the signed headers of a body.
struct Signed {
    scheme: Scheme,
    key: Key,
    headers: HeaderMap,
    body: Vec<u8>,
}

fn signed(name: &str, seed: [u8; 32], body: Vec<u8>) -> Signed {
    let scheme = Scheme::preset(name).unwrap();
    let (verifying, signing) = secrets(&scheme, seed);
    let key = Key::parse(&scheme, "k", &verifying).unwrap();
    let signing_key = SigningKey::parse(&scheme, &signing).unwrap();
    let outgoing = Outgoing {
        method: "POST",
        url: "https://hooks.example/in",
        headers: HeaderMap::new(),
        id: Some("msg_1"),
        event_type: Some("a.b"),
        body: &body,
    };
    let headers =
        sign_as(&scheme, &signing_key, &outgoing, Timestamp::from_second(NOW).unwrap()).unwrap();
    Signed { scheme, key, headers, body }
}

/// The two sides of a secret, written as the scheme has it.
fn secrets(scheme: &Scheme, seed: [u8; 32]) -> (Secret, Secret) {
    if scheme.algorithm() != Some(Algorithm::Ed25519) {
        return (EndpointSecret::shared(seed).expose(), EndpointSecret::shared(seed).expose());
    }
    let pair = EndpointSecret::pair(seed);
    let public = pair.public_key().unwrap();
    if serde_json::to_value(scheme).unwrap()["key"]["encoding"] == "hex" {
        let public = STANDARD.decode(public.strip_prefix("whpk_").unwrap()).unwrap();
        return (Secret::new(hex::encode(public)), Secret::new(hex::encode(seed)));
    }
    (Secret::new(public), pair.expose())
}

impl Signed {
    fn judge(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        now: i64,
    ) -> Result<Option<String>, Rejected> {
        let request = Request {
            method: "POST",
            url: "https://hooks.example/in",
            headers,
            body,
            path_secret: None,
        };
        let now = Timestamp::from_second(now).unwrap();
        verify(&self.scheme, std::slice::from_ref(&self.key), &request, now)
            .map(|verified| verified.into_identity().id)
    }

    /// The names of the headers that the signature covers, or that carry it.
    fn covered(&self) -> Vec<HeaderName> {
        let source = serde_json::to_value(&self.scheme).unwrap();
        let mut places = vec![source["signature"]["from"].as_str().unwrap().to_owned()];
        places.extend(source["timestamp"]["from"].as_str().map(ToOwned::to_owned));
        places.extend(source["signed"].as_str().map(ToOwned::to_owned));
        let covered = |name: &HeaderName| places.iter().any(|place| place.contains(name.as_str()));
        self.headers.keys().filter(|name| covered(name)).cloned().collect()
    }
}

fn any_preset() -> impl Strategy<Value = &'static str> {
    prop::sample::select(preset_names().collect::<Vec<_>>())
}

/// Never empty: some providers never send that.
fn any_body() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 1..200),
        "[ -~]{1,80}".prop_map(|text| format!("{{\"id\":{text:?},\"type\":\"x\"}}").into_bytes()),
    ]
}

/// Schemes that demand JSON, or take their time from it, cannot sign just any bytes.
fn takes_any_body(name: &str) -> bool {
    let source = serde_json::to_value(Scheme::preset(name).unwrap()).unwrap();
    source["body"] != "json"
        && !source["timestamp"]["from"].as_str().unwrap_or_default().contains("json")
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn what_is_signed_as_the_provider_does_is_accepted(name in any_preset(), seed: [u8; 32], body in any_body()) {
        prop_assume!(takes_any_body(name));
        let signed = signed(name, seed, body);
        let result = signed.judge(&signed.headers, &signed.body, NOW);
        prop_assert!(result.is_ok(), "{name}: {result:?}");
    }

    #[test]
    fn one_turned_bit_in_the_body_is_refused(name in any_preset(), body in any_body(), at: prop::sample::Index, bit in 0..8_u8) {
        prop_assume!(takes_any_body(name) && Scheme::preset(name).unwrap().algorithm() != Some(Algorithm::Token));
        let signed = signed(name, [7; 32], body);
        let mut turned = signed.body.clone();
        let at = at.index(turned.len());
        turned[at] ^= 1 << bit;
        prop_assert!(signed.judge(&signed.headers, &turned, NOW).is_err());
    }

    #[test]
    fn one_turned_bit_in_a_signed_header_is_refused(
        name in any_preset(), which: prop::sample::Index, at: prop::sample::Index, bit in 0..8_u8,
    ) {
        prop_assume!(takes_any_body(name));
        let signed = signed(name, [7; 32], b"{\"id\":\"x\"}".to_vec());
        let covered = signed.covered();
        let header = &covered[which.index(covered.len())];
        let mut value = signed.headers.get(header).unwrap().as_bytes().to_vec();
        let at = at.index(value.len());
        value[at] ^= 1 << bit;
        if let Ok(value) = HeaderValue::from_bytes(&value) {
            let mut headers = signed.headers.clone();
            headers.insert(header, value);
            prop_assert!(signed.judge(&headers, &signed.body, NOW).is_err(), "{name} {header}");
        }
    }

    #[test]
    fn another_key_is_refused(name in any_preset(), one: [u8; 32], other: [u8; 32], body in any_body()) {
        prop_assume!(one != other && takes_any_body(name));
        let (one, other) = (signed(name, one, body.clone()), signed(name, other, body));
        let refused = other.judge(&one.headers, &one.body, NOW).unwrap_err();
        prop_assert!(refused.is_refreshable());
    }

    #[test]
    fn whatever_stands_in_the_headers_nothing_panics_and_nothing_passes(
        name in any_preset(),
        values in prop::collection::vec((any::<prop::sample::Index>(), prop_oneof![
            prop::collection::vec(any::<u8>(), 0..80),
            "[tv01hs=,;. +0-9a-fA-F]{0,120}".prop_map(String::into_bytes),
        ]), 0..8),
        body in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let signed = signed(name, [7; 32], b"{\"id\":\"x\"}".to_vec());
        let names: Vec<&HeaderName> = signed.headers.keys().collect();
        let mut headers = HeaderMap::new();
        for (which, value) in &values {
            if let Ok(value) = HeaderValue::from_bytes(value) {
                headers.append(names[which.index(names.len())], value);
            }
        }
        prop_assert!(signed.judge(&headers, &body, NOW).is_err());
    }

    #[test]
    fn a_request_is_fresh_within_the_tolerance_and_not_one_second_beyond(name in any_preset(), age in -4000_i64..4000) {
        let signed = signed(name, [7; 32], b"{\"id\":\"x\"}".to_vec());
        let source = serde_json::to_value(&signed.scheme).unwrap();
        prop_assume!(signed.scheme.tolerance_seconds().is_none_or(|_| source["timestamp"].get("future").is_none()));
        prop_assume!(takes_any_body(name));
        let fresh = signed.scheme.tolerance_seconds().is_none_or(|tolerance| age.abs() <= i64::from(tolerance));
        prop_assert_eq!(signed.judge(&signed.headers, &signed.body, NOW + age).is_ok(), fresh);
    }

    #[test]
    fn no_text_makes_a_scheme_panic(text in "[\\PC]{0,200}", key in "[a-z_]{1,10}", value in any::<i64>()) {
        let _ = Scheme::from_toml(&text);
        let _ = Scheme::from_json(&text);
        let _ = Scheme::from_value(serde_json::json!({ "like": "stripe", key.clone(): value }));
        let _ = Scheme::from_value(serde_json::json!({ "like": "stripe", "signed": text, "identity": { key: text } }));
    }

    #[test]
    fn no_text_makes_a_key_panic_and_no_message_repeats_it(name in any_preset(), text in "\\PC{0,80}") {
        let scheme = Scheme::preset(name).unwrap();
        if let Err(error) = Key::parse(&scheme, "k", &Secret::new(text.clone())) {
            prop_assert!(text.len() < 6 || !error.to_string().contains(text.trim()));
        }
        let _ = EndpointSecret::parse(&Secret::new(text));
    }
}
