//! Lanes: the queue of one endpoint, drained by one holder at a time.
//!
//! The lease saves work; correctness rests on the condition of each write. Whoever wakes a lane counts `wakes` up; a
//! holder that found nothing may only put the lane to sleep if `wakes` is what it saw when it took the lease.

mod order;
mod pace;

use std::fmt;

use jiff::Timestamp;

pub use self::{
    order::{Class, Order, Ready},
    pace::{Pace, Paced},
};
pub use crate::breaker::Breaker;
use crate::{
    delivery::{Delivery, State},
    endpoint::Endpoint,
    id::{EndpointId, EventId, TenantId, shard_of},
};

/// Names one lane.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId {
    /// Whose endpoint.
    pub tenant: TenantId,
    /// Which endpoint.
    pub endpoint: EndpointId,
    /// Which of its lanes, from 0.
    pub lane: u16,
}

impl fmt::Display for LaneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}#{}", self.tenant, self.endpoint, self.lane)
    }
}

impl LaneId {
    /// The lane of an event at an endpoint. Uses the lane count in force at the time in the event's id, so that a late
    /// relay still finds the same lane.
    pub fn of(endpoint: &Endpoint, event: EventId, aggregate_id: &str) -> Self {
        let lane = shard_of(aggregate_id, endpoint.lane_count(event.time()));
        Self { tenant: endpoint.tenant.clone(), endpoint: endpoint.id, lane }
    }
}

/// A lane that is ours for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Which lane.
    pub lane: LaneId,
    /// Who we are.
    pub owner: String,
    /// Counts holders; a later one has a higher fence.
    pub fence: u64,
    /// How often the lane had been woken when we took it, or last looked.
    pub seen: u64,
    /// When the lease ends.
    pub until: Timestamp,
    /// What the last holder left.
    pub left: Left,
}

/// What one holder of a lane leaves to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// The circuit.
    pub breaker: Breaker,
    /// When more may begin.
    pub paced: Paced,
    /// How many were under way at once, at the end, to an endpoint that is recovering; `None`: as many as may.
    pub ramp: Option<u32>,
}

/// What became of a try to take a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Take {
    /// It is ours.
    Held(Hold),
    /// Somebody else drains it; he will see what we were woken for.
    Busy,
    /// There is no such lane.
    Absent,
}

/// What became of a try to release a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Release {
    /// It sleeps until its `wake_at`.
    Done,
    /// Somebody woke it meanwhile: look again. The new count of wakes.
    Woken(u64),
    /// The lease was lost to somebody else, who now owns the lane's sleep.
    Lost,
}

/// What kind of pointer a delivery has: the two are read apart, so that what is new need not wait behind what failed.
///
/// A delivery moves from the first to the second and never back, because its attempts never go back. Whoever asks
/// whether nothing points anywhere has to read them in this order: in the other, a delivery that moves in between would
/// be seen in neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// It was never tried.
    Fresh,
    /// It was tried before.
    Retry,
}

impl Kind {
    /// Both, in the order in which they are read.
    pub const ALL: [Self; 2] = [Self::Fresh, Self::Retry];
}

/// A pointer: this delivery is due then.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pointer {
    /// Among which it stands.
    pub kind: Kind,
    /// When.
    pub due_at: Timestamp,
    /// Which delivery of the lane.
    pub event: EventId,
}

/// What a due pointer means, now that its delivery has been read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// The delivery is due.
    Due(&'a Delivery),
    /// The delivery is due at another time, or among the others: put this pointer, then delete the one that was found. In this order, or
    /// nothing would remember the delivery in between.
    Elsewhere(Pointer),
    /// The delivery is finished or gone: delete the pointer.
    Stale,
}

impl Pointer {
    /// The pointer that a pending delivery should have.
    pub const fn of(delivery: &Delivery) -> Self {
        let kind = if delivery.attempts == 0 { Kind::Fresh } else { Kind::Retry };
        Self { kind, due_at: delivery.due_at, event: delivery.event }
    }

    /// Compares a pointer with its delivery. Whoever died between two writes left them apart.
    pub fn judge<'a>(&self, delivery: Option<&'a Delivery>) -> Found<'a> {
        match delivery {
            Some(delivery) if delivery.state != State::Pending => Found::Stale,
            Some(delivery) if Self::of(delivery) == *self => Found::Due(delivery),
            Some(delivery) => Found::Elsewhere(Self::of(delivery)),
            None => Found::Stale,
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::{destination::Destination, endpoint::LaneCount};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn endpoint(lanes: &[(i64, u16)]) -> Endpoint {
        let lanes = lanes.iter().map(|(from, count)| LaneCount { from: at(*from), count: *count });
        let url = Destination::Https("https://example.com/".to_owned());
        let id = EndpointId::new(Uuid::from_u128(7));
        let lanes = lanes.collect();
        Endpoint { lanes, ..Endpoint::new("acme".parse().unwrap(), id, url, at(0)) }
    }

    fn event(second: i64) -> EventId {
        EventId::derived(at(second), &["x"])
    }

    #[test]
    fn a_late_relay_finds_the_lane_of_the_events_own_time() {
        let grown = endpoint(&[(0, 1), (100, 8)]);
        let lanes = |second| {
            let names = (0..50).map(|n| format!("order-{n}"));
            names.map(|name| LaneId::of(&grown, event(second), &name).lane).max().unwrap()
        };
        assert_eq!((lanes(99), lanes(100)), (0, 7));
        assert_eq!(LaneId::of(&endpoint(&[]), event(5), "x").lane, 0);
        assert_eq!(LaneId::of(&endpoint(&[(0, 0)]), event(5), "x").lane, 0);
    }

    #[test]
    fn one_aggregate_stays_in_one_lane() {
        let wide = endpoint(&[(0, 16)]);
        let lane = |second| LaneId::of(&wide, event(second), "order-1");
        assert_eq!(lane(1), lane(2));
    }

    #[test]
    fn a_pointer_is_judged_by_its_delivery() {
        let due = Delivery::new(event(1), "a".to_owned(), at(99), at(5));
        let pointer = Pointer { kind: Kind::Fresh, due_at: at(5), event: due.event };
        assert_eq!(pointer.judge(Some(&due)), Found::Due(&due));
        let moved = Delivery { due_at: at(8), ..due.clone() };
        let right = Pointer { due_at: at(8), ..pointer.clone() };
        assert_eq!(pointer.judge(Some(&moved)), Found::Elsewhere(right));
        // Also one of before there were two kinds.
        let tried = Delivery { attempts: 1, ..due.clone() };
        let right = Pointer { kind: Kind::Retry, ..pointer.clone() };
        assert_eq!(pointer.judge(Some(&tried)), Found::Elsewhere(right.clone()));
        assert_eq!(right.judge(Some(&tried)), Found::Due(&tried));
        for state in [State::Succeeded, State::Dead, State::Cancelled] {
            let finished = Delivery { state, ..due.clone() };
            assert_eq!(pointer.judge(Some(&finished)), Found::Stale);
        }
        assert_eq!(pointer.judge(None), Found::Stale);
    }
}
