//! Payments: the worked example. Copy it, put your words in, and it is yours.
//!
//! A provider says one thing several times, in several words and in any order. So nothing here counts events, and nothing
//! believes an event because it came last:
//!
//! | what happens | how often | what makes it so |
//! |---|---|---|
//! | an invoice grants its credit | once per invoice | the operation key `credit#in_1` |
//! | a payment is booked, and its receipt mailed | once per payment | the operation key `booking#ch_1` |
//! | a seller gets what an order earned | once per obligation | the operation key `payout#or_1` |
//! | an order moves | as the table in `orders` allows | the order is still as it was read |
//!
//! What has to be done elsewhere (grant, book, mail, pay out) is an outgoing event of the tenant `internal`: written in
//! the transaction that takes the operation key, sent until your endpoint answers, always under the same id.
//!
//! Reading order: [`Payments`]; `said` is what an event says; `orders` is what may become of an order.

mod orders;
mod said;

use std::time::Duration;

use domain::{
    event::ObjectRef,
    id::TenantId,
    plan::{Change, Emit, OperationKey, Plan},
};
use serde_json::{Value, json};

use self::said::{Invoice, Payment, Said};
use super::{Current, Event, Own};

/// How long a payment waits for its order before it looks again. They leave the provider within seconds of each other.
const ORDER_COMES: Duration = Duration::from_secs(30);

/// Invoices, orders, payments and payouts, of a provider whose events look like Stripe's.
#[derive(Clone, Copy, Debug)]
pub struct Payments;

impl Own for Payments {
    fn reads(&self, event: &Event<'_>) -> Vec<ObjectRef> {
        let order = match Said::by(event) {
            Ok(Said::OrderIs(proposal)) => Some(proposal.order()),
            Ok(Said::PaymentMade(payment)) => payment.order(),
            Ok(Said::InvoicePaid(_) | Said::NothingOfOurs) | Err(_) => None,
        };
        order.into_iter().collect()
    }

    fn plan(&self, event: &Event<'_>, current: &Current) -> Plan {
        match Said::by(event) {
            Ok(Said::InvoicePaid(invoice)) => credit(&invoice),
            Ok(Said::PaymentMade(payment)) => book(&payment, current),
            Ok(Said::OrderIs(proposal)) => orders::propose(event, &proposal, current),
            Ok(Said::NothingOfOurs) => {
                Plan::ignored("not_ours: no invoice, payment or order changes by it")
            }
            Err(malformed) => Plan::reject(malformed.to_string()),
        }
    }
}

/// A paid invoice grants its credit, whichever events say that it is paid.
fn credit(invoice: &Invoice) -> Plan {
    let Invoice { id, customer, amount_paid, currency, .. } = invoice;
    let granted =
        json!({ "invoice": id, "customer": customer, "amount": amount_paid, "currency": currency });
    once(&["credit", id]).then_emit(effect("credit.granted", id, &granted)).into()
}

/// A payment is booked, and its receipt goes with the booking. An order that it names has to be known first.
fn book(payment: &Payment, current: &Current) -> Plan {
    if payment.order().is_some_and(|order| current.of(&order).is_none()) {
        return Plan::requeue(ORDER_COMES, "the order that this payment names is not known yet");
    }
    let Payment { id, customer, amount_captured, currency, metadata, .. } = payment;
    let booked = json!({
        "payment": id, "order": metadata.order, "customer": customer, "amount": amount_captured,
        "currency": currency,
    });
    once(&["booking", id])
        .then_emit(effect("payment.booked", id, &booked))
        .then_emit(effect("receipt.mail", id, &booked))
        .into()
}

/// What happens once for ever: the key names the thing, never the event.
fn once(key: &[&str]) -> Change {
    Change::once(OperationKey::of(key))
}

/// What a system of our own has to do.
fn effect(event_type: &str, about: &str, payload: &Value) -> Emit {
    Emit::new(TenantId::internal(), event_type, about, payload.to_string())
}
