//! What a payment provider tells of one business: each thing several times, in several words. And what must have become of
//! it, counted from the facts alone.

use std::collections::{BTreeMap, BTreeSet};

use domain::id::InboxKey;
use rand::{RngExt as _, rngs::StdRng};
use serde_json::{Value, json};
use testkit::memory::Tables;

use crate::world::{Fact, Nature, World};

/// The source that is handled by the shipped example.
pub(crate) const PAYMENTS: &str = "payments";

/// What an event of the provider says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Says {
    /// This invoice is paid.
    Paid(String),
    /// This payment, of this order, has come.
    Came(String, String),
    /// This order should be so far (see [`STATES`]).
    Is(String, usize),
}

/// The states of an order. It ends in the last one that any event names, for each may follow any earlier one.
pub(crate) const STATES: [(&str, &str); 4] = [
    ("payment_intent.created", "PENDING"),
    ("payment_intent.processing", "PROCESSING"),
    ("payment_intent.payment_failed", "FAILED"),
    ("payment_intent.succeeded", "PAID"),
];

/// The words for a paid invoice.
pub(crate) const PAID: [&str; 3] = ["invoice.paid", "invoice.payment_succeeded", "invoice.updated"];

/// The words for money that has come.
pub(crate) const CAME: [&str; 3] = ["charge.succeeded", "charge.captured", "charge.updated"];

fn event(id: &str, event_type: &str, says: Says, object: &Value) -> Fact {
    let body = json!({ "id": id, "type": event_type, "created": 1, "data": { "object": object } });
    Fact {
        key: InboxKey::new(PAYMENTS.parse().unwrap(), id).unwrap(),
        body: body.to_string().into_bytes(),
        object: None,
        says: Some(says),
        thing: None,
        nature: Nature::Good,
    }
}

/// An invoice is paid.
pub(crate) fn paid(id: &str, event_type: &str, invoice: &str) -> Fact {
    let object = json!({
        "object": "invoice", "id": invoice, "customer": "cus_1", "amount_paid": 1999,
        "currency": "eur", "status": "paid",
    });
    event(id, event_type, Says::Paid(invoice.to_owned()), &object)
}

/// Money has come for an order.
pub(crate) fn came(id: &str, event_type: &str, payment: &str, order: &str) -> Fact {
    let object = json!({
        "object": "charge", "id": payment, "customer": "cus_1", "amount_captured": 500,
        "currency": "eur", "status": "succeeded", "captured": true, "metadata": { "order": order },
    });
    event(id, event_type, Says::Came(payment.to_owned(), order.to_owned()), &object)
}

/// An order should be in a state.
pub(crate) fn intent(id: &str, state: usize, order: &str) -> Fact {
    let object = json!({
        "object": "payment_intent", "id": format!("pi_{order}"), "amount": 500, "currency": "eur",
        "metadata": { "order": order, "seller": "acct_1" },
    });
    event(id, STATES[state].0, Says::Is(order.to_owned(), state), &object)
}

/// Some invoices, orders and payments.
pub(crate) fn facts(rng: &mut StdRng) -> Vec<Fact> {
    let mut facts = Vec::new();
    let mut id = 0;
    let mut next = || {
        id += 1;
        format!("evt_p{id}")
    };
    for invoice in 0..rng.random_range(0..=2) {
        for _ in 0..rng.random_range(1..=3) {
            let word = PAID[rng.random_range(0..PAID.len())];
            facts.push(paid(&next(), word, &format!("in_p{invoice}")));
        }
    }
    for order in 0..rng.random_range(0..=2) {
        let name = format!("or_p{order}");
        let states = (0..STATES.len()).filter(|_| rng.random_bool(0.5)).collect::<Vec<_>>();
        for state in &states {
            // A provider may tell one thing under two ids.
            for _ in 0..rng.random_range(1..=2) {
                facts.push(intent(&next(), *state, &name));
            }
        }
        if states.is_empty() {
            continue;
        }
        for _ in 0..rng.random_range(0..=3) {
            let word = CAME[rng.random_range(0..CAME.len())];
            facts.push(came(&next(), word, &format!("ch_{order}"), &name));
        }
    }
    facts
}

/// What the business has come to: what was granted, booked, mailed and paid out, and where each order is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Business {
    /// By the type of what goes out, what it is about.
    effects: BTreeMap<&'static str, BTreeSet<String>>,
    orders: BTreeMap<String, String>,
}

/// L7, L8, L9: what may happen once only, by the type of the event that has it done.
const ONCE: [(&str, &str); 4] = [
    ("L8", "credit.granted"),
    ("L7", "payment.booked"),
    ("L7", "receipt.mail"),
    ("L9", "payout.due"),
];

/// What the facts of a world come to.
fn expected(world: &World) -> Business {
    let mut business = Business::default();
    let mut furthest: BTreeMap<&str, usize> = BTreeMap::new();
    let mut effect = |what, about: &str| {
        business.effects.entry(what).or_default().insert(about.to_owned());
    };
    for fact in &world.facts {
        match &fact.says {
            None => {}
            Some(Says::Paid(invoice)) => effect("credit.granted", invoice),
            Some(Says::Came(payment, _)) => {
                effect("payment.booked", payment);
                effect("receipt.mail", payment);
            }
            Some(Says::Is(order, state)) => {
                let is = furthest.entry(order).or_default();
                *is = (*is).max(*state);
            }
        }
    }
    for (order, state) in furthest {
        if STATES[state].1 == "PAID" {
            effect("payout.due", order);
        }
        business.orders.insert(order.to_owned(), STATES[state].1.to_owned());
    }
    business
}

/// How often each thing is had done, by the events that go out.
fn done<'t>(tables: &'t Tables, event_type: &str) -> BTreeMap<&'t str, u32> {
    let mut done = BTreeMap::new();
    for row in tables.outbox.values().filter(|row| row.event.event_type == event_type) {
        *done.entry(row.event.aggregate_id.as_str()).or_default() += 1;
    }
    done
}

/// L7, L8, L9: no payment is booked twice, no invoice credited twice, no obligation paid twice; at any moment.
pub(crate) fn never_twice(tables: &Tables) -> Vec<String> {
    let mut violations = Vec::new();
    for (promise, event_type) in ONCE {
        for (about, times) in done(tables, event_type).into_iter().filter(|(_, times)| *times > 1) {
            violations.push(format!("{promise}, {event_type} of {about} goes out {times} times"));
        }
    }
    violations
}

/// L7, L8, L9, L12: in the end each is done, none for nothing, and each order is as far as the furthest event said.
pub(crate) fn all_done(world: &World, tables: &Tables) -> Vec<String> {
    let (expected, mut violations) = (expected(world), Vec::new());
    for (promise, event_type) in ONCE {
        let found: BTreeSet<_> = done(tables, event_type).into_keys().map(str::to_owned).collect();
        let wanted = expected.effects.get(event_type).cloned().unwrap_or_default();
        if found != wanted {
            violations
                .push(format!("{promise}, {event_type} went out for {found:?}, not {wanted:?}"));
        }
    }
    let orders = tables
        .objects
        .iter()
        .filter(|((source, object), _)| source.as_str() == PAYMENTS && object.kind == "order");
    let orders: BTreeMap<_, _> = orders
        .map(|((_, object), is)| {
            (object.id.clone(), is.fields["status"].as_str().unwrap_or_default().to_owned())
        })
        .collect();
    if orders != expected.orders {
        violations.push(format!("L12, the orders are {orders:?}, not {:?}", expected.orders));
    }
    violations
}
