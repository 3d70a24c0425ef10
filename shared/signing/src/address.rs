//! Parts of the address of a request, spelled as providers sign them.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName};

use crate::rejected::Reason;
use crate::request::Request;

/// More headers than any provider signs.
const MOST_HEADERS: usize = 64;
/// What HubSpot undoes before it signs, and nothing else.
const HUBSPOT: &[u8] = b":/?@!$'()*,;";

/// The address with the escapes undone that HubSpot undoes.
pub(crate) fn hubspot(url: &str) -> Cow<'_, [u8]> {
    let bytes = url.as_bytes();
    if !bytes.contains(&b'%') {
        return Cow::Borrowed(bytes);
    }
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((byte, after)) = rest.split_first() {
        match after {
            [high, low, beyond @ ..] if *byte == b'%' => match escaped(*high, *low) {
                Some(plain) if HUBSPOT.contains(&plain) => {
                    decoded.push(plain);
                    rest = beyond;
                }
                _ => {
                    decoded.push(*byte);
                    rest = after;
                }
            },
            _ => {
                decoded.push(*byte);
                rest = after;
            }
        }
    }
    Cow::Owned(decoded)
}

fn escaped(high: u8, low: u8) -> Option<u8> {
    let digit = |digit: u8| char::from(digit).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}

/// Path and query as Contentful signs them: the query is escaped as a whole, and then the whole once more as an address,
/// which escapes the `%` of the first time.
pub(crate) fn contentful(url: &str) -> Vec<u8> {
    let after_host = url.split_once("://").map_or(url, |(_, rest)| rest);
    let path_query = after_host.find(['/', '?']).and_then(|at| after_host.get(at..)).unwrap_or("/");
    let path_query = path_query.split('#').next().unwrap_or_default();
    let mut pieces = path_query.split('?');
    let path = pieces.next().unwrap_or_default();
    let mut escaped = path.as_bytes().to_vec();
    if let Some(query) = pieces.next().filter(|query| !query.is_empty()) {
        escaped.push(b'?');
        escape(query.as_bytes(), b"!'()*-._~", &mut escaped);
    }
    let mut twice = Vec::with_capacity(escaped.len());
    escape(&escaped, b"!'()*-._~;/?:@&=+$,#", &mut twice);
    twice
}

fn escape(text: &[u8], plain: &[u8], into: &mut Vec<u8>) {
    for byte in text {
        if byte.is_ascii_alphanumeric() || plain.contains(byte) {
            into.push(*byte);
        } else {
            into.extend(format!("%{byte:02X}").into_bytes());
        }
    }
}

/// The headers that `list` names, sorted, as `name:value` joined by `;`. The list must name itself, and `clock` if the time
/// is in a header: otherwise anybody could change them.
pub(crate) fn signed_headers(
    request: &Request<'_>,
    list: &HeaderName,
    clock: Option<&HeaderName>,
) -> Result<Vec<u8>, Reason> {
    let malformed = || Reason::HeaderUnexpected { name: list.to_string() };
    let line = request.line(std::slice::from_ref(list))?;
    let line = line.ok_or_else(|| Reason::HeaderMissing { name: list.to_string() })?;
    let mut names = std::str::from_utf8(line)
        .map_err(|_| malformed())?
        .split(',')
        .map(|name| HeaderName::from_bytes(name.trim().as_bytes()).map_err(|_| malformed()))
        .take(MOST_HEADERS + 1)
        .collect::<Result<Vec<HeaderName>, Reason>>()?;
    if names.len() > MOST_HEADERS {
        return Err(malformed());
    }
    names.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
    names.dedup();
    for name in std::iter::once(list).chain(clock) {
        if !names.contains(name) {
            return Err(Reason::HeaderUnsigned { name: name.to_string() });
        }
    }
    let mut joined = Vec::new();
    for name in names {
        // one that is listed and not there is left out, as by the provider's own library
        let Some(value) = request.line(std::slice::from_ref(&name))? else { continue };
        if !joined.is_empty() {
            joined.push(b';');
        }
        joined.extend_from_slice(name.as_str().as_bytes());
        joined.push(b':');
        joined.extend_from_slice(value.trim_ascii());
    }
    Ok(joined)
}

/// The list for a request that we make ourselves: the two headers that must be in it.
pub(crate) fn list_of(
    list: &HeaderName,
    clock: Option<&HeaderName>,
    headers: &HeaderMap,
) -> String {
    let mut names: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
    names.push(list.as_str());
    names.extend(clock.map(HeaderName::as_str));
    names.sort_unstable();
    names.dedup();
    names.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hubspot_undoes_twelve_escapes_and_no_other() {
        let check = |url: &str, expected: &str| {
            assert_eq!(hubspot(url).as_ref(), expected.as_bytes(), "{url}");
        };
        check("https://a.test/in?email=a%40b.test", "https://a.test/in?email=a@b.test");
        check("%3A%2F%3F%40%21%24%27%28%29%2A%2C%3B", ":/?@!$'()*,;");
        check("%3a%2f%3f", ":/?");
        check("%20%25%26%3D%23%2B%C3%A9", "%20%25%26%3D%23%2B%C3%A9");
        check("%2540", "%2540");
        check("%%40%4%", "%@%4%");
        check("plain", "plain");
    }

    #[test]
    fn contentful_escapes_a_query_twice() {
        let check = |url: &str, expected: &str| {
            assert_eq!(String::from_utf8(contentful(url)).unwrap(), expected, "{url}");
        };
        check("https://a.test/api/in", "/api/in");
        check("https://a.test", "/");
        check("https://a.test/in?", "/in");
        check("https://a.test/in?a=b&c=d e", "/in?a%253Db%2526c%253Dd%2520e");
        check("https://a.test/a%20b", "/a%2520b");
        check("https://a.test/in?a=b?c=d", "/in?a%253Db");
    }
}
