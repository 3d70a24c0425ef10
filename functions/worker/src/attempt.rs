//! One try: read the event, plan, commit; or split what is several events.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use domain::{
    commit::{Commit, HELD, MAX_ROUNDS, Next},
    event::{Object, Origin},
    inbox::{ChangeResult, Failure, Noted, Row, Status},
    message::InboundMessage,
    plan::{Change, Plan},
    ports::{Bodies, Finish, Inbox, Queue, Registry, State, StoreError, Stored},
};
use flow::content::Content;
use jiff::Timestamp;
use runtime::telemetry::chain;

use crate::{Worker, handlers::Event};

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

fn busy(message: &str) -> Ended {
    Ended::Waits { delay: None, reason: Failure::new("store_busy", message) }
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
    pub(crate) async fn attempt(&self, row: &Row, receipt: &str) -> Ended {
        self.try_it(row, receipt).await.unwrap_or_else(|error| {
            tracing::warn!(error = %chain(&error), "an attempt met a store's error");
            unanswered(&error)
        })
    }

    async fn try_it(&self, row: &Row, receipt: &str) -> Stored<Ended> {
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
                    return Box::pin(self.split(row, &content, scheme, receipt)).await;
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
        let current = match &row.new.object {
            Some(object) => self.state.object(row.new.key.source(), object).await?,
            None => None,
        };
        let event = Event { row: &row.new, body: content.bytes() };
        let plan = || (self.plan)(&feed.source.handler, &event, current.as_ref());
        // The panic hook has logged the place. What it said stays out of the row: it may quote the event.
        let Ok(plan) = catch_unwind(AssertUnwindSafe(plan)) else {
            return Ok(failed("handler_panicked", "the handler panicked; its place is in the log"));
        };
        self.tell_plan(&row.new, &plan);
        match plan {
            Plan::Apply(changes) => self.apply(row, changes, current.as_ref()).await,
            Plan::Ignored(reason) => {
                self.finish(row, Status::Ignored, Vec::new(), Some(reason)).await
            }
            Plan::Requeue { delay, reason } => {
                Ok(Ended::Waits { delay: Some(delay), reason: Failure::new("waits", &reason) })
            }
            Plan::Reject(reason) => Ok(hopeless("rejected", &reason)),
        }
    }

    /// Makes changes true in one transaction, narrowed to what is still to be done.
    async fn apply(
        &self,
        row: &Row,
        changes: Vec<Change>,
        current: Option<&Object>,
    ) -> Stored<Ended> {
        let now = (self.now)();
        let expires_at = self.expiry(now);
        let received_at = row.new.received_at;
        let staged = Commit::stage(row.claim(), received_at, now, expires_at, changes, None);
        let mut commit = match staged {
            Ok(commit) => commit.traced(row.new.traceparent.as_deref()),
            Err(bad) => return Ok(hopeless("bad_plan", &bad.to_string())),
        };
        if let (Some(object), Some(current)) = (&row.new.object, current) {
            commit = commit.without_stale(object, current);
        }
        if let Err(too_large) = self.lay_aside(&mut commit).await? {
            return Ok(hopeless("payload_too_large", &too_large.to_string()));
        }
        for _ in 0..MAX_ROUNDS {
            if commit.is_empty() {
                break;
            }
            let answer = self.state.commit(&commit).await?;
            match commit.after(&answer) {
                Next::Done(results) => {
                    return Ok(Ended::Finished {
                        status: Status::Processed,
                        results,
                        reason: None,
                    });
                }
                Next::Moved => return Ok(Ended::Moved),
                Next::Narrowed(next) | Next::Again(next) => commit = next,
                Next::Later(why) => return Ok(busy(why)),
                Next::LeaseLost => return Ok(busy("the object's lease was lost")),
                Next::Invalid => {
                    return Ok(hopeless(
                        "store_refused",
                        "the store will never take this change: it is too large or malformed",
                    ));
                }
            }
        }
        if commit.is_empty() {
            return self.finish(row, Status::Processed, commit.results, None).await;
        }
        Ok(busy(HELD))
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
