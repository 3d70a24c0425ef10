//! What the address has to do with an event: secret ones, signed ones, and two for one event.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod world;

use domain::source::{Dedupe, SchemeChoice};
use serde_json::{Value, json};
use signing::Scheme;
use world::{World, event, name, preset, request, signed, with, with_header};

const SLOT: &str = "q6Zf0yQmWc3sT1uVbX9nKd2E";

fn slot(path: &str) -> Value {
    request("POST", path, &[("content-type", "application/json")], r#"{"a":1}"#)
}

/// SEC-url-token
#[tokio::test]
async fn a_secret_address_lets_in_and_is_kept_nowhere() {
    let world = World::new();
    world.add("mail", preset("mail_slot_path"), SLOT);
    let path = format!("/webhooks/mail/{SLOT}");
    assert_eq!(world.response(slot(&path), 0).await["statusCode"], 200);
    let tables = format!("{:?}", world.store.tables());
    assert!(!tables.contains(SLOT), "{tables}");
    assert!(!format!("{:?}", world::arrival(slot(&path))).contains(SLOT));
    assert!(!world.queue.receive(|_| 0).unwrap().text.contains(SLOT));
}

#[tokio::test]
async fn another_address_does_not() {
    for path in [
        "/webhooks/mail".to_owned(),
        "/webhooks/mail/wrong".to_owned(),
        format!("/webhooks/mail/{}", SLOT.to_lowercase()),
        format!("/webhooks/mail/{SLOT}x"),
    ] {
        let world = World::new();
        world.add("mail", preset("mail_slot_path"), SLOT);
        assert_eq!(world.response(slot(&path), 0).await["statusCode"], 401, "{path}");
        assert!(world.rows().is_empty());
        let kept = format!("{:?}", world.store.tables());
        assert!(!kept.contains(&SLOT.to_lowercase()), "{kept}");
    }
}

/// What proves nothing by itself is let in by a secret address, and by nothing else.
#[tokio::test]
async fn an_unsigned_source_needs_its_secret_address() {
    let world = World::new();
    world.add("monday", preset("monday"), SLOT);
    let body = r#"{"event":{"triggerUuid":"u-1","type":"create_item","pulseId":7}}"#;
    let post = |path: &str| request("POST", path, &[], body);
    assert_eq!(world.response(post("/webhooks/monday"), 0).await["statusCode"], 401);
    let path = format!("/webhooks/monday/{SLOT}");
    assert_eq!(world.response(post(&path), 0).await["statusCode"], 200);
    assert_eq!(world.row().new.key.to_string(), "monday#u-1");
}

/// VFY-url-signed-schemes: the address as it was called, query and all, or the one that the source is configured with.
#[tokio::test]
async fn the_signed_address_is_the_untouched_one_or_the_configured_one() {
    let query = "Digits=1&Retry=1&Msg=Couldn%27t+find&AccountSid=AC0";
    let of = |content: &str| {
        json!({
            "algorithm": "hmac-sha256",
            "signed": format!("{content}{{body}}"),
            "key": { "encoding": "utf8" },
            "signature": { "from": "{header:x-signature}", "encoding": "hex" },
            "config": { "url": format!("https://hooks.example/webhooks/tw?{query}") },
        })
    };
    let secret = "field-secret-1-field-secret-1";
    // What the provider signs, whatever stands between it and us.
    let signs = Scheme::from_value(of("{config:url}")).unwrap();
    let event = signed("tw", &signs, secret, "a=1", 0);
    let called = |domain: &str, path: &str| {
        let event = with(event.clone(), "/rawQueryString", query);
        let event = with(event, "/requestContext/domainName", domain);
        with(event, "/rawPath", path)
    };
    let calls = [
        (called("hooks.example", "/webhooks/tw"), true),
        (called("hooks.example", "/prod/webhooks/tw"), false),
        (called("abc123.execute-api.eu-central-1.amazonaws.com", "/webhooks/tw"), false),
        (with(called("hooks.example", "/webhooks/tw"), "/rawQueryString", "Digits=1"), false),
    ];
    for (event, is_the_address) in calls {
        for (scheme, expected) in [("{url}", is_the_address), ("{config:url}", true)] {
            let world = World::new();
            world.add("tw", SchemeChoice::Own(of(scheme)), secret);
            let status = world.response(event.clone(), 0).await["statusCode"].clone();
            assert_eq!(status == 200, expected, "{scheme} {event}");
        }
    }
}

/// ING-two-endpoints-same-event: under one name, an event that comes to two sources is one.
#[tokio::test]
async fn an_event_that_comes_to_two_sources_is_one_where_that_is_configured() {
    for (same_as, rows) in [(Some("github"), 1), (None, 2)] {
        let world = World::new();
        world.add("second", preset("github"), "the-second-secret-of-the-test");
        world.configure("second", |source| source.same_as = same_as.map(name));
        assert_eq!(world.answer(event("github"), 0).await, 200);
        let body = event("github")["body"].as_str().unwrap().to_owned();
        let scheme = Scheme::preset("github").unwrap();
        let second = signed("second", &scheme, "the-second-secret-of-the-test", &body, 0);
        let id = event("github")["headers"]["x-github-delivery"].as_str().unwrap().to_owned();
        let second = with_header(second, "x-github-delivery", Some(&id));
        // With the first one's secret it is not let in.
        let stolen = with(event("github"), "/pathParameters/source", "second");
        assert_eq!(world.answer(stolen, 0).await, 401);
        assert_eq!(world.answer(second, 0).await, 200);
        assert_eq!(world.rows().len(), rows, "{same_as:?}");
        // Each has a health of its own.
        assert!(world.store.tables().watched[&name("second")].matched_at.is_some());
    }
}

/// ING-dedupe-key-unsigned-header: five deliveries of one body under five ids.
#[tokio::test]
async fn a_replay_under_a_new_id_is_a_duplicate_where_content_is_the_key() {
    for (dedupe, rows) in [(Dedupe::Content, 1), (Dedupe::Id, 5)] {
        let world = World::new();
        world.configure("github", |source| source.dedupe = dedupe);
        for id in ["a", "b", "c", "d", "e"] {
            let event = with_header(event("github"), "x-github-delivery", Some(id));
            assert_eq!(world.answer(event, 0).await, 200);
        }
        assert_eq!(world.rows().len(), rows, "{dedupe:?}");
        let kept = world.rows().remove(0).new.delivery_id;
        assert_eq!(kept.as_deref(), (dedupe == Dedupe::Content).then_some("a"));
    }
}
