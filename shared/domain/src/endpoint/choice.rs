//! Which events an endpoint chose, and what it had chosen before.
//!
//! An event is judged by what the endpoint chose at the time in the event's id, and not by what it chooses when the relay
//! comes to it: a fan-out that dies half way and is done again an hour later has the same endpoints.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Endpoint, Pattern};
use crate::{filter::Filter, outbox::OutboxEvent};

/// Choices that an endpoint remembers beside its present one.
pub const MAX_EARLIER: usize = 5;

/// How long it remembers them. An event that is relayed later than this is judged by the oldest that is left.
const REMEMBERED: Duration = Duration::from_hours(7 * 24);

/// Which events an endpoint wants. Everything in it must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// Types, of which one must match. Empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patterns: Vec<Pattern>,
    /// Labels that the event must carry, all of them, with these values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// What its payload must be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<Filter>,
}

/// A choice that was in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Earlier {
    /// Until when, by the time in an event's id.
    pub until: Timestamp,
    /// What it was.
    #[serde(flatten)]
    pub choice: Choice,
}

/// What of an event decides who gets it, beside its payload.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// Its type.
    pub event_type: &'a str,
    /// The time in its id.
    pub at: Timestamp,
    /// Its labels.
    pub labels: &'a BTreeMap<String, String>,
}

impl<'a> From<&'a OutboxEvent> for Facts<'a> {
    fn from(event: &'a OutboxEvent) -> Self {
        Self { event_type: &event.event_type, at: event.id.time(), labels: &event.labels }
    }
}

/// A choice, wherever it stands.
struct Chosen<'a> {
    patterns: &'a [Pattern],
    labels: &'a BTreeMap<String, String>,
    filter: Option<&'a Filter>,
}

impl Endpoint {
    /// Whether an event goes to this endpoint. A payload that is not JSON, or could not be had, is `None`: no filter
    /// lets it pass.
    pub fn wants(&self, event: &Facts<'_>, payload: Option<&Value>) -> bool {
        let passes = |filter: &Filter| payload.is_some_and(|payload| filter.matches(payload));
        self.considers(event) && self.filter_at(event.at).is_none_or(passes)
    }

    /// Whether an event that passes the filter, if there is one, goes to this endpoint.
    pub fn considers(&self, event: &Facts<'_>) -> bool {
        let chosen = self.chosen_at(event.at);
        // An endpoint gets nothing from before it existed, however late the relay is. By the millisecond, because the time
        // in an id has no finer part: an event of the same millisecond may be the endpoint's first.
        event.at.as_millisecond() >= self.created_at.as_millisecond()
            && (chosen.patterns.is_empty()
                || chosen.patterns.iter().any(|pattern| pattern.matches(event.event_type)))
            && chosen.labels.iter().all(|(name, value)| event.labels.get(name) == Some(value))
    }

    /// The filter for events of a time.
    pub fn filter_at(&self, at: Timestamp) -> Option<&Filter> {
        self.chosen_at(at).filter
    }

    /// Changes what it wants, from now on.
    pub fn choose(&mut self, choice: Choice, now: Timestamp) {
        let before = Choice {
            patterns: std::mem::replace(&mut self.patterns, choice.patterns),
            labels: std::mem::replace(&mut self.labels, choice.labels),
            filter: std::mem::replace(&mut self.filter, choice.filter),
        };
        let same = (&self.patterns, &self.labels, &self.filter)
            == (&before.patterns, &before.labels, &before.filter);
        if same {
            return;
        }
        // Clocks differ; what was in force longer does not end sooner.
        let until = self.earlier.last().map_or(now, |last| last.until.max(now));
        self.earlier.push(Earlier { until, choice: before });
        let oldest = now.saturating_sub(REMEMBERED).unwrap_or(Timestamp::MIN);
        let too_many = self.earlier.len().saturating_sub(MAX_EARLIER);
        let mut index = 0;
        self.earlier.retain(|earlier| {
            index += 1;
            index > too_many && earlier.until > oldest
        });
    }

    fn chosen_at(&self, at: Timestamp) -> Chosen<'_> {
        // By the millisecond, as everything that is compared with the time in an id.
        let in_force = |earlier: &&Earlier| at.as_millisecond() < earlier.until.as_millisecond();
        match self.earlier.iter().find(in_force) {
            Some(Earlier { choice, .. }) => Chosen {
                patterns: &choice.patterns,
                labels: &choice.labels,
                filter: choice.filter.as_ref(),
            },
            None => Chosen {
                patterns: &self.patterns,
                labels: &self.labels,
                filter: self.filter.as_ref(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::*;
    use crate::{destination::Destination, id::EndpointId};

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millisecond(ms).unwrap()
    }

    fn endpoint() -> Endpoint {
        let url = Destination::Https("https://example.com/".to_owned());
        let id = EndpointId::new(Uuid::from_u128(7));
        Endpoint::new("acme".parse().unwrap(), id, url, at(1000))
    }

    fn labels(of: &[(&str, &str)]) -> BTreeMap<String, String> {
        of.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn types(patterns: &[&str]) -> Choice {
        let patterns = patterns.iter().map(|pattern| pattern.parse().unwrap()).collect();
        Choice { patterns, ..Choice::default() }
    }

    fn amount(limit: i64) -> Choice {
        let filter = Filter::new(json!({"/amount": {"gte": limit}})).unwrap();
        Choice { filter: Some(filter), ..Choice::default() }
    }

    fn wants(endpoint: &Endpoint, event_type: &str, ms: i64) -> bool {
        endpoint.wants(&Facts { event_type, at: at(ms), labels: &BTreeMap::new() }, None)
    }

    #[test]
    fn an_endpoint_without_patterns_gets_everything_and_one_with_some_gets_those() {
        assert!(wants(&endpoint(), "invoice.paid", 1000));
        let Choice { patterns, .. } = types(&["invoice.*", "charge.failed"]);
        let chosen = Endpoint { patterns, ..endpoint() };
        assert!(wants(&chosen, "invoice.paid", 1000));
        assert!(wants(&chosen, "charge.failed", 1000));
        assert!(!wants(&chosen, "charge.paid", 1000));
    }

    /// OUT-fanout-partial
    #[test]
    fn an_endpoint_gets_nothing_from_before_it_existed() {
        let all = endpoint();
        assert!(!wants(&all, "a", 999));
        assert!(wants(&all, "a", 1000));
        // Made within a millisecond: the event's id cannot say that it is the younger one.
        let made = Timestamp::from_microsecond(1_000_700).unwrap();
        assert!(wants(&Endpoint { created_at: made, ..all }, "a", 1000));
    }

    #[test]
    fn an_event_must_carry_every_label_of_the_endpoint() {
        let check = |asked: &[(&str, &str)], carried: &[(&str, &str)], expected: bool| {
            let endpoint = Endpoint { labels: labels(asked), ..endpoint() };
            let facts = Facts { event_type: "a", at: at(1000), labels: &labels(carried) };
            assert_eq!(endpoint.wants(&facts, None), expected, "{asked:?} {carried:?}");
        };
        check(&[], &[], true);
        check(&[], &[("region", "eu")], true);
        check(&[("region", "eu")], &[], false);
        check(&[("region", "eu")], &[("region", "us")], false);
        check(&[("region", "eu")], &[("region", "eu"), ("shop", "7")], true);
        check(&[("region", "eu"), ("shop", "7")], &[("region", "eu")], false);
        check(&[("region", "")], &[], false);
    }

    #[test]
    fn a_filter_is_asked_about_the_payload_and_passes_none_that_is_not_there() {
        let mut endpoint = endpoint();
        endpoint.choose(amount(100), at(1));
        let facts = Facts { event_type: "a", at: at(1000), labels: &BTreeMap::new() };
        assert!(endpoint.considers(&facts));
        assert!(endpoint.wants(&facts, Some(&json!({"amount": 100}))));
        assert!(!endpoint.wants(&facts, Some(&json!({"amount": 99}))));
        assert!(!endpoint.wants(&facts, None));
    }

    /// OUT-fanout-partial: the endpoints of an event are those of its time, also for a relay that comes late.
    #[test]
    fn an_event_is_judged_by_what_was_chosen_at_its_time() {
        let mut endpoint = endpoint();
        endpoint.choose(types(&["b"]), at(2000));
        endpoint.choose(types(&["c"]), at(3000));
        let wanted = |ms: i64| ["a", "b", "c"].map(|event_type| wants(&endpoint, event_type, ms));
        assert_eq!(wanted(1999), [true, true, true]);
        assert_eq!(wanted(2000), [false, true, false]);
        assert_eq!(wanted(2999), [false, true, false]);
        assert_eq!(wanted(3000), [false, false, true]);
        endpoint.choose(amount(5), at(4000));
        assert_eq!(
            (endpoint.filter_at(at(3999)), endpoint.filter_at(at(4000)).is_some()),
            (None, true)
        );
    }

    #[test]
    fn choosing_the_same_again_changes_nothing() {
        let mut endpoint = endpoint();
        endpoint.choose(amount(5), at(2000));
        let before = endpoint.clone();
        endpoint.choose(amount(5), at(3000));
        assert_eq!(endpoint, before);
    }

    #[test]
    fn few_earlier_choices_are_remembered_and_not_for_ever() {
        let mut endpoint = endpoint();
        for n in 0..20 {
            endpoint.choose(amount(n), at(2000 + n));
        }
        assert_eq!(endpoint.earlier.len(), MAX_EARLIER);
        assert_eq!(endpoint.earlier.last().unwrap().choice, amount(18));
        // A clock that is behind ends nothing before it began.
        endpoint.choose(types(&["a"]), at(5));
        assert_eq!(endpoint.earlier.last().unwrap().until, at(2019));
        let week = i64::try_from(REMEMBERED.as_millis()).unwrap();
        endpoint.choose(types(&["b"]), at(2019 + week));
        assert_eq!(
            endpoint.earlier.iter().map(|earlier| earlier.until).collect::<Vec<_>>(),
            [at(2019 + week)]
        );
    }

    #[test]
    fn what_it_chose_is_stored_beside_what_it_chooses() {
        let mut chosen = endpoint();
        chosen.choose(Choice { labels: labels(&[("region", "eu")]), ..amount(5) }, at(2000));
        let stored = serde_json::to_value(&chosen).unwrap();
        assert_eq!(stored["labels"], json!({"region": "eu"}));
        assert_eq!(stored["filter"], json!({"/amount": {"gte": 5}}));
        assert_eq!(stored["earlier"], json!([{"until": "1970-01-01T00:00:02Z"}]));
        assert_eq!(serde_json::from_value::<Endpoint>(stored).unwrap(), chosen);
        let plain = serde_json::to_value(endpoint()).unwrap();
        assert!(["labels", "filter", "earlier"].iter().all(|name| plain.get(name).is_none()));
    }
}
