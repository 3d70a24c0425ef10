//! What is left, as numbers: read from the tables, because a queue knows neither what it lost nor how old it is (SQS
//! leaves messages that were received often out of its age).

use std::collections::BTreeSet;

use domain::ports::{
    Backlog, DueInbox, Lanes, Outbox, Pending, Registry, StoreError, Stored, Watch,
};
use jiff::Timestamp;
use runtime::telemetry::{Metrics, Unit};

use crate::{Part, Sweeper, inbox};

/// Measures everything that can be measured. What cannot is left out, and an alarm takes missing data for a breach.
pub(crate) async fn measure<I, S, O, L, R, Q, W, N, K, P, B>(
    sweeper: &Sweeper<'_, I, S, O, L, R, Q, W, N, K, P, B>,
) -> Part
where
    I: DueInbox,
    S: Watch,
    O: Outbox,
    L: Lanes,
    R: Registry,
    N: Fn() -> Timestamp + Sync,
{
    let (mut part, now, rules) = (Part::default(), (sweeper.now)(), &sweeper.rules);
    let gauge = Gauge { metrics: sweeper.metrics, now };

    // A pause must raise no alarm, and hide no other source's trouble.
    let paused = inbox::paused(sweeper.registry).await.unwrap_or_else(|error| {
        part.fail(error);
        BTreeSet::new()
    });
    match inbox::pending(sweeper.inbox, rules.pending_shards, &paused).await {
        Ok(Pending { owed, paused }) => {
            gauge.held(owed, "webhooks_pending_count", "oldest_pending_webhook_age");
            gauge.held(paused, "webhooks_paused_count", "oldest_paused_webhook_age");
        }
        Err(error) => part.fail(error),
    }
    let parked = parked(sweeper.inbox, rules.pending_shards).await;
    gauge.count(parked, "webhooks_dead_letter_count", &mut part);
    let unrelayed = unrelayed(sweeper.outbox, rules.outbox_shards).await;
    gauge.backlog(unrelayed, "outbox_unrelayed_count", "oldest_unrelayed_age", &mut part);
    let due = due(sweeper.lanes, rules.wake_shards, now).await;
    gauge.backlog(due, "lanes_due_count", "oldest_due_age", &mut part);
    if let Err(error) = last_events(sweeper.registry, sweeper.state, &gauge).await {
        part.fail(error);
    }
    part
}

struct Gauge<'a> {
    metrics: &'a Metrics,
    now: Timestamp,
}

impl Gauge<'_> {
    fn backlog(
        &self,
        measured: Stored<Backlog>,
        count: &'static str,
        age: &'static str,
        part: &mut Part,
    ) {
        match measured {
            Ok(backlog) => self.held(backlog, count, age),
            Err(error) => part.fail(error),
        }
    }

    fn held(&self, held: Backlog, count: &'static str, age: &'static str) {
        self.record(count, Unit::Count, None, number(held.count));
        // Nothing waits: no age, which is good news and has to be said.
        let oldest = held.oldest.map_or(0.0, |oldest| self.age(oldest));
        self.record(age, Unit::Seconds, None, oldest);
    }

    fn count(&self, measured: Result<u64, StoreError>, name: &'static str, part: &mut Part) {
        match measured {
            Ok(count) => self.record(name, Unit::Count, None, number(count)),
            Err(error) => part.fail(error),
        }
    }

    fn age(&self, at: Timestamp) -> f64 {
        self.now.duration_since(at).as_secs_f64().max(0.0)
    }

    fn record(&self, name: &'static str, unit: Unit, source: Option<&str>, value: f64) {
        self.metrics.record(name, unit, source, value);
    }
}

/// Counts above four thousand million are drawn as that many.
fn number(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

async fn parked(inbox: &impl DueInbox, shards: u16) -> Stored<u64> {
    let mut all = 0;
    for shard in 0..shards {
        all += inbox.parked(shard).await?;
    }
    Ok(all)
}

async fn unrelayed(outbox: &impl Outbox, shards: u16) -> Stored<Backlog> {
    let mut all = Backlog::default();
    for shard in 0..shards {
        all = all.and(outbox.unrelayed_backlog(shard).await?);
    }
    Ok(all)
}

async fn due(lanes: &impl Lanes, shards: u16, now: Timestamp) -> Stored<Backlog> {
    let mut all = Backlog::default();
    for shard in 0..shards {
        all = all.and(lanes.due_backlog(shard, now).await?);
    }
    Ok(all)
}

/// How long ago each source was heard. A source that was never heard has no age yet.
async fn last_events(
    registry: &impl Registry,
    state: &impl Watch,
    gauge: &Gauge<'_>,
) -> Stored<()> {
    for source in registry.sources().await? {
        if let Some(at) = state.health(&source.name, gauge.now).await?.last_accepted_at {
            let name = source.name.as_str();
            gauge.record("last_event_age", Unit::Seconds, Some(name), gauge.age(at));
        }
    }
    Ok(())
}
