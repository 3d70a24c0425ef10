//! The rows of bulk work, whatever it is about: put, listed, advanced under a version, and counted while it is under way.

use std::{fmt::Display, str::FromStr};

use aws_sdk_dynamodb::Client;
use domain::{commit::Reason, ports::Stored};
use serde::Serialize;

use crate::{
    error::cancelled,
    expression::Expression,
    item::{Item, Reader, json, n, s},
    keys::Key,
    table::{Range, Table, Transacted, Write, transact},
};

/// A kind of bulk work.
pub(crate) trait Booked: Serialize + PartialEq + Sized + Send + Sync {
    /// Its id.
    type Id: Copy + Display + FromStr + Send + Sync;

    /// The kind of the item that names what is under way.
    const OPEN_KIND: &'static str;

    /// Its id.
    fn id(&self) -> Self::Id;
    /// Counts the writes of its walk.
    fn version(&self) -> u64;
    /// The key of its row.
    fn key(id: Self::Id) -> Key;
    /// The key of the item that names what is under way.
    fn open() -> Key;
    /// Its row.
    fn write(&self) -> Stored<Item>;
    /// Reads its row.
    fn read(item: &Item) -> Stored<Self>;
    /// Its entry in the list.
    fn listed(&self) -> Item;
    /// Whether it is the same, whatever stands beside what its walk writes.
    fn is_as(&self, other: &Self) -> bool;
}

/// What became of a start.
pub(crate) enum Begun<W> {
    Yes,
    Before(W),
    TooMany,
}

/// The table with the rows of bulk work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Book<'a> {
    pub(crate) client: &'a Client,
    pub(crate) table: Table<'a>,
}

impl Book<'_> {
    pub(crate) async fn start<W: Booked>(self, work: &W, most: usize) -> Stored<Begun<W>> {
        // All of it or nothing: a work that nobody lists as under way would never be advanced.
        let opened = Expression::new()
            .set("kind", s(W::OPEN_KIND))
            .put_into("ids", &work.id().to_string())
            .when("attribute_not_exists(#ids) OR size(#ids) < :most", [("most", n(most))]);
        let actions = vec![
            self.table.putting(work.write()?, &Expression::absent())?,
            self.table.updating(W::open(), &opened)?,
            self.table.putting(work.listed(), &Expression::new())?,
        ];
        let reasons = match transact(self.client, actions, None).await? {
            Transacted::Done => return Ok(Begun::Yes),
            Transacted::Cancelled(reasons) => reasons,
        };
        match reasons.as_slice() {
            [Reason::ConditionFailed, ..] => match self.read(work.id()).await? {
                Some(before) => Ok(Begun::Before(before)),
                None => Err(cancelled(&reasons)),
            },
            [_, Reason::ConditionFailed, ..] => Ok(Begun::TooMany),
            _ => Err(cancelled(&reasons)),
        }
    }

    pub(crate) async fn read<W: Booked>(self, id: W::Id) -> Stored<Option<W>> {
        self.table.get(W::key(id)).await?.as_ref().map(W::read).transpose()
    }

    /// The works of a list, in no order.
    pub(crate) async fn listed<W: Booked>(
        self,
        list: &Range,
        id: impl Fn(&Item) -> Stored<W::Id> + Send + Sync,
    ) -> Stored<Vec<W>> {
        let ids = self.table.rows(list, id).await?;
        let items = self.table.get_all(ids.into_iter().map(W::key)).await?;
        items.iter().map(W::read).collect()
    }

    /// The ids of what is under way. Without any, the item has no set.
    pub(crate) async fn open<W: Booked>(self) -> Stored<Vec<W::Id>> {
        let Some(item) = self.table.get(W::open()).await? else { return Ok(Vec::new()) };
        let item = Reader(&item);
        let ids = item.some("ids", Reader::texts)?.unwrap_or_default();
        ids.iter().map(|id| id.parse().map_err(|_| item.bad("ids"))).collect()
    }

    pub(crate) async fn advance<W: Booked>(self, after: &W) -> Stored<Option<W>> {
        let before = after.version().saturating_sub(1);
        let change = Expression::new()
            .set("work", json(after)?)
            .set("version", n(after.version()))
            .when("#version = :before", [("before", n(before))]);
        match self.table.update_and_read(W::key(after.id()), &change).await? {
            Write::Done(item) => W::read(&item).map(Some),
            // The answer to our own write may have been lost, and the client have tried again.
            Write::Refused(item) if !item.is_empty() => {
                let now = W::read(&item)?;
                Ok(now.is_as(after).then_some(now))
            }
            Write::Refused(_) => Ok(None),
        }
    }

    pub(crate) async fn close<W: Booked>(self, id: W::Id) -> Stored<()> {
        let change = Expression::new().take_out("ids", &id.to_string());
        self.table.update(W::open(), &change).await.map(drop)
    }
}
