//! Requests that the providers' own libraries signed, judged by `signing`. The same files go through the binary in
//! `infra/cli/tests/verify.rs`; here they meet the library alone, with an independent reading of the files.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "test code")]

use std::collections::BTreeSet;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;
use serde_json::Value;
use sha2::{Digest, Sha256};
use signing::handshake::{self, Answer, Reply};
use signing::scheme::Acknowledge;
use signing::{Identity, Key, Request, Scheme, Secret, elements, preset_names, verify};

/// All cases of all files, whatever their provider.
fn cases() -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors");
    let mut cases = Vec::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read(file.unwrap().path()).unwrap();
        cases.append(&mut serde_json::from_slice(&text).unwrap());
    }
    cases
}

/// Adyen signs in two ways; the case says which.
fn scheme(case: &Value) -> Scheme {
    let name = match (case["provider"].as_str().unwrap(), &case["params"]["kind"]) {
        ("adyen", kind) if kind == "platform" => "adyen_platform",
        (name, _) => name,
    };
    Scheme::preset(name).unwrap_or_else(|| panic!("there is no preset {name}"))
}

fn bytes(base64: &Value) -> Vec<u8> {
    STANDARD.decode(base64.as_str().unwrap()).unwrap()
}

fn body(case: &Value) -> Vec<u8> {
    let Some(recipe) = case.get("body_recipe") else { return bytes(&case["body_base64"]) };
    let count = usize::try_from(recipe["count"].as_u64().unwrap()).unwrap();
    let parts = [
        bytes(&recipe["prefix_base64"]),
        bytes(&recipe["repeat_base64"]).repeat(count),
        bytes(&recipe["suffix_base64"]),
    ];
    let body = parts.concat();
    assert_eq!(hex::encode(Sha256::digest(&body)), recipe["sha256"].as_str().unwrap());
    body
}

fn headers(case: &Value) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for pair in case["headers"].as_array().unwrap() {
        let name = HeaderName::from_bytes(pair[0].as_str().unwrap().as_bytes()).unwrap();
        headers
            .append(name, HeaderValue::from_bytes(pair[1].as_str().unwrap().as_bytes()).unwrap());
    }
    headers
}

/// The secrets of the case, of which Meta's second is for its handshake, and the keys that the provider publishes.
fn keys(scheme: &Scheme, case: &Value) -> Vec<Key> {
    let secrets = case["secrets"].as_array().unwrap().iter().enumerate().map(|(index, secret)| {
        let is_meta = case["provider"] == "meta_whatsapp";
        let id = if is_meta && index == 1 { "verify_token" } else { "k" };
        Key::parse(scheme, id, &Secret::new(secret.as_str().unwrap()))
    });
    let published = [&case["params"]["keys"], &case["params"]["certs"]];
    let published = published.into_iter().filter_map(Value::as_object).flatten();
    let published = published.map(|(id, text)| Key::published(scheme, id, text.as_str().unwrap()));
    secrets.chain(published).filter_map(Result::ok).collect()
}

/// What came out of a case.
#[derive(Debug, Default)]
struct Outcome {
    /// `ok`, or the class of the refusal.
    class: String,
    /// Everything that could be meant by "the event id".
    ids: Vec<String>,
    event_type: Option<String>,
    /// What the provider gets, for an event or for a handshake.
    reply: Option<Reply>,
    learned: Option<Secret>,
}

fn judge(case: &Value) -> Outcome {
    let scheme = scheme(case);
    let keys = keys(&scheme, case);
    let (headers, body) = (headers(case), body(case));
    let (method, url) = (case["method"].as_str().unwrap(), case["url"].as_str().unwrap());
    let request = Request { method, url, headers: &headers, body: &body, path_secret: None };
    let now = Timestamp::from_second(case["now"].as_i64().unwrap()).unwrap();
    let waiting = case["secrets"].as_array().unwrap().is_empty();
    let verified = verify(&scheme, &keys, &request, now);
    let mut outcome = Outcome { class: "ok".into(), ..Outcome::default() };
    match handshake::answer(&scheme, &keys, &request, waiting, now) {
        Some(Answer::Refused(rejected)) => {
            return Outcome { class: rejected.class().as_str().into(), ..outcome };
        }
        Some(Answer::Reply(reply) | Answer::Confirm { reply, .. }) => outcome.reply = Some(reply),
        Some(Answer::Learn { reply, secret }) => {
            (outcome.reply, outcome.learned) = (Some(reply), Some(secret));
        }
        None => match &verified {
            Ok(_) => outcome.reply = Some(acknowledgement(&scheme)),
            Err(rejected) => return Outcome { class: rejected.class().as_str().into(), ..outcome },
        },
    }
    if let Ok(verified) = verified {
        let request = verified.into_identity();
        let elements = elements(&scheme, &body).unwrap_or_default();
        outcome.event_type = request.event_type.clone();
        outcome.ids.extend(request.id);
        if scheme.is_batch() {
            outcome.ids.extend(request.delivery);
            outcome.event_type = outcome
                .event_type
                .or_else(|| elements.first().and_then(|first| first.identity.event_type.clone()));
            if let [sole] = elements.as_slice() {
                let Identity { id, delivery, .. } = sole.identity.clone();
                outcome.ids.extend([id, delivery].into_iter().flatten());
            }
        }
    }
    outcome
}

fn acknowledgement(scheme: &Scheme) -> Reply {
    let Acknowledge { status, body, .. } = scheme.acknowledge().clone();
    Reply { status, headers: Vec::new(), body: body.into_bytes() }
}

/// What is wrong with an outcome.
fn disagreement(case: &Value, got: &Outcome) -> Option<String> {
    let is_policy = case["tier"] == "policy";
    let expected = if is_policy { &case["recommended_expect"] } else { &case["expect"] };
    let accepted = got.class == "ok";
    if *expected != "either" && (*expected == "ok") != accepted {
        return Some(format!("expected {expected}, got {got:?}"));
    }
    if !is_policy && case["any_reject"] != true && *expected != got.class {
        return Some(format!("expected {expected}, got {}", got.class));
    }
    let differs = |name: &Value, got: &[String]| {
        accepted && name.as_str().is_some_and(|name| !got.iter().any(|got| got == name))
    };
    if differs(&case["event_id"], &got.ids) {
        return Some(format!("expected the id {}, got {:?}", case["event_id"], got.ids));
    }
    let types: Vec<String> = got.event_type.clone().into_iter().collect();
    if differs(&case["event_type"], &types) {
        return Some(format!("expected the type {}, got {types:?}", case["event_type"]));
    }
    let response = &case["expect_response"];
    if response.is_object() && !answers(response, got.reply.as_ref()?) {
        return Some(format!("expected the answer {response}, got {:?}", got.reply));
    }
    None
}

fn answers(expected: &Value, reply: &Reply) -> bool {
    let body = String::from_utf8(reply.body.clone()).unwrap();
    let has = |name: &str, wanted: &str| {
        let mut headers = reply.headers.iter().filter(|(header, _)| header == name);
        headers.next().is_some_and(|(_, value)| value.split(';').next() == Some(wanted))
    };
    expected["status"].as_u64().is_none_or(|status| status == u64::from(reply.status))
        && expected["body"].as_str().is_none_or(|wanted| wanted == body)
        && expected["body_contains"].as_str().is_none_or(|part| body.contains(part))
        && (expected["json"].is_null()
            || serde_json::from_str::<Value>(&body).unwrap() == expected["json"])
        && expected["headers"].as_object().is_none_or(|headers| {
            headers.iter().all(|(name, wanted)| has(name, wanted.as_str().unwrap()))
        })
}

/// What the collection itself allows or has wrong: a reflected text may be refused instead, and the body of the other case
/// has another id than the case says.
const EXCEPTIONS: [(&str, &str); 2] = [
    ("dropbox", "dropbox_challenge_get_html_must_not_reflect"),
    ("sendgrid", "valid_unicode_body"),
];

#[test]
fn the_library_agrees_with_the_providers_own_libraries() {
    let cases = cases();
    assert_eq!(cases.len(), 859);
    let (mut disagreements, mut exceptions) = (Vec::new(), Vec::new());
    for case in &cases {
        let names = (case["provider"].as_str().unwrap(), case["name"].as_str().unwrap());
        if let Some(what) = disagreement(case, &judge(case)) {
            if EXCEPTIONS.contains(&names) {
                exceptions.push(names);
            } else {
                disagreements.push(format!("{names:?}: {what}"));
            }
        }
    }
    assert!(disagreements.is_empty(), "{disagreements:#?}");
    exceptions.sort_unstable();
    assert_eq!(exceptions, EXCEPTIONS, "an exception that is no longer needed goes");
}

#[test]
fn what_is_reflected_is_plain_text_or_refused() {
    let cases = cases();
    let named = |name: &str| cases.iter().find(|case| case["name"] == name).unwrap();
    let refused = judge(named("dropbox_challenge_get_html_must_not_reflect"));
    assert_eq!((refused.class.as_str(), refused.reply.is_none()), ("malformed", true));
}

#[test]
fn a_secret_that_a_handshake_brings_verifies_what_comes_next() {
    let cases = cases();
    let named = |name: &str, provider: &str| {
        let mut cases = cases.iter().filter(|case| case["provider"] == provider);
        cases.find(|case| case["name"] == name).unwrap().clone()
    };
    let learned = judge(&named("handshake_verification_token_unsigned", "notion")).learned.unwrap();
    let mut event = named("valid_basic", "notion");
    assert_eq!(event["secrets"], serde_json::json!([learned.expose()]));
    assert_eq!(judge(&event).class, "ok");
    event["secrets"] = serde_json::json!(["another-secret-of-another-source"]);
    assert_eq!(judge(&event).class, "bad_signature");
    assert!(judge(&named("asana_x_hook_secret", "asana")).learned.is_some());
}

#[test]
fn every_case_that_is_accepted_is_refused_under_another_secret() {
    for provider in ["stripe", "github", "shopify", "standard_webhooks", "slack", "twilio", "box"] {
        let mut accepted = 0;
        for mut case in cases().into_iter().filter(|case| case["provider"] == provider) {
            if judge(&case).class == "ok" {
                case["secrets"] =
                    serde_json::json!(["whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA="]);
                let got = judge(&case).class;
                assert_eq!(got, "bad_signature", "{provider}: {}", case["name"]);
                accepted += 1;
            }
        }
        assert!(accepted > 5, "{provider}");
    }
}

#[test]
fn a_case_without_an_answer_of_its_own_gets_none_that_says_anything() {
    for case in cases() {
        let outcome = judge(&case);
        if outcome.class != "ok" {
            assert!(outcome.reply.is_none() && outcome.learned.is_none(), "{}", case["name"]);
        }
    }
}
#[test]
fn every_provider_of_the_vectors_has_a_preset() {
    let providers: BTreeSet<String> =
        cases().iter().map(|case| case["provider"].as_str().unwrap().to_owned()).collect();
    assert_eq!(providers.len(), 35);
    for provider in &providers {
        assert!(preset_names().any(|preset| preset == provider), "{provider}");
    }
}
