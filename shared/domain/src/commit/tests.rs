use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{id::InboxKey, plan::Emit};

const KNOWLEDGE: Knowledge = Knowledge { as_of: Timestamp::UNIX_EPOCH, fetched: false };

fn claim() -> Claim {
    Claim { key: InboxKey::new("stripe".parse().unwrap(), "evt_1").unwrap(), cycle: 0 }
}

fn object(id: &str) -> ObjectRef {
    ObjectRef { kind: "invoice".to_owned(), id: id.to_owned() }
}

fn newer(id: &str, version: u64) -> Change {
    Change::newer(object(id), Version::Number(version), json!({ "v": version }))
}

fn once(key: &str) -> Change {
    Change::once(key.parse().unwrap())
}

fn emit(name: &str) -> Emit {
    Emit::new("demo".parse().unwrap(), "invoice.paid", "in_1", "{}").name(name)
}

fn lease() -> LeaseProof {
    LeaseProof { what: "invoice in_1".to_owned(), owner: "me".to_owned(), fence: 1 }
}

fn staged(changes: Vec<Change>, lease: Option<LeaseProof>) -> Commit {
    let at = Timestamp::from_second(1_700_000_000).unwrap();
    Commit::stage(claim(), at, at, at, changes, KNOWLEDGE, lease).unwrap()
}

/// An object with an event, a taken operation with an event, and an event of its own.
fn mixed() -> Commit {
    staged(
        vec![
            newer("in_1", 2).then_emit(emit("a")),
            once("credit in_1").then_emit(emit("b")),
            Change::emit(emit("c")),
        ],
        Some(lease()),
    )
}

/// What a commit would still make true, in short.
fn content(commit: &Commit) -> Vec<String> {
    commit
        .actions()
        .iter()
        .map(|action| match action {
            Action::Finish => "finish".to_owned(),
            Action::Guard(guard) => guard.what().unwrap_or_default(),
            Action::Lease(lease) => format!("lease {}", lease.fence),
            Action::Emit(event) => format!("event {}", event.id),
        })
        .collect()
}

fn ids(commit: &Commit) -> Vec<String> {
    let events = commit.changes.iter().flat_map(|change| &change.events);
    events.map(|event| event.id.to_string()).collect()
}

use super::Reason::{
    ConditionFailed as Failed, Conflict, Invalid, None as Fine, Throttled, TooLarge, Transient,
};

#[track_caller]
fn means(reasons: [Reason; 7], expected: &str) {
    let next = match mixed().after(&Answer::Refused(reasons.to_vec())) {
        Next::Done(_) => "done",
        Next::Moved => "moved",
        Next::Again(same) => {
            assert_eq!(same, mixed());
            "again"
        }
        Next::Throttled => "throttled",
        Next::Later(_) => "later",
        Next::LeaseLost => "lease lost",
        Next::Replan => "replan",
        Next::Narrowed(_) => "narrowed",
        Next::TooLarge => "too large",
        Next::Invalid => "invalid",
    };
    assert_eq!(next, expected, "{reasons:?}");
}

#[test]
fn the_actions_stand_in_the_order_in_which_their_reasons_are_read() {
    let commit = mixed();
    let [a, b, c] = <[String; 3]>::try_from(ids(&commit)).unwrap();
    assert_eq!(
        content(&commit),
        [
            "finish".to_owned(),
            "object invoice in_1".to_owned(),
            "operation credit in_1".to_owned(),
            "lease 1".to_owned(),
            format!("event {a}"),
            format!("event {b}"),
            format!("event {c}"),
        ]
    );
}

/// C4, C31
#[test]
fn the_reasons_are_read_in_the_order_of_what_outranks_what() {
    // A row that is finished outranks everything.
    means([Failed, Conflict, Invalid, Failed, Failed, Transient, Fine], "moved");
    means([Fine, Invalid, Conflict, TooLarge, Fine, Fine, Fine], "invalid");
    means([Fine, TooLarge, Conflict, Throttled, Fine, Transient, Fine], "too large");
    means([Fine, Failed, Conflict, Transient, Throttled, Fine, Fine], "throttled");
    means([Fine, Failed, Conflict, Transient, Fine, Fine, Fine], "later");
    // Beside a conflict `None` means unknown, and a failed guard or a lost lease means nothing yet.
    means([Fine, Failed, Fine, Failed, Fine, Conflict, Failed], "again");
    means([Conflict, Failed, Fine, Fine, Fine, Fine, Fine], "again");
    means([Fine, Failed, Fine, Failed, Fine, Fine, Failed], "lease lost");
    means([Fine, Failed, Fine, Fine, Fine, Fine, Fine], "narrowed");
    means([Fine, Fine, Fine, Fine, Fine, Fine, Failed], "narrowed");
    means([Fine; 7], "later");
}

/// An object whose change depends on what it was, an object that may become newer, and a lease.
fn depending() -> Commit {
    let unchanged = Change::unchanged(object("or_1"), None, Version::Number(1), json!({}));
    staged(vec![unchanged.then_emit(emit("a")), newer("in_1", 2)], Some(lease()))
}

/// A plan that looked at another state may mean something else now: it is never narrowed.
#[test]
fn an_object_that_is_not_as_the_plan_saw_it_asks_for_another_plan() {
    let table = [
        ([Fine, Failed, Fine, Fine, Fine], Next::Replan),
        ([Fine, Failed, Failed, Fine, Failed], Next::Replan),
        ([Fine, Failed, Fine, Failed, Fine], Next::LeaseLost),
        ([Fine, Failed, Conflict, Fine, Fine], Next::Again(depending())),
        ([Failed, Failed, Fine, Fine, Fine], Next::Moved),
    ];
    for (reasons, expected) in table {
        let next = depending().after(&Answer::Refused(reasons.to_vec()));
        assert_eq!(next, expected, "{reasons:?}");
    }
    let stale = depending().after(&Answer::Refused(vec![Fine, Fine, Failed, Fine, Fine]));
    let Next::Narrowed(narrower) = stale else { panic!("{stale:?}") };
    assert!(
        matches!(&*narrower.changes, [Staged { guard: Guard::Unchanged { .. }, events }] if events.len() == 1)
    );
}

#[test]
fn a_refused_transition_is_a_result_from_the_start_and_nothing_of_it_is_written() {
    let refused = Change::refused(object("or_1"), "PAID → FAILED is not a move");
    let commit = staged(vec![refused.clone().then_emit(emit("a")), once("credit")], None);
    assert_eq!(content(&commit), ["finish", "operation credit"]);
    let told = ChangeResult::refused("object invoice or_1", "PAID → FAILED is not a move");
    assert_eq!(commit.results, std::slice::from_ref(&told));
    assert_eq!(
        (told.result, told.why.as_deref()),
        (Applied::Refused, Some("PAID → FAILED is not a move"))
    );
    let Next::Done(results) = commit.after(&Answer::Applied) else { panic!() };
    assert_eq!(results, [told, ChangeResult::new("operation credit", Applied::Applied)]);
    // Nothing else: the row alone is finished.
    assert!(staged(vec![refused], None).is_empty());
    let long = Change::refused(object("or_1"), "x\n".repeat(400));
    let why = staged(vec![long], None).results.remove(0).why.unwrap();
    assert_eq!((why.chars().count(), why.contains('\n')), (crate::inbox::MAX_ERROR, false));
}

#[test]
fn every_way_a_commit_can_come_out_has_its_own_word() {
    use CommitOutcome as O;
    let told = |next: Next, known| next.outcomes(known).into_iter().collect::<Vec<_>>();
    let dropped = |results: &[Applied]| {
        let results = results.iter().map(|result| ChangeResult::new("x", *result)).collect();
        Next::Narrowed(Commit { results, ..mixed() })
    };
    let (stale, duplicate, emitted) =
        (Applied::Stale, Applied::DuplicateEffect, Applied::AlreadyEmitted);
    let table = [
        (told(Next::Done(Vec::new()), 0), vec![O::Applied]),
        (told(Next::Moved, 0), vec![O::AlreadyFinished]),
        (told(Next::Again(mixed()), 0), vec![O::Conflict]),
        (told(Next::Replan, 0), vec![O::Conflict]),
        (told(Next::Throttled, 0), vec![O::Throttled]),
        (told(Next::Later(""), 0), vec![]),
        (told(Next::LeaseLost, 0), vec![O::LeaseLost]),
        (told(Next::TooLarge, 0), vec![O::TooLarge]),
        (told(Next::Invalid, 0), vec![]),
        (told(dropped(&[stale, stale]), 0), vec![O::Stale]),
        (told(dropped(&[stale, duplicate]), 0), vec![O::Stale, O::DuplicateEffect]),
        // What was known before the answer is not told again.
        (told(dropped(&[stale, emitted]), 1), vec![O::DuplicateEffect]),
    ];
    for (number, (found, expected)) in table.into_iter().enumerate() {
        assert_eq!(found, expected, "row {number}");
    }
    let words: BTreeSet<_> = O::ALL.iter().map(|outcome| outcome.word()).collect();
    assert_eq!(words.len(), O::ALL.len());
    for outcome in O::ALL {
        assert_eq!(outcome.metric(), format!("commits_{}_total", outcome.word()));
    }
}

#[test]
fn a_refusal_of_another_shape_decides_nothing() {
    for reasons in [vec![], vec![Failed; 6], vec![Fine; 8]] {
        assert!(matches!(mixed().after(&Answer::Refused(reasons)), Next::Later(_)));
    }
}

#[track_caller]
fn narrows(reasons: [Reason; 7], kept: &[&str], results: &[(&str, Applied)]) {
    let whole = mixed();
    let ids = ids(&whole);
    let named = |what: &str| match what {
        "a" => format!("event {}", ids[0]),
        "b" => format!("event {}", ids[1]),
        "c" => format!("event {}", ids[2]),
        other => other.to_owned(),
    };
    let Next::Narrowed(commit) = whole.clone().after(&Answer::Refused(reasons.to_vec())) else {
        panic!("not narrowed: {reasons:?}");
    };
    let kept: Vec<String> = kept.iter().map(|what| named(what)).collect();
    assert_eq!(content(&commit), kept);
    let results: Vec<ChangeResult> =
        results.iter().map(|(what, result)| ChangeResult::new(named(what), *result)).collect();
    assert_eq!(commit.results, results);
    assert_eq!(commit.is_empty(), !commit.actions().iter().any(is_change));
}

fn is_change(action: &Action<'_>) -> bool {
    matches!(action, Action::Guard(_) | Action::Emit(_))
}

/// ORD-stale-overwrites-new, C22
#[test]
fn what_is_old_is_dropped_with_what_follows_from_it_and_the_rest_stays() {
    let (invoice, credit, lease) = ("object invoice in_1", "operation credit in_1", "lease 1");
    narrows(
        [Fine, Failed, Fine, Fine, Fine, Fine, Fine],
        &["finish", credit, lease, "b", "c"],
        &[(invoice, Applied::Stale)],
    );
    narrows(
        [Fine, Fine, Failed, Fine, Fine, Fine, Fine],
        &["finish", invoice, lease, "a", "c"],
        &[(credit, Applied::DuplicateEffect)],
    );
    narrows(
        [Fine, Fine, Fine, Fine, Failed, Fine, Failed],
        &["finish", invoice, credit, lease, "b"],
        &[("a", Applied::AlreadyEmitted), ("c", Applied::AlreadyEmitted)],
    );
    // An event that exists, of a change that does not happen, is not told apart from it.
    narrows(
        [Fine, Failed, Failed, Fine, Failed, Fine, Failed],
        &["finish", lease],
        &[
            (invoice, Applied::Stale),
            (credit, Applied::DuplicateEffect),
            ("c", Applied::AlreadyEmitted),
        ],
    );
}

#[test]
fn a_state_that_was_read_before_saves_the_transaction_it_would_refuse() {
    let current = |version, fields: &Value| Object {
        version: Version::Number(version),
        tie: tie_of(fields, false),
        fields: fields.clone(),
        deleted: false,
        updated_at: Timestamp::UNIX_EPOCH,
        as_of: Timestamp::UNIX_EPOCH,
        fetched: false,
    };
    let stage = || staged(vec![newer("in_1", 5).then_emit(emit("a")), newer("in_2", 1)], None);
    let kept = |current: &Object| content(&stage().without_stale(&object("in_1"), current)).len();
    assert_eq!(kept(&current(4, &json!({ "v": 4 }))), 4);
    assert_eq!(kept(&current(6, &json!({ "v": 6 }))), 2);
    // The same version: the same content is nothing new, and of two contents one wins in every order.
    assert_eq!(kept(&current(5, &json!({ "v": 5 }))), 2);
    let other = json!({ "v": 5, "other": true });
    let wins = tie_of(&json!({ "v": 5 }), false) > tie_of(&other, false);
    assert_eq!(kept(&current(5, &other)), if wins { 4 } else { 2 });
}

/// ORD-same-second
#[test]
fn two_contents_of_one_version_end_alike_in_both_orders() {
    let (a, b) = (json!({ "status": "active" }), json!({ "status": "cancelled" }));
    let (a, b) = (tie_of(&a, false), tie_of(&b, false));
    let version = Version::Number(1_760_000_000);
    let newer = |new: &str, old: &str| is_newer((&version, new), Some((&version, old)));
    assert_ne!(newer(&a, &b), newer(&b, &a));
    assert!(!newer(&a, &a));
    assert!(is_newer((&version, &a), None));
}

/// ORD-same-second, ORD-update-before-create
#[test]
fn of_an_update_and_a_deletion_of_one_version_the_deletion_stays() {
    let version = Version::Number(1_760_000_000);
    for fields in [json!({}), json!({ "status": "active" }), json!([1])] {
        let (updated, gone) = (tie_of(&fields, false), tie_of(&json!({ "id": 1 }), true));
        assert!(is_newer((&version, &gone), Some((&version, &updated))));
        assert!(!is_newer((&version, &updated), Some((&version, &gone))));
    }
}

#[test]
fn an_object_is_unchanged_if_version_and_content_are_those_that_were_read() {
    let tie = tie_of(&json!({}), false);
    let read = Stamp { version: Version::Number(3), tie: tie.clone() };
    let check = |read: Option<&Stamp>, now: Option<(u64, &str)>, expected| {
        let version = now.map(|(number, _)| Version::Number(number));
        let now = version.as_ref().zip(now.map(|(_, tie)| tie));
        assert_eq!(is_unchanged(read, now), expected, "{now:?}");
    };
    check(None, None, true);
    check(None, Some((3, &tie)), false);
    check(Some(&read), None, false);
    check(Some(&read), Some((3, &tie)), true);
    check(Some(&read), Some((4, &tie)), false);
    check(Some(&read), Some((2, &tie)), false);
    check(Some(&read), Some((3, "other")), false);
}

/// E4: the same thing has the same id for ever, wherever it stands in the plan.
#[test]
fn an_outgoing_event_keeps_its_id_when_the_plan_is_reordered() {
    let one = staged(vec![Change::emit(emit("a")), Change::emit(emit("b"))], None);
    let other = staged(vec![once("x").then_emit(emit("b")), Change::emit(emit("a"))], None);
    let set = |commit: &Commit| ids(commit).into_iter().collect::<BTreeSet<_>>();
    assert_eq!(set(&one), set(&other));
    assert_eq!(set(&one).len(), 2);
}

#[test]
fn outgoing_events_carry_the_trace_of_their_cause() {
    let traced = mixed().traced(Some("00-a-b-01"));
    let mut events = traced.changes.iter().flat_map(|change| &change.events);
    assert!(events.all(|event| event.traceparent.as_deref() == Some("00-a-b-01")));
}

/// A store of which only the conditions matter.
#[derive(Clone, Debug, Default)]
struct Model {
    objects: BTreeMap<ObjectRef, u64>,
    operations: BTreeSet<String>,
    events: BTreeSet<EventId>,
}

impl Model {
    fn holds(&self, action: &Action<'_>) -> bool {
        match action {
            Action::Guard(Guard::Newer { object, version, .. }) => {
                let Version::Number(new) = version else { return false };
                self.objects.get(object).is_none_or(|old| new > old)
            }
            Action::Guard(Guard::Once(key)) => !self.operations.contains(key.as_str()),
            Action::Emit(event) => !self.events.contains(&event.id),
            Action::Guard(Guard::Unchanged { .. }) => false,
            Action::Finish
            | Action::Lease(_)
            | Action::Guard(Guard::Free | Guard::Refused { .. }) => true,
        }
    }

    fn answer(&self, commit: &Commit) -> Answer {
        let actions = commit.actions();
        if actions.iter().all(|action| self.holds(action)) {
            return Answer::Applied;
        }
        let reason = |action| if self.holds(action) { Fine } else { Failed };
        Answer::Refused(actions.iter().map(reason).collect())
    }
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    // Guard by number: 0 to 2 objects, 3 to 5 operations, 6 none; and how many events follow.
    prop::collection::btree_map(0_usize..7, 0_usize..3, 1..6).prop_map(|chosen| {
        chosen
            .into_iter()
            .map(|(guard, events)| {
                let change = match guard {
                    0..=2 => newer(&format!("in_{guard}"), 5),
                    3..=5 => once(&format!("op_{guard}")),
                    _ => Change::emit(emit("free")),
                };
                (0..events)
                    .fold(change, |change, n| change.then_emit(emit(&format!("{guard}-{n}"))))
            })
            .collect()
    })
}

proptest! {
    /// C5, D17: narrowing against a store that stands still takes one round, never commits a change whose guard
    /// failed, never loses one whose guard holds, and tells each once.
    #[test]
    fn narrowing_keeps_exactly_what_is_still_to_be_done(
        changes in changes(),
        versions in prop::array::uniform3(0_u64..10),
        taken in prop::array::uniform3(any::<bool>()),
        written in prop::collection::vec(any::<bool>(), 20),
        held in any::<bool>(),
    ) {
        let whole = staged(changes, held.then(lease));
        let events = whole.changes.iter().flat_map(|change| &change.events).map(|event| event.id);
        let model = Model {
            objects: (0..).zip(versions).map(|(n, version)| (object(&format!("in_{n}")), version)).collect(),
            operations: (3..).zip(taken).filter(|(_, taken)| *taken).map(|(n, _)| format!("op_{n}")).collect(),
            events: events.zip(&written).filter(|(_, written)| **written).map(|(id, _)| id).collect(),
        };
        let last = match whole.clone().after(&model.answer(&whole)) {
            Next::Done(results) => {
                prop_assert_eq!(results, whole.results_if_applied());
                whole.clone()
            }
            Next::Narrowed(narrower) => narrower,
            other => return Err(TestCaseError::fail(format!("{other:?}"))),
        };
        prop_assert_eq!(model.answer(&last), Answer::Applied);
        prop_assert_eq!(&last.lease, &whole.lease);

        let kept = content(&last);
        for change in &whole.changes {
            let guard = Action::Guard(&change.guard);
            let holds = model.holds(&guard);
            if let Some(what) = change.guard.what() {
                prop_assert_eq!(kept.contains(&what), holds);
            }
            for event in &change.events {
                let owed = holds && model.holds(&Action::Emit(event));
                prop_assert_eq!(kept.contains(&format!("event {}", event.id)), owed);
            }
        }

        let told = last.results_if_applied();
        let once: BTreeSet<_> = told.iter().map(|result| &result.what).collect();
        prop_assert_eq!(once.len(), told.len(), "told twice: {:?}", told);
        for change in &whole.changes {
            let happens = model.holds(&Action::Guard(&change.guard));
            let mut whats: Vec<_> = change.guard.what().into_iter().collect();
            if happens {
                whats.extend(change.events.iter().map(|event| format!("event {}", event.id)));
            }
            for what in whats {
                let told = told.iter().filter(|result| result.what == what).count();
                prop_assert_eq!(told, 1, "{}", what);
            }
        }
    }

    #[test]
    fn no_refusal_makes_a_commit_grow_or_panic(
        changes in changes(), held in any::<bool>(), raw in prop::collection::vec(0_usize..7, 0..30),
    ) {
        let whole = staged(changes, held.then(lease));
        let size = whole.actions().len();
        let kinds = [Fine, Failed, Conflict, Throttled, Transient, TooLarge, Invalid];
        let reasons: Vec<_> =
            raw.into_iter().chain(std::iter::repeat(0)).take(size).map(|n| kinds[n]).collect();
        match whole.clone().after(&Answer::Refused(reasons.clone())) {
            Next::Narrowed(narrower) => prop_assert!(narrower.actions().len() < size),
            Next::Done(_) => prop_assert!(false, "a refusal was taken for a success"),
            Next::Again(same) => prop_assert_eq!(same, whole),
            Next::Moved => prop_assert_eq!(reasons[0], Failed),
            Next::Throttled
            | Next::Later(_)
            | Next::LeaseLost
            | Next::Replan
            | Next::TooLarge
            | Next::Invalid => {}
        }
    }
}
