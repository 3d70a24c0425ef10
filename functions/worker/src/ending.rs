//! Writing down what became of an attempt, before the queue is answered. Every write is conditional on the row being
//! pending in the cycle in which it was read; `None` means that it is not, and that it should be read again.

use domain::{
    id::InboxKey,
    inbox::{
        After, Failure, Noted, Row, after_failure, after_waiting, clock, due_while_running,
        next_attempt,
    },
    message::InboundMessage,
    ports::{AttemptNote, Bodies, Inbox, Queue, Registry, State, Stored},
};
use jiff::Timestamp;

use crate::{Outcome, Worker, attempt::Ended};

impl<I, S, R, B, Q, N> Worker<'_, I, S, R, B, Q, N>
where
    I: Inbox,
    S: State,
    R: Registry,
    B: Bodies,
    Q: Queue<InboundMessage>,
    N: Fn() -> Timestamp,
{
    /// Writes down how an attempt ended.
    pub(crate) async fn conclude(
        &self,
        row: &Row,
        ended: Ended,
        jitter: f64,
    ) -> Stored<Option<Outcome>> {
        match ended {
            Ended::Finished { status, results, reason } => {
                Ok(Some(Outcome::Finished { status, results, reason }))
            }
            Ended::Moved => Ok(None),
            Ended::Failed { failure, is_permanent } => {
                self.failed(row, failure, is_permanent, jitter).await
            }
            Ended::Waits { delay, reason } => {
                let delay = delay.unwrap_or_else(|| self.limits.backoff.after(1, jitter));
                match after_waiting(row.armed_at, delay, (self.now)(), &self.limits) {
                    After::Park => self.park(row, row.attempts, waited_too_long(&reason)).await,
                    After::Retry { due_at, .. } => self.waits(row, reason, due_at).await,
                }
            }
        }
    }

    async fn failed(
        &self,
        row: &Row,
        failure: Failure,
        is_permanent: bool,
        jitter: f64,
    ) -> Stored<Option<Outcome>> {
        let (now, attempts) = ((self.now)(), row.attempts + 1);
        match after_failure(attempts, is_permanent, now, jitter, &self.limits) {
            After::Park => self.park(row, attempts, failure).await,
            After::Retry { wait, due_at } => {
                let next = now.saturating_add(wait).unwrap_or(Timestamp::MAX);
                let note = AttemptNote {
                    attempts,
                    failure: Some(failure.clone()),
                    due_at,
                    next_action: next_attempt(attempts + 1, self.limits.attempts, next),
                    split: None,
                };
                let noted = self.inbox.note(&row.claim(), &note).await?;
                Ok((noted == Noted::Yes).then_some(Outcome::Retry { wait, failure }))
            }
        }
    }

    /// The message is acknowledged after this: the due time is all that brings the event back.
    async fn waits(
        &self,
        row: &Row,
        reason: Failure,
        due_at: Timestamp,
    ) -> Stored<Option<Outcome>> {
        let note = AttemptNote {
            // As it was read: an attempt that was counted before it ran is taken back, for it did not fail.
            attempts: row.attempts,
            failure: Some(reason.clone()),
            due_at,
            next_action: format!("the sweeper sends it again after {}", clock(due_at)),
            split: None,
        };
        let noted = self.inbox.note(&row.claim(), &note).await?;
        Ok((noted == Noted::Yes).then_some(Outcome::Waits { until: due_at, reason }))
    }

    /// Parks a row. The message then fails until SQS itself moves it.
    pub(crate) async fn park(
        &self,
        row: &Row,
        attempts: u32,
        failure: Failure,
    ) -> Stored<Option<Outcome>> {
        let parked = self.inbox.park(&row.claim(), attempts, &failure, (self.now)()).await?;
        Ok((parked == Noted::Yes).then_some(Outcome::Parked(failure)))
    }

    /// Counts an attempt before it runs, because earlier receives of its message may have ended without a trace.
    /// `false`: the row has moved.
    pub(crate) async fn count(&self, row: &Row) -> Stored<bool> {
        let (now, number) = ((self.now)(), row.attempts + 1);
        let note = AttemptNote {
            attempts: number,
            failure: None,
            due_at: due_while_running(now, &self.limits),
            next_action: format!(
                "attempt {number} of {} runs since {}",
                self.limits.attempts,
                clock(now)
            ),
            split: None,
        };
        Ok(self.inbox.note(&row.claim(), &note).await? == Noted::Yes)
    }

    /// Makes a parked row pending again.
    pub(crate) async fn rearm(&self, key: &InboxKey) -> Stored<()> {
        let now = (self.now)();
        match self.inbox.rearm(key, due_while_running(now, &self.limits), now).await? {
            Noted::Yes | Noted::Moved => Ok(()),
        }
    }
}

fn waited_too_long(reason: &Failure) -> Failure {
    let waited = format!("waited as long as it may, still: {}: {}", reason.code, reason.message);
    Failure::new("needs_reconciliation", &waited)
}
