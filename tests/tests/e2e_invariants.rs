//! The seven things that must never be otherwise (L7 to L13), with the real binaries on the local host, while queues
//! repeat and forget, answers are lost, and functions are killed.
//!
//! What they are about is in `functions/worker/src/handlers/payments.rs`. That an event comes once proves nothing: the
//! provider here says everything in several words, several times, at the same time and in any order.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use futures_util::future::try_join_all;
use rand::seq::SliceRandom as _;
use serde_json::{Value, json};
use tests::{
    control::Fault,
    eventually,
    host::{Host, Setup},
    now,
    provider::{Event, Provider},
    seed::{Replay, rng, seeds},
    shop::Shop,
    stage::Stage,
};

/// Invoices, payments or orders of one test.
const THINGS: usize = 6;

/// Every thing in every word, each said twice with ids of their own, and each of those sent twice, in the order of a seed.
fn said(
    seed: u64,
    things: &[String],
    words: &[&str],
    event: fn(&str, &str, &str) -> Event,
) -> Vec<Event> {
    let mut events = Vec::new();
    for thing in things {
        for word in words {
            for time in 0..2 {
                let event = event(&format!("evt_{thing}_{word}_{time}"), word, thing);
                events.extend([event.clone(), event]);
            }
        }
    }
    events.shuffle(&mut rng(seed));
    events
}

fn things(prefix: &str) -> Vec<String> {
    (0..THINGS).map(|n| format!("{prefix}_{n}")).collect()
}

/// Sends all that while queues and stores are at their worst, and workers are killed.
async fn endure(shop: &Shop, events: &[Event]) -> Result<()> {
    shop.disturb().await?;
    let (first, second) = events.split_at(events.len() / 2);
    shop.send(first).await?;
    shop.host.control()?.kill("WorkerFunction").await?;
    shop.send(second).await?;
    shop.host.control()?.kill("WorkerFunction").await?;
    shop.until_done(events).await
}

fn once_each(things: &[String]) -> BTreeMap<String, usize> {
    things.iter().map(|thing| (thing.clone(), 1)).collect()
}

/// L7
#[tokio::test]
async fn a_payment_never_makes_two_bookings() -> Result<()> {
    for seed in seeds(&[7]) {
        let replay = Replay::of("e2e_invariants", seed);
        let (shop, payments) = (Shop::open(Setup::IN_MEMORY).await?, things("ch"));
        let words = ["charge.succeeded", "charge.captured", "charge.updated"];
        endure(&shop, &said(seed, &payments, &words, Shop::charge)).await?;
        assert_eq!(shop.effects("payment.booked").await?, once_each(&payments));
        assert_eq!(shop.effects("receipt.mail").await?, once_each(&payments));
        replay.well();
    }
    Ok(())
}

/// L8
#[tokio::test]
async fn one_invoice_never_grants_credit_twice() -> Result<()> {
    for seed in seeds(&[8]) {
        let replay = Replay::of("e2e_invariants", seed);
        let (shop, invoices) = (Shop::open(Setup::IN_MEMORY).await?, things("in"));
        let words = ["invoice.paid", "invoice.payment_succeeded", "invoice.updated"];
        let events = said(seed, &invoices, &words, Shop::invoice);
        endure(&shop, &events).await?;
        assert_eq!(shop.effects("credit.granted").await?, once_each(&invoices));
        // Nor does a replay by a person, of each of the events that said so.
        let api = shop.host.api()?;
        for event in events.iter().filter(|event| event.id.contains("in_0")) {
            api.replay(shop.provider.source(), &event.id).await?;
        }
        shop.until_done(&events).await?;
        assert_eq!(shop.effects("credit.granted").await?, once_each(&invoices));
        replay.well();
    }
    Ok(())
}

/// L9
#[tokio::test]
async fn a_payout_never_runs_twice_for_one_obligation() -> Result<()> {
    for seed in seeds(&[9]) {
        let replay = Replay::of("e2e_invariants", seed);
        let (shop, orders) = (Shop::open(Setup::IN_MEMORY).await?, things("or"));
        let words = [
            "payment_intent.created",
            "payment_intent.processing",
            "payment_intent.payment_failed",
            "payment_intent.succeeded",
        ];
        endure(&shop, &said(seed, &orders, &words, Shop::order)).await?;
        assert_eq!(shop.effects("payout.due").await?, once_each(&orders));
        assert_eq!(shop.effects("order.paid").await?, once_each(&orders));
        for order in &orders {
            let item = shop.order_item(order).await?;
            let fields: Value = serde_json::from_str(item.text("fields").context("fields")?)?;
            assert_eq!(fields["status"], "PAID", "whatever came first, last or twice");
        }
        replay.well();
    }
    Ok(())
}

/// L10: with every message lost, and in the middle of being processed.
#[tokio::test]
async fn an_accepted_event_survives_a_restart() -> Result<()> {
    let shop = Shop::open(Setup::ON_DISK).await?;
    let invoices = things("in");
    let events: Vec<_> = invoices
        .iter()
        .map(|one| Shop::invoice(&format!("evt_{one}"), "invoice.paid", one))
        .collect();
    let (early, late) = events.split_at(THINGS / 2);
    // Accepted, and nobody is told of it.
    let unheard = Fault::new("sqs", "SendMessage", "hold").of("ingress").by(600_000);
    shop.host.control()?.fault(&unheard).await?;
    shop.send(early).await?;
    shop.host.kill()?;
    shop.host.lose_queues()?;
    shop.host.restart().await?;
    shop.until_done(early).await?;

    // Accepted, and the worker is in the middle of it: the commit is asked for, and answered to nobody.
    let asked = Fault::new("dynamodb", "TransactWriteItems", "delay").of("worker").after();
    let control = shop.host.control()?;
    control.fault(&asked.by(30_000).times(1)).await?;
    shop.send(late).await?;
    eventually("a worker waits for an answer", async || {
        let left = control.faults_left().await?;
        ensure!(left == 0, "{left}");
        Ok(())
    })
    .await?;
    shop.host.kill()?;
    shop.host.restart().await?;
    shop.until_done(&events).await?;
    assert_eq!(shop.effects("credit.granted").await?, once_each(&invoices));

    // What is done is there after another restart, and is not done again.
    let before = shop.outcome().await?;
    shop.host.kill()?;
    shop.host.restart().await?;
    shop.send(&events).await?;
    shop.host.control()?.idle().await?;
    assert_eq!(shop.outcome().await?, before);
    Ok(())
}

/// L11: at once, later, in other words, and as a message that comes again.
#[tokio::test]
async fn a_duplicate_does_not_change_the_result() -> Result<()> {
    let shop = Shop::open(Setup::IN_MEMORY).await?;
    let events = [
        Shop::invoice("evt_invoice", "invoice.paid", "in_1"),
        Shop::charge("evt_charge", "charge.succeeded", "ch_1"),
        Shop::order("evt_order", "payment_intent.succeeded", "or_1"),
    ];
    shop.send(&events).await?;
    shop.until_done(&events).await?;
    shop.host.control()?.idle().await?;
    let before = shop.outcome().await?;
    assert_eq!(before.keys().filter(|name| name.starts_with("internal")).count(), 5, "{before:?}");

    let all = events.iter().flat_map(|event| std::iter::repeat_n(event, 10));
    try_join_all(all.map(|event| shop.provider.send_until_accepted(&shop.host, event))).await?;
    let others = [
        Shop::invoice("evt_invoice_2", "invoice.payment_succeeded", "in_1"),
        Shop::charge("evt_charge_2", "charge.updated", "ch_1"),
        Shop::order("evt_order_2", "payment_intent.succeeded", "or_1"),
        Shop::order("evt_order_3", "payment_intent.processing", "or_1"),
    ];
    shop.disturb().await?;
    shop.send(&others).await?;
    shop.send(&others).await?;
    shop.until_done(&others).await?;
    shop.host.control()?.idle().await?;
    assert_eq!(shop.outcome().await?, before);
    Ok(())
}

/// L12: by version, and by the moves that are allowed.
#[tokio::test]
async fn a_delayed_event_does_not_overwrite_newer_state() -> Result<()> {
    let shop = Shop::open(Setup::IN_MEMORY).await?;
    let (host, api) = (&shop.host, shop.host.api()?);
    let mirrored = Provider::stripe("followed")?;
    api.mirror(&mirrored, None).await?;
    let then = now().as_second();
    let older = Event::stripe("evt_1", "invoice.created", "in_1", then - 86_400);
    let newer = Event::stripe("evt_2", "invoice.paid", "in_1", then);
    let processing = Shop::order("evt_3", "payment_intent.processing", "or_1");
    let paid = Shop::order("evt_4", "payment_intent.succeeded", "or_1");
    // The older ones are accepted first, and their messages are under way until the newer ones are done.
    let held = Fault::new("sqs", "SendMessage", "hold").of("ingress").by(3_000).times(2);
    host.control()?.fault(&held).await?;
    mirrored.send_until_accepted(host, &older).await?;
    shop.provider.send_until_accepted(host, &processing).await?;
    mirrored.send_until_accepted(host, &newer).await?;
    shop.provider.send_until_accepted(host, &paid).await?;
    assert_eq!(api.until("followed", "evt_2", "processed").await?.results(), ["applied"]);
    shop.until_done(std::slice::from_ref(&paid)).await?;
    host.control()?.idle().await.context("the held ones come as well")?;

    assert_eq!(api.until("followed", "evt_1", "processed").await?.results(), ["stale"]);
    let refused = api.until("shop", "evt_3", "processed").await?;
    assert_eq!(refused.results(), ["refused"], "{}", refused.0);
    assert!(refused.outgoing().is_empty(), "{}", refused.0);
    let objects = host.aws()?.items("StateTable").await?;
    let fields = |start: &str| {
        let object = objects.iter().find(|item| item.is_of(start));
        object.and_then(|item| item.text("fields")).unwrap_or_default().to_owned()
    };
    assert!(fields("OBJECT#followed#invoice#in_1").contains("evt_2"));
    assert!(fields("OBJECT#shop#order#or_1").contains("PAID"));
    Ok(())
}

/// L13: while it is tried again, when it is parked, and on each of the three ways back.
#[tokio::test]
async fn failed_work_stays_observable_and_recoverable() -> Result<()> {
    let host = Host::start(Setup::IN_MEMORY).await?;
    let (api, aws, control) = (host.api()?, host.aws()?, host.control()?);
    let subscriber = host.subscriber().await?;
    api.endpoint("told", &subscriber.url()).await?;
    let provider = Provider::stripe("failing")?;
    api.forward(&provider, "told").await?;
    control
        .fault(&Fault::new("dynamodb", "TransactWriteItems", "access_denied").of("worker"))
        .await?;
    let events = ["replayed", "sent_again", "redriven"].map(Stage::event);
    for event in &events {
        provider.send_until_accepted(&host, event).await?;
        // It says what went wrong and what comes next, before anybody gives up.
        eventually("the first failure is told", async || {
            let story = api.story("failing", &event.id).await?;
            let has = |name: &str| story.0.get(name).is_some_and(|value| !value.is_null());
            ensure!(has("last_error") && has("next_action"), "{}", story.0);
            Ok(())
        })
        .await?;
    }
    for event in &events {
        let story = api.until("failing", &event.id, "dead_letter").await?;
        assert_eq!(story.0["attempts"], json!(4), "{}", story.0);
        assert_eq!(story.0["last_error"]["code"], "store_refused", "{}", story.0);
    }
    let parked = api.client().get("/v1/parked").await?.good()?;
    assert_eq!(parked["parked"].as_array().map(Vec::len), Some(3), "{parked}");
    eventually("the console shows them", async || {
        let depth = aws.depth("InboundDlq").await?;
        ensure!(depth >= 3, "{depth}");
        Ok(())
    })
    .await?;
    control.heal().await?;

    let [replayed, sent_again, redriven] = &events;
    assert_eq!(api.replay("failing", &replayed.id).await?.code(), 202);
    api.until_delivered("failing", &replayed.id).await?;
    provider.send_until_accepted(&host, sent_again).await?;
    api.until_delivered("failing", &sent_again.id).await?;
    // One that comes too soon after the parking parks the message again: asked until it works.
    eventually("the console's redrive works", async || {
        aws.redrive("InboundDlq").await?;
        let story = api.story("failing", &redriven.id).await?;
        ensure!(story.status() == "processed", "{}", story.0);
        Ok(())
    })
    .await?;
    api.until_delivered("failing", &redriven.id).await?;
    let parked = api.client().get("/v1/parked").await?.good()?;
    assert_eq!(parked["parked"], json!([]));
    control.idle().await?;
    assert_eq!(subscriber.count(), 3, "each once");
    Ok(())
}
