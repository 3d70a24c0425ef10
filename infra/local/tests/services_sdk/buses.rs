//! EventBridge, over the SDK.

use aws_sdk_eventbridge::{
    error::ProvideErrorMetadata as _,
    types::{PutEventsRequestEntry, builders::PutEventsRequestEntryBuilder},
};
use local::services::{Kind, Rule, Service, When};
use serde_json::json;

use crate::{Host, client};

fn entry() -> PutEventsRequestEntryBuilder {
    PutEventsRequestEntry::builder()
        .source("postern.internal")
        .detail_type("invoice.paid")
        .detail(r#"{"n":1}"#)
        .resources("evt_1")
}

#[tokio::test]
async fn what_is_put_on_a_bus_can_be_asked_for() {
    let host = Host::in_memory().await;
    let client = client!(aws_sdk_eventbridge, host);
    let arn = client.create_event_bus().name("orders").send().await.unwrap();
    let arn = arn.event_bus_arn().unwrap().to_owned();
    assert_eq!(arn, "arn:aws:events:us-east-1:000000000000:event-bus/orders");
    let described = client.describe_event_bus().name(&arn).send().await.unwrap();
    assert_eq!((described.name(), described.arn()), (Some("orders"), Some(arn.as_str())));
    // By name, by ARN, and on the bus that every account has.
    for (bus, name) in
        [(Some("orders"), "orders"), (Some(arn.as_str()), "orders"), (None, "default")]
    {
        let entry = entry().set_event_bus_name(bus.map(str::to_owned)).build();
        let put = client.put_events().entries(entry).send().await.unwrap();
        assert_eq!(put.failed_entry_count(), 0);
        let event = host.services.buses.events().pop().unwrap();
        assert_eq!(Some(event.id.as_str()), put.entries()[0].event_id());
        assert_eq!((event.bus.as_str(), event.source.as_str()), (name, "postern.internal"));
        assert_eq!((event.detail, event.resources), (json!({"n": 1}), json!(["evt_1"])));
        assert_eq!(event.dropped, None);
    }
    assert_eq!(host.services.buses.events().len(), 3);
    host.services.buses.clear();
    assert!(host.services.buses.events().is_empty());
    let calls = host.services.recorder.calls();
    let put = |resource: &str| {
        calls.iter().any(|call| call.action == "events:PutEvents" && call.resource == resource)
    };
    assert!(put(&arn) && put(&arn.replace("orders", "default")), "{calls:?}");
}

/// As on AWS: an answer with an id is no promise.
#[tokio::test]
async fn a_bus_that_does_not_exist_takes_events_and_drops_them() {
    let host = Host::in_memory().await;
    let client = client!(aws_sdk_eventbridge, host);
    for (bus, detail_type) in [("nowhere", "a".to_owned()), ("default", "a".repeat(129))] {
        let entry = entry().event_bus_name(bus).detail_type(detail_type).build();
        let put = client.put_events().entries(entry).send().await.unwrap();
        assert!(put.failed_entry_count() == 0 && put.entries()[0].event_id().is_some());
        assert!(host.services.buses.events().pop().unwrap().dropped.is_some());
    }
    let error = client.describe_event_bus().name("nowhere").send().await.unwrap_err();
    assert!(error.into_service_error().is_resource_not_found_exception());
}

#[tokio::test]
async fn an_entry_fails_by_itself() {
    let host = Host::in_memory().await;
    let client = client!(aws_sdk_eventbridge, host);
    let put = client
        .put_events()
        .entries(entry().build())
        .entries(entry().detail("[1]").build())
        .entries(entry().detail("{").build())
        .entries(entry().source("aws.s3").build())
        .entries(PutEventsRequestEntry::builder().source("a").detail("{}").build())
        .send()
        .await
        .unwrap();
    let codes: Vec<_> = put.entries().iter().map(|entry| entry.error_code()).collect();
    let malformed = Some("MalformedDetail");
    let refused = Some("NotAuthorizedForSourceException");
    assert_eq!(codes, [None, malformed, malformed, refused, Some("InvalidArgument")]);
    assert_eq!((put.failed_entry_count(), host.services.buses.events().len()), (4, 1));
    host.services.faults.add(Rule {
        service: Service::EventBridge,
        action: "PutEvents".to_owned(),
        function: None,
        when: When::Before,
        error: Kind::Partial,
        skip: 0,
        times: 1,
        delay_ms: 0,
    });
    let put = client.put_events().entries(entry().build()).send().await.unwrap();
    assert_eq!(put.entries()[0].error_code(), Some("InternalFailure"));
    assert_eq!(host.services.buses.events().len(), 1);
}

#[tokio::test]
async fn a_request_that_is_too_large_or_empty_is_refused_whole() {
    let host = Host::in_memory().await;
    let client = client!(aws_sdk_eventbridge, host);
    let detail = |bytes: usize| format!(r#"{{"a":"{}"}}"#, "x".repeat(bytes - 8));
    let rest = "postern.internal".len() + "invoice.paid".len() + "evt_1".len();
    for (bytes, fits) in [(1_048_576 - rest, true), (1_048_577 - rest, false)] {
        let put = client.put_events().entries(entry().detail(detail(bytes)).build()).send().await;
        assert_eq!(put.is_ok(), fits, "{bytes}");
    }
    let error = client.put_events().set_entries(Some(vec![])).send().await.unwrap_err();
    assert_eq!(error.code(), Some("ValidationException"));
    assert_eq!(host.services.buses.events().len(), 1);
}

#[tokio::test]
async fn a_bus_that_was_made_survives_a_restart() {
    let state = tempfile::tempdir().unwrap();
    let host = Host::at(state.path(), false).await;
    let client = client!(aws_sdk_eventbridge, host);
    client.create_event_bus().name("orders").send().await.unwrap();
    let again = client.create_event_bus().name("orders").send().await.unwrap_err();
    assert!(again.into_service_error().is_resource_already_exists_exception());
    host.stop().await;
    let host = Host::at(state.path(), false).await;
    let client = client!(aws_sdk_eventbridge, host);
    client.describe_event_bus().name("orders").send().await.unwrap();
    let error = client.create_event_bus().name("a b").send().await.unwrap_err();
    assert_eq!(error.code(), Some("ValidationException"));
}
