//! Writing down what became of an attempt, before the queue is answered. Every write is conditional on the row being
//! pending in the cycle in which it was read; `None` means that it is not, or that what it waits for is over, and that it
//! should be read again.

use domain::{
    id::InboxKey,
    inbox::{
        After, AfterWaiting, Failure, Noted, Row, Wait, after_failure, after_waiting, clock,
        due_while_running, next_attempt, while_paused,
    },
    message::InboundMessage,
    ports::{AttemptNote, Bodies, Inbox, Queue, Registry, State, Stored},
    source::Paused,
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
            Ended::Paused(paused) => self.put_off(row, &paused).await,
            Ended::Waits { delay, reason } => {
                let delay = delay.unwrap_or_else(|| self.limits.backoff.after(1, jitter));
                let now = (self.now)();
                let since = self.waits_since(row, now);
                match after_waiting(row, since, delay, now, &self.limits) {
                    AfterWaiting::Park => {
                        self.park(row, row.attempts, waited_too_long(&reason)).await
                    }
                    AfterWaiting::Wait(wait) => self.waits(row, reason, wait, since).await,
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
                    waits_until: None,
                    waits_since: row.waits_since,
                    split: None,
                };
                let noted = self.inbox.note(&row.claim(), &note).await?;
                Ok((noted == Noted::Yes).then_some(Outcome::Retry { wait, failure }))
            }
        }
    }

    /// From when on an event that has to wait now counts as waiting: while its source was paused, or nobody could try it, it
    /// did not wait for anything of its own.
    fn waits_since(&self, row: &Row, now: Timestamp) -> Timestamp {
        let resumed_at = self.sources.known_of(row.new.key.source());
        let resumed_at = resumed_at.and_then(|feed| feed.source.resumed_at);
        let since = row.waits_since.unwrap_or(now);
        resumed_at.map_or(since, |at| at.max(since))
    }

    /// The message that brought the event is acknowledged after this. The due time is written first: it alone brings the
    /// event back if this dies before the delayed message is sent, or if that is lost.
    async fn waits(
        &self,
        row: &Row,
        reason: Failure,
        wait: Wait,
        since: Timestamp,
    ) -> Stored<Option<Outcome>> {
        let next_action = if wait.due_at > wait.until {
            format!("tried again at {}", clock(wait.until))
        } else {
            format!("the sweeper sends it again after {}", clock(wait.due_at))
        };
        let note = AttemptNote {
            // As it was read: an attempt that was counted before it ran is taken back, for it did not fail.
            attempts: row.attempts,
            failure: Some(reason.clone()),
            due_at: wait.due_at,
            next_action,
            waits_until: Some(wait.until),
            waits_since: Some(since),
            split: None,
        };
        if self.inbox.note(&row.claim(), &note).await? == Noted::Moved {
            return Ok(None);
        }
        if let Some(delay) = wait.message {
            let message = InboundMessage(row.new.key.clone());
            if !self.queue.send(&[message], delay).await.is_empty() {
                tracing::info!("a delayed message was not sent; the sweeper sends it");
            }
        }
        Ok(Some(Outcome::Waits { until: wait.until, reason }))
    }

    /// Nothing of the event was begun, and nothing of it counts. What went wrong before the pause stays to be seen.
    ///
    /// Whoever resumes a source writes it first and then looks for events that wait. So an event is put off first, and
    /// then the source is looked at again: one of the two sees the other.
    async fn put_off(&self, row: &Row, paused: &Paused) -> Stored<Option<Outcome>> {
        let Wait { until, due_at, .. } = while_paused((self.now)(), &self.limits);
        let (since, source) = (paused.since, row.new.key.source());
        let note = AttemptNote {
            attempts: row.attempts,
            failure: None,
            due_at,
            next_action: format!(
                "waits: the source is paused since {since}; `postern sources resume {source}`"
            ),
            waits_until: Some(until),
            waits_since: None,
            split: None,
        };
        if self.inbox.note(&row.claim(), &note).await? == Noted::Moved {
            return Ok(None);
        }
        let is_paused = self.sources.paused(source, (self.now)()).await?.is_some();
        Ok(is_paused.then_some(Outcome::Paused { since, until }))
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
            waits_until: None,
            waits_since: row.waits_since,
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
