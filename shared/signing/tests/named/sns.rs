//! Amazon SNS.

use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::{Value, json};
use signing::{Key, Scheme};

use crate::provider::{Arrived, NOW, RSA, base64, cases, certificate, rsa_sha256, scheme};

const NO: &str = "bad_signature: signature_mismatch";
const VALUE: &str = "malformed: body_value_missing";
const MALFORMED: &str = "malformed: signature_malformed";
const URL: &str = "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-fake0001.pem";
const TOPIC: &str = "arn:aws:sns:us-east-1:123456789012:FakeTopic";
/// Made once with the key in `keys/` over the members of [`notification`]: `ring` makes no signatures with SHA-1.
const SHA_1: &str = "TmvE2k+10x6bC0VKS/GoQEz+Qgl4CeAPPoI38ngFQcgVEzhXwNr3jT8KyXLpvaOY6gCVCsRf0/i99KFaiodhoHKWjSedkQLIbnZfZs7BGnz2XRe3B49xtuIsqH+2396M1b3aPrhlT8cwVl+K0jDDNxFWFvv3Eltl6DkeVuDNohesym4xmpyYO0zu2Gcuc9QVI0R5OGy5HGIyj8RlJ43IVlmb7jNGunx7WmPpRljWp8S3UGqvQjeZ7PgDyqkZdoHTB4Kpoe49hvEujpcHdz3/LamSZvDiRMGWvk+He4n5aKhbKkRS1a8rR97p+lpDK/teGxGGVrpDI51qanV5+RrJXg==";

/// Of our topic.
fn ours(config: &str) -> Scheme {
    of(&format!("topic_arn = \"{TOPIC}\", {config}"))
}

fn of(config: &str) -> Scheme {
    scheme(&format!(
        "verifier = \"sns\"\nconfig = {{ {config} }}\n[identity]\nid = \"{{json:/MessageId}}\"\ntype = \"{{json:/Type}}\""
    ))
}

fn keys(scheme: &Scheme) -> [Key; 1] {
    static PEM: LazyLock<String> = LazyLock::new(|| certificate(RSA, 2027..2126));
    [Key::published(scheme, URL, &PEM).unwrap()]
}

fn notification() -> Value {
    json!({
        "Type": "Notification", "MessageId": "22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324", "TopicArn": TOPIC,
        "Subject": "My First Message", "Message": "Hello world!", "Timestamp": "2026-01-01T00:00:00.000Z",
        "SignatureVersion": "2", "SigningCertURL": URL, "UnsubscribeURL": "https://sns.us-east-1.amazonaws.com/?x",
    })
}

fn confirmation() -> Value {
    json!({
        "Type": "SubscriptionConfirmation", "MessageId": "165545c9-2a5c-472c-8df2-7ff2be2b3b1b", "TopicArn": TOPIC,
        "Token": "2336412f37fake", "Message": "You have chosen to subscribe",
        "SubscribeURL": "https://sns.us-east-1.amazonaws.com/?Action=ConfirmSubscription&TopicArn=fake&Token=fake",
        "Timestamp": "2026-01-01T00:00:00.000Z", "SignatureVersion": "2", "SigningCertURL": URL,
    })
}

/// The members in the order that Amazon documents, those that are there.
fn text(message: &Value) -> String {
    let names: &[&str] = match message["Type"].as_str() {
        Some("Notification") => {
            &["Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"]
        }
        _ => &["Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"],
    };
    let pairs = names.iter().filter_map(|name| Some((name, message[name].as_str()?)));
    pairs.map(|(name, value)| format!("{name}\n{value}\n")).collect()
}

fn signed(mut message: Value) -> Value {
    message["Signature"] = base64(&rsa_sha256(text(&message).as_bytes())).into();
    message
}

fn arrived(message: &Value) -> Arrived {
    Arrived::new(message.to_string()).with("content-type", "text/plain; charset=UTF-8")
}

fn check(message: &Value, expected: &str) {
    let scheme = ours("");
    assert_eq!(arrived(message).verdict(&scheme, &keys(&scheme)), expected, "{message}");
}

fn but(mut message: Value, name: &str, value: impl Into<Value>) -> Value {
    message[name] = value.into();
    message
}

fn without(mut message: Value, name: &str) -> Value {
    message.as_object_mut().unwrap().remove(name);
    message
}

#[test]
fn the_members_of_each_kind_of_message_are_signed() {
    check(&signed(notification()), "ok");
    check(&signed(without(notification(), "Subject")), "ok");
    check(&signed(but(notification(), "Message", "é\n東京\n{\"a\":1}\n")), "ok");
    check(&signed(confirmation()), "ok");
    check(&signed(but(confirmation(), "Type", "UnsubscribeConfirmation")), "ok");
    check(&without(signed(notification()), "Subject"), NO);
    check(&but(signed(without(notification(), "Subject")), "Subject", ""), NO);
    for name in ["Message", "MessageId", "Subject", "Timestamp"] {
        check(&but(signed(notification()), name, "other"), NO);
    }
    for name in ["Message", "MessageId", "SubscribeURL", "Timestamp", "Token"] {
        check(&but(signed(confirmation()), name, "other"), NO);
    }
    check(&but(signed(confirmation()), "Type", "UnsubscribeConfirmation"), NO);
    check(&but(signed(notification()), "UnsubscribeURL", "https://evil.example.test/"), "ok");
}

#[test]
fn both_versions_of_the_signature_are_known_and_one_can_be_demanded() {
    let two = signed(notification());
    let one = but(but(notification(), "SignatureVersion", "1"), "Signature", SHA_1);
    check(&one, "ok");
    check(&but(two.clone(), "SignatureVersion", "1"), NO);
    check(&but(one.clone(), "SignatureVersion", "2"), NO);
    for other in ["0", "3", "", "1 ", "2.0"] {
        check(&but(two.clone(), "SignatureVersion", other), MALFORMED);
    }
    let strict = ours("signature_version = \"2\"");
    assert_eq!(arrived(&one).verdict(&strict, &keys(&strict)), MALFORMED);
    assert_eq!(arrived(&two).verdict(&strict, &keys(&strict)), "ok");
}

/// Amazon signs for everybody: without this anyone with an account could send.
#[test]
fn a_stranger_s_topic_is_refused_however_well_signed() {
    let scheme = ours("");
    let verdict = |message: &Value| arrived(message).verdict(&scheme, &keys(&scheme));
    assert_eq!(verdict(&signed(notification())), "ok");
    for topic in ["arn:aws:sns:us-east-1:999999999999:FakeTopic", &TOPIC.to_lowercase(), ""] {
        assert_eq!(
            verdict(&signed(but(notification(), "TopicArn", topic))),
            "bad_signature: not_ours"
        );
        assert_eq!(
            verdict(&signed(but(confirmation(), "TopicArn", topic))),
            "bad_signature: not_ours"
        );
    }
    // nor can it be called ours afterwards
    let theirs = but(notification(), "TopicArn", "arn:aws:sns:us-east-1:999999999999:FakeTopic");
    assert_eq!(verdict(&but(signed(theirs), "TopicArn", TOPIC)), NO);
    // and makes nobody fetch a certificate
    let stranger =
        signed(but(notification(), "TopicArn", "arn:aws:sns:us-east-1:999999999999:FakeTopic"));
    let rejected = arrived(&stranger).read(&scheme, &[], NOW).unwrap_err();
    assert_eq!(rejected.wanted_key(), None);
}

/// So no source may be used that does not say whose topic it is to be: what a scheme lacks, it names.
#[test]
fn the_topic_is_named_as_missing_until_it_is_there() {
    for (config, missing) in [
        (String::new(), vec!["topic_arn"]),
        ("topic_arn = \" \"".to_owned(), vec!["topic_arn"]),
        (format!("topic_arn = \"{TOPIC}\""), vec![]),
    ] {
        assert_eq!(of(&config).missing_config(), missing, "{config}");
    }
}

/// Names and values stand on lines of their own, so whoever may publish a message chooses lines of the signed text. They
/// must not be able to make one signature stand for two messages.
#[test]
fn lines_of_a_message_are_never_taken_for_members() {
    let inner = "a\nMessageId\nforged\nTimestamp\n2027-01-01T00:00:00.000Z\nTopicArn\narn:other\nType\nNotification";
    let original = signed(but(notification(), "Message", inner));
    check(&original, "ok");
    let rest = text(&original).strip_prefix("Message\n").unwrap().to_owned();
    // the same signed text, cut at every line that could end one of the values
    let lines: Vec<&str> = rest.lines().collect();
    for cut in 1..lines.len() {
        let moved = lines[cut..].join("\n");
        for (name, value) in [("MessageId", &moved), ("Subject", &moved), ("Timestamp", &moved)] {
            let forged = but(
                but(original.clone(), "Message", lines[..cut].join("\n")),
                name,
                value.as_str(),
            );
            let verdict = arrived(&forged).verdict(&ours(""), &keys(&ours("")));
            assert_ne!(verdict, "ok", "{forged}");
        }
    }
    check(&signed(but(notification(), "Subject", "a\nb")), VALUE);
    check(&signed(but(notification(), "MessageId", "a\nb")), VALUE);
    check(&signed(but(confirmation(), "Token", "a\nb")), VALUE);
}

#[test]
fn a_certificate_that_is_not_here_yet_is_asked_for_by_its_address() {
    let scheme = ours("");
    let other = "https://sns.cn-north-1.amazonaws.com.cn/SimpleNotificationService-0123abcd.pem";
    let rejected = arrived(&but(signed(notification()), "SigningCertURL", other)).read(
        &scheme,
        &keys(&scheme),
        NOW,
    );
    let rejected = rejected.unwrap_err();
    assert_eq!((rejected.class().as_str(), rejected.wanted_key()), ("key_unknown", Some(other)));
}

#[test]
fn no_other_address_is_ever_asked_for() {
    let scheme = ours("");
    for bad in crate::lookup::BAD_SNS {
        let rejected =
            arrived(&but(signed(notification()), "SigningCertURL", *bad)).read(&scheme, &[], NOW);
        let rejected = rejected.unwrap_err();
        assert_eq!(
            (rejected.reason().code(), rejected.wanted_key()),
            ("key_id_malformed", None),
            "{bad}"
        );
    }
}

#[test]
fn an_expired_certificate_verifies_nothing() {
    let scheme = ours("");
    let keys = [Key::published(&scheme, URL, &certificate(RSA, 2020..2025)).unwrap()];
    assert_eq!(
        arrived(&signed(notification())).verdict(&scheme, &keys),
        "bad_signature: key_not_valid"
    );
}

#[test]
fn what_can_be_read_in_two_ways_is_refused() {
    let good = signed(notification());
    let body = good.to_string();
    let check_body = |body: &str, expected: &str| {
        let scheme = ours("");
        assert_eq!(Arrived::new(body).verdict(&scheme, &keys(&scheme)), expected, "{body}");
    };
    check_body(&body, "ok");
    check_body(&format!(" \n{body}\n"), "ok");
    check_body(&body.replacen('{', r#"{"MessageId":"other","#, 1), VALUE);
    check_body(&body.replacen('{', r#"{"Message\u0049d":"other","#, 1), VALUE);
    check_body("hello", "malformed: body_not_json");
    check_body("", "malformed: body_not_json");
    check_body("[]", VALUE);
    check_body("{}", VALUE);
    check_body(r#"["Notification","id","arn","m","t","2","u","s"]"#, VALUE);
    check(&without(good.clone(), "Signature"), "malformed: signature_missing");
    check(&but(good.clone(), "Signature", "%%%"), MALFORMED);
    check(&but(good.clone(), "Signature", "EXAM"), NO);
    check(&but(good.clone(), "Signature", json!(["x"])), VALUE);
    check(&but(good.clone(), "Type", "Other"), VALUE);
    check(&but(good, "Message", json!({ "a": 1 })), VALUE);
    check(&without(signed(confirmation()), "Token"), VALUE);
    check(&without(signed(confirmation()), "SubscribeURL"), VALUE);
}

#[test]
fn a_message_names_itself() {
    let scheme = ours("");
    let (key, identity, hash) =
        arrived(&signed(notification())).read(&scheme, &keys(&scheme), NOW).unwrap();
    assert_eq!((key.as_str(), identity.id_is_signed), (URL, true));
    assert_eq!(identity.id.as_deref(), Some("22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324"));
    assert_eq!(identity.occurred_at.unwrap().to_string(), "2026-01-01T00:00:00Z");
    let moved = but(signed(notification()), "UnsubscribeURL", "https://evil.example.test/");
    assert_eq!(arrived(&moved).read(&scheme, &keys(&scheme), NOW).unwrap().2, hash);
}

proptest! {
    #![proptest_config(cases(64))]
    #[test]
    fn any_text_is_signed_as_it_is(text in "\\PC{0,40}", other in "\\PC{0,40}") {
        let message = signed(but(notification(), "Message", text.as_str()));
        check(&message, "ok");
        if other != text {
            check(&but(message, "Message", other), NO);
        }
    }
}
