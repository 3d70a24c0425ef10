//! An endpoint's own static headers: checked when they are saved, and again before they are sent.
//!
//! They are an owner's, and a request is ours: none of them can take the place of a header of ours, of one that says how
//! long a request is or to whom it goes, or of one by which proxies tell each other whom to trust.

use std::{collections::BTreeMap, fmt};

use zeroize::Zeroizing;

use crate::secret::SecretText;

/// The static headers of an endpoint. To have them means that they were checked. Their values do not print.
#[derive(Clone, Default)]
pub struct StaticHeaders(BTreeMap<String, Zeroizing<String>>);

impl StaticHeaders {
    /// Most headers of one endpoint (DLV-custom-headers).
    pub const MOST: usize = 20;

    /// Most bytes of one header, name and value together (DLV-custom-headers).
    pub const MAX_HEADER: usize = 1024;

    /// Most bytes of all of them as JSON: one sealed secret, of which KMS takes 4,096 bytes.
    pub const MAX_TOGETHER: usize = 3500;

    /// Checks headers as a person wrote them.
    ///
    /// # Errors
    /// Everything that is wrong with them.
    pub fn check<N, V>(headers: impl IntoIterator<Item = (N, V)>) -> Result<Self, Vec<BadHeader>>
    where
        N: AsRef<str>,
        V: AsRef<str>,
    {
        let (checked, problems) = Self::sort_out(headers);
        if problems.is_empty() { Ok(checked) } else { Err(problems) }
    }

    fn sort_out<N, V>(headers: impl IntoIterator<Item = (N, V)>) -> (Self, Vec<BadHeader>)
    where
        N: AsRef<str>,
        V: AsRef<str>,
    {
        let (mut checked, mut problems) = (Self::default(), Vec::new());
        let mut count = 0_usize;
        for (name, value) in headers {
            count = count.saturating_add(1);
            if count > Self::MOST {
                continue;
            }
            match check_one(count, name.as_ref(), value.as_ref()) {
                Ok(name) => {
                    let value = Zeroizing::new(value.as_ref().to_owned());
                    if checked.0.insert(name.clone(), value).is_some() {
                        problems.push(BadHeader::Twice(name));
                    }
                }
                Err(problem) => problems.push(problem),
            }
        }
        if count > Self::MOST {
            problems.push(BadHeader::TooMany(count));
        }
        let together = checked.to_json().expose().len();
        if together > Self::MAX_TOGETHER {
            problems.push(BadHeader::TooLarge(together));
        }
        (checked, problems)
    }

    /// Reads what was sealed, a JSON object of texts: the headers that may be sent, and what is wrong with the others. A
    /// rule may be younger than the row, and what it forbids stays here.
    ///
    /// # Errors
    /// [`BadHeader::Unreadable`].
    pub fn from_json(text: &SecretText) -> Result<(Self, Vec<BadHeader>), BadHeader> {
        let read: BTreeMap<String, String> =
            serde_json::from_str(text.expose()).map_err(|_| BadHeader::Unreadable)?;
        let read: Vec<_> = read.into_iter().map(|(n, v)| (n, Zeroizing::new(v))).collect();
        Ok(Self::sort_out(read.iter().map(|(name, value)| (name, value.as_str()))))
    }

    /// The text to seal.
    pub fn to_json(&self) -> SecretText {
        let object: BTreeMap<&str, &str> = self.iter().collect();
        // A map of texts always can be written.
        SecretText::new(serde_json::to_string(&object).unwrap_or_default())
    }

    /// Names, in lower case, and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The names, in lower case and in order: all that is ever shown.
    pub fn names(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for StaticHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StaticHeaders").field(&self.names()).finish()
    }
}

/// What is wrong with a static header. Written for whoever typed it; never says a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadHeader {
    /// The name is no name. It is not repeated, because it may hold anything: the place in the list is.
    #[error(
        "the name of header {0} must begin with a letter and consist of letters, digits and `-`, 64 at most; `_` and other characters are read differently by different servers"
    )]
    Name(usize),
    /// The name is not free.
    #[error("the header `{0}` is not free: {1}")]
    Reserved(String, &'static str),
    /// The name comes twice, perhaps in two spellings.
    #[error("the header `{0}` comes twice; upper and lower case are the same name. Keep one")]
    Twice(String),
    /// The value is no value.
    #[error(
        "the value of the header `{0}` must be 1 or more printable ASCII characters, without a line break, and without spaces at its ends; encode anything else, for example in base64"
    )]
    Value(String),
    /// One header is too large.
    #[error("the header `{0}` has {1} bytes; at most {most} fit", most = StaticHeaders::MAX_HEADER)]
    Large(String, usize),
    /// There are too many.
    #[error("there are {0} headers; at most {most} can be set", most = StaticHeaders::MOST)]
    TooMany(usize),
    /// Together they are too large.
    #[error("the headers have {0} bytes together; at most {most} fit", most = StaticHeaders::MAX_TOGETHER)]
    TooLarge(usize),
    /// What was sealed is no object of texts.
    #[error("the stored headers cannot be read; set them anew")]
    Unreadable,
}

/// Longest name, in bytes: longer than any that is in use.
const MAX_NAME: usize = 64;

/// The name in lower case, if the header may be set.
fn check_one(place: usize, name: &str, value: &str) -> Result<String, BadHeader> {
    let begins = name.bytes().next().is_some_and(|first| first.is_ascii_alphabetic());
    let is_plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    if !begins || !is_plain || name.len() > MAX_NAME {
        return Err(BadHeader::Name(place));
    }
    let name = name.to_ascii_lowercase();
    if let Some(why) = reserved(&name) {
        return Err(BadHeader::Reserved(name, why));
    }
    let size = name.len() + value.len();
    if size > StaticHeaders::MAX_HEADER {
        return Err(BadHeader::Large(name, size));
    }
    let is_printable = value.bytes().all(|b| matches!(b, b' '..=b'~'));
    if value.is_empty() || !is_printable || value.trim() != value {
        return Err(BadHeader::Value(name));
    }
    Ok(name)
}

const OURS: &str = "Postern sets it on every delivery";
const HTTP: &str = "it belongs to the HTTP connection";
const BODY: &str = "it describes the body, which Postern writes";
const PROXY: &str = "proxies in front of a receiver trust it";
const AUTH: &str = "set the endpoint's `auth` instead";

/// Names that are not free, in lower case.
const NAMES: [(&str, &str); 35] = [
    ("idempotency-key", OURS),
    ("user-agent", OURS),
    ("accept-encoding", OURS),
    ("traceparent", OURS),
    ("tracestate", OURS),
    ("host", HTTP),
    ("connection", HTTP),
    ("keep-alive", HTTP),
    ("transfer-encoding", HTTP),
    ("te", HTTP),
    ("trailer", HTTP),
    ("upgrade", HTTP),
    ("expect", HTTP),
    ("http2-settings", HTTP),
    ("max-forwards", HTTP),
    ("digest", BODY),
    ("authorization", AUTH),
    ("forwarded", PROXY),
    ("via", PROXY),
    ("x-real-ip", PROXY),
    ("x-client-ip", PROXY),
    ("client-ip", PROXY),
    ("true-client-ip", PROXY),
    ("x-cluster-client-ip", PROXY),
    ("x-remote-ip", PROXY),
    ("x-remote-addr", PROXY),
    ("x-remote-user", PROXY),
    ("remote-user", PROXY),
    ("x-host", PROXY),
    ("x-scheme", PROXY),
    ("x-http-host-override", PROXY),
    ("x-http-method", PROXY),
    ("x-http-method-override", PROXY),
    ("x-method-override", PROXY),
    ("x-rewrite-url", PROXY),
];

/// Beginnings of names that are not free. Svix's libraries read `svix-*` before `webhook-*`, and `ce-*` are the attributes
/// of a `CloudEvents` request.
const BEGINNINGS: [(&str, &str); 12] = [
    ("webhook-", OURS),
    ("svix-", OURS),
    ("postern-", OURS),
    ("ce-", OURS),
    ("content-", BODY),
    ("proxy-", HTTP),
    ("x-forwarded-", PROXY),
    ("x-original-", PROXY),
    ("x-envoy-", PROXY),
    ("x-amzn-", PROXY),
    ("cf-", PROXY),
    ("fastly-", PROXY),
];

fn reserved(name: &str) -> Option<&'static str> {
    let by_name = NAMES.iter().find(|(reserved, _)| *reserved == name);
    let by_beginning = BEGINNINGS.iter().find(|(beginning, _)| name.starts_with(beginning));
    by_name.or(by_beginning).map(|(_, why)| *why)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn problems(headers: &[(&str, &str)]) -> Vec<BadHeader> {
        StaticHeaders::check(headers.iter().copied()).unwrap_err()
    }

    /// DLV-custom-headers: in whatever spelling.
    #[test]
    fn a_name_that_is_ours_or_the_connections_is_refused() {
        for name in [
            "webhook-signature",
            "Webhook-Id",
            "WEBHOOK-TIMESTAMP",
            "webhook-attempt",
            "webhook-delivery",
            "svix-id",
            "Postern-Event-Type",
            "ce-id",
            "host",
            "Content-Length",
            "content-type",
            "Content-Encoding",
            "Transfer-Encoding",
            "connection",
            "Keep-Alive",
            "TE",
            "Trailer",
            "Upgrade",
            "expect",
            "authorization",
            "Proxy-Authorization",
            "X-Forwarded-For",
            "x-forwarded-host",
            "Forwarded",
            "Via",
            "X-Real-IP",
            "x-original-url",
            "X-HTTP-Method-Override",
            "user-agent",
            "accept-encoding",
            "idempotency-key",
            "traceparent",
            "tracestate",
        ] {
            let found = problems(&[(name, "x")]);
            let [BadHeader::Reserved(said, _)] = found.as_slice() else {
                panic!("{name} is not reserved")
            };
            assert_eq!(*said, name.to_ascii_lowercase());
        }
    }

    /// DLV-custom-headers: WSGI and CGI read `_` as `-`, so `webhook_signature` would be ours.
    #[test]
    fn a_name_outside_the_grammar_is_refused_and_not_repeated() {
        for name in [
            "",
            ":authority",
            "x y",
            "x\r\ny",
            "x\0",
            "x:",
            "webhook_signature",
            "x.y",
            "-x",
            "1x",
            "naïve",
            &"x".repeat(65),
        ] {
            assert_eq!(problems(&[("x-fine", "1"), (name, "x")]), [BadHeader::Name(2)], "{name:?}");
        }
    }

    /// DLV-custom-headers
    #[test]
    fn a_value_holds_printable_characters_only() {
        let bad = |value: &str| problems(&[("X-Key", value)]);
        for value in
            ["", " ", " a", "a ", "a\r\nwebhook-id: b", "a\nb", "a\0b", "ü", "a\tb", "\u{7f}"]
        {
            assert_eq!(bad(value), [BadHeader::Value("x-key".to_owned())], "{value:?}");
        }
        // 5 bytes of it are the name's.
        assert!(StaticHeaders::check([("X-Key", "v".repeat(1019))]).is_ok());
        assert_eq!(bad(&"v".repeat(1020)), [BadHeader::Large("x-key".to_owned(), 1025)]);
        assert_eq!(bad(&"v".repeat(8192)), [BadHeader::Large("x-key".to_owned(), 8197)]);
    }

    /// DLV-custom-headers
    #[test]
    fn there_are_at_most_twenty_and_3500_bytes_together() {
        let numbered = |count: usize, value: &str| {
            let headers = (0..count).map(|n| (format!("x-{n:03}"), value.to_owned()));
            StaticHeaders::check(headers.collect::<Vec<_>>())
        };
        assert_eq!(numbered(20, "v").unwrap().names().len(), 20);
        assert_eq!(numbered(21, "v").unwrap_err(), [BadHeader::TooMany(21)]);
        assert_eq!(numbered(100, "v").unwrap_err(), [BadHeader::TooMany(100)]);
        // An object of three has 4 + 3 * (5 + 5) - 3 bytes beside the values.
        let three = |last: usize| {
            let last = "v".repeat(last);
            let full = "v".repeat(1000);
            StaticHeaders::check(
                [("x-aaa", &full), ("x-bbb", &full), ("x-ccc", &full)]
                    .map(|(name, value)| (name.to_owned(), value.clone()))
                    .into_iter()
                    .chain([("x-ddd".to_owned(), last)]),
            )
        };
        let rest = 3500 - three(1).unwrap().to_json().expose().len() + 1;
        assert!(three(rest).is_ok());
        assert_eq!(three(rest + 1).unwrap_err(), [BadHeader::TooLarge(3501)]);
    }

    #[test]
    fn every_problem_is_said_at_once() {
        let found =
            problems(&[("X-A", "1"), ("x-a", "2"), ("host", "x"), ("x-b", "\n"), ("?", "")]);
        let [BadHeader::Twice(_), BadHeader::Reserved(..), BadHeader::Value(_), BadHeader::Name(5)] =
            found.as_slice()
        else {
            panic!("{found:?}")
        };
    }

    /// DLV-custom-headers: validated on save and on send.
    #[test]
    fn what_was_sealed_is_read_and_checked_again() {
        let json = |text: &str| StaticHeaders::from_json(&SecretText::new(text.to_owned()));
        let (read, problems) = json(r#"{"X-Key":"a b","x-env":"prod"}"#).unwrap();
        assert_eq!(read.iter().collect::<Vec<_>>(), [("x-env", "prod"), ("x-key", "a b")]);
        assert_eq!(read.to_json().expose(), r#"{"x-env":"prod","x-key":"a b"}"#);
        assert_eq!(problems, []);
        assert!(json("{}").unwrap().0.is_empty());
        for bad in ["", "[]", r#"{"x":1}"#, r#"{"x":null}"#] {
            assert_eq!(json(bad).unwrap_err(), BadHeader::Unreadable, "{bad}");
        }
        let (read, problems) = json(r#"{"Webhook-Id":"x","x-env":"prod","x-y":"a\nb"}"#).unwrap();
        assert_eq!(read.names(), ["x-env"]);
        assert!(matches!(problems.as_slice(), [BadHeader::Reserved(..), BadHeader::Value(_)]));
    }

    /// SEC-secret-in-logs
    #[test]
    fn a_value_is_never_printed() {
        let canary = "CANARY";
        let fine = StaticHeaders::check([("x-key", canary)]).unwrap();
        let bad = problems(&[("host", canary), ("x-a", "CANARY\n"), ("CANARY\n", canary)]);
        for said in [format!("{fine:?} {bad:?}"), bad.iter().map(ToString::to_string).collect()] {
            assert!(!said.contains(canary), "{said}");
        }
    }

    proptest! {
        /// Whatever is typed: what passes is one line of a header, and reads back as it was written.
        #[test]
        fn what_passes_can_be_written_as_a_header(name in ".{0,80}", value in ".{0,80}") {
            if let Ok(checked) = StaticHeaders::check([(&name, &value)]) {
                let (found, kept) = checked.iter().next().unwrap();
                prop_assert!(found.eq_ignore_ascii_case(&name) && kept == value);
                prop_assert!(kept.bytes().all(|b| (b' '..=b'~').contains(&b)));
                let (again, problems) = StaticHeaders::from_json(&checked.to_json()).unwrap();
                prop_assert_eq!((again.names(), problems), (checked.names(), vec![]));
            }
        }
    }
}
