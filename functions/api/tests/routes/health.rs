//! How a source is doing, and what was refused in its name.

use std::collections::BTreeMap;

use domain::ports::{AcceptReport, RejectReport, RejectSample, Watch as _};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::deployment::{Deployment, at, source};

async fn with_source() -> Deployment {
    let postern = Deployment::new();
    postern.post("/v1/sources", &source("stripe")).await.good(201);
    postern
}

fn sample(at: Timestamp, reason: &str) -> RejectSample {
    RejectSample {
        at,
        reason: reason.to_owned(),
        class: "bad_signature".to_owned(),
        advice: "Usual causes: the secret of another endpoint.".to_owned(),
        method: "POST".to_owned(),
        headers: [("content-type".to_owned(), "application/json".to_owned())].into(),
        body_sha256: "ab".repeat(32),
        body_length: 5,
    }
}

async fn refuse(postern: &Deployment, seconds: i64, reason: &str, count: u64) {
    let report = RejectReport {
        at: at(seconds),
        counts: BTreeMap::from([(reason.to_owned(), count)]),
        last_reason: format!("because of {reason}"),
        sample: Some(sample(at(seconds), reason)),
    };
    postern.0.watch.note_rejects(&"stripe".parse().unwrap(), &report).await.unwrap();
}

async fn accept(postern: &Deployment, seconds: i64) {
    let report = AcceptReport { at: at(seconds), key_id: Some("2026".to_owned()), is_new: true };
    postern.0.watch.note_accepted(&"stripe".parse().unwrap(), &report).await.unwrap();
}

async fn health(postern: &Deployment) -> Value {
    postern.get("/v1/sources/stripe").await.good(200)["health"].clone()
}

/// VFY-diagnosis-code
#[tokio::test]
async fn health_says_what_was_accepted_what_was_refused_and_what_to_do() {
    let postern = with_source().await;
    let new = health(&postern).await;
    assert_eq!(new["words"], "no event has been accepted yet");
    assert_eq!((&new["failing_since"], &new["last_rejected"]), (&json!(null), &json!(null)));

    accept(&postern, -300).await;
    assert_eq!(
        health(&postern).await["words"],
        "good; the last new event was accepted 5 minutes ago"
    );

    refuse(&postern, -200, "signature_mismatch", 3).await;
    refuse(&postern, -100, "timestamp_too_old", 1).await;
    let failing = health(&postern).await;
    let since = at(-200).to_string();
    assert_eq!(failing["failing_since"], since);
    assert_eq!(failing["words"], format!("all requests are failing since {since} (3 minutes ago)"));
    assert_eq!(failing["rejected_24h"], json!({"signature_mismatch": 3, "timestamp_too_old": 1}));
    let last = json!({
        "at": at(-100).to_string(), "code": "timestamp_too_old", "words": "because of timestamp_too_old",
        "advice": "Usual causes: the secret of another endpoint.",
    });
    assert_eq!(failing["last_rejected"], last);
    let line = &postern.get("/v1/sources").await.good(200)["sources"][0]["health"];
    assert_eq!((&line["failing_since"], &line["rejected_24h"]), (&json!(since), &json!(4)));

    accept(&postern, -10).await;
    let mended = health(&postern).await;
    assert_eq!(mended["failing_since"], json!(null));
    assert_eq!(mended["last_rejected"]["code"], "timestamp_too_old");
    assert_eq!(mended["last_accepted_at"], at(-10).to_string());
}

/// VFY-diagnosis-code
#[tokio::test]
async fn refused_requests_are_listed_newest_first_as_far_as_asked() {
    let postern = with_source().await;
    assert_eq!(postern.get("/v1/sources/stripe/rejected").await.good(200), json!({"rejected": []}));
    for n in 0..30 {
        refuse(&postern, n - 100, &format!("reason_{n}"), 1).await;
    }
    let usual = postern.get("/v1/sources/stripe/rejected").await.good(200);
    let usual = usual["rejected"].as_array().unwrap();
    assert_eq!((usual.len(), &usual[0]["reason"]), (20, &json!("reason_29")));
    let one = postern.get("/v1/sources/stripe/rejected?limit=1").await.good(200);
    let expected = serde_json::to_value(sample(at(-71), "reason_29")).unwrap();
    assert_eq!(one["rejected"], json!([expected]));
    for limit in ["0", "51", "x", "-1"] {
        let path = format!("/v1/sources/stripe/rejected?limit={limit}");
        postern.get(&path).await.problem(422, "invalid-request");
    }
    postern.get("/v1/sources/nobody/rejected").await.problem(404, "not-found");
}

#[tokio::test]
async fn a_source_whose_scheme_left_with_an_older_version_says_so() {
    let postern = with_source().await;
    let name = "stripe".parse().unwrap();
    {
        let mut tables = postern.0.registry.tables();
        let source = tables.sources.get_mut(&name).unwrap();
        source.scheme = domain::source::SchemeChoice::Preset("gone".to_owned());
    }
    let shown = postern.get("/v1/sources/stripe").await.good(200);
    assert_eq!(shown["verification"], json!(null));
    let words = shown["health"]["words"].as_str().unwrap();
    assert!(
        words.contains("cannot be used by this version") && words.contains("scheme.preset"),
        "{words}"
    );
    let line = &postern.get("/v1/sources").await.good(200)["sources"][0];
    assert_eq!((&line["trust"], &line["scheme"]), (&json!(null), &json!({"preset": "gone"})));
    let secret = json!({"id": "2", "secret": "whsec_0123456789abcdef0123456789"});
    postern.post("/v1/sources/stripe/secrets", &secret).await.problem(409, "scheme-unusable");
    // It can be mended.
    postern.patch("/v1/sources/stripe", &json!({"scheme": {"preset": "stripe"}})).await.good(200);
}
