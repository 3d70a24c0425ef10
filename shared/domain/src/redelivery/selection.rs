//! Which deliveries a redelivery is about.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{bulk::selection::MAX_PATTERNS, endpoint::Pattern, id::EventId};

/// Most events that can be named: what becomes of each is told one by one.
pub const MAX_EVENTS: usize = 200;

/// Which deliveries: every given restriction holds. Without any, those that were given up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Selection {
    /// Also those that the endpoint has taken.
    #[serde(default, skip_serializing_if = "is_no")]
    pub include_delivered: bool,
    /// Also those that were cancelled with an endpoint.
    #[serde(default, skip_serializing_if = "is_no")]
    pub include_cancelled: bool,
    /// Not those, but the events that never came to an endpoint which would get them now: from before it was made, or
    /// from before it asked for their type.
    #[serde(default, skip_serializing_if = "is_no")]
    pub missing: bool,
    /// Patterns of the events' types. Empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<Pattern>,
    /// Events of then or later, by the time in their id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Timestamp>,
    /// Events of before then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Timestamp>,
    /// These events. Empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<EventId>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
const fn is_no(flag: &bool) -> bool {
    !*flag
}

/// Why a selection cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSelection {
    /// Nothing happens in no time.
    #[error("`from` is not before `to`, so that no event is between them; exchange them")]
    EmptyRange,
    /// Too many names.
    #[error(
        "at most {MAX_EVENTS} events can be named at once; name fewer, or select by type and time"
    )]
    TooManyEvents,
    /// Too many patterns.
    #[error("at most {MAX_PATTERNS} patterns of types; `*` stands for any run of characters")]
    TooManyPatterns,
    /// All the events of a tenant, from the first one on.
    #[error(
        "say from when on: everything that never came to an endpoint is looked for in that range"
    )]
    NoBeginning,
    /// Named events are taken as they stand.
    #[error("events that are named are found without `missing`; leave one of the two out")]
    MissingNames,
    /// What never came to an endpoint has no state there.
    #[error("what is missing was neither delivered nor cancelled; leave `missing` or this out")]
    MissingState,
}

impl Selection {
    /// Everything that is wrong with it: the field, and why.
    pub fn problems(&self) -> Vec<(&'static str, BadSelection)> {
        let has_names = !self.events.is_empty();
        let is_empty = self.from.zip(self.to).is_some_and(|(from, to)| from >= to);
        let found = [
            ("from", BadSelection::EmptyRange, is_empty),
            ("events", BadSelection::TooManyEvents, self.events.len() > MAX_EVENTS),
            ("types", BadSelection::TooManyPatterns, self.types.len() > MAX_PATTERNS),
            ("from", BadSelection::NoBeginning, self.missing && self.from.is_none() && !has_names),
            ("missing", BadSelection::MissingNames, self.missing && has_names),
            (
                "include_delivered",
                BadSelection::MissingState,
                self.missing && self.include_delivered,
            ),
            (
                "include_cancelled",
                BadSelection::MissingState,
                self.missing && self.include_cancelled,
            ),
        ];
        found.into_iter().filter(|(_, _, is_so)| *is_so).map(|(at, why, _)| (at, why)).collect()
    }

    /// Whether an event of this type and time is of the selection.
    pub fn wants(&self, event_type: &str, at: Timestamp) -> bool {
        self.from.is_none_or(|from| from <= at)
            && self.to.is_none_or(|to| at < to)
            && (self.types.is_empty() || self.types.iter().any(|types| types.matches(event_type)))
    }
}
