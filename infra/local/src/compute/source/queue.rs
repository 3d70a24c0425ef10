//! An SQS queue that calls a function.
//!
//! As on Lambda: messages that are done are deleted; those that failed are left alone, and come again when their
//! visibility runs out (or as the function itself changed it).

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use serde_json::json;
use tokio::{
    sync::{Mutex, watch},
    task::JoinSet,
    time::{Instant, sleep},
};

use super::{
    backoff, stopped,
    verdict::{Verdict, verdict},
};
use crate::{
    compute::function::{Cause, Invoke, Outcome},
    services::{Message, Queues},
};

/// One receive call waits this long at most, as Lambda's pollers do.
const LONG_POLL: Duration = Duration::from_secs(20);

/// One receive call gives at most so many messages.
const PAGE: usize = 10;

/// A queue and the function that it calls.
#[derive(Clone, Debug)]
pub struct QueueSource<I> {
    /// The queue's ARN.
    pub arn: String,
    /// The AWS region, which each message names.
    pub region: String,
    /// `BatchSize`.
    pub batch: usize,
    /// `MaximumBatchingWindowInSeconds`.
    pub window: Duration,
    /// `ReportBatchItemFailures` is set.
    pub item_failures: bool,
    /// How many batches may be with the function at a time.
    pub width: usize,
    /// The queues, under the function's role.
    pub queues: Queues,
    /// The function.
    pub function: I,
}

impl<I: Invoke> QueueSource<I> {
    /// Polls until the host stops. Batches that are with the function by then are finished first.
    pub async fn run(self, stop: watch::Receiver<bool>) {
        // One poller gathers at a time, so that few messages make one batch instead of many.
        let gathering = Arc::new(Mutex::new(()));
        let mut pollers = JoinSet::new();
        for _ in 0..self.width.max(1) {
            pollers.spawn(self.clone().poll(Arc::clone(&gathering), stop.clone()));
        }
        while pollers.join_next().await.is_some() {}
    }

    async fn poll(self, gathering: Arc<Mutex<()>>, mut stop: watch::Receiver<bool>) {
        let mut failures = 0;
        while !*stop.borrow() {
            let batch = {
                let _turn = gathering.lock().await;
                self.gather(&mut stop).await
            };
            if batch.is_empty() {
                continue;
            }
            if *stop.borrow() {
                return self.give_back(&batch).await;
            }
            // A function that cannot start would otherwise use up the receives of every message in a moment.
            failures = if self.handle(&batch).await { 0 } else { failures + 1 };
            if failures > 0 {
                tokio::select! { () = sleep(backoff(failures)) => {}, () = stopped(&mut stop) => {} }
            }
        }
    }

    /// One batch; empty when the host stops, or when nothing came for a while.
    async fn gather(&self, stop: &mut watch::Receiver<bool>) -> Vec<Message> {
        let mut batch = Vec::new();
        let mut until = None;
        while batch.len() < self.batch {
            let wait = until.map_or(LONG_POLL, |until: Instant| {
                until.saturating_duration_since(Instant::now())
            });
            let room = (self.batch - batch.len()).min(PAGE);
            // Giving up a receive takes nothing from the queue.
            let received = tokio::select! {
                received = self.queues.receive(&self.arn, room, wait) => received,
                () = stopped(stop) => return batch,
            };
            let page = match received {
                Ok(page) => page,
                Err(error) => {
                    tracing::debug!(queue = self.arn, %error, "cannot receive");
                    tokio::select! { () = sleep(backoff(1)) => {}, () = stopped(stop) => {} }
                    return batch;
                }
            };
            let full_page = page.len() == room;
            batch.extend(page);
            if batch.is_empty() || (self.window.is_zero() && !full_page) {
                break;
            }
            let end = *until.get_or_insert_with(|| Instant::now() + self.window);
            if !self.window.is_zero() && Instant::now() >= end {
                break;
            }
        }
        batch
    }

    /// Whether the function could be reached at all.
    async fn handle(&self, batch: &[Message]) -> bool {
        let records: Vec<_> =
            batch.iter().map(|message| message.lambda_record(&self.arn, &self.region)).collect();
        let outcome = self.function.invoke(json!({ "Records": records }).to_string().into()).await;
        let ids: Vec<_> = batch.iter().map(|message| message.id.as_str()).collect();
        let failed = match verdict(self.item_failures, &outcome, &ids) {
            Verdict::Succeeded => BTreeSet::new(),
            Verdict::Failed(failed) => failed,
            Verdict::AllFailed(why) => {
                tracing::warn!(queue = self.arn, messages = batch.len(), "a batch failed: {why}");
                (0..batch.len()).collect()
            }
        };
        for (_, message) in batch.iter().enumerate().filter(|(place, _)| !failed.contains(place)) {
            if let Err(error) = self.queues.delete(&self.arn, &message.receipt).await {
                tracing::debug!(queue = self.arn, %error, "cannot delete a message; it will come again");
            }
        }
        !matches!(outcome, Outcome::Failed(failure) if failure.cause == Cause::Init)
    }

    async fn give_back(&self, batch: &[Message]) {
        for message in batch {
            let _ =
                self.queues.change_visibility(&self.arn, &message.receipt, Duration::ZERO).await;
        }
    }
}
