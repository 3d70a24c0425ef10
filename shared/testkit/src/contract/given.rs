//! What the rules begin with.

use std::{collections::BTreeMap, time::Duration};

use domain::{
    body::{Place, Sha256Hash, StoredBody},
    commit::{Commit, Knowledge, LeaseProof, Staged},
    delivery::{Attempt, Delivery, NewDelivery, Next, Outcome},
    event::{ObjectRef, Origin, Stamp, Version},
    id::{EndpointId, EventId, InboxKey},
    inbox::{Applied, ChangeResult, Claim, Failure, NewRow, Row, Status},
    lane::LaneId,
    outbox::{OutboxEvent, Payload},
    plan::Guard,
    ports::{AttemptNote, Finish, Inbox, StoreError},
};
use jiff::Timestamp;
use serde_json::Value;
use uuid::Uuid;

use super::Tables;

/// Seconds after the beginning of every rule.
pub(super) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_790_000_000 + seconds).unwrap()
}

pub(super) const DAY: i64 = 86_400;

pub(super) fn key(source: &str, event: &str) -> InboxKey {
    InboxKey::new(source.parse().unwrap(), event).unwrap()
}

/// An event received at the beginning, due two minutes later.
pub(super) fn row(event: &str, token: &str, body: &[u8]) -> NewRow {
    NewRow {
        key: key("stripe", event),
        event_type: Some("invoice.paid".to_owned()),
        received_at: at(0),
        due_at: at(120),
        body: StoredBody {
            sha256: Sha256Hash::of(body),
            length: body.len() as u64,
            place: Place::Inline(body.to_vec()),
        },
        headers: BTreeMap::from([("content-type".to_owned(), "application/json".to_owned())]),
        object: Some(ObjectRef { kind: "invoice".to_owned(), id: "in_1".to_owned() }),
        version: Some(Version::Number(3)),
        occurred_at: Some(at(-5)),
        origin: Origin::Webhook,
        key_id: Some("current".to_owned()),
        token: token.to_owned(),
        traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned()),
        delivery_id: None,
        parent: None,
    }
}

pub(super) fn claim(event: &str, cycle: u32) -> Claim {
    Claim { key: key("stripe", event), cycle }
}

/// Accepts an event.
pub(super) async fn accepted(on: &impl Tables, event: &str) -> Result<NewRow, StoreError> {
    let row = row(event, "t", event.as_bytes());
    on.inbox().accept(&row).await?;
    Ok(row)
}

/// Reads a row that must be there.
pub(super) async fn read(on: &impl Tables, event: &str) -> Result<Row, StoreError> {
    Ok(on.inbox().read(&key("stripe", event)).await?.unwrap())
}

pub(super) fn failure() -> Failure {
    Failure::new("handler_failed", "it did not work")
}

pub(super) fn note(attempts: u32, due_at: Timestamp) -> AttemptNote {
    let next_action = "try again".to_owned();
    AttemptNote {
        attempts,
        failure: Some(failure()),
        due_at,
        next_action,
        waits_until: None,
        waits_since: None,
        split: None,
    }
}

/// Processed at `now`, to go after 35 days.
pub(super) fn processed(now: Timestamp) -> Finish {
    let result = ChangeResult::new("object invoice in_1", Applied::Applied);
    Finish {
        status: Status::Processed,
        results: vec![result],
        reason: None,
        now,
        expires_at: now + Duration::from_hours(35 * 24),
    }
}

pub(super) fn invoice(id: &str) -> ObjectRef {
    ObjectRef { kind: "invoice".to_owned(), id: id.to_owned() }
}

pub(super) fn newer(id: &str, version: Version, fields: Value) -> Guard {
    Guard::Newer { object: invoice(id), version, fields, deleted: false }
}

pub(super) fn unchanged(
    id: &str,
    read: Option<Stamp>,
    version: Version,
    fields: Value,
    deleted: bool,
) -> Guard {
    Guard::Unchanged { object: invoice(id), read, version, fields, deleted }
}

pub(super) fn once(key: &str) -> Guard {
    Guard::Once(key.parse().unwrap())
}

/// A commit of the row `event`, in its first cycle.
pub(super) fn commit(event: &str, changes: Vec<(Guard, Vec<OutboxEvent>)>) -> Commit {
    let changes = changes.into_iter().map(|(guard, events)| Staged { guard, events });
    Commit {
        claim: claim(event, 0),
        now: at(10),
        expires_at: at(35 * DAY),
        knowledge: Knowledge { as_of: at(-5), fetched: false },
        changes: changes.collect(),
        lease: None,
        results: Vec::new(),
        earlier: Vec::new(),
    }
}

pub(super) fn under(lease: LeaseProof, commit: Commit) -> Commit {
    Commit { lease: Some(lease), ..commit }
}

/// The `number`-th event id of a second.
pub(super) fn event_id(seconds: i64, number: u32) -> EventId {
    EventId::derived(at(seconds), &[&number.to_string()])
}

/// An outgoing event of the tenant `demo`, whose time is in its id.
pub(super) fn outgoing(id: EventId, payload: &[u8]) -> OutboxEvent {
    OutboxEvent {
        id,
        tenant: "demo".parse().unwrap(),
        event_type: "invoice.paid".to_owned(),
        schema_version: 1,
        aggregate_id: "in_1".to_owned(),
        aggregate_version: Some(7),
        payload: Payload::Inline(payload.to_vec()),
        occurred_at: id.time(),
        traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned()),
        labels: BTreeMap::new(),
    }
}

pub(super) fn lane(number: u16) -> LaneId {
    let endpoint = EndpointId::new(Uuid::from_u128(9));
    LaneId { tenant: "demo".parse().unwrap(), endpoint, lane: number }
}

/// A delivery in lane 0 that is due at `seconds`.
pub(super) fn delivery(event: EventId, seconds: i64) -> NewDelivery {
    let deadline = at(seconds + 4 * DAY);
    let delivery = Delivery::new(event, "invoice.paid".to_owned(), deadline, at(seconds));
    NewDelivery { lane: lane(0), delivery }
}

/// The same delivery after an attempt that ended with this HTTP status.
pub(super) fn tried(before: &Delivery, status: u16, next: Next, seconds: i64) -> Delivery {
    let attempt = Attempt {
        number: before.attempts + 1,
        at: at(seconds),
        duration_ms: 120,
        outcome: Outcome::Answered { status, retry_after_ms: None },
        excerpt: "so it is".to_owned(),
    };
    before.ended(attempt, next, at(seconds))
}

/// Everything that all shards of an index give, as it comes.
pub(super) async fn in_all_shards<T>(
    on: &impl Tables,
    read: impl AsyncFn(u16) -> Result<Vec<T>, StoreError>,
) -> Result<Vec<T>, StoreError> {
    let mut all = Vec::new();
    for shard in 0..on.shards() {
        all.extend(read(shard).await?);
    }
    Ok(all)
}
