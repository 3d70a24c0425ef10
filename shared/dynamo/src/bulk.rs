//! Bulk work: its rows, their list, and what is under way.

use domain::{
    bulk::Work,
    commit::Reason,
    id::ReplayId,
    inbox::Noted,
    ports::{Bulk, Start, Stored},
};
use jiff::Timestamp;

use crate::{
    error::cancelled,
    expression::Expression,
    item::{json, ms, n, s},
    items::bulk::{read, read_listed, read_open, write, write_listed},
    keys,
    registry::RegistryTable,
    table::{Range, Transacted, Write, partition, transact},
};

impl Bulk for RegistryTable {
    async fn start(&self, work: &Work, most: usize) -> Stored<Start> {
        let table = self.table();
        // All of it or nothing: a work that nobody lists as under way would never be advanced.
        let opened = Expression::new()
            .set("kind", s("replays_open"))
            .put_into("ids", &work.id.to_string())
            .when("attribute_not_exists(#ids) OR size(#ids) < :most", [("most", n(most))]);
        let actions = vec![
            table.putting(write(work)?, &Expression::absent())?,
            table.updating(keys::open_replays(), &opened)?,
            table.putting(write_listed(work), &Expression::new())?,
        ];
        let reasons = match transact(&self.client, actions, None).await? {
            Transacted::Done => return Ok(Start::Yes),
            Transacted::Cancelled(reasons) => reasons,
        };
        match reasons.as_slice() {
            [Reason::ConditionFailed, ..] => match self.bulk(work.id).await? {
                Some(before) => Ok(Start::Before(Box::new(before))),
                None => Err(cancelled(&reasons)),
            },
            [_, Reason::ConditionFailed, ..] => Ok(Start::TooMany),
            _ => Err(cancelled(&reasons)),
        }
    }

    async fn bulk(&self, id: ReplayId) -> Stored<Option<Work>> {
        self.table().get(keys::replay(id)).await?.as_ref().map(read).transpose()
    }

    async fn bulks(&self, limit: usize) -> Stored<Vec<Work>> {
        let listed = partition(keys::REPLAYS.to_owned())
            .when("begins_with(#sk, :listed)", [("listed", s(keys::LISTED_REPLAYS))]);
        let listed = Range::partition(listed).newest_first().limit(limit);
        let ids = self.table().rows(&listed, read_listed).await?;
        let items = self.table().get_all(ids.into_iter().map(keys::replay)).await?;
        let mut works = items.iter().map(read).collect::<Stored<Vec<_>>>()?;
        works.sort_by_key(|work| std::cmp::Reverse((work.began, work.id)));
        Ok(works)
    }

    async fn open(&self) -> Stored<Vec<ReplayId>> {
        let item = self.table().get(keys::open_replays()).await?;
        item.as_ref().map_or(Ok(Vec::new()), read_open)
    }

    async fn advance(&self, after: &Work) -> Stored<Option<Work>> {
        let before = after.version.saturating_sub(1);
        let change = Expression::new()
            .set("work", json(after)?)
            .set("version", n(after.version))
            .when("#version = :before", [("before", n(before))]);
        match self.table().update_and_read(keys::replay(after.id), &change).await? {
            Write::Done(item) => read(&item).map(Some),
            // The answer to our own write may have been lost, and the client have tried again.
            Write::Refused(item) if !item.is_empty() => {
                let now = read(&item)?;
                let is_ours = Work { cancelled: None, ..now.clone() }
                    == Work { cancelled: None, ..after.clone() };
                Ok(is_ours.then_some(now))
            }
            Write::Refused(_) => Ok(None),
        }
    }

    async fn cancel(&self, id: ReplayId, by: &str, now: Timestamp) -> Stored<Noted> {
        let Some(work) = self.bulk(id).await?.filter(|work| work.ended_at.is_none()) else {
            return Ok(Noted::Moved);
        };
        // It may end in this moment; then it has ended, whatever stands beside.
        let change = Expression::new()
            .set("cancelled_at", ms(now))
            .set("cancelled_by", s(by))
            .when("attribute_exists(#pk) AND attribute_not_exists(#cancelled_at)", []);
        Ok(self.table().update(keys::replay(work.id), &change).await?.noted())
    }

    async fn close(&self, id: ReplayId) -> Stored<()> {
        let change = Expression::new().take_out("ids", &id.to_string());
        self.table().update(keys::open_replays(), &change).await.map(drop)
    }
}
