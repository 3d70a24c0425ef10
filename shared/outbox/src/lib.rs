//! Outgoing events in your own DynamoDB transactions.
//!
//! A change of your state and the event that tells of it are one `TransactWriteItems`: both are there, or neither. This
//! crate makes the item; you send it beside yours, with your own client. From then on the event is in the outbox, and
//! Postern delivers it whatever happens to your process.
//!
//! ```
//! use aws_sdk_dynamodb::types::TransactWriteItem;
//! use postern_outbox::{Event, Outbox};
//!
//! # fn place(order: TransactWriteItem) -> Result<Vec<TransactWriteItem>, Box<dyn std::error::Error>> {
//! let outbox = Outbox::new("postern-prod-OutboxTable-1ABC", 4); // two outputs of the stack
//! let payload = br#"{"order": "order-1", "total": 4200}"#;
//! let event = Event::new("acme", "order.placed", "order-1", payload).aggregate_version(1);
//! // client.transact_write_items().set_transact_items(Some(items)).send()
//! let items = vec![order, outbox.put(&event)?];
//! # Ok(items)
//! # }
//! ```
//!
//! Never here: a call of anything. There is no "publish" and no "publish later", because an event that is written beside
//! its change, and not with it, is lost when the process dies in between.
//!
//! Reading order: [`Outbox`], [`Event`], then [`after()`], which says what to do when a transaction did not commit.

mod bad;
mod event;
#[cfg(feature = "large")]
mod large;
mod outcome;

use aws_sdk_dynamodb::types::TransactWriteItem;
pub use domain::{
    id::EventId,
    outbox::{INLINE_MAX, rules::Flaw},
};

#[cfg(feature = "large")]
pub use self::large::Object;
pub use self::{
    bad::BadEvent,
    event::Event,
    outcome::{After, after, cancelled},
};

/// The outbox of one deployment.
#[derive(Clone, Debug)]
pub struct Outbox {
    table: String,
    shards: u16,
}

impl Outbox {
    /// The outbox with this table, which the stack's output `OutboxTableName` says, and so many shards, which
    /// `OutboxShards` says.
    ///
    /// More shards than the stack has would hide events from its sweeper, so that an event that the stream lost were
    /// never sent. Fewer only share its index among fewer partitions.
    pub fn new(table: impl Into<String>, shards: u16) -> Self {
        Self { table: table.into(), shards: shards.clamp(1, 64) }
    }

    /// The action for your transaction. It takes the event as it is now and changes nothing anywhere.
    ///
    /// Its condition is that no event of this id is there yet.
    ///
    /// # Errors
    /// Everything that is wrong with the event.
    pub fn put(&self, event: &Event) -> Result<TransactWriteItem, BadEvent> {
        let checked = event.checked()?;
        let action = dynamo::in_transaction(&checked, &self.table, self.shards);
        action.map_err(|error| BadEvent::of_the_sdk(&error))
    }
}
