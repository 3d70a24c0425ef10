//! The deliverer in a process of its own, with tables in memory.

use std::{
    collections::BTreeMap,
    fs, io,
    net::IpAddr,
    path::Path,
    time::{Duration, Instant},
};

use aws_lambda_events::sqs::{SqsEvent, SqsMessage};
use bytes::Bytes;
use deliverer::{
    Deliverer, Dialler, Edge, Keys,
    drain::Rules,
    transport::{Answered, Bounds, Entry, Failed, Message, Post, Targets, Transport as _},
};
use domain::{
    address::{AddressPolicy, EndpointUrl},
    breaker::Limits,
    delivery::{Delivery, NewDelivery, Schedule, State},
    destination::{BusArn, Destination, QueueUrl},
    endpoint::{Endpoint, HealthLimits, Notice},
    id::EventId,
    lane::LaneId,
    message::{Message as _, WakeMessage},
    outbox::{OutboxEvent, OutboxRow, Payload},
    ports::{Fanout as _, Keyring as _, Notices, Purpose, SealedSecret, Stored},
    retry::Backoff,
    secret::SecretText,
};
use egress::{resolve::Resolve, tls};
use futures_util::future::join_all;
use http::{HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;
use runtime::{env::Base, telemetry};
use serde::{Deserialize, Serialize};
use signing::EndpointSecret;
use testkit::memory::{MemoryKeyring, MemoryQueue, Store};

use crate::{Size, raw};

/// Deliveries under way at once where the rate is measured: an endpoint's share by default.
pub(crate) const WIDTH: usize = 5;

/// Deliveries before the first is measured.
pub(crate) const WARM: usize = 1;

/// Bytes of a payload.
const PAYLOAD: usize = 1_000;

/// Deliveries per second of the sending thread's processor time, and connections that were opened for them.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Rates {
    pub(crate) raw: f64,
    pub(crate) client: f64,
    pub(crate) deliverer: f64,
    pub(crate) connections: u64,
}

/// The memory of a process, in KiB, as the system counts resident pages.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Held {
    pub(crate) before_kib: u64,
    pub(crate) peak_kib: u64,
}

pub(crate) type Sender =
    Deliverer<Store, Store, Store, MemoryKeyring, Store, MemoryQueue, NoNames, NoTargets>;

/// Every host here is an address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoNames;

impl Resolve for NoNames {
    type Error = io::Error;

    async fn addresses(&self, _: &str) -> io::Result<Vec<IpAddr>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Every endpoint here is a URL.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoTargets;

impl Targets for NoTargets {
    async fn message(&self, _: Message) -> Result<Answered, Failed> {
        unreachable!("no endpoint is a queue")
    }

    async fn put(&self, _: Entry) -> Result<Answered, Failed> {
        unreachable!("no endpoint is a bus")
    }

    fn is_own(&self, _: &QueueUrl) -> bool {
        unreachable!("no endpoint is a queue")
    }

    async fn is_missing(&self, _: &BusArn) -> bool {
        unreachable!("no endpoint is a bus")
    }
}

/// Nobody has to hear of anything here.
impl Notices for NoTargets {
    async fn tell(&self, endpoint: &Endpoint, notice: &Notice) -> Stored<()> {
        unreachable!("nobody has to hear of {}: {notice:?}", endpoint.id)
    }
}

/// A deliverer as the template sets it up, but for where it may go.
pub(crate) fn sender(folder: &Path) -> Sender {
    patient(folder, 1)
}

/// One that waits so many times as long for endpoints.
fn patient(folder: &Path, patience: u32) -> Sender {
    let (second, day) = (Duration::from_secs(1), Duration::from_hours(24));
    let base = Base { env_name: "bench".to_owned(), log_level: "INFO".parse().unwrap() };
    telemetry::init(&base);
    let tls = tls::config(Some(&folder.join("subscribers.pem"))).unwrap();
    let bounds = Bounds {
        policy: AddressPolicy::THIS_MACHINE,
        connect: 5 * second * patience,
        attempt: 20 * second * patience,
        read: 64 * 1024,
        kept: 4096,
    };
    Deliverer {
        lanes: Store::new(8),
        outbox: Store::new(1),
        registry: Store::new(1),
        keys: Keys::new(MemoryKeyring::default()),
        bodies: Store::new(1),
        queue: MemoryQueue::new(120 * second, 9),
        dialler: Dialler::new(NoNames, tls, bounds),
        targets: NoTargets,
        rules: Rules {
            lease: 60 * second,
            schedule: Schedule {
                backoff: Backoff { floor: second, base: 30 * second, cap: day / 2 },
                retry_after_cap: day,
            },
            breaker: Limits {
                opens_after: 10,
                probe: 60 * second,
                probe_cap: 900 * second,
                retry_after_cap: day,
            },
            tried_for: 4 * day,
            health: HealthLimits { disable_after: 5 * day },
            hold: 14 * day,
            concurrency: 5,
        },
        pass: 20 * second,
        width: 10,
        metrics: telemetry::Metrics::new("bench"),
        #[expect(clippy::disallowed_methods, reason = "the edge reads the clock")]
        edge: Edge { now: Timestamp::now, jitter: || 0.5 },
    }
}

/// An endpoint at this port, without deliveries. Its lane.
pub(crate) async fn subscribe(sender: &Sender, n: u128, port: u16, width: usize) -> LaneId {
    let mut endpoint = Endpoint::new(
        "acme".parse().unwrap(),
        format!("ep_{n:032x}").parse().unwrap(),
        Destination::Https(format!("https://127.0.0.1:{port}/hook")),
        Timestamp::UNIX_EPOCH,
    );
    endpoint.concurrency = Some(u32::try_from(width).unwrap());
    let secret = EndpointSecret::shared(std::array::from_fn(|i| u8::try_from(i * 7).unwrap()));
    let text = SecretText::new(secret.expose().expose().to_owned());
    let sealed = sender.keys.keyring().seal(&endpoint.tenant, endpoint.id, &text).await.unwrap();
    let sealed =
        SealedSecret { id: "key".to_owned(), purpose: Purpose::Signing, sealed, expires_at: None };
    let lane = LaneId { tenant: endpoint.tenant.clone(), endpoint: endpoint.id, lane: 0 };
    let key = (endpoint.tenant.clone(), endpoint.id);
    sender.registry.tables().endpoints.insert(key, (endpoint, vec![sealed]));
    lane
}

/// Makes a delivery of a new event due in a lane, as the relay does.
pub(crate) async fn publish(sender: &Sender, lane: &LaneId, n: usize) -> EventId {
    let now = (sender.edge.now)();
    let id = EventId::derived(now, &[&lane.to_string(), &n.to_string()]);
    let event = OutboxEvent {
        id,
        tenant: lane.tenant.clone(),
        event_type: "invoice.paid".to_owned(),
        schema_version: 1,
        aggregate_id: n.to_string(),
        aggregate_version: None,
        payload: Payload::Inline(payload(n)),
        occurred_at: now,
        traceparent: None,
        labels: BTreeMap::new(),
    };
    let deadline = now + Duration::from_hours(96);
    let delivery = Delivery::new(id, event.event_type.clone(), deadline, now);
    let key = (event.tenant.clone(), id);
    sender.outbox.tables().outbox.insert(key, OutboxRow { event, relayed: None });
    let new = NewDelivery { lane: lane.clone(), delivery };
    sender.lanes.put(&new).await.unwrap();
    sender.lanes.wake(lane, now).await.unwrap();
    id
}

fn payload(n: usize) -> Vec<u8> {
    format!(r#"{{"number":{n},"padding":"{:0>PAYLOAD$}"}}"#, "").into_bytes()
}

/// Handles wake messages for lanes, as one invocation does.
pub(crate) async fn invoke(sender: &Sender, request: &str, texts: &[String]) {
    let message = |(n, text): (usize, &String)| {
        let mut message = SqsMessage::default();
        message.message_id = Some(format!("message-{n}"));
        message.body = Some(text.clone());
        message
    };
    let mut batch = SqsEvent::default();
    batch.records = texts.iter().enumerate().map(message).collect();
    let ends = (sender.edge.now)() + Duration::from_secs(600);
    let ends = u64::try_from(ends.as_millisecond()).unwrap();
    let answer = Box::pin(sender.handle(batch, request, ends)).await.unwrap();
    assert!(answer.batch_item_failures.is_empty(), "{answer:?}");
}

fn all_succeeded(sender: &Sender, expected: usize) {
    let tables = sender.lanes.tables();
    let succeeded = tables.deliveries.values().filter(|d| d.state == State::Succeeded).count();
    assert_eq!(succeeded, expected, "succeeded");
}

/// The three rates, in turns.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn rates(folder: &Path, port: u16, size: Size) -> Rates {
    let tls = tls::config(Some(&folder.join("subscribers.pem"))).unwrap();
    let (headers, body) = (headers(), Bytes::from(payload(0)));
    let sender = sender(folder);
    let lane = subscribe(&sender, 1, port, WIDTH).await;
    publish(&sender, &lane, usize::MAX).await;
    invoke(&sender, "warm", &[WakeMessage(lane.clone()).to_text()]).await;
    let (mut spent, mut connections) = ([Vec::new(), Vec::new(), Vec::new()], 0);
    for turn in 0..size.turns {
        spent[0].push(timed(raw::posts(port, &tls, WIDTH, size.deliveries, &headers, &body)).await);
        let client = sender.dialler.client();
        spent[1].push(timed(posts(&client, port, size.deliveries, &headers, &body)).await);
        connections += client.dialled().count();
        drop(client);
        for n in 0..size.deliveries {
            publish(&sender, &lane, turn * size.deliveries + n).await;
        }
        let text = [WakeMessage(lane.clone()).to_text()];
        spent[2].push(timed(invoke(&sender, &turn.to_string(), &text)).await);
    }
    all_succeeded(&sender, size.turns * size.deliveries + WARM);
    let [raw, client, deliverer] = spent.map(|spent| size.deliveries as f64 / middle(spent));
    Rates { raw, client, deliverer, connections }
}

/// The deliverer's client, with requests that are ready.
async fn posts(
    client: &deliverer::transport::client::Client<NoNames>,
    port: u16,
    requests: usize,
    headers: &HeaderMap,
    body: &Bytes,
) {
    let url = format!("https://127.0.0.1:{port}/hook");
    let url = EndpointUrl::parse(&url, &AddressPolicy::THIS_MACHINE).unwrap();
    join_all((0..WIDTH).map(async |n| {
        for _ in 0..requests / WIDTH + usize::from(n < requests % WIDTH) {
            let (url, headers, body) = (url.clone(), headers.clone(), body.clone());
            let by = tokio::time::Instant::now() + Duration::from_secs(20);
            assert_eq!(client.post(Post { url, headers, body, by }).await.unwrap().status, 200);
        }
    }))
    .await;
}

/// As many headers as an event has, of the same lengths.
fn headers() -> HeaderMap {
    let id = "evt_0190163d8694739bafdd5a0bb1a2c3d4";
    let signature = "v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    [
        ("content-type", "application/json"),
        ("user-agent", "Postern/0.1.0"),
        ("accept-encoding", "identity"),
        ("idempotency-key", id),
        ("webhook-id", id),
        ("webhook-timestamp", "1800000000"),
        ("webhook-signature", signature),
        ("webhook-attempt", "1"),
    ]
    .into_iter()
    .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
    .collect()
}

/// What a process holds while so many deliveries are under way. A drain begins what it reads in one page before it waits for
/// an answer; so there are as many lanes as it takes.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn held(folder: &Path, port: u16, under_way: usize) -> Held {
    // A thousand handshakes at once take their time on a busy machine, and time is not what is measured.
    let mut sender = patient(folder, 10);
    sender.width = 20;
    let (mut texts, width) = (Vec::new(), under_way / sender.width);
    for n in 0..20 {
        let lane = subscribe(&sender, n, port, width).await;
        for event in 0..width {
            publish(&sender, &lane, event).await;
        }
        texts.push(WakeMessage(lane).to_text());
    }
    // What is used once, such as the provider of cryptography, is there before.
    drop(sender.dialler.client());
    let before_kib = kib("VmRSS");
    invoke(&sender, "all", &texts).await;
    all_succeeded(&sender, under_way);
    Held { before_kib, peak_kib: kib("VmHWM") }
}

/// A figure of this process, as Linux tells it.
fn kib(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse().ok()).unwrap()
}

/// Seconds of this thread's processor time that something takes.
async fn timed(work: impl Future<Output = ()>) -> f64 {
    let began = (processor(), Instant::now());
    Box::pin(work).await;
    let spent = processor() - began.0;
    // A machine that does not say counts by the wall.
    if spent > 0.0 { spent } else { began.1.elapsed().as_secs_f64() }
}

/// Seconds that this thread has had a processor, as Linux tells it.
fn processor() -> f64 {
    let told = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = told.split_whitespace().next().and_then(|first| first.parse::<u64>().ok());
    nanoseconds.unwrap_or_default() as f64 / 1e9
}

/// The value in the middle.
pub(crate) fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
