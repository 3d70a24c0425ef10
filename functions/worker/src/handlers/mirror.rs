//! Objects follow the provider, from the scheme alone.
//!
//! An object's fields are the whole body of the newest event about it, parsed. The row knows which object an event is
//! about, not where in the body its state stands, and cutting out the wrong part would be worse than keeping too much.
//! (Numbers beyond 64 bits become the nearest double in this view; the outgoing event has the bytes as they came.)
//!
//! What decides, the first that is there:
//!
//! 1. What the provider says when it is asked. It is what is, and an event only what was: so it always wins, unless the
//!    object already has a later version than the answer.
//! 2. A machine of states, if the source has one: an event proposes a move. An allowed one is made whatever the versions
//!    say, a refused one is told in the event's story, and within one state the newest version counts. Deletion is the
//!    last state of all, and nothing leaves it.
//! 3. The newest version. Of equal versions with different contents one wins, always the same: see
//!    [`tie_of`]. A deletion leaves a tombstone of its version, or of [`Version::End`] if it has none.
//!
//! In all three the events of an object end alike in whatever order they arrive, if no two of the states depend on it
//! ([`order_matters`](domain::states::States::order_matters)).

use domain::{
    commit::{is_newer, tie_of},
    event::{Object, ObjectRef, Version},
    fetch::Fetched,
    id::TenantId,
    plan::{Change, Emit, MAX_FIELDS, Plan},
    states::{MirrorStates, Move},
};
use serde_json::{Value, json};

use super::Event;

/// The object becomes what the event says of it, or the provider; and `emit_to`, if any, is told.
pub fn plan(
    event: &Event<'_>,
    current: Option<&Object>,
    emit_to: Option<&TenantId>,
    states: Option<&MirrorStates>,
) -> Plan {
    let Some(object) = &event.row.object else {
        return Plan::ignored(
            "no_object: the scheme finds no object in this event, so there is nothing to mirror",
        );
    };
    let planned = match event.fetched {
        Some(fetched) => Ok(as_fetched(event, object, fetched, current, emit_to)),
        None => as_told(event, object, current, emit_to, states),
    };
    planned.map_or_else(|plan| plan, Plan::change)
}

/// The object as the event tells it. `Err`: the plan is another one.
fn as_told(
    event: &Event<'_>,
    object: &ObjectRef,
    current: Option<&Object>,
    emit_to: Option<&TenantId>,
    states: Option<&MirrorStates>,
) -> Result<Change, Plan> {
    let deleted = is_deletion(event.event_type(), object);
    let version = match &event.row.version {
        Some(version) => version.clone(),
        None if deleted => Version::End,
        None => {
            return Err(Plan::ignored(
                "no_version: the event does not say how new it is, and taking it as the newest could undo a later \
                 change; let the source ask the provider for the state (`postern sources set NAME --fetch ...`), then \
                 replay the event",
            ));
        }
    };
    if current.is_some_and(|current| !current.version.is_like(&version)) {
        return Err(Plan::reject(format!(
            "{} {} has a version of another kind than this event, so neither is known to be newer; was the scheme of \
             {} changed?",
            object.kind,
            object.id,
            event.source()
        )));
    }
    let fields = fields(event)?;
    let states = states.filter(|states| states.are_of(&object.kind));
    let number = version.as_number();
    // What was read compares with no version. Now that nobody asks any more, what happened after it counts.
    let happened_at = event.row.occurred_at.unwrap_or(event.row.received_at);
    let is_after = current.is_some_and(|current| {
        matches!(current.version, Version::Reading(_)) && happened_at > current.as_of
    });
    let is_move = match states.map(|states| step(states, current, &fields, deleted)).transpose()? {
        None => is_after,
        Some(Step::Refused(why)) => return Err(Change::refused(object.clone(), why).into()),
        Some(Step::Move) => true,
        Some(Step::Newer) if is_after => true,
        // What is newer within a state must not meet another state: while it was planned, the object may have moved on.
        // What is not newer ends as stale before anything is written.
        Some(Step::Newer) => {
            let known = current.map(|current| (&current.version, current.tie.as_str()));
            is_newer((&version, &tie_of(&fields, deleted)), known)
        }
    };
    let change = if is_move {
        Change::unchanged(object.clone(), current, version, fields)
    } else {
        Change::newer(object.clone(), version, fields)
    };
    let change = if deleted { change.deleted() } else { change };
    let Some(tenant) = emit_to else { return Ok(change) };
    // A move is made whatever the number, and receivers drop what has a lower one than they know.
    let grows = |current: &Object| current.version.as_number() < number;
    let told = Emit::new(
        tenant.clone(),
        event.event_type().map_or_else(|| format!("{}.changed", object.kind), str::to_owned),
        event.aggregate_id(),
        event.payload(),
    );
    let number = number.filter(|_| states.is_none() || current.is_none_or(grows));
    Ok(change.then_emit(told.aggregate_version(number).name("mirror")))
}

fn fields(event: &Event<'_>) -> Result<Value, Plan> {
    if event.body.len() > MAX_FIELDS {
        return Err(Plan::reject(format!(
            "the body has {} bytes, and an object holds {MAX_FIELDS}; forward events of this size instead",
            event.body.len()
        )));
    }
    let body = event.body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(event.body);
    serde_json::from_slice(body).map_err(|_| {
        Plan::reject("the body cannot be parsed as JSON, so it has no fields to mirror")
    })
}

/// How an event may change its object.
enum Step {
    /// If it is newer.
    Newer,
    /// If the object is still where it was.
    Move,
    /// Not at all, and why.
    Refused(String),
}

/// What a machine says of an event. `Err`: nothing can be said, and a person has to look.
fn step(
    states: &MirrorStates,
    current: Option<&Object>,
    fields: &Value,
    deleted: bool,
) -> Result<Step, Plan> {
    if current.is_some_and(|current| current.deleted) {
        let refused = "it is deleted, and nothing follows after that".to_owned();
        return Ok(if deleted { Step::Newer } else { Step::Refused(refused) });
    }
    if deleted {
        return Ok(Step::Move);
    }
    let said = |fields: &Value| Some(fields.pointer(&states.at)?.as_str()?.to_owned());
    let known = |state: &String| states.states.moves.contains_key(state);
    let Some(to) = said(fields).filter(known) else {
        return Err(Plan::reject(format!(
            "no_state: what the event says at {} is none of the states of its source; add it to the states, with what \
             may follow it (`postern sources set NAME --mirror --states FILE`), then replay the event",
            states.at
        )));
    };
    let from = current.map(|current| said(&current.fields));
    // What was read from the provider may have another form than an event: then only versions can tell.
    let Some(from) = from.map_or(Some(None), |said| said.map(Some)) else { return Ok(Step::Newer) };
    Ok(match states.states.propose(from.as_deref(), &to) {
        Move::Allowed => Step::Move,
        Move::Same => Step::Newer,
        Move::Refused(why) => Step::Refused(why),
    })
}

/// The object as the provider has it now. Subscribers get that, and not the event, which may be older; nothing, if it is
/// what they know.
fn as_fetched(
    event: &Event<'_>,
    object: &ObjectRef,
    fetched: &Fetched,
    current: Option<&Object>,
    emit_to: Option<&TenantId>,
) -> Change {
    let known = current.map_or(Value::Null, |current| current.fields.clone());
    let ObjectRef { kind, id } = object;
    let (version, fields, told) = match fetched {
        Fetched::State { fields, version, .. } => {
            let version = version.clone().unwrap_or_else(|| next_reading(current));
            (version, fields.clone(), (format!("{kind}.changed"), fields.to_string()))
        }
        Fetched::Gone { .. } => {
            let gone = json!({ "object": kind, "id": id, "deleted": true });
            (last_version(event, current), known, (format!("{kind}.deleted"), gone.to_string()))
        }
    };
    let deleted = matches!(fetched, Fetched::Gone { .. });
    let is_known =
        current.is_some_and(|current| current.fields == fields && current.deleted == deleted);
    let number = version.as_number();
    // A replay may find another state than the event's first try did, and subscribers are to hear of that too. Named by
    // what it changes and into what: a try that was cut off asks again, under a new fence, and means the same change.
    let before = current.map(|current| &current.version);
    let name = json!(["mirror", before, tie_of(&fields, deleted)]).to_string();
    let is_later = current.is_some_and(|Object { version: known, .. }| {
        is_told(known) && known.is_like(&version) && *known > version
    });
    let change = if is_later {
        // The answer is from before the last change: it ends as stale.
        Change::newer(object.clone(), version, fields)
    } else {
        Change::unchanged(object.clone(), current, version, fields)
    };
    let change = if deleted { change.deleted() } else { change };
    match emit_to.filter(|_| !is_known) {
        None => change,
        Some(tenant) => {
            let (event_type, payload) = told;
            let told = Emit::new(tenant.clone(), event_type, id, payload);
            change.then_emit(told.aggregate_version(number).name(name))
        }
    }
}

/// Whether a version is the provider's word, and not of our own making.
const fn is_told(version: &Version) -> bool {
    !matches!(version, Version::End | Version::Reading(_))
}

/// The version of an answer that has none, after what is known.
fn next_reading(current: Option<&Object>) -> Version {
    match current.map(|current| &current.version) {
        Some(Version::Reading(last)) => Version::Reading(last + 1),
        _ => Version::Reading(1),
    }
}

/// The version of what is gone: the latest that anybody has named, so that a later one may bring it back.
fn last_version(event: &Event<'_>, current: Option<&Object>) -> Version {
    let known = current.map(|current| &current.version);
    match known.max(event.row.version.as_ref()) {
        Some(last) if is_told(last) => last.clone(),
        _ => next_reading(current),
    }
}

/// Whether an event says that its object is gone: its type ends with the object's kind and `delete` or `deleted`, as in
/// `customer.subscription.deleted` and `products/delete`. A `delete` of something else, such as a branch, does not count.
fn is_deletion(event_type: Option<&str>, object: &ObjectRef) -> bool {
    let mut words = event_type.unwrap_or_default().rsplit(['.', '/']);
    matches!(words.next(), Some("delete" | "deleted")) && words.next() == Some(object.kind.as_str())
}

#[cfg(test)]
mod tests {
    use domain::plan::Guard;
    use jiff::Timestamp;
    use serde_json::json;

    use super::{super::tests::row, *};

    fn planned(
        event_type: &str,
        object: Option<(&str, &str)>,
        version: Option<u64>,
        body: &str,
    ) -> Plan {
        let row = row(Some(event_type), object, version.map(Version::Number));
        plan(&Event::new(&row, body.as_bytes()), None, Some(&"demo".parse().unwrap()), None)
    }

    #[test]
    fn an_object_becomes_the_whole_body_and_the_tenant_gets_the_bytes() {
        let body = r#"{"data":{"object":{"id":"in_1", "n": 1.0}}}"#;
        let Plan::Apply(changes) =
            planned("invoice.paid", Some(("invoice", "in_1")), Some(7), body)
        else {
            panic!("not applied");
        };
        let [Change { guard: Guard::Newer { object, version, fields, deleted }, events }] =
            &*changes
        else {
            panic!("{changes:?}");
        };
        assert_eq!((object.kind.as_str(), object.id.as_str()), ("invoice", "in_1"));
        assert_eq!((version, *deleted), (&Version::Number(7), false));
        assert_eq!(fields, &json!({ "data": { "object": { "id": "in_1", "n": 1.0 } } }));
        let [event] = &**events else { panic!("{events:?}") };
        assert_eq!(event.payload, body.as_bytes());
        assert_eq!(
            (event.event_type.as_str(), event.aggregate_id.as_str()),
            ("invoice.paid", "in_1")
        );
        assert_eq!(event.aggregate_version, Some(7));
    }

    #[test]
    fn nobody_is_told_unless_the_source_says_whom() {
        let row = row(None, Some(("invoice", "in_1")), Some(Version::Number(1)));
        let Plan::Apply(changes) = plan(&Event::new(&row, b"{}"), None, None, None) else {
            panic!()
        };
        assert!(changes[0].events.is_empty());
    }

    #[test]
    fn an_event_that_cannot_be_placed_is_ignored_with_the_reason() {
        let says =
            |planned, word: &str| matches!(planned, Plan::Ignored(why) if why.starts_with(word));
        assert!(says(planned("a", None, Some(1), "{}"), "no_object: "));
        assert!(says(planned("a", Some(("k", "1")), None, "{}"), "no_version: "));
    }

    #[test]
    fn a_byte_order_mark_is_skipped() {
        let planned = planned("a", Some(("k", "1")), Some(1), "\u{feff}{\"n\":1}");
        let Plan::Apply(changes) = planned else { panic!("{planned:?}") };
        let Guard::Newer { fields, .. } = &changes[0].guard else { panic!("{changes:?}") };
        assert_eq!(fields, &json!({ "n": 1 }));
    }

    #[test]
    fn what_can_never_be_mirrored_is_refused_with_the_reason() {
        let large = format!("\"{}\"", "x".repeat(MAX_FIELDS));
        for body in ["a=1", "", "{", "1e400", &large] {
            let planned = planned("a", Some(("k", "1")), Some(1), body);
            assert!(matches!(planned, Plan::Reject(_)), "{planned:?}");
        }
        let row = row(None, Some(("k", "1")), Some(Version::Number(1)));
        let current = Object {
            version: Version::Time(Timestamp::UNIX_EPOCH),
            tie: String::new(),
            fields: Value::Null,
            deleted: false,
            updated_at: Timestamp::UNIX_EPOCH,
            as_of: Timestamp::UNIX_EPOCH,
            fetched: false,
        };
        let planned = plan(&Event::new(&row, b"{}"), Some(&current), None, None);
        assert!(matches!(planned, Plan::Reject(why) if why.contains("of another kind")));
    }

    fn known(version: Version, fields: Value, deleted: bool) -> Object {
        let tie = tie_of(&fields, deleted);
        let at = Timestamp::UNIX_EPOCH;
        Object { version, tie, fields, deleted, updated_at: at, as_of: at, fetched: false }
    }

    /// What becomes of the invoice `in_1` when an event of version 5 comes and the provider is asked.
    fn asked(fetched: &Fetched, current: Option<&Object>) -> Change {
        let row = row(Some("invoice.paid"), Some(("invoice", "in_1")), Some(Version::Number(5)));
        let event = Event { fetched: Some(fetched), ..Event::new(&row, b"not even JSON") };
        let planned = plan(&event, current, Some(&"demo".parse().unwrap()), None);
        let Plan::Apply(mut changes) = planned else { panic!("{planned:?}") };
        changes.pop().unwrap()
    }

    fn state(fields: Value, version: Option<Version>) -> Fetched {
        Fetched::State { fields, version, as_of: Timestamp::UNIX_EPOCH }
    }

    /// D3: what the provider says when it is asked is what is.
    #[test]
    fn a_fetched_state_wins_over_the_event_and_over_what_is_known() {
        let fields = json!({ "status": "paid" });
        let other = json!({ "status": "open" });
        let number = Version::Number;
        for (known, version) in [
            (None, Some(number(4))),
            // An equal version with another content is why it was asked.
            (Some(known(number(4), other.clone(), false)), Some(number(4))),
            (Some(known(Version::End, other.clone(), true)), Some(number(4))),
            (Some(known(Version::Reading(9), other.clone(), false)), Some(number(4))),
            (Some(known(number(9), other.clone(), false)), None),
        ] {
            let change = asked(&state(fields.clone(), version.clone()), known.as_ref());
            let Guard::Unchanged { read, version: becomes, fields: new, deleted, .. } =
                change.guard
            else {
                panic!("{known:?}");
            };
            assert_eq!(read, known.as_ref().map(Object::stamp));
            assert_eq!(
                (becomes, new, deleted),
                (version.unwrap_or(Version::Reading(1)), fields.clone(), false)
            );
            let [told] = &*change.events else { panic!() };
            assert_eq!(
                (told.event_type.as_str(), &*told.payload),
                ("invoice.changed", fields.to_string().as_bytes())
            );
        }
    }

    /// D4: an answer that is older than what is known changes nothing; one that says the same tells nobody.
    #[test]
    fn an_old_answer_is_stale_and_the_same_answer_is_not_told() {
        let fields = json!({ "status": "paid" });
        let later = known(Version::Number(9), json!({}), false);
        let change = asked(&state(fields.clone(), Some(Version::Number(8))), Some(&later));
        assert!(matches!(change.guard, Guard::Newer { .. }));
        let same = known(Version::Reading(3), fields.clone(), false);
        let change = asked(&state(fields, None), Some(&same));
        assert!(matches!(change.guard, Guard::Unchanged { version: Version::Reading(4), .. }));
        assert!(change.events.is_empty());
    }

    /// ORD-update-before-create: what is gone leaves a tombstone of the latest version that anybody named.
    #[test]
    fn what_the_provider_does_not_have_any_more_leaves_a_tombstone() {
        let gone = Fetched::Gone { as_of: Timestamp::UNIX_EPOCH };
        let fields = json!({ "status": "paid" });
        for (known, expected) in [
            (None, Version::Number(5)),
            (Some(known(Version::Number(4), fields.clone(), false)), Version::Number(5)),
            (Some(known(Version::Number(9), fields.clone(), false)), Version::Number(9)),
            (Some(known(Version::Reading(2), fields.clone(), false)), Version::Reading(3)),
        ] {
            let change = asked(&gone, known.as_ref());
            let Guard::Unchanged { version, deleted, fields, .. } = change.guard else { panic!() };
            assert_eq!((version, deleted), (expected, true));
            assert_eq!(fields, known.map_or(Value::Null, |known| known.fields));
            assert_eq!(change.events[0].event_type, "invoice.deleted");
        }
        let tomb = known(Version::Number(9), fields, true);
        assert!(asked(&gone, Some(&tomb)).events.is_empty());
    }

    /// D3: the provider is not asked any more. What was read compares with no version, so what happened later counts.
    #[test]
    fn what_was_read_before_gives_way_to_events_of_later() {
        let second = |n| Timestamp::from_second(n).unwrap();
        let read = Object {
            as_of: second(10),
            fetched: true,
            ..known(Version::Reading(3), json!(1), false)
        };
        for (occurred, received, is_later) in
            [(Some(11), 99, true), (Some(10), 99, false), (None, 11, true), (None, 9, false)]
        {
            let object = Some(("invoice", "in_1"));
            let mut row = row(Some("invoice.paid"), object, Some(Version::Number(5)));
            (row.occurred_at, row.received_at) = (occurred.map(second), second(received));
            let Plan::Apply(changes) = plan(&Event::new(&row, b"2"), Some(&read), None, None)
            else {
                panic!()
            };
            match &changes[0].guard {
                Guard::Unchanged { read: seen, version, fields, .. } if is_later => {
                    assert_eq!(seen.as_ref(), Some(&read.stamp()));
                    assert_eq!((version, fields), (&Version::Number(5), &json!(2)));
                }
                // Of a lower version than what was read: stale.
                Guard::Newer { version, .. } if !is_later => assert!(*version < read.version),
                other => panic!("{occurred:?} {received}: {other:?}"),
            }
        }
    }

    /// ORD-update-before-create: a deletion leaves the object, marked, so that a late update does not revive it.
    #[test]
    fn only_the_deletion_of_the_object_itself_marks_it_as_deleted() {
        let cases = [
            ("customer.subscription.deleted", "subscription", true),
            ("products/delete", "products", true),
            ("customer.subscription.deleted", "customer", false),
            ("delete", "repository", false),
            ("subscription.undeleted", "subscription", false),
            ("subscription.deleted.later", "subscription", false),
            ("", "subscription", false),
        ];
        for (event_type, kind, expected) in cases {
            let object = ObjectRef { kind: kind.to_owned(), id: "1".to_owned() };
            assert_eq!(is_deletion(Some(event_type), &object), expected, "{event_type}");
        }
    }
}
