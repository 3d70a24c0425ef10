//! What a handler wants to be true: a value. Nothing has happened yet.
//!
//! A plan is a list of changes. A change has one guard, and the outgoing events that follow from it: they are written
//! together or not at all, so a half-applied change cannot be expressed.
//!
//! ```
//! # use domain::{event::{ObjectRef, Version}, id::TenantId, plan::{Change, Emit, OperationKey, Plan}};
//! # fn paid(tenant: TenantId, invoice: ObjectRef) -> Plan {
//! let credit = Change::once(OperationKey::of(&["credit", &invoice.id]))
//!     .then_emit(Emit::new(tenant, "credit.granted", &invoice.id, "{}"));
//! Plan::change(Change::newer(invoice, Version::Number(7), serde_json::json!({ "status": "paid" }))).and(credit)
//! # }
//! ```

mod check;
mod operation;
#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::{
    event::{Object, ObjectRef, Stamp, Version},
    id::TenantId,
};

pub use self::{
    check::{BadPlan, MAX_ACTIONS, MAX_BYTES, MAX_FIELDS, check},
    operation::{InvalidOperationKey, MAX_OPERATION_KEY, OperationKey},
};

/// What a handler decides about an event.
#[derive(Clone, Debug, PartialEq)]
pub enum Plan {
    /// Make these changes true. An empty list means that the event is processed and changes nothing.
    Apply(Vec<Change>),
    /// Nobody wants this event.
    Ignored(String),
    /// Not yet: look again after a delay.
    Requeue {
        /// How long to wait.
        delay: Duration,
        /// What it waits for.
        reason: String,
    },
    /// Never: park it for a person.
    Reject(String),
}

/// One change, with the guard that decides whether it happens, and what follows from it.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// What must hold.
    pub guard: Guard,
    /// The outgoing events that follow.
    pub events: Vec<Emit>,
}

/// What must hold for a change to happen.
#[derive(Clone, Debug, PartialEq)]
pub enum Guard {
    /// The object is absent or older: it becomes this. Otherwise the change is dropped, as stale.
    Newer {
        /// Which object.
        object: ObjectRef,
        /// The version of what follows.
        version: Version,
        /// What it becomes.
        fields: serde_json::Value,
        /// Whether it is deleted. The row stays.
        deleted: bool,
    },
    /// The object is as the plan saw it: it becomes this. Otherwise it is read again and the event planned again, for a
    /// plan that looked at another state may mean something else now. Never dropped.
    Unchanged {
        /// Which object.
        object: ObjectRef,
        /// What it was; `None`: it was absent.
        read: Option<Stamp>,
        /// The version of what follows.
        version: Version,
        /// What it becomes.
        fields: serde_json::Value,
        /// Whether it is deleted. The row stays.
        deleted: bool,
    },
    /// The operation has never been done. Otherwise the change is dropped, as a duplicate effect.
    Once(OperationKey),
    /// Nothing: the outgoing events guard themselves by their derived ids.
    Free,
    /// Never: the object may not go there. Nothing is written but the reason, in the story of the event.
    Refused {
        /// Which object.
        object: ObjectRef,
        /// Why it may not, for people.
        why: String,
    },
}

/// An outgoing event, before it has an id.
#[derive(Clone, Debug, PartialEq)]
pub struct Emit {
    /// Whose endpoints may get it.
    pub tenant: TenantId,
    /// The type, such as `invoice.paid`.
    pub event_type: String,
    /// The version of the type's schema.
    pub schema_version: u32,
    /// What the event is about; events of one aggregate share a lane.
    pub aggregate_id: String,
    /// The aggregate's version, so that receivers can drop what is old.
    pub aggregate_version: Option<u64>,
    /// Tells apart two events of one type about one aggregate in one plan.
    pub name: String,
    /// The bytes that subscribers get.
    pub payload: Vec<u8>,
}

impl From<Change> for Plan {
    fn from(change: Change) -> Self {
        Self::Apply(vec![change])
    }
}

impl FromIterator<Change> for Plan {
    fn from_iter<T: IntoIterator<Item = Change>>(changes: T) -> Self {
        Self::Apply(changes.into_iter().collect())
    }
}

impl Plan {
    /// The event is processed, and changes nothing.
    pub const fn nothing() -> Self {
        Self::Apply(Vec::new())
    }

    /// One change.
    pub fn change(change: Change) -> Self {
        change.into()
    }

    /// Nobody wants this event, for this reason.
    pub fn ignored(reason: impl Into<String>) -> Self {
        Self::Ignored(reason.into())
    }

    /// Not yet: look again after a delay.
    pub fn requeue(delay: Duration, reason: impl Into<String>) -> Self {
        Self::Requeue { delay, reason: reason.into() }
    }

    /// Never: park it for a person.
    pub fn reject(reason: impl Into<String>) -> Self {
        Self::Reject(reason.into())
    }

    /// The same plan with one change more. An event that nobody wanted is wanted for it; a plan that waits or rejects
    /// stays as it is, for nothing of it may happen.
    #[must_use]
    pub fn and(self, change: Change) -> Self {
        match self {
            Self::Apply(mut changes) => {
                changes.push(change);
                Self::Apply(changes)
            }
            Self::Ignored(_) => change.into(),
            Self::Requeue { .. } | Self::Reject(_) => self,
        }
    }
}

impl Guard {
    /// What the guard is about, for people.
    pub fn what(&self) -> Option<String> {
        match self {
            Self::Newer { object, .. }
            | Self::Unchanged { object, .. }
            | Self::Refused { object, .. } => Some(format!("object {} {}", object.kind, object.id)),
            Self::Once(key) => Some(format!("operation {key}")),
            Self::Free => None,
        }
    }

    /// Whether the guard is an action of the transaction.
    pub const fn is_action(&self) -> bool {
        match self {
            Self::Newer { .. } | Self::Unchanged { .. } | Self::Once(_) => true,
            Self::Free | Self::Refused { .. } => false,
        }
    }

    fn object(&self) -> Option<&ObjectRef> {
        match self {
            Self::Newer { object, .. }
            | Self::Unchanged { object, .. }
            | Self::Refused { object, .. } => Some(object),
            Self::Once(_) | Self::Free => None,
        }
    }

    fn fields(&self) -> Option<&serde_json::Value> {
        match self {
            Self::Newer { fields, .. } | Self::Unchanged { fields, .. } => Some(fields),
            Self::Once(_) | Self::Free | Self::Refused { .. } => None,
        }
    }
}

impl Change {
    /// An object becomes this, if it is absent or older.
    pub fn newer(object: ObjectRef, version: Version, fields: serde_json::Value) -> Self {
        Guard::Newer { object, version, fields, deleted: false }.into()
    }

    /// An object becomes this, if it still is as it was read: for a change that depends on what the object was.
    pub fn unchanged(
        object: ObjectRef,
        read: Option<&Object>,
        version: Version,
        fields: serde_json::Value,
    ) -> Self {
        let read = read.map(Object::stamp);
        Guard::Unchanged { object, read, version, fields, deleted: false }.into()
    }

    /// An operation is done, if it has never been done.
    pub fn once(key: OperationKey) -> Self {
        Guard::Once(key).into()
    }

    /// An event goes out. It is written once, whatever is repeated.
    pub fn emit(event: Emit) -> Self {
        Self { guard: Guard::Free, events: vec![event] }
    }

    /// A transition that the event proposes and that is not allowed: it is told in the event's story, with the reason,
    /// and nothing else happens. What would follow from it does not happen either.
    pub fn refused(object: ObjectRef, why: impl Into<String>) -> Self {
        Guard::Refused { object, why: why.into() }.into()
    }

    /// The same change, and the object is deleted by it. Its row stays, so that a late update does not revive it. A
    /// change of anything else stays as it is.
    #[must_use]
    pub fn deleted(mut self) -> Self {
        if let Guard::Newer { deleted, .. } | Guard::Unchanged { deleted, .. } = &mut self.guard {
            *deleted = true;
        }
        self
    }

    /// The same change, and this event follows from it.
    #[must_use]
    pub fn then_emit(mut self, event: Emit) -> Self {
        self.events.push(event);
        self
    }
}

impl From<Guard> for Change {
    fn from(guard: Guard) -> Self {
        Self { guard, events: Vec::new() }
    }
}

impl Emit {
    /// An event of schema version 1, of no version of its aggregate, and without a name of its own.
    pub fn new(
        tenant: TenantId,
        event_type: impl Into<String>,
        aggregate_id: impl Into<String>,
        payload: impl Into<Vec<u8>>,
    ) -> Self {
        Self {
            tenant,
            event_type: event_type.into(),
            schema_version: 1,
            aggregate_id: aggregate_id.into(),
            aggregate_version: None,
            name: String::new(),
            payload: payload.into(),
        }
    }

    /// With the version of the type's schema that the payload is written in.
    #[must_use]
    pub const fn schema_version(mut self, version: u32) -> Self {
        self.schema_version = version;
        self
    }

    /// With the aggregate's version.
    #[must_use]
    pub fn aggregate_version(mut self, version: impl Into<Option<u64>>) -> Self {
        self.aggregate_version = version.into();
        self
    }

    /// With a name that tells it apart from another event of its type about its aggregate in one plan. It is part of
    /// what the event's id follows from: the same thing must have the same name for ever.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }
}
