//! What went wrong for other people, by the id of the case. The fixtures are those of the collection: fixed bytes, fixed
//! secrets, and signatures that were computed there.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "test code"
)]

mod sides;

use http::{HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;
use sides::{SUBJECTS, Subject};
use signing::scheme::Algorithm;
use signing::sign::{Outgoing, sign_as};
use signing::{
    Class, EndpointSecret, Key, KeyError, Reason, Rejected, Request, Scheme, Secret, SigningKey,
    verify,
};

const T0: i64 = 1_760_000_000;
const S1: &str = "whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=";
const S2: &str = "whsec_ISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+P0A=";
const TEXT1: &str = "field-secret-1";
const TEXT2: &str = "field-secret-2";
const ID: &str = "msg_fieldcase0001";

const B_ASCII: &[u8] = br#"{"type":"invoice.paid","data":{"id":"in_1","amount":1999}}"#;
const B_BAD: &[u8] = b"{\"type\":\"file.added\",\"data\":\"\xff\xfe\x00\x80\"}";
const B_BOM: &[u8] = b"\xef\xbb\xbf{\"type\":\"invoice.paid\"}";
const B_ESC: &[u8] =
    b"{\"a\":\"\\/x\\u0026\\u001B[34m\",\"b\":\"\\u00e9\",\"n\":9007199254740993,\"f\":1.0,\"f\":2.50}\n";

const ASCII_SW: &str = "v1,GaQ9fNz1yk2ka7VgDgdTVtUYPXWH83tXzfuJoMcIY/s=";
const ASCII_SW_S2: &str = "v1,lYx3BbHYv8yg+xVwQ2KNtCLvAKZbmVNNi1AVFI9vCxA=";
const ASCII_T: &str = "6363091da4024213079e69729c1bedb0ee32c57e1419fe36b0490a6663156215";
const ASCII_T_TEXT2: &str = "a1f20b33d8103439bbb8a26b3140b806f53cff1f872db64868d4718769042aec";
const ASCII_T_DAY_OLD: &str = "67542a0cbe643a4ab4f61a747c03709acfcedd700b50cd2a4176ed524ae78bfc";
const ASCII_SHA256: &str = "01e7a03664a15b148aeeab9b646286f16be3f6137a022931e91cce704c54b2da";

type Headers = Vec<(&'static str, String)>;

fn preset(name: &str) -> Scheme {
    Scheme::preset(name).unwrap()
}

fn headers(pairs: &[(&str, String)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    headers
}

/// The id and type of an accepted request, or why it was refused.
fn judge(
    scheme: &Scheme,
    secrets: &[&str],
    pairs: &[(&str, String)],
    body: &[u8],
) -> Result<Option<String>, Rejected> {
    let keys: Vec<Key> = secrets
        .iter()
        .map(|text| Key::parse(scheme, *text, &Secret::new(*text)).unwrap())
        .collect();
    let headers = headers(pairs);
    let request = Request {
        method: "POST",
        url: "https://hooks.example/in",
        headers: &headers,
        body,
        path_secret: None,
    };
    let now = Timestamp::from_second(T0).unwrap();
    verify(scheme, &keys, &request, now).map(|verified| verified.into_identity().id)
}

fn code(result: &Result<Option<String>, Rejected>) -> &'static str {
    result.as_ref().map_or_else(|rejected| rejected.reason().code(), |_| "accepted")
}

fn sw(id: &str, time: &str, signature: &str) -> Headers {
    vec![
        ("webhook-id", id.into()),
        ("webhook-timestamp", time.into()),
        ("webhook-signature", signature.into()),
    ]
}

fn judge_sw(
    id: &str,
    time: &str,
    signature: &str,
    body: &[u8],
) -> Result<Option<String>, Rejected> {
    judge(&preset("standard_webhooks"), &[S1], &sw(id, time, signature), body)
}

fn judge_stripe(signature: &str, body: &[u8]) -> Result<Option<String>, Rejected> {
    judge(&preset("stripe"), &[TEXT1], &[("stripe-signature", signature.into())], body)
}

fn judge_github(signature: &str, body: &[u8]) -> Result<Option<String>, Rejected> {
    judge(&preset("github"), &[TEXT1], &[("x-hub-signature-256", signature.into())], body)
}

fn outgoing(body: &[u8]) -> Outgoing<'_> {
    Outgoing {
        method: "POST",
        url: "https://hooks.example/in",
        headers: HeaderMap::new(),
        id: Some(ID),
        event_type: Some("invoice.paid"),
        body,
    }
}

/// VFY-missing-header
#[test]
fn a_request_without_its_signature_is_refused_by_every_scheme() {
    for Subject { name, scheme } in SUBJECTS.iter() {
        let body = br#"{"id":"evt_1","webhookTimestamp":1760000000000}"#;
        let (key, signing_key) = sides::keys(scheme, [7; 32]);
        let outgoing = sides::outgoing(scheme, ID, "invoice.paid", body);
        let now = Timestamp::from_second(T0).unwrap();
        let signed = sign_as(scheme, &signing_key, &outgoing, now).unwrap();
        let judge = |headers: &HeaderMap| {
            let request =
                Request { method: "POST", url: outgoing.url, headers, body, path_secret: None };
            verify(scheme, std::slice::from_ref(&key), &request, now).map(|_| ())
        };
        judge(&signed).unwrap_or_else(|rejected| panic!("{name}: {rejected}"));

        let places = sides::signature_headers(scheme);
        let place = places.iter().find(|place| signed.contains_key(*place)).unwrap();
        let without = |value: Option<&'static str>| {
            let mut headers = signed.clone();
            headers.remove(place);
            if let Some(value) = value {
                headers.insert(place, HeaderValue::from_static(value));
            }
            headers
        };
        let mut misspelt = without(None);
        misspelt.insert("x-signatur", signed.get(place).unwrap().clone());
        for (what, headers) in [
            ("no header", without(None)),
            ("empty", without(Some(""))),
            ("blank", without(Some("  "))),
            ("null", without(Some("null"))),
            ("misspelt", misspelt),
        ] {
            let class = judge(&headers).unwrap_err().class();
            // `null` is as good a token as any that is wrong
            let is_wrong = what == "null" && scheme.algorithm() == Some(Algorithm::Token);
            let expected =
                if is_wrong && class == Class::BadSignature { class } else { Class::Malformed };
            assert_eq!(class, expected, "{name}, {what}");
        }
    }
}

/// VFY-timestamp-garbage. Digits without end are "stale" (the provider's own libraries say so), everything that is not
/// digits is malformed; a time of 13 digits is most often milliseconds, which the reason says.
#[test]
fn a_timestamp_is_digits_whatever_was_signed() {
    let check = |time: &str, signature: &str, expected: &str| {
        let result = judge_sw(ID, time, &format!("v1,{signature}"), B_ASCII);
        assert_eq!(code(&result), expected, "{time}");
    };
    check("1760000000", &ASCII_SW["v1,".len()..], "accepted");
    check("1760000000.0", "kZo6MQj40qwJrpMAt12dVRa2dFFlfYP0QKpDgLyD5v8=", "timestamp_malformed");
    check("1.76e9", "D03KBaPLi0nlbQRodj9NSwoMJ9FSMNECHcah8chI+ss=", "timestamp_malformed");
    check("+1760000000", "rDlYKlCO/0bUTIFDk3tKc7SAm5jlCHILMg27cL9mQjE=", "timestamp_malformed");
    check(" 1760000000", "BWwdbgO5gD3eT/9nVWm2BBFAVpdJKekIrSCCNTOmF7E=", "timestamp_malformed");
    check("1760000000 ", "9LynMxvBCSbgRdbJinb0G1C4K/wkoiHgyxBe7P8Rxrg=", "timestamp_malformed");
    check(
        "1760000000000",
        "N5AkDoxgeP2DVJVRI0EEtE+FnTRZUAjorMTGhYKKWIM=",
        "timestamp_out_of_range",
    );
    check("-1760000000", "U8xwZPTmJR2x6/M9PJr8L4gWlkQVM3NAgL3paHgUfTw=", "timestamp_malformed");
    check("0", "yW7lplOpd/xWhu0mbcXcjIbKyCN5O0e0Jx0GbuoYwQM=", "timestamp_too_old");
    check("NaN", "KuVNMS0eyPTaFV7JhWguAukeRnlDKnOQO/xHnL1ef8g=", "timestamp_malformed");
    check("Infinity", "tkA+WWd/iLtWj1bWdVkFMiFBzk0s8Vha2ClatMXTgZo=", "timestamp_malformed");
    check("", "7l2wDy2B7J5dyfamA5XS41hC0hRAylETn5xU1vKZQ/Q=", "timestamp_malformed");
    check("0x68e77500", "+HwBnF8w/Bvfc6Inl3T99Cz4A5j26fR47FNZsz0p83k=", "timestamp_malformed");
    check(
        "9223372036854775807",
        "84wfp+vDqvtnX5W0HR00Mdr2IDaW4XhJrU54G/Th5d0=",
        "timestamp_out_of_range",
    );
    check(
        "9223372036854775808",
        "5/96RWvqCtoq+Ybw6fei/PaGORxyNyGHClUlyrvvVV4=",
        "timestamp_out_of_range",
    );
    check(
        "18446744073709551616",
        "XkUvcXdQPqRfk28BOFS6XUL6UB2qFm7G6trQ1uBPOqo=",
        "timestamp_out_of_range",
    );
    check("1_760_000_000", "4OkBkY9HA5dlCLiwK638Lz7DXYVjOZgJWo0PMDEJgNA=", "timestamp_malformed");
    check("١٧٦٠٠٠٠٠٠٠", "b/9ugWx4MFNYm7AlNVkm3MeMWKiXun/k65eDMupzado=", "timestamp_malformed");
    check("1760000000abc", "2vPX0/0haO/hiMcPLgOjRis3pZLGNswr2EI5h+uaqOE=", "timestamp_malformed");
}

/// VFY-base64-flag: an empty body is a message of no bytes.
#[test]
fn an_empty_body_can_be_signed() {
    let result = judge_sw(ID, "1760000000", "v1,ui7QLQG/1VFfgmK4lmq3LCY7YAMD5xeEZkfrXT3/gug=", b"");
    assert_eq!(result, Ok(Some(ID.into())));
}

/// VFY-lenient-base64-secret, and VFY-secret-prefix-mixups: no message may repeat a part of the secret.
#[test]
fn a_badly_copied_secret_is_refused_and_the_message_says_how_without_showing_it() {
    let scheme = preset("standard_webhooks");
    let check = |text: &str, expected: KeyError| {
        let error = Key::parse(&scheme, "k", &Secret::new(text)).unwrap_err();
        assert_eq!(error, expected, "{text:?}");
        let message = error.to_string();
        let value = text
            .trim_matches(['"', ' ', '\n'])
            .trim_start_matches("v1,")
            .trim_start_matches("whsec_");
        assert!(value.len() < 3 || !message.contains(value), "{message}");
    };
    check("", KeyError::Empty);
    check("  \n", KeyError::Empty);
    check("whsec_", KeyError::TooShort { bytes: 0, least: 16 });
    check("whsec_!!!!", KeyError::NotBase64);
    check("whsec_xyz!", KeyError::NotBase64);
    check("whsec_QQ==", KeyError::TooShort { bytes: 1, least: 16 });
    check("whsec_AQIDBAUGBwg=", KeyError::TooShort { bytes: 8, least: 16 });
    check("whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA", KeyError::Padding);
    check("whsec_-_IDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=", KeyError::Alphabet);
    check("whsec_AQIDBAUGBwgJCgsM\nDQ4PEBESExQVFhcYGRobHB0eHyA=", KeyError::Control);
    check("whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHw=", KeyError::Padding);

    check("v1,whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=", KeyError::SignatureLabel);
    check("whsec_whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=", KeyError::PrefixTwice);
    check("\"whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=\"", KeyError::Quoted);
    check(" whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=", KeyError::Surrounded);
    check(
        "0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20",
        KeyError::LooksLikeHex,
    );
    check("whsk_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=", KeyError::PrivateKey);
    check("whpk_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=", KeyError::PublicKey);

    let raw = S1.strip_prefix("whsec_").unwrap();
    assert!(
        Key::parse(&scheme, "k", &Secret::new(raw)).is_ok(),
        "the prefix may be missing: the key is the same"
    );

    let asymmetric = preset("standard_webhooks_v1a");
    let refused = |text: &str| Key::parse(&asymmetric, "k", &Secret::new(text)).unwrap_err();
    assert_eq!(refused(S1), KeyError::SharedSecret);
    assert_eq!(refused(EndpointSecret::pair([1; 32]).expose().expose()), KeyError::PrivateKey);
    assert_eq!(
        refused("whpk_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHw=="),
        KeyError::TooShort { bytes: 31, least: 32 }
    );
    // a point of small order verifies forged signatures
    assert_eq!(refused(&format!("whpk_AQ{}=", "A".repeat(41))), KeyError::NotAKey);
}

/// VFY-lenient-base64-secret: a source whose secret cannot be read has no key, and then nothing passes.
#[test]
fn a_forgery_with_the_empty_key_is_refused() {
    let forged = "v1,hFpG1wyTyHSmfII2Xqda9x1IIZwwX7l3XQCcENuLazQ=";
    assert_eq!(code(&judge_sw(ID, "1760000000", forged, B_ASCII)), "signature_mismatch");
    let without = judge(&preset("standard_webhooks"), &[], &sw(ID, "1760000000", forged), B_ASCII);
    assert_eq!(code(&without), "no_keys");
    let rejected = without.unwrap_err();
    assert_eq!((rejected.class(), rejected.is_refreshable()), (Class::BadSignature, true));
}

/// VFY-unsigned-freshness
#[test]
fn headers_that_are_not_signed_change_nothing_about_the_verdict() {
    let old = format!("t=1759913600,v1={ASCII_T_DAY_OLD}");
    let fresh = ("webhook-timestamp", T0.to_string());
    for extra in [
        fresh,
        ("date", "now".into()),
        ("x-hub-signature-256", "sha256=00".into()),
        ("t", T0.to_string()),
    ] {
        let result = judge(
            &preset("stripe"),
            &[TEXT1],
            &[("stripe-signature", old.clone()), extra],
            B_ASCII,
        );
        assert_eq!(code(&result), "timestamp_too_old");
    }
    let with_unsigned_time = r#"{"algorithm": "hmac-sha256", "signed": "{body}",
        "signature": {"from": "{header:x-signature}"}, "timestamp": {"from": "{header:x-time}"}}"#;
    let problems = Scheme::from_json(with_unsigned_time).unwrap_err();
    assert_eq!(problems.0.len(), 1);
    assert_eq!(problems.0[0].at, "timestamp.from");
}

/// VFY-reserialised-json
#[test]
fn the_bytes_are_signed_and_not_what_they_mean() {
    let sw = |body, signature: &str| code(&judge_sw(ID, "1760000000", signature, body));
    assert_eq!(sw(B_ESC, "v1,rRD7+UNjyO9rtLy4IvsDzFCJJz2Gz62GS+Enheizziw="), "accepted");
    assert_eq!(sw(B_BOM, "v1,uR2WYBrc64JARBhtOeteF2bLXvL3rQKJual9GRpFsN0="), "accepted");
    let stripe =
        |body, signature: &str| code(&judge_stripe(&format!("t=1760000000,v1={signature}"), body));
    assert_eq!(
        stripe(B_ESC, "dfb723e4b5d46b034d208bbc48798c01f08c1f0e8be885adf058ed5b9da9bdd4"),
        "accepted"
    );
    assert_eq!(
        stripe(B_BOM, "34edcb154e5c5c8acf272d86d9e2d1bef565d3cb85e226da1c44a2dfc1caf31c"),
        "accepted"
    );
    let github = |body, signature: &str| code(&judge_github(&format!("sha256={signature}"), body));
    assert_eq!(
        github(B_ESC, "0bc6048e0313896f50fd38ee597e5966b0425ac4b300fd5aa30d8265709bbd9e"),
        "accepted"
    );
    assert_eq!(
        github(B_BOM, "9b83045ba6fa8914836ad472a8802d567e33e8e97a7df210f3135bacb6394d6b"),
        "accepted"
    );
}

/// VFY-tolerance-zero
#[test]
fn no_configuration_switches_the_freshness_check_off() {
    let with = |tolerance: &str| {
        Scheme::from_json(&format!(
            r#"{{"like": "stripe", "timestamp": {{"tolerance": {tolerance}}}}}"#
        ))
    };
    for refused in
        ["0", "-1", "\"NaN\"", "\"\"", "4", "3601", "999999999", "1e400", "300.5", "true", "[300]"]
    {
        let problems = match with(refused) {
            Err(problems) => problems,
            Ok(_) => panic!("{refused} was accepted"),
        };
        assert_eq!(problems.0.len(), 1, "{refused}: {problems}");
    }
    let old = format!("t=1759913600,v1={ASCII_T_DAY_OLD}");
    for (accepted, seconds) in [("null", 300), ("5", 5), ("300", 300), ("3600", 3600)] {
        let scheme = with(accepted).unwrap();
        assert_eq!(scheme.tolerance_seconds(), Some(seconds), "{accepted}");
        let result = judge(&scheme, &[TEXT1], &[("stripe-signature", old.clone())], B_ASCII);
        assert_eq!(code(&result), "timestamp_too_old", "{accepted}");
    }
    let toml = "like = \"stripe\"\n[timestamp]\ntolerance = nan";
    assert!(Scheme::from_toml(toml).map_or(true, |scheme| scheme.tolerance_seconds() == Some(300)));
}

/// VFY-duplicate-timestamp-field
#[test]
fn two_times_in_one_header_are_refused_whatever_they_say() {
    for times in [
        "t=1759913600,t=1760000000",
        "t=1760000000,t=1759913600",
        "t=1760000000,t=1760000000",
        "t=,t=1760000000",
        "t=1760000000,t=",
    ] {
        for signature in [ASCII_T, ASCII_T_DAY_OLD] {
            let result = judge_stripe(&format!("{times},v1={signature}"), B_ASCII);
            assert_eq!(code(&result), "timestamp_repeated", "{times}");
        }
    }
}

/// VFY-invalid-utf8-body
#[test]
fn a_body_that_is_no_text_verifies_and_its_lossy_twin_does_not() {
    let right = "v1,mtypAeND59qriyuJEy64I4l222UbIhhgDrVSGqiRBd8=";
    let twin = "v1,ULqQKBKdnA3dDuYv5zdzljTxNQYm5kTc99mdQWTsZ8M=";
    assert_eq!(judge_sw(ID, "1760000000", right, B_BAD), Ok(Some(ID.into())));
    assert_eq!(code(&judge_sw(ID, "1760000000", twin, B_BAD)), "signature_mismatch");
    let signature =
        "t=1760000000,v1=8addc32cdeffc58bf1b5b0ca04050a314c05222df868c6d7df0f6858d91f1aff";
    assert_eq!(
        judge_stripe(signature, B_BAD),
        Ok(None),
        "what is not JSON has no id, and is no error"
    );
}

/// VFY-duplicate-header-joined
#[test]
fn a_repeated_header_is_refused_joined_or_not() {
    let stripe = format!("t=1,v1=00,t=1760000000,v1={ASCII_T}");
    assert_eq!(code(&judge_stripe(&stripe, B_ASCII)), "timestamp_repeated");
    for joined in [
        format!("sha256=00,sha256={ASCII_SHA256}"),
        format!("sha256={ASCII_SHA256}, sha256={ASCII_SHA256}"),
    ] {
        assert_eq!(code(&judge_github(&joined, B_ASCII)), "signature_malformed");
    }
    let joined = format!("msg_a,{ID}");
    assert_eq!(code(&judge_sw(&joined, "1760000000", ASCII_SW, B_ASCII)), "header_joined");
    assert_eq!(
        code(&judge_sw(ID, "1760000000,1760000000", ASCII_SW, B_ASCII)),
        "timestamp_malformed"
    );
    let twice = format!("{ASCII_SW},{ASCII_SW}");
    assert_eq!(code(&judge_sw(ID, "1760000000", &twice, B_ASCII)), "signature_malformed");

    for repeated in 0..3 {
        let mut pairs = sw(ID, "1760000000", ASCII_SW);
        pairs.push(pairs[repeated].clone());
        let result = judge(&preset("standard_webhooks"), &[S1], &pairs, B_ASCII);
        assert_eq!(code(&result), "header_repeated");
    }
    for (name, value) in [("x-github-delivery", "a,b"), ("x-github-event", "push, push")] {
        let pairs =
            [("x-hub-signature-256", format!("sha256={ASCII_SHA256}")), (name, value.to_owned())];
        assert_eq!(code(&judge(&preset("github"), &[TEXT1], &pairs, B_ASCII)), "header_joined");
    }
}

/// VFY-malformed-pairs. Capitals are refused: no provider sends them, and its own libraries do not take them.
#[test]
fn odd_pieces_in_a_header_are_refused_and_crash_nothing() {
    let many = "v1=".repeat(3_000);
    let full = format!("t=1760000000{}", format!(",v1={}", "0".repeat(64)).repeat(17));
    for (header, expected) in [
        ("t", "signature_malformed"),
        ("v1", "signature_malformed"),
        ("=", "signature_malformed"),
        ("t=,v1=", "signature_malformed"),
        ("v1=a=b=c", "signature_malformed"),
        (",,,", "signature_malformed"),
        ("\u{ff}", "signature_malformed"),
        (many.as_str(), "signature_malformed"),
        (full.as_str(), "signatures_too_many"),
        ("", "signature_missing"),
    ] {
        assert_eq!(code(&judge_stripe(header, B_ASCII)), expected, "{header:.80}");
    }
    let mut pairs = HeaderMap::new();
    pairs.insert("stripe-signature", HeaderValue::from_bytes(b"t=\xff,v1=\xff\xfe").unwrap());
    let scheme = preset("stripe");
    let key = Key::parse(&scheme, "k", &Secret::new(TEXT1)).unwrap();
    let request =
        Request { method: "POST", url: "", headers: &pairs, body: B_ASCII, path_secret: None };
    let result = verify(&scheme, &[key], &request, Timestamp::from_second(T0).unwrap());
    assert_eq!(result.unwrap_err().reason(), &Reason::SignatureMalformed);

    let upper = format!("sha256={}", ASCII_SHA256.to_uppercase());
    for (header, expected) in [
        ("sha256", "signature_malformed"),
        ("sha256=", "signature_malformed"),
        (&format!("sha256={}", &ASCII_SHA256[..63]), "signature_malformed"),
        (&format!("sha256={ASCII_SHA256}0"), "signature_malformed"),
        (&format!("SHA256={ASCII_SHA256}"), "signature_malformed"),
        (&format!(" sha256={ASCII_SHA256}"), "signature_malformed"),
        (&upper, "signature_spelling"),
        (&format!("sha256={ASCII_SHA256}"), "accepted"),
    ] {
        assert_eq!(code(&judge_github(header, B_ASCII)), expected, "{header}");
    }
}

/// VFY-url-signed-schemes
#[test]
fn a_signed_address_counts_to_the_byte() {
    let scheme = Scheme::from_json(
        r#"{"algorithm": "hmac-sha256", "signed": "{method}\n{url}\n{config:salt}{body}", "config": {"salt": "s"},
            "signature": {"from": "{header:x-signature}"}}"#,
    )
    .unwrap();
    let secret = Secret::new("field-secret-with-enough-bytes");
    let (key, signing_key) =
        (Key::parse(&scheme, "k", &secret).unwrap(), SigningKey::parse(&scheme, &secret).unwrap());
    let url = "https://hooks.example/in/tw1?Digits=1&Msg=Couldn%27t+find";
    let outgoing = Outgoing { url, ..outgoing(B_ASCII) };
    let now = Timestamp::from_second(T0).unwrap();
    let headers = sign_as(&scheme, &signing_key, &outgoing, now).unwrap();
    let judge = |method: &str, url: &str| {
        let request = Request { method, url, headers: &headers, body: B_ASCII, path_secret: None };
        verify(&scheme, std::slice::from_ref(&key), &request, now).is_ok()
    };
    assert!(judge("POST", url));
    assert!(!judge("GET", url));
    for changed in [
        url.replace('+', "%20"),
        url.replace("/in", "/prod/in"),
        url.replace(".example", ".example:443"),
    ] {
        assert!(!judge("POST", &changed), "{changed}");
    }
}

/// VFY-diagnosis-code
#[test]
fn the_reason_is_the_strongest_true_statement() {
    let wrong = "0".repeat(64);
    let both = judge_stripe(&format!("t=1759913600,v1={wrong}"), B_ASCII).unwrap_err();
    assert_eq!(both.reason(), &Reason::SignatureMismatch { keys: 1, fresh: false });
    assert!(!both.is_refreshable());
    let signature = judge_stripe(&format!("t=1760000000,v1={wrong}"), B_ASCII).unwrap_err();
    assert_eq!(signature.reason(), &Reason::SignatureMismatch { keys: 1, fresh: true });
    assert!(signature.is_refreshable());
    let stale = judge_stripe(&format!("t=1759913600,v1={ASCII_T_DAY_OLD}"), B_ASCII).unwrap_err();
    assert_eq!(
        stale.reason(),
        &Reason::TimestampTooOld { age_seconds: 86_400, tolerance_seconds: 300 }
    );
    assert_eq!((stale.class(), stale.is_refreshable()), (Class::Stale, false));
    let malformed = judge_stripe("garbage", B_ASCII).unwrap_err();
    assert_eq!((malformed.class(), malformed.is_refreshable()), (Class::Malformed, false));
    let github = judge_github(&format!("sha256={wrong}"), B_ASCII).unwrap_err();
    assert!(github.is_refreshable(), "a scheme without a time is always fresh");
}

/// VFY-diagnosis-code: which key matched, in whatever place of the list.
#[test]
fn the_key_that_matched_is_named() {
    let check = |scheme: &str, texts: &[&str], pairs: &[(&'static str, String)], expected: &str| {
        let scheme = preset(scheme);
        let keys: Vec<Key> = texts
            .iter()
            .map(|text| Key::parse(&scheme, *text, &Secret::new(*text)).unwrap())
            .collect();
        let headers = headers(pairs);
        let request = Request {
            method: "POST",
            url: "",
            headers: &headers,
            body: B_ASCII,
            path_secret: None,
        };
        let verified =
            verify(&scheme, &keys, &request, Timestamp::from_second(T0).unwrap()).unwrap();
        assert_eq!(verified.key().as_str(), expected);
        assert_eq!(verified.body(), B_ASCII);
    };
    check("standard_webhooks", &[S1, S2], &sw(ID, "1760000000", ASCII_SW), S1);
    check("standard_webhooks", &[S1, S2], &sw(ID, "1760000000", ASCII_SW_S2), S2);
    check(
        "standard_webhooks",
        &[S2, S1],
        &sw(ID, "1760000000", &format!("{ASCII_SW_S2} {ASCII_SW}")),
        S2,
    );
    let second = format!("t=1760000000,v1={},v1={ASCII_T_TEXT2}", "0".repeat(64));
    check("stripe", &[TEXT1, TEXT2], &[("stripe-signature", second)], TEXT2);
}

/// ING-dedupe-key-unsigned-header
#[test]
fn each_preset_says_whether_its_id_is_signed() {
    for (name, signed) in [
        ("stripe", true),
        ("github", false),
        ("shopify", false),
        ("standard_webhooks", true),
        ("standard_webhooks_v1a", true),
        ("svix", true),
        ("linear", false),
    ] {
        assert_eq!(preset(name).signs_id(), signed, "{name}");
    }
}

/// ING-missing-id
#[test]
fn an_id_that_cannot_be_used_counts_as_none_and_a_strange_one_stays_whole() {
    let github = |id: &[u8]| {
        let mut pairs = headers(&[("x-hub-signature-256", format!("sha256={ASCII_SHA256}"))]);
        pairs.insert("x-github-delivery", HeaderValue::from_bytes(id).unwrap());
        let scheme = preset("github");
        let key = Key::parse(&scheme, "k", &Secret::new(TEXT1)).unwrap();
        let request =
            Request { method: "POST", url: "", headers: &pairs, body: B_ASCII, path_secret: None };
        verify(&scheme, &[key], &request, Timestamp::from_second(T0).unwrap())
            .unwrap()
            .into_identity()
            .id
    };
    for unusable in [&b""[..], b" ", b"\t", b"a\tb", b"\xff\xfe", "a\u{85}b".as_bytes()] {
        assert_eq!(github(unusable), None, "{unusable:?}");
    }
    let long = "x".repeat(5_000);
    for strange in ["a#b|c", "..", "\u{e9}", long.as_str()] {
        assert_eq!(github(strange.as_bytes()).as_deref(), Some(strange));
    }
    let without = judge_github(&format!("sha256={ASCII_SHA256}"), B_ASCII);
    assert_eq!(without, Ok(None), "no header at all");

    let stripe = |body: &str| {
        let scheme = preset("stripe");
        let secret = Secret::new(TEXT1);
        let now = Timestamp::from_second(T0).unwrap();
        let signed = Outgoing { body: body.as_bytes(), ..outgoing(b"") };
        let headers =
            sign_as(&scheme, &SigningKey::parse(&scheme, &secret).unwrap(), &signed, now).unwrap();
        let request = Request {
            method: "POST",
            url: "",
            headers: &headers,
            body: body.as_bytes(),
            path_secret: None,
        };
        let key = Key::parse(&scheme, "k", &secret).unwrap();
        verify(&scheme, &[key], &request, now).unwrap().into_identity().id
    };
    for unusable in [
        r#"{"id":""}"#,
        r#"{"id":"  "}"#,
        r#"{"id":"a\nb"}"#,
        r#"{"id":"a\u0000b"}"#,
        r#"{"id":null}"#,
        "{}",
        "",
    ] {
        assert_eq!(stripe(unusable), None, "{unusable}");
    }
    assert_eq!(
        stripe(r#"{"id":12345678901234567890123}"#).as_deref(),
        Some("12345678901234567890123")
    );
}

/// SEC-key-strength
#[test]
fn weak_secrets_are_told_apart() {
    let scheme = preset("github");
    let weak =
        |text: &str| Key::parse(&scheme, "k", &Secret::new(text)).unwrap().weakness().is_some();
    for text in ["test", "development", "Secret", "PASSWORD", "123456789012345"] {
        assert!(weak(text), "{text}");
    }
    assert!(!weak("It's a Secret to Everybody"));

    let ours = |text: &str| EndpointSecret::parse(&Secret::new(text)).map(|_| ());
    assert_eq!(ours("test"), Err(KeyError::WellKnown));
    assert_eq!(ours("development"), Err(KeyError::WellKnown));
    assert!(ours("123456789012345").is_err());
    assert_eq!(
        ours("whsec_AQIDBAUGBwgJCgsMDQ4PEA=="),
        Err(KeyError::TooShort { bytes: 16, least: 24 })
    );
    assert_eq!(
        ours(&format!("whsec_{}", "AQID".repeat(22))),
        Err(KeyError::TooLong { bytes: 66, most: 64 })
    );
    assert_eq!(ours(S1), Ok(()));
}

/// SEC-secret-in-logs
#[test]
fn nothing_that_holds_a_secret_prints_it() {
    let scheme = preset("github");
    let secret = Secret::new(TEXT1);
    let key = Key::parse(&scheme, "name", &secret).unwrap();
    let signing_key = SigningKey::parse(&scheme, &secret).unwrap();
    let printed =
        format!("{secret:?} {key:?} {signing_key:?} {:?}", EndpointSecret::shared([7; 32]));
    assert_eq!(
        printed,
        "Secret(..) Key { id: KeyId(\"name\"), .. } SigningKey(..) EndpointSecret(..)"
    );
}

/// What we send, a stranger's verifier accepts: the fixture's signatures were made elsewhere.
#[test]
fn our_signatures_are_those_of_standard_webhooks() {
    let secrets = [S1, S2].map(|text| EndpointSecret::parse(&Secret::new(text)).unwrap());
    let now = Timestamp::from_second(T0).unwrap();
    let value = signing::sign::header_value(&secrets, ID, now, B_ASCII);
    assert_eq!(value, format!("{ASCII_SW} {ASCII_SW_S2}"));
    assert_eq!(secrets[0].expose().expose(), S1);
    assert_eq!(
        EndpointSecret::shared(std::array::from_fn(|i| u8::try_from(i + 1).unwrap()))
            .expose()
            .expose(),
        S1
    );
    assert_eq!(signing::sign::header_value(&[], ID, now, B_ASCII), "");
}

#[test]
fn a_key_pair_survives_its_text_and_its_halves_belong_together() {
    let pair = EndpointSecret::pair([9; 32]);
    let again = EndpointSecret::parse(&pair.expose()).unwrap();
    assert_eq!(pair.public_key(), again.public_key());
    assert!(pair.public_key().unwrap().starts_with("whpk_"));

    let now = Timestamp::from_second(T0).unwrap();
    let value = signing::sign::header_value(
        &[pair.clone(), EndpointSecret::shared([1; 32])],
        ID,
        now,
        B_ASCII,
    );
    let (first, second) = value.split_once(' ').unwrap();
    assert!(first.starts_with("v1a,") && second.starts_with("v1,"));
    let scheme = preset("standard_webhooks_v1a");
    let public = pair.public_key().unwrap();
    assert_eq!(
        judge(&scheme, &[&public], &sw(ID, "1760000000", &value), B_ASCII),
        Ok(Some(ID.into()))
    );

    let other = EndpointSecret::pair([8; 32]).public_key().unwrap();
    assert_eq!(
        code(&judge(&scheme, &[&other], &sw(ID, "1760000000", &value), B_ASCII)),
        "signature_mismatch"
    );
}
