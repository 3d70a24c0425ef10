//! What bulk work reads and changes of the inbox.

use domain::{
    bulk::{Mark, Page, Part},
    id::{InboxKey, ReplayId},
    inbox::{Noted, Row, Status},
    ports::{Again, Inbox as _, Stored, Walk},
};
use jiff::Timestamp;

use crate::{
    expression::Expression,
    inbox::{InboxTable, as_claimed},
    item::{Item, Reader, ms, n, s, word},
    items::event,
    keys,
    table::Range,
};

/// An index, the value of its partition, and the attributes of its two keys.
struct Index {
    name: &'static str,
    partition: (&'static str, aws_sdk_dynamodb::types::AttributeValue),
    time: &'static str,
}

fn index(part: &Part) -> Index {
    match part {
        Part::Dead { shard, .. } | Part::Parked { shard, .. } => Index {
            name: keys::BY_DEAD,
            partition: ("dead_shard", keys::shard_value(*shard)),
            time: "dead_at",
        },
        Part::Due { shard, .. } => Index {
            name: keys::BY_DUE,
            partition: ("pending_shard", keys::shard_value(*shard)),
            time: "due_at",
        },
        Part::Received { source, day, shard } => Index {
            name: keys::BY_SOURCE,
            partition: ("source_day", keys::source_day_of(source, *day, *shard)),
            time: "received_at",
        },
    }
}

/// Behind an entry: both keys of the table, and both of the index.
fn behind(index: &Index, mark: &Mark) -> Item {
    let mut keys = keys::event(&mark.key).attributes();
    let (name, value) = &index.partition;
    keys.insert((*name).to_owned(), value.clone());
    keys.insert(index.time.to_owned(), ms(mark.at));
    keys
}

impl InboxTable {
    /// Whose it is that a row is not as it was read.
    async fn whose(&self, key: &InboxKey, work: ReplayId, noted: Noted) -> Stored<Again> {
        if noted == Noted::Yes {
            return Ok(Again::Yes);
        }
        let row = self.read(key).await?;
        let is_ours = row.is_some_and(|row| row.replay.is_some_and(|taken| taken.by == work));
        Ok(if is_ours { Again::Before } else { Again::Moved })
    }
}

impl Walk for InboxTable {
    async fn page(&self, part: &Part, after: Option<&Mark>, limit: usize) -> Stored<Page> {
        let index = index(part);
        let (name, value) = index.partition.clone();
        let of_part = Expression::new().when(&format!("#{name} = :part"), [("part", value)]);
        let of_part = match part {
            Part::Dead { until, .. } | Part::Parked { until, .. } => {
                of_part.when("#dead_at <= :until", [("until", ms(*until))])
            }
            Part::Due { after, .. } => of_part.when("#due_at > :after", [("after", ms(*after))]),
            Part::Received { .. } => of_part,
        };
        let range = Range::index(index.name, of_part).limit(limit);
        let range = range.after(after.map(|mark| behind(&index, mark)));
        let is_reversed = matches!(part, Part::Parked { .. });
        let range = if is_reversed { range.newest_first() } else { range };
        let mark = |item: &Item| {
            let item = Reader(item);
            Ok(Mark { key: event::key(item)?, at: item.time(index.time)? })
        };
        let marks = self.table().named(&range, mark).await?;
        Ok(Page { more: marks.len() >= limit, marks })
    }

    async fn again(
        &self,
        row: &Row,
        work: ReplayId,
        due_at: Timestamp,
        now: Timestamp,
    ) -> Stored<Again> {
        let key = &row.new.key;
        let (status, cycle) = (row.status, row.cycle);
        let change = self.armed(key, due_at, now).set("replay", s(work.to_string()));
        let change = change.set("replay_from", word(&status)).when(
            "#status = :was AND #cycle = :read_cycle",
            [("was", word(&status)), ("read_cycle", n(cycle))],
        );
        let may = |old: &Item| {
            let old = Reader(old);
            Ok(old.word::<Status>("status")? == status && old.number::<u32>("cycle")? == cycle)
        };
        let noted = self.keep(key, change, may).await?;
        self.whose(key, work, noted).await
    }

    async fn sooner(&self, row: &Row, work: ReplayId, due_at: Timestamp) -> Stored<Again> {
        let Some(read_due_at) = row.due_at else { return Ok(Again::Moved) };
        let change = Expression::new()
            .set("due_at", ms(due_at))
            .set("replay", s(work.to_string()))
            .set("replay_from", word(&row.status))
            .when("#due_at = :read_due_at", [("read_due_at", ms(read_due_at))]);
        let change = as_claimed(change, &row.claim());
        let noted = self.table().update(keys::event(&row.new.key), &change).await?.noted();
        self.whose(&row.new.key, work, noted).await
    }
}
