//! PayPal.

use proptest::prelude::*;
use signing::{Key, Scheme};

use crate::provider::{Arrived, NOW, P256, RSA, base64, certificate, flipped, rsa_sha256, scheme};

const NO: &str = "bad_signature: signature_mismatch";
const URL: &str = "https://api.paypal.com/v1/notifications/certs/CERT-360caa42-fca2a594-1d93a270";
const BODY: &[u8] =
    br#"{"id":"WH-1","event_type":"PAYMENT.SALE.COMPLETED","create_time":"2026-01-01T00:00:00Z"}"#;
const TIME: &str = "2026-01-01T00:00:00Z";

fn ours() -> Scheme {
    scheme(
        "verifier = \"paypal\"\nbody_unsigned = true\nconfig = { webhook_id = \"9XL90610J3647323C\" }\n\
         [identity]\nid = \"{json:/id}\"\ntype = \"{json:/event_type}\"\ndelivery = \"{header:paypal-transmission-id}\"",
    )
}

fn keys(scheme: &Scheme) -> [Key; 1] {
    [Key::published(scheme, URL, &certificate(RSA, 2020..2030)).unwrap()]
}

/// The checksum is written out once more, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            if sum & 1 == 1 { (sum >> 1) ^ 0xedb8_8320 } else { sum >> 1 }
        })
    })
}

fn signed(body: &[u8]) -> Arrived {
    let message = format!("b2384410-f8d2|{TIME}|9XL90610J3647323C|{}", crc32(body));
    Arrived::new(body)
        .with("paypal-transmission-id", "b2384410-f8d2")
        .with("paypal-transmission-time", TIME)
        .with("paypal-transmission-sig", base64(&rsa_sha256(message.as_bytes())))
        .with("paypal-cert-url", URL)
        .with("paypal-auth-algo", "SHA256withRSA")
}

fn check(arrived: &Arrived, expected: &str) {
    let scheme = ours();
    assert_eq!(arrived.verdict(&scheme, &keys(&scheme)), expected, "{arrived:?}");
}

#[test]
fn id_time_webhook_and_checksum_are_signed() {
    let good = signed(BODY);
    check(&good, "ok");
    check(&Arrived { body: b"{}".to_vec(), ..good.clone() }, NO);
    check(&good.clone().but("paypal-transmission-id", "b2384410-f8d3"), NO);
    check(&good.clone().but("paypal-transmission-time", "2026-01-01T00:00:01Z"), NO);
    let other = scheme(
        "verifier = \"paypal\"\nbody_unsigned = true\nconfig = { webhook_id = \"9XL90610J3647323D\" }",
    );
    assert_eq!(good.verdict(&other, &keys(&other)), NO);
    let none = scheme("verifier = \"paypal\"\nbody_unsigned = true");
    assert_eq!(good.verdict(&none, &keys(&none)), "malformed: not_configured");
}

#[test]
fn the_algorithm_is_pinned() {
    for other in ["SHA1withRSA", "SHA256WITHRSA", "none", "SHA256withECDSA"] {
        check(&signed(BODY).but("paypal-auth-algo", other), "malformed: header_unexpected");
    }
    check(&signed(BODY).without("paypal-auth-algo"), "malformed: header_missing");
}

#[test]
fn missing_and_odd_pieces_are_malformed() {
    let good = signed(BODY);
    check(&good.clone().without("paypal-transmission-sig"), "malformed: signature_missing");
    check(&good.clone().but("paypal-transmission-sig", "%%%"), "malformed: signature_malformed");
    check(&good.clone().but("paypal-transmission-sig", base64(&[1; 256])), NO);
    check(&good.clone().without("paypal-transmission-id"), "malformed: header_missing");
    check(&good.clone().but("paypal-transmission-id", "a|b"), "malformed: header_unexpected");
    check(
        &good.clone().but("paypal-transmission-id", "a".repeat(129)),
        "malformed: header_unexpected",
    );
    check(
        &good.clone().but("paypal-transmission-time", "yesterday"),
        "malformed: timestamp_malformed",
    );
    check(&good.clone().with("paypal-transmission-id", "b"), "malformed: header_repeated");
    check(&good.without("paypal-cert-url"), "malformed: header_missing");
}

#[test]
fn a_certificate_that_is_not_here_yet_is_asked_for_by_its_address() {
    let scheme = ours();
    let other = URL.replace("1d93", "1d94");
    let arrived = signed(BODY).but("paypal-cert-url", other.clone());
    let rejected = arrived.read(&scheme, &keys(&scheme), NOW).unwrap_err();
    assert_eq!(rejected.reason().code(), "key_unknown");
    assert_eq!(rejected.wanted_key(), Some(other.as_str()));
    let sandbox = URL.replace("api.paypal.com", "api.sandbox.paypal.com");
    let rejected = arrived.but("paypal-cert-url", sandbox).read(&scheme, &[], NOW).unwrap_err();
    assert!(rejected.wanted_key().is_some());
}

#[test]
fn no_other_address_is_ever_asked_for() {
    let scheme = ours();
    for bad in crate::lookup::BAD_PAYPAL {
        let arrived = signed(BODY).but("paypal-cert-url", *bad);
        let rejected = arrived.read(&scheme, &[], NOW).unwrap_err();
        assert_eq!(
            (rejected.reason().code(), rejected.wanted_key()),
            ("key_id_malformed", None),
            "{bad}"
        );
    }
}

#[test]
fn a_certificate_counts_only_while_it_is_valid() {
    let scheme = ours();
    let with = |years| {
        let keys = [Key::published(&scheme, URL, &certificate(RSA, years)).unwrap()];
        signed(BODY).verdict(&scheme, &keys)
    };
    assert_eq!(with(2025..2027), "ok");
    assert_eq!(with(2020..2025), "bad_signature: key_not_valid");
    assert_eq!(with(2027..2030), "bad_signature: key_not_valid");
}

#[test]
fn a_certificate_with_a_key_of_another_kind_is_no_key() {
    assert!(Key::published(&ours(), URL, &certificate(P256, 2020..2030)).is_err());
}

#[test]
fn the_body_names_the_event_and_is_not_called_signed() {
    let scheme = ours();
    let (key, identity, hash) = signed(BODY).read(&scheme, &keys(&scheme), NOW).unwrap();
    assert_eq!((key.as_str(), identity.id.as_deref()), (URL, Some("WH-1")));
    assert!(!identity.id_is_signed);
    assert_eq!(identity.delivery.as_deref(), Some("b2384410-f8d2"));
    assert_eq!(identity.occurred_at.unwrap().to_string(), TIME);
    let other = signed(b"{}").read(&scheme, &keys(&scheme), NOW).unwrap();
    assert_ne!(hash, other.2);
}

proptest! {
    #[test]
    fn no_single_bit_of_the_body_can_change(bit in 0_usize..10_000) {
        let arrived = Arrived { body: flipped(BODY, bit), ..signed(BODY) };
        let scheme = ours();
        prop_assert_eq!(arrived.verdict(&scheme, &keys(&scheme)), NO);
    }
}
