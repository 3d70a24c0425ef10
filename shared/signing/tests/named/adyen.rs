//! Adyen.

use proptest::prelude::*;
use signing::{Key, Scheme};

use crate::provider::{Arrived, base64, flipped, hmac_sha256, key, scheme};

const SECRET: &str = "44782DEF547AAA06C910C43932B1EB0C71FC68D9D0C057550C48EC2ACF6BA056";
const NO: &str = "bad_signature: signature_mismatch";

fn ours(config: &str) -> (Scheme, [Key; 1]) {
    let scheme = scheme(&format!(
        "verifier = \"adyen\"\nkey.encoding = \"hex\"\nconfig = {{ {config} }}\nbody_unsigned = true"
    ));
    let keys = [key(&scheme, "a", SECRET)];
    (scheme, keys)
}

fn mac(message: &str) -> String {
    base64(&hmac_sha256(&hex::decode(SECRET).unwrap(), message.as_bytes()))
}

/// An item with its eight fields, signed as `signed` says.
fn item_signed(fields: [&str; 8], signed: &str) -> String {
    let [psp, original, account, reference, value, currency, code, success] = fields;
    let item = serde_json::json!({
        "pspReference": psp, "originalReference": original, "merchantAccountCode": account,
        "merchantReference": reference, "amount": { "value": 7, "currency": currency }, "eventCode": code,
        "success": success, "additionalData": { "hmacSignature": mac(signed) },
    });
    let item = serde_json::json!({ "NotificationRequestItem": item }).to_string();
    item.replace("\"value\":7", &format!("\"value\":{value}"))
}

fn item(fields: [&str; 8]) -> String {
    item_signed(fields, &fields.join(":"))
}

fn request(items: &[String]) -> Arrived {
    Arrived::new(format!(r#"{{"live":"false","notificationItems":[{}]}}"#, items.join(",")))
}

const ONE: [&str; 8] = ["79140", "", "Fake", "Test-1", "1130", "EUR", "AUTHORISATION", "true"];
const TWO: [&str; 8] = ["79141", "79140", "Fake", "Test-1", "1130", "EUR", "REFUND", "true"];

fn check(arrived: &Arrived, expected: &str) {
    let (scheme, keys) = ours("");
    assert_eq!(arrived.verdict(&scheme, &keys), expected, "{arrived:?}");
}

#[test]
fn every_item_must_be_right() {
    check(&request(&[item(ONE)]), "ok");
    check(&request(&[item(ONE), item(TWO)]), "ok");
    let wrong = item_signed(TWO, "something else");
    check(&request(&[item(ONE), wrong.clone()]), NO);
    check(&request(&[wrong, item(ONE)]), NO);
    check(&request(&[]), "malformed: body_value_missing");
}

#[test]
fn one_key_makes_all_items_or_none() {
    let (scheme, [first]) = ours("");
    let other = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    let second = key(&scheme, "b", other);
    let theirs = base64(&hmac_sha256(&hex::decode(other).unwrap(), TWO.join(":").as_bytes()));
    let mixed = request(&[item(ONE), item(TWO).replace(&mac(&TWO.join(":")), &theirs)]);
    assert_eq!(mixed.verdict(&scheme, &[first.clone(), second.clone()]), NO);
    let one = request(&[item(ONE)]).read(&scheme, &[second, first], 0).unwrap();
    assert_eq!(one.0, "a");
}

#[test]
fn each_signed_field_counts_and_nothing_else_does() {
    let good = item(ONE);
    for (from, to) in [
        ("79140", "79142"),
        (r#""originalReference":"""#, r#""originalReference":"x""#),
        ("Fake", "Fakf"),
        ("Test-1", "Test-2"),
        ("1130", "1131"),
        ("EUR", "USD"),
        ("AUTHORISATION", "CAPTURE"),
        (r#""true""#, r#""false""#),
    ] {
        assert!(good.contains(from), "{from}");
        check(&request(&[good.replace(from, to)]), NO);
    }
    let more = good.replacen("{\"additionalData\"", r#"{"reason":"text","additionalData""#, 1);
    assert_ne!(more, good);
    check(&request(&[more]), "ok");
}

/// Nothing escapes the separator, so only the one free field may contain it: the same text must not fit other fields.
#[test]
fn a_separator_cannot_move_from_one_field_to_another() {
    let mut free = ONE;
    free[3] = "a:b\\c";
    check(&request(&[item(free)]), "ok");
    let signed = free.join(":");
    let mut moved = free;
    (moved[2], moved[3]) = ("Fake:a", "b\\c");
    check(&request(&[item_signed(moved, &signed)]), "malformed: body_value_missing");
    (moved[1], moved[2], moved[3]) = (":Fake", "a", "b\\c");
    check(&request(&[item_signed(moved, &signed)]), "malformed: body_value_missing");
}

#[test]
fn what_can_be_read_in_two_ways_is_refused() {
    let good = item(ONE);
    let value = "malformed: body_value_missing";
    check(&request(&[good.replace("\"amount\"", "\"pspReference\":\"1\",\"amount\"")]), value);
    check(&request(&[good.replace("1130", "1.13e3")]), value);
    check(&request(&[good.replace("1130", "\"11:30\"")]), value);
    check(&request(&[good.replace(r#""true""#, "1")]), value);
    check(&request(&[good.replace("\"79140\"", "\"\"")]), value);
    check(&request(&[good.replace("\"79140\"", "7")]), value);
    check(&request(&[r#"{"NotificationRequestItem":["79140","","Fake","Test-1",[1130,"EUR"],"AUTHORISATION",true]}"#.into()]), value);
    check(&request(&[good.replace("hmacSignature", "hmac")]), "malformed: signature_missing");
    check(&request(&[good.replace(&mac(&ONE.join(":")), "%%%")]), "malformed: signature_malformed");
    check(&Arrived::new("live=false"), "malformed: body_not_json");
    check(&Arrived::new(""), "malformed: body_not_json");
    check(&Arrived::new("[]"), value);
    check(&Arrived::new(r#"{"notificationItems":{}}"#), value);
    let many = vec!["0".to_owned(); 1_001];
    check(&request(&many), "malformed: signatures_too_many");
}

#[test]
fn an_item_names_its_event_and_several_do_not_name_the_request() {
    let (scheme, keys) = ours("");
    let identity = |items: &[String]| request(items).read(&scheme, &keys, 0).unwrap().1;
    let one = identity(&[item(TWO)]);
    assert_eq!(one.id.as_deref(), Some("79141:REFUND:true"));
    assert_eq!(one.event_type.as_deref(), Some("REFUND"));
    assert_eq!(
        (one.object_type.as_deref(), one.object_id.as_deref()),
        (Some("payment"), Some("79140"))
    );
    assert_eq!(identity(&[item(ONE)]).object_id.as_deref(), Some("79140"));
    let both = identity(&[item(ONE), item(TWO)]);
    assert_eq!((both.id, both.event_type.as_deref()), (None, Some("AUTHORISATION")));
}

fn platform(body: &str) -> Arrived {
    Arrived::new(body).with("hmacsignature", mac(body)).with("protocol", "HmacSHA256")
}

#[test]
fn a_header_signs_the_whole_body() {
    let body = r#"{"type":"balancePlatform.transfer.updated"}"#;
    let good = platform(body);
    check(&good, "ok");
    check(&Arrived { body: format!("{body}\n").into_bytes(), ..good.clone() }, NO);
    check(&good.clone().but("hmacsignature", hex::encode([1; 32])), NO);
    check(&good.clone().but("hmacsignature", "%%%"), "malformed: signature_malformed");
    check(&good.clone().but("protocol", "HmacSHA1"), "malformed: header_unexpected");
    check(&good.clone().with("hmacsignature", mac("x")), "malformed: header_repeated");
    check(&good.without("hmacsignature"), "malformed: body_value_missing");
}

/// One key signs fields and bodies; neither may stand for the other.
#[test]
fn fields_are_never_taken_for_a_body_nor_a_body_for_fields() {
    check(&platform(&ONE.join(":")), "malformed: body_not_json");
    check(&request(&[item(ONE)]).with("hmacsignature", mac("x")), NO);
    let kind = |config: &str, arrived: &Arrived| {
        let (scheme, keys) = ours(config);
        arrived.verdict(&scheme, &keys)
    };
    let (payments, platform) = (request(&[item(ONE)]), platform(r#"{"type":"x"}"#));
    assert_eq!(kind("kind = \"payments\"", &payments), "ok");
    assert_eq!(kind("kind = \"platform\"", &platform), "ok");
    assert_eq!(kind("kind = \"platform\"", &payments), "malformed: signature_missing");
    assert_eq!(kind("kind = \"payments\"", &platform), "malformed: header_unexpected");
    assert_eq!(kind("kind = \"other\"", &payments), "malformed: not_configured");
}

proptest! {
    #[test]
    fn no_single_bit_of_a_signed_field_can_change(bit in 0_usize..10_000) {
        let body = request(&[item(ONE)]).body;
        let changed = Arrived::new(flipped(&body, bit));
        let (scheme, keys) = ours("");
        // a bit in what is not signed may change; then the signed fields still are the ones that were signed
        if let Ok((_, identity, hash)) = changed.read(&scheme, &keys, 0) {
            let (_, original, expected) = request(&[item(ONE)]).read(&scheme, &keys, 0).unwrap();
            prop_assert_eq!((identity.id, hash), (original.id, expected));
        }
    }
}
