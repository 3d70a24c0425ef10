//! A user's own handler: the file that the page about handlers shows, and what happens when a name means nothing.

use domain::{
    event::ObjectRef,
    inbox::{Applied, Status},
    plan::Plan,
    source::Handler,
};
use serde_json::json;
use worker::handlers::Handlers;

use crate::{
    Current, Event, Own as _,
    loyalty::Loyalty,
    world::{Sent, World},
};

fn reads(_: &Handler, event: &Event<'_>) -> Vec<ObjectRef> {
    Loyalty.reads(event)
}

fn plan(_: &Handler, event: &Event<'_>, current: &Current) -> Plan {
    Loyalty.plan(event, current)
}

fn world() -> World {
    let mut world = World::own("payments", None);
    world.handlers = Handlers { reads, plan };
    world
}

fn paid(id: &str, event_type: &str) -> Sent {
    let body = json!({ "order": { "id": "or_1", "customer": "cus_1", "total_cents": 1234 } });
    Sent::new(id, event_type, &body)
}

/// C16, C21: the transport takes each event once; only the operation key takes each order once.
#[tokio::test]
async fn what_the_page_shows_does_what_it_says() {
    let world = world();
    let (one, two) = (paid("evt_1", "order.paid"), paid("evt_2", "order.completed"));
    world.all([&one, &two, &one]).await;
    let points = ("points.granted".to_owned(), json!({ "customer": "cus_1", "points": 12 }));
    assert_eq!(world.told("internal"), [points]);
    assert_eq!(world.results(&two)[0].result, Applied::DuplicateEffect);

    let (other, bad) = (
        paid("evt_3", "order.packed"),
        Sent { body: "{}".to_owned(), ..paid("evt_4", "order.paid") },
    );
    world.all([&other, &bad]).await;
    assert_eq!(world.row(&other).status, Status::Ignored);
    assert_eq!(world.row(&bad).status, Status::DeadLetter);
}

#[test]
fn the_page_shows_this_very_file() {
    let page = include_str!("../../src/handlers/README.md");
    let code = include_str!("loyalty.rs");
    assert!(
        page.contains(&format!("```rust\n{code}```\n")),
        "copy tests/handlers/loyalty.rs into the page again"
    );
}

/// C34: an event whose handler is not there waits for a person, who is told which there are.
#[tokio::test]
async fn a_handler_that_is_not_there_parks_its_events_and_names_those_that_are() {
    let world = World::own("loyalty", None);
    let sent = paid("evt_1", "order.paid");
    world.all([&sent]).await;
    let row = world.row(&sent);
    let error = row.last_error.unwrap();
    assert_eq!((row.status, error.code.as_str()), (Status::DeadLetter, "no_handler"));
    assert!(
        error.message.contains("loyalty") && error.message.contains("payments"),
        "{}",
        error.message
    );
}
