//! Endpoints: where a tenant wants its events.

mod choice;
mod credentials;
mod headers;
mod health;
mod life;
mod notice;
mod pattern;
mod steer;
mod style;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use self::{
    choice::{Choice, Earlier, Facts, MAX_EARLIER},
    credentials::BadAuth,
    headers::{BadHeader, StaticHeaders},
    health::{Disabled, Health, Limits as HealthLimits, Seen},
    life::{Held, Release, Stop, Stopped},
    notice::{Notice, What},
    pattern::{InvalidPattern, MAX_PATTERN, Pattern},
    steer::TooManyChanges,
    style::{Auth, CredentialsIn, Style},
};
use crate::{
    destination::Destination,
    filter::Filter,
    id::{EndpointId, TenantId},
};

/// An endpoint, as it stands in the registry. Its secrets stand beside it, encrypted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Whose it is.
    pub tenant: TenantId,
    /// Its id.
    pub id: EndpointId,
    /// Where it is.
    #[serde(flatten)]
    pub destination: Destination,
    /// Whether the target recognises the event id as an idempotency key, so that a request whose outcome is unknown can
    /// be made again. If not, such a delivery waits for a person.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub idempotent: bool,
    /// Which event types it gets. Empty: all.
    pub patterns: Vec<Pattern>,
    /// Labels that an event must carry for it, all of them. Changed by [`Endpoint::choose`], as `patterns` and `filter` are.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// What the payload of an event must be for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<Filter>,
    /// What it chose before, oldest first; at most [`MAX_EARLIER`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<Earlier>,
    /// How many deliveries may be under way at once; `None` is the deployment's default.
    pub concurrency: Option<u32>,
    /// How many lanes it has, from when on.
    pub lanes: Vec<LaneCount>,
    /// When it was made. It gets no event from before.
    pub created_at: Timestamp,
    /// What its owner calls it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// What the program that configured it calls it: no two of a tenant's endpoints have the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Most deliveries that are begun in a second, over all its lanes; `None`: as many as its concurrency allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
    /// What is sent of an event.
    #[serde(default, skip_serializing_if = "Style::is_full")]
    pub style: Style,
    /// How we show who we are, beside the signature. What is secret of it stands with the sealed secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,
    /// The names of its own static headers, in lower case. Their values stand with the sealed secrets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<String>,
    /// What its owner verifies `v1a` signatures with (`whpk_...`), by the ids of the secrets that make them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub public_keys: BTreeMap<String, String>,
    /// Set while a person has stopped it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Stopped>,
    /// When it was last enabled. What the deliverer found before that about its health counts no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled_at: Option<Timestamp>,
    /// Times for which its deliveries were held, oldest first; at most [`Endpoint::MAX_HELD`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<Held>,
    /// How fast what was held goes out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<Release>,
}

const fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
const fn is_yes(flag: &bool) -> bool {
    *flag
}

/// An endpoint that was deleted, as it was. Nothing is sent to it; what was sent stays readable by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gone {
    /// The endpoint.
    pub endpoint: Endpoint,
    /// When.
    pub deleted_at: Timestamp,
}

/// A number of lanes that is in force for events from a time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneCount {
    /// From when on, by the time in an event's id.
    pub from: Timestamp,
    /// How many.
    pub count: u16,
}

impl Endpoint {
    /// An endpoint without anything out of the ordinary: it gets every event, in one lane.
    pub fn new(
        tenant: TenantId,
        id: EndpointId,
        destination: Destination,
        created_at: Timestamp,
    ) -> Self {
        Self {
            tenant,
            id,
            destination,
            idempotent: true,
            patterns: Vec::new(),
            labels: BTreeMap::new(),
            filter: None,
            earlier: Vec::new(),
            concurrency: None,
            lanes: Vec::new(),
            created_at,
            description: String::new(),
            key: None,
            rate: None,
            style: Style::Full,
            auth: None,
            headers: Vec::new(),
            public_keys: BTreeMap::new(),
            stopped: None,
            enabled_at: None,
            held: Vec::new(),
            release: None,
        }
    }

    /// How many lanes are in force at a time.
    pub fn lane_count(&self, at: Timestamp) -> u16 {
        let lanes = self.lanes.iter().filter(|lanes| lanes.from <= at);
        lanes.max_by_key(|lanes| lanes.from).map_or(1, |lanes| lanes.count.max(1))
    }

    /// How many deliveries of one lane may be under way at once: its part of the endpoint's concurrency, which is shared
    /// out between all lanes at work. One at least: who saves an endpoint sees to it that there are enough for all.
    pub fn lane_width(&self, lane: u16, default: u32, now: Timestamp) -> usize {
        let all = self.concurrency.unwrap_or(default);
        let lanes = u32::from(self.lanes_at_work(now));
        let share = all / lanes + u32::from(u32::from(lane) < all % lanes);
        usize::try_from(share).unwrap_or(usize::MAX).max(1)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millisecond(ms).unwrap()
    }

    fn endpoint(patterns: &[&str]) -> Endpoint {
        let url = Destination::Https("https://example.com/".to_owned());
        let id = EndpointId::new(Uuid::from_u128(7));
        let patterns = patterns.iter().map(|pattern| pattern.parse().unwrap()).collect();
        Endpoint { patterns, ..Endpoint::new("acme".parse().unwrap(), id, url, at(1000)) }
    }

    /// A row of before there were other destinations than URLs reads as it was meant, and is written as it was.
    #[test]
    fn a_stored_endpoint_has_one_member_that_says_where_it_is() {
        let check = |members: &str, destination: Destination, idempotent: bool| {
            let stored = format!(
                r#"{{"tenant":"acme","id":"{}",{members},"patterns":[],"concurrency":null,"lanes":[],"created_at":"1970-01-01T00:00:01Z"}}"#,
                endpoint(&[]).id
            );
            let read: Endpoint = serde_json::from_str(&stored).unwrap();
            assert_eq!(read, Endpoint { destination, idempotent, ..endpoint(&[]) }, "{members}");
            assert_eq!(serde_json::to_string(&read).unwrap(), stored);
        };
        let url = Destination::Https("https://example.com/".to_owned());
        check(r#""url":"https://example.com/""#, url.clone(), true);
        check(r#""url":"https://example.com/","idempotent":false"#, url, false);
        let queue = "https://sqs.eu-central-1.amazonaws.com/123456789012/mail";
        let destination = Destination::Queue(queue.parse().unwrap());
        check(&format!(r#""queue":"{queue}""#), destination, true);
        let bus = "arn:aws:events:eu-central-1:123456789012:event-bus/orders";
        check(&format!(r#""bus":"{bus}""#), Destination::Bus(bus.parse().unwrap()), true);
        check(r#""poll":{}"#, Destination::Poll(crate::destination::Polling {}), true);
        let nowhere = r#"{"tenant":"acme","id":"x","patterns":[]}"#;
        assert!(serde_json::from_str::<Endpoint>(nowhere).is_err());
    }

    #[test]
    fn patterns_choose_event_types() {
        let check = |pattern: &str, event_type: &str, expected: bool| {
            let pattern: Pattern = pattern.parse().unwrap();
            assert_eq!(pattern.matches(event_type), expected, "{pattern} {event_type}");
        };
        check("invoice.paid", "invoice.paid", true);
        check("invoice.paid", "invoice.paid.late", false);
        check("invoice.paid", "xinvoice.paid", false);
        check("invoice.*", "invoice.paid", true);
        check("invoice.*", "invoice.", true);
        check("invoice.*", "invoices.paid", false);
        check("*", "", true);
        check("*", "anything", true);
        check("*.paid", "invoice.paid", true);
        check("*.paid", "invoice.paid.x", false);
        check("a*b*c", "a-b-b-c", true);
        check("a*b*c", "abc", true);
        check("a*b*c", "acb", false);
        check("a*a", "a", false);
        check("ab*bc", "abc", false);
        check("*a*ab", "aab", true);
    }

    #[test]
    fn texts_that_are_no_patterns_are_refused() {
        for bad in ["", "**", "a**b", "a b", "é", "a\n", &"a".repeat(MAX_PATTERN + 1)] {
            assert!(bad.parse::<Pattern>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn concurrency_is_shared_out_between_lanes() {
        let check = |concurrency: Option<u32>, lanes: u16, expected: &[usize]| {
            let lanes = vec![LaneCount { from: at(0), count: lanes }];
            let endpoint = Endpoint { concurrency, lanes, ..endpoint(&[]) };
            let lanes = 0..endpoint.lane_count(at(2000));
            let widths: Vec<_> = lanes.map(|lane| endpoint.lane_width(lane, 5, at(2000))).collect();
            assert_eq!(widths, expected);
        };
        check(None, 1, &[5]);
        check(Some(10), 1, &[10]);
        check(Some(10), 4, &[3, 3, 2, 2]);
        check(Some(4), 4, &[1, 1, 1, 1]);
        check(Some(0), 1, &[1]);
        check(None, 0, &[5]);
        // Only a row of before this was a rule.
        check(Some(2), 4, &[1, 1, 1, 1]);
    }
}
