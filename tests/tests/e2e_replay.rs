//! Events that a fault parked are replayed in bulk through the real binaries: dry run, selection, cancel, progress; from the
//! table alone.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tests::{control::Fault, eventually, stage::Stage};

/// More than `api` does before it answers.
const EVENTS: usize = 130;

async fn shown(stage: &Stage, id: &str) -> Result<Value> {
    stage.host.api()?.client().get(&format!("/v1/replays/{id}")).await?.good()
}

fn number(value: &Value, pointer: &str) -> u64 {
    value.pointer(pointer).and_then(Value::as_u64).unwrap_or_default()
}

fn text(value: &Value, pointer: &str) -> String {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// WRK-dlq-redrive, RPL-inbound-repair, K2, K6, K8, K10, K11, C12, C14: dlq expires, replay from the table still works.
#[tokio::test]
async fn what_was_parked_is_replayed_after_the_cause_is_mended_though_every_message_is_gone()
-> Result<()> {
    let stage = Stage::set().await?;
    let (api, control, aws) = (stage.host.api()?, stage.host.control()?, stage.host.aws()?);
    let denied = Fault::new("dynamodb", "TransactWriteItems", "access_denied").of("worker");
    control.fault(&denied).await?;
    let provider = &stage.forwarded;
    let events: Vec<_> =
        (0..EVENTS).map(|n| (provider, Stage::event(&format!("parked_{n}")))).collect();
    stage.send(&events).await?;
    let select = json!({ "types": ["invoice.*"] });
    let dry = json!({ "source": provider.source(), "select": select, "dry_run": true });
    eventually("all are parked", async || {
        let survey = api.client().post("/v1/replays", &dry).await?.good()?;
        ensure!(number(&survey, "/counts/replayed") == EVENTS as u64, "{survey}");
        Ok(())
    })
    .await?;
    let list = api.client().get("/v1/parked?source=forwarded&limit=5").await?.good()?;
    ensure!(list["more"] == true && !text(&list, "/parked/0/error/code").is_empty(), "{list}");
    let story = api.story(provider.source(), &events[0].1.id).await?;
    ensure!(story.status() == "dead_letter", "a dry run changes nothing: {}", story.0);

    // The messages are gone; the cause is mended; the sweeper cannot go on with anything yet.
    control.heal().await?;
    for queue in ["InboundQueue", "InboundDlq"] {
        aws.purge(queue).await?;
    }
    control.fault(&Fault::new("dynamodb", "GetItem", "throttle").of("sweeper")).await?;
    let start = json!({
        "source": provider.source(), "select": select, "rate": 1000, "reason": "the rights are mended",
    });
    let begun = api.client().post("/v1/replays", &start).await?.good()?;
    let id = text(&begun, "/id");
    // How much is done before the answer is a matter of time; it never is all.
    ensure!(begun["state"] == "running", "{begun}");
    let stopped =
        api.client().post(&format!("/v1/replays/{id}/cancel"), &json!({})).await?.good()?;
    ensure!(stopped["state"] == "cancelled", "{stopped}");
    let taken = number(&stopped, "/counts/replayed");
    control.heal().await?;
    ensure!(number(&shown(&stage, &id).await?, "/counts/replayed") == taken, "it went on");
    let survey = api.client().post("/v1/replays", &dry).await?.good()?;
    ensure!(number(&survey, "/counts/replayed") == EVENTS as u64 - taken, "{survey}");

    // The rest, at a rate, to its end.
    let again = api.client().post("/v1/replays", &start).await?.good()?;
    let id = text(&again, "/id");
    let done = eventually("the replay is over", async || {
        let work = shown(&stage, &id).await?;
        ensure!(work["state"] == "completed", "{work}");
        Ok(work)
    })
    .await?;
    ensure!(number(&done, "/counts/replayed") == EVENTS as u64 - taken, "{done}");
    stage.ensure_whole(&events).await?;
    let story = api.story(provider.source(), &events[EVENTS - 1].1.id).await?;
    ensure!(number(&story.0, "/cycle") == 1, "{}", story.0);
    ensure!(story.0["origin"] == "webhook" && !text(&story.0, "/replay").is_empty(), "{}", story.0);

    // Once more: nothing is parked any more, and what is done stays done.
    let nothing = api.client().post("/v1/replays", &start).await?.good()?;
    ensure!(nothing["state"] == "completed" && number(&nothing, "/counts/replayed") == 0);
    Ok(())
}

/// RPL-already-delivered: finished events are run again only by name, and their effects do not happen again.
#[tokio::test]
async fn what_is_processed_is_run_again_by_name_only_and_changes_nothing() -> Result<()> {
    let stage = Stage::set().await?;
    let api = stage.host.api()?;
    let events = stage.events("done", 6);
    stage.send(&events).await?;
    stage.ensure_whole(&events).await?;
    let outgoing = stage.host.aws()?.items("OutboxTable").await?.len();
    for source in ["forwarded", "mirrored"] {
        let plain = json!({ "source": source, "reason": "a mistake" });
        let plain = api.client().post("/v1/replays", &plain).await?.good()?;
        ensure!(number(&plain, "/counts/replayed") == 0, "{plain}");
        let select = json!({ "status": ["processed"] });
        let named = json!({ "source": source, "select": select, "reason": "by name" });
        let named = api.client().post("/v1/replays", &named).await?.good()?;
        let id = text(&named, "/id");
        eventually("the replay is over", async || {
            let work = shown(&stage, &id).await?;
            let whole = work["state"] == "completed" && number(&work, "/counts/replayed") == 3;
            ensure!(whole, "{work}");
            Ok(())
        })
        .await?;
    }
    for (provider, event) in &events {
        let story = eventually("it was run again", async || {
            let story = api.story(provider.source(), &event.id).await?;
            ensure!(
                story.status() == "processed" && number(&story.0, "/cycle") == 1,
                "{}",
                story.0
            );
            Ok(story)
        })
        .await?;
        ensure!(!story.results().contains(&"applied"), "an effect twice: {}", story.0);
    }
    let after = stage.host.aws()?.items("OutboxTable").await?.len();
    ensure!(after == outgoing, "{outgoing} outgoing events became {after}");
    let ids: BTreeSet<_> =
        stage.subscriber.seen().iter().map(|seen| seen.id().to_owned()).collect();
    ensure!(ids.len() == outgoing, "{} webhooks came", ids.len());
    Ok(())
}
