//! The seven promises and the six questions, each as a case of its own. The storm asks all of them at once; here each is
//! asked alone, in all orders.

use std::{collections::BTreeSet, time::Duration};

use domain::{
    bulk::{Kind, Selection},
    id::ReplayId,
    inbox::Status,
    outbox::Payload,
    ports::{DueInbox as _, Inbox as _},
};
use futures_util::FutureExt as _;
use rand::{SeedableRng as _, rngs::StdRng};
use serde_json::Value;
use testkit::{
    LIMITS,
    chaos::{Fault, When},
};

use crate::{
    actors,
    business::{CAME, PAID, came, intent, paid},
    named::{accepted, all_is_well, handled, invoice, message, permutations, run, shuffle, status},
    world::{FAMILY, Fact, Nature, PAUSE_SEEN, World, fact, line, order},
};

/// Everything comes in each order, and each event is carried out twice.
fn in_every_order(facts: &[Fact], look: impl Fn(&World)) {
    for order in permutations(facts.len()) {
        let world = World::calm(facts.to_vec(), None);
        for fact in order {
            accepted(&world, fact);
            handled(&world, fact);
            handled(&world, fact);
        }
        all_is_well(&world);
        look(&world);
    }
}

/// How many outgoing events of one type there are.
fn told(world: &World, event_type: &str) -> usize {
    let tables = world.sim.store.tables();
    tables.outbox.values().filter(|row| row.event.event_type == event_type).count()
}

/// L7, C18, C20, C21: one payment, in every word that the provider has for it, in every order with its order.
#[test]
fn a_payment_is_booked_once_in_whatever_words_and_order_it_is_told() {
    let mut facts = vec![intent("evt_0", 3, "or_p1")];
    facts.extend((1..).zip(CAME).map(|(n, word)| came(&format!("evt_{n}"), word, "ch_1", "or_p1")));
    in_every_order(&facts, |world| {
        assert_eq!((told(world, "payment.booked"), told(world, "receipt.mail")), (1, 1));
    });
}

/// L8, C22: one invoice is paid, in every word that the provider has for it.
#[test]
fn an_invoice_grants_one_credit_in_whatever_words_and_order_it_is_told() {
    let facts: Vec<_> =
        (1..).zip(PAID).map(|(n, word)| paid(&format!("evt_{n}"), word, "in_p1")).collect();
    in_every_order(&facts, |world| assert_eq!(told(world, "credit.granted"), 1));
}

/// L9, D11 to D16: an order goes through all its states, in every order of arrival. It ends paid, and what it earned is paid
/// out once.
#[test]
fn an_order_ends_paid_and_is_paid_out_once_in_whatever_order_it_is_told() {
    // That it is paid is told twice, by two events.
    let states = [0, 1, 2, 3, 3];
    let facts: Vec<_> =
        (0..).zip(states).map(|(n, state)| intent(&format!("evt_{n}"), state, "or_p1")).collect();
    in_every_order(&facts, |world| {
        assert_eq!((told(world, "payout.due"), told(world, "order.paid")), (1, 1));
        let tables = world.sim.store.tables();
        let order = tables.objects.values().next().unwrap();
        assert_eq!(order.fields["status"], "PAID");
    });
}

/// L10: everything that is under way dies, all messages with it, as often as one likes.
#[test]
fn what_was_accepted_is_there_after_every_restart() {
    let facts: Vec<_> = (1..=5).map(|n| invoice(&format!("evt_{n}"), n)).collect();
    let world = World::calm(facts, None);
    for fact in 0..5 {
        accepted(&world, fact);
        // Somebody begins, and dies at once.
        let handed = message(&world, fact);
        let mut process = actors::Process {
            who: "worker",
            work: Box::pin(async { actors::handle(&world, vec![handed]).await }),
        };
        for _ in 0..fact {
            actors::poll(&world, &mut process);
        }
        drop(process);
        world.inbound.purge();
    }
    assert_eq!(world.sim.store.tables().inbox.len(), 5);
    all_is_well(&world);
}

/// L11, L15: each event comes three times, to the door and to the worker. The end is that of once.
#[test]
fn a_duplicate_does_not_change_the_result() {
    let facts = || {
        vec![
            invoice("evt_1", 1),
            fact("forward", "evt_2", "order.paid", "or_1", 1, 0, Nature::Good),
            paid("evt_3", PAID[0], "in_p1"),
        ]
    };
    let end = |copies: usize| {
        let world = World::calm(facts(), None);
        for fact in 0..3 {
            for _ in 0..copies {
                accepted(&world, fact);
                handled(&world, fact);
            }
        }
        all_is_well(&world);
        let tables = world.sim.store.tables();
        let outgoing: BTreeSet<_> = tables.outbox.keys().cloned().collect();
        let objects: Vec<_> =
            tables.objects.iter().map(|(name, is)| (name.clone(), is.tie.clone())).collect();
        (tables.inbox.len(), outgoing, objects, tables.operations.clone())
    };
    assert_eq!(end(3), end(1));
}

/// L6, B26: what the provider never sent is on its list, and is carried out once; also when it comes after all.
#[test]
fn what_never_came_is_read_from_the_providers_list_and_carried_out_once() {
    let world = World::calm(vec![invoice("evt_1", 1), invoice("evt_2", 2)], None);
    accepted(&world, 0);
    handled(&world, 0);
    assert!(!world.accepted.borrow().contains(&1));
    all_is_well(&world);
    assert_eq!(status(&world, 1), Status::Processed);
    // A day late.
    world.advance(Duration::from_secs(86_400));
    accepted(&world, 1);
    handled(&world, 1);
    all_is_well(&world);
}

/// L13, C12, C14, C36, K3, K8, K10, WRK-dlq-redrive: what fails is tried so many times, and then stands there with its
/// reason until somebody has mended it; moving it back before that changes nothing.
#[test]
fn what_fails_stays_in_sight_until_it_works() {
    let mistaken = Nature::Mistaken(1_000_000);
    let world =
        World::calm(vec![fact("mirror", "evt_1", "invoice.updated", "in_1", 1, 0, mistaken)], None);
    accepted(&world, 0);
    let key = world.facts[0].key.clone();
    for again in 0..2 {
        for attempt in 1..=LIMITS.attempts {
            handled(&world, 0);
            let tables = world.sim.store.tables();
            let item = &tables.inbox[&key];
            assert_eq!((item.row.attempts, item.expires_at), (attempt, None), "{again}");
            let error = item.row.last_error.as_ref().unwrap();
            assert_eq!(error.code, "store_refused");
            let is_parked = attempt == LIMITS.attempts;
            assert_eq!(item.row.status == Status::DeadLetter, is_parked, "attempt {attempt}");
            assert!(is_parked || item.row.next_action.is_some(), "attempt {attempt}");
        }
        // It is on the list of what is parked, however long nobody looks.
        world.advance(Duration::from_secs(100 * 86_400));
        let listed = async {
            let mut listed = Vec::new();
            for shard in 0..world.sim.store.shards {
                listed.extend(world.sim.store.parked_keys(shard, 10).await.unwrap());
            }
            listed
        };
        assert_eq!(run(&world, listed).unwrap(), std::slice::from_ref(&key));
        if again == 0 {
            // A redrive before the mistake is mended.
            let redriven = world.sim.store.rearm(&key, world.now(), world.now());
            let _ = run(&world, redriven).unwrap().unwrap();
        }
        let tomorrow = world.now() + Duration::from_secs(86_400);
        world.sim.mistakes.lock().unwrap().insert(key.clone(), tomorrow);
    }
    // The last thing: it is mended, and replayed.
    all_is_well(&world);
    assert_eq!(status(&world, 0), Status::Processed);
}

/// D7, D15, ORD-update-before-create: lines come before their order, and none of them is lost or stands alone.
#[test]
fn lines_that_come_before_their_order_wait_for_it() {
    let facts = [
        order("evt_1", "or_3"),
        line("evt_2", "or_3", Nature::Good),
        line("evt_3", "or_3", Nature::Good),
    ];
    in_every_order(&facts, |world| assert_eq!(world.sim.store.tables().objects.len(), 3));
}

/// C34, C35, D7: an order that never comes is waited for a day, and then a person is told what was waited for.
#[test]
fn a_line_whose_order_never_comes_is_parked_after_a_day() {
    let world = World::calm(vec![line("evt_1", "or_9", Nature::Parentless)], None);
    accepted(&world, 0);
    let began = world.now();
    all_is_well(&world);
    let row = world.sim.store.tables().inbox[&world.facts[0].key].row.clone();
    let failure = row.last_error.unwrap();
    assert_eq!(failure.code, "needs_reconciliation");
    assert!(failure.message.contains("the order of this line is not there yet"), "{failure:?}");
    let waited: Duration = row.dead_at.unwrap().duration_since(began).try_into().unwrap();
    assert!(waited >= LIMITS.horizon && row.attempts == 0, "{waited:?}, {}", row.attempts);
}

/// C33: a source is paused for longer than anything may wait. Its events are accepted, none of them is begun, none counts an
/// attempt, none is parked; and when it is resumed, they are carried out.
#[test]
fn events_of_a_paused_source_are_accepted_and_wait_however_long() {
    let facts: Vec<_> = (1..=3).map(|n| invoice(&format!("evt_{n}"), n)).collect();
    let world = World::calm(facts, None);
    let source = world.facts[0].key.source().clone();
    world.pause(&source);
    world.advance(PAUSE_SEEN);
    for fact in 0..3 {
        accepted(&world, fact);
        for receives in [1, 3, 5] {
            let mut handed = message(&world, fact);
            handed.message.receives = receives;
            run(&world, actors::handle(&world, vec![handed]));
        }
    }
    for _ in 0..40 {
        world.advance(Duration::from_secs(3600));
        let _ = run(&world, actors::sweep(&world));
        while let Some(process) = actors::worker(&world, &mut StdRng::seed_from_u64(1)) {
            run(&world, process.work);
        }
    }
    {
        let tables = world.sim.store.tables();
        for item in tables.inbox.values() {
            assert_eq!((item.row.status, item.row.attempts), (Status::Pending, 0));
            assert!(item.row.next_action.as_ref().unwrap().contains("paused"), "{:?}", item.row);
        }
        assert!(tables.objects.is_empty() && tables.outbox.is_empty());
    }
    world.resume(&source);
    all_is_well(&world);
    assert!((0..3).all(|fact| status(&world, fact) == Status::Processed));
}

/// ORD-stale-embedded-snapshot, D13: parcels are sent while their customer changes, in any interleaving. What goes out of a
/// parcel never names an older version of the customer than what went out of it before.
#[test]
fn what_goes_out_never_embeds_an_older_state_than_before() {
    let parcel = |id: &str| fact(FAMILY, id, "parcel.sent", "pa_1", 1, 0, Nature::Good);
    let customer = |id: &str, n| fact(FAMILY, id, "customer.updated", "cu_1", n, 0, Nature::Good);
    let mut seen = BTreeSet::new();
    for seed in 0..300 {
        let facts = vec![
            customer("evt_1", 1),
            parcel("evt_2"),
            parcel("evt_3"),
            customer("evt_4", 2),
            customer("evt_5", 3),
        ];
        let world = World::calm(facts, None);
        (0..5).for_each(|fact| accepted(&world, fact));
        handled(&world, 0);
        let rng = &mut StdRng::seed_from_u64(seed);
        let work = (1..5).map(|fact| {
            let handed = vec![message(&world, fact)];
            actors::handle(&world, handed).boxed_local()
        });
        shuffle(&world, work.collect(), rng);
        assert!((0..5).all(|fact| status(&world, fact) == Status::Processed), "seed {seed}");
        let tables = world.sim.store.tables();
        let mut told: Vec<(u64, u64)> = Vec::new();
        for row in tables.outbox.values().filter(|row| row.event.event_type == "parcel.sent") {
            let Payload::Inline(bytes) = &row.event.payload else { panic!("it is small") };
            let said: Value = serde_json::from_slice(bytes).unwrap();
            told.push((row.event.aggregate_version.unwrap(), said["to"].as_u64().unwrap()));
        }
        told.sort_unstable();
        let [(1, first), (2, second)] = told[..] else { panic!("seed {seed}: {told:?}") };
        assert!(first <= second, "seed {seed}: {told:?}");
        seen.insert((first, second));
    }
    assert!(seen.len() > 3, "they never met: {seen:?}");
}

/// Six parked events, of which a mistake parked five, one of which was done since; and the mistake is mended.
fn five_parked() -> World {
    let facts: Vec<_> = (0..6)
        .map(|n| {
            let nature = Nature::Mistaken(1_000);
            fact("forward", &format!("evt_{n}"), "order.paid", "or_1", 1, 0, nature)
        })
        .collect();
    let world = World::calm(facts, None);
    for fact in 0..6 {
        accepted(&world, fact);
        for _ in 0..LIMITS.attempts {
            handled(&world, fact);
        }
        assert_eq!(status(&world, fact), Status::DeadLetter);
    }
    world.sim.mistakes.lock().unwrap().clear();
    world.advance(Duration::from_secs(2_000));
    run(&world, actors::replay(&world, world.facts[0].key.clone()));
    handled(&world, 0);
    world.inbound.purge();
    world.advance(Duration::from_secs(60));
    world.sim.store.chaos.heal();
    world
}

fn begin_replay(world: &World) -> ReplayId {
    let source = world.facts[0].key.source().clone();
    let status = [Status::DeadLetter, Status::Ignored].into();
    let selection = Selection { status, ..Selection::default() };
    run(world, actors::begin(world, source, Kind::Replay, selection, 1)).unwrap();
    *world.sim.store.tables().bulks.keys().next().unwrap()
}

/// As often as a sweep would, and one after the other, whatever becomes of each.
fn advance_all(world: &World, id: ReplayId) {
    for _ in 0..20 {
        let _ = run(world, actors::advance(world, id));
        if world.sim.store.tables().open_bulks.is_empty() {
            break;
        }
    }
}

/// How many cycles each event has had.
fn cycles(world: &World) -> Vec<u32> {
    let tables = world.sim.store.tables();
    world.facts.iter().map(|fact| tables.inbox[&fact.key].row.cycle).collect()
}

/// RPL-inbound-repair, K2, K6, K10, L2: what a mistake parked is run again, all of it, and whoever does it dies or fails at
/// any call. Each is run again once; what was done before is not.
#[test]
fn a_bulk_replay_that_dies_at_any_call_runs_each_event_once() {
    let world = five_parked();
    let id = begin_replay(&world);
    world.sim.store.chaos.heal();
    advance_all(&world, id);
    let calls = world.sim.store.chaos.calls();
    assert!(calls.contains(&"inbox.read"), "{calls:?}");
    for when in [When::Before, When::After] {
        for fault in [Fault::Crash, Fault::Unavailable] {
            for (n, call) in (0..).zip(&calls) {
                let world = five_parked();
                let id = begin_replay(&world);
                world.sim.store.chaos.at(n, when, fault);
                advance_all(&world, id);
                world.heal();
                all_is_well(&world);
                assert_eq!(cycles(&world), [1; 6], "{fault:?} {when:?} {call}");
                let counts = world.sim.store.tables().bulks[&id].counts;
                assert_eq!(counts.replayed, 5, "{fault:?} {when:?} {call}: {counts:?}");
            }
        }
    }
}

/// RPL-in-flight, L5: two advance one replay at once, while workers carry out what it has sent.
#[test]
fn two_who_advance_one_replay_beside_workers_run_each_event_once() {
    for seed in 0..200 {
        let world = five_parked();
        let id = begin_replay(&world);
        let rng = &mut StdRng::seed_from_u64(seed);
        let advance = || async {
            for _ in 0..4 {
                let _ = actors::advance(&world, id).await;
            }
        };
        let mut work = vec![advance().boxed_local(), advance().boxed_local()];
        for fact in 1..4 {
            let handed = vec![message(&world, fact)];
            work.push(actors::handle(&world, handed).boxed_local());
        }
        shuffle(&world, work, rng);
        all_is_well(&world);
        assert_eq!(cycles(&world), [1; 6], "seed {seed}");
    }
}
