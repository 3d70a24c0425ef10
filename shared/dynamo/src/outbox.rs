//! Outgoing events.

use std::time::Duration;

use aws_sdk_dynamodb::{Client, types::TransactWriteItem};
use domain::{
    body::Sha256Hash,
    id::{EndpointId, EventId, TenantId},
    outbox::{OutboxEvent, OutboxRow, Relayed},
    ports::{Backlog, Outbox, Published, StoreError, Stored},
};
use jiff::Timestamp;

use crate::{
    expression::Expression,
    item::{Item, Reader, Writer, b, ms, n, s, seconds},
    items::outgoing::{self, DONE, KEPT, NEW},
    keys,
    table::{self, Range, Table, Write},
};

/// The table of outgoing events.
#[derive(Clone, Debug)]
pub struct OutboxTable {
    /// The SDK's client.
    pub client: Client,
    /// The name of the table.
    pub table: String,
    /// Shards of the index of events that are still NEW. May grow; events keep the shard they were put into.
    pub shards: u16,
    /// How long a relayed event, and the idempotency key of a published one, stay.
    pub retention: Duration,
    /// The name of the state's table, where the idempotency keys stand; `None` for a function that never publishes with one.
    pub requests: Option<String>,
}

/// The action that puts an event into the table `name`, for somebody else's transaction: its condition is that the event
/// is not there yet. `shards` as in [`OutboxTable::shards`].
///
/// # Errors
/// [`StoreError::Refused`], should the SDK not take it.
pub fn in_transaction(event: &OutboxEvent, name: &str, shards: u16) -> Stored<TransactWriteItem> {
    table::putting(name, outgoing::write(event, shards), &Expression::absent())
}

/// How much longer than a published event its idempotency key stays: an event lives from when it is relayed, a key from
/// when it was used, and the sweeper has relayed what the stream has not within that time.
const KEY_OUTLIVES: Duration = Duration::from_hours(24);

impl OutboxTable {
    /// The default of [`Self::retention`], which is the template's: 90 days.
    pub const RETENTION: Duration = Duration::from_hours(90 * 24);

    /// The table as those see it who do not publish.
    pub fn new(client: Client, table: impl Into<String>, shards: u16) -> Self {
        let (table, retention) = (table.into(), Self::RETENTION);
        Self { client, table, shards, retention, requests: None }
    }

    pub(crate) fn table(&self) -> Table<'_> {
        Table { client: &self.client, name: &self.table }
    }

    /// Puts an event if it is absent.
    async fn put(&self, event: &OutboxEvent) -> Stored<()> {
        let item = outgoing::write(event, self.shards);
        self.table().put(item, &Expression::absent()).await.map(drop)
    }

    /// Takes an idempotency key, and says whose it is and since when.
    ///
    /// Not one transaction with the event, which would cost twice the writes and could conflict: the key first, then the
    /// event, and whoever repeats the call puts the event again if it is absent. A death in between loses nothing, for
    /// the caller has no answer yet.
    async fn request(&self, event: &OutboxEvent, key: &str) -> Stored<Request> {
        let Some(name) = &self.requests else {
            let cause = "this function was not told where idempotency keys stand";
            return Err(StoreError::Refused(cause.into()));
        };
        let sha256 = event.fingerprint();
        let expires_at = later(event.occurred_at, self.retention.saturating_add(KEY_OUTLIVES));
        let item = Writer::new(keys::request(&event.tenant, key), "request")
            .put("event", s(event.id.to_string()))
            .put("sha256", b(sha256.0))
            .put("at", ms(event.occurred_at))
            .put("expires_at", seconds(expires_at))
            .done();
        // An expired key counts as absent, whether or not the store has deleted it yet.
        let now = n(event.occurred_at.as_second());
        let only = Expression::new()
            .when("attribute_not_exists(#pk) OR #expires_at <= :now", [("now", now)]);
        match (Table { client: &self.client, name }).put(item, &only).await? {
            Write::Done(_) => Ok(Request { event: event.id, sha256, at: event.occurred_at }),
            Write::Refused(old) => read_request(&old),
        }
    }
}

/// An idempotency key that is taken.
struct Request {
    event: EventId,
    sha256: Sha256Hash,
    at: Timestamp,
}

fn read_request(item: &Item) -> Stored<Request> {
    let item = Reader(item);
    let sha256 = item.bytes("sha256")?.try_into().map_err(|_| item.bad("sha256"))?;
    Ok(Request { event: item.parse("event")?, sha256: Sha256Hash(sha256), at: item.time("at")? })
}

fn later(at: Timestamp, by: Duration) -> Timestamp {
    at.saturating_add(by).unwrap_or(Timestamp::MAX)
}

fn new_in(shard: u16) -> Expression {
    Expression::new().when("#unrelayed_shard = :shard", [("shard", keys::shard_value(shard))])
}

impl Outbox for OutboxTable {
    async fn publish(&self, event: &OutboxEvent, key: Option<&str>) -> Stored<Published> {
        let Some(key) = key else {
            self.put(event).await?;
            return Ok(Published::New);
        };
        let request = self.request(event, key).await?;
        if request.event == event.id {
            self.put(event).await?;
            return Ok(Published::New);
        }
        // All of the event, not only its payload: what is put below, in the place of a first call that died, must be what
        // that call would have put.
        if request.sha256 != event.fingerprint() {
            return Ok(Published::Other);
        }
        // The first call may have died before it put the event. Once an event of that age may have been relayed and
        // have expired, its absence says nothing, and putting it again would send it again.
        if event.occurred_at < later(request.at, self.retention) {
            self.put(&OutboxEvent { id: request.event, ..event.clone() }).await?;
        }
        Ok(Published::Before(request.event))
    }

    async fn publish_to(&self, event: &OutboxEvent, relayed: &Relayed) -> Stored<()> {
        let mut item = outgoing::write(event, self.shards);
        // Never NEW: the stream's filter and the index of what is owed leave it out.
        item.remove("unrelayed_shard");
        item.extend([
            ("relay_state".to_owned(), s(DONE)),
            ("relayed_at".to_owned(), ms(relayed.at)),
            ("endpoints".to_owned(), outgoing::endpoints(&relayed.endpoints)),
            ("expires_at".to_owned(), seconds(later(relayed.at, self.retention))),
        ]);
        self.table().put(item, &Expression::absent()).await.map(drop)
    }

    async fn event(&self, tenant: &TenantId, id: EventId) -> Stored<Option<OutboxRow>> {
        let item = self.table().get(keys::outgoing(tenant, id)).await?;
        item.as_ref().map(outgoing::read).transpose()
    }

    async fn mark(&self, tenant: &TenantId, id: EventId, relayed: &Relayed) -> Stored<()> {
        let nobody = relayed.endpoints.is_empty();
        // The first to finish a fan-out marks it; an event that is gone is not revived as half a row.
        let mark = Expression::new()
            .set("relay_state", s(DONE))
            .set("relayed_at", ms(relayed.at))
            .set("endpoints", outgoing::endpoints(&relayed.endpoints))
            // What nobody wanted stays in the index, in a partition of its tenant's, until the row goes.
            .set_or_clear("unrelayed_shard", nobody.then(|| keys::unmatched_shard(tenant, id)))
            .clear(["checkpoint"])
            .when("#relay_state = :new", [("new", s(NEW))]);
        let expires = mark
            .clone()
            .set("expires_at", seconds(later(relayed.at, self.retention)))
            .when("attribute_not_exists(#kept)", []);
        let old = match self.table().update(keys::outgoing(tenant, id), &expires).await? {
            Write::Done(_) => return Ok(()),
            Write::Refused(old) => old,
        };
        // One of its deliveries was given up already, and needs it.
        if old.contains_key(KEPT) {
            self.table().update(keys::outgoing(tenant, id), &mark).await?;
        }
        Ok(())
    }

    async fn checkpoint(
        &self,
        tenant: &TenantId,
        id: EventId,
        so_far: &[EndpointId],
    ) -> Stored<()> {
        let Some(last) = so_far.last() else { return Ok(()) };
        // The stream shows this change too, as it shows the event itself; its filter leaves out what has a checkpoint.
        let change = Expression::new()
            .set("checkpoint", s(last.to_string()))
            .set("endpoints", outgoing::endpoints(so_far))
            .when("#relay_state = :new", [("new", s(NEW))]);
        self.table().update(keys::outgoing(tenant, id), &change).await.map(drop)
    }

    async fn reached(&self, tenant: &TenantId, id: EventId) -> Stored<Vec<EndpointId>> {
        let item = self.table().get(keys::outgoing(tenant, id)).await?;
        item.as_ref().map_or_else(|| Ok(Vec::new()), outgoing::read_endpoints)
    }

    async fn unmatched(
        &self,
        tenant: &TenantId,
        before: Timestamp,
        limit: usize,
    ) -> Stored<Vec<(Timestamp, EventId)>> {
        let event = |item: &Item| {
            let item = Reader(item);
            Ok((item.time("occurred_at")?, item.parse("sk")?))
        };
        let mut found = Vec::new();
        for shard in 0..keys::UNMATCHED_SHARDS {
            let old = Expression::new()
                .when("#unrelayed_shard = :shard", [("shard", keys::unmatched_in(tenant, shard))])
                .when("#occurred_at < :before", [("before", ms(before))]);
            let range = Range::index(keys::BY_UNRELAYED, old).newest_first().limit(limit);
            found.extend(self.table().named(&range, event).await?);
        }
        found.sort_unstable_by(|a, b| b.cmp(a));
        found.truncate(limit);
        Ok(found)
    }

    async fn unrelayed(
        &self,
        shard: u16,
        before: Timestamp,
        limit: usize,
    ) -> Stored<Vec<(TenantId, EventId)>> {
        let old = new_in(shard).when("#occurred_at < :before", [("before", ms(before))]);
        let key = |item: &Item| {
            let item = Reader(item);
            let key = keys::read_outgoing(item.str("pk")?, item.str("sk")?);
            key.ok_or_else(|| item.bad("pk"))
        };
        self.table().named(&Range::index(keys::BY_UNRELAYED, old).limit(limit), key).await
    }

    async fn unrelayed_backlog(&self, shard: u16) -> Stored<Backlog> {
        let all = Range::index(keys::BY_UNRELAYED, new_in(shard));
        self.table().backlog(&all, "occurred_at").await
    }
}
