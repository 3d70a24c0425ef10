//! How a source asks its provider, and with which tokens.

use domain::ports::SourceSecrets as _;
use serde_json::{Value, json};

use crate::deployment::{Deployment, source};

fn asking(fetch: &Value) -> Value {
    let mut source = source("stripe");
    source["handler"] = json!({ "kind": "mirror" });
    source["fetch"] = fetch.clone();
    source
}

#[tokio::test]
async fn a_source_that_asks_says_whom_when_and_what_it_lacks() {
    let postern = Deployment::new();
    let made = postern.post("/v1/sources", &asking(&json!({ "preset": "stripe" }))).await.good(201);
    let fetch = &made["fetch"];
    assert_eq!(
        (&fetch["preset"], &fetch["when"], &fetch["title"]),
        (&json!("stripe"), &json!("always"), &json!("Stripe"))
    );
    assert_eq!((&fetch["facts_mark"], &fetch["tokens"]), (&json!("S"), &json!([])));
    assert!(fetch["kinds"].as_array().unwrap().contains(&json!("invoice")));
    let words = fetch["words"].as_str().unwrap();
    assert!(
        words.starts_with("asks Stripe about each event")
            && words.contains("postern sources tokens add stripe"),
        "{words}"
    );
    let token = json!({ "id": "1", "token": "rk_CANARY" });
    postern.post("/v1/sources/stripe/tokens", &token).await.good(201);
    let answer = postern.get("/v1/sources/stripe").await;
    assert!(!answer.text.contains("CANARY"), "{}", answer.text);
    let shown = answer.good(200);
    assert_eq!(shown["fetch"]["tokens"], json!([{ "id": "1", "expires_at": null }]));
    assert!(!shown["fetch"]["words"].as_str().unwrap().contains("no token"));
    let without = postern.patch("/v1/sources/stripe", &json!({ "fetch": null })).await.good(200);
    assert_eq!(without["fetch"], Value::Null);
}

#[tokio::test]
async fn a_way_of_asking_that_cannot_work_is_refused_with_all_that_is_wrong() {
    let postern = Deployment::new();
    for (source, field, says) in [
        (asking(&json!({})), "fetch", "either"),
        (asking(&json!({ "preset": "stripe", "own": {} })), "fetch", "either"),
        (asking(&json!({ "preset": "strpe" })), "fetch.preset", "github, shopify, stripe"),
        (
            asking(&json!({ "own": { "url": "https://a.example.com/{id}" } })),
            "fetch.own.auth",
            "bearer",
        ),
        (
            asking(&json!({ "own": { "like": "stripe", "url": "https://127.0.0.1/{path}/{id}" } })),
            "fetch.own.url",
            "private",
        ),
        (
            asking(
                &json!({ "own": { "like": "stripe", "url": "https://a.example.com:22/{path}/{id}" } }),
            ),
            "fetch.own.url",
            "443",
        ),
        (
            asking(
                &json!({ "own": { "like": "stripe", "url": "http://a.example.com/{path}/{id}" } }),
            ),
            "fetch.own.url",
            "https",
        ),
        (asking(&json!({ "preset": "stripe", "when": "doubt" })), "fetch.when", "always"),
        (asking(&json!({ "preset": "shopify" })), "config", "shop"),
    ] {
        let answer = postern.post("/v1/sources", &source).await;
        answer.problem(422, "invalid-request");
        let text = &answer.text;
        assert!(text.contains(field) && text.contains(says), "{field}: {text}");
    }
    let mut forwards = source("stripe");
    forwards["fetch"] = json!({ "preset": "stripe" });
    let answer = postern.post("/v1/sources", &forwards).await;
    answer.problem(422, "invalid-request");
    assert!(answer.text.contains("forwarding"), "{}", answer.text);
    // Whichever of the two is changed.
    postern.post("/v1/sources", &asking(&json!({ "preset": "stripe" }))).await.good(201);
    let forward = json!({ "handler": { "kind": "forward", "tenant": "acme" } });
    postern.patch("/v1/sources/stripe", &forward).await.problem(422, "invalid-request");
}

/// SEC-secret-in-output
#[tokio::test]
async fn tokens_are_rotated_and_never_shown() {
    let postern = Deployment::new();
    postern.post("/v1/sources", &asking(&json!({ "preset": "stripe" }))).await.good(201);
    let name = "stripe".parse().unwrap();
    let path = "/v1/sources/stripe/tokens";
    let listed = postern.get(path).await.good(200);
    assert!(listed["warnings"][0].as_str().unwrap().contains("no token"), "{listed}");
    for id in ["1", "2"] {
        let token =
            json!({ "id": id, "token": format!("rk_CANARY_{id}"), "expire_others_in": 3600 });
        let answer = postern.post(path, &token).await;
        assert!(!answer.text.contains("CANARY"), "{}", answer.text);
        answer.good(201);
    }
    let listed = postern.get(path).await.good(200);
    assert_eq!(listed["tokens"][0], json!({ "id": "2", "expires_at": null }));
    assert!(listed["tokens"][1]["expires_at"].is_string(), "the other one ends: {listed}");
    assert!(
        postern
            .0
            .secrets
            .of(&name)
            .await
            .unwrap()
            .iter()
            .all(|secret| !secret.text.expose().starts_with("rk_")),
        "it never counts as a key"
    );
    assert_eq!(postern.0.tokens.of(&name).await.unwrap().len(), 2);
    postern.delete("/v1/sources/stripe/tokens/1").await.good(200);
    postern.delete("/v1/sources/stripe/tokens/1").await.problem(404, "not-found");
    let same = json!({ "id": "2", "token": "rk_other" });
    postern.post(path, &same).await.problem(409, "id-taken");
    for token in
        [json!(""), json!("a b"), json!("a\nb"), json!(5), json!("ä"), json!("x".repeat(8193))]
    {
        let answer = postern.post(path, &json!({ "id": "3", "token": token })).await;
        answer.problem(422, "invalid-request");
    }
    let audited = postern.audited();
    let actions: Vec<_> = audited.iter().map(|entry| entry.2.as_str()).collect();
    assert_eq!(
        actions,
        [
            "source.add",
            "source.add_token",
            "source.add_token",
            "source.remove_token",
            "source.add_token"
        ]
    );
}
