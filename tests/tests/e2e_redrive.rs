//! Redrive as the console does it, with the real binaries on the local host: parked events whose cause was mended are all
//! processed, none twice; with the cause still there they are parked again; and what was under way when an event was
//! parked is no redrive.
//!
//! The cause lies in the configuration: a source whose bodies are no JSON is told to mirror them. Forwarding them works.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::json;
use tests::{
    aws::Item,
    control::Fault,
    eventually, eventually_within,
    host::{Host, Setup},
    now,
    provider::{Event, Provider},
    subscriber::Subscriber,
};

/// How many events an operator finds parked on a bad morning.
const MANY: usize = 1000;

/// How long those may take, on a busy machine: each of their messages is received eight times before SQS gives it up.
const BEARABLE: Duration = Duration::from_secs(240);

/// How many requests the provider has under way.
const WIDTH: usize = 8;

/// `RedriveMarginMs` of the test environment: a message sent later than this after the parking is a redriven one.
const MARGIN: Duration = Duration::from_millis(1200);

/// Of so many events the subscriber hears of one: a thousand webhooks would be the longest part, and on a busy machine the
/// test environment's deadline for deliveries (30 s for production's 96 h) would end some of them.
const COUNTED: usize = 50;

const DEAD_LETTERS: &str = "InboundDlq";
const TENANT: &str = "redrive";

/// A host with a source whose events are parked at once, and somebody who waits for them.
struct Stage {
    host: Host,
    provider: Provider,
    subscriber: Subscriber,
}

impl Stage {
    async fn set() -> Result<Self> {
        let host = Host::start(Setup::IN_MEMORY).await?;
        let (provider, subscriber) = (Provider::homemade("misread")?, host.subscriber().await?);
        let stage = Self { host, provider, subscriber };
        stage.configure().await?;
        Ok(stage)
    }

    async fn configure(&self) -> Result<()> {
        let api = self.host.api()?;
        let body = json!({ "url": self.subscriber.url(), "patterns": ["thing.counted"] });
        api.client().post(&format!("/v1/tenants/{TENANT}/endpoints"), &body).await?.good()?;
        api.mirror(&self.provider, Some(TENANT)).await
    }

    async fn send(&self, count: usize) -> Result<()> {
        stream::iter(0..count)
            .map(async |n| self.provider.send_until_accepted(&self.host, &event(n)).await)
            .buffer_unordered(WIDTH)
            .try_for_each(|_| async { Ok(()) })
            .await
    }

    /// Waits until all events are parked and SQS has given up their messages. Gives how many it has: the sweeper may have
    /// sent a second one of an event that waited long for its turn.
    async fn until_given_up(&self, events: usize) -> Result<u64> {
        let (aws, parked) = (self.host.aws()?, in_state("dead_letter", events));
        let depth = eventually_within(BEARABLE, "SQS has given up the messages", async || {
            let depth = (aws.depth(DEAD_LETTERS).await?, aws.depth("InboundQueue").await?);
            ensure!(depth.0 >= events as u64 && depth.1 == 0, "{depth:?}");
            Ok(depth.0)
        })
        .await?;
        let standing = self.standing().await?;
        ensure!(standing == parked, "{standing:?}");
        Ok(depth)
    }

    /// Every event's row.
    async fn rows(&self) -> Result<Vec<Item>> {
        let mut rows = self.host.aws()?.items("InboxTable").await?;
        rows.retain(|item| item.text("sk") == Some("EVENT"));
        Ok(rows)
    }

    /// How many events stand where.
    async fn standing(&self) -> Result<BTreeMap<String, usize>> {
        let mut standing = BTreeMap::new();
        for row in self.rows().await? {
            *standing.entry(row.text("status").unwrap_or_default().to_owned()).or_default() += 1;
        }
        Ok(standing)
    }

    /// Waits until what is sent from now on is later than the margin after every parking.
    async fn until_past_the_margin(&self) -> Result<()> {
        let times = self.rows().await?.into_iter();
        let times = times.filter_map(|row| row.digits("dead_at")?.parse::<i64>().ok());
        let last = times.max().context("something is parked")?;
        let past = last + i64::try_from(MARGIN.as_millis())?;
        eventually("the margin is over", async || {
            let left = past - now().as_millisecond();
            ensure!(left < 0, "{left} ms are left");
            Ok(())
        })
        .await
    }

    /// The source forwards from now on. New processes know nothing of how it was before.
    async fn mend(&self) -> Result<()> {
        let handler = json!({ "handler": { "kind": "forward", "tenant": TENANT } });
        self.host.api()?.change_source(self.provider.source(), &handler).await?;
        self.host.control()?.kill("WorkerFunction").await
    }

    /// That so many events were processed, and each had its effect, once; and of those that the subscriber hears of, each
    /// came once.
    async fn ensure_each_once(&self, count: usize) -> Result<()> {
        let expected = in_state("processed", count);
        eventually_within(BEARABLE, "all are processed", async || {
            let standing = self.standing().await?;
            ensure!(standing == expected, "{standing:?}");
            Ok(())
        })
        .await?;
        for row in self.rows().await? {
            let results = row.text("results").unwrap_or_default().to_owned();
            let is_first = results.contains("applied") && !results.contains("already_emitted");
            ensure!(is_first, "{results}");
        }
        let outbox = self.host.aws()?.items("OutboxTable").await?.len();
        ensure!(outbox == count, "{outbox} outgoing events");
        let told = count.div_ceil(COUNTED);
        self.subscriber.until(told).await?;
        self.host.control()?.idle().await?;
        let seen = self.subscriber.seen();
        let different: BTreeSet<_> = seen.iter().map(|seen| &seen.body).collect();
        ensure!((different.len(), seen.len()) == (told, told), "{different:?} in {}", seen.len());
        ensure!(self.host.aws()?.depth(DEAD_LETTERS).await? == 0, "messages are left");
        Ok(())
    }
}

/// So many events, all in this state.
fn in_state(status: &str, count: usize) -> BTreeMap<String, usize> {
    BTreeMap::from([(status.to_owned(), count)])
}

fn event(n: usize) -> Event {
    let kind = if n.is_multiple_of(COUNTED) { "thing.counted" } else { "thing.changed" };
    Event::new(&format!("e-{n}"), kind, format!("thing {n} has changed"))
        .with("x-object-type", "thing")
        .with("x-object-id", "t-1")
        .with("x-version", "1")
}

/// WRK-dlq-redrive, L13: a thousand messages after a fixed bug: all processed, none twice.
#[tokio::test]
async fn a_thousand_parked_events_are_redriven_when_the_cause_is_mended_and_none_is_processed_twice()
-> Result<()> {
    let stage = Stage::set().await?;
    stage.send(MANY).await?;
    let messages = stage.until_given_up(MANY).await?;
    let before = stage.rows().await?;
    for row in &before {
        assert_eq!(row.digits("attempts"), Some("1"), "parked at once");
        assert!(row.digits("expires_at").is_none(), "and kept until somebody comes");
    }

    stage.mend().await?;
    stage.until_past_the_margin().await?;
    let moved = stage.host.aws()?.redrive(DEAD_LETTERS).await?;
    assert_eq!(moved, messages);
    stage.ensure_each_once(MANY).await?;
    // Re-armed once, however many messages an event had. (Before, its provider may have re-armed it: by sending again what
    // was not answered in time.)
    let before: BTreeMap<_, _> = before.iter().filter_map(cycle).collect();
    let after: BTreeMap<_, _> = stage.rows().await?.iter().filter_map(cycle).collect();
    assert_eq!(after, before.into_iter().map(|(id, cycle)| (id, cycle + 1)).collect());
    Ok(())
}

/// WRK-dlq-redrive: the bug is still there. Everything is parked again, with its history, and nothing is lost.
#[tokio::test]
async fn a_redrive_with_the_cause_still_there_parks_everything_again_and_loses_nothing()
-> Result<()> {
    const SOME: usize = 60;
    let stage = Stage::set().await?;
    stage.send(SOME).await?;
    for _ in 0..2 {
        let messages = stage.until_given_up(SOME).await?;
        let before: BTreeMap<_, _> = stage.rows().await?.iter().filter_map(died).collect();
        stage.until_past_the_margin().await?;
        assert_eq!(stage.host.aws()?.redrive(DEAD_LETTERS).await?, messages);
        // Each was tried again, and nobody saw it.
        eventually("all were tried again", async || {
            let after = stage.rows().await?;
            let again = after.iter().filter_map(died).filter(|(id, at)| before.get(id) < Some(at));
            let again = again.count();
            ensure!(again == SOME, "{again}");
            Ok(())
        })
        .await?;
        assert_eq!(stage.subscriber.count(), 0);
    }
    let messages = stage.until_given_up(SOME).await?;
    let story = stage.host.api()?.story(stage.provider.source(), "e-0").await?;
    assert_eq!(story.0["last_error"]["code"], "rejected", "{}", story.0);

    stage.mend().await?;
    stage.until_past_the_margin().await?;
    assert_eq!(stage.host.aws()?.redrive(DEAD_LETTERS).await?, messages);
    stage.ensure_each_once(SOME).await
}

/// An event, and how often it was re-armed.
fn cycle(row: &Item) -> Option<(String, u64)> {
    Some((row.text("pk")?.to_owned(), row.digits("cycle")?.parse().ok()?))
}

/// An event that is parked, and since when.
fn died(row: &Item) -> Option<(String, u64)> {
    Some((row.text("pk")?.to_owned(), row.digits("dead_at")?.parse().ok()?))
}

/// The host is killed in the middle of a redrive: the rest is moved when it is back.
#[tokio::test]
async fn a_redrive_goes_on_after_the_host_was_killed() -> Result<()> {
    const SOME: usize = 60;
    let mut stage = Stage::set().await?;
    stage.host = Host::start(Setup::ON_DISK).await?;
    stage.subscriber = stage.host.subscriber().await?;
    stage.configure().await?;
    stage.send(SOME).await?;
    let messages = stage.until_given_up(SOME).await?;
    stage.mend().await?;
    stage.until_past_the_margin().await?;

    let aws = stage.host.aws()?;
    let arn = aws.queue_arn(DEAD_LETTERS).await?;
    let slowly = json!({ "SourceArn": arn, "MaxNumberOfMessagesPerSecond": 20 });
    aws.sqs("StartMessageMoveTask", &slowly).await?;
    eventually("some are moved", async || {
        let left = aws.depth(DEAD_LETTERS).await?;
        ensure!(left < messages, "{left} are left");
        Ok(())
    })
    .await?;
    stage.host.kill()?;
    stage.host.restart().await?;
    let moved = stage.host.aws()?.until_redriven(DEAD_LETTERS).await?;
    assert_eq!(moved, messages);
    let seen = async || {
        stage.host.control()?.idle().await?;
        let standing = stage.standing().await?;
        ensure!(standing == in_state("processed", SOME), "{standing:?}");
        Ok(())
    };
    eventually("all are processed", seen).await?;
    // A deliverer that was killed may have told one twice, under one id.
    let told = SOME.div_ceil(COUNTED);
    let seen = stage.subscriber.until(told).await?;
    let different: BTreeSet<_> = seen.iter().map(|seen| (seen.id(), &seen.body)).collect();
    assert_eq!(different.len(), told);
    Ok(())
}

/// A copy that was under way when its event was parked comes long after: it is no redrive, whatever the time is by then.
#[tokio::test]
async fn a_copy_that_was_under_way_when_its_event_was_parked_does_not_rearm_it() -> Result<()> {
    let stage = Stage::set().await?;
    let (aws, late) = (stage.host.aws()?, MARGIN * 3);
    let held = Fault::new("sqs", "SendMessage", "hold").of("ingress").times(1);
    let held = held.by(u64::try_from(late.as_millis())?);
    stage.host.control()?.fault(&held).await?;
    // The first message is held back; the second, of the provider's repetition, brings the event to be parked.
    stage.send(1).await?;
    stage.send(1).await?;
    stage.host.api()?.until(stage.provider.source(), "e-0", "dead_letter").await?;
    let before = stage.rows().await?;
    // Its own message, the sweeper's perhaps, and at last the one that was held.
    eventually("the one that was held is given up too", async || {
        let standing = (aws.depth("InboundQueue").await?, aws.depth(DEAD_LETTERS).await?);
        ensure!(standing.0 == 0 && standing.1 >= 2, "{standing:?}");
        Ok(())
    })
    .await?;
    let after = stage.rows().await?;
    let [before, after] =
        [&before, &after].map(|rows| rows.iter().map(Item::raw).collect::<Vec<_>>());
    assert_eq!(before, after, "nothing has touched it");

    // Both copies are redriven: one re-arms the event, and the other finds it done.
    stage.mend().await?;
    stage.until_past_the_margin().await?;
    assert!(aws.redrive(DEAD_LETTERS).await? >= 2);
    stage.ensure_each_once(1).await
}

/// WRK-throttle-to-dlq, WRK-receive-count-not-attempts: receives that never came to a run, as under throttling, are no
/// attempts. When SQS gives such a message up, the row says `attempts: 0`, and a redrive brings it back.
#[tokio::test]
async fn receives_that_never_came_to_a_run_are_no_attempts() -> Result<()> {
    let stage = Stage::set().await?;
    let (api, aws, control) = (stage.host.api()?, stage.host.aws()?, stage.host.control()?);
    stage.mend().await?;
    let url = aws.queue("InboundQueue").await?;
    // Somebody who takes a message and gives it back at once. Says how often it was received.
    let receive = async || {
        let ask = json!({ "QueueUrl": url, "VisibilityTimeout": 0, "AttributeNames": ["All"] });
        let got = aws.sqs("ReceiveMessage", &ask).await?;
        let count = got.pointer("/Messages/0/Attributes/ApproximateReceiveCount");
        Ok::<_, anyhow::Error>(count.and_then(|count| count.as_str()?.parse::<u32>().ok()))
    };
    // The poller that waits already still gets one; those after it are refused.
    let keep_the_worker_away = async |n: usize| {
        control.fault(&Fault::new("sqs", "ReceiveMessage", "throttle").of("worker")).await?;
        stage.provider.send_until_accepted(&stage.host, &event(n)).await?;
        api.until(stage.provider.source(), &format!("e-{n}"), "processed").await
    };

    keep_the_worker_away(0).await?;
    stage.provider.send_until_accepted(&stage.host, &event(1)).await?;
    eventually("it is received for the sixth time", async || {
        let count = receive().await?;
        ensure!(count == Some(6), "{count:?}");
        Ok(())
    })
    .await?;
    assert_eq!(api.story(stage.provider.source(), "e-1").await?.0["attempts"], 0);
    control.heal().await?;
    api.until(stage.provider.source(), "e-1", "processed").await?;

    keep_the_worker_away(2).await?;
    // Only the first message: the sweeper's own would bring the event back as well.
    control.fault(&Fault::new("sqs", "*", "internal").of("sweeper")).await?;
    stage.provider.send_until_accepted(&stage.host, &event(3)).await?;
    eventually("SQS gives it up", async || {
        receive().await?;
        ensure!(aws.depth(DEAD_LETTERS).await? == 1, "not yet");
        Ok(())
    })
    .await?;
    let story = api.story(stage.provider.source(), "e-3").await?;
    assert_eq!((story.status(), &story.0["attempts"]), ("pending", &json!(0)), "{}", story.0);
    control.heal().await?;
    assert_eq!(aws.redrive(DEAD_LETTERS).await?, 1);
    stage.ensure_each_once(4).await
}
