//! Outgoing events: published, shown, sent again.

use domain::{
    delivery::{Cause, Delivery, NewDelivery, State},
    id::{EndpointId, EventId},
    inbox::Noted,
    lane::{Kind, LaneId, Pointer},
    outbox::{OutboxEvent, Payload, Relayed},
    ports::{Deliveries as _, Fanout as _, Outbox as _},
};
use flow::payload::{Opened, open};
use serde_json::{Value, json};
use testkit::chaos::{Fault, When};

use crate::deployment::{Answer, Deployment, acme, at, now};

const PATH: &str = "/v1/events";

fn event() -> Value {
    json!({
        "tenant": "acme", "type": "invoice.paid", "aggregate_id": "in_1", "aggregate_version": 3,
        "payload": {"amount": 1},
    })
}

impl Deployment {
    async fn publish(&self, event: &Value, key: &str) -> Answer {
        self.post_with(PATH, event, &[("idempotency-key", key)]).await
    }

    fn published(&self) -> Vec<OutboxEvent> {
        self.0.outbox.tables().stream.clone()
    }

    /// An event that was relayed to one endpoint, and what became of it there.
    async fn delivered(&self, state: State) -> (EventId, EndpointId, LaneId) {
        let endpoint = json!({"url": "https://hooks.example.com/in/TOKEN"});
        let made = self.post("/v1/tenants/acme/endpoints", &endpoint).await.good(201);
        let endpoint: EndpointId = made["id"].as_str().unwrap().parse().unwrap();
        let made = self.post(PATH, &event()).await.good(202);
        let id: EventId = made["id"].as_str().unwrap().parse().unwrap();
        let relayed = Relayed { at: at(1), endpoints: vec![endpoint] };
        self.0.outbox.mark(&acme(), id, &relayed).await.unwrap();
        let lane = LaneId { tenant: acme(), endpoint, lane: 0 };
        let delivery = Delivery::new(id, "invoice.paid".to_owned(), at(99), at(5));
        let finished_at = (state != State::Pending).then_some(at(6));
        let delivery = Delivery { state, attempts: 2, finished_at, ..delivery };
        let put = NewDelivery { lane: lane.clone(), delivery };
        self.0.deliveries.put(&put).await.unwrap();
        self.0.deliveries.tables().pointers.clear();
        (id, endpoint, lane)
    }
}

fn redeliver(event: EventId, endpoint: EndpointId) -> String {
    format!("/v1/tenants/acme/events/{event}/endpoints/{endpoint}/redeliver")
}

#[tokio::test]
async fn a_published_event_stands_in_the_outbox_byte_for_byte() {
    let postern = Deployment::new();
    // Numbers, spaces and the order of names are the publisher's.
    let payload = r#"{ "n":9007199254740993, "b":1.0, "a":"\u00e9" }"#;
    let text = format!(
        r#"{{"tenant":"acme","type":"a.b","aggregate_id":"x","schema_version":2,"payload":{payload}}}"#
    );
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let request = http::Request::post(PATH)
        .header("content-type", "application/json; charset=utf-8")
        .header("traceparent", trace)
        .body(text.into())
        .unwrap();
    let answer = postern.send(request).await.good(202);
    let [published] = postern.published().try_into().unwrap();
    assert_eq!(answer, json!({"id": published.id, "repeated": false}));
    assert_eq!(published.payload, Payload::Inline(payload.as_bytes().to_vec()));
    assert_eq!((published.event_type.as_str(), published.schema_version), ("a.b", 2));
    assert_eq!((published.aggregate_id.as_str(), published.aggregate_version), ("x", None));
    assert_eq!(published.traceparent.as_deref(), Some(trace));
    assert_eq!((published.occurred_at, published.id.time()), (now(), now()));
}

#[tokio::test]
async fn a_trace_that_is_none_is_not_passed_on() {
    let postern = Deployment::new();
    postern.post_with(PATH, &event(), &[("traceparent", "00-x")]).await.good(202);
    assert_eq!(postern.published()[0].traceparent, None);
}

#[tokio::test]
async fn a_large_payload_goes_to_the_bucket_where_the_deliverer_finds_it() {
    let postern = Deployment::new();
    let mut large = event();
    large["payload"] = json!("x".repeat(20_000));
    postern.post(PATH, &large).await.good(202);
    let [published] = postern.published().try_into().unwrap();
    assert!(matches!(published.payload, Payload::Bucket(_)), "{:?}", published.payload);
    let opened = open(&published, &postern.0.bodies).await.unwrap();
    assert_eq!(opened, Opened::Bytes(large["payload"].to_string().into_bytes()));
    let stored: usize = postern.0.bodies.tables().bucket.values().map(Vec::len).sum();
    assert!(stored < 1000, "{stored} bytes, which is not compressed");
}

#[tokio::test]
async fn nothing_names_a_payload_that_could_not_be_put() {
    let postern = Deployment::new();
    postern.0.bodies.chaos.on("bodies.put", When::Before, Fault::Unavailable);
    let mut large = event();
    large["payload"] = json!("x".repeat(20_000));
    postern.post(PATH, &large).await.problem(503, "unavailable");
    assert!(postern.published().is_empty());
}

/// OUT-error-after-commit
#[tokio::test]
async fn a_repeated_publish_gives_the_first_event_also_when_its_answer_was_lost() {
    let postern = Deployment::new();
    postern.0.outbox.chaos.on("outbox.publish", When::After, Fault::Unavailable);
    let answer = postern.publish(&event(), "k1").await;
    assert!(answer.problem(503, "unavailable").contains("idempotency key"));
    assert_eq!(answer.header("retry-after"), "2");
    postern.0.outbox.chaos.heal();
    let [first] = postern.published().try_into().unwrap();
    for _ in 0..2 {
        let again = postern.publish(&event(), "k1").await.good(200);
        assert_eq!(again, json!({"id": first.id, "repeated": true}));
    }
    assert_eq!(postern.published().len(), 1);
}

#[tokio::test]
async fn a_key_is_for_one_event() {
    let postern = Deployment::new();
    postern.publish(&event(), "k1").await.good(202);
    for (field, value) in [
        ("payload", json!({"amount": 2})),
        ("type", json!("invoice.sent")),
        ("aggregate_id", json!("in_2")),
        ("aggregate_version", json!(4)),
        ("schema_version", json!(2)),
    ] {
        let mut other = event();
        other[field] = value;
        postern.publish(&other, "k1").await.problem(409, "key-reused");
    }
    let mut other = event();
    other["tenant"] = json!("other");
    postern.publish(&other, "k1").await.good(202);
    postern.publish(&event(), "k2").await.good(202);
    assert_eq!(postern.published().len(), 3);
}

#[tokio::test]
async fn without_a_key_a_repeated_publish_is_a_second_event() {
    let postern = Deployment::new();
    let first = postern.post(PATH, &event()).await.good(202);
    let second = postern.post(PATH, &event()).await.good(202);
    assert_ne!(first["id"], second["id"]);
}

#[tokio::test]
async fn everything_that_is_wrong_with_an_event_is_told_at_once() {
    let postern = Deployment::new();
    let wrong = json!({
        "tenant": "No Name", "type": "", "aggregate_id": "a\nb", "schema_version": 0, "payload": "x".repeat(40_000),
    });
    let answer = postern.publish(&wrong, &"k".repeat(257)).await;
    let detail = answer.problem(422, "invalid-request");
    let fields = ["Idempotency-Key", "tenant", "payload", "type", "schema_version", "aggregate_id"];
    assert_eq!(answer.fields(), fields);
    assert!(detail.contains("40002 bytes, and this deployment takes 40000"), "{detail}");
    assert!(!answer.text.contains("xxx"), "a payload stands in the answer");

    let mut unknown = event();
    unknown["event_type"] = json!("x");
    let detail = postern.post(PATH, &unknown).await.problem(422, "invalid-request");
    assert!(detail.contains("event_type: no such member; there are tenant, type, "), "{detail}");
    let little = postern.post(PATH, &json!({"tenant": "acme"})).await;
    assert_eq!(little.fields(), ["type", "aggregate_id", "payload"]);
    for key in ["", " "] {
        let answer = postern.publish(&event(), key).await;
        assert_eq!(answer.fields(), ["Idempotency-Key"]);
    }
    let twice = [("idempotency-key", "a"), ("idempotency-key", "b")];
    assert_eq!(postern.post_with(PATH, &event(), &twice).await.fields(), ["Idempotency-Key"]);
    assert!(postern.published().is_empty());
}

/// SEC-url-token
#[tokio::test]
async fn the_story_of_an_outgoing_event_shows_its_deliveries_and_no_token() {
    let postern = Deployment::new();
    let (id, endpoint, _) = postern.delivered(State::Pending).await;
    // Made later: it has no delivery of this event.
    let later = json!({"url": "https://example.com/"});
    postern.post("/v1/tenants/acme/endpoints", &later).await.good(201);
    let story = postern.get(&format!("/v1/tenants/acme/events/{id}")).await;
    assert!(!story.text.contains("TOKEN"), "{}", story.text);
    let expected = json!({
        "id": id, "tenant": "acme", "type": "invoice.paid", "aggregate_id": "in_1", "occurred_at": now(),
        "relayed_at": at(1), "unmatched": false,
        "deliveries": [{
            "endpoint": endpoint, "kind": "https", "url": "https://hooks.example.com/in/…",
            "state": "pending", "outcome_unknown": false, "attempts": 2, "next_attempt_at": at(5),
            "begun_at": null, "finished_at": null, "next_action": null, "log": [],
        }],
    });
    assert_eq!(story.good(200), expected);
}

/// C29: whoever reads the story sees that nobody knows, and what to do about it.
#[tokio::test]
async fn the_story_of_an_effect_says_what_nobody_knows_and_what_to_do() {
    let postern = Deployment::new();
    let (id, endpoint, lane) = postern.delivered(State::Pending).await;
    let path = format!("/v1/tenants/acme/events/{id}");
    let [before] = postern.0.deliveries.read(&lane, &[id]).await.unwrap().try_into().unwrap();
    let begun = before.begins("holder", at(6));
    assert_eq!(postern.0.deliveries.record(&lane, &before, &begun).await.unwrap(), Noted::Yes);
    let story = postern.get(&path).await.good(200);
    assert_eq!(story["deliveries"][0]["begun_at"], json!(at(6)));
    let parked = begun.given_up(Cause::Expired, at(7));
    assert_eq!(postern.0.deliveries.record(&lane, &begun, &parked).await.unwrap(), Noted::Yes);
    let story = postern.get(&path).await.good(200);
    let told = &story["deliveries"][0];
    assert_eq!((&told["state"], &told["outcome_unknown"]), (&json!("dead"), &json!(true)));
    assert_eq!(
        told["next_action"],
        format!(
            "ask the target whether it has done {id}. If it has, there is nothing to do; if it has not, \
             `postern events redeliver acme {id} {endpoint}`"
        )
    );
    // That person's redelivery takes the mark and the reason away.
    postern.ask(&redeliver(id, endpoint)).await.good(202);
    let story = postern.get(&path).await.good(200);
    let told = &story["deliveries"][0];
    assert_eq!((&told["state"], &told["outcome_unknown"]), (&json!("pending"), &json!(false)));
    assert_eq!((&told["begun_at"], &told["next_action"]), (&json!(null), &json!(null)));
}

#[tokio::test]
async fn an_event_that_nobody_wanted_says_so() {
    let postern = Deployment::new();
    let made = postern.post(PATH, &event()).await.good(202);
    let path = format!("/v1/tenants/acme/events/{}", made["id"].as_str().unwrap());
    assert_eq!(postern.get(&path).await.good(200)["unmatched"], false);
    let id = postern.published()[0].id;
    postern.0.outbox.mark(&acme(), id, &Relayed { at: at(1), endpoints: vec![] }).await.unwrap();
    let story = postern.get(&path).await.good(200);
    assert_eq!((&story["unmatched"], &story["deliveries"]), (&json!(true), &json!([])));
}

#[tokio::test]
async fn an_outgoing_event_of_another_tenant_is_not_found() {
    let postern = Deployment::new();
    let (id, endpoint, _) = postern.delivered(State::Dead).await;
    postern.get(&format!("/v1/tenants/other/events/{id}")).await.problem(404, "not-found");
    postern.get("/v1/tenants/acme/events/evt_1").await.problem(404, "not-found");
    let path = format!("/v1/tenants/other/events/{id}/endpoints/{endpoint}/redeliver");
    postern.ask(&path).await.problem(404, "not-found");
}

#[tokio::test]
async fn a_finished_delivery_is_made_due_again_and_its_lane_woken() {
    for state in [State::Dead, State::Cancelled] {
        let postern = Deployment::new();
        let (id, endpoint, lane) = postern.delivered(state).await;
        let answer = postern.ask(&redeliver(id, endpoint)).await;
        assert_eq!(answer.good(202), json!({"enqueued": true}));
        let delivery = postern.0.deliveries.read(&lane, &[id]).await.unwrap().remove(0);
        assert_eq!((delivery.state, delivery.due_at), (State::Pending, now()));
        assert_eq!((delivery.deadline, delivery.attempts), (at(1000), 2), "attempts never go back");
        let pointer = Pointer { kind: Kind::Retry, due_at: now(), event: id };
        let tables = postern.0.deliveries.tables();
        assert!(tables.pointers.contains(&(lane.clone(), pointer)));
        assert_eq!((tables.lanes[&lane].wakes, tables.lanes[&lane].wake_at), (1, Some(now())));
        let wake = postern.0.wakes.receive(|_| 0).unwrap().text;
        assert_eq!(wake, format!(r#"{{"v":1,"tenant":"acme","endpoint":"{endpoint}","lane":0}}"#));
    }
}

#[tokio::test]
async fn a_redelivery_without_a_message_is_the_sweepers() {
    let postern = Deployment::new();
    let (id, endpoint, lane) = postern.delivered(State::Dead).await;
    postern.0.wakes.chaos.on("queue.send", When::Before, Fault::Unavailable);
    let answer = postern.ask(&redeliver(id, endpoint)).await;
    assert_eq!(answer.good(202), json!({"enqueued": false}));
    assert_eq!(postern.0.deliveries.tables().lanes[&lane].wake_at, Some(now()));
}

/// RPL-in-flight
#[tokio::test]
async fn a_pending_delivery_is_not_sent_again() {
    let postern = Deployment::new();
    let (id, endpoint, _) = postern.delivered(State::Pending).await;
    postern.ask(&redeliver(id, endpoint)).await.problem(409, "pending");
    let all = format!("{}?include_delivered=true", redeliver(id, endpoint));
    postern.ask(&all).await.problem(409, "pending");
    let audit = postern.0.registry.tables().audit.clone();
    assert!(audit.iter().all(|entry| entry.action != "delivery.redeliver"));

    let postern = Deployment::new();
    let (id, endpoint, lane) = postern.delivered(State::Dead).await;
    let path = redeliver(id, endpoint);
    let (a, b) = tokio::join!(postern.ask(&path), postern.ask(&path));
    let mut statuses = [a.status.as_u16(), b.status.as_u16()];
    statuses.sort_unstable();
    assert_eq!(statuses, [202, 409]);
    assert_eq!(postern.0.deliveries.tables().lanes[&lane].wakes, 1);
}

/// RPL-already-delivered
#[tokio::test]
async fn what_an_endpoint_has_taken_is_sent_again_only_when_that_is_asked_for() {
    let postern = Deployment::new();
    let (id, endpoint, _) = postern.delivered(State::Succeeded).await;
    let path = redeliver(id, endpoint);
    let detail = postern.ask(&path).await.problem(409, "delivered");
    assert!(detail.contains("?include_delivered=true"), "{detail}");
    let detail = postern.ask(&format!("{path}?all=true")).await.problem(422, "invalid-request");
    assert!(detail.contains("unknown field `all`"), "{detail}");
    postern.ask(&format!("{path}?include_delivered=true")).await.good(202);
}

#[tokio::test]
async fn a_delivery_that_never_was_cannot_be_sent_again() {
    let postern = Deployment::new();
    let (id, endpoint, lane) = postern.delivered(State::Dead).await;
    postern.0.deliveries.tables().deliveries.remove(&(lane, id));
    let detail = postern.ask(&redeliver(id, endpoint)).await.problem(404, "not-found");
    assert!(detail.contains("did not match"), "{detail}");
    let nobody = EndpointId::new(uuid::Uuid::from_u128(77));
    postern.ask(&redeliver(id, nobody)).await.problem(404, "not-found");
}
