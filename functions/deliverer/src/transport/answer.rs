//! Reading a stranger's answer with a limit.

use domain::delivery::{Cause, Steer};
use http::{HeaderMap, HeaderName, Response, StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use tokio::time::{Instant, timeout_at};
use url::Url;
use zeroize::Zeroizing;

use super::{Answered, Bounds, Failed, Reply};

/// With which a receiver says what to do with what it is sent.
const STEER: HeaderName = HeaderName::from_static("webhook-delivery");

/// Longest piece of a header that is shown, in bytes.
const MAX_SHOWN: usize = 120;

/// Reads an answer whose head has come. Never fails: the status is there, and a body that breaks off, drips or does not
/// end only makes the excerpt shorter.
pub async fn read(
    response: Response<Incoming>,
    url: &Url,
    bounds: &Bounds,
    by: Instant,
) -> Answered {
    let (head, mut body) = response.into_parts();
    let status = head.status.as_u16();
    let retry_after = only(&head.headers, &header::RETRY_AFTER);
    let steer = only(&head.headers, &STEER).and_then(|value| Steer::read(&value));
    let is_redirect = is_redirect(head.status, &head.headers);
    // Read also what is not shown: a body read to its end leaves the connection to the next delivery.
    let bytes = read_body(&mut body, bounds, by).await;
    let excerpt = if is_redirect {
        format!("({status}, {})", redirect(url, &head.headers))
    } else if let Some(encoding) = encoding(&head.headers) {
        format!("(a body with content-encoding {encoding}, not shown)")
    } else {
        excerpt(&bytes, bounds.kept)
    };
    Answered { status, retry_after, excerpt, steer, is_redirect }
}

/// Reads a whole answer whose head has come, if it is not larger than what is read of any.
pub async fn whole(
    response: Response<Incoming>,
    bounds: &Bounds,
    by: Instant,
) -> Result<Reply, Failed> {
    let (head, body) = response.into_parts();
    let read = timeout_at(by, Limited::new(body, bounds.read).collect()).await;
    match read {
        Ok(Ok(body)) => {
            let body = Zeroizing::new(body.to_bytes().into());
            Ok(Reply { status: head.status.as_u16(), body })
        }
        Ok(Err(error)) => {
            let cause =
                if error.is::<LengthLimitError>() { Cause::BadAnswer } else { Cause::Reset };
            Err(Failed { cause, source: Some(error) })
        }
        Err(elapsed) => Err(Failed { cause: Cause::Timeout, source: Some(elapsed.into()) }),
    }
}

/// Whether an answer sends to another place, or would if it said to which.
fn is_redirect(status: StatusCode, headers: &HeaderMap) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
        || (status.is_redirection() && headers.contains_key(header::LOCATION))
}

async fn read_body(body: &mut Incoming, bounds: &Bounds, by: Instant) -> Vec<u8> {
    let (mut bytes, mut read) = (Vec::new(), 0_usize);
    while let Ok(Some(Ok(frame))) = timeout_at(by, body.frame()).await {
        let Ok(data) = frame.into_data() else { continue };
        let room = bounds.kept.saturating_sub(bytes.len());
        bytes.extend(data.iter().take(room));
        read = read.saturating_add(data.len());
        if read >= bounds.read {
            break;
        }
    }
    bytes
}

/// The value of a header that comes once. Twice is a contradiction, and worth nothing.
fn only(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then(|| value.to_owned())
}

fn encoding(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::CONTENT_ENCODING)?;
    let plain = value.as_bytes().eq_ignore_ascii_case(b"identity");
    (!plain).then(|| excerpt(value.as_bytes(), MAX_SHOWN))
}

/// SSRF-redirect: says where an answer wanted to lead, without path and query.
fn redirect(url: &Url, headers: &HeaderMap) -> String {
    let location = headers.get(header::LOCATION).and_then(|value| value.to_str().ok());
    let target = location.and_then(|location| url.join(location).ok());
    let host = target.as_ref().and_then(|target| Some((target.scheme(), target.host_str()?)));
    match host {
        Some((scheme, host)) => {
            let target = format!("{scheme}://{host}");
            format!("a redirect to {}, not followed", excerpt(target.as_bytes(), MAX_SHOWN))
        }
        None => "a redirect, not followed".to_owned(),
    }
}

/// The beginning of some bytes as text of at most `kept` bytes, cut between characters. What is not UTF-8 becomes
/// U+FFFD; what would move a cursor, hide or turn text around is escaped.
pub fn excerpt(bytes: &[u8], kept: usize) -> String {
    let mut out = String::new();
    for chunk in bytes.utf8_chunks() {
        let replaced = (!chunk.invalid().is_empty()).then_some(char::REPLACEMENT_CHARACTER);
        for c in chunk.valid().chars().chain(replaced) {
            let before = out.len();
            if is_active(c) {
                out.extend(c.escape_default());
            } else {
                out.push(c);
            }
            if out.len() > kept {
                out.truncate(before);
                return out;
            }
        }
    }
    out
}

/// Control characters, and the invisible ones with which text pretends to be other text.
fn is_active(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], kept: usize, expected: &str) {
        assert_eq!(excerpt(bytes, kept), expected);
    }

    /// DLV-truncate-char-boundary
    #[test]
    fn an_excerpt_is_cut_between_characters() {
        let text = "aaa\u{1f980}b";
        for (kept, expected) in [
            (0, ""),
            (3, "aaa"),
            (4, "aaa"),
            (6, "aaa"),
            (7, "aaa\u{1f980}"),
            (8, text),
            (99, text),
        ] {
            check(text.as_bytes(), kept, expected);
        }
    }

    #[test]
    fn an_excerpt_never_exceeds_its_bound_whatever_the_bytes() {
        let bytes: Vec<u8> = (0..=255).chain((0..=255).rev()).collect();
        for kept in 0..200 {
            assert!(excerpt(&bytes, kept).len() <= kept);
        }
    }

    #[test]
    fn what_is_not_text_is_made_text() {
        check(b"a\xff\xfeb", 99, "a\u{fffd}\u{fffd}b");
        check(b"\xf0\x9f\xa6", 99, "\u{fffd}");
        check(b"\x1b[31mred\r\n\0", 99, "\\u{1b}[31mred\\r\\n\\u{0}");
        check("\u{202e}evil\u{feff}".as_bytes(), 99, "\\u{202e}evil\\u{feff}");
    }

    #[test]
    fn an_escape_is_kept_whole_or_not_at_all() {
        check(b"ab\x1bc", 7, "ab");
        check(b"ab\x1bc", 8, "ab\\u{1b}");
    }

    /// SSRF-redirect
    #[test]
    fn a_redirect_shows_scheme_and_host_only() {
        let url = Url::parse("https://example.com/hook").unwrap();
        for (location, expected) in [
            ("http://169.254.169.254/latest/meta-data/", "http://169.254.169.254"),
            ("//10.0.0.5/x", "https://10.0.0.5"),
            ("/relative?token=1", "https://example.com"),
            ("HTTPS://[::1]/", "https://[::1]"),
            ("http://user:pw@169.254.169.254/", "http://169.254.169.254"),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::LOCATION, location.parse().unwrap());
            let expected = format!("a redirect to {expected}, not followed");
            assert_eq!(redirect(&url, &headers), expected);
        }
    }

    /// RTY-retry-after
    #[test]
    fn a_header_that_comes_twice_is_worth_nothing() {
        let mut headers = HeaderMap::new();
        assert_eq!(only(&headers, &header::RETRY_AFTER), None);
        headers.append(header::RETRY_AFTER, "5".parse().unwrap());
        assert_eq!(only(&headers, &header::RETRY_AFTER).as_deref(), Some("5"));
        headers.append(header::RETRY_AFTER, "6".parse().unwrap());
        assert_eq!(only(&headers, &header::RETRY_AFTER), None);
    }
}
