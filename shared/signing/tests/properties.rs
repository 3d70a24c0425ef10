//! Laws that hold for every scheme that ships, over bytes that nobody thought of.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

mod sides;

use http::{HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;
use proptest::prelude::*;
use sides::{SUBJECTS, Subject};
use signing::scheme::Algorithm;
use signing::sign::sign_as;
use signing::{
    EndpointSecret, Key, Rejected, Request, Scheme, Secret, Trust, elements, preset_names, verify,
};

const NOW: i64 = 1_767_225_600;

/// One scheme with a key and the signed headers of a body.
struct Signed {
    scheme: &'static Scheme,
    key: Key,
    headers: HeaderMap,
    body: Vec<u8>,
}

fn signed(subject: &'static Subject, seed: [u8; 32], body: Vec<u8>) -> Signed {
    let scheme = &subject.scheme;
    let (key, signing_key) = sides::keys(scheme, seed);
    let outgoing = sides::outgoing(scheme, "msg_1", "a.b", &body);
    let headers =
        sign_as(scheme, &signing_key, &outgoing, Timestamp::from_second(NOW).unwrap()).unwrap();
    Signed { scheme, key, headers, body }
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
        verify(self.scheme, std::slice::from_ref(&self.key), &request, now)
            .map(|verified| verified.into_identity().id)
    }

    /// The names of the headers that the signature covers, or that carry it.
    fn covered(&self) -> Vec<HeaderName> {
        let source = serde_json::to_value(self.scheme).unwrap();
        let mut places =
            vec![source["signature"].to_string(), source["timestamp"]["from"].to_string()];
        places.push(source["signed"].to_string());
        let carries = sides::signature_headers(self.scheme);
        let covered = |name: &HeaderName| {
            carries.contains(name)
                || places.iter().any(|place| place.contains(&format!(":{name}}}")))
        };
        self.headers.keys().filter(|name| covered(name)).cloned().collect()
    }

    fn signs(&self) -> bool {
        self.scheme.trust() == Trust::Signed
    }
}

fn any_subject() -> impl Strategy<Value = &'static Subject> {
    (0..SUBJECTS.len()).prop_map(|at| &SUBJECTS[at])
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

/// Schemes that demand JSON, or take something that they sign from it, cannot sign just any bytes.
fn takes_any_body(subject: &Subject) -> bool {
    let source = serde_json::to_value(&subject.scheme).unwrap();
    let demands = ["json", "json-or-empty", "object"].iter().any(|rule| source["body"] == *rule);
    let reads = |value: &serde_json::Value| value.to_string().contains("{json:");
    !demands && !reads(&source["timestamp"]) && !reads(&source["signed"])
}

/// A fresh request of the subject has no other limit to the future than to the past.
fn is_symmetric(subject: &Subject) -> bool {
    serde_json::to_value(&subject.scheme).unwrap()["timestamp"].get("future").is_none()
}

#[test]
fn enough_schemes_can_be_signed_for_and_every_algorithm_is_among_them() {
    let has = |algorithm| SUBJECTS.iter().any(|one| one.scheme.algorithm() == Some(algorithm));
    for algorithm in [
        Algorithm::HmacSha1,
        Algorithm::HmacSha256,
        Algorithm::HmacSha512,
        Algorithm::Sha256,
        Algorithm::Ed25519,
        Algorithm::EcdsaP256,
        Algorithm::Token,
        Algorithm::Basic,
    ] {
        assert!(has(algorithm), "{algorithm}");
    }
    let names: Vec<&str> = SUBJECTS.iter().map(|subject| subject.name.as_str()).collect();
    assert!(names.len() > 20, "{names:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn what_is_signed_as_the_provider_does_is_accepted(subject in any_subject(), seed: [u8; 32], body in any_body()) {
        prop_assume!(takes_any_body(subject));
        let signed = signed(subject, seed, body);
        let result = signed.judge(&signed.headers, &signed.body, NOW);
        prop_assert!(result.is_ok(), "{}: {result:?}", subject.name);
    }

    #[test]
    fn one_turned_bit_in_the_body_is_refused(subject in any_subject(), body in any_body(), at: prop::sample::Index, bit in 0..8_u8) {
        let signed = signed(subject, [7; 32], body);
        prop_assume!(takes_any_body(subject) && signed.signs());
        let mut turned = signed.body.clone();
        let at = at.index(turned.len());
        turned[at] ^= 1 << bit;
        prop_assert!(signed.judge(&signed.headers, &turned, NOW).is_err(), "{}", subject.name);
    }

    #[test]
    fn one_turned_bit_in_a_signed_header_is_refused(
        subject in any_subject(), which: prop::sample::Index, at: prop::sample::Index, bit in 0..8_u8,
    ) {
        let signed = signed(subject, [7; 32], b"{\"id\":\"x\"}".to_vec());
        // the word `Basic` is the same in capitals
        prop_assume!(takes_any_body(subject) && subject.scheme.algorithm() != Some(Algorithm::Basic));
        let covered = signed.covered();
        let header = &covered[which.index(covered.len())];
        let mut value = signed.headers.get(header).unwrap().as_bytes().to_vec();
        let at = at.index(value.len());
        value[at] ^= 1 << bit;
        if let Ok(value) = HeaderValue::from_bytes(&value) {
            let mut headers = signed.headers.clone();
            headers.insert(header, value);
            prop_assert!(signed.judge(&headers, &signed.body, NOW).is_err(), "{} {header}", subject.name);
        }
    }

    #[test]
    fn another_key_is_refused(subject in any_subject(), one: [u8; 32], other: [u8; 32], body in any_body()) {
        let verifying = |seed| sides::secrets(&subject.scheme, seed).0;
        let differs = verifying(one).expose() != verifying(other).expose();
        prop_assume!(differs && takes_any_body(subject));
        let (one, other) = (signed(subject, one, body.clone()), signed(subject, other, body));
        let refused = other.judge(&one.headers, &one.body, NOW).unwrap_err();
        prop_assert!(refused.is_refreshable(), "{}: {refused}", subject.name);
    }

    #[test]
    fn whatever_stands_in_the_headers_nothing_panics_and_nothing_passes(
        subject in any_subject(),
        values in prop::collection::vec((any::<prop::sample::Index>(), prop_oneof![
            prop::collection::vec(any::<u8>(), 0..80),
            "[tv01hs=,;. +0-9a-fA-F]{0,120}".prop_map(String::into_bytes),
        ]), 0..8),
        body in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let signed = signed(subject, [7; 32], b"{\"id\":\"x\"}".to_vec());
        let names: Vec<&HeaderName> = signed.headers.keys().collect();
        let mut headers = HeaderMap::new();
        for (which, value) in &values {
            if let Ok(value) = HeaderValue::from_bytes(value) {
                headers.append(names[which.index(names.len())], value);
            }
        }
        prop_assert!(signed.judge(&headers, &body, NOW).is_err(), "{}", subject.name);
    }

    #[test]
    fn whatever_comes_no_preset_panics_and_none_accepts_it(
        name in any_preset(), url in "\\PC{0,60}", path_secret in prop::option::of("\\PC{0,20}"),
        body in prop_oneof![any_body(), "[\\[\\]{}\",:a-z0-9&=%]{0,120}".prop_map(String::into_bytes)],
    ) {
        let scheme = sides::configured(name);
        let (url, path_secret) = (url.as_str(), path_secret.as_deref());
        let headers = HeaderMap::new();
        let request = Request { method: "POST", url, headers: &headers, body: &body, path_secret };
        let now = Timestamp::from_second(NOW).unwrap();
        prop_assert!(verify(&scheme, &[], &request, now).is_err(), "{name}");
        let _ = elements(&scheme, &body);
    }

    #[test]
    fn elements_are_slices_of_the_body_in_its_order(texts in prop::collection::vec("[ -~&&[^\"\\\\]]{0,12}", 0..20), blanks in "[ \t\r\n]{0,3}") {
        let scheme = Scheme::from_value(serde_json::json!({
            "algorithm": "token", "signature": { "from": "{header:s}" }, "batch": "/a", "element": { "id": "{json:/id}" },
        })).unwrap();
        let written: Vec<String> = texts.iter().map(|text| format!("{blanks}{{\"id\":\"{text}\"}}{blanks}")).collect();
        let body = format!("{{\"a\":[{}]{blanks}}}", written.join(","));
        let found = elements(&scheme, body.as_bytes()).unwrap();
        prop_assert_eq!(found.len(), texts.len());
        let mut end = 0;
        for (element, text) in found.iter().zip(&texts) {
            let at = element.body.as_ptr() as usize - body.as_ptr() as usize;
            prop_assert!(at >= end);
            end = at + element.body.len();
            let expected = format!("{{\"id\":\"{text}\"}}");
            prop_assert_eq!(&body.as_bytes()[at..end], expected.as_bytes());
            let id = (!text.trim().is_empty()).then_some(text.as_str());
            prop_assert_eq!(element.identity.id.as_deref(), id);
        }
    }

    #[test]
    fn a_request_is_fresh_within_the_tolerance_and_not_one_second_beyond(subject in any_subject(), age in -4000_i64..4000) {
        prop_assume!(takes_any_body(subject) && is_symmetric(subject));
        let signed = signed(subject, [7; 32], b"{\"id\":\"x\"}".to_vec());
        let fresh = signed.scheme.tolerance_seconds().is_none_or(|tolerance| age.abs() <= i64::from(tolerance));
        prop_assert_eq!(signed.judge(&signed.headers, &signed.body, NOW + age).is_ok(), fresh, "{}", subject.name);
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
