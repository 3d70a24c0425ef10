//! How retries spread, over the whole schedule: by the rule that decides, with sequences that are the same each time.

#![expect(clippy::unwrap_used, clippy::panic, reason = "test code")]
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded numbers")]

use std::{collections::BTreeMap, time::Duration};

use domain::{
    delivery::{self, Next, Outcome, Schedule},
    retry::Backoff,
};
use jiff::Timestamp;

/// The template's defaults.
const SCHEDULE: Schedule = Schedule {
    backoff: Backoff {
        floor: Duration::from_secs(1),
        base: Duration::from_secs(30),
        cap: Duration::from_secs(43_200),
    },
    retry_after_cap: Duration::from_secs(86_400),
};
const DEADLINE: i64 = 345_600;
const BROKEN: Outcome = Outcome::answered(500, None, None);
const SEEDS: [u64; 3] = [1, 20_260_930, 0xdead_beef];

/// `SplitMix64`: even, and the same each time.
struct Even(u64);

impl Even {
    fn draw(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        f64::from(((z ^ (z >> 31)) >> 32) as u32) / f64::from(u32::MAX)
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn seconds(at: Timestamp) -> f64 {
    at.as_millisecond() as f64 / 1000.0
}

/// The waits of many deliveries that fail together for the `number`-th time.
fn waits(number: u32, count: usize, even: &mut Even) -> Vec<f64> {
    let wait =
        |_| match delivery::after(&SCHEDULE, number, &BROKEN, at(DEADLINE), at(0), even.draw()) {
            Next::RetryAt(then) => seconds(then),
            other => panic!("{other:?}"),
        };
    (0..count).map(wait).collect()
}

/// F10, RTY-jitter-and-herd: ten thousand that fail in the same second come back evenly between a second and the bound of
/// their wait. The largest distance from that (Kolmogorov and Smirnov) is what chance gives: more in one of a hundred
/// thousand draws.
#[test]
fn those_that_fail_together_come_back_evenly() {
    const COUNT: usize = 10_000;
    for seed in SEEDS {
        let mut even = Even(seed);
        for number in 1..=14 {
            let longest = SCHEDULE.backoff.after(number, 1.0).as_secs_f64();
            let mut waits = waits(number, COUNT, &mut even);
            waits.sort_by(f64::total_cmp);
            let expected = |wait: f64| (wait - 1.0) / (longest - 1.0);
            let off = waits.iter().enumerate().map(|(n, wait)| {
                let share = n as f64 / COUNT as f64;
                (expected(*wait) - share).abs()
            });
            let most = off.fold(0.0, f64::max) * (COUNT as f64).sqrt();
            assert!(most < 2.47, "seed {seed}, attempt {number}: {most}");
        }
    }
}

/// RTY-jitter-and-herd: in no second there come more than full jitter gives, by six deviations.
#[test]
fn no_second_sees_a_cluster() {
    const COUNT: usize = 20_000;
    for seed in SEEDS {
        let mut even = Even(seed);
        for number in 1..=14 {
            let longest = SCHEDULE.backoff.after(number, 1.0).as_secs_f64();
            let mut buckets: BTreeMap<u64, u32> = BTreeMap::new();
            for wait in waits(number, COUNT, &mut even) {
                *buckets.entry(wait as u64).or_default() += 1;
            }
            let mean = COUNT as f64 / (longest - 1.0);
            let most = f64::from(*buckets.values().max().unwrap());
            // Of few, a bound on what is rare is a number, not a deviation.
            let bound = (mean + 6.0 * mean.sqrt()).max(mean + 9.0);
            assert!(
                most <= bound,
                "seed {seed}, attempt {number}: {most} in a second, mean {mean}"
            );
        }
    }
}

/// The same over all attempts: each delivery has its own way to its deadline, and two never keep in step.
#[test]
fn deliveries_that_failed_together_do_not_meet_again() {
    const COUNT: usize = 2_000;
    for seed in SEEDS {
        let mut even = Even(seed);
        let (mut attempts, mut minutes) = (Vec::new(), BTreeMap::<i64, u32>::new());
        for _ in 0..COUNT {
            let (mut now, mut number) = (at(0), 1);
            while let Next::RetryAt(then) =
                delivery::after(&SCHEDULE, number, &BROKEN, at(DEADLINE), now, even.draw())
            {
                (now, number) = (then, number + 1);
                *minutes.entry(then.as_second() / 60).or_default() += 1;
            }
            attempts.push(number);
        }
        let mean = f64::from(attempts.iter().sum::<u32>()) / COUNT as f64;
        assert!((24.0..29.0).contains(&mean), "seed {seed}: {mean} attempts");
        // After the first hours no minute sees more than a few percent of them.
        let late = minutes.iter().filter(|(minute, _)| **minute > 240).map(|(_, count)| *count);
        let most = f64::from(late.max().unwrap());
        assert!(most < COUNT as f64 * 0.02, "seed {seed}: {most} in a minute");
    }
}

/// RTY-retry-after: those that were asked to wait come back when they were asked to, or later, each at its own time as
/// long as its own wait is longer.
#[test]
fn jitter_never_goes_below_what_was_asked_for() {
    let mut even = Even(7);
    for asked in [1_u64, 10, 120, 7_200, 86_400, 1_000_000] {
        let outcome = Outcome::answered(429, Some(asked * 1000), None);
        for number in 1..=16 {
            let own = SCHEDULE.backoff.after(number, 1.0).as_secs_f64();
            for _ in 0..200 {
                let next =
                    delivery::after(&SCHEDULE, number, &outcome, at(DEADLINE), at(0), even.draw());
                let Next::RetryAt(then) = next else { panic!("{next:?}") };
                let asked = (asked as f64).min(86_400.0);
                assert!(
                    seconds(then) >= asked && seconds(then) <= own.max(asked),
                    "{asked} {then}"
                );
            }
        }
    }
}
