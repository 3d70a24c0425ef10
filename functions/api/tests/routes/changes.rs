//! Changes of sources.

use std::sync::Arc;

use domain::{
    id::SourceName,
    source::{Dedupe, Handler},
};
use serde_json::{Value, json};

use crate::deployment::{Deployment, SECRET, source};

async fn with_sources(names: &[&str]) -> Deployment {
    let postern = Deployment::new();
    for name in names {
        postern.post("/v1/sources", &source(name)).await.good(201);
    }
    postern
}

#[tokio::test]
async fn a_change_changes_what_it_names_and_nothing_else() {
    let postern = with_sources(&["a", "b"]).await;
    let before = postern.get("/v1/sources/a").await.good(200);
    let check = async |change: Value| {
        let changed = postern.patch("/v1/sources/a", &change).await.good(200);
        let shown = postern.get("/v1/sources/a").await.good(200);
        for field in
            ["name", "scheme", "config", "handler", "created_at", "dedupe", "same_as", "secrets"]
        {
            let expected = change.get(field).unwrap_or(&before[field]);
            assert_eq!((&changed[field], &shown[field]), (expected, expected), "{field}");
        }
        assert!(
            changed["warnings"][0].as_str().unwrap().contains("for some minutes yet"),
            "{changed}"
        );
    };
    check(json!({"handler": {"kind": "mirror", "emit_to": "acme"}})).await;
    let back = before["handler"].clone();
    check(json!({"handler": back, "dedupe": "content"})).await;
    check(json!({"dedupe": "id", "same_as": "b"})).await;
    check(json!({"same_as": null})).await;
    check(json!({})).await;
    let own = json!({"own": {"like": "stripe", "timestamp": {"tolerance": 600}}});
    check(json!({"scheme": own})).await;
}

#[tokio::test]
async fn a_change_is_checked_like_an_addition_and_leaves_nothing_half_done() {
    let postern = with_sources(&["a"]).await;
    let before = postern.get("/v1/sources/a").await.good(200);
    let wrong = json!({
        "handler": {"kind": "forward", "tenant": "A#B"}, "scheme": {"preset": "strpe"},
        "awaits_secret_hours": 73, "same_as": "Not A Name", "dedupe": "content",
    });
    let answer = postern.patch("/v1/sources/a", &wrong).await;
    answer.problem(422, "invalid-request");
    let expected = ["handler.tenant", "same_as", "scheme.preset", "awaits_secret_hours"];
    assert_eq!(answer.fields(), expected);
    postern.patch("/v1/sources/a", &json!({"name": "b"})).await.problem(422, "invalid-request");
    postern.patch("/v1/sources/nobody", &json!({})).await.problem(404, "not-found");
    assert_eq!(postern.get("/v1/sources/a").await.good(200), before);
}

/// ING-two-endpoints-same-event
#[tokio::test]
async fn a_source_is_the_same_as_another_one_that_is_there_and_stands_alone() {
    let postern = with_sources(&["a", "b", "c"]).await;
    let check = async |name: &str, other: &str, says: &str| {
        let change = json!({"same_as": other});
        let answer = postern.patch(&format!("/v1/sources/{name}"), &change).await;
        let detail = answer.problem(422, "invalid-request");
        assert!(detail.contains(says), "{detail}");
        assert_eq!(answer.fields(), ["same_as"]);
    };
    check("a", "a", "not as itself").await;
    check("a", "nobody", "there is no source of this name").await;
    postern.patch("/v1/sources/a", &json!({"same_as": "b"})).await.good(200);
    check("c", "a", "name that one").await;
    check("b", "c", "the events of a are filed under this source").await;
    let mut new = source("d");
    new["same_as"] = json!("a");
    postern.post("/v1/sources", &new).await.problem(422, "invalid-request");
    new["same_as"] = json!("b");
    assert_eq!(postern.post("/v1/sources", &new).await.good(201)["same_as"], "b");
}

/// SEC-live-test-mode
#[tokio::test]
async fn what_events_must_say_is_set_shown_changed_and_taken_away() {
    let postern = with_sources(&["other"]).await;
    let mut new = source("a");
    new["only"] = json!({"/livemode": true, "/data/mode": "live", "/n": 2});
    let made = postern.post("/v1/sources", &new).await.good(201);
    let shown = async || postern.get("/v1/sources/a").await.good(200)["only"].clone();
    let listed = postern.get("/v1/sources").await.good(200);
    assert_eq!((&made["only"], shown().await), (&new["only"], new["only"].clone()));
    assert_eq!(listed["sources"][0]["only"], new["only"]);
    let change = async |change: Value| {
        let changed = postern.patch("/v1/sources/a", &change).await.good(200);
        assert_eq!(changed["only"], shown().await);
        changed["only"].clone()
    };
    assert_eq!(change(json!({"dedupe": "content"})).await, new["only"]);
    assert_eq!(change(json!({"only": {"/livemode": false}})).await, json!({"/livemode": false}));
    assert_eq!(change(json!({"only": null})).await, json!({}));
    let fields = async |change: Value| {
        let answer = postern.patch("/v1/sources/a", &change).await;
        answer.problem(422, "invalid-request");
        let mut new = source("b");
        new.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let refused = postern.post("/v1/sources", &new).await;
        refused.problem(422, "invalid-request");
        assert_eq!(refused.fields(), answer.fields());
        assert!(!answer.text.contains("CANARY"), "{}", answer.text);
        answer.fields()
    };
    assert_eq!(fields(json!({"only": {"livemode": true, "/ok": 1}})).await, ["only.livemode"]);
    assert_eq!(fields(json!({"only": {"": true}})).await, ["only."]);
    for pointer in ["/a~", "/a~2", "/~01~"] {
        assert_eq!(fields(json!({"only": {pointer: true}})).await, [format!("only.{pointer}")]);
    }
    for value in [json!(null), json!(["CANARY"]), json!({"a": "CANARY"})] {
        assert_eq!(fields(json!({"only": {"/a": value}})).await, ["only./a"]);
    }
    assert_eq!(fields(json!({"only": {"/a": "x".repeat(1025)}})).await, ["only"]);
    let many: serde_json::Map<_, _> = (0..21).map(|n| (format!("/{n}"), json!(1))).collect();
    assert_eq!(fields(json!({"only": many})).await, ["only"]);
    // Whose events are filed elsewhere has no say in it.
    assert_eq!(fields(json!({"only": {"/a": 1}, "same_as": "other"})).await, ["only"]);
    change(json!({"only": {"/a": 1}})).await;
    let answer = postern.patch("/v1/sources/a", &json!({"same_as": "other"})).await;
    answer.problem(422, "invalid-request");
    assert_eq!(answer.fields(), ["only"]);
}

/// The worker takes requests apart as the other source's scheme says: events of a list would be taken for one.
#[tokio::test]
async fn a_source_is_the_same_only_as_one_whose_requests_are_taken_apart_alike() {
    let postern = with_sources(&["a", "b"]).await;
    let lists = json!({"own": {"like": "stripe", "batch": "/events"}});
    let refused = async |name: &str, change: Value, field: &str| {
        let answer = postern.patch(&format!("/v1/sources/{name}"), &change).await;
        let detail = answer.problem(422, "invalid-request");
        assert!(detail.contains("several events"), "{detail}");
        assert_eq!(answer.fields(), [field]);
    };
    refused("a", json!({"same_as": "b", "scheme": lists}), "same_as").await;
    postern.patch("/v1/sources/a", &json!({"same_as": "b"})).await.good(200);
    refused("a", json!({"scheme": lists}), "same_as").await;
    refused("b", json!({"scheme": lists}), "scheme").await;
    postern.patch("/v1/sources/a", &json!({"same_as": null})).await.good(200);
    postern.patch("/v1/sources/b", &json!({"scheme": lists})).await.good(200);
    postern.patch("/v1/sources/a", &json!({"scheme": lists, "same_as": "b"})).await.good(200);
}

#[tokio::test]
async fn a_scheme_that_no_secret_fits_is_refused_unless_somebody_insists() {
    let postern = with_sources(&["a"]).await;
    let scheme = json!({"scheme": {"preset": "discord"}});
    let detail = postern.patch("/v1/sources/a", &scheme).await.problem(409, "secrets-do-not-fit");
    assert!(detail.contains("?force=true"), "{detail}");
    let forced = postern.patch("/v1/sources/a?force=true", &scheme).await.good(200);
    assert_eq!(forced["scheme"], scheme["scheme"]);
    assert!(!forced.to_string().contains(SECRET));
}

#[tokio::test]
async fn a_change_that_came_second_says_so_and_changes_nothing() {
    let postern = with_sources(&["a"]).await;
    let name: SourceName = "a".parse().unwrap();
    // Between the look and the write, somebody else is quicker.
    let (api, of) = (Arc::clone(&postern.0), name.clone());
    postern.0.registry.chaos.set(move |_, call| {
        if call == "configure.audit" {
            api.registry.tables().sources.get_mut(&of).unwrap().dedupe = Dedupe::Content;
        }
        None
    });
    let change = json!({"handler": {"kind": "mirror"}});
    let detail = postern.patch("/v1/sources/a", &change).await.problem(409, "changed-meanwhile");
    assert!(detail.contains("send the change again"), "{detail}");
    postern.0.registry.chaos.heal();
    let source = postern.0.registry.tables().sources[&name].clone();
    assert_eq!(source.dedupe, Dedupe::Content);
    assert!(matches!(source.handler, Handler::Forward { .. }));
    postern.patch("/v1/sources/a", &change).await.good(200);
}
