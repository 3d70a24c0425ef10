//! One deployment's tables, queues and bodies in memory.

mod bodies;
mod bulk;
mod inbox;
mod keyring;
mod lanes;
mod outbox;
mod published_keys;
mod queue;
mod redelivery;
mod registry;
mod state;
mod turns;
mod watch;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use domain::{
    body::Sha256Hash,
    bulk::Work,
    delivery::Delivery,
    endpoint::{Endpoint, Gone, Health, Notice},
    event::{Object, ObjectRef},
    id::{EndpointId, EventId, InboxKey, RedeliveryId, ReplayId, SourceName, TenantId},
    inbox::Row,
    lane::{LaneId, Left, Pointer},
    outbox::{OutboxEvent, OutboxRow},
    ports::{AuditEntry, Owed, PublishedKey, SealedSecret, Stored, turns::Standing},
    source::Source,
};
use jiff::Timestamp;

pub use self::{
    keyring::{MemoryKeyring, MemorySecrets},
    queue::{MemoryQueue, Received},
    watch::Watched,
};
use crate::chaos::Chaos;

/// All tables of one deployment. Implements every port that a table stands behind, and [`domain::ports::Bodies`].
#[derive(Debug)]
pub struct Store {
    /// Decides which calls fail.
    pub chaos: Chaos,
    /// Shards of every sharded index.
    pub shards: u16,
    tables: Mutex<Tables>,
}

impl Default for Store {
    fn default() -> Self {
        Self::new(8)
    }
}

/// The content of the tables, for tests to look at.
#[derive(Debug, Default)]
pub struct Tables {
    /// Inbox rows.
    pub inbox: BTreeMap<InboxKey, InboxItem>,
    /// Bodies beside inbox rows.
    pub beside: BTreeMap<(InboxKey, Sha256Hash), Vec<u8>>,
    /// Objects by source.
    pub objects: BTreeMap<(SourceName, ObjectRef), Object>,
    /// Operation keys that are taken.
    pub operations: BTreeSet<String>,
    /// Leases: owner, fence, until.
    pub leases: BTreeMap<String, (String, u64, Timestamp)>,
    /// How each source is doing.
    pub watched: BTreeMap<SourceName, Watched>,
    /// Keys that providers published.
    pub published: BTreeMap<SourceName, BTreeMap<String, PublishedKey>>,
    /// What is owed to providers, by source.
    pub owed: BTreeMap<SourceName, Vec<Owed>>,
    /// Turns at calling providers.
    pub turns: BTreeMap<SourceName, Standing>,
    /// Who is bringing the secret of a source that waits for one, until when.
    pub claims: BTreeMap<SourceName, (String, Timestamp)>,
    /// Idempotency keys of publishes: the event and the hash of its payload.
    pub requests: BTreeMap<(TenantId, String), (EventId, Sha256Hash)>,
    /// Outgoing events.
    pub outbox: BTreeMap<(TenantId, EventId), OutboxRow>,
    /// To whom events have gone so far that go in steps.
    pub reached: BTreeMap<(TenantId, EventId), Vec<EndpointId>>,
    /// Outgoing events in the order in which they were written, as the stream gives them.
    pub stream: Vec<OutboxEvent>,
    /// Lanes.
    pub lanes: BTreeMap<LaneId, LaneItem>,
    /// Deliveries by lane and event.
    pub deliveries: BTreeMap<(LaneId, EventId), Delivery>,
    /// Pointers by lane.
    pub pointers: BTreeSet<(LaneId, Pointer)>,
    /// Health by endpoint.
    pub health: BTreeMap<(TenantId, EndpointId), Health>,
    /// What owners of endpoints were told.
    pub notices: Vec<(EndpointId, Notice)>,
    /// Sources.
    pub sources: BTreeMap<SourceName, Source>,
    /// Endpoints and their sealed secrets.
    pub endpoints: BTreeMap<(TenantId, EndpointId), (Endpoint, Vec<SealedSecret>)>,
    /// Endpoints that were deleted.
    pub gone: BTreeMap<(TenantId, EndpointId), Gone>,
    /// Changes of a tenant's endpoints.
    pub epochs: BTreeMap<TenantId, u64>,
    /// Who did what.
    pub audit: Vec<AuditEntry>,
    /// Bulk work.
    pub bulks: BTreeMap<ReplayId, Work>,
    /// What of it is under way.
    pub open_bulks: BTreeSet<ReplayId>,
    /// Redeliveries of many.
    pub redeliveries: BTreeMap<RedeliveryId, domain::redelivery::Work>,
    /// What of them is under way.
    pub open_redeliveries: BTreeSet<RedeliveryId>,
    /// When outgoing events may go; one that is not here stays.
    pub outbox_expiry: BTreeMap<(TenantId, EventId), Timestamp>,
    /// Rows that the indexes do not list yet for those who walk them.
    pub unlisted: BTreeSet<InboxKey>,
    /// The bucket.
    pub bucket: BTreeMap<String, Vec<u8>>,
}

/// An inbox row and when it may go.
#[derive(Clone, Debug, PartialEq)]
pub struct InboxItem {
    /// The row.
    pub row: Row,
    /// When it may go; finished rows only.
    pub expires_at: Option<Timestamp>,
}

/// A lane's own item.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaneItem {
    /// Who holds it, until when.
    pub holder: Option<(String, Timestamp)>,
    /// Counts holders.
    pub fence: u64,
    /// Counts wakes.
    pub wakes: u64,
    /// When the sweeper wakes it.
    pub wake_at: Option<Timestamp>,
    /// What its last holder left.
    pub left: Left,
}

impl Store {
    /// Empty tables whose sharded indexes have this many shards.
    pub fn new(shards: u16) -> Self {
        Self { chaos: Chaos::default(), shards, tables: Mutex::default() }
    }

    /// The tables, to look at or to prepare, past all faults.
    pub fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn call<T>(
        &self,
        name: &'static str,
        effect: impl FnOnce(&mut Tables) -> T,
    ) -> Stored<T> {
        self.chaos.call(name, || effect(&mut self.tables())).await
    }
}
