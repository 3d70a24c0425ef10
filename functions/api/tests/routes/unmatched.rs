//! Events that nobody wanted.

use domain::{
    id::{EndpointId, EventId},
    outbox::{OutboxEvent, Payload, Relayed},
    ports::Outbox as _,
};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::deployment::{Deployment, at};

const PATH: &str = "/v1/tenants/acme/events/unmatched";

/// An event of each second, of which every other one was relayed to nobody.
async fn deployment() -> (Deployment, Vec<Value>) {
    let postern = Deployment::new();
    let mut expected = Vec::new();
    for second in 0..10 {
        let event = OutboxEvent {
            id: EventId::derived(at(second), &["x"]),
            tenant: "acme".parse().unwrap(),
            event_type: "invoice.payd".to_owned(),
            schema_version: 1,
            aggregate_id: "in_1".to_owned(),
            aggregate_version: None,
            payload: Payload::Inline(b"{}".to_vec()),
            occurred_at: at(second),
            traceparent: None,
            labels: [("region".to_owned(), "eu".to_owned())].into(),
        };
        postern.0.outbox.publish(&event, None).await.unwrap();
        let endpoint = EndpointId::new(Uuid::from_u128(7));
        let endpoints = if second % 2 == 0 { Vec::new() } else { vec![endpoint] };
        let relayed = Relayed { at: at(20), endpoints };
        postern.0.outbox.mark(&event.tenant, event.id, &relayed).await.unwrap();
        if second % 2 == 0 {
            expected.insert(
                0,
                json!({
                    "event_id": event.id, "event_type": "invoice.payd", "labels": {"region": "eu"},
                    "occurred_at": at(second), "relayed_at": at(20),
                }),
            );
        }
    }
    (postern, expected)
}

#[tokio::test]
async fn events_that_nobody_wanted_are_listed_the_latest_first() {
    let (postern, expected) = deployment().await;
    assert_eq!(postern.get(PATH).await.good(200), json!({"unmatched": expected, "next": null}));
    let others = postern.get("/v1/tenants/other/events/unmatched").await.good(200);
    assert_eq!(others, json!({"unmatched": [], "next": null}));
}

#[tokio::test]
async fn a_list_that_is_not_at_its_end_says_how_to_go_on() {
    let (postern, expected) = deployment().await;
    let first = postern.get(&format!("{PATH}?limit=3")).await.good(200);
    assert_eq!(first["unmatched"], json!(expected[..3]));
    let next = first["next"].as_str().unwrap();
    let second = postern.get(&format!("{PATH}?limit=3&before={next}")).await.good(200);
    assert_eq!(second, json!({"unmatched": expected[3..], "next": null}));
}

#[tokio::test]
async fn a_question_that_makes_no_sense_is_told_all_that_is_wrong_with_it() {
    let postern = Deployment::new();
    let path = "/v1/tenants/A!/events/unmatched?before=yesterday&limit=51";
    let answer = postern.get(path).await;
    answer.problem(422, "invalid-request");
    assert_eq!(answer.fields(), ["tenant", "before", "limit"]);
    postern.get(&format!("{PATH}?whatever=1")).await.problem(422, "invalid-request");
}

/// A batch is published within a millisecond or two.
#[tokio::test]
async fn events_of_one_moment_are_not_lost_between_two_pages() {
    let postern = Deployment::new();
    for n in 0..100 {
        let event = OutboxEvent {
            id: EventId::derived(at(n / 40), &[&n.to_string()]),
            tenant: "acme".parse().unwrap(),
            event_type: "invoice.payd".to_owned(),
            schema_version: 1,
            aggregate_id: "in_1".to_owned(),
            aggregate_version: None,
            payload: Payload::Inline(b"{}".to_vec()),
            occurred_at: at(n / 40),
            traceparent: None,
            labels: std::collections::BTreeMap::new(),
        };
        postern.0.outbox.publish(&event, None).await.unwrap();
        let relayed = Relayed { at: at(20), endpoints: Vec::new() };
        postern.0.outbox.mark(&event.tenant, event.id, &relayed).await.unwrap();
    }
    let (mut seen, mut path) = (std::collections::BTreeSet::new(), PATH.to_owned());
    loop {
        let page = postern.get(&path).await.good(200);
        let events = page["unmatched"].as_array().unwrap();
        seen.extend(events.iter().map(|event| event["event_id"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        path = format!("{PATH}?before={next}");
    }
    assert_eq!(seen.len(), 100);
}
