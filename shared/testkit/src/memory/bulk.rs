//! Bulk work in memory.

use std::cmp::Ordering;

use domain::{
    bulk::{Mark, Page, Part, State, Work},
    id::ReplayId,
    inbox::{Noted, Replayed, Row, Status},
    ports::{Again, Bulk, Start, Stored, Walk},
};
use jiff::{Timestamp, tz::TimeZone};

use super::{
    InboxItem, Store, Tables,
    inbox::{arm, in_shard},
};

/// The entries of a partition, with the times by which the index is in order.
fn entries(tables: &Tables, part: &Part, shards: u16) -> Vec<Mark> {
    let time = |item: &InboxItem| {
        let row = &item.row;
        match part {
            Part::Dead { until, .. } | Part::Parked { until, .. } => {
                row.dead_at.filter(|at| at <= until)
            }
            Part::Due { after, .. } => row.due_at.filter(|at| at > after),
            Part::Received { source, day, .. } => {
                let received_at = row.new.received_at;
                let is_listed = TimeZone::UTC.to_datetime(received_at).date() == *day
                    && row.new.key.source() == source;
                is_listed.then_some(received_at)
            }
        }
    };
    let (Part::Dead { shard, .. }
    | Part::Parked { shard, .. }
    | Part::Due { shard, .. }
    | Part::Received { shard, .. }) = part;
    let mut marks: Vec<_> = in_shard(tables, *shard, shards)
        .filter(|item| !tables.unlisted.contains(&item.row.new.key))
        .filter_map(|item| Some(Mark { at: time(item)?, key: item.row.new.key.clone() }))
        .collect();
    marks.sort_by(|a, b| (a.at, &a.key).cmp(&(b.at, &b.key)));
    if is_reversed(part) {
        marks.reverse();
    }
    marks
}

fn is_reversed(part: &Part) -> bool {
    matches!(part, Part::Parked { .. })
}

/// Changes a row that is as it was read, and marks it.
fn take(
    tables: &mut Tables,
    read: &Row,
    work: ReplayId,
    same: impl FnOnce(&Row) -> bool,
    change: impl FnOnce(&mut InboxItem),
) -> Again {
    match tables.inbox.get_mut(&read.new.key) {
        Some(item) if item.row.cycle == read.cycle && same(&item.row) => {
            change(item);
            item.row.replay = Some(Replayed { by: work, from: read.status });
            Again::Yes
        }
        Some(item) if item.row.replay.is_some_and(|taken| taken.by == work) => Again::Before,
        _ => Again::Moved,
    }
}

impl Walk for Store {
    async fn page(&self, part: &Part, after: Option<&Mark>, limit: usize) -> Stored<Page> {
        let shards = self.shards;
        self.call("walk.page", |tables| {
            let is_behind = |mark: &Mark| {
                let order = after.map(|after| (mark.at, &mark.key).cmp(&(after.at, &after.key)));
                let order = if is_reversed(part) { order.map(Ordering::reverse) } else { order };
                order.is_none_or(Ordering::is_gt)
            };
            let marks = entries(tables, part, shards).into_iter().filter(is_behind);
            let marks: Vec<_> = marks.take(limit).collect();
            Page { more: marks.len() >= limit, marks }
        })
        .await
    }

    async fn again(
        &self,
        row: &Row,
        work: ReplayId,
        due_at: Timestamp,
        now: Timestamp,
    ) -> Stored<Again> {
        self.call("walk.again", |tables| {
            let same = |now: &Row| now.status == row.status && row.status != Status::Pending;
            take(tables, row, work, same, |item| arm(item, due_at, now))
        })
        .await
    }

    async fn sooner(&self, row: &Row, work: ReplayId, due_at: Timestamp) -> Stored<Again> {
        self.call("walk.sooner", |tables| {
            let same = |now: &Row| now.status == Status::Pending && now.due_at == row.due_at;
            take(tables, row, work, same, |item| item.row.due_at = Some(due_at))
        })
        .await
    }
}

impl Bulk for Store {
    async fn start(&self, work: &Work, most: usize) -> Stored<Start> {
        self.call("bulk.start", |tables| {
            if let Some(before) = tables.bulks.get(&work.id) {
                return Start::Before(Box::new(before.clone()));
            }
            if tables.open_bulks.len() >= most {
                return Start::TooMany;
            }
            tables.bulks.insert(work.id, work.clone());
            tables.open_bulks.insert(work.id);
            Start::Yes
        })
        .await
    }

    async fn bulk(&self, id: ReplayId) -> Stored<Option<Work>> {
        self.call("bulk.bulk", |tables| tables.bulks.get(&id).cloned()).await
    }

    async fn bulks(&self, limit: usize) -> Stored<Vec<Work>> {
        self.call("bulk.bulks", |tables| {
            let mut works: Vec<_> = tables.bulks.values().cloned().collect();
            works.sort_by_key(|work| std::cmp::Reverse((work.began, work.id)));
            works.truncate(limit);
            works
        })
        .await
    }

    async fn open(&self) -> Stored<Vec<ReplayId>> {
        self.call("bulk.open", |tables| tables.open_bulks.iter().copied().collect()).await
    }

    async fn advance(&self, after: &Work) -> Stored<Option<Work>> {
        self.call("bulk.advance", |tables| {
            let work = tables.bulks.get_mut(&after.id)?;
            if work.version + 1 != after.version {
                return None;
            }
            *work = Work { cancelled: work.cancelled.clone(), ..after.clone() };
            Some(work.clone())
        })
        .await
    }

    async fn cancel(&self, id: ReplayId, by: &str, now: Timestamp) -> Stored<Noted> {
        self.call("bulk.cancel", |tables| match tables.bulks.get_mut(&id) {
            Some(work) if work.state() == State::Running => {
                work.cancelled = Some((now, by.to_owned()));
                Noted::Yes
            }
            _ => Noted::Moved,
        })
        .await
    }

    async fn close(&self, id: ReplayId) -> Stored<()> {
        self.call("bulk.close", |tables| {
            tables.open_bulks.remove(&id);
        })
        .await
    }
}
