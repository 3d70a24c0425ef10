//! What is sent of an event, by the style of its endpoint.

use domain::{body::Sha256Hash, endpoint::Style, outbox::Payload};

use crate::world::{BODY, CLOCK, T0, World, header, secret, verifies};

async fn styled(style: Style) -> World {
    let mut world = World::new().with_secret(&secret(1), None).await;
    world.endpoint.style = style;
    world.event.aggregate_version = Some(7);
    world.publish(&world.event);
    world
}

/// F1, F2, F3: whatever the style, the bytes are the same on every attempt, and signed.
#[tokio::test]
async fn the_bytes_of_every_style_are_frozen_and_signed() {
    for (style, content_type, part) in [
        (Style::Full, "application/json", "9007199254740993}"),
        (Style::Thin, "application/json", r#""data":{"id":"in_1","version":7}"#),
        (Style::CloudEvents, "application/cloudevents+json", r#""specversion":"1.0""#),
    ] {
        let world = styled(style).await;
        for (attempts, wait) in [(0, 0), (1, 300), (2, 36_000)] {
            CLOCK.set(T0 + wait);
            assert!(world.attempt(attempts).await.outcome.is_success());
            let post = world.posts().pop().unwrap();
            assert!(verifies(&post, &secret(1).expose(), "standard_webhooks", T0 + wait));
            assert_eq!(post.body, world.posts()[0].body);
            assert_eq!(header(&post, "content-type"), content_type);
            assert_eq!(header(&post, "webhook-aggregate-version"), "7");
            assert!(std::str::from_utf8(&post.body).unwrap().contains(part), "{post:?}");
        }
    }
}

/// The payload stands in the envelope as it was published, to the last digit.
#[tokio::test]
async fn an_envelope_holds_the_payload_as_it_is() {
    let world = styled(Style::CloudEvents).await;
    world.attempt(0).await;
    let text = std::str::from_utf8(&world.posts()[0].body).unwrap().to_owned();
    let payload = std::str::from_utf8(BODY).unwrap();
    assert!(text.ends_with(&format!(r#","data":{payload}}}"#)), "{text}");
    assert!(text.contains(&format!(r#""id":"{}""#, world.event.id)));
}

/// Ids only: a payload that is gone is no reason not to say that there was something.
#[tokio::test]
async fn a_thin_event_needs_no_payload() {
    let mut world = styled(Style::Thin).await;
    world.event.payload = Payload::Bucket(Sha256Hash::of(BODY));
    world.publish(&world.event);
    assert!(world.attempt(0).await.outcome.is_success());
    let text = std::str::from_utf8(&world.posts()[0].body).unwrap().to_owned();
    assert!(!text.contains("9007199254740993"), "{text}");
}
