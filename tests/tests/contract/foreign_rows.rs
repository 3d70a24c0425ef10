//! Rows that another hand wrote: what an index names of them cannot be read, and holds up nothing else of its shard.

use aws_sdk_dynamodb::types::AttributeValue;
use domain::{
    body::Place,
    ports::{DueInbox as _, Fanout as _, Inbox as _, Lanes as _, Outbox as _, Published},
};

use crate::{
    given::{at, event, lane, row},
    tables::Local,
};

impl Local {
    /// Puts a row with a key that is none of ours, first in the order of an index.
    async fn foreign(&self, table: &str, sk: &str, index: [(&str, AttributeValue); 2]) {
        let text = |text: &str| AttributeValue::S(text.to_owned());
        let put = self.client.put_item().table_name(table);
        let put = put.item("pk", text("not ours\u{1b}[31m")).item("sk", text(sk));
        let [first, second] = index.map(|(name, value)| (name.to_owned(), value));
        put.item(first.0, first.1).item(second.0, second.1).send().await.unwrap();
    }
}

/// REC-orphan-states: what is owed in the same shard is found, and as much of it as was asked for.
#[tokio::test]
async fn a_key_that_cannot_be_read_holds_up_nothing_else_of_its_shard() {
    let on = Local::new().await;
    let time = |second| AttributeValue::N(at(second).as_millisecond().to_string());
    assert!(matches!(on.outbox.publish(&event(1), None).await.unwrap(), Published::New));
    on.inbox.accept(&row(Place::Bucket)).await.unwrap();
    on.lanes.wake(&lane(), at(1)).await.unwrap();
    for shard in 0..4_u16 {
        let (sk, shard) = (shard.to_string(), AttributeValue::S(shard.to_string()));
        let early = time(-1_000_000);
        for (table, name, at) in [
            ("OutboxTable", "unrelayed_shard", "occurred_at"),
            ("InboxTable", "pending_shard", "due_at"),
            ("DeliveriesTable", "wake_shard", "wake_at"),
        ] {
            on.foreign(table, &sk, [(name, shard.clone()), (at, early.clone())]).await;
        }
    }
    let (mut events, mut rows, mut lanes) = (0, 0, 0);
    for shard in 0..4 {
        events += on.outbox.unrelayed(shard, at(9_000), 1).await.unwrap().len();
        rows += on.inbox.due(shard, at(9_000), 1).await.unwrap().len();
        lanes += on.lanes.sleepers(shard, at(9_000), 1).await.unwrap().len();
    }
    assert_eq!((events, rows, lanes), (1, 1, 1));
}
