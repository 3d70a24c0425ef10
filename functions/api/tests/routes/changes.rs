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
