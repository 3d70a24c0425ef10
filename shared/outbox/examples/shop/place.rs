//! Placing an order.

use std::time::Duration;

use anyhow::{Result, bail};
use aws_sdk_dynamodb::{
    Client,
    types::{AttributeValue, Put, TransactWriteItem},
};
use jiff::Timestamp;
use postern_outbox::{After, Event, EventId, Outbox, after};

/// Tries of one transaction.
const TRIES: u32 = 20;

/// What a customer ordered.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) id: String,
    /// In cents.
    pub(crate) total: u64,
    /// When the customer sent it.
    pub(crate) at: Timestamp,
}

/// What became of an order, with the id of its event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placed {
    Now(EventId),
    /// An earlier run had placed it, and did not come as far as saying so.
    Before(EventId),
}

/// The shop.
#[derive(Clone, Debug)]
pub(crate) struct Shop {
    pub(crate) client: Client,
    /// The shop's own table.
    pub(crate) orders: String,
    /// Postern's.
    pub(crate) outbox: Outbox,
}

impl Shop {
    /// Places an order and tells of it: both, or neither.
    pub(crate) async fn place(&self, order: &Order) -> Result<Placed> {
        let event = told(order)?;
        // Made once. Every try sends the same.
        let items = vec![self.outbox.put(&event)?, self.stored(order)?];
        self.commit(items, &event).await
    }

    /// Commits a transaction whose first item is the event's.
    pub(crate) async fn commit(
        &self,
        items: Vec<TransactWriteItem>,
        event: &Event,
    ) -> Result<Placed> {
        for tries in 0..TRIES {
            let transaction = self.client.transact_write_items();
            let sent = transaction
                .set_transact_items(Some(items.clone()))
                .client_request_token(event.token())
                .send()
                .await;
            let Err(error) = sent else { return Ok(Placed::Now(event.id())) };
            match after(&error, 0) {
                After::Again => tokio::time::sleep(wait(tries)).await,
                After::Before => return Ok(Placed::Before(event.id())),
                After::Refused(_) => bail!("there is another order of this id"),
                After::Never => return Err(error.into()),
            }
        }
        bail!("the store is busy; run it again, which places nothing twice")
    }

    fn stored(&self, order: &Order) -> Result<TransactWriteItem> {
        let put = Put::builder()
            .table_name(&self.orders)
            .item("id", AttributeValue::S(order.id.clone()))
            .item("total", AttributeValue::N(order.total.to_string()))
            .condition_expression("attribute_not_exists(id)");
        Ok(TransactWriteItem::builder().put(put.build()?).build())
    }
}

/// What subscribers are told of an order.
fn told(order: &Order) -> Result<Event> {
    let payload = serde_json::to_vec(&serde_json::json!({ "id": order.id, "total": order.total }))?;
    let event = Event::new("shop", "order.placed", &order.id, payload)
        .aggregate_version(1)
        .label("size", if order.total < 10_000 { "small" } else { "large" })
        .once(&format!("place {}", order.id), order.at);
    Ok(event)
}

/// Full jitter: anything up to a bound that doubles from 20 ms to 2 s.
fn wait(tries: u32) -> Duration {
    let bound = Duration::from_millis(20).saturating_mul(1 << tries.min(7));
    bound.mul_f64(rand::random()).min(Duration::from_secs(2))
}
