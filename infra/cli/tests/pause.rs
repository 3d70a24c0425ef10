//! What operators do in a storm, against a deployment that writes down what it is asked.
#![expect(clippy::unwrap_used, reason = "test code")]

mod fake;
mod support;

use fake::Fake;
use serde_json::{Value, json};

/// CLI-wrong-environment: who pauses something reads which deployment it is.
#[test]
fn a_source_is_paused_with_a_reason_and_resumed() {
    let note = "Events are accepted, and wait.";
    let fake = Fake::answering(200, &json!({ "name": "shop", "warnings": [note] }));
    let ended = fake.run(&["sources", "pause", "shop", "--reason", "the books are wrong"]);
    assert!(ended.code == 0 && ended.err.starts_with("on "), "{ended:?}");
    insta::assert_snapshot!(ended.out, @"
    Source shop is paused.
    Note: Events are accepted, and wait.
    Go on with: postern sources resume shop
    ");
    let asked = fake.asked();
    assert_eq!(asked.call, "POST /v1/sources/shop/pause");
    assert_eq!(asked.json(), json!({ "reason": "the books are wrong" }));

    let ended = fake.run(&["sources", "resume", "shop"]);
    assert!(ended.code == 0 && ended.err.starts_with("on "), "{ended:?}");
    insta::assert_snapshot!(ended.out, @"
    Source shop is not paused any more.
    Note: Events are accepted, and wait.
    ");
    assert_eq!(fake.asked().call, "POST /v1/sources/shop/resume");
    assert_eq!(fake.run(&["sources", "pause", "shop"]).code, 2);
}

#[test]
fn a_resume_that_was_not_answered_is_repeated() {
    let busy =
        json!({ "type": "urn:postern:problem:unavailable", "title": "busy", "detail": "busy" });
    let ended = Fake::answering(503, &busy).run(&["sources", "resume", "shop"]);
    assert_eq!(ended.code, 2);
    let next = "next: repeat it, which does no harm: postern sources resume shop";
    assert!(ended.err.contains(next), "{}", ended.err);
}

#[test]
fn how_long_a_source_may_be_silent_is_said_in_the_units_of_people() {
    let fake = Fake::answering(200, &json!({}));
    let mut given = |option: &[&str]| {
        assert_eq!(fake.run(&[&["sources", "set", "shop"], option].concat()).code, 0);
        fake.asked().json()
    };
    assert_eq!(given(&["--silent-after", "2h"]), json!({ "silent_after_seconds": 7200 }));
    assert_eq!(given(&["--may-be-silent"]), json!({ "silent_after_seconds": null }));
}

#[test]
fn an_object_is_shown_with_what_speaks_against_it() {
    let object = json!({
        "source": "shop", "kind": "invoice", "id": "in_1", "version": 7, "deleted": true,
        "as_of": "2026-09-21T14:13:20Z", "updated_at": "2026-09-21T14:13:21Z", "possibly_stale": true,
        "why": [{ "code": "paused", "words": "the source is paused since yesterday" }],
        "fields": { "total": 5, "name": "\u{1b}[2J" },
    });
    let fake = Fake::answering(200, &object);
    insta::assert_snapshot!(fake.run(&["objects", "show", "shop", "invoice", "in/1"]).out, @r#"
    invoice in_1 of shop
      as of    2026-09-21T14:13:20Z
      version  7
      deleted  the provider has deleted it; this is what it was last
      doubt    the source is paused since yesterday
               {
                 "name": "\u001b[2J",
                 "total": 5
               }
    "#);
    assert_eq!(fake.asked().call, "GET /v1/sources/shop/objects/invoice/in%2F1");
    let json = fake.run(&["objects", "show", "shop", "invoice", "in_1", "--json"]).out;
    assert_eq!(serde_json::from_str::<Value>(&json).unwrap(), object);
}
