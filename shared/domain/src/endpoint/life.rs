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
    /// What was due before this was held. A retry that is due later is none of it: it is spread out already.
    pub before: Timestamp,
    /// Of what was held, how many are begun in a second, over all lanes.
    pub rate: u32,
}

/// How long the one try of a redelivery may be waited for. Its event is kept as long.
const ONE_TRY_WAITS: Duration = Duration::from_hours(24);

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

    /// Its health, without what the deliverer found before a person enabled it.
    #[must_use]
    pub fn health_now(&self, health: Health) -> Health {
        match self.enabled_at {
            Some(enabled) => health.since(enabled),
            None => health,
        }
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

    /// When a delivery is given up without a further attempt: at its deadline. One that a person wants to be tried once has
    /// its deadline at once, and waits for its one try for a day, where its endpoint is left alone or its owner has to fetch
    /// it.
    pub fn untried_until(&self, delivery: &Delivery, tried_for: Duration) -> Timestamp {
        let deadline = self.deadline_of(delivery, tried_for);
        match &delivery.redelivered {
            Some(mark)
                if delivery.deadline <= mark.at
                    && delivery.attempts == mark.after
                    && delivery.begun.is_none() =>
            {
                deadline.max(mark.at.saturating_add(ONE_TRY_WAITS).unwrap_or(Timestamp::MAX))
            }
            _ => deadline,
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::{
        destination::Destination,
        id::{EndpointId, EventId},
    };

    const TRIED_FOR: Duration = Duration::from_secs(100);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn endpoint(held: &[(i64, i64)]) -> Endpoint {
        let url = Destination::Https("https://example.com/".to_owned());
        let id = EndpointId::new(Uuid::from_u128(7));
        let held = held.iter().map(|(from, to)| Held { from: at(*from), to: at(*to) });
        Endpoint { held: held.collect(), ..Endpoint::new("acme".parse().unwrap(), id, url, at(0)) }
    }

    fn delivery(created: i64, deadline: i64) -> Delivery {
        let event = EventId::new(Uuid::from_u128(1));
        Delivery::new(event, "a".to_owned(), at(deadline), at(created))
    }

    #[test]
    fn a_deadline_is_later_by_the_time_for_which_the_delivery_was_held() {
        let check = |held: &[(i64, i64)], delivery: &Delivery, expected: i64| {
            assert_eq!(endpoint(held).deadline_of(delivery, TRIED_FOR), at(expected), "{held:?}");
        };
        check(&[], &delivery(0, 100), 100);
        check(&[(50, 70)], &delivery(0, 100), 120);
        // Made while it was held.
        check(&[(50, 70)], &delivery(60, 160), 170);
        check(&[(50, 70)], &delivery(70, 170), 170);
        // Twice, and the second time after the first deadline, which was a later one by then.
        check(&[(50, 70), (110, 140)], &delivery(0, 100), 150);
        check(&[(50, 70), (121, 140)], &delivery(0, 100), 120);
        // Held after it was over.
        check(&[(100, 200)], &delivery(0, 100), 100);
        // A person asked for it again: the promise is younger than the delivery, and counts from then.
        check(&[(50, 70)], &delivery(0, 160), 170);
        check(&[(50, 70)], &delivery(0, 180), 180);
    }

    #[test]
    fn a_person_decides_over_what_the_deliverer_found() {
        let disabled = Some(Disabled { since: at(50), reason: "gone".to_owned() });
        let health = Health { failing_since: Some(at(10)), disabled, ..Health::default() };
        let check = |enabled: Option<i64>, stopped: Option<i64>, expected: Option<i64>| {
            let how = Stop::Paused;
            let stopped =
                stopped.map(|since| Stopped { since: at(since), how, reason: String::new() });
            let endpoint = Endpoint { enabled_at: enabled.map(at), stopped, ..endpoint(&[]) };
            assert_eq!(endpoint.stopped_since(&health), expected.map(at));
        };
        check(None, None, Some(50));
        check(Some(49), None, Some(50));
        check(Some(50), None, None);
        check(Some(51), None, None);
        check(None, Some(9), Some(9));
        check(Some(51), Some(60), Some(60));
        let enabled = Endpoint { enabled_at: Some(at(51)), ..endpoint(&[]) };
        assert_eq!(enabled.health_now(health.clone()), Health::default());
        assert_eq!(endpoint(&[]).health_now(health.clone()), health);
    }
}
