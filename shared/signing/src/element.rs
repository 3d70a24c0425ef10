//! Several events in one request, taken apart without copying a byte.

use crate::identity::{self, Identity};
use crate::json::{self, NotElements};
use crate::scheme::Scheme;

/// More events than any provider puts into one request; the bound keeps one request from becoming endless work.
pub const MAX_ELEMENTS: usize = 10_000;

/// One event of a request that carries several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element<'a> {
    /// Its bytes as they were sent: a slice of the request's body.
    pub body: &'a [u8],
    /// What it says of itself. An id of `None` means: take the hash of the request's body and the index.
    pub identity: Identity,
}

/// Why there are no elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotABatch {
    /// The scheme has no `batch`.
    #[error(
        "the scheme does not say that its requests carry several events; treat this one as one event"
    )]
    Single,
    /// There is no array where the scheme says.
    #[error(
        "the body has no array of events where the scheme says; the provider may have changed its form"
    )]
    NoArray,
    /// More than [`MAX_ELEMENTS`].
    #[error("the body has more than {MAX_ELEMENTS} events; no provider sends that many")]
    TooMany,
}

/// Takes a verified body apart where the scheme says, in the order of the body. An empty array has no elements.
///
/// # Errors
/// The body has no such array; see [`NotABatch`].
pub fn elements<'a>(scheme: &Scheme, body: &'a [u8]) -> Result<Vec<Element<'a>>, NotABatch> {
    let (pointer, rules) = scheme.terms.batch.as_ref().ok_or(NotABatch::Single)?;
    let array = json::find(body, pointer).ok_or(NotABatch::NoArray)?;
    let texts = json::elements(array, MAX_ELEMENTS).map_err(|why| match why {
        NotElements::NotAnArray => NotABatch::NoArray,
        NotElements::TooMany => NotABatch::TooMany,
    })?;
    let element = |text: &'a str| Element {
        body: text.as_bytes(),
        identity: identity::of_element(scheme, rules, text.as_bytes()),
    };
    Ok(texts.into_iter().map(element).collect())
}
