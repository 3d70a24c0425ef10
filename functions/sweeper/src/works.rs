//! Works under way: replays and resumes of received events, and redeliveries. Each is advanced page by page, in turn, as
//! far as its rate and the budget allow.

use domain::{
    message::{InboundMessage, WakeMessage},
    ports::{
        Bodies, Bulk, Deliveries, DueInbox, Events, Fanout, Inbox, Lanes, Outbox, Queue, Redeliver,
        Redeliveries, Registry, Walk,
    },
};
use flow::{
    bulk::Bulks,
    paged::{Paged, in_turn},
    redeliver::Redeliverer,
};
use jiff::Timestamp;

use crate::{Part, Sweeper};

/// Advances replays and resumes.
pub(crate) async fn replay<I, S, O, L, R, Q, W, N, K, P, B>(
    sweeper: &Sweeper<'_, I, S, O, L, R, Q, W, N, K, P, B>,
    until: Timestamp,
) -> Part
where
    I: Inbox + DueInbox + Walk,
    R: Bulk,
    Q: Queue<InboundMessage>,
    N: Fn() -> Timestamp + Sync,
{
    let bulks = Bulks {
        inbox: sweeper.inbox,
        bulk: sweeper.registry,
        queue: sweeper.inbound,
        shards: sweeper.rules.pending_shards,
        first_due: sweeper.rules.claim_base,
    };
    all(&bulks, &sweeper.now, until).await
}

/// Advances redeliveries.
pub(crate) async fn redeliver<I, S, O, L, R, Q, W, N, K, P, B>(
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
    let redeliverer = Redeliverer {
        deliveries: sweeper.lanes,
        outbox: sweeper.outbox,
        registry: sweeper.registry,
        bodies: sweeper.bodies,
        wakes: sweeper.wake,
        tried_for: sweeper.rules.delivery_deadline,
    };
    all(&redeliverer, &sweeper.now, until).await
}

/// All of one kind. One that fails is left for the next sweep.
async fn all(kind: &impl Paged, now: &(impl Fn() -> Timestamp + Sync), until: Timestamp) -> Part {
    let (started, failed) = in_turn(kind, now, until).await;
    let mut part = Part { started, ..Part::default() };
    failed.into_iter().for_each(|error| part.fail(error));
    part
}
