//! Events as the gateway hands them over, and whatever else a host might.
//!
//! What is read of an event is what stands in it, by a second reading that knows nothing of the first. Whatever it is,
//! the answer is no server error, and a 2xx exactly when there is a row.

use std::cell::RefCell;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderName, HeaderValue};
use ingress::gateway::{Arrival, Event};
use jiff::Timestamp;
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::{bounded, world::World};

/// The secrets of the sources, as the literal events of `functions/ingress/tests/events` have them.
const SOURCES: [(&str, &str, &str); 3] = [
    ("sw", "standard_webhooks", "whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA="),
    ("stripe", "stripe", "field-secret-1"),
    ("github", "github", "field-secret-1"),
];

/// The law of an input.
pub fn law(input: &[u8]) {
    let read =
        bounded(input.len(), 16, || serde_json::from_slice::<Event>(input).map(Arrival::from));
    let whole = serde_json::from_slice::<Value>(input);
    let Ok(arrival) = read else { return };
    // Deeper or larger than serde_json builds.
    if let Ok(whole) = &whole {
        is_what_it_says(&arrival, whole);
    }
    is_answered(serde_json::from_slice(input).unwrap());
}

fn is_what_it_says(arrival: &Arrival, event: &Value) {
    let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    assert_eq!(arrival.method, text("/requestContext/http/method"));
    assert_eq!(arrival.source, text("/pathParameters/source"));
    let body = match event["isBase64Encoded"].as_bool() {
        Some(true) => STANDARD.decode(text("/body")).ok(),
        _ => Some(text("/body").as_bytes().to_vec()),
    };
    assert_eq!(arrival.body, body);
    let query = Some(text("/rawQueryString")).filter(|query| !query.is_empty());
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    let url = format!("https://{}{}{query}", text("/requestContext/domainName"), text("/rawPath"));
    assert_eq!(arrival.url, url);
    let mut expected: Vec<(String, Vec<u8>)> = Vec::new();
    for (name, value) in event["headers"].as_object().into_iter().flatten() {
        let value = value.as_str().unwrap().as_bytes();
        if let (Ok(name), Ok(_)) = (HeaderName::try_from(name), HeaderValue::from_bytes(value)) {
            expected.push((name.to_string(), value.to_vec()));
        }
    }
    let mut found: Vec<_> = arrival
        .headers
        .iter()
        .map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()))
        .collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}

fn is_answered(event: Event) {
    thread_local! {
        static RUNTIME: RefCell<Runtime> = RefCell::new(
            tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap(),
        );
    }
    let world = World::default();
    for (source, preset, secret) in SOURCES {
        world.add(source, preset, &[secret]);
    }
    let now = Timestamp::from_second(1_760_000_000).unwrap();
    let answer = RUNTIME.with_borrow(|runtime| runtime.block_on(world.answer(event, now)));
    let status = answer["statusCode"].as_u64().unwrap();
    assert!(matches!(status, 200..500), "{status}");
    assert_eq!(usize::from(status < 300), world.rows().len(), "{status}");
    if status >= 300 {
        assert_eq!(answer["body"], "", "a refusal says why");
    }
}
