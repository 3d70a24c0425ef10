//! What these tests begin with.

use std::collections::BTreeMap;

use domain::{
    body::{Place, Sha256Hash, StoredBody},
    commit::{Commit, Knowledge, Staged},
    event::Origin,
    id::{EventId, InboxKey},
    inbox::{Claim, NewRow, Status},
    lane::LaneId,
    outbox::{OutboxEvent, Payload},
    plan::Guard,
    ports::Finish,
};
use jiff::Timestamp;

use crate::tables::DAY;

pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_790_000_000 + seconds).unwrap()
}

pub(crate) fn row(place: Place) -> NewRow {
    NewRow {
        key: InboxKey::new("stripe".parse().unwrap(), "evt_1").unwrap(),
        event_type: None,
        received_at: at(0),
        due_at: at(120),
        body: StoredBody { sha256: Sha256Hash::of(b"body"), length: 4, place },
        headers: BTreeMap::new(),
        object: None,
        version: None,
        occurred_at: None,
        origin: Origin::Webhook,
        key_id: None,
        token: "t".to_owned(),
        traceparent: None,
        delivery_id: None,
        parent: None,
    }
}

pub(crate) fn claim(cycle: u32) -> Claim {
    Claim { key: row(Place::Bucket).key, cycle }
}

pub(crate) fn finish(status: Status, now: Timestamp) -> Finish {
    Finish { status, results: Vec::new(), reason: None, now, expires_at: now + 35 * DAY }
}

pub(crate) fn lane() -> LaneId {
    let endpoint = "ep_00000000000000000000000000000009".parse().unwrap();
    LaneId { tenant: "demo".parse().unwrap(), endpoint, lane: 0 }
}

pub(crate) fn event(number: u32) -> OutboxEvent {
    OutboxEvent {
        id: EventId::derived(at(0), &[&number.to_string()]),
        tenant: "demo".parse().unwrap(),
        event_type: "invoice.paid".to_owned(),
        schema_version: 1,
        aggregate_id: "in_1".to_owned(),
        aggregate_version: None,
        payload: Payload::Inline(b"body".to_vec()),
        occurred_at: at(0),
        traceparent: None,
        labels: BTreeMap::new(),
    }
}

pub(crate) fn a_commit() -> Commit {
    Commit {
        claim: claim(0),
        now: at(10),
        expires_at: at(10) + 35 * DAY,
        knowledge: Knowledge { as_of: at(0), fetched: false },
        changes: vec![Staged {
            guard: Guard::Once("credit".parse().unwrap()),
            events: vec![event(1)],
        }],
        lease: None,
        results: Vec::new(),
        earlier: Vec::new(),
    }
}

/// Where an inbox row stands.
pub(crate) const ROW: (&str, &str) = ("stripe#evt_1", "EVENT");
