//! An event as a request to a URL.

use domain::endpoint::StaticHeaders;
use flow::leaving::Leaving;
use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::token::secret_value;

/// Who we are.
pub(super) const USER_AGENT: &str = concat!("Postern/", env!("CARGO_PKG_VERSION"));

/// The headers of one attempt, but for `Authorization`. `None` if one of them cannot be written, which our own ids and
/// numbers always can.
///
/// The endpoint's own come first and ours replace them: whatever was let in by an older rule, a receiver finds one of
/// each, and ours is ours.
pub(super) fn headers(leaving: &Leaving<'_>, own: &StaticHeaders) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in own.iter() {
        headers.insert(HeaderName::try_from(name).ok()?, secret_value(value)?);
    }
    headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
    // We read a bounded number of bytes as they come: nothing is gained by packing them.
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    for (name, value) in &leaving.headers()? {
        headers.insert(name, value.clone());
    }
    Some(headers)
}
