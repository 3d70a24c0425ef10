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

use std::{collections::BTreeSet, fmt, io, str::FromStr, time::Duration};

use crate::{
    body::Sha256Hash,
    event::{Object, ObjectRef, Stamp, Version},
    id::TenantId,
    outbox::INLINE_MAX,
};

/// Longest operation key, in bytes.
pub const MAX_OPERATION_KEY: usize = 512;

/// Most actions in one transaction. DynamoDB takes 100; ours stay far below, so that one plan cannot hold a table's
/// partition for long.
pub const MAX_ACTIONS: usize = 25;

/// Most bytes of one plan that go into its transaction: DynamoDB takes 4 MB. A payload over [`INLINE_MAX`] stands in a
/// bucket, and counts as that many.
pub const MAX_BYTES: usize = 4_000_000;

/// Most bytes of one object's fields, as JSON: an item of DynamoDB holds 400 KB, names and keys included.
pub const MAX_FIELDS: usize = 350_000;

/// The business identity of an effect (credit for one invoice), taken once for ever.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationKey(String);

/// A text that cannot be an operation key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an operation key is 1 to {MAX_OPERATION_KEY} bytes without control characters")]
pub struct InvalidOperationKey;

impl OperationKey {
    /// The key of these parts, such as `credit` and the invoice's id: joined by `#`. Other parts make another key,
    /// whatever they contain, and every list of parts makes one: one that is too long stands as its hash.
    pub fn of(parts: &[&str]) -> Self {
        let plain = |c: char| !c.is_control() && c != '#' && c != '%';
        let part = |part: &&str| {
            let mut told = String::with_capacity(part.len());
            for c in part.chars() {
                if plain(c) {
                    told.push(c);
                } else {
                    told.push_str(&format!("%{:02X}", u32::from(c)));
                }
            }
            told
        };
        let joined = parts.iter().map(part).collect::<Vec<_>>().join("#");
        // No joined key looks like that: there, two digits follow each `%`.
        let hashed =
            || Self(format!("%sha256:{}", Sha256Hash::of(format!("{parts:?}").as_bytes())));
        joined.parse().unwrap_or_else(|InvalidOperationKey| hashed())
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for OperationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for OperationKey {
    type Err = InvalidOperationKey;

    fn from_str(text: &str) -> Result<Self, InvalidOperationKey> {
        let good =
            (1..=MAX_OPERATION_KEY).contains(&text.len()) && !text.chars().any(char::is_control);
        if good { Ok(Self(text.to_owned())) } else { Err(InvalidOperationKey) }
    }
}

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

/// A plan that cannot be carried out. It is the handler's mistake, so the event is parked with this reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPlan {
    /// More than one transaction holds.
    #[error(
        "the plan has {0} actions, and one transaction holds {MAX_ACTIONS}; split the event's work, for example into \
         outgoing events that cause the rest"
    )]
    TooMany(usize),
    /// DynamoDB refuses two actions on one item.
    #[error(
        "the plan changes {0} twice; merge the two changes into one, or give the two events different names"
    )]
    Twice(String),
    /// More bytes than the store holds.
    #[error(
        "{what} would have {bytes} bytes, and {most} is the most; keep less of it, or a reference to it"
    )]
    TooLarge {
        /// What is too large: an object, or the whole plan.
        what: String,
        /// How many bytes it has.
        bytes: usize,
        /// How many it may have.
        most: usize,
    },
    /// Something without a name could not be told from other things without one.
    #[error(
        "the plan has {0} without a name; take the name from the event, or ignore an event that has none"
    )]
    BadName(&'static str),
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

/// Checks that changes can be carried out in one transaction, and that each thing in them has a name.
pub fn check(changes: &[Change]) -> Result<(), BadPlan> {
    fits(changes)?;
    has_names(changes)?;
    has_each_once(changes)
}

/// What DynamoDB holds in one transaction.
fn fits(changes: &[Change]) -> Result<(), BadPlan> {
    // What follows from a refused transition is never written.
    let (written, refused): (Vec<_>, Vec<_>) =
        changes.iter().partition(|change| !matches!(change.guard, Guard::Refused { .. }));
    let guards = written.iter().filter(|change| change.guard.is_action()).count();
    let events: usize = written.iter().map(|change| change.events.len()).sum();
    // One for the inbox row, one for a lease. Refused ones are no actions, but stand in the row.
    let actions = 2 + guards + events;
    if actions.max(refused.len()) > MAX_ACTIONS {
        return Err(BadPlan::TooMany(actions.max(refused.len())));
    }
    let mut all = 0;
    for change in written {
        if let Some(fields) = change.guard.fields() {
            let bytes = json_bytes(fields);
            if bytes > MAX_FIELDS {
                let what = change.guard.what().unwrap_or_default();
                return Err(BadPlan::TooLarge { what, bytes, most: MAX_FIELDS });
            }
            all += bytes;
        }
        all += change.events.iter().map(|event| event.payload.len().min(INLINE_MAX)).sum::<usize>();
    }
    if all > MAX_BYTES {
        let what = "the plan in all".to_owned();
        return Err(BadPlan::TooLarge { what, bytes: all, most: MAX_BYTES });
    }
    Ok(())
}

fn has_names(changes: &[Change]) -> Result<(), BadPlan> {
    let has = |named: bool, what| if named { Ok(()) } else { Err(BadPlan::BadName(what)) };
    for Change { guard, events } in changes {
        let object = guard.object();
        has(object.is_none_or(|object| !object.kind.is_empty()), "an object of a kind")?;
        has(object.is_none_or(|object| !object.id.is_empty()), "an object")?;
        for event in events {
            has(!event.event_type.is_empty(), "an outgoing event of a type")?;
            has(!event.aggregate_id.is_empty(), "an outgoing event about an aggregate")?;
        }
    }
    Ok(())
}

fn has_each_once(changes: &[Change]) -> Result<(), BadPlan> {
    // Whole parts, not their text in a row: an object `a b` named `c` is not an object `a` named `b c`.
    let mut seen = BTreeSet::new();
    for Change { guard, events } in changes {
        let item = match guard {
            Guard::Newer { object, .. } | Guard::Unchanged { object, .. } => {
                Some(vec!["object", &object.kind, &object.id])
            }
            Guard::Once(key) => Some(vec!["operation", key.as_str()]),
            Guard::Free => None,
            Guard::Refused { .. } => continue,
        };
        if item.is_some_and(|item| !seen.insert(item)) {
            return Err(BadPlan::Twice(guard.what().unwrap_or_default()));
        }
        for event in events {
            let Emit { tenant, event_type, aggregate_id, name, .. } = event;
            if !seen.insert(vec!["event", tenant.as_str(), event_type, aggregate_id, name]) {
                return Err(BadPlan::Twice(format!(
                    "event {event_type} of {aggregate_id} for {tenant} named {name:?}"
                )));
            }
        }
    }
    Ok(())
}

/// How many bytes a value has as JSON, without writing it anywhere.
fn json_bytes(value: &serde_json::Value) -> usize {
    struct Count(usize);
    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // A value that cannot be written (a map whose keys are no texts is none of ours) would be refused later as well.
    if serde_json::to_writer(&mut count, value).is_err() {
        return usize::MAX;
    }
    count.0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn object(kind: &str, id: &str) -> Change {
        let object = ObjectRef { kind: kind.to_owned(), id: id.to_owned() };
        Change::newer(object, Version::Number(1), serde_json::Value::Null)
    }

    fn once(key: &str) -> Change {
        Change::once(key.parse().unwrap())
    }

    fn emit(tenant: &str, event_type: &str, aggregate_id: &str, name: &str) -> Emit {
        Emit {
            tenant: tenant.parse().unwrap(),
            event_type: event_type.to_owned(),
            schema_version: 1,
            aggregate_id: aggregate_id.to_owned(),
            aggregate_version: None,
            name: name.to_owned(),
            payload: b"{}".to_vec(),
        }
    }

    #[track_caller]
    fn fits(changes: &[Change]) {
        assert_eq!(check(changes), Ok(()));
    }

    #[track_caller]
    fn repeats(changes: &[Change], what: &str) {
        assert_eq!(check(changes), Err(BadPlan::Twice(what.to_owned())));
    }

    #[test]
    fn a_plan_may_touch_an_item_once() {
        fits(&[]);
        fits(&[object("invoice", "1"), object("invoice", "2"), object("order", "1")]);
        repeats(&[object("invoice", "1"), once("a"), object("invoice", "1")], "object invoice 1");
        repeats(&[once("a"), once("b"), once("a")], "operation a");
    }

    #[test]
    fn things_whose_names_only_look_alike_are_two_things() {
        fits(&[object("a b", "c"), object("a", "b c")]);
        fits(&[
            Change::emit(emit("t", "a of b", "c", "n")),
            Change::emit(emit("t", "a", "b of c", "n")),
        ]);
    }

    #[test]
    fn one_event_may_go_out_once_wherever_it_stands_in_the_plan() {
        let first = emit("t", "invoice.paid", "in_1", "");
        fits(&[Change::emit(first.clone()), Change::emit(emit("u", "invoice.paid", "in_1", ""))]);
        fits(&[Change::emit(first.clone()).then_emit(emit("t", "invoice.paid", "in_1", "b"))]);
        repeats(
            &[once("a").then_emit(first.clone()), Change::emit(first)],
            r#"event invoice.paid of in_1 for t named """#,
        );
    }

    #[test]
    fn a_plan_that_one_transaction_cannot_hold_is_refused() {
        let names: Vec<String> = (0..24).map(|n| n.to_string()).collect();
        let all: Vec<Change> = names.iter().map(|name| once(name)).collect();
        fits(&all[..23]);
        assert_eq!(check(&all), Err(BadPlan::TooMany(26)));
        let events = names.iter().fold(once("k"), |c, name| c.then_emit(emit("t", "x", "y", name)));
        assert_eq!(check(&[events]), Err(BadPlan::TooMany(27)));
    }

    proptest! {
        #[test]
        fn every_operation_key_reads_back_as_itself(text in "\\PC{1,40}") {
            let key: OperationKey = text.parse().unwrap();
            prop_assert_eq!(key.as_str(), text);
        }
    }

    #[test]
    fn what_cannot_stand_in_a_key_is_no_operation_key() {
        for bad in ["", "a\nb", "\0", &"x".repeat(513)] {
            assert_eq!(bad.parse::<OperationKey>(), Err(InvalidOperationKey), "{bad:?}");
        }
        assert!("x".repeat(512).parse::<OperationKey>().is_ok());
    }
}
