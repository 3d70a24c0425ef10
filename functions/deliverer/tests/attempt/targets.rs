//! What a queue or a bus is sent.

use domain::{
    body::Sha256Hash,
    delivery::{Cause, Outcome},
    destination::Destination,
    outbox::Payload,
};

use crate::world::{BODY, T0, World, at};

const QUEUE: &str = "https://sqs.eu-central-1.amazonaws.com/123456789012/mail";
const BUS: &str = "arn:aws:events:eu-central-1:123456789012:event-bus/orders";

fn to_queue(url: &str) -> World {
    let mut world = World::new();
    world.endpoint.destination = Destination::Queue(url.parse().unwrap());
    world
}

fn to_bus(arn: &str) -> World {
    let mut world = World::new();
    world.endpoint.destination = Destination::Bus(arn.parse().unwrap());
    world
}

fn with_payload(mut world: World, payload: &[u8]) -> World {
    world.event.payload = Payload::Inline(payload.to_vec());
    world.publish(&world.event);
    world
}

/// C16, C27, C28
#[tokio::test]
async fn a_queue_gets_the_payload_and_the_key_as_an_attribute() {
    let world = to_queue(QUEUE);
    for attempts in [0, 3] {
        assert!(world.attempt(attempts).await.outcome.is_success());
    }
    let [first, second] = world.receiver.messages.lock().unwrap().clone().try_into().unwrap();
    assert_eq!(first, second);
    assert_eq!((first.queue.to_string().as_str(), first.body.as_bytes()), (QUEUE, BODY));
    assert_eq!((first.key, first.event_type), (world.event.id.to_string(), "invoice.paid".into()));
    assert_eq!(first.fifo, None);
}

#[tokio::test]
async fn a_fifo_queue_keeps_the_order_of_an_aggregate() {
    let long = "x".repeat(129);
    let hash = |text: &str| Sha256Hash::of(text.as_bytes()).to_string();
    for (aggregate, group) in [
        ("in_1", "in_1".to_owned()),
        ("invoice 1", hash("invoice 1")),
        ("rechnung-ü", hash("rechnung-ü")),
        (&long, hash(&long)),
    ] {
        let mut world = to_queue(&format!("{QUEUE}.fifo"));
        world.event.aggregate_id = aggregate.to_owned();
        world.publish(&world.event);
        world.attempt(0).await;
        let message = world.receiver.messages.lock().unwrap().pop().unwrap();
        assert_eq!(message.fifo.unwrap().group, group, "{aggregate}");
    }
}

/// C16, C27, C28
#[tokio::test]
async fn a_bus_gets_the_payload_as_detail_and_the_key_as_resource() {
    let world = to_bus(BUS);
    assert!(world.attempt(0).await.outcome.is_success());
    let [entry] = world.receiver.entries.lock().unwrap().clone().try_into().unwrap();
    assert_eq!((entry.bus.to_string().as_str(), entry.detail.as_bytes()), (BUS, BODY));
    assert_eq!(
        (entry.source.as_str(), entry.detail_type.as_str()),
        ("postern.acme", "invoice.paid")
    );
    assert_eq!((entry.key, entry.at), (world.event.id.to_string(), at(T0 - 5)));
}

/// What a queue or a bus never takes is not tried for four days, and the endpoint is not to blame.
#[tokio::test]
async fn a_payload_that_cannot_be_carried_is_seen_before_it_is_sent() {
    let object = |bytes: usize| format!(r#"{{"a":"{}"}}"#, "x".repeat(bytes - 8)).into_bytes();
    let check = async |world: World, cause: Cause, what: &str| {
        let outcome = world.attempt(0).await.outcome;
        assert_eq!(outcome, Outcome::Failed { cause }, "{what}");
        assert!(!outcome.blames_endpoint(), "{what}");
        let receiver = &world.receiver;
        let sent = receiver.messages.lock().unwrap().len() + receiver.entries.lock().unwrap().len();
        assert_eq!(sent, 0, "{what}");
    };
    let most = 1_048_576;
    check(with_payload(to_queue(QUEUE), &object(most)), Cause::TooLarge, "queue").await;
    check(with_payload(to_bus(BUS), &object(most)), Cause::TooLarge, "bus").await;
    // The most that may be published goes through both, with all that stands beside it.
    for world in [to_queue(QUEUE), to_bus(BUS)] {
        assert!(with_payload(world, &object(1_000_000)).attempt(0).await.outcome.is_success());
    }
    for (payload, what) in
        [(&b""[..], "empty"), ("\"\u{fffe}\"".as_bytes(), "no XML"), (b"\"\xff\"", "no text")]
    {
        check(with_payload(to_queue(QUEUE), payload), Cause::Unacceptable, what).await;
    }
    for (payload, what) in
        [(&b"[1]"[..], "a list"), (b"7", "a number"), (b"{", "no JSON"), (b"", "empty")]
    {
        check(with_payload(to_bus(BUS), payload), Cause::Unacceptable, what).await;
    }
    let deep = format!(r#"{{"a":{}1{}}}"#, "[".repeat(900), "]".repeat(900));
    assert!(with_payload(to_bus(BUS), deep.as_bytes()).attempt(0).await.outcome.is_success());
    let mut long = to_bus(BUS);
    long.event.event_type = "t".repeat(129);
    long.publish(&long.event);
    check(long, Cause::Unacceptable, "a long type").await;
}

/// EventBridge would take it, answer with an id, and drop it.
#[tokio::test]
async fn a_bus_that_does_not_exist_gets_nothing() {
    let world = to_bus(&BUS.replace("orders", "absent"));
    let outcome = world.attempt(0).await.outcome;
    assert_eq!(outcome, Outcome::Failed { cause: Cause::NoSuchTarget });
    assert!(world.receiver.entries.lock().unwrap().is_empty());
}

/// The role has to let us write to the queue that wakes us; a row that was written past the api must not use that.
#[tokio::test]
async fn the_queue_that_wakes_us_is_no_target() {
    let world = to_queue(&QUEUE.replace("mail", "postern-WakeQueue"));
    let outcome = world.attempt(0).await.outcome;
    assert_eq!(outcome, Outcome::Failed { cause: Cause::BlockedAddress });
    assert!(world.receiver.messages.lock().unwrap().is_empty());
}
