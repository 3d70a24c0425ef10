//! An object.

use aws_sdk_dynamodb::types::AttributeValue;
use domain::{
    commit::{Knowledge, tie_of},
    event::{Object, ObjectRef, Stamp, Version},
    id::SourceName,
    ports::Stored,
};
use jiff::Timestamp;

use crate::{
    expression::Expression,
    item::{Item, Reader, Writer, json, ms, s},
    items::version,
    keys,
};

/// What an object becomes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Becomes<'a> {
    pub(crate) source: &'a SourceName,
    pub(crate) object: &'a ObjectRef,
    pub(crate) version: &'a Version,
    pub(crate) fields: &'a serde_json::Value,
    pub(crate) deleted: bool,
    pub(crate) knowledge: Knowledge,
    pub(crate) now: Timestamp,
}

pub(crate) fn write(new: &Becomes<'_>) -> Stored<Item> {
    let (rank, value) = version::write(new.version);
    let item = Writer::new(keys::object(new.source, new.object), "object")
        .put("version_rank", rank)
        .put("version", value)
        .put("tie", s(tie_of(new.fields, new.deleted)))
        .put("fields", json(new.fields)?)
        .put("deleted", AttributeValue::Bool(new.deleted))
        .put("updated_at", ms(new.now))
        .put("as_of", ms(new.knowledge.as_of))
        .put("fetched", AttributeValue::Bool(new.knowledge.fetched));
    Ok(item.done())
}

/// The object is absent or older: [`domain::commit::is_newer`], word for word.
pub(crate) fn older_than(new: &Version, tie: &str) -> Expression {
    let (rank, value) = version::write(new);
    Expression::new().when(
        "attribute_not_exists(#pk) OR #version_rank < :rank OR (#version_rank = :rank AND \
         (#version < :version OR (#version = :version AND #tie < :tie)))",
        [("rank", rank), ("version", value), ("tie", s(tie))],
    )
}

/// The object is as it was read: [`domain::commit::is_unchanged`], word for word.
pub(crate) fn still(read: Option<&Stamp>) -> Expression {
    let Some(Stamp { version, tie }) = read else { return Expression::absent() };
    let (rank, value) = version::write(version);
    Expression::new().when(
        "#version_rank = :rank AND #version = :version AND #tie = :tie",
        [("rank", rank), ("version", value), ("tie", s(tie))],
    )
}

pub(crate) fn read(item: &Item) -> Stored<Object> {
    let item = Reader(item);
    Ok(Object {
        version: version::read(item)?,
        tie: item.str("tie")?.to_owned(),
        fields: item.json("fields")?,
        deleted: item.flag("deleted")?,
        updated_at: item.time("updated_at")?,
        // Written by a version that knew only what events say, when they said it.
        as_of: item.some("as_of", Reader::time)?.map_or_else(|| item.time("updated_at"), Ok)?,
        fetched: item.some("fetched", Reader::flag)?.unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::item::show;

    fn item(version: &Version) -> Item {
        let object = ObjectRef { kind: "invoice".to_owned(), id: "in_1".to_owned() };
        let now = Timestamp::from_millisecond(1_790_000_000_123).unwrap();
        let fields = json!({ "status": "paid", "amount": 9_007_199_254_740_993_u64 });
        let knowledge = Knowledge { as_of: now - Duration::from_secs(7), fetched: true };
        let source = &"stripe".parse().unwrap();
        let (object, fields, deleted) = (&object, &fields, false);
        write(&Becomes { source, object, version, fields, deleted, knowledge, now }).unwrap()
    }

    #[test]
    fn an_object_reads_back_as_it_was_put() {
        let time = Timestamp::from_nanosecond(1_790_000_000_000_000_001).unwrap();
        let versions = [
            Version::Number(u64::MAX),
            Version::Time(time),
            Version::Text("2026-01-01".to_owned()),
            Version::Composite(vec![Version::Number(7), Version::Time(time)]),
            Version::End,
            Version::Reading(9),
        ];
        for version in versions {
            let object = read(&item(&version)).unwrap();
            assert_eq!(object.version, version);
            assert_eq!((object.as_of.as_millisecond(), object.fetched), (1_789_999_993_123, true));
            assert_eq!(object.fields["amount"], json!(9_007_199_254_740_993_u64));
        }
    }

    #[test]
    fn an_object_is_written_as_it_has_always_been() {
        insta::assert_snapshot!(show(&item(&Version::Number(3))));
        let composite =
            Version::Composite(vec![Version::Number(3), Version::Text("b\0".to_owned())]);
        insta::assert_snapshot!("composite", show(&item(&composite)));
    }

    /// Objects of before: events alone said what they were.
    #[test]
    fn an_object_that_does_not_say_of_when_it_is_is_of_when_it_was_changed() {
        let mut item = item(&Version::Number(3));
        item.remove("as_of");
        item.remove("fetched");
        let object = read(&item).unwrap();
        assert_eq!((object.as_of, object.fetched), (object.updated_at, false));
    }
}
