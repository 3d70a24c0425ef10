//! Deliveries of a lane, and the pointers that say when they are due.

use domain::{
    commit::Reason,
    delivery::{Delivery, State},
    endpoint::Health,
    id::{EndpointId, EventId, TenantId},
    inbox::Noted,
    lane::{LaneId, Pointer},
    ports::{Deliveries, Stored},
};
use jiff::Timestamp;

use crate::{
    error::cancelled,
    expression::Expression,
    fanout::{DeliveriesTable, pointer},
    item::{Item, Reader, ms, n, s, word},
    items::{delivery, health, lane},
    keys,
    table::{Range, Table, Transacted, partition, transact},
};

fn read_pointer(item: &Item) -> Stored<Pointer> {
    let item = Reader(item);
    keys::read_pointer(item.str("sk")?).ok_or_else(|| item.bad("sk"))
}

fn pointers(lane: &LaneId) -> Expression {
    partition(keys::lane_partition(lane))
}

impl DeliveriesTable {
    /// A delivery that is given up can be redelivered, so its event must stay: its expiry goes first, and a death in
    /// between leaves an event too long instead of too short.
    async fn keep_event(&self, tenant: &TenantId, event: EventId) -> Stored<()> {
        let Some(name) = &self.outbox else { return Ok(()) };
        let change = Expression::new().clear(["expires_at"]).when("attribute_exists(#pk)", []);
        let outbox = Table { client: &self.client, name };
        outbox.update(keys::outgoing(tenant, event), &change).await.map(drop)
    }
}

impl Deliveries for DeliveriesTable {
    async fn due(&self, lane: &LaneId, now: Timestamp, limit: usize) -> Stored<Vec<Pointer>> {
        let until_now = pointers(lane).when(
            "#sk BETWEEN :first AND :last",
            [("first", s(keys::POINTERS)), ("last", s(keys::pointers_until(now)))],
        );
        self.table().rows(&Range::partition(until_now).limit(limit), read_pointer).await
    }

    async fn next_due(&self, lane: &LaneId) -> Stored<Option<Timestamp>> {
        let all = pointers(lane).when("begins_with(#sk, :first)", [("first", s(keys::POINTERS))]);
        let first = self.table().rows(&Range::partition(all).limit(1), read_pointer).await?;
        Ok(first.first().map(|pointer| pointer.due_at))
    }

    async fn read(&self, lane: &LaneId, events: &[EventId]) -> Stored<Vec<Delivery>> {
        let keys = events.iter().map(|event| keys::delivery(lane, *event));
        let items = self.table().get_all(keys).await?;
        let mut found = items.iter().map(delivery::read).collect::<Stored<Vec<_>>>()?;
        // A batch comes in no order; the callers' is that of their pointers.
        found.sort_by_key(|delivery| events.iter().position(|event| *event == delivery.event));
        Ok(found)
    }

    async fn record(&self, lane: &LaneId, before: &Delivery, after: &Delivery) -> Stored<Noted> {
        if after.state == State::Dead {
            self.keep_event(&lane.tenant, after.event).await?;
        }
        let change = delivery::change(after, self.retention)?.when(
            "#state = :pending AND #attempts = :read_attempts",
            [("pending", word(&State::Pending)), ("read_attempts", n(before.attempts))],
        );
        let change = match delivery::begun(before)? {
            Some(mark) => change.when("#begun = :read_begun", [("read_begun", mark)]),
            None => change.when("attribute_not_exists(#begun)", []),
        };
        Ok(self.table().update(keys::delivery(lane, before.event), &change).await?.noted())
    }

    async fn point(&self, lane: &LaneId, to: &Pointer) -> Stored<()> {
        self.table().put_anyway(pointer(lane, to)).await
    }

    async fn unpoint(&self, lane: &LaneId, to: &Pointer) -> Stored<()> {
        self.table().delete(keys::pointer(lane, to)).await
    }

    async fn redeliver(
        &self,
        lane: &LaneId,
        event: EventId,
        deadline: Timestamp,
        now: Timestamp,
    ) -> Stored<Noted> {
        let again = Expression::new()
            .set("state", word(&State::Pending))
            .set("due_at", ms(now))
            .set("deadline", ms(deadline))
            .clear(["finished_at", "expires_at", "begun"])
            .when("attribute_exists(#pk) AND #state <> :state", []);
        let due = Pointer { due_at: now, event };
        let table = self.table();
        let actions = vec![
            table.updating(keys::delivery(lane, event), &again)?,
            table.putting(pointer(lane, &due), &Expression::new())?,
            table.updating(keys::lane(lane), &lane::wake(lane, self.shards, now))?,
        ];
        match transact(&self.client, actions, None).await? {
            Transacted::Done => Ok(Noted::Yes),
            Transacted::Cancelled(reasons) if reasons.first() == Some(&Reason::ConditionFailed) => {
                Ok(Noted::Moved)
            }
            Transacted::Cancelled(reasons) => Err(cancelled(&reasons)),
        }
    }

    async fn health(&self, tenant: &TenantId, endpoint: EndpointId) -> Stored<Health> {
        let item = self.table().get(keys::health(tenant, endpoint)).await?;
        Ok(item.as_ref().map(health::read).transpose()?.unwrap_or_default())
    }

    async fn note_health(
        &self,
        tenant: &TenantId,
        endpoint: EndpointId,
        health: &Health,
    ) -> Stored<()> {
        self.table().put_anyway(health::write(tenant, endpoint, health)).await
    }
}
