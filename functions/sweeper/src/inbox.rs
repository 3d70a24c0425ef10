//! Events that are due: their message was lost, was acknowledged while they wait for something, or never was.

use std::collections::{BTreeSet, VecDeque};

use domain::{
    id::{InboxKey, SourceName},
    inbox::{Noted, Row, Status, claimed_until},
    message::InboundMessage,
    ports::{DueInbox, Inbox, Pending, Queue, Registry, Stored},
};
use futures_util::{StreamExt as _, stream};
use jiff::Timestamp;

use crate::{Part, Sweeper};

/// Rows of one shard that are taken at a time, so that all shards get their turn before the budget is spent.
const PAGE: usize = 50;

/// Rows under way at once: enough to hide the store's latency.
const WIDTH: usize = 10;

/// What became of one due row.
enum Fate {
    /// Claimed: its message is ours to send.
    Claimed,
    /// Parked: its attempts are used up.
    Parked,
    /// The index lagged behind, or somebody else has moved it.
    Moved,
    /// The queue is full: it stays due.
    Left,
}

/// Sends what is due, and parks what has used up its attempts.
///
/// A row is claimed before its message is sent: if the message is lost, the due time has moved by the claim and the row
/// comes again; if the claim fails, somebody else takes care of it.
pub(crate) async fn sweep<I, S, O, L, R, Q, W, N, K, P, B>(
    sweeper: &Sweeper<'_, I, S, O, L, R, Q, W, N, K, P, B>,
    until: Timestamp,
) -> Part
where
    I: Inbox + DueInbox,
    R: Registry,
    Q: Queue<InboundMessage>,
    N: Fn() -> Timestamp + Sync,
{
    let mut part = Part::default();
    let is_full = match is_full(sweeper).await {
        Ok(is_full) => is_full,
        Err(error) => {
            part.fail(error);
            false
        }
    };
    // What is left behind on purpose, or cannot be moved, would otherwise come back with each page.
    let mut seen: BTreeSet<InboxKey> = BTreeSet::new();
    let mut shards: VecDeque<(u16, usize)> =
        (0..sweeper.rules.pending_shards).map(|shard| (shard, 0)).collect();
    while let Some((shard, stuck)) = shards.pop_front() {
        let now = (sweeper.now)();
        if now >= until {
            break;
        }
        let due = match sweeper.inbox.due(shard, now, PAGE + stuck).await {
            Ok(due) => due,
            Err(error) => {
                part.fail(error);
                continue;
            }
        };
        let is_last = due.len() < PAGE + stuck;
        let new: Vec<InboxKey> = due.into_iter().filter(|key| seen.insert(key.clone())).collect();
        let taken = new.len();
        let claimed = claim(sweeper, new, is_full, &mut part).await;
        let stuck = stuck + taken - claimed.len();
        send(sweeper, &claimed, &mut part).await;
        // With a full queue one page is enough to park what has to be parked.
        if !is_last && taken > 0 && !is_full {
            shards.push_back((shard, stuck));
        }
    }
    part
}

/// Whether the worker has a message for every pending row before it already: more of them would only circle.
///
/// Hidden and delayed messages do not count: one may be of a worker that died, or a second one of a row that fails, and
/// counted they would stand for a row whose own message was lost. Rows of paused sources do not count either: beside a
/// hundred thousand of them no queue would ever be full.
async fn is_full<I, S, O, L, R, Q, W, N, K, P, B>(
    sweeper: &Sweeper<'_, I, S, O, L, R, Q, W, N, K, P, B>,
) -> Stored<bool>
where
    I: DueInbox,
    R: Registry,
    Q: Queue<InboundMessage>,
{
    let visible = sweeper.inbound.visible().await?;
    if visible == 0 {
        return Ok(false);
    }
    let paused = paused(sweeper.registry).await?;
    let pending = pending(sweeper.inbox, sweeper.rules.pending_shards, &paused).await?;
    Ok(visible >= pending.owed.count)
}

/// All pending rows.
pub(crate) async fn pending(
    inbox: &impl DueInbox,
    shards: u16,
    paused: &BTreeSet<SourceName>,
) -> Stored<Pending> {
    let mut all = Pending::default();
    for shard in 0..shards {
        all = all.and(inbox.pending(shard, paused).await?);
    }
    Ok(all)
}

/// The sources whose events wait until somebody resumes these.
pub(crate) async fn paused(registry: &impl Registry) -> Stored<BTreeSet<SourceName>> {
    let sources = registry.sources().await?.into_iter();
    Ok(sources.filter(|source| source.paused.is_some()).map(|source| source.name).collect())
}

/// Claims or parks rows, side by side. Gives those that were claimed.
async fn claim<I, S, O, L, R, Q, W, N, K, P, B>(
    sweeper: &Sweeper<'_, I, S, O, L, R, Q, W, N, K, P, B>,
    keys: Vec<InboxKey>,
    is_full: bool,
    part: &mut Part,
) -> Vec<InboundMessage>
where
    I: Inbox + DueInbox,
    N: Fn() -> Timestamp + Sync,
{
    let mut claimed = Vec::new();
    let mut fates = stream::iter(keys)
        .map(|key| async move {
            let fate = one(sweeper, &key, is_full).await;
            (key, fate)
        })
        .buffered(WIDTH);
    while let Some((key, fate)) = fates.next().await {
        match fate {
            Ok(Fate::Claimed) => claimed.push(InboundMessage(key)),
            Ok(Fate::Parked) => {
                part.parked += 1;
                let source = Some(key.source().as_str());
                sweeper.metrics.count("webhooks_dead_lettered_total", source, 1);
            }
            Ok(Fate::Moved | Fate::Left) => {}
            // One row's trouble must not hold the others.
            Err(error) => part.fail(error),
        }
    }
    claimed
}

async fn one<I, S, O, L, R, Q, W, N, K, P, B>(
    sweeper: &Sweeper<'_, I, S, O, L, R, Q, W, N, K, P, B>,
    key: &InboxKey,
    is_full: bool,
) -> Stored<Fate>
where
    I: Inbox + DueInbox,
    N: Fn() -> Timestamp + Sync,
{
    let (inbox, rules, now) = (sweeper.inbox, &sweeper.rules, (sweeper.now)());
    let Some(row) = inbox.read(key).await?.filter(|row| is_due(row, now)) else {
        return Ok(Fate::Moved);
    };
    if row.attempts >= rules.attempts {
        let parked = inbox.park(&row.claim(), row.attempts, &row.attempts_used_up(), now).await?;
        return Ok(if parked == Noted::Yes { Fate::Parked } else { Fate::Moved });
    }
    if is_full {
        return Ok(Fate::Left);
    }
    let due_at = claimed_until(row.sweeps, rules.claim_base, rules.claim_cap, now);
    let claimed = inbox.claim(&row, due_at).await?;
    Ok(if claimed == Noted::Yes { Fate::Claimed } else { Fate::Moved })
}

fn is_due(row: &Row, now: Timestamp) -> bool {
    row.status == Status::Pending && row.due_at.is_some_and(|due_at| due_at <= now)
}

async fn send<I, S, O, L, R, Q, W, N, K, P, B>(
    sweeper: &Sweeper<'_, I, S, O, L, R, Q, W, N, K, P, B>,
    claimed: &[InboundMessage],
    part: &mut Part,
) where
    Q: Queue<InboundMessage>,
{
    if claimed.is_empty() {
        return;
    }
    let lost = sweeper.inbound.send(claimed, std::time::Duration::ZERO).await.len();
    part.started += (claimed.len() - lost.min(claimed.len())) as u64;
    if lost > 0 {
        part.fail(crate::not_sent(lost));
    }
}
