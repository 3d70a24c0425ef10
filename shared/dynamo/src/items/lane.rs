//! A lane's own item.

use domain::{
    lane::{Breaker, Hold, LaneId},
    ports::Stored,
};
use jiff::Timestamp;

use crate::{
    expression::Expression,
    item::{Item, Reader, ms, s},
    keys,
};

/// Counts a wake up, and makes the lane due. Also makes the lane: its item appears with its first wake.
pub(crate) fn wake(lane: &LaneId, shards: u16, now: Timestamp) -> Expression {
    Expression::new()
        .set("kind", s("lane"))
        .set("wake_at", ms(now))
        .set("wake_shard", keys::wake_shard(lane, shards))
        .count_up("wakes")
}

/// The hold that an item says its owner has.
pub(crate) fn held(lane: &LaneId, item: &Item) -> Stored<Hold> {
    let item = Reader(item);
    Ok(Hold {
        lane: lane.clone(),
        owner: item.str("owner")?.to_owned(),
        fence: item.number("fence")?,
        seen: wakes(item)?,
        until: item.time("lease_until")?,
        breaker: Breaker {
            failures: item.some("failures", Reader::number)?.unwrap_or_default(),
            open_until: item.some("open_until", Reader::time)?,
        },
    })
}

/// How often the lane has been woken.
pub(crate) fn wakes(item: Reader<'_>) -> Stored<u64> {
    item.number("wakes")
}

/// The lane of a row, also as an index gives it.
pub(crate) fn id(item: Reader<'_>) -> Stored<LaneId> {
    keys::read_lane(item.str("pk")?).ok_or_else(|| item.bad("pk"))
}
