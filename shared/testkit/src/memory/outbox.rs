//! The outbox in memory.

use domain::{
    id::{EventId, TenantId, shard_of},
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
            if let Some(row) = tables.outbox.get_mut(&key) {
                row.relayed = Some(relayed.clone());
            }
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
