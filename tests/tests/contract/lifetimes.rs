//! How long items stay: what is owed or parked never expires, and what one item needs of another outlives it.

use aws_sdk_dynamodb::types::AttributeValue;
use domain::{
    body::{Place, Sha256Hash},
    commit::{Answer, Commit},
    delivery::{Attempt, Delivery, NewDelivery, Next, Outcome},
    id::shard_of,
    inbox::{Failure, NewRow, Noted, Status},
    outbox::{OutboxEvent, Relayed},
    ports::{Deliveries as _, Fanout as _, Inbox as _, Outbox as _, Published, State as _},
};
use dynamo::{DeliveriesTable, InboxTable, OutboxTable, TENANT_SHARDS};
use jiff::Timestamp;

use crate::{
    given::{ROW, a_commit, at, claim, event, finish, lane, row},
    tables::{DAY, Local},
};

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
    assert_eq!(on.state.commit(&commit).await.unwrap(), Answer::Applied);
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
    assert_eq!(on.state.commit(&commit).await.unwrap(), Answer::Applied);
    assert_eq!(on.body_expires().await, seconds(commit.expires_at), "as its row");
}

/// Lifetimes nest: an event outlives the deliveries that may still need it.
#[tokio::test]
async fn a_dead_delivery_keeps_its_event() {
    let on = Local::new().await;
    let event = event(1);
    let pk = format!("demo#{}", shard_of(&event.id.to_string(), TENANT_SHARDS));
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

/// Lifetimes nest, also if a delivery dies at once, before its event is marked as relayed: the mark may come minutes later,
/// from the sweeper.
#[tokio::test]
async fn a_delivery_that_dies_before_the_mark_keeps_its_event() {
    let on = Local::new().await;
    let event = event(1);
    on.outbox.publish(&event, None).await.unwrap();
    let new = Delivery::new(event.id, "invoice.paid".to_owned(), at(9), at(5));
    on.lanes.put(&NewDelivery { lane: lane(), delivery: new.clone() }).await.unwrap();
    let dead = new.given_up(domain::delivery::Cause::Expired, at(6));
    assert_eq!(on.lanes.record(&lane(), &new, &dead).await.unwrap(), Noted::Yes);
    let relayed = Relayed { at: at(7), endpoints: vec![lane().endpoint] };
    on.outbox.mark(&event.tenant, event.id, &relayed).await.unwrap();
    let row = on.outbox.event(&event.tenant, event.id).await.unwrap().unwrap();
    assert_eq!(row.relayed, Some(relayed));
    let id = event.id.to_string();
    let pk = format!("demo#{}", shard_of(&id, TENANT_SHARDS));
    assert_eq!(on.attribute("OutboxTable", (&pk, &id), "expires_at").await, None);
}

/// The api died between the idempotency key and the event.
#[tokio::test]
async fn a_publish_that_was_cut_in_two_is_made_whole_by_its_retry() {
    let on = Local::new().await;
    let (first, again) = (event(1), event(2));
    assert_eq!(on.outbox.publish(&first, Some("k")).await.unwrap(), Published::New);
    let shard = shard_of(&first.id.to_string(), TENANT_SHARDS);
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
