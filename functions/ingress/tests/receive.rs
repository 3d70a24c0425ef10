//! Literal events of the gateway, through the whole function, with every port in memory.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod world;

use std::time::Duration;

use domain::{
    body::Sha256Hash,
    inbox::{OtherBodies, OtherBody, Row, Status},
    source::SchemeChoice,
};
use http::StatusCode;
use ingress::{Answer, MAX_BODY, gateway::Response};
use serde_json::{Value, json};
use testkit::chaos::{Fault, When};
use world::{B_ASCII, World, alone, arrival, at, counted, event, key, name, with, with_header};

#[tokio::test]
async fn an_event_of_each_provider_is_stored_and_told_to_the_worker() {
    for (file, key) in [
        ("standard_webhooks", "sw#msg_fieldcase0001".to_owned()),
        ("github", "github#72d3162e-cc78-11e3-81ab-4c9367dc0958".to_owned()),
        ("stripe", format!("stripe#sha256:{}", Sha256Hash::of(B_ASCII))),
    ] {
        let world = World::new();
        assert_eq!(world.answer(event(file), 0).await, StatusCode::OK, "{file}");
        let row = world.row();
        assert_eq!(row.new.key.to_string(), key);
        assert_eq!((row.status, world.messages()), (Status::Pending, 1));
        assert_eq!(world.body(&row).await, B_ASCII);
    }
}

/// SEC-live-test-mode: what another mode's event means is the worker's to decide; the provider has done its part.
#[tokio::test]
async fn an_event_of_another_mode_is_stored_and_answered_like_any_other() {
    let world = World::new();
    world.configure("sw", |source| source.only = [("/livemode".to_owned(), true.into())].into());
    assert_eq!(world.answer(event("standard_webhooks"), 0).await, StatusCode::OK);
    let row = world.row();
    assert_eq!((row.status, world.messages()), (Status::Pending, 1));
    assert_eq!(world.body(&row).await, B_ASCII);
}

/// VFY-base64-flag
#[tokio::test]
async fn the_flag_of_the_gateway_is_honoured_exactly_whatever_the_content_type() {
    for (file, expected) in [
        ("base64_true", (200, 1)),
        ("base64_true_but_not", (400, 0)),
        ("base64_false_looks_encoded", (401, 0)),
        ("base64_true_empty", (200, 1)),
        ("base64_flag_missing", (200, 1)),
        ("standard_webhooks", (200, 1)),
    ] {
        for content_type in [
            "application/json",
            "application/x-www-form-urlencoded",
            "application/cloudevents+json",
            "application/octet-stream",
        ] {
            let event = with_header(event(file), "content-type", Some(content_type));
            assert_eq!(alone(event).await, expected, "{file}, {content_type}");
        }
    }
}

/// VFY-missing-header
#[tokio::test]
async fn a_request_without_its_signature_stores_nothing() {
    for (file, signature) in [
        ("standard_webhooks", "webhook-signature"),
        ("stripe", "stripe-signature"),
        ("github", "x-hub-signature-256"),
    ] {
        let misspelt = with_header(event(file), signature, None);
        let misspelt = with_header(misspelt, &signature.replace('s', "z"), Some("x"));
        for event in [
            with_header(event(file), signature, None),
            with_header(event(file), signature, Some("")),
            with_header(event(file), signature, Some("null")),
            with_header(event(file), signature, Some(" ")),
            misspelt,
        ] {
            assert_eq!(alone(event).await, (401, 0), "{file}");
        }
    }
}

/// VFY-duplicate-header-joined
#[tokio::test]
async fn joined_and_doubled_headers_are_refused() {
    for file in
        ["joined_stripe_signature", "joined_github_signature", "joined_webhook_id", "two_spellings"]
    {
        assert_eq!(alone(event(file)).await, (401, 0), "{file}");
    }
}

/// VFY-invalid-utf8-body
#[tokio::test]
async fn bytes_that_are_not_text_are_bytes_from_end_to_end() {
    let world = World::new();
    assert_eq!(world.answer(event("invalid_utf8"), 0).await, StatusCode::OK);
    let expected = b"{\"type\":\"file.added\",\"data\":\"\xff\xfe\x00\x80\"}";
    assert_eq!(world.body(&world.row()).await, expected);
    assert_eq!(alone(event("invalid_utf8_lossy_twin")).await, (401, 0));
}

/// VFY-reserialised-json
#[tokio::test]
async fn what_was_signed_is_what_is_hashed_and_kept() {
    for file in ["escapes", "byte_order_mark"] {
        let world = World::new();
        let event = event(file);
        assert_eq!(world.answer(event.clone(), 0).await, StatusCode::OK, "{file}");
        assert_eq!(world.body(&world.row()).await, event["body"].as_str().unwrap().as_bytes());
    }
}

/// ING-pre-auth-decompression
#[tokio::test]
async fn a_compressed_body_is_not_inflated() {
    let event = event("unsigned_gzip");
    let arrival = arrival(event.clone());
    assert!(arrival.body.unwrap().len() < 2000);
    assert_eq!(alone(event).await, (401, 0));
}

/// ING-stage-prefix
#[tokio::test]
async fn the_route_decides_and_not_the_path() {
    for path in [
        "/webhooks/sw",
        "/prod/webhooks/sw",
        "/prod/prod/webhooks/sw",
        "/default/webhooks/sw",
        "/webhooks/sw/",
        "/webhooks//sw",
        "/hooks/webhooks/sw",
        "/",
    ] {
        let event = with(event("standard_webhooks"), "/rawPath", path);
        assert_eq!(alone(event).await, (200, 1), "{path}");
    }
    for source in ["", "s%77", "SW", "sw/", "sw#x", "nobody", "sw\n"] {
        let event = with(event("standard_webhooks"), "/pathParameters/source", source);
        assert_eq!(alone(event).await, (404, 0), "{source:?}");
    }
    let mut without = event("standard_webhooks");
    without.as_object_mut().unwrap().remove("pathParameters");
    assert_eq!(alone(without).await, (404, 0));
}

#[tokio::test]
async fn only_post_brings_events() {
    assert_eq!(alone(event("get")).await, (404, 0));
    let put = with(event("standard_webhooks"), "/requestContext/http/method", "PUT");
    assert_eq!(alone(put).await, (404, 0));
}

#[tokio::test]
async fn odd_headers_do_not_cost_the_event() {
    for file in ["header_not_ascii", "strange_host"] {
        assert_eq!(alone(event(file)).await, (200, 1), "{file}");
    }
}

#[tokio::test]
async fn an_answer_tells_the_sender_nothing() {
    let world = World::new();
    let response = |answer| serde_json::to_value(Response::new(answer, "POST")).unwrap();
    let refused =
        world.ingress().receive(&arrival(event("joined_webhook_id")), "t".to_owned(), at(0)).await;
    assert_eq!(
        response(refused),
        json!({"statusCode": 401, "headers": {}, "body": "", "isBase64Encoded": false})
    );
    let unknown = with(event("standard_webhooks"), "/pathParameters/source", "nobody");
    let unknown = world.ingress().receive(&arrival(unknown), "t".to_owned(), at(0)).await;
    assert_eq!(
        response(unknown),
        json!({"statusCode": 404, "headers": {}, "body": "", "isBase64Encoded": false})
    );
    let away = json!({"statusCode": 503, "headers": {"retry-after": "60"}, "body": "", "isBase64Encoded": false});
    assert_eq!(response(Answer::Unavailable), away);
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_before_it_is_looked_at() {
    let world = World::new();
    let mut arrival = arrival(event("standard_webhooks"));
    for (length, expected) in [(MAX_BODY, Answer::Untrusted), (MAX_BODY + 1, Answer::TooLarge)] {
        arrival.body = Some(vec![b'x'; length]);
        assert_eq!(world.ingress().receive(&arrival, "t".to_owned(), at(0)).await, expected);
    }
}

/// ING-200-on-store-failure, ING-error-taken-for-duplicate
#[tokio::test]
async fn nothing_but_a_row_in_the_table_is_a_yes() {
    for (fault, expected) in [
        (Fault::Throttled, StatusCode::SERVICE_UNAVAILABLE),
        (Fault::Unavailable, StatusCode::SERVICE_UNAVAILABLE),
        (Fault::Refused, StatusCode::INTERNAL_SERVER_ERROR),
    ] {
        for (when, before) in
            [(When::Before, false), (When::After, false), (When::Before, true), (When::After, true)]
        {
            let told = format!("{fault:?} {when:?}, there before: {before}");
            let world = World::new();
            if before {
                assert_eq!(world.answer(event("github"), -1).await, StatusCode::OK);
            }
            world.store.chaos.on("inbox.accept", when, fault);
            assert_eq!(world.answer(event("github"), 0).await, expected, "{told}");
            assert_eq!(world.rows().len(), usize::from(before || when == When::After), "{told}");
            world.store.chaos.heal();
            assert_eq!(world.answer(event("github"), 1).await, StatusCode::OK, "{told}");
            assert_eq!(
                (world.row().status, world.messages() > 0),
                (Status::Pending, true),
                "{told}"
            );
        }
    }
}

/// ING-200-on-store-failure
#[tokio::test]
async fn a_failed_send_is_still_a_yes_because_the_row_is_due() {
    for (when, fault) in [
        (When::Before, Fault::Unavailable),
        (When::After, Fault::Unavailable),
        (When::Before, Fault::Crash),
    ] {
        let world = World { budget: Duration::from_millis(50), ..World::new() };
        world.queue.chaos.on("queue.send", when, fault);
        assert_eq!(world.answer(event("github"), 0).await, StatusCode::OK, "{when:?} {fault:?}");
        assert_eq!(world.row().due_at, Some(at(120)));
    }
}

/// DEP-sdk-timeouts
#[tokio::test]
async fn a_store_that_never_answers_is_a_503_within_the_budget() {
    for call in ["inbox.accept", "registry.source"] {
        let world = World { budget: Duration::from_millis(50), ..World::new() };
        world.store.chaos.on(call, When::Before, Fault::Crash);
        assert_eq!(
            world.answer(event("github"), 0).await,
            StatusCode::SERVICE_UNAVAILABLE,
            "{call}"
        );
        world.store.chaos.heal();
        assert_eq!(world.answer(event("github"), 1).await, StatusCode::OK, "{call}");
    }
}

#[tokio::test]
async fn secrets_that_cannot_be_had_are_a_503_and_missing_ones_a_401() {
    let world = World::new();
    world.secrets.chaos.on("secrets.of", When::Before, Fault::Unavailable);
    assert_eq!(world.answer(event("github"), 0).await, StatusCode::SERVICE_UNAVAILABLE);
    world.secrets.chaos.heal();
    world.secrets.set(&name("github"), Vec::new());
    assert_eq!(world.answer(event("github"), 0).await, StatusCode::UNAUTHORIZED);
}

/// ING-missing-id
#[tokio::test]
async fn a_replay_without_an_id_is_a_duplicate() {
    let world = World::new();
    for second in 0..5 {
        assert_eq!(world.answer(event("no_id"), second).await, StatusCode::OK);
    }
    assert_eq!(world.row().new.key.event_id(), format!("sha256:{}", Sha256Hash::of(B_ASCII)));
}

/// ING-dedupe-key-unsigned-header: a signed id cannot be changed. GitHub's is not signed, and is the key all the same,
/// as GitHub advises.
#[tokio::test]
async fn a_changed_id_passes_only_where_the_provider_does_not_sign_it() {
    let changed = with_header(event("standard_webhooks"), "webhook-id", Some("msg_other"));
    assert_eq!(alone(changed).await, (401, 0));
    let world = World::new();
    for id in ["a", "b", "a"] {
        let event = with_header(event("github"), "x-github-delivery", Some(id));
        assert_eq!(world.answer(event, 0).await, StatusCode::OK);
    }
    assert_eq!(world.rows().len(), 2);
}

/// ING-unknown-type
#[tokio::test]
async fn a_type_that_nobody_knows_is_stored() {
    let long = "x".repeat(300);
    for kind in [Some("brand.new_thing"), Some(long.as_str()), None] {
        let world = World::new();
        let event = with_header(event("github"), "x-github-event", kind);
        assert_eq!(world.answer(event, 0).await, StatusCode::OK);
        assert_eq!(world.row().new.event_type.as_deref(), kind);
    }
}

/// ING-id-scope-collision
#[tokio::test]
async fn one_id_at_two_sources_is_two_events() {
    let world = World::new();
    world.add("other", SchemeChoice::Preset("github".to_owned()), "field-secret-1");
    assert_eq!(world.answer(event("github"), 0).await, StatusCode::OK);
    let other = with(event("github"), "/pathParameters/source", "other");
    assert_eq!(world.answer(other, 0).await, StatusCode::OK);
    assert_eq!(world.rows().len(), 2);
}

/// `B_bad`, with its own valid signature and the same id.
fn other_body() -> Value {
    let other = with(event("github"), "/body", "eyJ0eXBlIjoiZmlsZS5hZGRlZCIsImRhdGEiOiL//gCAIn0=");
    let other = with(other, "/isBase64Encoded", true);
    let signature = "sha256=d23571cee7dee110e9007fc9286fdd3c177e98c8acd62028b0aeb678ef48e307";
    with_header(other, "x-hub-signature-256", Some(signature))
}

/// ING-same-id-other-body
#[tokio::test]
async fn another_body_under_one_id_is_answered_yes_counted_and_noted() {
    let world = World::new();
    let ingress = world.ingress();
    ingress.receive(&arrival(event("github")), "1".to_owned(), at(0)).await;
    let (first, other) = (world.row(), arrival(other_body()));
    assert_eq!(first.other_bodies, None);
    assert_eq!(ingress.receive(&other, "2".to_owned(), at(1)).await, Answer::Accepted);
    let row = world.row();
    assert_eq!(world.body(&row).await, B_ASCII);
    let body = other.body.unwrap();
    let last = OtherBody { sha256: Sha256Hash::of(&body), length: body.len() as u64, at: at(1) };
    assert_eq!(row.other_bodies, Some(OtherBodies { count: 1, last }));
    assert_eq!(Row { other_bodies: None, ..row }, first);
    assert_eq!(
        counted(&ingress.metrics),
        [
            ("webhooks_conflicting_total", "github", 1.0),
            ("webhooks_duplicate_total", "github", 1.0),
            ("webhooks_received_total", "github", 2.0),
        ]
        .map(|(name, source, count)| (name.to_owned(), source.to_owned(), count))
    );
}

/// ING-same-id-other-body: the same body again is no conflict.
#[tokio::test]
async fn a_plain_duplicate_notes_nothing() {
    let world = World::new();
    for second in [0, 5] {
        assert_eq!(world.answer(event("github"), second).await, StatusCode::OK);
    }
    assert_eq!((world.calls("inbox.note_other_body"), world.row().other_bodies), (0, None));
}

/// ING-same-id-other-body: a flood of signed requests is counted, and is not a write for each.
#[tokio::test]
async fn other_bodies_are_noted_once_a_second_for_each_source() {
    let world = World::new();
    world.add("other", SchemeChoice::Preset("github".to_owned()), "field-secret-1");
    let ingress = world.ingress();
    let elsewhere = |event| with(event, "/pathParameters/source", "other");
    for first in [event("github"), elsewhere(event("github"))] {
        ingress.receive(&arrival(first), "first".to_owned(), at(0)).await;
    }
    for n in 0..30 {
        let (token, now) = (format!("other{n}"), at(n / 10));
        assert_eq!(ingress.receive(&arrival(other_body()), token, now).await, Answer::Accepted);
    }
    assert_eq!(world.calls("inbox.note_other_body"), 3);
    let last = arrival(elsewhere(other_body()));
    assert_eq!(ingress.receive(&last, "last".to_owned(), at(2)).await, Answer::Accepted);
    let counts = world.rows().into_iter().map(|row| row.other_bodies.map(|noted| noted.count));
    assert_eq!(counts.collect::<Vec<_>>(), [Some(3), Some(1)]);
    let counted = counted(&ingress.metrics);
    let all = ("webhooks_conflicting_total".to_owned(), "github".to_owned(), 30.0);
    assert!(counted.contains(&all), "{counted:?}");
}

/// ING-same-id-other-body
#[tokio::test]
async fn failing_to_note_another_body_changes_neither_answer_nor_row() {
    for fault in [Fault::Throttled, Fault::Unavailable, Fault::Refused, Fault::Crash] {
        // What never answers takes all of it; what comes before must fit on a busy machine.
        let world = World { budget: Duration::from_millis(500), ..World::new() };
        assert_eq!(world.answer(event("github"), 0).await, StatusCode::OK);
        let first = world.row();
        world.store.chaos.on("inbox.note_other_body", When::Before, fault);
        assert_eq!(world.answer(other_body(), 1).await, StatusCode::OK, "{fault:?}");
        assert_eq!((world.row(), world.calls("inbox.note_other_body")), (first, 1), "{fault:?}");
    }
}

#[tokio::test]
async fn refusals_are_counted_by_source_only_where_there_is_one() {
    let check = async |event: Value, expected: (&str, &str, f64)| {
        let world = World::new();
        let ingress = world.ingress();
        ingress.receive(&arrival(event), "t".to_owned(), at(0)).await;
        let (name, source, count) = expected;
        assert_eq!(counted(&ingress.metrics), [(name.to_owned(), source.to_owned(), count)]);
    };
    check(event("joined_webhook_id"), ("webhooks_signature_failed_total", "sw", 1.0)).await;
    check(event("base64_true_but_not"), ("webhooks_refused_total", "sw", 1.0)).await;
    let unknown = with(event("github"), "/pathParameters/source", "nobody");
    check(unknown, ("webhooks_refused_total", "-", 1.0)).await;
    check(event("standard_webhooks"), ("webhooks_received_total", "sw", 1.0)).await;
    check(event("get"), ("webhooks_refused_total", "sw", 1.0)).await;
}

#[tokio::test]
async fn while_the_registry_is_away_nothing_is_counted_by_a_name_that_a_stranger_chose() {
    for fault in [Fault::Unavailable, Fault::Crash] {
        let world = World { budget: Duration::from_millis(50), ..World::new() };
        world.store.chaos.on("registry.source", When::Before, fault);
        let ingress = world.ingress();
        let unknown = with(event("github"), "/pathParameters/source", "nobody");
        ingress.receive(&arrival(unknown), "t".to_owned(), at(0)).await;
        let expected = ("webhooks_not_stored_total".to_owned(), "-".to_owned(), 1.0);
        assert_eq!(counted(&ingress.metrics), [expected], "{fault:?}");
    }
}

/// A8: a flood of bad requests costs nothing but its own time.
#[tokio::test]
async fn bad_requests_cost_no_table_read_and_no_write() {
    let world = World::new();
    let ingress = world.ingress();
    let bad = with_header(
        event("github"),
        "x-hub-signature-256",
        Some(&format!("sha256={}", "0".repeat(64))),
    );
    let stale = event("stripe");
    let unknown = with(event("github"), "/pathParameters/source", "nobody");
    let nonsense = with(event("github"), "/pathParameters/source", "A B");
    for n in 0..1000 {
        let n = i64::from(n);
        for (event, second) in
            [(&bad, n / 100), (&stale, 1000 + n / 100), (&unknown, n / 100), (&nonsense, 0)]
        {
            let answer = ingress.receive(&arrival(event.clone()), "t".to_owned(), at(second)).await;
            assert!(matches!(answer, Answer::Untrusted | Answer::NotFound));
        }
    }
    let mut calls = world.store.chaos.calls();
    calls.retain(|call| *call != "watch.note_rejects");
    assert_eq!(calls, ["registry.source"; 3]);
    assert_eq!(world.secrets.chaos.calls(), ["secrets.of"; 2]);
    // Two sources that exist, ten seconds each.
    assert_eq!(world.store.chaos.calls().len() - calls.len(), 2);
}

#[tokio::test]
async fn a_rotated_secret_works_within_a_minute() {
    let world = World::new();
    let ingress = world.ingress();
    let receive = |second| {
        let event = arrival(event("github"));
        let ingress = &ingress;
        async move { ingress.receive(&event, "t".to_owned(), at(second)).await }
    };
    world.secrets.set(&name("github"), vec![key("k0", "field-secret-2")]);
    assert_eq!(receive(0).await, Answer::Untrusted);
    world
        .secrets
        .set(&name("github"), vec![key("k0", "field-secret-2"), key("k1", "field-secret-1")]);
    assert_eq!(receive(59).await, Answer::Untrusted);
    assert_eq!(receive(60).await, Answer::Accepted);
    assert_eq!(world.row().new.key_id.as_deref(), Some("k1"));
}

#[tokio::test]
async fn a_stale_request_never_looks_for_newer_secrets() {
    let world = World::new();
    let ingress = world.ingress();
    let forged = with_header(event("stripe"), "stripe-signature", Some("t=1760000000,v1=00"));
    for second in [1000, 1100, 1200] {
        for event in [event("stripe"), forged.clone()] {
            let answer = ingress.receive(&arrival(event), "t".to_owned(), at(second)).await;
            assert_eq!(answer, Answer::Untrusted);
        }
    }
    assert_eq!(world.secrets.chaos.calls().len(), 1);
}

#[tokio::test]
async fn new_events_beat_at_most_every_ten_seconds() {
    let world = World::new();
    let ingress = world.ingress();
    let mut beats = Vec::new();
    for (id, second) in [("a", 0), ("b", 9), ("a", 10), ("c", 10), ("d", 19), ("e", 20)] {
        let event = with_header(event("github"), "x-github-delivery", Some(id));
        assert_eq!(
            ingress.receive(&arrival(event), format!("{id}{second}"), at(second)).await,
            Answer::Accepted
        );
        beats.push(world.store.tables().watched[&name("github")].accepted_at.unwrap());
    }
    assert_eq!(beats, [at(0), at(0), at(0), at(10), at(10), at(20)]);
}

#[tokio::test]
async fn a_heartbeat_that_fails_or_hangs_changes_nothing() {
    for fault in [Fault::Unavailable, Fault::Refused, Fault::Crash] {
        let world = World { budget: Duration::from_millis(50), ..World::new() };
        world.store.chaos.on("watch.note_accepted", When::Before, fault);
        assert_eq!(world.answer(event("github"), 0).await, StatusCode::OK, "{fault:?}");
        assert_eq!((world.rows().len(), world.messages()), (1, 1));
    }
}

/// ING-work-after-response
#[tokio::test]
async fn when_the_answer_is_given_everything_is_done() {
    let world = World::new();
    let ingress = world.ingress();
    let answer = ingress.receive(&arrival(event("github")), "t".to_owned(), at(0)).await;
    drop(ingress);
    assert_eq!((answer, world.rows().len(), world.messages()), (Answer::Accepted, 1, 1));
    assert!(world.store.tables().watched.contains_key(&name("github")));
}
