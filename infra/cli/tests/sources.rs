//! What operators do with sources, against a deployment that writes down what it is asked.
#![expect(clippy::unwrap_used, clippy::panic, reason = "test code")]

mod fake;
mod support;

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    path::Path,
    process::Stdio,
};

use fake::Fake;
use serde_json::{Value, json};
use support::command;

fn source() -> Value {
    json!({
        "name": "shop", "scheme": {"preset": "stripe"}, "created_at": "2026-09-21T14:13:20Z",
        "handler": {"kind": "forward", "tenant": "acme", "types": []}, "config": {},
        "dedupe": "id", "same_as": null, "awaits_secret_until": null,
        "url": "https://in.example.com/webhooks/shop",
        "verification": {
            "trust": "signed", "is_weaker": false, "words": "the provider signs the body",
            "replays": "the id is signed, and taken once", "is_batch": false, "title": "Stripe",
            "facts_checked_on": "2026-11-30", "facts_mark": "S",
        },
        "secrets": [
            {"id": "2027", "fingerprint": "0a1b2c", "expires_at": null, "can_go": false,
             "words": "last matched 1 minute ago; it is in use"},
            {"id": "2026", "fingerprint": "d3e4f5", "expires_at": "2026-09-28T14:13:20Z", "can_go": true,
             "words": "last matched 3 days ago; another one has since, and it can go"},
        ],
        "health": {
            "words": "all requests are failing since 2026-09-21T14:13:20Z (3 minutes ago)",
            "failing_since": "2026-09-21T14:13:20Z", "last_accepted_at": null,
            "rejected_24h": {"signature_mismatch": 3, "timestamp_too_old": 1},
            "last_rejected": {"at": "2026-09-21T14:15:00Z", "code": "timestamp_too_old",
                "words": "the signature is right but 900 s old; 300 s are allowed",
                "advice": "A replay, a long delay on the way, or a clock that is wrong."},
        },
        "warnings": [],
    })
}

fn line(name: &str, scheme: &Value, trust: &str, weaker: bool) -> Value {
    json!({
        "name": name, "scheme": scheme, "trust": trust, "is_weaker": weaker, "dedupe": "id",
        "handler": {"kind": "mirror"}, "url": format!("https://in.example.com/webhooks/{name}"),
        "health": {"words": "no event has been accepted yet", "rejected_24h": 0},
    })
}

#[test]
fn sources_are_listed_with_their_health_and_weaker_ones_are_flagged() {
    let own = json!({"own": {"like": null, "title": "Home"}});
    let slot = json!({"preset": "mail_slot_path"});
    let all =
        json!({"sources": [line("a", &own, "signed", false), line("b", &slot, "token", true)]});
    let fake = Fake::answering(200, &all);
    let ended = fake.run(&["sources", "list"]);
    assert_eq!((ended.code, ended.err.as_str()), (0, ""));
    insta::assert_snapshot!(ended.out, @r#"
    name  scheme          trust          handler  health                          url
    a     Home (own)      signed         mirror   no event has been accepted yet  https://in.example.com/webhooks/a
    b     mail_slot_path  weaker: token  mirror   no event has been accepted yet  https://in.example.com/webhooks/b
    "#);
    let asked = fake.asked();
    assert_eq!(asked.call, "GET /v1/sources");
    assert_eq!(asked.header("authorization"), "Bearer CANARY-TOKEN");
    let json: Value = serde_json::from_str(&fake.run(&["sources", "list", "--json"]).out).unwrap();
    assert_eq!(json, all);
}

#[test]
fn nothing_in_a_list_is_none() {
    let fake = Fake::answering(200, &json!({"sources": []}));
    assert_eq!(fake.run(&["sources", "list"]).out, "none\n");
}

/// VFY-diagnosis-code
#[test]
fn a_source_is_shown_at_a_glance() {
    let fake = Fake::answering(200, &source());
    insta::assert_snapshot!(fake.run(&["sources", "show", "shop"]).out, @r#"
    shop: stripe, forward to acme
      url      https://in.example.com/webhooks/shop
      health   all requests are failing since 2026-09-21T14:13:20Z (3 minutes ago)
      refused  in 24 hours: signature_mismatch 3, timestamp_too_old 1
               last at 2026-09-21T14:15:00Z: timestamp_too_old, the signature is right but 900 s old; 300 s are allowed
               A replay, a long delay on the way, or a clock that is wrong.
               more: postern sources rejected shop
      trust    the provider signs the body
      replays  the id is signed, and taken once
      secret   2027: last matched 1 minute ago; it is in use
      secret   2026: last matched 3 days ago; another one has since, and it can go
      facts    of Stripe were checked on 2026-11-30 (S)
    "#);
    assert_eq!(fake.asked().call, "GET /v1/sources/shop");
    let json = fake.run(&["sources", "show", "shop", "--json"]).out;
    assert_eq!(serde_json::from_str::<Value>(&json).unwrap(), source());
}

#[test]
fn what_is_out_of_the_ordinary_is_shown_too() {
    let mut odd = source();
    odd["name"] = json!("alerts");
    odd["scheme"] = json!({"own": {"like": "mail_slot_token"}});
    odd["same_as"] = json!("other");
    odd["awaits_secret_until"] = json!("2026-09-22T14:13:20Z");
    odd["secrets"] = json!([]);
    odd["config"] = json!({"url": "https://x/\u{1b}[2J"});
    odd["verification"]["is_batch"] = json!(true);
    odd["verification"]["words"] = json!("weaker: a fixed secret travels with each request");
    odd["health"] = json!({"words": "no event has been accepted yet", "rejected_24h": {}, "last_rejected": null});
    odd["warnings"] = json!(["The source shop has the same secret."]);
    let fake = Fake::answering(200, &odd);
    insta::assert_snapshot!(fake.run(&["sources", "show", "alerts"]).out, @r#"
    alerts: Stripe (own), forward to acme
      url      https://in.example.com/webhooks/shop
      health   no event has been accepted yet
      trust    weaker: a fixed secret travels with each request
      replays  the id is signed, and taken once
      batch    a request carries several events, and each has a story of its own
      same as  other: its events are filed there
      waits    for the provider's handshake, until 2026-09-22T14:13:20Z
      config   url = https://x/\u{1b}[2J
      facts    of Stripe were checked on 2026-11-30 (S)
    Note: The source shop has the same secret.
    "#);
}

/// CLI-wrong-environment
#[test]
fn a_source_is_added_with_its_secret_from_a_file_a_pipe_or_the_environment() {
    let fake = Fake::answering(201, &source());
    let file = fake.folder.path().join("secret");
    fs::write(&file, "whsec_CANARY\n").unwrap();
    let add = ["sources", "add", "shop", "--scheme", "stripe", "--forward", "acme"];
    let add = [&add[..], &["--type", "a.*", "--type", "b"]].concat();
    let check = |ended: support::Ended| {
        assert_eq!((ended.code, ended.err), (0, fake.named()));
        let expected =
            "Source shop is ready. Let the provider call\n  https://in.example.com/webhooks/shop\n";
        assert_eq!(ended.out, expected);
        let asked = fake.asked();
        assert_eq!(asked.call, "POST /v1/sources");
        assert_eq!(asked.header("content-type"), "application/json");
        let expected = json!({
            "name": "shop", "scheme": {"preset": "stripe"},
            "handler": {"kind": "forward", "tenant": "acme", "types": ["a.*", "b"]},
            "secrets": {"1": "whsec_CANARY"},
        });
        assert_eq!(asked.json(), expected);
    };
    for (file, input) in [(file.to_str().unwrap(), ""), ("-", "whsec_CANARY")] {
        check(fake.run_with(&[&add[..], &["--secret-file", file]].concat(), input));
    }
    let mut by_environment = command(Path::new(env!("CARGO_BIN_EXE_postern")));
    by_environment.args(&add).arg("--state").arg(fake.folder.path());
    by_environment.env("POSTERN_SECRET", "whsec_CANARY");
    check(support::run(by_environment, ""));
}

const STATES: &str = r#"
at = "/data/object/status"
kind = "subscription"
[states]
start = "open"
[states.moves]
open = ["paid"]
paid = []
"#;

/// D11
#[test]
fn the_states_of_a_mirror_are_read_from_a_file() {
    let fake = Fake::answering(201, &source());
    let states = json!({
        "at": "/data/object/status", "kind": "subscription",
        "states": {"start": "open", "moves": {"open": ["paid"], "paid": []}},
    });
    for (name, text) in [("s.toml", STATES.to_owned()), ("s.json", states.to_string())] {
        let file = fake.folder.path().join(name);
        fs::write(&file, text).unwrap();
        let add = ["sources", "set", "shop", "--mirror", "--states", file.to_str().unwrap()];
        let ended = fake.run(&add);
        assert_eq!(ended.code, 0, "{}", ended.err);
        let handler = json!({"kind": "mirror", "states": states});
        assert_eq!(fake.asked().json(), json!({ "handler": handler }));
    }
    let file = fake.folder.path().join("bad.toml");
    for text in ["at = ", "\u{1b}", &format!("at = \"{}", "x".repeat(100_000))] {
        fs::write(&file, text).unwrap();
        let ended =
            fake.run(&["sources", "set", "shop", "--mirror", "--states", file.to_str().unwrap()]);
        assert_eq!(ended.code, 2, "{}", ended.err);
        assert!(
            ended.err.contains("says no states") && ended.err.contains("[states.moves]"),
            "{}",
            ended.err
        );
        assert!(!ended.err.contains('\u{1b}'));
    }
}

#[test]
fn a_written_handler_and_the_states_of_a_mirror_are_shown() {
    let mut own = source();
    own["handler"] = json!({"kind": "own", "name": "payments", "tenant": "acme"});
    let out = Fake::answering(200, &own).run(&["sources", "show", "shop"]).out;
    assert!(out.starts_with("shop: stripe, payments to acme\n"), "{out}");
    let mut mirror = source();
    mirror["handler"] = json!({
        "kind": "mirror", "states": {
            "at": "/data/object/status", "kind": "order",
            "states": {"start": "open", "moves": {"open": ["paid", "\u{1b}"], "paid": []}},
        },
    });
    let out = Fake::answering(200, &mirror).run(&["sources", "show", "shop"]).out;
    let lines: Vec<_> =
        out.lines().filter(|line| line.contains("states") || line.contains('→')).collect();
    assert_eq!(
        lines,
        [
            "  states   of order objects, at /data/object/status; other moves are refused",
            r"           open → paid, \u{1b}",
            "           paid → (the end)",
        ]
    );
}

#[test]
fn every_option_of_a_new_source_is_asked_for() {
    let fake = Fake::answering(201, &source());
    let check = |options: &[&str], expected: Value| {
        let ended = fake.run_with(&[&["sources", "add", "x"], options].concat(), "whsec_CANARY");
        assert_eq!(ended.code, 0, "{}", ended.err);
        let mut expected = expected;
        expected["name"] = json!("x");
        assert_eq!(fake.asked().json(), expected);
    };
    let (secret, mirror) = (json!({"1": "whsec_CANARY"}), json!({"kind": "mirror"}));
    for (tenant, handler) in [
        (&[][..], json!({"kind": "own", "name": "payments"})),
        (&["--tenant", "acme"], json!({"kind": "own", "name": "payments", "tenant": "acme"})),
    ] {
        let options = ["--scheme", "stripe", "--handler", "payments", "--secret-file", "-"];
        let expected =
            json!({"scheme": {"preset": "stripe"}, "handler": handler, "secrets": secret});
        check(&[&options[..], tenant].concat(), expected);
    }
    check(
        &[
            "--scheme",
            "github",
            "--mirror",
            "--emit-to",
            "acme",
            "--dedupe",
            "content",
            "--same-as",
            "y",
            "--secret-id",
            "2026",
            "--secret-file",
            "-",
            "--config",
            "a=b=c",
            "--config",
            "d=",
        ],
        json!({
            "scheme": {"preset": "github"}, "handler": {"kind": "mirror", "emit_to": "acme"},
            "dedupe": "content", "same_as": "y", "secrets": {"2026": "whsec_CANARY"},
            "config": {"a": "b=c", "d": ""},
        }),
    );
    check(
        &["--scheme", "asana", "--mirror", "--await-secret", "2d"],
        json!({"scheme": {"preset": "asana"}, "handler": mirror, "awaits_secret_hours": 48}),
    );
    check(
        &["--scheme", "circle", "--mirror", "--no-secret"],
        json!({"scheme": {"preset": "circle"}, "handler": mirror}),
    );
    // Nobody is asked for a secret that Amazon does not have.
    check(
        &["--scheme", "aws_sns", "--config", "topic_arn=arn:x", "--mirror"],
        json!({"scheme": {"preset": "aws_sns"}, "config": {"topic_arn": "arn:x"}, "handler": mirror}),
    );
    check(
        &["--mail-slot", "path", "--mirror"],
        json!({"scheme": {"preset": "mail_slot_path"}, "handler": mirror}),
    );
    check(
        &["--mail-slot", "path", "--mirror", "--secret-file", "-"],
        json!({"scheme": {"preset": "mail_slot_path"}, "handler": mirror, "secrets": secret}),
    );
    check(
        &["--mail-slot", "basic", "--mirror", "--secret-file", "-"],
        json!({"scheme": {"preset": "mail_slot_basic"}, "handler": mirror, "secrets": secret}),
    );
    let own = json!({"own": {"like": "mail_slot_token", "signature": {"from": "{header:x-key}"}}});
    check(
        &["--mail-slot", "token", "--token-header", "X-Key", "--mirror", "--secret-file", "-"],
        json!({"scheme": own, "handler": mirror, "secrets": secret}),
    );
}

/// SEC-live-test-mode
#[test]
fn what_events_must_say_is_asked_for_and_shown() {
    let mut of_one_mode = source();
    of_one_mode["only"] = json!({"/livemode": true, "/mode\u{1b}": "li\u{1b}ve"});
    let fake = Fake::answering(200, &of_one_mode);
    let only = [
        "--only",
        "/livemode=true",
        "--only",
        "/n=2",
        "--only",
        "/mode=live",
        "--only",
        "/v=\"2\"",
    ];
    let expected = json!({"/livemode": true, "/n": 2, "/mode": "live", "/v": "2"});
    let add = ["sources", "add", "shop", "--scheme", "stripe", "--mirror", "--secret-file", "-"];
    assert_eq!(fake.run_with(&[&add[..], &only].concat(), "whsec_CANARY").code, 0);
    assert_eq!(fake.asked().json()["only"], expected);
    let set = ["sources", "set", "shop"];
    let ended = fake.run(&[&set[..], &only].concat());
    assert_eq!(fake.asked().json(), json!({"only": expected}));
    assert!(
        ended
            .out
            .contains("\n  only     events with /livemode = true; others are kept, and ignored\n"),
        "{}",
        ended.out
    );
    assert!(!ended.out.contains('\u{1b}'), "{}", ended.out);
    assert_eq!(fake.run(&[&set[..], &["--not-only"]].concat()).code, 0);
    assert_eq!(fake.asked().json(), json!({"only": {}}));
    for wrong in [&["--only", "/livemode"][..], &["--only", "/a=1", "--not-only"]] {
        assert_eq!(fake.run(&[&set[..], wrong].concat()).code, 2, "{wrong:?}");
    }
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    let fake = Fake::answering(201, &source());
    for options in [
        &["--mirror"][..],
        &["--scheme", "stripe"],
        &["--scheme", "stripe", "--mail-slot", "path", "--mirror"],
        &["--scheme", "stripe", "--scheme-file", "x", "--mirror"],
        &["--scheme", "stripe", "--mirror", "--forward", "acme"],
        &["--scheme", "stripe", "--mirror", "--await-secret", "90m"],
        &["--scheme", "stripe", "--mirror", "--config", "a"],
        &["--scheme", "stripe", "--mirror", "--no-secret", "--secret-file", "-"],
    ] {
        let ended = fake.run_with(&[&["sources", "add", "x"], options].concat(), "whsec_CANARY");
        assert_eq!(ended.code, 2, "{options:?}");
    }
    assert!(fake.asked.lock().unwrap().is_empty());
}

/// SEC-secret-in-output
#[test]
fn a_made_address_is_shown_this_once_and_weaker_trust_is_said() {
    let mut made = source();
    made["url"] = json!("https://in.example.com/webhooks/shop/…");
    made["secret_urls"] = json!({"1": "https://in.example.com/webhooks/shop/0707"});
    made["verification"]["is_weaker"] = json!(true);
    made["verification"]["words"] = json!("weaker: a fixed secret travels with each request");
    made["warnings"] = json!(["The source b has the same secret as 1 here."]);
    let fake = Fake::answering(201, &made);
    let ended = fake.run(&["sources", "add", "shop", "--mail-slot", "path", "--mirror"]);
    insta::assert_snapshot!(ended.out, @r#"
    Source shop is ready. Let the provider call
      https://in.example.com/webhooks/shop/0707
    The last part is the secret, shown this once.
    Note: weaker: a fixed secret travels with each request.
    Note: The source b has the same secret as 1 here.
    "#);
}

#[test]
fn a_topic_says_until_when_it_answers_the_confirmation_and_what_it_lacks() {
    let mut made = source();
    made["scheme"] = json!({"preset": "aws_sns"});
    made["awaits_secret_until"] = json!("2026-09-22T14:13:20Z");
    let fake = Fake::answering(201, &made);
    let add = ["sources", "add", "topic", "--scheme", "aws_sns", "--mirror"];
    let ended = fake.run(&[&add[..], &["--config", "topic_arn=arn:x"]].concat());
    insta::assert_snapshot!(ended.out, @r#"
    Source topic is ready. Let the provider call
      https://in.example.com/webhooks/shop
    It waits for the provider to ask for a confirmation, and answers by itself, until 2026-09-22T14:13:20Z.
    Subscribe before that; later, `postern sources set topic --await-secret 24h`.
    "#);
    // What the api says of a topic that was not named is what the person reads.
    let detail = "config.topic_arn: Amazon signs for the topics of all its customers";
    let refused = Fake::answering(
        422,
        &json!({"type": "invalid-request", "title": "The request is not valid.", "detail": detail}),
    );
    let ended = refused.run(&add);
    assert!(ended.code != 0 && ended.err.contains(detail), "{}", ended.err);
}

#[test]
fn a_secret_that_cannot_be_read_is_not_asked_for_at_all() {
    let fake = Fake::answering(201, &source());
    let add = ["sources", "add", "x", "--scheme", "stripe", "--mirror"];
    let missing = fake.run(&[&add[..], &["--secret-file", "/nowhere"]].concat());
    assert_eq!(missing.code, 2);
    assert!(missing.err.contains("the secret cannot be read from /nowhere"), "{}", missing.err);
    assert_eq!(fake.run(&[&add[..], &["--secret-file", "-"]].concat()).code, 2);
    let nobody = fake.run(&add);
    assert!(nobody.code == 2 && nobody.err.contains("POSTERN_SECRET"), "{}", nobody.err);
    assert!(fake.asked.lock().unwrap().is_empty());
}

/// SEC-secret-in-output
#[test]
fn a_person_at_a_terminal_is_asked_and_nothing_of_the_answer_is_shown() {
    let fake = Fake::answering(201, &source());
    let terminal = nix::pty::openpty(None, None).unwrap();
    let mut person = File::from(terminal.master);
    let mut command = command(Path::new(env!("CARGO_BIN_EXE_postern")));
    command.args(["sources", "add", "shop", "--scheme", "stripe", "--mirror", "--state"]);
    command.arg(fake.folder.path());
    let slave = File::from(terminal.slave);
    command.stdin(Stdio::from(slave.try_clone().unwrap()));
    command.stderr(Stdio::from(slave.try_clone().unwrap()));
    let mut child = command.spawn().unwrap();
    // The command's, too, keep it open.
    drop((command, slave));
    let mut shown = Vec::new();
    let mut byte = [0];
    while !shown.ends_with(b"(not shown): ") {
        person.read_exact(&mut byte).unwrap();
        shown.push(byte[0]);
    }
    // It asks before it silences the terminal, which then forgets what was typed too early.
    let silent = (0..5_000_000).any(|_| {
        std::thread::yield_now();
        is_silent(&person)
    });
    if !silent {
        child.kill().unwrap();
        child.wait().unwrap();
        panic!("what is typed is shown");
    }
    person.write_all(b"whsec_CANARY\n").unwrap();
    let ended = child.wait_with_output().unwrap();
    // The last reader gone, a terminal fails to read.
    let _ = person.read_to_end(&mut shown);
    let shown = String::from_utf8(shown).unwrap();
    assert!(!shown.contains("CANARY"), "{shown}");
    assert!(ended.status.success(), "{shown}");
    assert_eq!(fake.asked().json()["secrets"], json!({"1": "whsec_CANARY"}));
}

fn is_silent(terminal: &File) -> bool {
    let flags = nix::sys::termios::tcgetattr(terminal).unwrap().local_flags;
    !flags.contains(nix::sys::termios::LocalFlags::ECHO)
}

#[test]
fn a_scheme_file_is_checked_before_it_is_sent_whole() {
    let fake = Fake::answering(201, &source());
    let add = |file: &Path| {
        let add = ["sources", "add", "x", "--mirror", "--secret-file", "-", "--scheme-file"];
        fake.run_with(&[&add[..], &[file.to_str().unwrap()]].concat(), "whsec_CANARY")
    };
    let (toml, json) = (fake.folder.path().join("own.toml"), fake.folder.path().join("own.json"));
    fs::write(&toml, "like = \"stripe\"\nalgorithm = \"md5\"\ntolerence = 5\n").unwrap();
    let ended = add(&toml);
    assert_eq!(ended.code, 2);
    for says in ["own.toml is not a scheme", "algorithm: ", "\n        tolerence: ", "\n  next: "] {
        assert!(ended.err.contains(says), "{says}: {}", ended.err);
    }
    assert_eq!(add(Path::new("/nowhere.toml")).code, 2);
    assert!(fake.asked.lock().unwrap().is_empty());

    fs::write(&toml, "like = \"stripe\"\n[timestamp]\ntolerance = 600\n").unwrap();
    fs::write(&json, r#"{"like": "stripe", "timestamp": {"tolerance": 600}}"#).unwrap();
    for file in [&toml, &json] {
        assert_eq!(add(file).code, 0);
        let own = &fake.asked().json()["scheme"]["own"];
        assert_eq!(
            (&own["timestamp"]["tolerance"], &own["algorithm"]),
            (&json!(600), &json!("hmac-sha256"))
        );
        assert!(own.get("like").is_none());
        // What is sent is what the api reads.
        assert!(signing::Scheme::from_value(own.clone()).is_ok());
    }
}

#[test]
fn a_change_sends_what_it_names_and_nothing_else() {
    let fake = Fake::answering(200, &source());
    let check = |options: &[&str], query: &str, expected: Value| {
        let ended = fake.run(&[&["sources", "set", "a/b"], options].concat());
        assert_eq!((ended.code, ended.err), (0, fake.named()));
        assert!(ended.out.starts_with("Source a/b is changed.\n\nshop: stripe"), "{}", ended.out);
        let asked = fake.asked();
        assert_eq!(asked.call, format!("PATCH /v1/sources/a%2Fb{query}"));
        assert_eq!(asked.json(), expected);
    };
    check(&["--dedupe", "content"], "", json!({"dedupe": "content"}));
    check(&["--same-as", "b"], "", json!({"same_as": "b"}));
    check(&["--not-same-as"], "", json!({"same_as": null}));
    check(&["--await-secret", "1h"], "", json!({"awaits_secret_hours": 1}));
    check(&["--stop-waiting"], "", json!({"awaits_secret_hours": null}));
    check(&["--mirror"], "", json!({"handler": {"kind": "mirror"}}));
    check(
        &["--scheme", "github", "--config", "a=b", "--force"],
        "?force=true",
        json!({"scheme": {"preset": "github"}, "config": {"a": "b"}}),
    );
    let ended = fake.run(&["sources", "set", "a"]);
    assert!(ended.code == 2 && ended.err.contains("nothing would change"), "{}", ended.err);
    let fake = Fake::answering(409, &json!({"detail": "Say `?force=true` if you do."}));
    let ended = fake.run(&["sources", "set", "a", "--scheme", "github"]);
    assert!(ended.code == 1 && ended.err.contains("why:  Say --force if you do."), "{}", ended.err);
}

/// clap asks for no `requires` where what it requires is in conflict.
#[test]
fn an_option_of_another_handler_is_refused_and_not_dropped() {
    let fake = Fake::answering(200, &source());
    for options in [
        &["--mirror", "--tenant", "b"][..],
        &["--mirror", "--type", "a.*"],
        &["--forward", "a", "--tenant", "b"],
        &["--forward", "a", "--emit-to", "b"],
        &["--forward", "a", "--states", "f"],
        &["--handler", "p", "--type", "a.*"],
        &["--handler", "p", "--emit-to", "b"],
        &["--handler", "p", "--states", "f"],
        &["--scheme", "stripe", "--token-header", "x"],
        &["--no-fetch", "--fetch-when", "doubt"],
    ] {
        let ended = fake.run(&[&["sources", "set", "a"], options].concat());
        let refused = ended.code == 2 && ended.err.contains("cannot be used with");
        assert!(refused, "{options:?}: {}", ended.err);
    }
    assert!(fake.asked.lock().unwrap().is_empty());
}

/// VFY-diagnosis-code
#[test]
fn refused_requests_are_listed_with_the_code_of_the_log_and_what_to_do() {
    let sample = json!({
        "at": "2026-09-21T14:13:20Z", "reason": "signature_mismatch", "class": "bad_signature",
        "advice": "Usual causes: the secret of another endpoint.", "method": "POST",
        "headers": {"user-agent": "x\u{1b}[2Jy"}, "body_sha256": "abcd", "body_length": 230,
    });
    let fake = Fake::answering(200, &json!({"rejected": [sample]}));
    insta::assert_snapshot!(fake.run(&["sources", "rejected", "shop"]).out, @r#"
    2026-09-21T14:13:20Z  signature_mismatch (bad_signature): POST, 230 bytes
      advice   Usual causes: the secret of another endpoint.
      sha256   abcd
      header   user-agent: x\u{1b}[2Jy
    "#);
    assert_eq!(fake.asked().call, "GET /v1/sources/shop/rejected?limit=20");
    fake.run(&["sources", "rejected", "shop", "--limit", "1", "--json"]);
    assert_eq!(fake.asked().call, "GET /v1/sources/shop/rejected?limit=1");
    let fake = Fake::answering(200, &json!({"rejected": []}));
    assert_eq!(fake.run(&["sources", "rejected", "shop"]).out, "none\n");
}

#[test]
fn secrets_are_listed_with_which_one_can_go() {
    let fake = Fake::answering(200, &json!({"secrets": source()["secrets"], "warnings": []}));
    insta::assert_snapshot!(fake.run(&["sources", "secrets", "list", "shop"]).out, @r#"
    id    fingerprint  ends
    2027  0a1b2c       -                     last matched 1 minute ago; it is in use
    2026  d3e4f5       2026-09-28T14:13:20Z  last matched 3 days ago; another one has since, and it can go
    "#);
    assert_eq!(fake.asked().call, "GET /v1/sources/shop/secrets");
}

/// CLI-wrong-environment, SEC-secret-in-output
#[test]
fn a_secret_is_added_beside_the_old_one() {
    let warned =
        json!({"secrets": source()["secrets"], "warnings": ["The source b has the same secret."]});
    let fake = Fake::answering(201, &warned);
    let add = ["sources", "secrets", "add", "shop", "--secret-file", "-"];
    let ended = fake.run_with(&add, "whsec_CANARY\n");
    assert_eq!((ended.code, ended.err), (0, fake.named()));
    assert!(ended.out.ends_with("Note: The source b has the same secret.\n"), "{}", ended.out);
    let asked = fake.asked();
    assert_eq!(asked.call, "POST /v1/sources/shop/secrets");
    let sent = asked.json();
    assert_eq!(
        (&sent["secret"], &sent["expire_others_in"]),
        (&json!("whsec_CANARY"), &json!(86_400))
    );
    // A date names it.
    assert!(sent["id"].as_str().unwrap().parse::<jiff::civil::Date>().is_ok(), "{sent}");
    let more = ["--id", "2027", "--expire-others-in", "7d"];
    fake.run_with(&[&add[..], &more].concat(), "whsec_CANARY\n");
    let expected = json!({"id": "2027", "secret": "whsec_CANARY", "expire_others_in": 604_800});
    assert_eq!(fake.asked().json(), expected);

    let made =
        json!({"secrets": [], "warnings": [], "secret_urls": {"2": "https://in/webhooks/a/0707"}});
    let fake = Fake::answering(201, &made);
    let ended = fake.run(&["sources", "secrets", "add", "a", "--make", "--id", "2"]);
    assert!(
        ended.out.contains(
            "  https://in/webhooks/a/0707\nThe last part is the secret, shown this once."
        )
    );
    assert_eq!(fake.asked().json(), json!({"id": "2", "expire_others_in": 86_400}));
}

/// CLI-wrong-environment
#[test]
fn a_secret_is_removed_and_the_last_one_only_by_force() {
    let fake = Fake::answering(200, &json!({"secrets": [], "warnings": []}));
    let ended = fake.run(&["sources", "secrets", "remove", "shop", "a/b"]);
    assert_eq!((ended.code, ended.err), (0, fake.named()));
    assert!(ended.out.starts_with("The secret a/b of shop is removed"), "{}", ended.out);
    assert_eq!(fake.asked().call, "DELETE /v1/sources/shop/secrets/a%2Fb");
    fake.run(&["sources", "secrets", "remove", "shop", "1", "--force"]);
    assert_eq!(fake.asked().call, "DELETE /v1/sources/shop/secrets/1?force=true");
    let fake = Fake::answering(409, &json!({"detail": "The last; say `?force=true`."}));
    let ended = fake.run(&["sources", "secrets", "remove", "shop", "1"]);
    assert!(ended.code == 1 && ended.err.contains("say --force."), "{}", ended.err);
}

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

    let note = "7 waiting events are on their way.";
    let id = "rep_1";
    let fake = Fake::answering(200, &json!({ "name": "shop", "warnings": [note], "resume": id }));
    let ended = fake.run(&["sources", "resume", "shop", "--rate", "5"]);
    assert!(ended.code == 0 && ended.err.starts_with("on "), "{ended:?}");
    insta::assert_snapshot!(ended.out, @"
    Source shop is not paused any more.
    Note: 7 waiting events are on their way.
    Follow it with: postern replays show rep_1
    ");
    assert_eq!(fake.asked().call, "POST /v1/sources/shop/resume?rate=5");
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
    let given = |option: &[&str]| {
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
