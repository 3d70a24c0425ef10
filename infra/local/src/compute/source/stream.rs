//! A DynamoDB stream that calls a function.
//!
//! One shard, in order, one batch at a time. Item failures are a point to go back to, not a list of losers: the lowest one named and
//! everything after it comes again. A batch whose function failed is split in two, where that is asked for. What has used up its
//! tries, or has become too old, is left behind, and the on-failure queue is told which records that were.
//!
//! With a parallelization factor each lane reads the whole shard and takes the items that are its own: an item's records stay in
//! order, and a lane that is stuck holds up no other.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::Value;
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};

use super::{
    backoff,
    checkpoint::Checkpoint,
    filter::Pattern,
    piece::{Condition, Discarded, Piece, Share, Step, step},
    stopped,
    verdict::{Verdict, verdict},
};
use crate::{
    compute::{
        function::{Cause, Invoke, Outcome},
        process::random_id,
    },
    services::{Clock, Queues, StreamRecord, Streams},
};

/// Even without news the stream is looked at so often: news may be missed, records may not.
const LOOK: Duration = Duration::from_secs(1);

/// A stream and the function that it calls.
#[derive(Clone, Debug)]
pub struct StreamSource<I> {
    /// The stream's ARN.
    pub arn: String,
    /// `BatchSize`.
    pub batch: usize,
    /// `MaximumBatchingWindowInSeconds`.
    pub window: Duration,
    /// `ReportBatchItemFailures` is set.
    pub item_failures: bool,
    /// `MaximumRetryAttempts`; `None` is for ever.
    pub retries: Option<u32>,
    /// `MaximumRecordAgeInSeconds`; `None`: records get as old as the stream keeps them.
    pub max_age: Option<Duration>,
    /// `BisectBatchOnFunctionError` is set.
    pub bisect: bool,
    /// `DestinationConfig.OnFailure`.
    pub on_failure: Option<OnFailure>,
    /// Which of the lanes of `ParallelizationFactor` this is.
    pub share: Share,
    /// One must match; none: all records pass.
    pub filters: Vec<Pattern>,
    /// The streams.
    pub streams: Streams,
    /// The function.
    pub function: I,
    /// By which records age.
    pub clock: Clock,
    /// Where the place is kept.
    pub checkpoint: Checkpoint,
    /// Where others see how far it is.
    pub place: Place,
}

/// Who is told of what was given up.
#[derive(Clone, Debug)]
pub struct OnFailure {
    /// The queue's ARN.
    pub queue: String,
    /// The queues, under the function's role, as on AWS.
    pub queues: Queues,
    /// The function's ARN, which the message names.
    pub function: String,
}

/// How far a stream is read, for whoever waits for the end.
#[derive(Clone, Debug, Default)]
pub struct Place(Arc<Seen>);

#[derive(Debug, Default)]
struct Seen {
    done: Mutex<Option<String>>,
    busy: AtomicBool,
}

impl Place {
    /// The last sequence number that is done.
    #[must_use]
    pub fn done(&self) -> Option<String> {
        self.0.done.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether a batch is with the function.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.0.busy.load(Ordering::SeqCst)
    }
}

impl<I: Invoke> StreamSource<I> {
    /// Reads until the host stops, from the place that was kept.
    pub async fn run(self, kept: Option<String>, mut stop: watch::Receiver<bool>) {
        self.set_done(kept);
        let mut changes = self.streams.changes();
        while !*stop.borrow() {
            let Some((records, last)) = self.gather(&mut changes, &mut stop).await else {
                continue;
            };
            self.place.0.busy.store(true, Ordering::SeqCst);
            let finished = records.is_empty() || self.deliver(records, &mut stop).await;
            if finished {
                self.keep(&last);
            }
            self.place.0.busy.store(false, Ordering::SeqCst);
        }
    }

    /// The records that pass the filter, and the last one read. `None`: the host stops, or there is nothing.
    async fn gather(
        &self,
        changes: &mut watch::Receiver<u64>,
        stop: &mut watch::Receiver<bool>,
    ) -> Option<(Vec<StreamRecord>, String)> {
        let (mut records, mut last): (Vec<StreamRecord>, _) = (Vec::new(), self.place.done());
        let mut read_any = false;
        let mut until = None;
        loop {
            changes.mark_unchanged();
            let room = self.batch.saturating_sub(records.len()).max(1);
            let page = match self.streams.read(&self.arn, last.as_ref(), room).await {
                Ok(page) => page,
                Err(error) => {
                    tracing::warn!(stream = self.arn, %error, "cannot read the stream");
                    tokio::select! { () = sleep(backoff(4)) => {}, () = stopped(stop) => {} }
                    return None;
                }
            };
            if let Some(newest) = page.last() {
                last = Some(newest.sequence.clone());
                read_any = true;
            }
            let empty = page.is_empty();
            let ours =
                |record: &StreamRecord| self.share.has(&record.event) && self.passes(&record.event);
            records.extend(page.into_iter().filter(ours));
            let end = *until.get_or_insert_with(|| Instant::now() + self.window);
            let window_over = self.window.is_zero() || Instant::now() >= end;
            if read_any
                && (records.len() >= self.batch
                    || (empty && (window_over || records.is_empty()))
                    || (window_over && !records.is_empty()))
            {
                return last.map(|last| (records, last));
            }
            if empty {
                let wait = if records.is_empty() { Instant::now() + LOOK } else { end };
                tokio::select! {
                    _ = changes.changed() => {}
                    () = sleep_until(wait) => {}
                    () = stopped(stop) => return None,
                }
                if records.is_empty() {
                    until = None;
                }
            }
        }
    }

    fn passes(&self, event: &Value) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|pattern| pattern.matches(event))
    }

    /// False: the host stops, and the rest comes again after the restart.
    async fn deliver(&self, records: Vec<StreamRecord>, stop: &mut watch::Receiver<bool>) -> bool {
        let mut left = VecDeque::from([Piece { records, tries: 0 }]);
        while let Some(mut piece) = left.pop_front() {
            let old = piece.too_old(self.max_age, self.clock.now_ms());
            if !old.is_empty() {
                self.give_up(&old, Condition::TooOld, None, piece.tries, stop).await;
            }
            if piece.records.is_empty() {
                continue;
            }
            piece.tries += 1;
            let outcome = self.function.invoke(piece.event().to_string().into()).await;
            if matches!(&outcome, Outcome::Failed(failure) if failure.cause == Cause::Stopping) {
                return false;
            }
            let verdict = verdict(self.item_failures, &outcome, &piece.ids());
            if let Verdict::AllFailed(why) = &verdict {
                let (records, tries) = (piece.records.len(), piece.tries);
                tracing::warn!(stream = self.arn, records, tries, "a batch failed: {why}");
            }
            match step(&verdict, piece.records.len(), piece.tries, self.retries, self.bisect) {
                Step::Done => {
                    self.keep_last(&piece.records);
                    continue;
                }
                Step::Leave => {
                    let error = matches!(outcome, Outcome::Failed(_));
                    let condition = Condition::TriesUsedUp;
                    self.give_up(&piece.records, condition, Some(error), piece.tries, stop).await;
                    continue;
                }
                Step::Again { from } => {
                    let rest = piece.records.split_off(from);
                    self.keep_last(&piece.records);
                    // Another record is first from here on; its tries are counted anew.
                    let tries = if from > 0 { 0 } else { piece.tries };
                    left.push_front(Piece { records: rest, tries });
                }
                Step::Halve => {
                    let second = piece.records.split_off(piece.records.len() / 2);
                    // A split does not count as a try.
                    let tries = piece.tries - 1;
                    left.push_front(Piece { records: second, tries });
                    left.push_front(Piece { records: piece.records, tries });
                }
            }
            let wait = left.front().map_or(1, |piece| piece.tries.max(1));
            tokio::select! {
                () = sleep(backoff(wait)) => {}
                () = stopped(stop) => return false,
            }
        }
        true
    }

    /// Leaves records behind, and says so to the on-failure queue. The message names their place in the stream, not what
    /// they hold.
    async fn give_up(
        &self,
        records: &[StreamRecord],
        condition: Condition,
        function_error: Option<bool>,
        tries: u32,
        stop: &mut watch::Receiver<bool>,
    ) {
        let count = records.len();
        tracing::error!(stream = self.arn, records = count, tries, "given up: {condition:?}");
        let discarded = Discarded { stream: &self.arn, records, condition, function_error, tries };
        let message = self.on_failure.as_ref().map(|on_failure| {
            let ids = (random_id(), on_failure.function.as_str());
            (on_failure, discarded.message(ids, self.clock.now_ms()).to_string())
        });
        if let Some((on_failure, message)) = message {
            let mut tries = 0;
            // Until it is there, as records that are lost unseen are what this queue is for.
            while let Err(error) = on_failure.queues.send(&on_failure.queue, &message).await {
                tries += 1;
                tracing::warn!(queue = on_failure.queue, %error, "cannot send what was given up");
                tokio::select! { () = sleep(backoff(tries)) => {}, () = stopped(stop) => return }
            }
        }
        self.keep_last(records);
    }

    fn keep_last(&self, records: &[StreamRecord]) {
        if let Some(last) = records.last() {
            self.keep(&last.sequence);
        }
    }

    fn keep(&self, sequence: &str) {
        self.checkpoint.save(sequence);
        self.set_done(Some(sequence.to_owned()));
    }

    fn set_done(&self, sequence: Option<String>) {
        *self.place.0.done.lock().unwrap_or_else(PoisonError::into_inner) = sequence;
    }
}
