//! What the simulated processes share: tables, queues, a clock, and what the provider has to tell.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use domain::{
    destination::Destination,
    endpoint::{Endpoint, LaneCount},
    event::{ObjectRef, Version},
    id::{EndpointId, InboxKey, SourceName, TenantId},
    source::{Handler, SchemeChoice, Source},
};
use flow::fanout::EndpointCache;
use jiff::Timestamp;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use runtime::telemetry::Metrics;
use serde_json::{Value, json};
use signing::{Key, Scheme, Secret, SigningKey};
use testkit::{
    LIMITS,
    chaos::{Chaos, Fault, When},
    memory::{MemoryQueue, Store},
};
use uuid::Uuid;
use worker::Sources;

use crate::{
    business::{self, PAYMENTS, Says},
    ports::{AlwaysThere, Broken, Sim},
    subscriber::{self, Subscriber},
    things::{self, THINGS, Truth},
};

/// How long the queue hides a received message.
const VISIBILITY: Duration = LIMITS.visibility;

/// How often the queue shows a message before it is dead.
const MAX_RECEIVES: u32 = 16;

/// How long a worker takes to see that a source is paused.
pub(crate) const PAUSE_SEEN: Duration = Duration::from_secs(10);

/// When it all begins, in seconds.
const BEGIN: i64 = 1_800_000_000;

/// The sweeper's rules: the template's defaults.
pub(crate) const RULES: sweeper::Rules = sweeper::Rules {
    budget: Duration::from_secs(45),
    lease: Duration::from_secs(60),
    pending_shards: 4,
    outbox_shards: 4,
    wake_shards: 4,
    attempts: LIMITS.attempts,
    claim_base: Duration::from_secs(600),
    claim_cap: Duration::from_secs(21_600),
    unrelayed_after: Duration::from_secs(120),
    delivery_deadline: Duration::from_secs(345_600),
};

/// What an event of the provider is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nature {
    /// It can be handled.
    Good,
    /// Nobody wants it: it ends ignored.
    Unwanted,
    /// Handling it kills the process.
    Killer,
    /// Its source is not configured any more: it is parked.
    Orphan,
    /// It belongs to something that never happens: it waits, and then it is parked.
    Parentless,
    /// The code that handles it is wrong for so many seconds. Then somebody mends it, and replays what was parked.
    Mistaken(u32),
}

/// Something that happened at the provider.
#[derive(Clone, Debug)]
pub(crate) struct Fact {
    /// What our inbox calls it.
    pub(crate) key: InboxKey,
    /// The bytes that are sent.
    pub(crate) body: Vec<u8>,
    /// The object it is about, and its version; mirrored events only.
    pub(crate) object: Option<(ObjectRef, Version)>,
    /// What it says of a business; events of payments only.
    pub(crate) says: Option<Says>,
    /// Which thing has changed, and for the how manieth time; things without versions only.
    pub(crate) thing: Option<(String, u64)>,
    /// What it is for.
    pub(crate) nature: Nature,
}

/// A request that the provider is going to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Send {
    /// When.
    pub(crate) at: Timestamp,
    /// Of which fact.
    pub(crate) fact: usize,
    /// How many more times it tries, should this one fail.
    pub(crate) tries: u32,
}

/// How bad it gets, drawn from the seed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Weather {
    /// Share of store calls that fail.
    pub(crate) faults: f64,
    /// Share of those that kill the process.
    pub(crate) crashes: f64,
    /// Share of transactions that meet another one.
    pub(crate) conflicts: f64,
    /// Share of queue calls that fail.
    pub(crate) queue_faults: f64,
    /// Share of acknowledgements that the queue loses.
    pub(crate) lost_acks: f64,
    /// Share of steps at which somebody meddles with the queue.
    pub(crate) mischief: f64,
    /// Share of a subscriber's answers that are no success.
    pub(crate) failures: f64,
    /// Share of attempts that run out of time.
    pub(crate) timeouts: f64,
    /// Whether the stream is read at all.
    pub(crate) stream: bool,
    /// Whether the storm is over.
    pub(crate) is_calm: bool,
}

impl Weather {
    fn of(rng: &mut StdRng) -> Self {
        // Some worlds are calm in one respect or another: what only goes wrong beside a quiet neighbour shows there.
        let mut often =
            |most: f64| if rng.random_bool(0.3) { 0.0 } else { rng.random_range(0.0..most) };
        Self {
            faults: often(0.25),
            crashes: often(0.5),
            conflicts: often(0.4),
            queue_faults: often(0.3),
            lost_acks: often(0.4),
            mischief: often(0.05),
            failures: often(0.6),
            timeouts: often(0.1),
            stream: rng.random_bool(0.7),
            is_calm: false,
        }
    }
}

/// Everything that is shared.
#[derive(Debug)]
pub(crate) struct World {
    /// The tables.
    pub(crate) sim: Sim,
    /// The worker's queue.
    pub(crate) inbound: MemoryQueue,
    /// The deliverer's queue.
    pub(crate) wake: MemoryQueue,
    /// Who gets what goes out.
    pub(crate) subscriber: Subscriber,
    /// What has happened at the provider.
    pub(crate) facts: Vec<Fact>,
    /// What the provider is going to send.
    pub(crate) sends: RefCell<Vec<Send>>,
    /// Facts that were answered with 2xx, or were fetched.
    pub(crate) accepted: RefCell<BTreeSet<usize>>,
    /// How bad it is at the moment.
    pub(crate) weather: Cell<Weather>,
    /// Counts processes, for names.
    pub(crate) born: Cell<u64>,
    /// How far the stream was read.
    pub(crate) stream: Cell<usize>,
    /// What every row's results ever said: by fact, each thing that was applied, and how often.
    pub(crate) applied: RefCell<BTreeMap<InboxKey, BTreeMap<String, u32>>>,
    /// The worker's memory of sources.
    pub(crate) sources: Sources<AlwaysThere>,
    /// What it remembers of.
    pub(crate) registry: Arc<Store>,
    /// Who is asked how far a thing is.
    pub(crate) truth: Truth,
    /// The relay's and the sweeper's memory of endpoints.
    pub(crate) cache: EndpointCache,
    /// What is counted, and not looked at.
    pub(crate) metrics: Metrics,
    /// Milliseconds.
    clock: AtomicI64,
}

/// The provider's secret, as both sides have it.
#[derive(Debug)]
pub(crate) struct Signing {
    /// The scheme.
    pub(crate) scheme: Scheme,
    /// The same of a provider that sends several events in one request.
    pub(crate) batched: Scheme,
    /// The same of a provider whose events carry no version.
    pub(crate) versionless: Scheme,
    /// The provider's.
    pub(crate) signs: SigningKey,
    /// Ours.
    pub(crate) verifies: Vec<Key>,
}

/// The same in every world: reading a scheme takes longer than a short life.
pub(crate) static SIGNING: LazyLock<Signing> = LazyLock::new(|| {
    let secret = Secret::new("whsec_simulated_secret_of_a_provider".to_owned());
    let scheme = Scheme::preset("stripe").unwrap();
    Signing {
        signs: SigningKey::parse(&scheme, &secret).unwrap(),
        verifies: vec![Key::parse(&scheme, "k1", &secret).unwrap()],
        scheme,
        batched: Scheme::from_value(batched()).unwrap(),
        versionless: Scheme::from_value(things::scheme()).unwrap(),
    }
});

/// The source of orders and their lines.
pub(crate) const FAMILY: &str = "family";

/// The source whose requests carry several events.
pub(crate) const BATCHED: &str = "batched";

fn batched() -> Value {
    json!({ "like": "stripe", "batch": "/events" })
}

impl World {
    /// A world in good weather, in which nothing has happened.
    pub(crate) fn calm(facts: Vec<Fact>, broken: Option<Broken>) -> Self {
        let sim = Sim::new(broken);
        configure(&sim.store);
        let registry = Arc::new(Store::new(1));
        configure(&registry);
        let killers = facts.iter().filter(|fact| fact.nature == Nature::Killer);
        *sim.killers.lock().unwrap() = killers.map(|fact| fact.key.clone()).collect();
        let mended = |seconds: u32| Timestamp::from_second(BEGIN + i64::from(seconds)).unwrap();
        *sim.mistakes.lock().unwrap() = facts
            .iter()
            .filter_map(|fact| match fact.nature {
                Nature::Mistaken(seconds) => Some((fact.key.clone(), mended(seconds))),
                _ => None,
            })
            .collect();
        let truth = Truth::default();
        let (fresh, stale) = (PAUSE_SEEN, Duration::from_secs(3600));
        let world = Self {
            sim,
            inbound: MemoryQueue::new(VISIBILITY, MAX_RECEIVES),
            wake: MemoryQueue::new(VISIBILITY, MAX_RECEIVES),
            subscriber: Subscriber::default(),
            facts,
            sends: RefCell::default(),
            accepted: RefCell::default(),
            weather: Cell::new(Weather { is_calm: true, ..Weather::default() }),
            born: Cell::default(),
            stream: Cell::default(),
            applied: RefCell::default(),
            sources: Sources::new(AlwaysThere(Arc::clone(&registry)), fresh, stale)
                .asking(truth.asker()),
            registry,
            truth,
            cache: EndpointCache::default(),
            metrics: Metrics::new("sim"),
            clock: AtomicI64::new(BEGIN * 1000),
        };
        world.advance(Duration::ZERO);
        world
    }

    /// A world of its own for each seed.
    pub(crate) fn stormy(seed: u64, broken: Option<Broken>) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let weather = Weather::of(&mut rng);
        let world = Self::calm(facts(&mut rng), broken);
        world.sim.set_conflicts(seed, weather.conflicts);
        world.subscriber.set_failures(seed, weather.failures);
        // Also with reliable answers it takes its time.
        world.truth.set_failures(seed, (weather.failures / 2.0).max(1e-9));
        storm(&world.sim.store.chaos, seed, weather.faults, weather.crashes);
        storm(&world.inbound.chaos, !seed, weather.queue_faults, weather.crashes);
        storm(&world.wake.chaos, seed ^ 0xffff, weather.queue_faults, weather.crashes);
        *world.sends.borrow_mut() = sends(&world, &mut rng);
        world.weather.set(weather);
        world
    }

    /// Which facts a request about one of them tells: itself, and of the source whose requests carry several, the later
    /// ones too. So each of its requests is another one, and most events come in more than one.
    pub(crate) fn sent_with(&self, fact: usize) -> impl Iterator<Item = usize> + '_ {
        let source = self.facts[fact].key.source();
        let is_batched = source.as_str() == BATCHED;
        (fact..self.facts.len())
            .filter(move |n| *n == fact || (is_batched && self.facts[*n].key.source() == source))
    }

    /// The bytes of that request.
    pub(crate) fn request(&self, fact: usize) -> Vec<u8> {
        if self.facts[fact].key.source().as_str() != BATCHED {
            return self.facts[fact].body.clone();
        }
        let bodies = self.sent_with(fact).map(|n| self.facts[n].body.as_slice());
        let bodies: Vec<_> = bodies.collect();
        [&b"{\"events\":["[..], &bodies.join(&b", "[..]), b"]}"].concat()
    }

    /// The storm is over: whatever happens from now on works.
    pub(crate) fn heal(&self) {
        self.sim.set_conflicts(0, 0.0);
        self.subscriber.set_failures(0, 0.0);
        self.truth.set_failures(0, 0.0);
        self.sim.store.chaos.heal();
        self.inbound.chaos.heal();
        self.wake.chaos.heal();
        let paused: Vec<_> = self.registry.tables().sources.keys().cloned().collect();
        paused.iter().for_each(|source| self.resume(source));
        let stream = self.weather.get().stream;
        self.weather.set(Weather { stream, is_calm: true, ..Weather::default() });
    }

    /// An operator pauses a source.
    pub(crate) fn pause(&self, source: &SourceName) {
        self.change(source, |source| source.pause("something is wrong", self.now()));
    }

    /// And resumes it.
    pub(crate) fn resume(&self, source: &SourceName) {
        self.change(source, |source| source.resume(self.now()));
    }

    /// Whether a source is paused.
    pub(crate) fn is_paused(&self, source: &SourceName) -> bool {
        self.registry.tables().sources.get(source).is_some_and(|source| source.paused.is_some())
    }

    fn change(&self, name: &SourceName, change: impl FnOnce(&Source) -> Source) {
        if let Some(source) = self.registry.tables().sources.get_mut(name) {
            *source = change(source);
        }
    }

    /// What time it is.
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_millisecond(self.clock.load(Ordering::Relaxed)).unwrap()
    }

    /// A clock to carry away.
    pub(crate) fn clock(&self) -> impl Fn() -> Timestamp + Sync + '_ {
        let clock = &self.clock;
        move || Timestamp::from_millisecond(clock.load(Ordering::Relaxed)).unwrap()
    }

    /// Time passes.
    pub(crate) fn advance(&self, by: Duration) {
        let by = i64::try_from(by.as_millis()).unwrap();
        self.clock.fetch_add(by, Ordering::Relaxed);
        subscriber::set_now(self.now());
        self.inbound.set_now(self.now());
        self.wake.set_now(self.now());
    }

    /// Whether the process that was polled last has died.
    pub(crate) fn crashed(&self) -> bool {
        self.sim.crashed() | self.inbound.chaos.crashed() | self.wake.chaos.crashed()
    }

    /// A name that no other process has.
    pub(crate) fn name(&self, who: &str) -> String {
        self.born.set(self.born.get() + 1);
        format!("{who}-{}", self.born.get())
    }
}

fn storm(chaos: &Chaos, seed: u64, faults: f64, crashes: f64) {
    let mut rng = StdRng::seed_from_u64(seed);
    chaos.set(move |_, _| {
        if !rng.random_bool(faults) {
            return None;
        }
        let when = if rng.random_bool(0.5) { When::Before } else { When::After };
        let fault = match rng.random_bool(crashes) {
            true => Fault::Crash,
            false if rng.random_bool(0.5) => Fault::Throttled,
            false => Fault::Unavailable,
        };
        Some((when, fault))
    });
}

/// The tenant that is told of everything.
pub(crate) fn tenant() -> TenantId {
    "demo".parse().unwrap()
}

/// The endpoint that wants everything.
pub(crate) fn endpoint() -> EndpointId {
    EndpointId::new(Uuid::from_u128(7))
}

fn configure(store: &Store) {
    let long_ago = Timestamp::UNIX_EPOCH;
    let mirror = Handler::Mirror { emit_to: Some(tenant()), states: None };
    let forward = Handler::Forward { tenant: tenant(), types: vec!["order.*".parse().unwrap()] };
    let mut tables = store.tables();
    let stripe = SchemeChoice::Preset("stripe".to_owned());
    let payments = Handler::Own { name: PAYMENTS.parse().unwrap(), tenant: Some(tenant()) };
    for (name, handler, scheme) in [
        ("mirror", mirror.clone(), stripe.clone()),
        (FAMILY, mirror, stripe.clone()),
        (PAYMENTS, payments, stripe.clone()),
        ("forward", forward.clone(), stripe),
        (BATCHED, forward, SchemeChoice::Own(batched())),
    ] {
        let source = Source::new(name.parse().unwrap(), scheme, handler, long_ago);
        tables.sources.insert(source.name.clone(), source);
    }
    tables.sources.insert(THINGS.parse().unwrap(), things::source());
    let wants_all = |tenant: TenantId| Endpoint {
        lanes: vec![LaneCount { from: long_ago, count: 1 }],
        ..Endpoint::new(
            tenant,
            endpoint(),
            Destination::Https("https://subscriber.example/hooks".to_owned()),
            long_ago,
        )
    };
    for tenant in [tenant(), TenantId::internal()] {
        let endpoint = wants_all(tenant.clone());
        tables.epochs.insert(tenant.clone(), 1);
        tables.endpoints.insert((tenant, endpoint.id), (endpoint, Vec::new()));
    }
}

/// So many bytes that a body leaves its row, and a payload its.
pub(crate) const PADDING: usize = 17_000;

/// Bytes that hardly compress.
static NOISE: LazyLock<String> = LazyLock::new(|| {
    let mut rng = StdRng::seed_from_u64(0);
    (0..PADDING).map(|_| char::from(rng.random_range(b'a'..=b'z'))).collect()
});

/// An event as the provider makes it, with `padding` bytes, at most [`PADDING`].
pub(crate) fn fact(
    source: &str,
    id: &str,
    event_type: &str,
    object: &str,
    version: u64,
    padding: usize,
    nature: Nature,
) -> Fact {
    let padding = NOISE.get(..padding).unwrap();
    let kind = event_type.split('.').next().unwrap();
    let body = json!({
        "id": id,
        "type": event_type,
        "created": version,
        "data": { "object": { "object": kind, "id": object, "is": id, "padding": padding } },
    });
    let object = ObjectRef { kind: kind.to_owned(), id: object.to_owned() };
    Fact {
        key: InboxKey::new(source.parse().unwrap(), id).unwrap(),
        body: body.to_string().into_bytes(),
        object: matches!(source, "mirror" | FAMILY).then_some((object, Version::Number(version))),
        says: None,
        thing: None,
        nature,
    }
}

/// A line is added to an order.
pub(crate) fn line(id: &str, order: &str, nature: Nature) -> Fact {
    let line = format!("li_{id}");
    let body = json!({
        "id": id,
        "type": "line.added",
        "created": 1,
        "data": { "object": { "object": "line", "id": line, "parent": order } },
    });
    let object = ObjectRef { kind: "line".to_owned(), id: line };
    Fact {
        key: InboxKey::new(FAMILY.parse().unwrap(), id).unwrap(),
        body: body.to_string().into_bytes(),
        object: Some((object, Version::Number(1))),
        says: None,
        thing: None,
        nature,
    }
}

/// An order is there.
pub(crate) fn order(id: &str, order: &str) -> Fact {
    fact(FAMILY, id, "order.created", order, 1, 0, Nature::Good)
}

fn facts(rng: &mut StdRng) -> Vec<Fact> {
    let mut facts = Vec::new();
    for object in 0..rng.random_range(1..=3) {
        let mut version = 1;
        for n in 0..rng.random_range(1..=4) {
            // Now and then two changes share a version, as two of one second do.
            version += u64::from(rng.random_bool(0.8));
            let (id, object) = (format!("evt_{object}_{n}"), format!("in_{object}"));
            let padding = if rng.random_bool(0.1) { PADDING } else { 0 };
            facts.push(fact(
                "mirror",
                &id,
                "invoice.updated",
                &object,
                version,
                padding,
                Nature::Good,
            ));
        }
    }
    for n in 0..rng.random_range(0..=3) {
        let padding = if rng.random_bool(0.2) { PADDING } else { 0 };
        let id = format!("evt_f{n}");
        facts.push(fact("forward", &id, "order.paid", "or_1", n, padding, Nature::Good));
    }
    for n in 0..if rng.random_bool(0.5) { rng.random_range(1..=5) } else { 0 } {
        let (id, padding) = (format!("evt_b{n}"), if rng.random_bool(0.2) { PADDING } else { 0 });
        let (event_type, nature) = match rng.random_range(0..10) {
            0 => ("refund.made", Nature::Unwanted),
            1 => ("order.paid", Nature::Killer),
            _ => ("order.paid", Nature::Good),
        };
        facts.push(fact(BATCHED, &id, event_type, "or_2", n, padding, nature));
    }
    if rng.random_bool(0.7) {
        facts.extend(business::facts(rng));
    }
    if rng.random_bool(0.7) {
        for thing in 0..rng.random_range(1..=2) {
            for n in 1..=rng.random_range(1..=4) {
                facts.push(things::changed(
                    &format!("evt_t{thing}_{n}"),
                    &format!("in_t{thing}"),
                    n,
                ));
            }
        }
    }
    if rng.random_bool(0.4) {
        facts.push(fact("forward", "evt_u", "refund.made", "re_1", 1, 0, Nature::Unwanted));
    }
    if rng.random_bool(0.4) {
        facts.push(fact("mirror", "evt_k", "killer.made", "k_1", 1, 0, Nature::Killer));
    }
    if rng.random_bool(0.5) {
        // Now and then it is wrong for longer than an event is tried.
        let longest = if rng.random_bool(0.5) { 600 } else { 20_000 };
        let seconds = rng.random_range(0..longest);
        let nature = Nature::Mistaken(seconds);
        facts.push(fact("mirror", "evt_m", "invoice.updated", "in_0", 2, 0, nature));
    }
    if rng.random_bool(0.5) {
        facts.push(order("evt_o0", "or_3"));
        for n in 0..rng.random_range(1..=3) {
            facts.push(line(&format!("evt_l{n}"), "or_3", Nature::Good));
        }
    }
    if rng.random_bool(0.1) {
        facts.push(line("evt_l9", "or_9", Nature::Parentless));
    }
    if rng.random_bool(0.2) {
        facts.push(fact("gone", "evt_o", "order.paid", "or_1", 1, 0, Nature::Orphan));
    }
    facts
}

/// Most facts are sent at least once, in any order: a late one may be late by an hour. Some are never sent.
fn sends(world: &World, rng: &mut StdRng) -> Vec<Send> {
    let mut sends = Vec::new();
    for fact in 0..world.facts.len() {
        let copies = match rng.random_range(0..10) {
            0 => 0,
            1..=3 => rng.random_range(2..=4),
            _ => 1,
        };
        for _ in 0..copies {
            let late = if rng.random_bool(0.1) { 3600 } else { 20 };
            let at = world.now() + Duration::from_millis(rng.random_range(0..late * 1000));
            sends.push(Send { at, fact, tries: 6 });
        }
    }
    sends
}
