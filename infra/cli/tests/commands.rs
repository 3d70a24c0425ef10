//! The commands that ask a deployment, against one that writes down what it is asked.
#![expect(clippy::unwrap_used, clippy::panic, reason = "test code")]

mod fake;
mod support;

use std::path::Path;

use fake::Fake;
use serde_json::{Value, json};
use support::command;

#[test]
fn a_story_is_told_or_given_as_json() {
    let story = json!({
        "source": "shop", "event_id": "a/b", "event_type": "x", "status": "pending", "origin": "webhook",
        "received_at": "2026-09-21T14:13:20Z", "body_bytes": 2, "results": [], "outgoing": [],
    });
    let fake = Fake::answering(200, &story);
    let told = fake.run(&["events", "story", "shop", "a/b"]);
    assert!(told.code == 0 && told.out.starts_with("a/b of shop (x) is pending\n"), "{}", told.out);
    assert_eq!(fake.asked().call, "GET /v1/sources/shop/events/a%2Fb");
    let json = fake.run(&["events", "story", "shop", "a/b", "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&json.out).unwrap(), story);
}

/// CLI-wrong-environment
#[test]
fn a_replay_says_where_and_what_follows() {
    let fake = Fake::answering(202, &json!({"enqueued": true}));
    let ended = fake.run(&["events", "replay", "shop", "evt_1"]);
    assert_eq!((ended.code, ended.err), (0, fake.named()));
    let expected = "evt_1 is pending again.\nFollow it with: postern events story shop evt_1\n";
    assert_eq!(ended.out, expected);
    assert_eq!(fake.asked().call, "POST /v1/sources/shop/events/evt_1/replay");
    let fake = Fake::answering(202, &json!({"enqueued": false}));
    let ended = fake.run(&["events", "replay", "shop", "evt_1"]);
    assert!(ended.out.contains("the sweeper starts it within minutes"), "{}", ended.out);
}

/// K3, K4, K9, C36
#[test]
fn parked_events_are_listed_with_error_attempts_since_when_and_what_is_next() {
    let parked = json!({
        "source": "shop", "event_id": "evt_1", "event_type": null, "parked_at": "2026-09-21T14:13:20Z", "attempts": 12,
        "error": {"code": "handler_failed", "message": "no such\u{1b}[31m invoice"}, "status": "dead_letter",
        "next_action": "a person mends the cause and replays it",
    });
    let next = "1790000000000.shop#evt_1";
    let fake = Fake::answering(200, &json!({"parked": [parked], "more": true, "next": next}));
    insta::assert_snapshot!(fake.run(&["events", "parked"]).out);
    assert_eq!(fake.asked().call, "GET /v1/parked");
    fake.run(&["events", "parked", "--source", "shop", "--before", next, "--limit", "1"]);
    let expected = "GET /v1/parked?source=shop&limit=1&before=1790000000000.shop%23evt_1";
    assert_eq!(fake.asked().call, expected);
}

/// E7: what nobody wanted can be seen.
#[test]
fn events_that_nobody_wanted_are_listed_with_what_they_were_matched_by() {
    let event = json!({
        "event_id": "evt_1", "event_type": "order.paid", "labels": {"region": "eu\u{1b}[31m", "tier": "1"},
        "occurred_at": "2026-09-21T14:13:20Z", "relayed_at": "2026-09-21T14:13:21Z",
    });
    let next = "2026-09-21T14:13:20Z";
    let fake = Fake::answering(200, &json!({"unmatched": [event], "next": next}));
    insta::assert_snapshot!(fake.run(&["events", "unmatched", "acme"]).out);
    assert_eq!(fake.asked().call, "GET /v1/tenants/acme/events/unmatched");
    fake.run(&["events", "unmatched", "acme", "--before", next, "--limit", "9"]);
    let expected = "GET /v1/tenants/acme/events/unmatched?limit=9&before=2026-09-21T14%3A13%3A20Z";
    assert_eq!(fake.asked().call, expected);
}

fn survey() -> Value {
    json!({
        "dry_run": true, "kind": "replay", "source": "shop", "rate": 50, "more": false,
        "counts": {"looked_at": 245, "replayed": 242, "in_flight": 0, "moved": 0, "already_done": 3, "absent": 0, "failed": 0},
        "by_status": {"dead_letter": 145, "ignored": 97}, "by_type": {"invoice.paid": 242},
        "first": ["evt_1", "evt_2"], "told": [],
    })
}

/// RPL-inbound-repair, WRK-dlq-redrive, RPL-already-delivered, K6: what is not asked for by `--yes` is not done.
#[test]
fn a_selection_without_yes_says_what_it_would_do_and_how_to_do_it() {
    let fake = Fake::answering(200, &survey());
    let select = ["--status", "ignored", "--status", "dead_letter", "--type", "invoice.*"];
    let dry = [&["events", "replay", "shop"], &select[..], &["--from", "2026-09-14"]].concat();
    let ended = fake.run(&dry);
    assert_eq!((ended.code, ended.err.as_str()), (0, ""));
    let state = fake.folder.path().display().to_string();
    insta::assert_snapshot!(ended.out.replace(&state, "/state"));
    let asked = fake.asked();
    assert_eq!(asked.call, "POST /v1/replays");
    let select = json!({
        "status": ["ignored", "dead_letter"], "types": ["invoice.*"], "from": "2026-09-14T00:00:00Z",
    });
    let expected = |dry: bool, reason: Value| json!({"source": "shop", "select": select, "dry_run": dry, "reason": reason});
    assert_eq!(asked.json(), expected(true, Value::Null));

    // And that command does it.
    let started = json!({
        "id": "rpl_1", "kind": "replay", "source": "shop", "state": "running", "rate": 50, "reason": "mended", "actor": "ann",
        "began_at": "2026-09-21T14:13:20Z", "counts": survey()["counts"], "told": [],
        "next_action": "the sweeper goes on with it",
    });
    let fake = Fake::answering(202, &started);
    let ended = fake.run(&[&dry[..], &["--reason", "mended", "--yes"]].concat());
    assert_eq!((ended.code, ended.err), (0, fake.named()));
    insta::assert_snapshot!("a_replay_that_was_started", ended.out);
    assert_eq!(fake.asked().json(), expected(false, json!("mended")));
}

#[test]
fn a_replay_of_nothing_in_particular_is_refused() {
    let fake = Fake::answering(200, &survey());
    for (args, why) in [
        (&["events", "replay", "shop"][..], "it is not said which events"),
        (&["events", "replay", "shop", "--yes", "--reason", "x"], "it is not said which events"),
        (&["events", "replay", "shop", "--all", "--yes"], "a selection needs a reason"),
    ] {
        let ended = fake.run(args);
        assert!(ended.code == 2 && ended.err.contains(why), "{}", ended.err);
    }
    let ended = fake.run(&["events", "replay", "shop", "evt_1", "--all"]);
    assert!(ended.code == 2 && ended.err.contains("cannot be used with"), "{}", ended.err);
    assert!(fake.asked.lock().unwrap().is_empty());
}

/// What a dry run says is what the run does.
#[test]
fn a_dry_run_of_named_events_says_what_the_run_would_do() {
    let check = |events: &[&str], counts: Value, told: Value, expected: &str| {
        let answer = json!({"dry_run": true, "source": "shop", "counts": counts, "told": told});
        let fake = Fake::answering(200, &answer);
        let ended = fake.run(&[&["events", "replay", "shop", "--dry-run"], events].concat());
        assert_eq!(ended.code, 0, "{}", ended.err);
        let state = fake.folder.path().display().to_string();
        assert_eq!(ended.out.replace(&state, "/state"), expected);
    };
    let of = |event: &str, outcome: &str| json!({"event_id": event, "outcome": outcome});
    check(
        &["evt_1"],
        json!({"looked_at": 1, "replayed": 0, "already_done": 1}),
        json!([of("evt_1", "already_done")]),
        "would run evt_1 of shop again\n  named alone, an event is run again whatever its status\n\
         Nothing was changed. To do it:\n  postern events replay shop evt_1 --state /state --yes\n",
    );
    check(
        &["evt_1"],
        json!({"looked_at": 1, "replayed": 0, "absent": 1}),
        json!([of("evt_1", "absent")]),
        "would run 0 events of shop again (looked at 1)\n  1 not there: check the ids and the source\n    \
         evt_1: absent\nNothing was changed, and there is nothing to do.\n",
    );
    check(
        &["evt_1", "evt_2", "--status", "parked"],
        json!({"looked_at": 2, "replayed": 1, "in_flight": 1}),
        json!([of("evt_1", "replayed"), of("evt_2", "in_flight")]),
        "would run 1 events of shop again (looked at 2)\n  1 pending already: processed without being asked\n    \
         evt_1: would be replayed\n    evt_2: in flight\nNothing was changed. To do it:\n  \
         postern events replay shop evt_1 evt_2 --status dead_letter --reason WHY --state /state --yes\n",
    );
}

/// K1, K2
#[test]
fn events_that_are_named_are_replayed_at_once_and_told_of_one_by_one() {
    let done = json!({
        "id": "rpl_1", "kind": "replay", "source": "shop", "state": "completed", "rate": 50,
        "reason": "named on the command line", "actor": "ann", "began_at": "2026-09-21T14:13:20Z",
        "counts": {"looked_at": 2, "replayed": 1, "absent": 1},
        "told": [{"event_id": "evt_1", "outcome": "replayed"}, {"event_id": "evt_2", "outcome": "absent"}],
        "next_action": "none",
    });
    let fake = Fake::answering(202, &done);
    let ended = fake.run(&["events", "replay", "shop", "evt_1", "evt_2"]);
    assert_eq!((ended.code, ended.err), (0, fake.named()));
    insta::assert_snapshot!(ended.out);
    let expected = json!({
        "source": "shop", "select": {"events": ["evt_1", "evt_2"]}, "dry_run": false, "reason": "named on the command line",
    });
    assert_eq!(fake.asked().json(), expected);
}

#[test]
fn replays_are_listed_shown_and_stopped() {
    let replay = json!({
        "id": "rpl_1", "kind": "replay", "source": "shop", "state": "cancelled", "rate": 50, "reason": "mended", "actor": "ann",
        "began_at": "2026-09-21T14:13:20Z", "cancelled_at": "2026-09-21T14:14:20Z", "cancelled_by": "bob",
        "counts": {"looked_at": 53, "replayed": 50, "in_flight": 2, "failed": 1},
        "told": [{"event_id": "evt_7", "outcome": "in_flight"}], "next_action": "none: it was stopped",
    });
    let fake = Fake::answering(200, &json!({"replays": [replay], "more": true}));
    insta::assert_snapshot!(fake.run(&["replays", "list"]).out);
    assert_eq!(fake.asked().call, "GET /v1/replays");
    let fake = Fake::answering(200, &replay);
    let shown = fake.run(&["replays", "show", "rpl_1"]);
    assert_eq!((shown.code, shown.err.as_str()), (0, ""));
    insta::assert_snapshot!("a_replay", shown.out);
    assert_eq!(fake.asked().call, "GET /v1/replays/rpl_1");
    let stopped = fake.run(&["replays", "cancel", "rpl_1"]);
    assert_eq!((stopped.code, stopped.err), (0, fake.named()));
    assert_eq!(fake.asked().call, "POST /v1/replays/rpl_1/cancel");
}

/// CLI-wrong-environment, OUT-error-after-commit
#[test]
fn a_published_payload_stays_as_it_was_typed_and_each_call_has_a_key() {
    let fake = Fake::answering(202, &json!({"id": "evt_9", "repeated": false}));
    let payload = r#"{ "n":9007199254740993, "b":1.0 }"#;
    let publish = ["events", "publish", "acme", "a.b", "--aggregate", "o 1", payload];
    let ended = fake.run(&publish);
    assert_eq!((ended.code, ended.err), (0, fake.named()));
    let expected = "evt_9 is published.\nFollow it with: postern events show acme evt_9\n";
    assert_eq!(ended.out, expected);
    let asked = fake.asked();
    assert_eq!(asked.call, "POST /v1/events");
    let expected =
        format!(r#"{{"tenant":"acme","type":"a.b","aggregate_id":"o 1","payload":{payload}}}"#);
    assert_eq!(asked.body, expected);
    let first = asked.header("idempotency-key").to_owned();
    fake.run(&publish);
    let second = fake.asked().header("idempotency-key").to_owned();
    assert!(first.len() > 20 && first != second, "{first} {second}");

    let fake = Fake::answering(200, &json!({"id": "evt_9", "repeated": true}));
    let ended = fake.run(&[&publish[..], &["--idempotency-key", "k1"]].concat());
    assert!(ended.out.starts_with("evt_9 was published before.\n"), "{}", ended.out);
    assert_eq!(fake.asked().header("idempotency-key"), "k1");
}

/// OUT-error-after-commit
#[test]
fn a_publish_without_an_answer_can_be_repeated_safely() {
    let busy = json!({"title": "A store is busy.", "detail": "Nothing is known."});
    let fake = Fake::answering(503, &busy);
    let ended = fake.run(&["events", "publish", "acme", "a", "--aggregate", "x", "1"]);
    assert_eq!(ended.code, 2);
    let key = fake.asked().header("idempotency-key").to_owned();
    assert!(
        ended.err.contains(&format!("repeat it with --idempotency-key {key}")),
        "{}",
        ended.err
    );
}

#[test]
fn what_is_no_json_or_no_key_is_not_published() {
    let fake = Fake::answering(202, &json!({}));
    let publish = ["events", "publish", "acme", "a", "--aggregate", "x"];
    let ended = fake.run(&[&publish[..], &["{id: 1}"]].concat());
    assert!(ended.code == 2 && ended.err.contains("quote it for the shell"), "{}", ended.err);
    let ended = fake.run(&[&publish[..], &["1", "--idempotency-key", "a\nb"]].concat());
    assert!(ended.code == 2 && ended.err.contains("visible ASCII"), "{}", ended.err);
    assert!(fake.asked.lock().unwrap().is_empty());
}

#[test]
fn a_version_and_labels_are_published_with_the_event() {
    let fake = Fake::answering(202, &json!({"id": "evt_9", "repeated": false}));
    let publish = ["events", "publish", "acme", "a", "--aggregate", "x", "1"];
    let more = ["--aggregate-version", "7", "--label", "region=eu", "--label", "note=a=b"];
    assert_eq!(fake.run(&[&publish[..], &more].concat()).code, 0);
    let body = fake.asked().json();
    assert_eq!(body["aggregate_version"], 7);
    assert_eq!(body["labels"], json!({"region": "eu", "note": "a=b"}));
    let ended = fake.run(&[&publish[..], &["--label", "region"]].concat());
    assert!(ended.code == 2 && ended.err.contains("expected NAME=VALUE"), "{}", ended.err);
}

/// OUT-error-after-commit
#[test]
fn a_file_is_published_line_by_line_under_one_key() {
    let results = json!({"results": [
        {"id": "evt_1", "repeated": false}, {"id": "evt_2", "repeated": true},
        {"problem": {"status": 422, "detail": "type: it is missing\u{1b}"}},
    ]});
    let fake = Fake::answering(207, &results);
    let lines = "{ \"n\":1.0 }\n\n{\"idempotency_key\":\"own\"}\nno event\n{}\n";
    let ended =
        fake.run_with(&["events", "publish", "--file", "-", "--idempotency-key", "run-7"], lines);
    assert_eq!(ended.code, 1, "{}", ended.err);
    let asked = fake.asked();
    assert_eq!(asked.call, "POST /v1/events");
    let expected = r#"{"events":[{"idempotency_key":"run-7:1", "n":1.0 },{"idempotency_key":"own"},{"idempotency_key":"run-7:5"}]}"#;
    assert_eq!(asked.body, expected);
    insta::assert_snapshot!(
        "a_file_that_is_published",
        format!("{}---\n{}", ended.out, ended.err.replace(&fake.named(), ""))
    );
    let whole = fake.run_with(
        &["events", "publish", "--file", "-", "--idempotency-key", "run-7", "--json"],
        lines,
    );
    let told: Value = serde_json::from_str(&whole.out).unwrap();
    assert_eq!((&told["published"], &told["repeated"]), (&json!(1), &json!(1)));
    let refused: Vec<_> =
        told["refused"].as_array().unwrap().iter().map(|r| r["line"].clone()).collect();
    assert_eq!(refused, [json!(4), json!(5)]);
}

#[test]
fn a_long_file_goes_in_requests_that_the_api_takes() {
    let result = json!({"id": "evt_1", "repeated": false});
    let fake = Fake::answering(200, &json!({"results": vec![result.clone(); 100]}));
    let lines = "{\"a\":1}\n".repeat(300);
    let ended = fake.run_with(&["events", "publish", "--file", "-"], &lines);
    assert_eq!(
        (ended.code, ended.out.as_str()),
        (0, "300 published, 0 published before, 0 refused\n")
    );
    assert_eq!(fake.asked.lock().unwrap().len(), 3);

    // Two of these are over 5 MB as the gateway writes them: each quote becomes two bytes.
    let fake = Fake::answering(200, &json!({"results": [result]}));
    let line = format!("{{\"a\":[{}1]}}\n", "\"\",".repeat(600_000));
    let ended = fake.run_with(&["events", "publish", "--file", "-"], &line.repeat(2));
    assert_eq!((ended.code, ended.err), (0, fake.named()));
    assert_eq!(fake.asked.lock().unwrap().len(), 2);
}

/// OUT-error-after-commit
#[test]
fn a_file_that_was_cut_off_can_be_sent_again_safely() {
    let busy = json!({"title": "A store is busy.", "detail": "Nothing is known."});
    let fake = Fake::answering(503, &busy);
    let ended = fake.run_with(&["events", "publish", "--file", "-"], "{}\n");
    assert_eq!(ended.code, 2);
    let body = fake.asked().json();
    let key = body["events"][0]["idempotency_key"].as_str().unwrap().strip_suffix(":1").unwrap();
    let next = format!("--file - --idempotency-key {key}, which publishes nothing twice");
    assert!(ended.err.contains(&next), "{}", ended.err);

    let busy = json!({"results": [{"problem": {"status": 503, "detail": "Nothing is known."}}]});
    let fake = Fake::answering(207, &busy);
    let ended = fake.run_with(&["events", "publish", "--file", "-"], "{}\n");
    assert_eq!(ended.code, 2);
    assert!(ended.err.contains("which publishes nothing twice"), "{}", ended.err);

    let fake = Fake::answering(200, &json!({"results": []}));
    let ended = fake.run_with(&["events", "publish", "--file", "-"], "{}\n");
    assert!(ended.code == 2 && ended.err.contains("0 results to 1 events"), "{}", ended.err);
    let ended = fake.run(&["events", "publish", "--file", "/nowhere/at/all"]);
    assert!(ended.code == 2 && ended.err.contains("cannot be read"), "{}", ended.err);
}

/// RPL-already-delivered, CLI-wrong-environment
#[test]
fn a_redelivery_of_what_was_taken_has_to_be_asked_for() {
    let fake = Fake::answering(202, &json!({"enqueued": true}));
    let redeliver = ["events", "redeliver", "acme", "evt_1", "ep_1"];
    let ended = fake.run(&redeliver);
    assert_eq!((ended.code, ended.err), (0, fake.named()));
    let expected = "evt_1 is due again at ep_1.\nFollow it with: postern events show acme evt_1\n";
    assert_eq!(ended.out, expected);
    let path = "POST /v1/tenants/acme/events/evt_1/endpoints/ep_1/redeliver";
    assert_eq!(fake.asked().call, path);
    fake.run(&[&redeliver[..], &["--include-delivered"]].concat());
    assert_eq!(fake.asked().call, format!("{path}?include_delivered=true"));

    let detail = "Taken already. Ask with `?include_delivered=true`.";
    let fake = Fake::answering(409, &json!({"detail": detail}));
    let ended = fake.run(&redeliver);
    assert_eq!(ended.code, 1);
    assert!(
        ended.err.contains("why:  Taken already. Ask with --include-delivered."),
        "{}",
        ended.err
    );
}

#[test]
fn an_outgoing_event_is_shown() {
    let story = json!({
        "id": "evt_9", "tenant": "acme", "type": "a", "aggregate_id": "x", "occurred_at": "2026-09-21T14:13:20Z",
        "relayed_at": "2026-09-21T14:13:21Z", "unmatched": true, "deliveries": [],
    });
    let fake = Fake::answering(200, &story);
    let ended = fake.run(&["events", "show", "acme", "evt_9"]);
    assert!(ended.out.contains("relayed; no endpoint wanted it"), "{}", ended.out);
    assert_eq!(fake.asked().call, "GET /v1/tenants/acme/events/evt_9");
}

#[test]
fn a_refusal_is_an_answer_and_a_failure_is_none() {
    let check = |status: u16, body: Value, code: i32, says: &str| {
        let fake = Fake::answering(status, &body);
        let ended = fake.run(&["sources", "show", "x"]);
        assert_eq!((ended.code, ended.out.as_str()), (code, ""), "{}", ended.err);
        assert!(ended.err.contains(says), "{}", ended.err);
        assert!(ended.err.contains("\n  next: "), "{}", ended.err);
    };
    check(404, json!({"detail": "There is no source."}), 1, "why:  There is no source.");
    check(403, json!({"message": "Forbidden"}), 1, "next: check --token or the AWS credentials");
    check(500, json!({"detail": "A\u{1b}b"}), 2, "why:  A\\u{1b}b");
    check(503, json!(null), 2, "the answer gives no reason");
    let problems = json!([{"field": "a", "problem": "x"}, {"field": "b", "problem": "y"}]);
    check(422, json!({"detail": "d", "problems": problems}), 1, "why:  a: x\n        b: y\n");
}

#[test]
fn where_nobody_answers_that_is_said() {
    let fake = Fake::answering(200, &json!({}));
    let folder = tempfile::tempdir().unwrap();
    let local = |args: &[&str]| {
        let mut command = command(Path::new(env!("CARGO_BIN_EXE_postern")));
        command.current_dir(folder.path()).args(args);
        support::run(command, "")
    };
    let ended = local(&["events", "parked"]);
    assert_eq!(ended.code, 2);
    assert!(
        ended.err.contains("start `cargo dev`") && ended.err.contains("--api"),
        "{}",
        ended.err
    );
    // A port that was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let ended = local(&["events", "parked", "--api", &format!("http://{free}"), "--token", "t"]);
    assert_eq!(ended.code, 2);
    assert!(ended.err.contains("cannot be reached"), "{}", ended.err);
    let ended = local(&["events", "parked", "--api", &fake.url, "--token", "t"]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert_eq!(fake.asked().header("authorization"), "Bearer t");
}

/// CLI-wrong-environment
#[test]
fn a_call_to_aws_is_signed_and_says_where_it_goes() {
    let fake = Fake::answering(202, &json!({"enqueued": true}));
    let mut command = command(Path::new(env!("CARGO_BIN_EXE_postern")));
    command.args(["events", "replay", "shop", "evt_1", "--region", "eu-central-1"]);
    command.env("POSTERN_API", format!("{}/v1", fake.url));
    command.env("AWS_ACCESS_KEY_ID", "AKID").env("AWS_SECRET_ACCESS_KEY", "CANARY");
    let ended = support::run(command, "");
    assert_eq!(ended.code, 0, "{}", ended.err);
    let expected = format!("on AWS at {} (region eu-central-1, access key AKID)\n", fake.url);
    assert_eq!(ended.err, expected);
    let asked = fake.asked();
    let proof = asked.header("authorization");
    assert!(proof.starts_with("AWS4-HMAC-SHA256 Credential=AKID/"), "{proof}");
    assert!(proof.contains("/eu-central-1/execute-api/aws4_request, SignedHeaders="), "{proof}");
}
