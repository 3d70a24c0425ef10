//! The commands that ask a deployment, against one that writes down what it is asked.
#![expect(clippy::unwrap_used, clippy::panic, reason = "test code")]

mod support;

use std::{
    convert::Infallible,
    fs,
    path::Path,
    sync::{Arc, Mutex, mpsc},
};

use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use support::{Ended, command};
use tempfile::TempDir;
use tokio::net::TcpListener;

/// A request, as it came.
#[derive(Clone, Debug)]
struct Asked {
    call: String,
    headers: HeaderMap,
    body: String,
}

impl Asked {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
    }
}

/// A deployment that gives one answer to everything, and the state folder of the local host that it pretends to be.
struct Fake {
    url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    folder: TempDir,
    _runtime: tokio::runtime::Runtime,
}

impl Fake {
    fn answering(status: u16, body: &Value) -> Self {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (listening, address) = mpsc::channel();
        let (body, heard) = (body.to_string(), Arc::clone(&asked));
        runtime.spawn(async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            listening.send(listener.local_addr().unwrap()).unwrap();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let service = service_fn(|request| answer(request, &heard, status, &body));
                let _ = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            }
        });
        let url = format!("http://{}", address.recv().unwrap());
        let folder = tempfile::tempdir().unwrap();
        let apis = json!({"AdminApi": url, "IngressApi": url});
        let ready =
            json!({"control": format!("{url}/_local"), "apis": apis, "token": "CANARY-TOKEN"});
        fs::write(folder.path().join("ready.json"), ready.to_string()).unwrap();
        Self { url, asked, folder, _runtime: runtime }
    }

    /// Runs a command on the local host.
    fn run(&self, args: &[&str]) -> Ended {
        self.run_with(args, "")
    }

    fn run_with(&self, args: &[&str], input: &str) -> Ended {
        let mut command = command(Path::new(env!("CARGO_BIN_EXE_postern")));
        command.args(args).arg("--state").arg(self.folder.path());
        let ended = support::run(command, input);
        // SEC-secret-in-output
        let said = format!("{}{}", ended.out, ended.err);
        assert!(!said.contains("CANARY"), "{said}");
        ended
    }

    /// The only request.
    fn asked(&self) -> Asked {
        let asked = std::mem::take(&mut *self.asked.lock().unwrap());
        let [only] = asked.as_slice() else { panic!("{} requests", asked.len()) };
        only.clone()
    }

    /// What it says on the error stream of a command that changes something.
    fn named(&self) -> String {
        format!("on the local host at {}\n", self.url)
    }
}

async fn answer(
    request: Request<Incoming>,
    asked: &Mutex<Vec<Asked>>,
    status: u16,
    body: &str,
) -> Result<Response<Full<bytes::Bytes>>, Infallible> {
    let (head, sent) = request.into_parts();
    let sent = sent.collect().await.unwrap().to_bytes();
    let call = format!("{} {}", head.method, head.uri);
    let body_text = String::from_utf8(sent.to_vec()).unwrap();
    asked.lock().unwrap().push(Asked { call, headers: head.headers, body: body_text });
    let mut response = Response::new(Full::new(bytes::Bytes::from(body.to_owned())));
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    Ok(response)
}

fn source() -> Value {
    json!({
        "name": "shop", "scheme": {"preset": "stripe"}, "created_at": "2026-09-21T14:13:20Z",
        "handler": {"kind": "forward", "tenant": "acme", "types": []},
        "url": "https://in.example.com/webhooks/shop",
    })
}

#[test]
fn sources_are_listed_in_a_table() {
    let mut own = source();
    own["name"] = json!("own");
    own["scheme"] = json!({"own": {}});
    own["handler"] = json!({"kind": "mirror"});
    let fake = Fake::answering(200, &json!({"sources": [source(), own]}));
    let ended = fake.run(&["sources", "list"]);
    assert_eq!((ended.code, ended.err.as_str()), (0, ""));
    insta::assert_snapshot!(ended.out, @r"
    name  scheme  handler          url
    shop  stripe  forward to acme  https://in.example.com/webhooks/shop
    own   (own)   mirror           https://in.example.com/webhooks/shop
    ");
    let asked = fake.asked();
    assert_eq!(asked.call, "GET /v1/sources");
    assert_eq!(asked.header("authorization"), "Bearer CANARY-TOKEN");
    let json: Value = serde_json::from_str(&fake.run(&["sources", "list", "--json"]).out).unwrap();
    assert_eq!(json["sources"][1], own);
}

#[test]
fn nothing_in_a_list_is_none() {
    let fake = Fake::answering(200, &json!({"sources": []}));
    assert_eq!(fake.run(&["sources", "list"]).out, "none\n");
}

/// CLI-wrong-environment
#[test]
fn a_source_is_added_with_its_secret_from_a_file_or_a_pipe() {
    let fake = Fake::answering(201, &source());
    let file = fake.folder.path().join("secret");
    fs::write(&file, "whsec_CANARY\n").unwrap();
    let add = |file: &str, input: &str| {
        let add = ["sources", "add", "shop", "--scheme", "stripe", "--forward", "acme"];
        let more = ["--type", "a.*", "--type", "b", "--secret-file", file];
        fake.run_with(&[&add[..], &more[..]].concat(), input)
    };
    for (file, input) in [(file.to_str().unwrap(), ""), ("-", "whsec_CANARY")] {
        let ended = add(file, input);
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
    }
    let mirror = ["sources", "add", "shop", "--scheme", "stripe", "--mirror", "--secret-file", "-"];
    fake.run_with(&mirror, "whsec_CANARY");
    assert_eq!(fake.asked().json()["handler"], json!({"kind": "mirror"}));
}

#[test]
fn a_secret_that_cannot_be_read_is_not_asked_for_at_all() {
    let fake = Fake::answering(201, &source());
    let add = ["sources", "add", "x", "--scheme", "stripe", "--mirror", "--secret-file"];
    let missing = fake.run(&[&add[..], &["/nowhere"]].concat());
    assert_eq!(missing.code, 2);
    assert!(missing.err.contains("the secret cannot be read from /nowhere"), "{}", missing.err);
    assert_eq!(fake.run(&[&add[..], &["-"]].concat()).code, 2);
    assert!(fake.asked.lock().unwrap().is_empty());
}

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
            endpoint("ep_1", json!({"failing_since": null, "disabled": null})),
            endpoint("ep_2", json!({"failing_since": "2026-09-21T14:13:20Z", "disabled": null})),
            endpoint("ep_3", json!({"failing_since": null, "disabled": {"since": "x", "reason": "gone"}})),
        ]}),
    );
    insta::assert_snapshot!(fake.run(&["endpoints", "list", "acme"]).out, @r"
    id    types  url                             health                              made
    ep_1  a.* b  https://hooks.example.com/in/…  good                                2026-09-21T14:13:20Z
    ep_2  a.* b  https://hooks.example.com/in/…  failing since 2026-09-21T14:13:20Z  2026-09-21T14:13:20Z
    ep_3  a.* b  https://hooks.example.com/in/…  disabled: gone                      2026-09-21T14:13:20Z
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

#[test]
fn parked_events_are_listed_with_why() {
    let parked = json!({
        "source": "shop", "event_id": "evt_1", "event_type": null, "parked_at": "2026-09-21T14:13:20Z", "attempts": 12,
        "error": {"code": "handler_failed", "message": "no such\u{1b}[31m invoice"},
    });
    let fake = Fake::answering(200, &json!({"parked": [parked], "more": true}));
    insta::assert_snapshot!(fake.run(&["events", "parked"]).out, @r"
    source  event  type  parked                attempts  why
    shop    evt_1  -     2026-09-21T14:13:20Z  12        no such\u{1b}[31m invoice
    ... and more, parked earlier
    ");
    assert_eq!(fake.asked().call, "GET /v1/parked");
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
