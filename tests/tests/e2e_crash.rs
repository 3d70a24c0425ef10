//! If it dies right there: each function is killed after each of its calls of a store or a queue, one call at a time, and
//! everything still ends as if nothing had been.
//!
//! The host does what the call asks, or does not, and keeps the answer back; in that moment the function's processes
//! are killed. A provider that got no answer sends again.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use tests::{
    control::Fault,
    eventually,
    provider::{Event, Provider},
    stage::{Stage, TENANT},
    subscriber::Reply,
};

/// Longer than any function waits for an answer: who is to be killed must still be waiting.
const KEPT_BACK_MS: u64 = 30_000;

/// The calls at which a function is killed.
#[derive(Clone, Copy, Debug)]
struct Calls {
    service: &'static str,
    action: &'static str,
    /// The answer is kept back after the effect; otherwise the effect does not happen.
    happens: bool,
    /// What is lost with the function.
    lost: Lost,
    /// Fewer calls than this while one event is on its way, and the test has missed what it is about.
    least: u32,
}

/// What is lost besides a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lost {
    Nothing,
    /// All messages: only the tables remember.
    Messages,
    /// The stream, for the relay can do nothing any more: only the tables remember.
    Stream,
}

/// Kills `function` at its first call, at its second, and so on, with a new event each time, until one event is through
/// without meeting the fault.
async fn kill_at_every_call<'a>(
    stage: &'a Stage,
    (binary, function): (&'static str, &str),
    calls: Calls,
    sent: &mut Vec<(&'a Provider, Event)>,
) -> Result<()> {
    let control = stage.host.control()?;
    for n in 0_u32.. {
        let Calls { service, action, happens, lost, least } = calls;
        let name = format!("{binary}_{service}_{action}_{happens}_{n}");
        let name = name.replace('*', "any").to_lowercase();
        let event = Stage::event(&name);
        let provider = if n.is_multiple_of(2) { &stage.forwarded } else { &stage.mirrored };
        let fault =
            Fault::new(service, action, "delay").of(binary).by(KEPT_BACK_MS).skip(n).times(1);
        control.fault(&if happens { fault.after() } else { fault }).await?;

        sent.push((provider, event.clone()));
        let sending = provider.send_until_accepted(&stage.host, &event);
        let striking = async {
            let is_struck = eventually("the call is made, or the event is through", async || {
                if control.faults_left().await? == 0 {
                    return Ok(true);
                }
                let api = stage.host.api()?;
                let story = api.story(provider.source(), &event.id).await?;
                ensure!(story.status() == "processed", "{}", story.0);
                story.only_outgoing()?.ensure_all("succeeded")?;
                Ok(false)
            });
            if is_struck.await? {
                control.kill(function).await?;
                match lost {
                    Lost::Nothing => {}
                    Lost::Messages => {
                        stage.host.aws()?.purge("InboundQueue").await?;
                        stage.host.aws()?.purge("WakeQueue").await?;
                    }
                    Lost::Stream => {
                        let denied = Fault::new("dynamodb", "*", "access_denied").of("relay");
                        control.fault(&denied).await?;
                    }
                }
                return Ok(true);
            }
            control.heal().await?;
            Ok(false)
        };
        let (_, is_struck) = tokio::try_join!(sending, striking).with_context(|| name.clone())?;
        let api = stage.host.api()?;
        let story = api.until_delivered(provider.source(), &event.id).await;
        story.with_context(|| name.clone())?.only_outgoing().with_context(|| name)?;
        control.heal().await?;
        if !is_struck {
            ensure!(n >= least, "{function} makes {n} such calls, not {least}: {calls:?}");
            return stage.ensure_whole(sent).await;
        }
    }
    bail!("{function} never stops calling")
}

const fn done(service: &'static str, action: &'static str, least: u32) -> Calls {
    Calls { service, action, happens: true, lost: Lost::Nothing, least }
}

/// I6 put, answer unknown; I8 send, response lost. L19
#[tokio::test]
async fn ingress_may_die_after_any_of_its_calls() -> Result<()> {
    let stage = Stage::set().await?;
    let ingress = ("ingress", "IngressFunction");
    let mut sent = Vec::new();
    kill_at_every_call(&stage, ingress, done("dynamodb", "*", 2), &mut sent).await?;
    kill_at_every_call(&stage, ingress, done("sqs", "SendMessage", 1), &mut sent).await
}

/// The worker's read; the commit, with its answer unknown and not. OUT-crash-after-commit, L18, L20
#[tokio::test]
async fn the_worker_may_die_after_any_of_its_calls() -> Result<()> {
    let stage = Stage::set().await?;
    let worker = ("worker", "WorkerFunction");
    let mut sent = Vec::new();
    kill_at_every_call(&stage, worker, done("dynamodb", "*", 2), &mut sent).await?;
    let undone = Calls { happens: false, ..done("dynamodb", "TransactWriteItems", 1) };
    kill_at_every_call(&stage, worker, undone, &mut sent).await
}

/// Kills the worker at its first such call, at its second, and so on, while an event fails, until one is parked without
/// meeting the fault. Each is parked in the end, with its error, and its message leaves the queue; when the cause is gone,
/// a person's replay has the effect, once.
async fn kill_while_it_fails(calls: Calls) -> Result<()> {
    let stage = Stage::set().await?;
    let (control, api, aws) = (stage.host.control()?, stage.host.api()?, stage.host.aws()?);
    let Calls { service, action, happens, least, .. } = calls;
    let denied = Fault::new("dynamodb", "TransactWriteItems", "access_denied").of("worker");
    let mut sent = Vec::new();
    for n in 0_u32.. {
        let event = Stage::event(&format!("failing_{n}"));
        let fault =
            Fault::new(service, action, "delay").of("worker").by(KEPT_BACK_MS).skip(n).times(1);
        control.fault(&denied).await?;
        control.fault(&if happens { fault.after() } else { fault }).await?;
        stage.forwarded.send_until_accepted(&stage.host, &event).await?;
        let story = async || api.story(stage.forwarded.source(), &event.id).await;
        let is_struck = eventually("the call is made, or the event is parked", async || {
            if control.faults_left().await? == 1 {
                return Ok(true);
            }
            let story = story().await?;
            ensure!(story.status() == "dead_letter", "{}", story.0);
            // Its message still has to be given up.
            ensure!(aws.depth("InboundQueue").await? == 0, "it has a message");
            Ok(control.faults_left().await? == 1)
        })
        .await?;
        if is_struck {
            control.kill("WorkerFunction").await?;
        }
        eventually("it is parked, and SQS has given its message up", async || {
            let story = story().await?;
            ensure!(story.status() == "dead_letter", "{}", story.0);
            ensure!(aws.depth("InboundQueue").await? == 0, "it has a message");
            Ok(())
        })
        .await
        .with_context(|| format!("killed at call {n}: {calls:?}"))?;
        let parked = story().await?;
        let attempts = parked.0.get("attempts").and_then(serde_json::Value::as_u64);
        ensure!(attempts.is_some_and(|attempts| (1..=4).contains(&attempts)), "{}", parked.0);
        ensure!(parked.0.pointer("/last_error/code").is_some(), "{}", parked.0);

        control.heal().await?;
        let replayed = api.replay(stage.forwarded.source(), &event.id).await?;
        ensure!(replayed.code() == 202, "{replayed:?}");
        let done = api.until_delivered(stage.forwarded.source(), &event.id).await;
        done.with_context(|| format!("killed at call {n}: {calls:?}"))?.only_outgoing()?;
        sent.push((&stage.forwarded, event));
        if !is_struck {
            ensure!(n >= least, "{n} such calls, not {least}: {calls:?}");
            return stage.ensure_whole(&sent).await;
        }
    }
    bail!("an event never stops failing")
}

/// Failure noted, before the visibility is changed; parked, before SQS moves the message.
#[tokio::test]
async fn the_worker_may_die_after_it_has_noted_a_failure() -> Result<()> {
    kill_while_it_fails(done("dynamodb", "UpdateItem", 4)).await
}

/// An attempt that failed and is not counted yet; the last failure, before the parked mark.
#[tokio::test]
async fn the_worker_may_die_before_it_notes_a_failure() -> Result<()> {
    kill_while_it_fails(Calls { happens: false, ..done("dynamodb", "UpdateItem", 4) }).await
}

/// Failure noted, and the visibility is not changed; or is, and nobody hears of it.
#[tokio::test]
async fn the_worker_may_die_when_it_puts_a_message_off() -> Result<()> {
    let off = done("sqs", "ChangeMessageVisibility", 3);
    kill_while_it_fails(off).await?;
    kill_while_it_fails(Calls { happens: false, ..off }).await
}

/// I8 send failed, or never made: the message of an accepted event is not there.
#[tokio::test]
async fn ingress_may_die_before_it_sends() -> Result<()> {
    let stage = Stage::set().await?;
    let undone = Calls { happens: false, ..done("sqs", "SendMessage", 1) };
    kill_at_every_call(&stage, ("ingress", "IngressFunction"), undone, &mut Vec::new()).await
}

/// Queue purged: the row's due time is all that is left.
#[tokio::test]
async fn the_worker_may_die_and_take_its_messages_along() -> Result<()> {
    let stage = Stage::set().await?;
    let calls = Calls { lost: Lost::Messages, ..done("dynamodb", "*", 2) };
    kill_at_every_call(&stage, ("worker", "WorkerFunction"), calls, &mut Vec::new()).await
}

/// Wake message lost: the lane's `wake_at` is all that is left.
#[tokio::test]
async fn the_deliverer_may_die_and_take_its_messages_along() -> Result<()> {
    let stage = Stage::set().await?;
    let calls = Calls { lost: Lost::Messages, ..done("dynamodb", "*", 6) };
    kill_at_every_call(&stage, ("deliverer", "DelivererFunction"), calls, &mut Vec::new()).await
}

/// Part of the fan-out; the delivery before its pointer; the pointer before the wake. OUT-fanout-partial
#[tokio::test]
async fn the_relay_may_die_after_any_of_its_calls() -> Result<()> {
    let stage = Stage::set().await?;
    // A second endpoint, so that there is a part of the fan-out.
    stage.host.api()?.endpoint(TENANT, &stage.subscriber.url()).await?;
    let relay = ("relay", "RelayFunction");
    kill_at_every_call(&stage, relay, done("dynamodb", "*", 4), &mut Vec::new()).await
}

/// The same, and the stream does not come again: the sweeper does the rest.
#[tokio::test]
async fn the_relay_may_die_and_the_sweeper_goes_on() -> Result<()> {
    let stage = Stage::set().await?;
    stage.host.api()?.endpoint(TENANT, &stage.subscriber.url()).await?;
    let calls = Calls { lost: Lost::Stream, ..done("dynamodb", "*", 4) };
    kill_at_every_call(&stage, ("relay", "RelayFunction"), calls, &mut Vec::new()).await
}

/// The lane's lease before a POST; the outcome before the next pointer; the next pointer before the old one is deleted.
#[tokio::test]
async fn the_deliverer_may_die_after_any_of_its_calls() -> Result<()> {
    let stage = Stage::set().await?;
    let deliverer = ("deliverer", "DelivererFunction");
    kill_at_every_call(&stage, deliverer, done("dynamodb", "*", 6), &mut Vec::new()).await
}

/// DLV-crash-after-post: the POST is made, and its outcome is not written.
#[tokio::test]
async fn the_deliverer_may_die_before_it_writes_an_outcome() -> Result<()> {
    let stage = Stage::set().await?;
    let undone = Calls { happens: false, ..done("dynamodb", "UpdateItem", 2) };
    let deliverer = ("deliverer", "DelivererFunction");
    kill_at_every_call(&stage, deliverer, undone, &mut Vec::new()).await
}

/// DLV-crash-after-post: killed while the subscriber has the request and has not answered.
#[tokio::test]
async fn a_webhook_whose_deliverer_died_comes_again_with_the_same_id_and_bytes() -> Result<()> {
    let stage = Stage::set().await?;
    let event = Stage::event("post");
    stage.subscriber.then([Reply::status(204).after(Duration::from_secs(30))]);
    stage.forwarded.send_until_accepted(&stage.host, &event).await?;
    stage.subscriber.until(1).await?;
    stage.host.control()?.kill("DelivererFunction").await?;
    let seen = stage.subscriber.until(2).await?;
    let ids: BTreeSet<_> = seen.iter().map(|seen| seen.id()).collect();
    ensure!(ids.len() == 1 && seen.iter().all(|seen| seen.body == event.body), "{seen:?}");
    stage.ensure_whole(&[(&stage.forwarded, event)]).await
}

/// The sweeper's lease, its claim, its message: whoever it is that dies, a later sweep goes on.
#[tokio::test]
async fn the_sweeper_may_die_after_any_of_its_writes() -> Result<()> {
    let stage = Stage::set().await?;
    // Only the sweeper brings events to the worker.
    let control = stage.host.control()?;
    control.fault(&Fault::new("sqs", "*", "internal").of("ingress")).await?;
    let mut sent = Vec::new();
    for n in 0..4 {
        let event = Stage::event(&format!("swept_{n}"));
        let fault = Fault::new("dynamodb", "UpdateItem", "delay").of("sweeper").by(KEPT_BACK_MS);
        control.fault(&fault.after().skip(n).times(1)).await?;
        stage.forwarded.send_until_accepted(&stage.host, &event).await?;
        eventually("the sweeper writes", async || {
            let left = control.faults_left().await?;
            ensure!(left == 1, "{left} faults are left");
            Ok(())
        })
        .await?;
        control.kill("SweeperFunction").await?;
        stage.host.api()?.until_delivered(stage.forwarded.source(), &event.id).await?;
        sent.push((&stage.forwarded, event));
    }
    stage.ensure_whole(&sent).await
}
