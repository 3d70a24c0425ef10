//! Lanes whose time has come: their wake message was lost, or they slept longer than a message can be delayed.

use std::time::Duration;

use domain::{
    message::WakeMessage,
    ports::{Lanes, Queue},
};
use jiff::Timestamp;

use crate::{Part, Sweeper};

/// Lanes of one shard that one sweep wakes. A lane that is woken stays in the index until its holder has looked, so the
/// oldest come first each time, and the others when those are done.
const PAGE: usize = 1000;

/// Wakes lanes. Nothing is claimed: whoever holds the lane moves its time.
pub(crate) async fn sweep<I, S, O, L, R, Q, W, N, K, P, B>(
    sweeper: &Sweeper<'_, I, S, O, L, R, Q, W, N, K, P, B>,
    until: Timestamp,
) -> Part
where
    L: Lanes,
    W: Queue<WakeMessage>,
    N: Fn() -> Timestamp + Sync,
{
    let mut part = Part::default();
    let mut sleepers = Vec::new();
    for shard in 0..sweeper.rules.wake_shards {
        let now = (sweeper.now)();
        if now >= until {
            break;
        }
        match sweeper.lanes.sleepers(shard, now, PAGE).await {
            Ok(found) => sleepers.extend(found.into_iter().map(WakeMessage)),
            Err(error) => part.fail(error),
        }
    }
    if sleepers.is_empty() {
        return part;
    }
    // Only messages that the deliverer could have now. A delayed one is of a lane that is not due yet, and a hidden one may
    // be of a deliverer that died: counted, they would keep a lane asleep whose message was lost.
    match sweeper.wake.visible().await {
        // The deliverer is behind: it has as many messages before it as lanes are due.
        Ok(visible) if visible >= sleepers.len() as u64 => return part,
        Ok(_) => {}
        Err(error) => part.fail(error),
    }
    let lost = sweeper.wake.send(&sleepers, Duration::ZERO).await.len();
    part.started += (sleepers.len() - lost.min(sleepers.len())) as u64;
    if lost > 0 {
        part.fail(crate::not_sent(lost));
    }
    part
}
