//! Whose turn it is to call a provider. All workers share what a provider takes, so the count is in the table.

use std::time::Duration;

use jiff::Timestamp;

use super::Stored;
use crate::{fetch::Pace, id::SourceName};

/// What became of asking for a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Now.
    Now,
    /// Ours, and not before then. Who does not use it has cost the others a call.
    At(Timestamp),
    /// None within the patience, and none is ours: ask again then, or later.
    Later(Timestamp),
}

/// Turns at calling the providers of sources.
pub trait Turns: Sync {
    /// Takes the next turn of a source, if it comes within `patience`. An answer that was lost costs a turn.
    fn take_turn(
        &self,
        source: &SourceName,
        pace: Pace,
        patience: Duration,
        now: Timestamp,
    ) -> impl Future<Output = Stored<Turn>> + Send;

    /// Nobody's turn until then. A later end that is known already stays.
    fn hold_turns(
        &self,
        source: &SourceName,
        until: Timestamp,
    ) -> impl Future<Output = Stored<()>> + Send;
}

/// How turns stand: the generic cell rate algorithm, in microseconds since the epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// When the next turn would be, did all come evenly. One may run ahead of it by the burst.
    pub next: u64,
    /// Nobody's turn before.
    pub held_until: u64,
}

/// What a standing gives to somebody who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gives {
    /// A turn, and `next` stands there then: everybody had paused.
    Fresh(u64),
    /// A turn, and `next` moves on by this: some run ahead.
    Ahead(u64),
    /// None before then.
    Nothing(u64),
}

/// A time in microseconds since the epoch; zero before it.
pub fn micros(at: Timestamp) -> u64 {
    u64::try_from(at.as_microsecond()).unwrap_or_default()
}

/// The time of microseconds.
pub fn time(micros: u64) -> Timestamp {
    let micros = i64::try_from(micros).unwrap_or(i64::MAX);
    Timestamp::from_microsecond(micros).unwrap_or(Timestamp::MAX)
}

fn length(of: Duration) -> u64 {
    u64::try_from(of.as_micros()).unwrap_or(u64::MAX)
}

impl Pace {
    /// Between two turns, in microseconds.
    pub fn step(&self) -> u64 {
        length(self.interval).max(1)
    }

    /// How far `next` may be ahead of now for a turn that is now.
    pub fn slack(&self) -> u64 {
        self.step().saturating_mul(u64::from(self.burst.saturating_sub(1)))
    }

    /// How far `next` may be ahead of now for a turn within `patience`.
    pub fn reach(&self, patience: Duration) -> u64 {
        self.slack().saturating_add(length(patience))
    }

    /// The turn of somebody who moved `next` from here.
    pub fn turn(&self, next: u64, now: Timestamp) -> Turn {
        let at = next.saturating_sub(self.slack());
        if at <= micros(now) { Turn::Now } else { Turn::At(time(at)) }
    }
}

impl Standing {
    /// What it gives to somebody who asks now.
    pub fn gives(&self, pace: Pace, patience: Duration, now: Timestamp) -> Gives {
        let at = micros(now);
        if self.held_until > at {
            Gives::Nothing(self.held_until)
        } else if self.next <= at {
            Gives::Fresh(at.saturating_add(pace.step()))
        } else if self.next <= at.saturating_add(pace.reach(patience)) {
            Gives::Ahead(pace.step())
        } else {
            Gives::Nothing(self.next.saturating_sub(pace.slack()))
        }
    }
}
