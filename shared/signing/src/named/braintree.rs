//! Braintree: a form with a payload in base64 and signatures of it, each beside the public key it belongs to.
//!
//! A secret is written `public_key:private_key`. The HMAC key is the SHA-1 of the private key.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};
use sha1::{Digest as _, Sha1};
use subtle::{Choice, ConstantTimeEq as _};

use super::form::{Field, fields};
use super::{Ask, Found, Proven, mac, pair, usable};
use crate::scheme::Algorithm;
use crate::{Key, Reason, digest, freshness};

/// Signatures in one request, one for each of the account's public keys.
const MOST_SIGNATURES: usize = 32;
/// Elements inside each other. Notifications have fewer than ten.
const MOST_DEPTH: usize = 64;
/// Characters of `kind` and `timestamp`.
const MOST_TEXT: usize = 256;

pub(super) fn verify(ask: &Ask<'_>) -> Result<Proven, Reason> {
    let form: Vec<Field<'_>> = fields(ask.request.body).collect();
    let signatures = single(&form, b"bt_signature", Reason::SignatureMissing)?;
    let payload = single(&form, b"bt_payload", Reason::BodyValueMissing)?;
    let signatures = read_signatures(signatures)?;
    // signed is the text as it was encoded, which ends with a line break or has lost it on the way
    let bare = payload.trim_ascii_end();
    let key = ask.made_by(|key| {
        let Some((public, private)) = key.raw().and_then(pair) else { return Choice::from(0) };
        let expected: Vec<Vec<u8>> = [payload, bare, &[bare, b"\n"].concat()]
            .iter()
            .map(|message| sign(private, message))
            .collect();
        let own = signatures.iter().filter(|(name, _)| *name == public);
        own.fold(Choice::from(0), |found, (_, signature)| {
            expected.iter().fold(found, |found, expected| found | expected.ct_eq(signature))
        })
    })?;
    let notification = read(bare).ok_or(Reason::BodyValueMissing)?;
    let hash = digest::sha256(bare);
    let found = Found {
        // there is no id; the rest of the form can be varied without touching the signature, the payload cannot
        id: Some(hex::encode(hash)),
        event_type: usable(&notification.kind),
        occurred_at: notification.timestamp,
        ..Found::default()
    };
    Ok(Proven { key, signed: hash, found })
}

/// What a `bt_challenge` is answered with: `public_key|signature`. `None` for everything that is not exactly a challenge,
/// 20 to 32 digits of lower-case hexadecimal, and for a key of another kind.
///
/// No answer can serve as the signature of a notification: as base64 such digits never begin a document, `<` being `P`.
pub(crate) fn answer(key: &Key, challenge: &str) -> Option<String> {
    let hexadecimal = challenge.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if !hexadecimal || !(20..=32).contains(&challenge.len()) {
        return None;
    }
    let (public, private) = pair(key.raw()?)?;
    let public = std::str::from_utf8(public).ok()?;
    Some(format!("{public}|{}", hex::encode(sign(private, challenge.as_bytes()))))
}

fn sign(private: &[u8], message: &[u8]) -> Vec<u8> {
    mac(Algorithm::HmacSha1, &Sha1::digest(private), &[message])
}

/// A field of the form that must be there once.
fn single<'a>(form: &'a [Field<'_>], name: &[u8], missing: Reason) -> Result<&'a [u8], Reason> {
    let mut values = form.iter().filter(|(field, _)| &**field == name);
    match (values.next(), values.next()) {
        (Some((_, value)), None) if !value.is_empty() => Ok(value),
        (Some(_), Some(_)) => Err(Reason::SignatureMalformed),
        _ => Err(missing),
    }
}

/// A public key and the digest beside it.
type Signature<'a> = (&'a [u8], Vec<u8>);

/// `public_key|hex&public_key|hex`
fn read_signatures(text: &[u8]) -> Result<Vec<Signature<'_>>, Reason> {
    let mut signatures = Vec::new();
    for item in text.split(|byte| *byte == b'&') {
        let Some(at) = item.iter().position(|byte| *byte == b'|') else { continue };
        let (name, digits) = item.split_at(at);
        let digits = digits.get(1..).unwrap_or_default();
        let lower = digits.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if digits.len() != 40 || !lower {
            continue;
        }
        if signatures.len() == MOST_SIGNATURES {
            return Err(Reason::SignaturesTooMany);
        }
        signatures.push((name, hex::decode(digits).map_err(|_| Reason::SignatureMalformed)?));
    }
    if signatures.is_empty() { Err(Reason::SignatureMalformed) } else { Ok(signatures) }
}

struct Notification {
    kind: String,
    timestamp: Option<Timestamp>,
}

/// Reads `kind` and `timestamp` of the one `notification`. Declarations of document types are refused, entities stay
/// unexpanded, depth is counted.
fn read(payload: &[u8]) -> Option<Notification> {
    let compact: Vec<u8> =
        payload.iter().copied().filter(|byte| !matches!(byte, b'\n' | b'\r')).collect();
    let document = String::from_utf8(STANDARD.decode(compact).ok()?).ok()?;
    let mut reader = Reader::from_str(&document);
    let mut path: Vec<Vec<u8>> = Vec::new();
    let (mut kind, mut time) = (None, None);
    loop {
        match reader.read_event().ok()? {
            Event::Start(element) => {
                if path.len() == MOST_DEPTH || (path.is_empty() && !is(&element, b"notification")) {
                    return None;
                }
                path.push(element.name().as_ref().to_vec());
            }
            Event::End(_) => {
                path.pop()?;
            }
            Event::Text(text) => {
                let slot = match path.as_slice() {
                    [_, name] if name == b"kind" => &mut kind,
                    [_, name] if name == b"timestamp" => &mut time,
                    _ => continue,
                };
                let text = text.decode().ok()?.trim().to_owned();
                if text.len() > MOST_TEXT || slot.replace(text).is_some() {
                    return None;
                }
            }
            Event::DocType(_) => return None,
            Event::Eof => break,
            _ => {}
        }
    }
    if !path.is_empty() {
        return None;
    }
    let timestamp = time.and_then(|time| freshness::rfc3339(time.as_bytes()));
    Some(Notification { kind: kind.filter(|kind| !kind.is_empty())?, timestamp })
}

fn is(element: &BytesStart<'_>, name: &[u8]) -> bool {
    element.name().as_ref() == name
}
