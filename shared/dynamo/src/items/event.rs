//! An inbox row.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::types::AttributeValue;
use domain::{
    body::{Place, Sha256Hash, StoredBody},
    event::ObjectRef,
    id::InboxKey,
    inbox::{Failure, NewRow, OtherBodies, OtherBody, Replayed, Row, Status},
    ports::Stored,
};

use crate::{
    expression::Expression,
    item::{Item, Reader, Writer, b, ms, n, s, word},
    items::version,
    keys,
};

/// A row that was accepted just now. `list_by_source` puts it into the index for lists.
pub(crate) fn write(row: &NewRow, shards: u16, list_by_source: bool) -> Item {
    let StoredBody { sha256, length, place } = &row.body;
    let headers: Item = row.headers.iter().map(|(name, of)| (name.clone(), s(of))).collect();
    let version = row.version.as_ref().map(version::write);
    let (version_rank, version) = version.unzip();
    let (place, body) = match place {
        Place::Inline(bytes) => (None, Some(b(bytes.as_slice()))),
        Place::Beside => (Some(s(BESIDE)), None),
        Place::Bucket => (Some(s(BUCKET)), None),
    };
    Writer::new(keys::event(&row.key), "event")
        .put("status", word(&Status::Pending))
        .put("attempts", n(0))
        .put("cycle", n(0))
        .put("sweeps", n(0))
        .put("token", s(&row.token))
        .put("origin", word(&row.origin))
        .put("received_at", ms(row.received_at))
        .put("due_at", ms(row.due_at))
        .put("pending_shard", keys::inbox_shard(&row.key, shards))
        .put_some(
            "source_day",
            list_by_source.then(|| keys::source_day(&row.key, row.received_at, shards)),
        )
        .put("sha256", b(sha256.0))
        .put("length", n(length))
        .put_some("place", place)
        .put_some("body", body)
        .put_some("type", row.event_type.as_ref().map(s))
        .put_some("headers", (!headers.is_empty()).then_some(AttributeValue::M(headers)))
        .put_some("object_kind", row.object.as_ref().map(|object| s(&object.kind)))
        .put_some("object_id", row.object.as_ref().map(|object| s(&object.id)))
        .put_some("version_rank", version_rank)
        .put_some("version", version)
        .put_some("occurred_at", row.occurred_at.map(ms))
        .put_some("key_id", row.key_id.as_ref().map(s))
        .put_some("traceparent", row.traceparent.as_ref().map(s))
        .put_some("delivery_id", row.delivery_id.as_ref().map(s))
        .put_some("parent", row.parent.as_ref().map(s))
        .done()
}

/// `place` of a body in an item beside the row.
pub(crate) const BESIDE: &str = "beside";
/// `place` of a body in the bucket. A row with its body in itself has no `place`.
pub(crate) const BUCKET: &str = "bucket";

/// That another body came under the row's id. One update, so that two at once are two; nothing that another write's
/// condition looks at.
pub(crate) fn other_body(other: &OtherBody) -> Expression {
    Expression::new()
        .set("other_sha256", b(other.sha256.0))
        .set("other_length", n(other.length))
        .set("other_at", ms(other.at))
        .count_up("other_bodies")
        .when("attribute_exists(#pk)", [])
}

pub(crate) fn read(item: &Item) -> Stored<Row> {
    let item = Reader(item);
    let new = read_new(item)?;
    let failure = |item: Reader<'_>, name: &str| {
        Ok(Failure { code: item.str(name)?.to_owned(), message: item.str("error")?.to_owned() })
    };
    Ok(Row {
        status: item.word("status")?,
        attempts: item.number("attempts")?,
        cycle: item.number("cycle")?,
        sweeps: item.number("sweeps")?,
        due_at: item.some("due_at", Reader::time)?,
        dead_at: item.some("dead_at", Reader::time)?,
        finished_at: item.some("finished_at", Reader::time)?,
        last_error: item.some("error_code", failure)?,
        next_action: item.some_text("next_action")?,
        waits_until: item.some("waits_until", Reader::time)?,
        waits_since: item.some("waits_since", Reader::time)?,
        results: item.some("results", Reader::json)?.unwrap_or_default(),
        armed_at: item.some("armed_at", Reader::time)?.unwrap_or(new.received_at),
        split: item.some("split", Reader::number)?.unwrap_or_default(),
        other_bodies: item.some("other_bodies", other_bodies)?,
        replay: item.some("replay", replayed)?,
        new,
    })
}

fn replayed(item: Reader<'_>, name: &str) -> Stored<Replayed> {
    Ok(Replayed { by: item.parse(name)?, from: item.word("replay_from")? })
}

fn other_bodies(item: Reader<'_>, name: &str) -> Stored<OtherBodies> {
    let last = OtherBody {
        sha256: hash(item, "other_sha256")?,
        length: item.number("other_length")?,
        at: item.time("other_at")?,
    };
    Ok(OtherBodies { count: item.number(name)?, last })
}

fn read_new(item: Reader<'_>) -> Stored<NewRow> {
    let received_at = item.time("received_at")?;
    let object = |item: Reader<'_>, name: &str| {
        Ok(ObjectRef { kind: item.str(name)?.to_owned(), id: item.str("object_id")?.to_owned() })
    };
    Ok(NewRow {
        key: key(item)?,
        event_type: item.some_text("type")?,
        received_at,
        // Only a pending row has a due time, and its first one is not kept.
        due_at: item.some("due_at", Reader::time)?.unwrap_or(received_at),
        body: StoredBody {
            sha256: sha256(item)?,
            length: item.number("length")?,
            place: place(item)?,
        },
        headers: item.some("headers", headers)?.unwrap_or_default(),
        object: item.some("object_kind", object)?,
        version: item.some("version_rank", |item, _| version::read(item))?,
        occurred_at: item.some("occurred_at", Reader::time)?,
        origin: item.word("origin")?,
        key_id: item.some_text("key_id")?,
        token: item.str("token")?.to_owned(),
        traceparent: item.some_text("traceparent")?,
        delivery_id: item.some_text("delivery_id")?,
        parent: item.some_text("parent")?,
    })
}

fn headers(item: Reader<'_>, name: &str) -> Stored<BTreeMap<String, String>> {
    let headers = item.map(name)?;
    headers
        .keys()
        .map(|header| Ok((header.clone(), Reader(headers).str(header)?.to_owned())))
        .collect()
}

/// The key of a row, also as an index gives it.
pub(crate) fn key(item: Reader<'_>) -> Stored<InboxKey> {
    keys::read_inbox_key(item.str("pk")?).ok_or_else(|| item.bad("pk"))
}

/// The hash of a row's body.
pub(crate) fn sha256(item: Reader<'_>) -> Stored<Sha256Hash> {
    hash(item, "sha256")
}

fn hash(item: Reader<'_>, name: &str) -> Stored<Sha256Hash> {
    let bytes = item.bytes(name)?.try_into().map_err(|_| item.bad(name))?;
    Ok(Sha256Hash(bytes))
}

/// Where a row's body is.
pub(crate) fn place(item: Reader<'_>) -> Stored<Place> {
    match item.some("place", Reader::str)? {
        None => Ok(Place::Inline(item.bytes("body")?.to_vec())),
        Some(BESIDE) => Ok(Place::Beside),
        Some(BUCKET) => Ok(Place::Bucket),
        Some(_) => Err(item.bad("place")),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use domain::event::{Origin, Version};
    use jiff::Timestamp;

    use super::*;
    use crate::item::show;

    pub(crate) fn a_row(place: Place) -> NewRow {
        let at = |ms| Timestamp::from_millisecond(ms).unwrap();
        NewRow {
            key: InboxKey::new("stripe".parse().unwrap(), "evt_1").unwrap(),
            event_type: Some("invoice.paid".to_owned()),
            received_at: at(1_790_000_000_123),
            due_at: at(1_790_000_120_123),
            body: StoredBody { sha256: Sha256Hash([0xab; 32]), length: 4096, place },
            headers: BTreeMap::from([("content-type".to_owned(), "application/json".to_owned())]),
            object: Some(ObjectRef { kind: "invoice".to_owned(), id: "in_1".to_owned() }),
            version: Some(Version::Time(
                Timestamp::from_nanosecond(1_790_000_000_000_000_001).unwrap(),
            )),
            occurred_at: Some(at(1_790_000_000_000)),
            origin: Origin::Webhook,
            key_id: Some("current".to_owned()),
            token: "t0ken".to_owned(),
            traceparent: Some("00-1-2-01".to_owned()),
            delivery_id: Some("d-1".to_owned()),
            parent: Some("sha256:ab".to_owned()),
        }
    }

    #[test]
    fn a_row_reads_back_as_it_was_put() {
        for place in [Place::Inline(vec![1, 2, 3]), Place::Beside, Place::Bucket] {
            let new = a_row(place);
            let row = read(&write(&new, 8, true)).unwrap();
            assert_eq!(row.new, new);
            assert_eq!((row.status, row.attempts, row.cycle), (Status::Pending, 0, 0));
            assert_eq!(row.armed_at, new.received_at);
        }
        let bare = NewRow {
            event_type: None,
            headers: BTreeMap::new(),
            object: None,
            version: None,
            occurred_at: None,
            key_id: None,
            traceparent: None,
            delivery_id: None,
            parent: None,
            ..a_row(Place::Bucket)
        };
        assert_eq!(read(&write(&bare, 8, false)).unwrap().new, bare);
    }

    #[test]
    fn a_row_is_written_as_it_has_always_been() {
        insta::assert_snapshot!(
            "inline",
            show(&write(&a_row(Place::Inline(vec![1, 2, 3])), 8, true))
        );
        insta::assert_snapshot!("beside", show(&write(&a_row(Place::Beside), 8, false)));
    }

    /// ING-same-id-other-body
    #[test]
    fn another_body_is_one_update_of_attributes_that_nothing_else_writes() {
        let at = Timestamp::from_millisecond(1_790_000_007_125).unwrap();
        let last = OtherBody { sha256: Sha256Hash([0xcd; 32]), length: 4097, at };
        let update = other_body(&last);
        assert_eq!(
            update.update().unwrap(),
            "SET #other_sha256 = :other_sha256, #other_length = :other_length, #other_at = :other_at \
             ADD #other_bodies :one"
        );
        assert_eq!(update.condition().unwrap(), "(attribute_exists(#pk))");

        let mut item = write(&a_row(Place::Beside), 8, true);
        let without = read(&item).unwrap();
        assert_eq!(without.other_bodies, None);
        for (name, value) in update.values().unwrap() {
            let name = if name == ":one" { "other_bodies" } else { name.trim_start_matches(':') };
            assert!(item.insert(name.to_owned(), value).is_none(), "{name} is the row's own");
        }
        let other_bodies = Some(OtherBodies { count: 1, last });
        assert_eq!(read(&item).unwrap(), Row { other_bodies, ..without });
        item.insert("other_sha256".to_owned(), b([1, 2]));
        assert!(read(&item).unwrap_err().to_string().ends_with("attribute `other_sha256`"));
    }

    /// INB-ttl-not-enforced
    #[test]
    fn a_pending_row_has_no_expiry() {
        assert!(!write(&a_row(Place::Beside), 8, true).contains_key("expires_at"));
    }

    #[test]
    fn an_item_of_a_later_version_is_unreadable_and_not_a_panic() {
        let mut item = write(&a_row(Place::Beside), 8, true);
        item.insert("status".to_owned(), s("frozen"));
        assert!(read(&item).unwrap_err().to_string().ends_with("attribute `status`"));
        item.remove("sha256");
        assert!(sha256(Reader(&item)).is_err());
    }
}
