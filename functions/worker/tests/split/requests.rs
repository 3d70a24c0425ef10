//! What a request may be, and what becomes of it.

use domain::{
    event::Origin,
    id::InboxKey,
    inbox::{Applied, ChangeResult, Failure, Noted, Status},
    ports::Inbox as _,
};
use serde_json::json;
use testkit::chaos::{Fault, When};
use worker::Outcome;

use crate::world::{World, at, event, key, list};

#[tokio::test]
async fn a_request_becomes_its_events_and_says_how_many() {
    let world = World::new();
    let body = list(&["evt_1", "evt_2", "evt_3"]).to_string();
    let parent = world.came("batches", body.as_bytes(), None).await;
    let outcome = world.handle(&parent).await;
    assert!(outcome.is_settled(), "{outcome:?}");
    let row = world.row(&parent);
    assert_eq!((row.status, row.children(), row.attempts), (Status::Processed, Some(3), 0));
    assert_eq!(row.results, [ChangeResult::children(3, Applied::Applied)]);
    assert!(world.told().is_empty(), "the request itself is nobody's event");
    let child = world.row(&key("batches", "evt_2"));
    assert_eq!((child.status, child.due_at), (Status::Pending, Some(at(180))));
    assert_eq!(child.new.parent.as_deref(), Some(parent.event_id()));
    assert_eq!(child.new.event_type.as_deref(), Some("order.paid"));

    world.rest().await;
    assert_eq!(world.told(), ["evt_1", "evt_2", "evt_3"].map(|id| event(id).to_string()));
    assert_eq!(world.rows(Status::Processed).len(), 4);
}

/// SEC-live-test-mode: the request as a whole has no mode, and is split whatever it says.
#[tokio::test]
async fn each_event_of_a_request_has_a_mode_of_its_own() {
    let mut world = World::new();
    world.change("batches", |source| source.only = [("/live".to_owned(), true.into())].into());
    let events = [json!({"id": "a", "live": true}), json!({"id": "b", "live": false}), event("c")];
    let body = json!({ "live": false, "events": events }).to_string();
    let parent = world.came("batches", body.as_bytes(), None).await;
    world.rest().await;
    assert_eq!(
        (world.row(&parent).status, world.row(&parent).children()),
        (Status::Processed, Some(3))
    );
    assert_eq!(world.told(), [events[0].to_string()]);
    for id in ["b", "c"] {
        let row = world.row(&key("batches", id));
        assert_eq!(row.status, Status::Ignored);
        assert_eq!(row.next_action.as_deref(), Some("other mode: /live is not true"));
    }
}

#[tokio::test]
async fn a_request_without_events_is_ignored_with_the_reason() {
    let world = World::new();
    let parent = world.came("batches", br#"{"events":[]}"#, None).await;
    assert!(world.handle(&parent).await.is_settled());
    let row = world.row(&parent);
    assert_eq!((row.status, row.children()), (Status::Ignored, None));
    assert!(row.next_action.unwrap().starts_with("no_events: "));
}

/// INB-raw-bytes-kept: what is no list is kept, parked and seen.
#[tokio::test]
async fn a_request_that_is_no_list_is_parked_with_its_bytes() {
    for body in [&b"{}"[..], b"a=1&b=2", b"\xff\xfe", b"", b"{\"events\":{}}", b"[]"] {
        let world = World::new();
        let parent = world.came("batches", body, None).await;
        assert!(matches!(world.handle(&parent).await, Outcome::Parked(_)));
        let row = world.row(&parent);
        assert_eq!((row.status, world.code(&parent).as_str()), (Status::DeadLetter, "not_a_batch"));
        assert_eq!(row.new.body.length, body.len() as u64);
        assert_eq!(world.store.tables().inbox.len(), 1);
    }
}

/// ING-same-id-other-body: the worker runs once, with the first body, and somebody hears of the other.
#[tokio::test]
async fn another_body_under_a_known_id_is_counted_and_the_first_one_stays() {
    let world = World::new();
    let twice = json!({ "events": [event("evt_1"), { "id": "evt_1", "type": "order.voided" }] });
    let first = world.came("batches", twice.to_string().as_bytes(), None).await;
    let other = json!({ "events": [{ "id": "evt_1", "type": "order.lost" }] });
    let second = world.came("batches", other.to_string().as_bytes(), None).await;
    world.handle(&first).await;
    world.handle(&second).await;
    world.rest().await;
    assert_eq!(world.told(), [event("evt_1").to_string()]);
    for (key, counted) in [(&first, Applied::Applied), (&second, Applied::AlreadyEmitted)] {
        let row = world.row(key);
        assert_eq!(row.children(), Some(1));
        assert_eq!(row.results[0].result, counted);
        assert_eq!(row.results[1].what, "1 of them have a known id and other bytes");
    }
    let metrics = world.metrics.lines(at(0)).join("");
    assert!(metrics.contains(r#""webhooks_conflicting_total":2"#), "{metrics}");
}

/// ING-missing-id
#[tokio::test]
async fn events_without_ids_are_all_there_and_once() {
    let world = World::new();
    let body = json!({ "events": [{ "n": 1 }, { "n": 2 }, { "n": 1 }] }).to_string();
    let parent = world.came("batches", body.as_bytes(), None).await;
    world.handle(&parent).await;
    world.rest().await;
    assert_eq!(world.told(), [r#"{"n":1}"#, r#"{"n":1}"#, r#"{"n":2}"#]);
    assert!(world.store.tables().inbox.contains_key(&InboxKey::of_element(&parent, 2)));
}

/// ING-unknown-type
#[tokio::test]
async fn an_event_that_looks_like_a_request_is_not_split_again() {
    let world = World::new();
    let inner = json!({ "id": "evt_1", "events": [event("evt_2")] });
    let body = json!({ "events": [inner] }).to_string();
    let parent = world.came("batches", body.as_bytes(), None).await;
    world.handle(&parent).await;
    world.rest().await;
    assert_eq!(world.told(), [inner.to_string()]);
    assert_eq!(world.store.tables().inbox.len(), 2);
}

#[tokio::test]
async fn what_we_fetched_is_one_event_whatever_the_source_sends() {
    let world = World::new();
    let body = list(&["evt_1"]).to_string();
    let fetched = world.came("batches", body.as_bytes(), None).await;
    if let Some(item) = world.store.tables().inbox.get_mut(&fetched) {
        item.row.new.origin = Origin::Reconcile;
    }
    assert!(world.handle(&fetched).await.is_settled());
    assert_eq!(world.told(), [body]);
}

#[tokio::test]
async fn a_list_of_a_source_without_lists_is_one_event() {
    let world = World::new();
    let body = list(&["evt_1"]).to_string();
    let parent = world.came("plain", body.as_bytes(), None).await;
    assert!(world.handle(&parent).await.is_settled());
    assert_eq!(world.told(), [body]);
}

#[tokio::test]
async fn a_request_whose_scheme_this_version_does_not_know_waits_for_one_that_does() {
    let mut world = World::new();
    let unknown = domain::source::Source::new(
        "newer".parse().unwrap(),
        domain::source::SchemeChoice::Preset("of_a_later_version".to_owned()),
        domain::source::Handler::Mirror { emit_to: None, states: None },
        at(0),
    );
    world.only(unknown);
    let parent = world.came("newer", b"{}", None).await;
    assert!(matches!(world.handle(&parent).await, Outcome::Retry { .. }));
    assert_eq!((world.row(&parent).attempts, world.code(&parent).as_str()), (1, "scheme_missing"));
}

/// A person replays a request: what is done stays done, what is pending is sent again, what is parked runs again.
#[tokio::test]
async fn a_replayed_request_owes_what_is_not_finished() {
    let world = World::new();
    let body = list(&["done", "parked", "pending"]).to_string();
    let parent = world.came("batches", body.as_bytes(), None).await;
    world.handle(&parent).await;
    world.handle(&key("batches", "done")).await;
    let parked = world.row(&key("batches", "parked"));
    world.later(10);
    let failure = Failure::new("handler_failed", "no");
    let noted = world.store.park(&parked.claim(), 12, &failure, world.now()).await.unwrap();
    assert_eq!(noted, Noted::Yes);
    world.purge();

    world.later(600);
    assert_eq!(world.store.replay(&parent, world.now(), world.now()).await.unwrap(), Noted::Yes);
    world.handle(&parent).await;
    let row = world.row(&parent);
    assert_eq!(row.results, [ChangeResult::children(3, Applied::AlreadyEmitted)]);
    let standing = |id| {
        let row = world.row(&key("batches", id));
        (row.status, row.cycle)
    };
    assert_eq!(standing("done"), (Status::Processed, 0));
    assert_eq!(standing("parked"), (Status::Pending, 1));
    assert_eq!(standing("pending"), (Status::Pending, 0));
    let sent = std::iter::from_fn(|| world.queue.receive(|_| 0)).count();
    assert_eq!(sent, 2, "nothing is owed of what is done");
    world.rest().await;
    assert_eq!(world.told().len(), 3);
}

/// A put that the store will never take does not keep the others from being put and told.
#[tokio::test]
async fn an_event_that_cannot_be_put_delays_only_its_request() {
    let world = World::new();
    let body = list(&["evt_1", "evt_2", "evt_3"]).to_string();
    let parent = world.came("batches", body.as_bytes(), None).await;
    let mut puts = 0;
    world.store.chaos.set(move |_, name| {
        puts += u32::from(name == "inbox.accept");
        (name == "inbox.accept" && puts == 2).then_some((When::Before, Fault::Refused))
    });
    let outcome = world.handle(&parent).await;
    assert!(matches!(outcome, Outcome::Retry { .. }), "{outcome:?}");
    assert_eq!((world.row(&parent).attempts, world.code(&parent).as_str()), (1, "store_refused"));
    assert_eq!(world.store.tables().inbox.len(), 3);
    world.store.chaos.heal();
    world.rest().await;
    assert_eq!(world.told().len(), 3);
    assert_eq!(world.row(&parent).children(), Some(3));
}
