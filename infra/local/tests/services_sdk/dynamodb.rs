//! DynamoDB as the functions use it, and its streams as an event source reads them.

use aws_sdk_dynamodb::{
    Client,
    error::ProvideErrorMetadata as _,
    operation::{put_item::PutItemError, transact_write_items::TransactWriteItemsError},
    types::{
        AttributeValue, ConditionCheck, Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem,
    },
};
use futures_util::future::join_all;

use crate::{Host, INBOX, OUTBOX, client};

fn s(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

async fn put(client: &Client, table: &str, pk: &str, sk: &str) {
    client.put_item().table_name(table).item("pk", s(pk)).item("sk", s(sk)).send().await.unwrap();
}

/// LOC-emulator-drift: of many conditional puts of one key exactly one wins, and each loser sees the winner's item.
#[tokio::test]
async fn one_of_many_conditional_puts_wins_and_the_others_see_its_item() {
    let host = Host::in_memory().await;
    let client = client!(aws_sdk_dynamodb, host);
    let attempts = (0..40).map(|n| {
        client
            .put_item()
            .table_name(INBOX)
            .item("pk", s("a"))
            .item("sk", s("EVENT"))
            .item("token", s(&n.to_string()))
            .condition_expression("attribute_not_exists(pk)")
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
    });
    let outcomes = join_all(attempts).await;
    let winners: Vec<usize> = (0..40).filter(|n| outcomes[*n].is_ok()).collect();
    assert_eq!(winners.len(), 1);
    for outcome in outcomes {
        let Err(error) = outcome else { continue };
        let PutItemError::ConditionalCheckFailedException(failed) = error.into_service_error()
        else {
            panic!()
        };
        assert_eq!(failed.item().unwrap()["token"], s(&winners[0].to_string()));
    }
}

fn guarded(pk: &str) -> TransactWriteItem {
    let put = Put::builder()
        .table_name(INBOX)
        .item("pk", s(pk))
        .item("sk", s("EVENT"))
        .condition_expression("attribute_not_exists(pk)");
    TransactWriteItem::builder().put(put.build().unwrap()).build()
}

/// LOC-emulator-drift: all or nothing, a reason per action, and a repeated token writes once.
#[tokio::test]
async fn a_transaction_is_all_or_nothing_and_says_why() {
    let host = Host::in_memory().await;
    let client = client!(aws_sdk_dynamodb, host);
    let first =
        || client.transact_write_items().client_request_token("t1").transact_items(guarded("a"));
    first().send().await.unwrap();
    first().send().await.expect("the same token with the same content is the same transaction");
    let failed = client
        .transact_write_items()
        .transact_items(guarded("b"))
        .transact_items(guarded("a"))
        .send()
        .await;
    let TransactWriteItemsError::TransactionCanceledException(cancelled) =
        failed.unwrap_err().into_service_error()
    else {
        panic!()
    };
    let codes: Vec<_> =
        cancelled.cancellation_reasons().iter().map(|reason| reason.code().unwrap()).collect();
    assert_eq!(codes, ["None", "ConditionalCheckFailed"]);
    let absent = client
        .get_item()
        .table_name(INBOX)
        .key("pk", s("b"))
        .key("sk", s("EVENT"))
        .send()
        .await
        .unwrap();
    assert!(absent.item().is_none());
    let check = ConditionCheck::builder()
        .table_name(INBOX)
        .key("pk", s("nobody"))
        .key("sk", s("EVENT"))
        .condition_expression("attribute_exists(pk)");
    let check = TransactWriteItem::builder().condition_check(check.build().unwrap()).build();
    let failed = client.transact_write_items().transact_items(check).send().await.unwrap_err();
    assert_eq!(failed.code(), Some("TransactionCanceledException"));
}

#[tokio::test]
async fn a_sparse_index_finds_what_is_due_in_order() {
    let host = Host::in_memory().await;
    let client = client!(aws_sdk_dynamodb, host);
    for (pk, due) in [("late", "300"), ("early", "100"), ("middle", "200")] {
        let item = client.put_item().table_name(INBOX).item("pk", s(pk)).item("sk", s("EVENT"));
        item.item("shard", s("0"))
            .item("due_at", AttributeValue::N(due.to_owned()))
            .send()
            .await
            .unwrap();
    }
    put(&client, INBOX, "finished", "EVENT").await;
    let due = client
        .query()
        .table_name(INBOX)
        .index_name("by_due")
        .key_condition_expression("#shard = :s AND due_at <= :now")
        .expression_attribute_names("#shard", "shard")
        .expression_attribute_values(":s", s("0"))
        .expression_attribute_values(":now", AttributeValue::N("250".to_owned()))
        .send()
        .await
        .unwrap();
    let pks: Vec<_> = due.items().iter().map(|item| item["pk"].as_s().unwrap().as_str()).collect();
    assert_eq!(pks, ["early", "middle"]);
    assert!(!due.items()[0].contains_key("expires_at"));
}

/// LOC-emulator-drift: no record is lost, whoever reads whenever, also over a restart.
#[tokio::test]
async fn a_stream_gives_every_write_in_order_from_any_position() {
    let state = tempfile::tempdir().unwrap();
    let host = Host::at(state.path(), false).await;
    let arn = crate::table(OUTBOX, None).stream_arn.unwrap();
    let sdk = client!(aws_sdk_dynamodb, host);
    let mut changes = host.services.streams.changes();
    for n in 0..5 {
        put(&sdk, OUTBOX, "tenant", &n.to_string()).await;
    }
    put(&sdk, INBOX, "not in a stream", "EVENT").await;
    assert!(changes.has_changed().unwrap());
    changes.mark_unchanged();
    let first = host.services.streams.read(&arn, None, 2).await.unwrap();
    let keys = |records: &[local::services::StreamRecord]| -> Vec<String> {
        let sk = |record: &local::services::StreamRecord| {
            record.event["dynamodb"]["NewImage"]["sk"]["S"].as_str().unwrap().to_owned()
        };
        records.iter().map(sk).collect()
    };
    assert_eq!(keys(&first), ["0", "1"]);
    let event = &first[0].event;
    assert_eq!(event["eventName"], "INSERT");
    assert_eq!(event["eventSource"], "aws:dynamodb");
    assert_eq!(event["eventSourceARN"], arn.as_str());
    assert_eq!(event["awsRegion"], "us-east-1");
    assert_eq!(event["dynamodb"]["Keys"]["pk"]["S"], "tenant");
    assert_eq!(event["dynamodb"]["SequenceNumber"], first[0].sequence.as_str());
    assert_eq!(event["dynamodb"]["StreamViewType"], "NEW_IMAGE");
    host.stop().await;

    let host = Host::at(state.path(), false).await;
    let rest = host.services.streams.read(&arn, Some(&first[1].sequence), 100).await.unwrap();
    assert_eq!(keys(&rest), ["2", "3", "4"]);
    assert!(rest.windows(2).all(|pair| pair[0].sequence < pair[1].sequence));
    let none = host.services.streams.read(&arn, Some(&rest[2].sequence), 100).await.unwrap();
    assert!(none.is_empty());
    for bad in ["", "x", "5", "-1", "999999999999999999999999999999999999999999"] {
        assert!(host.services.streams.read(&arn, Some(&bad.to_owned()), 1).await.is_err(), "{bad}");
    }
    assert!(host.services.streams.read("arn:nothing", None, 1).await.is_err());
}

/// LOC-emulator-drift: expiry does delete, when it is asked to.
#[tokio::test]
async fn the_expiry_sweep_deletes_what_is_over_and_nothing_else() {
    let host = Host::in_memory().await;
    let client = client!(aws_sdk_dynamodb, host);
    for (pk, expires) in [("old", "1000000000"), ("new", "4000000000")] {
        let item = client.put_item().table_name(INBOX).item("pk", s(pk)).item("sk", s("EVENT"));
        item.item("expires_at", AttributeValue::N(expires.to_owned())).send().await.unwrap();
    }
    put(&client, INBOX, "forever", "EVENT").await;
    let services = host.services.clone();
    let deleted = tokio::task::spawn_blocking(move || services.sweep_ttl()).await.unwrap().unwrap();
    assert_eq!(deleted, 1);
    assert_eq!(client.scan().table_name(INBOX).send().await.unwrap().count(), 2);
}

#[tokio::test]
async fn a_table_of_another_shape_is_refused_with_advice() {
    let state = tempfile::tempdir().unwrap();
    Host::at(state.path(), false).await.stop().await;
    let mut wiring = crate::wiring();
    wiring.tables[0] = crate::table(INBOX, Some("by_other"));
    let options = local::services::Options::new(state.path());
    let error = local::services::Services::open(&wiring, options).await.unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(
        cause.contains("start with a fresh state folder") && cause.contains("by_other"),
        "{cause}"
    );
}

#[tokio::test]
async fn descriptions_carry_our_region_and_bad_requests_get_typed_errors() {
    let host = Host::in_memory().await;
    let client = client!(aws_sdk_dynamodb, host);
    let table = client.describe_table().table_name(INBOX).send().await.unwrap();
    assert_eq!(table.table().unwrap().table_arn(), Some(crate::table(INBOX, None).arn.as_str()));
    let missing =
        client.get_item().table_name("nothing").key("pk", s("a")).send().await.unwrap_err();
    assert_eq!(missing.code(), Some("ResourceNotFoundException"));
    let invalid = client.get_item().table_name(INBOX).key("pk", s("a")).send().await.unwrap_err();
    assert_eq!(invalid.code(), Some("ValidationException"));
}
