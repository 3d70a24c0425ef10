//! The whole deliverer, from a batch of wake messages to subscribers who check signatures.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

mod receiver;

use std::{sync::Arc, time::Duration};

use aws_lambda_events::sqs::{SqsEvent, SqsMessage};
use deliverer::{
    Deliverer, Keys,
    drain::{Edge, Rules},
    transport::{Answered, Entry, Failed, Message, Targets},
};
use domain::{
    breaker::Limits,
    delivery::{Cause, Delivery, Outcome, Schedule, State},
    destination::{BusArn, Destination, QueueUrl},
    endpoint::{Endpoint, HealthLimits, Notice},
    id::EventId,
    lane::{LaneId, Pointer},
    message::{Message as _, WakeMessage},
    outbox::{OutboxEvent, OutboxRow, Payload},
    ports::{Keyring as _, Notices, Purpose, SealedSecret, Stored},
    retry::Backoff,
    secret::SecretText,
};
use jiff::Timestamp;
use receiver::{Authority, BOUNDS, Script, read_request, receive};
use runtime::telemetry::Metrics;
use signing::{EndpointSecret, Key, Request, Scheme, verify};
use testkit::{
    chaos::{Fault, When},
    memory::{LaneItem, MemoryKeyring, MemoryQueue, Store},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    sync::mpsc,
    time::timeout,
};

const T0: i64 = 1_760_000_000;

fn clock() -> Timestamp {
    Timestamp::from_second(T0).unwrap()
}

fn rules() -> Rules {
    let (second, day) = (Duration::from_secs(1), Duration::from_secs(86_400));
    let backoff = Backoff { floor: second, base: 30 * second, cap: day / 2 };
    Rules {
        lease: 60 * second,
        schedule: Schedule { backoff, retry_after_cap: day },
        breaker: Limits {
            opens_after: 10,
            probe: 60 * second,
            probe_cap: 900 * second,
            retry_after_cap: day,
        },
        tried_for: Duration::from_secs(345_600),
        health: HealthLimits { disable_after: Duration::from_secs(432_000) },
        hold: 14 * day,
        concurrency: 5,
    }
}

type MemoryDeliverer =
    Deliverer<Store, Store, Store, MemoryKeyring, Store, MemoryQueue, Script, NoTargets>;

/// Everything here goes to URLs.
#[derive(Debug)]
struct NoTargets;

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

impl Notices for NoTargets {
    async fn tell(&self, endpoint: &Endpoint, notice: &Notice) -> Stored<()> {
        unreachable!("nobody has to hear of {}: {notice:?}", endpoint.id)
    }
}

fn deliverer(authority: &Authority) -> MemoryDeliverer {
    Deliverer {
        lanes: Store::new(1),
        outbox: Store::new(1),
        registry: Store::new(1),
        keys: Keys::new(MemoryKeyring::default()),
        bodies: Store::new(1),
        queue: MemoryQueue::new(Duration::from_secs(60), 9),
        dialler: authority.dialler(Script::loopback(), BOUNDS),
        targets: NoTargets,
        rules: rules(),
        pass: Duration::from_secs(20),
        width: 10,
        metrics: Metrics::new("test"),
        edge: Edge { now: clock, jitter: || 0.5 },
    }
}

fn secret() -> EndpointSecret {
    EndpointSecret::shared(std::array::from_fn(|i| u8::try_from(i * 7).unwrap()))
}

/// One endpoint with some deliveries that are due.
async fn subscribe(deliverer: &MemoryDeliverer, n: u128, url: &str, due: usize) -> LaneId {
    let endpoint = Endpoint::new(
        "acme".parse().unwrap(),
        format!("ep_{n:032x}").parse().unwrap(),
        Destination::Https(url.to_owned()),
        Timestamp::UNIX_EPOCH,
    );
    let text = SecretText::new(secret().expose().expose().to_owned());
    let sealed = deliverer.keys.keyring().seal(&endpoint.tenant, endpoint.id, &text).await.unwrap();
    let sealed =
        SealedSecret { id: "key".to_owned(), purpose: Purpose::Signing, sealed, expires_at: None };
    let lane = LaneId { tenant: endpoint.tenant.clone(), endpoint: endpoint.id, lane: 0 };
    let mut lanes = deliverer.lanes.tables();
    let mut outbox = deliverer.outbox.tables();
    for i in 0..due {
        let event = OutboxEvent {
            id: EventId::derived(clock(), &[&i.to_string(), url]),
            tenant: endpoint.tenant.clone(),
            event_type: "invoice.paid".to_owned(),
            schema_version: 1,
            aggregate_id: i.to_string(),
            aggregate_version: None,
            payload: Payload::Inline(format!(r#"{{"n":{i}}}"#).into_bytes()),
            occurred_at: clock(),
            traceparent: None,
            labels: std::collections::BTreeMap::new(),
        };
        let deadline = clock() + Duration::from_secs(345_600);
        let delivery = Delivery::new(event.id, event.event_type.clone(), deadline, clock());
        lanes.pointers.insert((lane.clone(), Pointer::of(&delivery)));
        lanes.deliveries.insert((lane.clone(), event.id), delivery);
        let row = OutboxRow { event: event.clone(), relayed: None };
        outbox.outbox.insert((event.tenant.clone(), event.id), row);
    }
    let item = LaneItem { wakes: 1, wake_at: Some(clock()), ..LaneItem::default() };
    lanes.lanes.insert(lane.clone(), item);
    let key = (endpoint.tenant.clone(), endpoint.id);
    deliverer.registry.tables().endpoints.insert(key, (endpoint, vec![sealed]));
    lane
}

fn batch(texts: &[String]) -> SqsEvent {
    let message = |(n, text): (usize, &String)| {
        let mut message = SqsMessage::default();
        message.message_id = Some(format!("message-{n}"));
        message.body = Some(text.clone());
        message
    };
    let mut event = SqsEvent::default();
    event.records = texts.iter().enumerate().map(message).collect();
    event
}

/// The end of an invocation that has this long.
fn ends(rest: Duration) -> u64 {
    u64::try_from((clock() + rest).as_millisecond()).unwrap()
}

async fn failed(deliverer: &MemoryDeliverer, texts: &[String]) -> Vec<String> {
    let handled = deliverer.handle(batch(texts), "request-1", ends(Duration::from_secs(60)));
    let answer = timeout(Duration::from_secs(20), handled).await.unwrap().unwrap();
    answer.batch_item_failures.into_iter().map(|failure| failure.item_identifier).collect()
}

fn states(deliverer: &MemoryDeliverer, lane: &LaneId) -> Vec<State> {
    let tables = deliverer.lanes.tables();
    let of_lane = tables.deliveries.iter().filter(|((id, _), _)| id == lane);
    of_lane.map(|(_, delivery)| delivery.state).collect()
}

/// F1, F4, PERFORMANCE 7: one connection for a lane's deliveries, one after the other.
#[tokio::test]
async fn subscribers_get_signed_events_over_one_connection() {
    let authority = Authority::new();
    let (seen, mut requests) = mpsc::unbounded_channel();
    let tls = authority.good_receiver();
    let port = receiver::listen(move |stream| {
        let (tls, seen) = (tls.clone(), seen.clone());
        async move {
            let Ok(mut stream) = tls.accept(stream).await else { return };
            while let Some(request) = read_request(&mut stream).await {
                let _ = seen.send(request);
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
                let _ = stream.flush().await;
            }
        }
    })
    .await;
    let deliverer = deliverer(&authority);
    let lane = subscribe(&deliverer, 1, &port.url(), 20).await;
    deliverer.registry.tables().endpoints.values_mut().for_each(|(e, _)| e.concurrency = Some(1));
    assert_eq!(
        failed(&deliverer, &[WakeMessage(lane.clone()).to_text()]).await,
        Vec::<String>::new()
    );
    assert!(states(&deliverer, &lane).iter().all(|state| *state == State::Succeeded));
    assert_eq!(port.connections(), 1);
    let scheme = Scheme::preset("standard_webhooks").unwrap();
    let key = [Key::parse(&scheme, "key", &secret().expose()).unwrap()];
    for _ in 0..20 {
        let (head, body) = requests.try_recv().unwrap();
        let mut lines = head.lines();
        assert_eq!(lines.next(), Some("POST /hook HTTP/1.1"));
        let mut headers = http::HeaderMap::new();
        for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
            headers.append(http::HeaderName::try_from(name).unwrap(), value.parse().unwrap());
        }
        let url = port.url();
        let request = Request {
            method: "POST",
            url: &url,
            headers: &headers,
            body: &body,
            path_secret: None,
        };
        assert!(verify(&scheme, &key, &request, clock()).is_ok(), "{head}");
        let expected = format!("receiver.example:{}", port.address.port());
        assert_eq!(headers["host"], expected.as_str());
    }
    assert!(requests.try_recv().is_err());
}

/// Reused within a drain and never across: between two drains a sandbox may freeze, and what it kept open would be dead, or
/// seem alive. So each drain begins with a connection of its own and has closed it when the next begins.
#[tokio::test]
async fn a_connection_lives_as_long_as_its_drain() {
    let authority = Authority::new();
    let (seen, mut ended) = mpsc::unbounded_channel();
    let tls = authority.good_receiver();
    let port = receiver::listen(move |stream| {
        let (tls, seen) = (tls.clone(), seen.clone());
        async move {
            let Ok(mut stream) = tls.accept(stream).await else { return };
            let mut requests = 0;
            while read_request(&mut stream).await.is_some() {
                requests += 1;
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
                let _ = stream.flush().await;
            }
            let _ = seen.send(requests);
        }
    })
    .await;
    let deliverer = deliverer(&authority);
    for drain in 1..=3 {
        let lane = subscribe(&deliverer, 1, &port.url(), 7).await;
        deliverer.registry.tables().endpoints.values_mut().for_each(|(endpoint, _)| {
            endpoint.concurrency = Some(1);
        });
        let text = [WakeMessage(lane.clone()).to_text()];
        assert_eq!(failed(&deliverer, &text).await, Vec::<String>::new());
        assert!(states(&deliverer, &lane).iter().all(|state| *state == State::Succeeded));
        assert_eq!(port.connections(), drain);
        let closed = timeout(Duration::from_secs(20), ended.recv()).await;
        assert_eq!(closed.expect("a connection outlives its drain"), Some(7));
    }
}

/// DLV-head-of-line, F14: endpoints that hang, beside one that does not. It has long been served when they time out.
#[tokio::test]
async fn an_endpoint_that_hangs_delays_only_itself() {
    let authority = Authority::new();
    let hang = |mut stream: tokio_rustls::server::TlsStream<tokio::net::TcpStream>| async move {
        let _ = stream.read(&mut [0; 16]).await;
    };
    let hanging = receive(authority.good_receiver(), hang).await;
    let served = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = Arc::clone(&served);
    let healthy = receive(authority.good_receiver(), move |mut stream| {
        let count = Arc::clone(&count);
        async move {
            count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
            let _ = stream.shutdown().await;
        }
    })
    .await;
    let deliverer = deliverer(&authority);
    let mut lanes = Vec::new();
    for n in 0..9 {
        lanes.push(subscribe(&deliverer, n, &format!("{}/{n}", hanging.url()), 3).await);
    }
    let lane = subscribe(&deliverer, 99, &healthy.url(), 10).await;
    lanes.push(lane.clone());
    let texts: Vec<_> = lanes.iter().map(|lane| WakeMessage(lane.clone()).to_text()).collect();
    // The healthy one is the last in the batch, and is done before any of the others can be.
    {
        let mut handled = Box::pin(failed(&deliverer, &texts));
        std::future::poll_fn(|context| {
            assert!(handled.as_mut().poll(context).is_pending(), "a hanging lane ended first");
            let done = states(&deliverer, &lane).iter().all(|state| *state == State::Succeeded);
            if done { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
        assert_eq!(handled.await, Vec::<String>::new());
    }
    let tables = deliverer.lanes.tables();
    let of_lane = tables.deliveries.iter().filter(|((id, _), _)| *id == lanes[0]);
    for (_, delivery) in of_lane {
        assert_eq!(delivery.log[0].outcome, Outcome::Failed { cause: Cause::Timeout });
        assert_eq!(delivery.state, State::Pending);
    }
    assert_eq!(served.load(std::sync::atomic::Ordering::SeqCst), 10);
}

/// WRK-batch-response-shape: each message by itself.
#[tokio::test]
async fn messages_fail_one_by_one() {
    let authority = Authority::new();
    let deliverer = deliverer(&authority);
    let lane = subscribe(&deliverer, 1, "https://receiver.example/", 0).await;
    let good = WakeMessage(lane).to_text();
    let texts = [
        good.clone(),
        "nonsense".to_owned(),
        r#"{"v":2,"tenant":"acme"}"#.to_owned(),
        good.replace("acme", "other"),
        String::new(),
    ];
    assert_eq!(failed(&deliverer, &texts).await, ["message-1", "message-2", "message-4"]);
}

#[tokio::test]
async fn a_message_of_a_lane_that_cannot_be_drained_comes_again() {
    let authority = Authority::new();
    let deliverer = deliverer(&authority);
    let lane = subscribe(&deliverer, 1, "https://receiver.example/", 1).await;
    let text = [WakeMessage(lane).to_text()];
    deliverer.lanes.chaos.on("lanes.take", When::Before, Fault::Unavailable);
    assert_eq!(failed(&deliverer, &text).await, ["message-0"]);
    // A lane that somebody else holds is his.
    deliverer.lanes.chaos.heal();
    for item in deliverer.lanes.tables().lanes.values_mut() {
        item.holder = Some(("other".to_owned(), clock() + Duration::from_secs(9)));
    }
    assert_eq!(failed(&deliverer, &text).await, Vec::<String>::new());
}

/// An invocation that is nearly over begins nothing that it could not end.
#[tokio::test]
async fn no_attempt_begins_that_could_outlive_its_invocation() {
    let authority = Authority::new();
    let deliverer = deliverer(&authority);
    let lane = subscribe(&deliverer, 1, "https://receiver.example/", 1).await;
    let text = [WakeMessage(lane.clone()).to_text()];
    let ends = ends(BOUNDS.attempt + Duration::from_secs(2));
    let answer = deliverer.handle(batch(&text), "request-1", ends).await.unwrap();
    assert!(answer.batch_item_failures.is_empty());
    assert_eq!(states(&deliverer, &lane), [State::Pending]);
    assert_eq!(deliverer.lanes.tables().lanes[&lane].wake_at, Some(clock()));
    assert!(deliverer.queue.next_visible().is_some());
}
