//! The delivery log.

use domain::{
    delivery::{Attempt, Cause, Outcome, State},
    id::EventId,
};
use serde_json::{Value, json};

use crate::deployment::{Deployment, acme, at};

fn event(second: i64) -> EventId {
    EventId::derived(at(second), &["x"])
}

fn ids(log: &Value) -> Vec<String> {
    let entries = log["deliveries"].as_array().unwrap();
    entries.iter().map(|entry| entry["event"].as_str().unwrap().to_owned()).collect()
}

/// G: what was sent and what became of it, the latest first, page by page.
#[tokio::test]
async fn deliveries_are_listed_the_latest_first_page_by_page() {
    let (postern, endpoint) = Deployment::with_endpoint().await;
    let path = format!("/v1/tenants/acme/endpoints/{endpoint}/deliveries");
    for n in 0..25 {
        postern.relayed(event(-1000 + n), endpoint, State::Succeeded).await;
    }
    let expected: Vec<_> = (0..25).rev().map(|n| event(-1000 + n).to_string()).collect();
    assert_eq!(ids(&postern.get(&path).await.good(200)), expected);
    let (mut seen, mut query) = (Vec::new(), "?limit=10".to_owned());
    loop {
        let page = postern.get(&format!("{path}{query}")).await.good(200);
        seen.extend(ids(&page));
        let Some(next) = page["next"].as_str() else { break };
        query = format!("?limit=10&cursor={next}");
    }
    assert_eq!(seen, expected);
    let range = format!("{path}?from={}&to={}", at(-990), at(-988));
    let range = ids(&postern.get(&range).await.good(200));
    assert_eq!(range, [event(-989).to_string(), event(-990).to_string()]);
}

/// Lambda takes 6 MB as an answer. What is larger comes on the next page, and nothing is left out.
#[tokio::test]
async fn a_page_is_no_larger_than_can_be_answered() {
    let (postern, endpoint) = Deployment::with_endpoint().await;
    let path = format!("/v1/tenants/acme/endpoints/{endpoint}/deliveries");
    let attempt = |number| Attempt {
        number,
        at: at(-9),
        duration_ms: 5,
        outcome: Outcome::Failed { cause: Cause::Dns },
        excerpt: "\"".repeat(4096),
    };
    let count = 40;
    for n in 0..count {
        let lane = postern.relayed(event(-1000 + n), endpoint, State::Dead).await;
        let key = (lane, event(-1000 + n));
        let log = (1..=30).map(attempt).collect();
        postern.0.deliveries.tables().deliveries.get_mut(&key).unwrap().log = log;
    }
    let (mut seen, mut query, mut pages) = (Vec::new(), "?limit=200".to_owned(), 0);
    loop {
        let page = postern.get(&format!("{path}{query}")).await.good(200);
        let answer = serde_json::to_string(&page.to_string()).unwrap();
        assert!(answer.len() < 6_291_556, "{} bytes", answer.len());
        seen.extend(ids(&page));
        pages += 1;
        let Some(next) = page["next"].as_str() else { break };
        query = format!("?limit=200&cursor={next}");
    }
    assert!(pages > 1 && seen.len() == usize::try_from(count).unwrap(), "{pages} pages");
    assert!(seen.is_sorted_by(|a, b| a > b), "{seen:?}");
}

#[tokio::test]
async fn a_log_is_narrowed_by_state_and_type() {
    let (postern, endpoint) = Deployment::with_endpoint().await;
    let path = format!("/v1/tenants/acme/endpoints/{endpoint}/deliveries");
    for (n, state) in [State::Dead, State::Pending, State::Succeeded].into_iter().enumerate() {
        postern.relayed(event(-1000 + i64::try_from(n).unwrap()), endpoint, state).await;
    }
    let of = async |query: &str| ids(&postern.get(&format!("{path}?{query}")).await.good(200));
    assert_eq!(of("state=dead").await, [event(-1000).to_string()]);
    assert_eq!(of("state=pending&type=invoice.*").await, [event(-999).to_string()]);
    assert!(of("type=charge.*").await.is_empty());
    for bad in ["state=lost", "type=", "cursor=x", "limit=0", "limit=201", "more=1"] {
        postern.get(&format!("{path}?{bad}")).await.problem(422, "invalid-request");
    }
    let backwards = format!("{path}?from={}&to={}", at(5), at(5));
    assert_eq!(postern.get(&backwards).await.fields(), ["from"]);
}

/// Each attempt says in plain words what happened, why that usually is, and what to do.
#[tokio::test]
async fn attempts_are_told_in_plain_words_also_of_an_endpoint_that_was_deleted() {
    let (postern, endpoint) = Deployment::with_endpoint().await;
    let lane = postern.relayed(event(-1000), endpoint, State::Dead).await;
    let outcome = Outcome::Failed { cause: Cause::Dns };
    let attempt =
        Attempt { number: 1, at: at(-9), duration_ms: 5, outcome, excerpt: String::new() };
    let key = (lane, event(-1000));
    postern.0.deliveries.tables().deliveries.get_mut(&key).unwrap().log = vec![attempt];
    let path = format!("/v1/tenants/acme/endpoints/{endpoint}");
    let log = postern.get(&format!("{path}/deliveries")).await.good(200);
    let told = &log["deliveries"][0]["log"][0];
    assert_eq!((&told["number"], &told["outcome"]["cause"]), (&json!(1), &json!("dns")));
    assert_eq!(told["words"]["what"], "The host name of the endpoint was not found.");
    assert!(told["words"]["why"].is_string() && told["words"]["next"].is_string());
    postern.delete(&path).await;
    assert!(!postern.0.registry.tables().endpoints.contains_key(&(acme(), endpoint)));
    assert_eq!(postern.get(&format!("{path}/deliveries")).await.good(200), log);
    let absent = "/v1/tenants/acme/endpoints/ep_00000000000000000000000000000001/deliveries";
    postern.get(absent).await.problem(404, "not-found");
}
