//! How bodies are kept: compressed, near their row when they are small, and checked against their hash when they are
//! read back.

use std::io::{self, Read as _};

use domain::{
    body::{Place, Sha256Hash, StoredBody},
    id::SourceName,
    inbox::NewRow,
    ports::{Bodies, Inbox, Stored},
};

/// Largest body, in bytes before compression. More than any gateway of ours takes in, and little enough to hold in memory.
pub const MAX_BODY: usize = 8 * 1024 * 1024;

/// Largest compressed body that is kept in the table, in bytes. Above, the bucket is cheaper: eight write units against
/// one put.
pub const MAX_IN_TABLE: usize = 8 * 1024;

/// Level of zstd: higher ones win a few percent and cost several times the work.
const LEVEL: i32 = 3;

/// Largest window of zstd that is accepted when reading, as a power of two: 8 MiB. Level 3 uses 2 MiB at most.
const MAX_WINDOW_LOG: u32 = 23;

/// A row is changed at least once, and each change of an item of up to this size costs one write unit.
const WRITE_UNIT: usize = 1024;

/// What a row weighs in the table besides the texts it carries: names of attributes, times, counters, the hash, and what
/// the end of processing adds (status, end, expiry, one result).
const ROW: usize = 320;

/// Compresses a body.
///
/// # Errors
/// Only when there is no memory.
pub fn compress(bytes: &[u8]) -> io::Result<Vec<u8>> {
    zstd::bulk::compress(bytes, LEVEL)
}

/// Where a compressed body of this length goes, when its row has `room` for it.
pub fn place(compressed: &[u8], room: usize) -> Place {
    match compressed.len() {
        length if length <= room => Place::Inline(compressed.to_vec()),
        length if length <= MAX_IN_TABLE => Place::Beside,
        _ => Place::Bucket,
    }
}

/// How many bytes a row has left for a body, so that it stays within one write unit.
pub fn room(row: &NewRow) -> usize {
    let text =
        |text: &Option<String>, name: usize| text.as_ref().map_or(0, |text| text.len() + name);
    let key = 2 * row.key.source().as_str().len() + 1 + row.key.event_id().len();
    let headers: usize = row.headers.iter().map(|(name, value)| name.len() + value.len() + 1).sum();
    let object = row.object.as_ref().map_or(0, |object| object.kind.len() + object.id.len() + 20);
    let version = if row.version.is_some() { 55 } else { 0 };
    let occurred = if row.occurred_at.is_some() { 19 } else { 0 };
    let texts = text(&row.event_type, 4)
        + text(&row.key_id, 6)
        + text(&row.traceparent, 11)
        + text(&row.delivery_id, 11)
        + text(&row.parent, 6);
    let used = ROW + key + row.token.len() + headers + 10 + object + version + occurred + texts;
    WRITE_UNIT.saturating_sub(used)
}

/// The name of a body in the bucket.
pub fn name(source: &SourceName, sha256: Sha256Hash) -> String {
    format!("in/{source}/{sha256}")
}

/// What became of reading a body back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opened {
    /// The bytes, as they were signed.
    Bytes(Vec<u8>),
    /// They are not where they should be.
    Missing,
    /// They are not what they were.
    Corrupt,
    /// They would be larger than anything we accept: somebody else's doing.
    TooLarge,
}

/// Reads back the body of a row.
///
/// # Errors
/// When the store cannot be had. What is wrong with the bytes is an outcome.
pub async fn open<I: Inbox, B: Bodies>(row: &NewRow, inbox: &I, bodies: &B) -> Stored<Opened> {
    let compressed = match &row.body.place {
        Place::Inline(compressed) => return Ok(check(compressed, &row.body)),
        Place::Beside => inbox.beside(row).await?,
        Place::Bucket => bodies.get(&name(row.key.source(), row.body.sha256), limit()).await?,
    };
    Ok(compressed.map_or(Opened::Missing, |compressed| check(&compressed, &row.body)))
}

/// Most compressed bytes that are read: what zstd makes of the largest body when nothing can be saved.
fn limit() -> usize {
    zstd::zstd_safe::compress_bound(MAX_BODY)
}

/// Decompresses a body, and checks that it is what was stored.
fn check(compressed: &[u8], stored: &StoredBody) -> Opened {
    match decompress(compressed) {
        Ok(bytes) if bytes.len() > MAX_BODY => Opened::TooLarge,
        Ok(bytes)
            if bytes.len() as u64 == stored.length && Sha256Hash::of(&bytes) == stored.sha256 =>
        {
            Opened::Bytes(bytes)
        }
        _ => Opened::Corrupt,
    }
}

/// Up to one byte more than [`MAX_BODY`], whatever the input promises: a few bytes can inflate to gigabytes.
fn decompress(compressed: &[u8]) -> io::Result<Vec<u8>> {
    let mut decoder = zstd::stream::read::Decoder::with_buffer(compressed)?;
    decoder.window_log_max(MAX_WINDOW_LOG)?;
    let mut bytes = Vec::new();
    decoder.take(MAX_BODY as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use domain::{
        event::{ObjectRef, Origin, Version},
        id::InboxKey,
    };
    use jiff::Timestamp;
    use testkit::memory::Store;

    use super::*;
    use crate::accept::tests::finish;

    fn row(body: &[u8], place: Place) -> NewRow {
        NewRow {
            key: InboxKey::new("stripe-demo".parse().unwrap(), "evt_1").unwrap(),
            event_type: None,
            received_at: Timestamp::UNIX_EPOCH,
            due_at: Timestamp::UNIX_EPOCH,
            body: StoredBody { sha256: Sha256Hash::of(body), length: body.len() as u64, place },
            headers: BTreeMap::new(),
            object: None,
            version: None,
            occurred_at: None,
            origin: Origin::Webhook,
            key_id: None,
            token: "t".to_owned(),
            traceparent: None,
            delivery_id: None,
            parent: None,
        }
    }

    fn noise(length: usize) -> Vec<u8> {
        let mut state = 1_u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_be_bytes()[0]
        };
        (0..length).map(|_| next()).collect()
    }

    #[test]
    fn small_bodies_stay_in_the_row_and_large_ones_go_to_the_bucket() {
        let check = |length: usize, room: usize, expected: &str| {
            let place = format!("{:?}", place(&vec![0; length], room));
            assert!(place.starts_with(expected), "{length} in {room}: {place}");
        };
        check(0, 0, "Inline");
        check(1, 0, "Beside");
        check(600, 600, "Inline");
        check(601, 600, "Beside");
        check(MAX_IN_TABLE, 600, "Beside");
        check(MAX_IN_TABLE + 1, 600, "Bucket");
    }

    #[test]
    fn everything_that_a_row_carries_takes_room() {
        let bare = row(b"x", Place::Beside);
        let some = |text: &str| Some(text.to_owned());
        let heavier = [
            NewRow { event_type: some("a"), ..bare.clone() },
            NewRow { key_id: some("a"), ..bare.clone() },
            NewRow { traceparent: some("a"), ..bare.clone() },
            NewRow { delivery_id: some("a"), ..bare.clone() },
            NewRow { parent: some("a"), ..bare.clone() },
            NewRow { token: "tt".to_owned(), ..bare.clone() },
            NewRow { occurred_at: Some(Timestamp::UNIX_EPOCH), ..bare.clone() },
            NewRow { version: Some(Version::Number(1)), ..bare.clone() },
            NewRow { headers: [("a".to_owned(), "b".to_owned())].into(), ..bare.clone() },
            NewRow {
                object: Some(ObjectRef { kind: "a".to_owned(), id: "b".to_owned() }),
                ..bare.clone()
            },
            NewRow {
                key: InboxKey::new("stripe-demo".parse().unwrap(), "evt_12").unwrap(),
                ..bare.clone()
            },
        ];
        for heavier in heavier {
            assert!(room(&heavier) < room(&bare), "{heavier:?}");
        }
        let full = NewRow { event_type: Some("x".repeat(2000)), ..bare };
        assert_eq!(room(&full), 0);
    }

    #[test]
    fn a_body_is_read_back_from_every_place() {
        for (length, kind) in
            [(0, "inline"), (100, "inline"), (3000, "beside"), (100_000, "bucket")]
        {
            let body = noise(length);
            let compressed = compress(&body).unwrap();
            let place = place(&compressed, 500);
            let row = row(&body, place.clone());
            let store = Store::default();
            match &place {
                Place::Inline(_) => assert_eq!(kind, "inline"),
                Place::Beside => {
                    assert_eq!(kind, "beside");
                    finish(store.put_beside(&row, &compressed)).unwrap();
                }
                Place::Bucket => {
                    assert_eq!(kind, "bucket");
                    finish(store.put(&name(row.key.source(), row.body.sha256), compressed))
                        .unwrap();
                }
            }
            assert_eq!(finish(open(&row, &store, &store)).unwrap(), Opened::Bytes(body));
        }
    }

    #[test]
    fn bytes_that_are_not_there_or_not_what_they_were_are_outcomes() {
        let store = Store::default();
        let body = b"{\"amount\":1999}".as_slice();
        let check = |row: &NewRow, expected: Opened| {
            assert_eq!(finish(open(row, &store, &store)).unwrap(), expected, "{row:?}");
        };
        check(&row(body, Place::Beside), Opened::Missing);
        check(&row(body, Place::Bucket), Opened::Missing);
        check(&row(body, Place::Inline(b"not zstd".to_vec())), Opened::Corrupt);
        check(&row(body, Place::Inline(compress(b"{\"amount\":9999}").unwrap())), Opened::Corrupt);
        let mut cut = compress(body).unwrap();
        cut.truncate(cut.len() - 3);
        check(&row(body, Place::Inline(cut)), Opened::Corrupt);
        let mut longer = row(body, Place::Inline(compress(body).unwrap()));
        longer.body.length += 1;
        check(&longer, Opened::Corrupt);
    }

    /// ING-pre-auth-decompression: later stages cap what they inflate.
    #[test]
    fn a_bomb_stops_at_the_limit() {
        let bomb = compress(&vec![0; 64 * 1024 * 1024]).unwrap();
        assert!(bomb.len() < 64 * 1024);
        assert_eq!(decompress(&bomb).unwrap().len(), MAX_BODY + 1);
        let store = Store::default();
        let row = row(b"", Place::Inline(bomb));
        assert_eq!(finish(open(&row, &store, &store)).unwrap(), Opened::TooLarge);
    }

    #[test]
    fn the_largest_body_passes_and_one_byte_more_does_not() {
        let largest = vec![7; MAX_BODY + 1];
        let store = Store::default();
        let open = |bytes: &[u8]| {
            let row = row(bytes, Place::Inline(compress(bytes).unwrap()));
            finish(open(&row, &store, &store)).unwrap()
        };
        assert_eq!(open(&largest), Opened::TooLarge);
        assert!(matches!(open(&largest[1..]), Opened::Bytes(_)));
    }
}
