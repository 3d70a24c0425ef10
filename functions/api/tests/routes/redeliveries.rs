//! Redeliveries of many: started, surveyed, shown, halted; and of one.

use domain::{
    delivery::{Delivery, State},
    endpoint::{Disabled, Health},
    id::{EndpointId, EventId},
    lane::LaneId,
    ports::{Outbox as _, Redeliveries as _},
    redelivery::MAX_OPEN,
};
use serde_json::{Value, json};
use testkit::chaos::{Fault, When};

use crate::deployment::{Deployment, acme, at, now};

const PATH: &str = "/v1/tenants/acme/redeliveries";

fn event(second: i64, n: usize) -> EventId {
    EventId::derived(at(second), &[&n.to_string()])
}

impl Deployment {
    /// An endpoint that takes everything.
    pub(crate) async fn with_endpoint() -> (Self, EndpointId) {
        let postern = Self::new();
        let endpoint = json!({"url": "https://hooks.example.com/in/TOKEN"});
        let made = postern.post("/v1/tenants/acme/endpoints", &endpoint).await.good(201);
        postern.0.registry.tables().audit.clear();
        (postern, made["id"].as_str().unwrap().parse().unwrap())
    }

    /// An event of a while ago that was relayed to an endpoint, and what became of it there.
    pub(crate) async fn relayed(&self, id: EventId, to: EndpointId, state: State) -> LaneId {
        let event = domain::outbox::OutboxEvent {
            id,
            tenant: acme(),
            event_type: "invoice.paid".to_owned(),
            schema_version: 1,
            aggregate_id: "in_1".to_owned(),
            aggregate_version: None,
            payload: domain::outbox::Payload::Inline(b"{\"amount\":1}".to_vec()),
            occurred_at: id.time(),
            traceparent: None,
            labels: std::collections::BTreeMap::new(),
        };
        self.0.outbox.publish(&event, None).await.unwrap();
        let relayed = domain::outbox::Relayed { at: id.time(), endpoints: vec![to] };
        self.0.outbox.mark(&acme(), id, &relayed).await.unwrap();
        let lane = LaneId { tenant: acme(), endpoint: to, lane: 0 };
        let new = Delivery::new(id, event.event_type, at(500), id.time());
        let finished_at = (state != State::Pending).then(|| at(-10));
        let delivery = Delivery { state, attempts: 2, finished_at, ..new };
        self.0.deliveries.tables().deliveries.insert((lane.clone(), id), delivery);
        lane
    }

    fn of_state(&self, state: State) -> usize {
        let tables = self.0.deliveries.tables();
        tables.deliveries.values().filter(|delivery| delivery.state == state).count()
    }

    fn disable(&self, endpoint: EndpointId) {
        let disabled = Disabled { since: at(-9), reason: "gone".to_owned() };
        let health = Health { disabled: Some(disabled), ..Health::default() };
        self.0.deliveries.tables().health.insert((acme(), endpoint), health);
    }
}

fn start(endpoint: EndpointId, select: &Value) -> Value {
    json!({"endpoint": endpoint, "select": select, "reason": "the receiver is mended"})
}

/// RPL-already-delivered: counts in a dry run equal effects.
#[tokio::test]
async fn what_was_given_up_is_surveyed_and_then_sent_again() {
    let (postern, endpoint) = Deployment::with_endpoint().await;
    for n in 0..30 {
        let state = if n < 20 { State::Dead } else { State::Succeeded };
        postern.relayed(event(-1000, n), endpoint, state).await;
    }
    let dry = json!({"endpoint": endpoint, "dry_run": true});
    let survey = postern.post(PATH, &dry).await.good(200);
    assert_eq!((&survey["counts"]["redelivered"], &survey["more"]), (&json!(20), &json!(false)));
    assert_eq!(survey["counts"]["already_delivered"], 10);
    assert_eq!(survey["by_state"], json!({"dead": 20}));
    assert_eq!(survey["by_endpoint"], json!({endpoint.to_string(): 20}));
    assert!(postern.0.registry.tables().audit.is_empty());
    assert_eq!(postern.of_state(State::Dead), 20);

    let work = postern.post(PATH, &start(endpoint, &json!({}))).await.good(202);
    assert_eq!((&work["state"], &work["counts"]), (&json!("completed"), &survey["counts"]));
    assert_eq!((postern.of_state(State::Dead), postern.of_state(State::Pending)), (0, 20));
    let id = work["id"].as_str().unwrap();
    assert_eq!(postern.get(&format!("{PATH}/{id}")).await.good(200), work);
    let list = postern.get(PATH).await.good(200);
    assert_eq!((&list["redeliveries"][0]["id"], &list["more"]), (&json!(id), &json!(false)));
    let entry = postern.0.registry.tables().audit[0].clone();
    assert_eq!((entry.action.as_str(), entry.tenant.as_str()), ("redelivery.start", "acme"));
    let expected =
        format!("{id} to {endpoint}: {{}}, 10 per second; reason: the receiver is mended");
    assert_eq!(entry.subject, expected);
    // Another tenant sees nothing of it.
    let other = format!("/v1/tenants/other/redeliveries/{id}");
    postern.get(&other).await.problem(404, "not-found");
    let lists = postern.get("/v1/tenants/other/redeliveries").await.good(200);
    assert_eq!(lists["redeliveries"], json!([]));
}

#[tokio::test]
async fn it_is_written_down_before_it_is_done() {
    let (postern, endpoint) = Deployment::with_endpoint().await;
    postern.relayed(event(-1000, 0), endpoint, State::Dead).await;
    postern.0.registry.chaos.on("configure.audit", When::Before, Fault::Unavailable);
    postern.post(PATH, &start(endpoint, &json!({}))).await.problem(503, "unavailable");
    postern.0.registry.chaos.heal();
    assert_eq!(postern.of_state(State::Dead), 1);
    assert!(postern.0.registry.tables().redeliveries.is_empty());
}

/// RPL-already-delivered: a double submit with the same key runs once.
#[tokio::test]
async fn a_repeated_call_finds_the_work_of_the_first() {
    let (postern, endpoint) = Deployment::with_endpoint().await;
    postern.relayed(event(-1000, 0), endpoint, State::Dead).await;
    let key = [("idempotency-key", "mended")];
    let first = postern.post_with(PATH, &start(endpoint, &json!({})), &key).await.good(202);
    let second = postern.post_with(PATH, &start(endpoint, &json!({})), &key).await.good(200);
    assert_eq!((&second["id"], &second["repeated"]), (&first["id"], &json!(true)));
    let other = start(endpoint, &json!({"include_delivered": true}));
    postern.post_with(PATH, &other, &key).await.problem(409, "key-reused");
    // Of another tenant it is another work.
    let all = json!({"reason": "x"});
    let elsewhere = postern.post_with("/v1/tenants/other/redeliveries", &all, &key).await.good(202);
    assert_ne!(elsewhere["id"], first["id"]);
}

/// DLV-discarded-retry-stuck: refused with the reason, one or many; after enabling the same works.
#[tokio::test]
async fn nothing_is_made_due_again_at_a_stopped_endpoint() {
    let (postern, endpoint) = Deployment::with_endpoint().await;
    for n in 0..3 {
        postern.relayed(event(-1000, n), endpoint, State::Dead).await;
    }
    postern.disable(endpoint);
    let id = event(-1000, 0);
    let one = format!("/v1/tenants/acme/events/{id}/endpoints/{endpoint}/redeliver");
    for detail in [
        postern.post(PATH, &start(endpoint, &json!({}))).await.problem(409, "endpoint-stopped"),
        postern.ask(&one).await.problem(409, "endpoint-stopped"),
    ] {
        let next = format!("`postern endpoints enable acme {endpoint}`");
        assert!(detail.contains("410 Gone") && detail.contains(&next), "{detail}");
    }
    // Without a name, what is of it is left, and told.
    let all = postern.post(PATH, &json!({"reason": "x"})).await.good(202);
    assert_eq!((&all["counts"]["stopped"], &all["counts"]["redelivered"]), (&json!(3), &json!(0)));
    assert_eq!(all["told"][0]["outcome"], "stopped");
    assert_eq!(postern.of_state(State::Dead), 3);
    let path = format!("/v1/tenants/acme/endpoints/{endpoint}/enable");
    postern.post(&path, &json!({})).await.good(200);
    let work = postern.post(PATH, &start(endpoint, &json!({}))).await.good(202);
    assert_eq!(work["counts"]["redelivered"], 3);
    let tables = postern.0.deliveries.tables();
    assert_eq!(tables.pointers.len(), 3);
}

#[tokio::test]
async fn bad_requests_hear_of_everything() {
    let (postern, endpoint) = Deployment::with_endpoint().await;
    let bad = json!({
        "select": {"missing": true, "include_delivered": true, "events": [event(1, 1)]},
        "rate": 0, "reason": "\u{7}",
    });
    let answer = postern.post(PATH, &bad).await;
    answer.problem(422, "invalid-request");
    assert_eq!(answer.fields(), ["select.missing", "select.include_delivered", "rate", "reason"]);
    let silent = json!({"endpoint": endpoint});
    let answer = postern.post(PATH, &silent).await;
    assert_eq!(answer.fields(), ["reason"]);
    for endpoint in ["ep_1", "ep_00000000000000000000000000000001"] {
        let absent = json!({"endpoint": endpoint, "dry_run": true});
        postern.post(PATH, &absent).await.problem(404, "not-found");
    }
}

#[tokio::test]
async fn a_work_is_paused_let_go_on_and_cancelled_and_what_is_over_stays() {
    let (postern, endpoint) = Deployment::with_endpoint().await;
    for n in 0..300 {
        postern.relayed(event(-1000, n), endpoint, State::Dead).await;
    }
    let work = postern.post(PATH, &start(endpoint, &json!({}))).await.good(202);
    // Ten a second, a minute ahead at most, and a page at a time: the rest is the sweeper's.
    assert_eq!(work["state"], "running");
    let path = |what: &str| format!("{PATH}/{}/{what}", work["id"].as_str().unwrap());
    let paused = postern.ask(&path("pause")).await.good(200);
    assert_eq!((&paused["state"], &paused["paused_by"]), (&json!("paused"), &json!("unknown")));
    assert_eq!(postern.ask(&path("pause")).await.good(200)["repeated"], true);
    assert_eq!(postern.ask(&path("resume")).await.good(200)["state"], "running");
    assert_eq!(postern.ask(&path("cancel")).await.good(200)["state"], "cancelled");
    for what in ["cancel", "pause", "resume"] {
        postern.ask(&path(what)).await.problem(409, "over");
    }
    assert!(postern.0.registry.tables().open_redeliveries.is_empty());
    let audit = postern.0.registry.tables().audit.clone();
    let actions: Vec<_> = audit.iter().map(|entry| entry.action.as_str()).collect();
    let [pause, resume, cancel] = ["redelivery.pause", "redelivery.resume", "redelivery.cancel"];
    assert_eq!(actions, ["redelivery.start", pause, pause, resume, cancel]);
    let absent = format!("{PATH}/rdl_00000000000000000000000000000001/cancel");
    postern.ask(&absent).await.problem(404, "not-found");
}

#[tokio::test]
async fn no_more_works_than_that_are_under_way() {
    let (postern, endpoint) = Deployment::with_endpoint().await;
    for n in 0..700 {
        postern.relayed(event(-1000, n), endpoint, State::Dead).await;
    }
    for _ in 0..MAX_OPEN {
        let slow = json!({"endpoint": endpoint, "rate": 1, "reason": "x"});
        postern.post(PATH, &slow).await.good(202);
    }
    let one_more = start(endpoint, &json!({}));
    postern.post(PATH, &one_more).await.problem(409, "too-many-redeliveries");
    assert_eq!(postern.0.registry.open_redeliveries().await.unwrap().len(), MAX_OPEN);
}

/// H11: what never came to an endpoint, from before it was made.
#[tokio::test]
async fn events_of_before_an_endpoint_are_sent_to_it() {
    let (postern, first) = Deployment::with_endpoint().await;
    for n in 0..5 {
        postern.relayed(event(-1000, n), first, State::Succeeded).await;
    }
    let second = json!({"url": "https://new.example.com/"});
    let made = postern.post("/v1/tenants/acme/endpoints", &second).await.good(201);
    let select = json!({"missing": true, "from": at(-2000)});
    let order = json!({"endpoint": made["id"], "select": select, "reason": "a new receiver"});
    let work = postern.post(PATH, &order).await.good(202);
    assert_eq!(work["counts"]["redelivered"], 5);
    assert_eq!((postern.of_state(State::Pending), postern.of_state(State::Succeeded)), (5, 5));
}

/// RPL-health-and-secret, H11: one by hand keeps its event and says so; the endpoint's health is not touched by it.
#[tokio::test]
async fn one_redelivered_by_hand_is_marked_and_tried_for_as_long_as_was_asked() {
    for (query, seconds) in [("", 1000), ("?once=true", 0)] {
        let (postern, endpoint) = Deployment::with_endpoint().await;
        let id = event(-1000, 0);
        let lane = postern.relayed(id, endpoint, State::Dead).await;
        let one = format!("/v1/tenants/acme/events/{id}/endpoints/{endpoint}/redeliver{query}");
        postern.ask(&one).await.good(202);
        let delivery = postern.0.deliveries.tables().deliveries[&(lane, id)].clone();
        assert_eq!((delivery.state, delivery.attempts), (State::Pending, 2));
        assert_eq!((delivery.asked_at, delivery.deadline), (Some(now()), at(seconds)));
        let story = postern.get(&format!("/v1/tenants/acme/events/{id}")).await.good(200);
        let mark = &story["deliveries"][0]["redelivered"];
        assert_eq!((&mark["after"], &mark["from"]), (&json!(2), &json!("dead")));
        postern.ask(&one).await.problem(409, "pending");
    }
}

/// RPL-already-delivered: replay of an item past its retention.
#[tokio::test]
async fn one_past_its_retention_is_refused_with_that() {
    let (postern, endpoint) = Deployment::with_endpoint().await;
    let id = event(-1000, 0);
    postern.relayed(id, endpoint, State::Dead).await;
    postern.0.outbox.tables().outbox_expiry.insert((acme(), id), at(-1));
    let one = format!("/v1/tenants/acme/events/{id}/endpoints/{endpoint}/redeliver");
    let detail = postern.ask(&one).await.problem(409, "expired");
    assert!(detail.contains("past its retention"), "{detail}");
    assert_eq!(postern.of_state(State::Dead), 1);
}
