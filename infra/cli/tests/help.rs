//! What `--help` says, as people read it.
#![expect(clippy::unwrap_used, reason = "test code")]

mod support;

use std::path::Path;

use support::{command, run};

fn help(of: &[&str]) -> String {
    let mut command = command(Path::new(env!("CARGO_BIN_EXE_postern")));
    command.args(of).arg("--help");
    let ended = run(command, "");
    assert_eq!((ended.code, ended.err.as_str()), (0, ""));
    ended.out
}

#[test]
fn help_reads_well() {
    insta::assert_snapshot!("postern", help(&[]));
    insta::assert_snapshot!("dev", help(&["dev"]));
    insta::assert_snapshot!("send", help(&["send"]));
    insta::assert_snapshot!("verify", help(&["verify"]));
    insta::assert_snapshot!("schemes", help(&["schemes"]));
    insta::assert_snapshot!("sources", help(&["sources"]));
    insta::assert_snapshot!("sources_add", help(&["sources", "add"]));
    insta::assert_snapshot!("sources_set", help(&["sources", "set"]));
    insta::assert_snapshot!("sources_pause", help(&["sources", "pause"]));
    insta::assert_snapshot!("sources_resume", help(&["sources", "resume"]));
    insta::assert_snapshot!("sources_tokens", help(&["sources", "tokens"]));
    insta::assert_snapshot!("sources_tokens_add", help(&["sources", "tokens", "add"]));
    insta::assert_snapshot!("sources_rejected", help(&["sources", "rejected"]));
    insta::assert_snapshot!("sources_secrets", help(&["sources", "secrets"]));
    insta::assert_snapshot!("sources_secrets_add", help(&["sources", "secrets", "add"]));
    insta::assert_snapshot!("endpoints", help(&["endpoints"]));
    for verb in [
        "add",
        "configure",
        "update",
        "list",
        "secrets",
        "rotate",
        "pause",
        "resume",
        "disable",
        "enable",
        "delete",
        "test",
    ] {
        insta::assert_snapshot!(format!("endpoints_{verb}"), help(&["endpoints", verb]));
    }
    insta::assert_snapshot!("events", help(&["events"]));
    insta::assert_snapshot!("events_publish", help(&["events", "publish"]));
    insta::assert_snapshot!("objects_show", help(&["objects", "show"]));
    insta::assert_snapshot!("events_replay", help(&["events", "replay"]));
    insta::assert_snapshot!("events_parked", help(&["events", "parked"]));
    insta::assert_snapshot!("events_unmatched", help(&["events", "unmatched"]));
    insta::assert_snapshot!("replays", help(&["replays"]));
    insta::assert_snapshot!("events_redeliver", help(&["events", "redeliver"]));
    insta::assert_snapshot!("deliveries", help(&["deliveries"]));
    insta::assert_snapshot!("deliveries_list", help(&["deliveries", "list"]));
    insta::assert_snapshot!("deliveries_redeliver", help(&["deliveries", "redeliver"]));
    insta::assert_snapshot!("listen", help(&["listen"]));
}

/// SEC-secret-in-output
#[test]
fn help_does_not_show_what_the_environment_holds() {
    let mut command = command(Path::new(env!("CARGO_BIN_EXE_postern")));
    for name in [
        "POSTERN_TOKEN",
        "POSTERN_SECRET",
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
    ] {
        command.env(name, "CANARY");
    }
    command.args(["sources", "add", "--help"]);
    let ended = run(command, "");
    assert!(ended.code == 0 && !ended.out.contains("CANARY"), "{ended:?}");
}
