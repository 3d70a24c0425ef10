//! Deliveries of a lane, and the pointers that say when they are due.

use aws_sdk_dynamodb::types::AttributeValue;
use domain::{
    commit::Reason,
    delivery::{Delivery, State},
    endpoint::Health,
    id::{EndpointId, EventId, TenantId},
    inbox::Noted,
    lane::{Kind, LaneId, Pointer},
    ports::{Deliveries, Due, Stored},
};
use jiff::Timestamp;

use crate::{
    error::cancelled,
    expression::Expression,
    fanout::{DeliveriesTable, pointer},
    item::{Item, Reader, ms, n, s, word},
    items::{delivery, health, lane, outgoing::KEPT},
    keys,
    table::{Range, Table, Transacted, Write, partition, transact_in_lane},
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
        // Its event may not be marked as relayed yet: the mark must not set the expiry again.
        let change = Expression::new()
            .set(KEPT, AttributeValue::Bool(true))
            .clear(["expires_at"])
            .when("attribute_exists(#pk)", []);
        let outbox = Table { client: &self.client, name };
        outbox.update(keys::outgoing(tenant, event), &change).await.map(drop)
    }
}

impl Deliveries for DeliveriesTable {
    async fn due(&self, lane: &LaneId, kind: Kind, due: Due, limit: usize) -> Stored<Vec<Pointer>> {
        if due.is_empty() {
            // The table refuses a range that ends before it begins.
            return Ok(Vec::new());
        }
        let first = due.from.map(|from| keys::pointers_from(kind, from));
        let first = first.unwrap_or_else(|| keys::pointers(kind).to_owned());
        let range = pointers(lane).when(
            "#sk BETWEEN :first AND :last",
            [("first", s(first)), ("last", s(keys::pointers_until(kind, due.until)))],
        );
        self.table().rows(&Range::partition(range).limit(limit), read_pointer).await
    }

    async fn next_due(&self, lane: &LaneId, kind: Kind) -> Stored<Option<Timestamp>> {
        let first = [("first", s(keys::pointers(kind)))];
        let all = pointers(lane).when("begins_with(#sk, :first)", first);
        let first = self.table().rows(&Range::partition(all).limit(1), read_pointer).await?;
        Ok(first.first().map(|pointer| pointer.due_at))
    }

    async fn list(
        &self,
        lane: &LaneId,
        after: Option<EventId>,
        limit: usize,
    ) -> Stored<Vec<Delivery>> {
        let all = match after {
            // Both ends belong to a range: `!` comes right after the id, and `$` after the `#` of the prefix.
            Some(after) => pointers(lane).when(
                "#sk BETWEEN :first AND :last",
                [
                    ("first", s(format!("{}!", keys::delivery(lane, after).sk))),
                    ("last", s("DELIVERY$")),
                ],
            ),
            None => {
                pointers(lane).when("begins_with(#sk, :first)", [("first", s(keys::DELIVERIES))])
            }
        };
        self.table().rows(&Range::partition(all).limit(limit), delivery::read).await
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
        match self.table().update_and_read(keys::delivery(lane, before.event), &change).await? {
            Write::Done(_) => Ok(Noted::Yes),
            // The answer to our own write was lost, and the client has tried again.
            Write::Refused(now) if !now.is_empty() && delivery::read(&now)?.stands_as(after) => {
                Ok(Noted::Yes)
            }
            Write::Refused(_) => Ok(Noted::Moved),
        }
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
        // Read first, because the pointer's kind hangs on the attempts; they change only while it is pending.
        let table = self.table();
        let found = table.get(keys::delivery(lane, event)).await?;
        let before = match found.as_ref().map(delivery::read).transpose()? {
            Some(before) if before.state != State::Pending => before,
            Some(_) | None => return Ok(Noted::Moved),
        };
        let after = before.asked_for(deadline, now);
        let again = Expression::new()
            .set("state", word(&after.state))
            .set("due_at", ms(after.due_at))
            .set("deadline", ms(after.deadline))
            .set_or_clear("asked_at", after.asked_at.map(ms))
            .clear(["finished_at", "expires_at", "begun"])
            .when(
                "attribute_exists(#pk) AND #state <> :state AND #attempts = :read_attempts",
                [("read_attempts", n(before.attempts))],
            );
        let actions = vec![
            table.updating(keys::delivery(lane, event), &again)?,
            table.putting(pointer(lane, &Pointer::of(&after)), &Expression::new())?,
            table.updating(keys::lane(lane), &lane::wake(lane, self.shards, now))?,
        ];
        match transact_in_lane(&self.client, actions).await? {
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
    ) -> Stored<Noted> {
        let item = health::write(tenant, endpoint, health)?;
        let only = match health.version.saturating_sub(1) {
            // Absent, or of before versions were counted.
            0 => Expression::new().when("attribute_not_exists(#version)", []),
            before => Expression::new().when("#version = :before", [("before", n(before))]),
        };
        Ok(self.table().put(item, &only).await?.noted())
    }
}
