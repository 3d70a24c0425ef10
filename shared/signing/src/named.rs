//! The few providers whose signatures no table can describe, one file for each.
//!
//! They take what a scheme in data gives them, keys and `config`, and answer with the same reasons; which headers are
//! demanded, what the body must be, and where the identity is found stays data where it can.

mod adyen;
pub(crate) mod braintree;
mod form;
mod jwt_body_hash;
mod paypal;
mod plaid;
mod sns;
mod twilio;

use jiff::Timestamp;
use serde::de::{Deserialize, Deserializer, Error as _};
use serde_json::value::RawValue;
use subtle::Choice;

use crate::asymmetric::PublicKey;
use crate::digest::Keyed;
use crate::identity::{self, Identity};
use crate::json::Pointer;
use crate::key::{Key, KeyError, KeyId};
use crate::rejected::Reason;
use crate::request::Request;
use crate::scheme::{Algorithm, Scheme, Verifier};
use crate::{certificate, jwt};

/// A request that code, or a scheme in data, found to be right.
#[derive(Clone, Debug)]
pub(crate) struct Match {
    /// The key that made the signature.
    pub(crate) key: KeyId,
    /// SHA-256 over what the signature covers of the content; `None` where that is the body as a whole.
    pub(crate) signed: Option<[u8; 32]>,
    /// What the request says of itself, where data alone would not find it.
    pub(crate) identity: Option<Identity>,
}

/// What a verifier has to go by.
struct Ask<'a> {
    scheme: &'a Scheme,
    keys: &'a [Key],
    request: &'a Request<'a>,
    now: Timestamp,
}

/// What a verifier found out: the request is genuine.
struct Proven {
    key: KeyId,
    /// SHA-256 over what the signature covers of the content.
    signed: [u8; 32],
    found: Found,
}

/// Identity that stands where no pointer reaches. Counts where the scheme's data finds nothing.
#[derive(Default)]
struct Found {
    /// Always covered by the signature.
    id: Option<String>,
    event_type: Option<String>,
    object_type: Option<String>,
    object_id: Option<String>,
    occurred_at: Option<Timestamp>,
}

/// Judges a request by the code of `verifier`. Structure and body rule of the scheme are checked by the caller.
pub(crate) fn verify(
    verifier: Verifier,
    scheme: &Scheme,
    keys: &[Key],
    request: &Request<'_>,
    now: Timestamp,
) -> Result<Match, Reason> {
    let ask = Ask { scheme, keys, request, now };
    let Proven { key, signed, found } = match verifier {
        Verifier::Twilio => twilio::verify(&ask),
        Verifier::Adyen => adyen::verify(&ask),
        Verifier::Braintree => braintree::verify(&ask),
        Verifier::PayPal => paypal::verify(&ask),
        Verifier::Sns => sns::verify(&ask),
        Verifier::Plaid => plaid::verify(&ask),
        Verifier::JwtBodyHash => jwt_body_hash::verify(&ask),
    }?;
    let identity = found.fill(identity::of_request(scheme, request, now));
    Ok(Match { key, signed: Some(signed), identity: Some(identity) })
}

/// Reads a key that the provider publishes: a certificate or a JSON Web Key.
pub(crate) fn published(verifier: Verifier, text: &str) -> Result<PublicKey, KeyError> {
    let key = match verifier {
        Verifier::PayPal | Verifier::Sns => certificate::read(text),
        Verifier::Plaid => jwt::web_key(text).map(|(key, _)| key),
        _ => return Err(KeyError::NotPublished),
    };
    key.ok_or(KeyError::NotAPublicKey)
}

/// Whether the provider publishes its keys by id, for which [`published`] reads them.
pub(crate) fn publishes_keys(verifier: Verifier) -> bool {
    matches!(verifier, Verifier::PayPal | Verifier::Sns | Verifier::Plaid)
}

/// Whether the signature covers this value although it does not cover the whole body. In a scheme with elements the pointers
/// start there.
pub(crate) fn covers(verifier: Verifier, pointer: &Pointer) -> bool {
    let signed: &[&str] = match verifier {
        Verifier::Sns => &["/MessageId", "/TopicArn", "/Type", "/Timestamp"],
        Verifier::Adyen => &[
            "/NotificationRequestItem/pspReference",
            "/NotificationRequestItem/originalReference",
            "/NotificationRequestItem/eventCode",
            "/NotificationRequestItem/success",
        ],
        _ => &[],
    };
    signed.iter().any(|text| Pointer::parse(text).as_ref() == Some(pointer))
}

/// How many seconds a request may be old, where the code judges that by itself.
pub(crate) fn tolerance(verifier: Verifier) -> Option<u32> {
    match verifier {
        Verifier::Plaid => u32::try_from(plaid::TOLERANCE).ok(),
        _ => None,
    }
}

/// The values under `config` that the code needs.
pub(crate) fn config(verifier: Verifier) -> &'static [&'static str] {
    match verifier {
        Verifier::PayPal => &["webhook_id"],
        Verifier::JwtBodyHash => &["header"],
        // Amazon signs for everybody's topics.
        Verifier::Sns => &["topic_arn"],
        _ => &[],
    }
}

impl Found {
    fn fill(self, identity: Identity) -> Identity {
        let id_is_signed =
            if identity.id.is_none() { self.id.is_some() } else { identity.id_is_signed };
        Identity {
            id: identity.id.or(self.id),
            id_is_signed,
            event_type: identity.event_type.or(self.event_type),
            object_type: identity.object_type.or(self.object_type),
            object_id: identity.object_id.or(self.object_id),
            occurred_at: identity.occurred_at.or(self.occurred_at),
            ..identity
        }
    }
}

impl<'a> Ask<'a> {
    /// A value of the source's configuration; blank counts as absent.
    fn config(&self, name: &str) -> Option<&'a str> {
        self.scheme.config(name).filter(|value| !value.trim().is_empty())
    }

    fn needed(&self, name: &str) -> Result<&'a str, Reason> {
        self.config(name).ok_or_else(|| Reason::NotConfigured { name: name.into() })
    }

    /// The first key that made the signature. All are tried, whichever matches: the time it takes tells nothing about
    /// their order.
    fn made_by(&self, made: impl Fn(&Key) -> Choice) -> Result<KeyId, Reason> {
        if self.keys.is_empty() {
            return Err(Reason::NoKeys);
        }
        let mut first = None;
        for key in self.keys {
            if bool::from(made(key)) && first.is_none() {
                first = Some(key.id().clone());
            }
        }
        first.ok_or_else(|| self.mismatch())
    }

    /// The key that the provider publishes under an id; the id must be of the strict form already.
    fn published(&self, id: &str) -> Result<(KeyId, &'a PublicKey), Reason> {
        self.find_published(id).ok_or_else(|| Reason::KeyUnknown { id: id.into() })
    }

    fn has_published(&self, id: &str) -> bool {
        self.find_published(id).is_some()
    }

    fn find_published(&self, id: &str) -> Option<(KeyId, &'a PublicKey)> {
        let mut named = self.keys.iter().filter(|key| key.id().as_str() == id);
        named.find_map(|key| Some((key.id().clone(), key.public()?)))
    }

    fn mismatch(&self) -> Reason {
        Reason::SignatureMismatch { keys: self.keys.len(), fresh: true }
    }
}

/// The HMAC of a message in pieces.
fn mac(algorithm: Algorithm, key: &[u8], message: &[&[u8]]) -> Vec<u8> {
    let keyed = Keyed::new(algorithm, key);
    keyed.map_or_else(Vec::new, |keyed| keyed.mac(message.iter().copied()))
}

/// The one line of a header; blank counts as absent, more than one line is refused.
fn header<'a>(request: &Request<'a>, name: &str) -> Result<Option<&'a [u8]>, Reason> {
    let mut lines = request.headers.get_all(name).iter();
    let first = lines.next();
    if lines.next().is_some() {
        return Err(Reason::HeaderRepeated { name: name.to_ascii_lowercase() });
    }
    Ok(first.map(|line| line.as_bytes()).filter(|line| !line.trim_ascii().is_empty()))
}

/// A secret that is written `name:secret`, in its two parts.
pub(crate) fn pair(secret: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = secret.iter().position(|byte| *byte == b':')?;
    let (name, secret) = (secret.get(..at)?, secret.get(at + 1..)?);
    (!name.is_empty() && !secret.is_empty()).then_some((name, secret))
}

/// Text that can name something: not blank, without control characters.
fn usable(text: &str) -> Option<String> {
    (!text.trim().is_empty() && !text.chars().any(char::is_control)).then(|| text.to_owned())
}

/// Judges a time in whole seconds. Exactly at a limit is still fresh.
fn age(sent: i64, now: Timestamp, past: i64, future: i64) -> Result<(), Reason> {
    let age = now.as_second().saturating_sub(sent);
    if age > past {
        return Err(Reason::TimestampTooOld { age_seconds: age, tolerance_seconds: past });
    }
    let ahead = age.saturating_neg();
    if ahead > future {
        return Err(Reason::TimestampInFuture { ahead_seconds: ahead, tolerance_seconds: future });
    }
    Ok(())
}

/// An object that was written as one: for a struct `serde` also takes an array, by position, and then no pointer into
/// the same body would find what was read here.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(from)?.get();
        if !raw.starts_with('{') {
            return Err(D::Error::custom("not an object"));
        }
        serde_json::from_str(raw).map(Self).map_err(D::Error::custom)
    }
}
