//! Which events a bulk work is about.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Kind;
use crate::{
    endpoint::Pattern,
    inbox::{Row, Status},
};

/// Most events that can be named: each is told of one by one.
pub const MAX_EVENTS: usize = 200;

/// Most patterns of types.
pub const MAX_PATTERNS: usize = 50;

/// Longest code of an error, in bytes.
const MAX_CODE: usize = 100;

/// Which events: every given restriction holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Selection {
    /// The statuses that are taken. Empty: what [`Self::or_default`] says.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub status: BTreeSet<Status>,
    /// Patterns of their types. Empty: all, also those without a type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<Pattern>,
    /// The code of their last error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Received then or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Timestamp>,
    /// Received before then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Timestamp>,
    /// These events, by the provider's ids. Empty: all of the source.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<String>,
}

/// Why a selection cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSelection {
    /// Pending events are not replayed.
    #[error(
        "pending events are processed without being asked; `resume` sends those now that wait for later"
    )]
    PendingReplay,
    /// Only pending events are resumed.
    #[error("only pending events are resumed; finished and parked ones are replayed")]
    FinishedResume,
    /// Nothing is received in no time.
    #[error("`from` is not before `to`, so that no event is received between them; exchange them")]
    EmptyRange,
    /// Too many names.
    #[error(
        "at most {MAX_EVENTS} events can be named at once; name fewer, or select by type, time or error"
    )]
    TooManyEvents,
    /// Not a name.
    #[error("an event's id is not empty; leave the empty one out")]
    EmptyEvent,
    /// Too many patterns.
    #[error("at most {MAX_PATTERNS} patterns of types; `*` stands for any run of characters")]
    TooManyPatterns,
    /// Not a code.
    #[error(
        "the code of an error is 1 to {MAX_CODE} of a-z, 0-9 and `_`, such as `handler_failed`"
    )]
    BadCode,
}

impl Selection {
    /// The same with the statuses that are meant where none is said. What is processed is taken only by its name, and
    /// what is ignored only then, or when the event itself is named.
    #[must_use]
    pub fn or_default(mut self, kind: Kind) -> Self {
        if self.status.is_empty() {
            self.status = match kind {
                Kind::Resume => [Status::Pending].into(),
                Kind::Replay if self.events.is_empty() => [Status::DeadLetter].into(),
                Kind::Replay => [Status::DeadLetter, Status::Ignored].into(),
            };
        }
        self
    }

    /// Everything that is wrong with it: the field, and why.
    pub fn problems(&self, kind: Kind) -> Vec<(&'static str, BadSelection)> {
        let pending = self.status.contains(&Status::Pending);
        let others = self.status.iter().any(|status| *status != Status::Pending);
        let found = [
            ("status", BadSelection::PendingReplay, kind == Kind::Replay && pending),
            ("status", BadSelection::FinishedResume, kind == Kind::Resume && others),
            ("from", BadSelection::EmptyRange, self.is_empty_range()),
            ("events", BadSelection::TooManyEvents, self.events.len() > MAX_EVENTS),
            ("events", BadSelection::EmptyEvent, self.events.iter().any(String::is_empty)),
            ("types", BadSelection::TooManyPatterns, self.types.len() > MAX_PATTERNS),
            ("error", BadSelection::BadCode, !self.error.as_deref().is_none_or(is_code)),
        ];
        found.into_iter().filter(|(_, _, is_so)| *is_so).map(|(at, why, _)| (at, why)).collect()
    }

    fn is_empty_range(&self) -> bool {
        self.from.zip(self.to).is_some_and(|(from, to)| from >= to)
    }

    /// Whether a row is of the selection, its status aside.
    pub(super) fn wants(&self, row: &Row) -> bool {
        let of_type = |kind: &str| self.types.iter().any(|types| types.matches(kind));
        let code = row.last_error.as_ref().map(|error| error.code.as_str());
        self.is_received_then(row.new.received_at)
            && (self.types.is_empty() || row.new.event_type.as_deref().is_some_and(of_type))
            && self.error.as_deref().is_none_or(|wanted| code == Some(wanted))
    }

    /// Whether a time of receipt is in the range.
    pub fn is_received_then(&self, at: Timestamp) -> bool {
        self.from.is_none_or(|from| from <= at) && self.to.is_none_or(|to| at < to)
    }
}

fn is_code(code: &str) -> bool {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    (1..=MAX_CODE).contains(&code.len()) && code.chars().all(allowed)
}
