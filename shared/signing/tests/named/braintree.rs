//! Braintree.

use proptest::prelude::*;
use signing::{Key, Scheme};

use crate::provider::{Arrived, base64, flipped, hmac_sha1, key, scheme, sha1};

const PUBLIC: &str = "integration_public_key";
const PRIVATE: &str = "integration_private_key";
const NO: &str = "bad_signature: signature_mismatch";
const XML: &str = "<notification>\n  <kind>subscription_canceled</kind>\n  <timestamp type=\"datetime\">2026-01-01T00:00:00Z</timestamp>\n  <subject><subscription><id>s1</id><kind>inner</kind></subscription></subject>\n</notification>";

fn ours() -> (Scheme, [Key; 1]) {
    let scheme = scheme(r#"verifier = "braintree""#);
    let keys = [key(&scheme, "a", &format!("{PUBLIC}:{PRIVATE}"))];
    (scheme, keys)
}

fn mac(payload: &str) -> String {
    hex::encode(hmac_sha1(&sha1(PRIVATE.as_bytes()), payload.as_bytes()))
}

fn escape(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

fn form(signatures: &str, payload: &str) -> Arrived {
    let body = format!("bt_signature={}&bt_payload={}", escape(signatures), escape(payload));
    Arrived::new(body).with("content-type", "application/x-www-form-urlencoded")
}

fn signed(payload: &str) -> Arrived {
    form(&format!("{PUBLIC}|{}", mac(payload)), payload)
}

fn check(arrived: &Arrived, expected: &str) {
    let (scheme, keys) = ours();
    assert_eq!(
        arrived.verdict(&scheme, &keys),
        expected,
        "{}",
        String::from_utf8_lossy(&arrived.body)
    );
}

/// As Ruby encodes it: 60 characters a line, each line ended.
fn payload(xml: &str) -> String {
    let text = base64(xml.as_bytes());
    text.as_bytes().chunks(60).map(|line| format!("{}\n", str::from_utf8(line).unwrap())).collect()
}

#[test]
fn the_payload_is_signed_with_the_digest_of_the_private_key() {
    let payload = payload(XML);
    check(&signed(&payload), "ok");
    let bare = payload.trim_end();
    // signed with the line break that was lost on the way, and the other way round
    check(&form(&format!("{PUBLIC}|{}", mac(&payload)), bare), "ok");
    check(&form(&format!("{PUBLIC}|{}", mac(bare)), &payload), "ok");
    let undigested = hex::encode(hmac_sha1(PRIVATE.as_bytes(), payload.as_bytes()));
    check(&form(&format!("{PUBLIC}|{undigested}"), &payload), NO);
}

#[test]
fn only_the_signature_beside_the_own_public_key_counts() {
    let payload = payload(XML);
    let (good, bad) = (mac(&payload), mac("x"));
    check(&form(&format!("other|{bad}&{PUBLIC}|{good}"), &payload), "ok");
    check(&form(&format!("other|{good}"), &payload), NO);
    check(&form(&format!("other|{good}&{PUBLIC}|{bad}"), &payload), NO);
    check(
        &form(&format!("{PUBLIC}|{}", good.to_uppercase()), &payload),
        "malformed: signature_malformed",
    );
    for odd in [PUBLIC, "|", &good, &format!("{PUBLIC}|{good}00"), &format!("{PUBLIC}|")] {
        check(&form(odd, &payload), "malformed: signature_malformed");
    }
    check(&form("", &payload), "malformed: signature_missing");
    check(&Arrived::new("bt_payload=x"), "malformed: signature_missing");
    check(&Arrived::new(format!("bt_signature={PUBLIC}|{good}")), "malformed: body_value_missing");
    let twice = Arrived::new([signed(&payload).body, b"&bt_payload=x".to_vec()].concat());
    check(&twice, "malformed: signature_malformed");
    let many = format!("other|{bad}&").repeat(33);
    check(&form(&many, &payload), "malformed: signatures_too_many");
}

#[test]
fn a_secret_without_its_public_key_matches_nothing() {
    let scheme = scheme(r#"verifier = "braintree""#);
    if let Ok(bare) = Key::parse(&scheme, "a", &signing::Secret::new(PRIVATE)) {
        assert_eq!(signed(&payload(XML)).verdict(&scheme, &[bare]), NO);
    }
}

#[test]
fn the_identity_stands_in_the_payload() {
    let (scheme, keys) = ours();
    let read = |arrived: &Arrived| arrived.read(&scheme, &keys, 0).unwrap();
    let payload = payload(XML);
    let (_, identity, hash) = read(&signed(&payload));
    assert_eq!(identity.event_type.as_deref(), Some("subscription_canceled"));
    assert_eq!(identity.occurred_at.unwrap().to_string(), "2026-01-01T00:00:00Z");
    assert_eq!(identity.id.as_deref(), Some(hex::encode(hash).as_str()));
    assert!(identity.id_is_signed);
    // whatever can be varied without a new signature gives the same id
    let good = format!("{PUBLIC}|{}", mac(&payload));
    for varied in [
        form(&format!("x|{}&{good}", mac("x")), &payload),
        form(&good, payload.trim_end()),
        Arrived::new([signed(&payload).body, b"&x=1".to_vec()].concat()),
    ] {
        assert_eq!(read(&varied).1.id, identity.id);
    }
}

#[test]
fn a_payload_that_is_no_notification_is_refused_however_well_signed() {
    let no = "malformed: body_value_missing";
    let deep = |depth| {
        format!(
            "<notification><kind>k</kind>{}{}</notification>",
            "<a>".repeat(depth),
            "</a>".repeat(depth)
        )
    };
    check(&signed(&payload(&deep(60))), "ok");
    for xml in [
        "",
        "text",
        "<other><kind>k</kind></other>",
        "<notification></notification>",
        "<notification><kind></kind></notification>",
        "<notification><a><kind>k</kind></a></notification>",
        "<notification><kind>k</kind><kind>l</kind></notification>",
        "<notification><kind>k</kind>",
        "<notification><kind>k</a></notification>",
        "<!DOCTYPE x [<!ENTITY a \"b\">]><notification><kind>&a;</kind></notification>",
        "<notification><kind>&a;</kind></notification>",
        &format!("<notification><kind>{}</kind></notification>", "k".repeat(300)),
        &deep(100_000),
    ] {
        check(&signed(&payload(xml)), no);
    }
    check(&signed("not base64!"), no);
    check(&signed(&base64(b"<notification><kind>\xff</kind></notification>")), no);
}

/// A challenge is answered with the same key, so no answer may serve as a signature.
#[test]
fn an_answered_challenge_is_no_notification() {
    let challenge = "20f9f8ed05f77439fe955c977e4c8a53";
    check(&signed(challenge), "malformed: body_value_missing");
}

proptest! {
    #[test]
    fn no_single_bit_of_the_payload_can_change(bit in 0_usize..10_000) {
        let payload = payload(XML);
        let changed = flipped(payload.trim_end().as_bytes(), bit);
        let escaped: String = changed.iter().map(|byte| format!("%{byte:02x}")).collect();
        let signature = escape(&format!("{PUBLIC}|{}", mac(&payload)));
        let arrived = Arrived::new(format!("bt_signature={signature}&bt_payload={escaped}"));
        let (scheme, keys) = ours();
        prop_assert_ne!(arrived.verdict(&scheme, &keys), "ok");
    }
}
