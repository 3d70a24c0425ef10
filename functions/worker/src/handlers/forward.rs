//! Matching events go out to a tenant's endpoints as they came.

use domain::{
    endpoint::Pattern,
    id::TenantId,
    plan::{Change, Emit, Plan},
};

use super::Event;

/// The type of an outgoing event whose provider names none.
const UNNAMED: &str = "event";

/// An event of a matching type becomes an outgoing event with the same bytes; others end ignored. No `types` match all.
///
/// Nothing guards the change but the outgoing event's own id, which follows from the event: written once, whatever is
/// repeated.
pub fn plan(event: &Event<'_>, tenant: &TenantId, types: &[Pattern]) -> Plan {
    let event_type = event.event_type().unwrap_or(UNNAMED);
    if !types.is_empty() && !types.iter().any(|pattern| pattern.matches(event_type)) {
        return Plan::Ignored(format!(
            "not_forwarded: {} forwards other types than {event_type}",
            event.source()
        ));
    }
    Plan::Apply(vec![Change::emit(Emit {
        tenant: tenant.clone(),
        event_type: event_type.to_owned(),
        schema_version: 1,
        aggregate_id: event.aggregate_id(),
        aggregate_version: event.row.version.as_ref().and_then(|version| version.as_number()),
        name: "forward".to_owned(),
        payload: event.payload(),
    })])
}

#[cfg(test)]
mod tests {
    use domain::{event::Version, plan::Guard};

    use super::{super::tests::row, *};

    fn planned(event_type: Option<&str>, types: &[&str]) -> Plan {
        let types: Vec<Pattern> = types.iter().map(|text| text.parse().unwrap()).collect();
        let row = row(event_type, Some(("order", "7")), Some(Version::Number(3)));
        plan(&Event::new(&row, b"{ }"), &"demo".parse().unwrap(), &types)
    }

    #[test]
    fn a_matching_event_goes_out_as_it_came() {
        let Plan::Apply(changes) = planned(Some("order.paid"), &["invoice.*", "order.*"]) else {
            panic!()
        };
        let [Change { guard: Guard::Free, events }] = &*changes else { panic!("{changes:?}") };
        let [event] = &**events else { panic!("{events:?}") };
        assert_eq!(event.payload, b"{ }");
        assert_eq!((event.event_type.as_str(), event.aggregate_id.as_str()), ("order.paid", "7"));
        assert_eq!((event.aggregate_version, event.schema_version), (Some(3), 1));
    }

    /// B28
    #[test]
    fn types_that_nobody_asked_for_end_ignored() {
        let is_ignored =
            |event_type, types: &[&str]| matches!(planned(event_type, types), Plan::Ignored(_));
        assert!(is_ignored(Some("order.paid"), &["invoice.*"]));
        assert!(is_ignored(None, &["order.*"]));
        assert!(!is_ignored(Some("order.paid"), &[]));
        assert!(!is_ignored(None, &[]));
    }
}
