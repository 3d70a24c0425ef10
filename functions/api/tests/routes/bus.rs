//! Events of a bus, as Lambda hands them over, beside requests over HTTP.

use std::sync::Arc;

use api::{
    bus::{Carried, SOURCE},
    entry, router,
};
use domain::{
    id::TenantId,
    outbox::{OutboxEvent, Payload},
};
use lambda_http::{Context, Error, LambdaEvent};
use serde_json::{Value, json, value::to_raw_value};
use testkit::chaos::{Fault, When};

use crate::deployment::Deployment;

fn carried(detail: &Value) -> Value {
    json!({
        "version": "0", "id": "6f7a4d6c-0000-4000-8000-000000000001", "detail-type": "order",
        "source": SOURCE, "account": "123456789012", "time": "2026-09-21T14:13:20Z",
        "region": "eu-central-1", "resources": [], "detail": detail,
    })
}

fn event() -> Value {
    json!({"tenant": "acme", "type": "a.b", "aggregate_id": "a", "payload": {"n": 1}})
}

impl Deployment {
    /// What the function answers to what Lambda hands it.
    async fn called_with(&self, event: &Value) -> Result<Value, Error> {
        let event = LambdaEvent::new(to_raw_value(event).unwrap(), Context::default());
        let answer = entry::handle(&self.0, router(Arc::clone(&self.0)), event).await?;
        Ok(serde_json::from_str(answer.get()).unwrap())
    }

    fn outbox(&self) -> Vec<OutboxEvent> {
        self.0.outbox.tables().outbox.values().map(|row| row.event.clone()).collect()
    }
}

#[tokio::test]
async fn an_event_of_a_bus_is_published_once_however_often_it_comes() {
    let postern = Deployment::new();
    let first = postern.called_with(&carried(&event())).await.unwrap();
    let [stored] = postern.outbox().try_into().unwrap();
    assert_eq!(first, json!({"id": stored.id, "repeated": false}));
    assert_eq!(stored.payload, Payload::Inline(br#"{"n":1}"#.to_vec()));
    let again = postern.called_with(&carried(&event())).await.unwrap();
    assert_eq!(again, json!({"id": stored.id, "repeated": true}));
    let mut other = carried(&event());
    other["id"] = json!("6f7a4d6c-0000-4000-8000-000000000002");
    postern.called_with(&other).await.unwrap();
    assert_eq!(postern.outbox().len(), 2);
}

/// OUT-error-after-commit
#[tokio::test]
async fn an_event_of_a_bus_whose_answer_was_lost_is_published_once() {
    let postern = Deployment::new();
    for when in [When::Before, When::After] {
        postern.0.outbox.chaos.on("outbox.publish", when, Fault::Unavailable);
        postern.called_with(&carried(&event())).await.unwrap_err();
    }
    postern.0.outbox.chaos.heal();
    postern.called_with(&carried(&event())).await.unwrap();
    assert_eq!(postern.outbox().len(), 1);
}

#[tokio::test]
async fn a_key_of_the_publishers_own_counts_more_than_the_buss_id() {
    let postern = Deployment::new();
    let mut keyed = event();
    keyed["idempotency_key"] = json!("k");
    let over_http = postern.post("/v1/events", &keyed).await.good(202);
    let over_bus = postern.called_with(&carried(&keyed)).await.unwrap();
    assert_eq!(over_bus, json!({"id": over_http["id"], "repeated": true}));
}

/// SEC-secret-in-logs: the words of the error come to rest in a queue.
#[tokio::test]
async fn what_cannot_be_published_is_an_error_that_says_why_and_shows_nothing() {
    let postern = Deployment::new();
    let check = async |event: &Value, expected: &[&str]| {
        let error = postern.called_with(event).await.unwrap_err().to_string();
        for part in expected {
            assert!(error.contains(part), "{error}");
        }
        assert!(!error.contains("CANARY"), "{error}");
    };
    let bad = json!({"tenant": "CANARY !", "type": 1, "payload": "CANARY"});
    check(
        &carried(&bad),
        &["tenant: a tenant is", "type: it is a text", "aggregate_id: it is missing"],
    )
    .await;
    check(&carried(&json!("CANARY")), &["an event is a JSON object"]).await;
    let mut foreign = carried(&event());
    foreign["source"] = json!("postern.acme");
    check(&foreign, &["source: the rule lets through"]).await;
    let mut other = event();
    postern.called_with(&carried(&event())).await.unwrap();
    other["payload"] = json!("CANARY");
    check(&carried(&other), &["idempotency key was used for another event"]).await;
    assert_eq!(postern.outbox().len(), 1);
}

/// What the deliverer sends to a bus is of `postern.<tenant>`, and must never be taken for what is to be published.
#[test]
fn no_tenant_is_called_so_that_its_events_would_be_published_again() {
    let tenant = SOURCE.strip_prefix("postern.").unwrap_or("-");
    assert!(
        tenant.parse::<TenantId>().is_err(),
        "{SOURCE} is what tenant {tenant} sends to its bus"
    );
}

#[tokio::test]
async fn a_request_over_http_is_answered_as_one() {
    let postern = Deployment::new();
    let request = json!({
        "version": "2.0", "routeKey": "ANY /v1/{proxy+}", "rawPath": "/v1/events", "rawQueryString": "",
        "headers": {"content-type": "application/json", "idempotency-key": "k"},
        "requestContext": {
            "accountId": "123456789012", "apiId": "api", "domainName": "api.example.com",
            "domainPrefix": "api", "requestId": "1", "routeKey": "ANY /v1/{proxy+}", "stage": "$default",
            "time": "21/Sep/2026:13:33:20 +0000", "timeEpoch": 1_790_000_000_000_i64,
            "http": {
                "method": "POST", "path": "/v1/events", "protocol": "HTTP/1.1",
                "sourceIp": "192.0.2.1", "userAgent": "test",
            },
        },
        // It cannot pretend to be of a bus either: what it says of itself is in its body.
        "body": carried(&event()).to_string(), "isBase64Encoded": false,
    });
    let answer = postern.called_with(&request).await.unwrap();
    assert_eq!(answer["statusCode"], 422, "{answer}");
    let mut request = request;
    request["body"] = json!(event().to_string());
    let answer = postern.called_with(&request).await.unwrap();
    assert_eq!(answer["statusCode"], 202, "{answer}");
    let body: Value = serde_json::from_str(answer["body"].as_str().unwrap()).unwrap();
    assert_eq!(body["id"], json!(postern.outbox()[0].id));
}

#[test]
fn only_what_has_the_form_of_a_buss_event_is_one() {
    let is_one = |event: Value| Carried::read(&to_raw_value(&event).unwrap()).is_some();
    assert!(is_one(carried(&event())));
    for missing in ["id", "source", "detail-type", "detail"] {
        let mut less = carried(&event());
        less.as_object_mut().unwrap().remove(missing);
        assert!(!is_one(less), "{missing}");
    }
}
