//! What an event says, in our words. What is wrong with one is told without a word of it.

use domain::event::ObjectRef;
use serde::{Deserialize, de::DeserializeOwned};

use super::super::Event;

/// The one thing that concerns us.
pub(super) enum Said {
    /// An invoice is paid.
    InvoicePaid(Invoice),
    /// Money has come.
    PaymentMade(Payment),
    /// An order should be in some state.
    OrderIs(Proposal),
    /// Nothing that concerns us.
    NothingOfOurs,
}

/// An invoice. Amounts are whole numbers of the currency's smallest unit.
#[derive(Deserialize)]
pub(super) struct Invoice {
    pub(super) id: String,
    pub(super) customer: String,
    pub(super) amount_paid: u64,
    pub(super) currency: String,
    status: Option<String>,
}

/// A payment, perhaps of an order.
#[derive(Deserialize)]
pub(super) struct Payment {
    pub(super) id: String,
    pub(super) customer: Option<String>,
    pub(super) amount_captured: u64,
    pub(super) currency: String,
    status: String,
    captured: bool,
    #[serde(default)]
    pub(super) metadata: Metadata,
}

/// What we gave the provider to keep for us.
#[derive(Default, Deserialize)]
pub(super) struct Metadata {
    pub(super) order: Option<String>,
    seller: Option<String>,
}

/// Where an order should be, by what became of the intent to pay it.
pub(super) struct Proposal {
    pub(super) order: String,
    pub(super) to: &'static str,
    pub(super) amount: u64,
    pub(super) currency: String,
    /// Who has earned it.
    pub(super) seller: Option<String>,
}

#[derive(Deserialize)]
struct Intent {
    amount: u64,
    currency: String,
    #[serde(default)]
    metadata: Metadata,
}

/// Why an event cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Malformed {
    #[error("malformed: an invoice has an id, a customer, a currency and a whole amount_paid")]
    Invoice,
    #[error(
        "malformed: a payment has an id, a currency, a status, captured and a whole amount_captured"
    )]
    Payment,
    #[error("malformed: an intent to pay has a currency and a whole amount")]
    Intent,
}

impl Said {
    /// Reads an event. Several types say the same.
    pub(super) fn by(event: &Event<'_>) -> Result<Self, Malformed> {
        let order = |to| Self::order_is(read(event, Malformed::Intent)?, to);
        match event.event_type().unwrap_or_default() {
            "invoice.paid" | "invoice.payment_succeeded" => {
                Ok(Self::InvoicePaid(read(event, Malformed::Invoice)?))
            }
            "invoice.updated" => {
                let invoice: Invoice = read(event, Malformed::Invoice)?;
                let is_paid = invoice.status.as_deref() == Some("paid");
                Ok(if is_paid { Self::InvoicePaid(invoice) } else { Self::NothingOfOurs })
            }
            "charge.succeeded" | "charge.captured" | "charge.updated" => {
                let payment: Payment = read(event, Malformed::Payment)?;
                // One that is only authorised has brought no money yet.
                let has_come = payment.status == "succeeded" && payment.captured;
                Ok(if has_come { Self::PaymentMade(payment) } else { Self::NothingOfOurs })
            }
            "payment_intent.created" => order("PENDING"),
            "payment_intent.processing" => order("PROCESSING"),
            "payment_intent.payment_failed" | "payment_intent.canceled" => order("FAILED"),
            "payment_intent.succeeded" => order("PAID"),
            _ => Ok(Self::NothingOfOurs),
        }
    }

    /// An intent that names no order is about something else, an invoice perhaps.
    fn order_is(intent: Intent, to: &'static str) -> Result<Self, Malformed> {
        let Intent { amount, currency, metadata: Metadata { order, seller } } = intent;
        let proposal = |order| Self::OrderIs(Proposal { order, to, amount, currency, seller });
        Ok(order.map_or(Self::NothingOfOurs, proposal))
    }
}

fn read<T: DeserializeOwned>(event: &Event<'_>, malformed: Malformed) -> Result<T, Malformed> {
    event.read("/data/object").ok_or(malformed)
}

impl Payment {
    /// The order that it is for.
    pub(super) fn order(&self) -> Option<ObjectRef> {
        self.metadata.order.as_deref().map(order)
    }
}

impl Proposal {
    /// The order that it is about.
    pub(super) fn order(&self) -> ObjectRef {
        order(&self.order)
    }
}

fn order(id: &str) -> ObjectRef {
    ObjectRef { kind: "order".to_owned(), id: id.to_owned() }
}
