//! The verdict: structure first, then the signature, then its time. What the body says is read last.

use std::borrow::Cow;

use jiff::Timestamp;

use crate::freshness::{self, Sent};
use crate::json::{self, Leaf, Pointer};
use crate::key::{Key, KeyId};
use crate::message::{Piece, message};
use crate::rejected::{Reason, Rejected};
use crate::request::Request;
use crate::scheme::{Algorithm, BodyRule, Part, Proof, Scheme, SignatureFormat, Trust};
use crate::signature::{self, Candidate, Candidates};
use crate::{Identity, MAX_ELEMENTS, digest, identity, named};

/// Proof that a request was verified. Only [`verify`] makes one.
///
/// ```compile_fail,E0451
/// let forged = signing::Verified { key: todo!(), body: b"", signed: None, identity: todo!() }; // private fields
/// ```
#[derive(Clone, Debug)]
pub struct Verified<'a> {
    key: KeyId,
    body: &'a [u8],
    /// The hash of what is signed; `None` where that is the body.
    signed: Option<[u8; 32]>,
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

    /// SHA-256 over what the signature covers of the content: the body, or, where the provider does not sign it, the parts
    /// that it signs. A replay under a new id has the same.
    #[must_use]
    pub fn signed_hash(&self) -> [u8; 32] {
        self.signed.unwrap_or_else(|| digest::sha256(self.body))
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
/// The strongest true statement about why not: a missing or ambiguous piece first, then a key that has yet to be fetched,
/// then a signature that no key made, then a time that is not near `now`.
pub fn verify<'a>(
    scheme: &Scheme,
    keys: &[Key],
    request: &Request<'a>,
    now: Timestamp,
) -> Result<Verified<'a>, Rejected> {
    structure(scheme, request)?;
    let found = match scheme.proof {
        Proof::Verifier(verifier) => named::verify(verifier, scheme, keys, request, now)?,
        Proof::Algorithm(algorithm) => by_algorithm(algorithm, scheme, keys, request, now)?,
    };
    let is_right = match scheme.body {
        BodyRule::Any | BodyRule::NonEmpty => true,
        BodyRule::Json => json::is_json(request.body),
        BodyRule::Object => json::is_object(request.body),
    };
    if !is_right {
        return Err(Reason::BodyNotJson.into());
    }
    Ok(Verified {
        key: found.key,
        body: request.body,
        signed: found.signed,
        identity: found.identity.unwrap_or_else(|| identity::of_request(scheme, request, now)),
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
        if request.headers.contains_key(present) {
            request.required(std::slice::from_ref(needed))?;
        }
    }
    for (name, value) in &scheme.require_equal {
        if request.line(std::slice::from_ref(name))? != Some(value.as_bytes()) {
            return Err(Reason::HeaderUnexpected { name: name.to_string() });
        }
    }
    scheme.named_by.iter().try_for_each(|names| request.single(names).map(|_| ()))
}

fn by_algorithm(
    algorithm: Algorithm,
    scheme: &Scheme,
    keys: &[Key],
    request: &Request<'_>,
    now: Timestamp,
) -> Result<named::Match, Reason> {
    let (candidates, text) = candidates(algorithm, scheme.signature.as_ref(), request)?;
    let sent = sent(scheme, request, &text)?;
    let message = message(scheme, request, sent.as_ref().map(|(text, _)| text.as_ref()))?;
    let age = match (&scheme.clock, &sent) {
        (Some(clock), Some((_, sent))) => freshness::judge(*sent, clock, now),
        _ => Ok(()),
    };
    let wanted = scheme.lookup().map(|lookup| lookup.wanted(request)).transpose()?;
    let tried = Tried { scheme, keys, wanted, candidates: &candidates, message: &message };
    if tried.keys().next().is_none() {
        return Err(wanted.map_or(Reason::NoKeys, |id| Reason::KeyUnknown { id: id.into() }));
    }
    let every = scheme.signature.as_ref().is_some_and(SignatureFormat::shows_in_every_element);
    let made_by = if every { tried.all() } else { tried.any(scheme.is_paired()) };
    let Some(key) = made_by else {
        return Err(Reason::SignatureMismatch { keys: tried.keys().count(), fresh: age.is_ok() });
    };
    age?;
    let signed = (scheme.trust() == Trust::BodyUnsigned)
        .then(|| digest::sha256_of(message.iter().map(Piece::bytes)));
    Ok(named::Match { key: key.clone(), signed, identity: None })
}

/// Keys and candidates, all of which are tried whichever matches: the time it takes tells nothing about their order.
struct Tried<'t> {
    scheme: &'t Scheme,
    keys: &'t [Key],
    /// Only keys with this name, if the request names one.
    wanted: Option<&'t str>,
    candidates: &'t Candidates,
    message: &'t [Piece<'t>],
}

impl<'t> Tried<'t> {
    fn keys(&self) -> impl Iterator<Item = (usize, &'t Key)> {
        let (scheme, wanted) = (self.scheme, self.wanted);
        self.keys
            .iter()
            .filter(|key| !scheme.is_of_handshakes(key.id()))
            .enumerate()
            .filter(move |(_, key)| wanted.is_none_or(|id| key.id().as_str() == id))
    }

    /// The first key that made any of the candidates; if they are paired, one of those in its own place.
    fn any(&self, paired: bool) -> Option<&'t KeyId> {
        let mut made_by = None;
        for (index, key) in self.keys() {
            let place = self.scheme.place_of(key.id()).unwrap_or(index);
            let own = |candidate: &&Candidate| !paired || candidate.place() == place;
            let made = key.made(self.message, self.candidates.iter().filter(own));
            if bool::from(made) && made_by.is_none() {
                made_by = Some(key.id());
            }
        }
        made_by
    }

    /// The key that made the first candidate, if some key made each.
    fn all(&self) -> Option<&'t KeyId> {
        let mut first = None;
        let mut missing = false;
        for candidate in self.candidates.iter() {
            let mut made_by = None;
            for (_, key) in self.keys() {
                let made = key.made(self.message, std::iter::once(candidate));
                if bool::from(made) && made_by.is_none() {
                    made_by = Some(key.id());
                }
            }
            missing |= made_by.is_none();
            first = first.or(made_by);
        }
        first.filter(|_| !missing)
    }
}

/// What may be signatures, and the first text that they were found in.
fn candidates<'a>(
    algorithm: Algorithm,
    format: Option<&SignatureFormat>,
    request: &Request<'a>,
) -> Result<(Candidates, Cow<'a, [u8]>), Reason> {
    let mut candidates = Candidates::default();
    let mut first = None;
    match (algorithm, format) {
        (Algorithm::None, _) => candidates.show(0, path_secret(request)?)?,
        (Algorithm::Basic, _) => {
            let line =
                request.line(&[http::header::AUTHORIZATION])?.ok_or(Reason::SignatureMissing)?;
            let shown = signature::basic(line).ok_or(Reason::SignatureMalformed)?;
            candidates.show(0, &shown)?;
        }
        (_, None) => return Err(Reason::SignatureMissing),
        (_, Some(format)) => {
            for (place, part) in format.from.iter().enumerate() {
                if let Part::EveryJson(pointers) = part {
                    let shown = json::every(request.body, pointers, MAX_ELEMENTS);
                    for shown in shown.ok_or(Reason::SignatureMissing)? {
                        candidates.read(format, algorithm, place, shown.text().as_bytes())?;
                    }
                    first.get_or_insert(Cow::Borrowed(&[][..]));
                } else if let Some(text) = signature_text(part, request)? {
                    candidates.read(format, algorithm, place, &text)?;
                    first.get_or_insert(text);
                }
            }
        }
    }
    let text = match (algorithm, first) {
        (Algorithm::None | Algorithm::Basic, _) => Cow::Borrowed(&[][..]),
        (_, Some(text)) => text,
        (_, None) => return Err(Reason::SignatureMissing),
    };
    Ok((candidates.found()?, text))
}

/// The text in one place; `None` if there is nothing but blanks.
fn signature_text<'a>(part: &Part, request: &Request<'a>) -> Result<Option<Cow<'a, [u8]>>, Reason> {
    let text = match part {
        Part::Header(names) => request.line(names)?.map(Cow::Borrowed),
        Part::Json(pointer) => {
            body_value(request, pointer).map(|leaf| Cow::Owned(leaf.into_text().into_bytes()))
        }
        Part::PathSecret => Some(Cow::Borrowed(path_secret(request)?)),
        _ => None,
    };
    Ok(text.filter(|text| !text.trim_ascii().is_empty()))
}

fn path_secret<'a>(request: &Request<'a>) -> Result<&'a [u8], Reason> {
    let secret = request.path_secret.filter(|secret| !secret.trim().is_empty());
    secret.map(str::as_bytes).ok_or(Reason::SignatureMissing)
}

/// The text of a time as it was sent, and its value.
type Time<'t> = (Cow<'t, [u8]>, Sent);

/// The signed time, if the scheme has one.
fn sent<'t>(
    scheme: &'t Scheme,
    request: &Request<'t>,
    signature: &'t [u8],
) -> Result<Option<Time<'t>>, Reason> {
    let Some(clock) = &scheme.clock else { return Ok(None) };
    let text = match (&clock.from, &scheme.signature) {
        (Part::Header(names), _) => {
            Cow::Borrowed(request.line(names)?.ok_or(Reason::TimestampMissing)?)
        }
        (Part::Pair(field), Some(format)) => {
            let mut values = signature::fields(&format.shape, signature, field);
            let value = values.next().ok_or(Reason::TimestampMissing)?;
            if values.next().is_some() {
                return Err(Reason::TimestampRepeated);
            }
            Cow::Borrowed(value)
        }
        (Part::Json(pointer), _) => match body_value(request, pointer) {
            Some(Leaf::Number(text)) => Cow::Owned(text.into_bytes()),
            Some(Leaf::Text(text)) if !clock.number => Cow::Owned(text.into_bytes()),
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
