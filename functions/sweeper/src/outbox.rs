//! Outgoing events that are still NEW although the stream has had its time: it was off, or gave up on them.

use std::collections::{BTreeSet, VecDeque};

use domain::{
    id::{EventId, TenantId},
    message::WakeMessage,
    outbox::OutboxEvent,
    ports::{Bodies, Fanout, Outbox, Queue, Registry},
};
use flow::fanout::{FanOut, Fate, STEP};
use futures_util::{StreamExt as _, stream};
use jiff::Timestamp;

use crate::{Part, Sweeper, before};

/// Events of one shard that are taken at a time.
const PAGE: usize = 50;

/// Events read at once.
const WIDTH: usize = 10;

/// Relays what was not relayed: the same steps as the relay's, which change nothing when they are repeated.
pub(crate) async fn sweep<I, S, O, L, R, Q, W, N, K, P, B>(
    sweeper: &Sweeper<'_, I, S, O, L, R, Q, W, N, K, P, B>,
    until: Timestamp,
) -> Part
where
    O: Outbox,
    L: Fanout,
    R: Registry,
    W: Queue<WakeMessage>,
    N: Fn() -> Timestamp + Sync,
    B: Bodies,
{
    let fan_out = FanOut {
        lanes: sweeper.lanes,
        outbox: sweeper.outbox,
        registry: sweeper.registry,
        queue: sweeper.wake,
        bodies: sweeper.bodies,
        cache: sweeper.cache,
        deadline: sweeper.rules.delivery_deadline,
        step: STEP,
        now: &sweeper.now,
    };
    let mut part = Part::default();
    // An event that fails on its own stays NEW, and in the index: the next page has to reach past it.
    let mut seen = BTreeSet::new();
    let mut shards: VecDeque<(u16, usize)> =
        (0..sweeper.rules.outbox_shards).map(|shard| (shard, 0)).collect();
    while let Some((shard, stuck)) = shards.pop_front() {
        let now = (sweeper.now)();
        if now >= until {
            break;
        }
        let overdue = before(now, sweeper.rules.unrelayed_after);
        let found = match sweeper.outbox.unrelayed(shard, overdue, PAGE + stuck).await {
            Ok(found) => found,
            Err(error) => {
                part.fail(error);
                continue;
            }
        };
        let is_last = found.len() < PAGE + stuck;
        let new: Vec<_> = found.into_iter().filter(|event| seen.insert(event.clone())).collect();
        let taken = new.len();
        let events = read(sweeper.outbox, new, &mut part).await;
        let mut relayed = 0;
        for fate in fan_out.run(&events, until).await {
            match fate {
                Fate::Relayed { endpoints, unread } => {
                    relayed += 1;
                    let unmatched = u32::from(endpoints.is_empty());
                    sweeper.metrics.count("relay_unmatched_total", None, unmatched);
                    let unread = u32::from(unread.is_some());
                    sweeper.metrics.count("relay_unreadable_payload_total", None, unread);
                }
                Fate::Left(error) | Fate::Down(error) => part.fail(crate::shared(&error)),
                // The budget is spent; the next sweep goes on from where it is.
                Fate::Unfinished => {}
            }
        }
        part.started += relayed as u64;
        if !is_last && taken > 0 {
            shards.push_back((shard, stuck + taken - relayed));
        }
    }
    part
}

/// Reads events, and leaves out what has been relayed meanwhile: the index lags behind.
async fn read(
    outbox: &impl Outbox,
    keys: Vec<(TenantId, EventId)>,
    part: &mut Part,
) -> Vec<OutboxEvent> {
    let mut rows = stream::iter(keys)
        .map(|(tenant, id)| async move { outbox.event(&tenant, id).await })
        .buffered(WIDTH);
    let mut events = Vec::new();
    while let Some(row) = rows.next().await {
        match row {
            Ok(Some(row)) if row.relayed.is_none() => events.push(row.event),
            Ok(_) => {}
            Err(error) => part.fail(error),
        }
    }
    events
}
