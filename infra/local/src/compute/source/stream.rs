//! A DynamoDB stream that calls a function.
//!
//! One shard, in order, one batch at a time. Item failures are a point to go back to, not a list of losers: the lowest one named and
//! everything after it comes again. A batch that has used up its tries is left behind.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};

use super::{
    backoff,
    checkpoint::Checkpoint,
    filter::Pattern,
    stopped,
    verdict::{Verdict, verdict},
};
use crate::{
    compute::function::{Cause, Invoke, Outcome},
    services::{StreamRecord, Streams},
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
    /// One must match; none: all records pass.
    pub filters: Vec<Pattern>,
    /// The streams.
    pub streams: Streams,
    /// The function.
    pub function: I,
    /// Where the place is kept.
    pub checkpoint: Checkpoint,
    /// Where others see how far it is.
    pub place: Place,
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

/// What the next step with a batch is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Done,
    /// Records before this place are done; it and what follows come again.
    Again {
        from: usize,
    },
    /// The tries are used up: what is left of the batch is left behind.
    Leave,
}

/// Decides. `tries` counts how often the first record of this batch was tried, this time included.
fn step(verdict: &Verdict, tries: u32, retries: Option<u32>) -> Step {
    let from = match verdict {
        Verdict::Succeeded => return Step::Done,
        Verdict::Failed(failed) => failed.first().copied().unwrap_or_default(),
        Verdict::AllFailed(_) => 0,
    };
    match retries {
        // Another record is first from here on; its tries are counted anew.
        _ if from > 0 => Step::Again { from },
        Some(retries) if tries > retries => Step::Leave,
        _ => Step::Again { from },
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
            records.extend(page.into_iter().filter(|record| self.passes(&record.event)));
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
    async fn deliver(
        &self,
        mut records: Vec<StreamRecord>,
        stop: &mut watch::Receiver<bool>,
    ) -> bool {
        let mut tries = 0;
        loop {
            tries += 1;
            let events: Vec<_> = records.iter().map(|record| &record.event).collect();
            let outcome =
                self.function.invoke(json!({ "Records": events }).to_string().into()).await;
            if matches!(&outcome, Outcome::Failed(failure) if failure.cause == Cause::Stopping) {
                return false;
            }
            let ids: Vec<_> = records.iter().map(|record| record.sequence.as_str()).collect();
            let verdict = verdict(self.item_failures, &outcome, &ids);
            if let Verdict::AllFailed(why) = &verdict {
                tracing::warn!(
                    stream = self.arn,
                    records = records.len(),
                    tries,
                    "a batch failed: {why}"
                );
            }
            match step(&verdict, tries, self.retries) {
                Step::Done => return true,
                Step::Leave => {
                    let lost = records.len();
                    tracing::error!(
                        stream = self.arn,
                        records = lost,
                        tries,
                        "the tries are used up; these records are left behind"
                    );
                    return true;
                }
                Step::Again { from: 0 } => {}
                Step::Again { from } => {
                    let rest = records.split_off(from);
                    if let Some(done) = records.last() {
                        self.keep(&done.sequence);
                    }
                    records = rest;
                    tries = 1;
                }
            }
            tokio::select! {
                () = sleep(backoff(tries)) => {}
                () = stopped(stop) => return false,
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(failed: &[usize], tries: u32, retries: Option<u32>, expected: &Step) {
        let verdict = if failed.is_empty() {
            Verdict::Succeeded
        } else {
            Verdict::Failed(failed.iter().copied().collect())
        };
        assert_eq!(step(&verdict, tries, retries), *expected, "{failed:?} {tries} {retries:?}");
    }

    /// `OUT-stream-checkpoint`
    #[test]
    fn item_failures_are_a_point_to_go_back_to() {
        check(&[], 1, Some(0), &Step::Done);
        check(&[3, 7], 1, Some(5), &Step::Again { from: 3 });
        check(&[7, 3], 9, Some(5), &Step::Again { from: 3 });
        check(&[0, 7], 1, Some(5), &Step::Again { from: 0 });
    }

    #[test]
    fn the_first_record_has_its_retries_and_no_more() {
        check(&[0], 1, Some(0), &Step::Leave);
        check(&[0], 5, Some(5), &Step::Again { from: 0 });
        check(&[0], 6, Some(5), &Step::Leave);
        check(&[0], 1_000, None, &Step::Again { from: 0 });
        assert_eq!(step(&Verdict::AllFailed(String::new()), 6, Some(5)), Step::Leave);
    }
}
