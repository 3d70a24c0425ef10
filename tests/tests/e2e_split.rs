//! Requests that carry several events, and bodies that came compressed, through the real binaries: and the worker killed
//! in the middle of a split.

use std::{collections::BTreeSet, io::Read as _};

use anyhow::{Context as _, Result, bail, ensure};
use tests::{
    control::Fault,
    eventually,
    provider::{Event, Provider},
    stage::{Stage, TENANT},
};

/// Longer than any function waits for an answer: who is to be killed must still be waiting.
const KEPT_BACK_MS: u64 = 30_000;

async fn set() -> Result<(Stage, Provider)> {
    let (stage, batched) = (Stage::set().await?, Provider::batching("batched")?);
    stage.host.api()?.forward(&batched, TENANT).await?;
    Ok((stage, batched))
}

fn three(name: &str) -> Vec<Event> {
    (0..3).map(|n| Stage::event(&format!("{name}_{n}"))).collect()
}

/// Waits until a request and all of its events are done, each of them delivered once, with its own bytes.
async fn until_done(stage: &Stage, provider: &Provider, events: &[Event]) -> Result<()> {
    let api = stage.host.api()?;
    for event in events {
        eventually(&format!("{} has a row", event.id), async || {
            api.story(provider.source(), &event.id).await
        })
        .await?;
        let story = api.until_delivered(provider.source(), &event.id).await?;
        let id = story.only_outgoing()?.id().to_owned();
        let seen: Vec<_> = stage.subscriber.seen();
        let of_it: Vec<_> = seen.iter().filter(|seen| seen.body == event.body).collect();
        ensure!(
            !of_it.is_empty() && of_it.iter().all(|seen| seen.id() == id),
            "{}: {of_it:?}",
            event.id
        );
    }
    let request = Event::request(events);
    let story = api.until(provider.source(), &request.id, "processed").await?;
    ensure!(story.outgoing().is_empty(), "the request itself was told: {}", story.0);
    let children: u64 = story
        .0
        .pointer("/results")
        .and_then(|results| results.as_array())
        .into_iter()
        .flatten()
        .filter_map(|result| {
            result["what"].as_str()?.strip_prefix("children ")?.parse::<u64>().ok()
        })
        .sum();
    ensure!(children == events.len() as u64, "{}", story.0);
    Ok(())
}

/// One row for a request, one for each of its events, and each told once, however often the request comes.
#[tokio::test]
async fn a_request_with_several_events_is_several_events() -> Result<()> {
    let (stage, batched) = set().await?;
    let events = three("several");
    for _ in 0..3 {
        batched.send_until_accepted(&stage.host, &Event::request(&events)).await?;
    }
    // Some of them come once more in another request.
    batched.send_until_accepted(&stage.host, &Event::request(&events[1..])).await?;
    until_done(&stage, &batched, &events).await?;
    until_done(&stage, &batched, &events[1..]).await?;
    let outbox = stage.host.aws()?.items("OutboxTable").await?;
    ensure!(outbox.len() == 3, "{} outgoing events", outbox.len());
    Ok(())
}

/// Killed at each of the calls that only a split makes: a row put or not, told or not, the request finished.
async fn kill_in_a_split(
    service: &'static str,
    action: &'static str,
    happens: bool,
    least: u32,
) -> Result<()> {
    let (stage, batched) = set().await?;
    let control = stage.host.control()?;
    for n in 0..12_u32 {
        let name = format!("{service}_{action}_{happens}_{n}").replace('*', "any").to_lowercase();
        let events = three(&name);
        let fault =
            Fault::new(service, action, "delay").of("worker").by(KEPT_BACK_MS).skip(n).times(1);
        control.fault(&if happens { fault.after() } else { fault }).await?;
        batched.send_until_accepted(&stage.host, &Event::request(&events)).await?;
        let is_struck = eventually("the call is made, or the request is done", async || {
            if control.faults_left().await? == 0 {
                return Ok(true);
            }
            let story =
                stage.host.api()?.story(batched.source(), &Event::request(&events).id).await?;
            ensure!(story.status() == "processed", "{}", story.0);
            // The call that finishes the request is made before it is seen to be finished.
            Ok(control.faults_left().await? == 0)
        })
        .await
        .with_context(|| name.clone())?;
        if is_struck {
            control.kill("WorkerFunction").await?;
        }
        control.heal().await?;
        until_done(&stage, &batched, &events).await.with_context(|| name)?;
        if !is_struck {
            ensure!(n >= least, "a split makes {n} such calls, not {least}");
            let ids: BTreeSet<_> =
                stage.subscriber.seen().iter().map(|seen| seen.id().to_owned()).collect();
            let told = 3 * (n as usize + 1);
            ensure!(ids.len() == told, "{} outgoing events, not {told}", ids.len());
            return Ok(());
        }
    }
    bail!("a split never stops calling")
}

#[tokio::test]
async fn the_worker_may_die_after_it_has_put_an_event() -> Result<()> {
    kill_in_a_split("dynamodb", "PutItem", true, 3).await
}

#[tokio::test]
async fn the_worker_may_die_before_it_puts_an_event() -> Result<()> {
    kill_in_a_split("dynamodb", "PutItem", false, 3).await
}

#[tokio::test]
async fn the_worker_may_die_before_it_tells_of_the_events() -> Result<()> {
    kill_in_a_split("sqs", "SendMessageBatch", false, 1).await
}

#[tokio::test]
async fn the_worker_may_die_after_it_has_finished_the_request() -> Result<()> {
    kill_in_a_split("dynamodb", "UpdateItem", true, 1).await
}

/// Subscribers get what a compressed event says; a bomb is parked with its reason, and the function lives.
#[tokio::test]
async fn a_compressed_event_arrives_as_what_it_says_and_a_bomb_is_parked() -> Result<()> {
    let (stage, _) = set().await?;
    let plain = Stage::event("compressed");
    let zip = |bytes: &[u8]| -> Result<Vec<u8>> {
        let mut zipped = Vec::new();
        flate2::read::GzEncoder::new(bytes, flate2::Compression::best())
            .read_to_end(&mut zipped)?;
        Ok(zipped)
    };
    let gzipped = |bytes: Vec<u8>| {
        let id = format!("sha256:{}", hex::encode(<sha2::Sha256 as sha2::Digest>::digest(&bytes)));
        Event::new(&id, "invoice.paid", bytes).with("content-encoding", "gzip")
    };
    let event = gzipped(zip(&plain.body)?);
    stage.forwarded.send_until_accepted(&stage.host, &event).await?;
    let [seen] = stage.subscriber.until(1).await?.try_into().map_err(|_| anyhow::anyhow!("one"))?;
    ensure!(seen.body == plain.body, "{seen:?}");
    // Named by what it says, as if it had not been compressed.
    stage.host.api()?.until_delivered(stage.forwarded.source(), &plain.id).await?;

    let bomb = gzipped(zip(&vec![b' '; 64 * 1024 * 1024])?);
    stage.forwarded.send_until_accepted(&stage.host, &bomb).await?;
    let story = stage.host.api()?.until(stage.forwarded.source(), &bomb.id, "dead_letter").await?;
    let code = story.0.pointer("/last_error/code").and_then(|code| code.as_str());
    ensure!(code == Some("decompressed_too_large"), "{}", story.0);
    Ok(())
}
