//! Every algorithm and every place of a signature, with requests that the providers' own libraries signed where there are
//! some. The schemes are written out here, so that the rules are tested whatever ships.
#![expect(clippy::panic, clippy::unwrap_used, reason = "test code")]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;
use signing::{Class, Key, KeyError, Rejected, Request, Scheme, Secret, Trust, Verified, verify};

const NOW: i64 = 1_767_225_600;
const URL: &str = "https://hooks.example.test/in";

/// A request to be judged.
#[derive(Clone)]
struct Arrival {
    method: &'static str,
    url: &'static str,
    headers: HeaderMap,
    body: Vec<u8>,
    path_secret: Option<&'static str>,
    now: i64,
}

fn arrival(headers: &[(&'static str, &str)], body: &[u8]) -> Arrival {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
    }
    Arrival {
        method: "POST",
        url: URL,
        headers: map,
        body: body.to_vec(),
        path_secret: None,
        now: NOW,
    }
}

impl Arrival {
    fn judged(&self, scheme: &Scheme, keys: &[Key]) -> Result<Verified<'_>, Rejected> {
        let Self { method, url, headers, body, path_secret, .. } = self;
        let request = Request { method, url, headers, body, path_secret: *path_secret };
        verify(scheme, keys, &request, Timestamp::from_second(self.now).unwrap())
    }

    /// The key that matched, or the code of the refusal.
    fn code(&self, scheme: &Scheme, keys: &[Key]) -> String {
        match self.judged(scheme, keys) {
            Ok(verified) => verified.key().to_string(),
            Err(rejected) => rejected.reason().code().into(),
        }
    }

    fn with(&self, name: &'static str, value: &str) -> Self {
        let mut other = self.clone();
        other.headers.insert(name, HeaderValue::from_str(value).unwrap());
        other
    }

    fn without(&self, name: &'static str) -> Self {
        let mut other = self.clone();
        other.headers.remove(name);
        other
    }
}

fn scheme(json: &str) -> Scheme {
    Scheme::from_json(json).unwrap_or_else(|problems| panic!("{json}: {problems}"))
}

/// Keys named k1, k2 and so on.
fn keys(scheme: &Scheme, secrets: &[&str]) -> Vec<Key> {
    let named = secrets.iter().enumerate();
    named
        .map(|(at, secret)| {
            Key::parse(scheme, format!("k{}", at + 1), &Secret::new(*secret)).unwrap()
        })
        .collect()
}

const SENDGRID: &str = r#"{"algorithm": "ecdsa-p256-sha256", "signed": "{ts}{body}", "key": {"encoding": "spki-base64"},
    "signature": {"from": "{header:x-signature}", "encoding": "base64"}, "timestamp": {"from": "{header:x-timestamp}"}}"#;
const SENDGRID_KEY: &str = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE9prUYd8WUhtWd91G8zGXQewEvP7oRZFTcNkz1VfDd+70RahQMJZWD5I5N88eh2Xzf36wRJOKbHDOh8xWtLrX+A==";
const SENDGRID_BODY: &[u8] = b"[{\"email\":\"hello@world.test\",\"event\":\"dropped\",\"sg_event_id\":\"ZHJvcC0xMDk5NDkxOS1MUnpYbF9OSFN0T0doUTRrb2ZTbV9BLTA\",\"sg_message_id\":\"LRzXl_NHStOGhQ4kofSm_A.filterdrecv-fake\",\"timestamp\":1767225600}]\r\n";
const SENDGRID_SIGNATURE: &str = "MEUCIQCsfqMkE2ORi+IIwRvRiHjyn7fvEdvMzI+r7gRyekLBDgIgCmIz9ghzdgNZeAr2QG6R9OiG5Yu2SXVET189RZ8nS4Y=";

/// Signed with a key of node's crypto and accepted by SendGrid's own libraries.
#[test]
fn an_ecdsa_signature_in_der_is_verified() {
    let scheme = scheme(SENDGRID);
    let keys = keys(&scheme, &[SENDGRID_KEY]);
    let good = arrival(
        &[("x-signature", SENDGRID_SIGNATURE), ("x-timestamp", "1767225600")],
        SENDGRID_BODY,
    );
    assert_eq!(good.code(&scheme, &keys), "k1");
    assert_eq!(good.with("x-timestamp", "1767225601").code(&scheme, &keys), "signature_mismatch");
    let mut other = good.clone();
    other.body.truncate(other.body.len() - 2);
    assert_eq!(other.code(&scheme, &keys), "signature_mismatch");

    let padding = SENDGRID_SIGNATURE.trim_end_matches('=');
    let der = STANDARD.decode(SENDGRID_SIGNATURE).unwrap();
    let raw = [&der[5..37], &der[39..]].concat();
    for (signature, expected) in [
        ("", "signature_missing"),
        (" ", "signature_missing"),
        ("garbage!", "signature_malformed"),
        (padding, "signature_spelling"),
        (&STANDARD.encode(&raw), "signature_malformed"),
        (&STANDARD.encode(&der[..70]), "signature_malformed"),
        (&STANDARD.encode([&der[..], &[0]].concat()), "signature_malformed"),
    ] {
        assert_eq!(
            good.with("x-signature", signature).code(&scheme, &keys),
            expected,
            "{signature}"
        );
    }
    let mut late = good;
    late.now = NOW + 301;
    assert_eq!(late.code(&scheme, &keys), "timestamp_too_old");
}

const CIRCLE: &str = r#"{"algorithm": "ecdsa-p256-sha256", "signed": "{body}", "key": {"encoding": "spki-base64", "lookup": {
    "id": "{header:x-circle-key-id}", "url": "https://api.circle.com/v2/notifications/publicKey/{id}", "answer": "/data/publicKey"}},
    "signature": {"from": "{header:x-circle-signature}", "encoding": "base64"}}"#;
const CIRCLE_ID: &str = "879dc113-5ca4-4ff7-a6b7-54652083fcf8";
const CIRCLE_KEY: &str = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAESl76SZPBJemW0mJNN4KTvYkLT8bOT4UGhFhzNk3fJqf6iuPlLQLq533FelXwczJbjg2U1PHTvQTK7qOQnDL2Tg==";
const CIRCLE_BODY: &[u8] = br#"{"subscriptionId":"00000000-0000-0000-0000-000000000000","notificationId":"00000000-0000-0000-0000-000000000000","notificationType":"webhooks.test","notification":{"hello":"world"},"timestamp":"2024-01-26T18:22:19.779834211Z","version":2}"#;
const CIRCLE_SIGNATURE: &str = "MEQCIBlJPX7t0FDOcozsRK6qIQwik5Fq6mhAtCSSgIB/yQO7AiB9U5lVpdufKvPhk3cz4TH2f5MP7ArnmPRBmhPztpsIFQ==";

/// The sample that Circle publishes.
#[test]
fn a_key_that_is_not_known_yet_is_asked_for_and_only_by_an_id_of_the_strict_form() {
    let scheme = scheme(CIRCLE);
    let key = Key::published(&scheme, CIRCLE_ID, CIRCLE_KEY).unwrap();
    let good = arrival(
        &[("x-circle-key-id", CIRCLE_ID), ("x-circle-signature", CIRCLE_SIGNATURE)],
        CIRCLE_BODY,
    );
    assert_eq!(good.code(&scheme, std::slice::from_ref(&key)), CIRCLE_ID);
    assert_eq!(
        scheme.lookup().unwrap().url(CIRCLE_ID).as_deref(),
        Some(
            "https://api.circle.com/v2/notifications/publicKey/879dc113-5ca4-4ff7-a6b7-54652083fcf8"
        )
    );

    let rejected = good.judged(&scheme, &[]).unwrap_err();
    assert_eq!((rejected.class(), rejected.wanted_key()), (Class::KeyUnknown, Some(CIRCLE_ID)));
    assert!(rejected.is_refreshable());
    let other = "00000000-0000-0000-0000-000000000001";
    let rejected = good
        .with("x-circle-key-id", other)
        .judged(&scheme, std::slice::from_ref(&key))
        .unwrap_err();
    assert_eq!((rejected.class().as_str(), rejected.wanted_key()), ("key_unknown", Some(other)));

    // the right key under the name of another does not count
    let misnamed = Key::published(&scheme, other, CIRCLE_KEY).unwrap();
    assert_eq!(good.code(&scheme, &[misnamed]), "key_unknown");

    for id in [
        "879DC113-5CA4-4FF7-A6B7-54652083FCF8",
        "x",
        "../../keys",
        "879dc113-5ca4-4ff7-a6b7-54652083fcf8/..",
        "{id}",
    ] {
        let rejected = good.with("x-circle-key-id", id).judged(&scheme, &[]).unwrap_err();
        assert_eq!((rejected.class(), rejected.wanted_key()), (Class::Malformed, None), "{id}");
    }
    for (request, code) in [
        (good.without("x-circle-key-id"), "header_missing"),
        (good.with("x-circle-key-id", " "), "header_missing"),
        (good.with("x-circle-key-id", &format!("{CIRCLE_ID},{CIRCLE_ID}")), "header_joined"),
        (good.with("x-circle-signature", "garbage"), "signature_malformed"),
        (good.without("x-circle-signature"), "signature_missing"),
    ] {
        let rejected = request.judged(&scheme, &[]).unwrap_err();
        assert_eq!((rejected.reason().code(), rejected.wanted_key()), (code, None));
    }
    assert_eq!(Key::published(&scheme, "x", CIRCLE_KEY).err(), Some(KeyError::NotPublished));
    assert_eq!(Key::published(&scheme, CIRCLE_ID, "hello").err(), Some(KeyError::NotBase64));
    let without = crate::scheme(SENDGRID);
    assert_eq!(Key::published(&without, CIRCLE_ID, CIRCLE_KEY).err(), Some(KeyError::NotPublished));
}

const BOX: &str = r#"{"algorithm": "hmac-sha256", "signed": "{body}{ts}", "signature": {
    "from": ["{header:box-signature-primary}", "{header:box-signature-secondary}"], "paired": true, "encoding": "base64"},
    "timestamp": {"from": "{header:box-delivery-timestamp}", "unit": "rfc3339", "tolerance": 600, "future": 0}}"#;
const BOX_BODY: &[u8] = br#"{"type":"webhook_event","id":"0f6f6e4a-fake","created_at":"2026-01-01T00:00:00-00:00","trigger":"FILE.UPLOADED","webhook":{"id":"1234","type":"webhook"},"source":{"id":"73","type":"file","sequence_id":"4","etag":"4"}}"#;
const PRIMARY: &str = "pQuuNrm/ZNJUV1+Q8mXV1Sc4S58XHi+/bAk3IxRsU+E=";
const SECONDARY: &str = "Pf/UTPg95SbbYBIUP8qXITAQwmYnewDQpJulYkynqVk=";

/// Signed as Box's own libraries verify.
#[test]
fn paired_signatures_count_only_with_the_key_of_their_place() {
    let paired = scheme(BOX);
    let any = scheme(&BOX.replace(r#""paired": true"#, r#""paired": false"#));
    let both = arrival(
        &[
            ("box-delivery-timestamp", "2026-01-01T00:00:00Z"),
            ("box-signature-primary", PRIMARY),
            ("box-signature-secondary", SECONDARY),
        ],
        BOX_BODY,
    );
    let check = |request: &Arrival, secrets: &[&str], in_pairs: &str, in_any: &str| {
        assert_eq!(request.code(&paired, &keys(&paired, secrets)), in_pairs, "{secrets:?}");
        assert_eq!(request.code(&any, &keys(&any, secrets)), in_any, "{secrets:?}");
    };
    let (first, second) = ("test_fake_box_primary_key", "test_fake_box_secondary_key");
    check(&both, &[first, second], "k1", "k1");
    check(&both, &["a-new-primary-key", second], "k2", "k2");
    check(&both, &[first], "k1", "k1");
    check(&both, &[second], "signature_mismatch", "k1");
    check(&both, &[second, first], "signature_mismatch", "k1");
    check(
        &both,
        &["a-new-primary-key", "a-new-secondary-key"],
        "signature_mismatch",
        "signature_mismatch",
    );
    // A key that is named after its header keeps its place when the other one has gone.
    let named = |id: &str, secret: &str| Key::parse(&paired, id, &Secret::new(secret)).unwrap();
    assert_eq!(both.code(&paired, &[named("secondary", second)]), "secondary");
    assert_eq!(both.code(&paired, &[named("primary", second)]), "signature_mismatch");
    check(&both.without("box-signature-primary"), &[first, second], "k2", "k2");
    check(
        &both.without("box-signature-secondary"),
        &["a-new-primary-key", first],
        "signature_mismatch",
        "k2",
    );
    let swapped =
        both.with("box-signature-primary", SECONDARY).with("box-signature-secondary", PRIMARY);
    check(&swapped, &[first, second], "signature_mismatch", "k1");
    check(&both.with("box-signature-primary", "garbage"), &[first, second], "k2", "k2");
    let neither = both.without("box-signature-primary").without("box-signature-secondary");
    check(&neither, &[first, second], "signature_missing", "signature_missing");
    let mut repeated = both.clone();
    repeated.headers.append("box-signature-secondary", HeaderValue::from_static(SECONDARY));
    check(&repeated, &[first, second], "header_repeated", "header_repeated");
    let mut early = both;
    early.now = NOW - 1;
    check(&early, &[first], "timestamp_in_future", "timestamp_in_future");
}

const HUBSPOT_BODY: &[u8] = br#"[{"eventId":100,"subscriptionId":1,"portalId":62515,"appId":54321,"occurredAt":1767225600000,"subscriptionType":"contact.creation","attemptNumber":0,"objectId":123,"changeSource":"CRM"}]"#;
const HUBSPOT_SECRET: &str = "test-fake-hubspot-client-secret";

/// As HubSpot's own libraries verify; the HMAC is what version 1 is not.
#[test]
fn a_plain_hash_holds_the_secret_in_its_place() {
    let v1 = r#"{"algorithm": "sha256", "signed": "{secret}{body}", "signature": {"from": "{header:x-signature}"}}"#;
    let v1 = scheme(v1);
    let keys = keys(&v1, &["another-secret-altogether", HUBSPOT_SECRET]);
    let hash = "64c0c53d628acf4ba8fcd360033395d80b038c110d872ead8481c8dfdb9d504d";
    let good = arrival(&[("x-signature", hash)], HUBSPOT_BODY);
    assert_eq!(good.code(&v1, &keys), "k2");
    let hmac = "3c954da93713a28160541149f31b50a253cfc426c348d32479a8f60b6000efbd";
    assert_eq!(good.with("x-signature", hmac).code(&v1, &keys), "signature_mismatch");
    assert_eq!(
        good.with("x-signature", hash.split_at(16).0).code(&v1, &keys),
        "signature_malformed"
    );
    // nobody's secret: the hash of the body alone
    let bare = "b3fb5932dd4feadf4ae4da378b335f21dbc4550d583ae51bead3c8d9a4405619";
    assert_eq!(good.with("x-signature", bare).code(&v1, &keys), "signature_mismatch");
}

/// The first as HubSpot's libraries verify, the second as its documentation says and they do not.
#[test]
fn the_address_is_signed_as_hubspot_decodes_it() {
    let v3 = r#"{"algorithm": "hmac-sha256", "signed": "{method}{url:hubspot}{body}{ts}", "signature": {"from": "{header:x-signature}",
        "encoding": "base64"}, "timestamp": {"from": "{header:x-timestamp}", "unit": "ms"}}"#;
    let (v3, plain) = (scheme(v3), scheme(&v3.replace("{url:hubspot}", "{url}")));
    let (v3_keys, plain_keys) = (keys(&v3, &[HUBSPOT_SECRET]), keys(&plain, &[HUBSPOT_SECRET]));
    let check = |url: &'static str, signature: &str, decoded: &str, as_sent: &str| {
        let mut request =
            arrival(&[("x-signature", signature), ("x-timestamp", "1767225600000")], HUBSPOT_BODY);
        request.url = url;
        assert_eq!(request.code(&v3, &v3_keys), decoded, "{url}");
        assert_eq!(request.code(&plain, &plain_keys), as_sent, "{url}");
    };
    let mismatch = "signature_mismatch";
    check(
        "https://hooks.example.test/in/hubspot?x=1",
        "h71lRJMFm1OKvztTa6zkh28AhJ/KJMJVTrlmuItxzxU=",
        "k1",
        "k1",
    );
    let signature = "/DMmwupd8DlFUKSo4S77x7ayaFW0NYuELoUDq9IuJPE=";
    check("https://hooks.example.test/in/hubspot?email=a%40b.test", signature, "k1", mismatch);
    check("https://hooks.example.test/in/hubspot?email=a@b.test", signature, "k1", "k1");
    check(
        "https://hooks.example.test/in/hubspot?email=a%2540b.test",
        signature,
        mismatch,
        mismatch,
    );
}

/// Signed by npm:@contentful/node-apps-toolkit 3.16.1.
#[test]
fn headers_that_a_header_lists_are_signed() {
    let scheme = scheme(
        r#"{"algorithm": "hmac-sha256", "signed": "{method}\n{path-query}\n{signed-headers:x-contentful-signed-headers}\n{body}",
            "signature": {"from": "{header:x-contentful-signature}"},
            "timestamp": {"from": "{header:x-contentful-timestamp}", "unit": "ms", "tolerance": 30}}"#,
    );
    let keys = keys(&scheme, &[&("a".repeat(32) + &"B".repeat(32))]);
    let list = "content-type,x-contentful-signed-headers,x-contentful-timestamp,x-contentful-topic";
    let request = |url, signature| {
        let mut request = arrival(
            &[
                ("content-type", "application/json"),
                ("x-contentful-topic", "ContentManagement.Entry.save"),
                ("x-contentful-timestamp", "1767225600000"),
                ("x-contentful-signed-headers", list),
                ("x-contentful-signature", signature),
                ("x-forwarded-for", "not signed"),
            ],
            br#"{"sys":{"id":"e1","version":3}}"#,
        );
        request.url = url;
        request
    };
    let good = request(
        "https://hooks.example.test/api/in",
        "e9ffa61cf23fc5017b22c95fcc76e846b31160691882df730b98beba3e294dce",
    );
    assert_eq!(good.code(&scheme, &keys), "k1");
    let query = request(
        "https://hooks.example.test/api/in?a=b&c=d%20e&x=%C3%A9",
        "f95635412ab9445ec865e7817ff63e37b646859cba9d80a5df26fab07c1ba6b3",
    );
    assert_eq!(query.code(&scheme, &keys), "k1");

    let name = "x-contentful-signed-headers";
    for (request, expected) in [
        (good.with("x-contentful-topic", "ContentManagement.Entry.delete"), "signature_mismatch"),
        (good.with("x-forwarded-for", "changed"), "k1"),
        (good.without("x-contentful-topic"), "signature_mismatch"),
        (good.with("x-contentful-timestamp", "1767225600001"), "signature_mismatch"),
        (
            good.with(name, "content-type,x-contentful-signed-headers,x-contentful-topic"),
            "header_unsigned",
        ),
        (
            good.with(name, "content-type,x-contentful-timestamp,x-contentful-topic"),
            "header_unsigned",
        ),
        (good.with(name, ""), "header_unexpected"),
        (good.with(name, "a b"), "header_unexpected"),
        (good.with(name, &vec![list; 40].join(",")), "header_unexpected"),
        (good.without(name), "header_missing"),
    ] {
        assert_eq!(request.code(&scheme, &keys), expected, "{:?}", request.headers);
    }
    let mut late = good;
    late.now = NOW + 31;
    assert_eq!(late.code(&scheme, &keys), "timestamp_too_old");
}

#[test]
fn basic_credentials_are_read_strictly_and_compared_whole() {
    let scheme = scheme(r#"{"algorithm": "basic"}"#);
    let keys = keys(&scheme, &["postmark:a-long-password:with-colon"]);
    let check = |header: &str, expected: &str| {
        let request = arrival(&[("authorization", header)], b"{}");
        assert_eq!(request.code(&scheme, &keys), expected, "{header}");
    };
    let encoded = |text: &str| STANDARD.encode(text);
    let good = encoded("postmark:a-long-password:with-colon");
    check(&format!("Basic {good}"), "k1");
    check(&format!("basic {good}"), "k1");
    for malformed in [
        format!("Basic  {good}"),
        format!("Basic {}", good.trim_end_matches('=')),
        format!("Basic {good} "),
        format!("Bearer {good}"),
        format!("Basic{good}"),
        format!("Basic {}", encoded("no colon")),
        format!("Basic {good}, Basic {good}"),
        good.clone(),
        "Basic".into(),
        "Ba".into(),
        String::new(),
    ] {
        // the blank at the end is cut off by HTTP itself in real requests
        check(&malformed, "signature_malformed");
    }
    for wrong in [
        "postmark:",
        "postmark:a-long-password",
        ":a-long-password:with-colon",
        "postmark:a-long-password:with-colon2",
        ":",
    ] {
        check(&format!("Basic {}", encoded(wrong)), "signature_mismatch");
    }
    assert_eq!(arrival(&[], b"{}").code(&scheme, &keys), "signature_missing");
    let twice = Arrival {
        headers: [(http::header::AUTHORIZATION, HeaderValue::from_static("Basic Og=="))]
            .into_iter()
            .collect(),
        ..arrival(&[("authorization", "x")], b"")
    };
    assert_eq!(twice.code(&scheme, &keys), "signature_mismatch");
    for bad in ["user", ":password", "user:"] {
        let error = Key::parse(&scheme, "k", &Secret::new(bad)).err();
        assert_eq!(error, Some(KeyError::NotCredentials), "{bad}");
    }
    assert_eq!(scheme.trust(), Trust::Token);
}

#[test]
fn a_secret_address_is_compared_whether_it_stands_for_a_token_or_for_nothing() {
    for json in [
        r#"{"algorithm": "none"}"#,
        r#"{"algorithm": "token", "signature": {"from": "{path-secret}"}}"#,
    ] {
        let scheme = scheme(json);
        let keys = keys(&scheme, &["an-old-secret-segment", "a-new-secret-segment"]);
        let check = |path_secret, expected: &str| {
            let request = Arrival { path_secret, ..arrival(&[], b"{}") };
            assert_eq!(request.code(&scheme, &keys), expected, "{json} {path_secret:?}");
        };
        check(Some("an-old-secret-segment"), "k1");
        check(Some("a-new-secret-segment"), "k2");
        check(Some("A-new-secret-segment"), "signature_mismatch");
        check(Some("a-new-secret-segmen"), "signature_mismatch");
        check(Some(""), "signature_missing");
        check(Some(" "), "signature_missing");
        check(None, "signature_missing");
        let request = Arrival { path_secret: Some("x"), ..arrival(&[], b"{}") };
        assert_eq!(request.code(&scheme, &[]), "no_keys");
    }
}

#[test]
fn a_token_must_stand_in_every_element() {
    let scheme = scheme(
        r#"{"algorithm": "token", "signature": {"from": "{json:/value/*/clientState}"}, "batch": "/value"}"#,
    );
    let keys = keys(&scheme, &["the-state-of-one", "the-state-of-two"]);
    let check = |body: &str, expected: &str| {
        assert_eq!(arrival(&[], body.as_bytes()).code(&scheme, &keys), expected, "{body}");
    };
    check(r#"{"value":[{"clientState":"the-state-of-one"}]}"#, "k1");
    check(
        r#"{"value":[{"clientState":"the-state-of-two"},{"clientState":"the-state-of-two"}]}"#,
        "k2",
    );
    check(
        r#"{"value":[{"clientState":"the-state-of-one"},{"clientState":"the-state-of-two"}]}"#,
        "k1",
    );
    check(
        r#"{"value":[{"clientState":"the-state-of-one"},{"clientState":"wrong"}]}"#,
        "signature_mismatch",
    );
    check(
        r#"{"value":[{"clientState":"wrong"},{"clientState":"the-state-of-one"}]}"#,
        "signature_mismatch",
    );
    check(r#"{"value":[{"clientState":"the-state-of-one"},{}]}"#, "signature_missing");
    check(r#"{"value":[{"clientState":"the-state-of-one"},null]}"#, "signature_missing");
    check(r#"{"value":[{"clientState":""}]}"#, "signature_malformed");
    check(r#"{"value":[]}"#, "signature_missing");
    check(r#"{"value":{"clientState":"the-state-of-one"}}"#, "signature_missing");
    check("", "signature_missing");
    let many: Vec<String> = (0..17).map(|at| format!(r#"{{"clientState":"{at}"}}"#)).collect();
    check(&format!(r#"{{"value":[{}]}}"#, many.join(",")), "signatures_too_many");
    let same = vec![r#"{"clientState":"the-state-of-one"}"#; 1000];
    check(&format!(r#"{{"value":[{}]}}"#, same.join(",")), "k1");
}

#[test]
fn the_hash_of_what_is_signed_is_the_same_for_a_replay_under_another_id() {
    let github = Scheme::preset("github").unwrap();
    let key = Key::parse(&github, "k", &Secret::new("It's a Secret to Everybody")).unwrap();
    let good = arrival(
        &[
            (
                "x-hub-signature-256",
                "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
            ),
            ("x-github-delivery", "one"),
        ],
        b"Hello, World!",
    );
    let other = good.with("x-github-delivery", "two");
    let hash = |request: &Arrival| {
        hex::encode(request.judged(&github, std::slice::from_ref(&key)).unwrap().signed_hash())
    };
    assert_eq!(hash(&good), hash(&other));
    assert_eq!(hash(&good), "dffd6021bb2bd5b0af676290809ec3a53191dd81c7f70a4b28688a362182986f");
    assert_eq!(github.trust(), Trust::Signed);

    // Mailgun's way: of the body only two values are signed
    let mailgun = scheme(
        r#"{"algorithm": "hmac-sha256", "signed": "{json:/s/timestamp}{json:/s/token}", "body_unsigned": true,
            "signature": {"from": "{json:/s/signature}"}, "timestamp": {"from": "{json:/s/timestamp}"}, "identity": {"id": "{json:/id}"}}"#,
    );
    let keys = keys(&mailgun, &["a-mailgun-signing-key"]);
    let body = |id: &str, token: &str, signature: &str| {
        arrival(&[], format!(r#"{{"s":{{"timestamp":"1767225600","token":"{token}","signature":"{signature}"}},"id":"{id}"}}"#).as_bytes())
    };
    let signature = "7e7f4f19e07d2ce3c5c1e80b1b8f6fe1d5d0e0d1a3e5d6c7f8091a2b3c4d5e6f";
    assert_eq!(body("a", "t", signature).code(&mailgun, &keys), "signature_mismatch");
    let signature = hex::encode(hmac_sha256(b"a-mailgun-signing-key", b"1767225600t"));
    let (one, two) = (body("a", "t", &signature), body("b", "t", &signature));
    let (one, two) = (one.judged(&mailgun, &keys).unwrap(), two.judged(&mailgun, &keys).unwrap());
    assert_eq!(one.signed_hash(), two.signed_hash());
    assert_ne!(one.identity().id, two.identity().id);
    assert!(!one.identity().id_is_signed);
    assert_eq!(mailgun.trust(), Trust::BodyUnsigned);
}

fn hmac_sha256(key: &[u8], message: &[u8]) -> Vec<u8> {
    use hmac::{KeyInit as _, Mac as _};
    let mut mac = hmac::Hmac::<sha2::Sha256>::new_from_slice(key).unwrap();
    mac.update(message);
    mac.finalize().into_bytes().to_vec()
}

#[test]
fn a_key_of_handshakes_verifies_no_event() {
    let scheme = scheme(
        r#"{"algorithm": "token", "signature": {"from": "{header:x-token}"}, "handshake": [{"method": "GET", "when": [
            {"from": "{query:hub.verify_token}", "form": "words"}], "proof": {"token": "{query:hub.verify_token}", "secret": "verify_token"},
            "reply": {"status": 200}}]}"#,
    );
    let key = |id: &str, secret: &str| Key::parse(&scheme, id, &Secret::new(secret)).unwrap();
    let keys = [key("verify_token", "typed-in-by-somebody"), key("app", "the-secret-of-the-app")];
    let check = |token: &str, keys: &[Key], expected: &str| {
        assert_eq!(arrival(&[("x-token", token)], b"{}").code(&scheme, keys), expected, "{token}");
    };
    check("the-secret-of-the-app", &keys, "app");
    check("typed-in-by-somebody", &keys, "signature_mismatch");
    check("typed-in-by-somebody", &keys[..1], "no_keys");
}

#[test]
fn weaker_modes_say_so_in_plain_words() {
    for (json, trust, weaker) in [
        (r#"{"like": "github"}"#, Trust::Signed, false),
        (
            r#"{"algorithm": "hmac-sha256", "signed": "{json:/t}", "body_unsigned": true, "signature": {"from": "{header:s}"}}"#,
            Trust::BodyUnsigned,
            true,
        ),
        (r#"{"algorithm": "token", "signature": {"from": "{header:s}"}}"#, Trust::Token, true),
        (r#"{"algorithm": "basic"}"#, Trust::Token, true),
        (r#"{"algorithm": "none"}"#, Trust::None, true),
        (r#"{"verifier": "sns"}"#, Trust::Signed, false),
        (r#"{"verifier": "adyen", "body_unsigned": true}"#, Trust::BodyUnsigned, true),
    ] {
        let scheme = scheme(json);
        assert_eq!((scheme.trust(), scheme.trust().is_weaker()), (trust, weaker), "{json}");
        assert_eq!(scheme.trust().to_string().starts_with("weake"), weaker);
    }
}
