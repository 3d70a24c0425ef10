//! Which function called what: the list that is compared with the template's policies.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use serde::Serialize;

/// Distinct calls kept; beyond it the last part of a resource is folded into `*`.
const CALLS_KEPT: usize = 10_000;
/// Distinct leading keys kept per call.
const KEYS_KEPT: usize = 1_000;

/// One call as it was seen.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Observed {
    /// The function (`ingress`), or the access key id of anyone else.
    pub function: String,
    /// The IAM action, such as `dynamodb:PutItem`.
    pub action: String,
    /// The ARN, or `*` where the action has none.
    pub resource: String,
    /// Partition keys touched, as `dynamodb:LeadingKeys` has them.
    pub leading_keys: Vec<String>,
}

/// All equal calls so far.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Call {
    /// The function (`ingress`), or the access key id of anyone else.
    pub function: String,
    /// The IAM action.
    pub action: String,
    /// The ARN, or `*`.
    pub resource: String,
    /// Partition keys touched, at most a thousand of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub leading_keys: Vec<String>,
    /// How often.
    pub count: u64,
}

/// Function, action, resource.
type Place = (String, String, String);

#[derive(Debug, Default)]
struct Seen {
    keys: BTreeSet<String>,
    count: u64,
}

/// The calls so far, equal ones counted.
#[derive(Clone, Debug, Default)]
pub struct Recorder(Arc<Mutex<BTreeMap<Place, Seen>>>);

impl Recorder {
    /// Notes a call.
    pub fn record(&self, call: Observed) {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut place = (call.function, call.action, call.resource);
        if calls.len() >= CALLS_KEPT && !calls.contains_key(&place) {
            let folded = place
                .2
                .rsplit_once('/')
                .map_or_else(|| "*".to_owned(), |(front, _)| format!("{front}/*"));
            place.2 = folded;
        }
        let seen = calls.entry(place).or_default();
        seen.count += 1;
        for key in call.leading_keys {
            if seen.keys.len() < KEYS_KEPT {
                seen.keys.insert(key);
            }
        }
    }

    /// The calls so far, in order of function, action and resource.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        let calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        calls
            .iter()
            .map(|((function, action, resource), seen)| Call {
                function: function.clone(),
                action: action.clone(),
                resource: resource.clone(),
                leading_keys: seen.keys.iter().cloned().collect(),
                count: seen.count,
            })
            .collect()
    }

    /// Forgets all calls.
    pub fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// Who signed: `Credential=<access key id>/...`; the host gives each function the id `LOCAL<function>`.
pub(super) fn caller(headers: &http::HeaderMap) -> String {
    let id = headers
        .get(http::header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split_once("Credential="))
        .and_then(|(_, credential)| credential.split(['/', ',', ' ']).next())
        .unwrap_or("anonymous");
    id.strip_prefix("LOCAL").unwrap_or(id).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caller_is_known_by_the_access_key() {
        let check = |value: Option<&str>, expected: &str| {
            let mut headers = http::HeaderMap::new();
            if let Some(value) = value {
                headers.insert("authorization", value.parse().unwrap());
            }
            assert_eq!(caller(&headers), expected);
        };
        check(
            Some(
                "AWS4-HMAC-SHA256 Credential=LOCALingress/20261130/us-east-1/sqs/aws4_request, SignedHeaders=a",
            ),
            "ingress",
        );
        check(Some("AWS4-HMAC-SHA256 Credential=AKID/20261130/us-east-1/sqs/aws4_request"), "AKID");
        check(Some("Bearer x"), "anonymous");
        check(None, "anonymous");
    }

    #[test]
    fn equal_calls_are_counted_and_the_list_stays_bounded() {
        let recorder = Recorder::default();
        for n in 0..CALLS_KEPT + 10 {
            recorder.record(Observed {
                function: "worker".to_owned(),
                action: "s3:GetObject".to_owned(),
                resource: format!("arn:aws:s3:::b/in/{n}"),
                leading_keys: vec![],
            });
        }
        let calls = recorder.calls();
        assert_eq!(calls.len(), CALLS_KEPT + 1);
        assert_eq!(
            calls.iter().find(|call| call.resource == "arn:aws:s3:::b/in/*").unwrap().count,
            10
        );
    }
}
