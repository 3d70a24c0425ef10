//! Events received.

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use domain::{
    id::InboxKey,
    inbox::{Accepted, Claim, Failure, NewRow, Noted, OtherBody, Row, Status},
    ports::{AttemptNote, Finish, Inbox, Stored},
};
use jiff::Timestamp;

use crate::{
    beside,
    expression::Expression,
    item::{Item, Reader, json, ms, n, s, seconds, word},
    items::event::{self, BESIDE},
    keys,
    table::{Table, Write},
};

/// The table of events received.
#[derive(Clone, Debug)]
pub struct InboxTable {
    /// The SDK's client.
    pub client: Client,
    /// The name of the table.
    pub table: String,
    /// Shards of the indexes of pending and of parked rows. May grow; rows keep the shard they were put into.
    pub shards: u16,
    /// How long a finished row stays. Only a body beside a new row needs to know.
    pub retention: Duration,
    /// Whether new rows go into the index for lists.
    pub list_by_source: bool,
}

impl InboxTable {
    /// The default of [`Self::retention`], which is the template's: 35 days.
    pub const RETENTION: Duration = Duration::from_hours(35 * 24);

    /// The table as those see it who accept nothing: default retention, no lists.
    pub fn new(client: Client, table: impl Into<String>, shards: u16) -> Self {
        let (table, retention) = (table.into(), Self::RETENTION);
        Self { client, table, shards, retention, list_by_source: false }
    }

    pub(crate) fn table(&self) -> Table<'_> {
        Table { client: &self.client, name: &self.table }
    }
}

/// Pending, and in the cycle in which it was read.
pub(crate) fn as_claimed(change: Expression, claim: &Claim) -> Expression {
    change.when(
        "#status = :pending AND #cycle = :read_cycle",
        [("pending", word(&Status::Pending)), ("read_cycle", n(claim.cycle))],
    )
}

/// The end of a row: what it is now, and no longer owed.
pub(crate) fn finished(finish: &Finish) -> Stored<Expression> {
    let results = (!finish.results.is_empty()).then(|| json(&finish.results)).transpose()?;
    Ok(Expression::new()
        .set("status", word(&finish.status))
        .set("finished_at", ms(finish.now))
        .set("expires_at", seconds(finish.expires_at))
        .set_or_clear("results", results)
        .set_or_clear("next_action", finish.reason.as_ref().map(s))
        .clear(["pending_shard", "due_at", "waits_until", "waits_since"]))
}

impl InboxTable {
    /// A row becomes pending again.
    pub(crate) fn armed(&self, key: &InboxKey, due_at: Timestamp, now: Timestamp) -> Expression {
        Expression::new()
            .set("status", word(&Status::Pending))
            .set("attempts", n(0))
            .set("sweeps", n(0))
            .set("armed_at", ms(now))
            .set("due_at", ms(due_at))
            .set("pending_shard", keys::inbox_shard(key, self.shards))
            .count_up("cycle")
            .clear([
                "dead_at",
                "dead_shard",
                "finished_at",
                "next_action",
                "waits_until",
                "waits_since",
                "expires_at",
                "split",
            ])
    }

    /// Does what makes a row stay for longer than its body would. The condition of `change` leaves out rows with a body
    /// beside them at first, so that the common row costs one write; for the others the body's expiry goes first, and
    /// a death in between leaves a body too long instead of too short.
    pub(crate) async fn keep(
        &self,
        key: &InboxKey,
        change: Expression,
        may: impl Fn(&Item) -> Stored<bool>,
    ) -> Stored<Noted> {
        let alone = "attribute_not_exists(#place) OR #place <> :beside";
        let unless_beside = change.clone().when(alone, [("beside", s(BESIDE))]);
        let old = match self.table().update(keys::event(key), &unless_beside).await? {
            Write::Done(_) => return Ok(Noted::Yes),
            Write::Refused(old) => old,
        };
        if old.is_empty() || !may(&old)? {
            return Ok(Noted::Moved);
        }
        beside::keep(self.table(), &old).await?;
        Ok(self.table().update(keys::event(key), &change).await?.noted())
    }
}

impl Inbox for InboxTable {
    async fn accept(&self, row: &NewRow) -> Stored<Accepted> {
        // A finished row whose time is over counts as absent, whether or not the store has deleted it yet.
        let now = row.received_at.as_second();
        let only = Expression::new()
            .when("attribute_not_exists(#pk) OR #expires_at <= :now", [("now", n(now))]);
        let item = event::write(row, self.shards, self.list_by_source);
        let old = match self.table().put(item, &only).await? {
            Write::Done(_) => return Ok(Accepted::New),
            Write::Refused(old) => old,
        };
        let old = Reader(&old);
        if old.str("token")? == row.token {
            return Ok(Accepted::New);
        }
        let same_body = event::sha256(old)? == row.body.sha256;
        Ok(Accepted::Duplicate { status: old.word("status")?, same_body })
    }

    async fn put_beside(&self, row: &NewRow, compressed: &[u8]) -> Stored<()> {
        beside::put(self.table(), row, compressed, self.retention).await
    }

    async fn beside(&self, row: &NewRow) -> Stored<Option<Vec<u8>>> {
        let item = self.table().get(keys::body(&row.key, row.body.sha256)).await?;
        item.map(|item| Reader(&item).bytes("body").map(<[u8]>::to_vec)).transpose()
    }

    async fn read(&self, key: &InboxKey) -> Stored<Option<Row>> {
        let item = self.table().get(keys::event(key)).await?;
        item.as_ref().map(event::read).transpose()
    }

    async fn rearm(&self, key: &InboxKey, due_at: Timestamp, now: Timestamp) -> Stored<Noted> {
        let parked = [("dead", word(&Status::DeadLetter))];
        let change = self.armed(key, due_at, now).when("#status = :dead", parked);
        Ok(self.table().update(keys::event(key), &change).await?.noted())
    }

    async fn revive(
        &self,
        key: &InboxKey,
        (status, before): (Status, Timestamp),
        due_at: Timestamp,
        now: Timestamp,
    ) -> Stored<Noted> {
        let since = if status == Status::DeadLetter { "dead_at" } else { "finished_at" };
        let change = self.armed(key, due_at, now).when(
            &format!("#status = :was AND #{since} < :before"),
            [("was", word(&status)), ("before", ms(before))],
        );
        let may = |old: &Item| {
            let old = Reader(old);
            let at_rest = old.word::<Status>("status")? == status;
            Ok(at_rest && old.some(since, Reader::time)?.is_some_and(|at| at < before))
        };
        self.keep(key, change, may).await
    }

    async fn replay(&self, key: &InboxKey, due_at: Timestamp, now: Timestamp) -> Stored<Noted> {
        let change =
            self.armed(key, due_at, now).when("attribute_exists(#pk) AND #status <> :status", []);
        let may = |old: &Item| Ok(Reader(old).word::<Status>("status")? != Status::Pending);
        self.keep(key, change, may).await
    }

    async fn note_other_body(&self, key: &InboxKey, other: &OtherBody) -> Stored<Noted> {
        Ok(self.table().update(keys::event(key), &event::other_body(other)).await?.noted())
    }

    async fn note(&self, claim: &Claim, note: &AttemptNote) -> Stored<Noted> {
        let mut change = Expression::new()
            .set("attempts", n(note.attempts))
            .set("due_at", ms(note.due_at))
            .set("next_action", s(&note.next_action))
            .set_or_clear("waits_until", note.waits_until.map(ms))
            .set_or_clear("waits_since", note.waits_since.map(ms));
        if let Some(failure) = &note.failure {
            change = failed(change, failure);
        }
        if let Some(split) = note.split {
            change = change.set("split", n(split));
        }
        let change = as_claimed(change, claim);
        Ok(self.table().update(keys::event(&claim.key), &change).await?.noted())
    }

    async fn park(
        &self,
        claim: &Claim,
        attempts: u32,
        failure: &Failure,
        now: Timestamp,
    ) -> Stored<Noted> {
        let change = Expression::new()
            .set("status", word(&Status::DeadLetter))
            .set("attempts", n(attempts))
            .set("dead_at", ms(now))
            .set("dead_shard", keys::inbox_shard(&claim.key, self.shards))
            .clear([
                "pending_shard",
                "due_at",
                "next_action",
                "waits_until",
                "waits_since",
                "expires_at",
            ]);
        let change = as_claimed(failed(change, failure), claim);
        let may = |old: &Item| {
            let old = Reader(old);
            let pending = old.word::<Status>("status")? == Status::Pending;
            Ok(pending && old.number::<u32>("cycle")? == claim.cycle)
        };
        self.keep(&claim.key, change, may).await
    }

    async fn finish(&self, claim: &Claim, finish: &Finish) -> Stored<Noted> {
        let change = as_claimed(finished(finish)?, claim);
        let noted = self.table().update(keys::event(&claim.key), &change).await?.noted();
        if noted == Noted::Yes {
            beside::settle(self.table(), claim, finish.expires_at).await;
        }
        Ok(noted)
    }
}

fn failed(change: Expression, failure: &Failure) -> Expression {
    change.set("error_code", s(&failure.code)).set("error", s(&failure.message))
}
