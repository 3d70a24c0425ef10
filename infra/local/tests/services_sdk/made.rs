//! Queues that are not in the template, over the SDK.

use std::time::Duration;

use aws_sdk_sqs::{error::ProvideErrorMetadata as _, types::QueueAttributeName};

use crate::{Host, QUEUE_URL, client};

const MAIL: &str = "https://sqs.us-east-1.amazonaws.com/000000000000/mail";

#[tokio::test]
async fn a_queue_is_made_and_takes_messages_and_survives_a_restart() {
    let state = tempfile::tempdir().unwrap();
    let host = Host::at(state.path(), false).await;
    let client = client!(aws_sdk_sqs, host);
    let send = |url: &str| client.send_message().queue_url(url).message_body("a").send();
    assert!(send(MAIL).await.unwrap_err().into_service_error().is_queue_does_not_exist());
    let made = client
        .create_queue()
        .queue_name("mail")
        .attributes(QueueAttributeName::VisibilityTimeout, "7")
        .send()
        .await
        .unwrap();
    assert_eq!(made.queue_url(), Some(MAIL));
    send(MAIL).await.unwrap();
    host.stop().await;
    let host = Host::at(state.path(), false).await;
    let client = client!(aws_sdk_sqs, host);
    let all = client
        .get_queue_attributes()
        .queue_url(MAIL)
        .attribute_names(QueueAttributeName::All)
        .send()
        .await
        .unwrap();
    let all = all.attributes().unwrap();
    assert_eq!(all[&QueueAttributeName::VisibilityTimeout], "7");
    assert_eq!(all[&QueueAttributeName::ApproximateNumberOfMessages], "1");
    let listed = client.list_queues().queue_name_prefix("mai").send().await.unwrap();
    assert_eq!(listed.queue_urls(), [MAIL]);
}

/// Whoever waits for a queue hears of its messages, also if it was made a moment ago.
#[tokio::test]
async fn a_message_wakes_who_waits_for_a_new_queue() {
    let host = Host::in_memory().await;
    let client = client!(aws_sdk_sqs, host);
    client.create_queue().queue_name("mail").send().await.unwrap();
    let receive = client.receive_message().queue_url(MAIL).wait_time_seconds(20).send();
    let send = client.send_message().queue_url(MAIL).message_body("a").send();
    let both = Box::pin(async { tokio::join!(receive, send) });
    let (received, sent) = tokio::time::timeout(Duration::from_secs(10), both).await.unwrap();
    assert_eq!(received.unwrap().messages()[0].message_id(), sent.unwrap().message_id());
}

#[tokio::test]
async fn the_same_queue_again_is_no_error_and_another_of_its_name_is() {
    let host = Host::in_memory().await;
    let client = client!(aws_sdk_sqs, host);
    let make = |name: &str, delay: Option<&str>| {
        let attributes =
            delay.map(|delay| [(QueueAttributeName::DelaySeconds, delay.to_owned())].into());
        client.create_queue().queue_name(name).set_attributes(attributes).send()
    };
    for _ in 0..2 {
        make("mail", Some("5")).await.unwrap();
        make("mail", None).await.unwrap();
    }
    assert!(make("mail", Some("6")).await.unwrap_err().into_service_error().is_queue_name_exists());
    // One of the template's.
    assert_eq!(make("work", None).await.unwrap().queue_url(), Some(QUEUE_URL));
    for bad in ["", "a b", "a/b", "a.fifo", &"q".repeat(81)] {
        assert!(make(bad, None).await.is_err(), "{bad:?}");
    }
}

#[tokio::test]
async fn a_fifo_queue_takes_one_message_of_a_deduplication_id_in_five_minutes() {
    let host = Host::in_memory().await;
    let client = client!(aws_sdk_sqs, host);
    let made = client
        .create_queue()
        .queue_name("mail.fifo")
        .attributes(QueueAttributeName::FifoQueue, "true")
        .send()
        .await
        .unwrap();
    let url = made.queue_url().unwrap();
    let send = |group: Option<&str>, id: Option<&str>| {
        let send = client.send_message().queue_url(url).message_body("a");
        send.set_message_group_id(group.map(str::to_owned))
            .set_message_deduplication_id(id.map(str::to_owned))
            .send()
    };
    assert_eq!(send(None, Some("1")).await.unwrap_err().code(), Some("MissingParameter"));
    assert_eq!(send(Some("g"), None).await.unwrap_err().code(), Some("InvalidParameterValue"));
    let count = async || {
        let all = client.get_queue_attributes().queue_url(url);
        let all = all.attribute_names(QueueAttributeName::All).send().await.unwrap();
        let all = all.attributes().unwrap().clone();
        assert_eq!(all[&QueueAttributeName::FifoQueue], "true");
        all[&QueueAttributeName::ApproximateNumberOfMessages].clone()
    };
    let first = send(Some("g"), Some("1")).await.unwrap();
    let again = send(Some("g"), Some("1")).await.unwrap();
    assert_eq!((first.message_id(), count().await.as_str()), (again.message_id(), "1"));
    send(Some("g"), Some("2")).await.unwrap();
    assert_eq!(count().await, "2");
    host.clock.advance(Duration::from_millis(299_999));
    send(Some("g"), Some("1")).await.unwrap();
    assert_eq!(count().await, "2");
    host.clock.advance(Duration::from_millis(1));
    send(Some("g"), Some("1")).await.unwrap();
    assert_eq!(count().await, "3");
    // A standard queue knows no such ids.
    let standard = client.send_message().queue_url(QUEUE_URL).message_body("a");
    let error = standard.message_deduplication_id("1").send().await.unwrap_err();
    assert_eq!(error.code(), Some("InvalidParameterValue"));
}
