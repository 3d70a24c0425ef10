//! Turns at calling a provider, in memory.

use std::time::Duration;

use domain::{
    fetch::Pace,
    id::SourceName,
    ports::{
        Stored, Turn, Turns,
        turns::{Gives, micros, time},
    },
};
use jiff::Timestamp;

use super::Store;

impl Turns for Store {
    async fn take_turn(
        &self,
        source: &SourceName,
        pace: Pace,
        patience: Duration,
        now: Timestamp,
    ) -> Stored<Turn> {
        self.call("turns.take_turn", |tables| {
            let standing = tables.turns.entry(source.clone()).or_default();
            match standing.gives(pace, patience, now) {
                Gives::Fresh(next) => {
                    standing.next = next;
                    Turn::Now
                }
                Gives::Ahead(step) => {
                    let turn = pace.turn(standing.next, now);
                    standing.next = standing.next.saturating_add(step);
                    turn
                }
                Gives::Nothing(until) => Turn::Later(time(until)),
            }
        })
        .await
    }

    async fn hold_turns(&self, source: &SourceName, until: Timestamp) -> Stored<()> {
        self.call("turns.hold_turns", |tables| {
            let standing = tables.turns.entry(source.clone()).or_default();
            standing.held_until = standing.held_until.max(micros(until));
        })
        .await
    }
}
