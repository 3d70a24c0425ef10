//! Keys that providers publish, and what is owed to providers.
//!
//! What is owed of one source is one small item with a revision: a list of at most [`domain::ports::MAX_OWED`], changed
//! by whoever has read the latest.

use domain::{
    id::SourceName,
    ports::{
        Owed, PublishedKey, PublishedKeys, StoreError, Stored, Want,
        published_keys::{due, is_owed, with_put_off, with_want, without},
    },
};
use jiff::Timestamp;

use crate::{
    StateTable,
    expression::Expression,
    item::{Item, Reader, json, n, s},
    items::published,
    keys,
    table::{Range, Write, partition},
};

/// How often a change is tried when somebody else was faster each time.
const ROUNDS: u32 = 4;

impl StateTable {
    /// Changes the list, and gives it back as it is then.
    async fn change_owed(
        &self,
        source: &SourceName,
        change: impl Fn(Vec<Owed>) -> Option<Vec<Owed>> + Send + Sync,
    ) -> Stored<Vec<Owed>> {
        for _ in 0..ROUNDS {
            let old = self.table().get(keys::owed(source)).await?;
            let revision = old.as_ref().map(revision).transpose()?.unwrap_or_default();
            let list = old.as_ref().map(published::read_owed).transpose()?.unwrap_or_default();
            let Some(list) = change(list.clone()) else { return Ok(list) };
            let change = Expression::new()
                .set("kind", s("owed"))
                .set("owed", json(&list)?)
                .set("revision", n(revision + 1))
                .when(
                    "attribute_not_exists(#pk) OR #revision = :read_revision",
                    [("read_revision", n(revision))],
                );
            if let Write::Done(_) = self.table().update(keys::owed(source), &change).await? {
                return Ok(list);
            }
        }
        Err(StoreError::Throttled("others change what is owed, again and again".into()))
    }
}

fn revision(item: &Item) -> Stored<u64> {
    Reader(item).number("revision")
}

impl PublishedKeys for StateTable {
    async fn published(&self, source: &SourceName) -> Stored<Vec<PublishedKey>> {
        let all = Range::partition(partition(keys::published_partition(source)));
        self.table().rows(&all, published::read).await
    }

    async fn want(&self, source: &SourceName, want: &Want, now: Timestamp) -> Stored<bool> {
        let list = self.change_owed(source, |list| with_want(list, source, want, now)).await?;
        Ok(is_owed(&list, want))
    }

    async fn owed(&self, now: Timestamp, limit: usize) -> Stored<Vec<Owed>> {
        let all = Range::partition(partition(keys::OWED.to_owned()));
        let lists = self.table().rows(&all, published::read_owed).await?;
        Ok(due(lists.into_iter().flatten().collect(), now, limit))
    }

    async fn keep(&self, owed: &Owed, key: Option<&PublishedKey>) -> Stored<()> {
        if let Some(key) = key {
            // First: what is owed no more must be there.
            self.table().put_anyway(published::write(&owed.source, key)).await?;
        }
        self.give_up(owed).await
    }

    async fn put_off(&self, owed: &Owed, due_at: Timestamp, error: &str) -> Stored<()> {
        let put_off = |list| with_put_off(list, &owed.want, due_at, error);
        self.change_owed(&owed.source, put_off).await.map(drop)
    }

    async fn give_up(&self, owed: &Owed) -> Stored<()> {
        self.change_owed(&owed.source, |list| without(list, &owed.want)).await.map(drop)
    }
}
