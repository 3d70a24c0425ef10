//! Whether a plan can be carried out, before anything is.

use std::{collections::BTreeSet, io};

use super::{Change, Emit, Guard};
use crate::outbox::INLINE_MAX;

/// Most actions in one transaction. DynamoDB takes 100; ours stay far below, so that one plan cannot hold a table's
/// partition for long.
pub const MAX_ACTIONS: usize = 25;

/// Most bytes of one plan that go into its transaction: DynamoDB takes 4 MB. A payload over [`INLINE_MAX`] stands in a
/// bucket, and counts as that many.
pub const MAX_BYTES: usize = 4_000_000;

/// Most bytes of one object's fields, as JSON: an item of DynamoDB holds 400 KB, names and keys included.
pub const MAX_FIELDS: usize = 350_000;

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
