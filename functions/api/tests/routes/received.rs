//! Received events: their story, what is parked, replay.

use domain::{
    body::{Place, Sha256Hash, StoredBody},
    event::Origin,
    id::{EventId, InboxKey, TenantId},
    inbox::{Applied, ChangeResult, Claim, Failure, NewRow, Noted, OtherBody, Status},
    outbox::{OutboxEvent, Payload},
    ports::{Finish, Inbox as _, Outbox as _},
};
use serde_json::{Value, json};
use testkit::chaos::{Fault, When};

use crate::deployment::{Deployment, acme, at, now, source};

fn key(event: &str) -> InboxKey {
    InboxKey::new("stripe".parse().unwrap(), event).unwrap()
}

impl Deployment {
    pub(crate) async fn receive(&self, event: &str) -> Claim {
        let row = NewRow {
            key: key(event),
            event_type: Some("invoice.paid".to_owned()),
            received_at: at(-10),
            due_at: at(110),
            body: StoredBody {
                sha256: Sha256Hash::of(b"{}"),
                length: 2,
                place: Place::Inline(vec![]),
            },
            headers: [("x".to_owned(), "y".to_owned())].into(),
            object: None,
            version: None,
            occurred_at: None,
            origin: Origin::Webhook,
            key_id: Some("2026".to_owned()),
            token: event.to_owned(),
            traceparent: None,
            delivery_id: None,
            parent: None,
        };
        self.0.inbox.accept(&row).await.unwrap();
        Claim { key: key(event), cycle: 0 }
    }

    pub(crate) async fn process(&self, event: &str, what: &str) {
        let claim = self.receive(event).await;
        let results = vec![ChangeResult::new(what, Applied::Applied)];
        let status = Status::Processed;
        let finish = Finish { status, results, reason: None, now: at(-9), expires_at: at(9) };
        assert_eq!(self.0.inbox.finish(&claim, &finish).await.unwrap(), Noted::Yes);
    }

    pub(crate) async fn park(&self, event: &str, seconds: i64) {
        let claim = self.receive(event).await;
        let failure = Failure::new("handler_failed", "no such thing");
        let _ = self.0.inbox.park(&claim, 12, &failure, at(seconds)).await.unwrap();
    }

    pub(crate) fn status(&self, event: &str) -> (Status, u32, u32) {
        let row = &self.0.inbox.tables().inbox[&key(event)].row;
        (row.status, row.cycle, row.attempts)
    }

    pub(crate) fn inbound(&self) -> Vec<String> {
        std::iter::from_fn(|| self.0.inbound.receive(|_| 0)).map(|message| message.text).collect()
    }
}

fn replay(event: &str) -> String {
    format!("/v1/sources/stripe/events/{event}/replay")
}

#[tokio::test]
async fn a_story_tells_what_came_of_an_event() {
    let postern = Deployment::new();
    postern.post("/v1/sources", &source("stripe")).await.good(201);
    let id = EventId::derived(now(), &["x"]);
    let event = OutboxEvent {
        id,
        tenant: acme(),
        event_type: "invoice.paid".to_owned(),
        schema_version: 1,
        aggregate_id: "in_1".to_owned(),
        aggregate_version: None,
        payload: Payload::Inline(b"{}".to_vec()),
        occurred_at: now(),
        traceparent: None,
        labels: std::collections::BTreeMap::new(),
    };
    postern.0.outbox.publish(&event, None).await.unwrap();
    postern.process("evt_1", &format!("event {id}")).await;

    let story = postern.get("/v1/sources/stripe/events/evt_1").await.good(200);
    assert_eq!(story["status"], "processed");
    assert_eq!((&story["source"], &story["event_id"]), (&json!("stripe"), &json!("evt_1")));
    assert_eq!(story["received_at"], json!(at(-10)));
    assert_eq!(story["finished_at"], json!(at(-9)));
    assert_eq!(story["results"], json!([{"what": format!("event {id}"), "result": "applied"}]));
    assert_eq!(story["key_id"], "2026");
    let outgoing = &story["outgoing"][0];
    assert_eq!((&outgoing["id"], &outgoing["type"]), (&json!(id), &json!("invoice.paid")));
    assert_eq!((&outgoing["relayed_at"], &outgoing["unmatched"]), (&Value::Null, &json!(false)));
}

/// C29: the effects of a written handler are ours, and seen in the story of the event that caused them.
#[tokio::test]
async fn a_story_tells_of_effects_for_our_own_systems() {
    let postern = Deployment::new();
    let mut new = source("stripe");
    new["handler"] = json!({"kind": "own", "name": "payments", "tenant": "acme"});
    postern.post("/v1/sources", &new).await.good(201);
    let id = EventId::derived(now(), &["x"]);
    let event = OutboxEvent {
        id,
        tenant: TenantId::internal(),
        event_type: "receipt.mail".to_owned(),
        schema_version: 1,
        aggregate_id: "ch_1".to_owned(),
        aggregate_version: None,
        payload: Payload::Inline(b"{}".to_vec()),
        occurred_at: now(),
        traceparent: None,
        labels: std::collections::BTreeMap::new(),
    };
    postern.0.outbox.publish(&event, None).await.unwrap();
    postern.process("evt_1", &format!("event {id}")).await;
    let story = postern.get("/v1/sources/stripe/events/evt_1").await.good(200);
    let outgoing = &story["outgoing"][0];
    assert_eq!(
        (&outgoing["type"], &outgoing["tenant"]),
        (&json!("receipt.mail"), &json!("internal"))
    );
}

/// ING-same-id-other-body: both hashes are there to compare.
#[tokio::test]
async fn a_story_tells_of_another_body_under_its_id() {
    let postern = Deployment::new();
    postern.receive("evt_1").await;
    let path = "/v1/sources/stripe/events/evt_1";
    assert_eq!(postern.get(path).await.good(200)["other_bodies"], Value::Null);
    for (body, seconds) in [(&b"[1]"[..], -5), (b"[1,2]", -3)] {
        let length = body.len() as u64;
        let other = OtherBody { sha256: Sha256Hash::of(body), length, at: at(seconds) };
        let noted = postern.0.inbox.note_other_body(&key("evt_1"), &other).await.unwrap();
        assert_eq!(noted, Noted::Yes);
    }
    let story = postern.get(path).await.good(200);
    assert_eq!(story["body_sha256"], json!(Sha256Hash::of(b"{}")));
    let expected = json!({
        "count": 2, "sha256": Sha256Hash::of(b"[1,2]"), "at": at(-3), "length": 5,
        "meaning": "another body came under this id; the first one stands",
    });
    assert_eq!(story["other_bodies"], expected);
    assert_eq!(story["status"], "pending");
}

#[tokio::test]
async fn an_event_whose_source_is_gone_still_has_a_story() {
    let postern = Deployment::new();
    postern.process("evt_1", "event nonsense").await;
    let story = postern.get("/v1/sources/stripe/events/evt_1").await.good(200);
    assert_eq!(story["outgoing"], json!([]));
}

#[tokio::test]
async fn an_event_that_is_not_there_has_neither_story_nor_replay() {
    let postern = Deployment::new();
    for path in ["/v1/sources/stripe/events/evt_1", "/v1/sources/A%20B/events/evt_1"] {
        postern.get(path).await.problem(404, "not-found");
        postern.ask(&format!("{path}/replay")).await.problem(404, "not-found");
    }
    assert!(postern.0.registry.tables().audit.is_empty());
}

#[tokio::test]
async fn an_event_with_a_strange_id_is_found_by_it() {
    let postern = Deployment::new();
    postern.receive("a/b#c ?").await;
    let story = postern.get("/v1/sources/stripe/events/a%2Fb%23c%20%3F").await.good(200);
    assert_eq!(story["status"], "pending");
}

#[tokio::test]
async fn a_processed_event_is_replayed_in_a_new_cycle_and_the_worker_told() {
    let postern = Deployment::new();
    postern.process("evt_1", "object invoice in_1").await;
    let answer = postern.ask(&replay("evt_1")).await;
    assert_eq!(answer.good(202), json!({"enqueued": true}));
    assert_eq!(postern.status("evt_1"), (Status::Pending, 1, 0));
    assert_eq!(postern.inbound(), [r#"{"v":1,"source":"stripe","event_id":"evt_1"}"#]);
    let tables = postern.0.inbox.tables();
    let item = &tables.inbox[&key("evt_1")];
    assert_eq!((item.row.due_at, item.expires_at), (Some(at(120)), None));
}

#[tokio::test]
async fn a_parked_event_is_replayed_with_all_its_attempts() {
    let postern = Deployment::new();
    postern.park("evt_1", 0).await;
    assert_eq!(postern.status("evt_1"), (Status::DeadLetter, 0, 12));
    postern.ask(&replay("evt_1")).await.good(202);
    assert_eq!(postern.status("evt_1"), (Status::Pending, 1, 0));
}

/// RPL-in-flight
#[tokio::test]
async fn a_pending_event_is_not_replayed() {
    let postern = Deployment::new();
    postern.receive("evt_1").await;
    postern.ask(&replay("evt_1")).await.problem(409, "pending");
    assert_eq!((postern.status("evt_1"), postern.inbound().len()), ((Status::Pending, 0, 0), 0));
    assert!(postern.0.registry.tables().audit.is_empty());
}

/// RPL-in-flight
#[tokio::test]
async fn of_two_replays_at_once_one_runs() {
    let postern = Deployment::new();
    postern.process("evt_1", "x").await;
    let path = replay("evt_1");
    let (a, b) = tokio::join!(postern.ask(&path), postern.ask(&path));
    let mut statuses = [a.status.as_u16(), b.status.as_u16()];
    statuses.sort_unstable();
    assert_eq!(statuses, [202, 409]);
    assert_eq!((postern.status("evt_1"), postern.inbound().len()), ((Status::Pending, 1, 0), 1));
}

#[tokio::test]
async fn a_replay_without_a_message_is_the_sweepers() {
    let postern = Deployment::new();
    postern.process("evt_1", "x").await;
    postern.0.inbound.chaos.on("queue.send", When::Before, Fault::Unavailable);
    assert_eq!(postern.ask(&replay("evt_1")).await.good(202), json!({"enqueued": false}));
    assert_eq!(postern.0.inbox.tables().inbox[&key("evt_1")].row.due_at, Some(at(120)));
}

/// OUT-error-after-commit
#[tokio::test]
async fn a_replay_whose_answer_is_lost_is_not_run_twice() {
    let postern = Deployment::new();
    postern.process("evt_1", "x").await;
    postern.0.inbox.chaos.on("inbox.replay", When::After, Fault::Unavailable);
    postern.ask(&replay("evt_1")).await.problem(503, "unavailable");
    postern.0.inbox.chaos.heal();
    postern.ask(&replay("evt_1")).await.problem(409, "pending");
    assert_eq!(postern.status("evt_1"), (Status::Pending, 1, 0));
}

#[tokio::test]
async fn parked_events_are_listed_the_latest_first() {
    let postern = Deployment::new();
    let none = json!({"parked": [], "more": false, "next": null});
    assert_eq!(postern.get("/v1/parked").await.good(200), none);
    for n in 0..20 {
        postern.park(&format!("evt_{n}"), i64::from((n * 7) % 20)).await;
    }
    postern.receive("evt_pending").await;
    let list = postern.get("/v1/parked").await.good(200);
    assert_eq!(list["more"], false);
    let parked = list["parked"].as_array().unwrap();
    let times: Vec<_> = parked.iter().map(|event| event["parked_at"].clone()).collect();
    assert_eq!(times, (0..20).rev().map(|n| json!(at(n))).collect::<Vec<_>>());
    let first = json!({
        "source": "stripe", "event_id": "evt_17", "event_type": "invoice.paid", "status": "dead_letter",
        "received_at": at(-10), "parked_at": at(19), "attempts": 12, "cycle": 0,
        "error": {"code": "handler_failed", "message": "no such thing"},
        "next_action": "a person mends the cause and replays it",
    });
    assert_eq!(parked[0], first);
}

#[tokio::test]
async fn a_long_list_of_parked_events_says_that_there_are_more() {
    let postern = Deployment::new();
    for n in 0..101 {
        postern.park(&format!("evt_{n}"), n).await;
    }
    let list = postern.get("/v1/parked").await.good(200);
    assert_eq!((list["parked"].as_array().unwrap().len(), &list["more"]), (100, &json!(true)));
}
