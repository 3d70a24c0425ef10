//! Objects follow the provider, from the scheme alone.
//!
//! An object's fields are the whole body of the newest event about it, parsed. The row knows which object an event is
//! about, not where in the body its state stands, and cutting out the wrong part would be worse than keeping too much.
//! (Numbers beyond 64 bits become the nearest double in this view; the outgoing event has the bytes as they came.)

use domain::{
    event::{Object, ObjectRef},
    id::TenantId,
    plan::{Change, Emit, Guard, Plan},
};
use serde_json::Value;

use super::Event;

/// Largest body that becomes an object, in bytes: an item of DynamoDB holds 400 KB, names and keys included.
const MAX_FIELDS: usize = 350_000;

/// The object becomes what the event says of it, if that is newer; and `emit_to`, if any, is told.
pub fn plan(event: &Event<'_>, current: Option<&Object>, emit_to: Option<&TenantId>) -> Plan {
    let Some(object) = &event.row.object else {
        return Plan::Ignored(
            "no_object: the scheme finds no object in this event, so there is nothing to mirror"
                .to_owned(),
        );
    };
    let Some(version) = &event.row.version else {
        return Plan::Ignored(
            "no_version: the event does not say how new it is, and taking it as the newest could undo a later change"
                .to_owned(),
        );
    };
    if current.is_some_and(|current| !current.version.is_like(version)) {
        return Plan::Reject(format!(
            "{} {} has a version of another kind than this event, so neither is known to be newer; was the scheme of \
             {} changed?",
            object.kind,
            object.id,
            event.source()
        ));
    }
    if event.body.len() > MAX_FIELDS {
        return Plan::Reject(format!(
            "the body has {} bytes, and an object holds {MAX_FIELDS}; forward events of this size instead",
            event.body.len()
        ));
    }
    let Ok(fields) = serde_json::from_slice::<Value>(event.body) else {
        return Plan::Reject(
            "the body cannot be parsed as JSON, so it has no fields to mirror".to_owned(),
        );
    };
    let deleted = is_deletion(event.event_type(), object);
    let (object_ref, version_number) = (object.clone(), version.as_number());
    let guard = Guard::Newer { object: object_ref, version: version.clone(), fields, deleted };
    let told = emit_to.map(|tenant| Emit {
        tenant: tenant.clone(),
        event_type: event
            .event_type()
            .map_or_else(|| format!("{}.changed", object.kind), str::to_owned),
        schema_version: 1,
        aggregate_id: event.aggregate_id(),
        aggregate_version: version_number,
        name: "mirror".to_owned(),
        payload: event.payload(),
    });
    Plan::Apply(vec![Change { guard, events: told.into_iter().collect() }])
}

/// Whether an event says that its object is gone: its type ends with the object's kind and `delete` or `deleted`, as in
/// `customer.subscription.deleted` and `products/delete`. A `delete` of something else, such as a branch, does not count.
fn is_deletion(event_type: Option<&str>, object: &ObjectRef) -> bool {
    let mut words = event_type.unwrap_or_default().rsplit(['.', '/']);
    matches!(words.next(), Some("delete" | "deleted")) && words.next() == Some(object.kind.as_str())
}

#[cfg(test)]
mod tests {
    use domain::event::Version;
    use jiff::Timestamp;
    use serde_json::json;

    use super::{super::tests::row, *};

    fn planned(
        event_type: &str,
        object: Option<(&str, &str)>,
        version: Option<u64>,
        body: &str,
    ) -> Plan {
        let row = row(Some(event_type), object, version.map(Version::Number));
        plan(&Event::new(&row, body.as_bytes()), None, Some(&"demo".parse().unwrap()))
    }

    #[test]
    fn an_object_becomes_the_whole_body_and_the_tenant_gets_the_bytes() {
        let body = r#"{"data":{"object":{"id":"in_1", "n": 1.0}}}"#;
        let Plan::Apply(changes) =
            planned("invoice.paid", Some(("invoice", "in_1")), Some(7), body)
        else {
            panic!("not applied");
        };
        let [Change { guard: Guard::Newer { object, version, fields, deleted }, events }] =
            &*changes
        else {
            panic!("{changes:?}");
        };
        assert_eq!((object.kind.as_str(), object.id.as_str()), ("invoice", "in_1"));
        assert_eq!((version, *deleted), (&Version::Number(7), false));
        assert_eq!(fields, &json!({ "data": { "object": { "id": "in_1", "n": 1.0 } } }));
        let [event] = &**events else { panic!("{events:?}") };
        assert_eq!(event.payload, body.as_bytes());
        assert_eq!(
            (event.event_type.as_str(), event.aggregate_id.as_str()),
            ("invoice.paid", "in_1")
        );
        assert_eq!(event.aggregate_version, Some(7));
    }

    #[test]
    fn nobody_is_told_unless_the_source_says_whom() {
        let row = row(None, Some(("invoice", "in_1")), Some(Version::Number(1)));
        let Plan::Apply(changes) = plan(&Event::new(&row, b"{}"), None, None) else { panic!() };
        assert!(changes[0].events.is_empty());
    }

    #[test]
    fn an_event_that_cannot_be_placed_is_ignored_with_the_reason() {
        let says =
            |planned, word: &str| matches!(planned, Plan::Ignored(why) if why.starts_with(word));
        assert!(says(planned("a", None, Some(1), "{}"), "no_object: "));
        assert!(says(planned("a", Some(("k", "1")), None, "{}"), "no_version: "));
    }

    #[test]
    fn what_can_never_be_mirrored_is_refused_with_the_reason() {
        let large = format!("\"{}\"", "x".repeat(MAX_FIELDS));
        for body in ["a=1", "", "{", "1e400", &large] {
            let planned = planned("a", Some(("k", "1")), Some(1), body);
            assert!(matches!(planned, Plan::Reject(_)), "{planned:?}");
        }
        let row = row(None, Some(("k", "1")), Some(Version::Number(1)));
        let current = Object {
            version: Version::Time(Timestamp::UNIX_EPOCH),
            tie: String::new(),
            fields: Value::Null,
            deleted: false,
            updated_at: Timestamp::UNIX_EPOCH,
            as_of: Timestamp::UNIX_EPOCH,
            fetched: false,
        };
        let planned = plan(&Event::new(&row, b"{}"), Some(&current), None);
        assert!(matches!(planned, Plan::Reject(why) if why.contains("of another kind")));
    }

    /// ORD-update-before-create: a deletion leaves the object, marked, so that a late update does not revive it.
    #[test]
    fn only_the_deletion_of_the_object_itself_marks_it_as_deleted() {
        let cases = [
            ("customer.subscription.deleted", "subscription", true),
            ("products/delete", "products", true),
            ("customer.subscription.deleted", "customer", false),
            ("delete", "repository", false),
            ("subscription.undeleted", "subscription", false),
            ("subscription.deleted.later", "subscription", false),
            ("", "subscription", false),
        ];
        for (event_type, kind, expected) in cases {
            let object = ObjectRef { kind: kind.to_owned(), id: "1".to_owned() };
            assert_eq!(is_deletion(Some(event_type), &object), expected, "{event_type}");
        }
    }
}
