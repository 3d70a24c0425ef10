//! `postern endpoints`, against a deployment that writes down what it is asked.
#![expect(clippy::unwrap_used, clippy::panic, reason = "test code")]

mod fake;
mod support;

use std::{fs, os::unix::fs::PermissionsExt as _};

use fake::Fake;
use serde_json::{Value, json};

/// SEC-url-token
#[test]
fn endpoints_are_listed_with_their_health() {
    let endpoint = |id: &str, health: Value| {
        json!({
            "id": id, "patterns": ["a.*", "b"], "url": "https://hooks.example.com/in/…",
            "created_at": "2026-09-21T14:13:20Z", "health": health,
        })
    };
    let fake = Fake::answering(
        200,
        &json!({"endpoints": [
            endpoint("ep_1", json!({"words": "good"})),
            endpoint("ep_2", json!({"words": "every attempt has failed since 2026-09-21T14:13:20Z"})),
            endpoint("ep_3", json!({"words": "disabled since x: it answered 410 Gone; what it would get is held"})),
        ]}),
    );
    insta::assert_snapshot!(fake.run(&["endpoints", "list", "acme"]).out, @r"
    id    types  where                           health                                               made
    ep_1  a.* b  https://hooks.example.com/in/…  good                                                 2026-09-21T14:13:20Z
    ep_2  a.* b  https://hooks.example.com/in/…  every attempt has failed since 2026-09-21T14:13:20Z  2026-09-21T14:13:20Z
    ep_3  a.* b  https://hooks.example.com/in/…  disabled since x: it answered 410 Gone               2026-09-21T14:13:20Z
    ");
    assert_eq!(fake.asked().call, "GET /v1/tenants/acme/endpoints");
    let shown = fake.run(&["endpoints", "show", "acme", "ep/1"]);
    assert_eq!((shown.code, shown.err.as_str()), (0, ""));
    assert_eq!(fake.asked().call, "GET /v1/tenants/acme/endpoints/ep%2F1");
}

/// CLI-wrong-environment
#[test]
fn the_secret_of_a_new_endpoint_is_shown_this_once() {
    let made = json!({"id": "ep_1", "secret": "whsec_shown"});
    let fake = Fake::answering(201, &made);
    let add = ["endpoints", "add", "acme", "https://example.com/", "--type", "a.*"];
    let ended = fake.run(&add);
    assert_eq!((ended.code, ended.err), (0, fake.named()));
    assert_eq!(ended.out, "Endpoint ep_1 is ready.\nIts secret, shown this once: whsec_shown\n");
    let asked = fake.asked();
    assert_eq!(asked.call, "POST /v1/tenants/acme/endpoints");
    assert_eq!(asked.json(), json!({"url": "https://example.com/", "patterns": ["a.*"]}));
}

#[test]
fn a_queue_or_a_bus_is_added_by_its_name_and_has_no_secret() {
    let fake = Fake::answering(201, &json!({"id": "ep_1", "queue": "https://sqs…"}));
    let queue = "https://sqs.eu-central-1.amazonaws.com/123456789012/mail";
    let ended = fake.run(&["endpoints", "add", "internal", "--queue", queue]);
    assert_eq!((ended.code, ended.err), (0, fake.named()));
    assert_eq!(
        ended.out,
        "Endpoint ep_1 is ready.\nIt has no secret: the deployment writes to it with its own rights.\n"
    );
    assert_eq!(fake.asked().json(), json!({"queue": queue, "patterns": []}));
    let fake = Fake::answering(201, &json!({"id": "ep_1", "bus": "arn…"}));
    let add = ["endpoints", "add", "internal", "--bus", "orders", "--not-idempotent"];
    assert_eq!(fake.run(&add).code, 0);
    assert_eq!(fake.asked().json(), json!({"bus": "orders", "idempotent": false, "patterns": []}));
    // In one place, and in one at least.
    for wrong in [&add[..3], &["endpoints", "add", "internal", "https://a.example/", "--bus", "b"]]
    {
        assert_eq!(Fake::answering(201, &json!({})).run(wrong).code, 2, "{wrong:?}");
    }
}

#[test]
fn endpoints_say_what_kind_of_place_they_are() {
    let health = json!({"words": "good"});
    let endpoint = |id: &str, member: &str, place: &str| json!({"id": id, member: place, "patterns": [], "created_at": "x", "health": health});
    let mut last = endpoint("ep_3", "url", "https://payments.example/…");
    last["idempotent"] = false.into();
    let fake = Fake::answering(
        200,
        &json!({"endpoints": [endpoint("ep_1", "queue", "https://sqs.x/1/mail"), endpoint("ep_2", "bus", "arn:x"), last]}),
    );
    let out = fake.run(&["endpoints", "list", "internal"]).out;
    for place in
        ["queue https://sqs.x/1/mail", "bus arn:x", "https://payments.example/… (not idempotent)"]
    {
        assert!(out.contains(place), "{out}");
    }
}

/// DLV-disable-notice
#[test]
fn unhealthy_endpoints_are_listed_and_are_an_answer_of_no() {
    let one = json!({"id": "ep_1", "url": "https://x.example/", "health": {"words": "paused since x: y"}});
    let fake = Fake::answering(200, &json!({"endpoints": [one]}));
    let ended = fake.run(&["endpoints", "list", "acme", "--unhealthy"]);
    assert_eq!(ended.code, 1);
    assert!(ended.out.contains("paused since x: y"), "{}", ended.out);
    assert!(ended.err.contains("1 endpoints of acme are not healthy"), "{}", ended.err);
    assert_eq!(fake.asked().call, "GET /v1/tenants/acme/endpoints?unhealthy=true");
    let json = fake.run(&["endpoints", "list", "acme", "--unhealthy", "--json"]);
    assert_eq!(json.code, 1);
    assert!(serde_json::from_str::<Value>(&json.out).is_ok());
    // All of them are no question of health.
    assert_eq!(fake.run(&["endpoints", "list", "acme"]).code, 0);
    let fine = Fake::answering(200, &json!({"endpoints": []}));
    let ended = fine.run(&["endpoints", "list", "acme", "--unhealthy"]);
    assert_eq!((ended.code, ended.out.as_str(), ended.err.as_str()), (0, "none\n", ""));
}

/// SEC-secret-in-output: secrets come from files and from standard input, and are never said again.
#[test]
fn everything_that_an_endpoint_may_have_is_asked_for_and_its_secrets_come_from_files() {
    let fake = Fake::answering(
        201,
        &json!({"id": "ep_1", "url": "x", "warnings": ["W"], "test": {"event": "evt_1"}}),
    );
    let file = |name: &str, text: &str| {
        let file = fake.folder.path().join(name);
        fs::write(&file, text).unwrap();
        file.display().to_string()
    };
    let headers = file("headers", r#"{"x-team": "CANARY-H"}"#);
    let own = file("own", "whsec_CANARY\n");
    let add = [
        "endpoints",
        "add",
        "acme",
        "https://example.com/",
        "--type",
        "a.*",
        "--type",
        "b",
        "--description",
        "Ann",
        "--label",
        "region=eu",
        "--filter",
        r#"{"/n": {"gte": 1}}"#,
        "--concurrency",
        "3",
        "--rate",
        "9",
        "--lanes",
        "2",
        "--style",
        "cloud-events",
        "--not-idempotent",
        "--headers-file",
        &headers,
        "--secret-file",
        &own,
        "--test",
        "--oauth2",
        "https://login.example/",
        "--client-id",
        "c",
        "--scope",
        "s",
        "--credentials-in-body",
        "--auth-secret-file",
        "-",
    ];
    let ended = fake.run_with(&add, "CANARY-A\n");
    assert_eq!((ended.code, ended.err), (0, fake.named()));
    assert_eq!(
        ended.out,
        "Endpoint ep_1 is ready.\nIt signs with the secret that you gave.\nA test event is on its way: evt_1\nNote: W\n"
    );
    let auth = json!({
        "kind": "oauth2", "token_url": "https://login.example/", "client_id": "c", "scope": "s", "credentials_in": "body",
        "secret": "CANARY-A",
    });
    let expected = json!({
        "url": "https://example.com/", "patterns": ["a.*", "b"], "description": "Ann", "labels": {"region": "eu"},
        "filter": {"/n": {"gte": 1}}, "concurrency": 3, "rate": 9, "lanes": 2, "style": "cloud_events",
        "idempotent": false, "headers": {"x-team": "CANARY-H"}, "secret": "whsec_CANARY", "test": true, "auth": auth,
    });
    assert_eq!(fake.asked().json(), expected);
}

#[test]
fn what_does_not_go_together_is_refused_before_anything_is_asked() {
    let fake = Fake::answering(201, &json!({"id": "ep_1"}));
    let refused = |args: &[&str], says: &str| {
        let add = [&["endpoints", "add", "acme", "https://example.com/"], args].concat();
        let ended = fake.run_with(&add, "CANARY");
        assert!(ended.code == 2 && ended.err.contains(says), "{args:?}: {}", ended.err);
    };
    refused(&["--basic", "ann"], "--auth-secret-file");
    refused(&["--bearer", "--basic", "ann", "--auth-secret-file", "-"], "cannot be used with");
    refused(&["--oauth2", "https://x.example/", "--auth-secret-file", "-"], "--client-id");
    refused(&["--auth-secret-file", "-"], "--bearer");
    refused(&["--label", "region"], "NAME=VALUE");
    refused(&["--filter", "{a}"], "--filter");
    refused(&["--secret-file", "-", "--bearer", "--auth-secret-file", "-"], "`-` is given twice");
    refused(&["--headers-file", "-"], "it is not JSON, at line 1");
    refused(&["--secret-out", "/nowhere/at/all"], "no such folder");
    let taken = fake.folder.path().join("taken");
    fs::write(&taken, "x").unwrap();
    refused(&["--secret-out", taken.to_str().unwrap()], "not overwritten");
    // Secrets are no arguments.
    refused(&["--secret", "whsec_x"], "unexpected argument");
    assert!(fake.asked.lock().unwrap().is_empty());
}

/// SEC-secret-in-output
#[test]
fn a_secret_may_go_into_a_file_and_not_to_the_screen() {
    let fake = Fake::answering(201, &json!({"id": "ep_1", "url": "x", "secret": "whsec_CANARY"}));
    for (n, more) in [&[][..], &["--json"]].iter().enumerate() {
        let file = fake.folder.path().join(format!("secret-{n}"));
        let add = [
            "endpoints",
            "add",
            "acme",
            "https://example.com/",
            "--secret-out",
            file.to_str().unwrap(),
        ];
        let ended = fake.run(&[&add[..], more].concat());
        assert_eq!(ended.code, 0, "{}", ended.err);
        assert_eq!(fs::read_to_string(&file).unwrap(), "whsec_CANARY\n");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let where_it_is = ended.out.contains(&format!("Its secret is in {}.", file.display()));
        assert_eq!(where_it_is, more.is_empty(), "{}", ended.out);
    }
    let rotated =
        json!({"id": "a1b2c3", "secret": "whsec_CANARY", "others_end_at": "x", "secrets": []});
    let fake = Fake::answering(201, &rotated);
    let file = fake.folder.path().join("rotated");
    let ended =
        fake.run(&["endpoints", "rotate", "acme", "ep_1", "--secret-out", file.to_str().unwrap()]);
    assert!(ended.code == 0 && file.exists(), "{}", ended.err);
}

/// I9
#[test]
fn a_secret_is_rotated_with_an_overlap() {
    let answer = json!({
        "id": "a1b2c3", "secret": "whsec_new", "others_end_at": "2026-09-22T14:13:20Z", "warnings": [], "secrets": [
            {"id": "a1b2c3", "purpose": "signing", "kind": "hmac", "expires_at": null},
            {"id": "d4e5f6", "purpose": "signing", "kind": "ed25519", "public_key": "whpk_x", "expires_at": "2026-09-22T14:13:20Z"},
            {"id": "headers", "purpose": "headers", "expires_at": null},
        ],
    });
    let fake = Fake::answering(201, &answer);
    let ended = fake.run(&["endpoints", "rotate", "acme", "ep_1"]);
    assert_eq!((ended.code, ended.err), (0, fake.named()));
    insta::assert_snapshot!(ended.out, @r"
    Its secret, shown this once: whsec_new
    The secrets before it end at 2026-09-22T14:13:20Z.

    fingerprint  for      kind     ends                  public key
    a1b2c3       signing  hmac     never                 -
    d4e5f6       signing  ed25519  2026-09-22T14:13:20Z  whpk_x
    headers      headers  -        never                 -
    ");
    let asked = fake.asked();
    assert_eq!(asked.call, "POST /v1/tenants/acme/endpoints/ep_1/secrets/rotate");
    assert_eq!(asked.json(), json!({"overlap_ms": 86_400_000}));
    let own = [
        "endpoints",
        "rotate",
        "acme",
        "ep_1",
        "--overlap",
        "0s",
        "--ed25519",
        "--secret-file",
        "-",
    ];
    assert_eq!(fake.run_with(&own, "whsk_CANARY\n").code, 0);
    let expected = json!({"overlap_ms": 0, "kind": "ed25519", "secret": "whsk_CANARY"});
    assert_eq!(fake.asked().json(), expected);
    let listed = fake.run(&["endpoints", "secrets", "acme", "ep_1"]);
    assert!(listed.out.contains("whpk_x") && listed.err.is_empty(), "{}", listed.out);
    assert_eq!(fake.asked().call, "GET /v1/tenants/acme/endpoints/ep_1/secrets");
    let pair = json!({"id": "a1b2c3", "public_key": "whpk_y", "others_end_at": "x", "secrets": []});
    let ended =
        Fake::answering(201, &pair).run(&["endpoints", "rotate", "acme", "ep_1", "--ed25519"]);
    assert!(ended.out.starts_with("Its owner verifies with: whpk_y\n"), "{}", ended.out);
}

#[test]
fn an_endpoint_is_changed_in_what_is_named_and_nothing_else() {
    let fake = Fake::answering(200, &json!({"id": "ep_1"}));
    let update = ["endpoints", "update", "acme", "ep_1"];
    let check = |args: &[&str], expected: Value| {
        let ended = fake.run(&[&update, args].concat());
        assert_eq!((ended.code, ended.err), (0, fake.named()), "{args:?}");
        let asked = fake.asked();
        assert_eq!(asked.call, "PATCH /v1/tenants/acme/endpoints/ep_1");
        assert_eq!(asked.json(), expected, "{args:?}");
    };
    check(&["--url", "https://example.org/"], json!({"url": "https://example.org/"}));
    check(&["--type", "a.*", "--style", "thin"], json!({"patterns": ["a.*"], "style": "thin"}));
    check(
        &[
            "--all-types",
            "--no-labels",
            "--no-filter",
            "--no-rate",
            "--no-concurrency",
            "--idempotent",
            "--no-auth",
            "--no-headers",
        ],
        json!({
            "patterns": [], "labels": {}, "filter": null, "rate": null, "concurrency": null, "idempotent": true,
            "auth": null, "headers": null,
        }),
    );
    let nothing = fake.run(&update);
    assert!(nothing.code == 2 && nothing.err.contains("nothing to change"), "{}", nothing.err);
    let both = fake.run(&[&update[..], &["--rate", "1", "--no-rate"]].concat());
    assert!(both.code == 2 && both.err.contains("cannot be used with"), "{}", both.err);
    assert!(fake.asked.lock().unwrap().is_empty());
}

#[test]
fn a_program_sets_an_endpoint_up_by_its_own_key() {
    let configure =
        ["endpoints", "configure", "acme", "shop/7", "https://example.com/", "--rate", "5"];
    let fake = Fake::answering(201, &json!({"id": "ep_1", "url": "x", "secret": "whsec_shown"}));
    let ended = fake.run(&configure);
    assert_eq!((ended.code, ended.err), (0, fake.named()));
    assert_eq!(ended.out, "Endpoint ep_1 is ready.\nIts secret, shown this once: whsec_shown\n");
    let asked = fake.asked();
    assert_eq!(asked.call, "PUT /v1/tenants/acme/endpoints/by-key/shop%2F7");
    assert_eq!(asked.header("content-type"), "application/json");
    assert_eq!(asked.json(), json!({"url": "https://example.com/", "patterns": [], "rate": 5}));
    for (changed, says) in
        [(true, "Endpoint ep_1 is changed.\n"), (false, "Endpoint ep_1 is as it was.\n")]
    {
        let fake = Fake::answering(200, &json!({"id": "ep_1", "changed": changed}));
        assert_eq!(fake.run(&configure).out, says);
    }
}

/// F13
#[test]
fn endpoints_are_stopped_and_started_and_it_is_told_what_follows() {
    let answer = json!({"id": "ep_1", "health": {"words": "paused since x: y; what it would get is held"}, "told": "T."});
    let fake = Fake::answering(200, &answer);
    let check = |args: &[&str], call: &str, body: Value| {
        let ended = fake.run(&[&["endpoints", args[0], "acme", "ep_1"], &args[1..]].concat());
        assert_eq!((ended.code, ended.err), (0, fake.named()), "{args:?}");
        assert_eq!(ended.out, "Endpoint ep_1: paused since x: y.\nT.\n");
        let asked = fake.asked();
        assert_eq!(asked.call, format!("POST /v1/tenants/acme/endpoints/ep_1/{call}"));
        assert_eq!(asked.json(), body);
    };
    check(&["pause", "--reason", "a deploy"], "pause", json!({"reason": "a deploy"}));
    check(&["disable", "--reason", "x"], "disable", json!({"reason": "x"}));
    check(&["resume"], "resume", json!({}));
    check(&["enable"], "enable?release_rate=10", json!({}));
    check(&["enable", "--release-rate", "200"], "enable?release_rate=200", json!({}));
    let no_reason = fake.run(&["endpoints", "pause", "acme", "ep_1"]);
    assert!(no_reason.code == 2 && no_reason.err.contains("--reason"), "{}", no_reason.err);
}

#[test]
fn an_endpoint_is_deleted_only_where_that_is_said_twice() {
    let answer = json!({"id": "ep_1", "url": "https://example.com/", "deleted_at": "x"});
    let fake = Fake::answering(200, &answer);
    let dry = fake.run(&["endpoints", "delete", "acme", "ep_1"]);
    assert_eq!((dry.code, dry.err.as_str()), (0, ""));
    assert!(dry.out.contains("would delete ep_1: https://example.com/"), "{}", dry.out);
    assert!(dry.out.ends_with("  postern endpoints delete acme ep_1 --yes\n"), "{}", dry.out);
    assert_eq!(fake.asked().call, "GET /v1/tenants/acme/endpoints/ep_1");
    let done = fake.run(&["endpoints", "delete", "acme", "ep_1", "--yes"]);
    assert_eq!((done.code, done.err), (0, fake.named()));
    assert_eq!(fake.asked().call, "DELETE /v1/tenants/acme/endpoints/ep_1");
}

/// F11
#[test]
fn a_test_event_is_asked_for_and_can_be_followed() {
    let fake = Fake::answering(202, &json!({"event": "evt_9", "enqueued": true}));
    let ended = fake.run(&["endpoints", "test", "acme", "ep_1"]);
    assert_eq!((ended.code, ended.err), (0, fake.named()));
    let expected = "evt_9 is on its way to ep_1.\nFollow it with: postern events show acme evt_9\n";
    assert_eq!(ended.out, expected);
    assert_eq!(fake.asked().call, "POST /v1/tenants/acme/endpoints/ep_1/test");
}
