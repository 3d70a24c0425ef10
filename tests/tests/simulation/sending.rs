//! A deployment that sends, in memory: the real api, relay, deliverer and sweeper over tables of their own, and receivers
//! who answer as they are told. Who does what is a [`Step`], and any of its calls can go wrong.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use api::{Api, Edge, Limits, Ports, router};
use bytes::Bytes;
use deliverer::drain::{self, Drain, Prepared, Sender};
use domain::{
    address::AddressPolicy,
    delivery::{Attempt, Delivery, Outcome},
    destination::Reach,
    endpoint::Endpoint,
    id::{EndpointId, EventId},
    lane::LaneId,
    message::{Message as _, WakeMessage},
    ports::{SealedSecret, Stored},
};
use flow::fanout::{EndpointCache, FanOut, Fate, STEP};
use http_body_util::{BodyExt as _, Full};
use jiff::Timestamp;
use runtime::telemetry::Metrics;
use serde_json::{Value, json};
use sweeper::{Sweeper, errands::Errands};
use testkit::{
    chaos::{Chaos, Fault, When},
    memory::{MemoryKeyring, MemoryQueue, MemorySecrets, Store},
};
use tower::ServiceExt as _;
use uuid::Uuid;

use crate::{
    actors::Nobody,
    subscriber::{RULES as DRAIN, now, set_now},
    world::RULES,
};

/// When it all begins, in seconds.
const BEGIN: i64 = 1_800_000_000;

/// How long a pass over a lane may take.
const PASS: Duration = Duration::from_secs(600);

/// Each port has tables of its own.
#[derive(Debug)]
pub(crate) enum InMemory {}

impl Ports for InMemory {
    type Inbox = Store;
    type Outbox = Store;
    type Deliveries = Store;
    type Registry = Store;
    type Queues = MemoryQueue;
    type Wakes = MemoryQueue;
    type Keyring = MemoryKeyring;
    type Secrets = MemorySecrets;
    type Watch = Store;
    type Bodies = Store;
}

thread_local! {
    static MINTED: Cell<u128> = const { Cell::new(0) };
}

/// A time in front, as version 7 has it, and behind it the next number.
fn next_uuid() -> Uuid {
    MINTED.set(MINTED.get() + 1);
    let millis = u128::try_from(now().as_millisecond()).unwrap();
    Uuid::from_u128((millis << 80) | MINTED.get())
}

/// Bytes that are others each time.
fn next_random() -> [u8; 32] {
    let number = next_uuid().as_u128().to_be_bytes();
    std::array::from_fn(|n| number[n % 16] ^ u8::try_from(n).unwrap())
}

/// Something that somebody does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// An event is published under its name as the key.
    Publish(&'static str),
    /// One whose payload goes to the bucket.
    PublishLarge(&'static str),
    /// Three in one call, each under a name of its own.
    PublishMany(&'static str),
    /// A test event for an endpoint.
    Trial(usize),
    /// The relay reads the stream to its end.
    Relay,
    /// The same, one endpoint at a time.
    RelayInSteps,
    /// The deliverer takes a message, if there is one.
    Drain,
    /// The sweeper's schedule.
    Sweep,
    /// An endpoint is added: at a URL, or polled.
    Add(&'static str),
    /// Somebody does this with an endpoint.
    Endpoint(usize, &'static str),
    /// Somebody changes this of it.
    Change(usize, &'static str),
    /// Its secret is rotated.
    Rotate(usize),
    /// Somebody deletes it.
    Delete(usize),
    /// Its owner fetches what is due.
    Poll(usize),
    /// And acknowledges what he has fetched.
    Ack(usize),
    /// And dies before he does.
    Forget,
    /// From now on nobody fetches anything by himself.
    Silence,
    /// The first event is sent again to an endpoint.
    Redeliver(usize),
    /// This selection is sent again.
    RedeliverMany(&'static str),
    /// What was given up is, while the api can only write down that it should be.
    RedeliverLater,
    /// Somebody does this with the redelivery of many.
    Halt(&'static str),
    /// What the receiver of an endpoint answers next; then 204.
    Answers(usize, &'static [u16]),
    /// How many seconds each attempt takes.
    Takes(u64),
    /// Seconds pass.
    Wait(i64),
    /// The wake queue is purged.
    Purge,
}

impl Step {
    /// Whether somebody waits for an answer, and asks again without one.
    pub(crate) fn is_asked(self) -> bool {
        !matches!(self, Self::Relay | Self::RelayInSteps | Self::Drain | Self::Sweep)
    }
}

/// Those who get what goes out.
#[derive(Debug, Default)]
pub(crate) struct Receivers {
    answers: Mutex<BTreeMap<EndpointId, VecDeque<u16>>>,
    takes: AtomicU64,
    pub(crate) received: Mutex<BTreeMap<(EndpointId, EventId), u32>>,
}

impl Receivers {
    /// From now on everybody is well.
    pub(crate) fn recover(&self) {
        self.answers.lock().unwrap().clear();
        self.takes.store(0, Ordering::Relaxed);
    }

    fn got(&self, endpoint: EndpointId, event: EventId) {
        *self.received.lock().unwrap().entry((endpoint, event)).or_default() += 1;
    }
}

impl Sender for Receivers {
    type Target = ();
    type Request = ();

    async fn open(&self, _: Endpoint, _: Vec<SealedSecret>) -> Stored<()> {
        Ok(())
    }

    async fn prepare(&self, (): &(), _: &LaneId, _: &Delivery) -> Stored<Prepared<()>> {
        Ok(Prepared::Ready(()))
    }

    async fn send(&self, lane: &LaneId, delivery: &Delivery, (): ()) -> Attempt {
        let at = now();
        set_now(at + Duration::from_secs(self.takes.load(Ordering::Relaxed)));
        self.got(lane.endpoint, delivery.event);
        let mut answers = self.answers.lock().unwrap();
        let status = answers.entry(lane.endpoint).or_default().pop_front().unwrap_or(204);
        let outcome = Outcome::Answered { status, retry_after_ms: None };
        let number = delivery.attempts + 1;
        Attempt { number, at, duration_ms: 1, outcome, excerpt: String::new() }
    }

    async fn wait(&self, wait: Duration) {
        set_now(now() + wait);
    }
}

/// A deployment, and the world around it.
#[derive(Debug)]
pub(crate) struct Sending {
    pub(crate) api: Arc<Api<InMemory>>,
    cache: EndpointCache,
    pub(crate) receivers: Receivers,
    /// Whether the stream is read. If not, the sweeper does it all.
    pub(crate) has_relay: bool,
    stream: Cell<usize>,
    /// Endpoints in the order in which they were made, and the token of one that is polled.
    pub(crate) made: RefCell<Vec<(EndpointId, Option<String>)>>,
    /// What was fetched and not acknowledged.
    receipts: RefCell<Vec<String>>,
    /// Whether owners of endpoints fetch nothing by themselves.
    pub(crate) is_silent: Cell<bool>,
    born: Cell<u32>,
}

impl Sending {
    /// Nothing has happened yet.
    pub(crate) fn new(has_relay: bool) -> Self {
        MINTED.set(0);
        set_now(Timestamp::from_second(BEGIN).unwrap());
        let queue = || MemoryQueue::new(Duration::from_secs(180), 16);
        let limits = Limits {
            ingress_url: "https://in.example.com".to_owned(),
            addresses: AddressPolicy::default(),
            reach: Reach::new(
                "arn:aws:events:eu-central-1:123456789012:event-bus/postern-ops".parse().unwrap(),
                Vec::new(),
            ),
            endpoints_per_tenant: 50,
            concurrency: 5,
            payload_bytes: 1_000_000,
            first_due: Duration::from_secs(120),
            delivery_deadline: RULES.delivery_deadline,
            poll_visibility: Duration::from_secs(60),
            pending_shards: RULES.pending_shards,
            list_by_source: true,
        };
        let store = || Store::new(RULES.outbox_shards);
        let api = Api {
            inbox: store(),
            outbox: store(),
            deliveries: store(),
            registry: store(),
            inbound: queue(),
            wakes: queue(),
            keyring: MemoryKeyring::default(),
            secrets: MemorySecrets::default(),
            tokens: MemorySecrets::default(),
            watch: store(),
            bodies: store(),
            limits,
            edge: Edge { now, uuid: next_uuid, random: next_random },
        };
        let world = Self {
            api: Arc::new(api),
            cache: EndpointCache::default(),
            receivers: Receivers::default(),
            has_relay,
            stream: Cell::default(),
            made: RefCell::default(),
            receipts: RefCell::default(),
            is_silent: Cell::default(),
            born: Cell::default(),
        };
        world.advance(0);
        world
    }

    /// Everything of which a call can go wrong.
    pub(crate) fn chaos(&self) -> [&Chaos; 7] {
        let api = &self.api;
        let stores = [&api.outbox, &api.deliveries, &api.registry, &api.bodies, &api.watch];
        let [a, b, c, d, e] = stores.map(|store| &store.chaos);
        [a, b, c, d, e, &api.wakes.chaos, &api.keyring.chaos]
    }

    /// From now on every call works, and calls are counted anew.
    pub(crate) fn heal(&self) {
        self.chaos().into_iter().for_each(Chaos::heal);
    }

    pub(crate) fn advance(&self, seconds: i64) {
        set_now(now() + jiff::SignedDuration::from_secs(seconds));
        self.api.wakes.set_now(now());
        self.api.inbound.set_now(now());
    }

    /// One step, until it is done or dies in a call of `chaos`. Who asked asks again if he heard nothing good.
    pub(crate) async fn struck(&self, step: Step, chaos: usize) {
        let done = self.chaos()[chaos].until_crash(self.take(step)).await;
        self.heal();
        if done != Some(true) && step.is_asked() {
            self.take(step).await;
        }
    }

    /// One step. Whether whoever asked heard something good.
    pub(crate) async fn take(&self, step: Step) -> bool {
        match step {
            Step::Publish(name) => self.publish(name, 10).await,
            Step::PublishLarge(name) => self.publish(name, 100_000).await,
            Step::PublishMany(name) => self.publish_many(name).await,
            Step::Trial(n) => self.ask(&format!("{}/test", self.path(n)), None, &[]).await.0,
            Step::Relay => self.relay(STEP).await,
            Step::RelayInSteps => self.relay(1).await,
            Step::Drain => self.drain().await,
            Step::Sweep => self.sweep().await,
            Step::Add(how) => self.add(how).await,
            Step::Endpoint(n, what) => {
                let reason = json!({ "reason": "because" });
                let body = matches!(what, "pause" | "disable").then_some(&reason);
                self.ask(&format!("{}/{what}", self.path(n)), body, &[]).await.0
            }
            Step::Change(n, what) => {
                let change: Value = serde_json::from_str(what).unwrap();
                self.call("PATCH", &self.path(n), Some(&change), &[]).await.0
            }
            Step::Rotate(n) => {
                let path = format!("{}/secrets/rotate", self.path(n));
                self.ask(&path, Some(&json!({ "overlap_ms": 3_600_000 })), &[]).await.0
            }
            Step::Delete(n) => self.call("DELETE", &self.path(n), None, &[]).await.0,
            Step::Poll(n) => self.poll(n).await,
            Step::Ack(n) => self.ack(n).await,
            Step::Forget => {
                self.receipts.borrow_mut().clear();
                true
            }
            Step::Silence => {
                self.is_silent.set(true);
                true
            }
            Step::Redeliver(n) => {
                let id = self.api.outbox.tables().outbox.keys().next().unwrap().1;
                let to = self.made.borrow()[n].0;
                let path = format!(
                    "/v1/tenants/acme/events/{id}/endpoints/{to}/redeliver?include_delivered=true"
                );
                self.ask(&path, None, &[]).await.0
            }
            Step::RedeliverMany(select) => {
                let select: Value = serde_json::from_str(select).unwrap();
                let body = json!({ "select": select, "rate": 100, "reason": "it is mended" });
                let key = [("idempotency-key", "again")];
                self.ask("/v1/tenants/acme/redeliveries", Some(&body), &key).await.0
            }
            Step::RedeliverLater => {
                let chaos = &self.api.deliveries.chaos;
                chaos.on("redeliver.log", When::Before, Fault::Unavailable);
                let body = json!({ "rate": 100, "reason": "it is mended" });
                let begun = self.ask("/v1/tenants/acme/redeliveries", Some(&body), &[]).await.0;
                chaos.heal();
                begun
            }
            Step::Halt(what) => {
                let id = *self.api.registry.tables().redeliveries.keys().next().unwrap();
                self.ask(&format!("/v1/tenants/acme/redeliveries/{id}/{what}"), None, &[]).await.0
            }
            Step::Answers(n, answers) => {
                let endpoint = self.made.borrow()[n].0;
                let mut all = self.receivers.answers.lock().unwrap();
                all.entry(endpoint).or_default().extend(answers);
                true
            }
            Step::Takes(seconds) => {
                self.receivers.takes.store(seconds, Ordering::Relaxed);
                true
            }
            Step::Wait(seconds) => {
                self.advance(seconds);
                true
            }
            Step::Purge => {
                self.api.wakes.purge();
                true
            }
        }
    }

    async fn publish(&self, name: &str, bytes: usize) -> bool {
        // So that it does not compress.
        let noise: String = (0..bytes as u64)
            .map(|n| char::from(b'a' + (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 59) as u8 % 26))
            .collect();
        let event = json!({
            "tenant": "acme", "type": "order.paid", "aggregate_id": name, "payload": { "is": noise },
        });
        self.ask("/v1/events", Some(&event), &[("idempotency-key", name)]).await.0
    }

    /// An event under a name that a storm has made up.
    pub(crate) async fn publish_as(&self, name: &str) -> bool {
        self.publish(name, 10).await
    }

    /// Whoever publishes many asks again until each of them is there.
    async fn publish_many(&self, name: &str) -> bool {
        let event = |n: usize| {
            let key = format!("{name}{n}");
            json!({
                "tenant": "acme", "type": "order.paid", "aggregate_id": key, "payload": {}, "idempotency_key": key,
            })
        };
        let many = json!({ "events": [event(0), event(1), event(2)] });
        let (is_good, answer) = self.ask("/v1/events", Some(&many), &[]).await;
        let results = answer["results"].as_array().into_iter().flatten();
        is_good && results.filter(|result| result["id"].is_string()).count() == 3
    }

    async fn add(&self, how: &str) -> bool {
        let wanted = match how {
            "poll" => json!({ "poll": true }),
            how => json!({ "url": format!("https://{how}.example.com/hooks") }),
        };
        let (is_good, made) = self.ask("/v1/tenants/acme/endpoints", Some(&wanted), &[]).await;
        if let Some(id) = made["id"].as_str() {
            let token = made["token"].as_str().map(str::to_owned);
            self.made.borrow_mut().push((id.parse().unwrap(), token));
        }
        is_good
    }

    pub(crate) async fn poll(&self, n: usize) -> bool {
        let (endpoint, token) = self.made.borrow()[n].clone();
        let bearer = format!("Bearer {}", token.unwrap());
        let path = format!("/poll/acme/{endpoint}");
        let headers = [("authorization", bearer.as_str())];
        let (is_good, answer) = self.ask(&path, Some(&json!({})), &headers).await;
        for one in answer["deliveries"].as_array().into_iter().flatten() {
            self.receivers.got(endpoint, one["event"].as_str().unwrap().parse().unwrap());
            self.receipts.borrow_mut().push(one["receipt"].as_str().unwrap().to_owned());
        }
        is_good
    }

    pub(crate) async fn ack(&self, n: usize) -> bool {
        let (endpoint, token) = self.made.borrow()[n].clone();
        let bearer = format!("Bearer {}", token.unwrap());
        let path = format!("/poll/acme/{endpoint}/ack");
        let receipts = self.receipts.borrow().clone();
        if receipts.is_empty() {
            return true;
        }
        let headers = [("authorization", bearer.as_str())];
        let acked = self.ask(&path, Some(&json!({ "receipts": receipts })), &headers).await.0;
        if acked {
            self.receipts.borrow_mut().clear();
        }
        acked
    }

    fn path(&self, n: usize) -> String {
        format!("/v1/tenants/acme/endpoints/{}", self.made.borrow()[n].0)
    }

    async fn ask(
        &self,
        path: &str,
        body: Option<&Value>,
        headers: &[(&str, &str)],
    ) -> (bool, Value) {
        self.call("POST", path, body, headers).await
    }

    async fn call(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
        headers: &[(&str, &str)],
    ) -> (bool, Value) {
        let mut request = http::Request::builder().method(method).uri(path);
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = request.body(Full::<Bytes>::from(body)).unwrap();
        let response = router(Arc::clone(&self.api)).oneshot(request).await.unwrap();
        let is_good = response.status().is_success();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (is_good, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    async fn relay(&self, step: usize) -> bool {
        let from = self.stream.get();
        let events: Vec<_> = self.api.outbox.tables().stream.iter().skip(from).cloned().collect();
        let (api, lanes) = (&self.api, &self.api.deliveries);
        let fan_out = FanOut {
            lanes,
            outbox: &api.outbox,
            registry: &api.registry,
            queue: &api.wakes,
            bodies: &api.bodies,
            cache: &self.cache,
            deadline: RULES.delivery_deadline,
            step,
            now,
        };
        let fates = fan_out.run(&events, Timestamp::MAX).await;
        let is_down = fates.iter().any(|fate| matches!(fate, Fate::Down(_)));
        if !is_down {
            self.stream.set(from + events.len());
        }
        !is_down
    }

    async fn drain(&self) -> bool {
        let Some(got) = self.api.wakes.receive(|_| 0) else { return true };
        let WakeMessage(lane) = WakeMessage::from_text(&got.text).unwrap();
        let (api, owner) = (&self.api, self.name());
        let drain = Drain {
            lanes: &api.deliveries,
            registry: &api.registry,
            queue: &api.wakes,
            sender: &self.receivers,
            notices: &api.deliveries,
            metrics: &Metrics::new("simulation"),
            rules: &DRAIN,
            edge: drain::Edge { now, jitter: || 0.5 },
        };
        let drained = drain.lane(&lane, &owner, now() + PASS).await.is_ok();
        if drained {
            api.wakes.delete(&got.receipt);
        }
        drained
    }

    async fn sweep(&self) -> bool {
        let api = &self.api;
        let sweeper = Sweeper {
            inbox: &api.inbox,
            state: &api.watch,
            outbox: &api.outbox,
            lanes: &api.deliveries,
            registry: &api.registry,
            inbound: &api.inbound,
            wake: &api.wakes,
            errands: Errands { secrets: &MemorySecrets::default(), provider: &Nobody },
            bodies: &api.bodies,
            cache: &self.cache,
            rules: RULES,
            metrics: &Metrics::new("simulation"),
            now,
        };
        sweeper.sweep(&self.name()).await.is_ok()
    }

    fn name(&self) -> String {
        self.born.set(self.born.get() + 1);
        format!("process-{}", self.born.get())
    }
}
