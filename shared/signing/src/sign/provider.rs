//! Requests as a provider would make them, from the same descriptor that verifies them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;

use crate::address;
use crate::encoding::encode;
use crate::key::SigningKey;
use crate::message::message;
use crate::request::Request;
use crate::scheme::{Algorithm, Lookup, Part, Scheme, Template, Unit};
use crate::signature;

/// A request to be signed.
#[derive(Clone, Debug)]
pub struct Outgoing<'a> {
    /// In capitals.
    pub method: &'a str,
    /// Where it goes, as the provider would have it configured.
    pub url: &'a str,
    /// Headers that are set already; what is here is not replaced.
    pub headers: HeaderMap,
    /// The event's id, for schemes that have it in a header.
    pub id: Option<&'a str>,
    /// The event's type, for schemes that have it in a header.
    pub event_type: Option<&'a str>,
    /// The bytes that will be sent.
    pub body: &'a [u8],
}

/// Why a request cannot be made as this provider makes it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignError {
    /// The scheme has the signature or the time inside the body, so the body must be made with it.
    #[error(
        "the scheme of {scheme} has its signature inside the body, which cannot be added to a body that is already written"
    )]
    InBody {
        /// Name of the scheme.
        scheme: String,
    },
    /// A value cannot stand in a header.
    #[error("the value for the header {header} contains characters that HTTP does not allow")]
    NotAHeader {
        /// In lower case.
        header: String,
    },
    /// The scheme is verified by code, which does not sign.
    #[error(
        "requests of {scheme} are verified by code, which cannot make them; use the provider's own tools"
    )]
    Code {
        /// Name of the scheme.
        scheme: String,
    },
    /// Something that the scheme signs is missing.
    #[error("{0}; give it a value")]
    Incomplete(crate::Rejected),
}

/// The headers of the request as the provider would send them at `now`, signature included. A secret address is for the
/// caller to add to the URL.
///
/// # Errors
/// Something that the scheme signs is missing, or cannot be put into a header, or the scheme needs code.
pub fn sign_as(
    scheme: &Scheme,
    key: &SigningKey,
    outgoing: &Outgoing<'_>,
    now: Timestamp,
) -> Result<HeaderMap, SignError> {
    let Some(algorithm) = scheme.algorithm() else {
        return Err(SignError::Code { scheme: scheme.terms.name.clone() });
    };
    let mut headers = outgoing.headers.clone();
    name(&mut headers, &scheme.terms.identity.id, outgoing.id)?;
    name(&mut headers, &scheme.terms.identity.event_type, outgoing.event_type)?;
    for (header, value) in scheme.terms.sample.iter().chain(&scheme.terms.require_equal) {
        put_if_absent(&mut headers, header, value)?;
    }
    let time = time(scheme, now);
    if let Some(header) = scheme.clock_header() {
        put_if_absent(&mut headers, header, time.as_deref().unwrap_or_default())?;
    }
    for part in scheme.terms.signed.parts() {
        if let Part::SignedHeaders(list) = part {
            let names = address::list_of(list, scheme.clock_header(), &headers);
            put_if_absent(&mut headers, list, &names)?;
        }
    }
    let time = sent_time(scheme, &headers, time);
    let place = match (algorithm, &scheme.terms.signature) {
        (Algorithm::None, _) => return Ok(headers),
        (Algorithm::Basic, _) => http::header::AUTHORIZATION,
        (_, Some(format)) => match format.from.first() {
            Some(Part::Header(names)) => first(names)?.clone(),
            Some(Part::PathSecret) => return Ok(headers),
            _ => return Err(SignError::InBody { scheme: scheme.terms.name.clone() }),
        },
        (_, None) => return Err(SignError::InBody { scheme: scheme.terms.name.clone() }),
    };
    let signature = signature(scheme, key, outgoing, &headers, time.as_deref())?;
    let value = written(scheme, algorithm, &signature, time.as_deref())
        .ok_or_else(|| SignError::NotAHeader { header: place.to_string() })?;
    put_if_absent(&mut headers, &place, &value)?;
    Ok(headers)
}

/// The bytes of the signature over what the scheme signs of the request.
fn signature(
    scheme: &Scheme,
    key: &SigningKey,
    outgoing: &Outgoing<'_>,
    headers: &HeaderMap,
    time: Option<&str>,
) -> Result<Vec<u8>, SignError> {
    let request = Request {
        method: outgoing.method,
        url: outgoing.url,
        headers,
        body: outgoing.body,
        path_secret: None,
    };
    let message = message(scheme, &request, time.map(str::as_bytes))
        .map_err(|reason| SignError::Incomplete(reason.into()))?;
    Ok(key.sign(&message))
}

/// The text of the header that carries it.
fn written(
    scheme: &Scheme,
    algorithm: Algorithm,
    signature: &[u8],
    time: Option<&str>,
) -> Option<String> {
    if algorithm == Algorithm::Basic {
        return Some(format!("Basic {}", STANDARD.encode(signature)));
    }
    let format = scheme.terms.signature.as_ref()?;
    let text = if algorithm.signs() {
        encode(signature, format.encoding)
    } else {
        String::from_utf8(signature.to_vec()).ok()?
    };
    let pairs: Vec<(&str, &str)> =
        match (scheme.terms.clock.as_ref().map(|clock| &clock.from), time) {
            (Some(Part::Pair(field)), Some(time)) => vec![(field.as_str(), time)],
            _ => Vec::new(),
        };
    Some(signature::write(&format.shape, &pairs, &text))
}

/// Puts an id or a type where the scheme reads it, if that is a header.
fn name(headers: &mut HeaderMap, lookup: &Lookup, value: Option<&str>) -> Result<(), SignError> {
    let lone = lookup.from.first().map(Template::parts);
    match (lone, value) {
        (Some([Part::Header(names)]), Some(value)) => put_if_absent(headers, first(names)?, value),
        _ => Ok(()),
    }
}

fn put_if_absent(headers: &mut HeaderMap, name: &HeaderName, value: &str) -> Result<(), SignError> {
    let value = HeaderValue::from_str(value)
        .map_err(|_| SignError::NotAHeader { header: name.to_string() })?;
    headers.entry(name).or_insert(value);
    Ok(())
}

fn first(names: &[HeaderName]) -> Result<&HeaderName, SignError> {
    names.first().ok_or_else(|| SignError::NotAHeader { header: String::new() })
}

fn time(scheme: &Scheme, now: Timestamp) -> Option<String> {
    Some(match scheme.terms.clock.as_ref()?.unit {
        Unit::Seconds => now.as_second().to_string(),
        Unit::Milliseconds => now.as_millisecond().to_string(),
        Unit::Rfc3339 => now.to_string(),
    })
}

/// A time that the caller has set already is the one that is signed.
fn sent_time(scheme: &Scheme, headers: &HeaderMap, ours: Option<String>) -> Option<String> {
    let set = scheme.clock_header().and_then(|name| headers.get(name));
    set.and_then(|value| value.to_str().ok()).map(ToOwned::to_owned).or(ours)
}
