//! What a handler wants to be true: a value. Nothing has happened yet.
//!
//! A plan is a list of changes. A change has one guard, and the outgoing events that follow from it: they are written
//! together or not at all, so a half-applied change cannot be expressed.

use std::{collections::BTreeSet, fmt, str::FromStr, time::Duration};

use crate::event::{ObjectRef, Version};

/// Longest operation key, in bytes.
pub const MAX_OPERATION_KEY: usize = 512;

/// Most actions in one transaction. DynamoDB takes 100; ours stay far below, so that one plan cannot hold a table's
/// partition for long.
pub const MAX_ACTIONS: usize = 25;

/// The business identity of an effect (credit for one invoice), taken once for ever.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationKey(String);

/// A text that cannot be an operation key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an operation key is 1 to {MAX_OPERATION_KEY} bytes without control characters")]
pub struct InvalidOperationKey;

impl OperationKey {
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
    /// The object is absent or older: it becomes this.
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
    /// The operation has never been done.
    Once(OperationKey),
    /// Nothing: the outgoing events guard themselves by their derived ids.
    Free,
}

/// An outgoing event, before it has an id.
#[derive(Clone, Debug, PartialEq)]
pub struct Emit {
    /// Whose endpoints may get it.
    pub tenant: crate::id::TenantId,
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
        "the plan has {0} actions, and one transaction holds {MAX_ACTIONS}; split the event's work"
    )]
    TooMany(usize),
    /// DynamoDB refuses two actions on one item.
    #[error("the plan changes {0} twice; merge the two changes into one")]
    Twice(String),
}

impl Guard {
    /// What the guard is about, for people.
    pub fn what(&self) -> Option<String> {
        match self {
            Self::Newer { object, .. } => Some(format!("object {} {}", object.kind, object.id)),
            Self::Once(key) => Some(format!("operation {key}")),
            Self::Free => None,
        }
    }
}

impl Change {
    /// An object becomes this, if it is absent or older.
    pub fn newer(object: ObjectRef, version: Version, fields: serde_json::Value) -> Self {
        Self { guard: Guard::Newer { object, version, fields, deleted: false }, events: Vec::new() }
    }

    /// An operation is done, if it has never been done.
    pub fn once(key: OperationKey) -> Self {
        Self { guard: Guard::Once(key), events: Vec::new() }
    }

    /// An event goes out. It is written once, whatever is repeated.
    pub fn emit(event: Emit) -> Self {
        Self { guard: Guard::Free, events: vec![event] }
    }

    /// The same change, and this event follows from it.
    #[must_use]
    pub fn then_emit(mut self, event: Emit) -> Self {
        self.events.push(event);
        self
    }
}

/// Checks that changes fit one transaction.
pub fn check(changes: &[Change]) -> Result<(), BadPlan> {
    let guards = changes.iter().filter(|change| change.guard != Guard::Free).count();
    let events: usize = changes.iter().map(|change| change.events.len()).sum();
    // One for the inbox row, one for a lease.
    let actions = 2 + guards + events;
    if actions > MAX_ACTIONS {
        return Err(BadPlan::TooMany(actions));
    }
    // Whole parts, not their text in a row: an object `a b` named `c` is not an object `a` named `b c`.
    let mut seen = BTreeSet::new();
    for Change { guard, events } in changes {
        let item = match guard {
            Guard::Newer { object, .. } => Some(vec!["object", &object.kind, &object.id]),
            Guard::Once(key) => Some(vec!["operation", key.as_str()]),
            Guard::Free => None,
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
