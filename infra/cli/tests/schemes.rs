//! `postern schemes`, as a person or a script meets it.
#![expect(clippy::unwrap_used, reason = "test code")]

mod support;

use std::path::Path;

use serde_json::{Value, json};
use support::{command, run};

fn schemes(args: &[&str]) -> (i32, String, String) {
    let mut command = command(Path::new(env!("CARGO_BIN_EXE_postern")));
    command.arg("schemes").args(args);
    let ended = run(command, "");
    (ended.code, ended.out, ended.err)
}

#[test]
fn every_preset_is_listed_with_how_far_it_can_be_trusted() {
    let (code, out, err) = schemes(&[]);
    assert_eq!((code, err.as_str()), (0, ""));
    let line = |name: &str| {
        let mut lines =
            out.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        lines.find(|line| line.split(' ').next() == Some(name)).unwrap_or_default()
    };
    assert_eq!(line("stripe"), "stripe Stripe signed signed 300 s one - 2026-11-30 S");
    assert_eq!(line("github"), "github GitHub signed unsigned dedupe one - 2026-11-30 S");
    assert_eq!(line("meta"), "meta Meta signed none dedupe many GET 2026-11-30 T");
    assert_eq!(line("monday"), "monday monday.com none unsigned dedupe one POST 2026-11-30 M");
    assert_eq!(line("mailgun"), "mailgun Mailgun body_unsigned unsigned 300 s one - 2026-11-30 T");
    assert_eq!(line("dropbox"), "dropbox Dropbox signed every - one GET 2026-11-30 M");
    assert_eq!(line("plaid"), "plaid Plaid signed every 300 s one - 2026-11-30 D");
    assert!(signing::preset_names().all(|name| !line(name).is_empty()));
    assert!(signing::preset_names().count() >= 66);
}

#[test]
fn one_preset_is_shown_whole() {
    let (code, out, _) = schemes(&["meta"]);
    insta::assert_snapshot!(out, @r#"
    meta: Meta
      docs       https://developers.facebook.com/docs/graph-api/webhooks/getting-started
      facts      2026-11-30 T, pypi:pywa 4.5.0
      algorithm  hmac-sha256
      trust      the provider signs the body
      id         none; a hash of the body stands in for it
      replay     no age is refused: only deduplication stands against it
      events     many in one request
      handshake  GET {query:hub.mode}=subscribe {query:hub.challenge}, with the secret verify_token
      secret     verify_token is for the handshake
      answer     200
    "#);
    assert_eq!(code, 0);
    let (_, out, _) = schemes(&["paypal"]);
    assert!(
        out.contains("\n  algorithm  by code (paypal)\n")
            && out.contains("\n  config     needs webhook_id\n"),
        "{out}"
    );
}

#[test]
fn a_program_gets_the_list_and_a_scheme_to_start_from() {
    let (_, out, _) = schemes(&["--json"]);
    let all: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(all["schemes"].as_array().unwrap().len(), signing::preset_names().count());
    let (_, out, _) = schemes(&["gitlab", "--json"]);
    let one: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&one["trust"], &one["is_weaker"]), (&json!("token"), &json!(true)));
    signing::Scheme::from_value(one["scheme"].clone()).unwrap();
}

#[test]
fn a_scheme_that_is_none_is_a_question_that_cannot_be_answered() {
    let (code, out, err) = schemes(&["nobody\u{1b}"]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(
        err.contains("no scheme named `nobody\\u{1b}`") && err.contains("mail_slot_path"),
        "{err}"
    );
}
