//! Twilio.

use proptest::prelude::*;

use crate::provider::{Arrived, base64, hmac_sha1, hmac_sha256, key, scheme, sha256};

const TOKEN: &str = "test_fake_twilio_auth_token_00000";
const URL: &str = "https://hooks.example.test/in/twilio?foo=1&bar=2";
const FORM: &str = "application/x-www-form-urlencoded";

fn post(url: &str, body: &str, signed: &str) -> Arrived {
    let signature = base64(&hmac_sha1(TOKEN.as_bytes(), signed.as_bytes()));
    Arrived { url: url.into(), ..Arrived::new(body) }
        .with("content-type", FORM)
        .with("x-twilio-signature", signature)
}

fn check(arrived: &Arrived, expected: &str) {
    let scheme = scheme(r#"verifier = "twilio""#);
    let verdict = arrived.verdict(&scheme, &[key(&scheme, "a", TOKEN)]);
    assert_eq!(verdict, expected, "{arrived:?}");
}

#[test]
fn the_address_and_the_sorted_form_are_signed() {
    check(&post(URL, "b=2&a=1", &format!("{URL}a1b2")), "ok");
    check(&post(URL, "b=2&a=1", &format!("{URL}b2a1")), "bad_signature: signature_mismatch");
    check(&post(URL, "", URL), "ok");
    check(&post(URL, "a=2&a=1&a=2", &format!("{URL}a1a2")), "ok");
    check(&post(URL, "a=%2B+%C3%A9", &format!("{URL}a+ é")), "ok");
    check(&post(URL, "a=&b", &format!("{URL}ab")), "ok");
}

/// Text put in place of bytes that are no text would let them be exchanged under one signature.
#[test]
fn bytes_that_are_no_text_are_not_replaced() {
    let mut signed = format!("{URL}a").into_bytes();
    signed.push(0xff);
    let signature = base64(&hmac_sha1(TOKEN.as_bytes(), &signed));
    let arrived = post(URL, "a=%FF", "").but("x-twilio-signature", signature);
    check(&arrived, "ok");
    check(&Arrived { body: b"a=%FE".to_vec(), ..arrived }, "bad_signature: signature_mismatch");
}

/// VFY-url-signed-schemes
#[test]
fn the_signed_address_is_the_configured_one_with_the_query_as_it_came() {
    let scheme = scheme(
        "verifier = \"twilio\"\nconfig = { url = \"https://hooks.example.test/in/tw1?old=1\" }",
    );
    let keys = [key(&scheme, "a", TOKEN)];
    let query = "Digits=1&Retry=1&Msg=Couldn%27t+find&AccountSid=AC0";
    let signed = format!("https://hooks.example.test/in/tw1?{query}");
    for seen in [
        format!("https://abc123.execute-api.us-east-1.amazonaws.com/prod/in/tw1?{query}"),
        format!("http://10.0.0.1:8080/x?{query}"),
        format!("https://hooks.example.test:443/in/tw1?{query}"),
    ] {
        assert_eq!(post(&seen, "", &signed).verdict(&scheme, &keys), "ok", "{seen}");
    }
    let sorted =
        "https://hooks.example.test/in/tw1?AccountSid=AC0&Digits=1&Msg=Couldn't%20find&Retry=1";
    let verdict = post(sorted, "", &signed).verdict(&scheme, &keys);
    assert_eq!(verdict, "bad_signature: signature_mismatch");
}

#[test]
fn the_address_may_be_signed_with_or_without_its_port_and_in_no_other_spelling() {
    let with = "https://hooks.example.test:443/in";
    let without = "https://hooks.example.test/in";
    check(&post(with, "", without), "ok");
    check(&post(without, "", with), "ok");
    check(&post("http://hooks.example.test/in", "", "http://hooks.example.test:80/in"), "ok");
    check(&post("https://hooks.example.test:8443/in", "", without), "ok");
    check(
        &post("https://u:1@hooks.example.test/in", "", "https://u:1@hooks.example.test:443/in"),
        "ok",
    );
    check(&post("https://[::1]:443/in", "", "https://[::1]/in"), "ok");
    check(&post("https://[::1]/in", "", "https://[::1]:443/in"), "ok");
    for other in [
        "https://hooks.example.test:8443/in",
        "http://hooks.example.test/in",
        "https://hooks.example.test/in/",
        "https://evil.example.test/in",
        "https://hooks.example.test",
    ] {
        check(&post(without, "", other), "bad_signature: signature_mismatch");
    }
}

#[test]
fn a_body_that_is_no_form_needs_its_hash_in_the_address() {
    let body = r#"{"a":1}"#;
    let hash = hex::encode(sha256(body.as_bytes()));
    let url = format!("https://hooks.example.test/in?x=1&bodySHA256={hash}");
    let json = |url: &str, body: &str| post(url, body, url).but("content-type", "application/json");
    check(&json(&url, body), "ok");
    check(&json(&url, r#"{"a":2}"#), "bad_signature: signature_mismatch");
    check(
        &json(&url.replace(&hash, &hash.to_uppercase()), body),
        "bad_signature: signature_mismatch",
    );
    check(&json(&format!("{url}&bodySHA256={hash}"), body), "malformed: signature_malformed");
    check(&json("https://hooks.example.test/in", body), "malformed: header_unexpected");
    check(&json("https://hooks.example.test/in", "").without("content-type"), "ok");
    check(
        &json("https://hooks.example.test/in", "a").without("content-type"),
        "malformed: header_unexpected",
    );
}

#[test]
fn a_signature_in_another_form_is_malformed() {
    let good = post(URL, "", URL);
    check(&good.clone().without("x-twilio-signature"), "malformed: signature_missing");
    check(&good.clone().but("x-twilio-signature", ""), "malformed: signature_missing");
    check(&good.clone().but("x-twilio-signature", "garbage"), "malformed: signature_malformed");
    check(
        &good.clone().but("x-twilio-signature", base64(&[1; 19])),
        "malformed: signature_malformed",
    );
    check(
        &good.clone().but("x-twilio-signature", base64(&[1; 20])),
        "bad_signature: signature_mismatch",
    );
    let twice = good.clone().with("x-twilio-signature", base64(&[1; 20]));
    check(&twice, "malformed: header_repeated");
    let joined = [base64(&[1; 20]), base64(&[2; 20])].join(",");
    check(&good.but("x-twilio-signature", joined), "malformed: signature_malformed");
}

/// The request must not pick the weaker way: which there are is a matter of the secrets.
#[test]
fn a_shared_key_never_makes_sha_1_whatever_the_request_says() {
    let scheme_any = scheme(r#"verifier = "twilio""#);
    let token = key(&scheme_any, "token", TOKEN);
    let shared = key(&scheme_any, "shared", &format!("webhooks_sharedkey_1:{TOKEN}"));
    let sha1 = post(URL, "a=1", &format!("{URL}a1"));
    let signature = base64(&hmac_sha256(TOKEN.as_bytes(), format!("{URL}a1").as_bytes()));
    let bare = sha1.clone().but("x-twilio-signature", signature);
    let header = "x-twilio-webhooks-signature-settings";
    let sha256 = bare.clone().with(header, "key=webhooks_sharedkey_1,algorithm=HMAC_SHA256");
    let sha1_named = sha1.clone().with(header, "key=webhooks_sharedkey_1,algorithm=HMAC_SHA256");
    let other = bare.clone().with(header, "key=webhooks_sharedkey_2,algorithm=HMAC_SHA256");
    let spaced = bare.clone().with(header, "key=k , algorithm = hmac_sha256");
    const NO: &str = "bad_signature: signature_mismatch";
    for (arrived, by_token, by_shared) in [
        (&sha1, "ok", NO),
        (&sha256, "ok", "ok"),
        (&bare, NO, NO),
        (&sha1_named, NO, NO),
        (&other, "ok", NO),
        (&spaced, "ok", NO),
    ] {
        let by = |key: &signing::Key| arrived.verdict(&scheme_any, std::slice::from_ref(key));
        assert_eq!(
            (by(&token).as_str(), by(&shared).as_str()),
            (by_token, by_shared),
            "{arrived:?}"
        );
    }
    let strict = scheme("verifier = \"twilio\"\nconfig = { algorithm = \"hmac-sha256\" }");
    assert_eq!(sha1.verdict(&strict, std::slice::from_ref(&token)), NO);
    assert_eq!(sha256.verdict(&strict, &[token]), "ok");
    for odd in [
        "algorithm=HMAC_SHA256",
        "key=k",
        "key=,algorithm=HMAC_SHA256",
        "key=k,algorithm=HMAC_SHA1",
        "key=k,algorithm=none",
        "key=k,key=l,algorithm=HMAC_SHA256",
        "key=k,algorithm=HMAC_SHA1,algorithm=HMAC_SHA256",
        "nonsense",
    ] {
        check(&bare.clone().with(header, odd), "malformed: header_unexpected");
    }
}

#[test]
fn a_callback_is_about_the_thing_whose_id_is_in_the_form() {
    let scheme = scheme(r#"verifier = "twilio""#);
    let keys = [key(&scheme, "a", TOKEN)];
    let object = |body: &str, signed: &str| {
        let read = post(URL, body, &format!("{URL}{signed}")).read(&scheme, &keys, 0);
        let (_, identity, _) = read.unwrap();
        (identity.object_type.unwrap_or_default(), identity.object_id.unwrap_or_default())
    };
    let pair = |kind: &str, id: &str| (kind.to_owned(), id.to_owned());
    assert_eq!(
        object("MessageSid=SM1&SmsSid=SM1", "MessageSidSM1SmsSidSM1"),
        pair("message", "SM1")
    );
    assert_eq!(
        object("CallSid=CA1&RecordingSid=RE1", "CallSidCA1RecordingSidRE1"),
        pair("recording", "RE1")
    );
    assert_eq!(object("a=1", "a1"), pair("", ""));
}

#[test]
fn what_is_hashed_is_what_is_signed() {
    let scheme = scheme(r#"verifier = "twilio""#);
    let keys = [key(&scheme, "a", TOKEN)];
    let hash = |arrived: Arrived| arrived.read(&scheme, &keys, 0).unwrap().2;
    let one = hash(post(URL, "a=1&b=2", &format!("{URL}a1b2")));
    assert_eq!(one, hash(post(URL, "b=%32&a=1", &format!("{URL}a1b2"))));
    assert_ne!(one, hash(post(URL, "a=1&b=3", &format!("{URL}a1b3"))));
    let get = |url: &str| hash(post(url, "", url));
    assert_ne!(get("https://hooks.example.test/in?a=1"), get("https://hooks.example.test/in?a=2"));
}

proptest! {
    #[test]
    fn any_form_signed_as_twilio_does_passes_and_any_other_value_does_not(
        fields in prop::collection::vec(("[a-c]{1,2}", "\\PC{0,6}"), 0..6), other in "\\PC{1,6}",
    ) {
        let mut sorted = fields.clone();
        sorted.sort();
        sorted.dedup();
        let signed: String = sorted.iter().map(|(name, value)| format!("{name}{value}")).collect();
        let escape = |text: &str| text.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
        let body: Vec<String> =
            fields.iter().map(|(name, value)| format!("{name}={}", escape(value))).collect();
        check(&post(URL, &body.join("&"), &format!("{URL}{signed}")), "ok");
        let more = format!("{}&z={}", body.join("&"), escape(&other));
        check(&post(URL, &more, &format!("{URL}{signed}")), "bad_signature: signature_mismatch");
    }
}
