//! The commands about deliveries, against a deployment that writes down what it is asked.
#![expect(clippy::unwrap_used, clippy::panic, reason = "test code")]

mod fake;
mod support;

use fake::Fake;
use serde_json::{Value, json};

fn counts(redelivered: u64) -> Value {
    json!({
        "looked_at": 60, "redelivered": redelivered, "in_flight": 37, "moved": 0, "already_delivered": 10,
        "cancelled": 3, "stopped": 0, "expired": 0, "absent": 0, "failed": 0,
    })
}

fn survey() -> Value {
    json!({
        "dry_run": true, "tenant": "acme", "endpoint": "ep_1", "select": {}, "rate": 10, "more": false,
        "counts": counts(10), "by_state": {"dead": 10}, "by_type": {"invoice.paid": 10},
        "by_endpoint": {"ep_1": 10}, "first": ["evt_1", "evt_2"], "told": [],
    })
}

fn work() -> Value {
    json!({
        "id": "rdl_1", "tenant": "acme", "endpoint": "ep_1", "state": "completed", "rate": 10,
        "reason": "mended", "actor": "me", "began_at": "2026-09-21T14:13:20Z", "counts": counts(10),
        "told": [{"event": "evt_9", "endpoint": "ep_1", "outcome": "in_flight"}],
        "next_action": "none: every delivery of the selection was looked at",
    })
}

/// Each delivery with its last attempt in plain words.
#[test]
fn deliveries_are_listed_with_why() {
    let attempt = json!({
        "number": 2, "at": "2026-09-21T14:13:20Z", "outcome": {"kind": "failed", "cause": "dns"},
        "words": {"what": "The host name of the endpoint was not found.", "why": "w", "next": "n"},
    });
    let delivery = |event: &str, log: Value| {
        json!({
            "event": event, "type": "invoice.paid\u{1b}[2J", "state": "dead", "attempts": 2, "log": log,
        })
    };
    let log = json!({
        "deliveries": [delivery("evt_1", json!([attempt])), delivery("evt_2", json!([]))], "next": "evt_2",
    });
    let fake = Fake::answering(200, &log);
    let listed = fake.run(&[
        "deliveries",
        "list",
        "acme",
        "ep_1",
        "--status",
        "dead",
        "--from",
        "2026-09-21",
    ]);
    insta::assert_snapshot!(listed.out);
    let call =
        "GET /v1/tenants/acme/endpoints/ep_1/deliveries?state=dead&from=2026-09-21T00%3A00%3A00Z";
    assert_eq!((listed.code, fake.asked().call), (0, call.to_owned()));
    assert_eq!(fake.run(&["deliveries", "list", "acme", "ep_1", "--status", "lost"]).code, 2);
}

/// RPL-already-delivered, RPL-in-flight: what is not asked for by `--yes` is not done.
#[test]
fn a_selection_without_yes_says_what_it_would_do_and_how_to_do_it() {
    let fake = Fake::answering(200, &survey());
    let args = ["deliveries", "redeliver", "acme", "--endpoint", "ep_1", "--type", "invoice.*"];
    let ended = fake.run(&args);
    // It changes nothing, and names no deployment.
    assert_eq!((ended.code, ended.err.as_str()), (0, ""));
    insta::assert_snapshot!(ended.out.replace(&fake.folder.path().display().to_string(), "STATE"));
    let asked = fake.asked();
    assert_eq!(asked.call, "POST /v1/tenants/acme/redeliveries");
    let body = json!({"endpoint": "ep_1", "select": {"types": ["invoice.*"]}, "dry_run": true, "reason": null});
    assert_eq!(asked.json(), body);
    // What was delivered goes out only once it was said how much that is, also by name.
    fake.run(&["deliveries", "redeliver", "acme", "evt_1", "--include-delivered"]);
    assert_eq!(fake.asked().json()["dry_run"], true);
    for unsaid in [
        &["deliveries", "redeliver", "acme"][..],
        &["deliveries", "redeliver", "acme", "--all", "--yes"],
    ] {
        let ended = Fake::answering(200, &survey()).run(unsaid);
        assert!(ended.code == 2 && ended.err.contains("nothing is sent again"), "{}", ended.err);
    }
    assert_eq!(fake.run(&["deliveries", "redeliver", "acme", "--missing"]).code, 2);
    assert_eq!(
        fake.run(&["deliveries", "redeliver", "acme", "evt_1", "--from", "2026-09-21"]).code,
        2
    );
}

#[test]
fn what_was_started_is_shown_with_what_it_left_alone() {
    let fake = Fake::answering(202, &work());
    let args = [
        "deliveries",
        "redeliver",
        "acme",
        "--endpoint",
        "ep_1",
        "--reason",
        "mended",
        "--rate",
        "5",
        "--yes",
    ];
    let ended = fake.run(&args);
    assert_eq!((ended.code, ended.err), (0, fake.named()));
    assert_eq!(fake.asked.lock().unwrap()[0].header("content-type"), "application/json");
    insta::assert_snapshot!(ended.out);
    let body =
        json!({"endpoint": "ep_1", "select": {}, "dry_run": false, "reason": "mended", "rate": 5});
    assert_eq!(fake.asked().json(), body);
    let named = fake.run(&["deliveries", "redeliver", "acme", "evt_1", "evt_2"]);
    assert_eq!(named.code, 0);
    let body = json!({"select": {"events": ["evt_1", "evt_2"]}, "dry_run": false, "reason": "named on the command line"});
    assert_eq!(fake.asked().json(), body);
}

#[test]
fn a_redelivery_is_followed_paused_and_stopped() {
    let fake = Fake::answering(200, &work());
    for (how, call) in [
        ("progress", "GET /v1/tenants/acme/redeliveries/rdl_1"),
        ("pause", "POST /v1/tenants/acme/redeliveries/rdl_1/pause"),
        ("resume", "POST /v1/tenants/acme/redeliveries/rdl_1/resume"),
        ("cancel", "POST /v1/tenants/acme/redeliveries/rdl_1/cancel"),
    ] {
        let ended = fake.run(&["deliveries", how, "acme", "rdl_1"]);
        assert_eq!((ended.code, fake.asked().call.as_str()), (0, call));
        assert_eq!(ended.err.is_empty(), how == "progress");
    }
    let list = Fake::answering(200, &json!({"redeliveries": [work()], "more": true}));
    insta::assert_snapshot!(list.run(&["deliveries", "progress", "acme"]).out);
    assert_eq!(list.asked().call, "GET /v1/tenants/acme/redeliveries");
}

/// DLV-discarded-retry-stuck: the reason, and exit code 1.
#[test]
fn a_refusal_is_an_answer_with_its_reason() {
    let problem =
        json!({"status": 409, "detail": "The endpoint is disabled, because it answered 410 Gone."});
    let fake = Fake::answering(409, &problem);
    let ended = fake.run(&["deliveries", "redeliver", "acme", "evt_1", "--endpoint", "ep_1"]);
    assert!(ended.code == 1 && ended.err.contains("410 Gone"), "{}", ended.err);
}

/// What `listen` needs must be said before anything is made.
#[test]
fn listening_makes_nothing_where_it_could_not_forward() {
    let fake = Fake::answering(201, &json!({}));
    for bad in ["localhost:3000", "ftp://x/", ""] {
        let ended = fake.run(&["listen", "--tenant", "acme", "--forward", bad]);
        assert_eq!(ended.code, 2, "{bad}: {}", ended.err);
    }
    for bad in ["localhost:3000", "ftp://x/", ""] {
        let listen = ["listen", "--tenant", "acme", "--forward", "http://localhost:1/"];
        let ended = fake.run(&[&listen[..], &["--subscriber", bad]].concat());
        assert!(ended.code == 2 && ended.err.contains("SubscriberUrl"), "{bad}: {}", ended.err);
    }
    // The local host that this pretends to be has no such API.
    let ended = fake.run(&["listen", "--tenant", "acme", "--forward", "http://localhost:1/"]);
    assert!(ended.code == 2 && ended.err.contains("SubscriberApi"), "{}", ended.err);
    let alone =
        ["listen", "--tenant", "acme", "--forward", "http://localhost:1/", "--endpoint", "ep_1"];
    assert_eq!(fake.run(&alone).code, 2);
    assert!(fake.asked.lock().unwrap().is_empty());
}

/// An endpoint that nobody listens at gathers what its tenant sends.
#[test]
fn listening_removes_what_it_made_if_it_cannot_say_what_arrives() {
    let fake = Fake::answering(201, &json!({"id": "ep_1", "token": "t", "secret": "s"}));
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut listen = std::process::Command::new(env!("CARGO_BIN_EXE_postern"));
    listen.args(["listen", "--tenant", "acme", "--forward", "http://localhost:1/"]);
    listen.args(["--subscriber", &fake.url, "--state"]).arg(fake.folder.path());
    let ended = listen.stdout(full).output().unwrap();
    assert!(!ended.status.success());
    let asked = fake.asked.lock().unwrap();
    let calls: Vec<_> = asked.iter().map(|asked| asked.call.as_str()).collect();
    let all = "/v1/tenants/acme/endpoints";
    assert_eq!(calls, [format!("POST {all}"), format!("DELETE {all}/ep_1")]);
}
