//! Who drains a lane.

use domain::{
    lane::{Hold, LaneId, Left, Release, Take},
    ports::{Backlog, Lanes, Stored},
};
use jiff::Timestamp;

use crate::{
    expression::Expression,
    fanout::DeliveriesTable,
    item::{Item, Reader, ms, n, s},
    items::lane,
    keys,
    table::{Range, Write},
};

fn ours(change: Expression, hold: &Hold) -> Expression {
    change.when("#fence = :fence", [("fence", n(hold.fence))])
}

fn due(shard: u16, now: Timestamp) -> Range {
    let due = Expression::new()
        .when("#wake_shard = :shard", [("shard", keys::shard_value(shard))])
        .when("#wake_at <= :now", [("now", ms(now))]);
    Range::index(keys::BY_WAKE, due)
}

impl Lanes for DeliveriesTable {
    async fn take(
        &self,
        id: &LaneId,
        owner: &str,
        now: Timestamp,
        until: Timestamp,
    ) -> Stored<Take> {
        let change = Expression::new()
            .set("owner", s(owner))
            .set("lease_until", ms(until))
            .count_up("fence")
            .when(
                "attribute_exists(#pk) AND (attribute_not_exists(#lease_until) OR #lease_until <= :now)",
                [("now", ms(now))],
            );
        let old = match self.table().update_and_read(keys::lane(id), &change).await? {
            Write::Done(item) => return Ok(Take::Held(lane::held(id, &item)?)),
            Write::Refused(old) => old,
        };
        if old.is_empty() {
            return Ok(Take::Absent);
        }
        let held = lane::held(id, &old)?;
        // Our own: the answer to the first try was lost.
        let ours = held.owner == owner && held.until.as_millisecond() == until.as_millisecond();
        Ok(if ours { Take::Held(held) } else { Take::Busy })
    }

    async fn renew(&self, hold: &Hold, until: Timestamp) -> Stored<bool> {
        let change = Expression::new()
            .set("lease_until", ms(until))
            .when("#owner = :owner", [("owner", s(&hold.owner))]);
        let change = ours(change, hold);
        Ok(matches!(self.table().update(keys::lane(&hold.lane), &change).await?, Write::Done(_)))
    }

    async fn release(
        &self,
        hold: &Hold,
        wake_at: Option<Timestamp>,
        left: Left,
    ) -> Stored<Release> {
        let change = Expression::new()
            .set("failures", n(left.breaker.failures))
            .set_or_clear("open_until", left.breaker.open_until.map(ms))
            .set_or_clear("paced_until", left.paced.until.map(ms))
            .set_or_clear("held_paced_until", left.paced.held.map(ms))
            .set_or_clear("ramp", left.ramp.map(n))
            .set_or_clear("wake_at", wake_at.map(ms))
            .set_or_clear("wake_shard", wake_at.map(|_| keys::wake_shard(&hold.lane, self.shards)))
            .clear(["owner", "lease_until"])
            .when("#wakes = :seen", [("seen", n(hold.seen))]);
        let change = ours(change, hold);
        let old = match self.table().update(keys::lane(&hold.lane), &change).await? {
            Write::Done(_) => return Ok(Release::Done),
            Write::Refused(old) => old,
        };
        if old.is_empty() || Reader(&old).number::<u64>("fence")? != hold.fence {
            return Ok(Release::Lost);
        }
        lane::wakes(Reader(&old)).map(Release::Woken)
    }

    async fn sleepers(&self, shard: u16, now: Timestamp, limit: usize) -> Stored<Vec<LaneId>> {
        let id = |item: &Item| lane::id(Reader(item));
        self.table().named(&due(shard, now).limit(limit), id).await
    }

    async fn due_backlog(&self, shard: u16, now: Timestamp) -> Stored<Backlog> {
        self.table().backlog(&due(shard, now), "wake_at").await
    }
}
