//! An object.

use domain::{
    commit::tie_of,
    event::{Object, ObjectRef, Version},
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

/// What an object becomes, and the condition: it is absent or older. The condition is
/// [`domain::commit::is_newer`], word for word.
pub(crate) fn write(
    source: &SourceName,
    object: &ObjectRef,
    new: &Version,
    fields: &serde_json::Value,
    deleted: bool,
    now: Timestamp,
) -> Stored<(Item, Expression)> {
    let tie = tie_of(fields, deleted);
    let (rank, value) = version::write(new);
    let newer = Expression::new().when(
        "attribute_not_exists(#pk) OR #version_rank < :rank OR (#version_rank = :rank AND \
         (#version < :version OR (#version = :version AND #tie < :tie)))",
        [("rank", rank.clone()), ("version", value.clone()), ("tie", s(&tie))],
    );
    let item = Writer::new(keys::object(source, object), "object")
        .put("version_rank", rank)
        .put("version", value)
        .put("tie", s(tie))
        .put("fields", json(fields)?)
        .put("deleted", aws_sdk_dynamodb::types::AttributeValue::Bool(deleted))
        .put("updated_at", ms(now));
    Ok((item.done(), newer))
}

pub(crate) fn read(item: &Item) -> Stored<Object> {
    let item = Reader(item);
    Ok(Object {
        version: version::read(item)?,
        tie: item.str("tie")?.to_owned(),
        fields: item.json("fields")?,
        deleted: item.flag("deleted")?,
        updated_at: item.time("updated_at")?,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::item::show;

    fn item(version: &Version) -> Item {
        let object = ObjectRef { kind: "invoice".to_owned(), id: "in_1".to_owned() };
        let now = Timestamp::from_millisecond(1_790_000_000_123).unwrap();
        let fields = json!({ "status": "paid", "amount": 9_007_199_254_740_993_u64 });
        write(&"stripe".parse().unwrap(), &object, version, &fields, false, now).unwrap().0
    }

    #[test]
    fn an_object_reads_back_as_it_was_put() {
        let time = Timestamp::from_nanosecond(1_790_000_000_000_000_001).unwrap();
        let versions = [
            Version::Number(u64::MAX),
            Version::Time(time),
            Version::Text("2026-01-01".to_owned()),
        ];
        for version in versions {
            let object = read(&item(&version)).unwrap();
            assert_eq!(object.version, version);
            assert_eq!(object.fields["amount"], json!(9_007_199_254_740_993_u64));
        }
    }

    #[test]
    fn an_object_is_written_as_it_has_always_been() {
        insta::assert_snapshot!(show(&item(&Version::Number(3))));
    }
}
