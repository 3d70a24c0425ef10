//! What the relay writes into lanes.

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use domain::{
    commit::Reason,
    delivery::{NewDelivery, State},
    lane::{LaneId, Pointer},
    ports::{Fanout, Stored},
};
use jiff::Timestamp;

use crate::{
    error::cancelled,
    expression::Expression,
    item::{Item, Writer},
    items::{delivery, lane},
    keys,
    table::{Table, Transacted, Write, transact_in_lane},
};

/// The table of lanes and deliveries.
#[derive(Clone, Debug)]
pub struct DeliveriesTable {
    /// The SDK's client.
    pub client: Client,
    /// The name of the table.
    pub table: String,
    /// Shards of the index of lanes that sleep until a time. May grow; a lane takes its new shard when it is woken.
    pub shards: u16,
    /// How long a delivery that succeeded or was cancelled stays.
    pub retention: Duration,
    /// The name of the outbox's table, where a delivery that is given up keeps its event; `None` for a function that ends none.
    pub outbox: Option<String>,
}

impl DeliveriesTable {
    /// The default of [`Self::retention`], which is the template's: 90 days.
    pub const RETENTION: Duration = Duration::from_hours(90 * 24);

    /// The table as those see it who make no attempts.
    pub fn new(client: Client, table: impl Into<String>, shards: u16) -> Self {
        let (table, retention) = (table.into(), Self::RETENTION);
        Self { client, table, shards, retention, outbox: None }
    }

    pub(crate) fn table(&self) -> Table<'_> {
        Table { client: &self.client, name: &self.table }
    }
}

/// A pointer, as an item.
pub(crate) fn pointer(lane: &LaneId, pointer: &Pointer) -> Item {
    Writer::new(keys::pointer(lane, pointer), "pointer").done()
}

impl Fanout for DeliveriesTable {
    async fn put(&self, new: &NewDelivery) -> Stored<()> {
        let NewDelivery { lane, delivery } = new;
        let item = delivery::write(lane, delivery)?;
        let delivery = match self.table().put(item, &Expression::absent()).await? {
            Write::Done(_) => delivery.clone(),
            // Put before. It may have been tried since, and then its pointer stands elsewhere.
            Write::Refused(old) => delivery::read(&old)?,
        };
        if delivery.state != State::Pending {
            return Ok(());
        }
        // The delivery may end, or move, before this is written. Its holder finds a pointer too many and deletes it;
        // nobody would find one too few.
        self.table().put_anyway(pointer(lane, &Pointer::of(&delivery))).await
    }

    async fn put_awake(&self, new: &NewDelivery, now: Timestamp) -> Stored<()> {
        let NewDelivery { lane, delivery } = new;
        let table = self.table();
        let actions = vec![
            table.putting(delivery::write(lane, delivery)?, &Expression::absent())?,
            table.putting(pointer(lane, &Pointer::of(delivery)), &Expression::new())?,
            table.updating(keys::lane(lane), &lane::wake(lane, self.shards, now))?,
        ];
        match transact_in_lane(&self.client, actions).await? {
            Transacted::Done => Ok(()),
            // The answer to our own write was lost, and the client has tried again.
            Transacted::Cancelled(reasons) if reasons.first() == Some(&Reason::ConditionFailed) => {
                Ok(())
            }
            Transacted::Cancelled(reasons) => Err(cancelled(&reasons)),
        }
    }

    async fn wake(&self, id: &LaneId, now: Timestamp) -> Stored<()> {
        let change = lane::wake(id, self.shards, now);
        self.table().update(keys::lane(id), &change).await.map(drop)
    }
}
