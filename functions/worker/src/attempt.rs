//! One try: read the event, plan, commit; or split what is several events.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use domain::{
    commit::{Commit, CommitOutcome, HELD, MAX_PLANS, MAX_ROUNDS, Next, RESTLESS},
    event::{ObjectRef, Origin},
    inbox::{ChangeResult, Failure, Noted, Row, Status, with_earlier},
    message::InboundMessage,
    plan::{BadPlan, Change, Guard, Plan},
    ports::{Bodies, Finish, Inbox, Queue, Registry, State, StoreError, Stored},
    source::Paused,
};
use flow::content::Content;
use jiff::Timestamp;
use runtime::telemetry::chain;

use crate::{
    Feed, Try, Worker, handlers,
    knowing::{self, Known},
};

/// How an attempt ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The row is finished.
    Finished {
        /// Processed or ignored.
        status: Status,
        /// What became of each change.
        results: Vec<ChangeResult>,
        /// Why it was ignored.
        reason: Option<String>,
    },
    /// Somebody else finished, parked or re-armed the row: nothing was changed.
    Moved,
    /// It failed.
    Failed {
        /// Why.
        failure: Failure,
        /// Whether another try would fail alike.
        is_permanent: bool,
    },
    /// Its source is paused: it was not begun.
    Paused(Paused),
    /// It has to wait for something that is not its own failure.
    Waits {
        /// How long at least; `None`: as long as after a first failure.
        delay: Option<Duration>,
        /// For what.
        reason: Failure,
    },
}

pub(crate) fn failed(code: &str, message: &str) -> Ended {
    Ended::Failed { failure: Failure::new(code, message), is_permanent: false }
}

pub(crate) fn hopeless(code: &str, message: &str) -> Ended {
    Ended::Failed { failure: Failure::new(code, message), is_permanent: true }
}

/// The panic hook has logged the place. What it said stays out of the row: it may quote the event.
pub(crate) fn panicked() -> Ended {
    failed("handler_panicked", "the handler panicked; its place is in the log")
}

/// Not the event's fault, so not counted.
pub(crate) fn waits(code: &str, message: &str) -> Ended {
    Ended::Waits { delay: None, reason: Failure::new(code, message) }
}

fn busy(message: &str) -> Ended {
    waits("store_busy", message)
}

const THROTTLED: &str = "the store takes no more for the moment";
const LEASE_LOST: &str = "the object's lease was another attempt's when the change was to be written, so what was read may be old";
const TOO_LARGE: &str = "the store will never take this change: an object has more than 400 KB or all of it more than 4 MB; \
     keep less of the event, then replay it";
const MALFORMED: &str =
    "the store will never take this change: it is malformed; the log has the reasons it gave";

/// An object that a change depends on although it was not read. Planning again would not read it either.
fn unread<'c>(changes: &'c [Change], known: &Known) -> Option<&'c ObjectRef> {
    changes.iter().find_map(|change| match &change.guard {
        Guard::Unchanged { object, .. } if !known.named.contains(object) => Some(object),
        _ => None,
    })
}

/// The end of an attempt in which the store did not do as it was asked.
///
/// Whether an unanswered commit happened is seen when the end is written down: that write has its condition too.
fn unanswered(error: &StoreError) -> Ended {
    match error {
        // Not the event's fault, so not counted. The cause is in the log of the port, and never in the row.
        StoreError::Throttled(_) | StoreError::Unavailable(_) => busy(&error.to_string()),
        // Perhaps a permission that somebody will give back: worth all attempts, and then a person.
        StoreError::Refused(_) => failed("store_refused", &error.to_string()),
        StoreError::Unreadable(_) => failed("store_unreadable", &error.to_string()),
    }
}

impl<I, S, R, B, Q, N> Worker<'_, I, S, R, B, Q, N>
where
    I: Inbox,
    S: State,
    R: Registry,
    B: Bodies,
    Q: Queue<InboundMessage>,
    N: Fn() -> Timestamp,
{
    /// Makes one attempt at a pending row, which the message of this receipt brought.
    ///
    /// `count_first`: it is counted before anything of the event is touched.
    pub(crate) async fn attempt(&self, row: &Row, at: Try<'_>, count_first: bool) -> Ended {
        self.try_it(row, at, count_first).await.unwrap_or_else(|error| {
            tracing::warn!(error = %chain(&error), "an attempt met a store's error");
            unanswered(&error)
        })
    }

    async fn try_it(&self, row: &Row, at: Try<'_>, count_first: bool) -> Stored<Ended> {
        // Before it counts: while it is paused, no attempt is made.
        if let Some(paused) = self.sources.paused(row.new.key.source(), (self.now)()).await? {
            return Ok(Ended::Paused(paused));
        }
        if count_first && !self.count(row).await? {
            return Ok(Ended::Moved);
        }
        let content = match Content::of(&row.new, self.inbox, self.bodies).await? {
            Ok(content) => content,
            Err(unreadable) => return Ok(hopeless(unreadable.code(), &unreadable.to_string())),
        };
        let source = row.new.key.source();
        let Some(feed) = self.sources.of(source, (self.now)()).await? else {
            return Ok(hopeless(
                "source_missing",
                "the source is not configured any more; add it again, then replay the event",
            ));
        };
        // What a request said of several events was taken apart when it came; what we fetched is one event.
        if row.new.parent.is_none() && row.new.origin != Origin::Reconcile {
            match &feed.scheme {
                Ok(scheme) if scheme.is_batch() => {
                    return Box::pin(self.split(row, &content, scheme, at.receipt)).await;
                }
                Ok(_) => {}
                // Perhaps an older version of this code beside a newer one of the source's.
                Err(error) => {
                    let why = format!("the source's scheme cannot be read: {}", chain(error));
                    return Ok(failed("scheme_missing", &why));
                }
            }
        }
        // Of a request with several events, each was let through to here by itself.
        if let Err(other) = feed.source.wants(content.bytes()) {
            return self.finish(row, Status::Ignored, Vec::new(), Some(other.to_string())).await;
        }
        self.carry_out(row, &feed, content.bytes(), at).await
    }

    /// Plans an event and makes its plan true.
    async fn carry_out(&self, row: &Row, feed: &Feed, body: &[u8], at: Try<'_>) -> Stored<Ended> {
        if let Some(why) = handlers::missing(&feed.source.handler) {
            return Ok(hopeless("no_handler", &why));
        }
        let known = match self.know(row, feed, body, at).await? {
            Ok(known) => known,
            Err(ended) => return Ok(ended),
        };
        let lease = known.lease.clone();
        let ended = self.plan_and_apply(row, feed, body, known).await;
        if let Some(lease) = lease {
            self.give_back(&lease).await;
        }
        ended
    }

    /// Plans, and plans again if an object was no longer as the plan had seen it.
    async fn plan_and_apply(
        &self,
        row: &Row,
        feed: &Feed,
        body: &[u8],
        mut known: Known,
    ) -> Stored<Ended> {
        for round in 1..=MAX_PLANS {
            let event = knowing::event(&row.new, feed, body, known.fetched.as_ref());
            let plan = || (self.handlers.plan)(&feed.source.handler, &event, &known.current);
            let Ok(plan) = catch_unwind(AssertUnwindSafe(plan)) else { return Ok(panicked()) };
            self.tell_plan(&row.new, &plan);
            match plan {
                Plan::Apply(changes) => {
                    if let Some(ended) = self.apply(row, changes, &known).await? {
                        return Ok(ended);
                    }
                }
                Plan::Ignored(reason) => {
                    return self.finish(row, Status::Ignored, Vec::new(), Some(reason)).await;
                }
                Plan::Requeue { delay, reason } => {
                    let reason = Failure::new("waits", &reason);
                    return Ok(Ended::Waits { delay: Some(delay), reason });
                }
                Plan::Reject(reason) => return Ok(hopeless("rejected", &reason)),
            }
            if round < MAX_PLANS {
                known = match self.know_again(row, feed, body, known).await? {
                    Ok(known) => known,
                    Err(ended) => return Ok(ended),
                };
            }
        }
        Ok(waits("conflict", RESTLESS))
    }

    /// Makes changes true in one transaction, narrowed to what is still to be done. `None`: plan again.
    async fn apply(&self, row: &Row, changes: Vec<Change>, known: &Known) -> Stored<Option<Ended>> {
        if let Some(object) = unread(&changes, known) {
            let why = format!(
                "the plan depends on what {} {} was, which was not read for it: name it in `reads`, deploy that, then replay \
                 the event",
                object.kind, object.id
            );
            return Ok(Some(hopeless("bad_plan", &why)));
        }
        let now = (self.now)();
        let (expires_at, received_at) = (self.expiry(now), row.new.received_at);
        let (knowledge, lease) = (known.knowledge(&row.new), known.lease.clone());
        let staged =
            Commit::stage(row.claim(), received_at, now, expires_at, changes, knowledge, lease);
        let mut commit = match staged {
            Ok(commit) => commit.traced(row.new.traceparent.as_deref()).after_runs(&row.results),
            Err(bad @ BadPlan::TooLarge { .. }) => {
                self.tell_commit(&row.new, &[CommitOutcome::TooLarge].into());
                return Ok(Some(hopeless("too_large", &bad.to_string())));
            }
            Err(bad) => return Ok(Some(hopeless("bad_plan", &bad.to_string()))),
        };
        let before = commit.results.len();
        for (object, current) in &known.current.others {
            commit = commit.without_stale(object, current);
        }
        let dropped = commit.results.get(before..).unwrap_or_default();
        self.tell_commit(&row.new, &CommitOutcome::of_dropped(dropped));
        if let Err(too_large) = self.lay_aside(&mut commit).await? {
            return Ok(Some(hopeless("payload_too_large", &too_large.to_string())));
        }
        self.commit(row, commit).await
    }

    /// Commits, narrowed to what is still to be done, in a few rounds. `None`: plan again.
    async fn commit(&self, row: &Row, mut commit: Commit) -> Stored<Option<Ended>> {
        for _ in 0..MAX_ROUNDS {
            if commit.is_empty() {
                break;
            }
            let answer = match self.state.commit(&commit).await {
                Err(StoreError::Throttled(cause)) => {
                    tracing::info!(error = %chain(&*cause), "a commit was throttled");
                    self.tell_commit(&row.new, &[CommitOutcome::Throttled].into());
                    return Ok(Some(waits("throttled", THROTTLED)));
                }
                answer => answer?,
            };
            let known = commit.results.len();
            let next = commit.after(&answer);
            self.tell_commit(&row.new, &next.outcomes(known));
            match next {
                Next::Done(results) => {
                    let status = Status::Processed;
                    return Ok(Some(Ended::Finished { status, results, reason: None }));
                }
                Next::Narrowed(next) | Next::Again(next) => commit = next,
                Next::Replan => return Ok(None),
                Next::Moved => return Ok(Some(Ended::Moved)),
                Next::Throttled => return Ok(Some(waits("throttled", THROTTLED))),
                Next::Later(why) => return Ok(Some(busy(why))),
                Next::LeaseLost => return Ok(Some(waits("lease_lost", LEASE_LOST))),
                Next::TooLarge => return Ok(Some(hopeless("too_large", TOO_LARGE))),
                Next::Invalid => return Ok(Some(hopeless("store_refused", MALFORMED))),
            }
        }
        if !commit.is_empty() {
            return Ok(Some(waits("conflict", HELD)));
        }
        let ended = self.finish(row, Status::Processed, commit.results, None).await?;
        if matches!(ended, Ended::Moved) {
            self.tell_commit(&row.new, &[CommitOutcome::AlreadyFinished].into());
        }
        Ok(Some(ended))
    }

    /// Ends a row that changes nothing else.
    pub(crate) async fn finish(
        &self,
        row: &Row,
        status: Status,
        results: Vec<ChangeResult>,
        reason: Option<String>,
    ) -> Stored<Ended> {
        let now = (self.now)();
        let results = with_earlier(results, &row.results);
        let finish = Finish {
            status,
            results: results.clone(),
            reason: reason.clone(),
            now,
            expires_at: self.expiry(now),
        };
        Ok(match self.inbox.finish(&row.claim(), &finish).await? {
            Noted::Yes => Ended::Finished { status, results, reason },
            Noted::Moved => Ended::Moved,
        })
    }

    fn expiry(&self, now: Timestamp) -> Timestamp {
        now.saturating_add(self.limits.retention).unwrap_or(Timestamp::MAX)
    }
}
