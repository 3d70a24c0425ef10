//! What filters let through, and what they may not be.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn filter(source: Value) -> Filter {
    Filter::new(source).unwrap()
}

#[track_caller]
fn check(source: Value, payload: &Value, expected: bool) {
    let filter = filter(source);
    assert_eq!(filter.matches(payload), expected, "{filter} {payload}");
}

fn invoice() -> Value {
    json!({
        "id": "in_1", "amount": 1999, "rate": 0.19, "live": true, "note": null, "big": 9_007_199_254_740_993_u64,
        "data": {"currency": "eur", "a/b": 1, "m~n": 2, "": 3, "lines": [{"sku": "A-1"}, {"sku": "B-2"}]},
        "tags": ["new", "vat", 7], "empty": [], "nested": [["deep"]],
    })
}

#[test]
fn a_field_passes_its_test_or_it_does_not() {
    let on = |pointer: &str, test: Value, expected| {
        check(json!({ pointer: test }), &invoice(), expected);
    };
    on("/id", json!({"equals": "in_1"}), true);
    on("/id", json!({"equals": "in_2"}), false);
    on("/id", json!({"equals": 1}), false);
    on("/amount", json!({"equals": 1999}), true);
    on("/amount", json!({"equals": 1999.0}), true);
    on("/amount", json!({"equals": "1999"}), false);
    on("/live", json!({"equals": true}), true);
    on("/live", json!({"equals": false}), false);
    on("/note", json!({"equals": null}), true);
    on("/gone", json!({"equals": null}), false);
    on("/big", json!({"equals": 9_007_199_254_740_992_u64}), false);
    on("/big", json!({"equals": 9_007_199_254_740_993_u64}), true);
    on("/data/currency", json!({"in": ["chf", "eur"]}), true);
    on("/data/currency", json!({"in": ["chf", null, 1]}), false);
    on("/id", json!({"prefix": "in_"}), true);
    on("/id", json!({"prefix": "IN_"}), false);
    on("/amount", json!({"prefix": "19"}), false);
    on("/amount", json!({"gte": 1999}), true);
    on("/amount", json!({"gt": 1999}), false);
    on("/amount", json!({"gt": 1998.5, "lt": 1999.5}), true);
    on("/amount", json!({"lt": 1999}), false);
    on("/amount", json!({"lte": 1999}), true);
    on("/rate", json!({"gte": 0.19, "lt": 1}), true);
    on("/id", json!({"gte": 0}), false);
    on("/gone", json!({"lt": 5}), false);
}

#[test]
fn what_is_there_exists_even_if_it_is_null() {
    let on = |pointer: &str, exists: bool, expected| {
        check(json!({ pointer: {"exists": exists} }), &invoice(), expected);
    };
    on("/note", true, true);
    on("/note", false, false);
    on("/empty", true, true);
    on("/data", true, true);
    on("/gone", false, true);
    on("/gone", true, false);
    on("/data/currency/x", false, true);
    check(json!({"/amount": {"exists": true, "gt": 1}}), &invoice(), true);
}

#[test]
fn pointers_reach_into_objects_and_lists() {
    let on = |pointer: &str, test: Value, expected| {
        check(json!({ pointer: test }), &invoice(), expected);
    };
    on("/data/lines/1/sku", json!({"equals": "B-2"}), true);
    on("/data/lines/2/sku", json!({"exists": false}), true);
    on("/data/lines/-/sku", json!({"exists": false}), true);
    on("/data/a~1b", json!({"equals": 1}), true);
    on("/data/m~0n", json!({"equals": 2}), true);
    on("/data/", json!({"equals": 3}), true);
    on("/", json!({"exists": false}), true);
}

#[test]
fn a_list_passes_if_one_of_its_elements_passes_every_test() {
    let on = |test: Value, expected| check(json!({"/tags": test}), &invoice(), expected);
    on(json!({"equals": "vat"}), true);
    on(json!({"in": ["x", "new"]}), true);
    on(json!({"prefix": "va"}), true);
    on(json!({"gte": 7}), true);
    on(json!({"gte": 6, "lt": 7}), false);
    on(json!({"prefix": "n", "equals": "vat"}), false);
    on(json!({"equals": "tag"}), false);
    check(json!({"/empty": {"equals": "x"}}), &invoice(), false);
    check(json!({"/nested": {"equals": "deep"}}), &invoice(), false);
    check(json!({"not": {"/tags": {"equals": "vat"}}}), &invoice(), false);
}

#[test]
fn members_hold_together_and_any_all_not_combine() {
    let (yes, no) = (json!({"/live": {"equals": true}}), json!({"/live": {"equals": false}}));
    let on = |source: Value, expected| check(source, &invoice(), expected);
    on(json!({"/live": {"equals": true}, "/amount": {"lt": 5}}), false);
    on(json!({"any": [no, yes]}), true);
    on(json!({"any": [no, no]}), false);
    on(json!({"all": [yes, yes]}), true);
    on(json!({"all": [yes, no]}), false);
    on(json!({"not": no}), true);
    on(json!({"not": yes}), false);
    on(json!({"not": {"any": [no, {"not": yes}]}}), true);
    on(json!({"/id": {"prefix": "in"}, "any": [yes], "all": [yes], "not": no}), true);
    on(json!({"/id": {"prefix": "in"}, "any": [no], "all": [yes], "not": no}), false);
}

#[test]
fn payloads_of_any_shape_have_an_answer() {
    for payload in [json!(null), json!(1), json!("x"), json!([]), json!([{"amount": 5}]), json!({})]
    {
        check(json!({"/amount": {"gte": 1}}), &payload, false);
        check(json!({"not": {"/amount": {"gte": 1}}}), &payload, true);
    }
    check(json!({"/0/amount": {"equals": 5}}), &json!([{"amount": 5}]), true);
}

#[track_caller]
fn refused(source: &Value, at: &[&str]) {
    let problems = Filter::new(source.clone()).unwrap_err();
    let places: Vec<_> = problems.problems().iter().map(|problem| problem.at.as_str()).collect();
    assert_eq!(places, at, "{source}: {problems}");
}

#[test]
fn what_is_no_filter_is_refused_with_its_place() {
    for source in [json!(null), json!(1), json!("/a"), json!([]), json!([{}]), json!({})] {
        refused(&source, &[""]);
    }
    refused(&json!({"amount": {"gte": 1}}), &["/amount"]);
    refused(&json!({"": {"gte": 1}}), &["/"]);
    refused(&json!({"/a": 1}), &["/~1a"]);
    refused(&json!({"/a": {}}), &["/~1a"]);
    refused(&json!({"/a": ["x"]}), &["/~1a"]);
    refused(&json!({"/a~": {"equals": 1}}), &["/~1a~0"]);
    refused(&json!({"/a~2": {"equals": 1}}), &["/~1a~02"]);
    refused(&json!({"/a": {"suffix": "x"}}), &["/~1a/suffix"]);
    refused(&json!({"/a": {"equals": []}}), &["/~1a/equals"]);
    refused(&json!({"/a": {"equals": {}}}), &["/~1a/equals"]);
    refused(&json!({"/a": {"in": []}}), &["/~1a/in"]);
    refused(&json!({"/a": {"in": "x"}}), &["/~1a/in"]);
    refused(&json!({"/a": {"in": [["x"]]}}), &["/~1a/in"]);
    refused(&json!({"/a": {"exists": "yes"}}), &["/~1a/exists"]);
    refused(&json!({"/a": {"prefix": ""}}), &["/~1a/prefix"]);
    refused(&json!({"/a": {"prefix": 1}}), &["/~1a/prefix"]);
    refused(&json!({"/a": {"gte": "1"}}), &["/~1a/gte"]);
    refused(&json!({"/a": {"gte": 1, "gt": 1}}), &["/~1a"]);
    refused(&json!({"/a": {"gte": 2, "lt": 2}}), &["/~1a"]);
    refused(&json!({"/a": {"gt": 2, "lte": 1.5}}), &["/~1a"]);
    refused(&json!({"/a": {"exists": false, "equals": 1}}), &["/~1a"]);
    refused(&json!({"any": []}), &["/any"]);
    refused(&json!({"all": {}}), &["/all"]);
    refused(&json!({"not": []}), &["/not"]);
    refused(&json!({"not": {}}), &["/not"]);
    refused(&json!({"any": [{"/a": {"equals": 1}}, {"b": 1}]}), &["/any/1/b"]);
    assert!(Filter::new(json!({"/a": {"gte": 2, "lte": 2}})).is_ok());
}

#[test]
fn every_problem_is_named_at_once() {
    let source = json!({"amount": 1, "/a": {"gte": "x", "like": 1}, "any": [{}, {"not": 5}]});
    refused(&source, &["/~1a/gte", "/~1a/like", "/amount", "/any/0", "/any/1/not"]);
    let many: serde_json::Map<_, _> = (0..50).map(|n| (n.to_string(), json!(1))).collect();
    assert_eq!(Filter::new(many.into()).unwrap_err().problems().len(), 20);
    let said = Filter::new(json!({"a\u{1b}[31m": 1, "/b": 2})).unwrap_err().to_string();
    assert!(said.contains("/~1b") && !said.contains('\u{1b}'), "{said}");
}

#[test]
fn size_depth_and_number_of_tests_are_bounded() {
    let deep = |levels: usize| {
        (1..levels).fold(json!({"/a": {"equals": 1}}), |inner, _| json!({ "not": inner }))
    };
    assert!(Filter::new(deep(MAX_DEPTH)).is_ok());
    assert!(Filter::new(deep(MAX_DEPTH + 1)).is_err());
    let list = |count: usize| json!({"/a": {"in": vec![1; count]}});
    assert!(Filter::new(list(MAX_TESTS)).is_ok());
    refused(&list(MAX_TESTS + 1), &[""]);
    let equals = |length: usize| json!({"/a": {"equals": "x".repeat(length)}});
    assert!(Filter::new(equals(512)).is_ok());
    refused(&equals(513), &["/~1a/equals"]);
    refused(&equals(MAX_FILTER), &[""]);
    refused(
        &json!({ format!("/{}", "a".repeat(512)): {"equals": 1} }),
        &[&format!("/~1{}", "a".repeat(63))],
    );
}

#[test]
fn a_filter_is_stored_as_it_was_given() {
    let text = r#"{"/amount":{"gte":100},"any":[{"/a":{"in":["x",1,null]}}],"not":{"/b":{"exists":true}}}"#;
    let read: Filter = serde_json::from_str(text).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), text);
    let error = serde_json::from_str::<Filter>(r#"{"amount":1}"#).unwrap_err();
    assert!(error.to_string().contains("begins with `/`"), "{error}");
}

fn any_json() -> impl Strategy<Value = Value> {
    let names = prop_oneof![
        Just("any"),
        Just("all"),
        Just("not"),
        Just("/a"),
        Just("/a/0"),
        Just("equals"),
        Just("in"),
        Just("gte"),
        Just("lt"),
        Just("exists"),
        Just("prefix"),
        Just("a"),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(names.clone(), inner, 0..4).prop_map(|members| {
                let members = members.into_iter().map(|(name, value)| (name.to_owned(), value));
                Value::Object(members.collect())
            }),
        ]
    })
}

fn any_tests() -> impl Strategy<Value = Value> {
    prop_oneof![
        any_json().prop_map(|value| json!({ "equals": value })),
        any::<i8>().prop_map(|value| json!({ "gte": value })),
        any::<bool>().prop_map(|value| json!({ "exists": value })),
    ]
}

proptest! {
    /// Reading a filter and asking it never fails in another way than by saying so.
    #[test]
    fn any_value_is_a_filter_or_has_its_problems(source in any_json(), payload in any_json()) {
        match Filter::new(source.clone()) {
            Ok(filter) => {
                let negated = Filter::new(json!({ "not": source }));
                if let Ok(negated) = negated {
                    prop_assert_ne!(filter.matches(&payload), negated.matches(&payload));
                }
            }
            Err(error) => prop_assert!(!error.problems().is_empty()),
        }
    }

    /// `not any` is `all not`.
    #[test]
    fn any_and_all_mirror_each_other(a in any_tests(), b in any_tests(), payload in any_json()) {
        let (a, b) = (json!({ "/a": a }), json!({ "/a/0": b }));
        let neither = Filter::new(json!({ "not": { "any": [a, b] } }));
        let both_not = Filter::new(json!({ "all": [{ "not": a }, { "not": b }] }));
        if let (Ok(neither), Ok(both_not)) = (neither, both_not) {
            prop_assert_eq!(neither.matches(&payload), both_not.matches(&payload));
        }
    }
}
