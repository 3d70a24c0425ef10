//! Requests that the providers' own libraries signed, judged by `signing`. The same files go through the binary in
//! `infra/cli/tests/verify.rs`; here they meet the library alone, with an independent reading of the files.
#![expect(clippy::unwrap_used, reason = "test code")]

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;
use serde_json::Value;
use sha2::{Digest, Sha256};
use signing::{Key, Request, Scheme, Secret, preset_names, verify};

fn cases(provider: &str) -> Vec<Value> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("vectors/{provider}.json"));
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
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

/// Accepted or the class of the refusal, and on acceptance id and type.
fn judge(scheme: &Scheme, case: &Value) -> (String, Option<(Value, Value)>) {
    let secrets = case["secrets"]
        .as_array()
        .unwrap()
        .iter()
        .map(|secret| Secret::new(secret.as_str().unwrap()));
    let keys: Vec<Key> =
        secrets.filter_map(|secret| Key::parse(scheme, "k", &secret).ok()).collect();
    let (headers, body) = (headers(case), body(case));
    let (method, url) = (case["method"].as_str().unwrap(), case["url"].as_str().unwrap());
    let request = Request { method, url, headers: &headers, body: &body, path_secret: None };
    let now = Timestamp::from_second(case["now"].as_i64().unwrap()).unwrap();
    match verify(scheme, &keys, &request, now) {
        Ok(verified) => {
            let identity = verified.into_identity();
            ("ok".into(), Some((Value::from(identity.id), Value::from(identity.event_type))))
        }
        Err(rejected) => (rejected.class().as_str().into(), None),
    }
}

/// Every disagreement with the vectors of one provider, and how many cases there are.
fn disagreements(provider: &str) -> (usize, Vec<String>) {
    let scheme = Scheme::preset(provider).unwrap();
    let mut found = Vec::new();
    let cases = cases(provider);
    for case in &cases {
        let is_policy = case["tier"] == "policy";
        let expected = if is_policy { &case["recommended_expect"] } else { &case["expect"] };
        let (got, names) = judge(&scheme, case);
        let accept_agrees = *expected == "either" || (*expected == "ok") == (got == "ok");
        let class_agrees = is_policy || case["any_reject"] == true || *expected == got;
        let names_agree = names
            .as_ref()
            .is_none_or(|names| *names == (case["event_id"].clone(), case["event_type"].clone()));
        if !(accept_agrees && class_agrees && names_agree) {
            found.push(format!(
                "{provider}: {}: expected {expected}, got {got} {names:?}",
                case["name"]
            ));
        }
    }
    (cases.len(), found)
}

#[test]
fn the_library_agrees_with_the_providers_own_libraries() {
    let mut total = 0;
    for file in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors")).unwrap() {
        let path = file.unwrap().path();
        let (count, found) = disagreements(path.file_stem().unwrap().to_str().unwrap());
        assert!(found.is_empty(), "{found:#?}");
        total += count;
    }
    assert!(total >= 175, "only {total} cases were found");
}

#[test]
fn every_case_that_is_accepted_is_refused_under_another_secret() {
    for provider in ["stripe", "github", "shopify", "standard_webhooks"] {
        let scheme = Scheme::preset(provider).unwrap();
        let mut accepted = 0;
        for mut case in cases(provider) {
            if judge(&scheme, &case).0 == "ok" {
                case["secrets"] =
                    serde_json::json!(["whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA="]);
                assert_eq!(
                    judge(&scheme, &case).0,
                    "bad_signature",
                    "{provider}: {}",
                    case["name"]
                );
                accepted += 1;
            }
        }
        assert!(accepted > 5, "{provider}");
    }
}

#[test]
fn the_five_first_presets_ship() {
    for name in ["github", "shopify", "standard_webhooks", "standard_webhooks_v1a", "stripe"] {
        assert!(preset_names().any(|preset| preset == name), "{name}");
    }
}
