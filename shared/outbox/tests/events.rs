//! What an event must be, and what its item is.

use aws_sdk_dynamodb::types::AttributeValue;
use jiff::Timestamp;
use postern_outbox::{BadEvent, Event, EventId, INLINE_MAX, Outbox};
use proptest::prelude::*;

fn event() -> Event {
    Event::new("acme", "order.placed", "order-1", *b"{}")
}

fn put(event: &Event) -> Result<std::collections::HashMap<String, AttributeValue>, BadEvent> {
    let action = Outbox::new("outbox", 4).put(event)?;
    let put = action.put.expect("it is a put");
    assert_eq!(put.table_name, "outbox");
    assert_eq!(put.condition_expression.as_deref(), Some("(attribute_not_exists(#pk))"));
    Ok(put.item)
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_790_000_000 + seconds).expect("a time")
}

fn fields(event: &Event) -> Vec<&'static str> {
    let flaws = put(event).expect_err("it is wrong");
    flaws.flaws().iter().map(|flaw| flaw.field).collect()
}

#[test]
fn every_flaw_of_an_event_is_named_at_once() {
    let worst = Event::new("No Name", "", "a\n", *b"not json")
        .schema_version(0)
        .label("a b", "")
        .traceparent("00-x")
        .once("", at(0));
    let expected = [
        "tenant",
        "key",
        "traceparent",
        "type",
        "schema_version",
        "aggregate_id",
        "labels",
        "labels",
        "payload",
    ];
    assert_eq!(fields(&worst), expected);
    let told = put(&worst).expect_err("it is wrong").to_string();
    assert!(told.starts_with("the event cannot be published: tenant: a tenant is"), "{told}");
    assert!(told.contains("; schema_version: versions are counted from 1; "), "{told}");
    put(&event()).expect("nothing is wrong with it");
}

#[test]
fn a_payload_is_json_of_a_bounded_size() {
    let of = |bytes: usize| Event::new("acme", "a", "a", format!("\"{}\"", "x".repeat(bytes - 2)));
    put(&of(INLINE_MAX)).expect("it fits");
    let told = put(&of(INLINE_MAX + 1)).expect_err("it does not fit").to_string();
    assert!(told.contains("it has 16385 bytes, and a transaction carries 16384"), "{told}");
    for bad in ["", "{", "{} {}", "nul", "\u{feff}{}"] {
        assert_eq!(fields(&Event::new("acme", "a", "a", bad)), ["payload"], "{bad:?}");
    }
}

/// INB-raw-bytes-kept
#[test]
fn the_bytes_of_a_payload_are_the_callers() {
    let odd = r#"{ "n":9007199254740993, "b":1.0, "a":"\u00e9" }"#;
    let item = put(&Event::new("acme", "a", "a", odd)).expect("an item");
    assert_eq!(item["payload"].as_b().expect("bytes").as_ref(), odd.as_bytes());
}

#[test]
fn a_new_event_has_an_id_of_its_own_and_a_time() {
    let (one, two) = (event(), event());
    assert!(one.id() < two.id(), "{} {}", one.id(), two.id());
    let millis = one.id().time().as_millisecond().to_string();
    assert_eq!(put(&one).expect("an item")["occurred_at"], AttributeValue::N(millis));
}

/// OUT-error-after-commit: whoever does not know whether he committed builds the same again.
#[test]
fn a_key_makes_the_same_item_whenever_it_is_used() {
    let build = || event().label("a", "1").label("b", "2").once("place order-1", at(0));
    assert_eq!(build(), build());
    assert_eq!(build().token(), build().token());
    assert_eq!(put(&build()), put(&build()));
    assert_eq!(build().id().time(), at(0));
    let id = |tenant: &str, key: &str, seconds: i64| {
        Event::new(tenant, "a", "a", *b"{}").once(key, at(seconds)).id()
    };
    let first = id("acme", "k", 0);
    assert_eq!(first, id("acme", "k", 0));
    for other in [id("other", "k", 0), id("acme", "k2", 0), id("acme", "k", 1)] {
        assert_ne!(first, other);
    }
}

proptest! {
    /// The store takes 36 characters of a token, and one token is one event.
    #[test]
    fn a_token_fits_and_tells_events_apart(one: u128, two: u128) {
        let event = |bits: u128| event().with_id(EventId::new(uuid::Uuid::from_u128(bits)));
        prop_assert!(event(one).token().len() <= 36);
        prop_assert_eq!(event(one).token() == event(two).token(), one == two);
    }
}

#[test]
fn shards_stay_within_what_a_stack_can_have() {
    let shard = |shards: u16| {
        let action = Outbox::new("outbox", shards).put(&event()).expect("an item");
        action.put.expect("a put").item["unrelayed_shard"].as_s().expect("a text").clone()
    };
    assert_eq!(shard(0), "0");
    let most = (0..500).map(|_| shard(u16::MAX).parse::<u16>().expect("a number")).max();
    assert!(most.is_some_and(|most| (4..64).contains(&most)), "{most:?}");
}

#[cfg(feature = "large")]
mod large {
    use super::*;

    #[test]
    fn a_large_payload_is_laid_aside_before_its_event_is_put() {
        let payload = format!("\"{}\"", "x".repeat(500_000));
        let mut event = Event::new("acme", "a", "a", payload.clone());
        let object = event.aside().expect("it is compressed").expect("it is large");
        assert!(object.key.starts_with("out/acme/") && object.key.len() == 9 + 64, "{object:?}");
        assert!(object.bytes.len() < 1000, "{object:?}");
        let item = put(&event).expect("an item");
        assert!(!item.contains_key("payload"));
        assert_eq!(item["payload_sha256"].as_b().expect("a hash").as_ref().len(), 32);
        // Once is enough.
        assert_eq!(event.aside().expect("nothing is done"), None);
    }

    #[test]
    fn what_is_small_or_wrong_stays_where_it_is() {
        let mut small = event();
        assert_eq!(small.aside().expect("nothing is done"), None);
        assert!(put(&small).expect("an item").contains_key("payload"));
        let text = |bytes: usize| format!("\"{}\"", "x".repeat(bytes));
        for (tenant, payload) in
            [("acme", text(1_000_000)), ("No Name", text(20_000)), ("acme", "x".repeat(20_000))]
        {
            let mut wrong = Event::new(tenant, "a", "a", payload);
            assert_eq!(wrong.aside().expect("nothing is done"), None);
            put(&wrong).expect_err("it is wrong");
        }
    }
}
