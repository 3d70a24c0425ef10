//! The cases with a name, each in a world of its own.

use std::{collections::BTreeSet, time::Duration};

use domain::{
    event::Version,
    inbox::{Applied, Failure, Status},
    message::{InboundMessage, Message as _},
    ports::{Inbox as _, Queue as _},
};
use futures_util::FutureExt;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use testkit::chaos::{Fault, When};
use worker::Received;

use crate::{
    actors::{self, Handed, Process},
    ports::Broken,
    run::settle,
    world::{Fact, Nature, PADDING, World, fact},
};

fn invoice(id: &str, version: u64) -> Fact {
    fact("mirror", id, "invoice.updated", "in_1", version, 0, Nature::Good)
}

/// Runs work to its end. `None`: the process died.
fn run<'w, T: 'w>(world: &'w World, work: impl Future<Output = T> + 'w) -> Option<T> {
    let done = std::rc::Rc::new(std::cell::Cell::new(None));
    let keep = std::rc::Rc::clone(&done);
    let work = async move { keep.set(Some(work.await)) }.boxed_local();
    let mut process = Process { who: "test", work };
    assert!((0..10_000).any(|_| actors::poll(world, &mut process)), "it hangs");
    drop(process);
    done.take()
}

/// A request of the provider that is answered with 2xx. Its message is not in the queue afterwards.
fn accepted(world: &World, fact: usize) {
    assert_eq!(run(world, actors::accept(world, fact)), Some(true));
    world.accepted.borrow_mut().insert(fact);
    world.inbound.purge();
}

/// A message of a fact, as the worker gets it the first time.
fn message(world: &World, fact: usize) -> Handed {
    let text = InboundMessage(world.facts[fact].key.clone()).to_text();
    let message = Received { receipt: "lost".to_owned(), text, receives: 1, sent_at: world.now() };
    Handed { message, jitter: 0.5, polls: None, is_ack_lost: false }
}

fn handled(world: &World, fact: usize) {
    let message = message(world, fact);
    run(world, actors::handle(world, vec![message]));
}

#[track_caller]
fn all_is_well(world: &World) {
    assert_eq!(settle(world), Vec::<String>::new());
}

fn status(world: &World, fact: usize) -> Status {
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
fn shuffle<'w>(
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

fn permutations(n: usize) -> Vec<Vec<usize>> {
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

/// Q1 to Q5 of what a worker may meet: a fact, and what else there is.
struct Scene {
    name: &'static str,
    facts: Vec<Fact>,
    /// Facts that were carried out before.
    before: usize,
    /// Whether the row was parked, long ago.
    is_parked: bool,
}

/// Every way through the worker that writes something.
fn scenes() -> Vec<Scene> {
    let scene =
        |name, facts: Vec<Fact>| Scene { name, before: facts.len() - 1, facts, is_parked: false };
    let forward = |padding, nature, event_type| {
        fact("forward", "evt_1", event_type, "or_1", 1, padding, nature)
    };
    vec![
        scene("an object changes", vec![invoice("evt_1", 1)]),
        scene("an object changes again", vec![invoice("evt_1", 1), invoice("evt_2", 2)]),
        scene("it is older", vec![invoice("evt_1", 2), invoice("evt_2", 1)]),
        scene("it is forwarded", vec![forward(0, Nature::Good, "order.paid")]),
        scene("it is large", vec![forward(PADDING, Nature::Good, "order.paid")]),
        scene("nobody wants it", vec![forward(0, Nature::Unwanted, "refund.made")]),
        scene(
            "its source is gone",
            vec![fact("gone", "evt_1", "order.paid", "or_1", 1, 0, Nature::Orphan)],
        ),
        Scene { is_parked: true, ..scene("it is redriven", vec![invoice("evt_1", 1)]) },
    ]
}

impl Scene {
    /// The world just before the worker gets the message.
    fn begin(&self) -> World {
        let world = World::calm(self.facts.clone(), None);
        for fact in 0..self.before {
            accepted(&world, fact);
            handled(&world, fact);
        }
        accepted(&world, self.before);
        if self.is_parked {
            let key = &self.facts[self.before].key;
            if let Some(item) = world.sim.store.tables().inbox.get_mut(key) {
                let row = &mut item.row;
                (row.status, row.attempts, row.due_at) = (Status::DeadLetter, 12, None);
                row.dead_at = Some(world.now());
                row.last_error = Some(Failure::new("test", "parked long ago"));
            }
            world.advance(Duration::from_secs(600));
            // Nobody but the operator's message remembers a parked event.
            let message = [InboundMessage(key.clone())];
            run(&world, world.inbound.send(&message, Duration::ZERO));
        }
        world.sim.store.chaos.heal();
        world.inbound.chaos.heal();
        world
    }

    fn work(&self, world: &World) {
        match actors::worker(world, &mut StdRng::seed_from_u64(0)) {
            Some(process) => drop(run(world, process.work)),
            None => handled(world, self.before),
        }
    }

    /// What the world has come to, without times and without how often it was tried.
    fn end(&self, world: &World) -> Vec<String> {
        let violations = settle(world);
        assert_eq!(violations, Vec::<String>::new(), "{}", self.name);
        let tables = world.sim.store.tables();
        let rows = tables.inbox.values().map(|item| {
            let (row, why) = (&item.row, item.row.last_error.as_ref());
            let why = why.filter(|_| row.status == Status::DeadLetter).map(|why| &why.code);
            format!("{} {} {why:?} {:?}", row.new.key, row.status, row.results)
        });
        let objects = tables.objects.iter().map(|((_, object), is)| {
            format!("{} {:?} {} {}", object.id, is.version, is.tie, is.deleted)
        });
        let outgoing = tables.outbox.values().map(|row| {
            format!("{} {} {:?}", row.event.id, row.event.event_type, row.event.payload)
        });
        let operations = tables.operations.iter().cloned();
        rows.chain(objects).chain(outgoing).chain(operations).collect()
    }
}

/// L2, L3, RTY-store-outage: before and after every call of every way, the process dies, or the call fails, or its
/// answer is lost. Whatever it was, the end is the same.
#[test]
fn a_fault_at_any_call_of_a_message_ends_like_no_fault() {
    for scene in scenes() {
        let world = scene.begin();
        scene.work(&world);
        let (calls, sends) = (world.sim.store.chaos.calls(), world.inbound.chaos.calls());
        let expected = scene.end(&world);
        assert!(calls.len() >= 2, "{}: {calls:?}", scene.name);
        for when in [When::Before, When::After] {
            for fault in [Fault::Crash, Fault::Unavailable, Fault::Throttled] {
                for (n, call) in (0..).zip(&calls) {
                    let world = scene.begin();
                    world.sim.store.chaos.at(n, when, fault);
                    scene.work(&world);
                    world.heal();
                    let end = scene.end(&world);
                    assert_eq!(end, expected, "{}: {fault:?} {when:?} {call}", scene.name);
                }
                for (n, call) in (0..).zip(&sends) {
                    let world = scene.begin();
                    world.inbound.chaos.at(n, when, fault);
                    scene.work(&world);
                    world.heal();
                    let end = scene.end(&world);
                    assert_eq!(end, expected, "{}: {fault:?} {when:?} {call}", scene.name);
                }
            }
        }
    }
}

/// L1, L4: the same message again, at once or tomorrow.
#[test]
fn a_message_that_comes_again_or_tomorrow_ends_alike() {
    for scene in scenes() {
        let once = scene.begin();
        scene.work(&once);
        let expected = scene.end(&once);

        let twice = scene.begin();
        scene.work(&twice);
        scene.work(&twice);
        assert_eq!(scene.end(&twice), expected, "{}: twice", scene.name);

        let late = scene.begin();
        let message = message(&late, scene.before);
        late.advance(Duration::from_secs(86_400));
        run(&late, actors::handle(&late, vec![message.clone()]));
        late.advance(Duration::from_secs(86_400));
        run(&late, actors::handle(&late, vec![message]));
        assert_eq!(scene.end(&late), expected, "{}: tomorrow", scene.name);
    }
}

/// L5: two copies, in every order of their calls.
#[test]
fn two_copies_at_once_end_alike_in_every_order_of_their_calls() {
    for scene in scenes() {
        let world = scene.begin();
        scene.work(&world);
        // One poll begins a call, and the next one ends it.
        let polls = world.sim.store.chaos.calls().len() + world.inbound.chaos.calls().len() + 1;
        let expected = scene.end(&world);
        for order in 0_u32..1 << (2 * polls) {
            // The copies are alike, so the first one may as well begin.
            if order.count_ones() as usize != polls || order & 1 == 1 {
                continue;
            }
            let world = scene.begin();
            let copy = || actors::handle(&world, vec![message(&world, scene.before)]).boxed_local();
            let process = |work| Some(Process { who: "copy", work });
            let mut copies = [process(copy()), process(copy())];
            let turns = (0..2 * polls).map(|turn| (order >> turn & 1) as usize);
            for turn in turns.chain([0, 1].into_iter().cycle().take(100)) {
                if copies[turn].as_mut().is_some_and(|copy| actors::poll(&world, copy)) {
                    copies[turn] = None;
                }
            }
            assert!(copies.iter().all(Option::is_none), "{} {order:b}: a copy hangs", scene.name);
            drop(copies);
            assert_eq!(scene.end(&world), expected, "{} {order:b}", scene.name);
        }
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
