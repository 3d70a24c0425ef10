//! One attempt: the bytes as they were published, sent once.
//!
//! One state machine for three kinds of endpoint. What differs is here: a `post` is signed now, a [`message`] goes to a
//! queue, an [`entry`] to a bus. The id and the bytes never change; timestamp and signature belong to the attempt, so that
//! a retry after ten hours passes the same freshness check as the first try. The event's id is the idempotency key, the
//! same on every try and on every redelivery.
//!
//! [`keys`] are kept between attempts; `auth` and `token` are how an endpoint is shown who we are beside the signature.

mod auth;
pub mod entry;
pub mod keys;
pub mod message;
mod post;
mod receiver;
mod token;

use std::time::Duration;

use domain::{
    address::AddressPolicy,
    delivery::{Attempt, Cause, Delivery, Outcome, retry_after},
    destination::{BusArn, Destination, QueueUrl},
    endpoint::Endpoint,
    id::TenantId,
    lane::LaneId,
    outbox::OutboxEvent,
    ports::{Bodies, Keyring, Outbox, SealedSecret, StoreError, Stored},
};
use flow::payload::{self, Opened};
use jiff::Timestamp;
use runtime::telemetry::{Metrics, Unit, chain};

pub use self::post::Posted;
use self::{keys::Keys, receiver::Receiver, token::NoToken};
use crate::{
    drain::{Edge, Prepared, Sender},
    transport::{Answered, Entry, Failed, Message, Targets, Transport},
};

/// Makes attempts, whatever kind of endpoint it is.
#[derive(Clone, Copy, Debug)]
pub struct Attempts<'a, O, K, B, T, A> {
    /// Where events stand.
    pub outbox: &'a O,
    /// Opens the endpoints' secrets, and keeps their tokens.
    pub keys: &'a Keys<K>,
    /// Large payloads.
    pub bodies: &'a B,
    /// The way out to what tenants chose.
    pub transport: &'a T,
    /// The way to queues and buses.
    pub targets: &'a A,
    /// What may be dialled.
    pub policy: AddressPolicy,
    /// Longest time for a whole attempt, with whatever is asked for it.
    pub within: Duration,
    /// What is counted.
    pub metrics: &'a Metrics,
    /// Time and chance.
    pub edge: Edge,
}

/// An endpoint, ready to be sent to.
#[derive(Debug)]
pub struct Target {
    tenant: TenantId,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Url(Box<Receiver>),
    Queue(QueueUrl),
    Bus(BusArn),
    /// Nothing can be sent there now.
    Nowhere(Cause),
}

/// What is sent to an endpoint.
#[derive(Debug)]
pub enum Request {
    /// To a URL.
    Post(Posted),
    /// To a queue.
    Message(Message),
    /// To a bus.
    Entry(Entry),
}

/// A request that is ready, and when its attempt began.
#[derive(Debug)]
pub struct Ready {
    began: Timestamp,
    request: Request,
}

/// Something that an attempt needs and that is not there. None of it is the endpoint's fault.
#[derive(Debug, thiserror::Error)]
enum Missing {
    #[error("the event is not in the outbox")]
    Event,
    #[error("the event's payload is not in the bucket")]
    Payload,
    #[error("the event's payload in the bucket is not what was published")]
    Corrupt,
    #[error("the endpoint has no secret that can be used")]
    Secret,
    #[error("the endpoint's own headers cannot be had; set them anew")]
    Own,
    #[error("the endpoint's auth cannot be had; set it anew")]
    Auth,
    #[error("the event cannot be written in the endpoint's style")]
    Style(#[source] serde_json::Error),
    #[error("a header cannot be written")]
    Header,
    #[error("the store refused")]
    Refused(#[source] StoreError),
}

impl From<Missing> for Failed {
    fn from(missing: Missing) -> Self {
        Self { cause: Cause::Internal, source: Some(missing.into()) }
    }
}

impl<O, K, B, T, A> Sender for Attempts<'_, O, K, B, T, A>
where
    O: Outbox,
    K: Keyring,
    B: Bodies,
    T: Transport,
    A: Targets,
{
    type Target = Target;
    type Request = Ready;

    async fn open(&self, endpoint: Endpoint, sealed: Vec<SealedSecret>) -> Stored<Target> {
        let place = match &endpoint.destination {
            Destination::Https(url) => {
                Place::Url(Box::new(self.receiver(&endpoint, url, &sealed).await?))
            }
            Destination::Queue(queue) if self.targets.is_own(queue) => {
                Place::Nowhere(Cause::BlockedAddress)
            }
            Destination::Queue(queue) => Place::Queue(queue.clone()),
            // EventBridge takes events for a bus that does not exist, says that it has them, and drops them.
            Destination::Bus(bus) if self.targets.is_missing(bus).await => {
                Place::Nowhere(Cause::NoSuchTarget)
            }
            Destination::Bus(bus) => Place::Bus(bus.clone()),
            // Its lane is left to its owner, and no attempt of ours is made.
            Destination::Poll(_) => Place::Nowhere(Cause::Internal),
        };
        Ok(Target { tenant: endpoint.tenant, place })
    }

    async fn prepare(
        &self,
        target: &Target,
        lane: &LaneId,
        delivery: &Delivery,
    ) -> Stored<Prepared<Ready>> {
        let number = delivery.attempts.saturating_add(1);
        let began = (self.edge.now)();
        match self.request(target, delivery, number, began).await {
            Ok(request) => Ok(Prepared::Ready(Ready { began, request })),
            Err(Unready::Now(failed)) => {
                Ok(Prepared::Failed(self.ended(lane, delivery, began, Err(failed))))
            }
            Err(Unready::Later(error)) => Err(error),
        }
    }

    async fn send(&self, lane: &LaneId, delivery: &Delivery, ready: Ready) -> Attempt {
        let answer = match ready.request {
            Request::Post(posted) => self.post(posted).await,
            Request::Message(message) => self.targets.message(message).await,
            Request::Entry(entry) => self.targets.put(entry).await,
        };
        self.ended(lane, delivery, ready.began, answer)
    }
}

/// Why nothing is sent.
enum Unready {
    /// The attempt has failed before it left us.
    Now(Failed),
    /// Nothing is known: the store is busy or down, which is no attempt at all.
    Later(StoreError),
}

impl From<StoreError> for Unready {
    fn from(error: StoreError) -> Self {
        if error.is_transient() {
            Self::Later(error)
        } else {
            Self::Now(Missing::Refused(error).into())
        }
    }
}

impl From<Missing> for Unready {
    fn from(missing: Missing) -> Self {
        Self::Now(missing.into())
    }
}

impl From<Failed> for Unready {
    fn from(failed: Failed) -> Self {
        Self::Now(failed)
    }
}

impl<O, K, B, T, A> Attempts<'_, O, K, B, T, A>
where
    O: Outbox,
    K: Keyring,
    B: Bodies,
{
    /// The event, and its bytes.
    async fn event(
        &self,
        target: &Target,
        delivery: &Delivery,
    ) -> Result<(OutboxEvent, Vec<u8>), Unready> {
        let event = self.row(target, delivery).await?;
        let bytes = self.payload(&event).await?;
        Ok((event, bytes))
    }

    async fn row(&self, target: &Target, delivery: &Delivery) -> Result<OutboxEvent, Unready> {
        let row = self.outbox.event(&target.tenant, delivery.event).await?;
        Ok(row.ok_or(Missing::Event)?.event)
    }

    async fn payload(&self, event: &OutboxEvent) -> Result<Vec<u8>, Unready> {
        match payload::open(event, self.bodies).await? {
            Opened::Bytes(bytes) => Ok(bytes),
            Opened::Missing => Err(Missing::Payload.into()),
            Opened::Corrupt => Err(Missing::Corrupt.into()),
        }
    }
}

impl<O, K, B, T, A> Attempts<'_, O, K, B, T, A>
where
    O: Outbox,
    K: Keyring,
    B: Bodies,
    T: Transport,
{
    async fn request(
        &self,
        target: &Target,
        delivery: &Delivery,
        number: u32,
        sent: Timestamp,
    ) -> Result<Request, Unready> {
        match &target.place {
            Place::Nowhere(cause) => Err(Failed::new(*cause).into()),
            Place::Url(receiver) => {
                Ok(Request::Post(self.posted(receiver, target, delivery, number, sent).await?))
            }
            Place::Queue(queue) => {
                let (event, body) = self.event(target, delivery).await?;
                Ok(Request::Message(message::of(queue, &event, body)?))
            }
            Place::Bus(bus) => {
                let (event, body) = self.event(target, delivery).await?;
                Ok(Request::Entry(entry::of(bus, &event, body)?))
            }
        }
    }
}

impl<O, K, B, T, A> Attempts<'_, O, K, B, T, A> {
    /// The end of an attempt.
    fn ended(
        &self,
        lane: &LaneId,
        delivery: &Delivery,
        began: Timestamp,
        answer: Result<Answered, Failed>,
    ) -> Attempt {
        let number = delivery.attempts.saturating_add(1);
        let now = (self.edge.now)();
        let (outcome, excerpt) = match answer {
            Ok(answered) => outcome(answered, now),
            Err(failed) => {
                log_failure(lane, delivery, number, &failed);
                // What is wrong with a token is for those who can mend it; other reasons may name addresses.
                let told =
                    failed.source.as_ref().and_then(|source| source.downcast_ref::<NoToken>());
                let excerpt = told.map(ToString::to_string).unwrap_or_default();
                (Outcome::Failed { cause: failed.cause }, excerpt)
            }
        };
        let took = Duration::try_from(now.duration_since(began)).unwrap_or_default();
        let duration_ms = millis(took);
        self.metrics.count("deliveries_attempted_total", None, 1);
        self.metrics.count("deliveries_succeeded_total", None, u32::from(outcome.is_success()));
        let latency = took.as_secs_f64() * 1000.0;
        self.metrics.record("deliveries_attempt_latency", Unit::Milliseconds, None, latency);
        Attempt { number, at: began, duration_ms, outcome, excerpt }
    }
}

/// What an answer means, and what is shown of it.
fn outcome(answered: Answered, now: Timestamp) -> (Outcome, String) {
    let Answered { status, retry_after: pause, excerpt, steer, is_redirect } = answered;
    let outcome = if is_redirect && steer.is_none() {
        Outcome::Failed { cause: Cause::Redirect }
    } else {
        let asked = pause.and_then(|value| retry_after(&value, now));
        Outcome::answered(status, asked.map(millis), steer)
    };
    (outcome, excerpt)
}

/// What an operator needs beyond the one word of the outcome: addresses, names of certificates.
fn log_failure(lane: &LaneId, delivery: &Delivery, attempt: u32, failed: &Failed) {
    let error = chain(failed);
    tracing::debug!(
        stage = "deliver", lane = %lane, event_id = %delivery.event, attempt, error = %error,
        "why there is no answer"
    );
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
