//! Event sources that Lambda polls: queues and streams.
//!
//! [`verdict`] says what an answer means for a batch, [`piece`] what becomes of a stream's, [`filter`] which records pass; all are pure. [`queue`] and [`stream`] act.

use std::time::Duration;

use tokio::sync::watch;

pub mod checkpoint;
pub mod filter;
pub mod piece;
pub mod queue;
pub mod stream;
pub mod verdict;

/// The first and the longest wait after a failure.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// The wait before try number `tries` + 1.
pub(super) fn backoff(tries: u32) -> Duration {
    BACKOFF.0.saturating_mul(1 << tries.saturating_sub(1).min(10)).min(BACKOFF.1)
}

/// Returns once the host stops; a host that is gone has stopped too.
pub(super) async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}
