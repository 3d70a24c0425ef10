//! A lane's own item.

use domain::{
    lane::{Breaker, Hold, LaneId, Left, Paced},
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
        left: Left {
            breaker: Breaker {
                failures: item.some("failures", Reader::number)?.unwrap_or_default(),
                open_until: item.some("open_until", Reader::time)?,
            },
            paced: Paced {
                until: item.some("paced_until", Reader::time)?,
                held: item.some("held_paced_until", Reader::time)?,
            },
            ramp: item.some("ramp", Reader::number)?,
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

#[cfg(test)]
mod tests {
    use domain::id::EndpointId;
    use uuid::Uuid;

    use super::*;
    use crate::item::{n, show};

    fn a_lane() -> LaneId {
        let endpoint = EndpointId::new(Uuid::from_u128(9));
        LaneId { tenant: "demo".parse().unwrap(), endpoint, lane: 0 }
    }

    #[test]
    fn a_wake_is_written_as_it_has_always_been() {
        let wake = wake(&a_lane(), 8, Timestamp::from_millisecond(1_790_000_000_123).unwrap());
        let (update, values) = (wake.update().unwrap(), wake.values().unwrap());
        insta::assert_snapshot!(format!("{update}\n{}", show(&values)));
    }

    #[test]
    fn a_hold_is_what_its_item_says() {
        let mut item = Item::from([
            ("owner".to_owned(), s("me")),
            ("fence".to_owned(), n(3)),
            ("wakes".to_owned(), n(7)),
            ("lease_until".to_owned(), n(60_000)),
        ]);
        let hold = held(&a_lane(), &item).unwrap();
        assert_eq!((hold.owner.as_str(), hold.fence, hold.seen), ("me", 3, 7));
        assert_eq!(hold.left, Left::default());
        item.insert("failures".to_owned(), n(11));
        item.insert("open_until".to_owned(), n(90_000));
        item.insert("paced_until".to_owned(), n(90_001));
        item.insert("ramp".to_owned(), n(2));
        let at = |ms| Some(Timestamp::from_millisecond(ms).unwrap());
        let breaker = Breaker { failures: 11, open_until: at(90_000) };
        let paced = Paced { until: at(90_001), held: None };
        assert_eq!(held(&a_lane(), &item).unwrap().left, Left { breaker, paced, ramp: Some(2) });
        item.remove("fence");
        assert!(held(&a_lane(), &item).is_err());
    }
}
