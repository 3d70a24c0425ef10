//! Turns at calling a provider: one small item for each source, moved on by conditional updates.

use std::time::Duration;

use domain::{
    fetch::Pace,
    id::SourceName,
    ports::{
        StoreError, Stored, Turn, Turns,
        turns::{Gives, Standing, micros, time},
    },
};
use jiff::Timestamp;

use crate::{
    StateTable,
    expression::Expression,
    item::{Item, Reader, n, s},
    keys,
    table::Write,
};

/// How often a turn is asked for when somebody else was faster each time. Only who begins after a pause, or meets the end
/// of a hold, can lose; who runs ahead adds to whatever stands.
const ROUNDS: u32 = 4;

const NOT_HELD: &str = "attribute_not_exists(#held_until) OR #held_until <= :now";

impl Turns for StateTable {
    async fn take_turn(
        &self,
        source: &SourceName,
        pace: Pace,
        patience: Duration,
        now: Timestamp,
    ) -> Stored<Turn> {
        let at = micros(now);
        // What most calls meet: the last one was a while ago. One write then, and no read.
        let mut gives = Standing::default().gives(pace, patience, now);
        for _ in 0..ROUNDS {
            let change = Expression::new().set("kind", s("turns")).when(NOT_HELD, [("now", n(at))]);
            let change = match gives {
                Gives::Fresh(next) => change
                    .set("next", n(next))
                    .when("attribute_not_exists(#next) OR #next <= :now", []),
                Gives::Ahead(step) => {
                    let reach = at.saturating_add(pace.reach(patience));
                    change
                        .count("next", step)
                        .when("#next > :now AND #next <= :reach", [("reach", n(reach))])
                }
                Gives::Nothing(until) => return Ok(Turn::Later(time(until))),
            };
            match self.table().update_and_read(keys::turns(source), &change).await? {
                Write::Done(item) => {
                    let next: u64 = Reader(&item).number("next")?;
                    let next = next.saturating_sub(pace.step());
                    return Ok(pace.turn(next, now));
                }
                Write::Refused(item) => gives = standing(&item)?.gives(pace, patience, now),
            }
        }
        Err(StoreError::Throttled("others take turns, again and again".into()))
    }

    async fn hold_turns(&self, source: &SourceName, until: Timestamp) -> Stored<()> {
        let change = Expression::new()
            .set("kind", s("turns"))
            .set("held_until", n(micros(until)))
            .when("attribute_not_exists(#held_until) OR #held_until < :held_until", []);
        self.table().update(keys::turns(source), &change).await.map(drop)
    }
}

fn standing(item: &Item) -> Stored<Standing> {
    let number = |name: &str| match item.contains_key(name) {
        true => Reader(item).number(name),
        false => Ok(0),
    };
    Ok(Standing { next: number("next")?, held_until: number("held_until")? })
}
