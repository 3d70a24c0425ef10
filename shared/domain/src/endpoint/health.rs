//! How an endpoint has been doing.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::delivery::Outcome;

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

impl Health {
    /// The health after an attempt; `None` if nothing about it has changed, and nothing need be written.
    #[must_use]
    pub fn after(&self, outcome: &Outcome, now: Timestamp) -> Option<Self> {
        if !outcome.blames_endpoint() {
            return None;
        }
        let mut after = self.clone();
        if outcome.is_success() {
            (after.failing_since, after.consecutive_failures) = (None, 0);
        } else if self.failing_since.is_none() {
            (after.failing_since, after.consecutive_failures) = (Some(now), 1);
        }
        if matches!(outcome, Outcome::Answered { status: 410, .. }) && self.disabled.is_none() {
            after.disabled = Some(Disabled { since: now, reason: "gone".to_owned() });
        }
        (after != *self).then_some(after)
    }
}

/// Why an endpoint gets nothing for now. Its deliveries are held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disabled {
    /// Since when.
    pub since: Timestamp,
    /// Why: `gone`, `failing` or `person`.
    pub reason: String,
}
