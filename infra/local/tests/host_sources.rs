//! Queues and streams that call a function, on the real services, with a scripted function.
#![expect(clippy::unwrap_used, clippy::panic, clippy::expect_used, reason = "test code")]

use std::{
    collections::VecDeque,
    net::Ipv4Addr,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::body::Bytes;
use local::{
    compute::{
        function::{Cause, Failure, Invoke, Outcome},
        source::{
            checkpoint::Checkpoint,
            filter::Pattern,
            piece::Share,
            queue::QueueSource,
            stream::{OnFailure, Place, StreamSource},
        },
    },
    services::{Clock, Options, Services},
    wiring::{Queue, Table, Wiring},
};
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    sync::{Semaphore, mpsc, watch},
    task::JoinSet,
    time::timeout,
};

use host_support::{call, eventually};

mod host_support;

const QUEUE: &str = "arn:aws:sqs:us-east-1:000000000000:inbound";
const STREAM: &str =
    "arn:aws:dynamodb:us-east-1:000000000000:table/outbox/stream/2020-01-01T00:00:00.000";

/// A function that answers from a list, and with full success when the list is empty.
#[derive(Clone)]
struct Script {
    answers: Arc<Mutex<VecDeque<Told>>>,
    seen: mpsc::UnboundedSender<Value>,
    may_answer: Arc<Semaphore>,
    /// Who gets this record dies of it.
    poison: Option<&'static str>,
}

#[derive(Clone, Debug)]
enum Told {
    /// These bodies or keys fail.
    Fail(&'static [&'static str]),
    Answer(&'static str),
    Error,
}

impl Script {
    fn new(answers: &[Told]) -> (Self, mpsc::UnboundedReceiver<Value>) {
        let (seen, events) = mpsc::unbounded_channel();
        let answers = Arc::new(Mutex::new(answers.iter().cloned().collect()));
        (
            Self {
                answers,
                seen,
                may_answer: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)),
                poison: None,
            },
            events,
        )
    }
}

impl Invoke for Script {
    async fn invoke(&self, event: Bytes) -> Outcome {
        let event: Value = serde_json::from_slice(&event).unwrap();
        let mut told = self.answers.lock().unwrap().pop_front();
        if self.poison.is_some_and(|poison| names(&event).contains(&poison)) {
            told = Some(Told::Error);
        }
        self.seen.send(event.clone()).unwrap();
        self.may_answer.acquire().await.unwrap().forget();
        match told {
            None => Outcome::Answer(Bytes::new()),
            Some(Told::Answer(text)) => Outcome::Answer(text.into()),
            Some(Told::Error) => Outcome::Failed(Failure {
                cause: Cause::Died,
                kind: "Runtime.ExitError".into(),
                message: "gone".into(),
            }),
            Some(Told::Fail(names)) => {
                let failed = records(&event)
                    .iter()
                    .filter(|record| names.contains(&name(record)))
                    .map(|record| json!({ "itemIdentifier": id(record) }));
                Outcome::Answer(
                    json!({ "batchItemFailures": failed.collect::<Vec<_>>() }).to_string().into(),
                )
            }
        }
    }
}

fn records(event: &Value) -> &Vec<Value> {
    event["Records"].as_array().unwrap()
}

fn name(record: &Value) -> &str {
    record
        .get("body")
        .or_else(|| record.pointer("/dynamodb/Keys/pk/S"))
        .and_then(Value::as_str)
        .unwrap()
}

fn id(record: &Value) -> &Value {
    record.get("messageId").or_else(|| record.pointer("/dynamodb/SequenceNumber")).unwrap()
}

fn names(event: &Value) -> Vec<&str> {
    records(event).iter().map(name).collect()
}

async fn next(events: &mut mpsc::UnboundedReceiver<Value>) -> Value {
    timeout(Duration::from_secs(10), events.recv()).await.expect("no event came").unwrap()
}

async fn services(visibility: Duration) -> (Services, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let queue = Queue {
        logical_id: "InboundQueue".into(),
        name: "inbound".into(),
        arn: QUEUE.into(),
        visibility,
        retention: Duration::from_secs(3600),
        delay: Duration::ZERO,
        receive_wait: Duration::ZERO,
        redrive: None,
    };
    let table = Table {
        logical_id: "OutboxTable".into(),
        name: "outbox".into(),
        arn: "arn:aws:dynamodb:us-east-1:000000000000:table/outbox".into(),
        create: json!({
            "TableName": "outbox",
            "BillingMode": "PAY_PER_REQUEST",
            "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
            "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
            "StreamSpecification": {"StreamEnabled": true, "StreamViewType": "NEW_IMAGE"},
        }),
        ttl_attribute: None,
        stream_arn: Some(STREAM.into()),
    };
    let wiring = Wiring {
        region: "us-east-1".into(),
        queues: vec![queue],
        tables: vec![table],
        ..Wiring::default()
    };
    (Services::open(&wiring, Options::in_memory(folder.path())).await.unwrap(), folder)
}

struct Queued {
    services: Services,
    stop: watch::Sender<bool>,
    running: JoinSet<()>,
    _folder: tempfile::TempDir,
}

struct Wanted {
    batch: usize,
    window: Duration,
    item_failures: bool,
    width: usize,
    visibility: Duration,
}

const PLAIN: Wanted = Wanted {
    batch: 10,
    window: Duration::ZERO,
    item_failures: true,
    width: 1,
    visibility: Duration::from_secs(60),
};

impl Queued {
    async fn start(wanted: Wanted, script: Script, bodies: &[&str]) -> Self {
        let (services, folder) = services(wanted.visibility).await;
        for body in bodies {
            services.queues.send(QUEUE, body).await.unwrap();
        }
        let source = QueueSource {
            arn: QUEUE.into(),
            region: "us-east-1".into(),
            batch: wanted.batch,
            window: wanted.window,
            item_failures: wanted.item_failures,
            width: wanted.width,
            queues: services.queues.acting_for("worker"),
            function: script,
        };
        let (stop, stopping) = watch::channel(false);
        let mut running = JoinSet::new();
        running.spawn(source.run(stopping));
        Self { services, stop, running, _folder: folder }
    }

    /// What is left once the source has come to an end.
    async fn left(mut self) -> u64 {
        self.stop.send(true).unwrap();
        timeout(Duration::from_secs(10), self.running.join_next())
            .await
            .expect("the source does not stop")
            .unwrap()
            .unwrap();
        let counts = self.services.queues.counts(QUEUE).unwrap();
        counts.visible + counts.in_flight + counts.delayed
    }
}

async fn check(item_failures: bool, told: Told, left: u64) {
    let (script, mut events) = Script::new(std::slice::from_ref(&told));
    let queued = Queued::start(Wanted { item_failures, ..PLAIN }, script, &["a", "b", "c"]).await;
    assert_eq!(names(&next(&mut events).await).len(), 3);
    assert_eq!(queued.left().await, left, "{told:?}");
}

/// `WRK-batch-response-shape`
#[tokio::test]
async fn messages_are_deleted_or_left_as_lambda_does_it() {
    check(true, Told::Fail(&[]), 0).await;
    check(true, Told::Fail(&["b"]), 1).await;
    check(true, Told::Fail(&["a", "c"]), 2).await;
    check(true, Told::Answer("null"), 0).await;
    check(true, Told::Answer("{}"), 0).await;
    check(true, Told::Answer(r#"{"batchItemFailures":null}"#), 0).await;
    check(true, Told::Answer(r#"{"statusCode":200,"body":"{\"batchItemFailures\":[]}"}"#), 0).await;
    check(true, Told::Answer(r#"{"batchItemFailures":[{"itemIdentifier":""}]}"#), 3).await;
    check(true, Told::Answer(r#"{"batchItemFailures":[{"itemIdentifier":null}]}"#), 3).await;
    check(true, Told::Answer(r#"{"batchItemFailures":[{"itemIdentifier":"unknown"}]}"#), 3).await;
    check(true, Told::Answer(r#"{"batchItemFailures":[{"id":"a"}]}"#), 3).await;
    check(true, Told::Answer("oops"), 3).await;
    check(true, Told::Error, 3).await;
    // Without ReportBatchItemFailures nobody reads the answer.
    check(false, Told::Fail(&["b"]), 0).await;
    check(false, Told::Answer("oops"), 0).await;
    check(false, Told::Error, 3).await;
}

#[tokio::test]
async fn a_batch_of_ten_with_three_failures_brings_back_exactly_those_three() {
    let (script, mut events) = Script::new(&[Told::Fail(&["2", "5", "9"])]);
    let bodies = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
    let queued =
        Queued::start(Wanted { visibility: Duration::from_millis(300), ..PLAIN }, script, &bodies)
            .await;
    assert_eq!(names(&next(&mut events).await).len(), 10);
    let mut back = Vec::new();
    while back.len() < 3 {
        let event = next(&mut events).await;
        for record in records(&event) {
            assert_eq!(record["attributes"]["ApproximateReceiveCount"], "2");
            back.push(name(record).to_owned());
        }
    }
    back.sort();
    assert_eq!(back, ["2", "5", "9"]);
    assert_eq!(queued.left().await, 0);
}

#[tokio::test]
async fn a_message_has_the_shape_of_lambda() {
    let (script, mut events) = Script::new(&[]);
    let queued = Queued::start(PLAIN, script, &["hello"]).await;
    let event = next(&mut events).await;
    let record = &records(&event)[0];
    let mut keys: Vec<_> = record.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    assert_eq!(
        keys,
        [
            "attributes",
            "awsRegion",
            "body",
            "eventSource",
            "eventSourceARN",
            "md5OfBody",
            "messageAttributes",
            "messageId",
            "receiptHandle"
        ]
    );
    assert_eq!(
        (&record["body"], &record["md5OfBody"]),
        (&json!("hello"), &json!("5d41402abc4b2a76b9719d911017c592"))
    );
    assert_eq!(
        (&record["eventSource"], &record["eventSourceARN"], &record["awsRegion"]),
        (&json!("aws:sqs"), &json!(QUEUE), &json!("us-east-1"))
    );
    assert_eq!(record["attributes"]["ApproximateReceiveCount"], "1");
    queued.left().await;
}

#[tokio::test]
async fn a_window_gathers_more_than_one_receive_gives() {
    let (script, mut events) = Script::new(&[]);
    let bodies: Vec<_> = (0..15).map(|number| number.to_string()).collect();
    let bodies: Vec<_> = bodies.iter().map(String::as_str).collect();
    let queued = Queued::start(
        Wanted { batch: 20, window: Duration::from_millis(500), ..PLAIN },
        script,
        &bodies,
    )
    .await;
    assert_eq!(names(&next(&mut events).await).len(), 15);
    assert_eq!(queued.left().await, 0);
}

#[tokio::test]
async fn a_batch_is_no_larger_than_its_size() {
    let (script, mut events) = Script::new(&[]);
    let queued = Queued::start(Wanted { batch: 2, ..PLAIN }, script, &["a", "b", "c", "d"]).await;
    assert_eq!(names(&next(&mut events).await).len(), 2);
    assert_eq!(names(&next(&mut events).await).len(), 2);
    assert_eq!(queued.left().await, 0);
}

#[tokio::test]
async fn no_more_batches_are_with_the_function_than_the_concurrency_allows() {
    let (script, mut events) = Script::new(&[]);
    let may_answer = Arc::clone(&script.may_answer);
    may_answer.forget_permits(Semaphore::MAX_PERMITS);
    let queued =
        Queued::start(Wanted { batch: 1, width: 2, ..PLAIN }, script, &["a", "b", "c"]).await;
    next(&mut events).await;
    next(&mut events).await;
    let counts = queued.services.queues.counts(QUEUE).unwrap();
    assert_eq!((counts.visible, counts.in_flight), (1, 2));
    assert!(events.try_recv().is_err());
    may_answer.add_permits(3);
    next(&mut events).await;
    assert_eq!(queued.left().await, 0);
}

struct Streamed {
    services: Services,
    url: String,
    server: JoinSet<()>,
    _folder: tempfile::TempDir,
}

struct Reading {
    place: Place,
    stop: watch::Sender<bool>,
    running: JoinSet<()>,
}

impl Streamed {
    async fn new() -> Self {
        let (services, folder) = services(Duration::from_secs(1)).await;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let router = services.router();
        let mut server = JoinSet::new();
        server.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { services, url, server, _folder: folder }
    }

    async fn put(&self, keys: &[&str], state: &str) {
        for key in keys {
            let body = json!({"TableName": "outbox", "Item": {"pk": {"S": key}, "relay_state": {"S": state}}}).to_string();
            let headers = [
                ("x-amz-target", "DynamoDB_20120810.PutItem"),
                ("content-type", "application/x-amz-json-1.0"),
                ("x-amz-date", "20200101T000000Z"),
                (
                    "authorization",
                    "AWS4-HMAC-SHA256 Credential=LOCALtest/20200101/us-east-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0",
                ),
            ];
            let answer = call("POST", &self.url, &headers, body.as_bytes()).await;
            assert_eq!(answer.status, 200, "{:?}", answer.body);
        }
    }

    fn read(&self, script: Script, retries: Option<u32>, checkpoint: Checkpoint) -> Reading {
        self.start(StreamSource { retries, ..self.source(script, checkpoint) })
    }

    /// A source that tries for ever.
    fn source(&self, script: Script, checkpoint: Checkpoint) -> StreamSource<Script> {
        let pattern = json!({"dynamodb": {"NewImage": {"relay_state": {"S": ["NEW"]}}}});
        StreamSource {
            arn: STREAM.into(),
            batch: 10,
            window: Duration::ZERO,
            item_failures: true,
            retries: None,
            max_age: None,
            bisect: false,
            on_failure: None,
            share: Share::WHOLE,
            clock: Clock::system(),
            filters: vec![Pattern::parse(&pattern).unwrap()],
            streams: self.services.streams.clone(),
            function: script,
            checkpoint,
            place: Place::default(),
        }
    }

    /// Who is told of what was given up.
    fn on_failure(&self) -> Option<OnFailure> {
        let queues = self.services.queues.acting_for("relay");
        let function = "arn:aws:lambda:us-east-1:000000000000:function:relay".to_owned();
        Some(OnFailure { queue: QUEUE.to_owned(), queues, function })
    }

    /// What that queue was told.
    async fn given_up(&self) -> Vec<Value> {
        let wait = Duration::from_millis(0);
        let messages = self.services.queues.receive(QUEUE, 10, wait).await.unwrap();
        messages.iter().map(|message| serde_json::from_str(&message.body).unwrap()).collect()
    }

    fn start(&self, source: StreamSource<Script>) -> Reading {
        let (place, kept) = (source.place.clone(), source.checkpoint.load().unwrap());
        let (stop, stopping) = watch::channel(false);
        let mut running = JoinSet::new();
        running.spawn(source.run(kept, stopping));
        Reading { place, stop, running }
    }

    async fn at_the_end(&self, reading: &Reading) {
        eventually("the stream is read to its end", async || {
            let rest =
                self.services.streams.read(STREAM, reading.place.done().as_ref(), 1).await.unwrap();
            (rest.is_empty() && !reading.place.is_busy()).then_some(())
        })
        .await;
    }
}

impl Reading {
    async fn end(mut self) {
        self.stop.send(true).unwrap();
        timeout(Duration::from_secs(10), self.running.join_next())
            .await
            .expect("the source does not stop")
            .unwrap()
            .unwrap();
    }
}

#[tokio::test]
async fn a_stream_is_read_from_its_start_and_then_as_it_grows() {
    let streamed = Streamed::new().await;
    streamed.put(&["1", "2"], "NEW").await;
    streamed.put(&["3"], "DONE").await;
    let (script, mut events) = Script::new(&[]);
    let reading = streamed.read(script, None, Checkpoint::memory());
    let event = next(&mut events).await;
    assert_eq!(names(&event), ["1", "2"]);
    let record = &records(&event)[0];
    assert_eq!(
        (&record["eventSource"], &record["eventSourceARN"], &record["eventName"]),
        (&json!("aws:dynamodb"), &json!(STREAM), &json!("INSERT"))
    );
    assert_eq!(
        record["dynamodb"]["NewImage"],
        json!({"pk": {"S": "1"}, "relay_state": {"S": "NEW"}})
    );
    streamed.at_the_end(&reading).await;
    streamed.put(&["4"], "DONE").await;
    streamed.put(&["5"], "NEW").await;
    assert_eq!(names(&next(&mut events).await), ["5"]);
    streamed.at_the_end(&reading).await;
    reading.end().await;
}

/// `OUT-stream-checkpoint`
#[tokio::test]
async fn after_failures_of_4_and_8_everything_from_4_on_comes_again() {
    let streamed = Streamed::new().await;
    streamed.put(&["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"], "NEW").await;
    let (script, mut events) = Script::new(&[Told::Fail(&["8", "4"]), Told::Fail(&["8"])]);
    let reading = streamed.read(script, Some(5), Checkpoint::memory());
    assert_eq!(
        names(&next(&mut events).await),
        ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"]
    );
    assert_eq!(names(&next(&mut events).await), ["4", "5", "6", "7", "8", "9", "10"]);
    assert_eq!(names(&next(&mut events).await), ["8", "9", "10"]);
    streamed.at_the_end(&reading).await;
    reading.end().await;
    assert!(events.try_recv().is_err());
}

#[tokio::test]
async fn a_batch_without_tries_left_is_left_behind_and_the_stream_goes_on() {
    let streamed = Streamed::new().await;
    streamed.put(&["1", "2"], "NEW").await;
    let (script, mut events) = Script::new(&[Told::Error, Told::Fail(&["1"])]);
    let reading = streamed.read(script, Some(1), Checkpoint::memory());
    assert_eq!(names(&next(&mut events).await), ["1", "2"]);
    assert_eq!(names(&next(&mut events).await), ["1", "2"]);
    streamed.at_the_end(&reading).await;
    streamed.put(&["3"], "NEW").await;
    assert_eq!(names(&next(&mut events).await), ["3"]);
    streamed.at_the_end(&reading).await;
    reading.end().await;
}

#[tokio::test]
async fn a_batch_whose_answer_is_not_understood_comes_again() {
    let streamed = Streamed::new().await;
    streamed.put(&["1", "2"], "NEW").await;
    let wrong = r#"{"batchItemFailures":[{"itemIdentifier":""}]}"#;
    let (script, mut events) = Script::new(&[Told::Answer(wrong)]);
    let reading = streamed.read(script, None, Checkpoint::memory());
    assert_eq!(names(&next(&mut events).await), ["1", "2"]);
    assert_eq!(names(&next(&mut events).await), ["1", "2"]);
    streamed.at_the_end(&reading).await;
    reading.end().await;
}

/// `OUT-stream-checkpoint`
#[tokio::test]
async fn a_stop_in_the_middle_of_a_batch_keeps_the_point_that_was_reached() {
    let mut streamed = Streamed::new().await;
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = || Checkpoint::file(folder.path().join("relay.json"));
    streamed.put(&["1", "2", "3"], "NEW").await;
    let (script, mut events) = Script::new(&[Told::Fail(&["2"]), Told::Fail(&["2"])]);
    let may_answer = Arc::clone(&script.may_answer);
    may_answer.forget_permits(Semaphore::MAX_PERMITS);
    let reading = streamed.read(script, None, checkpoint());
    assert_eq!(names(&next(&mut events).await), ["1", "2", "3"]);
    may_answer.add_permits(1);
    assert_eq!(names(&next(&mut events).await), ["2", "3"]);
    reading.stop.send(true).unwrap();
    may_answer.add_permits(1);
    reading.end().await;
    assert!(events.try_recv().is_err());

    let (script, mut events) = Script::new(&[]);
    let reading = streamed.read(script, None, checkpoint());
    assert_eq!(names(&next(&mut events).await), ["2", "3"]);
    streamed.at_the_end(&reading).await;
    reading.end().await;
    streamed.server.shutdown().await;
}

/// `OUT-poison-blocks-shard`: a function that dies of one record of ten.
#[tokio::test]
async fn a_batch_that_kills_its_function_is_halved_until_the_poison_is_alone() {
    let streamed = Streamed::new().await;
    let all = ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"];
    streamed.put(&all, "NEW").await;
    let (mut script, mut events) = Script::new(&[]);
    script.poison = Some("7");
    let source = StreamSource {
        retries: Some(1),
        bisect: true,
        on_failure: streamed.on_failure(),
        ..streamed.source(script, Checkpoint::memory())
    };
    let reading = streamed.start(source);
    streamed.at_the_end(&reading).await;
    reading.end().await;
    let mut done = Vec::new();
    let mut alone = 0;
    while let Ok(event) = events.try_recv() {
        let names: Vec<_> = names(&event).into_iter().map(str::to_owned).collect();
        if !names.contains(&"7".to_owned()) {
            done.extend(names);
        } else if names.len() == 1 {
            alone += 1;
        }
    }
    // Each other record once, in order; the poison has its try and its retry.
    assert_eq!(
        (done.as_slice(), alone),
        (["1", "2", "3", "4", "5", "6", "8", "9", "10"].map(str::to_owned).as_slice(), 2)
    );
    let told = streamed.given_up().await;
    let [told] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!(told["requestContext"]["condition"], "RetryAttemptsExhausted");
    assert_eq!(told["requestContext"]["approximateInvokeCount"], 2);
    assert_eq!(told["responseContext"]["functionError"], "Unhandled");
    assert_eq!(told["DDBStreamBatchInfo"]["batchSize"], 1);
    assert_eq!(told["DDBStreamBatchInfo"]["streamArn"], STREAM);
}

#[tokio::test]
async fn records_that_are_too_old_are_given_up_unseen_and_told_of() {
    let streamed = Streamed::new().await;
    streamed.put(&["1", "2", "3"], "NEW").await;
    let (script, mut events) = Script::new(&[]);
    // A day later, by a clock of its own.
    let later = Clock::system().now_ms() + 86_400_000;
    let source = StreamSource {
        max_age: Some(Duration::from_secs(3_600)),
        on_failure: streamed.on_failure(),
        clock: Clock::manual(later),
        ..streamed.source(script, Checkpoint::memory())
    };
    let reading = streamed.start(source);
    streamed.at_the_end(&reading).await;
    reading.end().await;
    assert!(events.try_recv().is_err());
    let told = streamed.given_up().await;
    let [told] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!(told["requestContext"]["condition"], "RecordAgeExceeded");
    assert_eq!(told["DDBStreamBatchInfo"]["batchSize"], 3);
}

/// A stream that was written before anybody read it, and grows old while it is tried: the age ends the tries.
#[tokio::test]
async fn a_record_that_grows_too_old_while_it_is_tried_is_given_up() {
    let streamed = Streamed::new().await;
    streamed.put(&["1"], "NEW").await;
    let (mut script, mut events) = Script::new(&[]);
    script.poison = Some("1");
    let clock = Clock::manual(Clock::system().now_ms());
    let source = StreamSource {
        max_age: Some(Duration::from_secs(3_600)),
        on_failure: streamed.on_failure(),
        clock: clock.clone(),
        ..streamed.source(script, Checkpoint::memory())
    };
    let reading = streamed.start(source);
    next(&mut events).await;
    next(&mut events).await;
    clock.advance(Duration::from_secs(7_200));
    streamed.at_the_end(&reading).await;
    reading.end().await;
    let told = streamed.given_up().await;
    let [told] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!(told["requestContext"]["condition"], "RecordAgeExceeded");
}

/// `ParallelizationFactor`: each item has its lane, and a lane that is stuck holds up no other.
#[tokio::test]
async fn a_lane_that_is_stuck_holds_up_no_other() {
    let streamed = Streamed::new().await;
    let keys: Vec<String> = (0..24).map(|n| n.to_string()).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    streamed.put(&keys, "NEW").await;
    let (mut script, mut events) = Script::new(&[]);
    script.poison = Some("0");
    let lanes: Vec<_> = (0..3)
        .map(|lane| {
            let share = Share { lane, of: 3 };
            let script = script.clone();
            let source = streamed.source(script, Checkpoint::memory());
            streamed.start(StreamSource { share, batch: 100, ..source })
        })
        .collect();
    let mut done = std::collections::BTreeSet::new();
    let mut stuck = std::collections::BTreeSet::new();
    while done.len() + stuck.len() < keys.len() {
        let event = next(&mut events).await;
        let names: Vec<_> = names(&event).into_iter().map(str::to_owned).collect();
        let set = if names.iter().any(|name| name == "0") { &mut stuck } else { &mut done };
        set.extend(names);
    }
    assert!(done.is_disjoint(&stuck) && stuck.len() < 12 && done.len() > 8, "{done:?} {stuck:?}");
    for lane in lanes {
        lane.end().await;
    }
}
