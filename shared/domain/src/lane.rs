//! Lanes: the queue of one endpoint, drained by one holder at a time.
//!
//! The lease saves work; correctness rests on the condition of each write. Whoever wakes a lane counts `wakes` up; a
//! holder that found nothing may only put the lane to sleep if `wakes` is what it saw when it took the lease.

use std::fmt;

use jiff::Timestamp;

use crate::{
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
        let at = event.time();
        let count =
            endpoint.lanes.iter().filter(|lanes| lanes.from <= at).max_by_key(|lanes| lanes.from);
        let count = count.map_or(1, |lanes| lanes.count.max(1));
        let lane = shard_of(aggregate_id, count);
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
    /// The breaker as the last holder left it.
    pub breaker: Breaker,
}

/// The circuit of a lane: after failures in a row it opens, and one probe at a time closes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Breaker {
    /// Failures in a row.
    pub failures: u32,
    /// Open until then; the next attempt after it is the probe.
    pub open_until: Option<Timestamp>,
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

/// A pointer: this delivery is due then.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pointer {
    /// When.
    pub due_at: Timestamp,
    /// Which delivery of the lane.
    pub event: EventId,
}
