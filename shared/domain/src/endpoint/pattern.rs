//! Sets of event types.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

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
