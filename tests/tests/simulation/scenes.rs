//! If it dies right there: every way through the worker that writes something, with the process dying, the call failing,
//! or its answer lost before and after each of its calls; with the message coming again, or tomorrow, or twice at once.
//! Whatever it was, the end is the same.

use std::{collections::BTreeSet, time::Duration};

use domain::{
    event::Version,
    inbox::{Failure, Row, Status},
    message::InboundMessage,
    ports::Queue as _,
};
use futures_util::FutureExt;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use testkit::{
    LIMITS,
    chaos::{Fault, When},
};

use crate::{
    actors::{self, Handed, Process},
    named::{accepted, handled, invoice, message, run},
    run::settle,
    things::changed,
    world::{Fact, Nature, PADDING, PAUSE_SEEN, World, fact, line, order},
};

/// A fact that a worker meets, and what else there is.
struct Scene {
    name: &'static str,
    /// What happened. The last one is what the worker gets.
    facts: Vec<Fact>,
    /// What else there is, just before it gets it.
    given: Given,
    /// How often its message was received, this time included.
    receives: u32,
    /// How it stands after this attempt, should nothing go wrong.
    leaves: Status,
}

/// What there is besides facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Given {
    Nothing,
    /// So many attempts were made.
    Attempts(u32),
    /// The row was parked, and the message was moved back from the dead-letter queue long after.
    Redriven,
    /// The row was parked a moment ago.
    Parked,
    /// Another transaction holds one of the items all the time.
    Conflicts,
    /// The source is paused.
    Pause,
    /// Of what happened before, nothing has come yet.
    Absence,
}

/// What a worker writes (DESIGN 13): each must be written in one scene at least.
const WRITES: [&str; 10] = [
    "inbox.note",
    "inbox.park",
    "inbox.finish",
    "inbox.rearm",
    "state.commit",
    "state.lease",
    "state.give_back",
    "queue.defer",
    "queue.send",
    "bodies.put",
];

/// Every way through the worker that writes something.
fn scenes() -> Vec<Scene> {
    let scene = |name, facts: Vec<Fact>| Scene {
        name,
        facts,
        given: Given::Nothing,
        receives: 1,
        leaves: Status::Processed,
    };
    let forward = |padding, nature, event_type| {
        vec![fact("forward", "evt_1", event_type, "or_1", 1, padding, nature)]
    };
    let of = |nature| vec![fact("mirror", "evt_1", "invoice.updated", "in_1", 1, 0, nature)];
    let mistaken = || of(Nature::Mistaken(1_000));
    vec![
        scene("an object changes", vec![invoice("evt_1", 1)]),
        scene("an object changes again", vec![invoice("evt_1", 1), invoice("evt_2", 2)]),
        scene("it is older", vec![invoice("evt_1", 2), invoice("evt_2", 1)]),
        scene("it is forwarded", forward(0, Nature::Good, "order.paid")),
        scene("it is large", forward(PADDING, Nature::Good, "order.paid")),
        Scene {
            leaves: Status::Ignored,
            ..scene("nobody wants it", forward(0, Nature::Unwanted, "refund.made"))
        },
        Scene {
            leaves: Status::DeadLetter,
            ..scene(
                "its source is gone",
                vec![fact("gone", "evt_1", "order.paid", "or_1", 1, 0, Nature::Orphan)],
            )
        },
        Scene { given: Given::Redriven, ..scene("it is redriven", of(Nature::Good)) },
        // What is parked meets its message again until SQS has moved that.
        Scene {
            given: Given::Parked,
            leaves: Status::DeadLetter,
            ..scene("it was parked before", mistaken())
        },
        Scene { leaves: Status::Pending, ..scene("the attempt fails", mistaken()) },
        Scene {
            given: Given::Attempts(LIMITS.attempts - 1),
            leaves: Status::DeadLetter,
            ..scene("the last attempt fails", mistaken())
        },
        Scene {
            given: Given::Attempts(LIMITS.attempts),
            leaves: Status::DeadLetter,
            ..scene("the attempts are used up", mistaken())
        },
        Scene { receives: 3, ..scene("it is counted first", of(Nature::Good)) },
        Scene {
            receives: 3,
            leaves: Status::Pending,
            ..scene("it is counted first, and fails", mistaken())
        },
        Scene {
            receives: 3,
            leaves: Status::Pending,
            ..scene("it is counted first, and kills the process", of(Nature::Killer))
        },
        Scene {
            given: Given::Conflicts,
            leaves: Status::Pending,
            ..scene("others hold its items", of(Nature::Good))
        },
        Scene {
            given: Given::Absence,
            leaves: Status::Pending,
            ..scene(
                "its order is not there yet",
                vec![order("evt_1", "or_3"), line("evt_2", "or_3", Nature::Good)],
            )
        },
        Scene {
            given: Given::Pause,
            leaves: Status::Pending,
            ..scene("its source is paused", of(Nature::Good))
        },
        Scene {
            given: Given::Pause,
            receives: 3,
            leaves: Status::Pending,
            ..scene("its source is paused, and it killed its process before", of(Nature::Killer))
        },
        scene("its thing has to be asked for", vec![changed("evt_1", "in_1", 1)]),
        scene(
            "its thing has to be asked for again",
            vec![changed("evt_1", "in_1", 1), changed("evt_2", "in_1", 2)],
        ),
        scene(
            "its order has come",
            vec![order("evt_1", "or_3"), line("evt_2", "or_3", Nature::Good)],
        ),
    ]
}

impl Scene {
    /// Which fact the worker gets.
    fn last(&self) -> usize {
        self.facts.len() - 1
    }

    /// The world just before the worker gets the message.
    fn begin(&self) -> World {
        let world = World::calm(self.facts.clone(), None);
        let came = if self.given == Given::Absence { 0 } else { self.last() };
        for fact in 0..came {
            accepted(&world, fact);
            handled(&world, fact);
        }
        accepted(&world, self.last());
        self.give(&world);
        world.sim.store.chaos.heal();
        world.inbound.chaos.heal();
        world
    }

    fn give(&self, world: &World) {
        let park = |row: &mut Row| {
            (row.status, row.attempts, row.due_at) = (Status::DeadLetter, LIMITS.attempts, None);
            row.dead_at = Some(world.now());
            row.last_error = Some(Failure::new("test", "parked before"));
        };
        match self.given {
            Given::Nothing | Given::Absence => {}
            Given::Conflicts => world.sim.set_conflicts(0, 1.0),
            Given::Pause => {
                world.pause(self.facts[self.last()].key.source());
                world.advance(PAUSE_SEEN);
            }
            Given::Attempts(attempts) => self.change(world, |row| {
                row.attempts = attempts;
                row.next_action = Some("attempts were made".to_owned());
            }),
            Given::Parked => self.change(world, park),
            Given::Redriven => {
                self.change(world, park);
                world.advance(Duration::from_secs(600));
                // Nobody but the operator's message remembers a parked event.
                let message = [InboundMessage(self.facts[self.last()].key.clone())];
                run(world, world.inbound.send(&message, Duration::ZERO));
            }
        }
    }

    fn change(&self, world: &World, change: impl FnOnce(&mut Row)) {
        let mut tables = world.sim.store.tables();
        change(&mut tables.inbox.get_mut(&self.facts[self.last()].key).unwrap().row);
    }

    fn message(&self, world: &World) -> Handed {
        let mut handed = message(world, self.last());
        handed.message.receives = self.receives;
        handed
    }

    /// One attempt, at a message that the queue has, or does not have any more.
    fn work(&self, world: &World) {
        match actors::worker(world, &mut StdRng::seed_from_u64(0)) {
            Some(process) => drop(run(world, process.work)),
            None => drop(run(world, actors::handle(world, vec![self.message(world)]))),
        }
    }

    /// What the world has come to, without times and without how often it was tried.
    #[track_caller]
    fn end(&self, world: &World, told: &str) -> Vec<String> {
        world.heal();
        let violations = settle(world);
        assert_eq!(violations, Vec::<String>::new(), "{}: {told}", self.name);
        let tables = world.sim.store.tables();
        let rows = tables.inbox.values().map(|item| {
            let (row, why) = (&item.row, item.row.last_error.as_ref());
            let why = why.filter(|_| row.status == Status::DeadLetter).map(|why| &why.code);
            format!("{} {} {why:?} {:?}", row.new.key, row.status, row.results)
        });
        let objects = tables.objects.iter().map(|((_, object), is)| {
            // How often it was asked for may differ.
            let version = match &is.version {
                Version::Reading(_) => "as it was read".to_owned(),
                version => format!("{version:?}"),
            };
            format!("{} {version} {} {}", object.id, is.tie, is.deleted)
        });
        let outgoing = tables.outbox.values().map(|row| {
            format!("{} {} {:?}", row.event.id, row.event.event_type, row.event.payload)
        });
        let operations = tables.operations.iter().cloned();
        rows.chain(objects).chain(outgoing).chain(operations).collect()
    }

    /// The calls of an attempt with which nothing goes wrong, of the tables and of the queue; and the end.
    fn undisturbed(&self) -> (Vec<&'static str>, Vec<&'static str>, Vec<String>) {
        let world = self.begin();
        self.work(&world);
        let stands = world.sim.store.tables().inbox[&self.facts[self.last()].key].row.status;
        assert_eq!(stands, self.leaves, "{}", self.name);
        let (calls, sends) = (world.sim.store.chaos.calls(), world.inbound.chaos.calls());
        let end = self.end(&world, "undisturbed");
        (calls, sends, end)
    }
}

/// C37, L2, L3, L18, L20, RTY-store-outage, INB-in-progress-stuck, WRK-swallowed-error-drops-batch; and each row of DESIGN 13
/// that is the worker's: before and after every call of every way, the process dies, or the call fails, or its answer
/// is lost.
#[test]
fn a_fault_at_any_call_of_a_message_ends_like_no_fault() {
    let mut written = BTreeSet::new();
    for scene in scenes() {
        let (calls, sends, expected) = scene.undisturbed();
        assert!(calls.len() + sends.len() >= 2, "{}: {calls:?} {sends:?}", scene.name);
        written.extend(calls.iter().chain(&sends).copied());
        for when in [When::Before, When::After] {
            for fault in [Fault::Crash, Fault::Unavailable, Fault::Throttled, Fault::Refused] {
                for (n, call) in (0..).zip(&calls) {
                    let world = scene.begin();
                    world.sim.store.chaos.at(n, when, fault);
                    scene.work(&world);
                    let told = format!("{fault:?} {when:?} {call}");
                    assert_eq!(scene.end(&world, &told), expected, "{}: {told}", scene.name);
                }
                for (n, call) in (0..).zip(&sends) {
                    let world = scene.begin();
                    world.inbound.chaos.at(n, when, fault);
                    scene.work(&world);
                    let told = format!("{fault:?} {when:?} {call}");
                    assert_eq!(scene.end(&world, &told), expected, "{}: {told}", scene.name);
                }
            }
        }
    }
    let missed: Vec<_> = WRITES.iter().filter(|write| !written.contains(*write)).collect();
    assert!(missed.is_empty(), "no scene writes {missed:?}, only {written:?}");
}

/// L2: and the next process that takes the message dies as well, at each of its calls.
#[test]
fn two_deaths_in_a_row_end_like_none() {
    for scene in scenes() {
        let (calls, _, expected) = scene.undisturbed();
        for first in 0..calls.len() as u64 {
            for second in 0..calls.len() as u64 {
                let world = scene.begin();
                for call in [first, second] {
                    world.sim.store.chaos.at(call, When::After, Fault::Crash);
                    let mut message = scene.message(&world);
                    message.message.receives = 3;
                    run(&world, actors::handle(&world, vec![message]));
                }
                let told = format!("dies after call {first}, then after call {second}");
                assert_eq!(scene.end(&world, &told), expected, "{}: {told}", scene.name);
            }
        }
    }
}

/// B26, C10, L2: the message was lost, and the sweep that should have sent it again dies, or fails, at any of its calls.
#[test]
fn a_sweep_that_dies_or_fails_at_any_call_ends_like_none() {
    let begin = |scene: &Scene| {
        let world = scene.begin();
        world.inbound.purge();
        world.advance(Duration::from_secs(600));
        world
    };
    // Of a redriven event only the operator's message knows; whoever loses that moves it back again.
    for scene in scenes().into_iter().filter(|scene| scene.given != Given::Redriven) {
        let world = begin(&scene);
        assert!(run(&world, actors::sweep(&world)).unwrap().is_ok(), "{}", scene.name);
        let calls = world.sim.store.chaos.calls();
        let expected = scene.end(&world, "undisturbed");
        for when in [When::Before, When::After] {
            for fault in [Fault::Crash, Fault::Unavailable] {
                for (n, call) in (0..).zip(&calls) {
                    let world = begin(&scene);
                    world.sim.store.chaos.at(n, when, fault);
                    let _ = run(&world, actors::sweep(&world));
                    let told = format!("{fault:?} {when:?} {call}");
                    assert_eq!(scene.end(&world, &told), expected, "{}: {told}", scene.name);
                }
                let world = begin(&scene);
                world.inbound.chaos.on("queue.send", when, fault);
                let _ = run(&world, actors::sweep(&world));
                let told = format!("{fault:?} {when:?} queue.send");
                assert_eq!(scene.end(&world, &told), expected, "{}: {told}", scene.name);
            }
        }
    }
}

/// L1, L4, L11, L15: the same message again, at once or tomorrow.
#[test]
fn a_message_that_comes_again_or_tomorrow_ends_alike() {
    for scene in scenes() {
        let (.., expected) = scene.undisturbed();

        let twice = scene.begin();
        scene.work(&twice);
        scene.work(&twice);
        assert_eq!(scene.end(&twice, "twice"), expected, "{}: twice", scene.name);

        // What has waited until tomorrow is parked, for that is as long as anything may wait.
        if matches!(scene.given, Given::Conflicts | Given::Absence) {
            continue;
        }
        let late = scene.begin();
        let message = scene.message(&late);
        late.advance(Duration::from_secs(86_400));
        run(&late, actors::handle(&late, vec![message.clone()]));
        late.advance(Duration::from_secs(86_400));
        run(&late, actors::handle(&late, vec![message]));
        assert_eq!(scene.end(&late, "tomorrow"), expected, "{}: tomorrow", scene.name);
    }
}

/// Orders of two copies that are tried of a scene in which there are too many to try them all.
const ORDERS: u64 = 200;

/// C31, L5, L21: two copies, in every order of their calls.
#[test]
fn two_copies_at_once_end_alike_in_every_order_of_their_calls() {
    for scene in scenes() {
        let (calls, sends, expected) = scene.undisturbed();
        // One poll begins a call, and the next one ends it.
        let polls = calls.len() + sends.len() + 1;
        let run_in = |order: u32| {
            let world = scene.begin();
            let copy = || actors::handle(&world, vec![scene.message(&world)]).boxed_local();
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
            let told = format!("in the order {order:b}");
            assert_eq!(scene.end(&world, &told), expected, "{}: {told}", scene.name);
        };
        if polls > 6 {
            let mut rng = StdRng::seed_from_u64(polls as u64);
            (0..ORDERS).for_each(|_| run_in(rng.random()));
            continue;
        }
        // The copies are alike, so the first one may as well begin.
        let orders = (0_u32..1 << (2 * polls)).filter(|order| order & 1 == 0);
        orders.filter(|order| order.count_ones() as usize == polls).for_each(run_in);
    }
}
