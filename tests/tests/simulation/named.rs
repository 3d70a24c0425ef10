//! The cases with a name, each in a world of its own.

use std::{collections::BTreeSet, time::Duration};

use domain::{
    event::Version,
    inbox::{Applied, Failure, Status},
    message::{InboundMessage, Message as _},
    ports::Inbox as _,
};
use futures_util::FutureExt;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use testkit::chaos::{Fault, When};
use worker::Received;

use crate::{
    actors::{self, Handed, Process},
    ports::Broken,
    run::settle,
    world::{Fact, Nature, World, fact},
};

/// The one invoice there is has changed.
pub(crate) fn invoice(id: &str, version: u64) -> Fact {
    fact("mirror", id, "invoice.updated", "in_1", version, 0, Nature::Good)
}

/// Runs work to its end. `None`: the process died.
pub(crate) fn run<'w, T: 'w>(world: &'w World, work: impl Future<Output = T> + 'w) -> Option<T> {
    let done = std::rc::Rc::new(std::cell::Cell::new(None));
    let keep = std::rc::Rc::clone(&done);
    let work = async move { keep.set(Some(work.await)) }.boxed_local();
    let mut process = Process { who: "test", work };
    assert!((0..10_000).any(|_| actors::poll(world, &mut process)), "it hangs");
    drop(process);
    done.take()
}

/// A request of the provider that is answered with 2xx. Its message is not in the queue afterwards.
pub(crate) fn accepted(world: &World, fact: usize) {
    assert_eq!(run(world, actors::accept(world, fact)), Some(true));
    world.accepted.borrow_mut().insert(fact);
    world.inbound.purge();
}

/// A message of a fact, as the worker gets it the first time.
pub(crate) fn message(world: &World, fact: usize) -> Handed {
    let text = InboundMessage(world.facts[fact].key.clone()).to_text();
    let message = Received { receipt: "lost".to_owned(), text, receives: 1, sent_at: world.now() };
    Handed { message, jitter: 0.5, polls: None, is_ack_lost: false }
}

/// A worker gets the message of a fact.
pub(crate) fn handled(world: &World, fact: usize) {
    let message = message(world, fact);
    run(world, actors::handle(world, vec![message]));
}

#[track_caller]
pub(crate) fn all_is_well(world: &World) {
    assert_eq!(settle(world), Vec::<String>::new());
}

pub(crate) fn status(world: &World, fact: usize) -> Status {
    world.sim.store.tables().inbox[&world.facts[fact].key].row.status
}

/// C31, L5, L11, L15, L21: twenty copies of one request, and twenty messages, at once.
#[test]
fn twenty_copies_at_once_are_one_row_one_effect_and_one_outgoing_event() {
    for seed in 0..20 {
        let world = World::calm(vec![invoice("evt_1", 1)], None);
        world.sim.set_conflicts(seed, 0.2);
        let rng = &mut StdRng::seed_from_u64(seed);
        let requests = (0..20).map(|_| async { assert!(actors::accept(&world, 0).await) });
        shuffle(&world, requests.map(FutureExt::boxed_local).collect(), rng);
        world.accepted.borrow_mut().insert(0);
        assert_eq!(world.sim.store.tables().inbox.len(), 1);
        let workers = std::iter::from_fn(|| Some(actors::worker(&world, rng)?.work)).collect();
        shuffle(&world, workers, rng);
        // With a conflict in each of three rounds a copy leaves the event to the sweeper.
        world.heal();
        all_is_well(&world);
        let tables = world.sim.store.tables();
        assert_eq!((tables.objects.len(), tables.operations.len()), (1, 1));
        // The invoice itself, and its credit.
        assert_eq!(tables.outbox.len(), 2);
    }
}

/// Polls everybody in any order until all are done.
pub(crate) fn shuffle<'w>(
    world: &'w World,
    work: Vec<futures_util::future::LocalBoxFuture<'w, ()>>,
    rng: &mut StdRng,
) {
    let process = |work| Process { who: "test", work };
    let mut processes: Vec<_> = work.into_iter().map(process).collect();
    while !processes.is_empty() {
        let n = rng.random_range(0..processes.len());
        if actors::poll(world, &mut processes[n]) {
            processes.swap_remove(n);
        }
    }
}

/// ORD-stale-overwrites-new, D17, L12
#[test]
fn a_late_older_version_is_processed_as_stale_and_changes_nothing() {
    let world = World::calm(vec![invoice("evt_old", 1), invoice("evt_new", 2)], None);
    for fact in [1, 0] {
        accepted(&world, fact);
        handled(&world, fact);
    }
    assert_eq!((status(&world, 0), status(&world, 1)), (Status::Processed, Status::Processed));
    let old = world.sim.store.tables().inbox[&world.facts[0].key].row.clone();
    let result = |what: &str| old.results.iter().find(|r| r.what.starts_with(what)).unwrap().result;
    assert_eq!(result("object "), Applied::Stale);
    assert_eq!(result("operation "), Applied::DuplicateEffect);
    let object = world.sim.store.tables().objects.values().next().unwrap().clone();
    assert_eq!((object.version, &object.fields["id"]), (Version::Number(2), &"evt_new".into()));
    all_is_well(&world);
}

/// ORD-stale-overwrites-new, ORD-same-second, L16: in every order of arrival, two of them with one version.
#[test]
fn every_order_of_four_events_ends_in_the_same_state() {
    let mut ends = BTreeSet::new();
    for order in permutations(4) {
        let versions = [1, 2, 3, 3];
        let facts = (0..4).map(|n| invoice(&format!("evt_{n}"), versions[n])).collect();
        let world = World::calm(facts, None);
        for fact in order {
            accepted(&world, fact);
            handled(&world, fact);
        }
        all_is_well(&world);
        let tables = world.sim.store.tables();
        let object = tables.objects.values().next().unwrap();
        ends.insert((object.version.clone(), object.tie.clone()));
    }
    assert_eq!(ends.len(), 1);
}

pub(crate) fn permutations(n: usize) -> Vec<Vec<usize>> {
    if n == 0 {
        return vec![Vec::new()];
    }
    let shorter = permutations(n - 1);
    let longer = shorter.iter().flat_map(|order| {
        (0..n).map(move |place| {
            let mut order = order.clone();
            order.insert(place, n - 1);
            order
        })
    });
    longer.collect()
}

/// OUT-crash-after-commit, C5, L18: the change is there exactly if the outgoing event is.
#[test]
fn a_crash_at_the_commit_leaves_all_of_it_or_nothing() {
    for (when, is_there) in [(When::Before, false), (When::After, true)] {
        let world = World::calm(vec![invoice("evt_1", 1)], None);
        accepted(&world, 0);
        world.sim.store.chaos.on("state.commit", when, Fault::Crash);
        let message = message(&world, 0);
        assert_eq!(run(&world, actors::handle(&world, vec![message])), None, "it died");
        world.heal();
        {
            let tables = world.sim.store.tables();
            let found = (tables.objects.len(), tables.operations.len(), tables.outbox.len());
            assert_eq!(found, if is_there { (1, 1, 2) } else { (0, 0, 0) });
        }
        assert_eq!(status(&world, 0) == Status::Processed, is_there);
        all_is_well(&world);
    }
}

/// A copy that was slow finds its row parked by another: nothing of its plan may become true.
#[test]
fn a_slow_copy_does_not_finish_a_row_that_was_parked_meanwhile() {
    for broken in [None, Some(Broken::FinishesWhatever)] {
        let world = World::calm(vec![invoice("evt_1", 1)], broken);
        accepted(&world, 0);
        let slow = actors::handle(&world, vec![message(&world, 0)]).boxed_local();
        let mut slow = Process { who: "slow", work: slow };
        let asked = |world: &World| world.sim.store.chaos.calls().contains(&"state.object");
        while !asked(&world) {
            assert!(!actors::poll(&world, &mut slow));
        }
        let row = world.sim.store.tables().inbox[&world.facts[0].key].row.clone();
        let failure = Failure::new("test", "parked by another copy");
        let store = &world.sim.store;
        let _ = run(&world, store.park(&row.claim(), 1, &failure, world.now())).unwrap().unwrap();
        while !actors::poll(&world, &mut slow) {}
        let is_parked = status(&world, 0) == Status::DeadLetter;
        let is_untouched = store.tables().objects.is_empty();
        assert_eq!((is_parked, is_untouched), (broken.is_none(), broken.is_none()));
    }
}

/// RTY-store-outage: ten minutes of nothing, and then everything is done without a restart.
#[test]
fn an_outage_of_ten_minutes_delays_and_loses_nothing() {
    for service in ["store", "queue"] {
        let facts = (1..=5).map(|n| invoice(&format!("evt_{n}"), n)).collect();
        let world = World::calm(facts, None);
        let rng = &mut StdRng::seed_from_u64(7);
        for fact in 0..5 {
            assert_eq!(run(&world, actors::accept(&world, fact)), Some(true));
            world.accepted.borrow_mut().insert(fact);
        }
        let down = |_, _| Some((When::Before, Fault::Unavailable));
        if service == "store" {
            world.sim.store.chaos.set(down);
        } else {
            world.inbound.chaos.set(down);
        }
        for _ in 0..20 {
            world.advance(Duration::from_secs(30));
            for actor in [actors::worker as actors::Actor, actors::sweeper] {
                if let Some(mut process) = actor(&world, rng) {
                    while !actors::poll(&world, &mut process) {}
                }
            }
        }
        if service == "store" {
            assert!((0..5).all(|fact| status(&world, fact) == Status::Pending));
        }
        world.heal();
        all_is_well(&world);
    }
}

/// B26, L10: the queue is purged, and the sweeper refills it from the table.
#[test]
fn a_purged_queue_is_refilled_from_the_table() {
    let facts = (1..=30).map(|n| invoice(&format!("evt_{n}"), n)).collect();
    let world = World::calm(facts, None);
    for fact in 0..30 {
        accepted(&world, fact);
    }
    world.advance(Duration::from_secs(120));
    let swept = run(&world, actors::sweep(&world)).unwrap().unwrap();
    assert_eq!(swept, sweeper::Swept::Done { started: 30, parked: 0 });
    all_is_well(&world);
}
