//! An exhaustive model of the lane protocol: the real drain and the real fan-out, over a store that lets one actor at a
//! time take one step.
//!
//! Two holders, the relay and a person who redelivers or stops the endpoint take their steps in every possible order, while the clock may jump
//! past leases and due times between any two of them. At *every* state that is reached, everything dies: all actors and
//! all messages are dropped, and the store is healed as the product heals itself, by the sweeper (lanes whose `wake_at`
//! has come, events that are still NEW) and nothing else. Whatever is then still pending and never comes up again is
//! stranded. That covers the death of each process after each of its steps, lost messages, and a holder that outlives its
//! lease; an actor that simply is not run again is a dead one.
//!
//! A model that cannot find a mistake proves nothing: with a release that ignores the count of wakes, and with a repair
//! that forgets to put the right pointer, the same search must strand a delivery, and so it must when the two kinds of
//! pointers are read in the wrong order; with a mark that is ignored, it must send
//! an event twice to an endpoint that does not recognise repetitions.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "test code")]

mod lane_model {
    pub(crate) mod explore;
    pub(crate) mod store;
}

use lane_model::{
    explore::{Actor, Scenario, Stranded, explore},
    store::Mistake,
};

/// One event waits in the lane, another is being relayed, and two holders come for them.
fn relay_meets_holders(tick_ms: i64, failures: u32) -> Scenario {
    Scenario {
        actors: vec![Actor::Holder, Actor::Holder, Actor::Relay],
        tick_ms,
        ticks: 1,
        failures,
        ..Scenario::default()
    }
}

/// Two holders of one event that may be sent once. The second may come when the lease of the first has expired, and the
/// first goes on.
fn two_who_must_not_repeat(tick_ms: i64, failures: u32) -> Scenario {
    let actors = vec![Actor::Holder, Actor::Holder];
    let (late, idempotent) = (true, false);
    Scenario { actors, tick_ms, ticks: 1, failures, late, idempotent, ..Scenario::default() }
}

/// An endpoint is stopped while a holder is at work, and the next one comes when the lease of the first has expired.
fn stopped_under_two_holders(failures: u32) -> Scenario {
    let actors = vec![Actor::Holder, Actor::Holder, Actor::Stop];
    Scenario { actors, ticks: 1, failures, late: true, ..Scenario::default() }
}

fn assert_nothing_is_stranded(scenario: &Scenario) {
    let states = explore(scenario, Mistake::None).unwrap_or_else(|stranded| panic!("{stranded}"));
    // A search that ends early would pass as well.
    assert!(states > 500, "only {states} states were reached");
}

fn stranding(scenario: &Scenario, mistake: Mistake) -> Option<Stranded> {
    explore(scenario, mistake).err()
}

/// L5, E17: the second holder may find the lane held, free, or its lease expired under the first.
#[test]
fn no_order_of_two_holders_and_a_relay_strands_a_delivery() {
    assert_nothing_is_stranded(&relay_meets_holders(61_000, 0));
}

/// The same with a lease that is renewed instead of lost.
#[test]
fn renewing_the_lease_strands_nothing() {
    assert_nothing_is_stranded(&relay_meets_holders(31_000, 0));
}

/// DLV-crash-after-post: a retry has a second pointer, and the old one has to go.
#[test]
fn failed_attempts_strand_nothing() {
    assert_nothing_is_stranded(&relay_meets_holders(61_000, 1));
}

/// F19: a person makes a dead delivery due again, under the hands of two holders.
#[test]
fn redelivery_strands_nothing() {
    let scenario = Scenario {
        actors: vec![Actor::Holder, Actor::Holder, Actor::Redeliver],
        tick_ms: 61_000,
        ticks: 2,
        failures: 0,
        dead: true,
        ..Scenario::default()
    };
    assert_nothing_is_stranded(&scenario);
}

#[test]
fn a_pass_that_is_over_strands_nothing() {
    let scenario = Scenario { pass_ms: 0, ..relay_meets_holders(61_000, 0) };
    let states = explore(&scenario, Mistake::None).unwrap_or_else(|stranded| panic!("{stranded}"));
    assert!(states > 50, "only {states} states were reached");
}

/// C24, INB-lease-expires-side-effect-repeats: where the target does not recognise repetitions, no death, no slow holder
/// and no lost lease lets it see an event twice, and none leaves the delivery where nobody looks.
#[test]
fn an_endpoint_without_idempotency_sees_each_event_once_at_most() {
    for (tick_ms, failures) in [(61_000, 0), (31_000, 0), (61_000, 1)] {
        assert_nothing_is_stranded(&two_who_must_not_repeat(tick_ms, failures));
    }
}

/// DLV-disabled-events-vanish: what is held is found again when it has been held for long enough. A delivery moves from
/// the fresh ones to the retries under the eyes of whoever looks when that will be.
#[test]
fn stopping_an_endpoint_strands_nothing() {
    for failures in [0, 1] {
        assert_nothing_is_stranded(&stopped_under_two_holders(failures));
    }
}

/// See `domain::lane::Kind`.
#[test]
fn reading_retries_before_fresh_ones_strands_a_delivery() {
    let stranded = stranding(&stopped_under_two_holders(1), Mistake::RetriesReadFirst);
    assert!(stranded.is_some(), "the model is blind to the order of the two kinds of pointers");
}

/// A delivery that failed is pointed at among the retries, by the holder or by whoever repairs it.
#[test]
fn a_retry_without_its_pointer_strands_a_delivery() {
    let stranded = stranding(&relay_meets_holders(61_000, 1), Mistake::RetryNotPointed);
    assert!(stranded.is_some(), "the model is blind to a retry that nothing points at");
}

#[test]
fn a_mark_that_is_ignored_sends_an_event_twice() {
    let found = stranding(&two_who_must_not_repeat(61_000, 0), Mistake::MarkIgnored);
    let found = found.expect("the model is blind to a mark that is ignored").to_string();
    assert!(found.starts_with("an event was sent twice"), "{found}");
}

#[test]
fn a_release_that_ignores_wakes_strands_a_delivery() {
    let scenario = relay_meets_holders(61_000, 0);
    let stranded = stranding(&scenario, Mistake::ReleaseIgnoresWakes);
    assert!(stranded.is_some(), "the model is blind to a release that ignores wakes");
}

#[test]
fn a_repair_without_its_put_strands_a_delivery() {
    let scenario = relay_meets_holders(61_000, 1);
    let stranded = stranding(&scenario, Mistake::RepairDropsPut);
    assert!(stranded.is_some(), "the model is blind to a repair without its put");
}

#[test]
fn a_wake_without_its_time_strands_a_delivery() {
    let stranded = stranding(&relay_meets_holders(61_000, 0), Mistake::WakeForgets);
    assert!(stranded.is_some(), "the model is blind to a wake that does not set wake_at");
}

#[test]
fn a_redelivery_that_does_not_wake_strands_a_delivery() {
    let scenario = Scenario {
        actors: vec![Actor::Holder, Actor::Redeliver],
        tick_ms: 61_000,
        ticks: 1,
        dead: true,
        ..Scenario::default()
    };
    let stranded = stranding(&scenario, Mistake::WakeForgets);
    assert!(stranded.is_some(), "the model is blind to a redelivery that does not wake");
}
