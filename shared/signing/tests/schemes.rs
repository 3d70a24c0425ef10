//! Schemes as data: what is refused, all at once, and what one can say.
#![expect(clippy::unwrap_used, reason = "test code")]

mod problems;

use http::HeaderMap;
use jiff::Timestamp;
use signing::sign::{Outgoing, sign_as};
use signing::{Identity, Key, Request, Scheme, Secret, SigningKey, Version, verify};

const SECRET: &str = "a-secret-with-enough-bytes";
const NOW: i64 = 1_767_225_600;

fn problems(json: &str) -> Vec<String> {
    problems::lines(Scheme::from_json(json))
}

#[test]
fn every_problem_is_reported_at_once_and_each_says_what_to_do() {
    let found = problems(
        r#"{"algorithm": "hmac-md5", "signde": "{body}", "signed": "{ts}.{body", "signature": {"encoding": "base46",
            "pairs": {"item_sep": "", "kv_sep": "="}}, "timestamp": {"from": "{method}", "tolerance": 0},
            "identity": {"id": ["{ts}", 1], "type": "{json:id}"}, "key": {"encoding": 7}, "require": ["a b"],
            "facts": {"checked": "yesterday"}}"#,
    );
    let expected = [
        "facts.checked: must be a day",
        "algorithm: `hmac-md5` is unknown; use one of: hmac-sha1",
        "key.encoding: must be text",
        "signature.from: is missing",
        "signature.encoding: `base46` is unknown; use one of: hex,",
        "signature.pairs.item_sep: must not be empty",
        "signature.pairs.field: is missing",
        "signed: a brace has no partner",
        "timestamp.from: must be exactly one",
        "timestamp.tolerance: must be a whole number of seconds from 5 to 3600",
        "require: `a b` cannot be the name of a header",
        "identity.id: must be text in quotes",
        "identity.type: `id` is not a JSON pointer",
        "signde: is not a key of a scheme",
    ];
    problems::assert_all(&found, &expected);
}

#[test]
fn what_would_look_like_a_check_and_be_none_is_refused() {
    let check = |json: &str, expected: &str| {
        let found = problems(json);
        assert!(
            found.iter().any(|problem| problem.starts_with(expected)),
            "{expected} is not in {found:#?}"
        );
    };
    let scheme = |rest: &str| {
        format!(
            r#"{{"algorithm": "hmac-sha256", "signature": {{"from": "{{header:s}}"}}, {rest}}}"#
        )
    };
    check(&scheme(r#""title": "no content""#), "signed: must contain {body}");
    check(&scheme(r#""signed": "{header:x-id}""#), "signed: must contain {body}");
    check(&scheme(r#""signed": "{ts}{body}""#), "timestamp: `signed` contains {ts}");
    check(
        &scheme(r#""signed": "{body}", "timestamp": {"from": "{header:t}"}"#),
        "timestamp.from: is not signed",
    );
    check(
        &scheme(r#""signed": "{ts}{body}", "timestamp": {"from": "{pair:t}"}"#),
        "timestamp.from: {pair:..} needs",
    );
    check(
        r#"{"algorithm": "token", "signature": {"from": "{header:s}"}, "signed": "{body}"}"#,
        "signed: means nothing with `token`",
    );
    check(
        r#"{"algorithm": "ed25519", "signature": {"from": "{header:s}"}, "signed": "{body}"}"#,
        "key.encoding: an Ed25519 key",
    );
    check(r#"{"like": "nobody"}"#, "like: must name a preset: adyen");
    check(r#"{"like": 1}"#, "like: must name a preset");
    check("[]", "a scheme is a table");
    check("{", "this is not JSON");
    assert_eq!(
        problems(&scheme(r#""signed": "{json:/token}", "body_unsigned": true"#)),
        Vec::<String>::new()
    );
}

#[test]
fn a_scheme_inherits_and_keeps_what_it_inherited() {
    let scheme =
        Scheme::from_json(r#"{"like": "stripe", "title": "Mine", "timestamp": {"tolerance": 60}}"#)
            .unwrap();
    assert_eq!((scheme.about().title.as_str(), scheme.tolerance_seconds()), ("Mine", Some(60)));
    let written = serde_json::to_string(&scheme).unwrap();
    assert!(written.contains("stripe-signature") && !written.contains("\"like\""), "{written}");
    let again: Scheme = serde_json::from_str(&written).unwrap();
    assert_eq!(serde_json::to_string(&again).unwrap(), written);
    assert!(
        serde_json::from_str::<Scheme>(r#"{"like": "stripe", "timestamp": {"tolerance": 0}}"#)
            .is_err()
    );
}

#[test]
fn a_value_from_the_configuration_is_demanded_before_anything_passes() {
    let text = r#"{"algorithm": "hmac-sha256", "signed": "{config:url}{body}", "signature": {"from": "{header:s}"}"#;
    let scheme = Scheme::from_json(&format!("{text}}}")).unwrap();
    assert_eq!(scheme.missing_config(), ["url"]);
    let refused = round(&scheme, &HeaderMap::new(), b"{}").unwrap_err();
    assert_eq!(refused, "the scheme needs `url` from the configuration; give it a value");
    let scheme =
        Scheme::from_json(&format!(r#"{text}, "config": {{"url": "https://a.example"}}}}"#))
            .unwrap();
    assert!(scheme.missing_config().is_empty());
    assert!(round(&scheme, &HeaderMap::new(), b"{}").is_ok());
}

/// Signs and verifies.
fn round(scheme: &Scheme, headers: &HeaderMap, body: &[u8]) -> Result<Identity, String> {
    let secret = Secret::new(SECRET);
    let now = Timestamp::from_second(NOW).unwrap();
    let key = SigningKey::parse(scheme, &secret).map_err(|error| error.to_string())?;
    let outgoing = Outgoing {
        method: "POST",
        url: "",
        headers: headers.clone(),
        id: None,
        event_type: None,
        body,
    };
    let headers = sign_as(scheme, &key, &outgoing, now).map_err(|error| error.to_string())?;
    let key = Key::parse(scheme, "k", &secret).map_err(|error| error.to_string())?;
    let request = Request { method: "POST", url: "", headers: &headers, body, path_secret: None };
    verify(scheme, &[key], &request, now)
        .map(signing::Verified::into_identity)
        .map_err(|error| error.to_string())
}

#[test]
fn every_algorithm_encoding_and_shape_makes_what_it_reads() {
    for algorithm in ["hmac-sha1", "hmac-sha256", "hmac-sha512"] {
        for encoding in ["hex", "hex-any-case", "base64", "base64url"] {
            for shape in [
                r#""prefix": "v0=""#,
                r#""pairs": {"item_sep": ";", "kv_sep": "=", "field": "h1"}"#,
                r#""pairs": {"item_sep": ", ", "kv_sep": ":", "field": "h1", "trim": true}"#,
            ] {
                let scheme = Scheme::from_json(&format!(
                    r#"{{"algorithm": "{algorithm}", "signed": "v0:{{ts}}:{{body}}", "timestamp": {{"from": "{{header:t}}",
                        "unit": "ms"}}, "signature": {{"from": "{{header:s}}", "encoding": "{encoding}", {shape}}}}}"#
                ))
                .unwrap();
                round(&scheme, &HeaderMap::new(), b"{}")
                    .unwrap_or_else(|why| panic!("{algorithm} {encoding} {shape}: {why}"));
            }
        }
    }
    for unit in ["s", "ms", "rfc3339"] {
        let scheme = Scheme::from_json(&format!(
            r#"{{"algorithm": "hmac-sha256", "signed": "{{body}}{{ts}}", "signature": {{"from": "{{header:s}}"}},
                "timestamp": {{"from": "{{header:t}}", "unit": "{unit}"}}}}"#
        ))
        .unwrap();
        round(&scheme, &HeaderMap::new(), b"{}").unwrap();
    }
    let token = Scheme::from_json(
        r#"{"algorithm": "token", "signature": {"from": "{header:authorization}", "prefix": "Bearer "}}"#,
    )
    .unwrap();
    round(&token, &HeaderMap::new(), b"{}").unwrap();
    assert!(!token.signs_id());
}

#[test]
fn a_time_inside_the_signed_body_counts() {
    let scheme = Scheme::from_json(
        r#"{"algorithm": "hmac-sha256", "signed": "{body}", "signature": {"from": "{header:s}"},
            "timestamp": {"from": "{json:/at}", "unit": "ms", "tolerance": 60}}"#,
    )
    .unwrap();
    let at = |at: &str| {
        round(&scheme, &HeaderMap::new(), format!(r#"{{"at": {at}}}"#).as_bytes()).map(|_| ())
    };
    assert_eq!(at("1767225600000"), Ok(()));
    assert_eq!(at("1767225540000"), Ok(()));
    assert!(at("1767225539000").unwrap_err().contains("61 s old"));
    assert!(at("1767225661000").unwrap_err().contains("in the future"));
    for missing in ["null", "[]", "{}", "true"] {
        assert_eq!(at(missing), Err("there is no timestamp".into()), "{missing}");
    }
    for garbage in ["1.7e12", "-1", "\"now\"", "1767225600000.0"] {
        assert_eq!(
            at(garbage),
            Err("the timestamp is not a time in the scheme's form".into()),
            "{garbage}"
        );
    }
    assert_eq!(round(&scheme, &HeaderMap::new(), b"not json"), Err("there is no timestamp".into()));
}

#[test]
fn identity_is_read_where_the_scheme_says() {
    let scheme = Scheme::from_json(
        r#"{"algorithm": "hmac-sha256", "signed": "{body}", "signature": {"from": "{header:s}"}, "identity": {
            "id": ["{header:x-id}", "{json:/a}:{json:/n}", "hash-{body-sha256}"], "type": "{header:x-topic}",
            "object_type": {"from": "{header:x-topic}", "before": "/"}, "object_id": "{json:/n}",
            "version": {"from": "{json:/v}", "kind": "number", "trusted": true},
            "occurred_at": {"from": "{json:/t}", "unit": "s"}}}"#,
    )
    .unwrap();
    let mut headers = HeaderMap::new();
    headers.insert("x-topic", "orders/create".parse().unwrap());
    let body = br#"{"a": "x", "n": 7, "v": 12, "t": 1767225600}"#;
    let identity = round(&scheme, &headers, body).unwrap();
    let expected = Identity {
        id: Some("x:7".into()),
        id_is_signed: false, // the header would count first, and it is not signed
        delivery: None,
        event_type: Some("orders/create".into()),
        object_type: Some("orders".into()),
        object_id: Some("7".into()),
        version: Some(Version::Number(12)),
        version_is_trusted: true,
        occurred_at: Some(Timestamp::from_second(1_767_225_600).unwrap()),
    };
    assert_eq!(identity, expected);
    let identity = round(&scheme, &headers, b"{}").unwrap();
    let hash = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";
    assert_eq!(identity.id, Some(format!("hash-{hash}")));
    assert_eq!((identity.version, identity.occurred_at, identity.object_id), (None, None, None));
    for (version, expected) in
        [("1.5", None), ("-1", None), ("\"12\"", Some(12)), ("18446744073709551616", None)]
    {
        let body = format!(r#"{{"v": {version}}}"#);
        let identity = round(&scheme, &headers, body.as_bytes()).unwrap();
        assert_eq!(identity.version, expected.map(Version::Number), "{version}");
    }
}

fn versioned(version: &str) -> Scheme {
    let scheme = format!(
        r#"{{"algorithm": "token", "signature": {{"from": "{{header:x-token}}"}}, "identity": {{"version": {version}}}}}"#
    );
    Scheme::from_json(&scheme).unwrap()
}

/// D5: the first part that differs decides, and a version of which a part is missing is none.
#[test]
fn a_version_of_several_parts_is_all_of_them_or_none() {
    let scheme = versioned(
        r#"{"parts": [{"from": "{json:/epoch}", "kind": "number"}, {"from": ["{json:/a}", "{json:/b}"], "kind": "lexical"},
            {"from": "{json:/at}", "kind": "rfc3339"}], "trusted": true}"#,
    );
    let says = |body: &str| round(&scheme, &HeaderMap::new(), body.as_bytes()).unwrap();
    let whole = says(r#"{"epoch": 3, "b": "x", "at": "2026-01-01T00:00:00Z"}"#);
    let at = "2026-01-01T00:00:00Z".parse().unwrap();
    let parts = vec![Version::Number(3), Version::Text("x".into()), Version::Time(at)];
    assert_eq!((whole.version, whole.version_is_trusted), (Some(Version::Composite(parts)), true));
    for lacking in [
        r#"{"epoch": 3, "b": "x"}"#,
        r#"{"epoch": 3, "b": "x", "at": "yesterday"}"#,
        r#"{"epoch": -3, "b": "x", "at": "2026-01-01T00:00:00Z"}"#,
        r#"{"b": "x", "at": "2026-01-01T00:00:00Z"}"#,
        r#"{"epoch": 3, "b": " ", "at": "2026-01-01T00:00:00Z"}"#,
        "{}",
    ] {
        assert_eq!(says(lacking).version, None, "{lacking}");
    }
}

/// D6
#[test]
fn a_scheme_says_whether_its_events_have_versions_and_whether_they_can_be_trusted() {
    let check = |scheme: &Scheme, has: bool, trusts: bool| {
        assert_eq!((scheme.has_versions(), scheme.trusts_versions()), (has, trusts), "{scheme:?}");
    };
    check(&versioned(r#"{"from": "{json:/v}", "kind": "number", "trusted": true}"#), true, true);
    check(&versioned(r#"{"from": "{json:/v}", "kind": "number"}"#), true, false);
    let parts = r#"[{"from": "{json:/a}"}, {"from": "{json:/b}"}]"#;
    check(&versioned(&format!(r#"{{"parts": {parts}, "trusted": true}}"#)), true, true);
    check(&Scheme::preset("stripe").unwrap(), true, false);
    check(&Scheme::preset("github").unwrap(), false, false);
    // Of a request with several events, each has to say its own.
    let batch = |version: &str| {
        let scheme = format!(
            r#"{{"algorithm": "token", "signature": {{"from": "{{header:x-token}}"}}, "batch": "/events",
                "identity": {{"version": {{"from": "{version}", "trusted": true}}}}}}"#
        );
        Scheme::from_json(&scheme).unwrap()
    };
    check(&batch("{json:/v}"), true, true);
    check(&batch("{header:x-version}"), false, false);
}

#[test]
fn shopify_and_stripe_say_which_object_changed() {
    let mut headers = HeaderMap::new();
    for (name, value) in [("x-shopify-topic", "orders/updated"), ("x-shopify-webhook-id", "w1")] {
        headers.insert(name, value.parse().unwrap());
    }
    let body = br#"{"id":820982911946154508,"updated_at":"2026-01-01T00:00:00-05:00"}"#;
    let identity = round(&Scheme::preset("shopify").unwrap(), &headers, body).unwrap();
    assert_eq!(
        (identity.object_type.as_deref(), identity.object_id.as_deref()),
        (Some("orders"), Some("820982911946154508"))
    );
    assert_eq!(identity.version, Some(Version::Time("2026-01-01T05:00:00Z".parse().unwrap())));
    let body = br#"{"id":"evt_1","type":"invoice.paid","created":5,"data":{"object":{"id":"in_1","object":"invoice"}}}"#;
    let identity = round(&Scheme::preset("stripe").unwrap(), &HeaderMap::new(), body).unwrap();
    assert_eq!(
        (identity.object_type.as_deref(), identity.object_id.as_deref()),
        (Some("invoice"), Some("in_1"))
    );
    assert_eq!((identity.version, identity.version_is_trusted), (Some(Version::Number(5)), false));
}

#[test]
fn what_a_scheme_requires_is_demanded() {
    let shopify = Scheme::preset("shopify").unwrap();
    let mut headers = HeaderMap::new();
    headers.insert("x-shopify-topic", "orders/updated".parse().unwrap());
    let refused = |headers: &HeaderMap, body: &[u8]| round(&shopify, headers, body).unwrap_err();
    assert_eq!(refused(&headers, b"{}"), "the header x-shopify-webhook-id is missing or empty");
    headers.insert("x-shopify-webhook-id", " ".parse().unwrap());
    assert_eq!(refused(&headers, b"{}"), "the header x-shopify-webhook-id is missing or empty");
    headers.insert("x-shopify-webhook-id", "w1".parse().unwrap());
    assert!(round(&shopify, &headers, b"{}").is_ok());
    assert_eq!(refused(&headers, b""), "the body is empty");
    headers.insert("shopify-hmac-sha256", "x".parse().unwrap());
    assert_eq!(refused(&headers, b"{}"), "the header shopify-event-id is missing or empty");

    let scheme = |rest: &str| {
        let text = r#"{"algorithm": "hmac-sha256", "signed": "{body}", "signature": {"from": "{header:s}"}"#;
        Scheme::from_json(&format!("{text}, {rest}}}")).unwrap()
    };
    let json = scheme(r#""body": "json""#);
    assert_eq!(round(&json, &HeaderMap::new(), b"hello"), Err("the body is not JSON".into()));
    assert!(round(&json, &HeaderMap::new(), b"[1]").is_ok());
    let version = scheme(r#""require_equal": {"x-version": "1"}"#);
    assert!(round(&version, &HeaderMap::new(), b"{}").is_ok());
    let mut headers = HeaderMap::new();
    headers.insert("x-version", "2".parse().unwrap());
    let refused = round(&version, &headers, b"{}").unwrap_err();
    assert_eq!(refused, "the header x-version does not have the value that the scheme demands");
}
