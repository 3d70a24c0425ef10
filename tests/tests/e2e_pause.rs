//! A source is paused in a storm: its events are accepted and wait, and after the resume each is carried out once, whoever
//! is killed meanwhile. Waits end by themselves, and no storm runs more workers than the template allows.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tests::{
    control::Fault,
    eventually,
    host::{Host, Setup},
    provider::{Event, Provider},
    stage::{Stage, TENANT},
};

/// Longer than any function waits for an answer: who is to be killed must still be waiting.
const KEPT_BACK_MS: u64 = 30_000;

async fn pause(stage: &Stage, provider: &Provider) -> Result<()> {
    let path = format!("/v1/sources/{}/pause", provider.source());
    let reason = json!({ "reason": "the books are wrong" });
    stage.host.api()?.client().post(&path, &reason).await?.good().map(drop)
}

async fn resume(stage: &Stage, provider: &Provider) -> Result<Value> {
    let path = format!("/v1/sources/{}/resume?rate=1000", provider.source());
    stage.host.api()?.client().post(&path, &json!({})).await?.good()
}

/// Waits until an event is put off, and nothing of it is counted.
async fn until_put_off(stage: &Stage, provider: &Provider, event: &Event) -> Result<()> {
    let api = stage.host.api()?;
    eventually(&format!("{} is put off", event.id), async || {
        let story = api.story(provider.source(), &event.id).await?;
        let next = story.0.get("next_action").and_then(Value::as_str).unwrap_or_default();
        let waits = next.starts_with("waits: the source is paused since ")
            && next.ends_with("`postern sources resume forwarded`");
        ensure!(story.status() == "pending" && waits, "{}", story.0);
        ensure!(story.0.get("attempts") == Some(&json!(0)), "{}", story.0);
        Ok(())
    })
    .await
}

/// C33, C37, K12
#[tokio::test]
async fn events_of_a_paused_source_wait_and_are_carried_out_once_after_the_resume() -> Result<()> {
    let stage = Stage::set().await?;
    let (control, api) = (stage.host.control()?, stage.host.api()?);
    pause(&stage, &stage.forwarded).await?;
    let events = stage.events("paused", 24);
    stage.send(&events).await?;
    let (paused, others): (Vec<_>, Vec<_>) =
        events.iter().partition(|(provider, _)| provider.source() == "forwarded");
    for (provider, event) in &paused {
        until_put_off(&stage, provider, event).await?;
    }
    // The other source goes on as if nothing had been.
    for (provider, event) in &others {
        api.until_delivered(provider.source(), &event.id).await?;
    }
    // The provider sends some of them again, and the worker dies among them.
    for (provider, event) in paused.iter().take(5) {
        provider.send_until_accepted(&stage.host, event).await?;
    }
    control.kill("WorkerFunction").await?;
    control.idle().await?;
    let told = stage.host.aws()?.items("OutboxTable").await?.len();
    ensure!(told == others.len(), "{told} outgoing events");

    // Killed again while it carries them out, and what it had in hand comes back.
    let late = Fault::new("dynamodb", "TransactWriteItems", "delay").of("worker");
    control.fault(&late.by(KEPT_BACK_MS).skip(3).times(2)).await?;
    let resumed = resume(&stage, &stage.forwarded).await?;
    ensure!(resumed.get("paused") == Some(&Value::Null), "{resumed}");
    eventually("the worker is in the middle of it", async || {
        let left = control.faults_left().await?;
        ensure!(left == 0, "{left} faults are left");
        Ok(())
    })
    .await?;
    control.kill("WorkerFunction").await?;
    control.heal().await?;
    stage.ensure_whole(&events).await?;
    // A second resume finds nothing left to do.
    let again = resume(&stage, &stage.forwarded).await?;
    ensure!(again.get("resume") == resumed.get("resume"), "{again}");
    control.idle().await?;
    stage.ensure_whole(&events).await
}

/// If it dies right there: the worker is killed at each of its calls while it puts an event off, one call at a time.
#[tokio::test]
async fn the_worker_may_die_after_any_call_that_puts_an_event_off() -> Result<()> {
    let stage = Stage::set().await?;
    let (control, mut sent) = (stage.host.control()?, Vec::new());
    pause(&stage, &stage.forwarded).await?;
    for after in [false, true] {
        for n in 0..5 {
            let event = Stage::event(&format!("put_off_{after}_{n}"));
            let fault = Fault::new("dynamodb", "*", "delay").of("worker").by(KEPT_BACK_MS);
            let fault = fault.skip(n).times(1);
            control.fault(&if after { fault.after() } else { fault }).await?;
            stage.forwarded.send_until_accepted(&stage.host, &event).await?;
            let struck = eventually("the call is made, or the event is put off", async || {
                if control.faults_left().await? == 0 {
                    return Ok(true);
                }
                let story = stage.host.api()?.story("forwarded", &event.id).await?;
                let is_put_off = story.0.get("next_action").is_some_and(Value::is_string);
                ensure!(is_put_off && stage.host.aws()?.depth("InboundQueue").await? == 0);
                Ok(false)
            });
            if struck.await? {
                control.kill("WorkerFunction").await?;
            }
            control.heal().await?;
            until_put_off(&stage, &stage.forwarded, &event).await?;
            sent.push((&stage.forwarded, event));
        }
    }
    resume(&stage, &stage.forwarded).await?;
    stage.ensure_whole(&sent).await
}

/// The resume's answer is lost with the api after any of its writes: whoever got none asks again.
#[tokio::test]
async fn the_api_may_die_after_any_write_of_a_resume() -> Result<()> {
    let stage = Stage::set().await?;
    let (control, mut sent) = (stage.host.control()?, Vec::new());
    for n in 0..4 {
        pause(&stage, &stage.forwarded).await?;
        // One that has just carried out the event before believes the source for a moment to run (`PauseSeenMs`).
        control.kill("WorkerFunction").await?;
        let event = Stage::event(&format!("resumed_{n}"));
        stage.forwarded.send_until_accepted(&stage.host, &event).await?;
        until_put_off(&stage, &stage.forwarded, &event).await?;
        // The audit is a put, the source an update, the work a transaction, the event an update again.
        let (action, skip) =
            [("PutItem", 0), ("UpdateItem", 0), ("TransactWriteItems", 0), ("UpdateItem", 1)][n];
        let fault = Fault::new("dynamodb", action, "delay").of("api").by(KEPT_BACK_MS).after();
        control.fault(&fault.skip(skip).times(1)).await?;
        let (lost, _) = tokio::join!(resume(&stage, &stage.forwarded), async {
            eventually("the api writes", async || {
                ensure!(control.faults_left().await? == 0);
                Ok(())
            })
            .await?;
            control.kill("ApiFunction").await
        });
        ensure!(lost.is_err(), "{action} {skip}: the answer was not lost: {lost:?}");
        control.heal().await?;
        eventually("the resume is answered", async || resume(&stage, &stage.forwarded).await)
            .await?;
        stage.host.api()?.until_delivered("forwarded", &event.id).await?;
        sent.push((&stage.forwarded, event));
    }
    stage.ensure_whole(&sent).await
}

/// C33, WRK-throttle-to-dlq: in a storm there are as many workers as the template allows, and not one more; and what had
/// to wait for a worker is none the worse for it.
#[tokio::test]
async fn a_storm_runs_no_more_workers_than_the_template_allows() -> Result<()> {
    const CAP: usize = 2;
    // A slow worker is no dead one: its messages stay hidden for longer than it takes.
    let parameters = &[
        ("WorkerMaxConcurrency", "2"),
        ("WorkerVisibilitySeconds", "30"),
        ("WorkerVisibilityMs", "30000"),
    ];
    let host = Host::start(Setup { parameters, ..Setup::IN_MEMORY }).await?;
    let (control, api) = (host.control()?, host.api()?);
    let (storm, subscriber) = (Provider::stripe("storm")?, host.subscriber().await?);
    api.endpoint(TENANT, &subscriber.url()).await?;
    api.forward(&storm, TENANT).await?;
    // Slow enough that every worker has something to do.
    control.fault(&Fault::new("dynamodb", "GetItem", "delay").of("worker").by(60)).await?;
    let events: Vec<_> = (0..40).map(|n| Stage::event(&format!("storm_{n}"))).collect();
    for event in &events {
        storm.send_until_accepted(&host, event).await?;
    }
    let mut most = 0;
    eventually("the storm is over", async || {
        let all = control.processes().await?.into_iter();
        let workers: BTreeSet<_> =
            all.filter(|one| one.function == "WorkerFunction").filter_map(|one| one.pid).collect();
        most = most.max(workers.len());
        ensure!(workers.len() <= CAP, "{} workers", workers.len());
        let left = host.aws()?.depth("InboundQueue").await?;
        ensure!(left == 0, "{left} messages are left");
        Ok(())
    })
    .await?;
    ensure!(most == CAP, "{most} workers at most: no storm");
    control.heal().await?;
    for event in &events {
        let story = api.until("storm", &event.id, "processed").await?;
        ensure!(story.0.get("attempts") == Some(&json!(0)), "{}", story.0);
    }
    ensure!(host.aws()?.depth("InboundDlq").await? == 0);
    Ok(())
}

/// An object says as of when it is known, and that it may be out of date while its source is paused.
#[tokio::test]
async fn an_object_of_a_paused_source_is_doubted() -> Result<()> {
    let stage = Stage::set().await?;
    let event = Stage::event("doubted");
    stage.mirrored.send_until_accepted(&stage.host, &event).await?;
    stage.host.api()?.until_delivered("mirrored", &event.id).await?;
    let path = "/v1/sources/mirrored/objects/invoice/in_doubted";
    let object = async || stage.host.api()?.client().get(path).await?.good();
    let known = object().await?;
    ensure!(known.get("possibly_stale") == Some(&json!(false)), "{known}");
    ensure!(known.get("fields").is_some_and(|all| all.to_string().contains("1999")), "{known}");
    pause(&stage, &stage.mirrored).await?;
    let doubted = object().await?;
    let why = doubted.pointer("/why/0/code").and_then(Value::as_str).context("no doubt")?;
    ensure!(why == "paused" && doubted.get("as_of") == known.get("as_of"), "{doubted}");
    tokio::time::timeout(Duration::from_secs(20), resume(&stage, &stage.mirrored)).await??;
    ensure!(object().await?.get("possibly_stale") == Some(&json!(false)));
    Ok(())
}
