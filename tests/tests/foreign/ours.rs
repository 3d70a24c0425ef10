//! What our deliverer sends, over thirty hours and a rotation of secrets, judged by libraries that nobody here wrote.
//!
//! The libraries judge by the clock of this machine. So the thirty hours are played once for each attempt, each time
//! begun so long ago that this attempt is made now.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    sync::Mutex,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use deliverer::{
    Keys,
    attempt::Attempts,
    drain::{Edge, Prepared, Sender as _},
    transport::{Answered, Entry, Failed, Message, Post, Reply, Targets, Transport},
};
use domain::{
    address::AddressPolicy,
    delivery::{Attempt, Delivery},
    destination::{BusArn, Destination, QueueUrl},
    endpoint::{Endpoint, Style},
    id::EventId,
    lane::LaneId,
    outbox::{OutboxEvent, OutboxRow, Payload},
    ports::{Keyring as _, Purpose, SealedSecret},
    secret::SecretText,
};
use jiff::Timestamp;
use runtime::telemetry::Metrics;
use signing::EndpointSecret;
use testkit::memory::{MemoryKeyring, Store};
use tests::now;

use crate::library::{Call, Language, Library};

const HOUR: i64 = 3600;

/// When the attempts are made, in seconds after the first.
const WAITS: [i64; 6] = [0, 5, 300, 2 * HOUR, 10 * HOUR, 30 * HOUR];

/// When the new secrets come, and when the old ones go: a day later.
const ROTATED: i64 = HOUR;
const EXPIRED: i64 = 25 * HOUR;

thread_local! {
    static CLOCK: Cell<Timestamp> = const { Cell::new(Timestamp::UNIX_EPOCH) };
}

/// An endpoint with a shared secret and a key pair, both of which are rotated.
struct Secrets {
    old: [EndpointSecret; 2],
    new: [EndpointSecret; 2],
}

impl Secrets {
    fn new() -> Self {
        let both = |n: u8| [EndpointSecret::shared([n; 32]), EndpointSecret::pair([n; 32])];
        Self { old: both(1), new: both(2) }
    }

    /// What stands in the registry so long after the first attempt, which was at `began`.
    async fn sealed(
        &self,
        keyring: &MemoryKeyring,
        endpoint: &Endpoint,
        began: Timestamp,
        wait: i64,
    ) -> Result<Vec<SealedSecret>> {
        let is_rotated = wait >= ROTATED;
        let expires_at = is_rotated.then(|| began + Duration::from_secs(EXPIRED.unsigned_abs()));
        let old = self.old.iter().map(|secret| (secret, expires_at));
        let new = self.new.iter().filter(|_| is_rotated).map(|secret| (secret, None));
        let mut sealed = Vec::new();
        for (secret, expires_at) in old.chain(new) {
            let text = SecretText::new(secret.expose().expose().to_owned());
            let bytes = keyring.seal(&endpoint.tenant, endpoint.id, &text).await?;
            let (id, purpose) = (sealed.len().to_string(), Purpose::Signing);
            sealed.push(SealedSecret { id, purpose, sealed: bytes, expires_at });
        }
        Ok(sealed)
    }
}

/// Takes everything and keeps it.
#[derive(Default)]
struct Receiver(Mutex<Vec<Post>>);

impl Transport for Receiver {
    async fn post(&self, post: Post) -> Result<Answered, Failed> {
        self.0.lock().unwrap().push(post);
        Ok(Answered::plain(500, String::new()))
    }

    async fn ask(&self, _: Post) -> Result<Reply, Failed> {
        unreachable!("nobody wants a token")
    }
}

impl Targets for Receiver {
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

/// All attempts of one delivery, the first of them at `began`.
async fn attempts(secrets: &Secrets, style: Style, began: Timestamp) -> Result<Vec<Post>> {
    CLOCK.set(began);
    let tenant: domain::id::TenantId = "acme".parse()?;
    let event = OutboxEvent {
        id: EventId::derived(began, &["x"]),
        tenant: tenant.clone(),
        event_type: "invoice.paid".to_owned(),
        schema_version: 1,
        aggregate_id: "in_1".to_owned(),
        aggregate_version: Some(7),
        payload: Payload::Inline("{\"n\":1.0, \"name\":\"Zo\u{eb} \u{2603}\"}".as_bytes().to_vec()),
        occurred_at: began,
        traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned()),
        labels: BTreeMap::new(),
    };
    let (id, url) = (format!("ep_{:032x}", 7).parse()?, "https://example.com/hook".to_owned());
    let endpoint = Endpoint::new(tenant.clone(), id, Destination::Https(url), began);
    let endpoint = Endpoint { style, ..endpoint };
    let lane = LaneId { tenant: tenant.clone(), endpoint: id, lane: 0 };
    let delivery = Delivery::new(event.id, event.event_type.clone(), Timestamp::MAX, began);
    let (store, receiver, metrics) = (Store::new(1), Receiver::default(), Metrics::new("test"));
    let row = OutboxRow { event: event.clone(), relayed: None };
    store.tables().outbox.insert((tenant, event.id), row);
    let keys = Keys::new(MemoryKeyring::default());
    let sender = Attempts {
        outbox: &store,
        keys: &keys,
        bodies: &store,
        transport: &receiver,
        targets: &receiver,
        policy: AddressPolicy::default(),
        within: Duration::from_secs(20),
        metrics: &metrics,
        edge: Edge { now: || CLOCK.get(), jitter: || 0.5 },
    };
    for (made, wait) in (0..).zip(WAITS) {
        CLOCK.set(began + Duration::from_secs(wait.unsigned_abs()));
        let sealed = secrets.sealed(keys.keyring(), &endpoint, began, wait).await?;
        let target = sender.open(endpoint.clone(), sealed).await?;
        let delivery = Delivery { attempts: made, ..delivery.clone() };
        let Prepared::Ready(ready) = sender.prepare(&target, &lane, &delivery).await? else {
            bail!("attempt {made} was not made")
        };
        let Attempt { number, .. } = sender.send(&lane, &delivery, ready).await;
        assert_eq!(number, made + 1);
    }
    Ok(receiver.0.into_inner()?)
}

/// Who judges.
enum Judge {
    /// A library in another language, which holds whatever secret it is told to.
    Foreign(Library),
    /// The public library of Standard Webhooks for Rust.
    Rust,
}

impl Judge {
    fn objects_to(&mut self, post: &Post, secret: &str) -> Result<Option<String>> {
        match self {
            Self::Foreign(library) => library.objects_to(&call(post, secret)?),
            Self::Rust => {
                let webhook = standardwebhooks::Webhook::new(secret)?;
                let judged = webhook.verify(&post.body, &post.headers);
                Ok(judged.err().map(|error| error.to_string()))
            }
        }
    }
}

fn call(post: &Post, secret: &str) -> Result<Call> {
    // All headers, as a framework would hand them over.
    let headers = post.headers.iter();
    let headers = headers.map(|(name, value)| Ok((name.to_string(), value.to_str()?.to_owned())));
    let headers: BTreeMap<String, String> = headers.collect::<Result<_>>()?;
    Ok(Call {
        secret: secret.to_owned(),
        id: headers.get("webhook-id").context("an id")?.clone(),
        at: now().as_millisecond(),
        method: "POST",
        url: post.url.to_string(),
        headers,
        body: String::from_utf8(post.body.to_vec())?,
    })
}

/// What a receiver holds of a secret: the shared one itself, or the public half.
fn held(secret: &EndpointSecret) -> String {
    secret.public_key().unwrap_or_else(|| secret.expose().expose().to_owned())
}

fn tampered(post: &Post) -> Post {
    let mut body = post.body.to_vec();
    // A space that every parser of JSON skips.
    body.push(b' ');
    Post { body: body.into(), ..post.clone() }
}

fn renamed(post: &Post) -> Result<Post> {
    let mut post = post.clone();
    post.headers.insert("webhook-id", "evt_ffffffffffffffffffffffffffffffff".parse()?);
    Ok(post)
}

/// `which` of the two secrets of an endpoint the judge holds: 0 the shared one, 1 the public key.
async fn are_believed(mut judge: Judge, which: usize) -> Result<()> {
    let secrets = Secrets::new();
    let stranger = [EndpointSecret::shared([9; 32]), EndpointSecret::pair([9; 32])];
    let of = |secrets: &[EndpointSecret; 2]| held(&secrets[which]);
    let (old, new, stranger) = (of(&secrets.old), of(&secrets.new), of(&stranger));
    for style in [Style::Full, Style::Thin, Style::CloudEvents] {
        for (made, wait) in WAITS.into_iter().enumerate() {
            let began = now() - Duration::from_secs(wait.unsigned_abs());
            let posts = attempts(&secrets, style, began).await?;
            let post = &posts[made];
            let mut judged = |post: &Post, secret: &str| -> Result<bool> {
                Ok(judge.objects_to(post, secret)?.is_none())
            };
            // Before the rotation, during it, and after it.
            let (by_old, by_new) = (wait < EXPIRED, wait >= ROTATED);
            assert_eq!(judged(post, &old)?, by_old, "{style:?}, {wait} s, the old secret");
            assert_eq!(judged(post, &new)?, by_new, "{style:?}, {wait} s, the new secret");
            assert!(!judged(post, &stranger)?, "{style:?}, {wait} s, a stranger's secret");
            let current = if by_new { &new } else { &old };
            assert!(!judged(&tampered(post), current)?, "{style:?}, {wait} s, another body");
            assert!(!judged(&renamed(post)?, current)?, "{style:?}, {wait} s, another id");
            // The judge does look at the time: what was sent hours ago would not pass any more.
            if let Some(earlier) = posts.iter().zip(WAITS).find(|(_, at)| wait - at > 301) {
                let held = if earlier.1 >= ROTATED { &new } else { &old };
                assert!(!judged(earlier.0, held)?, "{style:?}, {wait} s, an old attempt");
            }
            // One id and the same bytes, whatever changed around them.
            let ids: BTreeSet<_> =
                posts.iter().map(|post| post.headers["webhook-id"].as_bytes()).collect();
            let bodies: BTreeSet<_> = posts.iter().map(|post| post.body.as_ref()).collect();
            assert_eq!((ids.len(), bodies.len()), (1, 1), "{style:?}");
        }
    }
    Ok(())
}

async fn by_library(language: Language, library: &'static str, which: usize) -> Result<()> {
    if !language.is_there()? {
        return Ok(());
    }
    are_believed(Judge::Foreign(Library::load(language, library)?), which).await
}

/// L17, I6, DLV-retry-resigned, RPL-health-and-secret
#[tokio::test]
async fn standard_webhooks_for_rust_believes_every_attempt_across_a_rotation() -> Result<()> {
    are_believed(Judge::Rust, 0).await
}

/// L17, I6, DLV-retry-resigned, RPL-health-and-secret
#[tokio::test]
async fn standard_webhooks_for_python_believes_every_attempt_across_a_rotation() -> Result<()> {
    by_library(Language::Python, "standardwebhooks", 0).await
}

/// L17, I6, DLV-retry-resigned, RPL-health-and-secret
#[tokio::test]
async fn standard_webhooks_for_node_believes_every_attempt_across_a_rotation() -> Result<()> {
    by_library(Language::Node, "standardwebhooks", 0).await
}

/// L17, I6, DLV-retry-resigned, RPL-health-and-secret
#[tokio::test]
async fn svix_for_python_believes_every_attempt_across_a_rotation() -> Result<()> {
    by_library(Language::Python, "svix", 0).await
}

/// L17, I6, DLV-retry-resigned, RPL-health-and-secret
#[tokio::test]
async fn svix_for_node_believes_every_attempt_across_a_rotation() -> Result<()> {
    by_library(Language::Node, "svix", 0).await
}

/// L17, I6, DLV-retry-resigned: the signatures `v1a`, by the Ed25519 of another maker. No public library of Standard
/// Webhooks verifies them.
#[tokio::test]
async fn openssl_believes_every_ed25519_signature_across_a_rotation() -> Result<()> {
    by_library(Language::Node, "ed25519", 1).await
}
