//! Faults on request, seen from a client.

use std::time::Duration;

use aws_sdk_dynamodb::{error::ProvideErrorMetadata as _, types::AttributeValue};
use local::services::{Kind, QueueError, Rule, Service, When};

use crate::{Host, INBOX, QUEUE, QUEUE_URL, client};

fn rule(service: Service, action: &str, when: When, error: Kind) -> Rule {
    Rule {
        service,
        action: action.to_owned(),
        function: None,
        when,
        error,
        skip: 0,
        times: 1,
        delay_ms: 0,
    }
}

fn put(
    client: &aws_sdk_dynamodb::Client,
    pk: &str,
) -> aws_sdk_dynamodb::operation::put_item::builders::PutItemFluentBuilder {
    let s = |text: &str| AttributeValue::S(text.to_owned());
    client.put_item().table_name(INBOX).item("pk", s(pk)).item("sk", s("EVENT"))
}

#[tokio::test]
async fn a_fault_before_prevents_the_effect_and_one_after_only_loses_the_answer() {
    let host = Host::in_memory().await;
    let client = client!(aws_sdk_dynamodb, host);
    let items = async || client.scan().table_name(INBOX).send().await.unwrap().count();
    for (when, expected) in [(When::Before, 0), (When::After, 1)] {
        host.services.faults.add(rule(Service::DynamoDb, "PutItem", when, Kind::Internal));
        let failed = put(&client, "a").send().await.unwrap_err();
        assert_eq!(failed.code(), Some("InternalServerError"));
        assert_eq!(items().await, expected, "{when:?}");
    }
    put(&client, "b").send().await.unwrap();
}

/// Who waits until no fault is left, and then looks, must find the effect.
#[tokio::test]
async fn a_fault_after_an_effect_is_left_until_the_effect_has_happened() {
    let host = Host::in_memory().await;
    let (queues, faults) = (host.services.queues.acting_for("worker"), &host.services.faults);
    faults.add(rule(Service::Sqs, "ReceiveMessage", When::After, Kind::Drop));
    let (received, ()) = tokio::join!(queues.receive(QUEUE, 1, Duration::from_secs(20)), async {
        assert_eq!(faults.rules().len(), 1, "nothing is received yet");
        host.services.queues.send(QUEUE, "a").await.unwrap();
    });
    assert!(matches!(received, Err(QueueError::Injected)), "{received:?}");
    assert!(faults.rules().is_empty());
    assert!(queues.receive(QUEUE, 1, Duration::ZERO).await.unwrap().is_empty(), "it is in flight");
}

#[tokio::test]
async fn a_dropped_connection_gives_no_answer_at_all() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let host = Host::in_memory().await;
    host.services.faults.add(rule(Service::Sqs, "ListQueues", When::After, Kind::Drop));
    let mut socket = tokio::net::TcpStream::connect(host.address).await.unwrap();
    let request = "POST / HTTP/1.1\r\nhost: x\r\nx-amz-target: AmazonSQS.ListQueues\r\ncontent-length: 2\r\n\r\n{}";
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(20), socket.read_to_end(&mut answer))
        .await
        .unwrap();
    assert!(answer.is_empty(), "{read:?} {}", String::from_utf8_lossy(&answer));
}

#[tokio::test]
async fn the_sdk_retries_what_it_retries_on_aws() {
    let host = Host::in_memory().await;
    let client = client!(aws_sdk_dynamodb, host, 3);
    for error in [Kind::Throttle, Kind::Internal, Kind::Drop] {
        host.services.faults.add(rule(Service::DynamoDb, "PutItem", When::Before, error));
        put(&client, "a").send().await.unwrap_or_else(|failed| panic!("{error:?}: {failed:?}"));
        assert!(host.services.faults.rules().is_empty());
    }
    host.services.faults.add(rule(Service::DynamoDb, "*", When::Before, Kind::AccessDenied));
    assert_eq!(put(&client, "a").send().await.unwrap_err().code(), Some("AccessDeniedException"));
    host.services.faults.add(rule(Service::DynamoDb, "PutItem", When::Before, Kind::Conflict));
    assert_eq!(
        put(&client, "a").send().await.unwrap_err().code(),
        Some("TransactionConflictException")
    );
}

#[tokio::test]
async fn a_queue_can_duplicate_reorder_hold_and_forget() {
    let host = Host::in_memory().await;
    let queues = host.services.queues.acting_for("worker");
    let receive = async || queues.receive(QUEUE, 10, Duration::ZERO).await.unwrap();
    let drain = async || {
        for message in receive().await {
            queues.delete(QUEUE, &message.receipt).await.unwrap();
        }
    };
    let add = |action: &str, error: Kind, delay_ms: u64| {
        let rule = rule(Service::Sqs, action, When::Before, error);
        host.services.faults.add(Rule { function: Some("worker".to_owned()), delay_ms, ..rule });
    };
    add("SendMessage", Kind::Duplicate, 0);
    let id = queues.send(QUEUE, "twice").await.unwrap();
    let both = receive().await;
    assert_eq!(both.iter().map(|message| message.id.clone()).collect::<Vec<_>>(), [id.clone(), id]);
    for message in both {
        queues.delete(QUEUE, &message.receipt).await.unwrap();
    }

    queues.send(QUEUE, "again").await.unwrap();
    add("ReceiveMessage", Kind::Duplicate, 0);
    assert_eq!(receive().await.len(), 1);
    assert_eq!(receive().await.len(), 1, "visible again at once");
    host.clock.advance(Duration::from_secs(31));
    drain().await;

    for body in ["1", "2", "3"] {
        queues.send(QUEUE, body).await.unwrap();
    }
    add("ReceiveMessage", Kind::Reorder, 0);
    let reordered = receive().await;
    assert_eq!(
        reordered.iter().map(|message| message.body.as_str()).collect::<Vec<_>>(),
        ["3", "2", "1"]
    );
    for message in reordered {
        queues.delete(QUEUE, &message.receipt).await.unwrap();
    }

    add("SendMessage", Kind::Hold, 5_000);
    queues.send(QUEUE, "late").await.unwrap();
    assert!(receive().await.is_empty());
    host.clock.advance(Duration::from_secs(5));
    let late = receive().await.remove(0);
    add("DeleteMessage", Kind::Lost, 0);
    queues.delete(QUEUE, &late.receipt).await.unwrap();
    host.clock.advance(Duration::from_secs(31));
    assert_eq!(receive().await[0].body, "late", "the acknowledgement was lost");
}

#[tokio::test]
async fn a_lost_send_answer_leaves_the_message_and_a_partial_batch_its_first_entry_out() {
    let host = Host::in_memory().await;
    let client = client!(aws_sdk_sqs, host);
    host.services.faults.add(rule(Service::Sqs, "SendMessage", When::After, Kind::Drop));
    assert!(client.send_message().queue_url(QUEUE_URL).message_body("x").send().await.is_err());
    assert_eq!(host.services.queues.counts(QUEUE).unwrap().visible, 1);
    host.services.faults.add(rule(Service::Sqs, "SendMessageBatch", When::Before, Kind::Partial));
    let entry = |id: &str| {
        aws_sdk_sqs::types::SendMessageBatchRequestEntry::builder()
            .id(id)
            .message_body("x")
            .build()
            .unwrap()
    };
    let sent = client
        .send_message_batch()
        .queue_url(QUEUE_URL)
        .entries(entry("a"))
        .entries(entry("b"))
        .send()
        .await
        .unwrap();
    assert_eq!(
        (sent.failed()[0].id(), sent.failed()[0].sender_fault(), sent.successful()[0].id()),
        ("a", false, "b")
    );
}

#[tokio::test]
async fn a_fault_reaches_the_event_source_that_acts_for_the_function() {
    let host = Host::in_memory().await;
    let queues = &host.services.queues;
    queues.send(QUEUE, "x").await.unwrap();
    let add = |when: When| {
        let rule = rule(Service::Sqs, "ReceiveMessage", when, Kind::Throttle);
        host.services.faults.add(Rule { function: Some("worker".to_owned()), ..rule });
    };
    add(When::Before);
    assert_eq!(
        queues.acting_for("deliverer").receive(QUEUE, 1, Duration::ZERO).await.unwrap().len(),
        1
    );
    let failed = queues.acting_for("worker").receive(QUEUE, 1, Duration::ZERO).await;
    assert!(matches!(failed, Err(QueueError::Injected)));
}

#[tokio::test]
async fn a_delay_holds_the_call_back() {
    let host = Host::in_memory().await;
    let queues = host.services.queues.acting_for("worker");
    let rule = rule(Service::Sqs, "SendMessage", When::Before, Kind::Delay);
    host.services.faults.add(Rule { delay_ms: 30, ..rule });
    let start = tokio::time::Instant::now();
    queues.send(QUEUE, "x").await.unwrap();
    assert!(start.elapsed().as_millis() >= 30);
}
