//! Keys that providers publish, and the list of what is owed to providers.

use domain::{
    id::SourceName,
    ports::{KEY_LIFE, Owed, PublishedKey, Stored},
};
use jiff::Timestamp;

use crate::{
    item::{Item, Reader, Writer, ms, s, seconds},
    keys,
};

pub(crate) fn write(source: &SourceName, key: &PublishedKey) -> Item {
    let expires_at = key.fetched_at.saturating_add(KEY_LIFE).unwrap_or(Timestamp::MAX);
    Writer::new(keys::published(source, &key.id), "published_key")
        .put("key", s(&key.id))
        .put("text", s(&key.text))
        .put("fetched_at", ms(key.fetched_at))
        .put("expires_at", seconds(expires_at))
        .done()
}

pub(crate) fn read(item: &Item) -> Stored<PublishedKey> {
    let item = Reader(item);
    Ok(PublishedKey {
        id: item.str("key")?.to_owned(),
        text: item.str("text")?.to_owned(),
        fetched_at: item.time("fetched_at")?,
    })
}

pub(crate) fn read_owed(item: &Item) -> Stored<Vec<Owed>> {
    Reader(item).json("owed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::show;

    #[test]
    fn a_published_key_reads_back_and_is_written_as_it_has_always_been() {
        let key = PublishedKey {
            id: "k#1".to_owned(),
            text: "-----BEGIN PUBLIC KEY-----".to_owned(),
            fetched_at: Timestamp::from_millisecond(1_790_000_000_123).unwrap(),
        };
        let item = write(&"hub".parse().unwrap(), &key);
        assert_eq!(read(&item).unwrap(), key);
        insta::assert_snapshot!(show(&item));
    }
}
