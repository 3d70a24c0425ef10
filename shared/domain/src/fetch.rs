//! What a provider says of an object when it is asked, and when it is asked at all.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    commit::tie_of,
    event::{Object, Version},
};

/// The current state of an object, from the provider's API.
#[derive(Clone, Debug, PartialEq)]
pub enum Fetched {
    /// It is there.
    State {
        /// What the provider says of it.
        fields: Value,
        /// Its version: the provider's if it is trusted, else [`Version::Reading`] under the lease that it was read with.
        version: Option<Version>,
        /// When the fetch began.
        as_of: Timestamp,
    },
    /// It is not there any more.
    Gone {
        /// When the fetch began.
        as_of: Timestamp,
    },
}

impl Fetched {
    /// When the fetch began: the world may have changed since, and had not changed before.
    pub const fn as_of(&self) -> Timestamp {
        match self {
            Self::State { as_of, .. } | Self::Gone { as_of } => *as_of,
        }
    }
}

/// How a source asks its provider for the state of objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fetch {
    /// Where the state is had.
    #[serde(flatten)]
    pub choice: FetchChoice,
    /// When it is asked. `None`: in doubt if the versions of events are trusted, else always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<When>,
}

/// How a source names its fetcher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FetchChoice {
    /// A fetcher that ships with the product.
    Preset(String),
    /// A fetcher as data, in JSON.
    Own(Value),
}

/// When a provider is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// For each event, unless what it says is known already.
    Always,
    /// If the event has no version, or the version that is known with another content, or is later than an answer that the
    /// object is gone.
    Doubt,
}

impl Fetch {
    /// When the provider is asked, for a source whose events have, or have not, versions that are trusted.
    pub fn when(&self, trusts_versions: bool) -> When {
        self.when.unwrap_or(if trusts_versions { When::Doubt } else { When::Always })
    }
}

/// How often a provider may be asked, by all workers together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Between two calls, in the long run.
    pub interval: Duration,
    /// Calls at once after a pause.
    pub burst: u32,
}

/// How much later than an event a fetch must have begun to cover it: more than the clocks of two machines differ, and
/// than a provider takes to see its own change.
pub const COVERS_AFTER: SignedDuration = SignedDuration::from_secs(1);

/// Whether what an event says of an object is in what is known already: the provider was asked after the event came.
pub fn is_covered(known: Option<&Object>, armed_at: Timestamp) -> bool {
    known.is_some_and(|known| known.fetched && known.as_of.duration_since(armed_at) > COVERS_AFTER)
}

/// Whether an event leaves it open what the object is now: it has no version, or the known one and another content.
///
/// What was read without a version compares with no event, so it is read again. What the provider did not have any more is
/// revived by the provider alone, so a later event about it is a doubt too.
pub fn is_doubtful(version: Option<&Version>, body: &Value, known: Option<&Object>) -> bool {
    let Some(version) = version else { return true };
    known.is_some_and(|known| {
        let is_same = || [false, true].iter().any(|gone| tie_of(body, *gone) == known.tie);
        matches!(known.version, Version::Reading(_))
            || known.version == *version && !is_same()
            || known.deleted && known.fetched && *version > known.version
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millisecond(1_800_000_000_000 + ms).unwrap()
    }

    fn known(version: Version, fields: Value, fetched: bool) -> Object {
        let tie = tie_of(&fields, false);
        Object { version, tie, fields, deleted: false, updated_at: at(9), as_of: at(0), fetched }
    }

    #[test]
    fn only_a_fetch_that_began_clearly_later_covers_an_event() {
        let read = known(Version::Reading(1), json!({}), true);
        for (armed, covered) in
            [(-1001, true), (-1000, false), (-1, false), (0, false), (5000, false)]
        {
            assert_eq!(is_covered(Some(&read), at(armed)), covered, "{armed}");
        }
        let told = Object { fetched: false, ..read };
        assert!(!is_covered(Some(&told), at(-5000)), "an event said so, not the provider");
        assert!(!is_covered(None, at(-5000)));
    }

    /// ORD-same-second
    #[test]
    fn two_contents_under_one_version_are_a_doubt_and_a_repetition_is_none() {
        let one = Some(&Version::Number(7));
        let stored = known(Version::Number(7), json!({ "a": 1 }), false);
        assert!(is_doubtful(one, &json!({ "a": 2 }), Some(&stored)));
        assert!(!is_doubtful(one, &json!({ "a": 1 }), Some(&stored)));
        assert!(!is_doubtful(Some(&Version::Number(8)), &json!({ "a": 2 }), Some(&stored)));
        assert!(!is_doubtful(Some(&Version::Number(6)), &json!({ "a": 2 }), Some(&stored)));
        assert!(!is_doubtful(one, &json!({ "a": 2 }), None));
        assert!(is_doubtful(None, &json!({ "a": 1 }), Some(&stored)));
        let read = known(Version::Reading(3), json!({ "a": 1 }), true);
        assert!(is_doubtful(Some(&Version::Number(8)), &json!({ "a": 1 }), Some(&read)));
    }

    /// ORD-update-before-create
    #[test]
    fn an_event_alone_does_not_revive_what_the_provider_did_not_have_any_more() {
        let gone = Object { deleted: true, ..known(Version::Number(7), json!({ "a": 1 }), true) };
        let doubtful = |n, gone: &Object| {
            is_doubtful(Some(&Version::Number(n)), &json!({ "a": 1 }), Some(gone))
        };
        assert!(doubtful(8, &gone));
        assert!(!doubtful(6, &gone), "it is older than the answer");
        let told = Object { fetched: false, ..gone.clone() };
        assert!(!doubtful(8, &told), "an event said so, and this one is later");
        assert!(!doubtful(8, &Object { deleted: false, ..gone.clone() }));
    }

    #[test]
    fn a_provider_is_asked_always_unless_its_versions_are_trusted_or_somebody_said_otherwise() {
        let mut fetch = Fetch { choice: FetchChoice::Preset("stripe".to_owned()), when: None };
        assert_eq!((fetch.when(false), fetch.when(true)), (When::Always, When::Doubt));
        assert_eq!(serde_json::to_value(&fetch).unwrap(), json!({ "preset": "stripe" }));
        fetch.when = Some(When::Always);
        assert_eq!(fetch.when(true), When::Always);
        let text = json!({ "own": { "url": "x" }, "when": "doubt" });
        let own: Fetch = serde_json::from_value(text.clone()).unwrap();
        assert_eq!(serde_json::to_value(&own).unwrap(), text);
    }
}
