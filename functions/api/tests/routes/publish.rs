//! Events published one by one and by the hundred: what is read of them, and what each is told.

use api::outgoing::MAX_BODY;
use domain::outbox::{OutboxEvent, Payload};
use serde_json::{Value, json};
use testkit::chaos::{Fault, When};

use crate::deployment::{Answer, Deployment};

const PATH: &str = "/v1/events";

fn event(aggregate: &str) -> Value {
    json!({"tenant": "acme", "type": "a.b", "aggregate_id": aggregate, "payload": {"n": 1}})
}

fn keyed(aggregate: &str, key: &str) -> Value {
    let mut event = event(aggregate);
    event["idempotency_key"] = json!(key);
    event
}

impl Deployment {
    async fn batch(&self, events: &[Value]) -> Answer {
        self.post(PATH, &json!({ "events": events })).await
    }

    fn in_the_outbox(&self) -> Vec<OutboxEvent> {
        self.0.outbox.tables().outbox.values().map(|row| row.event.clone()).collect()
    }
}

/// The results of a batch.
fn results(answer: &Answer, status: u16) -> Vec<Value> {
    assert_eq!(answer.status.as_u16(), status, "{}", answer.text);
    answer.json()["results"].as_array().unwrap().clone()
}

/// The kind of a result's problem.
fn slug(result: &Value) -> &str {
    let kind = result["problem"]["type"].as_str().unwrap_or_default();
    kind.rsplit(':').next().unwrap()
}

#[tokio::test]
async fn each_event_of_a_batch_has_its_result_in_its_place() {
    let postern = Deployment::new();
    let events: Vec<_> = (0..100).map(|n| event(&format!("a{n:02}"))).collect();
    let results = results(&postern.batch(&events).await, 200);
    assert_eq!(results.len(), 100);
    let stored = postern.in_the_outbox();
    // The outbox is in the order of ids, and so is the batch.
    for ((result, stored), event) in results.iter().zip(&stored).zip(&events) {
        assert_eq!(result, &json!({"id": stored.id, "repeated": false}));
        assert_eq!(stored.aggregate_id, event["aggregate_id"]);
    }
}

#[tokio::test]
async fn one_bad_event_of_a_batch_stops_no_other() {
    let postern = Deployment::new();
    let bad = json!({"tenant": "No Name", "type": 5, "surprise": 1, "payload": "x".repeat(50_000)});
    let events = [event("a"), bad, json!("no object"), event("b"), json!({}), Value::Null];
    let results = results(&postern.batch(&events).await, 207);
    let slugs: Vec<_> = results.iter().map(slug).collect();
    let invalid = "invalid-request";
    assert_eq!(slugs, ["", invalid, invalid, "", invalid, invalid]);
    let problems = results[1]["problem"]["problems"].as_array().unwrap();
    let fields: Vec<_> =
        problems.iter().map(|problem| problem["field"].as_str().unwrap()).collect();
    assert_eq!(fields, ["tenant", "type", "aggregate_id", "payload", "surprise"]);
    assert_eq!(results[1]["problem"]["status"], 422);
    let aggregates: Vec<_> =
        postern.in_the_outbox().into_iter().map(|event| event.aggregate_id).collect();
    assert_eq!(aggregates, ["a", "b"]);
}

/// OUT-error-after-commit
#[tokio::test]
async fn a_batch_whose_answer_was_lost_is_sent_again_and_writes_nothing_more() {
    let postern = Deployment::new();
    let events: Vec<_> = (0..40).map(|n| keyed(&format!("a{n}"), &format!("k{n}"))).collect();
    // Some were written although their answers were lost, some were not.
    postern.0.outbox.chaos.set(|call, _| match call % 3 {
        0 => Some((When::After, Fault::Unavailable)),
        1 => Some((When::Before, Fault::Unavailable)),
        _ => None,
    });
    let first = results(&postern.batch(&events).await, 207);
    assert!(first.iter().any(|result| slug(result) == "unavailable"), "{first:?}");
    assert!(first.iter().any(|result| result["id"].is_string()), "{first:?}");
    postern.0.outbox.chaos.heal();
    let second = results(&postern.batch(&events).await, 200);
    let third = results(&postern.batch(&events).await, 200);
    assert_eq!(postern.in_the_outbox().len(), 40);
    for ((first, second), third) in first.iter().zip(&second).zip(&third) {
        assert!(first["id"].is_null() || first["id"] == second["id"], "{first} {second}");
        assert_eq!((&second["id"], &json!(true)), (&third["id"], &third["repeated"]));
    }
}

#[tokio::test]
async fn of_one_key_in_a_batch_the_first_event_counts() {
    for _ in 0..20 {
        let postern = Deployment::new();
        let mut other_tenant = keyed("a", "k");
        other_tenant["tenant"] = json!("other");
        let events = [keyed("a", "k"), keyed("b", "k"), keyed("a", "k"), other_tenant];
        let results = results(&postern.batch(&events).await, 207);
        assert_eq!(results[0]["repeated"], false);
        assert_eq!(slug(&results[1]), "key-reused");
        assert_eq!(results[2], json!({"id": results[0]["id"], "repeated": true}));
        assert_eq!(results[3]["repeated"], false);
        assert_eq!(postern.in_the_outbox().len(), 2);
    }
}

#[tokio::test]
async fn a_key_is_said_once_in_the_header_or_beside_the_event() {
    let postern = Deployment::new();
    let header = [("idempotency-key", "k")];
    let made = postern.post_with(PATH, &event("a"), &header).await.good(202);
    let again = postern.post(PATH, &keyed("a", "k")).await.good(200);
    assert_eq!(again["id"], made["id"]);
    postern.post(PATH, &keyed("b", "k")).await.problem(409, "key-reused");
    let both = postern.post_with(PATH, &keyed("a", "k"), &header).await;
    assert_eq!(both.fields(), ["idempotency_key"]);
    let batch = postern.post_with(PATH, &json!({"events": [event("a")]}), &header).await;
    assert_eq!(batch.fields(), ["Idempotency-Key"]);
    for bad in ["", " ", " a", "a\n", "é", &"k".repeat(257)] {
        let answer = postern.post(PATH, &keyed("a", bad)).await;
        assert_eq!(answer.fields(), ["idempotency_key"], "{bad:?}");
    }
}

#[tokio::test]
async fn a_batch_has_one_to_a_hundred_events_and_nothing_beside_them() {
    let postern = Deployment::new();
    let too_many: Vec<_> = (0..101).map(|_| event("a")).collect();
    for events in [json!([]), json!(too_many), json!({}), json!(null), json!(vec![0; 100_000])] {
        let answer = postern.post(PATH, &json!({ "events": events })).await;
        assert_eq!(answer.fields(), ["events"]);
        assert!(answer.json()["detail"].as_str().unwrap().contains("1 to 100"), "{}", answer.text);
    }
    let beside = json!({"events": [event("a")], "tenant": "acme"});
    assert_eq!(postern.post(PATH, &beside).await.fields(), ["tenant"]);
    assert!(postern.in_the_outbox().is_empty());
}

#[tokio::test]
async fn labels_are_kept_with_the_event_and_bounded() {
    let postern = Deployment::new();
    let mut good = event("a");
    good["labels"] = json!({"region": "eu", "plan": "gold é"});
    postern.post(PATH, &good).await.good(202);
    let [stored] = postern.in_the_outbox().try_into().unwrap();
    let labels: Vec<_> = stored.labels.iter().map(|(name, value)| (&**name, &**value)).collect();
    assert_eq!(labels, [("plan", "gold é"), ("region", "eu")]);

    let many: serde_json::Map<_, _> = (0..21).map(|n| (n.to_string(), json!("x"))).collect();
    for bad in [json!(many), json!({"a b": "x"}), json!({"a": ""}), json!({"a": 1}), json!(["a"])] {
        let mut event = event("a");
        event["labels"] = bad;
        assert_eq!(postern.post(PATH, &event).await.fields(), ["labels"], "{event}");
    }
    let twice =
        r#"{"tenant":"acme","type":"a","aggregate_id":"a","labels":{"a":"1","a":"2"},"payload":1}"#;
    assert_eq!(postern.post_text(twice.to_owned()).await.fields(), ["labels"]);
}

impl Deployment {
    async fn post_text(&self, text: String) -> Answer {
        let request = http::Request::post(PATH).header("content-type", "application/json");
        self.send(request.body(text.into()).unwrap()).await
    }
}

#[tokio::test]
async fn what_is_no_event_is_told_where_and_costs_little() {
    let postern = Deployment::new();
    let check = async |text: &str, fields: &[&str]| {
        let answer = postern.post_text(text.to_owned()).await;
        answer.problem(422, "invalid-request");
        assert_eq!(answer.fields(), fields, "{text:.80}");
        assert!(answer.text.len() < 10_000, "{} bytes of an answer", answer.text.len());
    };
    check("[]", &["body"]).await;
    check("5", &["body"]).await;
    check("{}", &["tenant", "type", "aggregate_id", "payload"]).await;
    let twice =
        r#"{"tenant":"acme","tenant":"b","type":"a","aggregate_id":"a","payload":1,"payload":2}"#;
    check(twice, &["tenant", "payload"]).await;
    let odd = r#"{"tenant":"acme","type":"a","aggregate_id":"a","schema_version":1.5,"aggregate_version":-1,"payload":1}"#;
    check(odd, &["schema_version", "aggregate_version"]).await;
    let strange = format!(
        r#"{{"tenant":"acme","type":"a","aggregate_id":"a","payload":1,"{}":1}}"#,
        "s".repeat(9000)
    );
    check(&strange, &[&"s".repeat(64)]).await;
    let members: Vec<_> = (0..50_000).map(|n| format!(r#""{n}":1"#)).collect();
    check(&format!("{{{}}}", members.join(",")), &["body"]).await;
    let answer = postern.post_text("{\"tenant\":".to_owned()).await;
    answer.problem(400, "not-json");
    assert!(postern.in_the_outbox().is_empty());
}

/// What may be `null` is as if it were left out; a payload is what it is.
#[tokio::test]
async fn null_is_nothing_but_for_a_payload() {
    let postern = Deployment::new();
    let mut nulls = event("a");
    for name in ["schema_version", "aggregate_version", "labels", "idempotency_key", "payload"] {
        nulls[name] = Value::Null;
    }
    postern.post(PATH, &nulls).await.good(202);
    let [stored] = postern.in_the_outbox().try_into().unwrap();
    assert_eq!((stored.schema_version, stored.aggregate_version), (1, None));
    assert_eq!(stored.payload, Payload::Inline(b"null".to_vec()));
}

#[tokio::test]
async fn a_request_is_as_large_as_a_lambda_event_at_most() {
    let postern = Deployment::new();
    // 100 events of 40,000 bytes are over 2 MiB, where other routes end.
    let mut large = event("a");
    large["payload"] = json!("x".repeat(39_000));
    let events = vec![large; 100];
    assert_eq!(results(&postern.batch(&events).await, 200).len(), 100);
    let all = json!({ "events": events }).to_string();
    let spaces = " ".repeat(MAX_BODY - all.len());
    let answer = postern.post_text(format!("{all}{spaces}")).await;
    assert_eq!(results(&answer, 200).len(), 100);
    let detail = postern.post_text(format!("{all}{spaces} ")).await.problem(413, "too-large");
    assert!(detail.contains("6291456"), "{detail}");
}

#[tokio::test]
async fn every_event_of_a_batch_has_the_trace_of_the_request() {
    let postern = Deployment::new();
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let batch = json!({"events": [event("a"), event("b")]});
    postern.post_with(PATH, &batch, &[("traceparent", trace)]).await.good(200);
    for event in postern.in_the_outbox() {
        assert_eq!(event.traceparent.as_deref(), Some(trace));
    }
}
