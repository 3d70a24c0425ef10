//! How fast deliveries begin.

use std::time::Duration;

use jiff::Timestamp;

/// Until when nothing more may begin: what one holder of a lane tells the next, who could send another burst otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Paced {
    /// Nothing at all.
    pub until: Option<Timestamp>,
    /// Nothing that was held.
    pub held: Option<Timestamp>,
}

/// The distance between two beginnings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    apart: Duration,
}

/// A timer wakes late by a little; so much of it is made up for, or every delivery would lose it.
const SLACK: Duration = Duration::from_millis(20);

impl Pace {
    /// The pace of one of several lanes that share so many beginnings in a second.
    pub fn new(rate: u32, lanes: u16) -> Self {
        Self { apart: Duration::from_secs(1) * u32::from(lanes.max(1)) / rate.max(1) }
    }

    /// Until when nothing may begin, after one that begins now.
    pub fn after(&self, until: Option<Timestamp>, now: Timestamp) -> Timestamp {
        let earliest = now.saturating_sub(SLACK).unwrap_or(Timestamp::MIN);
        let from = until.map_or(now, |until| until.max(earliest));
        from.saturating_add(self.apart).unwrap_or(Timestamp::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millisecond(ms).unwrap()
    }

    /// How many begin in ten seconds, by a clock that wakes this late, and most of them in any one second.
    fn run(rate: u32, lanes: u16, late_ms: i64) -> (usize, usize) {
        let (pace, mut until) = (Pace::new(rate, lanes), None);
        let (mut now, mut began) = (0, Vec::new());
        while now < 10_000 {
            if until.is_some_and(|until| until > at(now)) {
                now += 1;
                continue;
            }
            let late = if began.len() % 3 == 0 { late_ms } else { 0 };
            now += late;
            until = Some(pace.after(until, at(now)));
            began.push(now);
        }
        let in_a_second =
            |from: &i64| began.iter().filter(|at| (*from..from + 1000).contains(*at)).count();
        (began.len(), began.iter().map(in_a_second).max().unwrap())
    }

    /// F15
    #[test]
    fn no_more_begin_in_a_second_than_the_rate_says() {
        let check = |rate, lanes, late, total, most| {
            assert_eq!(
                run(rate, lanes, late),
                (total, most),
                "{rate} over {lanes}, {late} ms late"
            );
        };
        check(10, 1, 0, 100, 10);
        check(10, 4, 0, 25, 3);
        check(1, 1, 0, 10, 1);
        check(200, 1, 0, 2000, 200);
        check(1, 20, 0, 1, 1);
        // Late timers cost no throughput, and allow no burst to speak of.
        check(10, 1, 15, 100, 11);
        let (total, most) = run(200, 1, 15);
        assert!(total >= 1990 && most <= 206, "{total} {most}");
        // After a time without any, there is no burst to make up for it.
        assert_eq!(Pace::new(10, 1).after(Some(at(0)), at(10_000)), at(10_080));
        // A timer that is far too late is not made up for.
        assert!(run(10, 1, 500).1 <= 11);
    }

    #[test]
    fn a_rate_of_nothing_is_one_and_no_time_overflows() {
        assert_eq!(Pace::new(0, 0), Pace::new(1, 1));
        assert_eq!(
            Pace::new(1, u16::MAX).after(Some(Timestamp::MAX), Timestamp::MAX),
            Timestamp::MAX
        );
        assert_eq!(Pace::new(1, 1).after(None, at(5)), at(1005));
    }
}
