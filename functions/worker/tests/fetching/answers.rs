//! What becomes of an event whose provider does not give the state: told with what, why and what next.

use std::{collections::BTreeMap, time::Duration};

use domain::{
    event::ObjectRef,
    fetch::{Fetch, FetchChoice, Pace},
    inbox::Status,
    ports::{Turn, Turns as _},
};
use jiff::Timestamp;
use serde_json::json;
use worker::Outcome;

use crate::{
    provider::{Reply, answer, json as reply},
    world::{World, at, shop, why},
};

/// Handles one event that is answered so: what its story says then.
async fn told(answer: Reply) -> (World, Outcome) {
    let world = World::new(answer).await;
    let key = world.accept("evt_1", Some(1), &json!({ "note": "EVENT_CANARY" })).await;
    let outcome = world.handle(&key).await;
    let (code, message) = why(&outcome);
    let row = world.row(&key);
    let error = row.last_error.clone().unwrap();
    assert_eq!((&error.code, &error.message), (&code, &message));
    assert_eq!((row.status, row.next_action.is_some()), (Status::Pending, true));
    let everything = format!("{row:?} {outcome:?} {:?}", world.metrics.lines(at(0)));
    for secret in ["sk_canary", "BODY_CANARY", "EVENT_CANARY"] {
        assert!(!everything.contains(secret), "{secret}: {everything}");
    }
    assert!(world.object().is_none() && world.told().is_empty());
    assert_eq!(world.lease(), Some(at(0)), "the lease is given back");
    (world, outcome)
}

/// SEC-secret-in-logs
#[tokio::test]
async fn what_somebody_has_to_correct_counts_as_an_attempt_and_says_what() {
    let json = "content-type: application/json\r\n";
    let to_loopback = "location: https://127.0.0.1/BODY_CANARY\r\n";
    for (reply, code, says) in [
        (answer("401 Unauthorized", "", "BODY_CANARY"), "fetch_refused", "401"),
        (
            answer("403 Forbidden", "", "BODY_CANARY"),
            "fetch_refused",
            "postern sources tokens add shop",
        ),
        (answer("302 Found", to_loopback, ""), "fetch_unusable", "redirect"),
        (answer("404 Not Found", "", "BODY_CANARY"), "fetch_unusable", "404"),
        (answer("400 Bad Request", "", "BODY_CANARY"), "fetch_unusable", "400"),
        (
            answer("200 OK", "content-type: text/html\r\n", "<html>BODY_CANARY"),
            "fetch_unusable",
            "content type",
        ),
        (answer("200 OK", json, "BODY_CANARY"), "fetch_unusable", "parsed"),
        (answer("200 OK", json, r#"{"id":"BODY_CANARY"}"#), "fetch_unusable", "another object"),
        (answer("200 OK", json, r#"["BODY_CANARY"]"#), "fetch_unusable", "no object"),
        (Reply::Flood(8 * 1024 * 1024 + 16 * 1024), "fetch_unusable", "8 MiB"),
    ] {
        let (world, outcome) = told(reply).await;
        let (was, message) = why(&outcome);
        assert_eq!(was, code, "{message}");
        assert!(message.contains(says) && message.contains("then replay the event"), "{message}");
        assert!(matches!(outcome, Outcome::Retry { .. }), "{outcome:?}");
        assert_eq!(world.provider.asked().len(), 1, "a redirect is not followed: {message}");
    }
}

/// RTY-provider-outage: a provider that is down costs no event an attempt.
#[tokio::test]
async fn what_may_pass_is_waited_for_and_does_not_count() {
    for (reply, code) in [
        (answer("500 Internal Server Error", "", "BODY_CANARY"), "fetch_no_answer"),
        (answer("502 Bad Gateway", "", "BODY_CANARY"), "fetch_no_answer"),
        (Reply::Nothing, "fetch_no_answer"),
        (Reply::Bytes(Vec::new()), "fetch_no_answer"),
        (answer("503 Service Unavailable", "", "BODY_CANARY"), "fetch_busy"),
        (answer("429 Too Many Requests", "retry-after: 90\r\n", "BODY_CANARY"), "fetch_busy"),
    ] {
        let (_, outcome) = told(reply).await;
        assert_eq!(why(&outcome).0, code);
        assert!(matches!(outcome, Outcome::Waits { .. }), "{outcome:?}");
    }
}

#[tokio::test]
async fn the_longer_a_provider_is_down_the_rarer_it_is_asked() {
    let world = World::new(answer("500 Internal Server Error", "", "")).await;
    let key = world.accept("evt_1", Some(1), &json!({})).await;
    for (after, wait) in [(0, 10), (40_000, 20), (560_000, 300), (3_000_000, 900)] {
        world.later(after);
        world.handle(&key).await;
        let expected = world.now() + Duration::from_secs(wait);
        assert_eq!(world.row(&key).waits_until, Some(expected), "{after}");
    }
    assert_eq!(world.row(&key).attempts, 0);
}

/// D4: what one worker hears, all heed.
#[tokio::test]
async fn a_provider_that_takes_no_more_is_left_alone_by_all_workers() {
    let (world, outcome) = told(answer("429 Too Many Requests", "retry-after: 90\r\n", "")).await;
    assert!(matches!(outcome, Outcome::Waits { until, .. } if until == at(120_000)), "{outcome:?}");
    let other = ObjectRef { kind: "invoice".to_owned(), id: "in_2".to_owned() };
    let key = world.accept_of("evt_2", "invoice.paid", Some(other), Some(1), &json!({})).await;
    world.later(30_000);
    let outcome = world.handle_with(&key, Timestamp::MAX, 0.0).await;
    assert_eq!(why(&outcome).0, "fetch_busy");
    assert!(matches!(outcome, Outcome::Waits { until, .. } if until == at(90_000)), "{outcome:?}");
    assert_eq!(world.provider.asked().len(), 1);
    world.provider.says(reply(&json!({ "id": "in_2" })));
    world.later(60_000);
    assert!(matches!(world.handle(&key).await, Outcome::Finished { .. }));
}

/// One call a second, and the next turn after five.
async fn slow() -> World {
    let world = World::with(reply(&json!({ "id": "in_1" })), |source| {
        let own = json!({ "like": "stripe", "rate": 1, "burst": 1 });
        source.fetch = Some(Fetch { choice: FetchChoice::Own(own), when: None });
    })
    .await;
    let pace = Pace { interval: Duration::from_secs(1), burst: 1 };
    for _ in 0..5 {
        let turn =
            world.store.take_turn(&shop(), pace, Duration::from_secs(60), at(0)).await.unwrap();
        assert!(!matches!(turn, Turn::Later(_)));
    }
    world
}

/// D4
#[tokio::test]
async fn whose_turn_is_far_away_waits_outside() {
    let world = slow().await;
    let key = world.accept("evt_1", Some(1), &json!({})).await;
    let outcome = world.handle_with(&key, Timestamp::MAX, 0.0).await;
    assert!(matches!(outcome, Outcome::Waits { until, .. } if until == at(5000)), "{outcome:?}");
    assert!(world.provider.asked().is_empty());
    world.later(5000);
    assert!(matches!(world.handle(&key).await, Outcome::Finished { .. }));
}

/// A slow provider beside the attempt's own end: a call that could not end in time is not begun, and one that is begun
/// ends in time.
#[tokio::test]
async fn a_call_ends_before_its_attempt_does() {
    let world = World::new(reply(&json!({ "id": "in_1" }))).await;
    let key = world.accept("evt_1", Some(1), &json!({})).await;
    let outcome = world.handle_until(&key, at(300)).await;
    assert_eq!(why(&outcome).0, "fetch_no_time");
    assert!(world.provider.asked().is_empty());
    assert_eq!((world.row(&key).attempts, world.lease()), (0, Some(at(0))));
}

/// C33, D4: a thousand events whose turn is far away do not come back together, and none of them comes too early.
#[tokio::test]
async fn those_whose_turn_is_far_away_come_back_spread() {
    const HERD: u32 = 1000;
    let world = slow().await;
    let mut back = BTreeMap::new();
    for n in 0..HERD {
        let key = world.accept(&format!("evt_{n}"), Some(1), &json!({})).await;
        let jitter = f64::from(n) / f64::from(HERD);
        world.handle_with(&key, Timestamp::MAX, jitter).await;
        let until = world.row(&key).waits_until.unwrap();
        assert!(until >= at(5000), "{n}: {until}");
        *back.entry(until.as_second()).or_insert(0) += 1;
    }
    assert!(world.provider.asked().is_empty());
    let most = back.values().max().unwrap();
    assert!(*most <= HERD / 20, "{most} in one second: {back:?}");
}

/// D4: what is asked of a provider that takes no more becomes less, and never before it says.
#[tokio::test]
async fn the_longer_an_event_has_waited_for_its_turn_the_rarer_it_asks() {
    let world = World::new(answer("429 Too Many Requests", "retry-after: 90\r\n", "")).await;
    let key = world.accept("evt_1", Some(1), &json!({})).await;
    for (after, jitter, wait) in [
        (0, 0.0, 90),
        (0, 1.0, 120),
        (600_000, 0.0, 90),
        (0, 1.0, 240),
        (7_200_000, 0.0, 90),
        (0, 0.5, 540),
        (0, 1.0, 990),
    ] {
        world.later(after);
        // The provider is asked anew, and not the memory of its last answer.
        world.store.tables().turns.clear();
        world.store.tables().inbox.get_mut(&key).unwrap().row.waits_until = None;
        world.handle_with(&key, Timestamp::MAX, jitter).await;
        let expected = world.now() + Duration::from_secs(wait);
        assert_eq!(world.row(&key).waits_until, Some(expected), "{after} {jitter}");
    }
}
