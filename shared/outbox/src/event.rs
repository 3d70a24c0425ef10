//! What happened, and who is to hear of it.

use std::collections::BTreeMap;

use domain::{
    id::{EventId, TenantId},
    outbox::{
        INLINE_MAX, OutboxEvent, Payload,
        rules::{Draft, Flaw, MAX_TEXT, is_key, is_trace},
    },
};
use jiff::Timestamp;
use serde::de::IgnoredAny;
use uuid::Uuid;

use crate::BadEvent;

/// An event to publish. A value: nothing has happened until your transaction commits.
///
/// Build it once for each change, and send the same items again when a transaction has to be repeated: its id stays, so
/// that it is written once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    id: EventId,
    /// Whether a key of the caller's made the id.
    key: Option<String>,
    tenant: String,
    event_type: String,
    schema_version: u32,
    aggregate_id: String,
    aggregate_version: Option<u64>,
    pub(crate) payload: Payload,
    labels: BTreeMap<String, String>,
    traceparent: Option<String>,
}

impl Event {
    /// An event that happens now, with a new id.
    ///
    /// `tenant` is whose endpoints hear of it; `event_type` such as `order.placed`; `aggregate_id` what it is about, such
    /// as the order's id. `payload` is JSON, at most 16 KiB ([`INLINE_MAX`](crate::INLINE_MAX)), and reaches receivers
    /// byte for byte.
    pub fn new(
        tenant: impl Into<String>,
        event_type: impl Into<String>,
        aggregate_id: impl Into<String>,
        payload: impl Into<Vec<u8>>,
    ) -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "the default for callers without a clock and ids of their own"
        )]
        let id = EventId::new(Uuid::now_v7());
        Self {
            id,
            key: None,
            tenant: tenant.into(),
            event_type: event_type.into(),
            schema_version: 1,
            aggregate_id: aggregate_id.into(),
            aggregate_version: None,
            payload: Payload::Inline(payload.into()),
            labels: BTreeMap::new(),
            traceparent: None,
        }
    }

    /// With an id of your own. Its time, which a `UUIDv7` begins with, is the time of the event.
    #[must_use]
    pub fn with_id(mut self, id: EventId) -> Self {
        self.id = id;
        self
    }

    /// With an id that follows from `key`, so that a program that does not know whether it has committed may run again:
    /// it builds the same event, and the store refuses it as [`Before`](crate::After::Before).
    ///
    /// `key` names the change among all changes of the tenant for ever, such as `place order-1`. `at` is when it happens,
    /// and part of the id: take a time that a second run knows too, such as the one in the request or the row that causes
    /// it, and never the clock. Endpoints that were made after it do not get the event.
    #[must_use]
    pub fn once(mut self, key: &str, at: Timestamp) -> Self {
        self.id = EventId::derived(at, &["transaction", &self.tenant, key]);
        self.key = Some(key.to_owned());
        self
    }

    /// With the version of what it is about, so that receivers can drop what is older than what they have.
    #[must_use]
    pub fn aggregate_version(mut self, version: u64) -> Self {
        self.aggregate_version = Some(version);
        self
    }

    /// With another version of the type's schema than 1.
    #[must_use]
    pub fn schema_version(mut self, version: u32) -> Self {
        self.schema_version = version;
        self
    }

    /// With a label that endpoints can choose by. At most 20; a name again replaces its value.
    #[must_use]
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(name.into(), value.into());
        self
    }

    /// With the W3C trace context of its cause, which receivers get a child of.
    #[must_use]
    pub fn traceparent(mut self, traceparent: impl Into<String>) -> Self {
        self.traceparent = Some(traceparent.into());
        self
    }

    /// Its id, which is the `webhook-id` of every delivery.
    pub fn id(&self) -> EventId {
        self.id
    }

    /// A `ClientRequestToken` for the transaction: the store takes a request that comes again within ten minutes for the
    /// same one, and refuses it if anything in it differs. Only for a transaction whose other items follow from the same
    /// cause, as this event does; without one, the SDK makes a token for its own tries.
    pub fn token(&self) -> String {
        // The store takes 36 characters.
        self.id.uuid().simple().to_string()
    }

    /// The event as the outbox keeps it.
    pub(crate) fn checked(&self) -> Result<OutboxEvent, BadEvent> {
        let tenant = self.tenant.parse::<TenantId>();
        let mut flaws = Vec::new();
        let mut note = |field, problem: String| flaws.push(Flaw { field, problem });
        if let Err(invalid) = &tenant {
            note("tenant", invalid.to_string());
        }
        if self.key.as_deref().is_some_and(|key| !is_key(key)) {
            note("key", format!("it is 1 to {MAX_TEXT} visible ASCII characters"));
        }
        if self.traceparent.as_deref().is_some_and(|trace| !is_trace(trace)) {
            note("traceparent", "it is a W3C trace context of version 00".to_owned());
        }
        let draft = Draft {
            event_type: &self.event_type,
            schema_version: self.schema_version,
            aggregate_id: &self.aggregate_id,
            labels: &self.labels,
        };
        flaws.extend(draft.flaws());
        flaws.extend(self.payload_flaw());
        match tenant {
            Ok(tenant) if flaws.is_empty() => Ok(self.of(tenant)),
            _ => Err(BadEvent::with(flaws)),
        }
    }

    /// The tenant, if that can be one.
    #[cfg(feature = "large")]
    pub(crate) fn owner(&self) -> Option<TenantId> {
        self.tenant.parse().ok()
    }

    fn of(&self, tenant: TenantId) -> OutboxEvent {
        OutboxEvent {
            id: self.id,
            tenant,
            event_type: self.event_type.clone(),
            schema_version: self.schema_version,
            aggregate_id: self.aggregate_id.clone(),
            aggregate_version: self.aggregate_version,
            payload: self.payload.clone(),
            // One time for both: an event that is built again is the same to the last byte.
            occurred_at: self.id.time(),
            traceparent: self.traceparent.clone(),
            labels: self.labels.clone(),
        }
    }

    fn payload_flaw(&self) -> Option<Flaw> {
        let Payload::Inline(bytes) = &self.payload else { return None };
        let problem = if bytes.len() > INLINE_MAX {
            format!(
                "it has {} bytes, and a transaction carries {INLINE_MAX}; put it into the bucket before the \
                 transaction (`Event::aside`, feature `large`), or send a link to what is large",
                bytes.len()
            )
        } else {
            serde_json::from_slice::<IgnoredAny>(bytes)
                .err()
                .map(|error| format!("it is not JSON: {error}"))?
        };
        Some(Flaw { field: "payload", problem })
    }
}
