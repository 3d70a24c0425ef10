//! The inbox in memory.

use std::collections::BTreeSet;

use domain::{
    id::{InboxKey, SourceName, shard_of},
    inbox::{Accepted, Claim, Failure, NewRow, Noted, OtherBodies, OtherBody, Row, Status},
    ports::{AttemptNote, Backlog, DueInbox, Finish, Inbox, Pending, Stored},
};
use jiff::Timestamp;

use super::{InboxItem, Store, Tables};

fn fresh(new: &NewRow) -> Row {
    Row {
        new: new.clone(),
        status: Status::Pending,
        attempts: 0,
        cycle: 0,
        sweeps: 0,
        due_at: Some(new.due_at),
        dead_at: None,
        finished_at: None,
        last_error: None,
        next_action: None,
        waits_until: None,
        waits_since: None,
        results: Vec::new(),
        armed_at: new.received_at,
        split: 0,
        other_bodies: None,
        replay: None,
    }
}

/// Changes a row that is pending in the claim's cycle.
pub(super) fn claimed(
    tables: &mut Tables,
    claim: &Claim,
    change: impl FnOnce(&mut InboxItem),
) -> Noted {
    match tables.inbox.get_mut(&claim.key) {
        Some(item) if item.row.status == Status::Pending && item.row.cycle == claim.cycle => {
            change(item);
            Noted::Yes
        }
        _ => Noted::Moved,
    }
}

pub(super) fn arm(item: &mut InboxItem, due_at: Timestamp, now: Timestamp) {
    item.expires_at = None;
    let row = &mut item.row;
    (row.status, row.attempts, row.cycle, row.sweeps) = (Status::Pending, 0, row.cycle + 1, 0);
    (row.due_at, row.dead_at, row.finished_at) = (Some(due_at), None, None);
    (row.armed_at, row.split) = (now, 0);
    (row.waits_until, row.waits_since) = (None, None);
}

pub(super) fn finish(item: &mut InboxItem, finish: &Finish) {
    item.expires_at = Some(finish.expires_at);
    let row = &mut item.row;
    row.status = finish.status;
    row.results.clone_from(&finish.results);
    row.next_action.clone_from(&finish.reason);
    (row.due_at, row.finished_at) = (None, Some(finish.now));
    (row.waits_until, row.waits_since) = (None, None);
}

impl Inbox for Store {
    async fn accept(&self, new: &NewRow) -> Stored<Accepted> {
        self.call("inbox.accept", |tables| {
            // An expired row may still be there: it is as good as gone.
            let gone = |item: &InboxItem| item.expires_at.is_some_and(|at| at <= new.received_at);
            match tables.inbox.get(&new.key) {
                Some(old) if old.row.new.token == new.token => Accepted::New,
                Some(old) if !gone(old) => Accepted::Duplicate {
                    status: old.row.status,
                    same_body: old.row.new.body.sha256 == new.body.sha256,
                },
                _ => {
                    let item = InboxItem { row: fresh(new), expires_at: None };
                    tables.inbox.insert(new.key.clone(), item);
                    Accepted::New
                }
            }
        })
        .await
    }

    async fn put_beside(&self, row: &NewRow, compressed: &[u8]) -> Stored<()> {
        self.call("inbox.put_beside", |tables| {
            tables.beside.insert((row.key.clone(), row.body.sha256), compressed.to_vec());
        })
        .await
    }

    async fn beside(&self, row: &NewRow) -> Stored<Option<Vec<u8>>> {
        self.call("inbox.beside", |tables| {
            tables.beside.get(&(row.key.clone(), row.body.sha256)).cloned()
        })
        .await
    }

    async fn read(&self, key: &InboxKey) -> Stored<Option<Row>> {
        self.call("inbox.read", |tables| tables.inbox.get(key).map(|item| item.row.clone())).await
    }

    async fn rearm(&self, key: &InboxKey, due_at: Timestamp, now: Timestamp) -> Stored<Noted> {
        self.call("inbox.rearm", |tables| match tables.inbox.get_mut(key) {
            Some(item) if item.row.status == Status::DeadLetter => {
                arm(item, due_at, now);
                Noted::Yes
            }
            _ => Noted::Moved,
        })
        .await
    }

    async fn revive(
        &self,
        key: &InboxKey,
        (status, before): (Status, Timestamp),
        due_at: Timestamp,
        now: Timestamp,
    ) -> Stored<Noted> {
        self.call("inbox.revive", |tables| match tables.inbox.get_mut(key) {
            Some(item)
                if item.row.status == status
                    && item.row.dead_at.or(item.row.finished_at).is_some_and(|at| at < before) =>
            {
                arm(item, due_at, now);
                Noted::Yes
            }
            _ => Noted::Moved,
        })
        .await
    }

    async fn replay(&self, key: &InboxKey, due_at: Timestamp, now: Timestamp) -> Stored<Noted> {
        self.call("inbox.replay", |tables| match tables.inbox.get_mut(key) {
            Some(item) if item.row.status != Status::Pending => {
                arm(item, due_at, now);
                Noted::Yes
            }
            _ => Noted::Moved,
        })
        .await
    }

    async fn note_other_body(&self, key: &InboxKey, other: &OtherBody) -> Stored<Noted> {
        self.call("inbox.note_other_body", |tables| {
            let Some(item) = tables.inbox.get_mut(key) else { return Noted::Moved };
            let before = item.row.other_bodies.map_or(0, |noted| noted.count);
            item.row.other_bodies = Some(OtherBodies { count: before + 1, last: *other });
            Noted::Yes
        })
        .await
    }

    async fn note(&self, claim: &Claim, note: &AttemptNote) -> Stored<Noted> {
        self.call("inbox.note", |tables| {
            claimed(tables, claim, |item| {
                let row = &mut item.row;
                row.attempts = note.attempts;
                row.due_at = Some(note.due_at);
                row.next_action = Some(note.next_action.clone());
                (row.waits_until, row.waits_since) = (note.waits_until, note.waits_since);
                row.split = note.split.unwrap_or(row.split);
                if note.failure.is_some() {
                    row.last_error.clone_from(&note.failure);
                }
            })
        })
        .await
    }

    async fn park(
        &self,
        claim: &Claim,
        attempts: u32,
        failure: &Failure,
        now: Timestamp,
    ) -> Stored<Noted> {
        self.call("inbox.park", |tables| {
            claimed(tables, claim, |item| {
                item.expires_at = None;
                let row = &mut item.row;
                (row.status, row.attempts) = (Status::DeadLetter, attempts);
                (row.due_at, row.dead_at) = (None, Some(now));
                row.last_error = Some(failure.clone());
                (row.next_action, row.waits_until, row.waits_since) = (None, None, None);
            })
        })
        .await
    }

    async fn finish(&self, claim: &Claim, how: &Finish) -> Stored<Noted> {
        self.call("inbox.finish", |tables| claimed(tables, claim, |item| finish(item, how))).await
    }
}

impl DueInbox for Store {
    async fn due(&self, shard: u16, now: Timestamp, limit: usize) -> Stored<Vec<InboxKey>> {
        let shards = self.shards;
        self.call("inbox.due", |tables| {
            let mut due: Vec<_> = in_shard(tables, shard, shards)
                .filter_map(|item| Some((item.row.due_at?, item.row.new.key.clone())))
                .filter(|(at, _)| *at <= now)
                .collect();
            due.sort();
            due.into_iter().take(limit).map(|(_, key)| key).collect()
        })
        .await
    }

    async fn claim(&self, read: &Row, due_at: Timestamp) -> Stored<Noted> {
        self.call("inbox.claim", |tables| {
            let claim = Claim { key: read.new.key.clone(), cycle: read.cycle };
            let same = |row: &Row| row.due_at == read.due_at && row.sweeps == read.sweeps;
            if !tables.inbox.get(&claim.key).is_some_and(|item| same(&item.row)) {
                return Noted::Moved;
            }
            claimed(tables, &claim, |item| {
                item.row.sweeps += 1;
                item.row.due_at = Some(due_at);
            })
        })
        .await
    }

    async fn pending(&self, shard: u16, paused: &BTreeSet<SourceName>) -> Stored<Pending> {
        let shards = self.shards;
        self.call("inbox.pending", |tables| {
            let pending = in_shard(tables, shard, shards)
                .filter(|item| item.row.status == Status::Pending)
                .map(|item| {
                    let one = Backlog { count: 1, oldest: Some(item.row.new.received_at) };
                    match paused.contains(item.row.new.key.source()) {
                        true => Pending { paused: one, ..Pending::default() },
                        false => Pending { owed: one, ..Pending::default() },
                    }
                });
            pending.fold(Pending::default(), Pending::and)
        })
        .await
    }

    async fn parked(&self, shard: u16) -> Stored<u64> {
        let shards = self.shards;
        self.call("inbox.parked", |tables| {
            in_shard(tables, shard, shards)
                .filter(|item| item.row.status == Status::DeadLetter)
                .count() as u64
        })
        .await
    }

    async fn parked_keys(&self, shard: u16, limit: usize) -> Stored<Vec<InboxKey>> {
        let shards = self.shards;
        self.call("inbox.parked_keys", |tables| {
            let mut parked: Vec<_> = in_shard(tables, shard, shards)
                .filter_map(|item| Some((item.row.dead_at?, item.row.new.key.clone())))
                .collect();
            parked.sort();
            parked.into_iter().rev().take(limit).map(|(_, key)| key).collect()
        })
        .await
    }
}

pub(super) fn in_shard(
    tables: &Tables,
    shard: u16,
    shards: u16,
) -> impl Iterator<Item = &InboxItem> {
    tables
        .inbox
        .iter()
        .filter(move |(key, _)| shard_of(&key.to_string(), shards) == shard)
        .map(|(_, item)| item)
}
