//! What a person does to an endpoint that runs. Each gives the endpoint as it is to be; nothing is written.

use std::time::Duration;

use jiff::Timestamp;

use super::{Endpoint, Health, Held, LaneCount, Release, Stop, Stopped};

/// From when on another number of lanes counts. Longer than clocks differ: whoever reads the time in an event's id must
/// have read the new number before.
const LANES_AHEAD: Duration = Duration::from_secs(120);

/// Until when a change of lanes that has not come into force is replaced, and not followed, by another: as long before it
/// as clocks may differ.
const LANES_FIXED: Duration = Duration::from_secs(60);

/// For how long a lane may have something to deliver after the last event that went into it, or was held in it: a delivery's deadline, 96 h,
/// and the 14 days for which it may be held.
const LANES_OUTLIVE: Duration = Duration::from_hours((4 + 14) * 24);

/// The number of lanes was changed too often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the number of lanes was changed {} times, as often as it may be: each event is found in its lane by the number of its \
     own time. Add another endpoint instead",
    Endpoint::MAX_LANE_COUNTS
)]
pub struct TooManyChanges;

impl Endpoint {
    /// Numbers of lanes that an endpoint remembers. All of them count for as long as events of their times are read.
    pub const MAX_LANE_COUNTS: usize = 20;

    /// Stopped by a person. What is stopped keeps its beginning, and a pause may become a disabling, but not the other way
    /// round: what somebody must look at first stays so.
    #[must_use]
    pub fn stop(&self, how: Stop, reason: &str, now: Timestamp) -> Self {
        let stopped = match &self.stopped {
            Some(before) if before.how == how || before.how == Stop::Disabled => before.clone(),
            before => {
                let since = before.as_ref().map_or(now, |before| before.since);
                Stopped { since, how, reason: reason.to_owned() }
            }
        };
        Self { stopped: Some(stopped), ..self.clone() }
    }

    /// After a pause. An endpoint that is not paused stays as it is.
    #[must_use]
    pub fn resume(&self, now: Timestamp) -> Self {
        match &self.stopped {
            Some(Stopped { since, how: Stop::Paused, .. }) => {
                let held = self.held_also(Held { from: *since, to: now });
                Self { stopped: None, held, ..self.clone() }
            }
            _ => self.clone(),
        }
    }

    /// Enabled, whoever had stopped it. What was held goes out at `rate` a second. An endpoint that is not stopped stays
    /// as it is.
    #[must_use]
    pub fn enable(&self, health: &Health, rate: u32, now: Timestamp) -> Self {
        let found = self.disabled_by_health(health).map(|disabled| disabled.since);
        let person = self.stopped.as_ref().map(|stopped| stopped.since);
        let Some(since) = [found, person].into_iter().flatten().min() else { return self.clone() };
        // The deliverer's clock may be ahead of ours: what it has found must be older than this.
        let after = found.map(|since| later(since, Duration::from_millis(1)));
        let enabled_at = after.map_or(now, |after| after.max(now));
        Self {
            stopped: None,
            enabled_at: Some(enabled_at),
            held: self.held_also(Held { from: since, to: enabled_at }),
            release: Some(Release { before: enabled_at, rate }),
            ..self.clone()
        }
    }

    /// With another number of lanes, from a while ahead.
    ///
    /// # Errors
    /// [`TooManyChanges`].
    pub fn with_lanes(&self, count: u16, now: Timestamp) -> Result<Self, TooManyChanges> {
        let mut lanes = self.lanes.clone();
        lanes.sort_by_key(|lanes| lanes.from);
        let fixed = later(now, LANES_FIXED);
        while lanes.last().is_some_and(|last| last.from > fixed) {
            lanes.pop();
        }
        let is_new = lanes.last().map_or(1, |last| last.count) != count;
        if is_new && lanes.len() >= Self::MAX_LANE_COUNTS {
            return Err(TooManyChanges);
        }
        if is_new {
            lanes.push(LaneCount { from: later(now, LANES_AHEAD), count });
        }
        Ok(Self { lanes, ..self.clone() })
    }

    /// How many lanes may hold a delivery: as many as there ever were, or will be.
    pub fn lanes_ever(&self) -> u16 {
        self.lanes.iter().map(|lanes| lanes.count).max().unwrap_or(1).max(1)
    }

    /// How many lanes may be delivering now or in a moment: those in force, those that soon will be, because a holder that
    /// has begun does not ask again, and those that may still have something of when there were more.
    pub fn lanes_at_work(&self, now: Timestamp) -> u16 {
        let (past, soon) = (earlier(now, LANES_OUTLIVE), later(now, LANES_FIXED));
        let mut lanes = self.lanes.clone();
        lanes.sort_by_key(|lanes| lanes.from);
        // Before the first number there was one lane.
        let first = lanes.first().filter(|first| first.from > past).map(|_| 1);
        let ends = lanes.iter().skip(1).map(|next| next.from).chain([Timestamp::MAX]);
        let at_work = lanes.iter().zip(ends);
        let at_work = at_work.filter(|(lanes, end)| lanes.from <= soon && *end > past);
        at_work.map(|(lanes, _)| lanes.count).chain(first).max().unwrap_or(1).max(1)
    }

    /// What was held and goes out at a rate; `None` once all of it must be out: then it would only be looked for.
    pub fn release_now(&self, now: Timestamp) -> Option<Release> {
        self.release.filter(|release| now < later(release.before, LANES_OUTLIVE))
    }

    /// The concurrency that its lanes need, so that each has a part of it: one for each that may be delivering now, or when
    /// a change made now is in force.
    pub fn least_concurrency(&self, now: Timestamp) -> u32 {
        u32::from(self.lanes_at_work(later(now, LANES_AHEAD)))
    }

    /// The times for which deliveries were held, with one more. Each moment counts once, however often it was held.
    fn held_also(&self, new: Held) -> Vec<Held> {
        if new.to <= new.from {
            return self.held.clone();
        }
        let touches = |old: &&Held| old.from <= new.to && new.from <= old.to;
        let (with, apart): (Vec<&Held>, Vec<&Held>) = self.held.iter().partition(touches);
        let from = with.iter().map(|held| held.from).min().unwrap_or(new.from).min(new.from);
        let to = with.iter().map(|held| held.to).max().unwrap_or(new.to).max(new.to);
        let mut all: Vec<Held> = apart.into_iter().copied().collect();
        all.push(Held { from, to });
        all.sort_by_key(|held| held.from);
        all.split_off(all.len().saturating_sub(Self::MAX_HELD))
    }
}

fn later(from: Timestamp, by: Duration) -> Timestamp {
    from.saturating_add(by).unwrap_or(Timestamp::MAX)
}

fn earlier(from: Timestamp, by: Duration) -> Timestamp {
    from.saturating_sub(by).unwrap_or(Timestamp::MIN)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;
    use crate::{destination::Destination, endpoint::Disabled, id::EndpointId};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn endpoint() -> Endpoint {
        let url = Destination::Https("https://example.com/".to_owned());
        Endpoint::new("acme".parse().unwrap(), EndpointId::new(Uuid::from_u128(7)), url, at(0))
    }

    fn gone(since: i64) -> Health {
        let disabled = Some(Disabled { since: at(since), reason: "gone".to_owned() });
        Health { disabled, ..Health::default() }
    }

    fn held(spans: &[(i64, i64)]) -> Vec<Held> {
        spans.iter().map(|(from, to)| Held { from: at(*from), to: at(*to) }).collect()
    }

    #[test]
    fn a_pause_ends_with_a_resume_and_its_time_is_held() {
        let paused = endpoint().stop(Stop::Paused, "a deploy", at(10));
        assert_eq!(paused.stopped_since(&Health::default()), Some(at(10)));
        let again = paused.stop(Stop::Paused, "another", at(12));
        assert_eq!(again, paused, "the first reason stays");
        let resumed = paused.resume(at(30));
        assert_eq!((resumed.stopped.as_ref(), &resumed.held), (None, &held(&[(10, 30)])));
        assert_eq!((resumed.release, resumed.enabled_at), (None, None));
        assert_eq!(resumed.resume(at(31)), resumed);
    }

    #[test]
    fn a_pause_may_become_a_disabling_and_not_the_other_way_round() {
        let paused = endpoint().stop(Stop::Paused, "a deploy", at(10));
        let disabled = paused.stop(Stop::Disabled, "it went wrong", at(20));
        let expected =
            Stopped { since: at(10), how: Stop::Disabled, reason: "it went wrong".to_owned() };
        assert_eq!(disabled.stopped, Some(expected));
        assert_eq!(disabled.stop(Stop::Paused, "x", at(21)), disabled);
        assert_eq!(disabled.resume(at(22)), disabled, "a resume does not enable");
    }

    /// F13
    #[test]
    fn what_the_deliverer_has_disabled_is_enabled_after_it_whatever_the_clocks_say() {
        let check = |found: i64, now: i64, expected_ms: i64| {
            let enabled = endpoint().enable(&gone(found), 10, at(now));
            let at_ms = Timestamp::from_millisecond(expected_ms).unwrap();
            assert_eq!(enabled.enabled_at, Some(at_ms));
            assert_eq!(enabled.stopped_since(&gone(found)), None);
            assert_eq!(enabled.release, Some(Release { before: at_ms, rate: 10 }));
            assert_eq!(enabled.held, [Held { from: at(found), to: at_ms }]);
        };
        check(50, 60, 60_000);
        check(60, 60, 60_001);
        check(70, 60, 70_001);
    }

    #[test]
    fn enabling_ends_every_stop_and_holds_from_the_first() {
        let stopped = endpoint().stop(Stop::Disabled, "x", at(40));
        let enabled = stopped.enable(&gone(30), 5, at(60));
        assert_eq!((enabled.stopped.as_ref(), &enabled.held), (None, &held(&[(30, 60)])));
        let running = endpoint();
        assert_eq!(running.enable(&Health::default(), 5, at(60)), running);
        assert_eq!(enabled.enable(&gone(30), 7, at(99)), enabled, "enabled once");
    }

    #[test]
    fn a_moment_that_was_held_twice_counts_once() {
        let check = |before: &[(i64, i64)], new: (i64, i64), expected: &[(i64, i64)]| {
            let old = Endpoint { held: held(before), ..endpoint() };
            assert_eq!(old.held_also(Held { from: at(new.0), to: at(new.1) }), held(expected));
        };
        check(&[], (1, 2), &[(1, 2)]);
        check(&[(1, 2)], (5, 9), &[(1, 2), (5, 9)]);
        check(&[(5, 9)], (1, 2), &[(1, 2), (5, 9)]);
        check(&[(1, 6)], (5, 9), &[(1, 9)]);
        check(&[(5, 9)], (1, 6), &[(1, 9)]);
        check(&[(1, 3), (4, 6)], (2, 5), &[(1, 6)]);
        check(&[(1, 9)], (2, 3), &[(1, 9)]);
        check(&[(1, 9)], (5, 5), &[(1, 9)]);
        let many: Vec<(i64, i64)> = (0..25).map(|n| (n * 10, n * 10 + 1)).collect();
        check(&many[..20], (900, 901), &[&many[1..20], &[(900, 901)]].concat());
    }

    #[test]
    fn a_release_is_over_when_nothing_of_it_can_be_left() {
        let release = Some(Release { before: at(1000), rate: 10 });
        let enabled = Endpoint { release, ..endpoint() };
        let over = 1000 + 18 * 86_400;
        assert_eq!(enabled.release_now(at(over - 1)), release);
        assert_eq!(enabled.release_now(at(over)), None);
    }

    #[test]
    fn lanes_are_at_work_from_a_minute_before_until_what_went_into_them_is_over() {
        let day = 86_400;
        let lanes = [(0, 2), (1000, 8), (2000, 1)];
        let lanes = lanes.map(|(from, count)| LaneCount { from: at(from), count });
        let changed = Endpoint { lanes: lanes.into(), ..endpoint() };
        let check = |now: i64, expected: u16| {
            assert_eq!(changed.lanes_at_work(at(now)), expected, "{now}");
        };
        check(939, 2);
        check(940, 8);
        check(1999, 8);
        check(2000 + 18 * day - 1, 8);
        check(2000 + 18 * day, 1);
        assert_eq!(endpoint().lanes_at_work(at(0)), 1);
    }

    proptest! {
        /// However the number of lanes changes, no more are under way than the concurrency says, if it is enough for one in
        /// each lane.
        #[test]
        fn the_widths_of_all_lanes_that_may_deliver_are_no_more_than_the_concurrency(
            counts in prop::collection::vec((0i64..4_000_000, 1u16..33), 0..8),
            now in 0i64..6_000_000,
            spare in 0u32..70,
        ) {
            let lanes: Vec<_> =
                counts.into_iter().map(|(from, count)| LaneCount { from: at(from), count }).collect();
            let changed = Endpoint { lanes, ..endpoint() };
            let concurrency = u32::from(changed.lanes_at_work(at(now))) + spare;
            let changed = Endpoint { concurrency: Some(concurrency), ..changed };
            // Every lane into which an event went whose delivery may still be there.
            let since = (now - 18 * 86_400).max(0);
            let times = changed.lanes.iter().map(|lanes| lanes.from.as_second()).chain([since, now]);
            let lanes = times.filter(|time| (since..=now).contains(time));
            let lanes = lanes.map(|time| changed.lane_count(at(time))).max().unwrap_or(1);
            let widths = (0..lanes).map(|lane| changed.lane_width(lane, 5, at(now)));
            prop_assert!(widths.sum::<usize>() <= usize::try_from(concurrency).unwrap());
        }
    }

    #[test]
    fn another_number_of_lanes_counts_from_two_minutes_ahead() {
        let first = Endpoint { lanes: vec![LaneCount { from: at(0), count: 1 }], ..endpoint() };
        let four = first.with_lanes(4, at(1000)).unwrap();
        assert_eq!((four.lane_count(at(1119)), four.lane_count(at(1120))), (1, 4));
        assert_eq!(four.with_lanes(4, at(1001)).unwrap().lane_count(at(1121)), 4);
        // Not in force yet, and not soon: as if it had never been.
        let two = four.with_lanes(2, at(1059)).unwrap();
        assert_eq!((two.lanes.len(), two.lane_count(at(1179)), two.lanes_ever()), (2, 2, 2));
        // Somebody may have read an event's lane by it already.
        let late = four.with_lanes(2, at(1060)).unwrap();
        assert_eq!((late.lanes.len(), late.lane_count(at(1130)), late.lanes_ever()), (3, 4, 4));
        assert_eq!(four.with_lanes(1, at(1001)).unwrap(), first);
        assert_eq!(endpoint().lanes_ever(), 1);
    }

    #[test]
    fn lanes_are_not_changed_for_ever() {
        let mut endpoint = endpoint();
        for n in 0..20 {
            endpoint = endpoint.with_lanes(2 + n % 2, at(1000 * i64::from(n))).unwrap();
        }
        assert_eq!(endpoint.with_lanes(9, at(90_000)), Err(TooManyChanges));
        assert_eq!(endpoint.with_lanes(3, at(90_000)).as_ref(), Ok(&endpoint));
    }

    proptest! {
        /// Whatever people do in whatever order, the times of holding are in order and apart, and no more than are kept.
        #[test]
        fn held_times_never_overlap(steps in prop::collection::vec((0..4_u8, 1..50_i64), 1..80)) {
            let (mut now, mut endpoint, mut health) = (0, endpoint(), Health::default());
            for (step, seconds) in steps {
                now += seconds;
                endpoint = match step {
                    0 => endpoint.stop(Stop::Paused, "x", at(now)),
                    1 => endpoint.resume(at(now)),
                    2 => {
                        health = gone(now + 3);
                        endpoint
                    }
                    _ => endpoint.enable(&health, 10, at(now)),
                };
                prop_assert!(endpoint.held.len() <= Endpoint::MAX_HELD);
                prop_assert!(endpoint.held.iter().all(|held| held.from < held.to));
                prop_assert!(endpoint.held.windows(2).all(|two| two[0].to < two[1].from));
            }
        }
    }
}
