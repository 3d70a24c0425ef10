//! Message move tasks, which the console calls a redrive: where each stands, how fast it goes, and its step in `SQLite`.
//!
//! Nothing runs for a move. Whoever looks at a queue first makes the steps that are due by then ([`Shared::advance`]), and
//! a receive that waits looks when the next one is. So a move goes by the host's clock, survives the process, and sends
//! nothing while the host is down.
//!
//! [`Shared::advance`]: super::Shared

use rusqlite::{OptionalExtension as _, Row, Transaction, params};

use super::{error::QueueError, store::Store};
use crate::services::answer::fresh_id;

pub(super) const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS move (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL,
        source TEXT NOT NULL,
        destination TEXT,
        rate INTEGER,
        started_at INTEGER NOT NULL,
        to_move INTEGER NOT NULL,
        moved INTEGER NOT NULL DEFAULT 0,
        state TEXT NOT NULL DEFAULT 'RUNNING',
        failure TEXT,
        paid_until INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX IF NOT EXISTS move_by_source ON move (source, seq);
";

/// Messages a second where the caller names no rate. SQS finds one itself and never exceeds its own limit, which this is.
const RATE: i64 = 500;

/// A move that is cancelled is `CANCELLING` for so long: on AWS what is under way ends first.
const CANCELLING_MS: i64 = 1_000;

/// Why a move failed, in SQS's words.
const NO_QUEUE: &str = "AWS.SimpleQueueService.NonExistentQueue";
const NO_SOURCE: &str = "CouldNotDetermineMessageSource";

/// Where a move stands, as SQS names it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum State {
    Running,
    Completed,
    Cancelling,
    Cancelled,
    Failed,
}

impl State {
    const ALL: [Self; 5] =
        [Self::Running, Self::Completed, Self::Cancelling, Self::Cancelled, Self::Failed];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Running => "RUNNING",
            Self::Completed => "COMPLETED",
            Self::Cancelling => "CANCELLING",
            Self::Cancelled => "CANCELLED",
            Self::Failed => "FAILED",
        }
    }

    fn is_over(self) -> bool {
        !matches!(self, Self::Running | Self::Cancelling)
    }
}

/// A message move task.
#[derive(Clone, Debug)]
pub(super) struct Move {
    pub(super) id: String,
    pub(super) source: String,
    /// `None`: each message goes back to where it came from.
    pub(super) destination: Option<String>,
    pub(super) rate: Option<i64>,
    pub(super) started_at: i64,
    pub(super) to_move: i64,
    pub(super) moved: i64,
    pub(super) state: State,
    pub(super) failure: Option<String>,
    /// Running: what was due by then has been moved. Cancelling: when it was cancelled.
    paid_until: i64,
}

/// What a caller of a new move gives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    pub(super) id: &'a str,
    pub(super) source: &'a str,
    pub(super) destination: Option<&'a str>,
    pub(super) rate: Option<i64>,
}

/// What a move needs to know of a queue that it sends to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) delay_ms: i64,
    pub(super) retention_ms: i64,
}

/// How many messages are due, and until when that pays.
fn due(rate: i64, paid_until: i64, now: i64) -> (i64, i64) {
    let count = (now - paid_until).max(0).saturating_mul(rate) / 1000;
    (count, paid_until + millis_of(count, rate))
}

/// How long so many messages take, rounded up: the rate is the most that is sent.
fn millis_of(count: i64, rate: i64) -> i64 {
    (count.saturating_mul(1000) + rate - 1) / rate
}

impl Move {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let state: String = row.get("state")?;
        Ok(Self {
            id: row.get("id")?,
            source: row.get("source")?,
            destination: row.get("destination")?,
            rate: row.get("rate")?,
            started_at: row.get("started_at")?,
            to_move: row.get("to_move")?,
            moved: row.get("moved")?,
            // a word of a later version is none of the running ones
            state: State::ALL
                .into_iter()
                .find(|known| known.name() == state)
                .unwrap_or(State::Failed),
            failure: row.get("failure")?,
            paid_until: row.get("paid_until")?,
        })
    }

    fn per_second(&self) -> i64 {
        self.rate.unwrap_or(RATE)
    }

    /// When there is something to do next.
    fn next_at(&self) -> i64 {
        match self.state {
            State::Cancelling => self.paid_until + CANCELLING_MS,
            _ => self.paid_until + millis_of(1, self.per_second()),
        }
    }

    fn write(&self, transaction: &Transaction<'_>) -> Result<(), QueueError> {
        transaction
            .prepare_cached(
                "UPDATE move SET moved = ?2, state = ?3, failure = ?4, paid_until = ?5 WHERE id = ?1",
            )?
            .execute(params![self.id, self.moved, self.state.name(), self.failure, self.paid_until])?;
        Ok(())
    }

    /// Does what is due. Gives the queues that got something.
    fn step(
        &mut self,
        transaction: &Transaction<'_>,
        target: &dyn Fn(&str) -> Option<Target>,
        now: i64,
    ) -> Result<Vec<String>, QueueError> {
        if self.state == State::Cancelling {
            if self.next_at() <= now {
                self.state = State::Cancelled;
            }
            return Ok(Vec::new());
        }
        let (count, paid_until) = due(self.per_second(), self.paid_until, now);
        self.paid_until = paid_until;
        let mut reached = Vec::new();
        for (seq, origin) in self.waiting(transaction, count, now)? {
            let Some(to) = self.destination.clone().or(origin) else {
                self.fail(NO_SOURCE);
                return Ok(reached);
            };
            let Some(target) = target(&to) else {
                self.fail(NO_QUEUE);
                return Ok(reached);
            };
            send_anew(transaction, seq, &to, target, now)?;
            self.moved += 1;
            if !reached.contains(&to) {
                reached.push(to);
            }
        }
        if self.waiting(transaction, 1, now)?.is_empty() {
            self.state = State::Completed;
        }
        Ok(reached)
    }

    fn fail(&mut self, why: &str) {
        self.state = State::Failed;
        self.failure = Some(why.to_owned());
    }

    /// Messages still to be moved, oldest first, with where each came from: those that were there when the move began and
    /// that nobody holds now.
    fn waiting(
        &self,
        transaction: &Transaction<'_>,
        most: i64,
        now: i64,
    ) -> Result<Vec<(i64, Option<String>)>, QueueError> {
        let mut select = transaction.prepare_cached(
            "SELECT seq, source FROM message
             WHERE queue = ?1 AND visible_at <= ?2 AND expires_at > ?2 AND coalesce(arrived_at, sent_at) <= ?3
             ORDER BY sent_at, seq LIMIT ?4",
        )?;
        let rows = select.query_map(params![self.source, now, self.started_at, most], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

/// A message with the old one's body and attributes, and nothing else of it. The old one is gone with it or not at all.
fn send_anew(
    transaction: &Transaction<'_>,
    seq: i64,
    to: &str,
    target: Target,
    now: i64,
) -> Result<(), QueueError> {
    transaction
        .prepare_cached(
            "INSERT INTO message (queue, id, body, attributes, group_id, trace_header, sender, sent_at, visible_at, expires_at)
             SELECT ?2, ?3, body, attributes, group_id, trace_header, sender, ?4, ?5, ?6 FROM message WHERE seq = ?1",
        )?
        .execute(params![seq, to, fresh_id(), now, now + target.delay_ms, now + target.retention_ms])?;
    transaction.prepare_cached("DELETE FROM message WHERE seq = ?1")?.execute(params![seq])?;
    Ok(())
}

fn unfinished(transaction: &Transaction<'_>) -> Result<Vec<Move>, QueueError> {
    let mut select = transaction.prepare_cached(
        "SELECT * FROM move WHERE state IN ('RUNNING', 'CANCELLING') ORDER BY seq",
    )?;
    let rows = select.query_map([], Move::read)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

impl Store {
    /// Lets the unfinished moves go on from now: a host that is down sends nothing, and does not catch up.
    pub(super) fn resume_moves(&self, now: i64) -> Result<(), QueueError> {
        self.transaction(|transaction| {
            for mut unfinished in unfinished(transaction)? {
                unfinished.paid_until = now;
                unfinished.write(transaction)?;
            }
            Ok(())
        })
    }

    /// Makes the steps that are due. Gives the queues that got something.
    pub(super) fn advance_moves(
        &self,
        target: &dyn Fn(&str) -> Option<Target>,
        now: i64,
    ) -> Result<Vec<String>, QueueError> {
        // nearly always nothing is under way: then nobody waits for a write
        if self.next_move_at()?.is_none() {
            return Ok(Vec::new());
        }
        self.transaction(|transaction| {
            let mut reached = Vec::new();
            for mut unfinished in unfinished(transaction)? {
                reached.extend(unfinished.step(transaction, target, now)?);
                unfinished.write(transaction)?;
            }
            Ok(reached)
        })
    }

    /// When the next step of a move is due; `None` without any.
    pub(super) fn next_move_at(&self) -> Result<Option<i64>, QueueError> {
        let connection = self.locked();
        let mut select = connection
            .prepare_cached("SELECT * FROM move WHERE state IN ('RUNNING', 'CANCELLING')")?;
        let rows = select.query_map([], Move::read)?;
        let unfinished = rows.collect::<Result<Vec<_>, _>>()?;
        Ok(unfinished.iter().map(Move::next_at).min())
    }

    /// Begins a move; `false` if the queue has one that is not over.
    pub(super) fn begin_move(&self, wanted: Wanted<'_>, now: i64) -> Result<bool, QueueError> {
        self.transaction(|transaction| {
            if unfinished(transaction)?.iter().any(|other| other.source == wanted.source) {
                return Ok(false);
            }
            let Wanted { id, source, destination, rate } = wanted;
            transaction.execute(
                "INSERT INTO move (id, source, destination, rate, started_at, paid_until, to_move)
                 SELECT ?1, ?2, ?3, ?4, ?5, ?5, count(*) FROM message
                 WHERE queue = ?2 AND visible_at <= ?5 AND expires_at > ?5",
                params![id, source, destination, rate, now],
            )?;
            Ok(true)
        })
    }

    /// A queue's latest moves, the newest first.
    pub(super) fn moves(&self, source: &str, most: u64) -> Result<Vec<Move>, QueueError> {
        let connection = self.locked();
        let mut select = connection
            .prepare_cached("SELECT * FROM move WHERE source = ?1 ORDER BY seq DESC LIMIT ?2")?;
        let most = i64::try_from(most).unwrap_or(1);
        let rows = select.query_map(params![source, most], Move::read)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Stops a move where it is, and says how many messages it has moved.
    pub(super) fn cancel_move(&self, id: &str, now: i64) -> Result<i64, QueueError> {
        self.transaction(|transaction| {
            let found = transaction
                .prepare_cached("SELECT * FROM move WHERE id = ?1")?
                .query_row(params![id], Move::read)
                .optional()?;
            let mut found = found.ok_or(QueueError::NoSuchMove)?;
            if found.state.is_over() || found.state == State::Cancelling {
                return Err(QueueError::MoveIsOver);
            }
            found.state = State::Cancelling;
            found.paid_until = now;
            found.write(transaction)?;
            Ok(found.moved)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_the_most_that_is_sent_and_nothing_due_is_forgotten() {
        let check = |rate: i64, elapsed: i64, expected: i64| {
            let (count, paid_until) = due(rate, 1_000_000, 1_000_000 + elapsed);
            assert_eq!(count, expected, "{rate}/s for {elapsed} ms");
            assert!(paid_until <= 1_000_000 + elapsed + 1, "{rate}/s for {elapsed} ms");
        };
        check(1, 0, 0);
        check(1, 999, 0);
        check(1, 1000, 1);
        check(500, 1, 0);
        check(500, 2, 1);
        check(500, 2000, 1000);
        check(300, 10, 3);
        assert_eq!(due(500, 1_000, 0), (0, 1_000), "a clock that went back");
        for rate in [1, 3, 7, 300, 500] {
            let (mut sent, mut paid_until) = (0, 0);
            for now in 0..10_000 {
                let (count, until) = due(rate, paid_until, now);
                (sent, paid_until) = (sent + count, until);
                assert!(sent <= rate * now / 1000, "{rate}/s: {sent} after {now} ms");
            }
            assert!(sent >= rate * 10 * 7 / 10, "{rate}/s: {sent} after 10 s");
        }
    }
}
