//! What the routes have in common: strangers, bodies that cannot be read, stores that fail.

use axum::{body::Body, http::Request};
use serde_json::json;
use testkit::chaos::Fault;

use crate::deployment::{Deployment, source};

const GETS: [&str; 12] = [
    "/v1/sources",
    "/v1/sources/stripe",
    "/v1/sources/stripe/rejected",
    "/v1/sources/stripe/secrets",
    "/v1/sources/stripe/tokens",
    "/v1/sources/stripe/events/evt_1",
    "/v1/parked",
    "/v1/replays",
    "/v1/replays/rpl_00000000000000000000000000000001",
    "/v1/tenants/acme/endpoints",
    "/v1/tenants/acme/endpoints/ep_00000000000000000000000000000001",
    "/v1/tenants/acme/events/evt_00000000000000000000000000000001",
];

const POSTS: [&str; 9] = [
    "/v1/sources",
    "/v1/sources/stripe/secrets",
    "/v1/sources/stripe/tokens",
    "/v1/sources/stripe/events/evt_1/replay",
    "/v1/replays",
    "/v1/replays/rpl_00000000000000000000000000000001/cancel",
    "/v1/tenants/acme/endpoints",
    "/v1/events",
    "/v1/tenants/acme/events/evt_00000000000000000000000000000001/endpoints/ep_00000000000000000000000000000001/redeliver",
];

fn body(path: &str) -> serde_json::Value {
    match path {
        "/v1/sources" => source("stripe"),
        "/v1/sources/stripe/secrets" => json!({"id": "2", "secret": crate::deployment::SECRET}),
        "/v1/sources/stripe/tokens" => json!({"id": "2", "token": "rk"}),
        "/v1/replays" => json!({"source": "stripe", "reason": "x"}),
        "/v1/events" => json!({"tenant": "acme", "type": "a", "aggregate_id": "x", "payload": 1}),
        _ => json!({"url": "https://example.com/"}),
    }
}

#[tokio::test]
async fn paths_and_methods_that_there_are_not_are_told() {
    let postern = Deployment::new();
    for path in ["/", "/v1", "/v1/", "/v1/sources/", "/v2/sources", "/v1/tenants/acme"] {
        postern.get(path).await.problem(404, "no-such-route");
    }
    let request = Request::delete("/v1/sources").body(Body::empty()).unwrap();
    let answer = postern.send(request).await;
    answer.problem(405, "method-not-allowed");
    assert_eq!(answer.header("allow"), "GET,HEAD,POST");
    postern.get("/v1/events").await.problem(405, "method-not-allowed");
}

#[tokio::test]
async fn every_route_says_that_a_store_is_busy_and_when_to_come_again() {
    for fault in [Fault::Unavailable, Fault::Throttled] {
        let postern = Deployment::new();
        postern.break_all(fault);
        for path in GETS {
            let answer = postern.get(path).await;
            answer.problem(503, "unavailable");
            assert_eq!(answer.header("retry-after"), "2", "{path}");
        }
        for path in POSTS {
            postern.post(path, &body(path)).await.problem(503, "unavailable");
        }
    }
}

#[tokio::test]
async fn every_route_keeps_the_cause_of_a_refusal_to_itself() {
    let postern = Deployment::new();
    postern.break_all(Fault::Refused);
    for path in GETS {
        let answer = postern.get(path).await;
        answer.problem(500, "store-refused");
        assert!(!answer.text.contains("injected"), "{}", answer.text);
        assert_eq!(answer.header("retry-after"), "");
    }
    for path in POSTS {
        let answer = postern.post(path, &body(path)).await;
        answer.problem(500, "store-refused");
        assert!(!answer.text.contains("injected"), "{}", answer.text);
    }
}

#[tokio::test]
async fn a_body_that_cannot_be_read_is_told_how() {
    let postern = Deployment::new();
    let check = async |kind: Option<&str>, body: String, status, slug, says: &str| {
        let mut request = Request::post("/v1/sources");
        if let Some(kind) = kind {
            request = request.header("content-type", kind);
        }
        let detail =
            postern.send(request.body(Body::from(body)).unwrap()).await.problem(status, slug);
        assert!(detail.contains(says), "{detail}");
    };
    let json = Some("application/json");
    let large = format!("\"{}\"", "x".repeat(2 * 1024 * 1024));
    check(None, "{}".to_owned(), 415, "wrong-media-type", "Content-Type: application/json").await;
    check(Some("text/json"), "{}".to_owned(), 415, "wrong-media-type", "application/json").await;
    check(json, String::new(), 400, "not-json", "line 1").await;
    check(json, "{\"name\": x}".to_owned(), 400, "not-json", "line 1 column 10").await;
    check(json, "[]".to_owned(), 422, "invalid-request", "").await;
    check(json, large, 413, "too-large", "at most 2097152 bytes").await;
    check(json, "[".repeat(100_000), 422, "invalid-request", "").await;
}

#[tokio::test]
async fn an_event_of_the_largest_payload_fits() {
    let mut postern = Deployment::new();
    std::sync::Arc::get_mut(&mut postern.0).unwrap().limits.payload_bytes = 1_000_000;
    let event = json!({
        "tenant": "acme", "type": "a", "aggregate_id": "x", "payload": "x".repeat(999_998),
    });
    postern.post("/v1/events", &event).await.good(202);
}

#[tokio::test]
async fn no_answer_is_kept_on_the_way() {
    let postern = Deployment::new();
    for path in ["/v1/sources", "/v1/sources/nobody", "/nowhere"] {
        assert_eq!(postern.get(path).await.header("cache-control"), "no-store", "{path}");
    }
}
