//! What may come in: events that somebody has vouched for.

use std::collections::BTreeMap;

use domain::{
    event::{ObjectRef, Origin, Version},
    id::SourceName,
    source::{Dedupe, Source},
};
use http::HeaderMap;
use jiff::Timestamp;
use signing::{Identity, Request, Scheme, Verified};

use crate::{content::ENCODING, element::Child, encoding};

/// Headers that are kept with an event. Everything else may hold secrets or personal data, and is dropped here.
const KEPT: [&str; 6] = [
    "content-type",
    ENCODING,
    "stripe-account",
    "x-github-hook-id",
    "x-shopify-api-version",
    "x-shopify-shop-domain",
];

/// Longest value of a header that is kept, in bytes.
const MAX_HEADER: usize = 256;

/// An event on its way into the inbox. It can be made only of a request that was verified, of what we fetched ourselves,
/// or of [a part](crate::element::elements) of a row that was made so.
///
/// ```compile_fail
/// let forged = flow::incoming::Incoming { origin: todo!() }; // private fields
/// ```
#[derive(Clone, Debug)]
pub struct Incoming<'a> {
    pub(crate) source: SourceName,
    pub(crate) body: &'a [u8],
    pub(crate) identity: Identity,
    pub(crate) origin: Origin,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) key_id: Option<String>,
    pub(crate) traceparent: Option<String>,
    /// The hash of what was signed, if that is what tells the event apart.
    pub(crate) content: Option<[u8; 32]>,
    /// It is a request with several events, which the worker puts apart.
    pub(crate) is_batch: bool,
    /// It is one of the events of such a request.
    pub(crate) child: Option<Child>,
}

/// An event that we fetched from the provider's API, over TLS and with our token.
#[derive(Clone, Debug)]
pub struct Fetched<'a> {
    /// Its bytes.
    pub body: &'a [u8],
    /// What it says of itself.
    pub identity: Identity,
}

impl<'a> Incoming<'a> {
    /// A request to a source that was verified, with the headers it came with.
    pub fn verified(source: &Source, verified: Verified<'a>, headers: &HeaderMap) -> Self {
        Self {
            source: source.filed_under().clone(),
            content: (source.dedupe == Dedupe::Content).then(|| verified.signed_hash()),
            body: verified.body(),
            origin: Origin::Webhook,
            headers: kept(headers),
            key_id: Some(verified.key().as_str().to_owned()),
            traceparent: traceparent(headers),
            identity: verified.into_identity(),
            is_batch: false,
            child: None,
        }
    }

    /// The same event, read as its scheme says. Of a request with several events only its bytes are its identity: the
    /// names that stand in it are those of its events, and its own only tells one delivery from another. What a body that
    /// came encoded says of itself is read from what it decodes to; the body stays as it was signed. One that cannot be
    /// decoded is the worker's to park.
    #[must_use]
    pub fn under(mut self, scheme: &Scheme, request: &Request<'_>, now: Timestamp) -> Self {
        if let Some(encoding) = self.headers.get(ENCODING)
            && let Ok(std::borrow::Cow::Owned(body)) = encoding::decode(Some(encoding), self.body)
        {
            self.identity = signing::identify(scheme, &Request { body: &body, ..*request }, now);
        }
        self.is_batch = scheme.is_batch();
        // Where the same bytes can be two requests, only its own id tells them apart.
        if self.is_batch && !scheme.counts_every_request() {
            let own = self.identity.id.take();
            self.identity.delivery = self.identity.delivery.or(own);
        }
        self
    }

    /// An event that we fetched.
    pub fn fetched(source: SourceName, fetched: Fetched<'a>) -> Self {
        Self {
            source,
            body: fetched.body,
            identity: fetched.identity,
            origin: Origin::Reconcile,
            headers: BTreeMap::new(),
            key_id: None,
            traceparent: None,
            content: None,
            is_batch: false,
            child: None,
        }
    }

    pub(crate) fn object(&self) -> Option<ObjectRef> {
        // Without a kind, one kind holds all of a source's objects.
        let kind = self.identity.object_type.clone().unwrap_or_else(|| "object".to_owned());
        Some(ObjectRef { kind, id: self.identity.object_id.clone()? })
    }

    pub(crate) fn version(&self) -> Option<Version> {
        self.identity.version.as_ref().map(version)
    }
}

/// The version that a request or an answer says, in the words of the rules.
pub fn version(said: &signing::Version) -> Version {
    match said {
        signing::Version::Number(number) => Version::Number(*number),
        signing::Version::Time(at) => Version::Time(*at),
        signing::Version::Text(text) => Version::Text(text.clone()),
        signing::Version::Composite(parts) => {
            Version::Composite(parts.iter().map(version).collect())
        }
    }
}

fn kept(headers: &HeaderMap) -> BTreeMap<String, String> {
    let kept = KEPT
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), single(headers, name)?.to_owned())));
    kept.filter(|(_, value)| value.len() <= MAX_HEADER).collect()
}

/// The trace context of a request (W3C, version 00), or nothing: what else a stranger sends there is not passed on.
pub fn traceparent(headers: &HeaderMap) -> Option<String> {
    let text = single(headers, "traceparent")?;
    domain::outbox::rules::is_trace(text).then(|| text.to_owned())
}

/// The value of a header that came once and is printable.
fn single<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(only), None) => only.to_str().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    /// SEC-secret-in-logs
    #[test]
    fn only_headers_on_the_list_are_kept() {
        let long = "x".repeat(257);
        let headers = headers(&[
            ("authorization", "Bearer canary"),
            ("cookie", "canary"),
            ("stripe-signature", "canary"),
            ("content-type", "application/json"),
            ("x-shopify-shop-domain", "a.example"),
            ("x-shopify-shop-domain", "b.example"),
            ("x-shopify-api-version", &long),
        ]);
        let kept: Vec<(String, String)> = kept(&headers).into_iter().collect();
        assert_eq!(kept, [("content-type".to_owned(), "application/json".to_owned())]);
    }

    #[test]
    fn only_a_wellformed_trace_context_is_passed_on() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let check = |value: &str, expected: Option<&str>| {
            assert_eq!(
                traceparent(&headers(&[("traceparent", value)])).as_deref(),
                expected,
                "{value}"
            );
        };
        check(good, Some(good));
        for bad in [
            "",
            "00",
            "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-1",
        ] {
            check(bad, None);
        }
        assert_eq!(traceparent(&headers(&[("traceparent", good), ("traceparent", good)])), None);
    }
}
