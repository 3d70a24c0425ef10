//! An endpoint's own static headers.

use domain::{
    delivery::{Cause, Outcome},
    ports::Purpose,
};

use crate::world::{T0, World, header, secret, verifies};

async fn with_headers(json: &str) -> World {
    let mut world = World::new().with_secret(&secret(1), None).await;
    world.endpoint.headers = vec!["x-key".to_owned()];
    world.with_sealed(Purpose::Headers, json, None).await
}

/// DLV-custom-headers
#[tokio::test]
async fn its_own_headers_go_along_and_do_not_show() {
    let world = with_headers(r#"{"X-Key":"CANARY","x-env":"prod"}"#).await;
    assert!(world.attempt(0).await.outcome.is_success());
    let [post] = world.posts().try_into().unwrap();
    assert_eq!((header(&post, "x-key"), header(&post, "x-env")), ("CANARY", "prod"));
    assert!(verifies(&post, &secret(1).expose(), "standard_webhooks", T0));
    // SEC-secret-in-logs
    assert!(!format!("{post:?}").contains("CANARY"));
}

/// DLV-custom-headers: validated on send, too, and ours are written last. One of each.
#[tokio::test]
async fn what_an_older_rule_let_in_never_takes_the_place_of_ours() {
    let ours = [
        "webhook-id",
        "Webhook-Signature",
        "WEBHOOK-TIMESTAMP",
        "webhook-attempt",
        "idempotency-key",
        "traceparent",
        "content-type",
        "user-agent",
        "accept-encoding",
    ];
    let never = ["host", "content-length", "transfer-encoding", "connection", "authorization"];
    let plain = with_headers("{}").await;
    plain.attempt(0).await;
    let [plain] = plain.posts().try_into().unwrap();
    for name in ours.into_iter().chain(never) {
        let world = with_headers(&format!(r#"{{"{name}":"evil","x-key":"1"}}"#)).await;
        assert!(world.attempt(0).await.outcome.is_success(), "{name}");
        let [post] = world.posts().try_into().unwrap();
        let values: Vec<_> = post.headers.get_all(name).iter().collect();
        let expected: Vec<_> = plain.headers.get_all(name).iter().collect();
        assert_eq!(values, expected, "{name}");
        assert_eq!(values.len(), usize::from(ours.contains(&name)), "{name}");
        assert_eq!(header(&post, "x-key"), "1");
    }
}

/// DLV-custom-headers
#[tokio::test]
async fn a_line_break_in_a_value_adds_no_header() {
    let world = with_headers(r#"{"x-key":"a\r\nwebhook-id: b","x-other":"c"}"#).await;
    assert!(world.attempt(0).await.outcome.is_success());
    let [post] = world.posts().try_into().unwrap();
    assert!(!post.headers.contains_key("x-key"));
    assert_eq!(
        (header(&post, "x-other"), header(&post, "webhook-id")),
        ("c", world.event.id.to_string().as_str())
    );
}

/// A receiver that would refuse the request is not asked, and not blamed.
#[tokio::test]
async fn headers_that_cannot_be_had_are_our_own_failure() {
    let mut missing = World::new().with_secret(&secret(1), None).await;
    missing.endpoint.headers = vec!["x-key".to_owned()];
    for world in [missing, with_headers("not json").await] {
        let outcome = world.attempt(0).await.outcome;
        assert_eq!(outcome, Outcome::Failed { cause: Cause::Internal });
        assert!(world.posts().is_empty());
    }
}

/// What stands there for a while after it was replaced is not sent beside what replaced it.
#[tokio::test]
async fn the_current_headers_are_sent() {
    let world = with_headers(r#"{"x-key":"new"}"#).await;
    let mut world = world.with_sealed(Purpose::Headers, r#"{"x-key":"old"}"#, Some(T0 + 60)).await;
    world.attempt(0).await;
    world.sealed.reverse();
    world.attempt(0).await;
    for post in world.posts() {
        assert_eq!(header(&post, "x-key"), "new");
    }
}
