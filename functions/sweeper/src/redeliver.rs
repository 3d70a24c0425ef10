//! Redeliveries that are under way: each is advanced page by page, in turn, as far as its rate and the budget allow.

use std::collections::VecDeque;

use domain::{
    id::RedeliveryId,
    message::WakeMessage,
    ports::{
        Bodies, Deliveries, Events, Fanout, Lanes, Outbox, Queue, Redeliver, Redeliveries,
        Registry, Stored,
    },
    redelivery::Work,
};
use flow::redeliver::{Redeliverer, Step};
use jiff::Timestamp;

use crate::{Part, Sweeper};

/// Advances all of them. One that fails is left for the next sweep, and does not hold the others.
pub(crate) async fn sweep<I, S, O, L, R, Q, W, N, K, P, B>(
    sweeper: &Sweeper<'_, I, S, O, L, R, Q, W, N, K, P, B>,
    until: Timestamp,
) -> Part
where
    O: Outbox + Events,
    L: Lanes + Fanout + Deliveries + Redeliver,
    R: Registry + Redeliveries,
    W: Queue<WakeMessage>,
    N: Fn() -> Timestamp + Sync,
    B: Bodies,
{
    let mut part = Part::default();
    let redeliverer = Redeliverer {
        deliveries: sweeper.lanes,
        outbox: sweeper.outbox,
        registry: sweeper.registry,
        bodies: sweeper.bodies,
        wakes: sweeper.wake,
        tried_for: sweeper.rules.delivery_deadline,
    };
    let open = match sweeper.registry.open_redeliveries().await {
        Ok(open) => open,
        Err(error) => {
            part.fail(error);
            return part;
        }
    };
    // One page each, in turn: a long one does not hold a short one.
    let mut turns: VecDeque<(RedeliveryId, Option<Work>)> =
        open.into_iter().map(|id| (id, None)).collect();
    while let Some((id, read)) = turns.pop_front() {
        let now = (sweeper.now)();
        if now >= until {
            break;
        }
        match turn(sweeper.registry, &redeliverer, id, read, now).await {
            Ok(Some((taken, work))) => {
                part.started += taken;
                turns.push_back((id, Some(work)));
            }
            Ok(None) => {}
            Err(error) => part.fail(error),
        }
    }
    part
}

/// One page of one work: how many deliveries it took, and the work as it is now. `None`: there is nothing more to do in
/// this sweep.
async fn turn<D, O, R, B, Q>(
    registry: &R,
    redeliverer: &Redeliverer<'_, D, O, R, B, Q>,
    id: RedeliveryId,
    read: Option<Work>,
    now: Timestamp,
) -> Stored<Option<(u64, Work)>>
where
    D: Deliveries + Fanout + Redeliver,
    O: Outbox + Events,
    R: Registry + Redeliveries,
    B: Bodies,
    Q: Queue<WakeMessage>,
{
    let work = match read {
        Some(work) => Some(work),
        None => registry.redelivery(id).await?,
    };
    let Some(work) = work else {
        registry.close_redelivery(id).await?;
        return Ok(None);
    };
    Ok(match redeliverer.step(&work, now).await? {
        Step::Went(after) => {
            Some((after.counts.redelivered.saturating_sub(work.counts.redelivered), *after))
        }
        // Whoever else advanced it goes on with it.
        Step::Waits | Step::Over | Step::Lost => None,
    })
}
