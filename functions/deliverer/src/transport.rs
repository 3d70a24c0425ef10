//! The way out: one POST to a URL that a tenant chose.
//!
//! Everything here assumes that the other side is hostile. `egress` opens the connections, to addresses that it checked.
//! There are no redirects, no proxies, no decompression; the whole attempt has one deadline, and what is read and kept of
//! an answer is bounded.
//!
//! [`client`] makes a request; [`answer`] reads.

pub mod answer;
pub mod client;

use std::{error::Error, time::Duration};

use bytes::Bytes;
use domain::{
    address::{AddressPolicy, EndpointUrl},
    delivery::Cause,
};
use http::HeaderMap;

/// One request. The body and the headers are signed already.
#[derive(Clone, Debug)]
pub struct Post {
    /// Where to.
    pub url: EndpointUrl,
    /// All headers but those of HTTP itself.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
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
