//! Requests with very many events: as much at once as is good, and further with every try.

use std::time::Duration;

use domain::inbox::{Applied, ChangeResult, Status};
use testkit::chaos::{Fault, When};
use worker::Outcome;

use crate::world::{World, list};

fn ids(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("evt_{n}")).collect()
}

async fn with(count: usize) -> (World, domain::id::InboxKey) {
    let world = World::new();
    let ids = ids(count);
    let ids: Vec<_> = ids.iter().map(String::as_str).collect();
    let parent = world.came("batches", list(&ids).to_string().as_bytes(), None).await;
    (world, parent)
}

fn count(world: &World, name: &str) -> usize {
    world.store.chaos.calls().iter().filter(|call| **call == name).count()
}

#[tokio::test]
async fn the_largest_request_costs_a_write_for_each_event_and_few_besides() {
    let (world, parent) = with(signing::MAX_ELEMENTS).await;
    assert!(world.handle(&parent).await.is_settled());
    assert_eq!(world.row(&parent).children(), Some(10_000));
    assert_eq!(count(&world, "inbox.accept"), 10_000);
    assert_eq!(count(&world, "inbox.note"), 39);
    assert_eq!(world.store.chaos.calls().len(), 10_000 + 39 + 2);
    assert_eq!(world.queue.chaos.calls().len(), 40);
    assert_eq!(world.store.tables().inbox.len(), 10_001);

    // Of one more, nothing is put, and nothing is lost.
    let (world, parent) = with(signing::MAX_ELEMENTS + 1).await;
    assert!(matches!(world.handle(&parent).await, Outcome::Parked(_)));
    assert_eq!(world.code(&parent), "not_a_batch");
    assert_eq!(world.store.tables().inbox.len(), 1);
}

#[tokio::test]
async fn a_split_that_runs_out_of_time_goes_on_where_it_stood_and_has_not_failed() {
    let (world, parent) = with(3000).await;
    let mut tries = 0;
    let mut puts = 0;
    loop {
        tries += 1;
        assert!(tries < 20, "it gets nowhere");
        world.store.chaos.heal();
        // About a quarter of the whole each time.
        let outcome = world.handle_for(&parent, 300).await.unwrap();
        puts += count(&world, "inbox.accept");
        let row = world.row(&parent);
        assert_eq!(row.attempts, 0);
        match outcome {
            Outcome::Waits { until, ref reason } => {
                assert!(until <= world.now(), "it goes on at once");
                assert_eq!(reason.code, "splitting");
                assert!(row.next_action.is_some() && row.split > 0);
            }
            Outcome::Finished { .. } => break,
            other => panic!("{other:?}"),
        }
        world.later(60);
    }
    assert!(tries > 2, "the time was enough for all of it");
    // Only what was put after the last note is put again.
    assert!(puts < 3000 + tries * 250, "{puts} puts in {tries} tries");
    let row = world.row(&parent);
    assert_eq!((row.status, row.children()), (Status::Processed, Some(3000)));
    assert_eq!(world.store.tables().inbox.len(), 3001);
}

/// Without a note there is nothing to go on from: that is a failure like any other, and ends.
#[tokio::test]
async fn a_split_that_gets_nowhere_is_counted() {
    let (world, parent) = with(200).await;
    for attempt in 1..=12 {
        let outcome = world.handle_for(&parent, 3).await.unwrap();
        let row = world.row(&parent);
        assert_eq!((row.attempts, world.code(&parent).as_str()), (attempt, "timed_out"));
        assert_eq!(matches!(outcome, Outcome::Parked(_)), attempt == 12);
        world.later(1000);
    }
}

/// C13, and its exception: an attempt that was counted before it ran got somewhere.
#[tokio::test]
async fn a_process_that_dies_in_a_split_has_moved_it_on() {
    let (world, parent) = with(600).await;
    let mut notes = 0;
    world.store.chaos.set(move |_, name| {
        notes += u32::from(name == "inbox.note");
        (name == "inbox.note" && notes == 3).then_some((When::After, Fault::Crash))
    });
    let mut message = world.message(&parent);
    message.receives = 3;
    let worker = world.worker();
    let handling = std::pin::pin!(worker.handle(&message, 1.0, std::future::pending()));
    assert!(world.store.chaos.until_crash(handling).await.is_none());
    let row = world.row(&parent);
    assert_eq!((row.split, row.attempts), (500, 0));
    // The sweeper looks after the message has had its chance.
    assert!(row.due_at.unwrap() >= world.now() + Duration::from_secs(180));
    world.store.chaos.heal();
    assert!(world.handle(&parent).await.is_settled());
    assert_eq!(count(&world, "inbox.accept"), 100);
    let row = world.row(&parent);
    let results = [
        ChangeResult::children(100, Applied::Applied),
        ChangeResult::children(500, Applied::AlreadyEmitted),
    ];
    assert_eq!(row.results, results);
}

/// A replay looks at every event again, however far the last split came.
#[tokio::test]
async fn a_replay_begins_at_the_first_event() {
    use domain::ports::Inbox as _;
    let (world, parent) = with(300).await;
    world.handle(&parent).await;
    let _ = world.store.replay(&parent, world.now(), world.now()).await.unwrap();
    world.store.chaos.heal();
    world.handle(&parent).await;
    assert_eq!(count(&world, "inbox.accept"), 300);
}
