//! Several events in one request: taken apart by the byte, each with its own identity.
#![expect(clippy::panic, reason = "test code")]

use http::HeaderMap;
use jiff::Timestamp;
use signing::{Element, Key, MAX_ELEMENTS, NotABatch, Request, Scheme, Secret, elements, verify};

fn scheme(rest: &str) -> Scheme {
    let json =
        format!(r#"{{"algorithm": "token", "signature": {{"from": "{{header:s}}"}}{rest}}}"#);
    Scheme::from_json(&json).unwrap_or_else(|problems| panic!("{json}: {problems}"))
}

fn ids<'e>(elements: &'e [Element<'_>]) -> Vec<Option<&'e str>> {
    elements.iter().map(|element| element.identity.id.as_deref()).collect()
}

#[test]
fn every_element_is_an_exact_slice_of_the_body_with_an_identity_of_its_own() {
    let scheme = scheme(
        r#", "batch": "/events", "identity": {"delivery": "{json:/meta/webhook_id}"}, "element": {"id": "{json:/id}",
            "type": "{json:/resource_type}.{json:/action}", "object_type": "{json:/resource_type}",
            "occurred_at": {"from": "{json:/created_at}", "unit": "rfc3339"}}"#,
    );
    assert!(scheme.is_batch());
    let body = b"\xef\xbb\xbf{\"events\" : [ {\"id\": \"EV1\", \"resource_type\":\"payments\",\"action\":\"confirmed\",\
        \"created_at\":\"2026-01-01T00:00:00.000Z\",\"n\":1.50}\r\n,\t{\"id\":7,\"x\":\"\\u00e9\"} , null ],\"meta\":{\"webhook_id\":\"WB1\"}}";
    let found = elements(&scheme, body).unwrap();
    assert_eq!(ids(&found), [Some("EV1"), Some("7"), None]);
    let texts: Vec<&str> = found.iter().map(|one| std::str::from_utf8(one.body).unwrap()).collect();
    assert!(texts[0].ends_with("\"n\":1.50}"), "{}", texts[0]);
    assert_eq!(texts[1..], ["{\"id\":7,\"x\":\"\\u00e9\"}", "null"]);
    for element in &found {
        let at = element.body.as_ptr() as usize - body.as_ptr() as usize;
        assert_eq!(&body[at..at + element.body.len()], element.body);
    }
    assert_eq!(found[0].identity.event_type.as_deref(), Some("payments.confirmed"));
    assert_eq!(found[0].identity.object_type.as_deref(), Some("payments"));
    assert_eq!(found[0].identity.occurred_at, Some("2026-01-01T00:00:00Z".parse().unwrap()));
    assert_eq!((&found[1].identity.event_type, &found[1].identity.delivery), (&None, &None));

    let key = Key::parse(&scheme, "k", &Secret::new("a-secret-that-is-shown")).unwrap();
    let mut headers = HeaderMap::new();
    headers.insert("s", "a-secret-that-is-shown".parse().unwrap());
    let request = Request { method: "POST", url: "", headers: &headers, body, path_secret: None };
    let whole = verify(&scheme, &[key], &request, Timestamp::UNIX_EPOCH).unwrap();
    let identity = whole.identity();
    assert_eq!((identity.id.as_deref(), identity.delivery.as_deref()), (None, Some("WB1")));
}

#[test]
fn without_rules_of_their_own_elements_take_what_is_read_from_json() {
    let scheme = scheme(
        r#", "batch": "", "identity": {"id": ["{header:x-id}", "{json:/id}"], "type": "{header:x-type}",
            "object_id": "{header:x-object}-{json:/id}", "version": {"from": "{json:/v}"}, "object_type": "{body-sha256}"}"#,
    );
    let found = elements(&scheme, br#"[{"id":"a","v":3},{"v":4}]"#).unwrap();
    assert_eq!(ids(&found), [Some("a"), None]);
    assert_eq!(found[0].identity.version, Some(signing::Version::Number(3)));
    let first = &found[0].identity;
    assert_eq!((&first.event_type, &first.object_id, &first.object_type), (&None, &None, &None));
}

#[test]
fn a_value_of_an_inner_list_counts_if_it_is_the_same_throughout() {
    let scheme = scheme(
        r#", "batch": "/entry", "element": {"id": "{json:/changes/*/value/messages/*/id}", "type": "{json:/changes/*/field}"}"#,
    );
    let check = |entry: &str, id: Option<&str>, event_type: Option<&str>| {
        let body = format!(r#"{{"entry":[{entry}]}}"#);
        let found = elements(&scheme, body.as_bytes()).unwrap();
        let identity = &found[0].identity;
        assert_eq!(
            (identity.id.as_deref(), identity.event_type.as_deref()),
            (id, event_type),
            "{entry}"
        );
    };
    let message =
        |id: &str| format!(r#"{{"field":"messages","value":{{"messages":[{{"id":"{id}"}}]}}}}"#);
    check(&format!(r#"{{"changes":[{}]}}"#, message("wamid.1")), Some("wamid.1"), Some("messages"));
    check(&format!(r#"{{"changes":[{},{}]}}"#, message("a"), message("b")), None, Some("messages"));
    check(
        &format!(r#"{{"changes":[{},{{"field":"other","value":{{}}}}]}}"#, message("a")),
        None,
        None,
    );
    check(r#"{"changes":[]}"#, None, None);
    check("{}", None, None);
}

#[test]
fn what_is_no_batch_is_told_apart() {
    let scheme = scheme(r#", "batch": "/events", "element": {"id": "{json:/id}"}"#);
    for (body, expected) in [
        ("", NotABatch::NoArray),
        ("{}", NotABatch::NoArray),
        (r#"{"events":{}}"#, NotABatch::NoArray),
        (r#"{"events":null}"#, NotABatch::NoArray),
        (r#"{"events":"[]"}"#, NotABatch::NoArray),
        (r#"{"events":[1,2}"#, NotABatch::NoArray),
        (r#"{"events":[1]} trailing"#, NotABatch::NoArray),
        (r#"{"events":[],"events":1}"#, NotABatch::NoArray),
    ] {
        assert_eq!(elements(&scheme, body.as_bytes()), Err(expected), "{body}");
    }
    assert_eq!(elements(&scheme, b"{\"events\":[\xff]}"), Err(NotABatch::NoArray));
    assert_eq!(elements(&scheme, br#"{"events":1,"events":[]}"#), Ok(Vec::new()));
    let of = |count: usize| format!(r#"{{"events":[{}]}}"#, vec!["0"; count].join(","));
    assert_eq!(elements(&scheme, of(MAX_ELEMENTS).as_bytes()).unwrap().len(), MAX_ELEMENTS);
    assert_eq!(elements(&scheme, of(MAX_ELEMENTS + 1).as_bytes()), Err(NotABatch::TooMany));
    let single = Scheme::preset("stripe").unwrap();
    assert!(!single.is_batch());
    assert_eq!(elements(&single, b"[]"), Err(NotABatch::Single));
}

/// A million brackets neither overflow the stack nor take long.
#[test]
fn a_nesting_bomb_is_one_element() {
    let scheme = scheme(r#", "batch": "", "element": {"id": "{json:/0/0}"}"#);
    let bomb = format!("[{}{}]", "[".repeat(500_000), "]".repeat(500_000));
    assert_eq!(ids(&elements(&scheme, bomb.as_bytes()).unwrap()), [None]);
}

#[test]
fn an_acknowledgement_is_an_empty_200_unless_the_scheme_says_otherwise() {
    let usual = Scheme::preset("stripe").unwrap();
    let usual = usual.acknowledge();
    assert_eq!((usual.status, usual.body.as_str(), &usual.content_type), (200, "", &None));
    let other = scheme(
        r#", "acknowledge": {"status": 202, "body": "[accepted]", "content_type": "text/plain"}"#,
    );
    let other = other.acknowledge();
    assert_eq!((other.status, other.body.as_str()), (202, "[accepted]"));
    assert_eq!(other.content_type.as_deref(), Some("text/plain"));
}
