//! Bulk work that is under way: each is advanced page by page, in turn, as far as its rate and the budget allow.

use std::collections::VecDeque;

use domain::{
    bulk::Work,
    id::ReplayId,
    message::InboundMessage,
    ports::{Bulk, DueInbox, Inbox, Queue, Stored, Walk},
};
use flow::bulk::{Bulks, Step};
use jiff::Timestamp;

use crate::{Part, Sweeper};

/// Advances all of it. A work that fails is left for the next sweep, and does not hold the others.
pub(crate) async fn sweep<I, S, O, L, R, Q, W, N, K, P, B>(
    sweeper: &Sweeper<'_, I, S, O, L, R, Q, W, N, K, P, B>,
    until: Timestamp,
) -> Part
where
    I: Inbox + DueInbox + Walk,
    R: Bulk,
    Q: Queue<InboundMessage>,
    N: Fn() -> Timestamp + Sync,
{
    let mut part = Part::default();
    let bulks = Bulks {
        inbox: sweeper.inbox,
        bulk: sweeper.registry,
        queue: sweeper.inbound,
        shards: sweeper.rules.pending_shards,
        first_due: sweeper.rules.claim_base,
    };
    let open = match sweeper.registry.open().await {
        Ok(open) => open,
        Err(error) => {
            part.fail(error);
            return part;
        }
    };
    // One page each, in turn: a long one does not hold a short one.
    let mut turns: VecDeque<(ReplayId, Option<Work>)> =
        open.into_iter().map(|id| (id, None)).collect();
    while let Some((id, read)) = turns.pop_front() {
        let now = (sweeper.now)();
        if now >= until {
            break;
        }
        match turn(sweeper.registry, &bulks, id, read, now).await {
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

/// One page of one work: how many events it took, and the work as it is now. `None`: there is nothing more to do in this
/// sweep.
async fn turn<I, B, Q>(
    registry: &B,
    bulks: &Bulks<'_, I, B, Q>,
    id: ReplayId,
    read: Option<Work>,
    now: Timestamp,
) -> Stored<Option<(u64, Work)>>
where
    I: Inbox + Walk,
    B: Bulk,
    Q: Queue<InboundMessage>,
{
    let work = match read {
        Some(work) => Some(work),
        None => registry.bulk(id).await?,
    };
    let Some(work) = work else {
        registry.close(id).await?;
        return Ok(None);
    };
    Ok(match bulks.step(&work, now).await? {
        Step::Went(after) => {
            Some((after.counts.replayed.saturating_sub(work.counts.replayed), *after))
        }
        // Whoever else advanced it goes on with it.
        Step::Waits | Step::Over | Step::Lost => None,
    })
}
