//! What one attempt sends, and what it makes of an answer.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use std::{cell::Cell, sync::Mutex};

use deliverer::{
    attempt::Attempts,
    drain::{Edge, Prepared, Sender as _},
    transport::{Answered, Entry, Failed, Message, Post, Targets, Transport},
};
use domain::{
    address::AddressPolicy,
    body::Sha256Hash,
    delivery::{Attempt, Cause, Delivery, Outcome},
    destination::{BusArn, Destination, QueueUrl},
    endpoint::Endpoint,
    id::EventId,
    lane::LaneId,
    outbox::{OutboxEvent, OutboxRow, Payload},
    ports::{Bodies as _, Keyring as _, Purpose, SealedSecret, Stored},
    secret::SecretText,
};
use flow::payload;
use jiff::Timestamp;
use runtime::telemetry::Metrics;
use signing::{EndpointSecret, Key, Request, Scheme, Secret, verify};
use testkit::{
    chaos::{Fault, When},
    memory::{MemoryKeyring, Store},
};

thread_local! {
    static CLOCK: Cell<i64> = const { Cell::new(0) };
}

fn clock() -> Timestamp {
    at(CLOCK.get())
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// T0 of the field cases.
const T0: i64 = 1_760_000_000;

const BODY: &[u8] = br#"{"type":"invoice.paid","n":9007199254740993}"#;

struct Receiver {
    posts: Mutex<Vec<Post>>,
    messages: Mutex<Vec<Message>>,
    entries: Mutex<Vec<Entry>>,
    answer: Mutex<Result<Answered, Cause>>,
}

/// Queues and buses. The bus `absent` does not exist, and `postern-WakeQueue` is our own.
impl Targets for Receiver {
    async fn message(&self, message: Message) -> Result<Answered, Failed> {
        self.messages.lock().unwrap().push(message);
        self.answer.lock().unwrap().clone().map_err(Failed::new)
    }

    async fn put(&self, entry: Entry) -> Result<Answered, Failed> {
        self.entries.lock().unwrap().push(entry);
        self.answer.lock().unwrap().clone().map_err(Failed::new)
    }

    fn is_own(&self, queue: &QueueUrl) -> bool {
        queue.to_string().ends_with("/postern-WakeQueue")
    }

    async fn is_missing(&self, bus: &BusArn) -> bool {
        bus.name() == "absent"
    }
}

impl Transport for Receiver {
    async fn post(&self, post: Post) -> Result<Answered, Failed> {
        self.posts.lock().unwrap().push(post);
        self.answer.lock().unwrap().clone().map_err(Failed::new)
    }
}

struct World {
    store: Store,
    keyring: MemoryKeyring,
    receiver: Receiver,
    metrics: Metrics,
    event: OutboxEvent,
    endpoint: Endpoint,
    sealed: Vec<SealedSecret>,
}

impl World {
    fn new() -> Self {
        CLOCK.set(T0);
        let answered = Answered { status: 200, retry_after: None, excerpt: "ok".to_owned() };
        let event = OutboxEvent {
            id: EventId::derived(at(T0 - 5), &["x"]),
            tenant: "acme".parse().unwrap(),
            event_type: "invoice.paid".to_owned(),
            schema_version: 1,
            aggregate_id: "in_1".to_owned(),
            aggregate_version: None,
            payload: Payload::Inline(BODY.to_vec()),
            occurred_at: at(T0 - 5),
            traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned()),
            labels: std::collections::BTreeMap::new(),
        };
        let endpoint = Endpoint::new(
            event.tenant.clone(),
            format!("ep_{:032x}", 7).parse().unwrap(),
            Destination::Https("https://Example.com/hook?a=b".to_owned()),
            at(0),
        );
        let world = Self {
            store: Store::new(1),
            keyring: MemoryKeyring::default(),
            receiver: Receiver {
                posts: Mutex::default(),
                messages: Mutex::default(),
                entries: Mutex::default(),
                answer: Mutex::new(Ok(answered)),
            },
            metrics: Metrics::new("test"),
            event,
            endpoint,
            sealed: Vec::new(),
        };
        world.publish(&world.event);
        world
    }

    fn publish(&self, event: &OutboxEvent) {
        let row = OutboxRow { event: event.clone(), relayed: None };
        self.store.tables().outbox.insert((event.tenant.clone(), event.id), row);
    }

    async fn with_secret(mut self, secret: &EndpointSecret, expires_at: Option<i64>) -> Self {
        let text = SecretText::new(secret.expose().expose().to_owned());
        let (tenant, endpoint) = (&self.endpoint.tenant, self.endpoint.id);
        let sealed = self.keyring.seal(tenant, endpoint, &text).await.unwrap();
        let id = format!("key-{}", self.sealed.len());
        self.sealed.push(SealedSecret {
            id,
            purpose: Purpose::Signing,
            sealed,
            expires_at: expires_at.map(at),
        });
        self
    }

    async fn try_attempt(&self, attempts: u32) -> Stored<Attempt> {
        let sender = Attempts {
            outbox: &self.store,
            keyring: &self.keyring,
            bodies: &self.store,
            transport: &self.receiver,
            targets: &self.receiver,
            policy: AddressPolicy::default(),
            metrics: &self.metrics,
            edge: Edge { now: clock, jitter: || 0.5 },
        };
        let target = sender.open(self.endpoint.clone(), self.sealed.clone()).await?;
        let lane =
            LaneId { tenant: self.endpoint.tenant.clone(), endpoint: self.endpoint.id, lane: 0 };
        let delivery = Delivery::new(self.event.id, "invoice.paid".to_owned(), at(T0 * 2), at(T0));
        let delivery = Delivery { attempts, ..delivery };
        match sender.prepare(&target, &lane, &delivery).await? {
            Prepared::Ready(request) => Ok(sender.send(&lane, &delivery, request).await),
            Prepared::Failed(attempt) => Ok(attempt),
        }
    }

    async fn attempt(&self, attempts: u32) -> Attempt {
        self.try_attempt(attempts).await.unwrap()
    }

    fn posts(&self) -> Vec<Post> {
        self.receiver.posts.lock().unwrap().clone()
    }

    fn answer(&self, answer: Result<Answered, Cause>) {
        *self.receiver.answer.lock().unwrap() = answer;
    }
}

fn secret(n: u8) -> EndpointSecret {
    EndpointSecret::shared(std::array::from_fn(|i| n.wrapping_mul(31) ^ u8::try_from(i).unwrap()))
}

/// Checks a request as a subscriber does, with a public verifier's strictness.
fn verifies(post: &Post, secret: &Secret, scheme: &str, now: i64) -> bool {
    let scheme = Scheme::preset(scheme).unwrap();
    let key = Key::parse(&scheme, "key", secret).unwrap();
    let url = post.url.to_string();
    let request = Request {
        method: "POST",
        url: &url,
        headers: &post.headers,
        body: &post.body,
        path_secret: None,
    };
    verify(&scheme, &[key], &request, at(now)).is_ok()
}

fn header<'a>(post: &'a Post, name: &str) -> &'a str {
    post.headers[name].to_str().unwrap()
}

/// F1, F3, F4, INB-raw-bytes-kept
#[tokio::test]
async fn an_attempt_sends_the_published_bytes_signed_now() {
    let world = World::new().with_secret(&secret(1), None).await;
    let attempt = world.attempt(0).await;
    assert_eq!((attempt.number, attempt.at, attempt.excerpt.as_str()), (1, at(T0), "ok"));
    assert_eq!(attempt.outcome, Outcome::Answered { status: 200, retry_after_ms: None });
    let [post] = world.posts().try_into().unwrap();
    assert_eq!(post.body, BODY);
    assert_eq!(post.url.as_str(), "https://example.com/hook?a=b");
    assert!(verifies(&post, &secret(1).expose(), "standard_webhooks", T0));
    assert!(!verifies(&post, &secret(2).expose(), "standard_webhooks", T0));
    let mut names: Vec<_> = post.headers.keys().map(http::HeaderName::as_str).collect();
    names.sort_unstable();
    let expected = [
        "accept-encoding",
        "content-type",
        "idempotency-key",
        "traceparent",
        "user-agent",
        "webhook-attempt",
        "webhook-id",
        "webhook-signature",
        "webhook-timestamp",
    ];
    assert_eq!(names, expected);
    assert_eq!(header(&post, "webhook-id"), world.event.id.to_string());
    assert_eq!(header(&post, "webhook-attempt"), "1");
    assert_eq!(header(&post, "content-type"), "application/json");
    assert_eq!(header(&post, "accept-encoding"), "identity");
    assert_eq!(header(&post, "traceparent"), world.event.traceparent.clone().unwrap());
}

/// C16, C28: under the name that services know which have never heard of webhooks.
#[tokio::test]
async fn every_try_carries_the_events_id_as_its_idempotency_key() {
    let world = World::new().with_secret(&secret(1), None).await;
    for attempts in [0, 1, 7] {
        world.attempt(attempts).await;
    }
    for post in world.posts() {
        assert_eq!(header(&post, "idempotency-key"), world.event.id.to_string());
    }
}

const QUEUE: &str = "https://sqs.eu-central-1.amazonaws.com/123456789012/mail";
const BUS: &str = "arn:aws:events:eu-central-1:123456789012:event-bus/orders";

fn to_queue(url: &str) -> World {
    let mut world = World::new();
    world.endpoint.destination = Destination::Queue(url.parse().unwrap());
    world
}

fn to_bus(arn: &str) -> World {
    let mut world = World::new();
    world.endpoint.destination = Destination::Bus(arn.parse().unwrap());
    world
}

fn with_payload(mut world: World, payload: &[u8]) -> World {
    world.event.payload = Payload::Inline(payload.to_vec());
    world.publish(&world.event);
    world
}

/// C16, C27, C28
#[tokio::test]
async fn a_queue_gets_the_payload_and_the_key_as_an_attribute() {
    let world = to_queue(QUEUE);
    for attempts in [0, 3] {
        assert!(world.attempt(attempts).await.outcome.is_success());
    }
    let [first, second] = world.receiver.messages.lock().unwrap().clone().try_into().unwrap();
    assert_eq!(first, second);
    assert_eq!((first.queue.to_string().as_str(), first.body.as_bytes()), (QUEUE, BODY));
    assert_eq!((first.key, first.event_type), (world.event.id.to_string(), "invoice.paid".into()));
    assert_eq!(first.fifo, None);
}

#[tokio::test]
async fn a_fifo_queue_keeps_the_order_of_an_aggregate() {
    let long = "x".repeat(129);
    let hash = |text: &str| Sha256Hash::of(text.as_bytes()).to_string();
    for (aggregate, group) in [
        ("in_1", "in_1".to_owned()),
        ("invoice 1", hash("invoice 1")),
        ("rechnung-ü", hash("rechnung-ü")),
        (&long, hash(&long)),
    ] {
        let mut world = to_queue(&format!("{QUEUE}.fifo"));
        world.event.aggregate_id = aggregate.to_owned();
        world.publish(&world.event);
        world.attempt(0).await;
        let message = world.receiver.messages.lock().unwrap().pop().unwrap();
        assert_eq!(message.fifo.unwrap().group, group, "{aggregate}");
    }
}

/// C16, C27, C28
#[tokio::test]
async fn a_bus_gets_the_payload_as_detail_and_the_key_as_resource() {
    let world = to_bus(BUS);
    assert!(world.attempt(0).await.outcome.is_success());
    let [entry] = world.receiver.entries.lock().unwrap().clone().try_into().unwrap();
    assert_eq!((entry.bus.to_string().as_str(), entry.detail.as_bytes()), (BUS, BODY));
    assert_eq!(
        (entry.source.as_str(), entry.detail_type.as_str()),
        ("postern.acme", "invoice.paid")
    );
    assert_eq!((entry.key, entry.at), (world.event.id.to_string(), at(T0 - 5)));
}

/// What a queue or a bus never takes is not tried for four days, and the endpoint is not to blame.
#[tokio::test]
async fn a_payload_that_cannot_be_carried_is_seen_before_it_is_sent() {
    let object = |bytes: usize| format!(r#"{{"a":"{}"}}"#, "x".repeat(bytes - 8)).into_bytes();
    let check = async |world: World, cause: Cause, what: &str| {
        let outcome = world.attempt(0).await.outcome;
        assert_eq!(outcome, Outcome::Failed { cause }, "{what}");
        assert!(!outcome.blames_endpoint(), "{what}");
        let receiver = &world.receiver;
        let sent = receiver.messages.lock().unwrap().len() + receiver.entries.lock().unwrap().len();
        assert_eq!(sent, 0, "{what}");
    };
    let most = 1_048_576;
    check(with_payload(to_queue(QUEUE), &object(most)), Cause::TooLarge, "queue").await;
    check(with_payload(to_bus(BUS), &object(most)), Cause::TooLarge, "bus").await;
    // The most that may be published goes through both, with all that stands beside it.
    for world in [to_queue(QUEUE), to_bus(BUS)] {
        assert!(with_payload(world, &object(1_000_000)).attempt(0).await.outcome.is_success());
    }
    for (payload, what) in
        [(&b""[..], "empty"), ("\"\u{fffe}\"".as_bytes(), "no XML"), (b"\"\xff\"", "no text")]
    {
        check(with_payload(to_queue(QUEUE), payload), Cause::Unacceptable, what).await;
    }
    for (payload, what) in
        [(&b"[1]"[..], "a list"), (b"7", "a number"), (b"{", "no JSON"), (b"", "empty")]
    {
        check(with_payload(to_bus(BUS), payload), Cause::Unacceptable, what).await;
    }
    let deep = format!(r#"{{"a":{}1{}}}"#, "[".repeat(900), "]".repeat(900));
    assert!(with_payload(to_bus(BUS), deep.as_bytes()).attempt(0).await.outcome.is_success());
    let mut long = to_bus(BUS);
    long.event.event_type = "t".repeat(129);
    long.publish(&long.event);
    check(long, Cause::Unacceptable, "a long type").await;
}

/// EventBridge would take it, answer with an id, and drop it.
#[tokio::test]
async fn a_bus_that_does_not_exist_gets_nothing() {
    let world = to_bus(&BUS.replace("orders", "absent"));
    let outcome = world.attempt(0).await.outcome;
    assert_eq!(outcome, Outcome::Failed { cause: Cause::NoSuchTarget });
    assert!(world.receiver.entries.lock().unwrap().is_empty());
}

/// The role has to let us write to the queue that wakes us; a row that was written past the api must not use that.
#[tokio::test]
async fn the_queue_that_wakes_us_is_no_target() {
    let world = to_queue(&QUEUE.replace("mail", "postern-WakeQueue"));
    let outcome = world.attempt(0).await.outcome;
    assert_eq!(outcome, Outcome::Failed { cause: Cause::BlockedAddress });
    assert!(world.receiver.messages.lock().unwrap().is_empty());
}

/// DLV-retry-resigned, F2: a subscriber with a window of 300 s takes every attempt of ten hours.
#[tokio::test]
async fn each_attempt_is_signed_anew_and_keeps_its_id_and_bytes() {
    let world = World::new().with_secret(&secret(1), None).await;
    let waits = [0, 5, 300, 7200, 36_000];
    for (attempts, wait) in waits.iter().enumerate() {
        CLOCK.set(T0 + wait);
        world.attempt(u32::try_from(attempts).unwrap()).await;
    }
    let posts = world.posts();
    for ((post, wait), number) in posts.iter().zip(waits).zip(1..) {
        assert!(verifies(post, &secret(1).expose(), "standard_webhooks", T0 + wait), "{wait}");
        assert_eq!(header(post, "webhook-id"), header(&posts[0], "webhook-id"));
        assert_eq!(header(post, "webhook-attempt"), number.to_string());
        assert_eq!(post.body, posts[0].body);
    }
}

/// I4, I6
#[tokio::test]
async fn every_active_secret_signs_and_an_expired_one_does_not() {
    let world = World::new()
        .with_secret(&secret(1), Some(T0))
        .await
        .with_secret(&secret(2), Some(T0 + 1))
        .await
        .with_secret(&secret(3), None)
        .await;
    world.attempt(0).await;
    let [post] = world.posts().try_into().unwrap();
    assert_eq!(header(&post, "webhook-signature").split(' ').count(), 2);
    for (n, active) in [(1, false), (2, true), (3, true)] {
        let verified = verifies(&post, &secret(n).expose(), "standard_webhooks", T0);
        assert_eq!(verified, active, "{n}");
    }
}

#[tokio::test]
async fn a_key_pair_signs_beside_a_shared_secret() {
    let pair = EndpointSecret::pair([9; 32]);
    let world = World::new().with_secret(&secret(1), None).await.with_secret(&pair, None).await;
    world.attempt(0).await;
    let [post] = world.posts().try_into().unwrap();
    let public = Secret::new(pair.public_key().unwrap());
    assert!(verifies(&post, &public, "standard_webhooks_v1a", T0));
    assert!(verifies(&post, &secret(1).expose(), "standard_webhooks", T0));
}

#[tokio::test]
async fn nothing_is_sent_unsigned() {
    let none = World::new();
    let expired = World::new().with_secret(&secret(1), Some(T0 - 1)).await;
    let mut foreign = World::new().with_secret(&secret(1), None).await;
    // Sealed for another endpoint.
    foreign.endpoint.id = format!("ep_{:032x}", 8).parse().unwrap();
    for world in [none, expired, foreign] {
        let attempt = world.attempt(3).await;
        assert_eq!(attempt.outcome, Outcome::Failed { cause: Cause::Internal });
        assert_eq!((attempt.number, world.posts().len()), (4, 0));
    }
}

#[tokio::test]
async fn a_large_payload_comes_from_the_bucket() {
    let mut world = World::new().with_secret(&secret(1), None).await;
    let hash = Sha256Hash::of(BODY);
    world.event.payload = Payload::Bucket(hash);
    world.publish(&world.event);
    // Not there.
    let outcome = world.attempt(0).await.outcome;
    assert_eq!(outcome, Outcome::Failed { cause: Cause::Internal });
    let name = payload::name(&world.event.tenant, &hash);
    world.store.put(&name, payload::compress(BODY).unwrap()).await.unwrap();
    assert!(world.attempt(0).await.outcome.is_success());
    assert_eq!(world.posts()[0].body, BODY);
    assert!(verifies(&world.posts()[0], &secret(1).expose(), "standard_webhooks", T0));
}

#[tokio::test]
async fn an_event_that_is_gone_is_our_own_failure() {
    let world = World::new().with_secret(&secret(1), None).await;
    world.store.tables().outbox.clear();
    let outcome = world.attempt(0).await.outcome;
    assert_eq!(outcome, Outcome::Failed { cause: Cause::Internal });
}

/// SSRF-update-and-test-paths: the row is older than the rule, or was written past it.
#[tokio::test]
async fn a_url_is_checked_again_at_every_send() {
    for url in [
        "http://example.com/",
        "https://169.254.169.254/latest/meta-data/",
        "https://[::1]:9001/2018-06-01/runtime/",
        "https://user:pw@example.com/",
        "file:///etc/passwd",
        "https://localhost/",
        "https://example.com:22/",
        "",
    ] {
        let mut world = World::new().with_secret(&secret(1), None).await;
        world.endpoint.destination = Destination::Https(url.to_owned());
        let outcome = world.attempt(0).await.outcome;
        assert_eq!(outcome, Outcome::Failed { cause: Cause::BlockedAddress }, "{url}");
        assert!(world.posts().is_empty(), "{url}");
    }
}

/// RTY-store-outage: a store that cannot be asked is no attempt.
#[tokio::test]
async fn what_cannot_be_known_now_is_not_an_attempt() {
    for fault in [Fault::Throttled, Fault::Unavailable] {
        let world = World::new().with_secret(&secret(1), None).await;
        world.keyring.chaos.on("keyring.unseal", When::Before, fault);
        assert!(world.try_attempt(0).await.is_err());
        world.keyring.chaos.heal();
        world.store.chaos.on("outbox.event", When::Before, fault);
        assert!(world.try_attempt(0).await.is_err());
        assert!(world.posts().is_empty());
    }
    // One event that the store will never give up must not hold up its lane.
    let world = World::new().with_secret(&secret(1), None).await;
    world.store.chaos.on("outbox.event", When::Before, Fault::Refused);
    assert_eq!(world.attempt(0).await.outcome, Outcome::Failed { cause: Cause::Internal });
}

/// RTY-retry-after, F12
#[tokio::test]
async fn an_answer_says_how_long_it_wants_us_to_wait() {
    for (value, expected) in [
        (None, None),
        (Some("120"), Some(120_000)),
        (Some("Thu, 09 Oct 2025 09:53:20 GMT"), Some(3_600_000)),
        (Some("soon"), None),
        (Some("-1"), None),
    ] {
        let world = World::new().with_secret(&secret(1), None).await;
        let retry_after = value.map(ToOwned::to_owned);
        world.answer(Ok(Answered { status: 503, retry_after, excerpt: String::new() }));
        let outcome = world.attempt(0).await.outcome;
        assert_eq!(
            outcome,
            Outcome::Answered { status: 503, retry_after_ms: expected },
            "{value:?}"
        );
    }
}

#[tokio::test]
async fn a_failure_keeps_its_cause() {
    let world = World::new().with_secret(&secret(1), None).await;
    world.answer(Err(Cause::TlsExpired));
    let attempt = world.attempt(0).await;
    assert_eq!(attempt.outcome, Outcome::Failed { cause: Cause::TlsExpired });
    assert_eq!(attempt.excerpt, "");
}

#[tokio::test]
async fn a_broken_traceparent_costs_the_trace_only() {
    let mut world = World::new().with_secret(&secret(1), None).await;
    world.event.traceparent = Some("00-\r\nx: y".to_owned());
    world.publish(&world.event);
    assert!(world.attempt(0).await.outcome.is_success());
    assert!(!world.posts()[0].headers.contains_key("traceparent"));
}
