//! A source: one configured inbound feed of a provider.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    fetch::Fetch,
    id::{SourceName, TenantId},
};

/// The configuration of a source, as it stands in the registry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// Its name, which is in its URL.
    pub name: SourceName,
    /// How requests are verified and read: the name of a shipped scheme, or a scheme of the user's own.
    pub scheme: SchemeChoice,
    /// What is done with its events.
    pub handler: Handler,
    /// When it was made.
    pub created_at: Timestamp,
    /// What makes two of its events one.
    #[serde(default, skip_serializing_if = "Dedupe::is_id")]
    pub dedupe: Dedupe,
    /// Its events are filed under this other source: the provider sends each of them to both, and one is enough. They
    /// are verified with this source's own secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same_as: Option<SourceName>,
    /// Until then, a handshake may bring the secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awaits_secret_until: Option<Timestamp>,
    /// What `{config:..}` stands for in its scheme, beside what the scheme says itself: the address as the provider
    /// knows it, the id of the account.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub config: BTreeMap<String, String>,
    /// What its events must say to be carried out, by JSON pointer: a text, a number, true or false. A provider's test
    /// mode often shares its live mode's address. Other events are kept, and ignored.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub only: BTreeMap<String, Value>,
    /// How the provider is asked for the state of objects that its events are about. `None`: it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetch: Option<Fetch>,
    /// Its events are accepted, and wait until somebody resumes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Paused>,
    /// When it was last resumed: no event has waited for longer than since then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed_at: Option<Timestamp>,
    /// Longest that it is usually silent. After that, what is held of its objects is doubted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_after: Option<SignedDuration>,
}

/// That a source is paused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paused {
    /// Since when.
    pub since: Timestamp,
    /// Why, in the words of whoever paused it.
    pub reason: String,
}

/// An event of a mode that its source does not want. What it says instead is a stranger's text, and not repeated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("other mode: {pointer} is not {wanted}")]
pub struct OtherMode {
    /// Where the event says its mode.
    pub pointer: String,
    /// What it should say there.
    pub wanted: Value,
}

impl Source {
    /// A source without anything out of the ordinary.
    pub fn new(
        name: SourceName,
        scheme: SchemeChoice,
        handler: Handler,
        created_at: Timestamp,
    ) -> Self {
        Self {
            name,
            scheme,
            handler,
            created_at,
            dedupe: Dedupe::default(),
            same_as: None,
            awaits_secret_until: None,
            config: BTreeMap::new(),
            only: BTreeMap::new(),
            fetch: None,
            paused: None,
            resumed_at: None,
            silent_after: None,
        }
    }

    /// The source, paused. One that is paused stays as it was paused first.
    #[must_use]
    pub fn pause(&self, reason: &str, now: Timestamp) -> Self {
        let paused = || Paused { since: now, reason: reason.to_owned() };
        Self { paused: Some(self.paused.clone().unwrap_or_else(paused)), ..self.clone() }
    }

    /// The source, resumed. One that is not paused stays as it is.
    #[must_use]
    pub fn resume(&self, now: Timestamp) -> Self {
        let resumed_at = if self.paused.is_some() { Some(now) } else { self.resumed_at };
        Self { paused: None, resumed_at, ..self.clone() }
    }

    /// The source under whose name its events are filed.
    pub fn filed_under(&self) -> &SourceName {
        self.same_as.as_ref().unwrap_or(&self.name)
    }

    /// Whether an event with this body is one of those that the source wants. A body that is not JSON says nothing, and
    /// neither does one without the value: a mode that nobody named is not the wanted one.
    ///
    /// # Errors
    /// The first value that is another one.
    pub fn wants(&self, body: &[u8]) -> Result<(), OtherMode> {
        if self.only.is_empty() {
            return Ok(());
        }
        // A byte order mark in front is skipped, as it is where the rest of the event is read.
        let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
        let said = serde_json::from_slice(body).unwrap_or(Value::Null);
        let other =
            self.only.iter().find(|(pointer, wanted)| said.pointer(pointer) != Some(wanted));
        match other {
            None => Ok(()),
            Some((pointer, wanted)) => {
                Err(OtherMode { pointer: pointer.clone(), wanted: wanted.clone() })
            }
        }
    }
}

/// What makes two events of a source one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dedupe {
    /// The provider's id.
    #[default]
    Id,
    /// The hash of what the provider signed. For providers that do not sign the id: whoever has seen one request could
    /// send it again under ever new ids. The id is kept for correlation.
    Content,
}

impl Dedupe {
    fn is_id(&self) -> bool {
        *self == Self::Id
    }
}

/// How a source names its scheme.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SchemeChoice {
    /// A scheme that ships with the product.
    Preset(String),
    /// A scheme as data, in JSON.
    Own(Value),
}

/// What is done with a source's events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Handler {
    /// Objects follow the provider.
    Mirror {
        /// Also tell this tenant's endpoints when an object changes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        emit_to: Option<TenantId>,
        /// The states that they move between; a move that is not among them is refused.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        states: Option<crate::states::MirrorStates>,
    },
    /// Events go out to a tenant's endpoints as they came.
    Forward {
        /// Whose endpoints.
        tenant: TenantId,
        /// Which event types; see [`crate::endpoint::Pattern`]. Empty: all.
        #[serde(default)]
        types: Vec<crate::endpoint::Pattern>,
    },
    /// A handler of the user's own, which is part of the worker.
    Own {
        /// What it is called there: as a source may be.
        name: String,
        /// Whose endpoints it may tell.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tenant: Option<TenantId>,
    },
}

impl Handler {
    /// Whose endpoints it tells, as it is configured.
    pub const fn tenant(&self) -> Option<&TenantId> {
        match self {
            Self::Mirror { emit_to, .. } => emit_to.as_ref(),
            Self::Forward { tenant, .. } => Some(tenant),
            Self::Own { tenant, .. } => tenant.as_ref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_source_is_paused_once_and_resumed_once() {
        let (now, later) = (Timestamp::UNIX_EPOCH, Timestamp::MAX);
        let plain = source(json!({}));
        let paused = plain.pause("a bug", now);
        assert_eq!(paused.paused, Some(Paused { since: now, reason: "a bug".to_owned() }));
        assert_eq!(paused.pause("another", later), paused);
        let resumed = paused.resume(later);
        assert_eq!((&resumed.paused, resumed.resumed_at), (&None, Some(later)));
        assert_eq!(resumed.resume(now), resumed);
        assert_eq!(plain.resume(now), plain);
    }

    /// What an earlier version wrote reads, and what is not used is not written.
    #[test]
    fn a_source_that_was_never_paused_is_written_as_before() {
        let text = serde_json::to_value(source(json!({}))).unwrap();
        let names = ["paused", "resumed_at", "silent_after"];
        assert!(names.iter().all(|name| text.get(name).is_none()), "{text}");
        assert_eq!(serde_json::from_value::<Source>(text).unwrap(), source(json!({})));
        let silent_after = Some(SignedDuration::from_hours(2));
        let full = Source { silent_after, ..source(json!({})).pause("a bug", Timestamp::MAX) };
        let text = serde_json::to_string(&full).unwrap();
        assert_eq!(serde_json::from_str::<Source>(&text).unwrap(), full);
    }

    fn source(only: Value) -> Source {
        let scheme = SchemeChoice::Preset("stripe".to_owned());
        let handler = Handler::Mirror { emit_to: None, states: None };
        let plain = Source::new("shop".parse().unwrap(), scheme, handler, Timestamp::UNIX_EPOCH);
        Source { only: serde_json::from_value(only).unwrap(), ..plain }
    }

    /// SEC-live-test-mode
    #[test]
    fn an_event_is_wanted_if_it_says_everything_that_is_asked_of_it() {
        let check = |only: Value, body: &str, expected: &str| {
            let said = source(only).wants(body.as_bytes());
            assert_eq!(
                said.map_or_else(|other| other.to_string(), |()| String::new()),
                expected,
                "{body}"
            );
        };
        let other = "other mode: /livemode is not true";
        let live = || json!({ "/livemode": true });
        check(live(), r#"{"livemode":true}"#, "");
        check(live(), "\u{feff} {\"livemode\":true}", "");
        for body in [
            r#"{"livemode":false}"#,
            r#"{"livemode":"true"}"#,
            r#"{"livemode":1}"#,
            r#"{"livemode":true,"livemode":false}"#,
            r#"{"data":{"livemode":true}}"#,
            r#"[true]"#,
            "true",
            "livemode=true",
            r#"{"livemode":true"#,
            "",
        ] {
            check(live(), body, other);
        }
        let two = || json!({ "/a~1b/0": "live", "/n": 2 });
        check(two(), r#"{"a/b":["live"],"n":2}"#, "");
        check(two(), r#"{"a/b":["live"],"n":3}"#, "other mode: /n is not 2");
        check(two(), r#"{"a/b":["CANARY"],"n":2}"#, r#"other mode: /a~1b/0 is not "live""#);
        check(json!({}), "anything", "");
    }
}
