//! What endpoints sign with, and what their owners give us to send along.

use std::sync::Arc;

use domain::{
    id::EndpointId,
    ports::{Keyring as _, Purpose, Registry as _, SealedSecret},
};
use serde_json::{Value, json};
use testkit::chaos::{Fault, When};

use crate::deployment::{Deployment, acme, at, next_random, now};

const PATH: &str = "/v1/tenants/acme/endpoints";

fn deployment() -> Deployment {
    let mut postern = Deployment::new();
    Arc::get_mut(&mut postern.0).unwrap().edge.random = next_random;
    postern
}

async fn with_endpoint(wanted: &Value) -> (Deployment, String, EndpointId, Value) {
    let postern = deployment();
    let made = postern.post(PATH, wanted).await.good(201);
    let id = made["id"].as_str().unwrap();
    (postern, format!("{PATH}/{id}"), id.parse().unwrap(), made.clone())
}

fn plain() -> Value {
    json!({"url": "https://example.com/in"})
}

async fn sealed(postern: &Deployment, id: EndpointId) -> Vec<SealedSecret> {
    postern.0.registry.endpoint(&acme(), id).await.unwrap().unwrap().1
}

async fn opened(postern: &Deployment, id: EndpointId, purpose: Purpose) -> Vec<String> {
    let mut texts = Vec::new();
    for secret in sealed(postern, id).await.iter().filter(|secret| secret.purpose == purpose) {
        let text = postern.0.keyring.unseal(&acme(), id, &secret.sealed).await.unwrap();
        texts.push(text.expose().to_owned());
    }
    texts
}

/// A secret of an owner's own, from this byte on.
fn own(from: u8) -> String {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    format!("whsec_{}", STANDARD.encode((from..from + 24).collect::<Vec<_>>()))
}

/// I9: the secret before signs beside the new one until it ends.
#[tokio::test]
async fn a_secret_is_rotated_and_the_old_one_signs_for_a_while() {
    let (postern, path, id, made) = with_endpoint(&plain()).await;
    let first = made["secret"].as_str().unwrap();
    let rotate = format!("{path}/secrets/rotate");
    let rotated = postern.post(&rotate, &json!({})).await.good(201);
    let second = rotated["secret"].as_str().unwrap();
    assert!(second.starts_with("whsec_") && second != first);
    assert_eq!(rotated["others_end_at"], json!(at(86_400)), "a day");
    assert_eq!(opened(&postern, id, Purpose::Signing).await, [second, first]);
    let ends: Vec<_> = sealed(&postern, id).await.iter().map(|s| s.expires_at).collect();
    assert_eq!(ends, [None, Some(at(86_400))]);

    // A third within the day: the first does not live longer by it.
    let week = json!({"overlap_ms": 604_800_000});
    postern.post(&rotate, &week).await.good(201);
    let ends: Vec<_> = sealed(&postern, id).await.iter().map(|s| s.expires_at).collect();
    assert_eq!(ends, [None, Some(at(604_800)), Some(at(86_400))]);
    // At once.
    let last = postern.post(&rotate, &json!({"overlap_ms": 0})).await.good(201);
    let last = last["secret"].as_str().unwrap();
    assert_eq!(opened(&postern, id, Purpose::Signing).await, [last]);
    let answer = postern.post(&rotate, &json!({"overlap_ms": 604_800_001})).await;
    answer.problem(422, "invalid-request");
    assert_eq!(answer.fields(), ["overlap_ms"]);
    let actions: Vec<_> = postern.audited().into_iter().map(|entry| entry.2).collect();
    let expected =
        ["endpoint.add", "endpoint.rotate", "endpoint.rotate", "endpoint.rotate"].to_vec();
    assert_eq!(actions, expected);
}

/// SEC-secret-in-output
#[tokio::test]
async fn secrets_are_listed_by_their_fingerprints_and_never_shown_again() {
    let auth = json!({"kind": "basic", "user": "ann", "secret": "CANARY-PASSWORD"});
    let headers = json!({"X-Key": "CANARY-HEADER"});
    let wanted = json!({"url": "https://example.com/in", "auth": auth, "headers": headers});
    let (postern, path, _, made) = with_endpoint(&wanted).await;
    let first = made["secret"].as_str().unwrap().to_owned();
    let rotated = postern.post(&format!("{path}/secrets/rotate"), &json!({})).await.good(201);
    let second = rotated["secret"].as_str().unwrap().to_owned();
    let list = postern.get(&format!("{path}/secrets")).await;
    let shown = postern.get(&path).await;
    let listed = postern.get(PATH).await;
    let changed = postern.patch(&path, &json!({"rate": 5})).await;
    for answer in [&list, &shown, &listed, &changed] {
        for secret in
            [first.trim_start_matches("whsec_"), second.trim_start_matches("whsec_"), "CANARY"]
        {
            assert!(!answer.text.contains(secret), "{}", answer.text);
        }
    }
    let list = list.good(200);
    let line = |n: usize| {
        let secret = &list["secrets"][n];
        (secret["purpose"].clone(), secret["kind"].clone(), secret["expires_at"].clone())
    };
    assert_eq!(line(0), (json!("signing"), json!("hmac"), Value::Null));
    assert_eq!(line(1), (json!("signing"), json!("hmac"), json!(at(86_400))));
    assert_eq!(line(2), (json!("auth"), Value::Null, Value::Null));
    assert_eq!(line(3), (json!("headers"), Value::Null, Value::Null));
    assert_eq!(list["secrets"][0]["id"], rotated["id"]);
    assert_eq!(list["secrets"][0]["id"].as_str().unwrap().len(), 6);
    let shown = shown.good(200);
    assert_eq!(shown["headers"], json!(["x-key"]));
    assert_eq!(shown["auth"], json!({"kind": "basic", "user": "ann"}));
}

/// E11
#[tokio::test]
async fn a_key_pair_shows_its_public_key_and_never_its_private_one() {
    let wanted = json!({"url": "https://example.com/in", "kind": "ed25519"});
    let (postern, path, id, made) = with_endpoint(&wanted).await;
    assert_eq!(made["secret"], Value::Null);
    let keys = made["public_keys"].as_object().unwrap();
    let (first, key) = keys.iter().next().unwrap();
    assert!(key.as_str().unwrap().starts_with("whpk_"), "{made}");
    assert!(opened(&postern, id, Purpose::Signing).await[0].starts_with("whsk_"));
    let rotate = format!("{path}/secrets/rotate");
    let rotated = postern.post(&rotate, &json!({"kind": "ed25519"})).await.good(201);
    assert_eq!(rotated["secret"], Value::Null);
    assert!(rotated["public_key"].as_str().unwrap().starts_with("whpk_"));
    let shown = postern.get(&path).await.good(200);
    assert_eq!(shown["public_keys"].as_object().unwrap().len(), 2, "both sign");
    // What is over has no key any more.
    let hmac = postern.post(&rotate, &json!({"kind": "hmac", "overlap_ms": 0})).await.good(201);
    assert!(hmac["secret"].as_str().unwrap().starts_with("whsec_"));
    let shown = postern.get(&path).await.good(200);
    assert_eq!(shown["public_keys"], Value::Null, "{first}");
}

/// SEC-key-strength
#[tokio::test]
async fn an_owners_own_secret_is_as_strong_as_one_that_is_made() {
    let (postern, path, id, _) = with_endpoint(&plain()).await;
    let rotate = format!("{path}/secrets/rotate");
    for weak in
        ["test", "development", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "MTIzNDU2Nzg5MDEyMzQ1"]
    {
        let mut wanted = plain();
        wanted["secret"] = json!(weak);
        for answer in [
            postern.post(PATH, &wanted).await,
            postern.post(&rotate, &json!({"secret": weak})).await,
        ] {
            let detail = answer.problem(422, "invalid-request");
            assert_eq!(answer.fields(), ["secret"], "{weak}");
            assert!(!detail.contains("MfKQ") && !detail.contains("MTIz"), "{detail}");
        }
    }
    let answer = postern.post(&rotate, &json!({"secret": 5})).await;
    answer.problem(422, "invalid-request");
    assert_eq!(answer.fields(), ["secret"]);

    let rotated = postern.post(&rotate, &json!({"secret": own(1)})).await.good(201);
    assert_eq!(rotated["secret"], Value::Null, "its owner has it");
    assert_eq!(opened(&postern, id, Purpose::Signing).await[0], own(1));
    let again = postern.post(&rotate, &json!({"secret": own(1)})).await;
    assert!(again.problem(409, "same-secret").contains("already"));
    postern.post(&rotate, &json!({"secret": own(2)})).await.good(201);
    let back = postern.post(&rotate, &json!({"secret": own(1)})).await;
    assert!(back.problem(409, "same-secret").contains("had this secret before"));
}

/// SEC-key-strength
#[tokio::test]
async fn one_secret_at_two_endpoints_is_warned_of() {
    let mut wanted = plain();
    wanted["secret"] = json!(own(1));
    let (postern, _, _, made) = with_endpoint(&wanted).await;
    assert_eq!(made["warnings"], Value::Null);
    let first = made["id"].as_str().unwrap();
    let second = postern.post(PATH, &wanted).await.good(201);
    assert!(second["warnings"][0].as_str().unwrap().contains(first), "{second}");
    let third = postern.post(PATH, &plain()).await.good(201);
    let rotate = format!("{PATH}/{}/secrets/rotate", third["id"].as_str().unwrap());
    let rotated = postern.post(&rotate, &json!({"secret": own(1)})).await.good(201);
    assert_eq!(rotated["warnings"].as_array().unwrap().len(), 2, "{rotated}");
    postern.0.registry.chaos.on("registry.endpoints", When::Before, Fault::Unavailable);
    let rotated = postern.post(&rotate, &json!({"secret": own(9)})).await.good(201);
    assert!(rotated["warnings"][0].as_str().unwrap().contains("could not be looked up"));
}

#[tokio::test]
async fn an_endpoint_signs_with_five_secrets_at_most() {
    let (postern, path, id, _) = with_endpoint(&plain()).await;
    let rotate = format!("{path}/secrets/rotate");
    for _ in 0..4 {
        postern.post(&rotate, &json!({})).await.good(201);
    }
    let detail = postern.post(&rotate, &json!({})).await.problem(409, "limit-reached");
    assert!(detail.contains("`overlap_ms` 0"), "{detail}");
    postern.post(&rotate, &json!({"overlap_ms": 0})).await.good(201);
    assert_eq!(sealed(&postern, id).await.len(), 1);
}

#[tokio::test]
async fn a_queue_has_nothing_to_rotate() {
    let queue = "https://sqs.eu-central-1.amazonaws.com/123456789012/mail";
    let (postern, path, ..) = with_endpoint(&json!({"queue": queue})).await;
    postern.post(&format!("{path}/secrets/rotate"), &json!({})).await.problem(409, "no-secret");
    assert_eq!(postern.get(&format!("{path}/secrets")).await.good(200), json!({"secrets": []}));
}

/// Two who rotate at once: each was shown a secret, and both sign.
#[tokio::test]
async fn of_two_rotations_at_once_none_loses_its_secret() {
    let (postern, path, id, made) = with_endpoint(&plain()).await;
    let rotate = format!("{path}/secrets/rotate");
    let rotation = json!({});
    let (a, b) = tokio::join!(postern.post(&rotate, &rotation), postern.post(&rotate, &rotation));
    let shown = [a.good(201), b.good(201)].map(|made| made["secret"].as_str().unwrap().to_owned());
    let opened = opened(&postern, id, Purpose::Signing).await;
    let all = [&shown[0], &shown[1], made["secret"].as_str().unwrap()].map(ToString::to_string);
    assert!(opened.len() == 3 && all.iter().all(|secret| opened.contains(secret)));
    let current = sealed(&postern, id).await.into_iter().filter(|s| s.expires_at.is_none());
    assert_eq!(current.count(), 1);
}

#[tokio::test]
async fn nothing_is_rotated_that_cannot_be_sealed_or_written_down() {
    let (postern, path, id, _) = with_endpoint(&plain()).await;
    let before = sealed(&postern, id).await;
    let rotate = format!("{path}/secrets/rotate");
    postern.0.keyring.chaos.on("keyring.seal", When::Before, Fault::Throttled);
    postern.post(&rotate, &json!({})).await.problem(503, "unavailable");
    postern.0.keyring.chaos.heal();
    postern.0.registry.chaos.on("configure.audit", When::Before, Fault::Unavailable);
    postern.post(&rotate, &json!({})).await.problem(503, "unavailable");
    assert_eq!(sealed(&postern, id).await, before);
}

/// DLV-custom-headers, SSRF-update-and-test-paths
#[tokio::test]
async fn what_is_sent_along_is_checked_before_it_is_kept() {
    let (postern, path, id, _) = with_endpoint(&plain()).await;
    let check = async |member: &str, value: Value, says: &str| {
        let mut new = plain();
        new[member] = value.clone();
        for answer in
            [postern.post(PATH, &new).await, postern.patch(&path, &json!({member: value})).await]
        {
            let detail = answer.problem(422, "invalid-request");
            assert!(answer.fields().iter().all(|field| field == member), "{}", answer.text);
            assert!(detail.contains(says) && !detail.contains("CANARY"), "{detail}");
        }
    };
    for name in [
        "webhook-signature",
        "Webhook-Id",
        "host",
        "content-length",
        "transfer-encoding",
        "connection",
        "authorization",
        "x-forwarded-for",
    ] {
        check("headers", json!({name: "CANARY"}), "is not free").await;
    }
    check("headers", json!({":authority": "CANARY"}), "the name of header 1").await;
    check("headers", json!({"x-a": "CANARY\r\nx-b: 1"}), "without a line break").await;
    check("headers", json!({"x-a": "CANARY", "X-A": "CANARY"}), "comes twice").await;
    check("headers", json!({"x-a": "x".repeat(8192)}), "bytes").await;
    check("headers", json!({"x-a": 5}), "an object of texts").await;
    check("headers", json!("CANARY"), "an object of texts").await;
    check(
        "auth",
        json!({"kind": "basic", "user": "a", "password": "CANARY"}),
        "`secret` is missing",
    )
    .await;
    check("auth", json!({"kind": "basic", "user": "a:b", "secret": "CANARY"}), "without `:`").await;
    check("auth", json!({"kind": "digest", "secret": "CANARY"}), "\"kind\": \"basic\"").await;
    check("auth", json!({"kind": "bearer", "secret": "CANARY CANARY"}), "the token must have")
        .await;
    check("auth", json!({"kind": "bearer", "secret": 5}), "`secret` is a text").await;
    check("auth", json!("CANARY"), "it is {\"kind\"").await;
    for url in ["http://login.example.com/", "https://169.254.169.254/token", "https://10.0.0.1/"] {
        let auth =
            json!({"kind": "oauth2", "token_url": url, "client_id": "c", "secret": "CANARY"});
        check("auth", auth, "the token URL cannot be used").await;
    }
    assert_eq!(sealed(&postern, id).await.len(), 1);
}

#[tokio::test]
async fn what_is_sent_along_is_sealed_replaced_and_taken_away() {
    let (postern, path, id, _) = with_endpoint(&plain()).await;
    let url = "https://login.example.com/oauth2/TOKEN";
    let auth = json!({"kind": "oauth2", "token_url": url, "client_id": "c", "credentials_in": "body", "secret": "s1"});
    let change = json!({"auth": auth, "headers": {"X-B": "2", "x-a": "1"}});
    let changed = postern.patch(&path, &change).await.good(200);
    assert_eq!(changed["headers"], json!(["x-a", "x-b"]));
    assert_eq!(changed["auth"]["credentials_in"], "body");
    assert_eq!(opened(&postern, id, Purpose::Auth).await, ["s1"]);
    assert_eq!(opened(&postern, id, Purpose::Headers).await, [r#"{"x-a":"1","x-b":"2"}"#]);
    let listed = postern.get(PATH).await;
    assert!(!listed.text.contains("TOKEN"), "{}", listed.text);
    // The one without the other, and nothing of what signs.
    let signs = opened(&postern, id, Purpose::Signing).await;
    postern.patch(&path, &json!({"auth": {"kind": "bearer", "secret": "s2"}})).await.good(200);
    assert_eq!(opened(&postern, id, Purpose::Auth).await, ["s2"]);
    assert_eq!(opened(&postern, id, Purpose::Headers).await.len(), 1);
    let bare = postern.patch(&path, &json!({"auth": null, "headers": null})).await.good(200);
    assert_eq!((&bare["auth"], &bare["headers"]), (&Value::Null, &Value::Null));
    assert_eq!(sealed(&postern, id).await.len(), 1);
    assert_eq!(opened(&postern, id, Purpose::Signing).await, signs);
    let _ = now();
}
