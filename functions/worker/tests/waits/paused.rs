//! Events of a paused source.

use std::{
    task::{Context, Waker},
    time::Duration,
};

use domain::{
    inbox::{Failure, Noted, Status},
    plan::Plan,
    ports::Inbox as _,
    source::SchemeChoice,
};
use serde_json::json;
use testkit::{
    LIMITS,
    chaos::{Fault, When},
};
use worker::Outcome;

use crate::world::{PlanFn, World, at, code, new, shop};

const HOUR: i64 = 3600;

/// C33, C36: what went wrong before stays to be seen, nothing of the pause counts, and the story says what to do.
#[tokio::test]
async fn an_event_of_a_paused_source_waits_uncounted_and_is_carried_out_after_the_resume() {
    for receives in [1, 9] {
        let world = World::new();
        let event = world.put("evt_1").await;
        world.edit(&event, |row| {
            row.attempts = 11;
            row.last_error = Some(Failure::new("handler_panicked", "before"));
        });
        world.later(100);
        world.pause();
        let outcome = world.handle(&event, receives).await;
        assert!(matches!(outcome, Outcome::Paused { .. }) && outcome.is_settled(), "{outcome:?}");
        let row = world.row(&event);
        assert_eq!(
            (row.status, row.attempts, code(&row)),
            (Status::Pending, 11, "handler_panicked")
        );
        assert_eq!(row.due_at, Some(world.now() + LIMITS.pause_wait));
        let next =
            "waits: the source is paused since 2027-01-15T08:01:40Z; `postern sources resume shop`";
        assert_eq!(row.next_action.as_deref(), Some(next));
        // Nothing of the event was touched.
        assert_eq!(world.store.chaos.calls(), ["inbox.read", "inbox.note"]);
        assert!(world.queue.chaos.calls().is_empty(), "no message circles meanwhile");

        world.later(100);
        world.resume();
        assert!(matches!(world.handle(&event, 1).await, Outcome::Finished { .. }));
        assert_eq!(world.store.tables().outbox.len(), 1);
    }
}

#[tokio::test]
async fn a_pause_is_seen_within_the_time_a_source_is_believed() {
    let world = World::new();
    let (first, second, third) =
        (world.put("evt_1").await, world.put("evt_2").await, world.put("evt_3").await);
    world.handle(&first, 1).await;
    world.pause();
    world.later(9);
    assert!(matches!(world.handle(&second, 1).await, Outcome::Finished { .. }));
    world.later(1);
    assert!(matches!(world.handle(&third, 1).await, Outcome::Paused { .. }));
}

/// The other way round nothing may be late: what is put off now waits for hours.
#[tokio::test]
async fn a_resume_is_seen_at_once() {
    let world = World::new();
    world.pause();
    let (first, second) = (world.put("evt_1").await, world.put("evt_2").await);
    assert!(matches!(world.handle(&first, 1).await, Outcome::Paused { .. }));
    world.resume();
    assert!(matches!(world.handle(&second, 1).await, Outcome::Finished { .. }));
    assert!(matches!(world.handle(&first, 1).await, Outcome::Finished { .. }));
}

/// Whoever resumes looks for waiting events once. One that is put off in that moment would be found by nobody for hours.
#[tokio::test]
async fn a_resume_in_the_moment_in_which_an_event_is_put_off_is_seen() {
    let world = World::new();
    world.pause();
    let event = world.put("evt_1").await;
    let mut handling = std::pin::pin!(world.handle(&event, 1));
    let mut context = Context::from_waker(Waker::noop());
    while !world.store.chaos.calls().contains(&"inbox.note") {
        assert!(handling.as_mut().poll(&mut context).is_pending());
    }
    world.resume();
    assert!(matches!(handling.await, Outcome::Finished { .. }));

    // Nor is it forgotten if it cannot be seen whether somebody has.
    let world = World::new();
    world.pause();
    let event = world.put("evt_1").await;
    let mut asked = 0;
    world.registry.0.chaos.set(move |_, _| {
        asked += 1;
        (asked == 3).then_some((When::Before, Fault::Unavailable))
    });
    let outcome = world.handle(&event, 1).await;
    assert!(matches!(outcome, Outcome::Unsure(_)) && !outcome.is_settled(), "{outcome:?}");
}

/// A worker that cannot ask does not put off for hours: perhaps the source was resumed.
#[tokio::test]
async fn while_the_registry_cannot_be_asked_a_pause_is_a_short_wait() {
    let world = World::new();
    world.pause();
    let event = world.put("evt_1").await;
    world.handle(&event, 1).await;
    world.registry.0.chaos.on("registry.source", When::Before, Fault::Unavailable);
    let outcome = world.handle(&event, 9).await;
    assert!(matches!(outcome, Outcome::Waits { .. }) && outcome.is_settled(), "{outcome:?}");
    let row = world.row(&event);
    assert_eq!((row.attempts, code(&row)), (0, "store_busy"));
    assert_eq!(row.due_at, Some(at(10) + LIMITS.wait_margin));
}

const NEEDS_PARENT: PlanFn = |_, _, _| Plan::Requeue {
    delay: Duration::from_secs(900),
    reason: "its order is not there yet".to_owned(),
};

/// Three days of pause are no time that an event waited for its parent.
#[tokio::test]
async fn the_horizon_does_not_count_while_the_source_is_paused() {
    let world = World::with(NEEDS_PARENT);
    let event = world.put("evt_1").await;
    assert!(matches!(world.handle(&event, 1).await, Outcome::Waits { .. }));
    world.pause();
    for _ in 0..12 {
        world.later(6 * HOUR);
        assert!(matches!(world.handle(&event, 1).await, Outcome::Paused { .. }));
    }
    world.resume();
    assert!(matches!(world.handle(&event, 1).await, Outcome::Waits { .. }));
    world.later(24 * HOUR - 1);
    assert!(matches!(world.handle(&event, 1).await, Outcome::Waits { .. }));
    world.later(1);
    assert!(matches!(world.handle(&event, 1).await, Outcome::Parked(_)));
    assert_eq!(code(&world.row(&event)), "needs_reconciliation");
}

#[tokio::test]
async fn a_pause_in_the_middle_of_an_attempt_lets_it_come_to_its_end() {
    let world = World::new();
    let event = world.put("evt_1").await;
    {
        let mut handling = std::pin::pin!(world.handle(&event, 1));
        let mut context = Context::from_waker(Waker::noop());
        while world.registry.0.chaos.calls().is_empty() {
            assert!(handling.as_mut().poll(&mut context).is_pending());
        }
        world.pause();
        assert!(matches!(handling.await, Outcome::Finished { .. }));
    }
    assert_eq!(world.row(&event).status, Status::Processed);
}

/// RPL-inbound-repair: whoever asks for a parked or finished event while its source is paused gets it after the resume.
#[tokio::test]
async fn a_redrive_or_a_replay_during_the_pause_waits_for_the_resume() {
    let world = World::new();
    let (parked, finished) = (world.put("evt_1").await, world.put("evt_2").await);
    let claim = world.row(&parked).claim();
    let why = Failure::new("rejected", "a bug");
    assert_eq!(world.store.park(&claim, 1, &why, at(0)).await.unwrap(), Noted::Yes);
    world.handle(&finished, 1).await;
    world.later(600);
    world.pause();
    // The console sends the old message with a new time.
    let redriven = world.handle(&parked, 1).await;
    assert!(matches!(redriven, Outcome::Paused { .. }) && redriven.is_settled(), "{redriven:?}");
    assert_eq!((world.row(&parked).status, world.row(&parked).cycle), (Status::Pending, 1));
    let (now, due_at) = (world.now(), world.now() + Duration::from_secs(120));
    assert_eq!(world.store.replay(&finished, due_at, now).await.unwrap(), Noted::Yes);
    assert!(matches!(world.handle(&finished, 1).await, Outcome::Paused { .. }));
    world.resume();
    for event in [parked, finished] {
        assert!(matches!(world.handle(&event, 1).await, Outcome::Finished { .. }));
    }
    assert_eq!(world.store.tables().outbox.len(), 2);
}

#[tokio::test]
async fn a_request_with_several_events_waits_whole() {
    let world = World::new();
    world.change(|source| {
        source.scheme = SchemeChoice::Own(json!({ "like": "stripe", "batch": "/events" }));
    });
    world.pause();
    let body = br#"{"events":[{"id":"a","type":"t"},{"id":"b","type":"t"}]}"#;
    let request = new("request", body, at(0));
    let _ = world.store.accept(&request).await.unwrap();
    assert!(matches!(world.handle(&request.key, 1).await, Outcome::Paused { .. }));
    assert_eq!(world.store.tables().inbox.len(), 1);
    world.resume();
    assert!(matches!(world.handle(&request.key, 1).await, Outcome::Finished { .. }));
    assert_eq!(world.store.tables().inbox.len(), 3);
}

#[tokio::test]
async fn a_paused_source_that_is_removed_parks_its_events_to_be_seen() {
    let world = World::new();
    world.pause();
    let event = world.put("evt_1").await;
    assert!(matches!(world.handle(&event, 1).await, Outcome::Paused { .. }));
    world.registry.0.tables().sources.remove(&shop());
    assert!(matches!(world.handle(&event, 1).await, Outcome::Parked(_)));
    assert_eq!(code(&world.row(&event)), "source_missing");
}

/// All attempts were made before the pause: nothing is left to wait for but a person.
#[tokio::test]
async fn an_event_without_attempts_left_is_parked_though_its_source_is_paused() {
    let world = World::new();
    let event = world.put("evt_1").await;
    world.edit(&event, |row| row.attempts = 12);
    world.pause();
    assert!(matches!(world.handle(&event, 9).await, Outcome::Parked(_)));
}

/// If it dies right there: between the pause that was read and the note, the message comes back; after the note, the due
/// time is there.
#[tokio::test]
async fn a_worker_that_dies_while_it_puts_off_leaves_the_message_or_the_due_time() {
    for (when, due_at) in [(When::Before, at(120)), (When::After, at(0) + LIMITS.pause_wait)] {
        let world = World::new();
        world.pause();
        let event = world.put("evt_1").await;
        world.send(&event).await;
        world.store.chaos.on("inbox.note", when, Fault::Crash);
        let died = world.store.chaos.until_crash(world.work()).await;
        assert_eq!(died, None);
        world.store.chaos.heal();
        assert_eq!((world.row(&event).due_at, world.row(&event).attempts), (Some(due_at), 0));
        world.later(200);
        world.resume();
        assert_eq!(world.work().await, 1, "its message is there again");
        assert_eq!(world.row(&event).status, Status::Processed);
    }
}
