//! If it dies right there: whatever call is the last one, once or twice, alone or beside a copy.

use std::pin::pin;

use domain::{id::InboxKey, inbox::Status};
use futures_util::future::join;
use testkit::chaos::{Fault, When};

use crate::world::{World, event, list};

const IDS: [&str; 3] = ["evt_1", "evt_2", "evt_3"];

/// One event is large enough for a body beside its row, and one for the bucket.
fn request() -> String {
    let mut body = list(&IDS);
    for (n, length) in [(1, 3_000), (2, 20_000)] {
        body["events"][n]["noise"] = noise(length).into();
    }
    body.to_string()
}

fn noise(length: usize) -> String {
    let mut state = 7_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        char::from(b'!' + state.to_be_bytes()[0] % 90).to_string().replace(['"', '\\'], "x")
    };
    (0..length).map(|_| next()).collect()
}

async fn asked() -> (World, InboxKey) {
    let world = World::new();
    let parent = world.came("batches", request().as_bytes(), None).await;
    (world, parent)
}

/// How many calls of the store one split makes, and of the queue.
async fn calls() -> (u64, u64) {
    let (world, parent) = asked().await;
    assert!(world.handle(&parent).await.is_settled());
    (world.store.chaos.calls().len() as u64, world.queue.chaos.calls().len() as u64)
}

/// Nothing goes wrong any more, and every message is lost.
async fn ends_well(world: &World, parent: &InboxKey, told: &str) {
    world.store.chaos.heal();
    world.queue.chaos.heal();
    world.purge();
    world.rest().await;
    let row = world.row(parent);
    assert_eq!((row.status, row.children()), (Status::Processed, Some(3)), "{told}");
    assert_eq!(world.rows(Status::Processed).len(), 4, "{told}");
    let out = world.told();
    assert_eq!(out.len(), 3, "{told}: {out:?}");
    assert!(out.contains(&event("evt_1").to_string()), "{told}");
    let tables = world.store.tables();
    let outbox: std::collections::BTreeSet<_> = tables.outbox.keys().collect();
    assert_eq!(outbox.len(), 3, "{told}");
}

const WAYS: [(When, Fault); 6] = [
    (When::Before, Fault::Crash),
    (When::After, Fault::Crash),
    (When::Before, Fault::Throttled),
    (When::After, Fault::Unavailable),
    (When::Before, Fault::Unavailable),
    (When::Before, Fault::Refused),
];

/// INB-in-progress-stuck
#[tokio::test]
async fn wherever_it_dies_each_event_is_carried_out_once() {
    let (store, queue) = calls().await;
    for (when, fault) in WAYS {
        for call in 0..store {
            let (world, parent) = asked().await;
            world.store.chaos.at(call, when, fault);
            world.handle_for(&parent, u32::MAX).await;
            ends_well(&world, &parent, &format!("{when:?} {fault:?} at call {call}")).await;
        }
        for call in 0..queue {
            let (world, parent) = asked().await;
            world.queue.chaos.at(call, when, fault);
            let mut handling = pin!(world.handle_for(&parent, u32::MAX));
            // The store's faults end a process by themselves; the queue's are looked at here.
            futures_util::future::poll_fn(|context| match handling.as_mut().poll(context) {
                std::task::Poll::Pending if !world.queue.chaos.crashed() => {
                    std::task::Poll::Pending
                }
                _ => std::task::Poll::Ready(()),
            })
            .await;
            ends_well(&world, &parent, &format!("{when:?} {fault:?} at message {call}")).await;
        }
    }
}

#[tokio::test]
async fn it_may_die_twice() {
    let (store, _) = calls().await;
    for first in 0..store {
        // The second process finds some of the rows there, and makes no more calls than the first.
        for second in 0..store {
            for when in [When::Before, When::After] {
                let (world, parent) = asked().await;
                world.store.chaos.at(first, when, Fault::Crash);
                world.handle_for(&parent, u32::MAX).await;
                world.store.chaos.at(second, when, Fault::Crash);
                world.handle_for(&parent, u32::MAX).await;
                ends_well(&world, &parent, &format!("{when:?} {first} and {second}")).await;
            }
        }
    }
}

/// The same message in two hands: whichever comes first at each row, and whichever dies.
#[tokio::test]
async fn it_may_run_beside_a_copy_of_itself() {
    let (store, _) = calls().await;
    for call in 0..2 * store + 4 {
        for (when, fault) in WAYS {
            let (world, parent) = asked().await;
            world.store.chaos.at(call, when, fault);
            let both =
                join(world.handle_for(&parent, u32::MAX), world.handle_for(&parent, u32::MAX));
            both.await;
            ends_well(&world, &parent, &format!("{when:?} {fault:?} at call {call} of both")).await;
        }
    }
}
