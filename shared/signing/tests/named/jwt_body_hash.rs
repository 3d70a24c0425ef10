//! Netlify and LiveKit.

use proptest::prelude::*;
use signing::{Key, Scheme};

use crate::provider::{
    Arrived, NOW, base64, flipped, hmac_sha256, key, scheme, sha256, token, url_base64,
};

const SECRET: &str = "test-fake-secret-0123456789abcdef";
const BODY: &[u8] = br#"{"event":"room_started","id":"EV_1"}"#;
const HEADER: &str = r#"{"alg":"HS256","typ":"JWT"}"#;
const NO: &str = "bad_signature: signature_mismatch";
const MALFORMED: &str = "malformed: signature_malformed";

fn netlify() -> (Scheme, [Key; 1]) {
    let scheme = scheme(
        "verifier = \"jwt-body-hash\"\nconfig = { header = \"X-Webhook-Signature\", issuer = \"netlify\" }",
    );
    let keys = [key(&scheme, "a", SECRET)];
    (scheme, keys)
}

fn livekit() -> (Scheme, [Key; 1]) {
    let scheme = scheme(
        "verifier = \"jwt-body-hash\"\nconfig = { header = \"authorization\", encoding = \"base64\" }\n\
         [identity]\nid = \"{json:/id}\"\ntype = \"{json:/event}\"",
    );
    let keys = [key(&scheme, "a", &format!("APIfake:{SECRET}"))];
    (scheme, keys)
}

fn by_secret(message: &[u8]) -> Vec<u8> {
    hmac_sha256(SECRET.as_bytes(), message)
}

fn netlify_claims() -> String {
    format!(r#"{{"iss":"netlify","sha256":"{}"}}"#, hex::encode(sha256(BODY)))
}

fn livekit_claims(more: &str) -> String {
    format!(r#"{{"iss":"APIfake","sha256":"{}"{more}}}"#, base64(&sha256(BODY)))
}

fn sent(header: &str, claims: &str) -> Arrived {
    Arrived::new(BODY).with("x-webhook-signature", token(header, claims, by_secret))
}

fn check(arrived: &Arrived, expected: &str) {
    let (scheme, keys) = netlify();
    assert_eq!(arrived.verdict(&scheme, &keys), expected, "{arrived:?}");
}

#[test]
fn the_token_holds_the_hash_of_the_body() {
    let good = sent(HEADER, &netlify_claims());
    check(&good, "ok");
    check(&Arrived { body: b"{}".to_vec(), ..good.clone() }, NO);
    check(&sent(HEADER, &netlify_claims().replace("netlify", "other")), NO);
    let in_base64 = format!(r#"{{"iss":"netlify","sha256":"{}"}}"#, base64(&sha256(BODY)));
    check(&sent(HEADER, &in_base64), NO);
    check(&sent(HEADER, r#"{"iss":"netlify"}"#), MALFORMED);
    check(&sent(HEADER, &netlify_claims().replace(r#""iss":"netlify","#, "")), MALFORMED);
    check(&good.clone().without("x-webhook-signature"), "malformed: signature_missing");
    check(&good.with("x-webhook-signature", "x"), "malformed: header_repeated");
}

#[test]
fn the_issuer_can_be_a_part_of_the_secret_so_that_both_rotate_together() {
    let (scheme, [key_a]) = livekit();
    let arrived =
        |claims: &str| Arrived::new(BODY).with("authorization", token(HEADER, claims, by_secret));
    let good = arrived(&livekit_claims(""));
    let other = key(&scheme, "b", "APIother:another-fake-secret-0123456789");
    let (found, identity, hash) = good.read(&scheme, &[other.clone(), key_a.clone()], NOW).unwrap();
    assert_eq!(
        (found.as_str(), identity.id.as_deref(), identity.id_is_signed),
        ("a", Some("EV_1"), true)
    );
    assert_eq!(hash.to_vec(), sha256(BODY));
    assert_eq!(good.verdict(&scheme, &[other]), NO);
    assert_eq!(good.verdict(&scheme, &[key(&scheme, "c", SECRET)]), NO);
    let moved = arrived(&livekit_claims("").replace("APIfake", "APIother"));
    assert_eq!(moved.verdict(&scheme, &[key_a]), NO);
    let bearer = Arrived::new(BODY)
        .with("authorization", format!("Bearer {}", token(HEADER, &livekit_claims(""), by_secret)));
    assert_eq!(bearer.verdict(&scheme, &[]), MALFORMED);
}

#[test]
fn times_are_kept_when_the_token_has_any() {
    let (scheme, keys) = livekit();
    let check = |more: &str, expected: &str| {
        let arrived = Arrived::new(BODY)
            .with("authorization", token(HEADER, &livekit_claims(more), by_secret));
        assert_eq!(arrived.verdict(&scheme, &keys), expected, "{more}");
    };
    check("", "ok");
    check(&format!(r#","nbf":{NOW},"exp":{}"#, NOW + 300), "ok");
    check(&format!(r#","exp":{}"#, NOW - 60), "ok");
    check(&format!(r#","exp":{}"#, NOW - 61), "stale: timestamp_too_old");
    check(&format!(r#","nbf":{}"#, NOW + 60), "ok");
    check(&format!(r#","nbf":{}"#, NOW + 61), "stale: timestamp_in_future");
    check(&format!(r#","iat":{}"#, NOW + 61), "stale: timestamp_in_future");
    check(&format!(r#","exp":{}"#, i64::MIN), "stale: timestamp_too_old");
    check(&format!(r#","nbf":{}"#, i64::MAX), "stale: timestamp_in_future");
    check(r#","exp":"tomorrow""#, "malformed: timestamp_malformed");
    check(r#","exp":null"#, "malformed: timestamp_malformed");
    check(r#","exp":1,"exp":9999999999"#, MALFORMED);
}

#[test]
fn the_algorithm_is_pinned() {
    for other in ["none", "None", "NONE", "hs256", "HS384", "RS256", "ES256", ""] {
        check(&sent(&HEADER.replace("HS256", other), &netlify_claims()), MALFORMED);
    }
    let none = format!(
        "{}.{}.",
        url_base64(HEADER.replace("HS256", "none")),
        url_base64(netlify_claims())
    );
    check(&Arrived::new(BODY).with("x-webhook-signature", none), MALFORMED);
    let short = token(HEADER, &netlify_claims(), |message| by_secret(message)[..16].to_vec());
    check(&Arrived::new(BODY).with("x-webhook-signature", short), MALFORMED);
}

#[test]
fn what_the_configuration_does_not_say_is_refused() {
    let bare = scheme("verifier = \"jwt-body-hash\"");
    let verdict = sent(HEADER, &netlify_claims()).verdict(&bare, &[key(&bare, "a", SECRET)]);
    assert_eq!(verdict, "malformed: not_configured");
    let odd = scheme(
        "verifier = \"jwt-body-hash\"\nconfig = { header = \"x-webhook-signature\", issuer = \"netlify\", encoding = \"base32\" }",
    );
    let verdict = sent(HEADER, &netlify_claims()).verdict(&odd, &[key(&odd, "a", SECRET)]);
    assert_eq!(verdict, "malformed: not_configured");
}

proptest! {
    #[test]
    fn no_single_bit_of_token_or_body_can_change(bit in 0_usize..10_000, in_body: bool) {
        let (scheme, keys) = netlify();
        let good = token(HEADER, &netlify_claims(), by_secret);
        let arrived = if in_body {
            Arrived { body: flipped(BODY, bit), ..sent(HEADER, &netlify_claims()) }
        } else {
            let changed = flipped(good.as_bytes(), bit);
            prop_assume!(http::HeaderValue::from_bytes(&changed).is_ok());
            Arrived::new(BODY).with("x-webhook-signature", changed)
        };
        prop_assert_ne!(arrived.verdict(&scheme, &keys), "ok");
    }
}
