//! `postern verify`, as a person or a script meets it: the binary, its output and its exit codes.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    reason = "test code"
)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

const SECRET: &str = "It's a Secret to Everybody";

struct Answer {
    code: i32,
    out: String,
    err: String,
}

fn postern(args: &[&str]) -> Answer {
    postern_with_input(args, "")
}

fn postern_with_input(args: &[&str], input: &str) -> Answer {
    let mut child = Command::new(env!("CARGO_BIN_EXE_postern"))
        .arg("verify")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // a command that complains early does not read its input
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    Answer {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// The example that GitHub publishes.
fn case() -> Value {
    json!({
        "name": "hello",
        "provider": "github",
        "secrets": [SECRET],
        "method": "POST",
        "url": "https://hooks.example/in",
        "headers": [
            ["X-GitHub-Event", "ping"],
            ["X-GitHub-Delivery", "00000000-0000-0000-0000-000000000000"],
            ["X-Hub-Signature-256", "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"],
        ],
        "body_base64": "SGVsbG8sIFdvcmxkIQ==",
        "now": 1_767_225_600,
    })
}

fn with(changes: Value) -> Value {
    with_changes(&case(), changes)
}

fn with_changes(case: &Value, changes: Value) -> Value {
    let mut case = case.clone();
    for (key, value) in changes.as_object().unwrap() {
        case[key] = value.clone();
    }
    case
}

fn vector(file: &str, name: &str) -> Value {
    vector_file(file).into_iter().find(|case| case["name"] == name).unwrap()
}

fn judge(case: &Value, args: &[&str]) -> Answer {
    postern_with_input(&[&["-"], args].concat(), &case.to_string())
}

fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors")
}

fn vector_file(name: &str) -> Vec<Value> {
    serde_json::from_slice(&std::fs::read(vectors().join(name)).unwrap()).unwrap()
}

#[test]
fn an_accepted_request_says_what_it_is() {
    let answer = judge(&case(), &[]);
    insta::assert_snapshot!(answer.out, @r"
    hello: accepted
      signature  github (secret 1)
      trust      the provider signs the body
      id         00000000-0000-0000-0000-000000000000 (not signed)
      type       ping
      body       13 bytes, sha256 dffd6021bb2bd5b0af676290809ec3a53191dd81c7f70a4b28688a362182986f
    ");
    assert_eq!((answer.code, answer.err.as_str()), (0, ""));
}

#[test]
fn a_refused_request_says_why_and_what_next() {
    let answer = judge(&with(json!({ "body_base64": "SGVsbG8sIFdvcmxkPw==" })), &[]);
    insta::assert_snapshot!(answer.out, @r"
    hello: rejected as bad_signature (signature_mismatch)
      scheme     github
      why        the signature was not made with the one active secret over these bytes
      next       Usual causes: the secret of another endpoint or mode, a secret rotated at the provider only, or a body changed on the way.
      body       13 bytes, sha256 f16c3bb0532537acd5b2e418f2b1235b29181e35cffee7cc29d84de4a1d62e4d
    ");
    assert_eq!(answer.code, 1);
}

#[test]
fn a_program_gets_the_same_in_json() {
    let cases = json!([
        case(),
        with(json!({ "name": "old", "provider": "stripe", "headers": [], "secrets": ["short"] }))
    ]);
    let answer = judge(&cases, &["--json"]);
    let value: Value = serde_json::from_str(&answer.out).unwrap();
    assert_eq!(value["problems"], json!([]));
    let (first, second) = (&value["cases"][0], &value["cases"][1]);
    assert_eq!((&first["accepted"], &first["event_type"]), (&json!(true), &json!("ping")));
    assert_eq!((&first["event_id_is_signed"], &first["key"]), (&json!(false), &json!("secret 1")));
    assert_eq!((&second["accepted"], &second["class"]), (&json!(false), &json!("malformed")));
    assert_eq!(second["reason"], "signature_missing");
    assert!(second["warnings"][0].as_str().unwrap().starts_with("secret 1: the secret is shorter"));
    assert_eq!(answer.code, 1);
}

#[test]
fn the_command_line_counts_more_than_the_case() {
    let other = with(json!({ "secrets": ["another secret, not the one"], "provider": "nobody" }));
    let answer = judge(&other, &["--secret", SECRET, "--scheme", "github", "--now", "0"]);
    assert_eq!((answer.code, answer.err.as_str()), (0, ""));
    let answer = judge(&case(), &["--secret", "not it, but long enough", "--secret", SECRET]);
    assert!(answer.out.contains("(secret 2)"), "{}", answer.out);
}

#[test]
fn the_present_is_now_unless_somebody_says_otherwise() {
    let basic = vector_file("stripe.json").remove(0);
    assert_eq!(judge(&basic, &[]).code, 0);
    let later = judge(&basic, &["--now", "1767225901"]);
    assert!(later.out.contains("301 s old; 300 s are allowed"), "{}", later.out);
    let mut without = basic;
    without.as_object_mut().unwrap().remove("now");
    let present = judge(&without, &[]);
    assert!(present.out.contains("timestamp_too_old"), "{}", present.out);
}

#[test]
fn a_scheme_of_ones_own_comes_from_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.toml");
    std::fs::write(&file, "like = \"github\"\n[identity]\nid = \"{body-sha256}\"\n").unwrap();
    let answer = judge(&case(), &["--scheme-file", file.to_str().unwrap()]);
    assert!(
        answer.out.contains("id         dffd6021bb2bd5b0af676290809ec3a5"),
        "{}{}",
        answer.out,
        answer.err
    );

    std::fs::write(&file, "like = \"stripe\"\n[timestamp]\ntolerance = 0\nunits = \"s\"\n")
        .unwrap();
    let answer = judge(&case(), &["--scheme-file", file.to_str().unwrap()]);
    assert!(
        answer.err.contains("timestamp.tolerance: must be")
            && answer.err.contains("timestamp.units: is not a key")
    );
    assert_eq!(answer.code, 2);
}

#[test]
fn what_comes_from_outside_cannot_move_the_cursor() {
    let answer = judge(&with(json!({ "name": "a\u{1b}[2J\u{202e}b" })), &[]);
    assert!(answer.out.starts_with("a\\u{1b}[2J\\u{202e}b: accepted"), "{}", answer.out);
    let answer = judge(&with(json!({ "name": "x\u{7}", "provider": "a\u{1b}b" })), &[]);
    assert!(
        answer.err.contains("a\\u{1b}b") && !answer.err.contains(['\u{1b}', '\u{7}']),
        "{}",
        answer.err
    );
    let answer = judge(&with(json!({ "headers": [["x\u{1b}", "y"]] })), &[]);
    assert!(
        answer.out.contains("`x\\u{1b}` contains characters that HTTP does not allow"),
        "{}",
        answer.out
    );
    assert_eq!(answer.code, 1);
}

/// Every complaint has a cause and a next step, ends with 2, and shows no secret.
#[test]
fn a_question_that_cannot_be_answered_ends_with_two() {
    let check = |input: &Value, args: &[&str], expected: &str| {
        let answer = judge(input, args);
        assert_eq!(answer.code, 2, "{}{}", answer.out, answer.err);
        assert!(answer.err.contains(expected), "{expected} is not in: {}", answer.err);
        assert!(
            answer.err.contains("\n  why:  ") && answer.err.contains("\n  next: "),
            "{}",
            answer.err
        );
        for secret in ["Everybody", "AQIDBAUG"] {
            assert!(!answer.err.contains(secret) && !answer.out.contains(secret));
        }
    };
    check(&json!(7), &[], "cannot be read as cases");
    check(&json!([7]), &[], "case 1: this is not a case");
    check(&with(json!({ "provider": "nobody" })), &[], "no scheme named `nobody`");
    check(&with(json!({ "provider": null })), &[], "no scheme to verify with");
    check(&with(json!({ "secrets": [] })), &[], "no secret to verify with");
    check(&with(json!({ "secrets": null })), &[], "no secret to verify with");
    check(&with(json!({ "secrets": [""] })), &[], "the secret is empty");
    check(&with(json!({ "secrets": 7 })), &[], "hello: this is not a case");
    check(&with(json!({ "headers": [["only a name"]] })), &[], "hello: this is not a case");
    check(
        &with(json!({ "headers": 7, "expect": "ok" })),
        &["--vectors"],
        "hello: this is not a case",
    );
    let short = json!({ "provider": "standard_webhooks", "secrets": ["whsec_AQIDBAUG"] });
    check(&with(short), &[], "only 6 bytes when decoded");
    check(&with(json!({ "body_base64": "SGVsbG8*" })), &[], "body_base64 is not base64");
    check(&with(json!({ "now": 99_999_999_999_999_i64 })), &[], "cannot be taken as the present");
    check(&case(), &["--now", "99999999999999"], "cannot be taken as the present");
    check(&case(), &["--scheme", "nobody"], "no scheme named `nobody`");
    check(&case(), &["no-such-file.json"], "no-such-file.json cannot be read");
    check(&case(), &["--scheme-file", "no-such-file.toml"], "no-such-file.toml cannot be read");
    let body = |recipe: Value| with(json!({ "body_base64": null, "body_recipe": recipe }));
    check(
        &body(json!({ "repeat_base64": "AAAA", "count": 99_999_999_999_u64 })),
        &[],
        "the body is too large",
    );
    check(
        &body(json!({ "repeat_base64": "AAAA", "count": u64::MAX })),
        &[],
        "the body is too large",
    );
    check(
        &body(json!({ "prefix_base64": "AAAA", "sha256": "00" })),
        &[],
        "not the one that was meant",
    );
    check(&with(json!({ "expect": "perhaps" })), &["--vectors"], "`perhaps` is not an outcome");

    let not_json = postern_with_input(&["-"], "{\"secrets\": [\"hidden-value\"");
    assert_eq!(not_json.code, 2);
    assert!(
        not_json.err.contains("standard input cannot be read as cases")
            && !not_json.err.contains("hidden")
    );
    assert_eq!(postern(&[]).code, 2, "no file at all");
}

#[test]
fn one_bad_case_does_not_hide_the_others() {
    let answer = judge(&json!([with(json!({ "secrets": [] })), case()]), &[]);
    assert_eq!(answer.code, 2);
    assert!(
        answer.out.starts_with("hello: accepted") && answer.err.contains("no secret"),
        "{}{}",
        answer.out,
        answer.err
    );
}

#[test]
fn all_vectors_agree_and_none_is_left_out() {
    let folder = vectors();
    let files: Vec<String> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .map(|path| path.to_str().unwrap().to_owned())
        .collect();
    let total: usize = files.iter().map(|file| vector_file(file).len()).sum();
    assert_eq!(total, 859);
    let args: Vec<&str> =
        std::iter::once("--vectors").chain(files.iter().map(String::as_str)).collect();
    let answer = postern(&args);
    // the event of that case has another id than the case says
    let mistake = "a mistake of the case: FOLDER/sendgrid.json: valid_unicode_body: the event id differs, and \
        `ZHJvcC0xMDk5NDkxOS1MUnpYbF9OSFN0T0doUTRrb2ZTbV9BLTA` is not in the request\n";
    assert_eq!(
        answer.out.replace(folder.to_str().unwrap(), "FOLDER"),
        format!("{total} cases compared, 0 mismatches\n{mistake}"),
        "{}",
        answer.err
    );
    assert_eq!((answer.code, answer.err.as_str()), (0, ""));
}

/// Compares one case after a change, and gives the exit code and the first line.
fn compare(case: &Value, changes: Value) -> (i32, String) {
    let answer = judge(&with_changes(case, changes), &["--vectors"]);
    assert_eq!(answer.err, "");
    (answer.code, answer.out.lines().next().unwrap().to_owned())
}

#[test]
fn a_corrupted_vector_is_noticed() {
    let all = vector_file("stripe.json");
    let named = |name: &str| all.iter().find(|case| case["name"] == name).unwrap();
    let agreed = (0, "1 case compared, 0 mismatches".to_owned());
    let differs = |case: &str, what: &str| (1, format!("standard input: {case}: expected {what}"));

    let basic = named("valid_basic");
    assert_eq!(compare(basic, json!({})), agreed);
    assert_eq!(
        compare(basic, json!({ "expect": "stale" })),
        differs("valid_basic", "rejected (stale), got accepted")
    );
    assert_eq!(
        compare(basic, json!({ "expect": "stale", "any_reject": true })),
        differs("valid_basic", "rejected (any class), got accepted")
    );
    assert_eq!(
        compare(basic, json!({ "body_base64": "e30=" })),
        differs("valid_basic", "accepted, got rejected (bad_signature)")
    );
    assert_eq!(
        compare(basic, json!({ "event_id": "invoice.paid" })),
        differs("valid_basic", "`invoice.paid`, got `evt_1TestFakeStripe0001`")
    );
    assert_eq!(
        compare(basic, json!({ "event_id": null })),
        differs("valid_basic", "none, got `evt_1TestFakeStripe0001`")
    );
    assert_eq!(
        compare(basic, json!({ "event_type": "evt_1TestFakeStripe0001" })),
        differs("valid_basic", "`evt_1TestFakeStripe0001`, got `invoice.paid`")
    );
    let answer = judge(&with_changes(basic, json!({ "event_id": "evt_other" })), &["--vectors"]);
    let mistake = "a mistake of the case: standard input: valid_basic: the event id differs, and `evt_other` is not";
    assert!(answer.out.contains(mistake) && answer.code == 0, "{}", answer.out);

    let stale = named("timestamp_one_day_old");
    assert_eq!(compare(stale, json!({})), agreed);
    assert_eq!(
        compare(stale, json!({ "expect": "malformed" })),
        differs("timestamp_one_day_old", "rejected (malformed), got rejected (stale)")
    );
    assert_eq!(compare(stale, json!({ "expect": "malformed", "any_reject": true })), agreed);
    assert_eq!(compare(stale, json!({ "expect": "malformed", "tier": "policy" })), agreed);
    assert_eq!(
        compare(stale, json!({ "expect": "ok", "tier": "policy", "recommended_expect": "either" })),
        agreed
    );
    assert_eq!(
        compare(stale, json!({ "expect": "ok", "tier": "policy", "recommended_expect": "stale" })),
        agreed
    );
    assert_eq!(
        compare(stale, json!({ "tier": "policy", "recommended_expect": "ok" })),
        differs("timestamp_one_day_old", "accepted, got rejected (stale)")
    );
}

#[test]
fn a_corrupted_answer_to_a_handshake_is_noticed() {
    let slack = vector("slack.json", "handshake_url_verification");
    let agreed = (0, "1 case compared, 0 mismatches".to_owned());
    let check = |case: &Value, response: Value, what: &str| {
        let (code, line) = compare(case, json!({ "expect_response": response }));
        assert!(code == 1 && line.contains(what), "{code} {line}");
    };
    assert_eq!(compare(&slack, json!({})), agreed);
    check(&slack, json!({ "status": 204 }), "expected 204, got 200");
    check(
        &slack,
        json!({ "json": { "challenge": "other" } }),
        r#"expected {"challenge":"other"}, got"#,
    );
    check(
        &slack,
        json!({ "headers": { "Content-Type": "text/html" } }),
        "expected text/html, got application/json",
    );
    let adyen = vector("adyen.json", "valid_payments_basic");
    check(&adyen, json!({ "body_contains": "[refused]" }), "expected [refused], got [accepted]");
    let asana = vector("handshakes.json", "asana_x_hook_secret");
    check(
        &asana,
        json!({ "headers": { "x-hook-secret": "other" } }),
        "expected other, got another value",
    );
    let established = compare(&asana, json!({ "secrets": ["another-secret-of-this-source"] }));
    assert!(
        established.1.ends_with("expected accepted, got rejected (bad_signature)"),
        "{established:?}"
    );
    let okta = vector("handshakes.json", "okta_challenge_get");
    let (code, line) = compare(&okta, json!({ "expect": "bad_signature" }));
    assert!(
        code == 1 && line.ends_with("expected rejected (bad_signature), got accepted"),
        "{line}"
    );
    // a reflected text that is refused is as good as one in plain text, but an ordinary one is not
    let markup = vector("handshakes.json", "dropbox_challenge_get_html_must_not_reflect");
    assert_eq!(compare(&markup, json!({})), agreed);
    let (code, line) = compare(&markup, json!({ "expect_response": { "body": "plain" } }));
    assert!(code == 1 && line.ends_with("expected accepted, got rejected (malformed)"), "{line}");
}

#[test]
fn a_handshake_shows_its_answer_and_what_follows() {
    let answer = judge(&vector("slack.json", "handshake_url_verification"), &[]);
    insta::assert_snapshot!(answer.out, @r#"
    handshake_url_verification: answered as a handshake, no event
      scheme     slack
      answer     200
                 content-type: application/json
                 x-content-type-options: nosniff
                 {"challenge":"3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P"}
      body       129 bytes, sha256 8127af867ad5e73766fa35d0e2e8faa0f98b08d402a173b1d5818bc974e75d7d
    "#);
    assert_eq!((answer.code, answer.err.as_str()), (0, ""));
    let answer = judge(&vector("handshakes.json", "asana_x_hook_secret"), &[]);
    insta::assert_snapshot!(answer.out, @r#"
    asana_x_hook_secret: answered as a handshake, no event
      scheme     asana
      answer     200
                 x-hook-secret: (not shown)
      then       the secret that it brings is stored, while the source waits for one
      body       2 bytes, sha256 44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a
    "#);
    let answer = judge(&vector("aws_sns.json", "valid_subscription_confirmation_v2"), &[]);
    assert!(
        answer.out.contains(
            "\n  then       https://sns.us-east-1.amazonaws.com/?Action=ConfirmSubscription"
        ),
        "{}",
        answer.out
    );
    let case = vector("handshakes.json", "dropbox_challenge_get");
    let value: Value = serde_json::from_str(&judge(&case, &["--json"]).out).unwrap();
    assert_eq!(value["cases"][0]["handshake"]["body"], "abc-CHALLENGE-123");
    assert_eq!(value["cases"][0]["handshake"]["headers"]["x-content-type-options"], "nosniff");
}

#[test]
fn a_request_with_several_events_shows_each() {
    let answer = judge(&vector("adyen.json", "valid_payments_two_items"), &[]);
    insta::assert_snapshot!(answer.out, @r#"
    valid_payments_two_items: accepted
      signature  adyen (secret 1)
      trust      weaker: the signature leaves out the body or a part of it, so whoever sees one request can change what is left out; fetch the facts from the provider before acting on them
      id         none; the sha256 of the body stands in for it
      type       AUTHORISATION
      events     2, one after another:
        id 7914073381342284:AUTHORISATION:true, type AUTHORISATION, object payment 7914073381342284
        id 7914073381349999:AUTHORISATION:true, type AUTHORISATION, object payment 7914073381349999
      body       806 bytes, sha256 f908054e292091f63553c46d668b69b756ea2a47bd7556fe5ce57699ba159018
    "#);
    let case = vector("gocardless.json", "valid_basic");
    let value: Value = serde_json::from_str(&judge(&case, &["--json"]).out).unwrap();
    let case = &value["cases"][0];
    assert_eq!((&case["event_id"], &case["delivery"]), (&json!(null), &json!("WB00FAKE01")));
    assert_eq!(case["elements"][0]["event_id"], "EV00FAKE01");
    assert_eq!(
        (&case["elements"][0]["event_type"], &case["trust"]),
        (&json!("payments.confirmed"), &json!("signed"))
    );
}

#[test]
fn a_mail_slot_shows_that_it_is_weaker() {
    let slot = json!({ "provider": "mail_slot_path", "path_secret": "a-long-and-secret-segment", "secrets": ["a-long-and-secret-segment"] });
    let answer = judge(&with(slot), &[]);
    assert!(answer.out.contains("\n  trust      weaker: a fixed secret travels"), "{}", answer.out);
    let answer = judge(
        &with(json!({ "provider": "mail_slot_path", "secrets": ["a-long-and-secret-segment"] })),
        &[],
    );
    assert_eq!(answer.code, 1, "{}", answer.out);
}

#[test]
fn a_secret_that_cannot_be_read_passes_nothing() {
    let basic = vector_file("standard_webhooks.json").remove(0);
    let (code, line) = compare(&basic, json!({ "secrets": ["whsec_!!!!"] }));
    assert_eq!(code, 1);
    assert!(line.ends_with("expected accepted, got rejected (bad_signature)"), "{line}");
}

#[test]
fn what_no_preset_covers_is_counted_apart() {
    let cases = json!([
        { "provider": "nobody", "name": "a", "strange": [1, 2] },
        { "provider": "nobody", "expect": "whatever" },
        { "provider": "somebody", "secrets": { "a": "b" }, "headers": 7 },
        {},
        with(json!({ "expect": "ok" })),
        case(),
    ]);
    let answer = judge(&cases, &["--vectors"]);
    insta::assert_snapshot!(answer.out, @r"
    1 case compared, 0 mismatches
    not covered: 4 cases of 3 providers ((none), nobody, somebody)
    without an expectation: 1 case
    ");
    assert_eq!((answer.code, answer.err.as_str()), (0, ""));

    let empty = postern_with_input(&["--vectors", "-"], "[]");
    assert_eq!((empty.code, empty.out.as_str()), (0, "0 cases compared, 0 mismatches\n"));

    let value: Value = serde_json::from_str(&judge(&cases, &["--vectors", "--json"]).out).unwrap();
    assert_eq!(
        value["not_covered"],
        json!({ "cases": 4, "providers": { "(none)": 1, "nobody": 2, "somebody": 1 } })
    );
    assert_eq!((&value["compared"], &value["mismatches"]), (&json!(1), &json!([])));
}
