//! Whether what we hold of a provider's object may be out of date. Nobody can say that it is not: the provider may have
//! changed it a moment ago. What can be said is that we have a reason to doubt.

use jiff::{SignedDuration, Timestamp};
use serde::{Serialize, Serializer};

/// How far reconciliation may be behind before objects are doubted: it looks every 15 minutes, and not at the last 10.
pub const BEHIND: SignedDuration = SignedDuration::from_hours(1);

/// What is known of the source of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// When the source was made: before, it could not be heard.
    pub made_at: Timestamp,
    /// Longest that the source is usually silent, if somebody has said so.
    pub silent_after: Option<SignedDuration>,
    /// When its last new event was accepted.
    pub heard_at: Option<Timestamp>,
    /// Since when every request in its name is refused.
    pub refused_since: Option<Timestamp>,
    /// Since when its events wait, because somebody paused it.
    pub paused_since: Option<Timestamp>,
    /// Up to when reconciliation has asked the provider, if it ever has.
    pub reconciled_until: Option<Timestamp>,
}

/// A reason to doubt an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// The source was not heard for longer than it should be.
    Silent {
        /// When it was last heard, or made.
        since: Timestamp,
        /// How long it may be silent.
        limit: SignedDuration,
    },
    /// Everything that comes in its name is refused.
    RefusesAll {
        /// Since when.
        since: Timestamp,
    },
    /// Its events are accepted, and wait.
    Paused {
        /// Since when.
        since: Timestamp,
    },
    /// Reconciliation has not asked the provider for a long time.
    Behind {
        /// Up to when it has.
        until: Timestamp,
    },
}

impl Doubt {
    /// The doubt in one stable word.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Silent { .. } => "silent",
            Self::RefusesAll { .. } => "refuses_all",
            Self::Paused { .. } => "paused",
            Self::Behind { .. } => "reconciliation_behind",
        }
    }

    /// The doubt in words, with what to do about it.
    pub fn words(&self) -> String {
        match self {
            Self::Silent { since, limit } => format!(
                "no new event since {since}, and the source should not be silent for longer than {limit:#}; look at the \
                 provider's dashboard"
            ),
            Self::RefusesAll { since } => format!(
                "every request in the source's name is refused since {since}; `postern sources rejected` says why"
            ),
            Self::Paused { since } => format!(
                "the source is paused since {since}, and its events wait; `postern sources resume` carries them out"
            ),
            Self::Behind { until } => format!(
                "reconciliation has asked the provider up to {until} only; what has changed since is not known"
            ),
        }
    }
}

impl Serialize for Doubt {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Told {
            code: &'static str,
            words: String,
        }
        Told { code: self.word(), words: self.words() }.serialize(to)
    }
}

/// The reasons to doubt what is held of a source's objects. None: nothing speaks against it.
pub fn doubts(known: &Evidence, now: Timestamp) -> Vec<Doubt> {
    let past = |since: Timestamp, limit: SignedDuration| now.duration_since(since) > limit;
    let since = known.heard_at.map_or(known.made_at, |at| at.max(known.made_at));
    let silent = known.silent_after.filter(|limit| past(since, *limit));
    let behind = known.reconciled_until.filter(|until| past(*until, BEHIND));
    [
        known.paused_since.map(|since| Doubt::Paused { since }),
        known.refused_since.map(|since| Doubt::RefusesAll { since }),
        silent.map(|limit| Doubt::Silent { since, limit }),
        behind.map(|until| Doubt::Behind { until }),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: SignedDuration = SignedDuration::from_hours(1);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    const fn nothing() -> Evidence {
        Evidence {
            made_at: Timestamp::UNIX_EPOCH,
            silent_after: None,
            heard_at: None,
            refused_since: None,
            paused_since: None,
            reconciled_until: None,
        }
    }

    fn check(known: Evidence, expected: &[&str]) {
        let words: Vec<_> = doubts(&known, at(0)).iter().map(Doubt::word).collect();
        assert_eq!(words, expected, "{known:?}");
    }

    /// K12
    #[test]
    fn an_object_is_doubted_when_its_source_is_silent_refusing_paused_or_behind() {
        check(nothing(), &[]);
        let limit = Evidence { silent_after: Some(HOUR), ..nothing() };
        check(Evidence { heard_at: Some(at(-3600)), ..limit }, &[]);
        check(Evidence { heard_at: Some(at(-3601)), ..limit }, &["silent"]);
        // Another machine's clock may be ahead.
        check(Evidence { heard_at: Some(at(5)), ..limit }, &[]);
        // Never heard: from when it was made.
        check(Evidence { made_at: at(-3600), ..limit }, &[]);
        check(Evidence { made_at: at(-3601), ..limit }, &["silent"]);
        // Without a limit nobody knows whether a silence means something.
        check(Evidence { heard_at: Some(at(-9_999_999)), ..nothing() }, &[]);

        check(Evidence { refused_since: Some(at(-1)), ..nothing() }, &["refuses_all"]);
        check(Evidence { paused_since: Some(at(0)), ..nothing() }, &["paused"]);
        check(Evidence { reconciled_until: Some(at(-3600)), ..nothing() }, &[]);
        let behind = Evidence { reconciled_until: Some(at(-3601)), ..nothing() };
        check(behind, &["reconciliation_behind"]);
        let all = Evidence {
            silent_after: Some(HOUR),
            refused_since: Some(at(-1)),
            paused_since: Some(at(-1)),
            ..behind
        };
        check(all, &["paused", "refuses_all", "silent", "reconciliation_behind"]);
    }

    #[test]
    fn a_doubt_says_since_when_and_what_to_do() {
        let limit = SignedDuration::from_mins(90);
        let told = serde_json::to_value(Doubt::Silent { since: at(0), limit }).unwrap();
        let words = "no new event since 2027-01-15T08:00:00Z, and the source should not be silent for longer than 1h 30m; \
                     look at the provider's dashboard";
        assert_eq!(told, serde_json::json!({ "code": "silent", "words": words }));
        for doubt in [
            Doubt::RefusesAll { since: at(0) },
            Doubt::Paused { since: at(0) },
            Doubt::Behind { until: at(0) },
        ] {
            assert!(doubt.words().contains("2027-01-15T08:00:00Z"), "{}", doubt.words());
        }
    }
}
