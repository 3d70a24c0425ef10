//! Messages in `SQLite`. One connection, one lock; every method is one transaction.
//!
//! WAL with `synchronous = NORMAL`: a killed process loses nothing, a power cut may lose the last moments.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior, params};
use serde_json::{Map, Value};

use super::{
    Settings, digest,
    error::QueueError,
    message::{Counts, Message, Outgoing, Sent},
    moves,
    receipt::Receipt,
};
use crate::services::answer::fresh_id;

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS message (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        queue TEXT NOT NULL,
        id TEXT NOT NULL,
        body TEXT NOT NULL,
        attributes TEXT NOT NULL,
        group_id TEXT,
        trace_header TEXT,
        sender TEXT NOT NULL,
        source TEXT,
        sent_at INTEGER NOT NULL,
        visible_at INTEGER NOT NULL,
        expires_at INTEGER NOT NULL,
        receives INTEGER NOT NULL DEFAULT 0,
        first_received_at INTEGER,
        arrived_at INTEGER
    ) STRICT;
    CREATE INDEX IF NOT EXISTS message_due ON message (queue, visible_at);
    CREATE INDEX IF NOT EXISTS message_old ON message (queue, expires_at);
";

/// How a receive is to be done.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Taking {
    pub(super) max: usize,
    pub(super) visibility_ms: i64,
    pub(super) newest_first: bool,
}

#[derive(Debug)]
pub(super) struct Store(Mutex<Connection>);

impl Store {
    pub(super) fn open(path: Option<&Path>) -> Result<Self, QueueError> {
        let connection = match path {
            Some(path) => Connection::open(path)?,
            None => Connection::open_in_memory()?,
        };
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        connection.execute_batch(SCHEMA)?;
        connection.execute_batch(moves::SCHEMA)?;
        let knows_arrivals = connection.query_row(
            "SELECT count(*) FROM pragma_table_info('message') WHERE name = 'arrived_at'",
            [],
            |row| row.get::<_, i64>(0),
        )?;
        if knows_arrivals == 0 {
            // a state folder from before there were moves
            connection.execute_batch("ALTER TABLE message ADD COLUMN arrived_at INTEGER")?;
        }
        Ok(Self(Mutex::new(connection)))
    }

    pub(super) fn locked(&self) -> MutexGuard<'_, Connection> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn transaction<T>(
        &self,
        body: impl FnOnce(&Transaction<'_>) -> Result<T, QueueError>,
    ) -> Result<T, QueueError> {
        let mut connection = self.locked();
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let value = body(&transaction)?;
        transaction.commit()?;
        Ok(value)
    }

    pub(super) fn send(
        &self,
        queue: &str,
        settings: &Settings,
        outgoing: &Outgoing,
        now: i64,
        copies: usize,
    ) -> Result<Sent, QueueError> {
        let id = fresh_id();
        let visible_at = now + outgoing.delay_ms.unwrap_or(settings.delay_ms);
        self.transaction(|transaction| {
            for _ in 0..copies {
                transaction
                    .prepare_cached(
                        "INSERT INTO message (queue, id, body, attributes, group_id, trace_header, sender, sent_at, visible_at, expires_at)
                         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
                    )?
                    .execute(params![
                        queue,
                        id,
                        outgoing.body,
                        Value::Object(outgoing.message_attributes.clone()).to_string(),
                        outgoing.group_id,
                        outgoing.trace_header,
                        outgoing.sender,
                        now,
                        visible_at,
                        now + settings.retention_ms,
                    ])?;
            }
            Ok(())
        })?;
        Ok(Sent {
            id,
            md5_of_body: digest::of_body(&outgoing.body),
            md5_of_attributes: digest::of_attributes(&outgoing.message_attributes),
        })
    }

    /// Takes messages. What was received too often moves to the dead-letter queue first, as SQS does it: on a receive, not before.
    /// The second value says whether anything moved there.
    pub(super) fn take(
        &self,
        queue: &str,
        dead_letters: Option<(&str, u32, i64)>,
        taking: Taking,
        now: i64,
    ) -> Result<(Vec<Message>, bool), QueueError> {
        self.transaction(|transaction| {
            transaction
                .prepare_cached("DELETE FROM message WHERE queue = ?1 AND expires_at <= ?2")?
                .execute(params![queue, now])?;
            let mut moved = 0;
            if let Some((target, most, retention_ms)) = dead_letters {
                moved = transaction
                    .prepare_cached(
                        "UPDATE message SET queue = ?3, source = ?1, visible_at = ?2, arrived_at = ?2, expires_at = sent_at + ?5
                         WHERE queue = ?1 AND visible_at <= ?2 AND receives >= ?4",
                    )?
                    .execute(params![queue, now, target, most, retention_ms])?;
            }
            let order = if taking.newest_first { "seq DESC" } else { "seq" };
            let mut select = transaction.prepare_cached(&format!(
                "SELECT seq, id, body, attributes, group_id, trace_header, sender, source, sent_at, receives, first_received_at
                 FROM message WHERE queue = ?1 AND visible_at <= ?2 ORDER BY {order} LIMIT ?3"
            ))?;
            let limit = i64::try_from(taking.max).unwrap_or(10);
            let rows = select.query_map(params![queue, now, limit], |row| Row::read(row, now))?;
            let rows = rows.collect::<Result<Vec<Row>, _>>()?;
            let mut update = transaction.prepare_cached(
                "UPDATE message SET receives = ?2, visible_at = ?3, first_received_at = ?4 WHERE seq = ?1",
            )?;
            for row in &rows {
                update.execute(params![row.seq, row.receives, now + taking.visibility_ms, row.first_received_at])?;
            }
            Ok((rows.into_iter().map(Row::into_message).collect(), moved > 0))
        })
    }

    /// When the next message of a queue becomes visible; `None` if there is none.
    pub(super) fn next_visible(&self, queue: &str) -> Result<Option<i64>, QueueError> {
        let connection = self.locked();
        let next = connection
            .prepare_cached("SELECT min(visible_at) FROM message WHERE queue = ?1")?
            .query_row(params![queue], |row| row.get(0))?;
        Ok(next)
    }

    /// Deletes what a receipt names. A receipt that a later receive outdated says yes and deletes nothing: SQS promises no more.
    pub(super) fn delete(&self, queue: &str, receipt: &Receipt) -> Result<(), QueueError> {
        self.locked()
            .prepare_cached(
                "DELETE FROM message WHERE queue = ?1 AND seq = ?2 AND id = ?3 AND receives = ?4",
            )?
            .execute(params![queue, receipt.seq, receipt.id, receipt.receives])?;
        Ok(())
    }

    pub(super) fn change_visibility(
        &self,
        queue: &str,
        receipt: &Receipt,
        visibility_ms: i64,
        now: i64,
    ) -> Result<(), QueueError> {
        let changed = self
            .locked()
            .prepare_cached(
                "UPDATE message SET visible_at = ?5 WHERE queue = ?1 AND seq = ?2 AND id = ?3 AND receives = ?4 AND visible_at > ?6",
            )?
            .execute(params![queue, receipt.seq, receipt.id, receipt.receives, now + visibility_ms, now])?;
        if changed == 0 { Err(QueueError::NotInFlight) } else { Ok(()) }
    }

    /// Makes messages visible again at once, still under the receipts that were given out.
    pub(super) fn release(
        &self,
        queue: &str,
        receipts: &[Receipt],
        now: i64,
    ) -> Result<(), QueueError> {
        for receipt in receipts {
            self.change_visibility(queue, receipt, 0, now)?;
        }
        Ok(())
    }

    pub(super) fn purge(&self, queue: &str) -> Result<(), QueueError> {
        self.locked().execute("DELETE FROM message WHERE queue = ?1", params![queue])?;
        Ok(())
    }

    pub(super) fn counts(&self, queue: &str, now: i64) -> Result<Counts, QueueError> {
        let connection = self.locked();
        let counts = connection
            .prepare_cached(
                "SELECT count(*) FILTER (WHERE visible_at <= ?2),
                        count(*) FILTER (WHERE visible_at > ?2 AND receives > 0),
                        count(*) FILTER (WHERE visible_at > ?2 AND receives = 0)
                 FROM message WHERE queue = ?1 AND expires_at > ?2",
            )?
            .query_row(params![queue, now], |row| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
            })
            .optional()?
            .unwrap_or_default();
        let whole = |count: i64| u64::try_from(count).unwrap_or(0);
        Ok(Counts {
            visible: whole(counts.0),
            in_flight: whole(counts.1),
            delayed: whole(counts.2),
        })
    }
}

/// A row as it is after this receive.
struct Row {
    seq: i64,
    id: String,
    body: String,
    attributes: String,
    group_id: Option<String>,
    trace_header: Option<String>,
    sender: String,
    source: Option<String>,
    sent_at: i64,
    receives: i64,
    first_received_at: i64,
}

impl Row {
    fn read(row: &rusqlite::Row<'_>, now: i64) -> rusqlite::Result<Self> {
        Ok(Self {
            seq: row.get(0)?,
            id: row.get(1)?,
            body: row.get(2)?,
            attributes: row.get(3)?,
            group_id: row.get(4)?,
            trace_header: row.get(5)?,
            sender: row.get(6)?,
            source: row.get(7)?,
            sent_at: row.get(8)?,
            receives: row.get::<_, i64>(9)? + 1,
            first_received_at: row.get::<_, Option<i64>>(10)?.unwrap_or(now),
        })
    }

    fn into_message(self) -> Message {
        let message_attributes: Map<String, Value> =
            serde_json::from_str(&self.attributes).unwrap_or_default();
        let mut attributes = BTreeMap::from([
            ("ApproximateFirstReceiveTimestamp".to_owned(), self.first_received_at.to_string()),
            ("ApproximateReceiveCount".to_owned(), self.receives.to_string()),
            ("SenderId".to_owned(), self.sender),
            ("SentTimestamp".to_owned(), self.sent_at.to_string()),
        ]);
        let optional = [
            ("MessageGroupId", self.group_id),
            ("AWSTraceHeader", self.trace_header),
            ("DeadLetterQueueSourceArn", self.source),
        ];
        for (name, value) in optional {
            if let Some(value) = value {
                attributes.insert(name.to_owned(), value);
            }
        }
        Message {
            receipt: Receipt { seq: self.seq, receives: self.receives, id: self.id.clone() }
                .encode(),
            md5_of_body: digest::of_body(&self.body),
            md5_of_attributes: digest::of_attributes(&message_attributes),
            id: self.id,
            body: self.body,
            attributes,
            message_attributes,
        }
    }
}
