//! Services that lose, repeat, delay and refuse: what was accepted ends as if nothing had been.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context as _, Result, ensure};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};
use tests::{
    control::Fault,
    eventually_within,
    host::{Host, Setup},
    stage::Stage,
};

/// Events of one test.
const EVENTS: usize = 30;

/// Events that are published while nobody reads the stream.
const GAP: usize = 5_000;

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
    let events = stage.events("a", EVENTS);
    stage.send(&events).await?;
    stage.ensure_whole(&events).await
}

#[tokio::test]
async fn a_queue_that_loses_every_message_only_costs_time() -> Result<()> {
    let stage = Stage::set().await?;
    let (control, aws) = (stage.host.control()?, stage.host.aws()?);
    // Every message stays under way until the queue is purged; only then do new ones arrive.
    control.fault(&Fault::new("sqs", "SendMessage", "hold").by(600_000)).await?;
    let events = stage.events("a", EVENTS);
    stage.send(&events).await?;
    ensure!(aws.depth("InboundQueue").await? >= events.len() as u64, "the messages are not there");
    control.heal().await?;
    aws.purge("InboundQueue").await?;
    stage.ensure_whole(&events).await?;

    // The same of what wakes lanes.
    control.fault(&Fault::new("sqs", "SendMessage", "hold").of("relay").by(600_000)).await?;
    control.fault(&Fault::new("sqs", "SendMessageBatch", "hold").of("relay").by(600_000)).await?;
    let more = stage.events("b", EVENTS);
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
    let events = stage.events("a", EVENTS);
    stage.send(&events).await?;
    stage.ensure_whole(&events).await
}

/// OUT-retention-gap: nobody reads the stream for longer than it remembers; then the sweeper relays what was published
/// meanwhile, all of it, and the oldest of it is known by its age until then.
#[tokio::test]
async fn five_thousand_events_that_the_stream_forgot_are_relayed_by_the_sweeper() -> Result<()> {
    // A busy machine needs longer than a hundredth of 96 h for all of it.
    let parameters = &[("DeliveryDeadlineMs", "900000")];
    let host = Host::start(Setup { parameters, ..Setup::IN_MEMORY }).await?;
    let (api, control, subscriber) = (host.api()?, host.control()?, host.subscriber().await?);
    let endpoint = json!({ "url": subscriber.url(), "concurrency": 20 });
    api.client().post("/v1/tenants/gap/endpoints", &endpoint).await?.good()?;
    control.fault(&Fault::new("dynamodb", "*", "access_denied").of("relay")).await?;
    let mut ids = BTreeSet::new();
    for page in 0..GAP / 100 {
        let event = |n| json!({ "tenant": "gap", "type": "order.paid", "aggregate_id": format!("{page}-{n}"), "payload": {} });
        let events: Vec<_> = (0..100).map(event).collect();
        let answer = api.publish(&json!({ "events": events }).to_string(), None).await?.good()?;
        let results = answer.pointer("/results").and_then(Value::as_array).context("results")?;
        let published = results.iter().filter_map(|result| result["id"].as_str());
        ids.extend(published.map(str::to_owned));
    }
    ensure!(ids.len() == GAP, "{} were published", ids.len());
    eventually_within(Duration::from_secs(400), "all arrive", async || {
        let seen: BTreeSet<_> = subscriber.seen().iter().map(|seen| seen.id().to_owned()).collect();
        ensure!(seen.is_superset(&ids), "{} of {}", seen.len(), ids.len());
        Ok(())
    })
    .await
}

/// L22
#[tokio::test]
async fn a_relay_that_is_killed_again_and_again_delays_and_loses_nothing() -> Result<()> {
    let stage = Stage::set().await?;
    let control = stage.host.control()?;
    let events = stage.events("a", EVENTS);
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
    let events = stage.events("a", EVENTS);
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
    let events = stage.events("a", EVENTS);
    stage.send(&events).await?;
    stage.ensure_whole(&events).await
}
