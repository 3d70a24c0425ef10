//! The outbox in memory.

use domain::{
    id::{EndpointId, EventId, TenantId, shard_of},
    outbox::{OutboxEvent, OutboxRow, Relayed},
    ports::{Backlog, Outbox, Published, Stored},
};
use jiff::Timestamp;

use super::{Store, Tables};

fn unrelayed(tables: &Tables, shard: u16, shards: u16) -> impl Iterator<Item = &OutboxEvent> {
    tables
        .outbox
        .values()
        .filter(|row| row.relayed.is_none())
        .map(|row| &row.event)
        .filter(move |event| shard_of(&event.id.to_string(), shards) == shard)
}

impl Outbox for Store {
    async fn publish(
        &self,
        event: &OutboxEvent,
        idempotency_key: Option<&str>,
    ) -> Stored<Published> {
        self.call("outbox.publish", |tables| {
            let hash = event.fingerprint();
            let request = idempotency_key.map(|key| (event.tenant.clone(), key.to_owned()));
            if let Some(request) = request {
                if let Some((before, old)) = tables.requests.get(&request) {
                    return if *old == hash {
                        Published::Before(*before)
                    } else {
                        Published::Other
                    };
                }
                tables.requests.insert(request, (event.id, hash));
            }
            let row = OutboxRow { event: event.clone(), relayed: None };
            tables.outbox.insert((event.tenant.clone(), event.id), row);
            tables.stream.push(event.clone());
            Published::New
        })
        .await
    }

    async fn publish_to(&self, event: &OutboxEvent, relayed: &Relayed) -> Stored<()> {
        self.call("outbox.publish_to", |tables| {
            let row = OutboxRow { event: event.clone(), relayed: Some(relayed.clone()) };
            tables.outbox.entry((event.tenant.clone(), event.id)).or_insert(row);
        })
        .await
    }

    async fn event(&self, tenant: &TenantId, id: EventId) -> Stored<Option<OutboxRow>> {
        let key = (tenant.clone(), id);
        self.call("outbox.event", |tables| tables.outbox.get(&key).cloned()).await
    }

    async fn mark(&self, tenant: &TenantId, id: EventId, relayed: &Relayed) -> Stored<()> {
        let key = (tenant.clone(), id);
        self.call("outbox.mark", |tables| {
            if let Some(row) = tables.outbox.get_mut(&key).filter(|row| row.relayed.is_none()) {
                row.relayed = Some(relayed.clone());
                tables.reached.remove(&key);
            }
        })
        .await
    }

    async fn checkpoint(
        &self,
        tenant: &TenantId,
        id: EventId,
        so_far: &[EndpointId],
    ) -> Stored<()> {
        let key = (tenant.clone(), id);
        self.call("outbox.checkpoint", |tables| {
            if tables.outbox.get(&key).is_some_and(|row| row.relayed.is_none()) {
                tables.reached.insert(key, so_far.to_vec());
            }
        })
        .await
    }

    async fn reached(&self, tenant: &TenantId, id: EventId) -> Stored<Vec<EndpointId>> {
        let key = (tenant.clone(), id);
        self.call("outbox.reached", |tables| {
            let relayed = tables.outbox.get(&key).and_then(|row| row.relayed.as_ref());
            let relayed = relayed.map(|relayed| relayed.endpoints.clone());
            relayed.or_else(|| tables.reached.get(&key).cloned()).unwrap_or_default()
        })
        .await
    }

    async fn unmatched(
        &self,
        tenant: &TenantId,
        before: Timestamp,
        limit: usize,
    ) -> Stored<Vec<(Timestamp, EventId)>> {
        self.call("outbox.unmatched", |tables| {
            let is_unmatched = |row: &&OutboxRow| {
                row.relayed.as_ref().is_some_and(|relayed| relayed.endpoints.is_empty())
            };
            let events = tables.outbox.values().filter(is_unmatched).map(|row| &row.event);
            let mut found: Vec<_> = events
                .filter(|event| event.tenant == *tenant && event.occurred_at < before)
                .map(|event| (event.occurred_at, event.id))
                .collect();
            found.sort_unstable_by(|a, b| b.cmp(a));
            found.truncate(limit);
            found
        })
        .await
    }

    async fn unrelayed(
        &self,
        shard: u16,
        before: Timestamp,
        limit: usize,
    ) -> Stored<Vec<(TenantId, EventId)>> {
        let shards = self.shards;
        self.call("outbox.unrelayed", |tables| {
            let mut found: Vec<_> = unrelayed(tables, shard, shards)
                .filter(|event| event.occurred_at < before)
                .map(|event| (event.occurred_at, event.tenant.clone(), event.id))
                .collect();
            found.sort();
            found.into_iter().take(limit).map(|(_, tenant, id)| (tenant, id)).collect()
        })
        .await
    }

    async fn unrelayed_backlog(&self, shard: u16) -> Stored<Backlog> {
        let shards = self.shards;
        self.call("outbox.unrelayed_backlog", |tables| {
            unrelayed(tables, shard, shards)
                .map(|event| Backlog { count: 1, oldest: Some(event.occurred_at) })
                .fold(Backlog::default(), Backlog::and)
        })
        .await
    }
}
