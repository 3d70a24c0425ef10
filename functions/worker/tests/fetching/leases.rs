//! Two at once, and deaths on the way.

use std::sync::Arc;

use domain::{inbox::Status, ports::State as _};
use futures_util::future::join;
use jiff::Timestamp;
use serde_json::json;
use testkit::chaos::{Fault, When};
use tokio::sync::Notify;
use worker::Outcome;

use crate::{
    provider::{Reply, json as reply},
    world::{LEASE, World, at, why},
};

fn bytes(n: u64) -> Vec<u8> {
    let Reply::Bytes(bytes) = reply(&json!({ "id": "in_1", "n": n })) else { panic!() };
    bytes
}

/// D8, D9: of two that would ask about one object, one asks.
#[tokio::test]
async fn an_object_is_asked_about_by_one_worker_at_a_time() {
    let (there, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let world = World::new(Reply::When(Arc::clone(&there), Arc::clone(&go), bytes(1))).await;
    let first = world.accept("evt_1", Some(1), &json!({})).await;
    let second = world.accept("evt_2", Some(2), &json!({})).await;
    let (outcome, waits) = join(world.handle(&first), async {
        there.notified().await;
        let waits = world.handle(&second).await;
        go.notify_one();
        waits
    })
    .await;
    assert!(matches!(outcome, Outcome::Finished { .. }), "{outcome:?}");
    assert_eq!(why(&waits).0, "object_busy");
    assert!(waits.is_settled());
    let row = world.row(&second);
    assert_eq!((row.attempts, row.waits_until), (0, Some(at(15_000))), "it is not its failure");
    assert_eq!(world.provider.asked().len(), 1);
}

/// D9: whoever outlives its lease cannot write what it read after a later reader wrote.
#[tokio::test]
async fn an_answer_that_came_after_the_lease_was_lost_is_not_written() {
    let (there, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let world = World::new(Reply::When(Arc::clone(&there), Arc::clone(&go), bytes(1))).await;
    let slow = world.accept("slow", Some(1), &json!({})).await;
    let (lost, ()) = join(world.handle(&slow), async {
        there.notified().await;
        world.later(46_000);
        let fast = world.accept("fast", Some(2), &json!({})).await;
        world.provider.says(reply(&json!({ "id": "in_1", "n": 2 })));
        assert!(matches!(world.handle(&fast).await, Outcome::Finished { .. }));
        go.notify_one();
    })
    .await;
    assert_eq!(why(&lost).0, "lease_lost");
    let object = world.object().unwrap();
    assert_eq!(object.fields["n"], 2);
    assert_eq!(world.row(&slow).attempts, 0);
    // It comes again, and is covered.
    world.later(5000);
    assert!(matches!(world.handle(&slow).await, Outcome::Finished { .. }));
    assert_eq!(world.object().unwrap().fields["n"], 2);
}

/// Row "worker read, fetch, lease" of what is left behind: a lease, which ends by itself.
#[tokio::test]
async fn wherever_a_worker_dies_the_event_is_carried_out_in_the_end() {
    let steps = {
        let world = World::new(reply(&json!({ "id": "in_1", "n": 1 }))).await;
        let key = world.accept("evt_1", Some(1), &json!({})).await;
        world.store.chaos.heal();
        world.handle(&key).await;
        world.store.chaos.calls().len() as u64
    };
    assert!(steps >= 8, "{steps}");
    for step in 0..steps {
        for when in [When::Before, When::After] {
            let world = World::new(reply(&json!({ "id": "in_1", "n": 1 }))).await;
            let key = world.accept("evt_1", Some(1), &json!({})).await;
            world.store.chaos.at(step, when, Fault::Crash);
            let died = world.store.chaos.until_crash(world.handle(&key)).await.is_none();
            assert!(died, "{step} {when:?}");
            world.store.chaos.heal();
            // The message comes back when it is visible again, long after the lease ended.
            world.later(180_000);
            assert!(world.handle(&key).await.is_settled(), "{step} {when:?}");
            assert_eq!(world.row(&key).status, Status::Processed, "{step} {when:?}");
            assert_eq!(world.object().unwrap().fields["n"], 1);
            assert_eq!(world.told().len(), 1, "{step} {when:?}");
        }
    }
}

#[tokio::test]
async fn before_a_dead_workers_lease_ends_its_object_waits() {
    let world = World::new(reply(&json!({ "id": "in_1" }))).await;
    let key = world.accept("evt_1", Some(1), &json!({})).await;
    world.store.lease(LEASE, "somebody", at(0), at(3000)).await.unwrap();
    let outcome = world.handle_with(&key, Timestamp::MAX, 0.0).await;
    assert_eq!(why(&outcome).0, "object_busy");
    assert_eq!(world.row(&key).waits_until, Some(at(3000)), "no longer than the lease");
    let outcome = world.handle_with(&key, Timestamp::MAX, 1.0).await;
    assert!(matches!(outcome, Outcome::Waits { .. }), "{outcome:?}");
    world.later(3000);
    assert!(matches!(world.handle(&key).await, Outcome::Finished { .. }));
}

#[tokio::test]
async fn a_store_that_fails_gives_the_lease_back_and_costs_no_attempt() {
    for (name, lease_ends) in [
        ("state.object", None),
        ("state.lease", None),
        ("turns.take_turn", Some(at(0))),
        ("state.commit", Some(at(0))),
    ] {
        for fault in [Fault::Throttled, Fault::Unavailable] {
            let world = World::new(reply(&json!({ "id": "in_1" }))).await;
            let key = world.accept("evt_1", Some(1), &json!({})).await;
            world.store.chaos.on(name, When::Before, fault);
            let outcome = world.handle(&key).await;
            assert!(matches!(outcome, Outcome::Waits { .. }), "{name}: {outcome:?}");
            assert_eq!((world.row(&key).attempts, world.lease()), (0, lease_ends), "{name}");
        }
    }
}

/// A lease that cannot be given back ends by itself, and nothing else comes of it.
#[tokio::test]
async fn an_event_is_finished_although_its_lease_is_not_given_back() {
    let world = World::new(reply(&json!({ "id": "in_1" }))).await;
    let key = world.accept("evt_1", Some(1), &json!({})).await;
    world.store.chaos.on("state.give_back", When::Before, Fault::Unavailable);
    assert!(matches!(world.handle(&key).await, Outcome::Finished { .. }));
    assert_eq!(world.lease(), Some(at(45_000)));
}

/// The same message twice at the same moment, at two workers.
#[tokio::test]
async fn two_copies_of_a_message_are_two_holders() {
    let (there, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let world = World::new(Reply::When(Arc::clone(&there), Arc::clone(&go), bytes(1))).await;
    let key = world.accept("evt_1", Some(1), &json!({})).await;
    let (one, two) = join(world.handle(&key), async {
        there.notified().await;
        let two = world.handle(&key).await;
        go.notify_one();
        two
    })
    .await;
    assert!(matches!(one, Outcome::Finished { .. }), "{one:?}");
    assert_eq!(why(&two).0, "object_busy");
    assert!(matches!(world.handle(&key).await, Outcome::FinishedBefore));
    assert_eq!((world.provider.asked().len(), world.told().len()), (1, 1));
}
