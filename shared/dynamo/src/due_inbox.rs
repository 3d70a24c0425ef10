//! What the sweeper reads and claims of the inbox, and what is counted in it.

use std::collections::BTreeSet;

use domain::{
    id::{InboxKey, SourceName},
    inbox::{Claim, Noted, Row},
    ports::{Backlog, DueInbox, Pending, Stored},
};
use jiff::Timestamp;

use crate::{
    expression::Expression,
    inbox::{InboxTable, as_claimed},
    item::{Item, Reader, ms, n},
    items::event,
    keys,
    table::Range,
};

fn key(item: &Item) -> Stored<InboxKey> {
    event::key(Reader(item))
}

fn pending(shard: u16) -> Expression {
    Expression::new().when("#pending_shard = :shard", [("shard", keys::shard_value(shard))])
}

fn parked(shard: u16) -> Range {
    let of_shard = Expression::new();
    let of_shard = of_shard.when("#dead_shard = :shard", [("shard", keys::shard_value(shard))]);
    Range::index(keys::BY_DEAD, of_shard)
}

impl DueInbox for InboxTable {
    async fn due(&self, shard: u16, now: Timestamp, limit: usize) -> Stored<Vec<InboxKey>> {
        let due = pending(shard).when("#due_at <= :now", [("now", ms(now))]);
        self.table().named(&Range::index(keys::BY_DUE, due).limit(limit), key).await
    }

    async fn claim(&self, row: &Row, due_at: Timestamp) -> Stored<Noted> {
        let Some(read_due_at) = row.due_at else { return Ok(Noted::Moved) };
        // The index may be behind: only what is still as it was read is claimed.
        let change = Expression::new()
            .set("due_at", ms(due_at))
            .set("sweeps", n(row.sweeps.saturating_add(1)))
            .when(
                "#due_at = :read_due_at AND #sweeps = :read_sweeps",
                [("read_due_at", ms(read_due_at)), ("read_sweeps", n(row.sweeps))],
            );
        let claim = Claim { key: row.new.key.clone(), cycle: row.cycle };
        let change = as_claimed(change, &claim);
        Ok(self.table().update(keys::event(&claim.key), &change).await?.noted())
    }

    async fn pending(&self, shard: u16, paused: &BTreeSet<SourceName>) -> Stored<Pending> {
        // In no order of age: a row that was claimed often is old, and due late. So the index projects its age.
        let all = Range::index(keys::BY_DUE, pending(shard));
        let mut pending = Pending::default();
        self.table()
            .each(&all, |item| {
                let one = Backlog { count: 1, oldest: Some(Reader(&item).time("received_at")?) };
                let is_paused = !paused.is_empty() && paused.contains(key(&item)?.source());
                let part = if is_paused { &mut pending.paused } else { &mut pending.owed };
                *part = part.and(one);
                Ok(())
            })
            .await?;
        Ok(pending)
    }

    async fn parked(&self, shard: u16) -> Stored<u64> {
        self.table().count(&parked(shard)).await
    }

    async fn parked_keys(&self, shard: u16, limit: usize) -> Stored<Vec<InboxKey>> {
        self.table().named(&parked(shard).newest_first().limit(limit), key).await
    }
}
