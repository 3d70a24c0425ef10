//! One life of a world: a storm, then calm, then rest.

use std::time::Duration;

use domain::inbox::Status;
use futures_util::FutureExt as _;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

use crate::{
    actors::{self, ACTORS, Actor, Process},
    check::{self, Seen},
    ports::Broken,
    subscriber,
    world::{Nature, World},
};

/// How often somebody does something while the storm lasts.
const STEPS: usize = 700;

/// Processes at once.
const PROCESSES: usize = 8;

/// How often time may pass in the calm before everything has come to rest. Something may wait for a day, begin anew, and be
/// looked at each minute.
const ROUNDS: usize = 2_000;

/// Polls after which a process that should be over hangs.
const POLLS: usize = 10_000;

/// Who acts in the calm, in this order.
const CALM: [Actor; 7] = [
    actors::sweeper,
    actors::provider,
    actors::reconciler,
    actors::advancer,
    actors::worker,
    actors::relay,
    subscriber::deliverer,
];

/// Lives through a world. What was violated, in words; nothing if all is well.
pub(crate) fn live(seed: u64, broken: Option<Broken>) -> Vec<String> {
    let world = World::stormy(seed, broken);
    let mut life = Life::of(&world, seed);
    let mut violations = life.storm();
    if violations.is_empty() {
        violations = life.come_to_rest();
    }
    violations
}

/// Brings a world to rest and checks it.
pub(crate) fn settle(world: &World) -> Vec<String> {
    Life::of(world, 0).come_to_rest()
}

struct Life<'w> {
    world: &'w World,
    rng: StdRng,
    seen: Seen,
}

impl<'w> Life<'w> {
    fn of(world: &'w World, seed: u64) -> Self {
        // Whoever looks anew sees what is there, and counts it once.
        world.applied.borrow_mut().clear();
        Self { world, rng: StdRng::seed_from_u64(seed), seen: Seen::default() }
    }

    /// What was accepted comes to its end; what was parked for a mistake of ours, after somebody has mended it.
    fn come_to_rest(&mut self) -> Vec<String> {
        let mut violations = self.rest();
        if violations.is_empty() && self.mend() {
            violations = self.rest();
        }
        if violations.is_empty() { check::at_rest(self.world) } else { violations }
    }

    /// C14, K10: the code is mended, and an operator replays what it had parked. Whether there was anything.
    fn mend(&mut self) -> bool {
        let world = self.world;
        world.sim.mistakes.lock().unwrap().clear();
        let mistaken = world.facts.iter().filter(|fact| matches!(fact.nature, Nature::Mistaken(_)));
        let parked: Vec<_> = mistaken
            .filter(|fact| {
                let tables = world.sim.store.tables();
                tables.inbox.get(&fact.key).is_some_and(|i| i.row.status == Status::DeadLetter)
            })
            .collect();
        for fact in &parked {
            let mut person = Process {
                who: "person",
                work: actors::replay(world, fact.key.clone()).boxed_local(),
            };
            while !actors::poll(world, &mut person) {}
        }
        !parked.is_empty()
    }

    /// Everybody acts in any order, and anything may go wrong at any call.
    fn storm(&mut self) -> Vec<String> {
        let (world, mut processes) = (self.world, Vec::<Process<'w>>::new());
        let weights: u32 = ACTORS.iter().map(|(_, weight, _)| weight).sum();
        for _ in 0..STEPS {
            self.pass_time();
            if self.rng.random_bool(world.weather.get().mischief) {
                actors::mischief(world, &mut self.rng);
            }
            let starts =
                processes.is_empty() || (processes.len() < PROCESSES && self.rng.random_bool(0.25));
            if starts {
                let mut pick = self.rng.random_range(0..weights);
                let (_, _, actor) = ACTORS
                    .iter()
                    .find(|(_, weight, _)| {
                        let is_picked = pick < *weight;
                        pick = pick.saturating_sub(*weight);
                        is_picked
                    })
                    .unwrap();
                processes.extend(actor(world, &mut self.rng));
            } else {
                let n = self.rng.random_range(0..processes.len());
                if actors::poll(world, &mut processes[n]) {
                    processes.swap_remove(n);
                }
            }
            let violations = check::always(world, &mut self.seen);
            if !violations.is_empty() {
                return violations;
            }
        }
        // The lights go out: what is under way dies, and every message with it.
        drop(processes);
        world.heal();
        world.inbound.purge();
        world.wake.purge();
        Vec::new()
    }

    fn pass_time(&mut self) {
        let passes = if self.rng.random_bool(0.02) {
            Duration::from_secs(self.rng.random_range(1..300))
        } else {
            Duration::from_millis(self.rng.random_range(0..100))
        };
        self.world.advance(passes);
    }

    /// Nothing goes wrong any more. What was accepted must come to its end without a message of before.
    fn rest(&mut self) -> Vec<String> {
        let world = self.world;
        for _ in 0..ROUNDS {
            for actor in CALM {
                while let Some(mut process) = actor(world, &mut self.rng) {
                    let is_over = (0..POLLS).any(|_| actors::poll(world, &mut process));
                    if !is_over {
                        return vec![format!("a {} hangs", process.who)];
                    }
                    let violations = check::always(world, &mut self.seen);
                    if !violations.is_empty() {
                        return violations;
                    }
                    // In the calm one sweep is enough, and one look at what the provider lists.
                    if matches!(process.who, "sweeper" | "reconciler" | "advancer") {
                        break;
                    }
                }
            }
            match self.next() {
                None => return Vec::new(),
                Some(wait) => world.advance(wait),
            }
        }
        let tables = world.sim.store.tables();
        let owed = tables.inbox.values().filter(|item| item.row.status == Status::Pending);
        let owed: Vec<_> = owed.map(|item| item.row.new.key.to_string()).collect();
        vec![format!("still not at rest; pending: {owed:?}")]
    }

    /// How long until something is due; `None`: nothing is owed.
    fn next(&self) -> Option<Duration> {
        let (world, now) = (self.world, self.world.now());
        let tables = world.sim.store.tables();
        let rows = tables.inbox.values().filter_map(|item| item.row.due_at);
        let sends = world.sends.borrow();
        let sends = sends.iter().map(|send| send.at);
        // Relayed by the next sweep but one.
        let unrelayed = tables.outbox.values().filter(|row| row.relayed.is_none()).map(|_| now);
        let lanes = tables.lanes.values().filter_map(|lane| lane.wake_at);
        let owed = rows.chain(sends).chain(unrelayed).chain(lanes);
        let messages = world.inbound.next_visible().into_iter().chain(world.wake.next_visible());
        let unseen = world.sim.broken != Some(Broken::NoReconciler)
            && (0..world.facts.len()).any(|n| !world.accepted.borrow().contains(&n));
        let unseen = unseen || !tables.open_bulks.is_empty();
        let first = owed.chain(messages).chain(unseen.then_some(now)).min()?;
        // The schedule runs each minute.
        let wait: Duration = first.duration_since(now).try_into().unwrap_or_default();
        Some(wait.max(Duration::from_secs(60)))
    }
}
