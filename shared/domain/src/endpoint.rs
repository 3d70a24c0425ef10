//! Endpoints: where a tenant wants its events.

use std::{fmt, str::FromStr};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::id::{EndpointId, TenantId};

/// An endpoint, as it stands in the registry. Its secrets stand beside it, encrypted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Whose it is.
    pub tenant: TenantId,
    /// Its id.
    pub id: EndpointId,
    /// Where it is. Checked when it was set, and again at every send.
    pub url: String,
    /// Which event types it gets. Empty: all.
    pub patterns: Vec<Pattern>,
    /// How many deliveries may be under way at once; `None` is the deployment's default.
    pub concurrency: Option<u32>,
    /// How many lanes it has, from when on.
    pub lanes: Vec<LaneCount>,
    /// When it was made. It gets no event from before.
    pub created_at: Timestamp,
    /// Whether a person switched it off.
    pub disabled: bool,
}

/// A number of lanes that is in force for events from a time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneCount {
    /// From when on, by the time in an event's id.
    pub from: Timestamp,
    /// How many.
    pub count: u16,
}

/// Longest pattern, in bytes.
pub const MAX_PATTERN: usize = 256;

/// A set of event types: `invoice.paid`, `invoice.*`, `*`, or with `*` anywhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pattern(String);

/// A text that is not a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a pattern is 1 to {MAX_PATTERN} visible ASCII characters; `*` stands for any run of characters"
)]
pub struct InvalidPattern;

impl Pattern {
    /// Whether an event type belongs to the set. Linear in both lengths, up to one backtrack per star.
    pub fn matches(&self, event_type: &str) -> bool {
        let mut parts = self.0.split('*');
        let Some(mut rest) = parts.next().and_then(|first| event_type.strip_prefix(first)) else {
            return false;
        };
        let mut parts: Vec<&str> = parts.collect();
        let Some(last) = parts.pop() else { return rest.is_empty() };
        for part in parts {
            let Some((_, after)) = rest.split_once(part) else { return false };
            rest = after;
        }
        rest.ends_with(last)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Pattern {
    type Err = InvalidPattern;

    fn from_str(text: &str) -> Result<Self, InvalidPattern> {
        let good = (1..=MAX_PATTERN).contains(&text.len())
            && text.chars().all(|c| c.is_ascii_graphic())
            && !text.contains("**");
        if good { Ok(Self(text.to_owned())) } else { Err(InvalidPattern) }
    }
}

impl TryFrom<String> for Pattern {
    type Error = InvalidPattern;

    fn try_from(text: String) -> Result<Self, InvalidPattern> {
        text.parse()
    }
}

impl From<Pattern> for String {
    fn from(pattern: Pattern) -> Self {
        pattern.0
    }
}

impl Endpoint {
    /// Whether an event of this type, with this time in its id, goes to this endpoint.
    pub fn wants(&self, event_type: &str, occurred: Timestamp) -> bool {
        // An endpoint gets nothing from before it existed, however late the relay is.
        occurred >= self.created_at
            && (self.patterns.is_empty() || self.patterns.iter().any(|p| p.matches(event_type)))
    }
}

/// How an endpoint has been doing. Written when it changes, not with every delivery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Since when every attempt has failed.
    pub failing_since: Option<Timestamp>,
    /// Failures in a row, as far as they were noted.
    pub consecutive_failures: u32,
    /// Since when it is disabled, and why.
    pub disabled: Option<Disabled>,
}

/// Why an endpoint gets nothing for now. Its deliveries are held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disabled {
    /// Since when.
    pub since: Timestamp,
    /// Why: `gone`, `failing` or `person`.
    pub reason: String,
}
