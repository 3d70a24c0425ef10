//! How fast bulk work goes: so many a second, with messages sent ahead, so that a low rate needs nobody who waits.

use std::time::Duration;

use jiff::Timestamp;

use super::{AHEAD, PAGE};

/// A rate, and until when it is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// So many a second.
    pub rate: u32,
    /// Until when the rate is used up.
    pub paced_until: Timestamp,
}

impl Pace {
    /// How many rows may be taken now, so that the last of their messages goes within [`AHEAD`]; [`PAGE`] at most.
    pub fn allowance(&self, now: Timestamp) -> usize {
        let end = now.saturating_add(AHEAD).unwrap_or(Timestamp::MAX);
        let free = end.duration_since(self.free_at(now)).as_millis();
        let free = u64::try_from(free).unwrap_or_default() * u64::from(self.rate) / 1000;
        usize::try_from(free).unwrap_or(PAGE).min(PAGE)
    }

    /// How long the message of the `n`-th row of a page waits.
    pub fn delay(&self, now: Timestamp, n: usize) -> Duration {
        let at = self.used(now, u64::try_from(n).unwrap_or(u64::MAX));
        let wait = Duration::try_from(at.duration_since(now)).unwrap_or_default();
        // The queue knows whole seconds. A clock that is far behind must not delay for long.
        Duration::from_secs(wait.min(AHEAD).as_secs())
    }

    /// Until when the rate is used up after so many rows.
    pub fn after(&self, taken: u32, now: Timestamp) -> Timestamp {
        self.used(now, u64::from(taken))
    }

    fn free_at(&self, now: Timestamp) -> Timestamp {
        self.paced_until.max(now)
    }

    fn used(&self, now: Timestamp, taken: u64) -> Timestamp {
        let used =
            Duration::from_micros(taken.saturating_mul(1_000_000) / u64::from(self.rate.max(1)));
        self.free_at(now).saturating_add(used).unwrap_or(Timestamp::MAX)
    }
}
