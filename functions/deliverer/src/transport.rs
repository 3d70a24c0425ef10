//! The way out: one POST to a URL that a tenant chose, or one call to a queue or a bus that an operator chose.
//!
//! A POST assumes that the other side is hostile. `egress` opens the connections, to addresses that it checked.
//! There are no redirects, no proxies, no decompression; the whole attempt has one deadline, and what is read and kept of
//! an answer is bounded.
//!
//! [`client`] makes a request; [`answer`] reads; [`targets`] calls queues and buses, and tells owners what they have to hear.

pub mod answer;
pub mod client;
mod notices;
pub mod targets;

use std::{error::Error, fmt, time::Duration};

use bytes::Bytes;
use domain::{
    address::{AddressPolicy, EndpointUrl},
    delivery::{Cause, Steer},
    destination::{BusArn, QueueUrl},
};
use http::HeaderMap;
use jiff::Timestamp;
use tokio::time::Instant;
use zeroize::Zeroizing;

/// One request. The body and the headers are signed already.
#[derive(Clone, Debug)]
pub struct Post {
    /// Where to.
    pub url: EndpointUrl,
    /// All headers but those of HTTP itself.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// When it must have ended, the answer read.
    pub by: Instant,
}

/// What an endpoint answered. The status decides; the rest is for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// The HTTP status.
    pub status: u16,
    /// The value of its only `Retry-After` header.
    pub retry_after: Option<String>,
    /// The first part of the body, made harmless.
    pub excerpt: String,
    /// What its only `webhook-delivery` header says of what it is sent.
    pub steer: Option<Steer>,
    /// Whether it leads elsewhere. Nobody follows.
    pub is_redirect: bool,
}

impl Answered {
    /// An answer with nothing special in it.
    pub const fn plain(status: u16, excerpt: String) -> Self {
        Self { status, retry_after: None, excerpt, steer: None, is_redirect: false }
    }
}

/// What somebody answered whose words we need: the whole body, unchanged. Does not print: a token may be in it.
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub body: Zeroizing<Vec<u8>>,
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").field("status", &self.status).finish_non_exhaustive()
    }
}

/// An attempt without an answer.
#[derive(Debug, thiserror::Error)]
#[error("no answer ({cause:?})")]
pub struct Failed {
    /// Why, in one word.
    pub cause: Cause,
    /// Why, for an operator. May name addresses, which are no business of a subscriber.
    #[source]
    pub source: Option<Box<dyn Error + Send + Sync>>,
}

impl Failed {
    /// A failure without a deeper reason.
    pub const fn new(cause: Cause) -> Self {
        Self { cause, source: None }
    }
}

/// Sends requests. In production this is [`client::Client`].
pub trait Transport: Sync {
    /// Sends one request and reads the answer, in bounded time and memory.
    fn post(&self, post: Post) -> impl Future<Output = Result<Answered, Failed>> + Send;

    /// Sends one request and reads the whole answer, within the same bounds. A larger answer is none.
    fn ask(&self, post: Post) -> impl Future<Output = Result<Reply, Failed>> + Send;
}

/// A message for a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Where to.
    pub queue: QueueUrl,
    /// The payload.
    pub body: String,
    /// The event's id, by which a consumer recognises a repetition.
    pub key: String,
    /// The event's type.
    pub event_type: String,
    /// What a FIFO queue asks for beside.
    pub fifo: Option<Fifo>,
}

/// What a FIFO queue asks for. Its deduplication id is the message's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fifo {
    /// Whose order is kept.
    pub group: String,
}

/// An entry for a bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where to.
    pub bus: BusArn,
    /// Who sends it.
    pub source: String,
    /// The event's type.
    pub detail_type: String,
    /// The payload.
    pub detail: String,
    /// The event's id, by which a rule's target recognises a repetition.
    pub key: String,
    /// When the event was written.
    pub at: Timestamp,
}

/// Hands events to queues and buses. In production this is [`targets::AwsTargets`].
pub trait Targets: Sync {
    /// Sends one message to a queue, once.
    fn message(&self, message: Message) -> impl Future<Output = Result<Answered, Failed>> + Send;

    /// Puts one event on a bus, once.
    fn put(&self, entry: Entry) -> impl Future<Output = Result<Answered, Failed>> + Send;

    /// Whether it is the queue that wakes us. Our role has to let us write there, and no endpoint may borrow that.
    fn is_own(&self, queue: &QueueUrl) -> bool;

    /// Whether there surely is no such bus. A question that cannot be answered says no.
    fn is_missing(&self, bus: &BusArn) -> impl Future<Output = bool> + Send;
}

/// The bounds of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// What may be dialled.
    pub policy: AddressPolicy,
    /// Longest time until there is a connection, TLS included.
    pub connect: Duration,
    /// Longest time for everything.
    pub attempt: Duration,
    /// Most bytes of a body that are read.
    pub read: usize,
    /// Most bytes of it that are kept, after control characters were escaped.
    pub kept: usize,
}
