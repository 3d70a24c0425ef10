//! Pausing and resuming a source.

use domain::ports::Registry as _;
use serde_json::{Value, json};
use testkit::chaos::{Fault, When};

use crate::deployment::{Deployment, now, source};

const PAUSE: &str = "/v1/sources/shop/pause";
const RESUME: &str = "/v1/sources/shop/resume";

async fn with_source() -> Deployment {
    let postern = Deployment::new();
    postern.post("/v1/sources", &source("shop")).await.good(201);
    postern
}

async fn stored(postern: &Deployment) -> domain::source::Source {
    postern.0.registry.source(&"shop".parse().unwrap()).await.unwrap().unwrap()
}

fn actions(postern: &Deployment) -> Vec<String> {
    let audit = postern.0.registry.tables().audit.clone();
    audit.into_iter().map(|entry| entry.action).collect()
}

/// C33
#[tokio::test]
async fn a_source_is_paused_with_a_reason_and_resumed() {
    let postern = with_source().await;
    let paused = postern.post(PAUSE, &json!({"reason": " the books are wrong "})).await.good(200);
    let expected = json!({"since": now().to_string(), "reason": "the books are wrong"});
    assert_eq!(paused["paused"], expected);
    assert!(paused["warnings"][0].as_str().unwrap().starts_with("Events are accepted, and wait."));
    let words = format!(
        "paused since {} (less than a minute ago): events are accepted, and wait; no event has been accepted yet",
        now()
    );
    assert_eq!(paused["health"]["words"], words);
    let line = &postern.get("/v1/sources").await.good(200)["sources"][0];
    assert_eq!((&line["paused"], &line["health"]["words"]), (&expected, &json!(words)));

    let resumed = postern.ask(RESUME).await.good(200);
    assert_eq!(resumed["paused"], Value::Null);
    assert_eq!(stored(&postern).await.resumed_at, Some(now()));
    assert_eq!(actions(&postern), ["source.add", "source.pause", "source.resume"]);
}

#[tokio::test]
async fn of_two_operators_the_first_ones_reason_stands_and_both_are_told() {
    let postern = with_source().await;
    postern.post(PAUSE, &json!({"reason": "mine"})).await.good(200);
    let second = postern.post(PAUSE, &json!({"reason": "yours"})).await.good(200);
    assert_eq!(second["paused"]["reason"], "mine");
    let told = format!(
        "The source was paused before, since {}, and stays so for that reason: mine",
        now()
    );
    assert_eq!(second["warnings"][0], told);
    postern.ask(RESUME).await.good(200);
    let before = stored(&postern).await;
    postern.ask(RESUME).await.good(200);
    assert_eq!(stored(&postern).await, before);
}

/// Who comes second looks again, and does not undo what the first one did.
#[tokio::test]
async fn a_change_at_the_same_moment_is_kept() {
    let postern = with_source().await;
    let other = json!({"silent_after_seconds": 60});
    let mine = json!({"reason": "a bug"});
    let (paused, changed) =
        tokio::join!(postern.post(PAUSE, &mine), postern.patch("/v1/sources/shop", &other));
    paused.good(200);
    // The change may have lost the race, and says so.
    let is_changed = changed.status.is_success();
    assert!(is_changed || changed.status == 409, "{changed:?}");
    let stored = stored(&postern).await;
    assert!(stored.paused.is_some() && stored.silent_after.is_some() == is_changed, "{stored:?}");
}

#[tokio::test]
async fn a_pause_needs_a_reason_a_source_and_its_own_events() {
    let postern = with_source().await;
    for reason in ["", "  ", "two\nlines", &"x".repeat(501)] {
        let refused = postern.post(PAUSE, &json!({ "reason": reason })).await;
        refused.problem(422, "invalid-request");
        assert_eq!(refused.fields(), ["reason"]);
    }
    postern.post(PAUSE, &json!({})).await.problem(422, "invalid-request");
    postern.post("/v1/sources/x/pause", &json!({"reason": "r"})).await.problem(404, "not-found");
    postern.ask("/v1/sources/x/resume").await.problem(404, "not-found");

    let mut twin = source("twin");
    twin["same_as"] = json!("shop");
    postern.post("/v1/sources", &twin).await.good(201);
    let refused = postern.post("/v1/sources/twin/pause", &json!({"reason": "r"})).await;
    let detail = refused.problem(409, "filed-elsewhere");
    assert!(detail.contains("filed under shop") && detail.contains("Pause that one"), "{detail}");
    assert_eq!(actions(&postern), ["source.add", "source.add"]);
}

/// What waits under its own name from before waits until it is resumed.
#[tokio::test]
async fn a_paused_source_that_became_the_same_as_another_can_be_resumed() {
    let postern = with_source().await;
    postern.post("/v1/sources", &source("other")).await.good(201);
    postern.post(PAUSE, &json!({"reason": "a bug"})).await.good(200);
    let changed = postern.patch("/v1/sources/shop", &json!({"same_as": "other"})).await.good(200);
    assert_eq!(changed["paused"]["reason"], "a bug");
    assert_eq!(postern.ask(RESUME).await.good(200)["paused"], Value::Null);
}

#[tokio::test]
async fn nothing_is_paused_or_resumed_without_its_entry() {
    let postern = with_source().await;
    let chaos = &postern.0.registry.chaos;
    chaos.on("configure.audit", When::Before, Fault::Unavailable);
    postern.post(PAUSE, &json!({"reason": "r"})).await.problem(503, "unavailable");
    assert_eq!(stored(&postern).await.paused, None);
    chaos.heal();
    postern.post(PAUSE, &json!({"reason": "r"})).await.good(200);
    chaos.on("configure.audit", When::Before, Fault::Unavailable);
    postern.ask(RESUME).await.problem(503, "unavailable");
    assert!(stored(&postern).await.paused.is_some());
}
