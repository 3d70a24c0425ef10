//! How every key, and every value of an index, is spelled. Nothing else spells one.
//!
//! The parts of a key are separated by `#`. Our own names cannot contain it; a part that comes from a provider or a
//! caller and does is replaced by its SHA-256, as is one that is too long.

use aws_sdk_dynamodb::types::AttributeValue;
use domain::{
    body::Sha256Hash,
    event::ObjectRef,
    id::{EndpointId, EventId, InboxKey, RedeliveryId, ReplayId, SourceName, TenantId, shard_of},
    lane::{Kind, LaneId, Pointer},
    plan::OperationKey,
    ports::AuditEntry,
};
use jiff::{Timestamp, civil::Date, tz::TimeZone};

use crate::item::{Item, s};

/// Shards of one tenant's events in the outbox. Part of the key, and therefore a constant: with another count, every
/// event written before would no longer be found.
pub const TENANT_SHARDS: u16 = 4;

/// Longest part of a key that is not ours, in bytes. A partition key holds 2,048.
const MAX_PART: usize = 512;

/// The index of pending inbox rows.
pub(crate) const BY_DUE: &str = "by_due";
/// The index of parked inbox rows.
pub(crate) const BY_DEAD: &str = "by_dead";
/// The index of inbox rows by source and day.
pub(crate) const BY_SOURCE: &str = "by_source";
/// The index of outgoing events that are still NEW, by shard; and, by tenant, of those that were relayed to nobody.
pub(crate) const BY_UNRELAYED: &str = "by_unrelayed";
/// The index of lanes that sleep until a time.
pub(crate) const BY_WAKE: &str = "by_wake";

/// What the sort keys of a lane's deliveries begin with.
pub(crate) const DELIVERIES: &str = "DELIVERY#";

/// What the sort keys of a lane's pointers of one kind begin with.
pub(crate) const fn pointers(kind: Kind) -> &'static str {
    match kind {
        Kind::Fresh => "DUE#",
        Kind::Retry => "RETRY#",
    }
}
/// What the sort keys of a tenant's endpoints begin with.
pub(crate) const ENDPOINTS: &str = "ENDPOINT#";

/// The sort key of a source's heartbeat.
pub(crate) const HEARTBEAT: &str = "LAST";
/// What the sort keys begin with that say when a source's secrets matched.
pub(crate) const SECRETS: &str = "SECRET#";
/// What the sort keys of a source's counts of refused requests begin with.
pub(crate) const REJECTS: &str = "REJECTS#";

/// The key of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) pk: String,
    pub(crate) sk: String,
}

impl Key {
    fn new(pk: String, sk: impl Into<String>) -> Self {
        Self { pk, sk: sk.into() }
    }

    /// The key as attributes.
    pub(crate) fn attributes(self) -> Item {
        Item::from([("pk".to_owned(), s(self.pk)), ("sk".to_owned(), s(self.sk))])
    }
}

/// A time as it stands in a sort key: 13 digits, so that text sorts as time does (until the year 2286).
fn digits(at: Timestamp) -> String {
    format!("{:013}", at.as_millisecond().clamp(0, 9_999_999_999_999))
}

fn hashed(text: &str) -> String {
    format!("sha256:{}", Sha256Hash::of(text.as_bytes()))
}

/// A part that others follow.
fn part(text: &str) -> String {
    if text.contains('#') { hashed(text) } else { last(text) }
}

/// The last part: it may contain `#`, for nothing follows it.
fn last(text: &str) -> String {
    if text.len() <= MAX_PART { text.to_owned() } else { hashed(text) }
}

// ----- inbox

pub(crate) fn event(key: &InboxKey) -> Key {
    Key::new(key.to_string(), "EVENT")
}

/// A body beside its row. Named by its hash: a second body under one event id cannot replace the first.
pub(crate) fn body(key: &InboxKey, sha256: Sha256Hash) -> Key {
    Key::new(key.to_string(), format!("BODY#{sha256}"))
}

/// `pending_shard` and `dead_shard`.
pub(crate) fn inbox_shard(key: &InboxKey, shards: u16) -> AttributeValue {
    shard(&key.to_string(), shards)
}

/// `source_day`.
pub(crate) fn source_day(key: &InboxKey, received_at: Timestamp, shards: u16) -> AttributeValue {
    let day = TimeZone::UTC.to_datetime(received_at).date();
    source_day_of(key.source(), day, shard_of(&key.to_string(), shards))
}

/// `source_day` of everything that stands together.
pub(crate) fn source_day_of(source: &SourceName, day: Date, shard: u16) -> AttributeValue {
    s(format!("{source}#{}#{shard}", day.strftime("%Y%m%d")))
}

/// The inbox key in the partition key of a row.
pub(crate) fn read_inbox_key(pk: &str) -> Option<InboxKey> {
    let (source, event_id) = pk.split_once('#')?;
    InboxKey::new(source.parse().ok()?, event_id).ok()
}

// ----- state

pub(crate) fn object(source: &SourceName, object: &ObjectRef) -> Key {
    let pk = format!("OBJECT#{source}#{}#{}", part(&object.kind), last(&object.id));
    Key::new(pk, "CURRENT")
}

pub(crate) fn operation(key: &OperationKey) -> Key {
    Key::new(format!("OPERATION#{key}"), "ONCE")
}

pub(crate) fn lease(what: &str) -> Key {
    Key::new(format!("LEASE#{}", last(what)), "HOLDER")
}

pub(crate) fn request(tenant: &TenantId, key: &str) -> Key {
    Key::new(format!("REQUEST#{tenant}#{}", last(key)), "ONCE")
}

/// What is known of a source's health stands in one partition.
pub(crate) fn heartbeat_partition(source: &SourceName) -> String {
    format!("HEARTBEAT#{source}")
}

pub(crate) fn heartbeat(source: &SourceName) -> Key {
    Key::new(heartbeat_partition(source), HEARTBEAT)
}

/// Where reconciliation of a source stands.
pub(crate) fn cursor(source: &SourceName) -> Key {
    Key::new(format!("CURSOR#{source}"), "RECONCILE")
}

/// When a secret last matched.
pub(crate) fn heartbeat_of_secret(source: &SourceName, id: &str) -> Key {
    Key::new(heartbeat_partition(source), format!("{SECRETS}{}", last(id)))
}

/// How many requests were refused in the hour that begins then.
pub(crate) fn rejects(source: &SourceName, hour: Timestamp) -> Key {
    Key::new(heartbeat_partition(source), format!("{REJECTS}{}", digits(hour)))
}

pub(crate) fn samples_partition(source: &SourceName) -> String {
    format!("REJECTED#{source}")
}

/// A place for a refused request. There are few, so that the newest take those of the oldest.
pub(crate) fn sample(source: &SourceName, place: usize) -> Key {
    Key::new(samples_partition(source), format!("SAMPLE#{place:04}"))
}

pub(crate) fn published_partition(source: &SourceName) -> String {
    format!("PUBLISHED#{source}")
}

pub(crate) fn published(source: &SourceName, id: &str) -> Key {
    Key::new(published_partition(source), format!("KEY#{}", last(id)))
}

/// The partition of what is owed to providers: one item for each source.
pub(crate) const OWED: &str = "OWED";

pub(crate) fn owed(source: &SourceName) -> Key {
    Key::new(OWED.to_owned(), format!("SOURCE#{source}"))
}

/// How turns at calling a source's provider stand.
pub(crate) fn turns(source: &SourceName) -> Key {
    Key::new(format!("RATE#{source}"), "FETCH")
}

// ----- outbox

pub(crate) fn outgoing(tenant: &TenantId, id: EventId) -> Key {
    let id = id.to_string();
    Key::new(outgoing_partition(tenant, shard_of(&id, TENANT_SHARDS)), id)
}

/// A shard of a tenant's events, in the order of their ids.
pub(crate) fn outgoing_partition(tenant: &TenantId, shard: u16) -> String {
    format!("{tenant}#{shard}")
}

/// `unrelayed_shard`.
pub(crate) fn unrelayed_shard(id: EventId, shards: u16) -> AttributeValue {
    shard(&id.to_string(), shards)
}

/// Partitions of the index for a tenant's events that nobody wanted. A constant, as [`TENANT_SHARDS`] is: they are for one
/// tenant, whatever the deployment has.
pub(crate) const UNMATCHED_SHARDS: u16 = 4;

/// `unrelayed_shard` of an event that was relayed to nobody.
pub(crate) fn unmatched_shard(tenant: &TenantId, id: EventId) -> AttributeValue {
    unmatched_in(tenant, shard_of(&id.to_string(), UNMATCHED_SHARDS))
}

/// One such partition.
pub(crate) fn unmatched_in(tenant: &TenantId, shard: u16) -> AttributeValue {
    AttributeValue::S(format!("UNMATCHED#{tenant}#{shard}"))
}

/// The tenant and the event in the key of an outgoing event.
pub(crate) fn read_outgoing(pk: &str, sk: &str) -> Option<(TenantId, EventId)> {
    let (tenant, _) = pk.split_once('#')?;
    Some((tenant.parse().ok()?, sk.parse().ok()?))
}

// ----- deliveries

pub(crate) fn lane_partition(lane: &LaneId) -> String {
    format!("LANE#{lane}")
}

pub(crate) fn lane(lane: &LaneId) -> Key {
    Key::new(lane_partition(lane), "LANE")
}

pub(crate) fn delivery(lane: &LaneId, event: EventId) -> Key {
    Key::new(lane_partition(lane), format!("{DELIVERIES}{event}"))
}

pub(crate) fn pointer(lane: &LaneId, pointer: &Pointer) -> Key {
    Key::new(
        lane_partition(lane),
        format!("{}{}#{}", pointers(pointer.kind), digits(pointer.due_at), pointer.event),
    )
}

/// The sort key before those of all pointers of a kind that are due at a time, and after those that are due earlier.
pub(crate) fn pointers_from(kind: Kind, at: Timestamp) -> String {
    format!("{}{}", pointers(kind), digits(at))
}

/// The sort key after those of all pointers of a kind that are due at `now`.
pub(crate) fn pointers_until(kind: Kind, now: Timestamp) -> String {
    let next = now.as_millisecond().saturating_add(1);
    pointers_from(kind, Timestamp::from_millisecond(next).unwrap_or(Timestamp::MAX))
}

/// The pointer in a sort key.
pub(crate) fn read_pointer(sk: &str) -> Option<Pointer> {
    let of = |kind| Some((kind, sk.strip_prefix(pointers(kind))?));
    let (kind, rest) = Kind::ALL.into_iter().find_map(of)?;
    let (millis, event) = rest.split_once('#')?;
    let due_at = Timestamp::from_millisecond(millis.parse().ok()?).ok()?;
    Some(Pointer { kind, due_at, event: event.parse().ok()? })
}

/// `wake_shard`.
pub(crate) fn wake_shard(lane: &LaneId, shards: u16) -> AttributeValue {
    shard(&lane.to_string(), shards)
}

/// The lane in a partition key.
pub(crate) fn read_lane(pk: &str) -> Option<LaneId> {
    let mut parts = pk.strip_prefix("LANE#")?.split('#');
    let tenant = parts.next()?.parse().ok()?;
    let endpoint = parts.next()?.parse().ok()?;
    let lane = parts.next()?.parse().ok()?;
    parts.next().is_none().then_some(LaneId { tenant, endpoint, lane })
}

pub(crate) fn health(tenant: &TenantId, endpoint: EndpointId) -> Key {
    Key::new(format!("HEALTH#{tenant}#{endpoint}"), "CURRENT")
}

// ----- registry

pub(crate) fn source(name: &SourceName) -> Key {
    Key::new(format!("SOURCE#{name}"), "CURRENT")
}

/// The partition that lists the names of all sources, so that nobody scans the table.
pub(crate) const SOURCES: &str = "SOURCES";

pub(crate) fn source_name(name: &SourceName) -> Key {
    Key::new(SOURCES.to_owned(), format!("SOURCE#{name}"))
}

/// The source in a sort key of the list.
pub(crate) fn read_source_name(sk: &str) -> Option<SourceName> {
    sk.strip_prefix("SOURCE#")?.parse().ok()
}

pub(crate) fn tenant_partition(tenant: &TenantId) -> String {
    format!("TENANT#{tenant}")
}

pub(crate) fn endpoint(tenant: &TenantId, id: EndpointId) -> Key {
    Key::new(tenant_partition(tenant), format!("{ENDPOINTS}{id}"))
}

pub(crate) fn secrets(tenant: &TenantId, endpoint: EndpointId) -> Key {
    Key::new(tenant_partition(tenant), format!("SECRET#{endpoint}"))
}

/// Who has a key of a tenant's endpoints.
pub(crate) fn endpoint_key(tenant: &TenantId, key: &str) -> Key {
    Key::new(tenant_partition(tenant), format!("KEY#{}", last(key)))
}

/// What is left of an endpoint that was deleted.
pub(crate) fn gone(tenant: &TenantId, id: EndpointId) -> Key {
    Key::new(tenant_partition(tenant), format!("GONE#{id}"))
}

pub(crate) fn endpoints_epoch(tenant: &TenantId) -> Key {
    Key::new(tenant_partition(tenant), "ENDPOINTS_EPOCH")
}

pub(crate) fn replay(id: ReplayId) -> Key {
    Key::new(format!("REPLAY#{id}"), "CURRENT")
}

/// The partition that lists all bulk work, in order of time, and names what is under way.
pub(crate) const REPLAYS: &str = "REPLAYS";
/// What the sort keys of the list begin with.
pub(crate) const LISTED_REPLAYS: &str = "REPLAY#";

/// Bulk work in the list.
pub(crate) fn listed_replay(id: ReplayId, began: Timestamp) -> Key {
    Key::new(REPLAYS.to_owned(), format!("{LISTED_REPLAYS}{}#{id}", digits(began)))
}

/// The bulk work in a sort key of the list.
pub(crate) fn read_listed_replay(sk: &str) -> Option<ReplayId> {
    let (_, id) = sk.strip_prefix(LISTED_REPLAYS)?.split_once('#')?;
    id.parse().ok()
}

/// What bulk work is under way: one item, so that the sweeper reads one.
pub(crate) fn open_replays() -> Key {
    Key::new(REPLAYS.to_owned(), "OPEN")
}

pub(crate) fn redelivery(id: RedeliveryId) -> Key {
    Key::new(format!("REPLAY#{id}"), "CURRENT")
}

/// The partition that lists a tenant's redeliveries, in order of time.
pub(crate) fn redeliveries(tenant: &TenantId) -> String {
    format!("REDELIVERIES#{tenant}")
}

pub(crate) fn listed_redelivery(tenant: &TenantId, id: RedeliveryId, began: Timestamp) -> Key {
    Key::new(redeliveries(tenant), format!("{}#{id}", digits(began)))
}

/// The redelivery in a sort key of the list.
pub(crate) fn read_listed_redelivery(sk: &str) -> Option<RedeliveryId> {
    let (_, id) = sk.split_once('#')?;
    id.parse().ok()
}

/// What redeliveries are under way, beside what replays are.
pub(crate) fn open_redeliveries() -> Key {
    Key::new(REPLAYS.to_owned(), "OPEN_REDELIVERIES")
}

/// Entries of one month stand together; the hash of the entry keeps two of one moment apart.
pub(crate) fn audit(entry: &AuditEntry) -> Key {
    let AuditEntry { tenant, at, actor, action, subject } = entry;
    let hash = Sha256Hash::of(format!("{actor}\n{action}\n{subject}").as_bytes()).to_string();
    let id: String = hash.chars().take(16).collect();
    let pk = format!("AUDIT#{}#{}", part(tenant), at.strftime("%Y%m"));
    Key::new(pk, format!("{}#{id}", digits(*at)))
}

/// A shard as the text of its number.
pub(crate) fn shard_value(shard: u16) -> AttributeValue {
    s(shard.to_string())
}

fn shard(name: &str, shards: u16) -> AttributeValue {
    shard_value(shard_of(name, shards))
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millisecond(ms).unwrap()
    }

    fn evt(n: u128) -> EventId {
        EventId::new(Uuid::from_u128(n))
    }

    fn a_lane() -> LaneId {
        LaneId {
            tenant: "demo".parse().unwrap(),
            endpoint: EndpointId::new(Uuid::from_u128(9)),
            lane: 12,
        }
    }

    #[test]
    fn keys_are_spelled_as_they_have_always_been() {
        let source: SourceName = "stripe".parse().unwrap();
        let tenant: TenantId = "demo".parse().unwrap();
        let ep = EndpointId::new(Uuid::from_u128(9));
        let inbox = InboxKey::new(source.clone(), "evt_1").unwrap();
        let object_ref = ObjectRef { kind: "invoice".to_owned(), id: "in_1".to_owned() };
        let entry = AuditEntry {
            tenant: "demo".to_owned(),
            at: at(1_790_000_000_123),
            actor: "me".to_owned(),
            action: "endpoint.create".to_owned(),
            subject: "ep".to_owned(),
        };
        let due = Pointer { kind: Kind::Fresh, due_at: at(5), event: evt(7) };
        let retry = Pointer { kind: Kind::Retry, ..due.clone() };
        let keys = [
            event(&inbox),
            body(&inbox, Sha256Hash([0xab; 32])),
            object(&source, &object_ref),
            operation(&"credit#in_1".parse().unwrap()),
            lease("stripe#invoice#in_1"),
            request(&tenant, "k-1"),
            cursor(&source),
            heartbeat(&source),
            heartbeat_of_secret(&source, "2026"),
            rejects(&source, at(1_790_000_000_123)),
            sample(&source, 7),
            published(&source, "k#1"),
            owed(&source),
            turns(&source),
            outgoing(&tenant, evt(7)),
            lane(&a_lane()),
            delivery(&a_lane(), evt(7)),
            pointer(&a_lane(), &due),
            pointer(&a_lane(), &retry),
            health(&tenant, ep),
            super::source(&source),
            source_name(&source),
            endpoint(&tenant, ep),
            secrets(&tenant, ep),
            endpoints_epoch(&tenant),
            audit(&entry),
            replay(ReplayId::new(Uuid::from_u128(3))),
            listed_replay(ReplayId::new(Uuid::from_u128(3)), at(1_790_000_000_123)),
            open_replays(),
        ];
        let lines: Vec<_> = keys.iter().map(|key| format!("{} / {}", key.pk, key.sk)).collect();
        insta::assert_snapshot!(lines.join("\n"));
        assert_eq!(source_day(&inbox, at(1_790_000_000_123), 1), s("stripe#20260921#0"));
        assert_eq!(unmatched_in(&tenant, 3), s("UNMATCHED#demo#3"));
    }

    #[test]
    fn names_in_keys_read_back() {
        let inbox = InboxKey::new("stripe".parse().unwrap(), "evt#1").unwrap();
        assert_eq!(read_inbox_key(&event(&inbox).pk), Some(inbox));
        assert_eq!(read_lane(&lane(&a_lane()).pk), Some(a_lane()));
        for kind in Kind::ALL {
            let due = Pointer { kind, due_at: at(1_790_000_000_123), event: evt(7) };
            assert_eq!(read_pointer(&pointer(&a_lane(), &due).sk), Some(due));
        }
        let tenant: TenantId = "demo".parse().unwrap();
        let key = outgoing(&tenant, evt(7));
        assert_eq!(read_outgoing(&key.pk, &key.sk), Some((tenant, evt(7))));
        let id = ReplayId::new(Uuid::from_u128(3));
        assert_eq!(read_listed_replay(&listed_replay(id, at(5)).sk), Some(id));
        assert_eq!(read_lane("LANE#demo#nonsense#0"), None);
        assert_eq!(read_pointer("DUE#x"), None);
        assert_eq!(read_inbox_key("no-separator"), None);
    }

    #[test]
    fn pointers_up_to_now_are_before_the_bound_and_later_ones_after() {
        for kind in Kind::ALL {
            let sk = |ms| {
                let event = evt(u128::MAX);
                pointer(&a_lane(), &Pointer { kind, due_at: at(ms), event }).sk
            };
            let bound = pointers_until(kind, at(1_000));
            assert!(sk(999) < bound && sk(1_000) < bound);
            assert!(sk(1_001) > bound && sk(1_790_000_000_000) > bound);
            let first = pointers_from(kind, at(1_000));
            assert!(sk(999) < first && sk(1_000) > first);
        }
    }

    /// A caller's text cannot make two things share a key.
    #[test]
    fn parts_with_the_separator_do_not_run_into_their_neighbours() {
        let source: SourceName = "s".parse().unwrap();
        let key = |kind: &str, id: &str| {
            object(&source, &ObjectRef { kind: kind.to_owned(), id: id.to_owned() })
        };
        assert_ne!(key("a#b", "c"), key("a", "b#c"));
        assert_ne!(key("a", "b#c"), key("a", "b"));
        let long = "x".repeat(5_000);
        assert!(key(&long, &long).pk.len() < 200);
        assert!(lease(&long).pk.len() < 200);
    }
}
