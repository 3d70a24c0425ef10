//! PayPal: RSA over the delivery's id, its time, the id of our webhook, and a CRC-32 of the body.
//!
//! A checksum is no protection: whoever holds one request can make another body with the same CRC-32. So the body of a
//! request that was captured can be changed, and the scheme is marked as not signing it. The time is the one of the first
//! attempt, attempts go on for three days, so no age is refused.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;

use super::{Ask, Found, Proven, header};
use crate::asymmetric::Method;
use crate::{Reason, digest, freshness, lookup};

const ID: &str = "paypal-transmission-id";
const TIME: &str = "paypal-transmission-time";
const SIGNATURE: &str = "paypal-transmission-sig";
const CERTIFICATE: &str = "paypal-cert-url";
const ALGORITHM: &str = "paypal-auth-algo";
/// Bytes of an id or a time.
const MOST_TEXT: usize = 128;

pub(super) fn verify(ask: &Ask<'_>) -> Result<Proven, Reason> {
    let request = ask.request;
    let webhook = ask.needed("webhook_id")?;
    let algorithm = header(request, ALGORITHM)?.ok_or_else(|| missing(ALGORITHM))?;
    if algorithm != b"SHA256withRSA" {
        return Err(Reason::HeaderUnexpected { name: ALGORITHM.into() });
    }
    let (id, time) = (part(ask, ID)?, part(ask, TIME)?);
    let sent = freshness::rfc3339(time).ok_or(Reason::TimestampMalformed)?;
    let text = header(request, SIGNATURE)?.ok_or(Reason::SignatureMissing)?;
    let signature = STANDARD.decode(text).map_err(|_| Reason::SignatureMalformed)?;
    let url = header(request, CERTIFICATE)?.ok_or_else(|| missing(CERTIFICATE))?;
    let url =
        lookup::paypal_certificate(url, ask.config("environment")).ok_or(Reason::KeyIdMalformed)?;
    let checksum = crc32fast::hash(request.body).to_string();
    let message = [id, time, webhook.as_bytes(), checksum.as_bytes()].join(&b'|');

    let (key, certificate) = ask.published(url)?;
    if !certificate.verifies_by(Method::RsaSha256, &message, &signature) {
        return Err(ask.mismatch());
    }
    if certificate.is_early(ask.now) || certificate.is_expired(ask.now) {
        return Err(Reason::KeyNotValid);
    }
    Ok(Proven { key, signed: digest::sha256(&message), found: found(sent) })
}

fn found(sent: Timestamp) -> Found {
    Found { occurred_at: Some(sent), ..Found::default() }
}

fn missing(name: &str) -> Reason {
    Reason::HeaderMissing { name: name.into() }
}

/// A header that is a part of the message. The separator in it would let two messages be spelled alike.
fn part<'a>(ask: &Ask<'a>, name: &str) -> Result<&'a [u8], Reason> {
    let text = header(ask.request, name)?.ok_or_else(|| missing(name))?;
    let plain = text.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'|');
    if !text.is_empty() && text.len() <= MOST_TEXT && plain {
        Ok(text)
    } else {
        Err(Reason::HeaderUnexpected { name: name.into() })
    }
}
