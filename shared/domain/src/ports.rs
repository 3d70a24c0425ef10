//! What the rules need from the world. Each port has two implementations, DynamoDB or AWS and memory, and a contract
//! suite that both pass.
//!
//! The methods say what happens in our words, not how a table does it. What callers branch on is an enum; an error
//! means that nothing is known, or that nothing can be done.

pub mod bulk;
pub mod configure;
pub mod published_keys;
pub mod redelivery;
pub mod sealed_secret;
pub mod source_secrets;
pub mod turns;
pub mod watch;

use std::{collections::BTreeSet, error::Error, time::Duration};

use jiff::Timestamp;

use crate::{
    commit::{Answer, Commit, LeaseProof},
    delivery::{Delivery, NewDelivery},
    endpoint::{Endpoint, Health, Notice},
    event::{Object, ObjectRef, Origin},
    id::{EndpointId, EventId, InboxKey, SourceName, TenantId},
    inbox::{Accepted, ChangeResult, Claim, Failure, NewRow, Noted, OtherBody, Row, Status},
    lane::{Hold, Kind, LaneId, Left, Pointer, Release, Take},
    message::Message,
    outbox::{OutboxEvent, OutboxRow, Relayed},
    secret::SecretText,
    source::Source,
};

pub use self::{
    bulk::{Again, Bulk, Start, Walk},
    configure::{AuditEntry, Configure, WithSecrets},
    published_keys::{KEY_LIFE, MAX_KEYS_OWED, MAX_OWED, Owed, PublishedKey, PublishedKeys, Want},
    redelivery::{Events, Halt, Redeliver, Redeliveries, Started},
    sealed_secret::{Purpose, SealedSecret},
    source_secrets::{Changed, Learning, SetSourceSecrets, SourceSecret, SourceSecrets},
    turns::{Turn, Turns},
    watch::{AcceptReport, RejectReport, RejectSample, SourceHealth, Watch},
};

/// The cause below an error of a port.
pub type Cause = Box<dyn Error + Send + Sync>;

/// Why a store could not do as it was asked. The answer to a write may be lost: it may have happened.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Too much at once: the same call will succeed later.
    #[error("the store is throttled")]
    Throttled(#[source] Cause),
    /// No answer, or a fault of the store's own.
    #[error("the store is unavailable")]
    Unavailable(#[source] Cause),
    /// The store will never take this call: malformed, too large, or not permitted.
    #[error("the store refused the call")]
    Refused(#[source] Cause),
    /// An item is not as this code writes it.
    #[error("an item of the store cannot be read: {0}")]
    Unreadable(String),
}

impl StoreError {
    /// Whether the same call may succeed later.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Throttled(_) | Self::Unavailable(_))
    }
}

/// The result of a call of a store.
pub type Stored<T> = Result<T, StoreError>;

/// Events received.
pub trait Inbox: Sync {
    /// Puts a row if it is absent. Meeting one's own token is [`Accepted::New`]: the answer to the first try was lost.
    fn accept(&self, row: &NewRow) -> impl Future<Output = Stored<Accepted>> + Send;

    /// Puts a compressed body beside its row-to-be, named by its hash. Putting it again changes nothing.
    fn put_beside(
        &self,
        row: &NewRow,
        compressed: &[u8],
    ) -> impl Future<Output = Stored<()>> + Send;

    /// The compressed body beside a row.
    fn beside(&self, row: &NewRow) -> impl Future<Output = Stored<Option<Vec<u8>>>> + Send;

    /// Reads a row, consistently.
    fn read(&self, key: &InboxKey) -> impl Future<Output = Stored<Option<Row>>> + Send;

    /// A parked row becomes pending again: attempts 0, cycle + 1, due at `due_at`. [`Noted::Moved`]: it is not parked.
    fn rearm(
        &self,
        key: &InboxKey,
        due_at: Timestamp,
        now: Timestamp,
    ) -> impl Future<Output = Stored<Noted>> + Send;

    /// A row that has had this status (parked, processed or ignored) since before this time becomes pending again.
    /// [`Noted::Moved`]: it is not so.
    fn revive(
        &self,
        key: &InboxKey,
        since: (Status, Timestamp),
        due_at: Timestamp,
        now: Timestamp,
    ) -> impl Future<Output = Stored<Noted>> + Send;

    /// A row in any state but pending becomes pending again, because a person asked. [`Noted::Moved`]: it is pending.
    fn replay(
        &self,
        key: &InboxKey,
        due_at: Timestamp,
        now: Timestamp,
    ) -> impl Future<Output = Stored<Noted>> + Send;

    /// Notes that another body came under a row's id: counts it, and keeps what the latest was. Works in every state, and
    /// changes nothing else of the row, its expiry included. [`Noted::Moved`]: there is no row.
    fn note_other_body(
        &self,
        key: &InboxKey,
        other: &OtherBody,
    ) -> impl Future<Output = Stored<Noted>> + Send;

    /// Notes a failed (or about to be tried) attempt: its count, its error, when the sweeper looks.
    fn note(&self, claim: &Claim, note: &AttemptNote)
    -> impl Future<Output = Stored<Noted>> + Send;

    /// Parks a row: `dead_letter`, without expiry.
    fn park(
        &self,
        claim: &Claim,
        attempts: u32,
        failure: &Failure,
        now: Timestamp,
    ) -> impl Future<Output = Stored<Noted>> + Send;

    /// Ends a row that changes nothing else: one write instead of a transaction.
    fn finish(&self, claim: &Claim, finish: &Finish) -> impl Future<Output = Stored<Noted>> + Send;
}

/// What is written of an attempt that has not finished the row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptNote {
    /// The count of attempts from now on.
    pub attempts: u32,
    /// What went wrong, if it has.
    pub failure: Option<Failure>,
    /// When the sweeper looks for the row.
    pub due_at: Timestamp,
    /// What will happen next and when, in plain words.
    pub next_action: String,
    /// Until when it waits for something that is not its own failure; `None`: it does not wait any more.
    pub waits_until: Option<Timestamp>,
    /// When it first had to wait. Whoever has read the row keeps what it says, or `None`: nothing counts as waiting.
    pub waits_since: Option<Timestamp>,
    /// How far a request with many events was split; `None`: as far as before. See [`Row::split`].
    pub split: Option<u32>,
}

/// How a row ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finish {
    /// [`Status::Processed`] or [`Status::Ignored`].
    pub status: Status,
    /// What became of each change.
    pub results: Vec<ChangeResult>,
    /// Why it was ignored, in words for a person.
    pub reason: Option<String>,
    /// When.
    pub now: Timestamp,
    /// When the row may go.
    pub expires_at: Timestamp,
}

/// What the sweeper reads and claims of the inbox.
pub trait DueInbox: Sync {
    /// Rows of one shard that are due, oldest due time first.
    fn due(
        &self,
        shard: u16,
        now: Timestamp,
        limit: usize,
    ) -> impl Future<Output = Stored<Vec<InboxKey>>> + Send;

    /// Moves a due row's due time and counts the sweep. [`Noted::Moved`]: it is not as read.
    fn claim(&self, row: &Row, due_at: Timestamp) -> impl Future<Output = Stored<Noted>> + Send;

    /// What one shard of the pending index holds: how many rows, and when the oldest was received. Rows of the sources
    /// `paused` wait on purpose, and are counted apart.
    fn pending(
        &self,
        shard: u16,
        paused: &BTreeSet<SourceName>,
    ) -> impl Future<Output = Stored<Pending>> + Send;

    /// How many rows are parked in one shard.
    fn parked(&self, shard: u16) -> impl Future<Output = Stored<u64>> + Send;

    /// Parked rows of one shard, newest first.
    fn parked_keys(
        &self,
        shard: u16,
        limit: usize,
    ) -> impl Future<Output = Stored<Vec<InboxKey>>> + Send;
}

/// How much waits, and since when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// How many.
    pub count: u64,
    /// When the oldest began to wait.
    pub oldest: Option<Timestamp>,
}

impl Backlog {
    /// Two backlogs as one.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let oldest = match (self.oldest, other.oldest) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        Self { count: self.count + other.count, oldest }
    }
}

/// What is pending in the inbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    /// Rows that should be carried out.
    pub owed: Backlog,
    /// Rows of paused sources, which wait until somebody resumes these.
    pub paused: Backlog,
}

impl Pending {
    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { owed: self.owed.and(other.owed), paused: self.paused.and(other.paused) }
    }
}

/// What became of a try to take a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lease {
    /// It is ours.
    Held(LeaseProof),
    /// Somebody else's until then.
    Busy(Timestamp),
}

/// Objects, operation keys, leases.
pub trait State: Sync {
    /// Reads an object, consistently.
    fn object(
        &self,
        source: &SourceName,
        object: &ObjectRef,
    ) -> impl Future<Output = Stored<Option<Object>>> + Send;

    /// Carries out a commit in one transaction.
    fn commit(&self, commit: &Commit) -> impl Future<Output = Stored<Answer>> + Send;

    /// Takes a lease that is free or has expired; the fence counts up.
    fn lease(
        &self,
        what: &str,
        owner: &str,
        now: Timestamp,
        until: Timestamp,
    ) -> impl Future<Output = Stored<Lease>> + Send;

    /// Gives a lease back, if it is still ours.
    fn give_back(
        &self,
        lease: &LeaseProof,
        now: Timestamp,
    ) -> impl Future<Output = Stored<()>> + Send;
}

/// What became of a publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    /// Written.
    New,
    /// The same request was made before, and had this event.
    Before(EventId),
    /// The idempotency key was used for another event: see [`OutboxEvent::fingerprint`].
    Other,
}

/// Outgoing events.
pub trait Outbox: Sync {
    /// Writes an event that a caller publishes. The idempotency key is taken first, so a repeated call finds it.
    fn publish(
        &self,
        event: &OutboxEvent,
        idempotency_key: Option<&str>,
    ) -> impl Future<Output = Stored<Published>> + Send;

    /// Writes an event of which it is known who gets it: nobody relays it.
    fn publish_to(
        &self,
        event: &OutboxEvent,
        relayed: &Relayed,
    ) -> impl Future<Output = Stored<()>> + Send;

    /// Reads an event, consistently.
    fn event(
        &self,
        tenant: &TenantId,
        id: EventId,
    ) -> impl Future<Output = Stored<Option<OutboxRow>>> + Send;

    /// Marks an event as relayed.
    fn mark(
        &self,
        tenant: &TenantId,
        id: EventId,
        relayed: &Relayed,
    ) -> impl Future<Output = Stored<()>> + Send;

    /// Writes down to whom an event has gone so far that goes in steps, in the order of their ids. It stays NEW.
    fn checkpoint(
        &self,
        tenant: &TenantId,
        id: EventId,
        so_far: &[EndpointId],
    ) -> impl Future<Output = Stored<()>> + Send;

    /// To whom an event has gone so far, consistently: as the last checkpoint or the mark says.
    fn reached(
        &self,
        tenant: &TenantId,
        id: EventId,
    ) -> impl Future<Output = Stored<Vec<EndpointId>>> + Send;

    /// Events of a tenant that were relayed to nobody, newest first, from those that occurred before `before` on.
    fn unmatched(
        &self,
        tenant: &TenantId,
        before: Timestamp,
        limit: usize,
    ) -> impl Future<Output = Stored<Vec<(Timestamp, EventId)>>> + Send;

    /// Events of one shard of the index that occurred before `before` and are still NEW, oldest first.
    fn unrelayed(
        &self,
        shard: u16,
        before: Timestamp,
        limit: usize,
    ) -> impl Future<Output = Stored<Vec<(TenantId, EventId)>>> + Send;

    /// What one shard of the index holds.
    fn unrelayed_backlog(&self, shard: u16) -> impl Future<Output = Stored<Backlog>> + Send;
}

/// What the relay writes into lanes. Each step may be the last; each may be repeated.
pub trait Fanout: Sync {
    /// Puts a delivery if it is absent, and the pointer that makes it due.
    fn put(&self, new: &NewDelivery) -> impl Future<Output = Stored<()>> + Send;

    /// Puts a new delivery with its pointer and wakes its lane: all of it or nothing. For a delivery that no row elsewhere
    /// owes, so that nobody would repair a part of it.
    fn put_awake(
        &self,
        new: &NewDelivery,
        now: Timestamp,
    ) -> impl Future<Output = Stored<()>> + Send;

    /// Wakes a lane: counts `wakes` up, and sets `wake_at` so that the sweeper finds it too.
    fn wake(&self, lane: &LaneId, now: Timestamp) -> impl Future<Output = Stored<()>> + Send;
}

/// Who drains a lane.
pub trait Lanes: Sync {
    /// Takes a lane whose lease is free or has expired.
    fn take(
        &self,
        lane: &LaneId,
        owner: &str,
        now: Timestamp,
        until: Timestamp,
    ) -> impl Future<Output = Stored<Take>> + Send;

    /// Prolongs a lease. `false`: it was lost.
    fn renew(&self, hold: &Hold, until: Timestamp) -> impl Future<Output = Stored<bool>> + Send;

    /// Releases a lane that nobody woke since `hold.seen`, to sleep until `wake_at` (`None`: until woken).
    fn release(
        &self,
        hold: &Hold,
        wake_at: Option<Timestamp>,
        left: Left,
    ) -> impl Future<Output = Stored<Release>> + Send;

    /// Lanes of one shard whose `wake_at` has come, oldest first.
    fn sleepers(
        &self,
        shard: u16,
        now: Timestamp,
        limit: usize,
    ) -> impl Future<Output = Stored<Vec<LaneId>>> + Send;

    /// What one shard of the index holds of lanes that are due.
    fn due_backlog(
        &self,
        shard: u16,
        now: Timestamp,
    ) -> impl Future<Output = Stored<Backlog>> + Send;
}

/// Deliveries of a lane, and the pointers that say when they are due. Both repair each other.
pub trait Deliveries: Sync {
    /// Pointers of one kind up to a time, in order, consistently.
    fn due(
        &self,
        lane: &LaneId,
        kind: Kind,
        due: Due,
        limit: usize,
    ) -> impl Future<Output = Stored<Vec<Pointer>>> + Send;

    /// The time of the first pointer of one kind, consistently.
    fn next_due(
        &self,
        lane: &LaneId,
        kind: Kind,
    ) -> impl Future<Output = Stored<Option<Timestamp>>> + Send;

    /// Deliveries of a lane in the order of their events' ids, which is that of their time, after one of them.
    fn list(
        &self,
        lane: &LaneId,
        after: Option<EventId>,
        limit: usize,
    ) -> impl Future<Output = Stored<Vec<Delivery>>> + Send;

    /// Reads deliveries, consistently. Absent ones are left out.
    fn read(
        &self,
        lane: &LaneId,
        events: &[EventId],
    ) -> impl Future<Output = Stored<Vec<Delivery>>> + Send;

    /// Writes how a delivery stands after an attempt, or the mark that one begins. Condition: still pending, with
    /// `before`'s attempts and `before`'s mark. [`Noted::Yes`] also if it stands so already: the answer to our own write was
    /// lost, and the client has tried again.
    fn record(
        &self,
        lane: &LaneId,
        before: &Delivery,
        after: &Delivery,
    ) -> impl Future<Output = Stored<Noted>> + Send;

    /// Puts a pointer.
    fn point(&self, lane: &LaneId, pointer: &Pointer) -> impl Future<Output = Stored<()>> + Send;

    /// Deletes a pointer.
    fn unpoint(&self, lane: &LaneId, pointer: &Pointer) -> impl Future<Output = Stored<()>> + Send;

    /// Makes a finished delivery due again, from outside the relay: delivery, pointer and lane in one transaction,
    /// for nothing else would remember that it is owed. It is marked as asked for. [`Noted::Moved`]: it is pending, or
    /// absent.
    fn redeliver(
        &self,
        lane: &LaneId,
        event: EventId,
        deadline: Timestamp,
        now: Timestamp,
    ) -> impl Future<Output = Stored<Noted>> + Send;

    /// Reads an endpoint's health, consistently.
    fn health(
        &self,
        tenant: &TenantId,
        endpoint: EndpointId,
    ) -> impl Future<Output = Stored<Health>> + Send;

    /// Writes an endpoint's health: a disabling, a failure, a recovery. [`Noted::Moved`]: another lane's holder has
    /// written it since the version before this one.
    fn note_health(
        &self,
        tenant: &TenantId,
        endpoint: EndpointId,
        health: &Health,
    ) -> impl Future<Output = Stored<Noted>> + Send;
}

/// Which of a lane's pointers are asked for. Both ends belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// From when on; `None`: from the first.
    pub from: Option<Timestamp>,
    /// Until when.
    pub until: Timestamp,
}

impl Due {
    /// Everything that is due by now.
    pub const fn by(now: Timestamp) -> Self {
        Self { from: None, until: now }
    }

    /// Whether no time belongs to it.
    pub fn is_empty(&self) -> bool {
        self.from.is_some_and(|from| from > self.until)
    }
}

/// What owners of endpoints are told, by another way than the endpoint.
pub trait Notices: Sync {
    /// Tells one. After an error nobody has heard it, or somebody will hear it twice.
    fn tell(&self, endpoint: &Endpoint, notice: &Notice)
    -> impl Future<Output = Stored<()>> + Send;
}

/// Configuration, read.
pub trait Registry: Sync {
    /// Reads a source.
    fn source(&self, name: &SourceName) -> impl Future<Output = Stored<Option<Source>>> + Send;

    /// Counts the changes of a tenant's endpoints; read before a cached list is believed.
    fn endpoints_epoch(&self, tenant: &TenantId) -> impl Future<Output = Stored<u64>> + Send;

    /// A tenant's endpoints.
    fn endpoints(&self, tenant: &TenantId) -> impl Future<Output = Stored<Vec<Endpoint>>> + Send;

    /// Reads an endpoint with its sealed secrets, consistently.
    fn endpoint(
        &self,
        tenant: &TenantId,
        id: EndpointId,
    ) -> impl Future<Output = Stored<Option<WithSecrets>>> + Send;

    /// All sources.
    fn sources(&self) -> impl Future<Output = Stored<Vec<Source>>> + Send;
}

/// A queue of one kind of message.
pub trait Queue<M: Message>: Sync {
    /// Sends messages, and gives the indexes of those that did not go.
    fn send(&self, messages: &[M], delay: Duration) -> impl Future<Output = Vec<usize>> + Send;

    /// Hides a received message for a while. A failure only means that the queue's own time applies.
    fn defer(&self, receipt: &str, wait: Duration) -> impl Future<Output = ()> + Send;

    /// Messages that a receiver could have now: neither hidden nor delayed.
    fn visible(&self) -> impl Future<Output = Stored<u64>> + Send;
}

/// Large bodies, by name.
pub trait Bodies: Sync {
    /// Puts bytes. Putting the same name again renews its age.
    fn put(&self, name: &str, bytes: Vec<u8>) -> impl Future<Output = Stored<()>> + Send;

    /// Gets bytes; `None` if there are none. More than `limit` bytes are an error.
    fn get(&self, name: &str, limit: usize)
    -> impl Future<Output = Stored<Option<Vec<u8>>>> + Send;
}

/// Sealing and unsealing the secrets of endpoints.
pub trait Keyring: Sync {
    /// Encrypts a secret for one endpoint.
    fn seal(
        &self,
        tenant: &TenantId,
        endpoint: EndpointId,
        secret: &SecretText,
    ) -> impl Future<Output = Stored<Vec<u8>>> + Send;

    /// Decrypts a secret. One that was sealed for another endpoint is [`StoreError::Refused`].
    fn unseal(
        &self,
        tenant: &TenantId,
        endpoint: EndpointId,
        sealed: &[u8],
    ) -> impl Future<Output = Stored<SecretText>> + Send;
}

/// Who brought an event, for what may follow from its being a duplicate.
pub const fn may_rearm(origin: Origin) -> bool {
    // The overlap of reconciliation would revive parked events every quarter of an hour.
    matches!(origin, Origin::Webhook)
}
