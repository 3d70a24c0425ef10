//! The circuit of a lane: an endpoint that keeps failing is left alone, and then asked by one delivery at a time.
//!
//! While the breaker is open nothing is sent. After that one probe is sent; its end closes the breaker, or opens it for
//! twice as long. An endpoint may also ask for a pause itself (429 or 503 with Retry-After), which opens it as well.

use std::time::Duration;

use jiff::Timestamp;

use crate::delivery::{Cause, Outcome};

/// When a breaker opens, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Failures in a row after which it opens.
    pub opens_after: u32,
    /// Wait before the first probe; doubled after each probe that failed.
    pub probe: Duration,
    /// The longest wait before a probe.
    pub probe_cap: Duration,
    /// The longest pause that an endpoint can ask for.
    pub retry_after_cap: Duration,
}

/// Time-outs in a row that open a breaker: each holds a place in the deliverer for its whole length, so that a hundred
/// dead endpoints would hold all of it.
const TIMEOUTS: u32 = 3;

/// The state of a lane's circuit, as one holder leaves it to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Breaker {
    /// Failures in a row; each time-out weighs a third of what opens the breaker.
    pub failures: u32,
    /// Open until then; the next attempt after it is the probe.
    pub open_until: Option<Timestamp>,
}

impl Breaker {
    /// Until when nothing may be sent; `None` if something may.
    pub fn open(&self, now: Timestamp) -> Option<Timestamp> {
        self.open_until.filter(|until| *until > now)
    }

    /// Whether the next attempt is a probe, alone.
    pub const fn is_probing(&self) -> bool {
        self.open_until.is_some()
    }

    /// The breaker of an endpoint to which nothing was sent for a while: what waits begins with one, as after a probe.
    #[must_use]
    pub fn rested(self, now: Timestamp) -> Self {
        Self { open_until: self.open_until.max(Some(now)), ..self }
    }

    /// The breaker after an attempt.
    #[must_use]
    pub fn after(self, limits: &Limits, outcome: &Outcome, now: Timestamp) -> Self {
        let asked = outcome.retry_after().map(|asked| asked.min(limits.retry_after_cap));
        let asked = asked.and_then(|asked| now.saturating_add(asked).ok());
        if self.open(now).is_some() {
            // The late end of an attempt from before it opened proves nothing; but a longer pause is a longer pause.
            return Self { open_until: self.open_until.max(asked), ..self };
        }
        if outcome.is_success() {
            return Self::default();
        }
        if !outcome.blames_endpoint() {
            return self;
        }
        let failures = self.failures_after(limits, outcome);
        let opened = (failures >= limits.opens_after)
            .then(|| now.saturating_add(limits.wait(failures)).unwrap_or(Timestamp::MAX));
        Self { failures, open_until: opened.max(asked) }
    }

    fn failures_after(self, limits: &Limits, outcome: &Outcome) -> u32 {
        if self.failures >= limits.opens_after {
            return self.failures.saturating_add(1);
        }
        let weight = match outcome {
            // Nobody tells a token server that hangs from one that refuses; each may hold its place as long.
            Outcome::Failed { cause: Cause::Timeout | Cause::ConnectTimeout | Cause::Token } => {
                limits.opens_after.div_ceil(TIMEOUTS)
            }
            _ => 1,
        };
        self.failures.saturating_add(weight).min(limits.opens_after)
    }
}

impl Limits {
    fn wait(&self, failures: u32) -> Duration {
        let failed_probes = failures.saturating_sub(self.opens_after).min(31);
        self.probe.saturating_mul(1 << failed_probes).min(self.probe_cap)
    }
}

/// How many deliveries of a lane are under way at once: all that are allowed, or few and then more after a pause, so
/// that an endpoint which has just recovered is not hit with its whole backlog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ramp {
    width: usize,
    most: usize,
    successes: usize,
}

impl Ramp {
    /// The width with which a lane is begun: one after a pause, else what the last look had come to, else all.
    pub fn new(breaker: &Breaker, reached: Option<u32>, most: usize) -> Self {
        let most = most.max(1);
        let reached = reached.and_then(|reached| usize::try_from(reached).ok()).unwrap_or(most);
        let width = if breaker.is_probing() { 1 } else { reached.clamp(1, most) };
        Self { width, most, successes: 0 }
    }

    /// What the next look begins with; `None`: all.
    pub fn reached(&self) -> Option<u32> {
        u32::try_from(self.width).ok().filter(|_| self.width < self.most)
    }

    /// How many may be under way now.
    pub const fn width(&self) -> usize {
        self.width
    }

    /// The ramp after an attempt: a whole width of successes doubles it; an endpoint that is overwhelmed gets one.
    #[must_use]
    pub fn after(self, outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Answered { status: 429 | 503, .. }
            | Outcome::Failed { cause: Cause::Throttled } => {
                Self { width: 1, successes: 0, ..self }
            }
            outcome if outcome.is_success() => match self.successes + 1 {
                enough if enough >= self.width => {
                    let width = self.width.saturating_mul(2).min(self.most);
                    Self { width, successes: 0, ..self }
                }
                successes => Self { successes, ..self },
            },
            _ => Self { successes: 0, ..self },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const LIMITS: Limits = Limits {
        opens_after: 10,
        probe: Duration::from_secs(60),
        probe_cap: Duration::from_secs(900),
        retry_after_cap: Duration::from_secs(86_400),
    };
    const OK: Outcome = Outcome::Answered { status: 200, retry_after_ms: None };
    const BROKEN: Outcome = Outcome::Answered { status: 500, retry_after_ms: None };
    const HANGS: Outcome = Outcome::Failed { cause: Cause::Timeout };
    const OURS: Outcome = Outcome::Failed { cause: Cause::Internal };

    fn slow_down(seconds: u64) -> Outcome {
        Outcome::Answered { status: 429, retry_after_ms: Some(seconds * 1000) }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn run(outcomes: &[Outcome], now: Timestamp) -> Breaker {
        outcomes.iter().fold(Breaker::default(), |b, outcome| b.after(&LIMITS, outcome, now))
    }

    #[test]
    fn ten_failures_in_a_row_open_it_and_nine_do_not() {
        assert_eq!(run(&vec![BROKEN; 9], at(0)), Breaker { failures: 9, open_until: None });
        let opened = run(&vec![BROKEN; 10], at(0));
        assert_eq!(opened, Breaker { failures: 10, open_until: Some(at(60)) });
        assert_eq!((opened.open(at(59)), opened.open(at(60))), (Some(at(60)), None));
    }

    #[test]
    fn a_success_in_between_starts_the_count_again() {
        let outcomes = [vec![BROKEN; 9], vec![OK], vec![BROKEN; 9]].concat();
        assert_eq!(run(&outcomes, at(0)).failures, 9);
    }

    /// DLV-head-of-line
    #[test]
    fn three_time_outs_in_a_row_open_it() {
        let connect = Outcome::Failed { cause: Cause::ConnectTimeout };
        assert_eq!(run(&[HANGS, connect.clone()], at(0)).open_until, None);
        assert_eq!(run(&[HANGS, connect, HANGS], at(0)).open_until, Some(at(60)));
        let token = Outcome::Failed { cause: Cause::Token };
        assert_eq!(run(&[token.clone(), token.clone()], at(0)).open_until, None);
        assert_eq!(run(&[token.clone(), token.clone(), token], at(0)).open_until, Some(at(60)));
    }

    #[test]
    fn probes_wait_longer_each_time_and_at_most_a_quarter_of_an_hour() {
        let mut breaker = run(&vec![BROKEN; 10], at(0));
        let mut waits = Vec::new();
        for _ in 0..7 {
            let now = breaker.open_until.unwrap();
            breaker = breaker.after(&LIMITS, &HANGS, now);
            waits.push(breaker.open_until.unwrap().as_second() - now.as_second());
        }
        assert_eq!(waits, [120, 240, 480, 900, 900, 900, 900]);
    }

    #[test]
    fn one_probe_closes_it() {
        let opened = run(&vec![BROKEN; 10], at(0));
        assert!(opened.is_probing());
        assert_eq!(opened.after(&LIMITS, &OK, at(60)), Breaker::default());
    }

    #[test]
    fn attempts_from_before_it_opened_change_nothing() {
        let opened = run(&vec![BROKEN; 10], at(0));
        for late in [OK, BROKEN, HANGS] {
            assert_eq!(opened.after(&LIMITS, &late, at(30)), opened);
        }
    }

    #[test]
    fn our_own_failures_do_not_count() {
        let before = run(&vec![BROKEN; 9], at(0));
        assert_eq!(before.after(&LIMITS, &OURS, at(1)), before);
    }

    /// F12
    #[test]
    fn an_endpoint_that_asks_for_a_pause_pauses_its_lane() {
        let asked = run(&[slow_down(30)], at(0));
        assert_eq!(asked, Breaker { failures: 1, open_until: Some(at(30)) });
        let longer = asked.after(&LIMITS, &slow_down(60), at(1));
        assert_eq!(longer.open_until, Some(at(61)));
        let for_ever = run(&[slow_down(u64::MAX / 1000)], at(0));
        assert_eq!(for_ever.open_until, Some(at(86_400)));
    }

    #[test]
    fn a_pause_cannot_shorten_the_wait_for_a_probe() {
        let failing = run(&vec![BROKEN; 9], at(0));
        assert_eq!(failing.after(&LIMITS, &slow_down(1), at(0)).open_until, Some(at(60)));
    }

    #[test]
    fn limits_of_nothing_do_not_overflow() {
        let limits = Limits { opens_after: 0, probe: SECOND, ..LIMITS };
        let breaker = Breaker { failures: u32::MAX, open_until: None };
        assert_eq!(breaker.after(&limits, &BROKEN, at(0)).open_until, Some(at(900)));
    }

    #[test]
    fn an_endpoint_that_has_rested_is_begun_with_one() {
        let rested = Breaker::default().rested(at(5));
        assert_eq!((rested.open(at(5)), Ramp::new(&rested, None, 5).width()), (None, 1));
        assert_eq!(rested.after(&LIMITS, &OK, at(6)), Breaker::default());
        // A longer pause stays one.
        let opened = run(&vec![BROKEN; 10], at(0));
        assert_eq!(opened.rested(at(9)), opened);
    }

    /// F15, RTY-jitter-and-herd
    #[test]
    fn after_a_pause_the_width_grows_with_successes() {
        let paused = Breaker { failures: 10, open_until: Some(at(0)) };
        let mut ramp = Ramp::new(&paused, None, 5);
        let mut widths = vec![ramp.width()];
        for _ in 0..9 {
            ramp = ramp.after(&OK);
            widths.push(ramp.width());
        }
        assert_eq!(widths, [1, 2, 2, 4, 4, 4, 4, 5, 5, 5]);
        assert_eq!(ramp.after(&slow_down(1)).width(), 1);
        assert_eq!(ramp.after(&BROKEN).width(), 5);
        assert_eq!(Ramp::new(&Breaker::default(), None, 5).width(), 5);
        assert_eq!(Ramp::new(&Breaker::default(), None, 0).width(), 1);
    }

    #[test]
    fn a_ramp_goes_on_where_the_last_look_left_it() {
        let check = |breaker: Breaker, reached: Option<u32>, most: usize, width: usize| {
            let ramp = Ramp::new(&breaker, reached, most);
            assert_eq!(ramp.width(), width, "{reached:?} of {most}");
            assert_eq!(ramp.reached(), u32::try_from(width).ok().filter(|_| width < most));
        };
        let paused = Breaker { failures: 10, open_until: Some(at(0)) };
        check(Breaker::default(), Some(2), 5, 2);
        check(Breaker::default(), Some(5), 5, 5);
        // Fewer are allowed since.
        check(Breaker::default(), Some(4), 3, 3);
        check(Breaker::default(), Some(0), 5, 1);
        check(paused, Some(4), 5, 1);
    }
}
