//! SQS, over the SDK and through the handle of the event sources.

use std::time::Duration;

use aws_sdk_sqs::{
    error::ProvideErrorMetadata as _,
    operation::{
        change_message_visibility::ChangeMessageVisibilityError,
        delete_message::DeleteMessageError, get_queue_url::GetQueueUrlError,
        send_message_batch::SendMessageBatchError,
    },
    types::{
        DeleteMessageBatchRequestEntry, MessageAttributeValue, MessageSystemAttributeName,
        QueueAttributeName, SendMessageBatchRequestEntry,
    },
};
use local::services::{Counts, QueueError};

use crate::{DEAD, DEAD_URL, Host, OTHER_URL, QUEUE, QUEUE_URL, client};

const NO_WAIT: Duration = Duration::ZERO;

fn counts(visible: u64, in_flight: u64, delayed: u64) -> Counts {
    Counts { visible, in_flight, delayed }
}

#[tokio::test]
async fn a_message_comes_with_its_attributes_and_goes_when_deleted() {
    let host = Host::in_memory().await;
    let client = client!(aws_sdk_sqs, host);
    let attribute = MessageAttributeValue::builder()
        .data_type("String")
        .string_value("00-1-2-01")
        .build()
        .unwrap();
    let send = client
        .send_message()
        .queue_url(QUEUE_URL)
        .message_body("{\"v\":1}")
        .message_group_id("stripe-demo");
    let sent = send.message_attributes("traceparent", attribute).send().await.unwrap();
    assert_eq!(sent.md5_of_message_body(), Some("a191475ae2bf7db9c7e320f7da455bbb"));
    let receive = client.receive_message().queue_url(QUEUE_URL).message_attribute_names("All");
    let received = receive
        .message_system_attribute_names(MessageSystemAttributeName::All)
        .send()
        .await
        .unwrap();
    let [message] = received.messages() else { panic!() };
    assert_eq!(message.message_id(), sent.message_id());
    assert_eq!(message.body(), Some("{\"v\":1}"));
    assert_eq!(message.md5_of_message_attributes(), sent.md5_of_message_attributes());
    let system = message.attributes().unwrap();
    assert_eq!(system[&MessageSystemAttributeName::ApproximateReceiveCount], "1");
    assert_eq!(system[&MessageSystemAttributeName::SentTimestamp], "1700000000000");
    assert_eq!(system[&MessageSystemAttributeName::MessageGroupId], "stripe-demo");
    assert_eq!(
        message.message_attributes().unwrap()["traceparent"].string_value(),
        Some("00-1-2-01")
    );
    assert!(
        client.receive_message().queue_url(QUEUE_URL).send().await.unwrap().messages().is_empty()
    );
    client
        .delete_message()
        .queue_url(QUEUE_URL)
        .receipt_handle(message.receipt_handle().unwrap())
        .send()
        .await
        .unwrap();
    host.clock.advance(Duration::from_secs(31));
    assert!(
        client.receive_message().queue_url(QUEUE_URL).send().await.unwrap().messages().is_empty()
    );
}

/// LOC-emulator-drift: a message that nobody deletes comes again, and after maxReceiveCount receives it moves.
#[tokio::test]
async fn a_message_that_fails_too_often_moves_to_the_dead_letters_on_the_next_receive() {
    let host = Host::in_memory().await;
    let queues = &host.services.queues;
    let id = queues.send(QUEUE, "poison").await.unwrap();
    for count in ["1", "2"] {
        let messages = queues.receive(QUEUE, 10, NO_WAIT).await.unwrap();
        assert_eq!(messages[0].attributes["ApproximateReceiveCount"], count);
        host.clock.advance(Duration::from_secs(31));
    }
    assert_eq!(queues.counts(DEAD).unwrap(), counts(0, 0, 0), "not before somebody looks");
    assert!(queues.receive(QUEUE, 10, NO_WAIT).await.unwrap().is_empty());
    assert_eq!(queues.counts(QUEUE).unwrap(), counts(0, 0, 0));
    let dead = queues.receive(DEAD, 10, NO_WAIT).await.unwrap();
    assert_eq!((dead[0].id.as_str(), dead[0].body.as_str()), (id.as_str(), "poison"));
    assert_eq!(dead[0].attributes["DeadLetterQueueSourceArn"], QUEUE);
    assert_eq!(dead[0].attributes["SentTimestamp"], "1700000000000", "its age goes on");
}

#[tokio::test]
async fn visibility_delay_and_retention_go_by_the_clock() {
    let host = Host::in_memory().await;
    let client = client!(aws_sdk_sqs, host);
    let queues = &host.services.queues;
    client
        .send_message()
        .queue_url(QUEUE_URL)
        .message_body("later")
        .delay_seconds(10)
        .send()
        .await
        .unwrap();
    assert_eq!(queues.counts(QUEUE).unwrap(), counts(0, 0, 1));
    assert!(queues.receive(QUEUE, 10, NO_WAIT).await.unwrap().is_empty());
    host.clock.advance(Duration::from_secs(10));
    let first = queues.receive(QUEUE, 10, NO_WAIT).await.unwrap();
    assert_eq!(queues.counts(QUEUE).unwrap(), counts(0, 1, 0));
    queues.change_visibility(QUEUE, &first[0].receipt, Duration::from_secs(300)).await.unwrap();
    host.clock.advance(Duration::from_secs(299));
    assert!(queues.receive(QUEUE, 10, NO_WAIT).await.unwrap().is_empty());
    host.clock.advance(Duration::from_secs(1));
    assert_eq!(queues.receive(QUEUE, 10, NO_WAIT).await.unwrap().len(), 1);
    queues.send(DEAD, "kept for four days").await.unwrap();
    host.clock.advance(Duration::from_secs(345_599));
    assert_eq!(queues.counts(DEAD).unwrap(), counts(1, 0, 0));
    host.clock.advance(Duration::from_secs(1));
    assert_eq!(queues.counts(DEAD).unwrap(), counts(0, 0, 0));
    assert!(queues.receive(DEAD, 10, NO_WAIT).await.unwrap().is_empty());
}

/// LOC-emulator-drift: the handle of an earlier receive neither deletes nor hides the message that another consumer holds.
#[tokio::test]
async fn an_outdated_receipt_has_no_power() {
    let host = Host::in_memory().await;
    let queues = &host.services.queues;
    queues.send(QUEUE, "x").await.unwrap();
    let old = queues.receive(QUEUE, 1, NO_WAIT).await.unwrap().remove(0);
    let early = queues.change_visibility(QUEUE, &old.receipt, Duration::ZERO).await;
    assert!(early.is_ok());
    let visible = queues.change_visibility(QUEUE, &old.receipt, Duration::from_secs(9)).await;
    assert!(matches!(visible, Err(QueueError::NotInFlight)), "it is visible again");
    let new = queues.receive(QUEUE, 1, NO_WAIT).await.unwrap().remove(0);
    queues.delete(QUEUE, &old.receipt).await.unwrap();
    let refused = queues.change_visibility(QUEUE, &old.receipt, Duration::ZERO).await;
    assert!(matches!(refused, Err(QueueError::NotInFlight)));
    assert_eq!(queues.counts(QUEUE).unwrap(), counts(0, 1, 0));
    queues.delete(QUEUE, &new.receipt).await.unwrap();
    assert_eq!(queues.counts(QUEUE).unwrap(), counts(0, 0, 0));
}

#[tokio::test]
async fn a_waiting_receive_is_woken_by_a_send() {
    let host = Host::in_memory().await;
    let queues = host.services.queues.clone();
    let waiting = queues.receive(QUEUE, 1, Duration::from_secs(600));
    let sending = async {
        tokio::task::yield_now().await;
        host.services.queues.send(QUEUE, "now").await.unwrap()
    };
    let within = Duration::from_secs(20);
    let (received, id) =
        tokio::time::timeout(within, async { tokio::join!(waiting, sending) }).await.unwrap();
    assert_eq!(received.unwrap()[0].id, id);
}

/// A batch answers for each entry: a 200 says nothing about any of them.
#[tokio::test]
async fn a_batch_fails_entry_by_entry() {
    let host = Host::in_memory().await;
    let client = client!(aws_sdk_sqs, host);
    let entry = |id: &str, delay: i32| {
        SendMessageBatchRequestEntry::builder()
            .id(id)
            .message_body(id)
            .delay_seconds(delay)
            .build()
            .unwrap()
    };
    let batch = client.send_message_batch().queue_url(QUEUE_URL);
    let sent = batch.entries(entry("good", 0)).entries(entry("bad", 901)).send().await.unwrap();
    assert_eq!(sent.successful()[0].id(), "good");
    let failed = &sent.failed()[0];
    assert_eq!(
        (failed.id(), failed.sender_fault(), failed.code()),
        ("bad", true, "InvalidParameterValue")
    );
    let received = client
        .receive_message()
        .queue_url(QUEUE_URL)
        .max_number_of_messages(10)
        .send()
        .await
        .unwrap();
    let handle = received.messages()[0].receipt_handle().unwrap();
    let delete = |id: &str, handle: &str| {
        DeleteMessageBatchRequestEntry::builder().id(id).receipt_handle(handle).build().unwrap()
    };
    let batch = client.delete_message_batch().queue_url(QUEUE_URL);
    let deleted =
        batch.entries(delete("a", handle)).entries(delete("b", "nonsense")).send().await.unwrap();
    assert_eq!(deleted.successful()[0].id(), "a");
    assert_eq!(deleted.failed()[0].code(), "ReceiptHandleIsInvalid");
    assert_eq!(host.services.queues.counts(QUEUE).unwrap(), counts(0, 0, 0));
}

#[tokio::test]
async fn limits_are_those_of_sqs_and_errors_are_typed() {
    let host = Host::in_memory().await;
    let client = client!(aws_sdk_sqs, host);
    let unknown =
        client.get_queue_url().queue_name("nothing").send().await.unwrap_err().into_service_error();
    assert!(matches!(unknown, GetQueueUrlError::QueueDoesNotExist(_)), "{unknown:?}");
    let found = client.get_queue_url().queue_name("work").send().await.unwrap();
    assert_eq!(found.queue_url(), Some(QUEUE_URL));
    let bad = client
        .delete_message()
        .queue_url(QUEUE_URL)
        .receipt_handle("nonsense")
        .send()
        .await
        .unwrap_err();
    assert!(matches!(bad.into_service_error(), DeleteMessageError::ReceiptHandleIsInvalid(_)));
    host.services.queues.send(QUEUE, "x").await.unwrap();
    let message = host.services.queues.receive(QUEUE, 1, NO_WAIT).await.unwrap().remove(0);
    host.services.queues.delete(QUEUE, &message.receipt).await.unwrap();
    let change =
        client.change_message_visibility().queue_url(QUEUE_URL).receipt_handle(&message.receipt);
    let gone = change.visibility_timeout(5).send().await.unwrap_err().into_service_error();
    assert!(matches!(gone, ChangeMessageVisibilityError::MessageNotInflight(_)), "{gone:?}");

    let send = |body: String| client.send_message().queue_url(QUEUE_URL).message_body(body).send();
    send("x".repeat(1_048_576)).await.unwrap();
    let long = send("x".repeat(1_048_577)).await.unwrap_err();
    assert_eq!(long.code(), Some("InvalidParameterValue"));
    assert_eq!(
        send("a\u{0}b".to_owned()).await.unwrap_err().code(),
        Some("InvalidMessageContents")
    );
    let eleven = (0..11).map(|n| {
        SendMessageBatchRequestEntry::builder().id(n.to_string()).message_body("x").build().unwrap()
    });
    let many = client
        .send_message_batch()
        .queue_url(QUEUE_URL)
        .set_entries(Some(eleven.collect()))
        .send()
        .await;
    let many = many.unwrap_err().into_service_error();
    assert!(matches!(many, SendMessageBatchError::TooManyEntriesInBatchRequest(_)), "{many:?}");
    let half = "x".repeat(600_000);
    let two = ["a", "b"].map(|id| {
        SendMessageBatchRequestEntry::builder().id(id).message_body(&half).build().unwrap()
    });
    let two =
        client.send_message_batch().queue_url(QUEUE_URL).set_entries(Some(two.into())).send().await;
    assert!(matches!(
        two.unwrap_err().into_service_error(),
        SendMessageBatchError::BatchRequestTooLong(_)
    ));
    let visibility =
        client.receive_message().queue_url(QUEUE_URL).visibility_timeout(43_201).send().await;
    assert_eq!(visibility.unwrap_err().code(), Some("InvalidParameterValue"));
    let tagging = client.tag_queue().queue_url(QUEUE_URL).tags("a", "b").send().await.unwrap_err();
    assert_eq!(tagging.code(), Some("AWS.SimpleQueueService.UnsupportedOperation"));
}

#[tokio::test]
async fn queue_attributes_can_be_read_and_set() {
    let host = Host::in_memory().await;
    let client = client!(aws_sdk_sqs, host);
    let get = || {
        client
            .get_queue_attributes()
            .queue_url(QUEUE_URL)
            .attribute_names(QueueAttributeName::All)
            .send()
    };
    let attributes = get().await.unwrap();
    let attributes = attributes.attributes().unwrap();
    assert_eq!(attributes[&QueueAttributeName::VisibilityTimeout], "30");
    assert!(attributes[&QueueAttributeName::RedrivePolicy].contains("\"maxReceiveCount\":2"));
    let set = client.set_queue_attributes().queue_url(QUEUE_URL);
    set.attributes(QueueAttributeName::VisibilityTimeout, "60").send().await.unwrap();
    assert_eq!(
        get().await.unwrap().attributes().unwrap()[&QueueAttributeName::VisibilityTimeout],
        "60"
    );
    let listed = client.list_queues().queue_name_prefix("w").send().await.unwrap();
    assert_eq!(listed.queue_urls(), [QUEUE_URL]);
    let sources = client.list_dead_letter_source_queues().queue_url(DEAD_URL).send().await.unwrap();
    assert_eq!(sources.queue_urls(), [OTHER_URL, QUEUE_URL]);
    host.services.queues.send(QUEUE, "x").await.unwrap();
    client.purge_queue().queue_url(QUEUE_URL).send().await.unwrap();
    assert_eq!(host.services.queues.counts(QUEUE).unwrap(), counts(0, 0, 0));
}

/// LOC-emulator-drift: what was acknowledged is there after the process is gone.
#[tokio::test]
async fn messages_survive_a_restart() {
    let state = tempfile::tempdir().unwrap();
    let host = Host::at(state.path(), false).await;
    host.services.queues.send(QUEUE, "kept").await.unwrap();
    let taken = host.services.queues.receive(QUEUE, 1, NO_WAIT).await.unwrap().remove(0);
    // a second host on the same folder, while the first has neither closed nor flushed anything: as after kill -9
    let next = Host::at(state.path(), false).await;
    assert_eq!(next.services.queues.counts(QUEUE).unwrap(), counts(0, 1, 0));
    next.clock.advance(Duration::from_secs(31));
    let again = next.services.queues.receive(QUEUE, 1, NO_WAIT).await.unwrap().remove(0);
    assert_eq!((again.id, again.attributes["ApproximateReceiveCount"].as_str()), (taken.id, "2"));
    host.stop().await;
}

#[tokio::test]
async fn a_message_has_the_shape_that_lambda_hands_over() {
    let host = Host::in_memory().await;
    let client = client!(aws_sdk_sqs, host);
    let attribute =
        MessageAttributeValue::builder().data_type("String").string_value("t").build().unwrap();
    let send = client
        .send_message()
        .queue_url(QUEUE_URL)
        .message_body("b")
        .message_attributes("traceparent", attribute);
    send.send().await.unwrap();
    let message = host.services.queues.receive(QUEUE, 1, NO_WAIT).await.unwrap().remove(0);
    let record = message.lambda_record(QUEUE, "us-east-1");
    assert_eq!(record["messageId"], message.id.as_str());
    assert_eq!(record["receiptHandle"], message.receipt.as_str());
    assert_eq!(record["eventSource"], "aws:sqs");
    assert_eq!(record["eventSourceARN"], QUEUE);
    assert_eq!(record["attributes"]["ApproximateReceiveCount"], "1");
    assert_eq!(record["messageAttributes"]["traceparent"]["stringValue"], "t");
    assert_eq!(record["messageAttributes"]["traceparent"]["dataType"], "String");
    assert_eq!(record["md5OfBody"], "92eb5ffee6ae2fec3ad71c777531578f");
}
