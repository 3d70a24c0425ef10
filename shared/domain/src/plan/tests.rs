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
    Emit::new(tenant.parse().unwrap(), event_type, aggregate_id, "{}").name(name)
}

fn unchanged(kind: &str, id: &str) -> Change {
    let object = ObjectRef { kind: kind.to_owned(), id: id.to_owned() };
    Change::unchanged(object, None, Version::Number(1), serde_json::Value::Null)
}

fn refused(kind: &str, id: &str) -> Change {
    Change::refused(ObjectRef { kind: kind.to_owned(), id: id.to_owned() }, "no")
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
    repeats(&[object("invoice", "1"), unchanged("invoice", "1")], "object invoice 1");
    // What is refused is not touched.
    fits(&[refused("order", "1"), refused("order", "1"), object("order", "1")]);
    let first = emit("t", "invoice.paid", "in_1", "");
    fits(&[refused("order", "1").then_emit(first.clone()), Change::emit(first)]);
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
    assert_eq!(check(std::slice::from_ref(&events)), Err(BadPlan::TooMany(27)));
    let Change { events, .. } = events;
    fits(&[Change { events, ..refused("order", "1") }]);
    let refusals: Vec<Change> = names.iter().map(|id| refused("order", id)).collect();
    fits(&refusals);
    let [first, second] = [refusals.clone(), refusals].map(Vec::into_iter);
    assert_eq!(check(&first.chain(second).collect::<Vec<_>>()), Err(BadPlan::TooMany(48)));
}

/// The last byte that fits, and the first that does not.
#[test]
fn a_plan_that_the_store_cannot_hold_says_what_is_too_large_and_by_how_much() {
    // Two quotes are JSON too.
    let text = |bytes: usize| serde_json::Value::from("x".repeat(bytes - 2));
    let sized = |id: &str, bytes| {
        let object = ObjectRef { kind: "invoice".to_owned(), id: id.to_owned() };
        Change::newer(object, Version::Number(1), text(bytes))
    };
    let too_large =
        |what: &str, bytes, most| Err(BadPlan::TooLarge { what: what.to_owned(), bytes, most });
    fits(&[sized("1", MAX_FIELDS)]);
    let one = check(&[sized("1", MAX_FIELDS + 1)]);
    assert_eq!(one, too_large("object invoice 1", MAX_FIELDS + 1, MAX_FIELDS));
    let Change { guard: Guard::Newer { object, version, fields, .. }, .. } = sized("1", 350_001)
    else {
        panic!()
    };
    let unchanged = check(&[Change::unchanged(object, None, version, fields)]);
    assert_eq!(unchanged, too_large("object invoice 1", 350_001, MAX_FIELDS));

    let ids: Vec<String> = (0..11).map(|n| n.to_string()).collect();
    let mut all: Vec<Change> = ids.iter().map(|id| sized(id, MAX_FIELDS)).collect();
    let rest = MAX_BYTES - 11 * MAX_FIELDS;
    all.push(sized("last", rest));
    fits(&all);
    all.push(once("a").then_emit(emit("t", "x", "y", "")));
    assert_eq!(check(&all), too_large("the plan in all", MAX_BYTES + 2, MAX_BYTES));
    // A large payload stands in the bucket.
    let mut large = emit("t", "x", "y", "");
    large.payload = vec![b' '; 1_000_000];
    all.truncate(11);
    fits(&[all, vec![Change::emit(large)]].concat());
}

#[test]
fn a_thing_without_a_name_is_refused() {
    let nameless = |changes: &[Change], what| {
        assert_eq!(check(changes), Err(BadPlan::BadName(what)), "{changes:?}");
    };
    nameless(&[object("", "1")], "an object of a kind");
    nameless(&[unchanged("order", "")], "an object");
    nameless(&[refused("order", "")], "an object");
    nameless(&[Change::emit(emit("t", "", "y", ""))], "an outgoing event of a type");
    nameless(&[Change::emit(emit("t", "x", "", ""))], "an outgoing event about an aggregate");
}

/// What a person reads of a parked event says what to do about it.
#[test]
fn a_plan_that_is_refused_says_what_would_be_right() {
    let says = |bad: BadPlan, expected: &str| assert_eq!(bad.to_string(), expected);
    says(
        BadPlan::TooMany(26),
        "the plan has 26 actions, and one transaction holds 25; split the event's work, for example into outgoing \
         events that cause the rest",
    );
    says(
        BadPlan::Twice("operation a".to_owned()),
        "the plan changes operation a twice; merge the two changes into one, or give the two events different names",
    );
    says(
        BadPlan::TooLarge { what: "object invoice 1".to_owned(), bytes: 350_001, most: MAX_FIELDS },
        "object invoice 1 would have 350001 bytes, and 350000 is the most; keep less of it, or a reference to it",
    );
    says(
        BadPlan::BadName("an object"),
        "the plan has an object without a name; take the name from the event, or ignore an event that has none",
    );
}

#[test]
fn a_plan_grows_by_changes_unless_nothing_of_it_may_happen() {
    let (a, b) = (once("a"), once("b"));
    let both = Plan::Apply(vec![a.clone(), b.clone()]);
    assert_eq!(Plan::change(a.clone()).and(b.clone()), both);
    assert_eq!(Plan::nothing().and(a.clone()).and(b.clone()), both);
    assert_eq!([a.clone(), b].into_iter().collect::<Plan>(), both);
    assert_eq!(Plan::ignored("nobody").and(a.clone()), Plan::from(a.clone()));
    let waits = Plan::requeue(Duration::from_secs(9), "its order is missing");
    assert_eq!(waits.clone().and(a.clone()), waits);
    assert_eq!(Plan::reject("never").and(a), Plan::Reject("never".to_owned()));
}

#[test]
fn only_an_object_can_be_deleted() {
    let deleted = |change: Change| match change.deleted().guard {
        Guard::Newer { deleted, .. } | Guard::Unchanged { deleted, .. } => Some(deleted),
        _ => None,
    };
    assert_eq!(deleted(object("invoice", "1")), Some(true));
    assert_eq!(deleted(unchanged("invoice", "1")), Some(true));
    assert_eq!(once("a").deleted(), once("a"));
}

#[test]
fn a_change_that_depends_on_an_object_is_guarded_by_what_was_read() {
    let at = jiff::Timestamp::UNIX_EPOCH;
    let read = Object {
        version: Version::Number(3),
        tie: "t".to_owned(),
        fields: serde_json::Value::Null,
        deleted: false,
        updated_at: at,
        as_of: at,
        fetched: false,
    };
    let of = |read| {
        let object = ObjectRef { kind: "order".to_owned(), id: "1".to_owned() };
        Change::unchanged(object, read, Version::Number(4), serde_json::Value::Null).guard
    };
    let Guard::Unchanged { read: Some(stamp), .. } = of(Some(&read)) else { panic!() };
    assert_eq!((stamp.version, stamp.tie.as_str()), (Version::Number(3), "t"));
    assert!(matches!(of(None), Guard::Unchanged { read: None, .. }));
}

#[test]
fn an_operation_key_of_parts_reads_as_they_do() {
    let of = |parts: &[&str]| OperationKey::of(parts).as_str().to_owned();
    assert_eq!(of(&["credit", "in_1"]), "credit#in_1");
    assert_eq!(of(&["credit", "a#b", "5%"]), "credit#a%23b#5%25");
    assert_eq!(of(&["a\nb", "\u{85}"]), "a%0Ab#%85");
    assert!(of(&["credit", &"x".repeat(600)]).starts_with("%sha256:"));
}

proptest! {
    /// Two effects never share a key: the second would be taken for done.
    #[test]
    fn other_parts_make_another_operation_key(
        a in prop::collection::vec("[a#%2305\u{0}\u{85}é]{0,4}", 0..4),
        b in prop::collection::vec("[a#%2305\u{0}\u{85}é]{0,4}", 0..4),
        long in 0_usize..2,
    ) {
        let key = |parts: &[String]| {
            let long = "x".repeat(long * MAX_OPERATION_KEY);
            let parts: Vec<&str> = parts.iter().map(String::as_str).chain((!long.is_empty()).then_some(&*long)).collect();
            OperationKey::of(&parts)
        };
        prop_assert_eq!(key(&a) == key(&b), a == b);
        let text = key(&a).as_str().to_owned();
        prop_assert_eq!(text.parse::<OperationKey>(), Ok(key(&a)));
    }

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
