//! What a provider answered, and what follows.
//!
//! Nothing of an answer's body is ever repeated: it may be a person's data, or a page that quotes our request.

use std::time::Duration;

use domain::event::{Object, Version};
use http::{HeaderMap, HeaderName, header};
use jiff::Timestamp;
use serde_json::Value;

use crate::{
    call::About,
    fetcher::{Fetcher, VersionKind},
    template::leaf,
};

/// Most bytes of an answer that are read.
pub const MAX_BYTES: usize = 8 * 1024 * 1024;

/// Longest pause that a provider can ask for. One that asks for more is asked again after this, and may say so again.
pub const MAX_PAUSE: Duration = Duration::from_hours(1);

/// The pause after a refusal for asking too much that does not say how long.
const USUAL_PAUSE: Duration = Duration::from_secs(10);

/// An answer, read whole.
#[derive(Clone, Debug)]
pub struct Answered {
    /// The HTTP status.
    pub status: u16,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Vec<u8>,
}

/// What an answer means.
#[derive(Clone, Debug, PartialEq)]
pub enum Judged {
    /// The object's state.
    State {
        /// What the provider says of it.
        fields: Value,
        /// Its version, if the fetcher says where one stands.
        version: Option<Version>,
    },
    /// The object was deleted.
    Gone,
    /// The provider takes no more for so long.
    Busy(Duration),
    /// The token is not good, or not for this: 401 or 403.
    Refused(u16),
    /// The provider's own fault, which may pass.
    Broken(u16),
    /// Anything else: what it was and what to do about it. Never with a word of the body.
    Unusable(String),
}

impl Fetcher {
    /// Whether an event says itself that its object was deleted.
    pub fn says_deleted(&self, about: &About<'_>) -> bool {
        let deletion = &self.terms.deletion;
        let by_type = about
            .event_type
            .is_some_and(|word| deletion.type_ends.iter().any(|end| word.ends_with(end.as_str())));
        let said = deletion.at.as_ref().and_then(|at| about.event.pointer(at)).and_then(leaf);
        by_type || said.is_some_and(|said| deletion.is.contains(&said))
    }

    /// What an answer to the question about an object means. `known` is what is known of it so far.
    pub fn judge(
        &self,
        about: &About<'_>,
        answered: &Answered,
        known: Option<&Object>,
        now: Timestamp,
    ) -> Judged {
        let terms = &self.terms;
        let status = answered.status;
        match status {
            200 => self.state(about, answered),
            _ if terms.gone.contains(&status) => Judged::Gone,
            _ if terms.doubtful.contains(&status) => {
                if self.says_deleted(about) || known.is_some_and(|known| known.deleted) {
                    return Judged::Gone;
                }
                Judged::Unusable(format!(
                    "the provider answered {status}, though no event says that the object was deleted: perhaps the token is \
                     another account's or mode's, or may not see it; check the token's rights, then replay the event"
                ))
            }
            429 | 503 => Judged::Busy(self.pause(&answered.headers, now)),
            // A refusal of a right never says when to come back.
            403 if self.is_spent(&answered.headers)
                || answered.headers.contains_key(header::RETRY_AFTER) =>
            {
                Judged::Busy(self.pause(&answered.headers, now))
            }
            401 | 403 => Judged::Refused(status),
            300..=399 => Judged::Unusable(format!(
                "the provider answered {status}, a redirect, which is not followed: the token would go with it; correct the \
                 fetcher's `url`, then replay the event"
            )),
            408 | 425 | 500..=599 => Judged::Broken(status),
            _ => Judged::Unusable(format!(
                "the provider answered {status}; check the fetcher's `url` and headers against the provider's documentation, \
                 then replay the event"
            )),
        }
    }

    fn state(&self, about: &About<'_>, answered: &Answered) -> Judged {
        let not_json = |what: &str| {
            Judged::Unusable(format!(
                "the provider answered 200 with {what} instead of JSON, as an error or log-in page is; check the fetcher's \
                 `url` and the token, then replay the event"
            ))
        };
        if !is_json(&answered.headers) {
            return not_json("another content type");
        }
        let body = answered.body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&answered.body);
        let Ok(answer) = serde_json::from_slice::<Value>(body) else {
            return not_json("a body that cannot be parsed");
        };
        let terms = &self.terms;
        let at = terms.states.get(&about.object.kind).unwrap_or(&terms.state);
        let Some(state) = answer.pointer(at).filter(|state| state.is_object()) else {
            return Judged::Unusable(format!(
                "the provider's answer has no object at `{at}`; correct the fetcher's `state`, then replay the event"
            ));
        };
        if let Some(pointer) = &terms.id
            && state.pointer(pointer).and_then(leaf).as_deref() != Some(&about.object.id)
        {
            return Judged::Unusable(format!(
                "the provider's answer is about another object: its id at `{pointer}` is not the one that was asked for; \
                 correct the fetcher's `url` or `id`, then replay the event"
            ));
        }
        let is_true = |pointer: &String| state.pointer(pointer) == Some(&Value::Bool(true));
        if terms.deleted.as_ref().is_some_and(is_true) {
            return Judged::Gone;
        }
        let version = match &terms.version {
            None => None,
            Some(rules) => {
                let part =
                    |(from, kind): &(String, VersionKind)| version(state.pointer(from)?, *kind);
                match rules.parts.iter().map(part).collect::<Option<Vec<_>>>() {
                    Some(mut parts) if parts.len() == 1 => parts.pop(),
                    Some(parts) => Some(Version::Composite(parts)),
                    None => None,
                }
            }
        };
        Judged::State { fields: state.clone(), version }
    }

    fn is_spent(&self, headers: &HeaderMap) -> bool {
        let spent = self.terms.spent.as_ref();
        spent.is_some_and(|spent| only(headers, &spent.header) == Some(spent.is.as_str()))
    }

    /// How long the provider wants to be left alone.
    fn pause(&self, headers: &HeaderMap, now: Timestamp) -> Duration {
        let until = self.terms.spent.as_ref().filter(|_| self.is_spent(headers));
        let until = until.and_then(|spent| only(headers, spent.until.as_ref()?));
        let until = until.and_then(|second| Timestamp::from_second(second.parse().ok()?).ok());
        let until = until.and_then(|until| Duration::try_from(until.duration_since(now)).ok());
        let asked = only(headers, &header::RETRY_AFTER).and_then(|value| {
            // Shopify says "2.0".
            let whole = value.trim().split_once('.').map_or(value, |(whole, _)| whole);
            domain::delivery::retry_after(whole, now)
                .or_else(|| domain::delivery::retry_after(value, now))
        });
        asked.max(until).unwrap_or(USUAL_PAUSE).clamp(Duration::from_secs(1), MAX_PAUSE)
    }
}

/// The value of a header that comes once. Twice is a contradiction, and worth nothing.
fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// An answer without a content type is given the benefit: it is parsed, or not.
fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return true };
    let essence = value.to_str().unwrap_or("?").split(';').next().unwrap_or_default();
    let essence = essence.trim().to_ascii_lowercase();
    essence
        .strip_prefix("application/")
        .or_else(|| essence.strip_prefix("text/"))
        .is_some_and(|kind| kind == "json" || kind.ends_with("+json"))
}

fn version(value: &Value, kind: VersionKind) -> Option<Version> {
    let text = leaf(value)?;
    match kind {
        VersionKind::Number => text.parse().ok().map(Version::Number),
        VersionKind::Rfc3339 => text.parse().ok().map(Version::Time),
        VersionKind::Lexical => Some(Version::Text(text)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use domain::event::ObjectRef;
    use serde_json::json;

    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn now() -> Timestamp {
        Timestamp::from_second(NOW).unwrap()
    }

    fn answered(status: u16, headers: &[(&'static str, &str)], body: &str) -> Answered {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        Answered { status, headers: map, body: body.as_bytes().to_vec() }
    }

    struct Asked {
        fetcher: Fetcher,
        object: ObjectRef,
        event_type: &'static str,
        event: Value,
        known: Option<Object>,
    }

    impl Asked {
        fn of(preset: &str, kind: &str, id: &str) -> Self {
            let object = ObjectRef { kind: kind.to_owned(), id: id.to_owned() };
            let fetcher = Fetcher::preset(preset).unwrap();
            Self { fetcher, object, event_type: "", event: Value::Null, known: None }
        }

        fn judge(&self, answered: &Answered) -> Judged {
            let config = BTreeMap::new();
            let about = About {
                object: &self.object,
                event_type: Some(self.event_type),
                event: &self.event,
                config: &config,
            };
            self.fetcher.judge(&about, answered, self.known.as_ref(), now())
        }
    }

    const JSON: (&str, &str) = ("content-type", "application/json; charset=utf-8");

    #[test]
    fn a_state_is_read_where_the_fetcher_says() {
        let stripe = Asked::of("stripe", "invoice", "in_1");
        let body = json!({ "id": "in_1", "object": "invoice", "status": "paid" });
        let judged = stripe.judge(&answered(200, &[JSON], &body.to_string()));
        assert_eq!(judged, Judged::State { fields: body, version: None });
        let shopify = Asked::of("shopify", "orders", "820");
        let body = json!({ "order": { "id": 820, "updated_at": "2026-12-01T10:00:00+01:00" } });
        let judged = shopify.judge(&answered(200, &[JSON], &body.to_string()));
        let version = Version::Time("2026-12-01T09:00:00Z".parse().unwrap());
        assert_eq!(judged, Judged::State { fields: body["order"].clone(), version: Some(version) });
    }

    fn own(version: &Value) -> Asked {
        let own =
            json!({ "url": "https://a.example.com/{id}", "auth": "none", "version": version });
        let fetcher = Fetcher::from_value(own).unwrap();
        Asked { fetcher, ..Asked::of("stripe", "k", "1") }
    }

    #[test]
    fn a_version_may_have_parts_and_a_missing_one_is_none() {
        let parts = json!({ "parts": [{ "from": "/a" }, { "from": "/b", "kind": "lexical" }] });
        let check = |rules: &Value, body: &str, expected: Option<Version>| {
            let judged = own(rules).judge(&answered(200, &[], body));
            assert!(
                matches!(judged, Judged::State { version, .. } if version == expected),
                "{body}"
            );
        };
        let both = Version::Composite(vec![Version::Number(3), Version::Text("x".to_owned())]);
        check(&parts, r#"{"a":3,"b":"x"}"#, Some(both));
        check(&parts, r#"{"a":3}"#, None);
        let number = json!({ "from": "/v", "kind": "number" });
        check(&number, r#"{"v":"18446744073709551615"}"#, Some(Version::Number(u64::MAX)));
        check(&number, r#"{"v":-1}"#, None);
        check(&number, r#"{"v":1.5}"#, None);
        check(&number, r#"{"v":null}"#, None);
    }

    /// Whatever stands in the body, no word of it is repeated.
    #[test]
    fn a_200_is_believed_only_if_it_is_the_object_that_was_asked_for() {
        let stripe = Asked::of("stripe", "invoice", "in_1");
        let good = r#"{"id":"in_1","n":1}"#;
        for (headers, body, fits) in [
            (vec![], good, true),
            (vec![("content-type", "text/json")], good, true),
            (vec![("content-type", "APPLICATION/vnd.github+JSON")], good, true),
            (vec![("content-type", "text/html")], good, false),
            (vec![("content-type", "application/jsonp")], good, false),
            (vec![JSON], "<html>CANARY</html>", false),
            (vec![JSON], "", false),
            (vec![JSON], r#"{"id":"in_1""#, false),
            (vec![JSON], r#"{"error":"CANARY"}"#, false),
            (vec![JSON], r#"{"id":"CANARY"}"#, false),
            (vec![JSON], r#"["CANARY"]"#, false),
            (vec![JSON], r#""CANARY""#, false),
        ] {
            let judged = stripe.judge(&answered(200, &headers, body));
            assert_eq!(matches!(judged, Judged::State { .. }), fits, "{body}: {judged:?}");
            assert!(!format!("{judged:?}").contains("CANARY"));
        }
        assert!(matches!(stripe.judge(&answered(204, &[], "")), Judged::Unusable(_)));
    }

    #[test]
    fn a_refusal_means_what_its_status_says() {
        let own = own(&Value::Null);
        for (status, expected) in [
            (401, Judged::Refused(401)),
            (403, Judged::Refused(403)),
            (404, Judged::Gone),
            (410, Judged::Gone),
            (429, Judged::Busy(Duration::from_secs(10))),
            (503, Judged::Busy(Duration::from_secs(10))),
            (500, Judged::Broken(500)),
            (408, Judged::Broken(408)),
        ] {
            assert_eq!(own.judge(&answered(status, &[], "CANARY")), expected, "{status}");
        }
        for status in [301, 302, 307, 308, 400, 402, 423, 204, 206] {
            let judged =
                own.judge(&answered(status, &[("location", "https://127.0.0.1/CANARY")], "CANARY"));
            let Judged::Unusable(why) = &judged else { panic!("{status}: {judged:?}") };
            assert!(why.contains(&status.to_string()) && why.contains("replay"), "{why}");
            assert!(!why.contains("CANARY"), "{why}");
        }
    }

    /// D8: a provider that does not say "deleted" without doubt is believed only if an event said so too.
    #[test]
    fn a_doubtful_404_is_an_end_only_if_an_event_said_so() {
        let gone = |asked: &Asked| asked.judge(&answered(404, &[], "")) == Judged::Gone;
        let mut stripe = Asked::of("stripe", "product", "prod_1");
        stripe.event_type = "product.updated";
        assert!(!gone(&stripe), "a key of the other mode does not delete everything");
        stripe.event_type = "product.deleted";
        assert!(gone(&stripe));
        stripe.event_type = "product.updated";
        stripe.known = Some(Object {
            version: Version::Reading(1),
            tie: String::new(),
            fields: Value::Null,
            deleted: true,
            updated_at: now(),
            as_of: now(),
            fetched: true,
        });
        assert!(gone(&stripe), "it was deleted before");
        let mut github = Asked::of("github", "issue_comment", "5");
        assert!(!gone(&github));
        github.event = json!({ "action": "deleted" });
        assert!(gone(&github));
        let customer = Asked::of("stripe", "customer", "cus_1");
        let body = r#"{"id":"cus_1","object":"customer","deleted":true}"#;
        assert_eq!(customer.judge(&answered(200, &[JSON], body)), Judged::Gone);
    }

    #[test]
    fn a_provider_that_takes_no_more_says_for_how_long() {
        let check = |preset: &str, status: u16, headers: &[(&'static str, &str)], seconds: u64| {
            let judged = Asked::of(preset, "release", "1").judge(&answered(status, headers, ""));
            assert_eq!(judged, Judged::Busy(Duration::from_secs(seconds)), "{headers:?}");
        };
        check("stripe", 429, &[("retry-after", "7")], 7);
        check("shopify", 429, &[("retry-after", "2.0")], 2);
        check("stripe", 503, &[("retry-after", "86400")], 3600);
        check("stripe", 429, &[("retry-after", "0")], 10);
        check("stripe", 429, &[("retry-after", "1"), ("retry-after", "9")], 10);
        check("github", 403, &[("retry-after", "60")], 60);
        let reset = (NOW + 90).to_string();
        check("github", 403, &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", &reset)], 90);
        check("github", 429, &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1")], 10);
        let refused = answered(403, &[("x-ratelimit-remaining", "4999")], "");
        assert_eq!(Asked::of("github", "release", "1").judge(&refused), Judged::Refused(403));
    }
}
