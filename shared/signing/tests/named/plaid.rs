//! Plaid.

use proptest::prelude::*;
use signing::{Key, Scheme};

use crate::provider::{
    Arrived, NOW, es256, flipped, hmac_sha256, p256_point, scheme, sha256, token, url_base64,
};

const NO: &str = "bad_signature: signature_mismatch";
const ID: &str = "bfbd5111-8e33-4643-8ced-b2e642a72f3c";
const BODY: &[u8] = b"{\n  \"webhook_type\": \"ITEM\",\n  \"webhook_code\": \"ERROR\"\n}";
const MALFORMED: &str = "malformed: signature_malformed";

fn ours() -> Scheme {
    scheme("verifier = \"plaid\"\n[identity]\ntype = \"{json:/webhook_type}.{json:/webhook_code}\"")
}

pub(crate) fn web_key(more: &str) -> String {
    let (x, y) = p256_point();
    let (x, y) = (url_base64(x), url_base64(y));
    format!(
        r#"{{"alg":"ES256","crv":"P-256","kid":"{ID}","kty":"EC","use":"sig","x":"{x}","y":"{y}"{more}}}"#
    )
}

fn keys(scheme: &Scheme) -> [Key; 1] {
    [Key::published(scheme, ID, &web_key(r#","created_at":1560466143,"expired_at":null"#)).unwrap()]
}

fn claims(issued: i64, body: &[u8]) -> String {
    format!(r#"{{"iat":{issued},"request_body_sha256":"{}"}}"#, hex::encode(sha256(body)))
}

fn header() -> String {
    format!(r#"{{"alg":"ES256","kid":"{ID}","typ":"JWT"}}"#)
}

fn with(header: &str, claims: &str) -> Arrived {
    Arrived::new(BODY).with("plaid-verification", token(header, claims, es256))
}

fn check(arrived: &Arrived, expected: &str) {
    let scheme = ours();
    assert_eq!(arrived.verdict(&scheme, &keys(&scheme)), expected, "{arrived:?}");
}

#[test]
fn the_token_holds_the_hash_of_the_body_as_it_was_sent() {
    let good = with(&header(), &claims(NOW, BODY));
    check(&good, "ok");
    check(
        &Arrived {
            body: br#"{"webhook_type":"ITEM","webhook_code":"ERROR"}"#.to_vec(),
            ..good.clone()
        },
        NO,
    );
    check(
        &with(
            &header(),
            &claims(NOW, BODY)
                .to_uppercase()
                .replace("IAT", "iat")
                .replace("REQUEST_BODY_SHA256", "request_body_sha256"),
        ),
        NO,
    );
    check(&with(&header(), &format!(r#"{{"iat":{NOW}}}"#)), MALFORMED);
    check(&good.clone().without("plaid-verification"), "malformed: signature_missing");
    check(&good.with("plaid-verification", "x"), "malformed: header_repeated");
    let scheme = ours();
    let (key, identity, hash) =
        with(&header(), &claims(NOW, BODY)).read(&scheme, &keys(&scheme), NOW).unwrap();
    assert_eq!((key.as_str(), identity.event_type.as_deref()), (ID, Some("ITEM.ERROR")));
    assert_eq!(hash.to_vec(), sha256(BODY));
}

#[test]
fn a_token_is_good_for_five_minutes() {
    let at = |issued| with(&header(), &claims(issued, BODY));
    check(&at(NOW - 300), "ok");
    check(&at(NOW - 301), "stale: timestamp_too_old");
    check(&at(NOW + 60), "ok");
    check(&at(NOW + 61), "stale: timestamp_in_future");
    check(&at(i64::MIN), "stale: timestamp_too_old");
    check(&at(i64::MAX), "stale: timestamp_in_future");
    let claims = |iat: &str| claims(NOW, BODY).replace(&NOW.to_string(), iat);
    for odd in ["1.5", "\"1767225600\"", "null", "1e400", "18446744073709551615"] {
        let verdict = with(&header(), &claims(odd));
        let scheme = ours();
        let verdict = verdict.verdict(&scheme, &keys(&scheme));
        assert!(verdict.starts_with("malformed: "), "{odd}: {verdict}");
    }
    let without = format!(r#"{{"request_body_sha256":"{}"}}"#, hex::encode(sha256(BODY)));
    check(&with(&header(), &without), "malformed: timestamp_missing");
}

/// Of an old token with a wrong signature it is not said that its signature is right but old.
#[test]
fn a_wrong_signature_is_never_called_stale() {
    let forged = token(&header(), &claims(NOW - 9_000, BODY), |_| vec![1; 64]);
    check(&Arrived::new(BODY).with("plaid-verification", forged), NO);
}

#[test]
fn the_algorithm_is_pinned() {
    let public = web_key("");
    let confused =
        |header: &str| token(header, &claims(NOW, BODY), |m| hmac_sha256(public.as_bytes(), m));
    let arrived = |token: String| Arrived::new(BODY).with("plaid-verification", token);
    check(&arrived(confused(&header().replace("ES256", "HS256"))), MALFORMED);
    check(&arrived(confused(&header())), NO);
    for other in ["none", "None", "HS256", "RS256", "ES384", "es256", ""] {
        check(&with(&header().replace("ES256", other), &claims(NOW, BODY)), MALFORMED);
    }
    let unsigned = format!(
        "{}.{}.",
        url_base64(header().replace("ES256", "none")),
        url_base64(claims(NOW, BODY))
    );
    check(&arrived(unsigned), MALFORMED);
    for odd in [
        r#"{"kid":"x"}"#,
        r#"{"alg":null,"kid":"x"}"#,
        r#"{"alg":["ES256"]}"#,
        r#"{"alg":"none","alg":"ES256"}"#,
        r#"["ES256"]"#,
        "ES256",
        "",
        &header().replace("JWT", "at+jwt"),
        &header().replace(r#""typ":"JWT""#, r#""crit":["exp"]"#),
        &header().replace(r#""typ":"JWT""#, r#""b64":false"#),
        &format!("{}{}", "[".repeat(3_000), "]".repeat(3_000)),
        &format!(r#"{{"alg":"ES256","x":{}{}}}"#, "[".repeat(1_000), "]".repeat(1_000)),
    ] {
        check(&with(odd, &claims(NOW, BODY)), MALFORMED);
    }
    // an own key in the header is nobody's key
    let jwk = header().replace(
        r#""typ""#,
        &format!(r#""jwk":{},"jku":"https://evil.example/","typ""#, web_key("")),
    );
    let forged = token(&jwk, &claims(NOW, BODY), |_| vec![1; 64]);
    check(&arrived(forged), NO);
}

#[test]
fn a_token_has_one_spelling() {
    let good = token(&header(), &claims(NOW, BODY), es256);
    let arrived = |token: String| Arrived::new(BODY).with("plaid-verification", token);
    for odd in [
        format!("{good}="),
        format!("{good}."),
        format!(".{good}"),
        format!("{good} "),
        format!("Bearer {good}"),
        good.replacen('.', "..", 1),
        good.replacen('.', "=.", 1),
        good.replacen('.', "\t.", 1),
        good.split('.').take(2).collect::<Vec<_>>().join("."),
        "..".into(),
        "a.b.c".into(),
        "x".repeat(9_000),
        format!("{}.{}", good, "A".repeat(9_000)),
    ] {
        check(&arrived(odd), MALFORMED);
    }
    let twice = claims(NOW, b"x")
        .replace('}', &format!(r#","request_body_sha256":"{}"}}"#, hex::encode(sha256(BODY))));
    check(&with(&header(), &twice), MALFORMED);
    // the same numbers in DER
    let der = token(&header(), &claims(NOW, BODY), |message| {
        let fixed = es256(message);
        let number = |bytes: &[u8]| [&[2, 33, 0][..], bytes].concat();
        [&[0x30, 70][..], &number(&fixed[..32]), &number(&fixed[32..])].concat()
    });
    check(&arrived(der), NO);
}

#[test]
fn a_key_that_is_not_here_yet_is_asked_for_only_for_a_request_that_could_pass() {
    let scheme = ours();
    let wanted = |arrived: &Arrived| {
        let rejected = arrived.read(&scheme, &[], NOW).unwrap_err();
        (rejected.reason().code(), rejected.wanted_key().map(ToOwned::to_owned))
    };
    assert_eq!(wanted(&with(&header(), &claims(NOW, BODY))), ("key_unknown", Some(ID.into())));
    assert_eq!(wanted(&with(&header(), &claims(NOW, b"x"))), ("signature_mismatch", None));
    assert_eq!(wanted(&with(&header(), &claims(NOW - 400, BODY))), ("signature_mismatch", None));
    for bad in crate::lookup::BAD_UUID {
        let header = header().replace(ID, &bad.escape_default().to_string());
        let (code, wanted) = wanted(&with(&header, &claims(NOW, BODY)));
        assert!(
            matches!(code, "key_id_malformed" | "signature_malformed") && wanted.is_none(),
            "{bad}: {code}"
        );
    }
}

#[test]
fn a_retired_key_verifies_nothing_after_its_end() {
    let scheme = ours();
    let with_end = |end: i64| {
        let key =
            Key::published(&scheme, ID, &web_key(&format!(r#","expired_at":{end}"#))).unwrap();
        with(&header(), &claims(NOW, BODY)).verdict(&scheme, &[key])
    };
    assert_eq!(with_end(NOW), "ok");
    assert_eq!(with_end(NOW - 1), "bad_signature: key_not_valid");
}

proptest! {
    #[test]
    fn no_single_bit_of_a_token_can_change(bit in 0_usize..10_000) {
        let good = token(&header(), &claims(NOW, BODY), es256);
        let changed = flipped(good.as_bytes(), bit);
        prop_assume!(http::HeaderValue::from_bytes(&changed).is_ok());
        let arrived = Arrived::new(BODY).with("plaid-verification", changed);
        let scheme = ours();
        prop_assert_ne!(arrived.verdict(&scheme, &keys(&scheme)), "ok");
    }
}
