//! Outgoing events that are still NEW although the stream has had its time: it was off, or gave up on them.

use std::collections::{BTreeSet, VecDeque};

use domain::{
    id::{EventId, TenantId},
    message::WakeMessage,
    outbox::OutboxEvent,
    ports::{Fanout, Outbox, Queue, Registry},
};
use flow::fanout::{FanOut, Fate};
use futures_util::{StreamExt as _, stream};
use jiff::Timestamp;

use crate::{Part, Sweeper, before};

/// Events of one shard that are taken at a time.
const PAGE: usize = 50;

/// Events read at once.
const WIDTH: usize = 10;

/// Relays what was not relayed: the same steps as the relay's, which change nothing when they are repeated.
pub(crate) async fn sweep<I, S, O, L, R, Q, W, N, K, P>(
    sweeper: &Sweeper<'_, I, S, O, L, R, Q, W, N, K, P>,
    until: Timestamp,
) -> Part
where
    O: Outbox,
    L: Fanout,
    R: Registry,
    W: Queue<WakeMessage>,
    N: Fn() -> Timestamp + Sync,
{
    let fan_out = FanOut {
        lanes: sweeper.lanes,
        outbox: sweeper.outbox,
        registry: sweeper.registry,
        queue: sweeper.wake,
        cache: sweeper.cache,
        deadline: sweeper.rules.delivery_deadline,
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
        let fates = fan_out.run(&events, now).await;
        let relayed = fates.iter().filter(|fate| matches!(fate, Fate::Relayed(_))).count();
        part.started += relayed as u64;
        for fate in fates {
            if let Fate::Left(error) | Fate::Down(error) = fate {
                part.fail(crate::shared(&error));
            }
        }
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
