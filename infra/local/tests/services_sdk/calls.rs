//! The list of calls, and requests that are no requests.

use std::time::Duration;

use aws_sdk_dynamodb::types::{AttributeValue, Put, TransactWriteItem};
use http_body_util::{BodyExt as _, Full};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};

use crate::{Host, INBOX, OUTBOX, QUEUE, QUEUE_URL, client};

fn s(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

#[tokio::test]
async fn every_call_is_recorded_with_its_caller_resource_and_keys() {
    let host = Host::in_memory().await;
    let tables = client!(aws_sdk_dynamodb, host);
    let sqs = client!(aws_sdk_sqs, host);
    for _ in 0..2 {
        tables
            .get_item()
            .table_name(INBOX)
            .key("pk", s("a#1"))
            .key("sk", s("EVENT"))
            .send()
            .await
            .unwrap();
    }
    let put = |table: &str| {
        let put = Put::builder()
            .table_name(table)
            .item("pk", s("t#0"))
            .item("sk", s("e"))
            .build()
            .unwrap();
        TransactWriteItem::builder().put(put).build()
    };
    tables
        .transact_write_items()
        .transact_items(put(INBOX))
        .transact_items(put(OUTBOX))
        .send()
        .await
        .unwrap();
    let entry = aws_sdk_sqs::types::SendMessageBatchRequestEntry::builder()
        .id("a")
        .message_body("x")
        .build()
        .unwrap();
    sqs.send_message_batch().queue_url(QUEUE_URL).entries(entry).send().await.unwrap();
    host.services.queues.acting_for("worker").receive(QUEUE, 1, Duration::ZERO).await.unwrap();
    host.services.queues.receive(QUEUE, 1, Duration::ZERO).await.unwrap();
    let calls = serde_json::to_value(host.services.recorder.calls()).unwrap();
    let table = |name: &str| format!("arn:aws:dynamodb:us-east-1:000000000000:table/{name}");
    assert_eq!(
        calls,
        serde_json::json!([
            { "function": "tester", "action": "dynamodb:GetItem", "resource": table(INBOX), "leading_keys": ["a#1"], "count": 2 },
            { "function": "tester", "action": "dynamodb:PutItem", "resource": table(INBOX), "leading_keys": ["t#0"], "count": 1 },
            { "function": "tester", "action": "dynamodb:PutItem", "resource": table(OUTBOX), "leading_keys": ["t#0"], "count": 1 },
            { "function": "tester", "action": "sqs:SendMessage", "resource": QUEUE, "count": 1 },
            { "function": "worker", "action": "sqs:ReceiveMessage", "resource": QUEUE, "count": 1 },
        ])
    );
    host.services.recorder.clear();
    assert!(host.services.recorder.calls().is_empty());
}

/// Nothing a client sends makes the endpoint panic or hang; each gets an answer of its service's kind.
#[tokio::test]
async fn nonsense_is_answered_with_an_error() {
    let host = Host::in_memory().await;
    let client: Client<_, Full<bytes::Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let ask = async |target: Option<&str>, body: &str| {
        let mut request = http::Request::builder().method("POST").uri(host.url());
        request = request.header("content-type", "application/x-amz-json-1.0");
        if let Some(target) = target {
            request = request.header("x-amz-target", target);
        }
        let response =
            client.request(request.body(Full::from(body.to_owned())).unwrap()).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    };
    let (status, body) = ask(None, "{}").await;
    assert!(status == 400 && body.contains("UnknownOperationException"), "{body}");
    let targets = [
        "DynamoDB_20120810.PutItem",
        "DynamoDB_20120810.TransactWriteItems",
        "DynamoDB_20120810.Nonsense",
        "AmazonSQS.SendMessage",
        "AmazonSQS.SendMessageBatch",
        "AmazonSQS.ReceiveMessage",
        "AmazonSQS.Nonsense",
        "secretsmanager.CreateSecret",
        "secretsmanager.GetSecretValue",
        "TrentService.Decrypt",
        "TrentService.Encrypt",
        "TrentService.GenerateDataKey",
        "AWSEvents.PutEvents",
    ];
    let queue = format!(
        "{{\"QueueUrl\":\"{QUEUE_URL}\",\"Entries\":7,\"MessageBody\":[],\"MaxNumberOfMessages\":-1}}"
    );
    let key = format!(
        "{{\"KeyId\":\"{}\",\"Plaintext\":\"%\",\"CiphertextBlob\":7,\"NumberOfBytes\":99999999999}}",
        crate::KEY
    );
    for target in targets {
        for body in [
            "",
            "{",
            "[]",
            "null",
            "{}",
            "{\"TableName\":[],\"Item\":7,\"TransactItems\":{}}",
            "\u{0}",
            &queue,
            &key,
        ] {
            let (status, answer) = ask(Some(target), body).await;
            assert!(
                (400..500).contains(&status) && answer.contains("__type"),
                "{target} {body}: {status} {answer}"
            );
        }
    }
}
