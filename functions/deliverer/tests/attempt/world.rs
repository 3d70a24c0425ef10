//! An endpoint, an event, and a receiver that remembers what it was sent.

use std::{cell::Cell, collections::VecDeque, sync::Mutex, time::Duration};

use deliverer::{
    Keys,
    attempt::{Attempts, Target},
    drain::{Edge, Prepared, Sender as _},
    transport::{Answered, Entry, Failed, Message, Post, Reply, Targets, Transport},
};
use domain::{
    address::AddressPolicy,
    delivery::{Attempt, Cause, Delivery},
    destination::{BusArn, Destination, QueueUrl},
    endpoint::Endpoint,
    id::EventId,
    lane::LaneId,
    outbox::{OutboxEvent, OutboxRow, Payload},
    ports::{Keyring as _, Purpose, SealedSecret, Stored},
    secret::SecretText,
};
use jiff::Timestamp;
use runtime::telemetry::Metrics;
use signing::{EndpointSecret, Key, Request, Scheme, Secret, verify};
use testkit::memory::{MemoryKeyring, Store};

thread_local! {
    pub(crate) static CLOCK: Cell<i64> = const { Cell::new(0) };
}

fn clock() -> Timestamp {
    at(CLOCK.get())
}

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// T0 of the field cases.
pub(crate) const T0: i64 = 1_760_000_000;

pub(crate) const BODY: &[u8] = br#"{"type":"invoice.paid","n":9007199254740993}"#;

pub(crate) struct Receiver {
    pub(crate) posts: Mutex<Vec<Post>>,
    pub(crate) messages: Mutex<Vec<Message>>,
    pub(crate) entries: Mutex<Vec<Entry>>,
    pub(crate) answer: Mutex<Result<Answered, Cause>>,
    /// What comes before that, one after the other.
    pub(crate) first: Mutex<VecDeque<Result<Answered, Cause>>>,
    /// What was asked of an authorization server, and what it answers.
    pub(crate) asked: Mutex<Vec<Post>>,
    pub(crate) reply: Mutex<Result<(u16, String), Cause>>,
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
        let first = self.first.lock().unwrap().pop_front();
        first.unwrap_or_else(|| self.answer.lock().unwrap().clone()).map_err(Failed::new)
    }

    async fn ask(&self, post: Post) -> Result<Reply, Failed> {
        self.asked.lock().unwrap().push(post);
        // Whoever else wants a token asks meanwhile.
        tokio::task::yield_now().await;
        let (status, body) = self.reply.lock().unwrap().clone().map_err(Failed::new)?;
        Ok(Reply { status, body: body.into_bytes().into() })
    }
}

pub(crate) type Sender<'a> = Attempts<'a, Store, MemoryKeyring, Store, Receiver, Receiver>;

pub(crate) struct World {
    pub(crate) store: Store,
    pub(crate) keys: Keys<MemoryKeyring>,
    pub(crate) receiver: Receiver,
    pub(crate) metrics: Metrics,
    pub(crate) event: OutboxEvent,
    pub(crate) endpoint: Endpoint,
    pub(crate) sealed: Vec<SealedSecret>,
}

impl World {
    pub(crate) fn new() -> Self {
        CLOCK.set(T0);
        let answered = Answered::plain(200, "ok".to_owned());
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
            keys: Keys::new(MemoryKeyring::default()),
            receiver: Receiver {
                posts: Mutex::default(),
                messages: Mutex::default(),
                entries: Mutex::default(),
                answer: Mutex::new(Ok(answered)),
                first: Mutex::default(),
                asked: Mutex::default(),
                reply: Mutex::new(Err(Cause::Refused)),
            },
            metrics: Metrics::new("test"),
            event,
            endpoint,
            sealed: Vec::new(),
        };
        world.publish(&world.event);
        world
    }

    pub(crate) fn publish(&self, event: &OutboxEvent) {
        let row = OutboxRow { event: event.clone(), relayed: None };
        self.store.tables().outbox.insert((event.tenant.clone(), event.id), row);
    }

    pub(crate) async fn with_secret(
        self,
        secret: &EndpointSecret,
        expires_at: Option<i64>,
    ) -> Self {
        let secret = secret.expose();
        self.with_sealed(Purpose::Signing, secret.expose(), expires_at).await
    }

    pub(crate) async fn with_sealed(
        mut self,
        purpose: Purpose,
        text: &str,
        expires_at: Option<i64>,
    ) -> Self {
        let (tenant, endpoint) = (&self.endpoint.tenant, self.endpoint.id);
        let text = SecretText::new(text.to_owned());
        let sealed = self.keys.keyring().seal(tenant, endpoint, &text).await.unwrap();
        let id = format!("key-{}", self.sealed.len());
        self.sealed.push(SealedSecret { id, purpose, sealed, expires_at: expires_at.map(at) });
        self
    }

    pub(crate) fn sender(&self) -> Sender<'_> {
        Attempts {
            outbox: &self.store,
            keys: &self.keys,
            bodies: &self.store,
            transport: &self.receiver,
            targets: &self.receiver,
            policy: AddressPolicy::default(),
            within: Duration::from_secs(20),
            metrics: &self.metrics,
            edge: Edge { now: clock, jitter: || 0.5 },
        }
    }

    pub(crate) async fn try_attempt(&self, attempts: u32) -> Stored<Attempt> {
        let target = self.sender().open(self.endpoint.clone(), self.sealed.clone()).await?;
        self.attempt_at(&target, attempts).await
    }

    pub(crate) async fn attempt_at(&self, target: &Target, attempts: u32) -> Stored<Attempt> {
        let sender = self.sender();
        let lane =
            LaneId { tenant: self.endpoint.tenant.clone(), endpoint: self.endpoint.id, lane: 0 };
        let delivery = Delivery::new(self.event.id, "invoice.paid".to_owned(), at(T0 * 2), at(T0));
        let delivery = Delivery { attempts, ..delivery };
        match sender.prepare(target, &lane, &delivery).await? {
            Prepared::Ready(request) => Ok(sender.send(&lane, &delivery, request).await),
            Prepared::Failed(attempt) => Ok(attempt),
        }
    }

    pub(crate) async fn attempt(&self, attempts: u32) -> Attempt {
        self.try_attempt(attempts).await.unwrap()
    }

    pub(crate) fn posts(&self) -> Vec<Post> {
        self.receiver.posts.lock().unwrap().clone()
    }

    pub(crate) fn answer(&self, answer: Result<Answered, Cause>) {
        *self.receiver.answer.lock().unwrap() = answer;
    }
}

pub(crate) fn secret(n: u8) -> EndpointSecret {
    EndpointSecret::shared(std::array::from_fn(|i| n.wrapping_mul(31) ^ u8::try_from(i).unwrap()))
}

/// Checks a request as a subscriber does, with a public verifier's strictness.
pub(crate) fn verifies(post: &Post, secret: &Secret, scheme: &str, now: i64) -> bool {
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

pub(crate) fn header<'a>(post: &'a Post, name: &str) -> &'a str {
    post.headers[name].to_str().unwrap()
}
