//! How attempts end: every failure is its own message's, is written down before the queue forgets it, and is counted by
//! us.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use aws_lambda_events::sqs::{SqsEvent, SqsMessage};
use domain::{
    id::InboxKey,
    inbox::Status,
    message::{InboundMessage, Message as _},
    plan::{Change, Plan},
};
use proptest::prelude::*;
use testkit::chaos::{Fault, When};
use worker::Outcome;

use crate::world::{World, at, code, key, new};

const FAULTS: [Fault; 3] = [Fault::Throttled, Fault::Unavailable, Fault::Refused];

/// WRK-swallowed-error-drops-batch: whatever goes wrong at whichever call, with its effect or without: a message that the
/// queue may forget has a row that is finished, or that somebody will look at again.
#[tokio::test]
async fn a_message_is_forgotten_only_if_its_row_is_finished_or_due() {
    let plans: [crate::world::PlanFn; 5] = [
        |_, _, _| Plan::Apply(vec![Change::once("paid".parse().unwrap())]),
        |_, _, _| Plan::Apply(Vec::new()),
        |_, _, _| Plan::Requeue { delay: Duration::from_secs(60), reason: "r".to_owned() },
        |_, _, _| Plan::Reject("r".to_owned()),
        |_, _, _| panic!("a bug"),
    ];
    let mut struck = 0;
    for plan in plans {
        for (receives, attempts) in [(1, 0), (3, 5), (1, 11), (1, 12)] {
            for (fault, when) in
                FAULTS.map(|fault| [(fault, When::Before), (fault, When::After)]).as_flattened()
            {
                for call in 0.. {
                    let world = World::with(plan);
                    let event = world.put("evt_1").await;
                    world.edit(&event, |row| row.attempts = attempts);
                    world.store.chaos.at(call, *when, *fault);
                    let outcome = world.handle(&event, receives).await;
                    let is_struck = world.store.chaos.calls().len() as u64 > call;
                    let row = world.row(&event);
                    let is_safe = row.status.is_finished()
                        || row.status == Status::Pending && row.due_at.is_some();
                    assert!(
                        !outcome.is_settled() || is_safe,
                        "{fault:?} {when:?} call {call}: {outcome:?} {row:?}"
                    );
                    // A fault that was not the event's is not the end of it.
                    let is_ours = row.status != Status::DeadLetter || code(&row) != "store_busy";
                    assert!(is_ours, "{fault:?} {when:?} call {call}: {row:?}");
                    if !is_struck {
                        break;
                    }
                    struck += 1;
                }
            }
        }
    }
    assert!(struck > 200, "{struck}");
}

/// C11, C12, C32: counted by us, with longer and longer waits, then parked with the error, and SQS moves the message.
#[tokio::test]
async fn a_failing_event_is_tried_twelve_times_and_then_moved_by_the_queue() {
    let world = World::with(|_, _, _| panic!("a bug"));
    let event = world.put("evt_1").await;
    world.send(&event).await;
    let (mut attempts, mut tried_at) = (0, Vec::new());
    while world.queue.dead() == 0 {
        let Some(next) = world.queue.next_visible() else { panic!("the message is lost") };
        let second = next.as_second() - at(0).as_second();
        world.set_clock(second.max(0));
        world.work().await;
        if world.row(&event).attempts > attempts {
            attempts = world.row(&event).attempts;
            tried_at.push(second.max(0));
        }
    }
    let waits: Vec<_> = tried_at.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(waits, [10, 20, 40, 80, 160, 320, 640, 900, 900, 900, 900]);
    let row = world.row(&event);
    assert_eq!(
        (row.status, row.attempts, code(&row)),
        (Status::DeadLetter, 12, "handler_panicked")
    );
}

/// Another try would fail alike.
#[tokio::test]
async fn a_permanent_error_parks_at_once() {
    let world = World::with(|_, _, _| Plan::Reject("the amount is negative".to_owned()));
    let event = world.put("evt_1").await;
    let outcome = world.handle(&event, 1).await;
    assert!(matches!(outcome, Outcome::Parked(_)) && !outcome.is_settled(), "{outcome:?}");
    let row = world.row(&event);
    assert_eq!((row.status, row.attempts, code(&row)), (Status::DeadLetter, 1, "rejected"));
    assert_eq!(row.last_error.unwrap().message, "the amount is negative");
}

/// WRK-receive-count-not-attempts, WRK-throttle-to-dlq: receives that never reached us leave an event all its attempts.
#[tokio::test]
async fn any_count_of_receives_gives_the_same_schedule() {
    for receives in [1, 2, 3, 4, 9, 15, 1000] {
        let world = World::new();
        let event = world.put("evt_1").await;
        assert!(matches!(world.handle(&event, receives).await, Outcome::Finished { .. }));

        let world = World::with(|_, _, _| panic!("a bug"));
        let event = world.put("evt_1").await;
        let mut waits = Vec::new();
        for attempt in 1..=11 {
            let Outcome::Retry { wait, .. } = world.handle(&event, receives).await else {
                panic!("{receives}")
            };
            assert_eq!(world.row(&event).attempts, attempt, "{receives}");
            waits.push(wait.as_secs());
        }
        assert_eq!(waits, [10, 20, 40, 80, 160, 320, 640, 900, 900, 900, 900], "{receives}");
        assert!(matches!(world.handle(&event, receives).await, Outcome::Parked(_)));
    }
}

/// INB-in-progress-stuck: an attempt leaves no mark that would keep the next one out, and the late one changes nothing.
#[tokio::test]
async fn an_attempt_that_was_killed_keeps_nobody_out_and_cannot_end_the_next_one() {
    let world = World::new();
    let event = world.put("evt_1").await;
    // It hangs before its commit, and its message becomes visible again.
    let late = world.handle(&event, 3);
    let mut late = std::pin::pin!(late);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    while !world.store.chaos.calls().contains(&"inbox.note") {
        assert!(late.as_mut().poll(&mut context).is_pending());
    }
    world.later(180);
    assert!(matches!(world.handle(&event, 4).await, Outcome::Finished { .. }));
    let row = world.row(&event);
    assert_eq!((row.status, row.attempts), (Status::Processed, 2), "the killed one is counted");
    let before = world.store.tables().outbox.clone();
    assert!(matches!(late.await, Outcome::FinishedBefore));
    assert_eq!((world.row(&event), &world.store.tables().outbox), (row, &before));
}

fn batch(keys: &[InboxKey]) -> SqsEvent {
    let mut batch = SqsEvent::default();
    batch.records = keys
        .iter()
        .enumerate()
        .map(|(n, key)| {
            let mut message = SqsMessage::default();
            message.message_id = Some(format!("m{n}"));
            message.receipt_handle = Some(format!("r{n}"));
            message.body = Some(InboundMessage(key.clone()).to_text());
            message.attributes =
                [("ApproximateReceiveCount".to_owned(), (n % 4 + 1).to_string())].into();
            message
        })
        .collect();
    batch
}

async fn failed(world: &World, keys: &[InboxKey]) -> BTreeSet<String> {
    let (worker, ends) = (world.worker(), world.now() + Duration::from_secs(30));
    let response = worker.batch(batch(keys), ends, || 0.5).await.unwrap();
    let failed = response.batch_item_failures;
    failed.into_iter().map(|item| item.item_identifier).collect()
}

/// What an event is for, by its id.
fn plan(event: &worker::handlers::Event<'_>) -> Plan {
    let id = event.row.key.event_id();
    match id.split('_').next() {
        Some("panics") => panic!("a bug"),
        Some("rejects") => Plan::Reject("no".to_owned()),
        Some("waits") => Plan::Requeue { delay: Duration::from_secs(60), reason: "r".to_owned() },
        Some("ignored") => Plan::Ignored("nobody wants it".to_owned()),
        _ => Plan::Apply(vec![Change::once(id.parse().unwrap())]),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// WRK-fifo-group-order, WRK-batch-response-shape, C13: queues are standard ones, and order is the versions' business. So
    /// the model is simple: exactly the failing ones come back, wherever they stand and however often they came.
    #[test]
    fn exactly_the_failing_messages_of_a_batch_come_back(
        kinds in prop::collection::vec(
            prop::sample::select(vec!["good", "panics", "rejects", "waits", "ignored", "missing"]), 1..=10
        )
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let world = World::with(|_, event, _| plan(event));
            let mut keys = Vec::new();
            for (n, kind) in kinds.iter().enumerate() {
                let id = format!("{kind}_{n}");
                keys.push(if *kind == "missing" { key(&id) } else { world.put(&id).await });
            }
            let expected: BTreeSet<_> = kinds
                .iter()
                .enumerate()
                .filter(|(_, kind)| ["panics", "rejects", "missing"].contains(kind))
                .map(|(n, _)| format!("m{n}"))
                .collect();
            assert_eq!(failed(&world, &keys).await, expected, "{kinds:?}");
            for (kind, key) in kinds.iter().zip(&keys).filter(|(kind, _)| **kind != "missing") {
                let expected = match *kind {
                    "good" => Status::Processed,
                    "ignored" => Status::Ignored,
                    "rejects" => Status::DeadLetter,
                    _ => Status::Pending,
                };
                assert_eq!(world.row(key).status, expected, "{kind} of {kinds:?}");
            }
        });
    }
}

/// C33: messages that fail together draw each their own wait, or they would come back together.
#[tokio::test]
async fn each_message_of_a_batch_draws_a_wait_of_its_own() {
    let world = World::with(|_, _, _| panic!("a bug"));
    let mut keys = Vec::new();
    for n in 0..10 {
        keys.push(world.put(&format!("evt_{n}")).await);
    }
    let drawn = Mutex::new(0.0_f64);
    let jitter = || {
        let mut drawn = drawn.lock().unwrap_or_else(PoisonError::into_inner);
        *drawn += 0.1;
        *drawn
    };
    let mut records = batch(&keys);
    for message in &mut records.records {
        message.attributes = [("ApproximateReceiveCount".to_owned(), "1".to_owned())].into();
    }
    world.worker().batch(records, at(30), jitter).await.unwrap();
    let due: BTreeSet<_> = keys.iter().map(|key| world.row(key).due_at.unwrap()).collect();
    assert_eq!(due.len(), 10);
}

/// INB-lease-expires-side-effect-repeats: what a handler wants done outside is an outgoing event whose id follows from
/// the event, so an attempt that died with an unknown outcome, a retry and a replay all name the same effect.
#[tokio::test]
async fn an_effect_has_one_key_whatever_became_of_the_first_attempt() {
    for when in [When::Before, When::After] {
        let world = World::new();
        let new = new("evt_1", b"{}", at(0));
        let event = world.put("evt_1").await;
        world.store.chaos.on("state.commit", when, Fault::Crash);
        assert!(world.store.chaos.until_crash(world.handle(&event, 1)).await.is_none());
        world.store.chaos.heal();
        world.later(180);
        world.handle(&event, 2).await;
        let ids = |world: &World| {
            world.store.tables().outbox.values().map(|row| row.event.id).collect::<Vec<_>>()
        };
        let first = ids(&world);
        assert_eq!((first.len(), world.row(&event).status), (1, Status::Processed));
        let (now, due_at) = (world.now(), world.now() + Duration::from_secs(120));
        let _ = domain::ports::Inbox::replay(&world.store, &new.key, due_at, now).await.unwrap();
        world.handle(&event, 1).await;
        assert_eq!(ids(&world), first);
    }
}
