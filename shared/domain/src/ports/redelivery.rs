//! Redelivery: what it reads and changes, and the rows of its work.

use jiff::Timestamp;

use super::{Again, Stored};
use crate::{
    delivery::Delivery,
    id::{EndpointId, EventId, RedeliveryId, TenantId},
    inbox::Noted,
    lane::LaneId,
    outbox::OutboxRow,
    redelivery::Work,
};

/// Makes finished deliveries due again.
pub trait Redeliver: Sync {
    /// Writes `after` in the place of `before`, its pointer, and a wake of the lane, in one transaction: nothing else would
    /// remember that it is owed. Condition: it is finished as `before` was, after as many attempts.
    /// [`Again::Before`]: it carries the mark of `after` already.
    fn redeliver_as(
        &self,
        lane: &LaneId,
        before: &Delivery,
        after: &Delivery,
        now: Timestamp,
    ) -> impl Future<Output = Stored<Again>> + Send;

    /// Deliveries of a lane after an event, in the order of the events' ids, which is that of their times; or before it,
    /// the latest first.
    fn log(
        &self,
        lane: &LaneId,
        from: Option<EventId>,
        newest_first: bool,
        limit: usize,
    ) -> impl Future<Output = Stored<Vec<Delivery>>> + Send;
}

/// The events that are delivered again.
pub trait Events: Sync {
    /// An event, kept at least until then. `None`: it is gone, or past its retention.
    fn keep(
        &self,
        tenant: &TenantId,
        event: EventId,
        until: Timestamp,
        now: Timestamp,
    ) -> impl Future<Output = Stored<Option<OutboxRow>>> + Send;

    /// Notes that a relayed event goes to an endpoint, too, so that its story tells it. Noting it again changes nothing.
    fn also_to(
        &self,
        tenant: &TenantId,
        event: EventId,
        endpoint: EndpointId,
    ) -> impl Future<Output = Stored<()>> + Send;

    /// Events of a shard of a tenant after one of them, in the order of their ids.
    fn events(
        &self,
        tenant: &TenantId,
        shard: u16,
        after: Option<EventId>,
        limit: usize,
    ) -> impl Future<Output = Stored<Vec<OutboxRow>>> + Send;

    /// Shards of a tenant.
    fn event_shards(&self) -> u16;
}

/// What became of a start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Started {
    /// It is there, and under way.
    Yes,
    /// There is one of that id.
    Before(Box<Work>),
    /// As many as there may be are under way.
    TooMany,
}

/// What a person can do to a work under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halt {
    /// Stop it for good.
    Cancel,
    /// Stop it for a while.
    Pause,
    /// Let it go on.
    Resume,
}

/// The rows of redeliveries.
pub trait Redeliveries: Sync {
    /// Puts a work and counts it among those under way, if there are fewer than `most`.
    fn start_redelivery(
        &self,
        work: &Work,
        most: usize,
    ) -> impl Future<Output = Stored<Started>> + Send;

    /// Reads a work, consistently.
    fn redelivery(&self, id: RedeliveryId) -> impl Future<Output = Stored<Option<Work>>> + Send;

    /// Works of a tenant, the latest first.
    fn redeliveries(
        &self,
        tenant: &TenantId,
        limit: usize,
    ) -> impl Future<Output = Stored<Vec<Work>>> + Send;

    /// Those under way, paused ones included, and perhaps some that have just ended.
    fn open_redeliveries(&self) -> impl Future<Output = Stored<Vec<RedeliveryId>>> + Send;

    /// Writes a work after a page, if it still has the version before. Gives it as it is then: somebody may have stopped
    /// it. `None`: somebody else has advanced it.
    fn advance_redelivery(&self, after: &Work)
    -> impl Future<Output = Stored<Option<Work>>> + Send;

    /// Halts a work, or lets it go on. [`Noted::Moved`]: it is over, stands so already, or is not there.
    fn halt_redelivery(
        &self,
        id: RedeliveryId,
        how: Halt,
        by: &str,
        now: Timestamp,
    ) -> impl Future<Output = Stored<Noted>> + Send;

    /// Counts a work no longer among those under way.
    fn close_redelivery(&self, id: RedeliveryId) -> impl Future<Output = Stored<()>> + Send;
}
