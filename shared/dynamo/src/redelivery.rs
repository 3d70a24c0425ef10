//! Redelivery: deliveries that become due again, the events that they need, and the rows of its work.

use domain::{
    commit::Reason,
    delivery::Delivery,
    id::{EndpointId, EventId, RedeliveryId, TenantId},
    inbox::Noted,
    lane::{LaneId, Pointer},
    outbox::OutboxRow,
    ports::{Again, Deliveries as _, Events, Halt, Redeliver, Redeliveries, Started, Stored},
    redelivery::Work,
};
use jiff::Timestamp;

use crate::{
    book::{Begun, Booked},
    error::cancelled,
    expression::Expression,
    fanout::{DeliveriesTable, pointer},
    item::{Item, Reader, json, ms, n, s, seconds, word},
    items::{
        delivery, lane, outgoing,
        redelivery::{read, read_listed, write, write_listed},
    },
    keys,
    outbox::OutboxTable,
    registry::RegistryTable,
    table::{Range, Transacted, Write, partition, transact_in_lane},
};

impl Redeliver for DeliveriesTable {
    async fn redeliver_as(
        &self,
        lane: &LaneId,
        before: &Delivery,
        after: &Delivery,
        now: Timestamp,
    ) -> Stored<Again> {
        let as_read = [("was", word(&before.state)), ("had", n(before.attempts))];
        let again = delivery::change(after, self.retention)?
            .set_or_clear("asked_at", after.asked_at.map(ms))
            .set_or_clear("redelivered", after.redelivered.as_ref().map(json).transpose()?)
            .when("#state = :was AND #attempts = :had", as_read);
        let again = match before.finished_at {
            Some(at) => again.when("#finished_at = :rested", [("rested", ms(at))]),
            None => again,
        };
        let table = self.table();
        let actions = vec![
            table.updating(keys::delivery(lane, before.event), &again)?,
            table.putting(pointer(lane, &Pointer::of(after)), &Expression::new())?,
            table.updating(keys::lane(lane), &lane::wake(lane, self.shards, now))?,
        ];
        match transact_in_lane(&self.client, actions).await? {
            Transacted::Done => Ok(Again::Yes),
            Transacted::Cancelled(reasons) if reasons.first() == Some(&Reason::ConditionFailed) => {
                // The answer to our own write may have been lost, or somebody does the same page.
                let found = self.read(lane, &[before.event]).await?;
                let mark = |delivery: &Delivery| Some(delivery.redelivered.as_ref()?.by);
                let is_ours = found.first().and_then(mark) == mark(after);
                Ok(if is_ours { Again::Before } else { Again::Moved })
            }
            Transacted::Cancelled(reasons) => Err(cancelled(&reasons)),
        }
    }

    async fn log(
        &self,
        lane: &LaneId,
        from: Option<EventId>,
        newest_first: bool,
        limit: usize,
    ) -> Stored<Vec<Delivery>> {
        let of_lane = partition(keys::lane_partition(lane));
        let all = of_lane.when("begins_with(#sk, :first)", [("first", s(keys::DELIVERIES))]);
        let start = from.map(|event| keys::delivery(lane, event).attributes());
        let range = Range::partition(all).limit(limit).after(start);
        let range = if newest_first { range.newest_first() } else { range };
        self.table().rows(&range, delivery::read).await
    }
}

impl Events for OutboxTable {
    async fn keep(
        &self,
        tenant: &TenantId,
        event: EventId,
        until: Timestamp,
        now: Timestamp,
    ) -> Stored<Option<OutboxRow>> {
        // Gone is what is past its expiry, whether or not the store has deleted it yet.
        let longer = Expression::new()
            .set("expires_at", seconds(until))
            .when("#expires_at > :now AND #expires_at < :expires_at", [("now", seconds(now))]);
        let item =
            match self.table().update_and_read(keys::outgoing(tenant, event), &longer).await? {
                Write::Done(item) | Write::Refused(item) => item,
            };
        if item.is_empty() {
            return Ok(None);
        }
        let expires_at = Reader(&item).some("expires_at", Reader::number::<i64>)?;
        if expires_at.is_some_and(|at| at <= now.as_second()) {
            return Ok(None);
        }
        outgoing::read(&item).map(Some)
    }

    async fn also_to(&self, tenant: &TenantId, event: EventId, endpoint: EndpointId) -> Stored<()> {
        // Beside what the relay wrote, which has another form where it is long.
        let also = Expression::new()
            .put_into(outgoing::ADDED, &endpoint.to_string())
            .when("attribute_exists(#relayed_at)", []);
        self.table().update(keys::outgoing(tenant, event), &also).await.map(drop)
    }

    async fn events(
        &self,
        tenant: &TenantId,
        shard: u16,
        after: Option<EventId>,
        limit: usize,
    ) -> Stored<Vec<OutboxRow>> {
        let of_shard = partition(keys::outgoing_partition(tenant, shard));
        let of_shard = match after {
            Some(event) => of_shard.when("#sk > :after", [("after", s(event.to_string()))]),
            None => of_shard,
        };
        self.table().rows(&Range::partition(of_shard).limit(limit), outgoing::read).await
    }

    fn event_shards(&self) -> u16 {
        keys::TENANT_SHARDS
    }
}

impl Booked for Work {
    type Id = RedeliveryId;

    const OPEN_KIND: &'static str = "redeliveries_open";

    fn id(&self) -> RedeliveryId {
        self.id
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn key(id: RedeliveryId) -> keys::Key {
        keys::redelivery(id)
    }

    fn open() -> keys::Key {
        keys::open_redeliveries()
    }

    fn write(&self) -> Stored<Item> {
        write(self)
    }

    fn read(item: &Item) -> Stored<Self> {
        read(item)
    }

    fn listed(&self) -> Item {
        write_listed(self)
    }

    fn is_as(&self, other: &Self) -> bool {
        let alone = |work: &Self| Self { cancelled: None, paused: None, ..work.clone() };
        alone(self) == alone(other)
    }
}

impl Redeliveries for RegistryTable {
    async fn start_redelivery(&self, work: &Work, most: usize) -> Stored<Started> {
        Ok(match self.book().start(work, most).await? {
            Begun::Yes => Started::Yes,
            Begun::Before(before) => Started::Before(Box::new(before)),
            Begun::TooMany => Started::TooMany,
        })
    }

    async fn redelivery(&self, id: RedeliveryId) -> Stored<Option<Work>> {
        self.book().read(id).await
    }

    async fn redeliveries(&self, tenant: &TenantId, limit: usize) -> Stored<Vec<Work>> {
        let listed = Range::partition(partition(keys::redeliveries(tenant)));
        let listed = listed.newest_first().limit(limit);
        let mut works: Vec<Work> = self.book().listed(&listed, read_listed).await?;
        works.sort_by_key(|work| std::cmp::Reverse((work.began, work.id)));
        Ok(works)
    }

    async fn open_redeliveries(&self) -> Stored<Vec<RedeliveryId>> {
        self.book().open::<Work>().await
    }

    async fn advance_redelivery(&self, after: &Work) -> Stored<Option<Work>> {
        self.book().advance(after).await
    }

    async fn halt_redelivery(
        &self,
        id: RedeliveryId,
        how: Halt,
        by: &str,
        now: Timestamp,
    ) -> Stored<Noted> {
        let Some(work) = self.redelivery(id).await?.filter(|work| work.ended_at.is_none()) else {
            return Ok(Noted::Moved);
        };
        // It may end in this moment; then it has ended, whatever stands beside.
        let change = match how {
            Halt::Cancel => Expression::new()
                .set("cancelled_at", ms(now))
                .set("cancelled_by", s(by))
                .when("attribute_exists(#pk) AND attribute_not_exists(#cancelled_at)", []),
            Halt::Pause => Expression::new()
                .set("paused_at", ms(now))
                .set("paused_by", s(by))
                .when("attribute_exists(#pk) AND attribute_not_exists(#paused_at)", [])
                .when("attribute_not_exists(#cancelled_at)", []),
            Halt::Resume => Expression::new()
                .clear(["paused_at", "paused_by"])
                .when("attribute_exists(#paused_at) AND attribute_not_exists(#cancelled_at)", []),
        };
        Ok(self.table().update(keys::redelivery(work.id), &change).await?.noted())
    }

    async fn close_redelivery(&self, id: RedeliveryId) -> Stored<()> {
        self.book().close::<Work>(id).await
    }
}
