//! The ports in memory and in DynamoDB keep one contract; and what only the second can get wrong.

#[path = "contract/faults.rs"]
mod faults;
#[expect(dead_code, reason = "the tables are all this suite asks of the template")]
#[path = "template/stack.rs"]
mod stack;
#[path = "contract/tables.rs"]
mod tables;

use std::collections::BTreeMap;

use aws_sdk_dynamodb::types::AttributeValue;
use domain::{
    body::{Place, Sha256Hash, StoredBody},
    commit::{self, Commit, Reason, Staged},
    delivery::{Attempt, Delivery, MAX_LOG, NewDelivery, Next, Outcome, State as Stands},
    event::Origin,
    id::{EventId, InboxKey},
    inbox::{Accepted, Claim, Failure, NewRow, Noted, Status},
    lane::LaneId,
    outbox::{OutboxEvent, Payload, Relayed},
    plan::Guard,
    ports::{
        Configure as _, Deliveries as _, DueInbox as _, Fanout as _, Finish, Inbox as _,
        Outbox as _, Published, State as _, StoreError,
    },
};
use dynamo::{Commits, DeliveriesTable, InboxTable, OutboxTable, StateTable};
use faults::{Answer, answering};
use jiff::Timestamp;
use tables::{DAY, Local, text};
use testkit::{contract, memory::Store};

macro_rules! both {
    ($($memory:ident, $dynamo:ident: $suite:ident;)+) => {$(
        #[tokio::test]
        async fn $memory() {
            contract::$suite(async || Store::new(4)).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $dynamo() {
            contract::$suite(Local::new).await;
        }
    )+};
}

both! {
    memory_keeps_the_contract_of_the_inbox, dynamo_keeps_the_contract_of_the_inbox: inbox;
    memory_keeps_the_contract_of_the_due_inbox, dynamo_keeps_the_contract_of_the_due_inbox: due_inbox;
    memory_keeps_the_contract_of_the_state, dynamo_keeps_the_contract_of_the_state: state;
    memory_keeps_the_contract_of_the_outbox, dynamo_keeps_the_contract_of_the_outbox: outbox;
    memory_keeps_the_contract_of_lanes, dynamo_keeps_the_contract_of_lanes: lanes;
    memory_keeps_the_contract_of_deliveries, dynamo_keeps_the_contract_of_deliveries: deliveries;
    memory_keeps_the_contract_of_the_registry, dynamo_keeps_the_contract_of_the_registry: registry;
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_790_000_000 + seconds).unwrap()
}

fn row(place: Place) -> NewRow {
    NewRow {
        key: InboxKey::new("stripe".parse().unwrap(), "evt_1").unwrap(),
        event_type: None,
        received_at: at(0),
        due_at: at(120),
        body: StoredBody { sha256: Sha256Hash::of(b"body"), length: 4, place },
        headers: BTreeMap::new(),
        object: None,
        version: None,
        occurred_at: None,
        origin: Origin::Webhook,
        key_id: None,
        token: "t".to_owned(),
        traceparent: None,
    }
}

fn claim(cycle: u32) -> Claim {
    Claim { key: row(Place::Bucket).key, cycle }
}

fn finish(status: Status, now: Timestamp) -> Finish {
    Finish { status, results: Vec::new(), reason: None, now, expires_at: now + 35 * DAY }
}

fn lane() -> LaneId {
    let endpoint = "ep_00000000000000000000000000000009".parse().unwrap();
    LaneId { tenant: "demo".parse().unwrap(), endpoint, lane: 0 }
}

fn event(number: u32) -> OutboxEvent {
    OutboxEvent {
        id: EventId::derived(at(0), &[&number.to_string()]),
        tenant: "demo".parse().unwrap(),
        event_type: "invoice.paid".to_owned(),
        schema_version: 1,
        aggregate_id: "in_1".to_owned(),
        aggregate_version: None,
        payload: Payload::Inline(b"body".to_vec()),
        occurred_at: at(0),
        traceparent: None,
    }
}

fn a_commit() -> Commit {
    Commit {
        claim: claim(0),
        now: at(10),
        expires_at: at(10) + 35 * DAY,
        changes: vec![Staged {
            guard: Guard::Once("credit".parse().unwrap()),
            events: vec![event(1)],
        }],
        lease: None,
        results: Vec::new(),
    }
}

/// Where an inbox row, and a body beside it, stand.
const ROW: (&str, &str) = ("stripe#evt_1", "EVENT");

fn body_key() -> String {
    format!("BODY#{}", Sha256Hash::of(b"body"))
}

impl Local {
    async fn row_expires(&self) -> Option<AttributeValue> {
        self.attribute("InboxTable", ROW, "expires_at").await
    }

    async fn body_expires(&self) -> Option<AttributeValue> {
        self.attribute("InboxTable", (ROW.0, &body_key()), "expires_at").await
    }
}

fn seconds(at: Timestamp) -> Option<AttributeValue> {
    let seconds = at.as_second();
    assert!(seconds < 10_000_000_000, "seconds, not milliseconds");
    Some(AttributeValue::N(seconds.to_string()))
}

/// INB-ttl-not-enforced
#[tokio::test]
async fn only_a_finished_row_expires() {
    let on = Local::new().await;
    let key = row(Place::Bucket).key;
    on.inbox.accept(&row(Place::Bucket)).await.unwrap();
    assert_eq!(on.row_expires().await, None, "pending");
    let _ = on.inbox.finish(&claim(0), &finish(Status::Ignored, at(9))).await.unwrap();
    assert_eq!(on.row_expires().await, seconds(at(9) + 35 * DAY), "ignored");
    let _ = on.inbox.replay(&key, at(20), at(19)).await.unwrap();
    assert_eq!(on.row_expires().await, None, "replayed");
    let failure = Failure::new("handler_failed", "no");
    let _ = on.inbox.park(&claim(1), 1, &failure, at(30)).await.unwrap();
    assert_eq!(on.row_expires().await, None, "parked");
    let _ = on.inbox.rearm(&key, at(50), at(40)).await.unwrap();
    assert_eq!(on.row_expires().await, None, "re-armed");
    let commit = Commit { claim: claim(2), ..a_commit() };
    assert_eq!(on.state.commit(&commit).await.unwrap(), commit::Answer::Applied);
    assert_eq!(on.row_expires().await, seconds(commit.expires_at), "processed");
}

/// Lifetimes nest: a body outlives its row.
#[tokio::test]
async fn a_body_beside_a_row_stays_for_as_long_as_the_row_needs_it() {
    let on = Local::new().await;
    let new = row(Place::Beside);
    on.inbox.put_beside(&new, b"packed").await.unwrap();
    on.inbox.accept(&new).await.unwrap();
    let twice = seconds(at(0) + 2 * InboxTable::RETENTION);
    assert_eq!(on.body_expires().await, twice);
    let later = NewRow { received_at: at(86_400), ..new.clone() };
    on.inbox.put_beside(&later, b"packed").await.unwrap();
    let twice = seconds(at(86_400) + 2 * InboxTable::RETENTION);
    assert_eq!(on.body_expires().await, twice, "putting it again renews its age");
    on.inbox.put_beside(&new, b"packed").await.unwrap();
    assert_eq!(on.body_expires().await, twice, "and never shortens it");

    let failure = Failure::new("handler_failed", "no");
    let late = on.inbox.park(&claim(7), 1, &failure, at(30)).await.unwrap();
    assert_eq!((late, on.body_expires().await), (Noted::Moved, twice.clone()));
    let parked = on.inbox.park(&claim(0), 1, &failure, at(30)).await.unwrap();
    assert_eq!((parked, on.body_expires().await), (Noted::Yes, None));
    on.inbox.put_beside(&later, b"packed").await.unwrap();
    assert_eq!(on.body_expires().await, None, "a duplicate does not end a parked body");

    let _ = on.inbox.rearm(&new.key, at(50), at(40)).await.unwrap();
    let _ = on.inbox.finish(&claim(1), &finish(Status::Processed, at(60))).await.unwrap();
    assert_eq!(on.body_expires().await, on.row_expires().await, "as its row");
    let replayed = on.inbox.replay(&new.key, at(80), at(70)).await.unwrap();
    assert_eq!((replayed, on.body_expires().await), (Noted::Yes, None));
    let again = on.inbox.replay(&new.key, at(80), at(70)).await.unwrap();
    assert_eq!(again, Noted::Moved);
    let commit = Commit { claim: claim(2), ..a_commit() };
    assert_eq!(on.state.commit(&commit).await.unwrap(), commit::Answer::Applied);
    assert_eq!(on.body_expires().await, seconds(commit.expires_at), "as its row");
}

/// Lifetimes nest: an event outlives the deliveries that may still need it.
#[tokio::test]
async fn a_dead_delivery_keeps_its_event() {
    let on = Local::new().await;
    let event = event(1);
    let pk = format!("demo#{}", domain::id::shard_of(&event.id.to_string(), dynamo::TENANT_SHARDS));
    let id = event.id.to_string();
    let expires = async || on.attribute("OutboxTable", (&pk, &id), "expires_at").await;
    on.outbox.publish(&event, None).await.unwrap();
    assert_eq!(expires().await, None, "NEW");
    let relayed = Relayed { at: at(5), endpoints: vec![lane().endpoint] };
    on.outbox.mark(&event.tenant, event.id, &relayed).await.unwrap();
    assert_eq!(expires().await, seconds(at(5) + OutboxTable::RETENTION));

    let new = Delivery::new(event.id, "invoice.paid".to_owned(), at(9), at(5));
    on.lanes.put(&NewDelivery { lane: lane(), delivery: new.clone() }).await.unwrap();
    let attempt = Attempt {
        number: 1,
        at: at(6),
        duration_ms: 1,
        outcome: Outcome::Answered { status: 500, retry_after_ms: None },
        excerpt: String::new(),
    };
    let dead = new.ended(attempt.clone(), Next::Dead, at(10));
    assert_eq!(on.lanes.record(&lane(), &new, &dead).await.unwrap(), Noted::Yes);
    assert_eq!(expires().await, None, "a person may redeliver it");
    let sk = format!("DELIVERY#{id}");
    let delivery_expires = async || {
        on.attribute("DeliveriesTable", (&format!("LANE#{}", lane()), &sk), "expires_at").await
    };
    assert_eq!(delivery_expires().await, None);

    let _ = on.lanes.redeliver(&lane(), event.id, at(99), at(20)).await.unwrap();
    let again = on.lanes.read(&lane(), &[event.id]).await.unwrap().pop().unwrap();
    let done = again.ended(Attempt { number: 2, ..attempt }, Next::Succeeded, at(30));
    assert_eq!(on.lanes.record(&lane(), &again, &done).await.unwrap(), Noted::Yes);
    assert_eq!(delivery_expires().await, seconds(at(30) + DeliveriesTable::RETENTION));
}

/// The api died between the idempotency key and the event.
#[tokio::test]
async fn a_publish_that_was_cut_in_two_is_made_whole_by_its_retry() {
    let on = Local::new().await;
    let (first, again) = (event(1), event(2));
    assert_eq!(on.outbox.publish(&first, Some("k")).await.unwrap(), Published::New);
    let shard = domain::id::shard_of(&first.id.to_string(), dynamo::TENANT_SHARDS);
    let key = (format!("demo#{shard}"), first.id.to_string());
    on.delete("OutboxTable", (&key.0, &key.1)).await;
    let answer = on.outbox.publish(&again, Some("k")).await.unwrap();
    assert_eq!(answer, Published::Before(first.id));
    let row = on.outbox.event(&first.tenant, first.id).await.unwrap().unwrap();
    assert_eq!((row.event.id, row.event.payload), (first.id, first.payload.clone()));
    assert!(on.outbox.event(&again.tenant, again.id).await.unwrap().is_none());

    // Once an event of that age may have been relayed and have expired, it is not sent again.
    on.delete("OutboxTable", (&key.0, &key.1)).await;
    let late = OutboxEvent { occurred_at: at(0) + 90 * DAY, ..event(3) };
    let answer = on.outbox.publish(&late, Some("k")).await.unwrap();
    assert_eq!(answer, Published::Before(first.id));
    assert!(on.outbox.event(&first.tenant, first.id).await.unwrap().is_none());
    // And later still the key is free, whether or not the store has deleted it.
    let later = OutboxEvent { occurred_at: at(0) + 91 * DAY, ..event(4) };
    assert_eq!(on.outbox.publish(&later, Some("k")).await.unwrap(), Published::New);
}

#[tokio::test]
async fn rows_are_listed_by_source_and_day_only_where_that_is_wanted() {
    let on = Local::new().await;
    on.inbox.accept(&row(Place::Bucket)).await.unwrap();
    let day = on.attribute("InboxTable", ROW, "source_day").await.unwrap();
    let shard = domain::id::shard_of(&row(Place::Bucket).key.to_string(), 4);
    assert_eq!(day, text(&format!("stripe#20260921#{shard}")));

    let off = Local::new().await;
    let inbox = InboxTable { list_by_source: false, ..off.inbox.clone() };
    inbox.accept(&row(Place::Bucket)).await.unwrap();
    assert_eq!(off.attribute("InboxTable", ROW, "source_day").await, None);
}

/// More rows, and more bytes, than the store gives in one answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_in_many_pages_is_read_to_its_end() {
    let on = Local::new().await;
    let attempt = |number| Attempt {
        number,
        at: at(6),
        duration_ms: 1,
        outcome: Outcome::Answered { status: 500, retry_after_ms: None },
        excerpt: "x".repeat(4_096),
    };
    let log: Vec<_> = (1..).map(attempt).take(MAX_LOG).collect();
    let mut events = Vec::new();
    for number in 0..160 {
        let event = event(number).id;
        let new = Delivery::new(event, "invoice.paid".to_owned(), at(9), at(5));
        let delivery = Delivery { log: log.clone(), ..new };
        on.lanes.put(&NewDelivery { lane: lane(), delivery }).await.unwrap();
        events.push(event);
    }
    // About 20 MB: a batch of 100 has more than an answer holds.
    let found = on.lanes.read(&lane(), &events).await.unwrap();
    assert!(found.iter().map(|delivery| delivery.event).eq(events.iter().copied()));
    assert_eq!(on.lanes.due(&lane(), at(5), 1_000).await.unwrap().len(), 160);
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Throttled,
    Unavailable,
    Refused,
}

fn kind<T: std::fmt::Debug>(answer: Result<T, StoreError>) -> Kind {
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

fn state(faulty: &faults::Faulty) -> StateTable {
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

/// ING-error-taken-for-duplicate, OUT-transaction-conflict: reasons come through one to one, and the order in which they
/// are asked decides.
#[tokio::test]
async fn the_reasons_of_a_cancelled_transaction_come_through_one_to_one() {
    use Reason::{ConditionFailed, Conflict, Invalid, None, Transient};
    let table: [(&[&str], &[Reason], &str); 8] = [
        (&["ConditionalCheckFailed", "None", "None"], &[ConditionFailed, None, None], "Moved"),
        (
            &["ConditionalCheckFailed", "TransactionConflict", "None"],
            &[ConditionFailed, Conflict, None],
            "Moved",
        ),
        (&["None", "TransactionConflict", "None"], &[None, Conflict, None], "Later"),
        (
            &["None", "ConditionalCheckFailed", "TransactionConflict"],
            &[None, ConditionFailed, Conflict],
            "Later",
        ),
        (
            &["ThrottlingError", "ConditionalCheckFailed", "None"],
            &[Transient, ConditionFailed, None],
            "Later",
        ),
        (&["None", "None", "ProvisionedThroughputExceeded"], &[None, None, Transient], "Later"),
        (&["None", "ValidationError", "None"], &[None, Invalid, None], "Invalid"),
        (&["None", "ConditionalCheckFailed", "None"], &[None, ConditionFailed, None], "Narrowed"),
    ];
    for (codes, reasons, next) in table {
        let faulty = answering(Answer::cancelled(codes)).await;
        let answer = state(&faulty).commit(&a_commit()).await.unwrap();
        assert_eq!(answer, commit::Answer::Refused(reasons.to_vec()), "{codes:?}");
        let shown = format!("{:?}", a_commit().after(&answer));
        assert!(shown.starts_with(next), "{codes:?}: {shown}");
    }
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
        let faulty = answering(Answer::cancelled(codes)).await;
        let lanes = DeliveriesTable::new(faulty.client.clone(), "DeliveriesTable", 4);
        let again = lanes.redeliver(&lane(), event(1).id, at(9), at(5)).await;
        assert_eq!(kind(again), expected, "{codes:?}");
        let registry =
            dynamo::RegistryTable { client: faulty.client.clone(), table: "R".to_owned() };
        let source = domain::source::Source {
            name: "stripe".parse().unwrap(),
            scheme: domain::source::SchemeChoice::Preset("stripe".to_owned()),
            handler: domain::source::Handler::Mirror { emit_to: None },
            created_at: at(0),
        };
        assert_eq!(kind(registry.add_source(&source).await), expected, "{codes:?}");
    }
}

/// A batch of which the store returns nothing, again and again, does not go on for ever.
#[tokio::test]
async fn a_batch_that_brings_nothing_is_given_up() {
    let key = r#"{"pk":{"S":"a"},"sk":{"S":"b"}}"#;
    let nothing = format!(
        r#"{{"Responses":{{"DeliveriesTable":[]}},"UnprocessedKeys":{{"DeliveriesTable":{{"ConsistentRead":true,"Keys":[{key}]}}}}}}"#
    );
    let faulty = answering(Answer::Says(200, nothing)).await;
    let lanes = DeliveriesTable::new(faulty.client.clone(), "DeliveriesTable", 4);
    assert_eq!(kind(lanes.read(&lane(), &[event(1).id]).await), Kind::Throttled);
}

/// A row that a stranger, or a later version, wrote.
#[tokio::test]
async fn a_row_that_cannot_be_read_is_an_error_and_not_a_duplicate() {
    let on = Local::new().await;
    let put = on.client.put_item().table_name("InboxTable");
    put.item("pk", text(ROW.0)).item("sk", text(ROW.1)).send().await.unwrap();
    let accepted = on.inbox.accept(&row(Place::Bucket)).await;
    assert!(matches!(accepted, Err(StoreError::Unreadable(_))), "{accepted:?}");
    let read = on.inbox.read(&row(Place::Bucket).key).await;
    assert!(matches!(read, Err(StoreError::Unreadable(_))), "{read:?}");
    let other = InboxKey::new("stripe".parse().unwrap(), "evt_2").unwrap();
    let fine = NewRow { key: other, ..row(Place::Bucket) };
    assert_eq!(on.inbox.accept(&fine).await.unwrap(), Accepted::New);
}

#[tokio::test]
async fn a_function_that_was_not_told_a_table_says_so() {
    let on = Local::new().await;
    let state = StateTable { commits: None, ..on.state.clone() };
    assert_eq!(kind(state.commit(&a_commit()).await), Kind::Refused);
    let outbox = OutboxTable { requests: None, ..on.outbox.clone() };
    assert_eq!(kind(outbox.publish(&event(1), Some("k")).await), Kind::Refused);
    assert_eq!(outbox.publish(&event(1), None).await.unwrap(), Published::New);
    // And without the outbox, a delivery may still end.
    let lanes = DeliveriesTable { outbox: None, ..on.lanes.clone() };
    let new = Delivery::new(event(1).id, "t".to_owned(), at(9), at(5));
    lanes.put(&NewDelivery { lane: lane(), delivery: new.clone() }).await.unwrap();
    let dead = Delivery { state: Stands::Dead, finished_at: Some(at(9)), ..new.clone() };
    assert_eq!(lanes.record(&lane(), &new, &dead).await.unwrap(), Noted::Yes);
}
