//! Services that lose, repeat, delay and refuse: what was accepted ends as if nothing had been.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Result, ensure};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tests::{
    control::Fault,
    eventually,
    host::{Host, Setup},
    now,
    provider::{Event, Provider},
    subscriber::Subscriber,
};

/// Events of one test.
const EVENTS: usize = 30;

/// A host with one forwarded source, one mirrored one, and one endpoint that hears of both.
struct Stage {
    host: Host,
    subscriber: Subscriber,
    forwarded: Provider,
    mirrored: Provider,
}

impl Stage {
    async fn set() -> Result<Self> {
        let host = Host::start(Setup::IN_MEMORY).await?;
        let subscriber = host.subscriber().await?;
        let (forwarded, mirrored) = (Provider::stripe("forwarded")?, Provider::stripe("mirrored")?);
        let api = host.api()?;
        api.endpoint("faults", &subscriber.url()).await?;
        api.forward(&forwarded, "faults").await?;
        api.mirror(&mirrored, Some("faults")).await?;
        Ok(Self { host, subscriber, forwarded, mirrored })
    }

    /// The events of both sources, each about an object of its own.
    fn events(&self) -> Vec<(&Provider, Event)> {
        let at = now().as_second();
        let event =
            |n: usize| Event::stripe(&format!("evt_{n}"), "invoice.paid", &format!("in_{n}"), at);
        let of = |n: usize| if n.is_multiple_of(2) { &self.forwarded } else { &self.mirrored };
        (0..EVENTS).map(|n| (of(n), event(n))).collect()
    }

    /// Sends events, a few at a time, each until it is accepted.
    async fn send(&self, events: &[(&Provider, Event)]) -> Result<()> {
        stream::iter(events)
            .map(|(provider, event)| provider.send_until_accepted(&self.host, event))
            .buffer_unordered(6)
            .try_for_each(|_| async { Ok(()) })
            .await
    }

    /// That every event had its effect once and its webhook arrived, under one id and with its own bytes.
    async fn ensure_whole(&self, events: &[(&Provider, Event)]) -> Result<()> {
        let (mut owed, api) = (BTreeMap::new(), self.host.api()?);
        for (provider, event) in events {
            let story = api.until_delivered(provider.source(), &event.id).await?;
            owed.insert(story.only_outgoing()?.id().to_owned(), event.body.clone());
        }
        ensure!(owed.len() == events.len(), "{} outgoing events", owed.len());
        for seen in self.subscriber.seen() {
            ensure!(owed.get(seen.id()) == Some(&seen.body), "{} came with other bytes", seen.id());
        }
        let outbox = self.host.aws()?.items("OutboxTable").await?;
        let outbox: BTreeSet<_> = outbox.iter().filter_map(|item| item.text("sk")).collect();
        ensure!(outbox.len() == owed.len(), "{} outgoing events in the table", outbox.len());
        Ok(())
    }
}

/// L15, L16, L18
#[tokio::test]
async fn queues_that_repeat_reorder_delay_and_forget_acknowledgements_change_nothing() -> Result<()>
{
    let stage = Stage::set().await?;
    let control = stage.host.control()?;
    let faults = [
        Fault::new("sqs", "SendMessage", "duplicate").skip(1).times(20),
        Fault::new("sqs", "SendMessage", "hold").skip(3).times(10).by(1500),
        Fault::new("sqs", "SendMessage", "drop").after().skip(5).times(5),
        Fault::new("sqs", "ReceiveMessage", "reorder").times(50),
        Fault::new("sqs", "ReceiveMessage", "duplicate").skip(2).times(5),
        Fault::new("sqs", "DeleteMessage", "lost").times(10),
        Fault::new("sqs", "DeleteMessageBatch", "lost").times(10),
    ];
    for fault in faults {
        control.fault(&fault).await?;
    }
    let events = stage.events();
    stage.send(&events).await?;
    stage.ensure_whole(&events).await
}

#[tokio::test]
async fn a_queue_that_loses_every_message_only_costs_time() -> Result<()> {
    let stage = Stage::set().await?;
    let (control, aws) = (stage.host.control()?, stage.host.aws()?);
    // Every message stays under way until the queue is purged; only then do new ones arrive.
    control.fault(&Fault::new("sqs", "SendMessage", "hold").by(600_000)).await?;
    let events = stage.events();
    stage.send(&events).await?;
    ensure!(aws.depth("InboundQueue").await? >= events.len() as u64, "the messages are not there");
    control.heal().await?;
    aws.purge("InboundQueue").await?;
    stage.ensure_whole(&events).await?;

    // The same of what wakes lanes.
    control.fault(&Fault::new("sqs", "SendMessage", "hold").of("relay").by(600_000)).await?;
    control.fault(&Fault::new("sqs", "SendMessageBatch", "hold").of("relay").by(600_000)).await?;
    let more: Vec<_> = stage
        .events()
        .into_iter()
        .map(|(provider, event)| {
            let id = format!("{}_more", event.id);
            let invoice = format!("in_{id}");
            (provider, Event::stripe(&id, "invoice.paid", &invoice, now().as_second()))
        })
        .collect();
    stage.send(&more).await?;
    aws.purge("WakeQueue").await?;
    control.heal().await?;
    let all: Vec<_> = events.into_iter().chain(more).collect();
    stage.ensure_whole(&all).await
}

/// L22
#[tokio::test]
async fn a_stream_that_nobody_reads_is_made_up_for_by_the_sweeper() -> Result<()> {
    let stage = Stage::set().await?;
    let control = stage.host.control()?;
    control.fault(&Fault::new("dynamodb", "*", "access_denied").of("relay")).await?;
    let events = stage.events();
    stage.send(&events).await?;
    stage.ensure_whole(&events).await?;
    // That it was not the relay is seen from its rights: it still has none.
    control.heal().await
}

/// L22
#[tokio::test]
async fn a_relay_that_is_killed_again_and_again_delays_and_loses_nothing() -> Result<()> {
    let stage = Stage::set().await?;
    let control = stage.host.control()?;
    let events = stage.events();
    let kills = async {
        for _ in 0..40 {
            control.kill("RelayFunction").await?;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    };
    tokio::try_join!(stage.send(&events), kills)?;
    stage.ensure_whole(&events).await
}

/// RTY-store-outage
#[tokio::test]
async fn a_store_that_is_gone_for_a_while_is_answered_with_503_and_then_nothing_is_missing()
-> Result<()> {
    let stage = Stage::set().await?;
    let control = stage.host.control()?;
    let events = stage.events();
    let (before, after) = events.split_at(EVENTS / 2);
    stage.send(before).await?;
    let host = stage.host.ready()?.pid;
    control.fault(&Fault::new("dynamodb", "*", "internal")).await?;
    let ingress = stage.host.ingress()?;
    let answers: Vec<_> = stream::iter(after)
        .map(|(provider, event)| provider.send(&ingress, event))
        .buffer_unordered(6)
        .try_collect()
        .await?;
    for answer in answers {
        ensure!(answer.code() == 503 && answer.header("retry-after").is_some(), "{answer:?}");
    }
    let processes = async || {
        let all = control.processes().await?;
        let pids = all.into_iter().filter(|process| process.function == "IngressFunction");
        Ok::<BTreeSet<_>, anyhow::Error>(pids.filter_map(|process| process.pid).collect())
    };
    let during = processes().await?;
    control.heal().await?;
    stage.send(after).await?;
    stage.ensure_whole(&events).await?;
    // Nobody was restarted for it.
    ensure!(stage.host.ready()?.pid == host);
    ensure!(processes().await?.is_superset(&during), "ingress was restarted");
    Ok(())
}

/// RTY-store-outage, of one table's writes: a delivery whose outcome cannot be written is made again.
#[tokio::test]
async fn an_outcome_that_cannot_be_written_is_learned_again() -> Result<()> {
    let stage = Stage::set().await?;
    let control = stage.host.control()?;
    for action in ["UpdateItem", "PutItem", "TransactWriteItems"] {
        let fault = Fault::new("dynamodb", action, "throttle").of("deliverer");
        control.fault(&fault.skip(4).times(25)).await?;
    }
    let events = stage.events();
    stage.send(&events).await?;
    stage.ensure_whole(&events).await?;
    eventually("nothing is left to strike", async || Ok(())).await
}
