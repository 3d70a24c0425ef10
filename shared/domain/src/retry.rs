//! How long to wait before trying again: full jitter, bounded from below and above.

use std::time::Duration;

/// The bounds of a wait that doubles with every try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// No wait is shorter.
    pub floor: Duration,
    /// The longest wait before the first retry; it doubles with each further one.
    pub base: Duration,
    /// No wait is longer.
    pub cap: Duration,
}

impl Backoff {
    /// The wait after `tries` tries have failed (counted from 1), for a `jitter` drawn evenly from 0 to 1.
    ///
    /// `random(floor, min(cap, base * 2^(tries - 1)))`: any narrower spread would let senders that failed together come
    /// back together.
    pub fn after(&self, tries: u32, jitter: f64) -> Duration {
        let doublings = tries.saturating_sub(1).min(31);
        let ceiling = self.base.saturating_mul(1_u32 << doublings).min(self.cap).max(self.floor);
        let jitter = if jitter.is_finite() { jitter.clamp(0.0, 1.0) } else { 1.0 };
        self.floor + (ceiling - self.floor).mul_f64(jitter)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const DELIVERIES: Backoff = Backoff {
        floor: SECOND,
        base: Duration::from_secs(30),
        cap: Duration::from_secs(12 * 3600),
    };

    proptest! {
        /// RTY-backoff-overflow
        #[test]
        fn every_wait_is_inside_its_bounds(tries: u32, jitter: f64) {
            let wait = DELIVERIES.after(tries, jitter);
            prop_assert!(wait >= DELIVERIES.floor && wait <= DELIVERIES.cap);
        }
    }

    #[test]
    fn the_ceiling_doubles_until_the_cap() {
        let ceilings: Vec<_> = (1..=13).map(|n| DELIVERIES.after(n, 1.0).as_secs()).collect();
        assert_eq!(
            ceilings,
            [30, 60, 120, 240, 480, 960, 1920, 3840, 7680, 15_360, 30_720, 43_200, 43_200]
        );
    }

    /// F10
    #[test]
    fn jitter_is_full() {
        assert_eq!(DELIVERIES.after(5, 0.0), SECOND);
        assert_eq!(DELIVERIES.after(1, 0.5), Duration::from_millis(15_500));
    }

    /// C33: twenty thousand that fail together come back evenly over the whole wait, and with each try over a longer one.
    #[test]
    fn those_that_fail_together_do_not_come_back_together() {
        const STORM: u32 = 20_000;
        let worker = Backoff {
            floor: Duration::ZERO,
            base: Duration::from_secs(10),
            cap: Duration::from_secs(900),
        };
        // A congruential sequence: evenly spread, and the same each time.
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut draw = || {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            f64::from(u32::try_from(seed >> 32).unwrap()) / f64::from(u32::MAX)
        };
        for tries in [1, 3, 7, 11, 12] {
            let ceiling = worker.after(tries, 1.0);
            let mut parts = [0_u32; 20];
            for _ in 0..STORM {
                let share = worker.after(tries, draw()).as_secs_f64() / ceiling.as_secs_f64();
                let part = (0..20).rev().find(|part| share >= f64::from(*part) / 20.0).unwrap();
                parts[usize::try_from(part).unwrap()] += 1;
            }
            // A thousand are expected in each; the chance of one that is six deviations off is one in a hundred million.
            let chi: f64 = parts.iter().map(|n| (f64::from(*n) - 1000.0).powi(2) / 1000.0).sum();
            assert!(parts.iter().all(|n| (815..=1185).contains(n)), "after {tries}: {parts:?}");
            assert!(chi < 60.0, "after {tries}: {chi} {parts:?}");
        }
        assert_eq!(worker.after(12, 1.0), Duration::from_secs(900));
    }

    /// RTY-backoff-overflow
    #[test]
    fn no_number_of_tries_makes_a_wait_short_again() {
        let bases = [Duration::ZERO, Duration::from_millis(1), SECOND, Duration::from_hours(24)];
        let caps =
            [Duration::from_millis(1), SECOND, Duration::from_hours(24 * 365), Duration::MAX];
        for (base, cap) in bases.into_iter().flat_map(|base| caps.map(|cap| (base, cap))) {
            let backoff = Backoff { floor: Duration::ZERO, base, cap };
            let tries = [0, 1, 2, 31, 32, 33, 40, 63, 64, 65, 100, 1075, u32::MAX];
            let waits = tries.map(|tries| backoff.after(tries, 1.0));
            assert!(
                waits.is_sorted() && waits.iter().all(|wait| *wait <= cap),
                "{backoff:?} {waits:?}"
            );
            for (tries, ceiling) in tries.into_iter().zip(waits) {
                for jitter in [0.0, 0.5, f64::NAN, f64::INFINITY, -1.0] {
                    assert!(
                        backoff.after(tries, jitter) <= ceiling,
                        "{backoff:?} {tries} {jitter}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_base_of_nothing_still_waits_for_the_floor() {
        let none = Backoff { floor: SECOND, base: Duration::ZERO, cap: Duration::ZERO };
        assert_eq!(none.after(9, 1.0), SECOND);
    }
}
