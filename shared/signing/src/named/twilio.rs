//! Twilio: HMAC over the address and the sorted fields of the form; for JSON over the address, which carries the body's hash.
//!
//! Two ways exist. With the account's auth token it is HMAC-SHA-1; with a shared key, which the header
//! `X-Twilio-Webhooks-Signature-Settings` names, HMAC-SHA-256. Which one may be used is decided by what is configured: a
//! secret written `name:secret` is a shared key and never makes SHA-1, whatever a request says, and
//! `config.algorithm = "hmac-sha256"` rules SHA-1 out for auth tokens too. Otherwise a request can only ask for the stronger.
//!
//! Keys and values are joined without a separator, so `A=BC` and `AB=C` have the same signature. That is Twilio's.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use subtle::{Choice, ConstantTimeEq as _};

use super::form::{Field, fields};
use super::{Ask, Found, Proven, header, mac, pair, usable};
use crate::scheme::Algorithm;
use crate::{Key, Reason, Request, digest};

const SIGNATURE: &str = "x-twilio-signature";
const SETTINGS: &str = "x-twilio-webhooks-signature-settings";
const CONTENT_TYPE: &str = "content-type";
const FORM: &[u8] = b"application/x-www-form-urlencoded";
/// The parameter of the address that holds the hash of a body that is no form.
const BODY_HASH: &[u8] = b"bodySHA256";

/// Fields that say what a callback is about, the most particular first.
const OBJECTS: [(&[u8], &str); 5] = [
    (b"RecordingSid", "recording"),
    (b"ConferenceSid", "conference"),
    (b"MessageSid", "message"),
    (b"SmsSid", "message"),
    (b"CallSid", "call"),
];

pub(super) fn verify(ask: &Ask<'_>) -> Result<Proven, Reason> {
    let request = ask.request;
    let named = settings(request)?;
    let text = header(request, SIGNATURE)?.ok_or(Reason::SignatureMissing)?;
    let signature = STANDARD.decode(text).map_err(|_| Reason::SignatureMalformed)?;
    // a digest of the other way is a signature, only a wrong one
    if !matches!(signature.len(), 20 | 32) {
        return Err(Reason::SignatureMalformed);
    }
    let url = address(ask.config("url"), request.url);
    let form = match body_hash(&url)? {
        Some(hash) if hash != hex::encode(digest::sha256(request.body)).as_bytes() => {
            return Err(ask.mismatch());
        }
        Some(_) => Vec::new(),
        None => form(request)?,
    };
    let joined = form.iter().map(|(name, value)| [&**name, &**value].concat());
    let joined = joined.collect::<Vec<_>>().concat();
    let urls = spellings(&url);
    let key = ask.made_by(|key| {
        let Some((algorithm, secret)) = way(ask, key, named) else { return Choice::from(0) };
        urls.iter().fold(Choice::from(0), |found, url| {
            let expected = mac(algorithm, secret, &[url.as_bytes(), &joined]);
            found | expected.ct_eq(&signature)
        })
    })?;
    let signed_hash = digest::sha256(&[url.as_bytes(), &joined].concat());
    Ok(Proven { key, signed: signed_hash, found: object(&form) })
}

/// The algorithm and the key's bytes for this request, if this key may speak for it.
fn way<'k>(ask: &Ask<'_>, key: &'k Key, named: Option<&[u8]>) -> Option<(Algorithm, &'k [u8])> {
    let secret = key.raw()?;
    match (pair(secret), named) {
        (Some((own, shared)), Some(name)) if own == name => Some((Algorithm::HmacSha256, shared)),
        (Some(_), _) => None,
        (None, Some(_)) => Some((Algorithm::HmacSha256, secret)),
        (None, None) if ask.config("algorithm") == Some("hmac-sha256") => None,
        (None, None) => Some((Algorithm::HmacSha1, secret)),
    }
}

/// The name of the shared key that the request says it was signed with: `key=..,algorithm=HMAC_SHA256`.
fn settings<'a>(request: &Request<'a>) -> Result<Option<&'a [u8]>, Reason> {
    let Some(line) = header(request, SETTINGS)? else { return Ok(None) };
    let unexpected = || Reason::HeaderUnexpected { name: SETTINGS.into() };
    let (mut name, mut algorithm) = (None, None);
    for item in line.split(|byte| *byte == b',') {
        let at = item.iter().position(|byte| *byte == b'=').ok_or_else(unexpected)?;
        let (field, value) = item.split_at(at);
        let value = value.get(1..).unwrap_or_default().trim_ascii();
        let slot = match field.trim_ascii() {
            b"key" => &mut name,
            b"algorithm" => &mut algorithm,
            _ => continue,
        };
        if slot.replace(value).is_some() {
            return Err(unexpected());
        }
    }
    match (name, algorithm) {
        (Some(name), Some(algorithm))
            if !name.is_empty() && algorithm.eq_ignore_ascii_case(b"HMAC_SHA256") =>
        {
            Ok(Some(name))
        }
        _ => Err(unexpected()),
    }
}

/// The address that was signed: the configured one with the query as it came, byte for byte.
fn address(configured: Option<&str>, seen: &str) -> String {
    let Some(configured) = configured else { return seen.to_owned() };
    let base = configured.split_once('?').map_or(configured, |(base, _)| base);
    match seen.split_once('?') {
        Some((_, query)) => format!("{base}?{query}"),
        None => base.to_owned(),
    }
}

/// The address with and without its port: Twilio signs now one, now the other.
fn spellings(url: &str) -> Vec<String> {
    let mut spellings = vec![url.to_owned()];
    let Some((scheme, rest)) = url.split_once("://") else { return spellings };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let port = authority.rsplit_once(':').filter(|(_, port)| {
        !port.is_empty() && port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit())
    });
    // `user:1234@host` has no port: what follows the colon is not all digits
    let usual = if scheme == "https" { "443" } else { "80" };
    spellings.push(match port {
        Some((host, _)) => format!("{scheme}://{host}{path}"),
        None => format!("{scheme}://{authority}:{usual}{path}"),
    });
    spellings
}

/// The value of `bodySHA256` in the query; twice is refused, because two readers could take different ones.
fn body_hash(url: &str) -> Result<Option<Cow<'_, [u8]>>, Reason> {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let query = query.split_once('#').map_or(query, |(query, _)| query);
    let mut values = fields(query.as_bytes()).filter(|(name, _)| &**name == BODY_HASH);
    let first = values.next();
    if values.next().is_some() {
        return Err(Reason::SignatureMalformed);
    }
    Ok(first.map(|(_, hash)| hash))
}

/// The fields of the form in the order of the signature: by name, then by value, none twice. A body that is no form and
/// has no hash in the address is covered by nothing.
fn form<'a>(request: &Request<'a>) -> Result<Vec<Field<'a>>, Reason> {
    if request.body.is_empty() {
        return Ok(Vec::new());
    }
    let kind = header(request, CONTENT_TYPE)?.unwrap_or_default();
    let kind = kind.split(|byte| *byte == b';').next().unwrap_or_default();
    if !kind.trim_ascii().eq_ignore_ascii_case(FORM) {
        return Err(Reason::HeaderUnexpected { name: CONTENT_TYPE.into() });
    }
    let mut fields: Vec<Field<'a>> = fields(request.body).collect();
    fields.sort();
    fields.dedup();
    Ok(fields)
}

fn object(form: &[Field<'_>]) -> Found {
    let about = OBJECTS.iter().find_map(|(wanted, kind)| {
        let (_, value) = form.iter().find(|(name, _)| name == wanted)?;
        Some((*kind, usable(std::str::from_utf8(value).ok()?)?))
    });
    match about {
        Some((kind, sid)) => {
            Found { object_type: Some(kind.into()), object_id: Some(sid), ..Found::default() }
        }
        None => Found::default(),
    }
}
