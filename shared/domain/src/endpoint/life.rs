//! Stopping an endpoint and starting it again.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Disabled, Endpoint, Health};
use crate::delivery::Delivery;

/// A person has stopped an endpoint. What it would have got is held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stopped {
    /// Since when.
    pub since: Timestamp,
    /// How.
    pub how: Stop,
    /// Why, in the person's words.
    pub reason: String,
}

/// How an endpoint was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// For a while: a deploy at the receiver's side. What waits goes out by itself on resuming.
    Paused,
    /// Until somebody has looked. What was held goes out on enabling, at a rate.
    Disabled,
}

/// A time for which deliveries were held. Their deadlines are later by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// From when on.
    pub from: Timestamp,
    /// Until when.
    pub to: Timestamp,
}

/// How fast what was held goes out after an endpoint was enabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    /// Deliveries made before this were held.
    pub before: Timestamp,
    /// Of those, how many are begun in a second, over all lanes.
    pub rate: u32,
}

impl Endpoint {
    /// Times for which deliveries were held that an endpoint remembers: the oldest go first.
    pub const MAX_HELD: usize = 20;

    /// Since when it is left alone, whoever decided it: a person, or the deliverer.
    pub fn stopped_since(&self, health: &Health) -> Option<Timestamp> {
        let person = self.stopped.as_ref().map(|stopped| stopped.since);
        person.or_else(|| self.disabled_by_health(health).map(|disabled| disabled.since))
    }

    /// What the deliverer has decided about it, if no person has enabled it since.
    pub fn disabled_by_health<'h>(&self, health: &'h Health) -> Option<&'h Disabled> {
        let disabled = health.disabled.as_ref();
        disabled.filter(|disabled| self.enabled_at.is_none_or(|enabled| enabled < disabled.since))
    }

    /// When a delivery is given up: at its deadline, and later by the times for which it was held since it was last
    /// promised to be tried for `tried_for`.
    pub fn deadline_of(&self, delivery: &Delivery, tried_for: Duration) -> Timestamp {
        let promised = delivery.deadline.saturating_sub(tried_for).unwrap_or(Timestamp::MIN);
        let from = promised.max(delivery.created_at);
        let mut deadline = delivery.deadline;
        for held in &self.held {
            let began = held.from.max(from);
            if began < held.to && began < deadline {
                let longer = held.to.duration_since(began);
                deadline = deadline.saturating_add(longer).unwrap_or(Timestamp::MAX);
            }
        }
        deadline
    }
}
