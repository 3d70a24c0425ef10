//! What the operators see of accepted and of refused requests, and what that costs.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod world;

use std::collections::BTreeMap;

use domain::ports::{RejectSample, SourceHealth, Watch as _};
use ingress::Answer;
use serde_json::Value;
use testkit::chaos::{Fault, When};
use world::{B_ASCII, World, arrival, at, event, key, name, with, with_header};

fn bad() -> Value {
    let signature = format!("sha256={}", "0".repeat(64));
    with_header(event("github"), "x-hub-signature-256", Some(&signature))
}

fn good(id: &str) -> Value {
    with_header(event("github"), "x-github-delivery", Some(id))
}

async fn health(world: &World, second: i64) -> SourceHealth {
    world.store.health(&name("github"), at(second)).await.unwrap()
}

async fn rejected(world: &World) -> Vec<RejectSample> {
    world.store.rejected(&name("github"), 100, at(1000)).await.unwrap()
}

/// A30: what is refused is counted, and a flood costs no write for each request.
#[tokio::test]
async fn a_flood_of_bad_requests_is_counted_in_a_few_writes() {
    let world = World::new();
    let ingress = world.ingress();
    for n in 0..10_000 {
        let answer = ingress.receive(&arrival(bad()), "t".to_owned(), at(n / 100)).await;
        assert_eq!(answer, Answer::Untrusted);
    }
    assert_eq!(world.calls("watch.note_rejects"), 10);
    // What came in the last ten seconds is written with the next.
    ingress.receive(&arrival(bad()), "t".to_owned(), at(100)).await;
    let mut others = world.store.chaos.calls();
    others.retain(|call| *call != "watch.note_rejects");
    assert_eq!(others, ["registry.source"; 2], "a look for newer secrets after a minute");
    assert_eq!(world.calls("watch.note_rejects"), 11);
    let health = health(&world, 100).await;
    assert_eq!(health.rejects, BTreeMap::from([("signature_mismatch".to_owned(), 10_001)]));
    assert_eq!(health.failing_since, Some(at(0)));
    assert_eq!(rejected(&world).await.len(), 11);
}

/// SEC-secret-in-logs: neither body nor signature nor token of a refused request is kept.
#[tokio::test]
async fn a_sample_says_what_is_needed_and_nothing_else() {
    let world = World::new();
    let mut event = with_header(bad(), "authorization", Some("Bearer CANARY"));
    let long = format!("\u{202e}evil{}", "x".repeat(500));
    for (header, value) in [
        ("cookie", "CANARY"),
        ("x-api-key", "CANARY"),
        ("x-hub-signature-256", "sha256=CANARY"),
        ("user-agent", long.as_str()),
        ("content-type", "application/json"),
    ] {
        event = with_header(event, header, Some(value));
    }
    let event = with(event, "/body", "CANARY body");
    world.answer(event, 7).await;
    let [sample] = rejected(&world).await.try_into().unwrap();
    assert!(!serde_json::to_string(&sample).unwrap().contains("CANARY"), "{sample:?}");
    assert_eq!((sample.at, sample.method.as_str(), sample.body_length), (at(7), "POST", 11));
    assert_eq!(sample.body_sha256.len(), 64);
    assert_eq!(sample.headers.get("content-type").unwrap(), "application/json");
    let agent = sample.headers.get("user-agent").unwrap();
    assert!(agent.len() == 120 && agent.starts_with("?evilx"), "{agent:?}");
    assert!(!sample.advice.is_empty() && !sample.class.is_empty());
    assert!(!format!("{:?}", arrival(bad())).contains("sha256="));
}

#[tokio::test]
async fn an_accepted_request_takes_back_that_the_source_fails() {
    let world = World::new();
    let ingress = world.ingress();
    let receive = async |event: Value, second| {
        ingress.receive(&arrival(event), format!("t{second}"), at(second)).await
    };
    receive(good("a"), 0).await;
    assert_eq!(health(&world, 0).await.failing_since, None);
    receive(bad(), 1).await;
    assert_eq!(health(&world, 1).await.failing_since, Some(at(1)));
    // Within ten seconds of the last note, and noted all the same: it might be the last request for a day.
    assert_eq!(receive(good("b"), 2).await, Answer::Accepted);
    let health = health(&world, 2).await;
    assert_eq!((health.failing_since, health.last_accepted_at), (None, Some(at(2))));
    assert_eq!(health.last_rejected_at, Some(at(1)));
    assert!(health.last_reject_reason.unwrap().contains("not trusted"));
}

/// A18: an operator sees when the old secret can go.
#[tokio::test]
async fn each_secret_has_the_time_of_its_last_match() {
    let world = World::new();
    world.secrets.set(
        &name("github"),
        vec![key("new", "another-field-secret-2"), key("old", "field-secret-1")],
    );
    let ingress = world.ingress();
    for (id, second) in [("a", 0), ("b", 5), ("a", 12), ("a", 30)] {
        let event = arrival(good(id));
        ingress.receive(&event, format!("{id}{second}"), at(second)).await;
    }
    let health = health(&world, 30).await;
    assert_eq!(health.secrets, BTreeMap::from([("old".to_owned(), at(30))]));
    // Duplicates show that the secret is in use, and not that the provider has something new to say.
    assert_eq!(health.last_accepted_at, Some(at(0)));
}

#[tokio::test]
async fn what_is_not_the_senders_doing_is_no_reject() {
    let world = World::new();
    let ingress = world.ingress();
    // A scanner.
    ingress.receive(&arrival(event("get")), "t".to_owned(), at(0)).await;
    let unknown = with(event("github"), "/pathParameters/source", "nobody");
    ingress.receive(&arrival(unknown), "t".to_owned(), at(0)).await;
    world.store.chaos.on("inbox.accept", When::Before, Fault::Throttled);
    ingress.receive(&arrival(event("github")), "t".to_owned(), at(0)).await;
    world.store.chaos.heal();
    assert!(world.store.tables().watched.is_empty());
}

#[tokio::test]
async fn failing_to_note_changes_no_answer() {
    for fault in [Fault::Unavailable, Fault::Refused, Fault::Crash] {
        for call in ["watch.note_accepted", "watch.note_rejects"] {
            let world = World { budget: std::time::Duration::from_millis(50), ..World::new() };
            world.store.chaos.on(call, When::Before, fault);
            assert_eq!(world.answer(bad(), 0).await, 401, "{call} {fault:?}");
            assert_eq!(world.answer(event("github"), 0).await, 200, "{call} {fault:?}");
            assert_eq!(world.body(&world.row()).await, B_ASCII);
        }
    }
}
