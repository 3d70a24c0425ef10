//! Lanes, deliveries and pointers in memory.

use domain::{
    delivery::{Delivery, NewDelivery, State},
    endpoint::{Endpoint, Health, Notice},
    id::{EndpointId, EventId, TenantId, shard_of},
    inbox::Noted,
    lane::{Hold, Kind, LaneId, Left, Pointer, Release, Take},
    ports::{Backlog, Deliveries, Due, Fanout, Lanes, Notices, Stored},
};
use jiff::Timestamp;

use super::{LaneItem, Store, Tables};

fn held<'a>(tables: &'a mut Tables, hold: &Hold) -> Option<&'a mut LaneItem> {
    let item = tables.lanes.get_mut(&hold.lane)?;
    (item.fence == hold.fence).then_some(item)
}

fn sleepers(
    tables: &Tables,
    shard: u16,
    shards: u16,
    now: Timestamp,
) -> impl Iterator<Item = (Timestamp, &LaneId)> {
    tables
        .lanes
        .iter()
        .filter(move |(id, _)| shard_of(&id.to_string(), shards) == shard)
        .filter_map(|(id, item)| Some((item.wake_at?, id)))
        .filter(move |(at, _)| *at <= now)
}

fn pointers<'t>(
    tables: &'t Tables,
    lane: &'t LaneId,
    kind: Kind,
) -> impl Iterator<Item = &'t Pointer> {
    let of_lane =
        tables.pointers.iter().filter(move |(id, pointer)| id == lane && pointer.kind == kind);
    of_lane.map(|(_, pointer)| pointer)
}

impl Fanout for Store {
    async fn put(&self, new: &NewDelivery) -> Stored<()> {
        self.call("fanout.put_delivery", |tables| {
            let key = (new.lane.clone(), new.delivery.event);
            tables.deliveries.entry(key).or_insert_with(|| new.delivery.clone());
        })
        .await?;
        self.call("fanout.put_pointer", |tables| {
            tables.pointers.insert((new.lane.clone(), Pointer::of(&new.delivery)));
        })
        .await
    }

    async fn put_awake(&self, new: &NewDelivery, now: Timestamp) -> Stored<()> {
        let NewDelivery { lane, delivery } = new;
        self.call("fanout.put_awake", |tables| {
            let key = (lane.clone(), delivery.event);
            if tables.deliveries.contains_key(&key) {
                return;
            }
            tables.deliveries.insert(key, delivery.clone());
            tables.pointers.insert((lane.clone(), Pointer::of(delivery)));
            wake(tables, lane, now);
        })
        .await
    }

    async fn wake(&self, lane: &LaneId, now: Timestamp) -> Stored<()> {
        self.call("fanout.wake", |tables| wake(tables, lane, now)).await
    }
}

fn wake(tables: &mut Tables, lane: &LaneId, now: Timestamp) {
    let item = tables.lanes.entry(lane.clone()).or_default();
    item.wakes += 1;
    item.wake_at = Some(now);
}

impl Lanes for Store {
    async fn take(
        &self,
        lane: &LaneId,
        owner: &str,
        now: Timestamp,
        until: Timestamp,
    ) -> Stored<Take> {
        self.call("lanes.take", |tables| {
            let Some(item) = tables.lanes.get_mut(lane) else { return Take::Absent };
            if item.holder.as_ref().is_some_and(|(_, ends)| *ends > now) {
                return Take::Busy;
            }
            item.fence += 1;
            item.holder = Some((owner.to_owned(), until));
            Take::Held(Hold {
                lane: lane.clone(),
                owner: owner.to_owned(),
                fence: item.fence,
                seen: item.wakes,
                until,
                left: item.left,
            })
        })
        .await
    }

    async fn renew(&self, hold: &Hold, until: Timestamp) -> Stored<bool> {
        self.call("lanes.renew", |tables| match held(tables, hold) {
            Some(item) => {
                item.holder = Some((hold.owner.clone(), until));
                true
            }
            None => false,
        })
        .await
    }

    async fn release(
        &self,
        hold: &Hold,
        wake_at: Option<Timestamp>,
        left: Left,
    ) -> Stored<Release> {
        self.call("lanes.release", |tables| match held(tables, hold) {
            None => Release::Lost,
            Some(item) if item.wakes != hold.seen => Release::Woken(item.wakes),
            Some(item) => {
                (item.holder, item.wake_at, item.left) = (None, wake_at, left);
                Release::Done
            }
        })
        .await
    }

    async fn sleepers(&self, shard: u16, now: Timestamp, limit: usize) -> Stored<Vec<LaneId>> {
        let shards = self.shards;
        self.call("lanes.sleepers", |tables| {
            let mut found: Vec<_> = sleepers(tables, shard, shards, now).collect();
            found.sort();
            found.into_iter().take(limit).map(|(_, id)| id.clone()).collect()
        })
        .await
    }

    async fn due_backlog(&self, shard: u16, now: Timestamp) -> Stored<Backlog> {
        let shards = self.shards;
        self.call("lanes.due_backlog", |tables| {
            sleepers(tables, shard, shards, now)
                .map(|(at, _)| Backlog { count: 1, oldest: Some(at) })
                .fold(Backlog::default(), Backlog::and)
        })
        .await
    }
}

impl Deliveries for Store {
    async fn due(&self, lane: &LaneId, kind: Kind, due: Due, limit: usize) -> Stored<Vec<Pointer>> {
        self.call("deliveries.due", |tables| {
            let asked = |at: Timestamp| due.from.is_none_or(|from| at >= from) && at <= due.until;
            pointers(tables, lane, kind).filter(|p| asked(p.due_at)).take(limit).cloned().collect()
        })
        .await
    }

    async fn next_due(&self, lane: &LaneId, kind: Kind) -> Stored<Option<Timestamp>> {
        self.call("deliveries.next_due", |tables| {
            pointers(tables, lane, kind).next().map(|pointer| pointer.due_at)
        })
        .await
    }

    async fn list(
        &self,
        lane: &LaneId,
        after: Option<EventId>,
        limit: usize,
    ) -> Stored<Vec<Delivery>> {
        self.call("deliveries.list", |tables| {
            let of_lane = tables.deliveries.iter().filter(|((id, _), _)| id == lane);
            of_lane
                .filter(|((_, event), _)| after.is_none_or(|after| *event > after))
                .map(|(_, delivery)| delivery.clone())
                .take(limit)
                .collect()
        })
        .await
    }

    async fn read(&self, lane: &LaneId, events: &[EventId]) -> Stored<Vec<Delivery>> {
        self.call("deliveries.read", |tables| {
            let read = |event: &EventId| tables.deliveries.get(&(lane.clone(), *event)).cloned();
            events.iter().filter_map(read).collect()
        })
        .await
    }

    async fn record(&self, lane: &LaneId, before: &Delivery, after: &Delivery) -> Stored<Noted> {
        self.call("deliveries.record", |tables| {
            match tables.deliveries.get_mut(&(lane.clone(), before.event)) {
                Some(item)
                    if item.state == State::Pending
                        && item.attempts == before.attempts
                        && item.begun == before.begun =>
                {
                    *item = after.clone();
                    Noted::Yes
                }
                Some(item) if item.stands_as(after) => Noted::Yes,
                _ => Noted::Moved,
            }
        })
        .await
    }

    async fn point(&self, lane: &LaneId, pointer: &Pointer) -> Stored<()> {
        self.call("deliveries.point", |tables| {
            tables.pointers.insert((lane.clone(), pointer.clone()));
        })
        .await
    }

    async fn unpoint(&self, lane: &LaneId, pointer: &Pointer) -> Stored<()> {
        self.call("deliveries.unpoint", |tables| {
            tables.pointers.remove(&(lane.clone(), pointer.clone()));
        })
        .await
    }

    async fn redeliver(
        &self,
        lane: &LaneId,
        event: EventId,
        deadline: Timestamp,
        now: Timestamp,
    ) -> Stored<Noted> {
        self.call("deliveries.redeliver", |tables| {
            match tables.deliveries.get_mut(&(lane.clone(), event)) {
                Some(item) if item.state != State::Pending => {
                    *item = item.asked_for(deadline, now);
                    let due = Pointer::of(item);
                    tables.pointers.insert((lane.clone(), due));
                }
                _ => return Noted::Moved,
            }
            let item = tables.lanes.entry(lane.clone()).or_default();
            item.wakes += 1;
            item.wake_at = Some(now);
            Noted::Yes
        })
        .await
    }

    async fn health(&self, tenant: &TenantId, endpoint: EndpointId) -> Stored<Health> {
        let key = (tenant.clone(), endpoint);
        self.call("deliveries.health", |tables| {
            tables.health.get(&key).cloned().unwrap_or_default()
        })
        .await
    }

    async fn note_health(
        &self,
        tenant: &TenantId,
        endpoint: EndpointId,
        health: &Health,
    ) -> Stored<Noted> {
        let key = (tenant.clone(), endpoint);
        self.call("deliveries.note_health", |tables| {
            let version = tables.health.get(&key).map_or(0, |health| health.version);
            if version.checked_add(1) != Some(health.version) {
                return Noted::Moved;
            }
            tables.health.insert(key, health.clone());
            Noted::Yes
        })
        .await
    }
}

/// Notices are kept, to look at.
impl Notices for Store {
    async fn tell(&self, endpoint: &Endpoint, notice: &Notice) -> Stored<()> {
        self.call("notices.tell", |tables| {
            tables.notices.push((endpoint.id, notice.clone()));
        })
        .await
    }
}
