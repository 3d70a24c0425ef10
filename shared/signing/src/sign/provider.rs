//! Requests as a provider would make them, from the same descriptor that verifies them.

use http::{HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;

use crate::encoding::encode;
use crate::key::SigningKey;
use crate::request::Request;
use crate::scheme::{Algorithm, Lookup, Part, Scheme, Template, Unit};
use crate::signature;
use crate::verify::{Piece, message};

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
    /// Something that the scheme signs is missing.
    #[error("{0}; give it a value")]
    Incomplete(crate::Rejected),
}

/// The headers of the request as the provider would send them at `now`, signature included.
///
/// # Errors
/// Something that the scheme signs is missing, or cannot be put into a header.
pub fn sign_as(
    scheme: &Scheme,
    key: &SigningKey,
    outgoing: &Outgoing<'_>,
    now: Timestamp,
) -> Result<HeaderMap, SignError> {
    let mut headers = outgoing.headers.clone();
    name(&mut headers, &scheme.identity.id, outgoing.id)?;
    name(&mut headers, &scheme.identity.event_type, outgoing.event_type)?;
    for (header, value) in scheme.sample.iter().chain(&scheme.require_equal) {
        put_if_absent(&mut headers, header, value)?;
    }
    let time = time(scheme, now);
    if let Some(Part::Header(names)) = scheme.clock.as_ref().map(|clock| &clock.from) {
        put_if_absent(&mut headers, first(names), time.as_deref().unwrap_or_default())?;
    }
    let time = sent_time(scheme, &headers, time);

    let text = {
        let request = Request {
            method: outgoing.method,
            url: outgoing.url,
            headers: &headers,
            body: outgoing.body,
        };
        let message = message(scheme, &request, time.as_deref().map(str::as_bytes))
            .map_err(|reason| SignError::Incomplete(reason.into()))?;
        let message: Vec<&[u8]> = message.iter().map(Piece::bytes).collect();
        let signature = key.sign(&message);
        match scheme.algorithm {
            Algorithm::Token => String::from_utf8(signature).map_err(|_| not_a_header(scheme))?,
            _ => encode(&signature, scheme.signature.encoding),
        }
    };
    let pairs: Vec<(&str, &str)> = match (scheme.clock.as_ref().map(|clock| &clock.from), &time) {
        (Some(Part::Pair(field)), Some(time)) => vec![(field.as_str(), time.as_str())],
        _ => Vec::new(),
    };
    let Part::Header(names) = &scheme.signature.from else {
        return Err(SignError::InBody { scheme: scheme.name.clone() });
    };
    put_if_absent(
        &mut headers,
        first(names),
        &signature::write(&scheme.signature.shape, &pairs, &text),
    )?;
    Ok(headers)
}

/// Puts an id or a type where the scheme reads it, if that is a header.
fn name(headers: &mut HeaderMap, lookup: &Lookup, value: Option<&str>) -> Result<(), SignError> {
    let lone = lookup.from.first().map(Template::parts);
    match (lone, value) {
        (Some([Part::Header(names)]), Some(value)) => put_if_absent(headers, first(names), value),
        _ => Ok(()),
    }
}

fn put_if_absent(headers: &mut HeaderMap, name: &str, value: &str) -> Result<(), SignError> {
    let refused = || SignError::NotAHeader { header: name.into() };
    let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| refused())?;
    let value = HeaderValue::from_str(value).map_err(|_| refused())?;
    headers.entry(header).or_insert(value);
    Ok(())
}

fn first(names: &[String]) -> &str {
    names.first().map_or("", String::as_str)
}

fn not_a_header(scheme: &Scheme) -> SignError {
    let header = match &scheme.signature.from {
        Part::Header(names) => first(names).into(),
        _ => String::new(),
    };
    SignError::NotAHeader { header }
}

fn time(scheme: &Scheme, now: Timestamp) -> Option<String> {
    Some(match scheme.clock.as_ref()?.unit {
        Unit::Seconds => now.as_second().to_string(),
        Unit::Milliseconds => now.as_millisecond().to_string(),
        Unit::Rfc3339 => now.to_string(),
    })
}

/// A time that the caller has set already is the one that is signed.
fn sent_time(scheme: &Scheme, headers: &HeaderMap, ours: Option<String>) -> Option<String> {
    match scheme.clock.as_ref().map(|clock| &clock.from) {
        Some(Part::Header(names)) => headers
            .get(first(names))
            .and_then(|value| value.to_str().ok())
            .map(ToOwned::to_owned)
            .or(ours),
        _ => ours,
    }
}
