//! One attempt: the bytes as they were published, sent once.
//!
//! One state machine for three kinds of endpoint. What differs is here: a [`post`] is signed now, a [`message`] goes to a
//! queue, an [`entry`] to a bus. The id and the bytes never change; timestamp and signature belong to the attempt, so that
//! a retry after ten hours passes the same freshness check as the first try. The event's id is the idempotency key, the
//! same on every try and on every redelivery.
//!
//! [`keys`] are kept between attempts; `auth` and `token` are how an endpoint is shown who we are beside the signature.

mod auth;
pub mod entry;
pub mod keys;
pub mod message;
pub mod post;
mod token;

use std::{sync::Arc, time::Duration};

use domain::{
    address::{AddressPolicy, BadUrl, EndpointUrl},
    delivery::{Attempt, Cause, Delivery, Outcome, retry_after},
    destination::{Destination, QueueUrl},
    endpoint::{Endpoint, StaticHeaders, Style},
    id::{EndpointId, TenantId},
    lane::LaneId,
    outbox::OutboxEvent,
    ports::{Bodies, Keyring, Outbox, Purpose, SealedSecret, StoreError, Stored},
    secret::SecretText,
};
use flow::{
    leaving::{Content, Leaving, needs_payload},
    payload::{self, Opened},
};
use http::header;
use jiff::Timestamp;
use runtime::telemetry::{Metrics, Unit, chain};
use signing::{EndpointSecret, Secret};
use tokio::time::Instant;

use self::{
    auth::{Shown, bearer},
    keys::{Keys, Token},
    token::{Client, NoToken},
};
use crate::{
    drain::{Edge, Prepared, Sender},
    transport::{Answered, Entry, Failed, Message, Post, Targets, Transport},
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
    Bus(domain::destination::BusArn),
    /// Nothing can be sent there now.
    Nowhere(Cause),
}

/// Who listens at a URL, and what he is sent.
#[derive(Debug)]
struct Receiver {
    endpoint: EndpointId,
    url: Result<EndpointUrl, BadUrl>,
    style: Style,
    /// What is signed with, each until it expires.
    secrets: Vec<(EndpointSecret, Option<Timestamp>)>,
    /// The endpoint's own headers; `None` if they cannot be had.
    own: Option<StaticHeaders>,
    /// What it is shown; `None` if that cannot be had.
    shown: Option<Shown>,
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

/// A request to a URL.
#[derive(Debug)]
pub struct Posted {
    post: Post,
    /// Whose token it carries.
    token: Option<Lent>,
}

/// A token that a request carries.
#[derive(Debug)]
struct Lent {
    client: Arc<Client>,
    token: Token,
    /// Asked for just now: if it is not accepted, another would not be either.
    is_new: bool,
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
    /// An endpoint at a URL. What can be had of it is had now; what cannot, its attempts will say.
    async fn receiver(
        &self,
        endpoint: &Endpoint,
        url: &str,
        sealed: &[SealedSecret],
    ) -> Stored<Receiver> {
        let own = if endpoint.headers.is_empty() {
            Some(StaticHeaders::default())
        } else {
            self.current(endpoint, sealed, Purpose::Headers)
                .await?
                .and_then(|text| own(endpoint, &text))
        };
        let secret = match &endpoint.auth {
            Some(_) => self.current(endpoint, sealed, Purpose::Auth).await?,
            None => None,
        };
        let shown = Shown::of(endpoint, secret, &self.policy);
        let shown = shown.inspect_err(|error| log_unusable(endpoint, "auth", error)).ok();
        Ok(Receiver {
            endpoint: endpoint.id,
            // Checked again at every send: the row may be older than a rule.
            url: EndpointUrl::parse(url, &self.policy),
            style: endpoint.style,
            secrets: self.secrets(endpoint, sealed).await?,
            own,
            shown,
        })
    }

    /// The secrets of an endpoint that can sign, as long as they are active.
    async fn secrets(
        &self,
        endpoint: &Endpoint,
        sealed: &[SealedSecret],
    ) -> Stored<Vec<(EndpointSecret, Option<Timestamp>)>> {
        let mut secrets = Vec::new();
        for secret in self.active(sealed, Purpose::Signing) {
            // Another secret may still do. Without any, nothing is sent.
            let Some(text) = self.unseal(endpoint, secret).await? else { continue };
            match EndpointSecret::parse(&Secret::new(text.expose())) {
                Ok(opened) => secrets.push((opened, secret.expires_at)),
                Err(error) => log_unusable(endpoint, &secret.id, &error),
            }
        }
        Ok(secrets)
    }

    /// The current secret for this purpose: one that does not expire, else the one that expires last.
    async fn current(
        &self,
        endpoint: &Endpoint,
        sealed: &[SealedSecret],
        purpose: Purpose,
    ) -> Stored<Option<SecretText>> {
        let active = self.active(sealed, purpose);
        let latest = active.max_by_key(|secret| secret.expires_at.unwrap_or(Timestamp::MAX));
        match latest {
            Some(secret) => self.unseal(endpoint, secret).await,
            None => Ok(None),
        }
    }

    fn active<'s>(
        &self,
        sealed: &'s [SealedSecret],
        purpose: Purpose,
    ) -> impl Iterator<Item = &'s SealedSecret> + use<'s, O, K, B, T, A> {
        let now = (self.edge.now)();
        sealed
            .iter()
            .filter(move |secret| secret.purpose == purpose && is_active(secret.expires_at, now))
    }

    async fn unseal(
        &self,
        endpoint: &Endpoint,
        secret: &SealedSecret,
    ) -> Stored<Option<SecretText>> {
        match self.keys.unseal(endpoint, &secret.sealed).await {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.is_transient() => Err(error),
            Err(error) => {
                log_unusable(endpoint, &secret.id, &error);
                Ok(None)
            }
        }
    }

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

    /// The request to a URL: signed now, with what is active now.
    async fn posted(
        &self,
        receiver: &Receiver,
        target: &Target,
        delivery: &Delivery,
        number: u32,
        sent: Timestamp,
    ) -> Result<Posted, Unready> {
        let url = receiver
            .url
            .clone()
            .map_err(|bad| Failed { cause: Cause::BlockedAddress, source: Some(bad.into()) })?;
        let active = receiver.secrets.iter().filter(|(_, expires_at)| is_active(*expires_at, sent));
        let secrets: Vec<EndpointSecret> = active.map(|(secret, _)| secret.clone()).collect();
        if secrets.is_empty() {
            return Err(Missing::Secret.into());
        }
        let own = receiver.own.as_ref().ok_or(Missing::Own)?;
        let shown = receiver.shown.as_ref().ok_or(Missing::Auth)?;
        let event = self.row(target, delivery).await?;
        let payload = match needs_payload(receiver.style) {
            true => self.payload(&event).await?,
            false => Vec::new(),
        };
        let content = Content::of(receiver.style, &event, payload).map_err(Missing::Style)?;
        let leaving = Leaving {
            event: &event,
            content: &content,
            endpoint: receiver.endpoint,
            secrets: &secrets,
            attempt: number,
            at: sent,
        };
        let mut headers = post::headers(&leaving, own).ok_or(Missing::Header)?;
        // The time of the attempt begins here; whatever is asked of strangers is in it.
        let by = Instant::now() + self.within;
        let token = match shown {
            Shown::Nothing => None,
            Shown::Always(value) => {
                headers.insert(header::AUTHORIZATION, value.clone());
                None
            }
            Shown::Token(client) => {
                let (token, is_new) = client
                    .token(self.keys, self.transport, sent, by)
                    .await
                    .map_err(Failed::from)?;
                let value = bearer(&token.value).ok_or(Missing::Header)?;
                headers.insert(header::AUTHORIZATION, value);
                Some(Lent { client: Arc::clone(client), token, is_new })
            }
        };
        Ok(Posted { post: Post { url, headers, body: content.bytes.into(), by }, token })
    }

    /// Sends it. If a token is not accepted that was had before, one more is asked for: it may have been withdrawn, and
    /// a 401 has done nothing.
    async fn post(&self, Posted { mut post, token }: Posted) -> Result<Answered, Failed> {
        let Some(Lent { client, token, is_new }) = token else {
            return self.transport.post(post).await;
        };
        let answered = self.transport.post(post.clone()).await?;
        if answered.status != 401 {
            return Ok(answered);
        }
        client.refused(self.keys, token.serial);
        if is_new {
            return Ok(answered);
        }
        let (token, _) =
            client.token(self.keys, self.transport, (self.edge.now)(), post.by).await?;
        let value = bearer(&token.value).ok_or(Missing::Header)?;
        post.headers.insert(header::AUTHORIZATION, value);
        self.transport.post(post).await
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

/// Whether a secret is used at a time. At the second at which it expires it is not.
fn is_active(expires_at: Option<Timestamp>, now: Timestamp) -> bool {
    expires_at.is_none_or(|expires_at| expires_at > now)
}

/// An endpoint's own headers, of which those are left out that a younger rule forbids.
fn own(endpoint: &Endpoint, text: &SecretText) -> Option<StaticHeaders> {
    match StaticHeaders::from_json(text) {
        Ok((own, problems)) => {
            for problem in &problems {
                log_unusable(endpoint, "headers", problem);
            }
            Some(own)
        }
        Err(error) => {
            log_unusable(endpoint, "headers", &error);
            None
        }
    }
}

fn log_unusable(endpoint: &Endpoint, what: &str, error: &(dyn std::error::Error + 'static)) {
    tracing::error!(
        tenant = %endpoint.tenant, endpoint = %endpoint.id, secret = what, error = %chain(error),
        "a secret of an endpoint cannot be used"
    );
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
