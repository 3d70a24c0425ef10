//! Endpoints changed, and set up by a program in one call.

use std::sync::Arc;

use domain::{endpoint::Endpoint, id::EndpointId, ports::Registry as _};
use serde_json::{Value, json};
use testkit::chaos::{Fault, When};

use crate::deployment::{Deployment, acme, at, next_random, now};

const PATH: &str = "/v1/tenants/acme/endpoints";

async fn with_endpoint() -> (Deployment, String, EndpointId) {
    let postern = Deployment::new();
    let wanted = json!({"url": "https://example.com/in", "patterns": ["a.*"], "rate": 7});
    let made = postern.post(PATH, &wanted).await.good(201);
    let id = made["id"].as_str().unwrap();
    (postern, format!("{PATH}/{id}"), id.parse().unwrap())
}

async fn stored(postern: &Deployment, id: EndpointId) -> Endpoint {
    postern.0.registry.endpoint(&acme(), id).await.unwrap().unwrap().0
}

/// F14: what a receiver allows holds over all lanes, also over those that an endpoint had until lately.
#[tokio::test]
async fn lanes_without_a_part_of_the_concurrency_are_refused() {
    let postern = Deployment::new();
    let url = "https://example.com/in";
    let too_many = postern.post(PATH, &json!({"url": url, "lanes": 6})).await;
    assert_eq!(too_many.fields(), ["lanes"]);
    assert!(format!("{too_many:?}").contains("6 at least, one for each; it is 5"), "{too_many:?}");
    let made =
        postern.post(PATH, &json!({"url": url, "lanes": 6, "concurrency": 6})).await.good(201);
    let path = format!("{PATH}/{}", made["id"].as_str().unwrap());
    let fewer = postern.patch(&path, &json!({"concurrency": 5})).await;
    assert_eq!(fewer.fields(), ["concurrency"]);
    // Two lanes are enough from now on; what the six still hold goes out beside.
    postern.patch(&path, &json!({"lanes": 2})).await.good(200);
    assert_eq!(postern.patch(&path, &json!({"concurrency": 5})).await.fields(), ["concurrency"]);
    postern.patch(&path, &json!({"description": "as before"})).await.good(200);
}

#[tokio::test]
async fn an_endpoint_has_what_it_was_made_with() {
    let postern = Deployment::new();
    let wanted = json!({
        "url": "https://example.com/in", "description": " Ann's shop ", "idempotent": false, "patterns": ["a.*"],
        "labels": {"region": "eu"}, "filter": {"/amount": {"gte": 100}}, "concurrency": 9, "rate": 50, "lanes": 4,
        "style": "thin",
    });
    let made = postern.post(PATH, &wanted).await.good(201);
    for (member, value) in wanted.as_object().unwrap() {
        match member.as_str() {
            "description" => assert_eq!(made[member], "Ann's shop"),
            "lanes" => assert_eq!(made[member], json!([{"from": now(), "count": 4}])),
            _ => assert_eq!(made[member], *value, "{member}"),
        }
    }
    assert_eq!(made["earlier"], Value::Null, "it has chosen nothing before");
}

#[tokio::test]
async fn a_change_leaves_what_it_does_not_name() {
    let (postern, path, id) = with_endpoint().await;
    let before = stored(&postern, id).await;
    let changed = postern.patch(&path, &json!({"concurrency": 3})).await.good(200);
    assert_eq!((&changed["rate"], &changed["concurrency"]), (&json!(7), &json!(3)));
    assert_eq!(stored(&postern, id).await, Endpoint { concurrency: Some(3), ..before });
    let changed = postern.patch(&path, &json!({"rate": null, "concurrency": null})).await.good(200);
    assert_eq!((&changed["rate"], &changed["concurrency"]), (&Value::Null, &Value::Null));
    let moved = postern.patch(&path, &json!({"url": "https://example.org:8443/new"})).await;
    assert_eq!(moved.good(200)["url"], "https://example.org:8443/new");
    // Events of before are judged by what was chosen before.
    let chosen =
        json!({"patterns": ["b.*"], "filter": {"/a": {"exists": true}}, "labels": {"x": "y"}});
    let chosen = postern.patch(&path, &chosen).await.good(200);
    assert_eq!(chosen["earlier"][0]["patterns"], json!(["a.*"]));
    assert_eq!(chosen["filter"], json!({"/a": {"exists": true}}));
    let without = postern.patch(&path, &json!({"filter": null})).await.good(200);
    assert_eq!((&without["filter"], &without["patterns"]), (&Value::Null, &json!(["b.*"])));
    let lanes = postern.patch(&path, &json!({"lanes": 3})).await.good(200);
    assert_eq!(lanes["lanes"], json!([{"from": now(), "count": 1}, {"from": at(120), "count": 3}]));
    let epoch = postern.0.registry.endpoints_epoch(&acme()).await.unwrap();
    postern.patch(&path, &json!({"lanes": 3})).await.good(200);
    assert_eq!(
        postern.0.registry.endpoints_epoch(&acme()).await.unwrap(),
        epoch,
        "nothing to write"
    );
}

/// SSRF-update-and-test-paths, SSRF-ports, I17, I18: every way in has the same check.
#[tokio::test]
async fn no_way_in_takes_a_url_that_another_refuses() {
    let (postern, path, id) = with_endpoint().await;
    let before = stored(&postern, id).await;
    for bad in [
        "http://169.254.169.254/",
        "file:///etc/passwd",
        "ftp://example.com/",
        "gopher://example.com/",
        "http://example.com/",
        "https://169.254.169.254/latest/meta-data",
        "https://127.0.0.1:9001/2018-06-01/runtime/invocation/next",
        "https://[::1]/",
        "https://[::ffff:169.254.169.254]/",
        "https://0x7f000001/",
        "https://localhost/",
        "https://user:pw@example.com/",
        "https://example.com:22/",
        "https://example.com:25/",
        "https://example.com:6379/",
        "https://example.com:9001/",
        "https://example.com:0/",
        "https://example.com:65536/",
        "https://example.com:443443/",
    ] {
        let wanted = json!({"url": bad});
        for (way, answer) in [
            ("create", postern.post(PATH, &wanted).await),
            ("change", postern.patch(&path, &wanted).await),
            ("configure", postern.put(&format!("{PATH}/by-key/k"), &wanted).await),
        ] {
            answer.problem(422, "invalid-request");
            assert_eq!(answer.fields(), ["url"], "{way} {bad}");
        }
    }
    assert_eq!(stored(&postern, id).await, before);
    assert_eq!(postern.0.registry.tables().endpoints.len(), 1);
    for good in ["https://example.com/", "https://example.com:443/", "https://example.com:8443/"] {
        postern.patch(&path, &json!({"url": good})).await.good(200);
    }
}

#[tokio::test]
async fn everything_that_is_wrong_with_a_change_is_told_at_once() {
    let (postern, path, id) = with_endpoint().await;
    let before = stored(&postern, id).await;
    let wrong = json!({
        "url": "https://10.0.0.1/", "description": "a\nb", "patterns": ["**"], "labels": {"": "x"},
        "filter": {"amount": 1}, "concurrency": 101, "rate": 0, "lanes": 33, "secret": "whsec_x", "test": true,
    });
    let answer = postern.patch(&path, &wrong).await;
    answer.problem(422, "invalid-request");
    let mut fields = answer.fields();
    fields.sort();
    fields.dedup();
    let expected = [
        "concurrency",
        "description",
        "filter",
        "labels",
        "lanes",
        "patterns[0]",
        "rate",
        "secret",
        "test",
        "url",
    ];
    assert_eq!(fields, expected);
    assert_eq!(stored(&postern, id).await, before);
    let queue = "https://sqs.eu-central-1.amazonaws.com/123456789012/mail";
    postern.patch(&path, &json!({"queue": queue})).await.problem(409, "other-kind");
    let answer =
        postern.post(PATH, &json!({"queue": queue, "style": "thin", "kind": "hmac"})).await;
    answer.problem(422, "invalid-request");
    assert_eq!(answer.fields(), ["style", "kind"]);
    let nobody = format!("{PATH}/{}", EndpointId::new(uuid::Uuid::from_u128(99)));
    postern.patch(&nobody, &json!({"rate": 1})).await.problem(404, "not-found");
}

#[tokio::test]
async fn two_changes_at_once_are_both_made() {
    let (postern, path, id) = with_endpoint().await;
    let (rate, concurrency) = (json!({"rate": 11}), json!({"concurrency": 12}));
    let (a, b) = tokio::join!(postern.patch(&path, &rate), postern.patch(&path, &concurrency));
    a.good(200);
    b.good(200);
    let endpoint = stored(&postern, id).await;
    assert_eq!((endpoint.rate, endpoint.concurrency), (Some(11), Some(12)));
}

#[tokio::test]
async fn a_program_sets_an_endpoint_up_in_one_call_that_it_may_repeat() {
    let postern = Deployment::new();
    let path = format!("{PATH}/by-key/shop%3A7");
    let wanted =
        json!({"url": "https://example.com/in", "patterns": ["a.*"], "description": "Ann"});
    let made = postern.put(&path, &wanted).await.good(201);
    assert!(made["secret"].as_str().unwrap().starts_with("whsec_"), "{made}");
    assert_eq!(made["key"], "shop:7");
    let again = postern.put(&path, &wanted).await.good(200);
    assert_eq!((&again["id"], &again["changed"]), (&made["id"], &json!(false)));
    assert_eq!(again["secret"], Value::Null);
    assert_eq!(postern.audited().len(), 1, "a call that changes nothing is no change");
    // What is left out has its default: the call says all that the endpoint is.
    let other = json!({"url": "https://example.org/in", "rate": 5});
    let changed = postern.put(&path, &other).await.good(200);
    assert_eq!((&changed["id"], &changed["changed"]), (&made["id"], &json!(true)));
    let id = made["id"].as_str().unwrap().parse().unwrap();
    let endpoint = stored(&postern, id).await;
    assert_eq!((endpoint.patterns.len(), endpoint.rate), (0, Some(5)));
    assert_eq!(
        (endpoint.destination.to_string(), endpoint.description.as_str()),
        ("https://example.org/in".to_owned(), "")
    );
    assert_eq!(postern.audited().last().unwrap().2, "endpoint.configure");
    // What people did to it since stays.
    let one = format!("{PATH}/{id}");
    postern.post(&format!("{one}/pause"), &json!({"reason": "x"})).await.good(200);
    postern.put(&path, &wanted).await.good(200);
    assert!(stored(&postern, id).await.stopped.is_some());
    // After it was deleted, the key makes another one.
    postern.delete(&one).await.good(200);
    let anew = postern.put(&path, &wanted).await.good(201);
    assert!(anew["id"] != made["id"] && anew["secret"].is_string(), "{anew}");
}

#[tokio::test]
async fn of_many_same_calls_at_once_one_makes_the_endpoint() {
    let postern = Deployment::new();
    let (path, wanted) = (format!("{PATH}/by-key/k"), json!({"url": "https://example.com/in"}));
    let call = || postern.put(&path, &wanted);
    let (a, b, c) = tokio::join!(call(), call(), call());
    let mut codes = [&a, &b, &c].map(|answer| answer.status.as_u16());
    codes.sort_unstable();
    assert_eq!(codes, [200, 200, 201]);
    assert_eq!(postern.0.registry.tables().endpoints.len(), 1);
    let ids = [a, b, c].map(|answer| answer.json()["id"].clone());
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
}

#[tokio::test]
async fn a_setup_rotates_no_secret_and_knows_its_limits() {
    let mut postern = Deployment::new();
    Arc::get_mut(&mut postern.0).unwrap().edge.random = next_random;
    let own = "whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcY";
    let (path, wanted) =
        (format!("{PATH}/by-key/k"), json!({"url": "https://example.com/in", "secret": own}));
    let made = postern.put(&path, &wanted).await.good(201);
    assert_eq!(made["secret"], Value::Null);
    postern.put(&path, &wanted).await.good(200);
    let other = json!({"url": "https://example.com/in", "secret": "whsec_CQIDBAUGBwgJCgsMDQ4PEBESExQVFhcY"});
    let detail = postern.put(&path, &other).await.problem(409, "other-secret");
    assert!(detail.contains("/secrets/rotate") && !detail.contains("whsec"), "{detail}");
    // Credentials are sealed anew each time: nobody can compare them.
    let auth = json!({"url": "https://example.com/in", "auth": {"kind": "bearer", "secret": "t"}});
    for _ in 0..2 {
        assert_eq!(postern.put(&path, &auth).await.good(200)["changed"], true);
    }
    let bare = postern.put(&path, &json!({"url": "https://example.com/in"})).await.good(200);
    assert_eq!((&bare["changed"], &bare["auth"]), (&json!(true), &Value::Null));
    let answer = postern.put(&format!("{PATH}/by-key/a%20b"), &json!({})).await;
    answer.problem(422, "invalid-request");
    assert_eq!(answer.fields(), ["key", "url"]);
    for n in 0..2 {
        postern.put(&format!("{PATH}/by-key/{n}"), &auth).await.good(201);
    }
    postern.put(&format!("{PATH}/by-key/9"), &auth).await.problem(409, "limit-reached");
    postern.put(&path, &auth).await.good(200);
}

/// OUT-error-after-commit: whoever got no answer asks again, and has one endpoint.
#[tokio::test]
async fn a_setup_whose_answer_was_lost_is_repeated() {
    let postern = Deployment::new();
    let (path, wanted) = (format!("{PATH}/by-key/k"), json!({"url": "https://example.com/in"}));
    postern.0.registry.chaos.on("configure.add_endpoint", When::After, Fault::Unavailable);
    postern.put(&path, &wanted).await.problem(503, "unavailable");
    postern.0.registry.chaos.heal();
    let there = postern.put(&path, &wanted).await.good(200);
    assert_eq!(there["changed"], false);
    assert_eq!(postern.0.registry.tables().endpoints.len(), 1);
}

/// A change that does not say where the endpoint is keeps it to the rules of where it is.
#[tokio::test]
async fn a_change_knows_what_the_kind_of_an_endpoint_does_not_have() {
    let postern = Deployment::new();
    let made = postern.post("/v1/tenants/acme/endpoints", &json!({"poll": true})).await.good(201);
    let path = format!("/v1/tenants/acme/endpoints/{}", made["id"].as_str().unwrap());
    let wanted = json!({"rate": 5, "auth": {"kind": "bearer", "secret": "a-token-of-some-length"}});
    let answer = postern.patch(&path, &wanted).await;
    answer.problem(422, "invalid-request");
    assert_eq!(answer.fields(), ["auth", "rate"]);
    postern.patch(&path, &json!({"rate": null, "description": "x"})).await.good(200);
}
