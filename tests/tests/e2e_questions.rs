//! The six questions that one asks of every line (L1 to L6), with the real binaries on the local host: it executes twice;
//! the process dies right after it; its answer disappears; the event arrives tomorrow; two copies run at once; it never
//! arrives.
//!
//! Each is asked of every call that the functions make of a store or a queue: of the first, of the second, and so on,
//! with a new event each time, until an event is through without meeting the fault.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail, ensure};
use futures_util::future::try_join_all;
use tests::{
    control::Fault,
    eventually,
    host::Setup,
    now,
    provider::{Event, Provider},
    shop::Shop,
    stage::Stage,
    subscriber::Reply,
};

/// Longer than any function waits for an answer.
const KEPT_BACK_MS: u64 = 30_000;

/// More calls than any function makes for one event.
const ENOUGH: u32 = 60;

/// Sends events that meet `fault` at their first matching call, then at their second, and so on, and sees each of them
/// through. The last that met none ends it.
async fn at_every_call<'a>(
    stage: &'a Stage,
    sent: &mut Vec<(&'a Provider, Event)>,
    fault: &Fault,
    least: u32,
) -> Result<()> {
    let control = stage.host.control()?;
    for n in 0..ENOUGH {
        let provider = if n.is_multiple_of(2) { &stage.forwarded } else { &stage.mirrored };
        let event = Stage::event(&format!("{}_{n}", fault.name()));
        control.fault(&fault.clone().skip(n)).await?;
        provider.send_until_accepted(&stage.host, &event).await?;
        let api = stage.host.api()?;
        let through = api.until_delivered(provider.source(), &event.id).await;
        through.with_context(|| format!("{n} calls after {fault:?}"))?;
        sent.push((provider, event));
        let is_struck = control.faults_left().await? == 0;
        control.heal().await?;
        if !is_struck {
            ensure!(n >= least, "{n} such calls, not {least}: {fault:?}");
            return stage.ensure_whole(sent).await;
        }
    }
    bail!("there is no end of calls: {fault:?}")
}

/// L1: the answer of each write is lost, so that whoever wrote writes again; and each message is two.
#[tokio::test]
async fn this_line_executes_twice() -> Result<()> {
    let (stage, mut sent) = (Stage::set().await?, Vec::new());
    let again =
        |action, function| Fault::new("dynamodb", action, "drop").of(function).after().times(1);
    at_every_call(&stage, &mut sent, &again("PutItem", "ingress"), 1).await?;
    at_every_call(&stage, &mut sent, &again("TransactWriteItems", "worker"), 1).await?;
    at_every_call(&stage, &mut sent, &again("*", "relay"), 4).await?;
    at_every_call(&stage, &mut sent, &again("*", "deliverer"), 6).await?;
    for function in ["ingress", "relay"] {
        let twice = Fault::new("sqs", "*", "duplicate").of(function).times(1);
        at_every_call(&stage, &mut sent, &twice, 1).await?;
    }
    Ok(())
}

/// L1, in the example: every line of the worker.
#[tokio::test]
async fn every_line_of_the_worker_executes_twice_and_one_credit_is_granted() -> Result<()> {
    let shop = Shop::open(Setup::IN_MEMORY).await?;
    let fault = Fault::new("dynamodb", "*", "drop").of("worker").after().times(1);
    let granted = credits_at_every_call(&shop, &fault, false, 2).await?;
    let twice = Fault::new("sqs", "ReceiveMessage", "duplicate").of("worker").times(30);
    shop.host.control()?.fault(&twice).await?;
    shop.send(&[Shop::invoice("evt_last", "invoice.paid", "in_last")]).await?;
    shop.host.control()?.idle().await?;
    assert_eq!(shop.effects("credit.granted").await?.len(), granted + 1);
    Ok(())
}

/// Sends an invoice, in two words, for every call of the worker that `fault` can strike, and sees that each grants one
/// credit. Where `dies`, the struck worker is killed. Gives the number of invoices.
async fn credits_at_every_call(
    shop: &Shop,
    fault: &Fault,
    dies: bool,
    least: u32,
) -> Result<usize> {
    let control = shop.host.control()?;
    let mut invoices = BTreeMap::new();
    for n in 0..ENOUGH {
        let invoice = format!("in_{}_{n}", fault.name());
        let events = ["invoice.paid", "invoice.payment_succeeded"]
            .map(|word| Shop::invoice(&format!("evt_{invoice}_{word}"), word, &invoice));
        control.fault(&fault.clone().skip(n)).await?;
        shop.send(&events).await?;
        let is_struck = eventually("the call is made, or the events are through", async || {
            if control.faults_left().await? == 0 {
                return Ok(true);
            }
            let api = shop.host.api()?;
            for event in &events {
                let story = api.story(shop.provider.source(), &event.id).await?;
                ensure!(story.status() == "processed", "{}", story.0);
            }
            // A call that finishes an event is made before it is seen to be finished.
            Ok(control.faults_left().await? == 0)
        })
        .await?;
        if is_struck && dies {
            control.kill("WorkerFunction").await?;
        }
        control.heal().await?;
        let done = shop.until_done(&events).await;
        done.with_context(|| format!("{n} calls after {fault:?}"))?;
        invoices.insert(invoice, 1);
        if !is_struck {
            ensure!(n >= least, "{n} such calls, not {least}: {fault:?}");
            let granted = shop.effects("credit.granted").await?;
            ensure!(
                invoices.iter().all(|(one, once)| granted.get(one) == Some(once)),
                "{granted:?}"
            );
            ensure!(granted.values().all(|times| *times == 1), "{granted:?}");
            return Ok(granted.len());
        }
    }
    bail!("there is no end of calls: {fault:?}")
}

/// L2. Of the other functions: `e2e_crash.rs`.
#[tokio::test]
async fn the_process_dies_right_after_this_write() -> Result<()> {
    let shop = Shop::open(Setup::IN_MEMORY).await?;
    let late = Fault::new("dynamodb", "*", "delay").of("worker").by(KEPT_BACK_MS).times(1);
    credits_at_every_call(&shop, &late.after(), true, 2).await?;
    let before = Fault::new("dynamodb", "TransactWriteItems", "delay").of("worker");
    credits_at_every_call(&shop, &before.by(KEPT_BACK_MS).times(1), true, 1).await.map(drop)
}

/// L3: for good, not only once: neither the caller's own repetitions nor the service's get an answer.
#[tokio::test]
async fn the_response_disappears() -> Result<()> {
    let stage = Stage::set().await?;
    let lost = |service, action, function| {
        Fault::new(service, action, "drop").of(function).after().times(9)
    };
    let control = stage.host.control()?;
    let mut sent = Vec::new();
    for (n, (service, action, function)) in [
        ("dynamodb", "PutItem", "ingress"),
        ("sqs", "SendMessage", "ingress"),
        ("dynamodb", "TransactWriteItems", "worker"),
        ("dynamodb", "UpdateItem", "relay"),
        ("dynamodb", "UpdateItem", "deliverer"),
    ]
    .into_iter()
    .enumerate()
    {
        let event = Stage::event(&format!("lost_{n}"));
        control.fault(&lost(service, action, function)).await?;
        stage.forwarded.send_until_accepted(&stage.host, &event).await?;
        let api = stage.host.api()?;
        let through = api.until_delivered(stage.forwarded.source(), &event.id).await;
        through.with_context(|| format!("{action} of {function}"))?;
        control.heal().await?;
        sent.push((&stage.forwarded, event));
    }
    // The subscriber has it, and nobody hears that it has.
    let event = Stage::event("lost_webhook");
    let before = stage.subscriber.count();
    stage.subscriber.then([Reply::never(), Reply::never()]);
    stage.forwarded.send_until_accepted(&stage.host, &event).await?;
    stage.subscriber.until(before + 3).await?;
    sent.push((&stage.forwarded, event));
    stage.ensure_whole(&sent).await?;

    // In the example: the commit's answers are lost, and one credit is granted.
    let shop = Shop::open(Setup::IN_MEMORY).await?;
    shop.host.control()?.fault(&lost("dynamodb", "TransactWriteItems", "worker")).await?;
    let events = ["invoice.paid", "invoice.updated"].map(|word| Shop::invoice(word, word, "in_1"));
    shop.send(&events).await?;
    shop.until_done(&events).await?;
    assert_eq!(shop.effects("credit.granted").await?, BTreeMap::from([("in_1".to_owned(), 1)]));
    Ok(())
}

/// L4: after newer ones, after its own copies, and after its message was under way for long.
#[tokio::test]
async fn the_event_arrives_tomorrow() -> Result<()> {
    let shop = Shop::open(Setup::IN_MEMORY).await?;
    let (host, api, control) = (&shop.host, shop.host.api()?, shop.host.control()?);
    let mirrored = Provider::stripe("followed")?;
    api.mirror(&mirrored, None).await?;
    let today = now().as_second();
    let of_day = |day: i64| {
        Event::stripe(
            &format!("evt_day_{day}"),
            "invoice.updated",
            "in_1",
            today + (day - 3) * 86_400,
        )
    };
    for (day, expected) in [(3, "applied"), (1, "stale"), (2, "stale"), (0, "stale")] {
        let event = of_day(day);
        mirrored.send_until_accepted(host, &event).await?;
        let story = api.until("followed", &event.id, "processed").await?;
        assert_eq!(story.results(), [expected], "day {day}");
    }

    // The message of an event that is done by a later one: twice on the way, once carried out.
    let event = Shop::invoice("evt_1", "invoice.paid", "in_1");
    let held = Fault::new("sqs", "SendMessage", "hold").of("ingress").by(4_000).times(1);
    control.fault(&held).await?;
    shop.send(std::slice::from_ref(&event)).await?;
    shop.send(std::slice::from_ref(&event)).await?;
    shop.until_done(std::slice::from_ref(&event)).await?;
    let before = shop.outcome().await?;
    ensure!(host.aws()?.depth("InboundQueue").await? > 0, "the first message is still on its way");
    control.idle().await?;
    // And its provider repeats it, in other words too.
    let later = Shop::invoice("evt_2", "invoice.payment_succeeded", "in_1");
    shop.send(&[event, later.clone()]).await?;
    shop.until_done(&[later]).await?;
    control.idle().await?;
    assert_eq!(shop.outcome().await?, before);
    Ok(())
}

/// L5: copies of one event, and two events that say the same, on two workers at the same moment.
#[tokio::test]
async fn two_copies_run_at_once() -> Result<()> {
    const ROUNDS: usize = 25;
    let shop = Shop::open(Setup::IN_MEMORY).await?;
    let duplicate = Fault::new("sqs", "SendMessage", "duplicate").of("ingress");
    shop.host.control()?.fault(&duplicate).await?;
    let (mut events, mut once) = (Vec::new(), BTreeMap::new());
    for round in 0..ROUNDS {
        let invoice = format!("in_{round}");
        let words = ["invoice.paid", "invoice.payment_succeeded"];
        let two = words.map(|word| Shop::invoice(&format!("evt_{round}_{word}"), word, &invoice));
        let copies = two.iter().flat_map(|event| [event, event]);
        let copies = copies.map(|event| shop.provider.send_until_accepted(&shop.host, event));
        try_join_all(copies).await?;
        events.extend(two);
        once.insert(invoice, 1);
    }
    shop.until_done(&events).await?;
    assert_eq!(shop.effects("credit.granted").await?, once);
    Ok(())
}

/// L6, of what we send ourselves: the message, the stream, the wake message. The sweeper finds each. That a provider sends
/// nothing is another matter.
#[tokio::test]
async fn it_never_arrives() -> Result<()> {
    let stage = Stage::set().await?;
    let control = stage.host.control()?;
    let mut all = Vec::new();
    for (name, faults) in [
        ("message", vec![Fault::new("sqs", "*", "internal").of("ingress")]),
        ("stream", vec![Fault::new("dynamodb", "*", "access_denied").of("relay")]),
        ("wake", vec![Fault::new("sqs", "*", "internal").of("relay")]),
        (
            "anything",
            vec![
                Fault::new("sqs", "*", "drop").of("ingress"),
                Fault::new("dynamodb", "*", "access_denied").of("relay").times(40),
                Fault::new("sqs", "ReceiveMessage", "throttle").of("deliverer").times(10),
            ],
        ),
    ] {
        for fault in &faults {
            control.fault(fault).await?;
        }
        let events = stage.events(name, 6);
        stage.send(&events).await?;
        for (provider, event) in &events {
            let through = stage.host.api()?.until_delivered(provider.source(), &event.id).await;
            through.with_context(|| format!("the {name} never arrives"))?;
        }
        control.heal().await?;
        all.extend(events);
    }
    // A message that is received and never comes back by itself: whoever had it died with the queue.
    let events = stage.events("purged", 6);
    control.fault(&Fault::new("sqs", "SendMessage", "hold").by(600_000)).await?;
    stage.send(&events).await?;
    stage.host.aws()?.purge("InboundQueue").await?;
    control.heal().await?;
    all.extend(events);
    stage.ensure_whole(&all).await
}
