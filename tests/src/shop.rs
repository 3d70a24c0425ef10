//! A shop whose payments the worked example carries out: what its provider says of them, and how often what had to be
//! done was done.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};

use crate::{
    aws::Item,
    control::Fault,
    host::{Host, Setup},
    now,
    provider::{Event, Provider},
    subscriber::Subscriber,
};

/// Who does what cannot be done in the table: the tenant that the shop itself is.
const INTERNAL: &str = "internal";

/// How many requests the provider has under way.
const WIDTH: usize = 8;

/// A host with the payments of one shop, and whoever grants, books, mails and pays out.
#[derive(Debug)]
pub struct Shop {
    /// The host.
    pub host: Host,
    /// Who says what is paid.
    pub provider: Provider,
    /// Who does what follows.
    pub office: Subscriber,
}

impl Shop {
    /// Starts a host of its own with a shop.
    ///
    /// # Errors
    /// The host does not come up.
    pub async fn open(setup: Setup) -> Result<Self> {
        let host = Host::start(setup).await?;
        let (provider, office) = (Provider::stripe("shop")?, host.subscriber().await?);
        let api = host.api()?;
        api.endpoint(INTERNAL, &office.url()).await?;
        api.handle(&provider, &json!({ "kind": "own", "name": "payments" })).await?;
        Ok(Self { host, provider, office })
    }

    /// The provider says that an invoice is paid, in one of its words for it.
    pub fn invoice(id: &str, kind: &str, invoice: &str) -> Event {
        let object = json!({
            "id": invoice, "object": "invoice", "status": "paid", "customer": "cus_1", "amount_paid": 1999,
            "currency": "eur",
        });
        Self::event(id, kind, &object)
    }

    /// The provider says that a payment was made, in one of its words for it.
    pub fn charge(id: &str, kind: &str, charge: &str) -> Event {
        let object = json!({
            "id": charge, "object": "charge", "status": "succeeded", "captured": true, "customer": "cus_1",
            "amount_captured": 500, "currency": "eur",
        });
        Self::event(id, kind, &object)
    }

    /// The provider says what became of the intent to pay an order.
    pub fn order(id: &str, kind: &str, order: &str) -> Event {
        let object = json!({
            "id": format!("pi_{order}"), "object": "payment_intent", "amount": 700, "currency": "eur",
            "metadata": { "order": order, "seller": "acct_1" },
        });
        Self::event(id, kind, &object)
    }

    /// Any event, as this provider makes it.
    pub fn event(id: &str, kind: &str, object: &Value) -> Event {
        let body = json!({
            "id": id, "object": "event", "type": kind, "created": now().as_second(), "livemode": false,
            "data": { "object": object },
        });
        Event::new(id, kind, body.to_string())
    }

    /// Sends events, several at a time, each until it is accepted. The host may be restarted meanwhile.
    ///
    /// # Errors
    /// One is never accepted.
    pub async fn send(&self, events: &[Event]) -> Result<()> {
        stream::iter(events)
            .map(|event| self.provider.send_until_accepted(&self.host, event))
            .buffer_unordered(WIDTH)
            .try_for_each(|_| async { Ok(()) })
            .await
    }

    /// From now on queues repeat, reorder, delay and forget acknowledgements, and stores lose answers: a while of all that
    /// they may do at any time.
    ///
    /// # Errors
    /// The host does not answer.
    pub async fn disturb(&self) -> Result<()> {
        let faults = [
            Fault::new("sqs", "SendMessage", "duplicate").skip(1).times(15),
            Fault::new("sqs", "SendMessage", "hold").skip(4).times(8).by(1500),
            Fault::new("sqs", "ReceiveMessage", "reorder").times(40),
            Fault::new("sqs", "ReceiveMessage", "duplicate").skip(2).times(8),
            Fault::new("sqs", "DeleteMessage", "lost").times(8),
            Fault::new("dynamodb", "TransactWriteItems", "drop")
                .of("worker")
                .after()
                .skip(2)
                .times(6),
            Fault::new("dynamodb", "TransactWriteItems", "conflict").of("worker").skip(5).times(3),
            Fault::new("dynamodb", "UpdateItem", "throttle").of("worker").skip(3).times(3),
        ];
        let control = self.host.control()?;
        for fault in faults {
            control.fault(&fault).await?;
        }
        Ok(())
    }

    /// Waits until the provider's events are processed, and what followed is done.
    ///
    /// # Errors
    /// It does not come to that.
    pub async fn until_done(&self, events: &[Event]) -> Result<()> {
        let api = self.host.api()?;
        for event in events {
            crate::eventually(&format!("{} is done", event.id), async || {
                let story = api.story(self.provider.source(), &event.id).await?;
                ensure!(story.status() == "processed", "{}", story.0);
                for outgoing in story.outgoing() {
                    outgoing.ensure_all("succeeded")?;
                }
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    /// How often each thing of one type was to be done: what it is about, and how many outgoing events say so. The office
    /// got each of them, always under its own id and with the same bytes.
    ///
    /// # Errors
    /// It did not.
    pub async fn effects(&self, event_type: &str) -> Result<BTreeMap<String, usize>> {
        let mut bodies = BTreeMap::new();
        for seen in self.office.seen() {
            let before = bodies.insert(seen.id().to_owned(), seen.body.clone());
            ensure!(
                before.is_none_or(|before| before == seen.body),
                "{} came otherwise",
                seen.id()
            );
        }
        let outbox = self.host.aws()?.items("OutboxTable").await?;
        ensure!(bodies.len() == outbox.len(), "{} of {} effects came", bodies.len(), outbox.len());
        let mut counts = BTreeMap::new();
        for item in outbox {
            let id = item.text("sk").context("an outgoing event has an id")?;
            ensure!(bodies.contains_key(id), "{id} never came");
            if item.text("type") == Some(event_type) {
                let about = item.text("aggregate_id").context("an effect is about something")?;
                *counts.entry(about.to_owned()).or_default() += 1;
            }
        }
        Ok(counts)
    }

    /// What the events have led to: objects, operation keys, and what was to be done; not who holds a lease, nor when
    /// something was last heard.
    ///
    /// # Errors
    /// The tables cannot be read.
    pub async fn outcome(&self) -> Result<BTreeMap<String, Value>> {
        let aws = self.host.aws()?;
        let mut outcome = BTreeMap::new();
        for table in ["StateTable", "OutboxTable"] {
            for item in aws.items(table).await? {
                let lasts =
                    ["OBJECT#", "OPERATION#", INTERNAL].iter().any(|start| item.is_of(start));
                if lasts {
                    outcome.insert(named(&item), item.raw().clone());
                }
            }
        }
        Ok(outcome)
    }

    /// The item of an order.
    ///
    /// # Errors
    /// There is none.
    pub async fn order_item(&self, order: &str) -> Result<Item> {
        let items = self.host.aws()?.items("StateTable").await?;
        let start = format!("OBJECT#{}#order#{order}", self.provider.source());
        items.into_iter().find(|item| item.text("pk") == Some(&start)).context("no such order")
    }
}

fn named(item: &Item) -> String {
    format!("{} {}", item.text("pk").unwrap_or_default(), item.text("sk").unwrap_or_default())
}
