//! `kill -9` of every function and of the whole host, which takes the queues along, at seeded moments, while events come
//! in.
//!
//! Afterwards every event that was answered 2xx has had its effect once, and its webhook has arrived; a subscriber saw
//! the same one again only under the same id and with the same bytes. What got no 2xx the provider sends again, as
//! providers do. Moments are counted in accepted events, not in milliseconds, so that a seed means the same on every
//! machine, as far as real processes allow.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use rand::{RngExt as _, rngs::StdRng};
use tests::{
    eventually, eventually_within,
    host::{Host, Setup},
    now,
    provider::{Event, Provider},
    seed::{Replay, rng, seeds},
    subscriber::{Reply, Subscriber},
};

/// Events of one seed. With three seeds, some five hundred.
const EVENTS: usize = 168;

/// How many requests the provider has under way.
const WIDTH: usize = 6;

/// What is killed, and how many events were accepted before.
#[derive(Debug)]
struct Blow {
    after: usize,
    what: &'static str,
}

const HOST: &str = "the host";
const HOST_AND_QUEUES: &str = "the host, and its queues are lost";
const VICTIMS: &[&str] =
    &["IngressFunction", "WorkerFunction", "RelayFunction", "DelivererFunction", "SweeperFunction"];

/// How long everything may take to settle after the last event: leases, visibility and back-off of `test` are seconds.
const SETTLED: Duration = Duration::from_secs(90);

/// The blows of one seed, in order: each function twice, the host twice, once with its queues.
fn blows(rng: &mut StdRng) -> Vec<Blow> {
    let twice = VICTIMS.iter().flat_map(|what| [*what, *what]);
    let mut blows: Vec<_> = twice
        .chain([HOST, HOST_AND_QUEUES])
        .map(|what| Blow { after: rng.random_range(5..EVENTS - 5), what })
        .collect();
    blows.sort_by_key(|blow| blow.after);
    blows
}

/// The events of one seed: half are mirrored and half forwarded, and a few speak of the same object.
fn events(seed: u64, rng: &mut StdRng) -> Vec<(bool, Event)> {
    let began = now().as_second();
    (0..EVENTS)
        .map(|n| {
            let invoice = format!("in_{}", rng.random_range(0..EVENTS));
            let created = began + i64::try_from(n).unwrap_or_default();
            let id = format!("evt_{seed}_{n}");
            (rng.random_bool(0.5), Event::stripe(&id, "invoice.updated", &invoice, created))
        })
        .collect()
}

/// Kills what is due, until all is accepted.
async fn strike(host: &Host, blows: Vec<Blow>, accepted: &AtomicUsize) -> Result<()> {
    for blow in blows {
        eventually(&format!("{} events are accepted", blow.after), async || {
            let so_far = accepted.load(Ordering::Relaxed);
            ensure!(so_far >= blow.after, "{so_far}");
            Ok(())
        })
        .await?;
        match blow.what {
            HOST => {
                host.kill()?;
                host.restart().await?;
            }
            HOST_AND_QUEUES => {
                host.kill()?;
                host.lose_queues()?;
                host.restart().await?;
            }
            function => host.control()?.kill(function).await?,
        }
    }
    Ok(())
}

/// Sends all, each until it is accepted.
async fn send(
    host: &Host,
    (mirrored, forwarded): (&Provider, &Provider),
    events: &[(bool, Event)],
    accepted: &AtomicUsize,
) -> Result<()> {
    stream::iter(events)
        .map(|(is_mirrored, event)| async move {
            let provider = if *is_mirrored { mirrored } else { forwarded };
            provider.send_until_accepted(host, event).await?;
            accepted.fetch_add(1, Ordering::Relaxed);
            Ok(())
        })
        .buffer_unordered(WIDTH)
        .try_collect()
        .await
}

/// What the subscriber got: the bytes by id, each id with one body.
fn arrived(subscriber: &Subscriber) -> Result<BTreeMap<String, bytes::Bytes>> {
    let mut bodies = BTreeMap::new();
    for seen in subscriber.seen() {
        let before = bodies.insert(seen.id().to_owned(), seen.body.clone());
        ensure!(
            before.is_none_or(|before| before == seen.body),
            "{} came with two bodies",
            seen.id()
        );
    }
    Ok(bodies)
}

async fn survive(seed: u64) -> Result<()> {
    let replay = Replay::of("e2e_kill", seed);
    let mut rng = rng(seed);
    let host = Host::start(Setup::ON_DISK).await?;
    let subscriber = host.subscriber().await?;
    // A subscriber that is neither always there nor always quick.
    let replies = (0..EVENTS / 4).map(|_| match rng.random_range(0..6) {
        0 => Reply::status(500),
        1 => Reply::status(204).after(Duration::from_millis(rng.random_range(1..200))),
        _ => Reply::status(204),
    });
    subscriber.then(replies.collect::<Vec<_>>());
    let endpoint = host.api()?.endpoint("kill", &subscriber.url()).await?;
    let (mirrored, forwarded) = (Provider::stripe("mirrored")?, Provider::stripe("forwarded")?);
    host.api()?.mirror(&mirrored, Some("kill")).await?;
    host.api()?.forward(&forwarded, "kill").await?;

    let (events, blows) = (events(seed, &mut rng), blows(&mut rng));
    let accepted = AtomicUsize::new(0);
    tokio::try_join!(
        send(&host, (&mirrored, &forwarded), &events, &accepted),
        strike(&host, blows, &accepted)
    )?;

    // Each accepted event ends, and what followed from it is delivered. A mirrored event that was overtaken by a newer
    // one of its object is processed and has nothing to tell.
    let mut owed = BTreeMap::new();
    let mut changed = 0;
    for (is_mirrored, event) in &events {
        let source = if *is_mirrored { "mirrored" } else { "forwarded" };
        let story = eventually_within(SETTLED, &format!("{} is delivered", event.id), async || {
            let story = host.api()?.story(source, &event.id).await?;
            ensure!(story.status() == "processed", "{}", story.0);
            for outgoing in story.outgoing() {
                outgoing.ensure_all("succeeded")?;
            }
            Ok(story)
        })
        .await?;
        match (is_mirrored, story.results().as_slice()) {
            (true, ["stale"]) => ensure!(story.outgoing().is_empty(), "{}", story.0),
            (true, _) => changed += 1,
            (false, _) => {}
        }
        if story.results() != ["stale"] {
            let outgoing = story.only_outgoing()?;
            let before = owed.insert(outgoing.id().to_owned(), event.body.clone());
            ensure!(before.is_none(), "two events led to {}", outgoing.id());
        }
    }
    ensure!(changed > 0, "no mirrored event changed anything: this seed proves little");

    // Nothing is lost, nothing came that nobody sent, and duplicates are the same to the last byte.
    ensure!(arrived(&subscriber)? == owed, "what arrived is not what was owed");
    let key = endpoint.key()?;
    for seen in subscriber.seen() {
        seen.verify(&key).with_context(|| seen.id().to_owned())?;
    }

    // One row for each event, one outgoing event for each effect, whatever was repeated.
    let aws = host.aws()?;
    let rows = aws.items("InboxTable").await?;
    let rows = rows.iter().filter(|item| item.text("sk") == Some("EVENT")).count();
    ensure!(rows == events.len(), "{rows} rows for {} events", events.len());
    let outbox: BTreeSet<_> = aws
        .items("OutboxTable")
        .await?
        .iter()
        .filter_map(|i| i.text("sk").map(str::to_owned))
        .collect();
    ensure!(
        outbox == owed.into_keys().collect(),
        "the outbox holds other events than those that were owed"
    );
    replay.well();
    Ok(())
}

/// L1, L2, L3, L4, L5, L10, L18, OUT-crash-after-commit, DLV-crash-after-post
#[tokio::test]
async fn nothing_accepted_is_lost_and_nothing_happens_twice_whatever_is_killed() -> Result<()> {
    for seed in seeds(&[1, 2, 3]) {
        survive(seed).await.with_context(|| format!("seed {seed}"))?;
    }
    Ok(())
}

/// The moments and the events follow from the seed alone.
#[test]
fn a_seed_means_the_same_again() {
    let plan = |seed| {
        let mut rng = rng(seed);
        let events = events(seed, &mut rng);
        let which: Vec<_> =
            events.into_iter().map(|(is_mirrored, event)| (is_mirrored, event.id)).collect();
        format!("{which:?} {:?}", blows(&mut rng))
    };
    assert_eq!(plan(7), plan(7));
    assert_ne!(plan(7), plan(8));
}
