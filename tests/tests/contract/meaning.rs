//! What an error of the store means: never an outcome.

use domain::{
    body::Place,
    commit::{Answer as Committed, Next, Reason},
    inbox::Status,
    ports::{
        Configure as _, Deliveries as _, DueInbox as _, Inbox as _, Outbox as _, State as _,
        StoreError,
    },
    source::{Handler, SchemeChoice, Source},
};
use dynamo::{Commits, DeliveriesTable, InboxTable, OutboxTable, RegistryTable, StateTable};

use serde_json::{Value, json};

use crate::{
    faults::{Answer, Faulty, answering, answering_in_turn},
    given::{a_commit, at, claim, event, finish, lane, row},
};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    Throttled,
    Unavailable,
    Refused,
}

pub(crate) fn kind<T: std::fmt::Debug>(answer: Result<T, StoreError>) -> Kind {
    match answer {
        Err(StoreError::Throttled(_)) => Kind::Throttled,
        Err(StoreError::Unavailable(_)) => Kind::Unavailable,
        Err(StoreError::Refused(_)) => Kind::Refused,
        other => panic!("{other:?}"),
    }
}

/// ING-error-taken-for-duplicate: whatever the store says, every write says the same of it, and never "duplicate".
#[tokio::test]
async fn a_fault_of_the_store_is_never_an_outcome() {
    let table = [
        (Answer::error(400, "ProvisionedThroughputExceededException"), Kind::Throttled),
        (Answer::error(400, "ThrottlingException"), Kind::Throttled),
        (Answer::error(400, "RequestLimitExceeded"), Kind::Throttled),
        (Answer::error(400, "TransactionConflictException"), Kind::Throttled),
        (Answer::error(400, "TransactionInProgressException"), Kind::Throttled),
        (Answer::error(500, "InternalServerError"), Kind::Unavailable),
        (Answer::error(400, "IdempotentParameterMismatchException"), Kind::Unavailable),
        (Answer::Says(503, "upstream".to_owned()), Kind::Unavailable),
        (Answer::Says(200, "not json".to_owned()), Kind::Unavailable),
        (Answer::HangsUp, Kind::Unavailable),
        (Answer::error(400, "AccessDeniedException"), Kind::Refused),
        (Answer::error(400, "ResourceNotFoundException"), Kind::Refused),
        (Answer::error(400, "ValidationException"), Kind::Refused),
        (Answer::error(400, "UnheardOfException"), Kind::Refused),
    ];
    for (answer, expected) in table {
        let faulty = answering(answer.clone()).await;
        let client = || faulty.client.clone();
        let inbox = InboxTable::new(client(), "InboxTable", 4);
        assert_eq!(kind(inbox.accept(&row(Place::Bucket)).await), expected, "accept: {answer:?}");
        let noted = inbox.finish(&claim(0), &finish(Status::Processed, at(9))).await;
        assert_eq!(kind(noted), expected, "finish: {answer:?}");
        let read = inbox.read(&claim(0).key).await;
        assert_eq!(kind(read), expected, "read: {answer:?}");
        let due = inbox.due(0, at(9), 10).await;
        assert_eq!(kind(due), expected, "due: {answer:?}");
        let outbox = OutboxTable {
            requests: Some("StateTable".to_owned()),
            ..OutboxTable::new(client(), "OutboxTable", 4)
        };
        let published = outbox.publish(&event(1), Some("k")).await;
        assert_eq!(kind(published), expected, "publish: {answer:?}");
        let lanes = DeliveriesTable::new(client(), "DeliveriesTable", 4);
        let again = lanes.redeliver(&lane(), event(1).id, at(9), at(5)).await;
        assert_eq!(kind(again), expected, "redeliver: {answer:?}");
        assert_eq!(kind(state(&faulty).commit(&a_commit()).await), expected, "commit: {answer:?}");
    }
}

fn state(faulty: &Faulty) -> StateTable {
    StateTable {
        client: faulty.client.clone(),
        table: "StateTable".to_owned(),
        commits: Some(Commits {
            inbox: "InboxTable".to_owned(),
            outbox: "OutboxTable".to_owned(),
            outbox_shards: 4,
        }),
    }
}

/// ING-error-taken-for-duplicate, OUT-transaction-conflict: what follows from them is decided elsewhere.
#[tokio::test]
async fn the_reasons_of_a_cancelled_transaction_come_through_one_to_one() {
    use Reason::{ConditionFailed, Conflict, Invalid, None, Throttled, TooLarge, Transient};
    let table = [
        (["ConditionalCheckFailed", "None", "None"], [ConditionFailed, None, None]),
        (
            ["ConditionalCheckFailed", "TransactionConflict", "None"],
            [ConditionFailed, Conflict, None],
        ),
        (["None", "TransactionConflict", "None"], [None, Conflict, None]),
        (
            ["None", "ConditionalCheckFailed", "TransactionConflict"],
            [None, ConditionFailed, Conflict],
        ),
        (["ThrottlingError", "ConditionalCheckFailed", "None"], [Throttled, ConditionFailed, None]),
        (["None", "None", "ProvisionedThroughputExceeded"], [None, None, Throttled]),
        (["None", "ValidationError", "None"], [None, Invalid, None]),
        (["None", "ItemCollectionSizeLimitExceeded", "UnheardOf"], [None, TooLarge, Transient]),
    ];
    for (codes, reasons) in table {
        let faulty = answering(Answer::cancelled(&codes)).await;
        let answer = state(&faulty).commit(&a_commit()).await.unwrap();
        assert_eq!(answer, Committed::Refused(reasons.to_vec()), "{codes:?}");
    }
}

/// The store has no code for it: refused as a whole, or for one of its items.
#[tokio::test]
async fn a_transaction_that_is_too_large_is_told_from_one_that_is_malformed() {
    let says = |message: &str| {
        let body = format!(
            r#"{{"__type":"com.amazonaws.dynamodb.v20120810#ValidationException","message":"{message}"}}"#
        );
        Answer::Says(400, body)
    };
    let item = r#"{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException","Message":"no","CancellationReasons":[{"Code":"None"},{"Code":"ValidationError","Message":"Item size has exceeded the maximum allowed size"},{"Code":"None"}]}"#;
    let all = "Aggregate size of all items in a transaction exceeded the limit of 4194304 bytes";
    let commit = async |answer| state(&answering(answer).await).commit(&a_commit()).await;
    let told = commit(Answer::Says(400, item.to_owned())).await.unwrap();
    assert_eq!(told, Committed::Refused(vec![Reason::None, Reason::TooLarge, Reason::None]));
    assert_eq!(a_commit().after(&told), Next::TooLarge);
    for large in [says(all), Answer::Says(413, String::new())] {
        let told = commit(large.clone()).await.unwrap();
        assert_eq!(told, Committed::Refused(vec![Reason::TooLarge; 3]), "{large:?}");
        assert_eq!(a_commit().after(&told), Next::TooLarge);
    }
    assert_eq!(kind(commit(says("a value is missing")).await), Kind::Refused);
}

/// A cancelled transaction of which no reason is an outcome is no outcome either.
#[tokio::test]
async fn a_conflict_is_not_taken_for_a_delivery_that_has_moved_on() {
    let table: [(&[&str], Kind); 3] = [
        (&["TransactionConflict", "None", "None"], Kind::Throttled),
        (&["None", "None", "ThrottlingError"], Kind::Throttled),
        (&["None", "ValidationError", "None"], Kind::Refused),
    ];
    for (codes, expected) in table {
        let faulty = answering_in_turn(vec![dead(1), Answer::cancelled(codes)]).await;
        let lanes = DeliveriesTable::new(faulty.client.clone(), "DeliveriesTable", 4);
        let again = lanes.redeliver(&lane(), event(1).id, at(9), at(5)).await;
        assert_eq!(kind(again), expected, "{codes:?}");
        let registry = RegistryTable { client: faulty.client.clone(), table: "R".to_owned() };
        let scheme = SchemeChoice::Preset("stripe".to_owned());
        let handler = Handler::Mirror { emit_to: None, states: None };
        let source = Source::new("stripe".parse().unwrap(), scheme, handler, at(0));
        assert_eq!(kind(registry.add_source(&source).await), expected, "{codes:?}");
    }
}

/// What the store answers to the read of a delivery that was given up.
fn dead(number: u32) -> Answer {
    let item = json!({ "Item": item(number, "dead") });
    Answer::Says(200, item.to_string())
}

fn key(number: u32) -> Value {
    json!({
        "pk": { "S": format!("LANE#{}", lane()) },
        "sk": { "S": format!("DELIVERY#{}", event(number).id) },
    })
}

fn item(number: u32, state: &str) -> Value {
    let mut item = key(number);
    item["type"] = json!({ "S": "invoice.paid" });
    item["state"] = json!({ "S": state });
    for name in ["attempts", "due_at", "deadline", "created_at"] {
        item[name] = json!({ "N": "1" });
    }
    item
}

/// What the store answers to a batch read: some deliveries of the lane, and the keys of others it has not got to.
fn batch(found: &[u32], left: &[u32]) -> Answer {
    let found: Vec<_> = found.iter().map(|number| item(*number, "pending")).collect();
    let mut body = json!({ "Responses": { "DeliveriesTable": found }, "UnprocessedKeys": {} });
    if !left.is_empty() {
        let left: Vec<_> = left.iter().map(|number| key(*number)).collect();
        let left = json!({ "DeliveriesTable": { "ConsistentRead": true, "Keys": left } });
        body["UnprocessedKeys"] = left;
    }
    Answer::Says(200, body.to_string())
}

/// The store stops a batch after 16 MB, or when it is throttled, and says where.
#[tokio::test]
async fn a_batch_that_comes_in_parts_is_read_to_its_end() {
    let parts =
        [batch(&[], &[1, 2, 3]), batch(&[3], &[1, 2]), batch(&[], &[1, 2]), batch(&[1, 2], &[])];
    let faulty = answering_in_turn(parts.to_vec()).await;
    let lanes = DeliveriesTable::new(faulty.client.clone(), "DeliveriesTable", 4);
    let events = [1, 2, 3].map(|number| event(number).id);
    let found = lanes.read(&lane(), &events).await.unwrap();
    assert!(found.iter().map(|delivery| delivery.event).eq(events));
}

/// A batch of which the store returns nothing, again and again, does not go on for ever.
#[tokio::test]
async fn a_batch_that_brings_nothing_is_given_up() {
    let faulty = answering(batch(&[], &[1])).await;
    let lanes = DeliveriesTable::new(faulty.client.clone(), "DeliveriesTable", 4);
    assert_eq!(kind(lanes.read(&lane(), &[event(1).id]).await), Kind::Throttled);
}
