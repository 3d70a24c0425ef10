//! The verdict: structure first, then the signature, then its time. What the body says is read last.

use jiff::Timestamp;

use crate::freshness::{self, Sent};
use crate::json::{self, Leaf, Pointer};
use crate::key::{Key, KeyId};
use crate::rejected::{Reason, Rejected};
use crate::request::Request;
use crate::scheme::{BodyRule, Part, Scheme, Template};
use crate::{Identity, identity, signature};

/// Proof that a request was verified. Only [`verify`] makes one.
///
/// ```compile_fail,E0451
/// let forged = signing::Verified { key: todo!(), body: b"", identity: todo!() }; // private fields
/// ```
#[derive(Clone, Debug)]
pub struct Verified<'a> {
    key: KeyId,
    body: &'a [u8],
    identity: Identity,
}

impl<'a> Verified<'a> {
    /// The key that made the signature.
    #[must_use]
    pub fn key(&self) -> &KeyId {
        &self.key
    }

    /// The untouched bytes that were verified.
    #[must_use]
    pub fn body(&self) -> &'a [u8] {
        self.body
    }

    /// What the request says of itself, where the scheme says to look.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The same, by value.
    #[must_use]
    pub fn into_identity(self) -> Identity {
        self.identity
    }
}

/// Verifies a request against every active key.
///
/// # Errors
/// The strongest true statement about why not: a missing or ambiguous piece first, then a signature that no key made,
/// then a time that is not near `now`.
pub fn verify<'a>(
    scheme: &Scheme,
    keys: &[Key],
    request: &Request<'a>,
    now: Timestamp,
) -> Result<Verified<'a>, Rejected> {
    structure(scheme, request)?;
    let signature = signature_text(scheme, request)?;
    let candidates = signature::candidates(scheme, &signature)?;
    let sent = sent(scheme, request, &signature)?;
    let message = message(scheme, request, sent.as_ref().map(|(text, _)| text.as_slice()))?;
    let message: Vec<&[u8]> = message.iter().map(Piece::bytes).collect();
    let age = match (&scheme.clock, &sent) {
        (Some(clock), Some((_, sent))) => freshness::judge(*sent, clock, now),
        _ => Ok(()),
    };

    if keys.is_empty() {
        return Err(Reason::NoKeys.into());
    }
    let mut made_by = None;
    for key in keys {
        // all of them, whichever matches: the time it takes tells nothing about the order of keys
        let made = key.made(&message, &candidates);
        if bool::from(made) && made_by.is_none() {
            made_by = Some(key.id());
        }
    }
    let Some(key) = made_by else {
        return Err(Reason::SignatureMismatch { keys: keys.len(), fresh: age.is_ok() }.into());
    };
    age?;
    if scheme.body == BodyRule::Json && !json::is_json(request.body) {
        return Err(Reason::BodyNotJson.into());
    }
    Ok(Verified {
        key: key.clone(),
        body: request.body,
        identity: identity::extract(scheme, request),
    })
}

/// What must be there, and may be there only once, before any secret is touched.
fn structure(scheme: &Scheme, request: &Request<'_>) -> Result<(), Reason> {
    if scheme.body == BodyRule::NonEmpty && request.body.is_empty() {
        return Err(Reason::BodyEmpty);
    }
    for names in &scheme.require {
        request.required(names)?;
    }
    for (present, needed) in &scheme.require_with {
        if request.headers.contains_key(present.as_str()) {
            request.required(std::slice::from_ref(needed))?;
        }
    }
    for (name, value) in &scheme.require_equal {
        if request.line(std::slice::from_ref(name))? != Some(value.as_bytes()) {
            return Err(Reason::HeaderUnexpected { name: name.clone() });
        }
    }
    for lookup in scheme.identity.lookups() {
        for part in lookup.from.iter().flat_map(Template::parts) {
            if let Part::Header(names) = part {
                request.single(names)?;
            }
        }
    }
    Ok(())
}

fn signature_text(scheme: &Scheme, request: &Request<'_>) -> Result<Vec<u8>, Reason> {
    match &scheme.signature.from {
        Part::Header(names) => Ok(request.line(names)?.ok_or(Reason::SignatureMissing)?.to_vec()),
        Part::Json(pointer) => Ok(body_value(request, pointer)
            .ok_or(Reason::SignatureMissing)?
            .into_text()
            .into_bytes()),
        _ => Err(Reason::SignatureMissing),
    }
}

/// The text of the signed time as it was sent, and its value.
fn sent(
    scheme: &Scheme,
    request: &Request<'_>,
    signature: &[u8],
) -> Result<Option<(Vec<u8>, Sent)>, Reason> {
    let Some(clock) = &scheme.clock else { return Ok(None) };
    let text = match &clock.from {
        Part::Header(names) => request.line(names)?.ok_or(Reason::TimestampMissing)?.to_vec(),
        Part::Pair(field) => {
            let mut values =
                signature::fields(&scheme.signature.shape, signature, field).into_iter();
            let value = values.next().ok_or(Reason::TimestampMissing)?;
            if values.next().is_some() {
                return Err(Reason::TimestampRepeated);
            }
            value.to_vec()
        }
        Part::Json(pointer) => match body_value(request, pointer) {
            Some(Leaf::Number(text)) => text.into_bytes(),
            Some(Leaf::Text(text)) if !clock.number => text.into_bytes(),
            Some(Leaf::Text(_)) => return Err(Reason::TimestampMalformed),
            None => return Err(Reason::TimestampMissing),
        },
        _ => return Err(Reason::TimestampMissing),
    };
    let value = freshness::read(&text, clock.unit).ok_or(Reason::TimestampMalformed)?;
    Ok(Some((text, value)))
}

fn body_value(request: &Request<'_>, pointer: &Pointer) -> Option<Leaf> {
    json::pick(request.body, &[pointer]).pop().flatten()
}

/// A stretch of the signed content.
pub(crate) enum Piece<'a> {
    Borrowed(&'a [u8]),
    Owned(Vec<u8>),
}

impl Piece<'_> {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Owned(bytes) => bytes,
        }
    }
}

/// The signed content, in the order of the scheme.
pub(crate) fn message<'a>(
    scheme: &'a Scheme,
    request: &Request<'a>,
    time: Option<&'a [u8]>,
) -> Result<Vec<Piece<'a>>, Reason> {
    let piece = |part: &'a Part| {
        Ok(match part {
            Part::Literal(text) => Piece::Borrowed(text.as_bytes()),
            Part::Body => Piece::Borrowed(request.body),
            Part::Timestamp => Piece::Borrowed(time.ok_or(Reason::TimestampMissing)?),
            Part::Method => Piece::Borrowed(request.method.as_bytes()),
            Part::Url => Piece::Borrowed(request.url.as_bytes()),
            Part::Header(names) => Piece::Borrowed(request.required(names)?),
            Part::Json(pointer) => {
                let value = body_value(request, pointer).ok_or(Reason::BodyValueMissing)?;
                Piece::Owned(value.into_text().into_bytes())
            }
            Part::Config(name) => match scheme.config.get(name) {
                Some(value) => Piece::Borrowed(value.as_bytes()),
                None => return Err(Reason::NotConfigured { name: name.clone() }),
            },
            Part::BodySha256 | Part::Pair(_) => Piece::Borrowed(b""),
        })
    };
    scheme.signed.parts().iter().map(piece).collect()
}
