//! Keys of providers, and what is owed to them, in memory.

use domain::{
    id::SourceName,
    ports::{
        Owed, PublishedKey, PublishedKeys, Stored, Want,
        published_keys::{due, is_owed, with_put_off, with_want, without},
    },
};
use jiff::Timestamp;

use super::{Store, Tables};

impl PublishedKeys for Store {
    async fn published(&self, source: &SourceName) -> Stored<Vec<PublishedKey>> {
        self.call("published_keys.published", |tables| {
            tables
                .published
                .get(source)
                .into_iter()
                .flat_map(|keys| keys.values().cloned())
                .collect()
        })
        .await
    }

    async fn want(&self, source: &SourceName, want: &Want, now: Timestamp) -> Stored<bool> {
        self.call("published_keys.want", |tables| {
            change(tables, source, |list| with_want(list, source, want, now));
            tables.owed.get(source).is_some_and(|list| is_owed(list, want))
        })
        .await
    }

    async fn owed(&self, now: Timestamp, limit: usize) -> Stored<Vec<Owed>> {
        self.call("published_keys.owed", |tables| {
            due(tables.owed.values().flatten().cloned().collect(), now, limit)
        })
        .await
    }

    async fn keep(&self, owed: &Owed, key: Option<&PublishedKey>) -> Stored<()> {
        self.call("published_keys.keep", |tables| {
            if let Some(key) = key {
                let keys = tables.published.entry(owed.source.clone()).or_default();
                keys.insert(key.id.clone(), key.clone());
            }
            change(tables, &owed.source, |list| without(list, &owed.want));
        })
        .await
    }

    async fn put_off(&self, owed: &Owed, due_at: Timestamp, error: &str) -> Stored<()> {
        self.call("published_keys.put_off", |tables| {
            change(tables, &owed.source, |list| with_put_off(list, &owed.want, due_at, error));
        })
        .await
    }

    async fn give_up(&self, owed: &Owed) -> Stored<()> {
        self.call("published_keys.give_up", |tables| {
            change(tables, &owed.source, |list| without(list, &owed.want));
        })
        .await
    }
}

fn change(
    tables: &mut Tables,
    source: &SourceName,
    change: impl FnOnce(Vec<Owed>) -> Option<Vec<Owed>>,
) {
    let list = tables.owed.get(source).cloned().unwrap_or_default();
    if let Some(list) = change(list) {
        tables.owed.insert(source.clone(), list);
    }
}
