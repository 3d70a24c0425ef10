//! Events that wait for something that is not their own failure, and the message that brings them back.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use domain::{
    inbox::Status,
    plan::{Change, Plan},
};
use testkit::{
    LIMITS,
    chaos::{Fault, When},
};
use worker::Outcome;

use crate::world::{PlanFn, World, at, code};

fn requeue(seconds: u64) -> Plan {
    let delay = Duration::from_secs(seconds);
    Plan::Requeue { delay, reason: "its order is not there yet".to_owned() }
}

const MINUTE: PlanFn = |_, _, _| requeue(60);

/// D7, ORD-update-before-create: the message comes when the wait is over, and not the sweeper.
#[tokio::test]
async fn an_event_that_waits_for_its_parent_comes_again_by_itself() {
    static IS_THERE: AtomicBool = AtomicBool::new(false);
    let world = World::with(|_, _, _| match IS_THERE.load(Ordering::Relaxed) {
        false => requeue(60),
        true => Plan::Apply(vec![Change::once("paid".parse().unwrap())]),
    });
    let event = world.put("evt_1").await;
    world.send(&event).await;
    assert_eq!(world.work().await, 1);
    let row = world.row(&event);
    assert_eq!((row.status, row.attempts, code(&row)), (Status::Pending, 0, "waits"));
    assert_eq!((row.waits_until, row.due_at), (Some(at(60)), Some(at(60) + LIMITS.wait_margin)));
    assert_eq!(row.next_action.as_deref(), Some("tried again at 08:01:00Z"));

    world.set_clock(59);
    assert_eq!(world.work().await, 0);
    IS_THERE.store(true, Ordering::Relaxed);
    world.set_clock(60);
    assert_eq!(world.work().await, 1);
    let row = world.row(&event);
    assert_eq!((row.status, row.waits_until, row.due_at), (Status::Processed, None, None));
    assert_eq!(world.queue.next_visible(), None, "nothing is left in the queue");
}

#[tokio::test]
async fn a_wait_that_no_message_can_carry_is_the_sweepers() {
    let world = World::with(|_, _, _| requeue(901));
    let event = world.put("evt_1").await;
    world.send(&event).await;
    world.work().await;
    let row = world.row(&event);
    assert_eq!((row.due_at, world.queue.next_visible()), (Some(at(901)), None));
    assert_eq!(row.next_action.as_deref(), Some("the sweeper sends it again after 08:15:01Z"));
}

/// The due time is written before the message is sent, and is later than it.
#[tokio::test]
async fn a_delayed_message_that_is_lost_costs_the_margin() {
    for fault in [Fault::Unavailable, Fault::Crash] {
        let world = World::with(MINUTE);
        let event = world.put("evt_1").await;
        world.queue.chaos.on("queue.send", When::Before, fault);
        let ended = world.queue.chaos.until_crash(world.handle(&event, 1)).await;
        assert_eq!(ended.is_none(), fault == Fault::Crash);
        assert!(ended.is_none_or(|outcome| outcome.is_settled()));
        assert_eq!(world.row(&event).due_at, Some(at(60) + LIMITS.wait_margin));
    }
}

/// A duplicate of the provider, a second delivery of SQS and a message of the sweeper each run the event, and none of
/// them makes the messages more.
#[tokio::test]
async fn however_many_copies_come_one_message_is_under_way() {
    let world = World::with(MINUTE);
    let event = world.put("evt_1").await;
    for second in 0..20 {
        world.set_clock(second);
        let outcome = world.handle(&event, 1).await;
        assert!(matches!(outcome, Outcome::Waits { until, .. } if until == at(60)), "{outcome:?}");
    }
    let sent = |world: &World| {
        world.queue.chaos.calls().iter().filter(|call| **call == "queue.send").count()
    };
    assert_eq!(sent(&world), 1);
    // The worker was behind: the sweeper's message and the delayed one come together.
    world.set_clock(200);
    world.send(&event).await;
    assert_eq!(world.work().await, 2);
    assert_eq!(sent(&world), 3, "the first one, the sweeper's own, and one for both");
    world.set_clock(259);
    assert_eq!(world.work().await, 0);
    world.set_clock(260);
    assert_eq!(world.work().await, 1);
    assert_eq!(world.row(&event).waits_until, Some(at(320)));
}

/// A message that comes while the event waits still runs it: somebody may have asked for it now.
#[tokio::test]
async fn an_event_that_is_asked_for_during_its_wait_is_tried() {
    let mut world = World::with(MINUTE);
    let event = world.put("evt_1").await;
    world.handle(&event, 1).await;
    world.handlers = worker::handlers::SHIPPED;
    world.later(10);
    assert!(matches!(world.handle(&event, 1).await, Outcome::Finished { .. }));
    // The message of the wait finds it done.
    world.set_clock(60);
    assert_eq!(world.work().await, 1);
    assert_eq!(world.store.tables().outbox.len(), 1);
}

/// What a pause had put off for hours is not held up to the end of that wait by a moment's throttling after the resume.
#[tokio::test]
async fn a_short_wait_is_not_lengthened_by_an_older_longer_one() {
    let world = World::new();
    let event = world.put("evt_1").await;
    world.pause();
    world.handle(&event, 1).await;
    world.resume();
    world.store.chaos.on("state.commit", When::Before, Fault::Throttled);
    assert!(
        matches!(world.handle(&event, 1).await, Outcome::Waits { until, .. } if until == at(10))
    );
    world.store.chaos.heal();
    world.set_clock(10);
    assert_eq!(world.work().await, 1);
    assert_eq!(world.row(&event).status, Status::Processed);
}

/// L4, WRK-throttle-to-dlq: however late an event comes, and however long it waits, its message is a new one each time,
/// and no count of receives brings it to the dead-letter queue.
#[tokio::test]
async fn an_event_that_waits_for_a_day_is_never_near_the_dead_letter_queue() {
    let world = World::with(MINUTE);
    let event = world.put("evt_1").await;
    world.send(&event).await;
    for minute in 0..1440 {
        world.set_clock(minute * 60);
        assert_eq!(world.work().await, 1);
        assert_eq!((world.row(&event).status, world.row(&event).attempts), (Status::Pending, 0));
    }
    world.set_clock(86_400);
    assert_eq!(
        (world.work().await, world.queue.dead()),
        (16, 1),
        "parked, and moved by SQS itself"
    );
    assert_eq!(
        (world.row(&event).status, code(&world.row(&event))),
        (Status::DeadLetter, "needs_reconciliation")
    );
}

/// D7, RTY-worker-outage: the day counts from the first wait, and not from when the event came: one that nobody could try
/// for longer than that still waits.
#[tokio::test]
async fn an_event_that_was_not_tried_for_a_day_waits_like_any_other() {
    let world = World::with(MINUTE);
    let event = world.put("evt_1").await;
    world.set_clock(3 * 86_400);
    let first = world.now();
    assert!(matches!(world.handle(&event, 1).await, Outcome::Waits { .. }));
    // An attempt that is counted before it runs does not begin the day anew.
    world.later(86_399);
    assert!(matches!(world.handle(&event, 5).await, Outcome::Waits { .. }));
    world.later(1);
    assert_eq!(world.now(), first + LIMITS.horizon);
    assert!(matches!(world.handle(&event, 1).await, Outcome::Parked(_)));
    assert_eq!(code(&world.row(&event)), "needs_reconciliation");
}
