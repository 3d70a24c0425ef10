//! A storm over sending: events are published while endpoints are added, stopped, started, changed, tried, polled, redelivered
//! to and deleted, receivers fail in every way, and any call of any store may go wrong or be the last of its process.
//!
//! What should be is told by a list of what was answered, which asks nothing of the product: every event that was accepted
//! is, in the end, delivered once to each endpoint that was there before it and still is, nothing comes to an endpoint
//! that is stopped or gone, and nothing is left pending.

use std::collections::BTreeMap;

use domain::{delivery::State, id::EndpointId};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use testkit::chaos::{Fault, When};

use crate::{
    number,
    sending::{Sending, Step},
};

/// Seeds that a run tries, unless it is told otherwise.
const SEEDS: u64 = 150;

/// What happens in one storm.
const STEPS: usize = 160;

/// Seconds that a storm may last: nothing dies of age in it, so that all must arrive.
const LONGEST: i64 = 3 * 86_400;

/// What receivers answer when they do not take something.
const ANSWERS: [&[u16]; 7] = [
    &[500],
    &[503, 429],
    &[404, 500, 500],
    &[410],
    &[429, 429, 429, 200],
    &[302, 400],
    &[500, 500, 500, 500, 500, 500, 500, 500, 500, 500, 500],
];

const CHANGES: [&str; 5] = [
    r#"{"url":"https://else.example.com/in"}"#,
    r#"{"lanes":4,"concurrency":4}"#,
    r#"{"lanes":1}"#,
    r#"{"rate":3,"description":"slow"}"#,
    r#"{"rate":null}"#,
];

/// What was answered, by an endpoint's place in the order of making.
#[derive(Debug, Default)]
struct Told {
    /// Events that were accepted, and how many endpoints there were before.
    events: Vec<(String, usize)>,
    /// How often something had come to an endpoint when it was stopped, or deleted.
    stopped: BTreeMap<usize, u32>,
    gone: BTreeMap<usize, u32>,
}

impl Told {
    /// What came to an endpoint that must get nothing.
    fn too_much(&self, world: &Sending) -> Option<String> {
        let still = self.stopped.iter().map(|at| (at, "stopped"));
        let mut still = still.chain(self.gone.iter().map(|at| (at, "gone")));
        still.find_map(|((n, had), how)| {
            let has = came(world, world.made.borrow()[*n].0);
            (has != *had).then(|| format!("endpoint {n} is {how}, and got {has}, not {had}"))
        })
    }

    fn note(&mut self, world: &Sending, step: Step) {
        match step {
            Step::Endpoint(n, "pause" | "disable") if !self.gone.contains_key(&n) => {
                let had = came(world, world.made.borrow()[n].0);
                self.stopped.insert(n, had);
            }
            Step::Delete(n) => {
                self.stopped.remove(&n);
                let had = came(world, world.made.borrow()[n].0);
                self.gone.entry(n).or_insert(had);
            }
            _ => {}
        }
    }
}

/// How often something came to an endpoint.
fn came(world: &Sending, endpoint: EndpointId) -> u32 {
    let received = world.receivers.received.lock().unwrap();
    received.iter().filter(|((to, _), _)| *to == endpoint).map(|(_, times)| times).sum()
}

fn any_step(rng: &mut StdRng, many: usize) -> Step {
    let n = rng.random_range(0..many);
    match rng.random_range(0..100) {
        0..22 => Step::Relay,
        22..26 => Step::RelayInSteps,
        26..52 => Step::Drain,
        52..60 => Step::Sweep,
        60..68 => Step::Answers(n, ANSWERS[rng.random_range(0..ANSWERS.len())]),
        68..70 => Step::Endpoint(n, "pause"),
        70..72 => Step::Endpoint(n, "disable"),
        72..76 => Step::Endpoint(n, "resume"),
        76..80 => Step::Endpoint(n, "enable?release_rate=50"),
        80..82 => Step::Trial(n),
        82..85 => Step::Change(n, CHANGES[rng.random_range(0..CHANGES.len())]),
        85..86 => Step::Rotate(n),
        86..87 if n > 0 => Step::Delete(n),
        87..88 => Step::Add("more"),
        88..92 => Step::Poll(0),
        92..95 => Step::Ack(0),
        95..96 => Step::Forget,
        96..97 => Step::Redeliver(n),
        97..98 => Step::RedeliverMany(r#"{"include_delivered":true}"#),
        98..99 => Step::Halt(["cancel", "pause", "resume"][rng.random_range(0..3)]),
        99 => Step::Purge,
        _ => Step::Relay,
    }
}

/// Whether a step can be taken at all.
fn is_possible(world: &Sending, step: Step) -> bool {
    match step {
        Step::Redeliver(_) => !world.api.outbox.tables().outbox.is_empty(),
        Step::Halt(_) => !world.api.registry.tables().redeliveries.is_empty(),
        _ => true,
    }
}

/// One storm, and the rest after it. What was violated.
async fn live(seed: u64) -> Option<String> {
    let mut rng = StdRng::seed_from_u64(seed);
    let (world, mut told, mut passed) = (Sending::new(true), Told::default(), 0);
    for how in ["poll", "a", "b"] {
        assert!(world.take(Step::Add(how)).await, "nothing goes wrong yet");
    }
    for n in 0..STEPS {
        let wait = if rng.random_bool(0.1) { rng.random_range(1..4000) } else { 1 };
        if passed + wait < LONGEST {
            passed += wait;
            world.advance(wait);
        }
        let chaos = rng.random_range(0..world.chaos().len());
        if rng.random_bool(0.5) {
            let when = if rng.random_bool(0.5) { When::Before } else { When::After };
            let faults = [Fault::Crash, Fault::Unavailable, Fault::Throttled];
            let fault = faults[rng.random_range(0..faults.len())];
            world.chaos()[chaos].at(rng.random_range(0..8), when, fault);
        }
        if rng.random_bool(0.12) {
            let (name, before) = (format!("order-{n}"), world.made.borrow().len());
            let done = world.chaos()[chaos].until_crash(world.publish_as(&name)).await;
            world.heal();
            // Whoever got no good answer publishes it once more, under the same key.
            if done != Some(true) && !world.publish_as(&name).await {
                return Some(format!("{name} was not accepted"));
            }
            told.events.push((name, before));
        } else {
            let step = any_step(&mut rng, world.made.borrow().len());
            if !is_possible(&world, step) {
                world.heal();
                continue;
            }
            // From the asking on, something may go out again.
            if let Step::Endpoint(n, "resume" | "enable?release_rate=50") = step {
                told.stopped.remove(&n);
            }
            let done = world.chaos()[chaos].until_crash(world.take(step)).await;
            world.heal();
            let done = match done {
                Some(true) => true,
                _ if step.is_asked() => world.take(step).await,
                _ => false,
            };
            if done {
                told.note(&world, step);
            }
        }
        if let Some(violated) = told.too_much(&world) {
            return Some(violated);
        }
    }
    world.receivers.recover();
    end(&world, &told).await
}

/// Everything is started again and comes to rest.
async fn end(world: &Sending, told: &Told) -> Option<String> {
    world.api.wakes.purge();
    let many = world.made.borrow().len();
    for _ in 0..2 {
        for n in 0..many {
            world.take(Step::Endpoint(n, "resume")).await;
            world.take(Step::Endpoint(n, "enable?release_rate=1000")).await;
        }
        for what in ["resume"] {
            if is_possible(world, Step::Halt(what)) {
                world.take(Step::Halt(what)).await;
            }
        }
        world.rest("after the storm").await;
    }
    let tables = world.api.deliveries.tables();
    let pending = tables.deliveries.iter().find(|(_, found)| found.state == State::Pending);
    if let Some(((lane, event), _)) = pending {
        return Some(format!("{event} is pending in {lane}"));
    }
    for (name, before) in &told.events {
        for (n, (endpoint, _)) in world.made.borrow().iter().enumerate() {
            let here = tables.deliveries.iter().filter(|((lane, event), _)| {
                lane.endpoint == *endpoint && world.event(*event) == *name
            });
            let states: Vec<State> = here.map(|(_, delivery)| delivery.state).collect();
            let is_right = match (told.gone.contains_key(&n), n < *before) {
                (true, _) => states.len() <= 1,
                (false, true) => states == [State::Succeeded],
                (false, false) => states.is_empty(),
            };
            if !is_right {
                return Some(format!("{name} at endpoint {n}: {states:?}"));
            }
        }
    }
    let gone = told.gone.iter().find(|(n, had)| {
        let endpoint = world.made.borrow()[**n].0;
        came(world, endpoint) != **had
    });
    gone.map(|(n, _)| format!("endpoint {n} is gone, and got something"))
}

/// L2, L17, F1, DLV-disabled-events-vanish, RPL-in-flight, RTY-store-outage
#[tokio::test]
async fn a_storm_over_sending_leaves_nothing_out_and_nothing_pending() {
    let seeds = match number("POSTERN_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("POSTERN_SEEDS").unwrap_or(SEEDS),
    };
    for seed in seeds {
        let violated = live(seed).await;
        assert!(
            violated.is_none(),
            "{violated:?}\n\nreplay: POSTERN_SEED={seed} cargo test -p tests --test simulation a_storm_over\n"
        );
    }
}
