//! Calls to providers for their keys: only strict ids, only pinned hosts, and answers read with suspicion.

use proptest::prelude::*;
use signing::lookup::{Call, MOST_BYTES, Refused, call, confirmation, read};
use signing::{Key, Scheme, Secret};

use crate::provider::{P256, RSA, cases, certificate, p256_point, scheme, url_base64};

/// Addresses that look like one of a certificate of Amazon SNS's.
pub(crate) const BAD_SNS: &[&str] = &[
    "https://evil.example.test/cert.pem",
    "http://sns.us-east-1.amazonaws.com/SimpleNotificationService-0a.pem",
    "HTTPS://sns.us-east-1.amazonaws.com/SimpleNotificationService-0a.pem",
    "https://sns.us-east-1.amazonaws.com.evil.test/SimpleNotificationService-0a.pem",
    "https://sns.us-east-1.amazonaws.com@evil.test/SimpleNotificationService-0a.pem",
    "https://sns.us-east-1.amazonaws.com:x@evil.test/SimpleNotificationService-0a.pem",
    "https://sns.us-east-1.amazonaws.com:443/SimpleNotificationService-0a.pem",
    "https://sns.us-east-1.amazonaws.com:8443/SimpleNotificationService-0a.pem",
    "https://sns.us-east-1.amazonaws.com./SimpleNotificationService-0a.pem",
    "https://sns.US-EAST-1.amazonaws.com/SimpleNotificationService-0a.pem",
    "https://sns.us-east-1.AMAZONAWS.com/SimpleNotificationService-0a.pem",
    "https://SNS.us-east-1.amazonaws.com/SimpleNotificationService-0a.pem",
    "https://user@sns.us-east-1.amazonaws.com/SimpleNotificationService-0a.pem",
    "https://evil.test/sns.us-east-1.amazonaws.com/SimpleNotificationService-0a.pem",
    "https://evil.test?sns.us-east-1.amazonaws.com/SimpleNotificationService-0a.pem",
    "https://evil.test#sns.us-east-1.amazonaws.com/SimpleNotificationService-0a.pem",
    "https://sns.evil.amazonaws.com/SimpleNotificationService-0a.pem",
    "https://sns.bucket.s3.us-east-1.amazonaws.com/SimpleNotificationService-0a.pem",
    "https://sns.s3-1.amazonaws.com/SimpleNotificationService-0a.pem",
    "https://sns.us-east-1.amazonaws.com.cn/SimpleNotificationService-0a.pem",
    "https://sns.cn-north-1.amazonaws.com/SimpleNotificationService-0a.pem",
    "https://sns.amazonaws.com/SimpleNotificationService-0a.pem",
    "https://sns..amazonaws.com/SimpleNotificationService-0a.pem",
    "https://us-east-1.amazonaws.com/SimpleNotificationService-0a.pem",
    "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-0A.pem",
    "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-.pem",
    "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-../x.pem",
    "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-0a.pem?x=.pem",
    "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-0a.pem#.pem",
    "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-%2e.pem",
    "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-0a.txt",
    "https://sns.us-east-1.amazonaws.com//SimpleNotificationService-0a.pem",
    "https://sns.us-east-1.amazonaws.com\\@evil.test/SimpleNotificationService-0a.pem",
    "https://sns.us-east-1.amazonaws.com/x.pem",
    "https://sns.us-east-1.amazonaws.com/",
    " https://sns.us-east-1.amazonaws.com/SimpleNotificationService-0a.pem",
    "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-0a.pem ",
    "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-0a\n.pem",
    "file:///etc/passwd",
    "",
];

/// Addresses that look like one of a certificate of PayPal's.
pub(crate) const BAD_PAYPAL: &[&str] = &[
    "https://evil.example.test/v1/notifications/certs/CERT-1",
    "http://api.paypal.com/v1/notifications/certs/CERT-1",
    "https://api.paypal.com.evil.test/v1/notifications/certs/CERT-1",
    "https://api.paypal.com@evil.test/v1/notifications/certs/CERT-1",
    "https://api.paypal.com:443/v1/notifications/certs/CERT-1",
    "https://api.paypal.com./v1/notifications/certs/CERT-1",
    "https://API.paypal.com/v1/notifications/certs/CERT-1",
    "https://www.paypal.com/v1/notifications/certs/CERT-1",
    "https://xapi.paypal.com/v1/notifications/certs/CERT-1",
    "https://api.paypal.com/v1/notifications/certs/",
    "https://api.paypal.com/v1/notifications/certs/../../x",
    "https://api.paypal.com/v1/notifications/certs/CERT-1/x",
    "https://api.paypal.com/v1/notifications/certs/CERT-1?x",
    "https://api.paypal.com/v1/notifications/certs/CERT-1#x",
    "https://api.paypal.com/v1/notifications/certs/CERT%2D1",
    "https://api.paypal.com/v1/notifications/certs/CERT 1",
    "https://api.paypal.com/v1/redirect?to=/v1/notifications/certs/CERT-1",
    "https://api.paypal.com//v1/notifications/certs/CERT-1",
];

/// Texts that are no UUID in lower case.
pub(crate) const BAD_UUID: &[&str] = &[
    "",
    "x",
    "BFBD5111-8e33-4643-8ced-b2e642a72f3c",
    "bfbd5111-8e33-4643-8ced-b2e642a72f3",
    "bfbd5111-8e33-4643-8ced-b2e642a72f3cc",
    "bfbd51118e33-4643-8ced-b2e642a72f3c--",
    "bfbd5111-8e33-4643-8ced-b2e642a72f3c/../x",
    "../../../../../../../../../../../etc",
    "bfbd5111_8e33_4643_8ced_b2e642a72f3c",
    "bfbd5111-8e33-4643-8ced-b2e642a72f3\u{e9}",
];

const SNS: &str = "https://sns.eu-central-1.amazonaws.com/SimpleNotificationService-9c6465fa7f48f5cacd23014631ec1136.pem";
const PAYPAL: &str =
    "https://api.paypal.com/v1/notifications/certs/CERT-360caa42-fca2a594-1d93a270";
const ID: &str = "bfbd5111-8e33-4643-8ced-b2e642a72f3c";

fn named(verifier: &str) -> Scheme {
    let unsigned = if verifier == "paypal" { "body_unsigned = true" } else { "" };
    scheme(&format!("verifier = \"{verifier}\"\n{unsigned}"))
}

fn circle() -> Scheme {
    scheme(
        "algorithm = \"ecdsa-p256-sha256\"\nsigned = \"{body}\"\n\
         signature = { from = \"{header:x-circle-signature}\", encoding = \"base64\" }\n\
         [key]\nencoding = \"spki-base64\"\n\
         lookup = { id = \"{header:x-circle-key-id}\", url = \"https://api.circle.com/v2/notifications/publicKey/{id}\", id_form = \"uuid\", answer = \"/data/publicKey\" }",
    )
}

fn plain(url: &str) -> Result<Call, Refused> {
    Ok(Call { method: "GET", url: url.into(), headers: Vec::new(), body: Vec::new().into() })
}

#[test]
fn a_certificate_is_fetched_from_its_own_address_and_only_from_the_provider() {
    assert_eq!(call(&named("sns"), SNS, &[]), plain(SNS));
    for region in ["us-gov-west-1", "ap-southeast-7", "me-central-1", "mx-central-1"] {
        let url = SNS.replace("eu-central-1", region);
        assert_eq!(call(&named("sns"), &url, &[]), plain(&url));
    }
    assert_eq!(call(&named("paypal"), PAYPAL, &[]), plain(PAYPAL));
    for bad in BAD_SNS {
        assert_eq!(call(&named("sns"), bad, &[]), Err(Refused::BadId), "{bad}");
    }
    for bad in BAD_PAYPAL {
        assert_eq!(call(&named("paypal"), bad, &[]), Err(Refused::BadId), "{bad}");
    }
    assert_eq!(call(&named("sns"), PAYPAL, &[]), Err(Refused::BadId));
    assert_eq!(call(&named("paypal"), SNS, &[]), Err(Refused::BadId));
    assert_eq!(call(&named("twilio"), SNS, &[]), Err(Refused::NoLookup));
}

#[test]
fn an_environment_can_be_demanded() {
    let environment = |name: &str| {
        scheme(&format!(
            "verifier = \"paypal\"\nbody_unsigned = true\nconfig = {{ webhook_id = \"x\", environment = \"{name}\" }}"
        ))
    };
    let sandbox = PAYPAL.replace("api.paypal.com", "api.sandbox.paypal.com");
    assert_eq!(call(&named("paypal"), &sandbox, &[]), plain(&sandbox));
    assert_eq!(call(&environment("live"), &sandbox, &[]), Err(Refused::BadId));
    assert_eq!(call(&environment("sandbox"), PAYPAL, &[]), Err(Refused::BadId));
    assert_eq!(call(&environment("sandbox"), &sandbox, &[]), plain(&sandbox));
    assert_eq!(call(&environment("other"), PAYPAL, &[]), Err(Refused::BadId));
}

#[test]
fn plaid_is_told_who_asks() {
    let credentials = [Secret::new("client-1:fake-secret-1")];
    let asked = call(&named("plaid"), ID, &credentials).unwrap();
    assert_eq!(
        (asked.method, asked.url.as_str()),
        ("POST", "https://production.plaid.com/webhook_verification_key/get")
    );
    let body: serde_json::Value = serde_json::from_slice(&asked.body).unwrap();
    assert_eq!(
        body,
        serde_json::json!({ "client_id": "client-1", "secret": "fake-secret-1", "key_id": ID })
    );
    assert!(!format!("{asked:?}").contains("fake-secret-1"));
    assert_eq!(call(&named("plaid"), ID, &[]), Err(Refused::NoCredentials));
    assert_eq!(
        call(&named("plaid"), ID, &[Secret::new("fake-secret-1")]),
        Err(Refused::NoCredentials)
    );
    for bad in BAD_UUID {
        assert_eq!(call(&named("plaid"), bad, &credentials), Err(Refused::BadId), "{bad}");
    }
    let sandbox = scheme("verifier = \"plaid\"\nconfig = { environment = \"sandbox\" }");
    assert!(
        call(&sandbox, ID, &credentials).unwrap().url.starts_with("https://sandbox.plaid.com/")
    );
}

#[test]
fn a_lookup_in_data_fills_the_id_into_its_address() {
    let asked = call(&circle(), ID, &[Secret::new("TEST_API_KEY:1")]).unwrap();
    assert_eq!(asked.url, format!("https://api.circle.com/v2/notifications/publicKey/{ID}"));
    assert_eq!(asked.headers.len(), 1);
    assert_eq!(
        (asked.headers[0].0, asked.headers[0].1.as_str()),
        ("authorization", "Bearer TEST_API_KEY:1")
    );
    assert!(!format!("{asked:?}").contains("TEST_API_KEY"));
    assert!(call(&circle(), ID, &[]).unwrap().headers.is_empty());
    for bad in BAD_UUID {
        assert_eq!(call(&circle(), bad, &[]), Err(Refused::BadId), "{bad}");
    }
}

#[test]
fn an_answer_is_read_only_if_a_key_can_be_made_of_it() {
    let sns = named("sns");
    let pem = certificate(RSA, 2020..2126);
    let text = read(&sns, SNS, 200, pem.as_bytes()).unwrap();
    assert!(Key::published(&sns, SNS, &text).is_ok());
    let chain = format!("{pem}{}", certificate(P256, 2020..2126));
    assert!(read(&named("paypal"), PAYPAL, 200, chain.as_bytes()).is_ok());
    assert_eq!(
        read(&sns, SNS, 200, certificate(P256, 2020..2126).as_bytes()),
        Err(Refused::NotAKey)
    );
    assert_eq!(read(&sns, SNS, 200, b"<html>"), Err(Refused::NotAKey));
    assert_eq!(read(&sns, SNS, 200, b"\xff"), Err(Refused::NotAKey));
    assert_eq!(read(&sns, SNS, 200, &vec![b'a'; MOST_BYTES + 1]), Err(Refused::TooLarge));
    assert_eq!(read(&sns, SNS, 302, pem.as_bytes()), Err(Refused::Status(302)));
    assert_eq!(read(&named("twilio"), SNS, 200, pem.as_bytes()), Err(Refused::NoLookup));
    for (status, again) in
        [(404, false), (403, false), (302, false), (429, true), (500, true), (503, true)]
    {
        assert_eq!(read(&sns, SNS, status, b"").unwrap_err().is_transient(), again, "{status}");
    }
    assert!(!Refused::BadId.is_transient() && !Refused::NotAKey.is_transient());
}

#[test]
fn plaid_must_answer_with_the_key_that_was_asked_for() {
    let plaid = named("plaid");
    let (x, y) = p256_point();
    let (x, y) = (url_base64(x), url_base64(y));
    let good = format!(
        r#"{{"alg":"ES256","crv":"P-256","kid":"{ID}","kty":"EC","use":"sig","x":"{x}","y":"{y}","expired_at":null}}"#
    );
    let answer = |key: &str| {
        read(&plaid, ID, 200, format!(r#"{{"key":{key},"request_id":"r"}}"#).as_bytes())
    };
    let text = answer(&good).unwrap();
    assert!(Key::published(&plaid, ID, &text).is_ok());
    assert_eq!(
        answer(&good.replace(ID, "6c5516e1-92dc-479e-a8ff-5a51992e0001")),
        Err(Refused::OtherKey)
    );
    for bad in [
        good.replace("\"EC\"", "\"oct\""),
        good.replace("P-256", "P-384"),
        good.replace("ES256", "HS256"),
        good.replace("\"sig\"", "\"enc\""),
        good.replace(&x, &x[..40]),
        good.replace(&x, &format!("{x}=")),
        good.replace("\"x\"", "\"d\":\"AA\",\"x\""),
        good.replace("\"x\"", "\"y\":\"AA\",\"x\""),
        good.replace("null", "\"soon\""),
        "null".into(),
        "[]".into(),
        format!("{}{}", "[".repeat(20_000), "]".repeat(20_000)),
    ] {
        assert_eq!(answer(&bad), Err(Refused::NotAKey), "{bad}");
    }
    assert_eq!(read(&plaid, ID, 200, b"{}"), Err(Refused::NotAKey));
    assert_eq!(read(&plaid, ID, 400, b"{}"), Err(Refused::Status(400)));
}

#[test]
fn a_key_in_json_is_found_where_the_data_says() {
    let spki = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAESl76SZPBJemW0mJNN4KTvYkLT8bOT4UBhFhzNk3fJqf6iuPlLQLq533FelXwczJbjg2U1PHTvQTK7qOQnDL2Tg==";
    let answer =
        format!(r#"{{"data":{{"id":"{ID}","algorithm":"ECDSA_SHA_256","publicKey":"{spki}"}}}}"#);
    let text = read(&circle(), ID, 200, answer.as_bytes()).unwrap();
    assert_eq!(text, spki);
    assert!(Key::published(&circle(), ID, &text).is_ok());
    for bad in ["{}", r#"{"data":{"publicKey":"AAAA"}}"#, r#"{"data":{"publicKey":7}}"#, "", "[]"] {
        assert_eq!(read(&circle(), ID, 200, bad.as_bytes()), Err(Refused::NotAKey), "{bad}");
    }
}

#[test]
fn only_a_confirmation_on_the_host_of_amazon_is_confirmed() {
    let good = "https://sns.us-west-2.amazonaws.com/?Action=ConfirmSubscription&TopicArn=arn:aws:sns:us-west-2:123456789012:MyTopic&Token=2336412f37";
    assert_eq!(confirmation(good), plain(good));
    for bad in BAD_SNS {
        assert_eq!(confirmation(bad), Err(Refused::BadConfirmation), "{bad}");
        let query = format!("{bad}?Action=ConfirmSubscription&Token=1");
        if *bad != "https://sns.us-east-1.amazonaws.com/" {
            assert_eq!(confirmation(&query), Err(Refused::BadConfirmation), "{query}");
        }
    }
    for bad in [
        good.replace("Confirm", "Delete"),
        good.replace("/?", "/x?"),
        good.replace("/?", "?"),
        good.replace("Action=", "x=1&Action="),
        format!("{good}#x"),
        format!("{good} "),
        format!("{good}\r\nx: y"),
        format!("{good}{}", "a".repeat(2_048)),
    ] {
        assert_eq!(confirmation(&bad), Err(Refused::BadConfirmation), "{bad}");
    }
}

proptest! {
    #![proptest_config(cases(256))]
    /// Whatever is fetched is on a pinned host, also as a whole URL parser sees it.
    #[test]
    fn no_text_leads_to_another_host(
        prefix in "(https://)?(sns\\.)?(us-east-1\\.|api\\.)?(amazonaws|paypal)?(\\.com)?", rest in "[-a-z0-9@:/?#.\\\\%]{0,20}",
        tail in "(/SimpleNotificationService-0a\\.pem|/v1/notifications/certs/CERT-1|/\\?Action=ConfirmSubscription&)?",
    ) {
        let text = format!("{prefix}{rest}{tail}");
        let allowed = ["sns.us-east-1.amazonaws.com", "api.paypal.com", "api.sandbox.paypal.com"];
        for asked in [call(&named("sns"), &text, &[]), call(&named("paypal"), &text, &[]), confirmation(&text)].into_iter().flatten() {
            let parsed = url::Url::parse(&asked.url).unwrap();
            prop_assert_eq!(parsed.scheme(), "https");
            prop_assert!(allowed.contains(&parsed.host_str().unwrap()), "{}", asked.url);
            prop_assert!(parsed.port().is_none() && parsed.username().is_empty());
        }
    }

    #[test]
    fn no_answer_panics(answer in prop::collection::vec(any::<u8>(), 0..300), status in 0_u16..600) {
        for scheme in [named("sns"), named("paypal"), named("plaid"), circle()] {
            let _ = read(&scheme, ID, status, &answer);
        }
    }
}
