//! How an endpoint has been doing, and whom that concerns.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::notice::{Notice, What};
use crate::{delivery::Outcome, id::EventId};

/// How an endpoint has been doing. Written when it changes, not with every delivery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Counts its changes. Several lanes write it, each only over what it has read.
    pub version: u64,
    /// Since when every attempt has failed.
    pub failing_since: Option<Timestamp>,
    /// Failures in a row, as far as they were noted.
    pub consecutive_failures: u32,
    /// The first events that failed since then, each once; at most [`Limits::EVENTS`].
    pub failed: Vec<EventId>,
    /// Since when it is disabled, and why.
    pub disabled: Option<Disabled>,
    /// What its owner has been warned of since it began to fail.
    pub warned: Option<What>,
    /// The day, by its beginning (UTC), for which its owner has been told of a dead delivery.
    pub dead_on: Option<Timestamp>,
    /// What its owner has yet to be told, oldest first; at most [`Limits::OWED`].
    pub owed: Vec<Notice>,
}

/// Why an endpoint gets nothing for now. Its deliveries are held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disabled {
    /// Since when.
    pub since: Timestamp,
    /// Why: `gone` (410), `asked` (it said so), `failing` or `person`.
    pub reason: String,
}

/// When an endpoint has failed for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long every attempt must have failed.
    pub disable_after: Duration,
}

/// One attempt's end, or a delivery's, as an endpoint's health sees it.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'o> {
    /// Which event.
    pub event: EventId,
    /// How an attempt ended; `None`: there was none.
    pub outcome: Option<&'o Outcome>,
    /// Whether a person had asked for the delivery: pokes must neither disable an endpoint nor hide that it fails.
    pub by_hand: bool,
    /// Whether the delivery was given up.
    pub died: bool,
}

const DAY_MS: i64 = 86_400_000;

impl Limits {
    /// Events that must have failed before an endpoint is disabled: one that is refused by itself, however often, says
    /// more about the event.
    pub const EVENTS: usize = 10;

    /// Notices that are kept while nobody takes them.
    pub const OWED: usize = 16;

    /// What the owner hears after failing for so long: at a fifth of the time after which the endpoint is disabled, and
    /// at three fifths. Of five days: 24 and 72 hours.
    fn warning(&self, failing_for: Duration) -> Option<What> {
        match failing_for {
            long if long >= self.disable_after / 5 * 3 => Some(What::FailingLong),
            long if long >= self.disable_after / 5 => Some(What::Failing),
            _ => None,
        }
    }
}

impl Health {
    /// The health after an end; `None` if nothing about it has changed, and nothing need be written.
    #[must_use]
    pub fn after(&self, limits: &Limits, seen: Seen<'_>, now: Timestamp) -> Option<Self> {
        let mut after = self.clone();
        if let Some(reason) = seen.outcome.and_then(Outcome::disables) {
            after.disable(reason, now);
        }
        match seen.outcome {
            Some(outcome) if outcome.blames_endpoint() && !seen.by_hand => {
                if outcome.is_success() {
                    after.recover();
                } else {
                    after.fail(limits, seen.event, now);
                }
            }
            Some(_) | None => {}
        }
        if seen.died {
            after.lose(now);
        }
        if after == *self {
            return None;
        }
        after.version = self.version.saturating_add(1);
        Some(after)
    }

    /// The health when some notices have been taken.
    #[must_use]
    pub fn told(&self, taken: &[Notice]) -> Self {
        let owed = self.owed.iter().filter(|notice| !taken.contains(notice)).cloned().collect();
        Self { owed, version: self.version.saturating_add(1), ..self.clone() }
    }

    /// The health of an endpoint that was enabled then: nothing from before counts.
    #[must_use]
    pub fn since(self, enabled: Timestamp) -> Self {
        let mut after = self;
        if after.disabled.as_ref().is_some_and(|disabled| disabled.since <= enabled) {
            after.disabled = None;
        }
        if after.failing_since.is_some_and(|since| since <= enabled) {
            after.recover();
        }
        after
    }

    fn recover(&mut self) {
        (self.failing_since, self.consecutive_failures) = (None, 0);
        self.failed.clear();
        self.warned = None;
    }

    fn fail(&mut self, limits: &Limits, event: EventId, now: Timestamp) {
        let since = *self.failing_since.get_or_insert(now);
        if self.failed.len() < Limits::EVENTS && !self.failed.contains(&event) {
            self.failed.push(event);
            self.consecutive_failures = self.consecutive_failures.saturating_add(1);
        }
        let failing_for = Duration::try_from(now.duration_since(since)).unwrap_or_default();
        if failing_for >= limits.disable_after && self.failed.len() >= Limits::EVENTS {
            self.disable("failing", now);
        }
        let warning = limits.warning(failing_for).filter(|_| self.disabled.is_none());
        if let Some(warning) = warning.filter(|warning| self.warned.is_none_or(|w| w < *warning)) {
            self.warned = Some(warning);
            self.owe(Notice { what: warning, since, reason: String::new() });
        }
    }

    fn disable(&mut self, reason: &str, now: Timestamp) {
        if self.disabled.is_none() {
            let reason = reason.to_owned();
            self.disabled = Some(Disabled { since: now, reason: reason.clone() });
            self.owe(Notice { what: What::Disabled, since: now, reason });
        }
    }

    fn lose(&mut self, now: Timestamp) {
        let day = now.as_millisecond().div_euclid(DAY_MS).saturating_mul(DAY_MS);
        let day = Timestamp::from_millisecond(day).unwrap_or(now);
        if self.dead_on != Some(day) {
            self.dead_on = Some(day);
            self.owe(Notice { what: What::Dead, since: day, reason: String::new() });
        }
    }

    /// The oldest goes if there are too many: nobody has listened for weeks.
    fn owe(&mut self, notice: Notice) {
        let surplus = (self.owed.len() + 1).saturating_sub(Limits::OWED);
        self.owed.drain(..surplus);
        self.owed.push(notice);
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::delivery::{Cause, Steer};

    const HOUR: i64 = 3_600_000;
    const LIMITS: Limits = Limits { disable_after: Duration::from_hours(120) };

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millisecond(ms).unwrap()
    }

    fn answered(status: u16) -> Outcome {
        Outcome::answered(status, None, None)
    }

    fn event(n: u64) -> EventId {
        EventId::new(Uuid::from_u64_pair(0, n))
    }

    fn seen(n: u64, outcome: &Outcome) -> Seen<'_> {
        Seen { event: event(n), outcome: Some(outcome), by_hand: false, died: false }
    }

    /// A history: hour, event, status. Gives the health after it.
    fn run(history: &[(i64, u64, u16)]) -> Health {
        history.iter().fold(Health::default(), |health, (hour, n, status)| {
            let outcome = answered(*status);
            health.after(&LIMITS, seen(*n, &outcome), at(hour * HOUR)).unwrap_or(health)
        })
    }

    #[test]
    fn health_changes_with_the_first_failure_of_each_event_and_the_first_success() {
        let (broken, fine) = (answered(500), answered(204));
        let healthy = Health::default();
        assert_eq!(healthy.after(&LIMITS, seen(1, &fine), at(1)), None);
        let failing = healthy.after(&LIMITS, seen(1, &broken), at(2)).unwrap();
        assert_eq!((failing.failing_since, failing.consecutive_failures), (Some(at(2)), 1));
        assert_eq!(failing.after(&LIMITS, seen(1, &broken), at(3)), None);
        let more = failing.after(&LIMITS, seen(2, &broken), at(3)).unwrap();
        assert_eq!((more.failing_since, more.consecutive_failures), (Some(at(2)), 2));
        let recovered = more.after(&LIMITS, seen(2, &fine), at(4)).unwrap();
        assert_eq!(recovered, Health { version: 3, ..healthy.clone() });
        // What is not about the endpoint changes nothing.
        let abort = Outcome::answered(422, None, Some(Steer::Abort));
        for ours in [Outcome::Failed { cause: Cause::Internal }, abort] {
            assert_eq!(healthy.after(&LIMITS, seen(1, &ours), at(5)), None);
            assert_eq!(failing.after(&LIMITS, seen(1, &ours), at(5)), None);
        }
    }

    /// F13
    #[test]
    fn an_endpoint_that_wants_nothing_more_is_disabled_at_once() {
        let check = |outcome: Outcome, reason: &str| {
            let disabled = Health::default().after(&LIMITS, seen(1, &outcome), at(9)).unwrap();
            let expected = Disabled { since: at(9), reason: reason.to_owned() };
            assert_eq!(disabled.disabled, Some(expected));
            assert_eq!(disabled.failing_since.is_some(), !outcome.is_success());
            let what: Vec<_> = disabled.owed.iter().map(|notice| notice.what).collect();
            assert_eq!(what, [What::Disabled]);
            assert_eq!(disabled.after(&LIMITS, seen(1, &outcome), at(10)), None);
        };
        check(answered(410), "gone");
        check(Outcome::answered(500, None, Some(Steer::Disable)), "asked");
        check(Outcome::answered(200, None, Some(Steer::Disable)), "asked");
    }

    /// F16, DLV-auto-disable-too-eager: twelve histories, and whether they disable.
    #[test]
    fn only_failures_of_many_events_for_five_days_disable() {
        let check = |why: &str, history: &[(i64, u64, u16)], expected: bool| {
            assert_eq!(run(history).disabled.is_some(), expected, "{why}");
        };
        let many = |hour: i64, n: u64| (1..=n).map(|n| (hour, n, 500)).collect::<Vec<_>>();
        let and = |mut a: Vec<_>, b: &[(i64, u64, u16)]| {
            a.extend_from_slice(b);
            a
        };
        check("nothing", &[], false);
        check("a single 401", &[(0, 1, 401)], false);
        check("a burst within a minute", &many(0, 50), false);
        check("five days of many", &and(many(0, 10), &[(120, 1, 500)]), true);
        check("an hour less", &and(many(0, 10), &[(119, 1, 500)]), false);
        check("five days of nine", &and(many(0, 9), &[(120, 1, 500), (121, 2, 500)]), false);
        check("the tenth on the fifth day", &and(many(0, 9), &[(120, 10, 500)]), true);
        let one_event: Vec<_> = (0..200).map(|hour| (hour, 1, 422)).collect();
        check("one event refused for ever", &one_event, false);
        let others_succeed: Vec<_> =
            (0..200).flat_map(|hour| [(hour, 1, 422), (hour, 2, 200)]).collect();
        check("one event refused, others taken", &others_succeed, false);
        check("idle for a week between two", &[(0, 1, 500), (168, 2, 500)], false);
        let recovered = [many(0, 10), vec![(60, 1, 200)], many(61, 10), vec![(150, 2, 500)]];
        check("a success in between", &recovered.concat(), false);
        let again = [many(0, 10), vec![(60, 1, 200)], many(61, 10), vec![(181, 2, 500)]];
        check("five days after a success", &again.concat(), true);
    }

    /// A millisecond decides.
    #[test]
    fn five_days_are_five_days() {
        let failing = run(&(1..=10).map(|n| (0, n, 500)).collect::<Vec<_>>());
        let broken = answered(500);
        let after = |ms| failing.after(&LIMITS, seen(1, &broken), at(ms)).unwrap().disabled;
        assert_eq!(after(120 * HOUR - 1), None);
        let reason = "failing".to_owned();
        assert_eq!(after(120 * HOUR), Some(Disabled { since: at(120 * HOUR), reason }));
    }

    /// DLV-disable-notice
    #[test]
    fn the_owner_hears_of_each_change_once() {
        let mut history: Vec<_> = (0..=130).flat_map(|h| [(h, 1, 500), (h, 2, 500)]).collect();
        history.extend((130..=131).flat_map(|hour| (1..=20).map(move |n| (hour, n, 500))));
        let health = run(&history);
        let owed: Vec<_> =
            health.owed.iter().map(|notice| (notice.what, notice.since.as_millisecond())).collect();
        let expected = [(What::Failing, 0), (What::FailingLong, 0), (What::Disabled, 130 * HOUR)];
        assert_eq!(owed, expected);
        let told = health.told(&health.owed);
        assert_eq!((told.owed.len(), told.version), (0, health.version + 1));
        assert_eq!(told.after(&LIMITS, seen(3, &answered(500)), at(140 * HOUR)), None);
        // One that fails again is another change.
        let again = told.since(at(141 * HOUR));
        assert_eq!((again.disabled.clone(), again.failing_since), (None, None));
        let again = again.after(&LIMITS, seen(1, &answered(500)), at(150 * HOUR)).unwrap();
        let again = again.after(&LIMITS, seen(1, &answered(500)), at(174 * HOUR)).unwrap();
        assert_eq!(again.owed.len(), 1);
    }

    /// DLV-disable-notice: five hundred that are given up at once.
    #[test]
    fn of_many_dead_deliveries_the_owner_hears_once_a_day() {
        let dead = |health: Health, n: u64, ms: i64| {
            let seen = Seen { event: event(n), outcome: None, by_hand: false, died: true };
            health.after(&LIMITS, seen, at(ms)).unwrap_or(health)
        };
        let health = (0..500).fold(Health::default(), |health, n| dead(health, n, 47 * HOUR));
        let [notice] = health.owed.as_slice() else { panic!("{:?}", health.owed) };
        assert_eq!((notice.what, notice.since), (What::Dead, at(24 * HOUR)));
        let next_day = dead(dead(health, 1, 48 * HOUR), 2, 71 * HOUR);
        assert_eq!(next_day.owed.len(), 2);
        // Nobody takes them for months: what is kept stays bounded.
        let months = (0..100).fold(next_day, |health, day| dead(health, 1, (80 + day * 24) * HOUR));
        assert_eq!(months.owed.len(), Limits::OWED);
    }

    /// RPL-health-and-secret
    #[test]
    fn what_a_person_asked_for_says_nothing_about_the_endpoint() {
        let by_hand = |health: &Health, outcome: &Outcome| {
            let seen = Seen { by_hand: true, ..seen(1, outcome) };
            health.after(&LIMITS, seen, at(200 * HOUR))
        };
        let failing = run(&(1..=10).map(|n| (0, n, 500)).collect::<Vec<_>>());
        for health in [Health::default(), failing] {
            assert_eq!(by_hand(&health, &answered(500)), None);
            assert_eq!(by_hand(&health, &answered(200)), None);
        }
        // But an endpoint that says that it is gone is gone.
        assert!(by_hand(&Health::default(), &answered(410)).unwrap().disabled.is_some());
    }

    #[test]
    fn an_endpoint_that_was_enabled_begins_anew() {
        let failing = run(&(1..=10).map(|n| (0, n, 410)).collect::<Vec<_>>());
        assert!(failing.disabled.is_some());
        let same = failing.clone().since(at(-1));
        assert_eq!(same, failing);
        let enabled = failing.clone().since(at(0));
        let expected = Health { version: failing.version, owed: failing.owed, ..Health::default() };
        assert_eq!(enabled, expected);
    }
}
