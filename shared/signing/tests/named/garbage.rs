//! Whatever arrives, each verifier answers, and never with "ok".

use proptest::prelude::*;
use signing::{Key, Scheme};

use crate::provider::{Arrived, NOW, RSA, cases, certificate, key, scheme};

const SNS: &str = "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-0a.pem";
const PAYPAL: &str = "https://api.paypal.com/v1/notifications/certs/CERT-1";

fn all() -> Vec<(Scheme, Vec<Key>)> {
    let shared = |toml: &str, secret: &str| {
        let scheme = scheme(toml);
        let keys = vec![key(&scheme, "a", secret)];
        (scheme, keys)
    };
    let published = |toml: &str, id: &str| {
        let scheme = scheme(toml);
        let keys = vec![Key::published(&scheme, id, &certificate(RSA, 2020..2126)).unwrap()];
        (scheme, keys)
    };
    vec![
        shared("verifier = \"twilio\"", "test_fake_twilio_auth_token_00000"),
        shared(
            "verifier = \"adyen\"\nbody_unsigned = true\nkey.encoding = \"hex\"",
            "00112233445566778899aabbccddeeff",
        ),
        shared("verifier = \"braintree\"", "public:private"),
        shared(
            "verifier = \"jwt-body-hash\"\nconfig = { header = \"x-token\", issuer = \"i\" }",
            "test-fake-secret-0123456789abcdef",
        ),
        published("verifier = \"sns\"\nconfig = { topic_arn = \"arn:x\" }", SNS),
        published(
            "verifier = \"paypal\"\nbody_unsigned = true\nconfig = { webhook_id = \"w\" }",
            PAYPAL,
        ),
        (scheme("verifier = \"plaid\""), Vec::new()),
    ]
}

const HEADERS: [&str; 14] = [
    "content-type",
    "hmacsignature",
    "paypal-auth-algo",
    "paypal-cert-url",
    "paypal-transmission-id",
    "paypal-transmission-sig",
    "paypal-transmission-time",
    "plaid-verification",
    "protocol",
    "x-token",
    "x-twilio-signature",
    "x-twilio-webhooks-signature-settings",
    "x-other",
    "authorization",
];

/// Pieces that get a parser some way in.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let pieces: Vec<&[u8]> = vec![
        b"",
        b".",
        b"..",
        b"=",
        b"&",
        b"%",
        b"|",
        b"key=k,algorithm=HMAC_SHA256",
        b"SHA256withRSA",
        PAYPAL.as_bytes(),
        SNS.as_bytes(),
        b"2026-01-01T00:00:00Z",
        b"AAAA",
        b"AAAAAAAAAAAAAAAAAAAAAAAAAAA=",
        b"eyJhbGciOiJIUzI1NiJ9.e30.AAAA",
        b"eyJhbGciOiJFUzI1NiJ9.e30.AAAA",
        b"application/x-www-form-urlencoded",
    ];
    prop_oneof![
        prop::sample::select(pieces).prop_map(<[u8]>::to_vec),
        prop::collection::vec(prop_oneof![32_u8..127, 128_u8..=255], 0..60),
    ]
}

fn body() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..200),
        "[{}\\[\\]\":,a-zA-Z0-9=&%+|]{0,200}".prop_map(String::into_bytes),
        "bt_signature=[a-z|0-9&]{0,60}&bt_payload=[A-Za-z0-9+/=%]{0,80}".prop_map(String::into_bytes),
        "\\{\"Type\":\"(Notification|x)\",\"MessageId\":\"[a-z\\\\]{0,5}\",\"Message\":[\"a-z{}]{0,9}\\}".prop_map(String::into_bytes),
        "\\{\"notificationItems\":\\[\\{\"NotificationRequestItem\":[\\[\\]{}\":,a-z]{0,40}\\}\\]\\}".prop_map(String::into_bytes),
    ]
}

proptest! {
    #![proptest_config(cases(500))]
    #[test]
    fn nothing_that_nobody_signed_passes_and_nothing_panics(
        headers in prop::collection::vec((prop::sample::select(HEADERS.to_vec()), piece()), 0..8), body in body(), url in "\\PC{0,60}",
    ) {
        thread_local!(static ALL: Vec<(Scheme, Vec<Key>)> = all());
        let mut arrived = Arrived { url, ..Arrived::new(body) };
        for (name, value) in headers {
            arrived = arrived.with(name, value);
        }
        ALL.with(|all| {
            for (scheme, keys) in all {
                let verdict = arrived.verdict_at(scheme, keys, NOW);
                assert_ne!(verdict, "ok", "{}: {arrived:?}", scheme.name());
            }
        });
    }
}

/// Deep and large bodies are refused in a time and a memory that do not grow with what they claim to hold.
#[test]
fn bombs_are_refused() {
    let bombs: Vec<Vec<u8>> = vec![
        "[".repeat(1_000_000).into_bytes(),
        "{\"a\":".repeat(200_000).into_bytes(),
        format!(r#"{{"notificationItems":[{}1]}}"#, "1,".repeat(500_000)).into_bytes(),
        format!(r#"{{"notificationItems":{}{}}}"#, "[".repeat(500_000), "]".repeat(500_000))
            .into_bytes(),
        format!(r#"{{"Type":{}1{}}}"#, "[".repeat(500_000), "]".repeat(500_000)).into_bytes(),
        "&".repeat(1_000_000).into_bytes(),
        "a&".repeat(500_000).into_bytes(),
        "%".repeat(1_000_000).into_bytes(),
        format!("bt_payload=x&bt_signature={}", "a|b%26".repeat(100_000)).into_bytes(),
    ];
    for (scheme, keys) in all() {
        for bomb in &bombs {
            let arrived = Arrived::new(bomb.clone())
                .with("content-type", "application/x-www-form-urlencoded")
                .with("x-twilio-signature", "AAAAAAAAAAAAAAAAAAAAAAAAAAA=");
            assert_ne!(arrived.verdict(&scheme, &keys), "ok");
        }
    }
}
