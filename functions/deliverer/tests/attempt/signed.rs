//! What a URL is sent, and what is made of its answer.

use deliverer::{drain::Sender as _, transport::Answered};
use domain::{
    body::Sha256Hash,
    delivery::{Cause, Outcome, Steer},
    destination::Destination,
    outbox::Payload,
    ports::{Bodies as _, Purpose},
};
use flow::payload;
use signing::{EndpointSecret, Secret};
use testkit::chaos::{Fault, When};

use crate::world::{BODY, CLOCK, T0, World, at, header, secret, verifies};

/// F1, F3, F4, INB-raw-bytes-kept
#[tokio::test]
async fn an_attempt_sends_the_published_bytes_signed_now() {
    let world = World::new().with_secret(&secret(1), None).await;
    let attempt = world.attempt(0).await;
    assert_eq!((attempt.number, attempt.at, attempt.excerpt.as_str()), (1, at(T0), "ok"));
    assert_eq!(attempt.outcome, Outcome::Answered { status: 200, retry_after_ms: None });
    let [post] = world.posts().try_into().unwrap();
    assert_eq!(post.body, BODY);
    assert_eq!(post.url.as_str(), "https://example.com/hook?a=b");
    assert!(verifies(&post, &secret(1).expose(), "standard_webhooks", T0));
    assert!(!verifies(&post, &secret(2).expose(), "standard_webhooks", T0));
    let mut names: Vec<_> = post.headers.keys().map(http::HeaderName::as_str).collect();
    names.sort_unstable();
    let expected = [
        "accept-encoding",
        "content-type",
        "idempotency-key",
        "traceparent",
        "user-agent",
        "webhook-aggregate-id",
        "webhook-attempt",
        "webhook-event-type",
        "webhook-id",
        "webhook-schema-version",
        "webhook-signature",
        "webhook-timestamp",
    ];
    assert_eq!(names, expected);
    assert_eq!(header(&post, "webhook-id"), world.event.id.to_string());
    assert_eq!(header(&post, "webhook-attempt"), "1");
    assert_eq!(header(&post, "content-type"), "application/json");
    assert_eq!(header(&post, "accept-encoding"), "identity");
    // A span of its own in the event's trace.
    let (event, sent) = (world.event.traceparent.clone().unwrap(), header(&post, "traceparent"));
    assert_eq!((sent.get(..35), sent.get(52..)), (event.get(..35), event.get(52..)));
    assert_ne!(sent, event);
}

/// C16, C28: under the name that services know which have never heard of webhooks.
#[tokio::test]
async fn every_try_carries_the_events_id_as_its_idempotency_key() {
    let world = World::new().with_secret(&secret(1), None).await;
    for attempts in [0, 1, 7] {
        world.attempt(attempts).await;
    }
    for post in world.posts() {
        assert_eq!(header(&post, "idempotency-key"), world.event.id.to_string());
    }
}

/// DLV-retry-resigned, F2: a subscriber with a window of 300 s takes every attempt of ten hours.
#[tokio::test]
async fn each_attempt_is_signed_anew_and_keeps_its_id_and_bytes() {
    let world = World::new().with_secret(&secret(1), None).await;
    let waits = [0, 5, 300, 7200, 36_000];
    for (attempts, wait) in waits.iter().enumerate() {
        CLOCK.set(T0 + wait);
        world.attempt(u32::try_from(attempts).unwrap()).await;
    }
    let posts = world.posts();
    for ((post, wait), number) in posts.iter().zip(waits).zip(1..) {
        assert!(verifies(post, &secret(1).expose(), "standard_webhooks", T0 + wait), "{wait}");
        assert_eq!(header(post, "webhook-id"), header(&posts[0], "webhook-id"));
        assert_eq!(header(post, "webhook-attempt"), number.to_string());
        assert_eq!(post.body, posts[0].body);
    }
}

/// I4, I6
#[tokio::test]
async fn every_active_secret_signs_and_an_expired_one_does_not() {
    let world = World::new()
        .with_secret(&secret(1), Some(T0))
        .await
        .with_secret(&secret(2), Some(T0 + 1))
        .await
        .with_secret(&secret(3), None)
        .await;
    world.attempt(0).await;
    let [post] = world.posts().try_into().unwrap();
    assert_eq!(header(&post, "webhook-signature").split(' ').count(), 2);
    for (n, active) in [(1, false), (2, true), (3, true)] {
        let verified = verifies(&post, &secret(n).expose(), "standard_webhooks", T0);
        assert_eq!(verified, active, "{n}");
    }
}

#[tokio::test]
async fn a_key_pair_signs_beside_a_shared_secret() {
    let pair = EndpointSecret::pair([9; 32]);
    let world = World::new().with_secret(&secret(1), None).await.with_secret(&pair, None).await;
    world.attempt(0).await;
    let [post] = world.posts().try_into().unwrap();
    let public = Secret::new(pair.public_key().unwrap());
    assert!(verifies(&post, &public, "standard_webhooks_v1a", T0));
    assert!(verifies(&post, &secret(1).expose(), "standard_webhooks", T0));
}

#[tokio::test]
async fn nothing_is_sent_unsigned() {
    let none = World::new();
    let expired = World::new().with_secret(&secret(1), Some(T0 - 1)).await;
    let mut foreign = World::new().with_secret(&secret(1), None).await;
    // Sealed for another endpoint.
    foreign.endpoint.id = format!("ep_{:032x}", 8).parse().unwrap();
    for world in [none, expired, foreign] {
        let attempt = world.attempt(3).await;
        assert_eq!(attempt.outcome, Outcome::Failed { cause: Cause::Internal });
        assert_eq!((attempt.number, world.posts().len()), (4, 0));
    }
}

#[tokio::test]
async fn a_large_payload_comes_from_the_bucket() {
    let mut world = World::new().with_secret(&secret(1), None).await;
    let hash = Sha256Hash::of(BODY);
    world.event.payload = Payload::Bucket(hash);
    world.publish(&world.event);
    // Not there.
    let outcome = world.attempt(0).await.outcome;
    assert_eq!(outcome, Outcome::Failed { cause: Cause::Internal });
    let name = payload::name(&world.event.tenant, &hash);
    world.store.put(&name, payload::compress(BODY).unwrap()).await.unwrap();
    assert!(world.attempt(0).await.outcome.is_success());
    assert_eq!(world.posts()[0].body, BODY);
    assert!(verifies(&world.posts()[0], &secret(1).expose(), "standard_webhooks", T0));
}

#[tokio::test]
async fn an_event_that_is_gone_is_our_own_failure() {
    let world = World::new().with_secret(&secret(1), None).await;
    world.store.tables().outbox.clear();
    let outcome = world.attempt(0).await.outcome;
    assert_eq!(outcome, Outcome::Failed { cause: Cause::Internal });
}

/// SSRF-update-and-test-paths: the row is older than the rule, or was written past it.
#[tokio::test]
async fn a_url_is_checked_again_at_every_send() {
    for url in [
        "http://example.com/",
        "https://169.254.169.254/latest/meta-data/",
        "https://[::1]:9001/2018-06-01/runtime/",
        "https://user:pw@example.com/",
        "file:///etc/passwd",
        "https://localhost/",
        "https://example.com:22/",
        "",
    ] {
        let mut world = World::new().with_secret(&secret(1), None).await;
        world.endpoint.destination = Destination::Https(url.to_owned());
        let outcome = world.attempt(0).await.outcome;
        assert_eq!(outcome, Outcome::Failed { cause: Cause::BlockedAddress }, "{url}");
        assert!(world.posts().is_empty(), "{url}");
    }
}

/// RTY-store-outage: a store that cannot be asked is no attempt.
#[tokio::test]
async fn what_cannot_be_known_now_is_not_an_attempt() {
    for fault in [Fault::Throttled, Fault::Unavailable] {
        let world = World::new().with_secret(&secret(1), None).await;
        world.keys.keyring().chaos.on("keyring.unseal", When::Before, fault);
        assert!(world.try_attempt(0).await.is_err());
        world.keys.keyring().chaos.heal();
        world.store.chaos.on("outbox.event", When::Before, fault);
        assert!(world.try_attempt(0).await.is_err());
        assert!(world.posts().is_empty());
    }
    // One event that the store will never give up must not hold up its lane.
    let world = World::new().with_secret(&secret(1), None).await;
    world.store.chaos.on("outbox.event", When::Before, Fault::Refused);
    assert_eq!(world.attempt(0).await.outcome, Outcome::Failed { cause: Cause::Internal });
}

/// RTY-retry-after, F12
#[tokio::test]
async fn an_answer_says_how_long_it_wants_us_to_wait() {
    for (value, expected) in [
        (None, None),
        (Some("120"), Some(120_000)),
        (Some("Thu, 09 Oct 2025 09:53:20 GMT"), Some(3_600_000)),
        (Some("soon"), None),
        (Some("-1"), None),
    ] {
        let world = World::new().with_secret(&secret(1), None).await;
        let retry_after = value.map(ToOwned::to_owned);
        world.answer(Ok(Answered { retry_after, ..Answered::plain(503, String::new()) }));
        let outcome = world.attempt(0).await.outcome;
        assert_eq!(
            outcome,
            Outcome::Answered { status: 503, retry_after_ms: expected },
            "{value:?}"
        );
    }
}

#[tokio::test]
async fn a_failure_keeps_its_cause() {
    let world = World::new().with_secret(&secret(1), None).await;
    world.answer(Err(Cause::TlsExpired));
    let attempt = world.attempt(0).await;
    assert_eq!(attempt.outcome, Outcome::Failed { cause: Cause::TlsExpired });
    assert_eq!(attempt.excerpt, "");
}

#[tokio::test]
async fn a_broken_traceparent_costs_the_trace_only() {
    let mut world = World::new().with_secret(&secret(1), None).await;
    world.event.traceparent = Some("00-\r\nx: y".to_owned());
    world.publish(&world.event);
    assert!(world.attempt(0).await.outcome.is_success());
    assert!(!world.posts()[0].headers.contains_key("traceparent"));
}

/// SSRF-redirect: an outcome of its own, with its own words.
#[tokio::test]
async fn a_redirect_is_a_failure_with_its_own_cause() {
    let world = World::new().with_secret(&secret(1), None).await;
    let excerpt = "(302, a redirect to https://example.net, not followed)".to_owned();
    world.answer(Ok(Answered { is_redirect: true, ..Answered::plain(302, excerpt.clone()) }));
    let attempt = world.attempt(0).await;
    assert_eq!(attempt.outcome, Outcome::Failed { cause: Cause::Redirect });
    assert_eq!(attempt.excerpt, excerpt);
}

#[tokio::test]
async fn a_receiver_can_say_what_to_do_with_what_it_is_sent() {
    for (status, steer, is_redirect) in
        [(200, Steer::Disable, false), (422, Steer::Abort, false), (302, Steer::Disable, true)]
    {
        let world = World::new().with_secret(&secret(1), None).await;
        let plain = Answered::plain(status, String::new());
        world.answer(Ok(Answered { steer: Some(steer), is_redirect, ..plain }));
        let outcome = world.attempt(0).await.outcome;
        assert_eq!(outcome, Outcome::Steered { status, steer });
    }
}

/// I4: a pass over a lane takes a while, and a secret that expires in it signs no more.
#[tokio::test]
async fn a_secret_expires_at_its_second_even_within_a_pass() {
    let world = World::new().with_secret(&secret(1), Some(T0 + 2)).await;
    let world = world.with_secret(&secret(2), None).await;
    let target = world.sender().open(world.endpoint.clone(), world.sealed.clone()).await.unwrap();
    for (second, count) in [(0, 2), (1, 2), (2, 1), (3, 1)] {
        CLOCK.set(T0 + second);
        world.attempt_at(&target, 0).await.unwrap();
        let post = world.posts().pop().unwrap();
        assert_eq!(header(&post, "webhook-signature").split(' ').count(), count, "{second}");
        let first = verifies(&post, &secret(1).expose(), "standard_webhooks", T0 + second);
        assert_eq!(first, count == 2, "{second}");
        assert!(verifies(&post, &secret(2).expose(), "standard_webhooks", T0 + second));
    }
}

/// Only what is for signing signs.
#[tokio::test]
async fn a_secret_for_something_else_does_not_sign() {
    let world = World::new().with_secret(&secret(1), None).await;
    let text = secret(2).expose().expose().to_owned();
    let world = world.with_sealed(Purpose::Polling, &text, None).await;
    world.attempt(0).await;
    let [post] = world.posts().try_into().unwrap();
    assert_eq!(header(&post, "webhook-signature").split(' ').count(), 1);
    assert!(verifies(&post, &secret(1).expose(), "standard_webhooks", T0));
}

/// A call to KMS for every pass over every lane would be dear.
#[tokio::test]
async fn a_secret_is_unsealed_once_and_for_its_own_endpoint_only() {
    let mut world = World::new().with_secret(&secret(1), None).await;
    for attempts in 0..3 {
        assert!(world.attempt(attempts).await.outcome.is_success());
    }
    // The keyring is gone, and what it opened is still known.
    let chaos = &world.keys.keyring().chaos;
    chaos.on("keyring.unseal", When::Before, Fault::Unavailable);
    assert!(world.attempt(3).await.outcome.is_success());
    world.keys.keyring().chaos.heal();
    // The same bytes, copied to another endpoint, are not a known secret there.
    world.endpoint.id = format!("ep_{:032x}", 8).parse().unwrap();
    let outcome = world.attempt(4).await.outcome;
    assert_eq!(outcome, Outcome::Failed { cause: Cause::Internal });
}
