//! Who does something: each looks at the world and may start a process in it, which may die at any of its calls.

use std::{pin::Pin, task::Poll, time::Duration};

use domain::{
    bulk::{Kind, MAX_OPEN, Order, RATE, Selection, Work},
    event::{ObjectRef, Version},
    id::{InboxKey, ReplayId, SourceName},
    inbox::{COUNT_FIRST_FROM, Noted, Status},
    message::InboundMessage,
    plan::{Change, Emit, Plan},
    ports::{Bulk as _, Inbox as _, Queue as _, Stored},
    source::{Handler, SchemeChoice, Source},
};
use flow::{
    accept::Door,
    bulk::{Bulks, Step},
    fanout::{FanOut, Fate, STEP},
    incoming::{Fetched, Incoming},
};
use futures_util::future::{FutureExt as _, LocalBoxFuture, join_all};
use http::HeaderMap;
use jiff::Timestamp;
use rand::{RngExt as _, rngs::StdRng};
use serde_json::{Value, json};
use signing::{Request, lookup::Call, sign::Outgoing};
use sweeper::{
    Sweeper,
    errands::Errands,
    provider::{Answered, NoAnswer, Provider},
};
use testkit::{
    LIMITS,
    memory::{MemoryQueue, MemorySecrets, Store},
};
use uuid::Uuid;
use worker::{
    Received, Worker,
    handlers::{Current, Event, Handlers, SHIPPED},
};

use crate::{
    ports::Broken,
    subscriber,
    things::THINGS,
    world::{BATCHED, FAMILY, RULES, SIGNING, Send, World, tenant},
};

/// When the sweeper looks for an event that no message has brought to the worker.
const FIRST_DUE: Duration = Duration::from_secs(120);

/// How long a line waits for its order before it looks again.
const LINE_WAITS: Duration = Duration::from_secs(900);

/// Something that runs until it is done, or dies.
pub(crate) struct Process<'w> {
    /// Whose it is.
    pub(crate) who: &'static str,
    /// What it does.
    pub(crate) work: LocalBoxFuture<'w, ()>,
}

/// Somebody who may start a process. `None`: there is nothing to do.
pub(crate) type Actor = for<'w> fn(&'w World, &mut StdRng) -> Option<Process<'w>>;

/// Everybody who takes part, and how often they are asked, against the others.
pub(crate) const ACTORS: &[(&str, u32, Actor)] = &[
    ("provider", 8, provider),
    ("worker", 8, worker),
    ("relay", 3, relay),
    ("deliverer", 4, subscriber::deliverer),
    ("sweeper", 1, sweeper),
    ("reconciler", 1, reconciler),
    ("person", 1, person),
    ("operator", 1, operator),
    ("replayer", 1, replayer),
    ("advancer", 2, advancer),
];

pub(crate) fn process<'w>(
    who: &'static str,
    work: impl Future<Output = ()> + 'w,
) -> Option<Process<'w>> {
    Some(Process { who, work: work.boxed_local() })
}

/// The provider sends what is due, and ingress accepts it. No answer, or another than 2xx, is a reason to try again.
pub(crate) fn provider<'w>(world: &'w World, rng: &mut StdRng) -> Option<Process<'w>> {
    let now = world.now();
    let mut sends = world.sends.borrow_mut();
    let due: Vec<usize> = (0..sends.len()).filter(|n| sends[*n].at <= now).collect();
    let send = sends.swap_remove(*due.get(rng.random_range(0..due.len().max(1)))?);
    // The next try stands before this one begins, and falls when this one is answered.
    let wait = Duration::from_millis(rng.random_range(1000..60_000));
    let next = (send.tries > 0).then(|| Send { at: now + wait, tries: send.tries - 1, ..send });
    sends.extend(next);
    drop(sends);
    process("ingress", async move {
        if accept(world, send.fact).await {
            world.accepted.borrow_mut().extend(world.sent_with(send.fact));
            let mut sends = world.sends.borrow_mut();
            if let Some(place) = next.and_then(|next| sends.iter().position(|send| *send == next)) {
                sends.swap_remove(place);
            }
        }
    })
}

/// One request of the provider, from its signature to the answer. Whether the answer is 2xx.
pub(crate) async fn accept(world: &World, fact: usize) -> bool {
    let (signing, now, body) = (&*SIGNING, world.now(), world.request(fact));
    world.truth.change(&world.facts[fact]);
    let source: SourceName = world.facts[fact].key.source().clone();
    let url = format!("https://hooks.example/webhooks/{source}");
    let outgoing = Outgoing {
        method: "POST",
        url: &url,
        headers: HeaderMap::new(),
        id: None,
        event_type: None,
        body: &body,
    };
    let headers = signing::sign::sign_as(&signing.scheme, &signing.signs, &outgoing, now).unwrap();
    let request =
        Request { method: "POST", url: &url, headers: &headers, body: &body, path_secret: None };
    let verified = signing::verify(&signing.scheme, &signing.verifies, &request, now).unwrap();
    let scheme = match source.as_str() {
        BATCHED => &signing.batched,
        THINGS => &signing.versionless,
        _ => &signing.scheme,
    };
    let handler = Handler::Mirror { emit_to: None, states: None };
    let source = Source::new(source, SchemeChoice::Preset("stripe".to_owned()), handler, now);
    let incoming = Incoming::verified(&source, verified, &headers).under(scheme, &request, now);
    let accepted = door(world).accept(incoming, world.name("token"), now).await;
    accepted.is_ok() || world.sim.broken == Some(Broken::AnswersBeforeStoring)
}

fn door(world: &World) -> Door<'_, Store, MemoryQueue, Store> {
    let store = &world.sim.store;
    Door { inbox: store, queue: &world.inbound, bodies: store, first_due: FIRST_DUE }
}

/// The provider's list of what happened is read, and ingress accepts what is on it: what never came, and what did.
pub(crate) fn reconciler<'w>(world: &'w World, rng: &mut StdRng) -> Option<Process<'w>> {
    if world.sim.broken == Some(Broken::NoReconciler) {
        return None;
    }
    let accepted = world.accepted.borrow();
    let absent: Vec<usize> = (0..world.facts.len()).filter(|n| !accepted.contains(n)).collect();
    drop(accepted);
    // In a storm it also reads again what is known: its windows overlap.
    let is_calm = world.weather.get().is_calm;
    let listed = if is_calm { absent } else { (0..world.facts.len()).collect() };
    let fact = *listed.get(rng.random_range(0..listed.len().max(1)))?;
    process("reconciler", async move {
        if fetch(world, fact).await {
            world.accepted.borrow_mut().insert(fact);
        }
    })
}

/// An event of the provider's list, accepted as ingress accepts one. Whether it is in the table.
pub(crate) async fn fetch(world: &World, fact: usize) -> bool {
    let (now, body, headers) = (world.now(), world.facts[fact].body.as_slice(), HeaderMap::new());
    world.truth.change(&world.facts[fact]);
    let request = Request { method: "GET", url: "/", headers: &headers, body, path_secret: None };
    let source = world.facts[fact].key.source().clone();
    let is_thing = source.as_str() == THINGS;
    let scheme = if is_thing { &SIGNING.versionless } else { &SIGNING.scheme };
    let identity = signing::identify(scheme, &request, now);
    let incoming = Incoming::fetched(source, Fetched { body, identity });
    door(world).accept(incoming, world.name("token"), now).await.is_ok()
}

/// Lambda takes a few messages, and runs the worker on them.
pub(crate) fn worker<'w>(world: &'w World, rng: &mut StdRng) -> Option<Process<'w>> {
    let weather = world.weather.get();
    let mut batch = Vec::new();
    for _ in 0..rng.random_range(1..=4) {
        let Some(got) = world.inbound.receive(|visible| rng.random_range(0..visible.max(1))) else {
            break;
        };
        let is_told = world.sim.broken != Some(Broken::CountsLate);
        batch.push(Handed {
            message: Received {
                receipt: got.receipt,
                text: got.text,
                receives: if is_told { got.receives } else { 1 },
                sent_at: got.sent_at,
            },
            jitter: rng.random(),
            polls: rng.random_bool(weather.timeouts).then(|| rng.random_range(0..12)),
            is_ack_lost: rng.random_bool(weather.lost_acks),
        });
    }
    if batch.is_empty() {
        return None;
    }
    process("worker", handle(world, batch))
}

/// A message in the hands of a worker, and what luck it will have.
#[derive(Clone, Debug)]
pub(crate) struct Handed {
    /// The message.
    pub(crate) message: Received,
    /// The jitter of its waits.
    pub(crate) jitter: f64,
    /// How many polls until its time is over.
    pub(crate) polls: Option<u32>,
    /// Whether its acknowledgement will be lost.
    pub(crate) is_ack_lost: bool,
}

/// Runs the worker on messages as its own batch does: those that were received often come last, alone.
pub(crate) async fn handle(world: &World, batch: Vec<Handed>) {
    let store = &world.sim.store;
    let worker = &Worker {
        inbox: store,
        state: &world.sim,
        sources: &world.sources,
        bodies: store,
        queue: &world.inbound,
        limits: LIMITS,
        payload_max: 1_000_000,
        handlers: HANDLERS,
        metrics: &world.metrics,
        now: world.clock(),
    };
    let one = |handed: Handed| async move {
        let outcome = worker.handle(&handed.message, handed.jitter, deadline(handed.polls)).await;
        (outcome.is_settled() && !handed.is_ack_lost).then_some(handed.message.receipt)
    };
    let (alone, together): (Vec<_>, Vec<_>) =
        batch.into_iter().partition(|handed| handed.message.receives >= COUNT_FIRST_FROM);
    let mut settled = join_all(together.into_iter().map(&one)).await;
    for handed in alone {
        settled.push(one(handed).await);
    }
    // Lambda deletes what did not fail once the whole batch is answered.
    for receipt in settled.into_iter().flatten() {
        world.inbound.delete(&receipt);
    }
}

/// The shipped handlers, and what this suite has of its own.
const HANDLERS: Handlers = Handlers { reads, plan };

/// A line of an order is nothing without its order.
fn reads(handler: &Handler, event: &Event<'_>) -> Vec<ObjectRef> {
    match order_of(event) {
        _ if is_parcel(event) => vec![customer()],
        Some(order) => vec![order],
        None => (SHIPPED.reads)(handler, event),
    }
}

fn is_parcel(event: &Event<'_>) -> bool {
    event.source() == FAMILY && event.event_type() == Some("parcel.sent")
}

/// The order that a line belongs to.
fn order_of(event: &Event<'_>) -> Option<ObjectRef> {
    if event.source() != FAMILY || event.event_type() != Some("line.added") {
        return None;
    }
    let body: Value = serde_json::from_slice(event.body).ok()?;
    let id = body.pointer("/data/object/parent")?.as_str()?.to_owned();
    Some(ObjectRef { kind: "order".to_owned(), id })
}

/// A parcel is sent once more, and what goes out says to which version of its customer.
fn send_parcel(event: &Event<'_>, current: &Current) -> Plan {
    let Some(parcel) = event.row.object.clone() else { return Plan::reject("no parcel") };
    let sent = current.object().map_or(0, |was| was.fields["sent"].as_u64().unwrap_or_default());
    let to = current.of(&customer()).and_then(|customer| customer.version.as_number());
    let told = json!({ "sent": sent + 1, "to": to });
    let emit = Emit::new(tenant(), "parcel.sent", &parcel.id, told.to_string());
    let change = Change::unchanged(parcel, current.object(), Version::Number(sent + 1), told);
    Plan::change(change.then_emit(emit.aggregate_version(sent + 1)))
}

/// The one customer of the family.
fn customer() -> ObjectRef {
    ObjectRef { kind: "customer".to_owned(), id: "cu_1".to_owned() }
}

/// The shipped handlers; a line waits for its order; and each object that is mirrored is credited once, whichever event comes
/// first.
fn plan(handler: &Handler, event: &Event<'_>, current: &Current) -> Plan {
    if order_of(event).is_some_and(|order| current.of(&order).is_none()) {
        return Plan::requeue(LINE_WAITS, "the order of this line is not there yet");
    }
    if is_parcel(event) {
        return send_parcel(event, current);
    }
    match ((SHIPPED.plan)(handler, event, current), event.source(), &event.row.object) {
        (plan @ Plan::Apply(_), "mirror", Some(object)) => {
            let operation = format!("credit {}", object.id).parse().unwrap();
            let given = Emit::new(tenant(), "credit.given", &object.id, credit(object));
            plan.and(Change::once(operation).then_emit(given.name("credit")))
        }
        (plan, ..) => plan,
    }
}

/// What subscribers get of an object's credit.
pub(crate) fn credit(object: &ObjectRef) -> Vec<u8> {
    credit_of(&object.id)
}

/// The same, by the object's id.
pub(crate) fn credit_of(id: &str) -> Vec<u8> {
    format!(r#"{{"credit":"{id}"}}"#).into_bytes()
}

/// A deadline that is over after so many polls.
async fn deadline(polls: Option<u32>) {
    let Some(mut left) = polls else { return std::future::pending().await };
    std::future::poll_fn(|_| {
        if left == 0 {
            return Poll::Ready(());
        }
        left -= 1;
        Poll::Pending
    })
    .await;
}

/// The relay reads the stream on from where it stands; what it could not do holds it up, or is left to the sweeper.
pub(crate) fn relay<'w>(world: &'w World, rng: &mut StdRng) -> Option<Process<'w>> {
    let from = world.stream.get();
    let stream = &world.sim.store.tables().stream;
    let events: Vec<_> = stream.iter().skip(from).take(rng.random_range(1..=5)).cloned().collect();
    if events.is_empty() || !world.weather.get().stream {
        return None;
    }
    process("relay", async move {
        let fates = fan_out(world).run(&events, Timestamp::MAX).await;
        let is_down = fates.iter().any(|fate| matches!(fate, Fate::Down(_)));
        // The stream has one reader, but a slow one of an earlier sandbox may end after a later one.
        if !is_down && world.stream.get() == from {
            world.stream.set(from + events.len());
        }
    })
}

fn fan_out(
    world: &World,
) -> FanOut<'_, Store, Store, Store, MemoryQueue, Store, impl Fn() -> Timestamp + Sync> {
    let store = &world.sim.store;
    FanOut {
        lanes: store,
        outbox: store,
        registry: store,
        queue: &world.wake,
        bodies: store,
        cache: &world.cache,
        deadline: RULES.delivery_deadline,
        step: STEP,
        now: world.clock(),
    }
}

/// The schedule runs the sweeper, now and then twice at once.
pub(crate) fn sweeper<'w>(world: &'w World, _: &mut StdRng) -> Option<Process<'w>> {
    if world.sim.broken == Some(Broken::NoSweeper) {
        return None;
    }
    process("sweeper", async move {
        // What a broken sweep did not do, the next one does.
        let _ = sweep(world).await;
    })
}

/// A provider that never answers; in this world no key is fetched.
pub(crate) struct Nobody;

impl Provider for Nobody {
    async fn call(&self, _: &Call) -> Result<Answered, NoAnswer> {
        Err(NoAnswer::Late)
    }
}

/// One sweep.
pub(crate) async fn sweep(world: &World) -> Result<sweeper::Swept, sweeper::SweepFailed> {
    let store = &world.sim.store;
    let sweeper = Sweeper {
        inbox: store,
        state: store,
        outbox: store,
        lanes: store,
        registry: store,
        inbound: &world.inbound,
        wake: &world.wake,
        errands: Errands { secrets: &MemorySecrets::default(), provider: &Nobody },
        bodies: store,
        cache: &world.cache,
        rules: RULES,
        metrics: &world.metrics,
        now: world.clock(),
    };
    sweeper.sweep(&world.name("sweep")).await
}

/// Somebody replays a finished event, or redrives the dead-letter queue, though nobody asked for it.
pub(crate) fn person<'w>(world: &'w World, rng: &mut StdRng) -> Option<Process<'w>> {
    if !rng.random_bool(0.1) {
        return None;
    }
    if rng.random_bool(0.5) {
        world.inbound.redrive();
        return None;
    }
    let tables = world.sim.store.tables();
    let finished = tables.inbox.values().filter(|item| item.row.status == Status::Processed);
    let finished: Vec<_> = finished.map(|item| item.row.new.key.clone()).collect();
    let key = finished.get(rng.random_range(0..finished.len().max(1)))?.clone();
    process("person", replay(world, key))
}

/// An operator has an event handled again.
pub(crate) async fn replay(world: &World, key: InboxKey) {
    let (store, now) = (&world.sim.store, world.now());
    if let Ok(Noted::Yes) = store.replay(&key, now + FIRST_DUE, now).await {
        world.inbound.send(&[InboundMessage(key)], Duration::ZERO).await;
    }
}

/// Somebody pauses a source, or resumes it; what waits is sent by bulk work, unless he is called away before he asks for it.
pub(crate) fn operator<'w>(world: &'w World, rng: &mut StdRng) -> Option<Process<'w>> {
    if !rng.random_bool(0.3) {
        return None;
    }
    let names: Vec<_> = world.registry.tables().sources.keys().cloned().collect();
    let source = names[rng.random_range(0..names.len())].clone();
    if !world.is_paused(&source) {
        world.pause(&source);
        return None;
    }
    world.resume(&source);
    if rng.random_bool(0.3) {
        return None;
    }
    let selection = Selection::default().or_default(Kind::Resume);
    process("operator", begin(world, source, Kind::Resume, selection, rng.random()))
}

/// Somebody has many events run again: those of a source that are parked, and perhaps those that are done.
pub(crate) fn replayer<'w>(world: &'w World, rng: &mut StdRng) -> Option<Process<'w>> {
    if !rng.random_bool(0.2) {
        return None;
    }
    let names: Vec<_> = world.registry.tables().sources.keys().cloned().collect();
    let source = names[rng.random_range(0..names.len())].clone();
    let statuses = [Status::DeadLetter, Status::Ignored, Status::Processed];
    let status = statuses.into_iter().filter(|_| rng.random_bool(0.5)).collect();
    let selection = Selection { status, ..Selection::default() }.or_default(Kind::Replay);
    process("replayer", begin(world, source, Kind::Replay, selection, rng.random()))
}

/// Begins bulk work.
pub(crate) async fn begin(
    world: &World,
    source: SourceName,
    kind: Kind,
    selection: Selection,
    id: u128,
) {
    let order = Order {
        id: ReplayId::new(Uuid::from_u128(id)),
        kind,
        source,
        selection,
        rate: RATE,
        reason: "because".to_owned(),
        actor: "an operator".to_owned(),
    };
    // Whether it is there already, or too many are: nothing is lost.
    let _ = world.sim.store.start(&Work::new(order, world.now()), MAX_OPEN).await;
}

/// Bulk work that is under way is advanced by a page, by whoever comes by; also by two at once.
pub(crate) fn advancer<'w>(world: &'w World, rng: &mut StdRng) -> Option<Process<'w>> {
    let open: Vec<_> = world.sim.store.tables().open_bulks.iter().copied().collect();
    let id = *open.get(rng.random_range(0..open.len().max(1)))?;
    process("advancer", async move {
        // What could not be done the next one does.
        let _ = advance(world, id).await;
    })
}

/// One page of bulk work.
pub(crate) async fn advance(world: &World, id: ReplayId) -> Stored<Option<Step>> {
    let store = &world.sim.store;
    let Some(work) = store.bulk(id).await? else { return Ok(None) };
    let bulks = Bulks {
        inbox: store,
        bulk: store,
        queue: &world.inbound,
        shards: store.shards,
        first_due: FIRST_DUE,
    };
    Ok(Some(bulks.step(&work, world.now()).await?))
}

/// Something happens to the queue that no process did.
pub(crate) fn mischief(world: &World, rng: &mut StdRng) {
    if rng.random_bool(0.8) {
        world.inbound.duplicate(|messages| rng.random_range(0..messages.max(1)));
    } else {
        world.inbound.purge();
    }
}

/// Polls a process once. `true`: it is over, done or dead.
pub(crate) fn poll(world: &World, process: &mut Process<'_>) -> bool {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let is_done = Pin::new(&mut process.work).poll(&mut context).is_ready();
    // Whoever was polled is the one who died.
    world.crashed() || is_done
}
