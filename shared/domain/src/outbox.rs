//! Outgoing events, written in the same transaction as the change that caused them.

pub mod rules;

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::{
    body::Sha256Hash,
    id::{EndpointId, EventId, TenantId},
    plan::Emit,
};

/// Largest payload that stands in an event's own row, in bytes; larger ones go to the bucket. A row of a transaction
/// costs two write units per KiB, and all rows of one hold 4 MB together.
pub const INLINE_MAX: usize = 16 * 1024;

/// An outgoing event. Its bytes and its id never change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxEvent {
    /// Its id, which is also its `webhook-id`.
    pub id: EventId,
    /// Whose endpoints may get it.
    pub tenant: TenantId,
    /// The type, such as `invoice.paid`.
    pub event_type: String,
    /// The version of the type's schema.
    pub schema_version: u32,
    /// What the event is about.
    pub aggregate_id: String,
    /// The aggregate's version.
    pub aggregate_version: Option<u64>,
    /// The bytes that subscribers get.
    pub payload: Payload,
    /// When it was written.
    pub occurred_at: Timestamp,
    /// The W3C trace context of its cause.
    pub traceparent: Option<String>,
    /// What its publisher says about it beside the payload, for endpoints to choose by.
    pub labels: BTreeMap<String, String>,
}

/// The name of a payload in the bucket: `out/<tenant>/<sha256>`.
pub fn object_name(tenant: &TenantId, sha256: &Sha256Hash) -> String {
    format!("out/{tenant}/{sha256}")
}

/// Where an event's bytes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// The bytes themselves.
    Inline(Vec<u8>),
    /// An object in the bucket, named by its hash.
    Bucket(Sha256Hash),
}

impl OutboxEvent {
    /// The hash of everything that its publisher chose: two events with the same one are the same publish. Its id, its
    /// time and its trace belong to the call.
    pub fn fingerprint(&self) -> Sha256Hash {
        let payload = match &self.payload {
            Payload::Inline(bytes) => Sha256Hash::of(bytes),
            Payload::Bucket(sha256) => *sha256,
        };
        let Self {
            tenant,
            event_type,
            schema_version,
            aggregate_id,
            aggregate_version,
            labels,
            ..
        } = self;
        // Debug quotes texts, so that no two lists print alike.
        let chosen = format!(
            "{tenant} {event_type:?} {schema_version} {aggregate_id:?} {aggregate_version:?} {payload}"
        );
        // Without labels as it was before there were any: idempotency keys that were taken then still hold.
        let labels = if labels.is_empty() { String::new() } else { format!(" {labels:?}") };
        Sha256Hash::of(format!("{chosen}{labels}").as_bytes())
    }

    /// The outgoing event that a plan asked for.
    pub fn from_emit(id: EventId, emit: Emit, now: Timestamp) -> Self {
        let Emit {
            tenant,
            event_type,
            schema_version,
            aggregate_id,
            aggregate_version,
            payload,
            ..
        } = emit;
        Self {
            id,
            tenant,
            event_type,
            schema_version,
            aggregate_id,
            aggregate_version,
            payload: Payload::Inline(payload),
            occurred_at: now,
            traceparent: None,
            labels: BTreeMap::new(),
        }
    }
}

/// An event of the outbox, and how far it was relayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxRow {
    /// The event.
    pub event: OutboxEvent,
    /// When it was relayed, and to whom. `None` while it is NEW.
    pub relayed: Option<Relayed>,
}

/// The end of a fan-out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relayed {
    /// When.
    pub at: Timestamp,
    /// The endpoints that matched. Empty: nobody wanted it.
    pub endpoints: Vec<EndpointId>,
}
