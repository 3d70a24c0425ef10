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

    #[test]
    fn a_base_of_nothing_still_waits_for_the_floor() {
        let none = Backoff { floor: SECOND, base: Duration::ZERO, cap: Duration::ZERO };
        assert_eq!(none.after(9, 1.0), SECOND);
    }
}
