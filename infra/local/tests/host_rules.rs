//! Events of a bus that call a function by a rule, on the real services, with a scripted function.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "test code")]

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::body::Bytes;
use local::{
    compute::{
        function::{Cause, Failure, Invoke, Outcome},
        rule::{Limits, Rule},
        source::filter::Pattern,
    },
    services::{Options, Services},
    wiring::{Queue, Wiring},
};
use serde_json::{Value, json};
use tokio::{
    sync::{Semaphore, mpsc, watch},
    task::JoinSet,
};

use host_support::{call, eventually};

mod host_support;

const FAILURES: &str = "arn:aws:sqs:us-east-1:000000000000:failures";

/// A function that fails as often as it is told, and then answers.
#[derive(Clone)]
struct Script {
    fails: Arc<Mutex<VecDeque<&'static str>>>,
    seen: mpsc::UnboundedSender<Value>,
    may_answer: Arc<Semaphore>,
}

impl Invoke for Script {
    async fn invoke(&self, event: Bytes) -> Outcome {
        let told = self.fails.lock().unwrap().pop_front();
        self.seen.send(serde_json::from_slice(&event).unwrap()).unwrap();
        self.may_answer.acquire().await.unwrap().forget();
        match told {
            None => Outcome::Answer(Bytes::new()),
            Some(message) => Outcome::Failed(Failure {
                cause: Cause::Reported,
                kind: "api::Problem".into(),
                message: message.into(),
            }),
        }
    }
}

struct World {
    services: Services,
    url: String,
    events: mpsc::UnboundedReceiver<Value>,
    may_answer: Arc<Semaphore>,
    stop: watch::Sender<bool>,
    running: JoinSet<()>,
    _server: JoinSet<()>,
    _folder: tempfile::TempDir,
}

impl World {
    async fn new(pattern: &Value, retries: u32, fails: &[&'static str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let queue = Queue {
            logical_id: "Failures".into(),
            name: "failures".into(),
            arn: FAILURES.into(),
            visibility: Duration::from_secs(30),
            retention: Duration::from_secs(3600),
            delay: Duration::ZERO,
            receive_wait: Duration::ZERO,
            redrive: None,
        };
        let wiring = Wiring {
            region: "us-east-1".into(),
            queues: vec![queue],
            buses: vec!["orders".into()],
            ..Wiring::default()
        };
        let services = Services::open(&wiring, Options::in_memory(folder.path())).await.unwrap();
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut server = JoinSet::new();
        let router = services.router();
        server.spawn(async move { axum::serve(listener, router).await.unwrap() });
        let (seen, events) = mpsc::unbounded_channel();
        let may_answer = Arc::new(Semaphore::new(Semaphore::MAX_PERMITS));
        let function = Script {
            fails: Arc::new(Mutex::new(fails.iter().copied().collect())),
            seen,
            may_answer: Arc::clone(&may_answer),
        };
        let rule = Rule {
            pattern: Pattern::parse(pattern).unwrap(),
            region: "us-east-1".into(),
            limits: Limits { retries, on_failure: Some(FAILURES.into()), ..Limits::default() },
            arn: "arn:aws:lambda:us-east-1:000000000000:function:api".into(),
            queues: services.queues.acting_for("api"),
            function,
        };
        let (stop, stopping) = watch::channel(false);
        let mut running = JoinSet::new();
        running.spawn(rule.run(services.buses.listen("default"), stopping));
        Self { services, url, events, may_answer, stop, running, _server: server, _folder: folder }
    }

    async fn put(&self, bus: &str, source: &str, n: u32) -> String {
        let entry = json!({
            "Source": source, "DetailType": "order", "EventBusName": bus, "Time": 1_790_000_000,
            "Detail": json!({ "n": n }).to_string(), "Resources": ["a"],
        });
        self.put_entry(&entry).await
    }

    async fn put_entry(&self, entry: &Value) -> String {
        let headers = [
            ("x-amz-target", "AWSEvents.PutEvents"),
            ("content-type", "application/x-amz-json-1.1"),
        ];
        let body = json!({ "Entries": [entry] }).to_string();
        let answer = call("POST", &self.url, &headers, body.as_bytes()).await.json();
        answer["Entries"][0]["EventId"].as_str().unwrap().to_owned()
    }

    async fn is_idle(&self) {
        eventually("nothing is under way", async || {
            (self.services.buses.under_way() == 0).then_some(())
        })
        .await;
    }

    async fn ends(mut self) {
        self.stop.send(true).unwrap();
        self.running.join_next().await.unwrap().unwrap();
    }
}

fn publish() -> Value {
    json!({ "source": ["postern/publish"] })
}

#[tokio::test]
async fn an_event_that_a_rule_wants_calls_the_function_as_eventbridge_does() {
    let mut world = World::new(&publish(), 0, &[]).await;
    for (bus, source) in [
        ("default", "postern/publish/"),
        ("orders", "postern/publish"),
        ("nowhere", "postern/publish"),
        ("default", "shop"),
    ] {
        world.put(bus, source, 1).await;
    }
    // As on AWS, this one is dropped although it was taken.
    let entry = json!({
        "Source": "postern/publish", "DetailType": "x".repeat(129), "Detail": "{}",
    });
    world.put_entry(&entry).await;
    let id = world.put("default", "postern/publish", 2).await;
    let expected = json!({
        "version": "0", "id": id, "detail-type": "order", "source": "postern/publish",
        "account": "000000000000", "time": "2026-09-21T14:13:20Z", "region": "us-east-1",
        "resources": ["a"], "detail": { "n": 2 },
    });
    assert_eq!(world.events.recv().await.unwrap(), expected);
    world.is_idle().await;
    assert!(world.events.try_recv().is_err(), "it was called for what it does not want");
    assert_eq!(world.services.queues.counts(FAILURES).unwrap().visible, 0);
    world.ends().await;
}

#[tokio::test]
async fn a_call_that_fails_is_made_again_with_the_same_event() {
    let mut world = World::new(&publish(), 2, &["one", "two"]).await;
    world.put("default", "postern/publish", 1).await;
    let first = world.events.recv().await.unwrap();
    assert_eq!(world.events.recv().await.unwrap(), first);
    assert_eq!(world.events.recv().await.unwrap(), first);
    world.is_idle().await;
    assert!(world.events.try_recv().is_err());
    assert_eq!(world.services.queues.counts(FAILURES).unwrap().visible, 0);
    world.ends().await;
}

#[tokio::test]
async fn what_always_fails_comes_to_rest_in_its_queue_with_the_event_and_the_reason() {
    let mut world = World::new(&publish(), 1, &["one", "two"]).await;
    let id = world.put("default", "postern/publish", 1).await;
    let event = world.events.recv().await.unwrap();
    world.is_idle().await;
    let found = world.services.queues.receive(FAILURES, 10, Duration::ZERO).await.unwrap();
    assert_eq!(found.len(), 1);
    let record = found[0].lambda_record(FAILURES, "us-east-1");
    let told: Value = serde_json::from_str(record["body"].as_str().unwrap()).unwrap();
    assert_eq!(told["requestPayload"], event);
    assert_eq!(told["requestPayload"]["id"], id.as_str());
    let context = &told["requestContext"];
    assert_eq!(context["condition"], "RetriesExhausted");
    assert_eq!(context["approximateInvokeCount"], 2);
    assert_eq!(
        told["responsePayload"],
        json!({"errorType": "api::Problem", "errorMessage": "two"})
    );
    // Its sender is the function's role, which has to be allowed to.
    let calls = world.services.recorder.calls();
    let sent = calls.iter().find(|call| call.action == "sqs:SendMessage").unwrap();
    assert_eq!((sent.function.as_str(), sent.resource.as_str()), ("api", FAILURES));
    world.ends().await;
}

/// Or a test that waits until nothing is left to do would look away too early.
#[tokio::test]
async fn an_event_is_under_way_until_its_last_call_has_ended() {
    let mut world = World::new(&publish(), 2, &["one"]).await;
    world.may_answer.forget_permits(Semaphore::MAX_PERMITS);
    world.put("default", "postern/publish", 1).await;
    assert_eq!(world.services.buses.under_way(), 1);
    world.events.recv().await.unwrap();
    world.may_answer.add_permits(1);
    // It failed, and waits for its next call.
    world.events.recv().await.unwrap();
    assert_eq!(world.services.buses.under_way(), 1);
    world.may_answer.add_permits(1);
    world.is_idle().await;
    world.ends().await;
}
