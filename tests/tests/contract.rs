//! The ports in memory and in DynamoDB keep one contract; and what only the second can get wrong.

#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that finds something else than it must fails"
)]

#[path = "contract/faults.rs"]
mod faults;
#[path = "contract/foreign_rows.rs"]
mod foreign_rows;
#[path = "contract/given.rs"]
mod given;
#[path = "contract/lifetimes.rs"]
mod lifetimes;
#[path = "contract/meaning.rs"]
mod meaning;
#[expect(dead_code, reason = "the tables are all this suite asks of the template")]
#[path = "template/stack.rs"]
mod stack;
#[path = "contract/tables.rs"]
mod tables;

use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};
use domain::{
    body::Place,
    commit::{Commit, Next as After, Staged},
    delivery::{Attempt, Delivery, NewDelivery, Next, Outcome, State as Stands},
    destination::Destination,
    endpoint::Endpoint,
    event::{ObjectRef, Version},
    id::{InboxKey, shard_of},
    inbox::{Accepted, NewRow, Noted},
    plan::Guard,
    ports::{
        Configure as _, Deliveries as _, Due, Fanout as _, Inbox as _, Outbox as _, Published,
        Purpose, SealedSecret, State as _, StoreError,
    },
};
use dynamo::{DeliveriesTable, InboxTable, OutboxTable, StateTable};
use given::{ROW, a_commit, at, event, lane, row};
use meaning::{Kind, kind};
use tables::{Local, text};
use testkit::{
    contract,
    memory::{MemorySecrets, Store},
};

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
    memory_keeps_the_contract_of_the_walk, dynamo_keeps_the_contract_of_the_walk: walk;
    memory_keeps_the_contract_of_bulk_work, dynamo_keeps_the_contract_of_bulk_work: bulk;
    memory_keeps_the_contract_of_redelivery, dynamo_keeps_the_contract_of_redelivery: redelivery;
    memory_keeps_the_contract_of_the_watch, dynamo_keeps_the_contract_of_the_watch: watch;
    memory_keeps_the_contract_of_published_keys, dynamo_keeps_the_contract_of_published_keys: published_keys;
    memory_keeps_the_contract_of_turns, dynamo_keeps_the_contract_of_turns: turns;
}

#[tokio::test]
async fn memory_keeps_the_contract_of_secrets() {
    contract::secrets(async || MemorySecrets::default()).await;
}

#[tokio::test]
async fn rows_are_listed_by_source_and_day_only_where_that_is_wanted() {
    let on = Local::new().await;
    on.inbox.accept(&row(Place::Bucket)).await.unwrap();
    let day = on.attribute("InboxTable", ROW, "source_day").await.unwrap();
    let shard = shard_of(&row(Place::Bucket).key.to_string(), 4);
    assert_eq!(day, text(&format!("stripe#20260921#{shard}")));

    let off = Local::new().await;
    let inbox = InboxTable { list_by_source: false, ..off.inbox.clone() };
    inbox.accept(&row(Place::Bucket)).await.unwrap();
    assert_eq!(off.attribute("InboxTable", ROW, "source_day").await, None);
}

#[tokio::test]
async fn a_delivery_that_is_asked_for_twice_is_read_once() {
    let on = Local::new().await;
    let new = Delivery::new(event(1).id, "t".to_owned(), at(9), at(5));
    on.lanes.put(&NewDelivery { lane: lane(), delivery: new.clone() }).await.unwrap();
    // The store refuses a batch that names one item twice.
    let found = on.lanes.read(&lane(), &[new.event, new.event]).await.unwrap();
    assert_eq!(found, [new]);
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

/// A deleted endpoint keeps no secret, and a row that an earlier version wrote is replaced all the same.
#[tokio::test]
async fn the_secrets_of_a_deleted_endpoint_leave_the_table() {
    let on = Local::new().await;
    let of = lane();
    let url = Destination::Https("https://example.com/".to_owned());
    let made = Endpoint::new(of.tenant.clone(), of.endpoint, url, at(0));
    let secret = SealedSecret {
        id: "1".to_owned(),
        purpose: Purpose::Signing,
        sealed: b"CANARY".to_vec(),
        expires_at: None,
    };
    assert!(on.registry.add_endpoint(&made, std::slice::from_ref(&secret)).await.unwrap());
    let (pk, sk) = (format!("TENANT#{}", of.tenant), format!("ENDPOINT#{}", of.endpoint));
    let text_of = on.attribute("RegistryTable", (&pk, &sk), "endpoint").await.unwrap();
    let spaced = text_of.as_s().unwrap().replace("\":", "\": ");
    let put = on.client.put_item().table_name("RegistryTable").item("pk", text(&pk));
    put.item("sk", text(&sk)).item("endpoint", text(&spaced)).send().await.unwrap();
    let old = (made, vec![secret]);
    let new = (Endpoint { rate: Some(3), ..old.0.clone() }, old.1.clone());
    assert!(on.registry.replace_endpoint(&old, &new).await.unwrap());
    assert!(on.registry.remove_endpoint(&new.0, at(9)).await.unwrap());
    let left = on.client.scan().table_name("RegistryTable").send().await.unwrap();
    let left = format!("{:?}", left.items());
    let canary = format!("{:?}", AttributeValue::B(Blob::new(b"CANARY")));
    assert!(left.contains("GONE#") && !left.contains(&canary), "{left}");
}

/// The relay runs again after the delivery has ended, or has been tried.
#[tokio::test]
async fn a_delivery_that_is_put_again_gets_the_pointer_that_it_should_have() {
    let on = Local::new().await;
    let new = Delivery::new(event(1).id, "t".to_owned(), at(9), at(5));
    let put = NewDelivery { lane: lane(), delivery: new.clone() };
    let due = async || {
        let mut both = Vec::new();
        for kind in domain::lane::Kind::ALL {
            both.extend(on.lanes.due(&lane(), kind, Due::by(at(1_000)), 10).await.unwrap());
        }
        both
    };
    on.lanes.put(&put).await.unwrap();
    let [pointer] = due().await.try_into().unwrap();
    on.lanes.unpoint(&lane(), &pointer).await.unwrap();

    let attempt = Attempt {
        number: 1,
        at: at(6),
        duration_ms: 1,
        outcome: Outcome::Answered { status: 500, retry_after_ms: None },
        excerpt: String::new(),
    };
    let waits = new.ended(attempt.clone(), Next::RetryAt(at(100)), at(6));
    assert_eq!(on.lanes.record(&lane(), &new, &waits).await.unwrap(), Noted::Yes);
    on.lanes.put(&put).await.unwrap();
    let [pointer] = due().await.try_into().unwrap();
    assert_eq!(pointer.due_at, at(100));
    on.lanes.unpoint(&lane(), &pointer).await.unwrap();

    let done = waits.ended(Attempt { number: 2, ..attempt }, Next::Succeeded, at(101));
    assert_eq!(on.lanes.record(&lane(), &waits, &done).await.unwrap(), Noted::Yes);
    on.lanes.put(&put).await.unwrap();
    assert!(due().await.is_empty());
}

/// What a store says of an item over its limit, wherever its words come from.
#[tokio::test]
async fn an_object_that_no_item_holds_is_too_large_for_ever() {
    let on = Local::new().await;
    on.inbox.accept(&row(Place::Bucket)).await.unwrap();
    let guard = Guard::Newer {
        object: ObjectRef { kind: "invoice".to_owned(), id: "in_1".to_owned() },
        version: Version::Number(1),
        fields: "x".repeat(420_000).into(),
        deleted: false,
    };
    let commit = Commit { changes: vec![Staged { guard, events: Vec::new() }], ..a_commit() };
    let answer = on.state.commit(&commit).await.unwrap();
    assert_eq!(commit.after(&answer), After::TooLarge, "{answer:?}");
}
