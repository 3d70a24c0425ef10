//! The search: every order of steps, each state once.

use std::{
    cell::Cell,
    collections::{BTreeSet, HashSet},
    fmt,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
    time::Duration,
};

use deliverer::drain::{Drain, Edge, Rules};
use domain::{
    breaker::Limits,
    delivery::{Cause, Delivery, Schedule, State},
    destination::Destination,
    endpoint::{Endpoint, HealthLimits},
    id::EventId,
    lane::{LaneId, Pointer},
    outbox::{OutboxEvent, Payload},
    ports::Deliveries as _,
    retry::Backoff,
};
use flow::fanout::{EndpointCache, FanOut, STEP};
use jiff::Timestamp;
use runtime::telemetry::Metrics;

use super::store::{Door, Lane, Mistake, Shared, World};

/// Who acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Actor {
    /// A deliverer that was woken for the lane.
    Holder,
    /// The relay, with the second event.
    Relay,
    /// A person who redelivers the first event.
    Redeliver,
    /// A person who stops the endpoint.
    Stop,
}

/// What is searched.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) actors: Vec<Actor>,
    /// How far the clock jumps.
    pub(crate) tick_ms: i64,
    /// How often.
    pub(crate) ticks: u32,
    /// How many of each event's requests fail.
    pub(crate) failures: u32,
    /// Whether the first event's delivery is dead at first.
    pub(crate) dead: bool,
    /// How long a pass begins new attempts.
    pub(crate) pass_ms: i64,
    /// Whether actors may also begin after the clock has jumped, and find the lease of one who goes on expired. More
    /// orders than any other choice.
    pub(crate) late: bool,
    /// Whether the endpoint recognises repetitions. If not, it must see each event once at most.
    pub(crate) idempotent: bool,
}

impl Default for Scenario {
    fn default() -> Self {
        let (actors, tick_ms, ticks) = (Vec::new(), 61_000, 0);
        let (failures, dead, pass_ms, late, idempotent) = (0, false, 600_000, false, true);
        Self { actors, tick_ms, ticks, failures, dead, pass_ms, late, idempotent }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Choice {
    Step(usize),
    Tick,
}

/// A delivery that nobody will ever find again, or that was sent twice where it must not be, and how it came to that.
#[derive(Debug)]
pub(crate) struct Stranded {
    why: &'static str,
    path: Vec<Choice>,
    world: Box<World>,
}

impl fmt::Display for Stranded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} after {:?}\n{:#?}", self.why, self.path, self.world)
    }
}

thread_local! {
    static CLOCK: Cell<i64> = const { Cell::new(0) };
}

fn clock() -> Timestamp {
    at(CLOCK.get())
}

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(ms).unwrap()
}

const EDGE: Edge = Edge { now: clock, jitter: || 0.5 };

const RULES: Rules = Rules {
    lease: Duration::from_secs(60),
    schedule: Schedule {
        backoff: Backoff {
            floor: Duration::from_secs(1),
            base: Duration::from_secs(30),
            cap: Duration::from_secs(43_200),
        },
        retry_after_cap: Duration::from_secs(86_400),
    },
    breaker: Limits {
        opens_after: 10,
        probe: Duration::from_secs(60),
        probe_cap: Duration::from_secs(900),
        retry_after_cap: Duration::from_secs(86_400),
    },
    tried_for: Duration::from_secs(345_600),
    health: HealthLimits { disable_after: Duration::from_secs(432_000) },
    hold: Duration::from_secs(1_209_600),
    concurrency: 1,
};

/// When every search begins, in milliseconds.
const START: i64 = 1_000_000;

fn event(name: &str) -> EventId {
    EventId::derived(at(START - 1000), &[name])
}

fn endpoint() -> Endpoint {
    Endpoint::new(
        "acme".parse().unwrap(),
        format!("ep_{:032x}", 7).parse().unwrap(),
        Destination::Https("https://example.com/".to_owned()),
        at(0),
    )
}

fn lane() -> LaneId {
    let endpoint = endpoint();
    LaneId { tenant: endpoint.tenant, endpoint: endpoint.id, lane: 0 }
}

fn outgoing(name: &str) -> OutboxEvent {
    OutboxEvent {
        id: event(name),
        tenant: "acme".parse().unwrap(),
        event_type: "a".to_owned(),
        schema_version: 1,
        aggregate_id: name.to_owned(),
        aggregate_version: None,
        payload: Payload::Inline(Vec::new()),
        occurred_at: at(START - 1000),
        traceparent: None,
        labels: std::collections::BTreeMap::new(),
    }
}

impl Scenario {
    fn endpoint(&self) -> Endpoint {
        Endpoint { idempotent: self.idempotent, ..endpoint() }
    }

    fn stops(&self) -> bool {
        self.actors.contains(&Actor::Stop)
    }

    /// The first event is in its lane, the second is NEW if somebody relays it.
    fn begin(&self) -> World {
        let deadline = at(START + 345_600_000);
        let mut first = Delivery::new(event("first"), "a".to_owned(), deadline, at(START - 500));
        let mut lane = Lane { wakes: 1, wake_at: Some(at(START - 500)), ..Lane::default() };
        let mut pointers = BTreeSet::from([Pointer::of(&first)]);
        if self.dead {
            first = first.given_up(Cause::Expired, at(START - 400));
            pointers.clear();
            lane.wake_at = None;
        }
        let mut unrelayed = BTreeSet::new();
        if self.actors.contains(&Actor::Relay) {
            unrelayed.insert(event("second"));
        }
        World {
            now: at(START),
            lane: Some(lane),
            deliveries: [(first.event, first)].into(),
            pointers,
            unrelayed,
            failures: self.failures,
            ..World::default()
        }
    }
}

type Running = Pin<Box<dyn Future<Output = ()>>>;

async fn act(actor: Actor, door: Door, owner: String, pass_ms: i64) {
    let now = clock();
    match actor {
        Actor::Holder => {
            let drain = Drain {
                lanes: &door,
                registry: &door,
                queue: &door,
                sender: &door,
                notices: &door,
                metrics: &Metrics::new("model"),
                rules: &RULES,
                edge: EDGE,
            };
            let until = at(now.as_millisecond() + pass_ms);
            drain.lane(&lane(), &owner, until).await.unwrap();
        }
        Actor::Relay => {
            let cache = EndpointCache::default();
            let fan_out = FanOut {
                lanes: &door,
                outbox: &door,
                registry: &door,
                queue: &door,
                bodies: &door,
                cache: &cache,
                deadline: Duration::from_secs(345_600),
                step: STEP,
                now: || now,
            };
            fan_out.run(&[outgoing("second")], Timestamp::MAX).await;
        }
        Actor::Stop => door.stop().await,
        Actor::Redeliver => {
            let deadline = at(now.as_millisecond() + 345_600_000);
            let _ = door.redeliver(&lane(), event("first"), deadline, now).await.unwrap();
        }
    }
}

/// One run of a scenario, up to some state.
struct Run {
    shared: Arc<Mutex<Shared>>,
    running: Vec<Option<Running>>,
    /// Who has begun. An actor reads the clock when it begins, which may be after a jump.
    begun: BTreeSet<usize>,
    ticks: u32,
}

impl Run {
    fn replay(scenario: &Scenario, mistake: Mistake, path: &[Choice]) -> Self {
        let world = scenario.begin();
        CLOCK.set(world.now.as_millisecond());
        let shared = Arc::new(Mutex::new(Shared::new(world, false)));
        let endpoint = Arc::new(scenario.endpoint());
        let start = |(index, actor): (usize, &Actor)| {
            let (shared, endpoint) = (Arc::clone(&shared), Arc::clone(&endpoint));
            let stops = scenario.stops();
            let door = Door { shared, actor: index, mistake, endpoint, stops };
            Some(Box::pin(act(*actor, door, format!("holder-{index}"), scenario.pass_ms)) as Running)
        };
        let running = scenario.actors.iter().enumerate().map(start).collect();
        let mut run = Self { shared, running, begun: BTreeSet::new(), ticks: 0 };
        if !scenario.late {
            (0..run.running.len()).for_each(|index| run.begin(index));
        }
        for choice in path {
            run.take(scenario, *choice);
        }
        run
    }

    fn take(&mut self, scenario: &Scenario, choice: Choice) {
        match choice {
            Choice::Step(index) => {
                self.begin(index);
                Door::admit(&self.shared, index);
                self.poll(index);
            }
            Choice::Tick => {
                self.ticks += 1;
                let mut shared = self.shared.lock().unwrap();
                let now = shared.world.now.as_millisecond() + scenario.tick_ms;
                shared.world.now = at(now);
                CLOCK.set(now);
            }
        }
    }

    /// Up to the gate before the first step.
    fn begin(&mut self, index: usize) {
        if self.begun.insert(index) {
            self.poll(index);
        }
    }

    fn poll(&mut self, index: usize) {
        let Some(future) = &mut self.running[index] else { return };
        if future.as_mut().poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(()) {
            self.running[index] = None;
        }
    }

    fn choices(&self, scenario: &Scenario) -> Vec<Choice> {
        let alive = (0..self.running.len()).filter(|index| self.running[*index].is_some());
        let mut choices: Vec<_> = alive.map(Choice::Step).collect();
        if self.ticks < scenario.ticks && !choices.is_empty() {
            choices.push(Choice::Tick);
        }
        choices
    }

    /// The tables by themselves, and all that can make a difference later.
    fn keys(&self) -> (u64, u64) {
        let shared = self.shared.lock().unwrap();
        let mut hash = DefaultHasher::new();
        shared.world.hash(&mut hash);
        let world = hash.finish();
        shared.seen.hash(&mut hash);
        self.ticks.hash(&mut hash);
        (world, hash.finish())
    }
}

/// Everything dies here; then the sweeper does its work, as long as it finds any.
fn heal(
    scenario: &Scenario,
    mistake: Mistake,
    mut world: World,
) -> Result<(), (&'static str, Box<World>)> {
    for round in 0..40 {
        CLOCK.set(world.now.as_millisecond());
        let wake_at = world.lane.as_ref().and_then(|lane| lane.wake_at);
        let actor = if !world.unrelayed.is_empty() {
            Actor::Relay
        } else if wake_at.is_some_and(|wake_at| wake_at <= world.now) {
            Actor::Holder
        } else if let Some(wake_at) = wake_at {
            world.now = wake_at;
            continue;
        } else {
            break;
        };
        let shared = Arc::new(Mutex::new(Shared::new(world, true)));
        let door = Door {
            shared: Arc::clone(&shared),
            actor: 99,
            mistake,
            endpoint: Arc::new(scenario.endpoint()),
            stops: scenario.stops(),
        };
        let mut running = Box::pin(act(actor, door, format!("healer-{round}"), 600_000));
        let ended = running.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(ended, Poll::Ready(()), "the healing waits for something");
        drop(running);
        world = Arc::into_inner(shared).unwrap().into_inner().unwrap().world;
        // A lease of the dead may stand in the way; the sweeper comes again.
        world.now = at(world.now.as_millisecond() + 20_000);
    }
    let is_pending = |delivery: &Delivery| delivery.state == State::Pending;
    let lost = world.deliveries.values().any(is_pending) || !world.unrelayed.is_empty();
    let asleep = world.lane.as_ref().is_none_or(|lane| lane.wake_at.is_none());
    let twice = !scenario.idempotent && world.posts.values().any(|posts| *posts > 1);
    match (lost || !asleep, twice) {
        (true, _) => Err(("a delivery is stranded", Box::new(world))),
        (false, true) => Err(("an event was sent twice", Box::new(world))),
        (false, false) => Ok(()),
    }
}

/// Searches every order. Gives the number of different states.
pub(crate) fn explore(scenario: &Scenario, mistake: Mistake) -> Result<usize, Stranded> {
    let (mut known, mut healed) = (HashSet::new(), HashSet::new());
    let mut open = vec![Vec::new()];
    while let Some(mut path) = open.pop() {
        let mut run = Run::replay(scenario, mistake, &path);
        // Go on from here as long as the way is new; the other ways wait.
        loop {
            let (tables, all) = run.keys();
            if !known.insert(all) {
                break;
            }
            if healed.insert(tables) {
                let world = run.shared.lock().unwrap().world.clone();
                let now = world.now.as_millisecond();
                if let Err((why, world)) = heal(scenario, mistake, world) {
                    return Err(Stranded { why, path, world });
                }
                CLOCK.set(now);
            }
            let mut choices = run.choices(scenario);
            let Some(next) = choices.pop() else { break };
            open.extend(choices.into_iter().map(|choice| [path.as_slice(), &[choice]].concat()));
            path.push(next);
            run.take(scenario, next);
        }
    }
    Ok(known.len())
}
