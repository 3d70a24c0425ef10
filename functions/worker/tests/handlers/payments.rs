//! The worked example: whatever a provider says how often and in whatever order, what follows happens once.

use domain::{
    inbox::{Applied, Noted, Status},
    ports::Inbox as _,
};
use proptest::prelude::*;
use serde_json::{Value, json};
use testkit::chaos::{Fault, When};
use worker::Outcome;

use crate::world::{Sent, World, permutations, run};

fn world() -> World {
    World::own("payments", Some("acme"))
}

fn event(id: &str, event_type: &str, object: &Value) -> Sent {
    Sent::new(
        id,
        event_type,
        &json!({ "id": id, "type": event_type, "data": { "object": object } }),
    )
}

fn invoice(event_id: &str, event_type: &str, invoice: &str) -> Sent {
    let object = json!({
        "id": invoice, "object": "invoice", "customer": "cus_1", "amount_paid": 1999, "currency": "eur",
        "status": "paid",
    });
    event(event_id, event_type, &object)
}

/// An event of the intent to pay an order.
fn intent(event_id: &str, what: &str, order: &str) -> Sent {
    let object = json!({
        "id": format!("pi_{order}"), "object": "payment_intent", "amount": 500, "currency": "eur",
        "metadata": { "order": order, "seller": "acct_1" },
    });
    event(event_id, &format!("payment_intent.{what}"), &object)
}

fn charge(event_id: &str, event_type: &str, charge: &str, order: Option<&str>) -> Sent {
    let object = json!({
        "id": charge, "object": "charge", "customer": null, "amount_captured": 500, "currency": "eur",
        "status": "succeeded", "captured": true, "metadata": { "order": order },
    });
    event(event_id, event_type, &object)
}

fn types(told: &[(String, Value)]) -> Vec<&str> {
    told.iter().map(|(event_type, _)| event_type.as_str()).collect()
}

/// L8, C18, C19, C20, C22, C24: two events with two ids are one payment, and each of them comes twice.
#[tokio::test]
async fn one_invoice_grants_its_credit_once_whatever_says_that_it_is_paid() {
    let saying = [
        invoice("evt_1", "invoice.paid", "in_1"),
        invoice("evt_2", "invoice.payment_succeeded", "in_1"),
        invoice("evt_3", "invoice.updated", "in_1"),
    ];
    for order in permutations(&saying) {
        let world = world();
        world.all(order.iter().chain(&order)).await;
        let told = world.told("internal");
        let granted =
            json!({ "invoice": "in_1", "customer": "cus_1", "amount": 1999, "currency": "eur" });
        assert_eq!(told, [("credit.granted".to_owned(), granted)]);
        let ends: Vec<_> = order.iter().map(|sent| world.results(sent)[0].result).collect();
        assert_eq!(ends, [Applied::Applied, Applied::DuplicateEffect, Applied::DuplicateEffect]);
        assert_eq!(world.results(&order[1])[0].what, "operation credit#in_1");
    }
    let world = world();
    world
        .all(&[invoice("evt_1", "invoice.paid", "in_1"), invoice("evt_2", "invoice.paid", "in_2")])
        .await;
    assert_eq!(world.told("internal").len(), 2, "two invoices are two credits");
}

/// L13, C29: a replay does nothing again, and the story still leads to what went out the first time.
#[tokio::test]
async fn a_replayed_event_still_names_what_followed_from_it() {
    let world = world();
    let sent = invoice("evt_1", "invoice.paid", "in_1");
    world.comes(&sent).await;
    let named = |world: &World| {
        let results = world.results(&sent);
        let events = results.into_iter().filter(|result| result.what.starts_with("event "));
        events.map(|event| (event.what, event.result)).collect::<Vec<_>>()
    };
    let [(event, Applied::Applied)] = <[_; 1]>::try_from(named(&world)).unwrap() else { panic!() };
    for _ in 0..2 {
        let replayed = world.store.replay(&sent.key(), world.now(), world.now()).await.unwrap();
        assert_eq!(replayed, Noted::Yes);
        world.handle(&sent.key()).await;
        assert_eq!(named(&world), [(event.clone(), Applied::AlreadyEmitted)]);
        assert_eq!(world.results(&sent)[0].result, Applied::DuplicateEffect);
        assert_eq!(world.told("internal").len(), 1);
    }
}

/// L7, C24, C25
#[tokio::test]
async fn one_payment_is_booked_once_and_its_receipt_goes_with_the_booking() {
    let world = world();
    let saying = [
        charge("evt_1", "charge.succeeded", "ch_1", None),
        charge("evt_2", "charge.captured", "ch_1", None),
        charge("evt_3", "charge.updated", "ch_1", None),
    ];
    world.all(saying.iter().chain(&saying)).await;
    assert_eq!(types(&world.told("internal")), ["payment.booked", "receipt.mail"]);
    let mail = world.out().into_iter().find(|event| event.event_type == "receipt.mail").unwrap();
    let again = World::own("payments", None);
    again.all(&saying[..1]).await;
    let twin = again.out().into_iter().find(|event| event.event_type == "receipt.mail").unwrap();
    assert_eq!(
        mail.id, twin.id,
        "the id follows from the event, so a target can tell a repetition"
    );
}

/// C20: an authorised charge has brought no money.
#[tokio::test]
async fn a_charge_that_is_not_captured_is_no_payment() {
    let world = world();
    let mut open = charge("evt_1", "charge.succeeded", "ch_1", None);
    open.body = open.body.replace("\"captured\":true", "\"captured\":false");
    world.all([&open, &charge("evt_2", "charge.captured", "ch_1", None)]).await;
    let row = world.row(&open);
    assert_eq!(row.status, Status::Ignored, "{row:?}");
    assert_eq!(types(&world.told("internal")), ["payment.booked", "receipt.mail"]);
}

/// L9: the same obligation by two intents, whose events come twice; the seller gets it once.
#[tokio::test]
async fn one_obligation_is_paid_out_once() {
    let world = world();
    let mut other = intent("evt_2", "succeeded", "or_1");
    other.body = other.body.replace("pi_or_1", "pi_other");
    let paid = intent("evt_1", "succeeded", "or_1");
    world.all([&paid, &other, &paid, &other]).await;
    // Even if the order is lost, the operation key stands.
    world.store.tables().objects.clear();
    world.all([&intent("evt_3", "succeeded", "or_1")]).await;
    let told = world.told("internal");
    let due = json!({ "order": "or_1", "seller": "acct_1", "amount": 500, "currency": "eur" });
    assert_eq!(told, [("payout.due".to_owned(), due)]);
}

/// D11, D12, D13, D14, D15, D16, D17, L12
#[tokio::test]
async fn an_order_that_is_paid_stays_paid_and_the_story_says_what_was_refused() {
    let world = world();
    let (paid, late) =
        (intent("evt_1", "succeeded", "or_1"), intent("evt_2", "payment_failed", "or_1"));
    world.all([&paid, &late]).await;
    assert_eq!(world.object("order", "or_1").unwrap().fields["status"], "PAID");
    let [refused] = &*world.results(&late) else { panic!() };
    assert_eq!((refused.what.as_str(), refused.result), ("object order or_1", Applied::Refused));
    assert_eq!(refused.why.as_deref(), Some("PAID → FAILED is not a move"));
    assert_eq!(types(&world.told("acme")), ["order.paid"]);
}

const COURSE: [&str; 4] = ["created", "processing", "payment_failed", "succeeded"];

/// ORD-stale-overwrites-new, D1, D15, L11: in every order, and everything twice.
#[tokio::test]
async fn every_order_of_the_events_of_an_order_ends_in_the_same_state() {
    let of = |n: usize| intent(&format!("evt_{n}"), COURSE[n], "or_1");
    let all: Vec<Sent> = (0..4).map(of).collect();
    let expected = {
        let world = world();
        world.all(&all).await;
        world.end()
    };
    assert_eq!(expected.objects.len(), 1);
    for order in permutations(&all) {
        let world = world();
        world.all(order.iter().chain(&order)).await;
        assert_eq!(world.end(), expected, "{order:?}");
        let told = world.told("acme");
        let paid = told.iter().filter(|(event_type, _)| event_type == "order.paid").count();
        assert_eq!(paid, 1);
        // ORD-stale-embedded-snapshot: the version in what goes out never goes down.
        let versions: Vec<_> = world
            .out()
            .iter()
            .filter(|event| event.tenant.as_str() == "acme")
            .map(|event| event.aggregate_version.unwrap())
            .collect();
        assert!(versions.is_sorted(), "{versions:?}");
    }
}

/// ORD-update-before-create, D15: each state may be the first that is heard of an order.
#[tokio::test]
async fn an_order_begins_in_whatever_state_it_is_first_heard_of() {
    for (what, state) in COURSE.iter().zip(["PENDING", "PROCESSING", "FAILED", "PAID"]) {
        let world = world();
        world.all([&intent("evt_1", what, "or_1")]).await;
        assert_eq!(world.object("order", "or_1").unwrap().fields["status"], state);
    }
}

/// D7, ORD-update-before-create
#[tokio::test]
async fn a_payment_waits_for_its_order_and_is_parked_if_none_comes() {
    let world = world();
    let payment = charge("evt_1", "charge.succeeded", "ch_1", Some("or_1"));
    let outcome = world.comes(&payment).await;
    assert!(matches!(outcome, Outcome::Waits { .. }) && outcome.is_settled(), "{outcome:?}");
    assert!(world.out().is_empty());
    let row = world.row(&payment);
    assert_eq!((row.status, row.attempts), (Status::Pending, 0));
    assert_eq!(
        row.last_error.unwrap().message,
        "the order that this payment names is not known yet"
    );

    world.all([&intent("evt_2", "created", "or_1")]).await;
    assert_eq!(world.row(&payment).status, Status::Processed);
    assert_eq!(types(&world.told("internal")), ["payment.booked", "receipt.mail"]);

    let orphan = charge("evt_3", "charge.succeeded", "ch_2", Some("or_2"));
    world.comes(&orphan).await;
    world.later(25 * 3600);
    world.sweeps().await;
    let row = world.row(&orphan);
    assert_eq!(row.status, Status::DeadLetter);
    assert_eq!(row.last_error.unwrap().code, "needs_reconciliation");
}

/// L20, C5, C6, C37: whatever call the process dies in, before it or after it, there is one booking and one receipt.
#[tokio::test]
async fn a_crash_between_payment_and_receipt_leaves_neither_without_the_other() {
    let payment = charge("evt_1", "charge.succeeded", "ch_1", Some("or_1"));
    let order = intent("evt_2", "created", "or_1");
    let calls = {
        let world = world();
        world.all([&order]).await;
        world.store.chaos.heal();
        world.comes(&payment).await;
        world.store.chaos.calls().len() as u64
    };
    assert!(calls >= 3, "{calls}");
    for when in [When::Before, When::After] {
        for fault in [Fault::Crash, Fault::Unavailable] {
            // The first call puts the row.
            for call in 1..calls {
                let world = world();
                world.all([&order]).await;
                world.store.chaos.at(call, when, fault);
                world.put(&payment).await;
                let _ = world.handle_or_die(&payment.key()).await;
                world.store.chaos.heal();
                let told = types(&world.told("internal")).len();
                assert!(told == 0 || told == 2, "half of it is done: {when:?} {fault:?} at {call}");
                world.all([&payment]).await;
                assert_eq!(types(&world.told("internal")), ["payment.booked", "receipt.mail"]);
                assert_eq!(world.row(&payment).status, Status::Processed);
            }
        }
    }
}

/// C31: two copies, and two events that say the same, at one moment.
#[tokio::test]
async fn events_that_are_handled_at_the_same_moment_have_one_effect() {
    let (one, two) = (
        invoice("evt_1", "invoice.paid", "in_1"),
        invoice("evt_2", "invoice.payment_succeeded", "in_1"),
    );
    let (paid, failed) =
        (intent("evt_3", "succeeded", "or_1"), intent("evt_4", "payment_failed", "or_1"));
    for n in 0..100 {
        let world = world();
        for sent in [&one, &two, &paid, &failed] {
            world.put(sent).await;
        }
        let (a, b, c, d) = (one.key(), two.key(), paid.key(), failed.key());
        // Each call of the store lets the others go first; who begins changes how they meet.
        let mut keys = [&a, &b, &c, &d, &a, &c];
        keys.rotate_left(n % 6);
        futures_util::future::join_all(keys.map(|key| world.handle(key))).await;
        world.sweeps().await;
        assert_eq!(types(&world.told("internal")), ["credit.granted", "payout.due"]);
        // It was planned again, on what the other one had made of the order: it is never dropped as old.
        let late = world.results(&failed)[0].result;
        assert!(matches!(late, Applied::Applied | Applied::Refused), "{late:?}");
        assert_eq!(world.object("order", "or_1").unwrap().fields["status"], "PAID");
    }
}

/// B28
#[tokio::test]
async fn what_is_not_ours_is_ignored() {
    let world = world();
    let others = [
        invoice("evt_1", "invoice.created", "in_1"),
        event("evt_2", "customer.created", &json!({ "id": "cus_1" })),
        event("evt_3", "payment_intent.succeeded", &json!({ "amount": 5, "currency": "eur" })),
        {
            let mut open = invoice("evt_4", "invoice.updated", "in_1");
            open.body = open.body.replace("\"paid\"", "\"open\"");
            open
        },
    ];
    world.all(&others).await;
    for sent in &others {
        let row = world.row(sent);
        assert_eq!(row.status, Status::Ignored, "{}", sent.id);
        assert!(row.next_action.unwrap().starts_with("not_ours: "));
    }
    assert!(world.end().objects.is_empty() && world.out().is_empty());
}

/// SEC-payload-in-logs, C12: what cannot be read waits for a person, with a reason that quotes none of it.
#[tokio::test]
async fn a_malformed_body_is_parked_without_a_word_of_it() {
    let world = world();
    let object = |text: &str| format!(r#"{{"data":{{"object":{text}}}}}"#);
    let bad = [
        (
            "invoice.paid",
            object(r#"{"id":"CANARY","customer":"c","amount_paid":19.99,"currency":"eur"}"#),
        ),
        (
            "invoice.paid",
            object(r#"{"id":"CANARY","customer":"c","amount_paid":-1,"currency":"eur"}"#),
        ),
        (
            "invoice.paid",
            object(r#"{"id":"CANARY","customer":"c","amount_paid":"CANARY","currency":"eur"}"#),
        ),
        ("invoice.paid", object(r#"{"id":"","customer":"c","amount_paid":1,"currency":"eur"}"#)),
        ("invoice.paid", object(r#"{"id":7,"customer":"c","amount_paid":1,"currency":"CANARY"}"#)),
        ("invoice.paid", object("\"CANARY\"")),
        ("invoice.paid", "CANARY".to_owned()),
        ("invoice.paid", String::new()),
        ("invoice.updated", String::new()),
        ("charge.updated", "CANARY".to_owned()),
        ("invoice.paid", "[".repeat(100_000)),
        ("charge.captured", object(r#"{"id":"CANARY","status":"succeeded","captured":true}"#)),
        ("payment_intent.succeeded", object(r#"{"amount":"CANARY","metadata":{"order":"or_1"}}"#)),
    ];
    for (n, (event_type, body)) in bad.into_iter().enumerate() {
        let sent = Sent { body, ..Sent::new(&format!("evt_{n}"), event_type, &Value::Null) };
        world.comes(&sent).await;
        let row = world.row(&sent);
        assert_eq!(row.status, Status::DeadLetter, "{n}");
        let why = row.last_error.unwrap();
        assert!(!why.message.contains("CANARY"), "{}", why.message);
        assert!(why.code == "rejected" || why.code == "bad_plan", "{why:?}");
    }
    assert!(world.out().is_empty());
}

/// One event of a life with two orders, three payments and two invoices.
fn anything() -> impl Strategy<Value = Sent> {
    let order = prop::sample::select(vec!["or_1", "or_2"]);
    let course = (prop::sample::select(COURSE.to_vec()), order.clone())
        .prop_map(|(what, order)| intent(&format!("evt_{what}_{order}"), what, order));
    let says = prop::sample::select(vec!["charge.succeeded", "charge.captured", "charge.updated"]);
    let payment =
        prop::sample::select(vec![("ch_1", Some("or_1")), ("ch_2", Some("or_2")), ("ch_3", None)]);
    let payments = (says, payment)
        .prop_map(|(says, (id, order))| charge(&format!("evt_{says}_{id}"), says, id, order));
    let says =
        prop::sample::select(vec!["invoice.paid", "invoice.payment_succeeded", "invoice.updated"]);
    let invoices = (says, prop::sample::select(vec!["in_1", "in_2"]))
        .prop_map(|(says, id)| invoice(&format!("evt_{says}_{id}"), says, id));
    prop_oneof![course, payments, invoices]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    /// L7, L8, L9, L11, L12, D1, D16
    #[test]
    fn whatever_comes_in_whatever_order_and_however_often_ends_alike(
        (sent, mixed) in prop::collection::vec(anything(), 1..12)
            .prop_flat_map(|sent| {
                let twice: Vec<_> = sent.iter().chain(&sent).cloned().collect();
                (Just(sent), Just(twice).prop_shuffle())
            })
    ) {
        let ends = [&sent, &mixed].map(|order| run(async {
            let world = world();
            world.all(order).await;
            // What goes out for our own systems is the same; who listens to an order sees other steps of it.
            (world.end(), world.told("internal"))
        }));
        prop_assert_eq!(&ends[0], &ends[1]);
        let keys = ends[0].0.operations.len();
        let booked = ends[0].0.operations.iter().filter(|key| key.starts_with("booking")).count();
        prop_assert_eq!(ends[0].1.len(), keys + booked, "one for each key, and a receipt with each booking");
    }
}
