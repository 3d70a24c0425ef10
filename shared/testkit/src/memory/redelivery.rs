//! Redelivery in memory.

use domain::{
    delivery::{Delivery, State},
    id::{EndpointId, EventId, RedeliveryId, TenantId, shard_of},
    inbox::Noted,
    lane::{LaneId, Pointer},
    outbox::OutboxRow,
    ports::{Again, Events, Halt, Redeliver, Redeliveries, Started, Stored},
    redelivery::Work,
};
use jiff::Timestamp;

use super::Store;

/// Shards of a tenant's events.
const EVENT_SHARDS: u16 = 4;

impl Redeliver for Store {
    async fn redeliver_as(
        &self,
        lane: &LaneId,
        before: &Delivery,
        after: &Delivery,
        now: Timestamp,
    ) -> Stored<Again> {
        self.call("redeliver.redeliver_as", |tables| {
            let Some(item) = tables.deliveries.get_mut(&(lane.clone(), before.event)) else {
                return Again::Moved;
            };
            let as_read = item.state == before.state
                && item.state != State::Pending
                && item.attempts == before.attempts
                && item.finished_at == before.finished_at;
            if !as_read {
                let mark = |of: &Delivery| Some(of.redelivered.as_ref()?.by);
                return if mark(item) == mark(after) { Again::Before } else { Again::Moved };
            }
            *item = after.clone();
            tables.pointers.insert((lane.clone(), Pointer::of(after)));
            let item = tables.lanes.entry(lane.clone()).or_default();
            item.wakes += 1;
            item.wake_at = Some(now);
            Again::Yes
        })
        .await
    }

    async fn log(
        &self,
        lane: &LaneId,
        from: Option<EventId>,
        newest_first: bool,
        limit: usize,
    ) -> Stored<Vec<Delivery>> {
        self.call("redeliver.log", |tables| {
            let of_lane = tables.deliveries.iter().filter(|((id, _), _)| id == lane);
            let deliveries = of_lane.map(|(_, delivery)| delivery.clone());
            if newest_first {
                let is_before = |of: &Delivery| from.is_none_or(|from| of.event < from);
                deliveries.rev().filter(is_before).take(limit).collect()
            } else {
                let is_after = |of: &Delivery| from.is_none_or(|from| of.event > from);
                deliveries.filter(is_after).take(limit).collect()
            }
        })
        .await
    }
}

impl Events for Store {
    async fn keep(
        &self,
        tenant: &TenantId,
        event: EventId,
        until: Timestamp,
        now: Timestamp,
    ) -> Stored<Option<OutboxRow>> {
        let key = (tenant.clone(), event);
        self.call("events.keep", |tables| {
            if let Some(expires_at) = tables.outbox_expiry.get_mut(&key) {
                if *expires_at <= now {
                    return None;
                }
                *expires_at = until.max(*expires_at);
            }
            tables.outbox.get(&key).cloned()
        })
        .await
    }

    async fn also_to(&self, tenant: &TenantId, event: EventId, endpoint: EndpointId) -> Stored<()> {
        let key = (tenant.clone(), event);
        self.call("events.also_to", |tables| {
            let row = tables.outbox.get_mut(&key);
            if let Some(relayed) = row.and_then(|row| row.relayed.as_mut())
                && !relayed.endpoints.contains(&endpoint)
            {
                relayed.endpoints.push(endpoint);
            }
        })
        .await
    }

    async fn events(
        &self,
        tenant: &TenantId,
        shard: u16,
        after: Option<EventId>,
        limit: usize,
    ) -> Stored<Vec<OutboxRow>> {
        self.call("events.events", |tables| {
            let of_shard = |id: &EventId| shard_of(&id.to_string(), EVENT_SHARDS) == shard;
            let rows = tables.outbox.iter().filter(|((of, id), _)| of == tenant && of_shard(id));
            let rows = rows.filter(|((_, id), _)| after.is_none_or(|after| *id > after));
            rows.map(|(_, row)| row.clone()).take(limit).collect()
        })
        .await
    }

    fn event_shards(&self) -> u16 {
        EVENT_SHARDS
    }
}

impl Redeliveries for Store {
    async fn start_redelivery(&self, work: &Work, most: usize) -> Stored<Started> {
        self.call("redeliveries.start", |tables| {
            if let Some(before) = tables.redeliveries.get(&work.id) {
                return Started::Before(Box::new(before.clone()));
            }
            if tables.open_redeliveries.len() >= most {
                return Started::TooMany;
            }
            tables.redeliveries.insert(work.id, work.clone());
            tables.open_redeliveries.insert(work.id);
            Started::Yes
        })
        .await
    }

    async fn redelivery(&self, id: RedeliveryId) -> Stored<Option<Work>> {
        self.call("redeliveries.read", |tables| tables.redeliveries.get(&id).cloned()).await
    }

    async fn redeliveries(&self, tenant: &TenantId, limit: usize) -> Stored<Vec<Work>> {
        self.call("redeliveries.list", |tables| {
            let works = tables.redeliveries.values().filter(|work| work.tenant == *tenant);
            let mut works: Vec<_> = works.cloned().collect();
            works.sort_by_key(|work| std::cmp::Reverse((work.began, work.id)));
            works.truncate(limit);
            works
        })
        .await
    }

    async fn open_redeliveries(&self) -> Stored<Vec<RedeliveryId>> {
        self.call("redeliveries.open", |tables| tables.open_redeliveries.iter().copied().collect())
            .await
    }

    async fn advance_redelivery(&self, after: &Work) -> Stored<Option<Work>> {
        self.call("redeliveries.advance", |tables| {
            let work = tables.redeliveries.get_mut(&after.id)?;
            if work.version + 1 != after.version {
                return None;
            }
            let (cancelled, paused) = (work.cancelled.clone(), work.paused.clone());
            *work = Work { cancelled, paused, ..after.clone() };
            Some(work.clone())
        })
        .await
    }

    async fn halt_redelivery(
        &self,
        id: RedeliveryId,
        how: Halt,
        by: &str,
        now: Timestamp,
    ) -> Stored<Noted> {
        self.call("redeliveries.halt", |tables| {
            let Some(work) = tables.redeliveries.get_mut(&id).filter(|work| !work.is_over()) else {
                return Noted::Moved;
            };
            let mark = Some((now, by.to_owned()));
            match (how, &work.paused) {
                (Halt::Cancel, _) => work.cancelled = mark,
                (Halt::Pause, None) => work.paused = mark,
                (Halt::Resume, Some(_)) => work.paused = None,
                (Halt::Pause, Some(_)) | (Halt::Resume, None) => return Noted::Moved,
            }
            Noted::Yes
        })
        .await
    }

    async fn close_redelivery(&self, id: RedeliveryId) -> Stored<()> {
        self.call("redeliveries.close", |tables| {
            tables.open_redeliveries.remove(&id);
        })
        .await
    }
}
