//! Replays: their rows, their list, and what is under way.

use domain::{
    bulk::Work,
    id::ReplayId,
    inbox::Noted,
    ports::{Bulk, Start, Stored},
};
use jiff::Timestamp;

use crate::{
    book::{Begun, Book, Booked},
    expression::Expression,
    item::{Item, ms, s},
    items::bulk::{read, read_listed, write, write_listed},
    keys,
    registry::RegistryTable,
    table::{Range, partition},
};

impl Booked for Work {
    type Id = ReplayId;

    const OPEN_KIND: &'static str = "replays_open";

    fn id(&self) -> ReplayId {
        self.id
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn key(id: ReplayId) -> keys::Key {
        keys::replay(id)
    }

    fn open() -> keys::Key {
        keys::open_replays()
    }

    fn write(&self) -> Stored<Item> {
        write(self)
    }

    fn read(item: &Item) -> Stored<Self> {
        read(item)
    }

    fn listed(&self) -> Item {
        write_listed(self)
    }

    fn is_as(&self, other: &Self) -> bool {
        let alone = |work: &Self| Self { cancelled: None, ..work.clone() };
        alone(self) == alone(other)
    }
}

impl RegistryTable {
    pub(crate) fn book(&self) -> Book<'_> {
        Book { client: &self.client, table: self.table() }
    }
}

impl Bulk for RegistryTable {
    async fn start(&self, work: &Work, most: usize) -> Stored<Start> {
        Ok(match self.book().start(work, most).await? {
            Begun::Yes => Start::Yes,
            Begun::Before(before) => Start::Before(Box::new(before)),
            Begun::TooMany => Start::TooMany,
        })
    }

    async fn bulk(&self, id: ReplayId) -> Stored<Option<Work>> {
        self.book().read(id).await
    }

    async fn bulks(&self, limit: usize) -> Stored<Vec<Work>> {
        let listed = partition(keys::REPLAYS.to_owned())
            .when("begins_with(#sk, :listed)", [("listed", s(keys::LISTED_REPLAYS))]);
        let listed = Range::partition(listed).newest_first().limit(limit);
        let mut works: Vec<Work> = self.book().listed(&listed, read_listed).await?;
        works.sort_by_key(|work| std::cmp::Reverse((work.began, work.id)));
        Ok(works)
    }

    async fn open(&self) -> Stored<Vec<ReplayId>> {
        self.book().open::<Work>().await
    }

    async fn advance(&self, after: &Work) -> Stored<Option<Work>> {
        self.book().advance(after).await
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
        self.book().close::<Work>(id).await
    }
}
