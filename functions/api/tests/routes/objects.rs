//! What is held of a provider's things, and how far it can be believed.

use domain::{
    event::{Object, ObjectRef, Version},
    ports::{AcceptReport, RejectReport, Watch as _},
};
use serde_json::{Value, json};

use crate::deployment::{Deployment, at, source};

const PATH: &str = "/v1/sources/shop/objects/invoice/in_1";

async fn with_object() -> Deployment {
    let postern = Deployment::new();
    let mut shop = source("shop");
    shop["silent_after_seconds"] = json!(7200);
    postern.post("/v1/sources", &shop).await.good(201);
    for source in postern.0.registry.tables().sources.values_mut() {
        source.created_at = at(-999_999);
    }
    hold(&postern, "in_1");
    postern
}

fn hold(postern: &Deployment, id: &str) {
    let object = Object {
        version: Version::Number(7),
        tie: String::new(),
        fields: json!({"total": 5}),
        deleted: false,
        updated_at: at(-100),
        as_of: at(-105),
        fetched: true,
    };
    let name = ObjectRef { kind: "invoice".to_owned(), id: id.to_owned() };
    postern.0.watch.tables().objects.insert(("shop".parse().unwrap(), name), object);
}

async fn hear(postern: &Deployment, source: &str, seconds: i64) {
    let report = AcceptReport { at: at(seconds), key_id: None, is_new: true };
    postern.0.watch.note_accepted(&source.parse().unwrap(), &report).await.unwrap();
}

async fn refuse(postern: &Deployment, source: &str, seconds: i64) {
    let report = RejectReport {
        at: at(seconds),
        counts: Default::default(),
        last_reason: "no".to_owned(),
        sample: None,
    };
    postern.0.watch.note_rejects(&source.parse().unwrap(), &report).await.unwrap();
}

async fn why(postern: &Deployment) -> Vec<String> {
    let object = postern.get(PATH).await.good(200);
    let why = object["why"].as_array().unwrap();
    assert_eq!(object["possibly_stale"], json!(!why.is_empty()));
    why.iter().map(|doubt| doubt["code"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn an_object_says_as_of_when_it_is_known() {
    let postern = with_object().await;
    hear(&postern, "shop", -5).await;
    let object = postern.get(PATH).await.good(200);
    let expected = json!({
        "source": "shop", "kind": "invoice", "id": "in_1", "fields": {"total": 5}, "version": 7,
        "deleted": false, "as_of": at(-105).to_string(), "fetched": true, "updated_at": at(-100).to_string(),
        "possibly_stale": false, "why": [],
    });
    assert_eq!(object, expected);
    for path in ["in_2", "in_1%00", "%F0%9F%90%8C"] {
        let path = format!("/v1/sources/shop/objects/invoice/{path}");
        postern.get(&path).await.problem(404, "not-found");
    }
    postern.get("/v1/sources/x/objects/invoice/in_1").await.problem(404, "not-found");
    // Ids are the provider's: a slash or a hash in one is a part of it.
    hold(&postern, "a/b#c");
    let odd = postern.get("/v1/sources/shop/objects/invoice/a%2Fb%23c").await.good(200);
    assert_eq!(odd["id"], "a/b#c");
}

/// K12
#[tokio::test]
async fn an_object_is_doubted_while_its_source_is_silent_refusing_paused_or_behind() {
    let postern = with_object().await;
    hear(&postern, "shop", -7200).await;
    assert!(why(&postern).await.is_empty());
    postern.0.watch.tables().watched.clear();
    hear(&postern, "shop", -7201).await;
    assert_eq!(why(&postern).await, ["silent"]);
    let words = postern.get("/v1/sources/shop").await.good(200)["health"]["words"].clone();
    let expected =
        "silent: the last new event was accepted 2 hours ago, and more than 2h should not pass";
    assert_eq!(words, expected);
    refuse(&postern, "shop", -60).await;
    assert_eq!(why(&postern).await, ["refuses_all", "silent"]);
    hear(&postern, "shop", -1).await;
    assert!(why(&postern).await.is_empty());

    postern.post("/v1/sources/shop/pause", &json!({"reason": "r"})).await.good(200);
    assert_eq!(why(&postern).await, ["paused"]);
    postern.ask("/v1/sources/shop/resume").await.good(200);
    let reconciled = |seconds| {
        let mut tables = postern.0.watch.tables();
        let watched = tables.watched.entry("shop".parse().unwrap()).or_default();
        watched.reconciled_until = Some(at(seconds));
    };
    reconciled(-3600);
    assert!(why(&postern).await.is_empty());
    reconciled(-3601);
    assert_eq!(why(&postern).await, ["reconciliation_behind"]);
}

/// Of a provider that sends each event to two sources, either may be the first to bring it.
#[tokio::test]
async fn a_source_is_heard_as_long_as_one_of_those_that_are_the_same_is() {
    let postern = with_object().await;
    let mut twin = source("twin");
    twin["same_as"] = json!("shop");
    postern.post("/v1/sources", &twin).await.good(201);
    hear(&postern, "shop", -90_000).await;
    assert_eq!(why(&postern).await, ["silent"]);
    hear(&postern, "twin", -5).await;
    assert!(why(&postern).await.is_empty());
    refuse(&postern, "shop", -3).await;
    assert!(why(&postern).await.is_empty());
    refuse(&postern, "twin", -2).await;
    let object = postern.get("/v1/sources/twin/objects/invoice/in_1").await.good(200);
    assert_eq!(
        (&object["source"], &object["why"][0]["code"]),
        (&json!("shop"), &json!("refuses_all"))
    );
    let words = object["why"][0]["words"].as_str().unwrap();
    assert!(words.contains(&at(-2).to_string()), "{words}");
}

#[tokio::test]
async fn how_long_a_source_may_be_silent_is_said_changed_and_taken_back() {
    let postern = with_object().await;
    let limit =
        async || postern.get("/v1/sources/shop").await.good(200)["silent_after_seconds"].clone();
    assert_eq!(limit().await, 7200);
    for (given, expected) in [(json!(60), json!(60)), (Value::Null, Value::Null)] {
        let change = json!({ "silent_after_seconds": given });
        postern.patch("/v1/sources/shop", &change).await.good(200);
        assert_eq!(limit().await, expected);
    }
    for wrong in [0, -1, 90 * 86_400 + 1] {
        let refused =
            postern.patch("/v1/sources/shop", &json!({"silent_after_seconds": wrong})).await;
        refused.problem(422, "invalid-request");
        assert_eq!(refused.fields(), ["silent_after_seconds"]);
    }
}
