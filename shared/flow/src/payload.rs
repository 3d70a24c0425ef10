//! The bytes of an outgoing event, wherever they are kept.
//!
//! Small payloads stand in the outbox row. Large ones stand in the bucket, compressed with zstd, under a name that is
//! made of their tenant and their hash: putting the same payload again renews its age and nothing else.

use std::io::{self, Read as _};

pub use domain::outbox::object_name as name;
use domain::{
    body::Sha256Hash,
    outbox::{OutboxEvent, Payload},
    ports::{Bodies, Stored},
};

/// Largest payload that is read, in bytes, before and after decompression. Far above what may be published
/// (1 MB by default); it only bounds the memory that a damaged object can cost.
pub const MAX_PAYLOAD: usize = 8 * 1024 * 1024;

/// What became of the bytes of an event.
#[derive(Clone, PartialEq, Eq)]
pub enum Opened {
    /// They are as they were published.
    Bytes(Vec<u8>),
    /// The bucket has nothing of that name.
    Missing,
    /// The bucket has something else.
    Corrupt,
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "Bytes({} bytes)", bytes.len()),
            Self::Missing => f.write_str("Missing"),
            Self::Corrupt => f.write_str("Corrupt"),
        }
    }
}

/// A payload as it stands in the bucket.
///
/// # Errors
/// Those of zstd, which has none for bytes in memory.
pub fn compress(bytes: &[u8]) -> io::Result<Vec<u8>> {
    // Level 3, as for bodies that come in.
    zstd::stream::encode_all(bytes, 3)
}

/// Reads the bytes of an event and checks them against their hash: what subscribers get is what was published.
///
/// # Errors
/// Those of the bucket.
pub async fn open<B: Bodies>(event: &OutboxEvent, bodies: &B) -> Stored<Opened> {
    let hash = match &event.payload {
        Payload::Inline(bytes) => return Ok(Opened::Bytes(bytes.clone())),
        Payload::Bucket(hash) => hash,
    };
    let Some(compressed) = bodies.get(&name(&event.tenant, hash), MAX_PAYLOAD).await? else {
        return Ok(Opened::Missing);
    };
    let bytes = decompress(&compressed).ok().filter(|bytes| Sha256Hash::of(bytes) == *hash);
    Ok(bytes.map_or(Opened::Corrupt, Opened::Bytes))
}

fn decompress(compressed: &[u8]) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(MAX_PAYLOAD).unwrap_or(u64::MAX);
    // One byte over the limit has another hash than anything that was published.
    zstd::Decoder::new(compressed)?.take(limit + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use domain::id::EventId;
    use jiff::Timestamp;
    use testkit::memory::Store;

    use super::*;

    fn event(payload: Payload) -> OutboxEvent {
        OutboxEvent {
            id: EventId::derived(Timestamp::UNIX_EPOCH, &["x"]),
            tenant: "acme".parse().unwrap(),
            event_type: "a".to_owned(),
            schema_version: 1,
            aggregate_id: "x".to_owned(),
            aggregate_version: None,
            payload,
            occurred_at: Timestamp::UNIX_EPOCH,
            traceparent: None,
            labels: std::collections::BTreeMap::new(),
        }
    }

    async fn open_with(object: Option<Vec<u8>>) -> Opened {
        let (store, hash) = (Store::new(1), Sha256Hash::of(b"hello"));
        let event = event(Payload::Bucket(hash));
        if let Some(object) = object {
            store.put(&name(&event.tenant, &hash), object).await.unwrap();
        }
        open(&event, &store).await.unwrap()
    }

    #[tokio::test]
    async fn a_payload_comes_back_as_it_was_published() {
        let inline = open(&event(Payload::Inline(b"hello".to_vec())), &Store::new(1)).await;
        assert_eq!(inline.unwrap(), Opened::Bytes(b"hello".to_vec()));
        let stored = open_with(Some(compress(b"hello").unwrap())).await;
        assert_eq!(stored, Opened::Bytes(b"hello".to_vec()));
    }

    #[tokio::test]
    async fn a_payload_that_is_gone_or_damaged_is_told() {
        assert_eq!(open_with(None).await, Opened::Missing);
        assert_eq!(open_with(Some(compress(b"hell0").unwrap())).await, Opened::Corrupt);
        assert_eq!(open_with(Some(b"hello".to_vec())).await, Opened::Corrupt);
        assert_eq!(open_with(Some(Vec::new())).await, Opened::Corrupt);
    }

    #[tokio::test]
    async fn a_bomb_in_the_bucket_costs_bounded_memory() {
        let bomb = compress(&vec![0; MAX_PAYLOAD + 1000]).unwrap();
        assert!(bomb.len() < 10_000);
        assert_eq!(open_with(Some(bomb)).await, Opened::Corrupt);
    }
}
